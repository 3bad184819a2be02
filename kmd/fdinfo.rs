// SPDX-License-Identifier: GPL-2.0
//! What /proc/PID/fdinfo says of a client: engine time and memory, in the keys of
//! the kernel's Documentation/gpu/drm-usage-stats.rst, which nvtop and others read.

use kernel::fmt::Write;

use crate::file::TallyFile;
use crate::{queue, raw};

/// Engine classes by their index in QUERY ENGINES, as far as they have names.
const CLASSES: [&str; 2] = ["compute", "copy"];

/// Writes a client's lines.
pub(crate) fn show(file: &TallyFile, out: &mut impl Write) {
    let state = file.state();
    let mut busy_ns = [0u64; CLASSES.len()];
    let guard = raw::once_registered(file.device()).registration_guard();
    state.queues.for_each(
        |queue| queue.owner_id() == file.id() && !queue.ended(),
        |_, queue| {
            if let Some(guard) = &guard {
                // Without an answer the last one is shown.
                let _ =
                    guard.registration_data_with(|registered| queue::ask(registered.gpu, &queue));
            }
            if let Some(sum) = busy_ns.get_mut(queue.class() as usize) {
                *sum += queue.busy_ns();
            }
        },
    );
    let mut mapped = (0, 0);
    state.vms.for_each(
        |vm| vm.owner_id() == file.id(),
        |_, vm| {
            let (count, bytes) = vm.mapped();
            mapped = (mapped.0 + count, mapped.1 + bytes);
        },
    );
    // A printer that is full drops the rest; there is nobody to tell.
    for (class, busy_ns) in CLASSES.iter().zip(busy_ns) {
        let _ = writeln!(out, "drm-engine-{class}:\t{busy_ns} ns");
    }
    let _ = writeln!(out, "drm-resident-memory:\t{} KiB", mapped.1 / 1024);
    let _ = writeln!(out, "tally-mappings:\t{}", mapped.0);
}

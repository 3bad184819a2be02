// SPDX-License-Identifier: GPL-2.0
//! What /proc/PID/fdinfo says of a client: engine time, in the keys of the kernel's
//! Documentation/gpu/drm-usage-stats.rst, which nvtop and others read, and what counts
//! against its limits. Memory by the common keys comes from the core, which counts each
//! buffer that the client has a handle of once (`raw::drm`).

use kernel::fmt::Write;

use crate::commands;
use crate::file::TallyFile;
use crate::object::queue::CLASSES;
use crate::raw::drm::{once_registered, Fdinfo, Printer};
use crate::raw::time::monotonic_ns;

/// How long a reader waits for answers of the device.
const PATIENCE_NS: i64 = 20_000_000;

impl Fdinfo for TallyFile {
    fn show(&self, out: &mut Printer) {
        let state = self.state();
        let guard = once_registered(self.device()).registration_guard();
        let mut last = None;
        state.queues.for_each(
            |queue| queue.owner_id() == self.id() && !queue.ended(),
            |_, queue| {
                if let Some(guard) = &guard {
                    let asked = guard.registration_data_with(|registered| {
                        commands::refresh(registered.gpu, &queue)
                    });
                    if let Some(before) = asked.and_then(|call| last.replace(call)) {
                        before.leave();
                    }
                }
            },
        );
        // Unbinding does not wait for what follows.
        drop(guard);
        // What is not answered soon counts with what was known before: a reader does not wait for a slow VM.
        if let Some(call) = last {
            let _ = call.wait_until(state, monotonic_ns().saturating_add(PATIENCE_NS));
        }
        let mut mappings = 0;
        state.vms.for_each(|vm| vm.owner_id() == self.id(), |_, vm| mappings += vm.mapped().0);
        // A printer that is full drops the rest, and the caller cannot be told.
        for (class, ns) in CLASSES.iter().zip(self.engine_time().ns()) {
            let _ = writeln!(out, "drm-engine-{class}:\t{ns} ns");
        }
        let _ = writeln!(out, "tally-charged-memory:\t{} KiB", self.account().used() / 1024);
        let _ = writeln!(out, "tally-mappings:\t{mappings}");
    }
}

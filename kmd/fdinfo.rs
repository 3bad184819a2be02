// SPDX-License-Identifier: GPL-2.0
//! What /proc/PID/fdinfo says of a client: engine time, in the keys of the kernel's
//! Documentation/gpu/drm-usage-stats.rst, which nvtop and others read, and what counts
//! against its limits. Memory by the common keys comes from the core, which counts each
//! buffer that the client has a handle of once (`raw::drm`).

use kernel::fmt::Write;
use kernel::sync::atomic::{Atomic, Relaxed};

use crate::file::TallyFile;
use crate::{queue, raw};

/// Engine classes by their index in QUERY ENGINES, as far as they have names.
const CLASSES: [&str; 2] = ["compute", "copy"];

/// How long a reader waits for answers of the device.
const PATIENCE_NS: i64 = 20_000_000;

/// Time of a client's queues on engines, in ns, by class. It only grows, also when queues end.
pub(crate) struct EngineTime([Atomic<u64>; CLASSES.len()]);

impl EngineTime {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; CLASSES.len()])
    }

    /// Adds time of a queue of that class.
    pub(crate) fn add(&self, class: u32, ns: u64) {
        if let Some(sum) = self.0.get(class as usize) {
            sum.add(ns, Relaxed);
        }
    }
}

/// Writes a client's lines.
pub(crate) fn show(file: &TallyFile, out: &mut impl Write) {
    let state = file.state();
    let guard = raw::once_registered(file.device()).registration_guard();
    let mut last = None;
    state.queues.for_each(
        |queue| queue.owner_id() == file.id() && !queue.ended(),
        |_, queue| {
            if let Some(guard) = &guard {
                let asked = guard
                    .registration_data_with(|registered| queue::refresh(registered.gpu, &queue));
                if let Some(before) = asked.and_then(|call| last.replace(call)) {
                    before.leave();
                }
            }
        },
    );
    // What is not answered soon counts with what was known before: a reader does not wait for a slow VM.
    if let Some(call) = last {
        let _ = call.wait_until(state, raw::monotonic_ns().saturating_add(PATIENCE_NS));
    }
    let mut mappings = 0;
    state.vms.for_each(
        |vm| vm.owner_id() == file.id(),
        |_, vm| mappings += vm.mapped().0,
    );
    // A printer that is full drops the rest; there is nobody to tell.
    for (class, sum) in CLASSES.iter().zip(&file.engine_time().0) {
        let _ = writeln!(out, "drm-engine-{class}:\t{} ns", sum.load(Relaxed));
    }
    let _ = writeln!(out, "tally-charged-memory:\t{} KiB", file.account().used() / 1024);
    let _ = writeln!(out, "tally-mappings:\t{mappings}");
}

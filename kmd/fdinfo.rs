// SPDX-License-Identifier: GPL-2.0
//! The lines of a client in /proc/PID/fdinfo: engine time, in the keys of the kernel's
//! Documentation/gpu/drm-usage-stats.rst, which nvtop and others read, and the usage that
//! counts against its limits. The DRM core writes the common keys of memory, which count
//! each buffer that the client has a handle of once (`raw::drm`).

use kernel::fmt::Write;

use crate::commands;
use crate::file::TallyFile;
use crate::object::queue::CLASSES;
use crate::raw::drm::{once_registered, Fdinfo, Printer};
use crate::raw::time::monotonic_ns;

/// Time that a reader waits for answers of the device, in ns.
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
        // Dropped first, so that unbinding does not wait for the sleep below.
        drop(guard);
        // A queue that does not answer soon counts with its last known time: readers do not wait for a slow VM.
        if let Some(call) = last {
            let _ = call.wait_until(state, monotonic_ns().saturating_add(PATIENCE_NS));
        }
        let mut mappings = 0;
        state.vms.for_each(
            |vm| vm.owner_id() == self.id(),
            |_, vm| mappings += vm.mapped().0,
        );
        // A printer that is full drops the rest; the error cannot be reported to the caller.
        for (class, ns) in CLASSES.iter().zip(self.engine_time().ns()) {
            let _ = writeln!(out, "drm-engine-{class}:\t{ns} ns");
        }
        let _ = writeln!(
            out,
            "tally-charged-memory:\t{} KiB",
            self.account().used() / 1024
        );
        let _ = writeln!(out, "tally-mappings:\t{mappings}");
    }
}

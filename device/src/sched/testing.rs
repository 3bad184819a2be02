// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device without threads of its own, for tests of the scheduler's decisions.

use std::sync::Arc;

use tally_uapi::fault::Fault;

use super::{Sched, Shared};
use crate::cell::SemaphoreUnit;
use crate::clock::Clock;
use crate::eu::KernelTimes;
use crate::host::{Host, QueueId, VmId};
use crate::queue::{Queue, VmState, testing::queue};

struct Silent;

impl Host for Silent {
    fn semaphore_interrupt(&self, _: usize) {}

    fn vm_lost(&self, _: VmId, _: QueueId, _: Fault) {}
}

/// A device whose one worker is the test, and a queue on its one engine.
pub(crate) fn device() -> (Arc<Shared>, Arc<Queue>) {
    device_with(Sched::new(1, 0, true, |_, _, _| {}))
}

/// The same with a scheduler of the caller's.
pub(crate) fn device_with(sched: Sched) -> (Arc<Shared>, Arc<Queue>) {
    let shared = Arc::new(Shared {
        serial: Shared::next_serial(),
        clock: Clock::new(),
        sem: SemaphoreUnit::new(None),
        sched,
        times: KernelTimes::new(),
        host: Arc::new(Silent),
        chaos: None,
        numbers: None,
        group_memory: None,
    });
    (shared, queue(&Arc::new(VmState::new(VmId(1)))))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device without threads of its own, for tests of the scheduler's decisions.

use std::sync::Arc;

use tally_uapi::fault::Fault;

use super::Sched;
use crate::eu::KernelTimes;
use crate::queue::{Queue, VmState};
use crate::{
    Clock, EngineClass, Host, Priority, QueueConfig, QueueId, SemaphoreUnit, Shared, VmId,
};

struct Nobody;

impl Host for Nobody {
    fn semaphore_interrupt(&self, _: usize) {}

    fn vm_lost(&self, _: VmId, _: QueueId, _: Fault) {}
}

/// A device whose one worker is the test, and a queue on its one engine.
pub(super) fn device() -> (Arc<Shared>, Arc<Queue>) {
    let shared = Arc::new(Shared {
        clock: Clock::new(),
        sem: SemaphoreUnit::new(None),
        sched: Sched::new(1, 1, 0),
        times: KernelTimes::new(),
        host: Arc::new(Nobody),
        chaos: None,
    });
    let config = QueueConfig {
        id: QueueId(1),
        class: EngineClass::Compute,
        index: 0,
        priority: Priority::Normal,
        ring: 64,
        packets: 16,
        control: 4096,
    };
    let queue = Queue::new(&config, Arc::new(VmState::new(VmId(1))), 0, true);
    (shared, Arc::new(queue))
}

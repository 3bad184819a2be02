// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that all threads of a device share.

use crate::sync::Counter;
use std::sync::Arc;

use tally_uapi::fault::Fault;

use super::Sched;
use crate::cell::SemaphoreUnit;
use crate::chaos::Chaos;
use crate::clock::Clock;
use crate::config::GroupMemory;
use crate::eu::KernelTimes;
use crate::host::Host;
use crate::queue::Queue;

/// The state that all threads of a device share.
pub(crate) struct Shared {
    /// A number that no other device of the process has.
    pub(crate) serial: u64,
    pub(crate) clock: Clock,
    pub(crate) sem: SemaphoreUnit<Queue>,
    pub(crate) sched: Sched,
    pub(crate) times: KernelTimes,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) chaos: Option<Chaos>,
    /// See [`crate::Config::numbers`].
    pub(crate) numbers: Option<fn(u32, u64)>,
    pub(crate) group_memory: Option<GroupMemory>,
}

impl Shared {
    /// A number that no other device of the process has.
    pub(crate) fn next_serial() -> u64 {
        static SERIALS: Counter = Counter::new(1);
        SERIALS.next()
    }

    /// Records the fault and stops all queues of the VM.
    pub(crate) fn lose_vm(&self, queue: &Arc<Queue>, fault: Fault) {
        queue.set_fault(fault);
        if !queue.vm.lose() {
            return;
        }
        for other in queue.vm.queues() {
            self.sched.retire(self, &other);
        }
        self.host.vm_lost(queue.vm.id, queue.id, fault);
    }
}

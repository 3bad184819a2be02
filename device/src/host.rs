// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device's owner: its names for things, and what the device tells it.

use tally_uapi::fault::Fault;

/// The owner's number for a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VmId(pub u32);

/// The owner's number for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueId(pub u32);

/// What a device tells its owner. Called on worker threads, with no lock held;
/// must not block and must not call the device's destroy functions.
pub trait Host: Send + Sync {
    /// A cell of this bucket was written, and the bucket's waiters word was not
    /// zero: whoever of the host sleeps there looks again.
    fn semaphore_interrupt(&self, bucket: usize);
    /// A queue has faulted; its VM is lost. Once a VM.
    fn vm_lost(&self, vm: VmId, queue: QueueId, fault: Fault);
    /// Of a [confined](crate::Confined) device: the number of queues that wait in the bucket may
    /// have changed from or to zero. The device's locks may be held: only note it.
    fn waiters_changed(&self, bucket: usize) {
        let _ = bucket;
    }
}

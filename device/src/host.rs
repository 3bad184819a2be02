// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device's owner: its names for objects, and the device's notifications to it.

use tally_uapi::fault::Fault;

/// The owner's number for a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VmId(pub u32);

/// The owner's number for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueId(pub u32);

/// The calls by which a device notifies its owner. They are made on worker threads, with no lock held; they
/// must not block and must not call the device's destroy functions.
pub trait Host: Send + Sync {
    /// A cell of this bucket was written, and the bucket's waiters word was not
    /// zero: host threads that sleep there must look again.
    fn semaphore_interrupt(&self, bucket: usize);
    /// A queue has faulted; its VM is lost. Called once per VM.
    fn vm_lost(&self, vm: VmId, queue: QueueId, fault: Fault);
    /// The number of queues that wait in the bucket may have changed from or to zero. Only a
    /// [confined](crate::Confined) device calls this, maybe with its locks held: the owner only notes it.
    fn waiters_changed(&self, bucket: usize) {
        let _ = bucket;
    }
}

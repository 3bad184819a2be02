// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface by which a waiting host thread reports its wait to the device, and helps the device.
//!
//! The device may defer the wake of a worker at a doorbell ([`queue_kick`](super::Ioctls::queue_kick)), because
//! it expects the calling thread to wait soon and to help. So each wait has to be reported to it:
//!
//! ```text
//!  a wait that helps       poll ─► met, or nothing to do: then begin_wait, spin, sleep
//!                          end_wait, if it was met before there was anything to poll
//!  a wait that does not    begin_wait, spin, sleep
//! ```

use std::time::Duration;

/// The steps of a host thread's wait. A device that shares no thread with its clients ignores them.
pub trait HostWait {
    /// Called when a thread begins to wait, or asks once, without helping: the device then makes a deferred
    /// wake, because it needs a worker.
    fn begin_wait(&self) {}

    /// Lets the calling thread, which waits without a time limit until the cell at `address` holds at least
    /// `value`, work for the device meanwhile.
    ///
    /// True once the cell does; false after `limit` without anything to do. None: the thread cannot help this
    /// device. The caller holds no lock.
    fn poll(&self, _address: u64, _value: u64, _limit: Duration) -> Option<bool> {
        None
    }

    /// Called when a wait that would have helped was met at once: the device was right to expect the thread.
    fn end_wait(&self) {}
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface by which a waiting host thread tells the device of its wait, and helps it.
//!
//! The device may defer the wake of a worker at a doorbell ([`queue_kick`](super::Ioctls::queue_kick)), because it expects the
//! calling thread to wait soon and to help. So it has to hear how each wait goes:
//!
//! ```text
//!  a wait that helps       poll ─► met, or nothing to do: then begin_wait, spin, sleep
//!                          end_wait, if it was met before there was anything to poll
//!  a wait that does not    begin_wait, spin, sleep
//! ```

use std::time::Duration;

/// The steps of a host's wait. A device that shares no thread with its clients ignores them.
pub trait HostWait {
    /// A thread begins to wait, or asks once, without helping: the device makes the wake that it may have
    /// deferred, because it needs a worker.
    fn begin_wait(&self) {}

    /// Has the calling thread, which waits without a time limit until the cell at `address` holds
    /// at least `value`, work for the device meanwhile.
    ///
    /// True once it does; false after `limit` without anything to do. None: this device, or this
    /// thread, has no use for it. The caller holds no lock.
    fn poll(&self, _address: u64, _value: u64, _limit: Duration) -> Option<bool> {
        None
    }

    /// A wait that would have helped ended before it had to: the device was right to expect the thread.
    fn end_wait(&self) {}
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The differences of a device in an engine process: the process will be
//! confined, so that it can make no thread and map no memory later, and threads
//! of other processes wait for its cells.

use crate::sync::AtomicU32;
use std::sync::Arc;

use tally_uapi::cell::{WAITERS, signaller_must_wake};

use crate::clock::Clock;
use crate::host::Host;

/// A waiters table: the waiters word of each bucket.
pub type Waiters = [AtomicU32; WAITERS];

/// The settings of a device in an engine process. With them the device makes
/// all threads and all memory of its own at once.
#[derive(Clone, Copy, Debug)]
pub struct Confined {
    /// The clock that all engine processes share.
    pub clock: Clock,
    /// The device's own waiters words, in memory that other processes can read.
    pub waiters: &'static Waiters,
    /// The waiters outside of this device. Only read.
    pub outside: &'static Waiters,
}

/// The waiters outside of the process, as the semaphore unit sees them.
pub(crate) struct Outside {
    pub(crate) confined: Confined,
    pub(crate) host: Arc<dyn Host>,
}

impl Outside {
    /// Whether a thread outside waits in the bucket: the signaller's half of the
    /// handshake in `tally_uapi::cell`.
    pub(crate) fn waits(&self, bucket: usize) -> bool {
        signaller_must_wake(&self.confined.outside[bucket % WAITERS])
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks of the scheduler's threads.

use std::sync::Arc;

use crate::queue::Queue;
use crate::work::Work;

/// A task of a thread.
#[derive(Debug)]
pub(crate) enum Job {
    /// Look at a bucket of the semaphore unit.
    Look(usize),
    /// Look at all foreign cells.
    LookForeign,
    /// Stream a queue, which is this thread's.
    Stream(Arc<Queue>),
    /// Help with a work.
    Join(Arc<Work>),
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fences. A fence is a value of a queue's counter, taken when lists are executed with the fence.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_ze::ze_result_t;

use crate::checks::order::Awaited;
use crate::checks::{self, Checks};
use crate::core::queue::Queue;
use crate::error::{Error, Result};
use crate::handle::{Kind, object};
use crate::host_waits::{self, Waiting};
use crate::sync::cell::Cell;
use crate::sync::deadline::{Approach, Deadline};
use crate::sync::shared::Shared;
use crate::sync::wait::{self, Suspicion};

/// A fence of a queue.
pub struct Fence {
    shared: Arc<Shared>,
    cell: Cell,
    /// The value at which it is signalled, if lists were executed with it since the last reset.
    value: Mutex<Option<u64>>,
    taken: Condvar,
}

object!(ze_fence_handle_t => Fence, Kind::Fence);

/// The longest sleep between two looks, which keeps the time of a wait from overflowing.
const SLEEP: Duration = Duration::from_secs(3600);

impl Fence {
    /// A fence of `queue`.
    pub fn new(queue: &Queue, signalled: bool) -> Self {
        // Every value of a counter is at least 0.
        let value = signalled.then_some(0);
        Self {
            shared: queue.shared().clone(),
            cell: queue.cell(),
            value: Mutex::new(value),
            taken: Condvar::new(),
        }
    }

    /// Refuses a fence of another queue.
    ///
    /// # Errors
    /// INVALID_SYNCHRONIZATION_OBJECT.
    pub fn check(&self, queue: &Queue) -> Result {
        if self.cell == queue.cell() {
            return Ok(());
        }
        Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
            "hFence: it belongs to another queue",
        ))
    }

    /// It is signalled when the queue's counter reaches `value`.
    pub fn take(&self, value: u64) {
        // The first execution signals it; signalling a signalled fence changes nothing.
        self.value().get_or_insert(value);
        self.taken.notify_all();
    }

    /// Resets it, so that it is not signalled by earlier executions.
    pub fn reset(&self) {
        *self.value() = None;
    }

    /// Waits until it is signalled; false when the time passes first.
    ///
    /// # Errors
    /// DEVICE_LOST.
    pub fn wait(&self, timeout_ns: u64) -> Result<bool> {
        let deadline = Deadline::after(timeout_ns);
        let mut suspicion = Suspicion::of(timeout_ns);
        let mut approach = Approach::new(deadline, true);
        let mut current = self.value();
        let noted = current.is_none().then(|| host_waits::note(Waiting::Fence));
        let value = loop {
            if let Some(value) = *current {
                break value;
            }
            // Read before the check for the end, since a thread that wakes late may have missed both.
            let suspect = suspicion.left();
            if suspect == Some(0) {
                suspicion.tell(Waiting::Fence);
            }
            let Some(sleep) = approach.sleep() else {
                drop(current);
                approach.stay(|| self.value().is_some());
                current = self.value();
                match *current {
                    Some(value) => break value,
                    None => return Ok(false),
                }
            };
            let sleep = sleep.min(suspect.filter(|left| *left != 0).unwrap_or(u64::MAX));
            let sleep = SLEEP.min(Duration::from_nanos(sleep));
            let woken = self.taken.wait_timeout(current, sleep);
            current = woken.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(current);
        drop(noted);
        let complete = wait::host_wait(self.shared.vm(), self.cell, value, deadline.left())?;
        if complete {
            if self.shared.publishes_late()
                && let Some(order) = checks::get().and_then(Checks::order)
            {
                order.host_saw(Awaited::Counter { cell: self.cell.va(), value });
            }
            self.shared.all_is_complete();
        }
        Ok(complete)
    }

    fn value(&self) -> MutexGuard<'_, Option<u64>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

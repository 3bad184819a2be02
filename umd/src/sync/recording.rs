// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings: the values that the commands of a regular list reserve, over all executions of the list.
//!
//! Execution *n* raises the counter from b(n) to b(n) + signals; b(n) = b(n-1) + signals, and b(1)
//! is fixed when the recording is created. So a signal {recording, k} has a value before anything is
//! submitted, and nothing is patched between executions. (`device/SPEC.md`, chapter 8.)

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::cell::Cell;
use super::counter::Counter;
use crate::checks::{self, Checks};

/// The base of a recording of which no execution was submitted yet.
const NONE: u64 = u64::MAX;

/// The number by which the checks know a recording.
pub fn key(recording: &Arc<Recording>) -> usize {
    Arc::as_ptr(recording).addr()
}

/// The reserved values of one recording. The list owns the packets; events and waits share this.
#[derive(Debug)]
pub struct Recording {
    counter: Arc<Counter>,
    first: u64,
    /// The base of the latest submitted execution, or [`NONE`].
    latest: AtomicU64,
    signals: AtomicU32,
    /// Whether an event was set to {recording, k}, so that something may wait for a reserved value.
    exposed: AtomicBool,
    /// Whether the list was reset or destroyed, so that there will be no further execution.
    over: AtomicBool,
    /// Whether a graph is captured into it; it is then never executed itself.
    captured: AtomicBool,
}

impl Recording {
    /// An empty recording on `counter`, after the values that are reserved already.
    pub fn new(counter: Arc<Counter>) -> Arc<Self> {
        Arc::new(Self {
            first: counter.reserved(),
            counter,
            latest: AtomicU64::new(NONE),
            signals: AtomicU32::new(0),
            exposed: AtomicBool::new(false),
            over: AtomicBool::new(false),
            captured: AtomicBool::new(false),
        })
    }

    /// Notes that a graph is captured into it.
    pub fn capture(&self) {
        self.captured.store(true, Ordering::Relaxed);
    }

    /// Whether a graph is captured into it now.
    pub fn is_captured(&self) -> bool {
        self.captured.load(Ordering::Relaxed)
    }

    /// Notes that the capture has ended and no event names the recording any more.
    pub fn release(&self) {
        self.captured.store(false, Ordering::Relaxed);
        self.exposed.store(false, Ordering::Relaxed);
    }

    /// Creates the recording of a copy of the list: the same number of signals, on another counter.
    pub fn again(&self, counter: Arc<Counter>) -> Arc<Self> {
        let copy = Self::new(counter);
        copy.signals.store(self.signals(), Ordering::Relaxed);
        copy
    }

    /// The counter.
    #[inline]
    pub fn counter(&self) -> &Arc<Counter> {
        &self.counter
    }

    /// Number of signals so far; the number of the next one is one more.
    #[inline]
    pub fn signals(&self) -> u32 {
        self.signals.load(Ordering::Relaxed)
    }

    /// Adds a signal and returns its number, from 1. The list's lock orders callers.
    #[inline]
    pub fn add_signal(&self) -> u32 {
        let k = self.signals() + 1;
        self.signals.store(k, Ordering::Relaxed);
        k
    }

    /// Removes signals beyond the first `signals`, because an append failed.
    pub fn truncate(&self, signals: u32) {
        self.signals.store(signals, Ordering::Relaxed);
    }

    /// Notes that something may wait for a signal from now on.
    pub fn expose(&self) {
        self.exposed.store(true, Ordering::Relaxed);
    }

    /// The pair that signal `k` means now: that of the latest execution, or of the first to come.
    pub fn resolve(&self, k: u32) -> (Cell, u64) {
        let base = match self.latest.load(Ordering::Acquire) {
            NONE => self.first,
            latest => latest,
        };
        (self.counter.cell(), base + u64::from(k))
    }

    /// Whether an execution with this counter and base is one of this recording.
    pub fn holds(&self, counter: u64, base: u64) -> bool {
        self.counter.cell().va() == counter && base >= self.first
    }

    /// Whether an execution was submitted.
    pub fn is_submitted(&self) -> bool {
        self.latest.load(Ordering::Acquire) != NONE
    }

    /// Whether an execution was submitted that is not complete.
    pub fn is_running(&self) -> bool {
        let base = self.latest.load(Ordering::Acquire);
        base != NONE && !self.counter.cell().reached(base + u64::from(self.signals()))
    }

    /// The base of the next execution.
    pub fn next(&self) -> u64 {
        match self.latest.load(Ordering::Acquire) {
            NONE => self.first,
            latest => latest + u64::from(self.signals()),
        }
    }

    /// Submits the next execution and returns its base. Callers hold the list's lock.
    pub fn submit(&self) -> u64 {
        let signals = u64::from(self.signals());
        let base = match self.latest.load(Ordering::Relaxed) {
            NONE => self.first,
            latest => latest + signals,
        };
        self.counter.reserve((base + signals).max(self.counter.reserved()));
        self.latest.store(base, Ordering::Release);
        base
    }

    /// Ends the recording, because the list was reset or destroyed. Returns whether a new recording may use
    /// the counter: it may not if something may wait for signals that will never happen.
    pub fn end(&self) -> bool {
        self.over.store(true, Ordering::Release);
        if self.is_submitted() || !self.exposed.load(Ordering::Relaxed) {
            return true;
        }
        self.counter.reserve(self.first + u64::from(self.signals()));
        self.counter.abandon(self.first);
        false
    }

    /// Whether its signals will never happen, because it ended without an execution.
    pub fn is_dead(&self) -> bool {
        self.over.load(Ordering::Acquire) && !self.is_submitted()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Nothing names it any more.
        if let Some(order) = checks::get().and_then(Checks::order) {
            order.recording_ends(ptr::from_ref(self).addr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::shared::Shared;
    use crate::vm::tests::fake;

    fn counter() -> (Arc<Shared>, Arc<Counter>) {
        let (_, vm) = fake();
        let shared = Shared::of(&vm);
        let counter = Arc::new(shared.counter().expect("room"));
        (shared, counter)
    }

    #[test]
    fn the_bases_of_executions_follow_each_other() {
        let (_, counter) = counter();
        let first = counter.reserved();
        let recording = Recording::new(counter.clone());
        assert_eq!(
            (recording.add_signal(), recording.add_signal(), recording.add_signal()),
            (1, 2, 3)
        );
        assert_eq!(recording.resolve(2).1, first + 2, "before any execution: the first");
        for n in 0..5 {
            assert_eq!(recording.submit(), first + 3 * n);
            assert_eq!(recording.resolve(2).1, first + 3 * n + 2);
            assert_eq!(counter.reserved(), first + 3 * n + 3);
        }
        assert!(recording.end(), "what was executed will be reached");
        assert_eq!(Recording::new(counter).submit(), first + 15, "the next recording goes on");
    }

    #[test]
    fn a_reserved_value_that_will_not_be_reached_retires_the_counter() {
        let (shared, counter) = counter();
        let cell = counter.cell();
        let recording = Recording::new(counter.clone());
        recording.add_signal();
        assert!(Recording::new(counter.clone()).end(), "no event has a value of this one");
        recording.expose();
        assert!(!recording.end());
        assert!(recording.is_dead());
        drop((recording, counter));
        for _ in 0..10 {
            assert_ne!(shared.counter().expect("room").cell(), cell);
        }
    }

    #[test]
    fn a_counter_goes_on_from_its_last_value() {
        let (shared, counter) = counter();
        let cell = counter.cell();
        counter.reserve(7);
        cell.store(7);
        drop(counter);
        let next = shared.counter().expect("room");
        assert_eq!((next.cell(), next.reserved()), (cell, 7));
    }
}

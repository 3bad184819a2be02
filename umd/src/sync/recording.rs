// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings: what the commands of a regular list promise, over all executions of the list.
//!
//! Execution *n* raises the counter from b(n) to b(n) + signals; b(n) = b(n-1) + signals, and b(1)
//! is fixed when the recording is made. So a signal {recording, k} has a value before anything is
//! submitted, and nothing is patched between executions. (`device/SPEC.md`, chapter 8.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::counter::{Cell, Counter};

/// No execution was submitted yet.
const NONE: u64 = u64::MAX;

/// The promises of one recording. The list owns the packets; events and waits share this.
#[derive(Debug)]
pub struct Recording {
    counter: Arc<Counter>,
    first: u64,
    /// Base of the latest submitted execution, or [`NONE`].
    latest: AtomicU64,
    signals: AtomicU32,
    /// Whether somebody may hold a promise: an event was given {recording, k}.
    exposed: AtomicBool,
    /// The list was reset or destroyed: there will be no further execution.
    over: AtomicBool,
}

impl Recording {
    /// An empty recording on `counter`, whose promises so far it follows.
    pub fn new(counter: Arc<Counter>) -> Arc<Self> {
        Arc::new(Self {
            first: counter.promised(),
            counter,
            latest: AtomicU64::new(NONE),
            signals: AtomicU32::new(0),
            exposed: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    /// The counter.
    #[inline]
    pub fn counter(&self) -> &Arc<Counter> {
        &self.counter
    }

    /// Signals so far; the number of the next one is one more.
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

    /// Takes back signals beyond the first `signals`: an append failed.
    pub fn truncate(&self, signals: u32) {
        self.signals.store(signals, Ordering::Relaxed);
    }

    /// Somebody may wait for a signal from now on.
    pub fn expose(&self) {
        self.exposed.store(true, Ordering::Relaxed);
    }

    /// The pair that signal `k` means now: that of the latest execution, or of the first to come.
    pub fn resolve(&self, k: u32) -> (Cell, u64) {
        let mut base = self.latest.load(Ordering::Acquire);
        if base == NONE {
            base = self.first;
            if crate::faults::on(crate::faults::UNSUBMITTED_IS_MET) {
                return (self.counter.cell(), 0);
            }
        }
        if crate::faults::on(crate::faults::WAIT_BOUND_TO_EARLIER_EXECUTION) {
            base = base.saturating_sub(u64::from(self.signals())).max(self.first);
        }
        (self.counter.cell(), base + u64::from(k))
    }

    /// Whether an execution was submitted.
    pub fn is_submitted(&self) -> bool {
        self.latest.load(Ordering::Acquire) != NONE
    }

    /// Base of the next execution, which is submitted with this. Callers hold the list's lock.
    pub fn submit(&self) -> u64 {
        let signals = u64::from(self.signals());
        let base = match self.latest.load(Ordering::Relaxed) {
            NONE => self.first,
            latest if crate::faults::on(crate::faults::BASE_OFF_BY_ONE) => latest + signals - 1,
            latest => latest + signals,
        };
        self.counter.promise((base + signals).max(self.counter.promised()));
        self.latest.store(base, Ordering::Release);
        base
    }

    /// Ends the recording: the list was reset or destroyed. Answers whether the counter may go on
    /// in a new recording: not if somebody may wait for signals that will never come.
    pub fn end(&self) -> bool {
        self.over.store(true, Ordering::Release);
        if self.is_submitted() || !self.exposed.load(Ordering::Relaxed) {
            return true;
        }
        self.counter.promise(self.first + u64::from(self.signals()));
        false
    }

    /// Whether its signals will never come: it ended without an execution.
    pub fn is_dead(&self) -> bool {
        self.over.load(Ordering::Acquire) && !self.is_submitted()
    }
}

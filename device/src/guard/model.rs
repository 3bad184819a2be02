// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guarded calls in a model for `shuttle`: plain calls, before and after which another thread may run. All
//! memory that a model names exists, and its kernels end.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Trap;
use crate::sync::thread;

/// The part of a thread that others see.
#[derive(Debug, Default)]
pub(crate) struct Record {
    work: AtomicU64,
}

impl Record {
    fn leaked() -> &'static Self {
        Box::leak(Box::default())
    }

    pub(crate) fn set_work(&self, work: u64) {
        self.work.store(work, Ordering::Relaxed);
    }

    pub(crate) fn work(&self) -> u64 {
        self.work.load(Ordering::Relaxed)
    }

    /// Returns false, since a model aborts nothing.
    pub(crate) fn is_guarding(&self, _: u64) -> bool {
        false
    }

    pub(crate) fn abort(&self, _: u64) {}
}

/// The place of a device thread that has not started yet.
#[derive(Debug)]
pub(crate) struct Seat(&'static Record);

impl Seat {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Record::leaked()))
    }

    pub(crate) fn record(&self) -> &'static Record {
        self.0
    }
}

/// The place of a host thread that may help.
#[derive(Debug)]
pub(crate) struct Loan(&'static Record);

impl Loan {
    pub(crate) fn take() -> Option<Self> {
        Some(Self(Record::leaked()))
    }

    pub(crate) fn record(&self) -> &'static Record {
        self.0
    }

    pub(crate) fn begin(&self) -> Guard {
        Guard
    }
}

/// The right to make guarded calls.
#[derive(Debug)]
pub(crate) struct Guard;

impl Guard {
    pub(crate) fn attach(_: Seat) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn has_room() -> bool {
        true
    }

    pub(crate) fn run<F: FnMut()>(&mut self, mut code: F) -> Result<(), Trap> {
        thread::yield_now();
        code();
        Ok(())
    }
}

pub(crate) fn prepare_aborts() {}

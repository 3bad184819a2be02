// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics, locks, threads and time of the scheduler: the standard library's, or those of the model
//! checkers. `loom` (`--cfg loom`) runs single protocols in every order that the memory model allows,
//! `shuttle` (`--cfg shuttle`) the whole device under many schedules of its threads.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread, thread_local,
};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread, thread_local,
};

#[cfg(not(shuttle))]
pub(crate) use std::time::Instant;

/// Locks a mutex. Poisoning is ignored: no code here panics while the value is inconsistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

/// A place where the order of threads matters. With the feature `delays` and `TALLY_DELAYS=SEED` a thread now and
/// then waits here, so that others run in between; without the feature it does nothing.
#[cfg(not(feature = "delays"))]
#[inline(always)]
pub(crate) fn race() {}

#[cfg(feature = "delays")]
pub(crate) fn race() {
    use std::sync::OnceLock;
    static SEED: OnceLock<Option<u64>> = OnceLock::new();
    static THREADS: Counter = Counter::new(1);
    std::thread_local! {
        static STATE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    let variable = || std::env::var("TALLY_DELAYS").ok()?.parse().ok();
    let Some(seed) = *SEED.get_or_init(variable) else { return };
    // A thread that is ending continues without delays.
    let _ = STATE.try_with(|state| {
        let mut random = state.get();
        if random == 0 {
            random = (seed << 32 | THREADS.next()).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        }
        // xorshift64: never 0.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        state.set(random);
        match random >> 8 & 0xff {
            0 => std::thread::sleep(std::time::Duration::from_micros(random >> 16 & 0xff)),
            1..8 => (0..random >> 16 & 0x3ff).for_each(|_| std::hint::spin_loop()),
            8..12 => std::thread::yield_now(),
            _ => {}
        }
    });
}

/// Numbers that are unique in the process. They do not order anything, so they are not modelled; a model's
/// atomic may not outlive its schedule.
#[cfg(not(loom))]
pub(crate) struct Counter(std::sync::atomic::AtomicU64);

#[cfg(not(loom))]
impl Counter {
    pub(crate) const fn new(first: u64) -> Self {
        Self(std::sync::atomic::AtomicU64::new(first))
    }

    /// The next number.
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

/// A time of the model. It advances with each look, so that a schedule can be replayed.
#[cfg(shuttle)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(std::time::Duration);

#[cfg(shuttle)]
impl Instant {
    /// The time between two looks at the clock.
    const STEP: std::time::Duration = std::time::Duration::from_nanos(400);

    pub(crate) fn now() -> Self {
        Self(Self::STEP * u32::try_from(model_ticks()).unwrap_or(u32::MAX))
    }

    pub(crate) fn saturating_duration_since(&self, earlier: Self) -> std::time::Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(shuttle)]
impl std::ops::Add<std::time::Duration> for Instant {
    type Output = Self;

    fn add(self, time: std::time::Duration) -> Self {
        Self(self.0 + time)
    }
}

#[cfg(shuttle)]
impl std::ops::Sub for Instant {
    type Output = std::time::Duration;

    fn sub(self, earlier: Self) -> std::time::Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The number of looks at the model's clock so far. Each look advances it. The count is per thread of the system,
/// since a model runs in one, and others run beside it.
#[cfg(shuttle)]
pub(crate) fn model_ticks() -> u64 {
    std::thread_local! {
        static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(1) };
    }
    LOOKS.replace(LOOKS.get() + 1)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits of the host: a check, a short spin, then sleep in the kernel.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tally_uapi::cell::Compare;
use tally_uapi::ioctl::{Errno, SemWait, SemWaitEntry, sem_wait_flag};

use super::cell::Cell;
use super::deadline::{Approach, Deadline};
use crate::error::Result;
use crate::host_waits::{self, Waiting};
use crate::vm::Vm;

/// The time for which a host thread spins before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// The part of that time in which it does not yield its processor.
const CLOSE: Duration = Duration::from_micros(2);
/// The longest sleep on the word of another process.
const NAP: Duration = Duration::from_millis(100);
/// The first and the longest pause between two reads of memory that has no signal.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(10));

/// Reports a wait that lasts too long, once.
pub struct Suspicion(Option<Deadline>);

impl Suspicion {
    /// The deadline of a wait that starts now and ends after `timeout_ns` at the latest.
    pub fn of(timeout_ns: u64) -> Self {
        let limit = host_waits::limit_ns().filter(|limit| *limit < timeout_ns);
        Self(limit.map(Deadline::after))
    }

    /// Nanoseconds until the wait is to be reported; `None`: reports are off, or it was reported.
    pub fn left(&self) -> Option<u64> {
        self.0.map(|it| it.left())
    }

    /// Reports the wait.
    #[cold]
    pub fn tell(&mut self, waiting: Waiting) {
        if let Some(deadline) = self.0.take() {
            host_waits::report(waiting, deadline.passed());
        }
    }
}

/// Waits until `cell` holds at least `value`; false if the time passes first.
///
/// # Errors
/// DEVICE_LOST if the VM is lost and the cell does not have the value yet.
pub fn host_wait(vm: &Vm, cell: Cell, value: u64, timeout_ns: u64) -> Result<bool> {
    if cell.reached(value) {
        if timeout_ns == u64::MAX {
            vm.backend().end_wait();
        }
        return Ok(true);
    }
    if timeout_ns == 0 {
        return ask(vm, cell, value);
    }
    if look(vm, cell, value, timeout_ns) {
        return Ok(true);
    }
    sleep_on(vm, &[(cell, value)], after_spin(timeout_ns), true)
}

/// Does the same as [`host_wait`] without a spin, neither before the sleep nor at its end, for callers
/// that prefer saving processor time to a short delay.
///
/// # Errors
/// Those of [`host_wait`].
pub fn sleep(vm: &Vm, cell: Cell, value: u64, timeout_ns: u64) -> Result<bool> {
    if cell.reached(value) {
        return Ok(true);
    }
    if timeout_ns == 0 {
        return ask(vm, cell, value);
    }
    sleep_on(vm, &[(cell, value)], timeout_ns, false)
}

/// A wait with a time limit of 0. It costs no system call and reports a loss only once that was noticed.
fn ask(vm: &Vm, cell: Cell, value: u64) -> Result<bool> {
    if vm.is_lost() {
        return sleep_on(vm, &[(cell, value)], 0, false);
    }
    vm.backend().begin_wait();
    Ok(cell.reached(value))
}

/// Does the same as [`host_wait`], but also ends when the second cell holds its value. Spins first if
/// `spins`.
///
/// # Errors
/// Those of [`host_wait`].
pub fn wait_or_end(
    vm: &Vm,
    (cell, value): (Cell, u64),
    end: (Cell, u64),
    timeout_ns: u64,
    spins: bool,
) -> Result<bool> {
    let over = || cell.reached(value) || end.0.reached(end.1);
    if timeout_ns != 0 && !(spins && spin(over, timeout_ns)) {
        let left = if spins { after_spin(timeout_ns) } else { timeout_ns };
        sleep_on(vm, &[(cell, value), end], left, spins)?;
    }
    Ok(cell.reached(value))
}

/// Does the same as [`wait_or_end`] for a counter that only another process signals. It sleeps on the
/// word itself, where that process wakes it without a message to the thread that receives notes. It ends
/// soon in any case, so that the caller can check whether that process still exists.
///
/// # Errors
/// Those of [`host_wait`].
pub fn nap(vm: &Vm, cell: Cell, value: u64, approach: &mut Approach, spins: bool) -> Result<bool> {
    let met = || cell.reached(value);
    let left = approach.deadline().left();
    if left == 0 || spins && spin(met, left) {
        return Ok(met());
    }
    let now = cell.load();
    if now < value {
        let _noted = host_waits::note(Waiting::Cell { address: cell.va(), value });
        match approach.sleep() {
            Some(sleep) => cell.sleep_while(now, NAP.min(Duration::from_nanos(sleep))),
            None => return Ok(approach.stay(met)),
        }
        if !met() {
            vm.check()?;
        }
    }
    Ok(met())
}

/// Sleeps until one of the cells, at most two, holds its value; false if the time passes first, with
/// little delay if `precise`. The first cell is the one that the caller waits for.
fn sleep_on(vm: &Vm, cells: &[(Cell, u64)], timeout_ns: u64, precise: bool) -> Result<bool> {
    let mut approach = Approach::new(Deadline::after(timeout_ns), precise);
    let mut entries = [SemWaitEntry::default(); 2];
    let mut count = 0;
    for (entry, (cell, value)) in entries.iter_mut().zip(cells) {
        *entry = SemWaitEntry {
            handle: cell.bo(),
            compare: Compare::GreaterEqual as u32,
            offset: cell.offset(),
            value: *value,
        };
        count += 1;
    }
    let mut wait = SemWait {
        entries: (&raw const entries) as u64,
        count,
        flags: sem_wait_flag::ANY,
        vm_id: vm.id(),
        ..Default::default()
    };
    vm.backend().begin_wait();
    let waiting = || Waiting::Cell { address: cells[0].0.va(), value: cells[0].1 };
    let _noted = host_waits::note(waiting());
    let mut suspicion = Suspicion::of(timeout_ns);
    // The kernel is called once in any case, since it knows of a loss.
    let mut sleep = approach.sleep().unwrap_or(0);
    loop {
        wait.timeout_ns = absolute(suspicion.left().map_or(sleep, |limit| limit.min(sleep)));
        // SAFETY: the `count` entries exist until the call returns.
        match unsafe { vm.backend().sem_wait(&mut wait) } {
            Ok(()) => {
                // The kernel has read the word through a mapping of its own. The writes before the signal are
                // visible to a thread that reads the word where the device wrote it.
                cells.iter().for_each(|(cell, _)| _ = cell.load());
                return Ok(true);
            }
            Err(Errno::TimedOut | Errno::Interrupted) => {}
            Err(errno) => return Err(vm.failed("SEM_WAIT", errno)),
        }
        if suspicion.left() == Some(0) {
            suspicion.tell(waiting());
        }
        sleep = match approach.sleep() {
            Some(sleep) => sleep,
            None => {
                return Ok(approach.stay(|| cells.iter().any(|(cell, value)| cell.reached(*value))));
            }
        };
    }
}

/// Waits for the user's memory. It may change without a signal, so this polls it. Spins first if
/// `spins`.
///
/// # Errors
/// DEVICE_LOST when the VM is lost.
pub fn poll(vm: &Vm, word: &AtomicU64, value: u64, timeout_ns: u64, spins: bool) -> Result<bool> {
    let met = || word.load(Ordering::Acquire) >= value;
    if met() || (spins && timeout_ns != 0 && spin(met, timeout_ns)) {
        return Ok(true);
    }
    vm.backend().begin_wait();
    let left = if spins { after_spin(timeout_ns) } else { timeout_ns };
    let mut approach = Approach::new(Deadline::after(left), spins);
    let address = std::ptr::from_ref(word) as u64;
    let _noted = host_waits::note(Waiting::Cell { address, value });
    let mut suspicion = Suspicion::of(timeout_ns);
    let mut pause = PAUSE.0;
    loop {
        // Before the check for the time limit: a thread that wakes late may have missed both.
        if suspicion.left() == Some(0) {
            suspicion.tell(Waiting::Cell { address, value });
        }
        let Some(sleep) = approach.sleep() else { return Ok(approach.stay(met)) };
        thread::sleep(pause.min(Duration::from_nanos(sleep)));
        if met() {
            return Ok(true);
        }
        pause = (pause * 2).min(PAUSE.1);
        if pause == PAUSE.1 {
            vm.check()?;
        }
    }
}

/// Spins for a while until the cell has its value; a wait without a limit helps the device meanwhile.
fn look(vm: &Vm, cell: Cell, value: u64, timeout_ns: u64) -> bool {
    let met = || cell.reached(value);
    // A long command would keep the thread beyond a limit.
    if timeout_ns == u64::MAX && host_waits::limit_ns().is_none() {
        // The time within which a worker that is awake sees a packet.
        for _ in 0..16 {
            if met() {
                vm.backend().end_wait();
                return true;
            }
            std::hint::spin_loop();
        }
        let _noted = host_waits::note(Waiting::Cell { address: cell.va(), value });
        if let Some(met) = vm.backend().poll(cell.va(), value, SPIN) {
            return met;
        }
    }
    vm.backend().begin_wait();
    spin(met, timeout_ns)
}

/// Polls continuously for 2 µs, then yields the processor between reads, since the work that is waited
/// for may need it.
fn spin(met: impl Fn() -> bool, timeout_ns: u64) -> bool {
    let limit = SPIN.min(Duration::from_nanos(timeout_ns));
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            if met() {
                return true;
            }
            std::hint::spin_loop();
        }
        let passed = start.elapsed();
        if passed >= limit {
            return false;
        }
        if passed >= CLOSE {
            thread::yield_now();
        }
    }
}

/// The rest of a time limit after an unsuccessful [`spin`].
fn after_spin(timeout_ns: u64) -> u64 {
    match timeout_ns {
        u64::MAX => timeout_ns,
        limited => limited.saturating_sub(SPIN.as_nanos() as u64),
    }
}

/// The time `timeout_ns` from now on CLOCK_MONOTONIC, as SEM_WAIT takes it.
fn absolute(timeout_ns: u64) -> i64 {
    let Ok(timeout) = i64::try_from(timeout_ns) else { return i64::MAX };
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let now = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
    now.saturating_add(timeout)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host threads that make guarded calls for a while.
//!
//! They keep their own stack, signal stack and signal mask, so that the process's tools for its threads
//! (profilers, garbage collectors that scan stacks) keep working. The handler identifies them by their thread
//! id. A thread without room on its stack for a kernel, or on a stack that is not its own, such as a
//! coroutine's, cannot make guarded calls.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{ABORT_SIGNAL, FAULTS, Guard, Mask, Record, Right, STACK_BYTES, mask_of};

/// The most threads of the process that may help at a time.
const LOANS: usize = 256;

/// An entry, alone in its cache lines, since its record is written with each guarded call.
#[repr(align(128))]
struct Entry {
    taken: AtomicBool,
    /// Its `tid` is 0 while no thread uses it.
    record: Record,
}

static ENTRIES: [Entry; LOANS] =
    [const { Entry { taken: AtomicBool::new(false), record: Record::new() } }; LOANS];

/// An entry of the table that the handler reads, given back on drop.
#[derive(Debug)]
pub(crate) struct Loan(usize);

impl Loan {
    /// Takes a free entry; None if all are in use.
    pub(crate) fn take() -> Option<Self> {
        let free = |entry: &Entry| {
            !entry.taken.load(Ordering::Relaxed) && !entry.taken.swap(true, Ordering::Acquire)
        };
        let loan = Self(ENTRIES.iter().position(free)?);
        super::chain::install(&FAULTS);
        Some(loan)
    }

    pub(crate) fn record(&self) -> &'static Record {
        &ENTRIES[self.0].record
    }

    /// Allows the calling thread to make guarded calls, until the guard is dropped.
    pub(crate) fn begin(&self) -> Guard {
        let record = self.record();
        let visit = Visit { record, mask: unblock(), float: FloatControl::save() };
        record.tid.store(thread().tid, Ordering::SeqCst);
        Guard { record, _right: Right::Visit { _visit: visit }, _not_send: PhantomData }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        ENTRIES[self.0].taken.store(false, Ordering::Release);
    }
}

impl Guard {
    /// Whether the calling thread has room on its stack for a kernel.
    pub(crate) fn has_room() -> bool {
        let here = 0u8;
        let Thread { low, high, .. } = thread();
        let here = (&raw const here).addr();
        here < high && here.saturating_sub(low) >= STACK_BYTES
    }
}

/// The record of the calling thread, if it has begun to help. Safe to call in a signal handler.
pub(super) fn record_of_this_thread() -> Option<&'static Record> {
    // SAFETY: takes nothing and cannot fail.
    let tid = unsafe { libc::gettid() };
    let found = ENTRIES.iter().find(|entry| entry.record.tid.load(Ordering::SeqCst) == tid);
    found.map(|entry| &entry.record)
}

/// The state of a thread that is restored at the end.
pub(super) struct Visit {
    record: &'static Record,
    /// The signal mask that it had, if it had to be changed.
    mask: Option<Mask>,
    float: FloatControl,
}

impl std::fmt::Debug for Visit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visit")
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.record.tid.store(0, Ordering::SeqCst);
        self.float.restore();
        if let Some(mask) = self.mask {
            change_mask(libc::SIG_SETMASK, mask);
        }
    }
}

/// Faults and aborts.
const WANTED: Mask = mask_of(&FAULTS) | mask_of(&[ABORT_SIGNAL]);

/// Unblocks faults and aborts. Returns the previous mask if they were blocked.
fn unblock() -> Option<Mask> {
    let before = change_mask(libc::SIG_UNBLOCK, WANTED);
    (before & WANTED != 0).then_some(before)
}

/// Changes the calling thread's signal mask, and returns the previous one.
///
/// It makes the system call directly: the C library's sets are 16 times as large and take a call for each
/// signal, and after a sleep each of its functions is one more cache miss.
fn change_mask(how: i32, mask: Mask) -> Mask {
    let mut before: Mask = 0;
    // SAFETY: the kernel reads one mask of the given size and writes the other; both are ours. Only signals that
    // Tally handles are unblocked, and only a mask that the thread had before is set.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const mask,
            &raw mut before,
            size_of::<Mask>(),
        )
    };
    before
}

/// The floating-point control of a thread, which kernels and traps change.
struct FloatControl {
    mxcsr: u32,
    x87: u16,
}

impl FloatControl {
    fn save() -> Self {
        let mut this = Self { mxcsr: 0, x87: 0 };
        // SAFETY: writes four bytes and two bytes to fields of that size.
        unsafe {
            std::arch::asm!(
                "stmxcsr [{}]",
                "fnstcw [{}]",
                in(reg) &raw mut this.mxcsr,
                in(reg) &raw mut this.x87,
                options(nostack)
            );
        }
        this
    }

    fn restore(&self) {
        // SAFETY: reads what `save` wrote; it was valid then.
        unsafe {
            std::arch::asm!(
                "ldmxcsr [{}]",
                "fldcw [{}]",
                in(reg) &raw const self.mxcsr,
                in(reg) &raw const self.x87,
                options(nostack, readonly)
            );
        }
    }
}

/// The identity and stack of a host thread. All zero: they are unknown, so the thread never helps.
#[derive(Clone, Copy)]
struct Thread {
    tid: i32,
    /// Its stack.
    low: usize,
    high: usize,
}

fn thread() -> Thread {
    thread_local! {
        static THREAD: Cell<Option<Thread>> = const { Cell::new(None) };
    }
    THREAD.get().unwrap_or_else(|| {
        let thread = ask();
        THREAD.set(Some(thread));
        thread
    })
}

fn ask() -> Thread {
    let mut attributes = MaybeUninit::zeroed();
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are filled before they are read and destroyed once; the thread is the
    // calling one, which exists.
    let tid = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return Thread { tid: 0, low: 0, high: 0 };
        }
        libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        libc::gettid()
    };
    Thread { tid, low: low.addr(), high: low.addr() + size }
}

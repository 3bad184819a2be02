// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that make guarded calls, and the handler of their signals.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tally_uapi::fault::FaultKind;

use super::{STACK_BYTES, Trap, set_float_control};

mod chain;
mod loan;
mod stack;

pub(crate) use loan::Loan;
use loan::Visit;
use stack::SignalStack;

/// The signal by which [`Record::abort`] stops a guarded call.
///
/// No kernel sends it and no library is known to use it; its handler is
/// installed when the first abort needs it.
const ABORT_SIGNAL: i32 = libc::SIGSTKFLT;

/// The signals of what the processor or the MMU refuses.
const FAULTS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// The handler's record of a thread. Lies below the thread's signal stack.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Record {
    /// Stack pointer of the guarded call that runs, or 0.
    frame: AtomicUsize,
    /// The queue that the thread works for, or 0: an abort names it.
    work: AtomicU64,
    /// The `work` that is to be aborted, or 0.
    abort: AtomicU64,
    trap_address: AtomicU64,
    trap_kind: AtomicU32,
    tid: AtomicI32,
}

impl Record {
    const fn new() -> Self {
        Self {
            frame: AtomicUsize::new(0),
            work: AtomicU64::new(0),
            abort: AtomicU64::new(0),
            trap_address: AtomicU64::new(0),
            trap_kind: AtomicU32::new(0),
            tid: AtomicI32::new(0),
        }
    }

    /// Names the queue that the guarded calls from now on work for; 0: none.
    ///
    /// The handler runs in this thread, so it reads what was written; a thread that aborts it
    /// may read the name of a moment ago, and looks again.
    pub(crate) fn set_work(&self, work: u64) {
        self.work.store(work, Ordering::Release);
    }

    /// The queue that the thread works for.
    pub(crate) fn work(&self) -> u64 {
        self.work.load(Ordering::SeqCst)
    }

    /// Whether the thread is in a guarded call for `work`.
    pub(crate) fn is_guarding(&self, work: u64) -> bool {
        self.work() == work && self.frame.load(Ordering::SeqCst) != 0
    }

    /// Makes the guarded call that runs for `work` in this thread return
    /// [`FaultKind::Aborted`]. Does nothing if the thread runs something else.
    ///
    /// A signal may meet the thread between two guarded calls: repeat until
    /// the work is gone.
    pub(crate) fn abort(&self, work: u64) {
        self.abort.store(work, Ordering::SeqCst);
        chain::install(&[ABORT_SIGNAL]);
        if self.work() == work {
            let tid = self.tid.load(Ordering::SeqCst);
            // SAFETY: tgkill takes three numbers; a thread that has ended is
            // ESRCH, and one that is not ours swallows the signal (see `chain`).
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, ABORT_SIGNAL) };
        }
    }
}

std::arch::global_asm!(
    // tally_guard_call(frame: *mut usize, f: extern "C" fn(*mut u8), data: *mut u8) -> u32
    // Saves what the C calling convention keeps, tells the stack pointer to the
    // handler and calls. The handler resumes at tally_guard_leave with eax = 1
    // and the same stack pointer.
    ".pushsection .text.tally_guard, \"ax\", @progbits",
    ".hidden tally_guard_call",
    ".globl tally_guard_call",
    ".type tally_guard_call, @function",
    "tally_guard_call:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    "push r13",
    ".cfi_adjust_cfa_offset 8",
    "push r14",
    ".cfi_adjust_cfa_offset 8",
    "push r15",
    ".cfi_adjust_cfa_offset 8",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "mov [rdi], rsp",
    "mov rdi, rdx",
    "call rsi",
    "xor eax, eax",
    ".hidden tally_guard_leave",
    ".globl tally_guard_leave",
    "tally_guard_leave:",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "mov qword ptr [rdi], 0",
    "pop r15",
    ".cfi_adjust_cfa_offset -8",
    "pop r14",
    ".cfi_adjust_cfa_offset -8",
    "pop r13",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size tally_guard_call, . - tally_guard_call",
    ".popsection",
);

unsafe extern "C" {
    fn tally_guard_call(
        frame: *mut usize,
        function: unsafe extern "C" fn(*mut u8),
        data: *mut u8,
    ) -> u32;
    fn tally_guard_leave();
}

/// Installs the abort's handler, for a process that cannot do so later.
pub(crate) fn prepare_aborts() {
    chain::install(&[ABORT_SIGNAL]);
}

/// A signal stack that is not yet a thread's.
#[derive(Debug)]
pub(crate) struct Seat(SignalStack);

impl Seat {
    /// Takes one of the process's signal stacks, and installs the handlers.
    ///
    /// Errors: none is left, or there is no memory for them.
    pub(crate) fn new() -> io::Result<Self> {
        let seat = SignalStack::take()?;
        chain::install(&FAULTS);
        Ok(Self(seat))
    }

    /// The handler's record of the thread that will sit here.
    pub(crate) fn record(&self) -> &'static Record {
        self.0.record()
    }
}

/// The source of a guard, which ends with it.
#[derive(Debug)]
enum Right {
    /// A thread of ours.
    Seat { _stack: SignalStack },
    /// A thread of the host's.
    Visit { _visit: Visit },
}

/// The calling thread's right to make guarded calls.
#[derive(Debug)]
pub(crate) struct Guard {
    record: &'static Record,
    _right: Right,
    /// The signal stack, or the visit, belongs to the thread that made this.
    _not_send: std::marker::PhantomData<*mut u8>,
}

impl Guard {
    /// Makes the calling thread one of ours, until the guard is dropped.
    ///
    /// Blocks all signals but faults and aborts: the process's own handlers
    /// should run in the process's own threads.
    pub(crate) fn attach(seat: Seat) -> io::Result<Self> {
        seat.0.attach()?;
        let record = seat.record();
        // SAFETY: gettid takes nothing and cannot fail.
        record.tid.store(unsafe { libc::gettid() }, Ordering::SeqCst);
        block_signals();
        begins();
        let right = Right::Seat { _stack: seat.0 };
        Ok(Self { record, _right: right, _not_send: std::marker::PhantomData })
    }

    /// Runs `code` until it returns or traps.
    ///
    /// `code` is abandoned where it traps: it must not hold a lock or own
    /// anything, and it must not panic. It takes `&mut self`, so that guarded
    /// calls do not nest.
    #[inline]
    pub(crate) fn run<F: FnMut()>(&mut self, mut code: F) -> Result<(), Trap> {
        unsafe extern "C" fn enter<F: FnMut()>(data: *mut u8) {
            // SAFETY: `data` is the `code` of the caller below, which waits.
            unsafe { (*data.cast::<F>())() }
        }
        // SAFETY: `frame` stays valid for the process's life; `enter::<F>`
        // fits the pointer that it is given, which outlives the call. If the
        // code traps, the handler resumes at tally_guard_leave, which restores
        // every register that the C calling convention keeps.
        let trapped = unsafe {
            tally_guard_call(self.record.frame.as_ptr(), enter::<F>, (&raw mut code).cast())
        };
        if trapped == 0 { Ok(()) } else { Err(self.trap()) }
    }

    #[cold]
    fn trap(&self) -> Trap {
        reset_float_control();
        let raw = self.record.trap_kind.load(Ordering::Relaxed);
        Trap {
            kind: FaultKind::from_raw(raw).unwrap_or(FaultKind::PageFault),
            address: self.record.trap_address.load(Ordering::Relaxed),
        }
    }
}

/// The same, and an empty x87 stack: what a trap may have left is unknown.
fn reset_float_control() {
    // SAFETY: the x87 registers are empty between functions.
    unsafe { std::arch::asm!("fninit", options(nostack, nomem)) };
    set_float_control();
}

fn block_signals() {
    // SAFETY: the set is filled before it is read, and belongs to this frame.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for signal in FAULTS.into_iter().chain([libc::SIGTRAP, libc::SIGABRT, ABORT_SIGNAL]) {
            libc::sigdelset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}

/// Whether the context that a signal has interrupted is the handler of a fault, whose signal is blocked
/// then.
///
/// # Safety
/// `context` is what the kernel gave to a handler that runs.
unsafe fn is_in_fault(context: *const libc::c_void) -> bool {
    // SAFETY: the kernel's set of signals is eight bytes at the start of the C library's.
    let mask = unsafe {
        (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<Mask>().read()
    };
    mask & mask_of(&FAULTS) != 0
}

/// Signals as the kernel has them: signal n is bit n - 1.
type Mask = u64;

const fn mask_of(signals: &[i32]) -> Mask {
    let (mut mask, mut i) = (0, 0);
    while i < signals.len() {
        mask |= 1 << (signals[i] - 1);
        i += 1;
    }
    mask
}

/// An access that the MMU has refused.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The address.
    pub address: u64,
    /// Whether it is a write.
    pub writes: bool,
    /// Whether the device has made it: a guarded call.
    pub by_device: bool,
    /// Whether the thread lacks the right to the memory's protection key, and the mapping allows the access.
    pub by_key: bool,
}

static WATCHER: AtomicUsize = AtomicUsize::new(0);

/// What a thread of the device calls when it begins, or 0.
static BEGINS: AtomicUsize = AtomicUsize::new(0);

/// From now on, threads of the device that begin call `begins` first. It may give them rights to memory that other
/// threads do not have.
pub fn watch_threads(begins: fn()) {
    BEGINS.store(begins as usize, Ordering::Release);
}

/// A thread of the device begins.
fn begins() {
    let begins = BEGINS.load(Ordering::Acquire);
    if begins != 0 {
        // SAFETY: only `watch_threads` stores a function, of this type.
        let begins: fn() = unsafe { std::mem::transmute(begins) };
        begins();
    }
}

/// From now on, accesses of this process to memory that is mapped, but without the right to them, are shown to
/// `watcher` first. It answers whether the access is to be tried again.
///
/// It is called in the handler of a signal that the thread itself has caused, so it may do whatever the
/// interrupted code cannot be in the middle of.
pub fn watch_refused(watcher: fn(Refused) -> bool) {
    WATCHER.store(watcher as usize, Ordering::Release);
    chain::install(&FAULTS);
}

/// Whether the watcher wants an access to be tried again.
///
/// # Safety
/// Called by a signal handler with its own arguments.
unsafe fn is_resolved(
    signal: i32,
    info: *const libc::siginfo_t,
    context: *mut libc::c_void,
    by_device: bool,
) -> bool {
    /// The kernel's `si_code` of an access that the mapping does not allow, and of one that its protection key does
    /// not allow to the thread.
    const SEGV_ACCERR: i32 = 2;
    const SEGV_PKUERR: i32 = 4;
    /// The bit of the processor's error code that says that it is a write.
    const WRITES: i64 = 1 << 1;
    let watcher = WATCHER.load(Ordering::Acquire);
    if watcher == 0 || signal != libc::SIGSEGV {
        return false;
    }
    // SAFETY: the kernel hands a valid siginfo and context to the handler; only `watch_refused` stores a
    // watcher, of this type.
    unsafe {
        let by_key = (*info).si_code == SEGV_PKUERR;
        if !by_key && (*info).si_code != SEGV_ACCERR {
            return false;
        }
        let address = (*info).si_addr().addr() as u64;
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let writes = registers[libc::REG_ERR as usize] & WRITES != 0;
        let watcher: fn(Refused) -> bool = std::mem::transmute(watcher);
        watcher(Refused { address, writes, by_device, by_key })
    }
}

/// The handler's part: makes a guarded call of ours return. False if the
/// signal is none of ours.
///
/// # Safety
/// Called by a signal handler with its own arguments.
unsafe fn claim(signal: i32, info: *const libc::siginfo_t, context: *mut libc::c_void) -> bool {
    let here = 0u8;
    let record = stack::record_at((&raw const here).addr()).or_else(loan::record_of_this_thread);
    let by_device = record.is_some_and(|it| it.frame.load(Ordering::Relaxed) != 0);
    // SAFETY: as for this function.
    if unsafe { is_resolved(signal, info, context, by_device) } {
        return true;
    }
    let Some(record) = record else { return false };
    let frame = record.frame.load(Ordering::Relaxed);
    // SAFETY: the kernel hands a valid siginfo to the handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr() as u64) };
    let kind = if signal == ABORT_SIGNAL {
        let work = record.work.load(Ordering::SeqCst);
        if frame == 0 || work == 0 || record.abort.load(Ordering::SeqCst) != work {
            // Too late: the work that it was meant for is over.
            return true;
        }
        // SAFETY: the context is the kernel's, valid while this handler runs.
        if unsafe { is_in_fault(context) } {
            // The fault's handler ends the call. Leaving from here would leave its signal blocked, and the
            // thread's next fault would end the process.
            return true;
        }
        FaultKind::Aborted
    } else if frame == 0 || code <= 0 {
        // A fault of the device's own code, or a signal that was sent.
        return false;
    } else {
        match signal {
            libc::SIGILL => FaultKind::IllegalInstruction,
            libc::SIGFPE => FaultKind::ArithmeticTrap,
            _ => FaultKind::PageFault,
        }
    };
    let address = if kind == FaultKind::Aborted { 0 } else { address };
    record.trap_kind.store(kind as u32, Ordering::Relaxed);
    record.trap_address.store(address, Ordering::Relaxed);
    record.frame.store(0, Ordering::Relaxed);
    // SAFETY: the context is the interrupted thread's, valid and ours to
    // change; the frame was made by tally_guard_call, which has not returned.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        registers[libc::REG_RSP as usize] = frame as i64;
        registers[libc::REG_RIP as usize] = tally_guard_leave as *const () as i64;
        registers[libc::REG_RAX as usize] = 1;
        // The C calling convention wants the direction and alignment flags clear.
        const DIRECTION_AND_ALIGNMENT: i64 = 1 << 10 | 1 << 18;
        registers[libc::REG_EFL as usize] &= !DIRECTION_AND_ALIGNMENT;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks or unblocks the signal of a fault in the calling thread, as it is while its handler runs.
    fn mask(how: i32) {
        // SAFETY: the set is filled before it is read, and belongs to this frame.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGSEGV);
            libc::pthread_sigmask(how, &set, std::ptr::null_mut());
        }
    }

    /// An abort that meets the handler of a fault waits for the next: left from there, the thread would
    /// have its faults blocked, and the next would end the process.
    #[test]
    fn an_abort_does_not_leave_the_handler_of_a_fault() {
        let thread = std::thread::spawn(|| {
            let seat = Seat::new().expect("a signal stack");
            let record = seat.record();
            let mut guard = Guard::attach(seat).expect("it is this thread's");
            record.set_work(7);
            let within = guard.run(|| {
                mask(libc::SIG_BLOCK);
                record.abort(7);
                mask(libc::SIG_UNBLOCK);
            });
            let after = guard.run(|| record.abort(7));
            let fault = guard.run(|| {
                // SAFETY: never mapped; the guarded call traps.
                unsafe { std::ptr::without_provenance::<u8>(16).read_volatile() };
            });
            record.set_work(0);
            (within, after, fault)
        });
        let (within, after, fault) = thread.join().expect("no panic");
        assert_eq!(within, Ok(()));
        assert_eq!(after.map_err(|trap| trap.kind), Err(FaultKind::Aborted));
        assert_eq!(fault, Err(Trap::new(FaultKind::PageFault, 16)));
    }
}

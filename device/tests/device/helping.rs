// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host threads that help while they wait (DESIGN.md, "Helping threads").

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tally_device::{Config, EngineClass, Priority};
use tally_uapi::eu::GroupContext;
use tally_uapi::fault::FaultKind;
use tally_uapi::packet::{self, opcode};

use crate::support::*;

/// Time for which a helping thread looks for something to do.
const LIMIT: Duration = SOON;

/// Kernel: writes the id of the thread that runs it to the cell of argument 0. In the thread that the cell of
/// argument 1 names it does not end; in the one that the cell of argument 2 names it faults.
unsafe extern "C" fn obey(context: *const GroupContext) {
    // SAFETY: all three arguments are cells.
    let [thread, stays, faults] = unsafe { [0, 1, 2].map(|i| cell_arg(context, i)) };
    let tid = own_tid();
    thread.store(tid, Ordering::Relaxed);
    while stays.load(Ordering::Relaxed) == tid {
        std::hint::spin_loop();
    }
    if faults.load(Ordering::Relaxed) == tid {
        // SAFETY: none, since the kernel has to fault.
        unsafe { (8 as *mut u32).write_volatile(1) };
    }
}

fn own_tid() -> u64 {
    // SAFETY: takes nothing.
    (unsafe { libc::gettid() }) as u64
}

/// Occupies a device's only worker with a kernel, on an engine of its own, that does not end until cell 1 of
/// the returned memory is set.
fn held(gpu: &Gpu) -> (TestQueue<'_>, Memory, Kernarg) {
    let cells = Memory::new(4096);
    let kernarg = Kernarg::new(&[cells.cell_va(0), cells.cell_va(1)]);
    let mut queue = gpu.queue_on(&gpu.vm, EngineClass::Compute, 1, Priority::Normal);
    queue.push(dispatch(ORDERED, meet, &kernarg, 1, None));
    eventually("the worker is held", || cells.load(0) == 1);
    (queue, cells, kernarg)
}

/// A device with one worker and no substitutes.
fn one_worker() -> Config {
    Config { workers: Some(1), substitutes: Some(0), compute_engines: 2, ..Config::default() }
}

/// A queue for [`obey`].
struct Obedient<'a> {
    queue: TestQueue<'a>,
    /// Cell 0: the counter; cells 1 to 3: the kernel's arguments.
    cells: Memory,
    kernarg: Kernarg,
    value: u64,
}

impl<'a> Obedient<'a> {
    fn new(gpu: &'a Gpu) -> Self {
        let cells = Memory::new(4096);
        let kernarg = Kernarg::new(&[1, 2, 3].map(|i| cells.cell_va(i)));
        Self { queue: gpu.queue(), cells, kernarg, value: 0 }
    }

    fn push(&mut self, groups: u32) {
        self.value += 1;
        let signal = Some((self.cells.cell_va(0), self.value));
        self.queue.push(dispatch(ORDERED, obey, &self.kernarg, groups, signal));
    }

    fn help(&self, limit: Duration) -> Option<bool> {
        self.queue.gpu.device.help(self.cells.cell_va(0), self.value, limit)
    }

    fn finish(&self) {
        eventually("the command", || self.cells.load(0) == self.value);
    }

    /// Runs the kernel on a worker, so that it is known to be short, then on the calling thread while the worker
    /// is held. On a busy machine it may seem long: then this tries again.
    fn help_until(&mut self, done: impl Fn(&Self, Option<bool>) -> bool) {
        self.help_pushed_until(|it| it.push(1), done);
    }

    /// Like [`Self::help_until`], for the packets that `push` publishes, whose end raises the counter by one.
    fn help_pushed_until(
        &mut self,
        mut push: impl FnMut(&mut Self),
        done: impl Fn(&Self, Option<bool>) -> bool,
    ) {
        let gpu = self.queue.gpu;
        for _ in 0..100 {
            for _ in 0..3 {
                self.push(1);
                self.finish();
            }
            let (_held, gate, _kernarg) = held(gpu);
            push(self);
            let met = self.help(Duration::from_millis(20));
            gate.cell(1).store(1, Ordering::Release);
            if done(self, met) {
                return;
            }
            self.finish();
        }
        panic!("the thread was never of use");
    }
}

#[test]
fn a_thread_that_waits_without_a_limit_runs_short_commands_itself() {
    let gpu = Gpu::with(one_worker());
    Obedient::new(&gpu).help_until(|it, met| {
        let cells = &it.cells;
        met == Some(true) && (cells.load(0), cells.load(1)) == (it.value, own_tid())
    });
}

/// "A kernel that has never ended yet is for a worker."
#[test]
fn a_kernel_that_nothing_is_known_of_it_leaves_to_the_workers() {
    let gpu = Gpu::with(one_worker());
    let mut it = Obedient::new(&gpu);
    let (_held, gate, _kernarg) = held(&gpu);
    it.push(1);
    assert_eq!(it.help(Duration::from_millis(50)), Some(false));
    gate.cell(1).store(1, Ordering::Release);
    it.finish();
    assert_ne!(it.cells.load(1), own_tid());
}

/// "A kernel whose end its thread waits for may take long."
#[test]
fn a_thread_that_waits_for_a_kernel_runs_it_however_long_it_takes() {
    const GROUPS: u32 = 1_000_000;
    let gpu = Gpu::with(one_worker());
    Obedient::new(&gpu).help_pushed_until(
        |it| it.push(GROUPS),
        |it, met| met == Some(true) && it.cells.load(1) == own_tid(),
    );
}

/// Kernel: enters the thread that runs it into the cells from argument 0 on, and counts the groups in the cell of
/// argument 1. Does not end until two threads have entered.
unsafe extern "C" fn gather(context: *const GroupContext) {
    // SAFETY: argument 0 is the first of `SEEN` cells, argument 1 a cell.
    let (seen, groups) = unsafe { (arg(context, 0), cell_arg(context, 1)) };
    let seen = |i: usize| {
        // SAFETY: one of those cells.
        unsafe { AtomicU64::from_ptr((seen as *mut u64).add(i)) }
    };
    let own = own_tid();
    let known = |i: &usize| {
        let taken = seen(*i).compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || taken == Err(own)
    };
    (0..SEEN).find(known).expect("room for all threads");
    while seen(1).load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    // A kernel that is known to be short would be left to one thread.
    let until = Instant::now() + Duration::from_micros(20);
    while Instant::now() < until {}
    groups.fetch_add(1, Ordering::Relaxed);
}

const SEEN: usize = 64;

/// "The workers join it": on a device with two workers two threads run a kernel that a host thread waits for,
/// and if that thread streams it, it is one of them.
#[test]
fn a_kernel_that_a_thread_waits_for_is_run_by_that_thread_and_a_worker() {
    const GROUPS: u64 = 64;
    let gpu = Gpu::with(Config { workers: Some(2), ..Config::default() });
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(2), cells.cell_va(1)]);
    let seen = || (2..2 + SEEN).map(|i| cells.load(i)).filter(|&tid| tid != 0);
    for value in 1..1000 {
        (1..2 + SEEN).for_each(|i| cells.cell(i).store(0, Ordering::Relaxed));
        let signal = Some((cells.cell_va(0), value));
        queue.push(dispatch(ORDERED, gather, &kernarg, GROUPS as u32, signal));
        let met = gpu.device.help(cells.cell_va(0), value, LIMIT);
        assert_eq!((met, cells.load(1)), (Some(true), GROUPS));
        // Two workers may have been the first.
        if seen().any(|tid| tid == own_tid()) {
            return;
        }
    }
    panic!("the thread was never of use");
}

/// "It runs a kernel only if its own thread waits for that kernel's end: what the thread does next may be
/// what the kernel waits for."
#[test]
fn a_kernel_that_waits_for_the_helping_thread_is_left_to_the_workers() {
    let gpu = Gpu::with(one_worker());
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    // Cell 0: the counter; 1 and 2: the kernel's arguments; 3: the cell that the thread waits for.
    let kernarg = Kernarg::new(&[cells.cell_va(1), cells.cell_va(2)]);
    let (go_on, awaited) = (cells.cell(2), cells.cell(3));
    let mut value = 0;
    let mut push = || {
        value += 1;
        queue.push(dispatch(ORDERED, meet, &kernarg, 1, Some((cells.cell_va(0), value))));
        value
    };
    // On a busy machine the kernel may seem long: then a helping thread leaves it in any case.
    for _ in 0..5 {
        go_on.store(1, Ordering::Release);
        awaited.store(0, Ordering::Release);
        for _ in 0..3 {
            let value = push();
            eventually("a short run", || cells.load(0) == value);
        }
        let (_held, gate, _kernarg) = held(&gpu);
        go_on.store(0, Ordering::Release);
        let value = push();
        let came_back = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let met = gpu.device.help(cells.cell_va(3), 1, LIMIT);
                go_on.store(1, Ordering::Release);
                met
            });
            std::thread::sleep(Duration::from_millis(50));
            awaited.store(1, Ordering::Release);
            let until = Instant::now() + SOON;
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            let came_back = thread.is_finished();
            go_on.store(1, Ordering::Release);
            came_back.then(|| thread.join().unwrap())
        });
        gate.cell(1).store(1, Ordering::Release);
        assert_eq!(came_back, Some(Some(true)), "the thread comes back");
        eventually("the kernel", || cells.load(0) == value);
    }
}

/// The other ways in which a thread waits for the end of a kernel.
#[test]
fn a_kernel_whose_end_another_packet_tells_is_one_for_helping_threads() {
    let gpu = Gpu::with(one_worker());
    let mut it = Obedient::new(&gpu);
    let (counter, list, event) = (it.cells.cell_va(0), it.cells.cell_va(4), it.cells.cell_va(5));
    let recording = Memory::new(4096);
    let call = |it: &Obedient<'_>, signals, counter, signal: Signal| {
        let kernel = dispatch(ORDERED, obey, &it.kernarg, 1, Some((event, 1)));
        recording.write(0, kernel);
        let nop = nop(ORDERED, signal);
        packet::Call {
            header: header(opcode::CALL, ORDERED | nop.header.flags, signals),
            recording: recording.va(),
            packets: 1,
            operand_count: 0,
            operands: 0,
            counter,
            base: it.value - 1,
            post: nop.post,
        }
    };
    let mut executions = 0;
    for way in 0..4 {
        it.help_pushed_until(
            |it| {
                it.value += 1;
                let signal = Some((counter, it.value));
                match way {
                    // The kernel signals a regular event, and the next packet signals the counter.
                    0 => {
                        it.queue.write(dispatch(ORDERED, obey, &it.kernarg, 1, Some((event, 1))));
                        it.queue.write(nop(ORDERED, signal));
                    }
                    // The kernel is a whole recording, and the thread waits for the recording's counter, ...
                    1 => it.queue.write(call(it, 1, counter, None)),
                    // ... or for the signal of the CALL, ...
                    2 | 3 => {
                        let mut call = call(it, 0, list, signal.filter(|_| way == 2));
                        call.base = executions;
                        call.header.param = 1;
                        executions += 1;
                        it.queue.write(call);
                        // ... or for the signal of the packet after it.
                        if way == 3 {
                            it.queue.write(nop(ORDERED, signal));
                        }
                    }
                    _ => unreachable!(),
                }
                it.queue.publish();
            },
            |it, met| met == Some(true) && it.cells.load(1) == own_tid(),
        );
    }
}

#[test]
fn a_helping_thread_goes_as_soon_as_its_value_is_there_and_leaves_the_rest() {
    let gpu = Gpu::with(one_worker());
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    queue.push(nop(ORDERED, Some((cells.cell_va(0), 1))));
    eventually("the first signal", || cells.load(0) == 1);
    let (_held, gate, _kernarg) = held(&gpu);
    queue.write(nop(ORDERED, Some((cells.cell_va(0), 2))));
    queue.write(nop(ORDERED, Some((cells.cell_va(0), 3))));
    queue.publish();
    assert_eq!(gpu.device.help(cells.cell_va(0), 2, LIMIT), Some(true));
    assert_eq!(cells.load(0), 2, "the helping thread took more than it needed");
    gate.cell(1).store(1, Ordering::Release);
    eventually("the worker goes on", || cells.load(0) == 3);
}

/// "Nothing could run beside it": a command that an unordered one follows is left to the workers.
#[test]
fn a_helping_thread_leaves_what_could_run_beside_the_next() {
    let gpu = Gpu::with(one_worker());
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    queue.push(nop(ORDERED, Some((cells.cell_va(0), 1))));
    eventually("the first signal", || cells.load(0) == 1);
    let (_held, gate, _kernarg) = held(&gpu);
    for (flags, value) in [(ORDERED, 2), (ORDERED, 3), (ORDERED, 4), (0, 5)] {
        queue.write(nop(flags, Some((cells.cell_va(0), value))));
    }
    queue.publish();
    assert_eq!(gpu.device.help(cells.cell_va(0), 5, Duration::from_millis(20)), Some(false));
    assert_eq!(cells.load(0), 3);
    gate.cell(1).store(1, Ordering::Release);
    eventually("the worker goes on", || cells.load(0) == 5);
}

#[test]
fn a_fault_on_a_helping_thread_loses_the_vm_and_the_thread_goes_on() {
    let gpu = Gpu::with(one_worker());
    let mut it = Obedient::new(&gpu);
    it.cells.cell(3).store(own_tid(), Ordering::Relaxed);
    // Settings that a program may have made for its own thread.
    const FLUSH_TO_ZERO: u32 = 1 << 15;
    let mask = block(libc::SIGSEGV);
    set_float_control(0x1f80 | FLUSH_TO_ZERO);
    it.help_until(|it, _| it.cells.load(1) == own_tid());
    assert_ne!(float_control() & FLUSH_TO_ZERO, 0, "the floating-point control is as it was");
    set_float_control(0x1f80);
    let now = block(libc::SIGSEGV);
    // SAFETY: the sets were filled.
    unsafe {
        assert_eq!(libc::sigismember(&now, libc::SIGSEGV), 1, "the mask is as it was");
        libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
    }
    let fault = gpu.fault();
    assert_eq!((fault.kind, fault.address), (FaultKind::PageFault, 8));
    assert_ne!(it.cells.load(0), it.value, "a command that faulted is not signalled");
}

#[test]
fn a_helping_thread_that_is_stuck_holds_nothing_up_and_a_reset_frees_it() {
    let gpu = Gpu::with(Config { workers: Some(1), compute_engines: 2, ..Config::default() });
    let mut it = Obedient::new(&gpu);
    let (handle, seen) = (it.queue.handle.clone(), it.cells.cell_va(1));
    let tid = own_tid();
    it.cells.cell(2).store(tid, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let gpu = &gpu;
        scope.spawn(move || {
            // SAFETY: a cell of memory that is never unmapped.
            let seen = unsafe { AtomicU64::from_ptr(seen as *mut u64) };
            eventually("the helping thread stays", || seen.load(Ordering::Relaxed) == tid);
            // The same engine, another queue.
            let (mut other, cells) = (gpu.queue(), Memory::new(4096));
            other.push(nop(ORDERED, Some((cells.cell_va(0), 1))));
            eventually("the neighbour's signal", || cells.load(0) == 1);
            gpu.device.destroy_queue(&handle);
        });
        it.help_until(|it, _| it.cells.load(1) == tid);
    });
    assert_eq!(gpu.fault().kind, FaultKind::Aborted);
}

#[test]
fn a_thread_without_room_on_its_stack_does_not_help() {
    let gpu = Gpu::new();
    let cells = Memory::new(4096);
    let small = std::thread::Builder::new().stack_size(256 << 10);
    std::thread::scope(|scope| {
        let thread = small.spawn_scoped(scope, || gpu.device.help(cells.cell_va(0), 1, LIMIT));
        assert_eq!(thread.unwrap().join().unwrap(), None);
    });
}

#[test]
fn helping_threads_and_workers_share_many_queues() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 2000;
    let gpu = Gpu::with(Config { workers: Some(2), compute_engines: 2, ..Config::default() });
    let cells = Memory::new(4096);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (gpu, cells) = (&gpu, &cells);
            scope.spawn(move || {
                let engine = (thread % 2) as u32;
                let mut queue =
                    gpu.queue_on(&gpu.vm, EngineClass::Compute, engine, Priority::Normal);
                let counter = cells.cell_va(thread as usize);
                let kernarg = Kernarg::new(&[cells.cell_va(64 + thread as usize)]);
                for value in 1..=ROUNDS {
                    queue.push(dispatch(
                        ORDERED,
                        count_groups,
                        &kernarg,
                        1,
                        Some((counter, value)),
                    ));
                    let limit = Duration::from_micros(20);
                    if gpu.device.help(counter, value, limit) != Some(true) {
                        eventually("the command", || cells.load(thread as usize) >= value);
                    }
                }
            });
        }
    });
    for thread in 0..THREADS as usize {
        assert_eq!((cells.load(thread), cells.load(64 + thread)), (ROUNDS, ROUNDS));
    }
}

/// Blocks a signal in this thread. Returns the previous mask.
fn block(signal: i32) -> libc::sigset_t {
    // SAFETY: the sets are filled before they are read.
    unsafe {
        let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
        before
    }
}

fn float_control() -> u32 {
    let mut value = 0u32;
    // SAFETY: writes four bytes.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack)) };
    value
}

fn set_float_control(value: u32) {
    // SAFETY: reads four bytes; the values used have no reserved bits.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack)) };
}

/// Copies and fills of any size consist of pieces that a helping thread can leave after.
#[test]
fn a_thread_that_waits_without_a_limit_runs_large_copies_itself() {
    let gpu = Gpu::with(one_worker());
    let size = 8 << 20;
    let (mut queue, from, to) = (gpu.queue(), Memory::new(size), Memory::new(size));
    let cells = Memory::new(4096);
    queue.push(fill(ORDERED, from.va(), size as u64, &[7], Some((cells.cell_va(0), 1))));
    eventually("the fill", || cells.load(0) == 1);
    let (_held, gate, _kernarg) = held(&gpu);
    queue.push(copy(ORDERED, to.va(), from.va(), size as u64, Some((cells.cell_va(0), 2))));
    assert_eq!(gpu.device.help(cells.cell_va(0), 2, LIMIT), Some(true));
    assert!(to.bytes(0, size).iter().all(|byte| *byte == 7));
    gate.cell(1).store(1, Ordering::Release);
}

#[test]
fn a_helping_thread_leaves_a_large_copy_when_its_own_wait_is_met() {
    let gpu = Gpu::with(Config { substitutes: None, ..one_worker() });
    let size = 128 << 20;
    let (mut queue, from, to) = (gpu.queue(), Memory::new(size), Memory::new(size));
    let (cells, last) = (Memory::new(4096), size / 8 - 1);
    let (mut rounds, until) = (0, Instant::now() + SOON);
    for value in 1.. {
        // Pages that are not allocated yet make the copy last longer.
        to.discard();
        queue.push(fill(ORDERED, from.va(), size as u64, &[7], Some((cells.cell_va(0), value))));
        eventually("the fill", || cells.load(0) == value);
        let (_held, gate, _kernarg) = held(&gpu);
        let held_for = Instant::now();
        let awaited = cells.cell(1);
        awaited.store(0, Ordering::Relaxed);
        queue.push(copy(ORDERED, to.va(), from.va(), size as u64, None));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                eventually("the first bytes", || to.load(0) != 0);
                // By then the watchdog has found the worker stuck, and there is no other task for a substitute.
                let rest = Duration::from_millis(20).saturating_sub(held_for.elapsed());
                std::thread::sleep(rest);
                awaited.store(1, Ordering::Release);
            });
            assert_eq!(gpu.device.help(cells.cell_va(1), 1, LIMIT), Some(true));
        });
        let left = to.load(last) == 0;
        // A substitute completes it, since the worker cannot.
        eventually("the rest", || to.load(last) != 0);
        gate.cell(1).store(1, Ordering::Release);
        rounds += u32::from(left);
        if rounds == 3 {
            return;
        }
        assert!(Instant::now() < until, "the helping thread hardly ever left before the end");
    }
}

/// A deferred wake is made at the watchdog's next tick at the latest
/// (`src/sched/elision.rs`), and at once when the host asks without helping.
#[test]
fn a_host_that_usually_comes_and_then_does_not_is_served_all_the_same() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let mut value = 0;
    let mut push = || {
        value += 1;
        queue.push(nop(ORDERED, Some((cells.cell_va(0), value))));
        value
    };
    for round in 0..30 {
        for _ in 0..20 {
            let value = push();
            if gpu.device.help(cells.cell_va(0), value, LIMIT) != Some(true) {
                panic!("the device has no other owner");
            }
        }
        // At once, or after a rest in which the watchdog and the workers fall asleep.
        std::thread::sleep(Duration::from_millis([0, 1, 4, 40][round % 4]));
        let value = push();
        if round % 3 == 0 {
            gpu.device.hurry();
        }
        eventually("the command", || cells.load(0) == value);
    }
}

/// A STAMP before the next command does not decide whether that command may run beside this one.
#[test]
fn a_helping_thread_runs_ordered_kernels_whose_times_are_wanted() {
    let gpu = Gpu::with(one_worker());
    let slots = Memory::new(4096);
    let push = |it: &mut Obedient<'_>| {
        for _ in 0..4 {
            it.value += 1;
            let signal = Some((it.cells.cell_va(0), it.value));
            it.queue.write(stamp(slots.va()));
            it.queue.write(dispatch(ORDERED, obey, &it.kernarg, 1, signal));
        }
        it.queue.publish();
    };
    Obedient::new(&gpu).help_pushed_until(push, |it, met| {
        met == Some(true) && (it.cells.load(0), it.cells.load(1)) == (it.value, own_tid())
    });
    assert_ne!(slots.load(0), 0, "the times of a command that a helping thread ran");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole device under many schedules of its threads and its host's: workers, the watchdog and helping
//! threads run the real scheduler, rings and engines; `shuttle` decides at every lock and atomic which thread
//! continues. It reports if all threads sleep.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p tally-device --test shuttle_scheduler --release`
//!
//! `TALLY_SCHEDULES` is the number of schedules of each model; the default suits everyday use. `TALLY_SEED`
//! selects them. In half of them each step is random; in the other half one thread continues until it sleeps or
//! another has a higher priority, and priorities change a few times (PCT), which finds races that need several
//! steps of one thread in a row.
#![cfg(shuttle)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;
use tally_device::{
    Config, Device, EngineClass, Host, Priority, QueueConfig, QueueHandle, QueueId, Vm, VmId,
    Wakeup,
};
use tally_uapi::cell::{Compare, waiter_enters, waiter_leaves, waiters_index};
use tally_uapi::eu::{ARGS_OFFSET, GroupContext};
use tally_uapi::fault::Fault;
use tally_uapi::packet::{self, Header, Packet, PostSync, flag, opcode};
use tally_uapi::queue::QueueControl;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}

/// Runs a model, each time under another schedule.
fn check(model: impl Fn() + Send + Sync + 'static) {
    /// Changes of priority in a schedule: the known races need two or three.
    const CHANGES: usize = 4;
    let (schedules, seed) = (number("TALLY_SCHEDULES", 300) as usize, number("TALLY_SEED", 1));
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 18;
    // A model that does not end within this many steps hangs.
    config.max_steps = shuttle::MaxSteps::FailAfter(2_000_000);
    let model = Arc::new(model);
    let each = schedules.div_ceil(2);
    let scheduler = RandomScheduler::new_from_seed(seed, each);
    let once = Arc::clone(&model);
    shuttle::Runner::new(scheduler, config.clone()).run(move || once());
    let scheduler = PctScheduler::new_from_seed(seed, CHANGES, each);
    shuttle::Runner::new(scheduler, config).run(move || model());
}

/// The host: threads that sleep on cells, by buckets.
#[derive(Default)]
struct Sleepers(shuttle::sync::Mutex<Vec<(usize, Arc<Wakeup>)>>);

impl Host for Sleepers {
    fn semaphore_interrupt(&self, bucket: usize) {
        let sleepers = self.0.lock().unwrap();
        let here: Vec<_> =
            sleepers.iter().filter(|it| it.0 == bucket).map(|it| it.1.clone()).collect();
        drop(sleepers);
        here.iter().for_each(|it| it.notify());
    }

    fn vm_lost(&self, _: VmId, _: QueueId, fault: Fault) {
        panic!("lost: {fault:?}");
    }
}

/// Memory that packets name: aligned words.
struct Memory(Box<[AtomicU64]>);

impl Memory {
    fn new(words: usize) -> Self {
        // One more line, for the alignment.
        Self((0..words + 8).map(|_| AtomicU64::new(0)).collect())
    }

    fn at(&self, index: usize) -> &AtomicU64 {
        let start = self.0.as_ptr().addr();
        &self.0[(start.next_multiple_of(64) - start) / 8 + index]
    }

    fn va(&self, index: usize) -> u64 {
        std::ptr::from_ref(self.at(index)).addr() as u64
    }
}

/// Packets of a ring.
const PACKETS: u32 = 16;

/// A control page, aligned to pages.
#[repr(align(4096))]
struct Page(QueueControl);

/// A producer and its queue.
struct Producer {
    handle: QueueHandle,
    control: Box<Page>,
    ring: Memory,
    tail: u64,
    kicked: u64,
}

impl Producer {
    fn new(gpu: &Gpu, id: u32, priority: Priority) -> Self {
        let control = Box::new(Page(QueueControl::new()));
        let ring = Memory::new(PACKETS as usize * 8);
        let config = QueueConfig {
            id: QueueId(id),
            class: EngineClass::Compute,
            index: 0,
            priority,
            ring: ring.va(0),
            packets: PACKETS,
            control: std::ptr::from_ref(&*control).addr() as u64,
        };
        let handle = gpu.device.create_queue(&gpu.vm, &config).unwrap();
        Self { handle, control, ring, tail: 0, kicked: 0 }
    }

    fn push(&mut self, gpu: &Gpu, packet: impl Into<Packet>) {
        let packet: Packet = packet.into();
        let words: [u64; 8] = zerocopy::transmute!(packet);
        for (i, word) in words.into_iter().enumerate() {
            let at = (self.tail % u64::from(PACKETS)) as usize * 8 + i;
            self.ring.at(at).store(word, Ordering::Relaxed);
        }
        self.tail += 1;
        let control = &self.control.0;
        // The same as the driver (`umd/src/submit/ring.rs`), except that it rings for each packet of a
        // deferred wake.
        if control.publish(self.tail)
            && !control.owes_wake(self.kicked)
            && !gpu.device.kick(&self.handle)
        {
            self.kicked = self.tail;
        }
    }
}

struct Gpu {
    device: Device,
    host: Arc<Sleepers>,
    vm: Vm,
}

impl Gpu {
    fn new(workers: usize) -> Arc<Self> {
        let host = Arc::new(Sleepers::default());
        let config = Config { workers: Some(workers), substitutes: Some(1), ..Config::default() };
        let device = Device::new(config, Arc::<Sleepers>::clone(&host)).unwrap();
        let vm = device.create_vm(VmId(1));
        Arc::new(Self { device, host, vm })
    }

    /// Waits for a cell: helps for a while if `helps`, then sleeps.
    fn wait(&self, memory: &Memory, index: usize, value: u64, helps: bool) {
        let (cell, va) = (memory.at(index), memory.va(index));
        let reached = || cell.load(Ordering::Acquire) >= value;
        if reached() {
            return self.device.came();
        }
        if helps && self.device.help(va, value, Duration::from_micros(20)) == Some(true) {
            return;
        }
        self.device.hurry();
        self.wait_asleep(memory, index, value);
    }

    /// Like [`Self::wait`], without telling the device before.
    fn wait_asleep(&self, memory: &Memory, index: usize, value: u64) {
        let (cell, va) = (memory.at(index), memory.va(index));
        let reached = || cell.load(Ordering::Acquire) >= value;
        let (bucket, wakeup) = (waiters_index(va), Arc::new(Wakeup::default()));
        self.host.0.lock().unwrap().push((bucket, wakeup.clone()));
        let waiters = self.device.waiters(bucket);
        let mut sleeps = waiter_enters(waiters, cell, Compare::GreaterEqual, value);
        while sleeps {
            wakeup.wait();
            sleeps = !reached();
        }
        waiter_leaves(waiters);
        self.host.0.lock().unwrap().retain(|it| !Arc::ptr_eq(&it.1, &wakeup));
    }
}

/// Lets a host thread do something else, so that the device falls asleep, or nearly.
fn pause() {
    let turns = shuttle::rand::thread_rng().gen_range(0..120);
    (0..turns).for_each(|_| thread::yield_now());
}

fn nop(address: u64, value: u64) -> packet::Nop {
    let flags = flag::ORDERED | flag::POST_SYNC;
    let header = Header { opcode: opcode::NOP, flags, ..Default::default() };
    packet::Nop { header, zero: [0; 5], post: PostSync { address, value } }
}

fn wait_for(address: u64, value: u64) -> packet::Wait {
    use tally_uapi::cell::CellKind;
    let header = Header { opcode: opcode::WAIT, param: 1, ..Default::default() };
    let entries = [packet::WaitEntry { address, value }, NO_ENTRY, NO_ENTRY];
    packet::Wait {
        header,
        entries,
        kinds: [CellKind::Counter as u8, 0, 0],
        compares: [0; 3],
        operands: 0,
        reserved: 0,
    }
}

const NO_ENTRY: packet::WaitEntry = packet::WaitEntry { address: 0, value: 0 };

/// Groups of a dispatch.
const GROUPS: usize = 5;
/// Kernels, each of which is launched once by each queue: the device does not know yet that they are short, so that
/// it lets several threads run their groups.
const KERNELS: [unsafe extern "C" fn(*const GroupContext); 3] =
    [count::<0>, count::<1>, count::<2>];
/// The word of the arguments, behind the header, that has the address of the counters.
const COUNTERS: usize = ARGS_OFFSET as usize / 8;

/// Kernel: counts its group in a word of its own.
unsafe extern "C" fn count<const KERNEL: usize>(context: *const GroupContext) {
    // SAFETY: the argument is the address of as many counters as all kernels have groups.
    unsafe {
        let counters = (*context).args.cast::<*const AtomicU64>().read();
        let own = KERNEL * GROUPS + (*context).group[0] as usize;
        (*counters.add(own)).fetch_add(1, Ordering::Relaxed);
    }
}

/// A launch of a kernel whose groups are independent.
fn dispatch(kernel: usize, arguments: u64, address: u64, value: u64) -> packet::Dispatch {
    let flags = flag::ORDERED | flag::POST_SYNC | flag::INDEPENDENT;
    packet::Dispatch {
        header: Header { opcode: opcode::DISPATCH, flags, ..Default::default() },
        entry: KERNELS[kernel] as usize as u64,
        kernarg: arguments,
        groups: [GROUPS as u32, 1, 1],
        group_size: [1; 3],
        work_dim: 1,
        post: PostSync { address, value },
        ..Default::default()
    }
}

/// Arguments and counters of a queue's dispatches, and cells.
struct Counted {
    arguments: Memory,
    counters: Memory,
    cells: Memory,
}

impl Counted {
    fn new() -> Self {
        let it = Self {
            arguments: Memory::new(COUNTERS + 1),
            counters: Memory::new(KERNELS.len() * GROUPS),
            cells: Memory::new(8),
        };
        it.arguments.at(COUNTERS).store(it.counters.va(0), Ordering::Relaxed);
        it
    }

    fn dispatch(&self, kernel: usize) -> packet::Dispatch {
        dispatch(kernel, self.arguments.va(0), self.cells.va(0), kernel as u64 + 1)
    }

    /// How many times each group of a kernel has run.
    fn runs(&self, kernel: usize) -> [u64; GROUPS] {
        std::array::from_fn(|i| self.counters.at(kernel * GROUPS + i).load(Ordering::Relaxed))
    }
}

/// Threads of the host, each with a queue of its own, wait for each of their commands: doorbells, deferred
/// wakes, helping threads that return, workers that go to sleep.
fn round_trips(workers: usize, threads: u32, rounds: u64, helps: bool) {
    check(move || {
        let gpu = Gpu::new(workers);
        let threads: Vec<_> = (0..threads)
            .map(|id| {
                let gpu = gpu.clone();
                thread::spawn(move || {
                    let cells = Memory::new(64);
                    let mut queue = Producer::new(&gpu, id, Priority::Normal);
                    for round in 1..=rounds {
                        if round % 2 == 0 {
                            pause();
                        }
                        // Two commands at once.
                        queue.push(&gpu, nop(cells.va(0), 2 * round - 1));
                        queue.push(&gpu, nop(cells.va(0), 2 * round));
                        gpu.wait(&cells, 0, 2 * round, helps);
                    }
                    gpu.device.destroy_queue(&queue.handle);
                })
            })
            .collect();
        threads.into_iter().for_each(|it| it.join().unwrap());
    });
}

#[test]
fn every_command_of_helping_threads_completes() {
    round_trips(1, 2, 6, true);
    round_trips(2, 2, 6, true);
}

#[test]
fn every_command_of_sleeping_threads_completes() {
    round_trips(2, 3, 3, false);
}

/// A thread that helped after each of its doorbells rings once more and leaves. Another thread waits for that
/// command and only sleeps. So the watchdog has to promote the queue if its wake was deferred.
#[test]
fn a_deferred_command_completes_without_its_thread() {
    check(|| {
        const ROUNDS: u64 = 6;
        let gpu = Gpu::new(1);
        let cells = Arc::new(Memory::new(64));
        let rings = {
            let (gpu, cells) = (gpu.clone(), cells.clone());
            thread::spawn(move || {
                let mut queue = Producer::new(&gpu, 1, Priority::Normal);
                for value in 1..=ROUNDS {
                    pause();
                    queue.push(&gpu, nop(cells.va(0), value));
                    gpu.wait(&cells, 0, value, true);
                }
                pause();
                queue.push(&gpu, nop(cells.va(0), ROUNDS + 1));
                queue
            })
        };
        gpu.wait_asleep(&cells, 0, ROUNDS + 1);
        gpu.device.destroy_queue(&rings.join().unwrap().handle);
    });
}

/// Queues of several priorities that wait for each other in a ring: parks against signals.
#[test]
fn every_parked_queue_goes_on() {
    check(|| {
        const QUEUES: usize = 3;
        const ROUNDS: u64 = 3;
        let gpu = Gpu::new(2);
        let cells = Arc::new(Memory::new(64));
        let priorities = [Priority::High, Priority::Normal, Priority::Low];
        let threads: Vec<_> = (0..QUEUES)
            .map(|i| {
                let (gpu, cells) = (gpu.clone(), cells.clone());
                thread::spawn(move || {
                    let mut queue = Producer::new(&gpu, i as u32, priorities[i]);
                    for round in 1..=ROUNDS {
                        let (from, value) =
                            if i == 0 { (QUEUES - 1, round - 1) } else { (i - 1, round) };
                        queue.push(&gpu, wait_for(cells.va(from), value));
                        queue.push(&gpu, nop(cells.va(i), round));
                    }
                    gpu.wait(&cells, i, ROUNDS, i == 1);
                    // Another thread may wait for this queue's last signal, which was already made.
                    gpu.device.destroy_queue(&queue.handle);
                })
            })
            .collect();
        threads.into_iter().for_each(|it| it.join().unwrap());
    });
}

/// A queue is destroyed while it is submitted to, streamed, and lingered at: it stops, and the control page
/// is not touched any more.
#[test]
fn a_queue_that_is_destroyed_in_use_stops() {
    check(|| {
        let gpu = Gpu::new(2);
        let cells = Arc::new(Memory::new(64));
        let mut queue = Producer::new(&gpu, 1, Priority::Normal);
        let handle = queue.handle.clone();
        let submits = {
            let (gpu, cells) = (gpu.clone(), cells.clone());
            thread::spawn(move || {
                (1..=4).for_each(|value| queue.push(&gpu, nop(cells.va(0), value)));
                queue
            })
        };
        gpu.device.destroy_queue(&handle);
        let queue = submits.join().unwrap();
        let before = queue.control.0.head.load(Ordering::Relaxed);
        // The neighbour's commands continue.
        let mut other = Producer::new(&gpu, 2, Priority::Normal);
        other.push(&gpu, nop(cells.va(1), 1));
        gpu.wait(&cells, 1, 1, true);
        assert_eq!(queue.control.0.head.load(Ordering::Relaxed), before, "touched after its end");
        gpu.device.destroy_queue(&other.handle);
    });
}

/// Workers and helping threads take the groups of kernels from parts, and go on in those of others.
#[test]
fn every_group_runs_once() {
    check(|| {
        let gpu = Gpu::new(3);
        let threads: Vec<_> = (0..2)
            .map(|id| {
                let gpu = gpu.clone();
                thread::spawn(move || {
                    let counted = Counted::new();
                    let mut queue = Producer::new(&gpu, id, Priority::Normal);
                    for kernel in 0..KERNELS.len() {
                        queue.push(&gpu, counted.dispatch(kernel));
                        gpu.wait(&counted.cells, 0, kernel as u64 + 1, id == 0);
                        assert_eq!(counted.runs(kernel), [1; GROUPS], "kernel {kernel}");
                    }
                    gpu.device.destroy_queue(&queue.handle);
                })
            })
            .collect();
        threads.into_iter().for_each(|it| it.join().unwrap());
    });
}

/// A queue is destroyed while the groups of its kernels run: a kernel runs whole or not at all.
#[test]
fn no_group_runs_of_a_kernel_that_was_withdrawn() {
    check(|| {
        let gpu = Gpu::new(2);
        let counted = Arc::new(Counted::new());
        let mut queue = Producer::new(&gpu, 1, Priority::Normal);
        let handle = queue.handle.clone();
        let submits = {
            let (gpu, counted) = (gpu.clone(), counted.clone());
            thread::spawn(move || {
                (0..KERNELS.len()).for_each(|kernel| queue.push(&gpu, counted.dispatch(kernel)));
                queue
            })
        };
        pause();
        gpu.device.destroy_queue(&handle);
        let runs: Vec<_> = (0..KERNELS.len()).map(|kernel| counted.runs(kernel)).collect();
        drop(submits.join().unwrap());
        for (kernel, before) in runs.into_iter().enumerate() {
            assert_eq!(counted.runs(kernel), before, "kernel {kernel} after the queue's end");
            assert!(before == [1; GROUPS] || before == [0; GROUPS], "kernel {kernel}: {before:?}");
        }
    });
}

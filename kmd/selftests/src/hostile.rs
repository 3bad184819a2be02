// SPDX-License-Identifier: GPL-2.0
//! A hostile client that harms others as much as it can, and a witness beside it.
//!
//! The hostile client is another user with some processes, each of which does one thing as fast as it can.
//! They are stopped, continued, killed and restarted at any moment. The witness must notice nothing: its
//! results are right, its VM is not lost, and it gets all it asks for. The test prints the witness's waiting
//! times: alone, beside the same number of processes that compute, one of them on the device, and beside the
//! hostile client. The witness shares the processors with all of them, so no time is asserted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tally_uapi::ioctl::{BoCreate, VmBind, bind_op};
use tally_uapi::ioctl::{QueueDestroy, QueueKick, SemWake, VmCreate, VmDestroy};
use tally_uapi::packet::{Copy, Header, PostSync, flag, opcode};

use crate::device::{
    Fixture, Node, PAGE, Queue, RW, counter, debug_file, entry, in_ms, nobody_is_left, now_ns,
    shared_kib, wait,
};
use crate::processes::{Child, process};
use crate::users::open_to_all;

/// The hostile client's attacks, each in a process of its own, until it is killed.
const MEANS: [(&str, fn()); 7] = [
    ("endless kernels", endless_kernels),
    ("memory", memory),
    ("queues", queues),
    ("VMs", vms),
    ("mappings", mappings),
    ("waits", waits),
    ("questions", questions),
];

/// A kernel that never ends, destroyed while it runs: each time its engine is lost.
fn endless_kernels() {
    loop {
        let fixture = Fixture::new();
        let mut queue = fixture.queue(0);
        crate::queues::start_endless(&fixture, &mut queue, 8);
        let other = fixture.queue(16);
        let _ = fixture.node.call(&mut QueueDestroy { queue_id: queue.id, pad: 0 });
        let _ = fixture.node.call(&mut QueueDestroy { queue_id: other.id, pad: 0 });
    }
}

/// Takes and writes all the memory that a user may have: large buffers, small ones, and NULL memory.
fn memory() {
    loop {
        let fixture = Fixture::new();
        let mut held = Vec::new();
        for pages in (0..16).rev().map(|bits| 1 << bits) {
            // Thousands of the smallest buffers, which cost the kernel more memory than they contain.
            for _ in 0..if pages == 1 { 5000 } else { 64 } {
                let Ok(handle) = fixture.node.bo(pages, 0) else { break };
                let Ok(mapped) = fixture.node.map(handle, libc::PROT_READ | libc::PROT_WRITE)
                else {
                    break;
                };
                for page in 0..pages {
                    mapped
                        .word((page * PAGE) as usize / 8)
                        .store(1, std::sync::atomic::Ordering::Relaxed);
                }
                held.push(mapped);
            }
        }
        let map = |page: u64| fixture.map(0, 0, page * 512, 512, RW);
        let null = |page| fixture.bind(VmBind { op: bind_op::MAP_NULL, ..map(page) });
        let _ = (0..128).find_map(|page| null(page).err());
    }
}

/// Makes all the queues that a user may have, each with packets.
fn queues() {
    loop {
        let fixture = Fixture::new();
        let mut queue = fixture.queue(0);
        while fixture.node.call(&mut fixture.queue_create(0)).is_ok() {
            queue.push(queue.signal(0, 1));
        }
    }
}

/// Makes all the VMs that a user may have.
fn vms() {
    loop {
        let nodes: Vec<Node> = (0..16).map(|_| Node::open()).collect();
        let mut create = VmCreate { start: 0x20_0000_0000, size: PAGE, ..Default::default() };
        for node in &nodes {
            while node.call(&mut create).is_ok() {}
        }
        let _ = nodes[0].call(&mut VmDestroy { vm_id: create.vm_id, pad: 0 });
    }
}

/// Maps one page everywhere, in separate mappings.
fn mappings() {
    loop {
        let fixture = Fixture::new();
        let Ok(handle) = fixture.node.bo(8, 0) else { continue };
        let places = 0..crate::device::WINDOW_PAGES / 8;
        for place in places {
            let page = place * 8;
            if fixture.bind(fixture.map(handle, 0, page, 8, RW)).is_err() {
                break;
            }
            let _ = fixture.bind(fixture.unmap(page + 3, 2));
        }
    }
}

/// Sleeps on and wakes cells whose buckets other clients use, too.
fn waits() {
    let node = Node::open();
    let Ok(handle) = node.bo(1, 0) else { return };
    let entries: Vec<_> = (0..64).map(|cell| entry(handle, cell * 8, 1)).collect();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let _ = wait(&node, 0, &entries, 0, in_ms(1));
                }
            });
        }
        loop {
            let _ = node.call(&mut SemWake { handle, pad: 0, offset: 0 });
            let _ = node.call(&mut SemWake::default());
        }
    });
}

/// Sends calls that the device or the interrupt's thread has to answer.
fn questions() {
    let fixture = Fixture::new();
    let queue = fixture.queue(0);
    let path = format!("/proc/self/fdinfo/{}", fixture.node.fd());
    loop {
        let _ = std::fs::read(&path);
        let _ = fixture.node.call(&mut QueueKick { queue_id: queue.id, pad: 0 });
        let mut query = tally_uapi::ioctl::QueueQuery { queue_id: queue.id, ..Default::default() };
        let _ = fixture.node.call(&mut query);
    }
}

/// The harmless comparison: as many processes as the hostile client has. Each uses a processor, one of them
/// through the device, and nothing else.
fn compute() -> bool {
    // SAFETY: takes numbers. This process has one thread.
    if unsafe { libc::setuid(65534) } != 0 {
        return false;
    }
    let start = |index| {
        process(move || {
            let fixture = Fixture::new();
            let mut queue = fixture.queue(0);
            if index == 0 {
                crate::queues::start_endless(&fixture, &mut queue, 8);
            }
            busy()
        })
    };
    let _children: Vec<_> = (0..MEANS.len()).map(start).collect();
    loop {
        std::thread::sleep(Duration::from_secs(100));
    }
}

/// The hostile client: starts a process for each of these attacks as another user, and stops, continues,
/// kills and restarts them.
fn harm(means: &[usize]) -> bool {
    // SAFETY: takes numbers. This process has one thread.
    if unsafe { libc::setuid(65534) } != 0 {
        return false;
    }
    let start = |means: usize| {
        process(move || {
            // An attack that ends with an error, because a limit is reached, begins anew.
            std::panic::set_hook(Box::new(|_| ()));
            loop {
                let _ = std::panic::catch_unwind(MEANS[means].1);
            }
        })
    };
    let mut children: Vec<_> = means.iter().map(|&means| start(means)).collect();
    for round in 0.. {
        let index = round % children.len();
        std::thread::sleep(Duration::from_millis(70));
        // This often hits the middle of a call.
        children[index].signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(30));
        children[index].signal(libc::SIGCONT);
        if round % 5 == 4 {
            children.remove(index).kill_if_alive();
            children.insert(index, start(means[index]));
        }
    }
    true
}

/// Durations in ns, by the name of the operation.
type Times = BTreeMap<&'static str, Vec<i64>>;

/// The witness, with the durations of the operations that it repeats.
struct Witness {
    times: Times,
}

impl Witness {
    fn time<T>(&mut self, what: &'static str, f: impl FnOnce() -> T) -> T {
        let begun = now_ns();
        let result = f();
        self.times.entry(what).or_default().push(now_ns() - begun);
        result
    }

    /// Works for `time`, and asserts that every result is right.
    fn work(time: Duration) -> Times {
        let mut witness = Self { times: Times::new() };
        let (fixture, end) = (Fixture::new(), Instant::now() + time);
        let mut queue = fixture.queue(0);
        let (_, memory) = fixture.memory(16, 64);
        let words = 32 * PAGE as usize / 8;
        let mut value = 0;
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        while Instant::now() < end {
            value += 1;
            witness.time("a signal and its wait", || {
                queue.push(queue.signal(0, value));
                arrives(&fixture, &queue, 0, value);
            });
            (0..words)
                .step_by(64)
                .for_each(|word| memory.word(word).store(value ^ word as u64, relaxed));
            let flags = flag::ORDERED | flag::POST_SYNC;
            let copy = Copy {
                header: Header { opcode: opcode::COPY, flags, ..Header::default() },
                dst: fixture.va(48),
                src: fixture.va(16),
                size: 32 * PAGE,
                zero: [0; 2],
                post: PostSync { address: queue.cell(1), value },
            };
            witness.time("a copy of 128 KiB", || {
                queue.push(copy);
                arrives(&fixture, &queue, 1, value);
            });
            let copied =
                |word: usize| memory.word(words + word).load(relaxed) == value ^ word as u64;
            assert!((0..words).step_by(64).all(copied), "round {value}");
            witness.time("a binding and its end", || {
                fixture.bind(fixture.map(queue.handle, 0, 100, 1, RW)).expect("a binding");
                fixture.bind(fixture.unmap(100, 1)).expect("its end");
            });
            if value % 16 == 1 {
                witness.time("a VM, a queue and a buffer", || {
                    let other = Fixture::new();
                    other.queue(0);
                    let buffer =
                        other.node.call(&mut BoCreate { size: 1 << 20, ..Default::default() });
                    assert_eq!(buffer, Ok(()));
                });
            }
        }
        let query = queue.query();
        assert_eq!((query.fault_kind, query.head), (0, 2 * value), "the queue of the witness");
        witness.times
    }
}

/// Waits until a signal has arrived, a second at a time: a virtual machine may be paused for minutes, which
/// then uses up one of these waits. If all of them pass, it is a hang.
fn arrives(fixture: &Fixture, queue: &Queue<'_>, index: usize, value: u64) {
    const WAITS: usize = 900;
    let wait = || fixture.wait(&[queue.entry(index, value)], 0, in_ms(1000));
    let result = std::iter::repeat_with(wait).take(WAITS).find(|it| *it != Err(libc::ETIME));
    if result.is_none() {
        eprintln!("{:?}\n{}", queue.query(), debug_file("state"));
    }
    assert_eq!(result, Some(Ok(0)), "cell {index} should reach {value}");
}

/// Number of processes that the kernel has killed for lack of memory, as far back as its log goes.
fn oom_kills() -> usize {
    const READ_ALL: i32 = 3;
    let mut log = vec![0_u8; 1 << 20];
    // SAFETY: the kernel writes at most as many bytes as there are.
    let bytes = unsafe { libc::klogctl(READ_ALL, log.as_mut_ptr().cast(), log.len() as i32) };
    log.truncate(usize::try_from(bytes).expect("the kernel's log"));
    String::from_utf8_lossy(&log).matches("Out of memory: Killed").count()
}

fn show(times: &mut [i64]) -> String {
    times.sort_unstable();
    let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100] / 1000;
    format!("{:>8} {:>8} {:>8} {:>8}", times.len(), at(50), at(99), at(100))
}

/// A witness beside a hostile client gets all its results, and everything that it asks for.
pub fn a_witness_notices_nothing() {
    nobody_is_left();
    open_to_all();
    let time = std::env::var("TALLY_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(time.unwrap_or(10));
    let mut alone = Witness::work(time);
    let others = process(compute);
    let mut honest = Witness::work(time);
    others.kill();
    let (resets, lost) = (counter("resets"), counter("vms_lost"));
    let (kills, shared) = (oom_kills(), shared_kib());
    let other = process(|| harm(&(0..MEANS.len()).collect::<Vec<_>>()));
    let beside = Witness::work(time);
    let most = shared_kib().saturating_sub(shared);
    other.kill();
    println!("# {:40} {:>8} {:>8} {:>8} {:>8}", "in us", "times", "median", "99 %", "longest");
    for (what, mut times) in beside {
        let before = alone.get_mut(what).map(|it| show(it)).unwrap_or_default();
        let busy = honest.get_mut(what).map(|it| show(it)).unwrap_or_default();
        println!("# {:40} {before}", format!("{what}, alone"));
        println!("# {:40} {busy}", "  beside honest company");
        println!("# {:40} {}", "  beside the hostile one", show(&mut times));
    }
    println!(
        "# the hostile one had {} MiB at its end, and has lost VMs: {}",
        most >> 10,
        counter("vms_lost") - lost
    );
    assert_eq!(counter("resets"), resets, "the device was reset");
    assert!(oom_kills() <= kills, "a process was ended for want of memory");
    nobody_is_left();
}

/// Gives this thread priority over all other ready threads of the machine. Its children do not inherit that.
fn come_first() {
    // SAFETY: takes numbers and a struct.
    let set = unsafe {
        let first = libc::sched_param { sched_priority: 1 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &first)
    };
    assert_eq!(set, 0);
}

/// Measures the waits of a witness beside each attack alone, and beside a process that only uses a processor.
/// With `first` the witness has a processor whenever it is ready, so that it never waits for a processor of
/// the machine.
pub fn each_means(first: bool) {
    open_to_all();
    let time = std::env::var("TALLY_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(time.unwrap_or(10));
    println!("{:44} {:>8} {:>8} {:>8} {:>8}", "in us", "times", "median", "99 %", "longest");
    let measure = |who: &str| {
        for (what, mut times) in Witness::work(time) {
            println!("{who:16} {what:27} {}", show(&mut times));
        }
    };
    if first {
        come_first();
    }
    measure("alone");
    let beside = |name: &str, other: Child| {
        measure(name);
        other.kill();
        nobody_is_left();
    };
    beside("a busy loop", process(busy));
    for (index, (name, _)) in MEANS.iter().enumerate() {
        beside(name, process(move || harm(&[index])));
    }
}

fn busy() -> bool {
    loop {
        std::hint::spin_loop();
    }
}

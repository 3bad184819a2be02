// SPDX-License-Identifier: GPL-2.0
//! Tests of the device's own processes on the host half: they are ended, stopped, or overwritten with garbage, as
//! an attacker might do who has taken them over. The loss is limited to a VM, or to one GPU.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use tally_uapi::cell::CellKind;
use tally_uapi::fault::FaultKind;
use tally_uapi::host::{INTERRUPT, Ioctl, PATH, Start, VmFile};
use tally_uapi::ioctl::{QueueDestroy, VmCreate, sem_wait_flag};

use crate::Outcome;
use crate::device::{
    FOREVER, Fixture, Node, PAGE, counter, entry, eventually, nobody_is_left, shared_kib,
    signal_at, wait_for,
};
use crate::fuzz::Dice;
use crate::half::{another, daemon, engines, is_pci};
use crate::host::{NO_HOST, errno};

/// The process id of the device's process.
fn running() -> libc::pid_t {
    daemon().expect("the device's process")
}

/// A VM, and its engine process.
fn vm_and_engine() -> (Fixture, libc::pid_t) {
    nobody_is_left();
    let daemon = running();
    let fixture = Fixture::new();
    // The engine process of the previous VM may still be ending.
    eventually(|| engines(daemon).len() == 1);
    (fixture, engines(daemon)[0])
}

fn send(pid: libc::pid_t, signal: i32) {
    // SAFETY: the call takes only numbers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "{}", errno());
}

/// Checks that a VM works.
fn works(fixture: &Fixture) {
    let mut queue = fixture.queue(1000);
    for value in 1..=20 {
        queue.push(queue.signal(0, value));
        assert_eq!(fixture.wait(&[queue.entry(0, value)], 0, FOREVER), Ok(0));
    }
    // As long as the queue exists, its memory is in use.
    fixture.node.call(&mut QueueDestroy { queue_id: queue.id, pad: 0 }).expect("QUEUE_DESTROY");
    fixture.bind(fixture.unmap(1000, 3)).expect("UNMAP");
}

/// Checks that the GPU of a node works.
fn gpu_works(node: &Path) {
    works(&Fixture::on(Node::open_path(node)));
}

/// "a kernel that ends the engine process": waits for its VM fail with EIO.
pub fn an_ended_engine_loses_its_vm_alone() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    let (fixture, engine) = vm_and_engine();
    let (other, daemon) = (Fixture::new(), running());
    let mut queue = fixture.queue(0);
    queue.push(wait_for(queue.cell(1), 1, CellKind::Event));
    thread::scope(|scope| {
        let entries = [queue.entry(0, 1), queue.entry(2, 1)];
        let fixture = &fixture;
        let sleeper = scope.spawn(move || fixture.wait(&entries, sem_wait_flag::ANY, FOREVER));
        eventually(|| counter("asleep") == entries.len() as u64);
        send(engine, libc::SIGKILL);
        assert_eq!(sleeper.join().unwrap(), Err(libc::EIO));
    });
    assert_eq!(queue.query().fault_kind, FaultKind::EngineLost as u32);
    works(&other);
    assert_eq!(running(), daemon, "it goes on");
    Outcome::Passed
}

/// "revocation asks neither daemon nor engine process": memory that an engine process has seen is freed while
/// the process is stopped. An operation that needs its answer ends it.
pub fn a_stopped_engine_keeps_no_memory() -> Outcome {
    const PAGES: u64 = 4096;
    if is_pci() {
        return NO_HOST;
    }
    let (fixture, engine) = vm_and_engine();
    let (other, daemon, lost) = (Fixture::new(), running(), counter("vms_lost"));
    let mut queue = fixture.queue(0);
    let (handle, memory) = fixture.memory(16, PAGES);
    queue.push(signal_at(fixture.va(16), 1));
    assert_eq!(fixture.wait(&[entry(handle, 0, 1)], 0, FOREVER), Ok(0));
    let before = shared_kib();
    send(engine, libc::SIGSTOP);
    fixture.bind(fixture.unmap(16, PAGES)).expect("UNMAP");
    drop(memory);
    fixture.node.close(handle).expect("to close it");
    eventually(|| shared_kib() < before - PAGES * PAGE / 2048);
    works(&other);
    assert_eq!(engines(daemon).len(), 2, "so far it has not been missed");
    assert_eq!(counter("vms_lost"), lost);
    fixture.memory(16, 3);
    let created = fixture.node.call(&mut fixture.queue_create(16));
    assert_eq!(created, Err(libc::EIO));
    eventually(|| !engines(daemon).contains(&engine));
    assert_eq!(counter("vms_lost"), lost + 1);
    works(&other);
    assert_eq!(running(), daemon, "it goes on");
    Outcome::Passed
}

/// Memory of another process, as words.
struct Words {
    start: *mut AtomicU64,
    count: usize,
}

// SAFETY: the memory is used only by atomic accesses.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: this is the test's own mapping, to which nothing refers any more. (It keeps its file open.)
        unsafe { libc::munmap(self.start.cast(), self.count * 8) };
    }
}

impl Words {
    fn map(fd: &impl AsRawFd, bytes: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: this makes a new mapping.
        let start = unsafe {
            let (shared, fd) = (libc::MAP_SHARED, fd.as_raw_fd());
            libc::mmap(std::ptr::null_mut(), bytes, access, shared, fd, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: start.cast(), count: bytes / 8 }
    }

    /// Writes to random words: any number, a small one, two small ones, or bits; and wakes the sleepers there.
    fn spoil(&self, dice: &mut Dice, times: u32) {
        for _ in 0..times {
            let value = match dice.below(4) {
                0 => dice.below(u64::MAX),
                1 => dice.below(300),
                2 => dice.below(300) << 32 | dice.below(300),
                _ => 1 << dice.below(64),
            };
            // SAFETY: the word lies within the mapping.
            let word = unsafe { &*self.start.add(dice.below(self.count as u64) as usize) };
            word.store(value, SeqCst);
            for half in [0, 4] {
                let futex = std::ptr::from_ref(word).wrapping_byte_add(half);
                // SAFETY: the call takes an address, which the kernel checks, and numbers.
                unsafe { libc::syscall(libc::SYS_futex, futex, libc::FUTEX_WAKE, i32::MAX) };
            }
        }
    }
}

/// The mailbox that an engine process shares with the hub.
fn mailbox(engine: libc::pid_t) -> Words {
    let maps = fs::read_to_string(format!("/proc/{engine}/maps")).expect("its mappings");
    let line = maps.lines().find(|line| line.contains("memfd:tally-mailbox")).expect("a mailbox");
    let range = line.split(' ').next().unwrap_or_default();
    let file = format!("/proc/{engine}/map_files/{range}");
    let file = fs::File::options().read(true).write(true).open(file).expect("the mailbox");
    let bytes = file.metadata().expect("its size").len();
    Words::map(&file, bytes as usize)
}

/// Garbage in all messages between an engine process and the hub: at most the VM is lost.
pub fn a_lying_engine_loses_its_vm_alone() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    let daemon = running();
    for seed in 1..=3 {
        let (fixture, engine) = vm_and_engine();
        let other = Fixture::new();
        let (words, end) = (mailbox(engine), AtomicBool::new(false));
        let (mut dice, fixture) = (Dice(seed), &fixture);
        thread::scope(|scope| {
            scope.spawn(|| {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(2) {
                    words.spoil(&mut dice, 100);
                }
                end.store(true, SeqCst);
            });
            scope.spawn(|| {
                let mut place = 0;
                while !end.load(SeqCst) {
                    place = (place + 8) % 64;
                    let Ok(handle) = fixture.node.bo(3, 0) else { continue };
                    let _ = fixture
                        .bind(fixture.map(handle, 0, place, 3, crate::device::RW))
                        .and_then(|()| fixture.node.call(&mut fixture.queue_create(place)))
                        .and_then(|()| fixture.bind(fixture.unmap(place, 3)));
                    // Else a fast machine's memory is used up before the time is.
                    let _ = fixture.node.close(handle);
                }
            });
            while !end.load(SeqCst) {
                works(&other);
            }
        });
        assert_eq!(running(), daemon, "it goes on");
    }
    nobody_is_left();
    crate::queues::a_signal_arrives();
    assert_eq!(running(), daemon, "it goes on");
    Outcome::Passed
}

/// The device's process is stopped for some seconds: that only delays its clients.
pub fn a_pause_loses_nothing() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    let daemon = running();
    crate::power::kept_through(|| {
        send(daemon, libc::SIGSTOP);
        thread::sleep(Duration::from_secs(3));
        send(daemon, libc::SIGCONT);
    });
    assert_eq!(running(), daemon, "it goes on");
    Outcome::Passed
}

/// The machine sleeps, for longer than the device has for an answer, while the device's process is stopped: such a
/// process is not frozen with its clients, and is still stopped when the machine wakes up.
pub fn a_pause_may_include_a_sleep_of_the_machine() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    if !crate::power::can_pretend_to_sleep() {
        return Outcome::Skipped("the kernel cannot pretend to sleep");
    }
    let daemon = running();
    crate::power::kept_through(|| {
        send(daemon, libc::SIGSTOP);
        crate::power::pretend_to_sleep("devices", crate::power::longer_than_answers_take());
        send(daemon, libc::SIGCONT);
    });
    assert_eq!(running(), daemon, "it goes on");
    Outcome::Passed
}

/// The device's process is stopped for longer: its clients get errors, their memory is freed, and other GPUs
/// continue. When the process is continued, it ends. `TALLY_PAUSE_SECONDS` lets it stay stopped for that time after
/// the loss.
pub fn a_long_pause_ends_one_gpu() -> Outcome {
    const PAGES: u64 = 8192;
    if is_pci() {
        return NO_HOST;
    }
    nobody_is_left();
    let daemon = running();
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    let (handle, memory) = fixture.memory(16, PAGES);
    queue.push(signal_at(fixture.va(16), 1));
    assert_eq!(fixture.wait(&[entry(handle, 0, 1)], 0, FOREVER), Ok(0));
    let (second, node) = another();
    send(daemon, libc::SIGSTOP);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| fixture.wait(&[entry(handle, 0, 2)], 0, FOREVER));
        let caller = scope.spawn(|| {
            let mut create = VmCreate { start: 1 << 36, size: PAGE, ..Default::default() };
            fixture.node.call(&mut create)
        });
        while !(sleeper.is_finished() && caller.is_finished()) {
            gpu_works(&node);
        }
        for answer in [sleeper.join().unwrap().map(|_| ()), caller.join().unwrap()] {
            assert!(matches!(answer, Err(libc::EIO | libc::ENODEV)), "{answer:?}");
        }
    });
    // No state of the client is kept for a device that is gone.
    let create = || fixture.node.call(&mut VmCreate::default());
    eventually(|| create() == Err(libc::ENODEV));
    let before = shared_kib();
    drop((queue, memory));
    fixture.node.close(handle).expect("to close it");
    drop(fixture);
    eventually(|| shared_kib() < before - PAGES * PAGE / 2048);
    let more = std::env::var("TALLY_PAUSE_SECONDS").ok().and_then(|text| text.parse().ok());
    let (begun, more) = (Instant::now(), Duration::from_secs(more.unwrap_or(0)));
    gpu_works(&node);
    while begun.elapsed() < more {
        gpu_works(&node);
    }
    send(daemon, libc::SIGCONT);
    eventually(|| self::daemon() != Some(daemon));
    gpu_works(&node);
    drop(second);
    drop(Node::await_one());
    crate::queues::a_signal_arrives();
    Outcome::Passed
}

/// The device's process, with another holder of its file that writes to all memory that it shares with the driver
/// and makes random calls.
pub fn garbage_ends_one_gpu_at_most() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    for seed in 1..=3 {
        nobody_is_left();
        let daemon = running();
        let file = host_file(daemon);
        let words = Words::map(&file, size_of::<tally_uapi::host::Area>());
        let (second, node) = another();
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                (1..).take_while(|_| !end.load(SeqCst)).for_each(|seed| {
                    // There is none if it has ended already.
                    if Node::try_open().is_some() {
                        crate::fuzz::some_calls(seed);
                    }
                });
            });
            let end = &end;
            // The thread closes the file at its end.
            scope.spawn(move || {
                let (mut dice, begun) = (Dice(seed), Instant::now());
                while begun.elapsed() < Duration::from_secs(3) {
                    words.spoil(&mut dice, 20);
                    call_at_random(&file, &mut dice);
                }
                end.store(true, SeqCst);
            });
            while !end.load(SeqCst) {
                gpu_works(&node);
            }
            // Waits for its answers need not last until its time limit.
            if self::daemon() == Some(daemon) {
                send(daemon, libc::SIGKILL);
            }
        });
        gpu_works(&node);
        drop(second);
        eventually(|| self::daemon().is_some_and(|pid| pid != daemon));
        drop(Node::await_one());
        crate::queues::a_signal_arrives();
    }
    Outcome::Passed
}

/// The file of the host device that a process has open.
fn host_file(daemon: libc::pid_t) -> OwnedFd {
    let descriptors = fs::read_dir(format!("/proc/{daemon}/fd")).expect("its files").flatten();
    let number = descriptors
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|path| path == Path::new(PATH)))
        .find_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .expect("the host device");
    // SAFETY: the calls take only numbers; the descriptors are new and have no other owner.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, daemon, 0);
        assert!(process >= 0);
        let process = OwnedFd::from_raw_fd(process as i32);
        let file = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0);
        assert!(file >= 0, "{}", errno());
        OwnedFd::from_raw_fd(file as i32)
    }
}

/// Makes a call on the host device that the device did not make.
fn call_at_random(file: &OwnedFd, dice: &mut Dice) {
    let fd = file.as_raw_fd();
    let mut argument = [dice.below(300), dice.below(1 << 48), dice.below(u64::MAX)];
    let request = match dice.below(8) {
        0 => dice.below(1 << 32) as u32,
        1 => Start::REQUEST,
        2 => VmFile::REQUEST,
        _ => INTERRUPT,
    };
    // SAFETY: the argument is larger than any of the host device's; the kernel checks addresses in it.
    unsafe {
        let done = libc::ioctl(fd, request as libc::Ioctl, argument.as_mut_ptr());
        if done == 0 && request == VmFile::REQUEST {
            libc::close((argument[0] >> 32) as i32);
        }
    }
}

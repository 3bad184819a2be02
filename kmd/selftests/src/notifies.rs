// SPDX-License-Identifier: GPL-2.0
//! SEM_NOTIFY: waits that tell a target.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;

use libc::POLLIN;
use tally_uapi::ioctl::{SemNotify, SemWaitEntry, SemWake, VmDestroy, notify_kind, sem_wait_flag};
use tally_uapi::packet::Packet;

use crate::Outcome;
use crate::device::{
    FOREVER, Fixture, Node, RW, counter, entry, eventually, nobody_is_left, signal_at, wait,
};
use crate::half::{Gone, device_file, is_pci};
use crate::polls::{LIMIT, polled};
use crate::processes::process;

/// An eventfd, which counts the waits that have told it.
pub struct Bell(pub OwnedFd);

impl Bell {
    pub fn new() -> Self {
        // SAFETY: takes numbers.
        let number = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        assert!(number >= 0);
        // SAFETY: made for us.
        Self(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Tells it.
    pub fn ring(&self) {
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::eventfd_write(self.0.as_raw_fd(), 1) }, 0);
    }

    /// Number of times that it was told since the last call.
    pub fn told(&self) -> u64 {
        let mut count = 0u64;
        // SAFETY: room for the number.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
        if read == 8 { count } else { 0 }
    }

    /// Does the same as [`Self::told`], once it was told at all.
    pub fn wait(&self) -> u64 {
        assert_eq!(polled(&self.0, LIMIT), POLLIN);
        self.told()
    }
}

fn request(vm_id: u32, entries: &[SemWaitEntry], eventfd: RawFd) -> SemNotify {
    SemNotify {
        entries: entries.as_ptr().addr() as u64,
        count: entries.len() as u32,
        vm_id,
        kind: notify_kind::EVENTFD,
        target: eventfd as u32,
        ..Default::default()
    }
}

/// SEM_NOTIFY.
fn notify(
    node: &Node,
    vm: u32,
    entries: &[SemWaitEntry],
    flags: u32,
    to: &Bell,
) -> Result<(), i32> {
    node.call(&mut SemNotify { flags, ..request(vm, entries, to.0.as_raw_fd()) })
}

pub fn wake(node: &Node, handle: u32, offset: u64) {
    node.call(&mut SemWake { handle, pad: 0, offset }).unwrap();
}

/// Armed waits, and the cells that are slept on.
fn armed() -> (u64, u64) {
    (counter("waits"), counter("asleep"))
}

/// "adds 1 to the eventfd once the wait is over", and what the wait took was given back before.
pub fn a_signal_tells_an_eventfd() {
    nobody_is_left();
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    let bell = Bell::new();
    for value in 1..=10 {
        notify(&fixture.node, fixture.vm, &[queue.entry(0, value)], 0, &bell).unwrap();
        assert_eq!((armed(), bell.told()), ((1, 1), 0));
        queue.push(queue.signal(0, value));
        assert_eq!(bell.wait(), 1);
        assert_eq!(armed(), (0, 0));
    }
}

/// "If it is met already, the eventfd is told before the ioctl returns." "all entries (or, with ANY, one)"
pub fn met_waits_tell_at_once() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let entries = [entry(handle, 0, 1), entry(handle, 8, 1)];
    let [any, all] = [Bell::new(), Bell::new()];
    memory.word(0).store(1, Release);
    notify(&fixture.node, 0, &entries, sem_wait_flag::ANY, &any).unwrap();
    notify(&fixture.node, 0, &entries, 0, &all).unwrap();
    assert_eq!((any.told(), all.told(), armed()), (1, 0, (1, 2)));
    // An entry that was met once stays met.
    memory.word(0).store(0, Release);
    memory.word(1).store(1, Release);
    wake(&fixture.node, handle, 8);
    assert_eq!((all.wait(), any.told()), (1, 0));
}

/// Each call counts, also those on the same eventfd; other wakes tell nothing.
pub fn every_wait_tells_once() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let bell = Bell::new();
    for value in [1, 1, 2, 3] {
        notify(&fixture.node, fixture.vm, &[entry(handle, 0, value)], 0, &bell).unwrap();
    }
    let mut told = 0;
    for (value, expected) in [(0, 0), (1, 2), (1, 2), (2, 3), (3, 4), (4, 4)] {
        memory.word(0).store(value, Release);
        wake(&fixture.node, handle, 0);
        eventually(|| {
            told += bell.told();
            told == expected
        });
        assert_eq!(counter("waits"), 4 - expected);
    }
    assert_eq!(bell.told(), 0);
}

/// Signals that come while a wait is armed are not lost, and waits of several threads do not disturb each other.
pub fn signals_race_with_arming() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (fixture, cell) = (&fixture, memory.word(thread));
            let offset = thread as u64 * 8;
            let bell = Bell::new();
            scope.spawn(move || {
                for value in 1..=100 {
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            cell.store(value, Release);
                            wake(&fixture.node, handle, offset);
                        });
                        let cells = [entry(handle, offset, value)];
                        notify(&fixture.node, fixture.vm, &cells, 0, &bell).unwrap();
                        assert_eq!(bell.wait(), 1);
                    });
                    assert_eq!(cell.load(Acquire), value);
                }
                assert_eq!(bell.told(), 0);
            });
        }
    });
    assert_eq!(armed(), (0, 0));
}

/// "The end of its VM ends the wait", and SEM_WAIT says why. "EIO: the VM is lost and the wait is not met."
pub fn the_end_of_a_vm_tells() {
    let [destroyed, lost] = [Fixture::new(), Fixture::new()];
    let (handle, memory) = destroyed.memory(0, 1);
    let mut queue = lost.queue(0);
    let [first, second] = [Bell::new(), Bell::new()];
    notify(&destroyed.node, destroyed.vm, &[entry(handle, 0, 1)], 0, &first).unwrap();
    notify(&lost.node, lost.vm, &[queue.entry(0, 1)], 0, &second).unwrap();
    destroyed.node.call(&mut VmDestroy { vm_id: destroyed.vm, pad: 0 }).unwrap();
    assert_eq!((first.wait(), second.told()), (1, 0));
    let mut packet = Packet::default();
    packet.header.opcode = 0xff;
    queue.push(packet);
    assert_eq!(second.wait(), 1);
    assert_eq!(lost.wait(&[queue.entry(0, 1)], 0, 0), Err(libc::EIO));
    let again = |value| notify(&lost.node, lost.vm, &[queue.entry(0, value)], 0, &second);
    assert_eq!((again(1), second.told()), (Err(libc::EIO), 0));
    // A condition that is met counts.
    assert_eq!((again(0), second.told()), (Ok(()), 1));
    drop(memory);
    assert_eq!(armed(), (0, 0));
}

/// "The end of the file, too, which is when its last descriptor and mapping go."
pub fn the_end_of_a_file_tells() {
    nobody_is_left();
    let bell = Bell::new();
    let fixture = Fixture::new();
    let handle = fixture.node.bo(1, 0).unwrap();
    for vm in [0, fixture.vm] {
        notify(&fixture.node, vm, &[entry(handle, 0, 1)], 0, &bell).unwrap();
    }
    // SAFETY: takes a number; the new one is ours.
    let other = unsafe { OwnedFd::from_raw_fd(libc::dup(fixture.node.fd())) };
    drop(fixture);
    assert_eq!((bell.told(), armed()), (0, (2, 2)));
    drop(other);
    let mut told = 0;
    eventually(|| {
        told += bell.told();
        told == 2
    });
    assert_eq!(armed(), (0, 0));
    nobody_is_left();
}

/// A process that waits for the eventfd is killed, and so is one that would have signalled.
pub fn readers_and_producers_are_killed() {
    nobody_is_left();
    let [ready, bell] = [Bell::new(), Bell::new()];
    let producer = process(|| {
        let fixture = Fixture::new();
        let (handle, _memory) = fixture.memory(0, 1);
        notify(&fixture.node, fixture.vm, &[entry(handle, 0, 1)], 0, &bell).unwrap();
        notify(&fixture.node, 0, &[entry(handle, 0, 0)], 0, &ready).unwrap();
        polled(&bell.0, -1) == POLLIN
    });
    let reader = process(|| polled(&bell.0, -1) == POLLIN);
    assert_eq!(ready.wait(), 1);
    reader.kill();
    assert_eq!((bell.told(), counter("waits")), (0, 1));
    producer.kill();
    assert_eq!(bell.wait(), 1);
    nobody_is_left();
}

/// A reset tells the targets of waits that name a VM. Others go on, also with the device as it is afterwards.
pub fn a_reset_tells() -> Outcome {
    if !is_pci() {
        return Outcome::Skipped("only PCI resets devices");
    }
    let fixture = Fixture::new();
    let queue = fixture.queue(0);
    let bells = [0, fixture.vm].map(|vm| {
        let bell = Bell::new();
        notify(&fixture.node, vm, &[queue.entry(0, 1)], 0, &bell).unwrap();
        bell
    });
    fs::write(device_file("reset"), "1").expect("a reset");
    assert_eq!((bells[1].wait(), bells[0].told()), (1, 0));
    let other = Fixture::new();
    let fd = fixture.node.export(queue.handle).unwrap();
    let imported = other.node.import(fd.as_raw_fd()).unwrap();
    other.bind(other.map(imported, 0, 50, 3, RW)).unwrap();
    let mut signaller = other.queue(0);
    signaller.push(signal_at(other.va(52), 1));
    assert_eq!((bells[0].wait(), bells[1].told()), (1, 0));
    Outcome::Passed
}

/// "The end of the device" tells, and closing the file afterwards does not tell again.
pub fn the_end_of_the_device_tells() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let cells = [entry(handle, 0, 1)];
    let bells = [0, fixture.vm].map(|vm| {
        let bell = Bell::new();
        notify(&fixture.node, vm, &cells, 0, &bell).unwrap();
        bell
    });
    let gone = Gone::now();
    assert_eq!(bells.each_ref().map(Bell::wait), [1, 1]);
    assert_eq!(wait(&fixture.node, 0, &cells, 0, FOREVER), Err(libc::ENODEV));
    assert_eq!(notify(&fixture.node, 0, &cells, 0, &bells[0]), Err(libc::ENODEV));
    drop(memory);
    drop(fixture);
    drop(gone);
    crate::queues::a_signal_arrives();
    assert_eq!(bells.each_ref().map(Bell::told), [0, 0]);
}

/// Every error of SEM_NOTIFY, after which nothing is armed.
pub fn notifies_are_checked() {
    nobody_is_left();
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    let bell = Bell::new();
    let cells = [entry(handle, 0, 1)];
    let good = request(fixture.vm, &cells, bell.0.as_raw_fd());
    let call = |arg: SemNotify| fixture.node.call(&mut { arg });
    let node = fixture.node.fd() as u32;
    for (arg, error) in [
        (SemNotify { count: 0, ..good }, libc::EINVAL),
        (SemNotify { count: 65, ..good }, libc::EINVAL),
        (SemNotify { flags: sem_wait_flag::FILE, ..good }, libc::EINVAL),
        (SemNotify { flags: 1 << 2, ..good }, libc::EINVAL),
        (SemNotify { kind: 2, ..good }, libc::EINVAL),
        (SemNotify { pad: 1, ..good }, libc::EINVAL),
        (SemNotify { point: 1, ..good }, libc::EINVAL),
        (SemNotify { target: node, ..good }, libc::EINVAL),
        (SemNotify { target: 9999, ..good }, libc::EBADF),
        (SemNotify { target: u32::MAX, ..good }, libc::EBADF),
        (SemNotify { vm_id: 9999, ..good }, libc::ENOENT),
        (SemNotify { entries: 8, ..good }, libc::EFAULT),
    ] {
        assert_eq!(call(arg), Err(error), "{arg:?}");
    }
    for (entry, error) in [
        (SemWaitEntry { handle: 9999, ..cells[0] }, libc::ENOENT),
        (SemWaitEntry { compare: 6, ..cells[0] }, libc::EINVAL),
        (SemWaitEntry { offset: 4, ..cells[0] }, libc::EINVAL),
        (SemWaitEntry { offset: 4096, ..cells[0] }, libc::EINVAL),
    ] {
        assert_eq!(notify(&fixture.node, 0, &[entry], 0, &bell), Err(error), "{entry:?}");
    }
    assert_eq!((bell.told(), armed()), (0, (0, 0)));
}

/// "ENOSPC: more than 1,024 waits without a thread of a user", whatever file and target they have.
pub fn armed_waits_are_limited() {
    let [first, second] = [Fixture::new(), Fixture::new()];
    let bell = Bell::new();
    let places = [&first, &second].map(|fixture| (fixture, fixture.memory(0, 1)));
    let arm = |index: usize| {
        let (fixture, (handle, _)) = &places[index % 2];
        notify(&fixture.node, fixture.vm, &[entry(*handle, 0, 1)], 0, &bell)
    };
    for index in 0..1024 {
        arm(index).unwrap();
    }
    assert_eq!((arm(0), arm(1)), (Err(libc::ENOSPC), Err(libc::ENOSPC)));
    let file = first.wait(&[entry(places[0].1.0, 0, 1)], sem_wait_flag::FILE, 0);
    assert_eq!(file, Err(libc::ENOSPC));
    assert_eq!((counter("waits"), bell.told()), (1024, 0));
    // All those of one file at once.
    let (fixture, (handle, memory)) = &places[0];
    memory.word(0).store(1, Release);
    wake(&fixture.node, *handle, 0);
    let mut told = 0;
    eventually(|| {
        told += bell.told();
        told == 512
    });
    assert_eq!(counter("waits"), 512);
    arm(1).unwrap();
    drop(places);
    drop([first, second]);
    eventually(|| {
        told += bell.told();
        told == 1025
    });
    assert_eq!(armed(), (0, 0));
}

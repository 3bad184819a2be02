// SPDX-License-Identifier: GPL-2.0
//! SEM_WAIT with FILE: files that event loops watch.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Instant;

use libc::{POLLERR, POLLHUP, POLLIN};
use tally_uapi::ioctl::{SemWaitEntry, SemWake, VmDestroy, sem_wait_flag};

use crate::Outcome;
use crate::device::{Fixture, Node, counter, entry, eventually, nobody_is_left, wait};
use crate::half::{Gone, device_file, is_pci};
use crate::processes::process;

/// Time limit in ms, which only ends tests that hang.
pub const LIMIT: i32 = 120_000;

fn owned(descriptor: u32) -> OwnedFd {
    // SAFETY: the ioctl has made it for us.
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}

fn file(node: &Node, vm: u32, entries: &[SemWaitEntry], flags: u32) -> Result<OwnedFd, i32> {
    wait(node, vm, entries, flags | sem_wait_flag::FILE, 0).map(owned)
}

/// The result of poll within `ms` ms. At the end of its time poll looks once more without having been woken,
/// so running into a positive limit is a failure.
pub fn polled(file: &OwnedFd, ms: i32) -> i16 {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: POLLIN, revents: 0 };
    let start = Instant::now();
    // SAFETY: one entry.
    assert!(unsafe { libc::poll(&mut poll, 1, ms) } >= 0);
    assert!(ms <= 0 || start.elapsed().as_millis() < ms as u128, "nothing woke the poller");
    poll.revents
}

fn wake(node: &Node, handle: u32, offset: u64) {
    node.call(&mut SemWake { handle, pad: 0, offset }).unwrap();
}

/// "poll, select and epoll report the file as readable (POLLIN) once the wait is met, and from then on."
pub fn a_signal_makes_a_file_readable() {
    nobody_is_left();
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    for value in 1..=10 {
        let file = file(&fixture.node, fixture.vm, &[queue.entry(0, value)], 0).unwrap();
        assert_eq!(polled(&file, 0), 0);
        assert_eq!(counter("asleep"), 1);
        thread::scope(|scope| {
            let poller = scope.spawn(|| polled(&file, LIMIT));
            queue.push(queue.signal(0, value));
            assert_eq!(poller.join().unwrap(), POLLIN);
        });
        // The file is in no list of sleepers any more.
        assert_eq!(counter("asleep"), 0);
        queue.word(0).store(value - 1, Release);
        assert_eq!(polled(&file, 0), POLLIN);
        queue.word(0).store(value, Release);
    }
}

/// "from then on": for all pollers, including one that slept before another one saw it.
pub fn all_pollers_learn_of_it() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let file = file(&fixture.node, fixture.vm, &[entry(handle, 0, 1)], 0).unwrap();
    let number = AtomicI32::new(0);
    thread::scope(|scope| {
        let poller = scope.spawn(|| {
            // SAFETY: takes nothing.
            number.store(unsafe { libc::gettid() }, Release);
            polled(&file, LIMIT)
        });
        eventually(|| number.load(Acquire) != 0 && sleeps_in(&number, libc::SYS_poll));
        // No SEM_WAKE so far. Once the wait is met, a signal does not look for the file any more.
        memory.word(0).store(1, Release);
        assert_eq!(polled(&file, 0), POLLIN);
        assert_eq!(counter("asleep"), 0);
        assert_eq!(poller.join().unwrap(), POLLIN);
    });
}

/// Whether a thread of this process sleeps in that system call.
fn sleeps_in(number: &AtomicI32, call: i64) -> bool {
    let path = format!("/proc/self/task/{}/syscall", number.load(Acquire));
    let text = fs::read_to_string(path).expect("the thread's system call");
    text.split(' ').next() == Some(&call.to_string())
}

/// The same by epoll, level and edge; "all entries (or, with ANY, one)"; the host signals.
pub fn event_loops_watch_files() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let entries = [entry(handle, 0, 1), entry(handle, 8, 1)];
    // SAFETY: takes flags.
    let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as u32);
    let files = [sem_wait_flag::ANY, 0]
        .map(|flags| file(&fixture.node, fixture.vm, &entries, flags).unwrap());
    for (index, (file, edge)) in files.iter().zip([0, libc::EPOLLET as u32]).enumerate() {
        let events = libc::EPOLLIN as u32 | edge;
        let mut event = libc::epoll_event { events, u64: index as u64 };
        // SAFETY: live descriptors and an event.
        let added = unsafe {
            let (epoll, file) = (epoll.as_raw_fd(), file.as_raw_fd());
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, file, &mut event)
        };
        assert_eq!(added, 0);
    }
    let reported = |ms| {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        // SAFETY: room for four.
        let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), 4, ms) };
        events[..count as usize].iter().map(|event| event.u64).collect::<Vec<_>>()
    };
    assert!(reported(0).is_empty());
    wake(&fixture.node, handle, 0);
    assert!(reported(0).is_empty());
    thread::scope(|scope| {
        let any = scope.spawn(|| reported(LIMIT));
        memory.word(1).store(1, Release);
        wake(&fixture.node, handle, 8);
        assert_eq!(any.join().unwrap(), [0]);
    });
    memory.word(0).store(1, Release);
    wake(&fixture.node, handle, 0);
    let mut both = reported(LIMIT);
    both.sort_unstable();
    assert_eq!(both, [0, 1]);
    assert_eq!(reported(0), [0]);
    drop(files);
    assert_eq!(counter("asleep"), 0);
}

/// "It keeps the memory of its buffers until it is closed, also after the render node was closed."
pub fn a_file_outlives_its_node() {
    nobody_is_left();
    let (files, fd);
    let other = Fixture::new();
    {
        let fixture = Fixture::new();
        // Without a mapping, which would keep the node.
        let handle = fixture.node.bo(1, 0).unwrap();
        fd = fixture.node.export(handle).unwrap();
        let entries = [entry(handle, 0, 1)];
        files = [0, fixture.vm].map(|vm| file(&fixture.node, vm, &entries, 0).unwrap());
    }
    assert_eq!(files.each_ref().map(|file| polled(file, 0)), [0, POLLERR]);
    let imported = other.node.import(fd.as_raw_fd()).unwrap();
    let memory = other.node.map(imported, libc::PROT_READ | libc::PROT_WRITE).unwrap();
    memory.word(0).store(1, Release);
    wake(&other.node, imported, 0);
    // A condition that is met counts, even for a wait that failed before.
    assert_eq!(files.each_ref().map(|file| polled(file, LIMIT)), [POLLIN; 2]);
    drop((files, memory, fd));
    drop(other);
    nobody_is_left();
}

/// "POLLERR when the VM `vm_id` is lost or destroyed before that"
pub fn a_destroyed_vm_fails_files() {
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    let file = file(&fixture.node, fixture.vm, &[entry(handle, 0, 1)], 0).unwrap();
    thread::scope(|scope| {
        let poller = scope.spawn(|| polled(&file, LIMIT));
        fixture.node.call(&mut VmDestroy { vm_id: fixture.vm, pad: 0 }).unwrap();
        assert_eq!(poller.join().unwrap(), POLLERR);
    });
}

/// A process that polls is killed, and so is a process that would have signalled: the poller notices.
pub fn pollers_and_producers_are_killed() {
    nobody_is_left();
    let mut pipe = [0; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let [read, write] = pipe.map(|fd| owned(fd as u32));
    let producer = process(|| {
        let fixture = Fixture::new();
        let (handle, _memory) = fixture.memory(0, 1);
        let file = file(&fixture.node, fixture.vm, &[entry(handle, 0, 1)], 0).unwrap();
        let number = file.as_raw_fd();
        // SAFETY: four bytes of a number.
        unsafe { libc::write(write.as_raw_fd(), (&raw const number).cast(), 4) };
        polled(&file, -1) == POLLIN
    });
    let mut number = 0i32;
    // SAFETY: four bytes of a number; an own child, which has that descriptor.
    let file = unsafe {
        assert_eq!(libc::read(read.as_raw_fd(), (&raw mut number).cast(), 4), 4);
        let pid = owned(libc::syscall(libc::SYS_pidfd_open, producer.pid(), 0) as u32);
        owned(libc::syscall(libc::SYS_pidfd_getfd, pid.as_raw_fd(), number, 0) as u32)
    };
    let poller = process(|| polled(&file, -1) == POLLIN);
    assert_eq!(polled(&file, 0), 0);
    poller.kill();
    assert_eq!(polled(&file, 0), 0);
    producer.kill();
    assert_eq!(polled(&file, LIMIT), POLLERR);
    drop(file);
    nobody_is_left();
}

/// A reset fails the files that name a VM. Other files keep working, also with the device after the reset.
pub fn a_reset_fails_files() -> Outcome {
    if !is_pci() {
        return Outcome::Skipped("only PCI resets devices");
    }
    let fixture = Fixture::new();
    let queue = fixture.queue(0);
    let files = [0, fixture.vm].map(|vm| file(&fixture.node, vm, &[queue.entry(0, 1)], 0).unwrap());
    thread::scope(|scope| {
        let poller = scope.spawn(|| polled(&files[1], LIMIT));
        fs::write(device_file("reset"), "1").expect("a reset");
        assert_eq!(poller.join().unwrap(), POLLERR);
    });
    assert_eq!(polled(&files[0], 0), 0);
    let other = Fixture::new();
    let fd = fixture.node.export(queue.handle).unwrap();
    let imported = other.node.import(fd.as_raw_fd()).unwrap();
    other.bind(other.map(imported, 0, 50, 3, crate::device::RW)).unwrap();
    let mut signaller = other.queue(0);
    signaller.push(crate::device::signal_at(other.va(52), 1));
    assert_eq!(polled(&files[0], LIMIT), POLLIN);
    Outcome::Passed
}

/// "POLLERR with POLLHUP when the device is gone", and closing the file is safe then.
pub fn an_unbound_driver_hangs_files_up() {
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    let files =
        [0, fixture.vm].map(|vm| file(&fixture.node, vm, &[entry(handle, 0, 1)], 0).unwrap());
    let gone = thread::scope(|scope| {
        let poller = scope.spawn(|| polled(&files[0], LIMIT));
        let gone = Gone::now();
        assert_eq!(poller.join().unwrap(), POLLERR | POLLHUP);
        gone
    });
    assert_ne!(polled(&files[1], 0) & POLLERR, 0);
    drop(fixture);
    drop(files);
    drop(gone);
    crate::queues::a_signal_arrives();
}

/// "EINVAL: … FILE with a time." "ENOSPC: more than 1,024 waits without a thread of a user"
pub fn files_of_waits_are_limited() {
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    let cell = [entry(handle, 0, 1)];
    for (flags, time) in [(sem_wait_flag::FILE, 1), (sem_wait_flag::FILE, i64::MAX), (1 << 2, 0)] {
        assert_eq!(fixture.wait(&cell, flags, time), Err(libc::EINVAL));
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let more = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
    // SAFETY: structs of ours.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        assert_eq!(
            libc::setrlimit(
                libc::RLIMIT_NOFILE,
                &libc::rlimit { rlim_max: limit.rlim_max.max(4096), ..more }
            ),
            0
        );
    }
    let other = Node::open();
    let foreign = other.bo(1, 0).unwrap();
    let nodes = [(&fixture.node, handle), (&other, foreign)];
    let ask = |index: usize| {
        let (node, handle) = nodes[index % 2];
        file(node, 0, &[entry(handle, 0, 1)], 0)
    };
    let mut files: Vec<_> = (0..1024).map(|index| ask(index).unwrap()).collect();
    assert_eq!(ask(0).err(), Some(libc::ENOSPC));
    assert_eq!(counter("waits"), 1024);
    files.truncate(1023);
    // The kernel closes files when the process returns from the call.
    eventually(|| ask(1).is_ok());
    drop(files);
    assert_eq!((counter("asleep"), counter("waits")), (0, 0));
    // SAFETY: a struct of ours.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
}

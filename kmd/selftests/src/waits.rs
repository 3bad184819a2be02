// SPDX-License-Identifier: GPL-2.0
//! SEM_WAIT and SEM_WAKE.

use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use tally_uapi::cell::CellKind;
use tally_uapi::fault::FaultKind;
use tally_uapi::ioctl::{SemWake, VmDestroy, VmOrphan, queue_state, sem_wait_flag};

use crate::device::{
    FOREVER, Fixture, PAGE, RW, counter, debug_lines, entry, eventually, in_ms, now_ns, signal_at,
    wait_for, without_interrupts,
};

/// "`timeout_ns`: a time in the past only polls"
pub fn met_at_once() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    memory.word(3).store(9, Relaxed);
    for value in [0, 8, 9] {
        assert_eq!(fixture.wait(&[entry(handle, 24, value)], 0, 0), Ok(0));
    }
    assert_eq!(fixture.wait(&[entry(handle, 24, 10)], 0, 0), Err(libc::ETIME));
}

/// "ETIME: the time passed."
pub fn late_and_past() {
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    for deadline in [i64::MIN, -1, 0, now_ns()] {
        assert_eq!(fixture.wait(&[entry(handle, 0, 1)], 0, deadline), Err(libc::ETIME));
    }
    let deadline = in_ms(30);
    assert_eq!(fixture.wait(&[entry(handle, 0, 1)], 0, deadline), Err(libc::ETIME));
    assert!(now_ns() >= deadline);
}

/// "Sleeps until all entries (or, with ANY, one) are met"; "`index` of the first entry
/// that is met"; "entries of an ALL wait may be met at different moments"
pub fn any_and_all() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 2);
    let entries = [entry(handle, 0, 1), entry(handle, 8, 1), entry(handle, PAGE, 1)];
    let wake = |word: usize| {
        memory.word(word).store(1, Release);
        let offset = word as u64 * 8;
        fixture.node.call(&mut SemWake { handle, pad: 0, offset }).unwrap();
    };
    let number = AtomicI32::new(0);
    thread::scope(|scope| {
        let any = scope.spawn(|| fixture.wait(&entries, sem_wait_flag::ANY, FOREVER));
        let all = scope.spawn(|| {
            // SAFETY: takes nothing.
            number.store(unsafe { libc::gettid() }, Release);
            fixture.wait(&entries, 0, FOREVER)
        });
        eventually(|| counter("asleep") == 6 - 2);
        // The other thread is woken each time, looks and sleeps again.
        let mut slept = until_asleep_after(&number, 0);
        wake(1);
        assert_eq!(any.join().unwrap(), Ok(1));
        assert_eq!(counter("asleep"), 2);
        slept = until_asleep_after(&number, slept);
        wake(0);
        until_asleep_after(&number, slept);
        // An entry that was met once counts as met, even if the cell changes back.
        memory.word(0).store(0, Release);
        wake(PAGE as usize / 8);
        assert_eq!(all.join().unwrap(), Ok(0));
    });
    assert_eq!(counter("asleep"), 0);
}

/// Waits until a thread of this process has gone to sleep more than `times` times, and is asleep. Returns the
/// number of times.
fn until_asleep_after(number: &AtomicI32, times: u64) -> u64 {
    let mut slept = 0;
    eventually(|| {
        let path = format!("/proc/self/task/{}/status", number.load(Acquire));
        let text = std::fs::read_to_string(path).unwrap();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        slept = value("voluntary_ctxt_switches:").trim().parse().unwrap();
        slept > times && value("State:").trim().starts_with('S')
    });
    slept
}

extern "C" fn nothing(_: i32) {}

/// "EINTR: a signal came; call again with the same struct."
pub fn a_signal_handler_interrupts() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    // SAFETY: a handler that does nothing, restarting where the kernel would.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            // SAFETY: the calling thread.
            sender.send(unsafe { libc::pthread_self() }).unwrap();
            let first = fixture.wait(&[entry(handle, 0, 1)], 0, FOREVER);
            (first, fixture.wait(&[entry(handle, 0, 1)], 0, FOREVER))
        });
        let thread = receiver.recv().unwrap();
        eventually(|| counter("asleep") == 1);
        let sleeps = counter("sleeps");
        // SAFETY: the thread is not joined yet.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        eventually(|| counter("sleeps") == sleeps + 1 && counter("asleep") == 1);
        memory.word(0).store(1, Release);
        fixture.node.call(&mut SemWake { handle, pad: 0, offset: 0 }).unwrap();
        assert_eq!(waiter.join().unwrap(), (Err(libc::EINTR), Ok(0)));
    });
}

/// SPEC.md: "A host thread that sleeps on a cell counts itself in the waiters page"
pub fn the_device_wakes_a_sleeper() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    for value in 1..=10 {
        let wanted = queue.entry(0, value);
        let fixture = &fixture;
        thread::scope(|scope| {
            let waiter = scope.spawn(move || fixture.wait(&[wanted], 0, FOREVER));
            eventually(|| counter("asleep") == 1);
            queue.push(queue.signal(0, value));
            assert_eq!(waiter.join().unwrap(), Ok(0));
        });
    }
}

/// SEM_WAKE: "queues parked there and hosts asleep there look again. With handle 0 and
/// offset 0, all foreign cells are read again."
pub fn a_host_wakes_a_sleeper() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    for (value, kind) in [(1, CellKind::Event), (2, CellKind::Foreign)] {
        queue.push(wait_for(queue.cell(1), value, kind));
        queue.push(queue.signal(0, value));
        eventually(|| queue.query().state == queue_state::PARKED);
        queue.word(1).store(value, Release);
        let wake = match kind {
            CellKind::Foreign => SemWake::default(),
            _ => SemWake { handle: queue.handle, pad: 0, offset: 2 * PAGE + 8 },
        };
        fixture.node.call(&mut wake.clone()).unwrap();
        assert_eq!(fixture.wait(&[queue.entry(0, value)], 0, FOREVER), Ok(0));
    }
}

/// "interrupts per 1000 signals without a sleeper: 0"
pub fn no_sleeper_no_interrupt() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    without_interrupts(1, || {
        for value in 1..=1000 {
            queue.push(queue.signal(0, value));
            eventually(|| queue.word(0).load(Acquire) >= value);
        }
    });
}

/// VM_DESTROY: "SEM_WAITs that name the VM end with EIO."
pub fn a_destroyed_vm_ends_waits() {
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| fixture.wait(&[entry(handle, 0, 1)], 0, FOREVER));
        eventually(|| counter("asleep") == 1);
        assert_eq!(debug_lines("wait\t"), 1);
        fixture.node.call(&mut VmDestroy { vm_id: fixture.vm, pad: 0 }).unwrap();
        assert_eq!(waiter.join().unwrap(), Err(libc::EIO));
    });
}

/// SPEC.md: the driver "may omit the WAKE while the word counts only its own sleepers".
pub fn the_device_hears_only_of_what_it_waits_for() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    let (handle, offset) = (queue.handle, 2 * PAGE + 8);
    let wake = || fixture.node.call(&mut SemWake { handle, pad: 0, offset }).unwrap();
    let wakes = counter("wakes");
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| fixture.wait(&[queue.entry(1, 1)], 0, FOREVER));
        eventually(|| counter("asleep") == 1);
        (0..10).for_each(|_| wake());
        queue.word(1).store(1, Release);
        wake();
        assert_eq!(sleeper.join().unwrap(), Ok(0));
    });
    assert_eq!(counter("wakes"), wakes);
    // A queue is the only waiter there.
    queue.push(wait_for(queue.cell(1), 2, CellKind::Event));
    eventually(|| {
        wake();
        counter("wakes") != wakes
    });
}

/// SPEC.md: "The device also counts there, for the queues that wait in the bucket."
pub fn queues_of_two_vms_wait_for_each_other() {
    let (one, two) = (Fixture::new(), Fixture::new());
    let (cells, memory) = one.memory(50, 1);
    let fd = one.node.export(cells).unwrap();
    let imported = two.node.import(std::os::fd::AsRawFd::as_raw_fd(&fd)).unwrap();
    two.bind(two.map(imported, 0, 50, 1, RW)).unwrap();
    let (mut first, mut second) = (one.queue(0), two.queue(0));
    for round in 1..=20 {
        first.push(signal_at(one.va(50), round));
        first.push(wait_for(one.va(50) + 8, round, CellKind::Counter));
        second.push(wait_for(two.va(50), round, CellKind::Counter));
        second.push(signal_at(two.va(50) + 8, round));
        assert_eq!(two.wait(&[entry(imported, 8, round)], 0, FOREVER), Ok(0));
        assert_eq!(memory.word(1).load(Acquire), round);
    }
}

/// VM_ORPHAN: "waits that are met are taken as usual. A queue with an unmet wait there, now or later,
/// faults (kind 10), and its VM is lost." "The declaration holds for the addresses until they are unmapped."
pub fn a_queue_does_not_wait_for_the_dead() {
    for parked_before in [true, false] {
        let (dead, fixture) = (Fixture::new(), Fixture::new());
        let (cells, memory) = dead.memory(0, 1);
        let fd = dead.node.export(cells).unwrap();
        let imported = fixture.node.import(std::os::fd::AsRawFd::as_raw_fd(&fd)).unwrap();
        fixture.bind(fixture.map(imported, 0, 50, 1, RW)).unwrap();
        drop(dead);
        let orphan = || {
            let (address, size) = (fixture.va(50), PAGE);
            fixture.node.call(&mut VmOrphan { vm_id: fixture.vm, pad: 0, address, size })
        };
        let mut queue = fixture.queue(0);
        // Memory that is mapped there later is not orphaned.
        orphan().unwrap();
        fixture.bind(fixture.unmap(50, 1)).unwrap();
        fixture.bind(fixture.map(imported, 0, 50, 1, RW)).unwrap();
        queue.push(wait_for(fixture.va(50) + 8, 1, CellKind::Counter));
        queue.push(queue.signal(0, 1));
        eventually(|| queue.query().state == queue_state::PARKED);
        memory.word(1).store(1, Release);
        fixture.node.call(&mut SemWake { handle: imported, pad: 0, offset: 8 }).unwrap();
        assert_eq!(fixture.wait(&[queue.entry(0, 1)], 0, FOREVER), Ok(0));
        if parked_before {
            queue.push(wait_for(fixture.va(50) + 8, 2, CellKind::Counter));
            eventually(|| queue.query().state == queue_state::PARKED);
        }
        orphan().unwrap();
        if !parked_before {
            queue.push(wait_for(fixture.va(50) + 8, 1, CellKind::Counter));
            queue.push(queue.signal(0, 2));
            assert_eq!(fixture.wait(&[queue.entry(0, 2)], 0, FOREVER), Ok(0));
            queue.push(wait_for(fixture.va(50) + 8, 2, CellKind::Counter));
        }
        assert_eq!(fixture.wait(&[queue.entry(0, 3)], 0, FOREVER), Err(libc::EIO));
        let query = queue.query();
        assert_eq!(query.state, queue_state::STOPPED);
        assert_eq!(query.fault_kind, FaultKind::Orphaned as u32);
        assert_eq!(query.fault_address, fixture.va(50) + 8);
        assert_eq!(orphan(), Err(libc::EIO));
    }
}

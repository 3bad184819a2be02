// SPDX-License-Identifier: GPL-2.0
//! SEM_FOLLOW: cells that take a value once a fence of another driver has signalled.

use std::fs;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;

use libc::POLLIN;
use tally_uapi::cell::CellKind;
use tally_uapi::ioctl::{SemFollow, bo_flag, follow_flag, follow_kind, queue_state};

use crate::Outcome;
use crate::device::{
    FOREVER, Fixture, Node, PAGE, RW, counter, entry, eventually, nobody_is_left, wait, wait_for,
};
use crate::foreign::{Timeline, Vgem, sync_file_of};
use crate::half::{Gone, device_file, is_pci};
use crate::notifies::Bell;
use crate::polls::polled;
use crate::processes::process;
use crate::syncobjs::{FOR_SUBMIT, Syncobj};

const NO_SW_SYNC: Outcome = Outcome::Skipped("the kernel has no sw_sync");

fn of_file(handle: u32, offset: u64, value: u64, fence: RawFd) -> SemFollow {
    let kind = follow_kind::SYNC_FILE;
    SemFollow { handle, offset, value, kind, source: fence as u32, ..Default::default() }
}

fn of_point(handle: u32, offset: u64, value: u64, from: &Syncobj<'_>, point: u64) -> SemFollow {
    let kind = follow_kind::SYNCOBJ;
    SemFollow { handle, offset, value, kind, source: from.handle, point, ..Default::default() }
}

/// With STATUS, at `offset`.
fn with_status(arg: SemFollow, offset: u64) -> SemFollow {
    SemFollow { flags: follow_flag::STATUS, status_offset: offset, ..arg }
}

fn follow(node: &Node, arg: SemFollow) -> Result<(), i32> {
    node.call(&mut { arg })
}

/// "a cell takes a value once a fence has signalled", and then what waits for the cell is woken: a queue of the
/// device, and a thread.
pub fn a_fence_raises_a_cell() -> Outcome {
    nobody_is_left();
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    let cell = 2 * PAGE + 8;
    for value in 1..=10 {
        let fence = timeline.fence(value as u32);
        let arg = with_status(of_file(queue.handle, cell, value, fence.as_raw_fd()), cell + 8);
        queue.word(2).store(99, Release);
        follow(&fixture.node, arg).unwrap();
        // "It keeps the fence"
        drop(fence);
        queue.push(wait_for(queue.cell(1), value, CellKind::Event));
        queue.push(queue.signal(0, value));
        eventually(|| queue.query().state == queue_state::PARKED);
        assert_eq!((queue.word(1).load(Acquire), counter("waits")), (value - 1, 1));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| fixture.wait(&[queue.entry(1, value)], 0, FOREVER));
            timeline.advance(1);
            assert_eq!(waiter.join().unwrap(), Ok(0));
        });
        assert_eq!(fixture.wait(&[queue.entry(0, value)], 0, FOREVER), Ok(0));
        assert_eq!((queue.word(2).load(Acquire), counter("waits")), (0, 0));
    }
    Outcome::Passed
}

/// "If the fence has signalled already, the value is stored before the ioctl returns."
pub fn signalled_fences_store_at_once() -> Outcome {
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let fence = timeline.fence(1);
    timeline.advance(1);
    follow(&fixture.node, of_file(handle, 8, 5, fence.as_raw_fd())).unwrap();
    assert_eq!((memory.word(1).load(Acquire), counter("waits")), (5, 0));
    // The process need not have the cell mapped, and the buffer's pages need not be there yet.
    let fresh = fixture.node.bo(4, 0).unwrap();
    follow(&fixture.node, of_file(fresh, 3 * PAGE, 6, fence.as_raw_fd())).unwrap();
    let mapped = fixture.node.map(fresh, libc::PROT_READ).unwrap();
    assert_eq!(mapped.word(3 * PAGE as usize / 8).load(Acquire), 6);
    Outcome::Passed
}

/// "A cell that holds a larger value keeps it."
pub fn cells_do_not_go_back() -> Outcome {
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let [early, late] = [1, 2].map(|value| timeline.fence(value));
    // The later value's fence is the earlier one.
    follow(&fixture.node, of_file(handle, 0, 2, early.as_raw_fd())).unwrap();
    let arg = with_status(of_file(handle, 0, 1, late.as_raw_fd()), 8);
    memory.word(1).store(99, Release);
    follow(&fixture.node, arg).unwrap();
    timeline.advance(1);
    assert_eq!(fixture.wait(&[entry(handle, 0, 2)], 0, FOREVER), Ok(0));
    timeline.advance(1);
    eventually(|| memory.word(1).load(Acquire) == 0);
    eventually(|| counter("waits") == 0);
    assert_eq!(memory.word(0).load(Acquire), 2);
    Outcome::Passed
}

/// "EINVAL: the sync object has no fence there yet", and with a fence its end counts, of a binary sync object and of
/// a point.
pub fn points_of_sync_objects_are_followed() -> Outcome {
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let [binary, points] = [(); 2].map(|()| Syncobj::new(&fixture.node));
    let ask = |cell, from, point| follow(&fixture.node, of_point(handle, cell, 1, from, point));
    assert_eq!(ask(0, &binary, 0), Err(libc::EINVAL));
    assert_eq!(ask(0, &points, 7), Err(libc::EINVAL));
    binary.take(timeline.fence(1).as_raw_fd());
    binary.transfer(&points, 7);
    assert_eq!((ask(0, &binary, 0), ask(8, &points, 7)), (Ok(()), Ok(())));
    // A point before one with a fence has that fence.
    assert_eq!((ask(16, &points, 3), ask(24, &points, 8)), (Ok(()), Err(libc::EINVAL)));
    assert_eq!([0, 1, 2].map(|word| memory.word(word).load(Acquire)), [0; 3]);
    timeline.advance(1);
    let cells = [0, 8, 16].map(|offset| entry(handle, offset, 1));
    assert_eq!(fixture.wait(&cells, 0, FOREVER), Ok(0));
    Outcome::Passed
}

/// From a counter to a point that another file waits for, and back to another counter.
pub fn a_counter_goes_round() {
    nobody_is_left();
    let [here, there] = [Fixture::new(), Fixture::new()];
    let mut queue = here.queue(0);
    let (handle, _memory) = there.memory(0, 1);
    let syncobj = Syncobj::new(&here.node);
    let imported = Syncobj::import(&there.node, syncobj.export(0).unwrap().as_raw_fd());
    for value in 1..=10 {
        syncobj.feed(here.vm, &[queue.entry(0, value)], value).unwrap();
        let back = of_point(handle, 0, value, &imported, value);
        assert_eq!(follow(&there.node, back), Err(libc::EINVAL));
        queue.push(queue.signal(0, value));
        assert_eq!(imported.wait(value, FOR_SUBMIT, FOREVER), Ok(()));
        follow(&there.node, back).unwrap();
        assert_eq!(there.wait(&[entry(handle, 0, value)], 0, 0), Ok(0));
    }
}

/// A fence of vgem, which programs signal, in the reservation of a buffer.
pub fn another_driver_signals_a_counter() -> Outcome {
    let Some(vgem) = Vgem::open() else { return Outcome::Skipped("the kernel has no vgem") };
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let buffer = vgem.buffer(1);
    let dma_buf = vgem.0.export(buffer).unwrap();
    let fence = vgem.attach(buffer);
    let file = sync_file_of(dma_buf.as_raw_fd());
    let arg = with_status(of_file(handle, 0, 1, file.as_raw_fd()), 8);
    follow(&fixture.node, arg).unwrap();
    drop(file);
    // vgem signals by itself after ten seconds, and then says so.
    let early = memory.word(0).load(Acquire);
    if vgem.signal(fence) == Ok(()) {
        assert_eq!(early, 0);
    }
    assert_eq!(fixture.wait(&[entry(handle, 0, 1)], 0, FOREVER), Ok(0));
    assert_eq!(memory.word(1).load(Acquire), 0);
    Outcome::Passed
}

/// Fences that signal while their cells are armed are not lost, and several threads do not disturb each other.
pub fn fences_race_with_arming() -> Outcome {
    let Some(()) = Timeline::new().map(drop) else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    thread::scope(|scope| {
        for thread in 0..3 {
            let fixture = &fixture;
            scope.spawn(move || {
                let timeline = Timeline::new().expect("a timeline");
                for value in 1..=100 {
                    let fence = timeline.fence(value);
                    let cell = (handle, thread * 8, u64::from(value));
                    thread::scope(|scope| {
                        scope.spawn(|| timeline.advance(1));
                        let arg = of_file(cell.0, cell.1, cell.2, fence.as_raw_fd());
                        follow(&fixture.node, arg).unwrap();
                        let cells = [entry(cell.0, cell.1, cell.2)];
                        assert_eq!(fixture.wait(&cells, 0, FOREVER), Ok(0));
                    });
                }
            });
        }
    });
    eventually(|| counter("waits") == 0);
    Outcome::Passed
}

/// "0, or the negative error with which it ended": the producer is closed, or its process killed. The cell takes its
/// value all the same, so no one is left waiting for a process that has died.
pub fn producers_die() -> Outcome {
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let status = |word: usize| memory.word(word).load(Acquire) as i64;
    let ended = -i64::from(libc::ENOENT);
    let fence = timeline.fence(1);
    follow(&fixture.node, with_status(of_file(handle, 0, 1, fence.as_raw_fd()), 8)).unwrap();
    drop(timeline);
    assert_eq!(fixture.wait(&[entry(handle, 0, 1)], 0, FOREVER), Ok(0));
    assert_eq!(status(1), ended);
    // A fence that has ended before.
    follow(&fixture.node, with_status(of_file(handle, 0, 2, fence.as_raw_fd()), 16)).unwrap();
    assert_eq!((status(0), status(2)), (2, ended));
    // A process makes the fence, and passes it on by a sync object.
    let [binary, points] = [(); 2].map(|()| Syncobj::new(&fixture.node));
    let shared = binary.export(0).unwrap();
    let ready = Bell::new();
    let producer = process(|| {
        let timeline = Timeline::new().expect("a timeline");
        let node = Node::open();
        Syncobj::import(&node, shared.as_raw_fd()).take(timeline.fence(1).as_raw_fd());
        ready.ring();
        polled(&ready.0, 0) == POLLIN && polled(&Bell::new().0, -1) == POLLIN
    });
    eventually(|| polled(&ready.0, 0) == POLLIN);
    binary.transfer(&points, 5);
    let arms = [of_point(handle, 24, 1, &binary, 0), of_point(handle, 32, 1, &points, 5)];
    for (arg, at) in arms.into_iter().zip([40, 48]) {
        follow(&fixture.node, with_status(arg, at)).unwrap();
    }
    assert_eq!([3, 4].map(status), [0; 2]);
    producer.kill();
    let cells = [24, 32].map(|offset| entry(handle, offset, 1));
    assert_eq!(fixture.wait(&cells, 0, FOREVER), Ok(0));
    assert_eq!([5, 6].map(status), [ended; 2]);
    Outcome::Passed
}

/// "If the file ends before the fence, nothing is stored": neither the end of a client nor its closing waits for the
/// fence, and the fence may signal afterwards.
pub fn clients_are_killed_and_fences_stay() -> Outcome {
    nobody_is_left();
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let node = Node::open();
    let shared = node.bo(1, 0).unwrap();
    let memory = node.map(shared, libc::PROT_READ | libc::PROT_WRITE).unwrap();
    let dma_buf = node.export(shared).unwrap();
    let [never, later] = [2, 1].map(|value| timeline.fence(value));
    let ready = Bell::new();
    let client = process(|| {
        let fixture = Fixture::new();
        let handle = fixture.node.import(dma_buf.as_raw_fd()).unwrap();
        for (offset, fence) in [(0, &never), (8, &later)] {
            follow(&fixture.node, of_file(handle, offset, 1, fence.as_raw_fd())).unwrap();
        }
        ready.ring();
        fixture.wait(&[entry(handle, 0, 1)], 0, FOREVER).is_ok()
    });
    eventually(|| polled(&ready.0, 0) == POLLIN);
    assert_eq!(counter("waits"), 2);
    client.kill();
    nobody_is_left();
    eventually(|| counter("waits") == 0);
    // The same with a file that is closed.
    let fixture = Fixture::new();
    let handle = fixture.node.import(dma_buf.as_raw_fd()).unwrap();
    follow(&fixture.node, of_file(handle, 16, 1, later.as_raw_fd())).unwrap();
    drop(fixture);
    eventually(|| counter("waits") == 0);
    // Another client follows the same fence.
    follow(&node, of_file(shared, 24, 1, later.as_raw_fd())).unwrap();
    timeline.advance(1);
    assert_eq!(wait(&node, 0, &[entry(shared, 24, 1)], 0, FOREVER), Ok(0));
    assert_eq!([0, 1, 2].map(|word| memory.word(word).load(Acquire)), [0; 3]);
    Outcome::Passed
}

/// A reset between arming and the fence changes nothing for the cell, and the device as it is afterwards is woken.
pub fn a_reset_between() -> Outcome {
    if !is_pci() {
        return Outcome::Skipped("only PCI resets devices");
    }
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    let [first, second] = [1, 2].map(|value| timeline.fence(value));
    for (offset, fence) in [(0, &first), (8, &second)] {
        follow(&fixture.node, of_file(handle, offset, 1, fence.as_raw_fd())).unwrap();
    }
    thread::scope(|scope| {
        let reset = scope.spawn(|| fs::write(device_file("reset"), "1"));
        timeline.advance(1);
        reset.join().unwrap().expect("a reset");
    });
    assert_eq!(wait(&fixture.node, 0, &[entry(handle, 0, 1)], 0, FOREVER), Ok(0));
    let other = Fixture::new();
    let fd = fixture.node.export(handle).unwrap();
    let imported = other.node.import(fd.as_raw_fd()).unwrap();
    other.bind(other.map(imported, 0, 50, 1, RW)).unwrap();
    let mut queue = other.queue(0);
    queue.push(wait_for(other.va(50) + 8, 1, CellKind::Event));
    queue.push(queue.signal(0, 1));
    eventually(|| queue.query().state == queue_state::PARKED);
    timeline.advance(1);
    assert_eq!(other.wait(&[queue.entry(0, 1)], 0, FOREVER), Ok(0));
    Outcome::Passed
}

/// The end of the device between arming and the fence: the value is stored all the same, nothing new is armed, and
/// the driver comes back.
pub fn an_unbound_driver_stores_all_the_same() -> Outcome {
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let [first, never] = [1, 2].map(|value| timeline.fence(value));
    for (offset, fence) in [(0, &first), (8, &never)] {
        follow(&fixture.node, of_file(handle, offset, 1, fence.as_raw_fd())).unwrap();
    }
    let gone = Gone::now();
    timeline.advance(1);
    eventually(|| memory.word(0).load(Acquire) == 1);
    let again = follow(&fixture.node, of_file(handle, 16, 1, first.as_raw_fd()));
    assert_eq!((again, memory.word(1).load(Acquire)), (Err(libc::ENODEV), 0));
    drop(memory);
    drop(fixture);
    drop(gone);
    crate::queues::a_signal_arrives();
    timeline.advance(1);
    Outcome::Passed
}

/// Every error of SEM_FOLLOW, after which nothing is stored.
pub fn follows_are_checked() -> Outcome {
    nobody_is_left();
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let fence = timeline.fence(1);
    let good = of_file(handle, 0, 1, fence.as_raw_fd());
    let syncobj = Syncobj::new(&fixture.node);
    let point = of_point(handle, 0, 1, &syncobj, 0);
    for (arg, error) in [
        (SemFollow { flags: 2, ..good }, libc::EINVAL),
        (SemFollow { kind: 2, ..good }, libc::EINVAL),
        (SemFollow { point: 1, ..good }, libc::EINVAL),
        (SemFollow { status_offset: 8, ..good }, libc::EINVAL),
        (SemFollow { offset: 4, ..good }, libc::EINVAL),
        (SemFollow { offset: PAGE, ..good }, libc::EINVAL),
        (with_status(good, 0), libc::EINVAL),
        (with_status(good, 4), libc::EINVAL),
        (with_status(good, PAGE), libc::EINVAL),
        (SemFollow { handle: 9999, ..good }, libc::ENOENT),
        (SemFollow { source: fixture.node.fd() as u32, ..good }, libc::EINVAL),
        (SemFollow { source: 9999, ..good }, libc::EINVAL),
        (SemFollow { source: u32::MAX, ..good }, libc::EINVAL),
        (SemFollow { source: 9999, ..point }, libc::ENOENT),
        (point, libc::EINVAL),
    ] {
        assert_eq!(follow(&fixture.node, arg), Err(error), "{arg:?}");
    }
    let owner = Node::open();
    let only_read = owner.bo(1, bo_flag::IMPORT_READ_ONLY).unwrap();
    let fd = owner.export(only_read).unwrap();
    let imported = fixture.node.import(fd.as_raw_fd()).unwrap();
    let refused = follow(&fixture.node, SemFollow { handle: imported, ..good });
    assert_eq!(refused, Err(libc::EACCES));
    follow(&owner, SemFollow { handle: only_read, ..good }).unwrap();
    timeline.advance(1);
    assert_eq!(wait(&owner, 0, &[entry(only_read, 0, 1)], 0, FOREVER), Ok(0));
    assert_eq!((memory.word(0).load(Acquire), counter("waits")), (0, 0));
    Outcome::Passed
}

/// "ENOSPC: more than 1,024 waits without a thread", with those of SEM_NOTIFY.
pub fn armed_cells_are_limited() -> Outcome {
    nobody_is_left();
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 2);
    let fence = timeline.fence(1);
    let arm = |index: u64| follow(&fixture.node, of_file(handle, index * 8, 1, fence.as_raw_fd()));
    for index in 0..1024 {
        arm(index % 1000).unwrap();
    }
    let syncobj = Syncobj::new(&fixture.node);
    let fed = syncobj.feed(fixture.vm, &[entry(handle, 0, 1)], 1);
    assert_eq!((arm(1001), fed), (Err(libc::ENOSPC), Err(libc::ENOSPC)));
    timeline.advance(1);
    eventually(|| counter("waits") == 0);
    assert!((0..1000).all(|word| memory.word(word).load(Acquire) == 1));
    assert_eq!(memory.word(1001).load(Acquire), 0);
    assert_eq!(arm(1001), Ok(()));
    Outcome::Passed
}

// SPDX-License-Identifier: GPL-2.0
//! VM_BIND with fences: changes that wait for points of sync objects, and points that are told of them.

use std::fs;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;

use libc::POLLIN;
use tally_uapi::ioctl::{BindPoint, VmBind, VmDestroy, bind_flag, bind_op};

use crate::Outcome;
use crate::device::{
    FOREVER, Fixture, Mapped, Node, PAGE, RW, counter, eventually, nobody_is_left, signal_at,
};
use crate::foreign::{Timeline, udmabuf, udmabufs};
use crate::half::{Gone, device_file, is_pci};
use crate::notifies::Bell;
use crate::polls::polled;
use crate::processes::process;
use crate::syncobjs::{FOR_SUBMIT, Syncobj};

const NO_SW_SYNC: Outcome = Outcome::Skipped("the kernel has no sw_sync");

fn point(of: &Syncobj<'_>, point: u64) -> BindPoint {
    BindPoint { handle: of.handle, pad: 0, point }
}

/// `bind` with fences before and points behind it. The arrays need to live during the call only.
fn with(bind: VmBind, waits: &[BindPoint], signals: &[BindPoint]) -> VmBind {
    let address = |points: &[BindPoint]| match points {
        [] => 0,
        _ => points.as_ptr().addr() as u64,
    };
    VmBind {
        waits: address(waits),
        wait_count: waits.len() as u32,
        signals: address(signals),
        signal_count: signals.len() as u32,
        ..bind
    }
}

/// A word for the outcome of changes, which no change has.
struct Word {
    handle: u32,
    memory: Mapped,
}

impl Word {
    fn new(node: &Node) -> Self {
        let handle = node.bo(1, 0).unwrap();
        let memory = node.map(handle, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        let word = Self { handle, memory };
        word.clear();
        word
    }

    fn clear(&self) {
        self.memory.word(1).store(77, Release);
    }

    fn of(&self, bind: VmBind) -> VmBind {
        VmBind { status_handle: self.handle, status_offset: 8, ..bind }
    }

    fn outcome(&self) -> i64 {
        self.memory.word(1).load(Acquire) as i64
    }
}

/// A binary sync object with the fence of `timeline` at `value`.
fn gate<'a>(node: &'a Node, timeline: &Timeline, value: u32) -> Syncobj<'a> {
    let syncobj = Syncobj::new(node);
    syncobj.take(timeline.fence(value).as_raw_fd());
    syncobj
}

/// Whether the device can use a page. It loses the VM if not.
fn is_bound(fixture: &Fixture, page: u64) -> bool {
    let mut queue = fixture.queue(1000);
    queue.push(signal_at(fixture.va(page), 5));
    queue.push(queue.signal(0, 1));
    fixture.wait(&[queue.entry(0, 1)], 0, FOREVER).is_ok()
}

/// "the change is made once all of their fences have signalled", and then the points are told: for all that can be
/// bound, and for UNMAP.
pub fn a_bind_waits_and_tells() -> Outcome {
    nobody_is_left();
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let word = Word::new(&fixture.node);
    let handle = fixture.node.bo(1, 0).unwrap();
    let own = vec![0_u64; 2 * PAGE as usize / 8];
    let offset = (own.as_ptr().addr() as u64).next_multiple_of(PAGE);
    let map = |page| fixture.map(handle, 0, page, 1, RW);
    let null = VmBind { op: bind_op::MAP_NULL, handle: 0, ..map(1) };
    let user = VmBind { op: bind_op::MAP_USERPTR, handle: 0, offset, ..map(2) };
    let done = Syncobj::new(&fixture.node);
    for (step, bind) in [map(0), null, user, fixture.unmap(0, 3)].into_iter().enumerate() {
        let value = step as u32 * 2 + 1;
        let [first, second] = [value, value + 1].map(|it| gate(&fixture.node, &timeline, it));
        let (waits, after) = ([point(&first, 0), point(&second, 0)], step as u64 + 1);
        word.clear();
        let signals = [point(&done, after)];
        fixture.bind(word.of(with(bind, &waits, &signals))).unwrap();
        timeline.advance(1);
        assert_eq!((word.outcome(), counter("waits"), done.last()), (77, 1, after - 1));
        timeline.advance(1);
        assert_eq!(done.wait(after, FOR_SUBMIT, FOREVER), Ok(()));
        assert_eq!(word.outcome(), 0);
        eventually(|| counter("waits") == 0);
    }
    fixture.bind(with(map(0), &[], &[point(&done, 9)])).unwrap();
    assert_eq!(done.last(), 9);
    assert!(is_bound(&fixture, 0));
    drop(own);
    Outcome::Passed
}

/// "If all fences have signalled, or there are none, the change is made before the ioctl returns", with its errors,
/// after which no point is signalled.
pub fn binds_without_waits_answer_at_once() -> Outcome {
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let word = Word::new(&fixture.node);
    let [done, gate] = [Syncobj::new(&fixture.node), gate(&fixture.node, &timeline, 1)];
    timeline.advance(1);
    let handle = fixture.node.bo(1, 0).unwrap();
    let (waits, signals) = ([point(&gate, 0)], [point(&done, 1)]);
    let bind = word.of(with(fixture.map(handle, 0, 0, 1, RW), &waits, &signals));
    fixture.bind(bind).unwrap();
    assert_eq!((word.outcome(), done.last()), (0, 1));
    word.clear();
    let signals = [point(&done, 2)];
    let again = word.of(with(fixture.map(handle, 0, 0, 1, RW), &waits, &signals));
    assert_eq!((fixture.bind(again), word.outcome(), done.last()), (Err(libc::EEXIST), 77, 1));
    Outcome::Passed
}

/// "the word takes … the negative error", and the points are told all the same: what is in the way when the change
/// is made, a VM that is lost, destroyed, or whose device has gone.
pub fn failures_are_told() -> Outcome {
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    nobody_is_left();
    let fixture = Fixture::new();
    let word = Word::new(&fixture.node);
    let done = Syncobj::new(&fixture.node);
    let handle = fixture.node.bo(1, 0).unwrap();
    let ask = |fixture: &Fixture, value: u32, vm_id: u32| {
        word.clear();
        let gate = gate(&fixture.node, &timeline, value);
        let bind = VmBind { vm_id, ..fixture.map(handle, 0, 0, 1, RW) };
        let (waits, signals) = ([point(&gate, 0)], [point(&done, u64::from(value))]);
        fixture.bind(word.of(with(bind, &waits, &signals))).unwrap();
    };
    let told = |value: u32| {
        timeline.advance(1);
        assert_eq!(done.wait(u64::from(value), FOR_SUBMIT, FOREVER), Ok(()));
        word.outcome()
    };
    ask(&fixture, 1, fixture.vm);
    fixture.bind(fixture.map(handle, 0, 0, 1, RW)).unwrap();
    assert_eq!(told(1), -i64::from(libc::EEXIST));
    let other = Fixture::create_vm(&fixture.node, fixture.start).unwrap();
    ask(&fixture, 2, other);
    fixture.node.call(&mut VmDestroy { vm_id: other, pad: 0 }).unwrap();
    assert_eq!(told(2), -i64::from(libc::ENOENT));
    fixture.bind(fixture.unmap(0, 1)).unwrap();
    ask(&fixture, 3, fixture.vm);
    assert!(!is_bound(&fixture, 0));
    assert_eq!(told(3), -i64::from(libc::EIO));
    let second = Fixture::create_vm(&fixture.node, fixture.start).unwrap();
    ask(&fixture, 4, second);
    let bell = done.ring(4);
    let gone = Gone::now();
    timeline.advance(1);
    assert_eq!((bell.wait(), word.outcome()), (1, -i64::from(libc::ENODEV)));
    drop(gone);
    crate::queues::a_signal_arrives();
    Outcome::Passed
}

/// A fence that ends with an error has signalled: its producer's process is killed.
pub fn a_producer_dies() -> Outcome {
    let Some(()) = Timeline::new().map(drop) else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let word = Word::new(&fixture.node);
    let [gate, done] = [(); 2].map(|()| Syncobj::new(&fixture.node));
    let shared = gate.export(0).unwrap();
    let ready = Bell::new();
    let producer = process(|| {
        let timeline = Timeline::new().expect("a timeline");
        let node = Node::open();
        Syncobj::import(&node, shared.as_raw_fd()).take(timeline.fence(1).as_raw_fd());
        ready.ring();
        polled(&Bell::new().0, -1) == POLLIN
    });
    eventually(|| polled(&ready.0, 0) == POLLIN);
    let handle = fixture.node.bo(1, 0).unwrap();
    let (waits, signals) = ([point(&gate, 0)], [point(&done, 1)]);
    fixture.bind(word.of(with(fixture.map(handle, 0, 0, 1, RW), &waits, &signals))).unwrap();
    producer.kill();
    assert_eq!(done.wait(1, FOR_SUBMIT, FOREVER), Ok(()));
    assert_eq!(word.outcome(), 0);
    assert!(is_bound(&fixture, 0));
    Outcome::Passed
}

/// "The end of the file ends a change that still waits": its client is killed, or closes the file. The points are
/// told, the fence may signal later or never, and nothing is left.
pub fn clients_are_killed_while_binds_wait() -> Outcome {
    nobody_is_left();
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let node = Node::open();
    let done = Syncobj::new(&node);
    let word = Word::new(&node);
    let (file, words) = (done.export(0).unwrap(), node.export(word.handle).unwrap());
    let ready = Bell::new();
    let arm = |value: u64| {
        let fixture = Fixture::new();
        let theirs = Syncobj::import(&fixture.node, file.as_raw_fd());
        let gate = gate(&fixture.node, &timeline, 1);
        let handle = fixture.node.bo(1, 0).unwrap();
        let status_handle = fixture.node.import(words.as_raw_fd()).unwrap();
        let (waits, signals) = ([point(&gate, 0)], [point(&theirs, value)]);
        let bind = with(fixture.map(handle, 0, 0, 1, RW), &waits, &signals);
        fixture.bind(VmBind { status_handle, status_offset: 8, ..bind }).unwrap();
        fixture
    };
    let client = process(|| {
        let _fixture = arm(1);
        ready.ring();
        polled(&Bell::new().0, -1) == POLLIN
    });
    eventually(|| polled(&ready.0, 0) == POLLIN);
    assert_eq!((counter("waits"), done.last(), word.outcome()), (1, 0, 77));
    client.kill();
    assert_eq!(done.wait(1, FOR_SUBMIT, FOREVER), Ok(()));
    assert_eq!(word.outcome(), -i64::from(libc::ECANCELED));
    word.clear();
    drop(arm(2));
    assert_eq!(done.wait(2, FOR_SUBMIT, FOREVER), Ok(()));
    assert_eq!(word.outcome(), -i64::from(libc::ECANCELED));
    eventually(|| counter("waits") == 0);
    nobody_is_left();
    timeline.advance(1);
    Outcome::Passed
}

/// A reset between the call and the fence loses the VM: the change fails, and its points are told.
pub fn a_reset_ends_binds() -> Outcome {
    if !is_pci() {
        return Outcome::Skipped("only PCI resets devices");
    }
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let word = Word::new(&fixture.node);
    let [gate, done] = [gate(&fixture.node, &timeline, 1), Syncobj::new(&fixture.node)];
    let handle = fixture.node.bo(1, 0).unwrap();
    let (waits, signals) = ([point(&gate, 0)], [point(&done, 1)]);
    fixture.bind(word.of(with(fixture.map(handle, 0, 0, 1, RW), &waits, &signals))).unwrap();
    thread::scope(|scope| {
        let reset = scope.spawn(|| fs::write(device_file("reset"), "1"));
        reset.join().unwrap().expect("a reset");
        timeline.advance(1);
    });
    assert_eq!(done.wait(1, FOR_SUBMIT, FOREVER), Ok(()));
    assert_eq!(word.outcome(), -i64::from(libc::EIO));
    crate::queues::a_signal_arrives();
    Outcome::Passed
}

/// A buffer of another driver waits like any other to be bound. The end of the device comes before its fence here, and
/// leaves nothing of it to the device: neither of the mapping that is, nor of the one that was to be.
pub fn an_import_waits_and_the_device_ends() -> Outcome {
    let (Some(timeline), Some((fd, memory))) = (Timeline::new(), udmabuf(2)) else {
        return Outcome::Skipped("the kernel has no sw_sync, or no udmabuf");
    };
    let fixture = Fixture::new();
    let word = Word::new(&fixture.node);
    let gates = [1, 2].map(|value| gate(&fixture.node, &timeline, value));
    let done = Syncobj::new(&fixture.node);
    let handle = fixture.node.import(fd.as_raw_fd()).unwrap();
    let bind = |page, gate: usize, value| {
        let (waits, signals) = ([point(&gates[gate], 0)], [point(&done, value)]);
        let map = fixture.map(handle, 0, page, 2, RW);
        fixture.bind(word.of(with(map, &waits, &signals))).unwrap();
    };
    bind(0, 0, 1);
    bind(4, 1, 2);
    assert_eq!(word.outcome(), 77);
    timeline.advance(1);
    assert_eq!(done.wait(1, FOR_SUBMIT, FOREVER), Ok(()));
    assert_eq!(word.outcome(), 0);
    assert!(is_bound(&fixture, 0));
    let gone = Gone::now();
    timeline.advance(1);
    eventually(|| word.outcome() == -i64::from(libc::ENODEV));
    let _ = gates.map(|gate| gate.try_destroy());
    let _ = done.try_destroy();
    drop((word, fd, memory, fixture));
    eventually(|| udmabufs() == 0);
    drop(gone);
    Outcome::Passed
}

/// Every error that the fields for fences add, after which nothing is bound and no point is signalled.
pub fn points_of_binds_are_checked() -> Outcome {
    let Some(timeline) = Timeline::new() else { return NO_SW_SYNC };
    let fixture = Fixture::new();
    let handle = fixture.node.bo(1, 0).unwrap();
    let [gate, done, empty] = [
        gate(&fixture.node, &timeline, 1),
        Syncobj::new(&fixture.node),
        Syncobj::new(&fixture.node),
    ];
    let plain = fixture.map(handle, 0, 0, 1, bind_flag::READ);
    let (waits, signals) = ([point(&gate, 0)], [point(&done, 1)]);
    let good = with(plain, &waits, &signals);
    let unknown = [BindPoint { handle: 9999, ..waits[0] }];
    let padded = [BindPoint { pad: 1, ..waits[0] }];
    let fenceless = [point(&empty, 0)];
    let many = vec![waits[0]; 17];
    for (arg, error) in [
        (VmBind { waits: 8, ..good }, libc::EFAULT),
        (VmBind { signals: 8, ..good }, libc::EFAULT),
        (VmBind { wait_count: 0, ..good }, libc::EINVAL),
        (VmBind { signal_count: 0, ..good }, libc::EINVAL),
        (with(plain, &many, &signals), libc::EINVAL),
        (with(plain, &waits, &many), libc::EINVAL),
        (with(plain, &unknown, &signals), libc::ENOENT),
        (with(plain, &waits, &unknown), libc::ENOENT),
        (with(plain, &padded, &signals), libc::EINVAL),
        (with(plain, &waits, &padded), libc::EINVAL),
        (with(plain, &fenceless, &signals), libc::EINVAL),
        (VmBind { pad: 1, ..good }, libc::EINVAL),
        (VmBind { status_offset: 8, ..good }, libc::EINVAL),
        (VmBind { status_handle: handle, status_offset: 4, ..good }, libc::EINVAL),
        (VmBind { status_handle: handle, status_offset: PAGE, ..good }, libc::EINVAL),
        (VmBind { status_handle: 9999, ..good }, libc::ENOENT),
        (VmBind { handle: 9999, ..good }, libc::ENOENT),
        (VmBind { vm_id: 9999, ..good }, libc::ENOENT),
    ] {
        assert_eq!(fixture.bind(arg), Err(error), "{arg:?}");
    }
    timeline.advance(1);
    assert_eq!((counter("waits"), done.last()), (0, 0));
    fixture.bind(fixture.map(handle, 0, 0, 1, RW)).unwrap();
    Outcome::Passed
}

// SPDX-License-Identifier: GPL-2.0
//! Queues that run, park, fault and end.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use tally_uapi::cell::CellKind;
use tally_uapi::fault::FaultKind;
use tally_uapi::ioctl::{
    QueueCreate, QueueDestroy, QueueKick, VmCreate, VmDestroy, bind_flag, queue_state,
};
use tally_uapi::packet::{Copy, Header, Packet, PostSync, flag, opcode};

use crate::device::{
    FOREVER, Fixture, Node, PAGE, Queue, RW, counter, dispatch, eventually, in_ms, wait_for,
    without_interrupts,
};
use crate::half::is_pci;

/// The whole path: ring, kick, device, signal, interrupt, wake.
pub fn a_signal_arrives() {
    let fixture = Fixture::new();
    for class in [0, 1] {
        let mut queue = fixture.queue_on(u64::from(class) * 8, class);
        for value in 1..=20 {
            queue.push(queue.signal(0, value));
            assert_eq!(fixture.wait(&[queue.entry(0, value)], 0, FOREVER), Ok(0));
        }
        assert_eq!(queue.word(0).load(Acquire), 20);
        assert_eq!(queue.query().head, 20);
    }
}

/// COPY through bindings of the VM.
pub fn a_copy_copies() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue_on(0, 1);
    let (_, memory) = fixture.memory(16, 64);
    let words = 32 * PAGE as usize / 8;
    (0..words).for_each(|word| memory.word(word).store(word as u64 * 3, Relaxed));
    let flags = flag::ORDERED | flag::POST_SYNC;
    queue.push(Copy {
        header: Header { opcode: opcode::COPY, flags, ..Header::default() },
        dst: fixture.va(48),
        src: fixture.va(16),
        size: 32 * PAGE,
        zero: [0; 2],
        post: PostSync { address: queue.cell(0), value: 1 },
    });
    assert_eq!(fixture.wait(&[queue.entry(0, 1)], 0, FOREVER), Ok(0));
    assert!((0..words).all(|word| memory.word(words + word).load(Relaxed) == word as u64 * 3));
}

/// SPEC.md: "A fault stops the queue at the packet …, stops all queues of the VM and
/// reports the VM as lost. Other VMs are not touched."
pub fn a_fault_loses_the_vm_and_no_other() {
    let (bad, good) = (Fixture::new(), Fixture::new());
    let (mut faulty, mut other) = (bad.queue(0), good.queue(0));
    let lost = counter("vms_lost");
    let mut packet = Packet::default();
    packet.header.opcode = 0xff;
    faulty.push(packet);
    // "EIO: the VM is lost and the wait is not met."
    assert_eq!(bad.wait(&[faulty.entry(0, 1)], 0, FOREVER), Err(libc::EIO));
    assert_eq!(counter("vms_lost"), lost + 1);
    let query = faulty.query();
    assert_eq!(
        (query.state, query.fault_kind),
        (queue_state::STOPPED, FaultKind::BadOpcode as u32)
    );
    let kick = QueueKick { queue_id: faulty.id, pad: 0 };
    assert_eq!(bad.node.call(&mut kick.clone()), Err(libc::EIO));
    assert_eq!(bad.bind(bad.map(faulty.handle, 0, 50, 1, RW)), Err(libc::EIO));
    assert_eq!(bad.node.call(&mut bad.queue_create(0)), Err(libc::EIO));
    // "UNMAP still works"
    bad.bind(bad.unmap(0, 3)).unwrap();
    // The file can have another VM.
    let again = Fixture::create_vm(&bad.node, bad.start).unwrap();
    assert_ne!(again, bad.vm);
    other.push(other.signal(0, 1));
    assert_eq!(good.wait(&[other.entry(0, 1)], 0, FOREVER), Ok(0));
}

/// QUEUE_QUERY: "the cell and value it is parked on"
pub fn a_queue_says_what_it_waits_for() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    assert_eq!(queue.query().state, queue_state::IDLE);
    queue.push(wait_for(queue.cell(1), 7, CellKind::Event));
    queue.push(queue.signal(0, 1));
    eventually(|| queue.query().state == queue_state::PARKED);
    let query = queue.query();
    assert_eq!((query.parked_address, query.parked_value), (queue.cell(1), 7));
    assert_eq!(queue.word(0).load(Acquire), 0);
    queue.word(1).store(7, Relaxed);
    let offset = 2 * PAGE + 8;
    let handle = queue.handle;
    fixture.node.call(&mut tally_uapi::ioctl::SemWake { handle, pad: 0, offset }).unwrap();
    assert_eq!(fixture.wait(&[queue.entry(0, 1)], 0, FOREVER), Ok(0));
}

/// QUEUE_DESTROY: "Commands that it has not completed are never completed or signalled."
pub fn destroyed_queues_do_not_signal() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    queue.push(wait_for(queue.cell(1), 1, CellKind::Event));
    queue.push(queue.signal(0, 1));
    eventually(|| queue.query().state == queue_state::PARKED);
    let destroy = QueueDestroy { queue_id: queue.id, pad: 0 };
    fixture.node.call(&mut destroy.clone()).unwrap();
    assert_eq!(fixture.node.call(&mut destroy.clone()), Err(libc::ENOENT));
    queue.word(1).store(1, Relaxed);
    fixture.node.call(&mut tally_uapi::ioctl::SemWake::default()).unwrap();
    assert_eq!(fixture.wait(&[queue.entry(0, 1)], 0, in_ms(50)), Err(libc::ETIME));
}

/// x86-64: a jump to itself.
const ENDLESS: u64 = 0xfeeb;

/// Starts a kernel that never ends, followed by a signal of cell 0 with 1.
pub fn start_endless(fixture: &Fixture, queue: &mut Queue<'_>, page: u64) {
    let handle = fixture.node.bo(2, 0).unwrap();
    let code = fixture.node.map(handle, libc::PROT_READ | libc::PROT_WRITE).unwrap();
    code.word(0).store(ENDLESS, Relaxed);
    let execute = bind_flag::READ | bind_flag::EXECUTE;
    fixture.bind(fixture.map(handle, 0, page, 1, execute)).unwrap();
    fixture.bind(fixture.map(handle, 1, page + 1, 1, RW)).unwrap();
    queue.push(dispatch(fixture.va(page), fixture.va(page + 1)));
    queue.push(queue.signal(0, 1));
    eventually(|| queue.query().state == queue_state::RUNNING);
}

/// "a kernel that never ends (VM reset, others run on, waits answer EIO, no counter
/// written falsely)"
pub fn an_endless_kernel_is_ended() {
    let (stuck, fine) = (Fixture::new(), Fixture::new());
    let (mut endless, mut other) = (stuck.queue(0), fine.queue(0));
    start_endless(&stuck, &mut endless, 8);
    other.push(other.signal(0, 1));
    assert_eq!(fine.wait(&[other.entry(0, 1)], 0, FOREVER), Ok(0));
    assert_eq!(stuck.wait(&[endless.entry(0, 1)], 0, in_ms(100)), Err(libc::ETIME));
    let destroy = QueueDestroy { queue_id: endless.id, pad: 0 };
    stuck.node.call(&mut destroy.clone()).unwrap();
    // Aborting it may have lost the VM, but never completes it.
    let waited = stuck.wait(&[endless.entry(0, 1)], 0, in_ms(100));
    assert!(matches!(waited, Err(libc::EIO | libc::ETIME)), "{waited:?}");
    assert_eq!(endless.word(0).load(Acquire), 0);
    stuck.node.call(&mut VmDestroy { vm_id: stuck.vm, pad: 0 }).unwrap();
    other.push(other.signal(0, 2));
    assert_eq!(fine.wait(&[other.entry(0, 2)], 0, FOREVER), Ok(0));
    a_signal_arrives();
}

/// "ENOSPC: `max_vms` reached", "`max_queues` reached"
pub fn limits_are_reached() {
    let node = Node::open();
    let create = |index: u64| {
        let start = 0x20_0000_0000 + index * PAGE;
        let mut create = VmCreate { start, size: PAGE, ..Default::default() };
        node.call(&mut create).map(|()| create.vm_id)
    };
    let mut vms = Vec::new();
    let full = (0..1000).map(create).find_map(|vm| match vm {
        Ok(vm) => {
            vms.push(vm);
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(full, Some(libc::ENOSPC));
    node.call(&mut VmDestroy { vm_id: vms[0], pad: 0 }).unwrap();
    create(0).unwrap();
    drop(vms);

    let fixture = Fixture::new();
    fixture.memory(0, 3);
    let create = |_| {
        let mut create: QueueCreate = fixture.queue_create(0);
        fixture.node.call(&mut create)
    };
    let full = (0..10_000).map(create).find_map(Result::err);
    assert_eq!(full, Some(libc::ENOSPC));
}

/// "A busy queue does 0 ioctls per append and 0 interrupts per signal without a sleeper"
pub fn a_busy_queue_needs_no_kicks() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    // A parked queue is not asleep: packets that are appended need no kick.
    queue.push(wait_for(queue.cell(1), 1, CellKind::Event));
    eventually(|| queue.query().state == queue_state::PARKED);
    let wake = tally_uapi::ioctl::SemWake { handle: queue.handle, pad: 0, offset: 2 * PAGE + 8 };
    without_interrupts(1, || {
        let kicks = counter("kicks");
        for value in 1..=40 {
            queue.push(queue.signal(0, value));
        }
        assert_eq!(counter("kicks"), kicks);
        queue.word(1).store(1, Relaxed);
        fixture.node.call(&mut wake.clone()).unwrap();
        eventually(|| queue.word(0).load(Acquire) == 40);
    });
}

/// fdinfo: the keys by which nvtop and others recognise a driver, and the time of its engines, which does not
/// shrink when a queue ends.
pub fn tools_see_engine_time() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue_on(0, 1);
    let (_, _memory) = fixture.memory(16, 2048);
    let mut copy = |value| {
        queue.push(Copy {
            header: Header {
                opcode: opcode::COPY,
                flags: flag::ORDERED | flag::POST_SYNC,
                ..Header::default()
            },
            dst: fixture.va(16 + 1024),
            src: fixture.va(16),
            size: 1024 * PAGE,
            zero: [0; 2],
            post: PostSync { address: queue.cell(0), value },
        });
        assert_eq!(fixture.wait(&[queue.entry(0, value)], 0, FOREVER), Ok(0));
    };
    let value = |key: &str| {
        let file = format!("/proc/self/fdinfo/{}", fixture.node.fd());
        let text = std::fs::read_to_string(file).unwrap();
        let line =
            text.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().nth(1).unwrap().to_string()
    };
    let time = |class: &str| value(&format!("drm-engine-{class}:")).parse::<u64>().unwrap();
    copy(1);
    assert_eq!(value("drm-driver:"), "tally");
    if is_pci() {
        assert!(value("drm-pdev:").contains(':'));
    }
    assert_eq!(time("compute"), 0);
    // A reader waits at most 20 ms for the device's answer.
    eventually(|| time("copy") != 0);
    let first = time("copy");
    copy(2);
    fixture.node.call(&mut QueueDestroy { queue_id: queue.id, pad: 0 }).unwrap();
    let both = time("copy");
    assert!(both > first, "{both} after {first}");
}

// SPDX-License-Identifier: GPL-2.0
//! Calls that `uapi/UAPI.md` refuses, each with its error.

use tally_uapi::cell::Compare;
use tally_uapi::ioctl::{
    BoCreate, BoInfo, Ioctl, Query, QueueCreate, QueueDestroy, QueueKick, QueueQuery, SemFollow,
    SemNotify, SemWait, SemWake, VmBind, VmCreate, VmDestroy, VmOrphan, bind_flag, bind_op, query,
};

use crate::device::{Fixture, Node, PAGE, RW, WINDOW_PAGES, entry, wait};

/// "Fields named `pad` or `reserved` and flag bits without a name must be zero: EINVAL.
/// They are checked before anything else."
pub fn must_be_zero() {
    let node = Node::open();
    let no = Err(libc::EINVAL);
    // The ids are unknown, which alone would be ENOENT.
    assert_eq!(node.call(&mut Query { reserved: 1, what: 99, ..Default::default() }), no);
    assert_eq!(node.call(&mut BoCreate { size: PAGE, flags: 2, handle: 0 }), no);
    assert_eq!(node.call(&mut BoInfo { handle: 99, pad: 1, ..Default::default() }), no);
    let start = 0x10_0000_0000;
    assert_eq!(node.call(&mut VmCreate { start, size: PAGE, flags: 1, vm_id: 0 }), no);
    assert_eq!(node.call(&mut VmDestroy { vm_id: 99, pad: 1 }), no);
    for flag in [8, 1 << 31] {
        let bind = VmBind { vm_id: 99, flags: 1 | flag, size: PAGE, ..Default::default() };
        assert_eq!(node.call(&mut bind.clone()), no);
    }
    for (flags, pad) in [(1, 0), (0, 1)] {
        let create = QueueCreate { vm_id: 99, packets: 16, flags, pad, ..Default::default() };
        assert_eq!(node.call(&mut create.clone()), no);
    }
    assert_eq!(node.call(&mut QueueDestroy { queue_id: 99, pad: 1 }), no);
    assert_eq!(node.call(&mut QueueQuery { queue_id: 99, pad: 1, ..Default::default() }), no);
    assert_eq!(node.call(&mut QueueKick { queue_id: 99, pad: 1 }), no);
    assert_eq!(wait(&node, 99, &[entry(99, 0, 0)], 4, 0).map(drop), no);
    for (flags, pad) in [(2, 0), (0, 1)] {
        let notify = SemNotify { vm_id: 99, count: 1, flags, pad, ..Default::default() };
        assert_eq!(node.call(&mut notify.clone()), no);
    }
    assert_eq!(node.call(&mut SemFollow { handle: 99, flags: 2, ..Default::default() }), no);
    assert_eq!(node.call(&mut SemWake { handle: 99, pad: 1, offset: 0 }), no);
    assert_eq!(node.call(&mut SemWake { handle: 0, pad: 0, offset: 8 }), no);
    assert_eq!(node.call(&mut VmOrphan { vm_id: 99, pad: 1, address: start, size: 8 }), no);
}

/// "An unknown one is ENOENT."
pub fn unknown_handles_and_ids() {
    let node = Node::open();
    let no = Err(libc::ENOENT);
    assert_eq!(node.call(&mut BoInfo { handle: 99, ..Default::default() }), no);
    for id in [0, 99, u32::MAX] {
        assert_eq!(node.call(&mut VmDestroy { vm_id: id, pad: 0 }), no);
        assert_eq!(node.call(&mut QueueDestroy { queue_id: id, pad: 0 }), no);
        assert_eq!(node.call(&mut QueueQuery { queue_id: id, ..Default::default() }), no);
        assert_eq!(node.call(&mut QueueKick { queue_id: id, pad: 0 }), no);
        let bind = VmBind { vm_id: id, op: bind_op::UNMAP, size: PAGE, ..Default::default() };
        assert_eq!(node.call(&mut bind.clone()), no);
        assert_eq!(node.call(&mut VmOrphan { vm_id: id, pad: 0, address: PAGE, size: 8 }), no);
    }
    assert_eq!(wait(&node, 0, &[entry(99, 0, 0)], 0, 0).map(drop), no);
    assert_eq!(node.call(&mut SemWake { handle: 99, pad: 0, offset: 0 }), no);
    // "VM and queue ids belong to the file"
    let mine = Fixture::new();
    let queue = mine.queue(0);
    assert_eq!(node.call(&mut VmDestroy { vm_id: mine.vm, pad: 0 }), no);
    assert_eq!(node.call(&mut QueueKick { queue_id: queue.id, pad: 0 }), no);
}

/// QUERY: "EINVAL: unknown `what`; `size` too small for the answer. EFAULT."
pub fn queries_are_checked() {
    let node = Node::open();
    for what in [query::DEVICE, query::ENGINES, query::TARGET, query::CLOCK] {
        // "`data` = 0 asks for the size alone."
        let mut ask = Query { what, ..Default::default() };
        node.call(&mut ask).unwrap();
        let mut room = vec![0xffu8; ask.size as usize + 8];
        let data = room.as_mut_ptr().addr() as u64;
        let good = Query { data, ..ask };
        node.call(&mut good.clone()).unwrap();
        let (answer, beyond) = room.split_at(ask.size as usize);
        assert_eq!(beyond, [0xff; 8]);
        assert!(answer.iter().any(|&byte| byte != 0xff));
        let small = Query { size: ask.size - 1, ..good };
        assert_eq!(node.call(&mut small.clone()), Err(libc::EINVAL));
        let nowhere = Query { data: 8, ..good };
        assert_eq!(node.call(&mut nowhere.clone()), Err(libc::EFAULT));
    }
    assert_eq!(node.call(&mut Query { what: 4, ..Default::default() }), Err(libc::EINVAL));
}

/// BO_CREATE: "EINVAL: size not a page multiple, unknown flag. … ENOSPC: more than
/// the device's `memory_bytes` in all."
pub fn buffers_are_checked() {
    let node = Node::open();
    let create = |size| node.call(&mut BoCreate { size, ..Default::default() });
    assert_eq!(create(0), Err(libc::EINVAL));
    assert_eq!(create(PAGE + 1), Err(libc::EINVAL));
    assert_eq!(create(1 << 60), Err(libc::ENOSPC));
    assert_eq!(create(u64::MAX - 4095), Err(libc::ENOSPC));
}

/// VM_CREATE: "EINVAL: window not aligned or outside."
pub fn address_spaces_are_checked() {
    let node = Node::open();
    let create = |start, size| node.call(&mut VmCreate { start, size, ..Default::default() });
    let start = 0x10_0000_0000;
    for (start, size) in [
        (start + 1, PAGE),
        (start, 1),
        (start, 0),
        (0, PAGE),
        (start, 1 << 62),
        (start, u64::MAX - 4095),
    ] {
        assert_eq!(create(start, size), Err(libc::EINVAL), "{start:#x} {size:#x}");
    }
}

/// VM_BIND: the errors of its table and text.
pub fn bindings_are_checked() {
    let fixture = Fixture::new();
    let handle = fixture.node.bo(4, 0).unwrap();
    let good = fixture.map(handle, 0, 0, 4, RW);
    let refused = |bind: VmBind| fixture.bind(bind).unwrap_err();
    for bind in [
        VmBind { op: 4, ..good },
        VmBind { flags: 0, ..good },
        VmBind { flags: bind_flag::WRITE | bind_flag::EXECUTE, ..good },
        VmBind { offset: 8, ..good },
        VmBind { address: good.address + 8, ..good },
        VmBind { size: PAGE - 8, ..good },
        VmBind { size: 0, ..good },
        VmBind { size: 5 * PAGE, ..good },
        VmBind { offset: PAGE, ..good },
        VmBind { address: fixture.start - PAGE, ..good },
        VmBind { address: fixture.va(WINDOW_PAGES - 1), ..good },
        VmBind { address: u64::MAX - 4095, ..good },
        VmBind { op: bind_op::UNMAP, ..good },
        VmBind { op: bind_op::UNMAP, flags: 0, ..good },
        VmBind { op: bind_op::MAP_NULL, ..good },
        VmBind { op: bind_op::MAP_NULL, handle: 0, flags: bind_flag::EXECUTE, ..good },
        VmBind { op: bind_op::MAP_USERPTR, ..good },
    ] {
        assert_eq!(refused(bind), libc::EINVAL, "{bind:?}");
    }
    assert_eq!(refused(VmBind { handle: 99, ..good }), libc::ENOENT);
    fixture.bind(good).unwrap();
    // "EEXIST: something is mapped there."
    assert_eq!(refused(good), libc::EEXIST);
    assert_eq!(refused(VmBind { address: fixture.va(3), ..good }), libc::EEXIST);
    let null = VmBind { op: bind_op::MAP_NULL, handle: 0, ..good };
    assert_eq!(refused(null), libc::EEXIST);
    // "EFAULT: MAP_USERPTR of memory that is not there."
    let user = VmBind { op: bind_op::MAP_USERPTR, handle: 0, offset: PAGE, ..good };
    assert_eq!(refused(VmBind { address: fixture.va(8), ..user }), libc::EFAULT);
    // The same for more memory than there could be.
    let (start, size) = (0x20_0000_0000, 1 << 42);
    let mut vast = VmCreate { start, size, ..Default::default() };
    fixture.node.call(&mut vast).unwrap();
    let all = VmBind { vm_id: vast.vm_id, address: start, size, ..user };
    assert_eq!(refused(all), libc::ENOSPC);
    assert_eq!(refused(VmBind { offset: 1 << 63, ..all }), libc::EFAULT);
}

/// QUEUE_CREATE: "EINVAL: class, index, priority, packets (power of two, 16 to
/// 1,048,576), alignment. EFAULT: ring or control page not mapped."
pub fn queues_are_checked() {
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 3);
    let good = fixture.queue_create(0);
    let refused = |create: QueueCreate| fixture.node.call(&mut create.clone()).unwrap_err();
    for create in [
        QueueCreate { engine_class: 2, ..good },
        QueueCreate { engine_index: 1 << 20, ..good },
        QueueCreate { priority: 3, ..good },
        QueueCreate { packets: 8, ..good },
        QueueCreate { packets: 48, ..good },
        QueueCreate { packets: 1 << 21, ..good },
        QueueCreate { ring: good.ring + 8, ..good },
        QueueCreate { control: good.control + 64, ..good },
    ] {
        assert_eq!(refused(create), libc::EINVAL, "{create:?}");
    }
    assert_eq!(refused(QueueCreate { ring: fixture.va(3), ..good }), libc::EFAULT);
    assert_eq!(refused(QueueCreate { packets: 1 << 10, ..good }), libc::EFAULT);
    assert_eq!(refused(QueueCreate { control: fixture.va(3), ..good }), libc::EFAULT);
    // "a page that is mapped READ and WRITE"
    fixture.bind(fixture.map(handle, 0, 8, 1, bind_flag::READ)).unwrap();
    assert_eq!(refused(QueueCreate { control: fixture.va(8), ..good }), libc::EFAULT);
}

/// SEM_WAIT and SEM_WAKE: "EINVAL: count 0 or over 64, unknown comparison, offset not
/// aligned or outside the buffer."
pub fn waits_are_checked() {
    let fixture = Fixture::new();
    let handle = fixture.node.bo(1, 0).unwrap();
    let good = entry(handle, 0, 0);
    let ask = |entries: &[_]| fixture.wait(entries, 0, 0);
    assert_eq!(ask(&[good]), Ok(0));
    assert_eq!(ask(&[good; 64]), Ok(0));
    let too_many = vec![good; 65];
    for (entries, error) in [
        (&[][..], libc::EINVAL),
        (&too_many, libc::EINVAL),
        (
            &[tally_uapi::ioctl::SemWaitEntry { compare: Compare::NotEqual as u32 + 1, ..good }],
            libc::EINVAL,
        ),
        (&[tally_uapi::ioctl::SemWaitEntry { compare: 256, ..good }], libc::EINVAL),
        (&[entry(handle, 4, 0)], libc::EINVAL),
        (&[entry(handle, PAGE, 0)], libc::EINVAL),
        (&[entry(99, 0, 0)], libc::ENOENT),
    ] {
        assert_eq!(ask(entries), Err(error), "{entries:?}");
    }
    assert_eq!(wait(&fixture.node, 99, &[good], 0, 0), Err(libc::ENOENT));
    let mut nowhere = SemWait { entries: 8, count: 1, ..Default::default() };
    assert_eq!(fixture.node.call(&mut nowhere), Err(libc::EFAULT));
    for offset in [4, PAGE] {
        let wake = SemWake { handle, pad: 0, offset };
        assert_eq!(fixture.node.call(&mut wake.clone()), Err(libc::EINVAL));
    }
    fixture.node.call(&mut SemWake { handle, pad: 0, offset: PAGE - 8 }).unwrap();
    fixture.node.call(&mut SemWake::default()).unwrap();
}

/// VM_ORPHAN: "EINVAL: address or size not a multiple of 8, range empty or outside the window.
/// … ENOSPC: more than 1,024 ranges that do not touch."
pub fn orphaned_ranges_are_checked() {
    let fixture = Fixture::new();
    let orphan = |address, size| {
        fixture.node.call(&mut VmOrphan { vm_id: fixture.vm, pad: 0, address, size })
    };
    let (start, end) = (fixture.va(0), fixture.va(WINDOW_PAGES));
    for (address, size) in
        [(start + 4, 8), (start, 4), (start, 0), (start - 8, 16), (end - 8, 16), (!7, 16)]
    {
        assert_eq!(orphan(address, size), Err(libc::EINVAL), "{address:#x} {size:#x}");
    }
    for index in 0..1024 {
        orphan(start + index * 64, 8).unwrap();
    }
    assert_eq!(orphan(end - 8, 8), Err(libc::ENOSPC));
    orphan(start, end - start).unwrap();
    orphan(end - 8, 8).unwrap();
}

/// The table has as many entries as the uapi has ioctls.
pub fn numbers_beyond_the_last_are_refused() {
    let node = Node::open();
    let last = tally_uapi::ioctl::IOCTLS.iter().map(|(number, ..)| number).max().unwrap();
    let beyond = u64::from(Query::REQUEST & !0xff) | u64::from(0x40 + last + 1);
    // SAFETY: the struct is as large as the number says.
    assert_eq!(unsafe { node.raw(beyond, &mut Query::default()) }, Err(libc::EINVAL));
}

/// "Minor versions only add: … new fields in reserved places whose zero means the old
/// behaviour": fields that an older caller's struct lacks count as zero.
pub fn structs_may_be_shorter() {
    let node = Node::open();
    let shorter = |request: u32, bytes: u64| u64::from(request & !(0x3fff << 16)) | bytes << 16;
    // SEM_WAKE without its offset.
    let mut wake = [0u32, 0];
    // SAFETY: as large as the number says.
    assert_eq!(unsafe { node.raw(shorter(SemWake::REQUEST, 8), &mut wake) }, Ok(()));
    // QUERY without `reserved`, and with 8 bytes that this module does not know.
    let mut query = [0u64; 4];
    for bytes in [16, 32] {
        // SAFETY: as above.
        assert_eq!(unsafe { node.raw(shorter(Query::REQUEST, bytes), &mut query) }, Ok(()));
    }
}

/// Dumb buffers would be none of the driver's.
pub fn dumb_buffers_are_refused() {
    let node = Node::open();
    // DRM_IOCTL_MODE_CREATE_DUMB: no node makes dumb buffers.
    let mut dumb = [64u32, 64, 32, 0, 0, 0, 0, 0];
    // SAFETY: the core's struct has 32 bytes.
    assert!(unsafe { node.raw(0xc020_64b2, &mut dumb) }.is_err());
}

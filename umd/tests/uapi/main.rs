// SPDX-License-Identifier: MIT OR Apache-2.0
//! `uapi/UAPI.md` as tests: every errno, every field that must be zero, and
//! what each ioctl does. They know the trait only; [`open`](support::open) chooses the lane: the
//! device in this process, or with TALLY_LANE=drm the module's. There the tests
//! share one device, so they run one at a time (`--test-threads=1`).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use tally_uapi::cell::Compare;
use tally_uapi::fault::FaultKind;
use tally_uapi::ioctl::{
    BoCreate, BoInfo, ClockPair, DeviceInfo, EngineInfo, Errno, Query, QueueCreate, QueueDestroy,
    QueueKick, QueueQuery, SemFollow, SemNotify, SemWait, SemWaitEntry, SemWake, VmBind, VmCreate,
    VmDestroy, VmOrphan, bind_flag, bind_op, engine_capability, query, queue_state, sem_wait_flag,
};
use tally_uapi::packet::{Copy, Header, PostSync, flag, opcode};

mod support;

use support::*;

#[test]
fn query_answers_facts_that_fit_together() {
    let backend = open();
    let device: DeviceInfo = ask(&*backend, query::DEVICE);
    assert_ne!(device.execution_units, 0);
    assert!(device.memory_bytes.is_multiple_of(PAGE) && device.memory_bytes >= MEMORY);
    if backend.lane() == "embedded" {
        assert_eq!((device.execution_units, device.memory_bytes), (2, MEMORY), "as was asked for");
    }
    assert!(device.va_start < device.va_end && device.va_start.is_multiple_of(PAGE));
    assert!(device.simd_lanes.is_power_of_two() && device.cache_line_bytes.is_power_of_two());
    assert!(device.clock_hz != 0 && device.core_clock_mhz != 0);
    assert!(device.max_vms != 0 && device.max_queues != 0);
    assert_ne!(device.uuid, [0; 16]);
    let engines: [EngineInfo; 2] = ask(&*backend, query::ENGINES);
    assert_ne!(engines[0].capabilities & engine_capability::COMPUTE, 0);
    assert_eq!(engines[1].capabilities, engine_capability::COPY);
    let before = now_ns() as u64;
    let (one, two): (ClockPair, ClockPair) =
        (ask(&*backend, query::CLOCK), ask(&*backend, query::CLOCK));
    assert!(before <= one.host_ns && one.host_ns <= two.host_ns);
    assert!(one.device_ticks <= two.device_ticks);
}

#[test]
fn query_target_is_two_terminated_strings() {
    let backend = open();
    let mut query = Query { what: query::TARGET, ..Default::default() };
    // SAFETY: without data only the size is answered.
    unsafe { backend.query(&mut query) }.unwrap();
    let mut bytes = vec![0xffu8; query.size as usize + 8];
    query.data = bytes.as_mut_ptr().addr() as u64;
    // SAFETY: `data` names more than `size` bytes.
    unsafe { backend.query(&mut query) }.unwrap();
    let (text, rest) = bytes.split_at(query.size as usize);
    assert_eq!(rest, [0xff; 8], "nothing is written beyond the answer");
    let words: Vec<_> = text.split(|&byte| byte == 0).collect();
    assert_eq!(words.len(), 3);
    assert!(words[0].starts_with(b"x86-64") && words[2].is_empty());
    assert!(words[1].split(|&b| b == b',').all(|word| word.starts_with(b"+")));
}

#[test]
fn query_refuses_what_it_does_not_know() {
    let backend = open();
    let mut room = [0u8; 256];
    let data = room.as_mut_ptr().addr() as u64;
    let good = Query { what: query::DEVICE, size: 88, data, reserved: 0 };
    // SAFETY: the room is larger than every size here.
    let query = |query: Query| unsafe { backend.query(&mut query.clone()) };
    assert_eq!(query(good), Ok(()));
    assert_eq!(query(Query { what: 4, ..good }), Err(Errno::Invalid));
    assert_eq!(query(Query { size: 87, ..good }), Err(Errno::Invalid));
    assert_eq!(query(Query { reserved: 1, ..good }), Err(Errno::Invalid));
}

#[test]
fn bo_create_refuses_bad_sizes_flags_and_more_than_there_is() {
    let backend = open();
    let memory = ask::<DeviceInfo>(&*backend, query::DEVICE).memory_bytes;
    let create = |size, flags| backend.bo_create(&mut BoCreate { size, flags, handle: 0 });
    assert_eq!(create(0, 0), Err(Errno::Invalid));
    assert_eq!(create(100, 0), Err(Errno::Invalid));
    assert_eq!(create(PAGE, 2), Err(Errno::Invalid));
    assert_eq!(create(memory + PAGE, 0), Err(Errno::NoSpace));
    assert_eq!(create(u64::MAX - 4095, 0), Err(Errno::NoSpace));
    // If the tests share a device, memory of the previous test is in use until the device has answered.
    eventually(|| {
        let mut all = BoCreate { size: memory, ..Default::default() };
        backend.bo_create(&mut all).is_ok_and(|()| backend.bo_close(all.handle).is_ok())
    });
    // A failure has taken nothing, and what is closed comes back.
    for _ in 0..3 {
        let mut all = BoCreate { size: memory, ..Default::default() };
        backend.bo_create(&mut all).unwrap();
        assert_eq!(create(PAGE, 0), Err(Errno::NoSpace));
        backend.bo_close(all.handle).unwrap();
    }
}

#[test]
fn a_buffer_is_zero_also_where_another_was() {
    let fixture = Fixture::new();
    for _ in 0..3 {
        let handle = fixture.memory(0, 4);
        for page in 0..4 {
            assert_eq!(fixture.word(fixture.va(page)).swap(7, Ordering::Relaxed), 0);
        }
        fixture.bind(fixture.unmap(0, 4)).unwrap();
        fixture.backend.bo_close(handle).unwrap();
    }
}

#[test]
fn bo_info_and_close_know_their_handles() {
    let fixture = Fixture::new();
    let handle = fixture.bo(3);
    let mut info = BoInfo { handle, ..Default::default() };
    fixture.backend.bo_info(&mut info).unwrap();
    assert_eq!(info.size, 3 * PAGE);
    info.pad = 1;
    assert_eq!(fixture.backend.bo_info(&mut info), Err(Errno::Invalid));
    fixture.backend.bo_close(handle).unwrap();
    assert_eq!(fixture.backend.bo_close(handle), Err(Errno::NoEntry));
    assert_eq!(fixture.backend.bo_close(0), Err(Errno::NoEntry));
    info.pad = 0;
    assert_eq!(fixture.backend.bo_info(&mut info), Err(Errno::NoEntry));
}

#[test]
fn bo_map_maps_anywhere_there_and_not_beyond() {
    let fixture = Fixture::new();
    let handle = fixture.memory(4, 2);
    fixture.word(fixture.va(5)).store(5, Ordering::Relaxed);
    // SAFETY: new mappings, or ranges that must be refused.
    let map = |handle, offset, size: u64, at: Option<u64>| unsafe {
        let at = at.and_then(|at| NonNull::new(at as *mut u8));
        fixture.backend.bo_map(handle, offset, size as usize, at)
    };
    let anywhere = map(handle, PAGE, PAGE, None).unwrap().cast::<u64>();
    // SAFETY: the mapping is there.
    assert_eq!(unsafe { anywhere.read_volatile() }, 5);
    assert_eq!(map(handle, 0, 2 * PAGE, Some(fixture.va(4))).map(|_| ()), Ok(()));
    assert_eq!(fixture.word(fixture.va(5)).load(Ordering::Relaxed), 5, "mapping again");
    assert_eq!(map(handle, PAGE, 2 * PAGE, None), Err(Errno::Invalid));
    assert_eq!(map(handle, 1, PAGE, None), Err(Errno::Invalid));
    assert_eq!(map(handle, 0, 0, None), Err(Errno::Invalid));
    assert_eq!(map(handle, 0, PAGE, Some(fixture.va(9) + 1)), Err(Errno::Invalid));
    assert_eq!(map(handle + 1, 0, PAGE, None), Err(Errno::NoEntry));
    // SAFETY: made above.
    unsafe { libc::munmap(anywhere.as_ptr().cast(), PAGE as usize) };
}

#[test]
fn vm_create_checks_its_window_and_its_limit() {
    let backend = open();
    let info: DeviceInfo = ask(&*backend, query::DEVICE);
    let good = VmCreate { start: info.va_start, size: PAGE, ..Default::default() };
    let create = |create: VmCreate| backend.vm_create(&mut create.clone());
    assert_eq!(create(VmCreate { flags: 1, ..good }), Err(Errno::Invalid));
    assert_eq!(create(VmCreate { start: good.start + 1, ..good }), Err(Errno::Invalid));
    assert_eq!(create(VmCreate { size: 0, ..good }), Err(Errno::Invalid));
    assert_eq!(create(VmCreate { size: 100, ..good }), Err(Errno::Invalid));
    assert_eq!(create(VmCreate { start: info.va_start - PAGE, ..good }), Err(Errno::Invalid));
    assert_eq!(create(VmCreate { start: info.va_end, ..good }), Err(Errno::Invalid));
    assert_eq!(create(VmCreate { size: u64::MAX - 4095, ..good }), Err(Errno::Invalid));
    for _ in 0..info.max_vms {
        assert_eq!(create(good), Ok(()));
    }
    assert_eq!(create(good), Err(Errno::NoSpace));
}

/// Returns when a thread that has told its number sleeps, and not only for a moment.
fn until_asleep(number: &AtomicI32) {
    let mut looks = 0;
    while looks < 4 {
        std::thread::sleep(Duration::from_millis(8));
        let path = format!("/proc/self/task/{}/stat", number.load(Ordering::Acquire));
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        looks = if stat.contains(") S ") { looks + 1 } else { 0 };
    }
}

#[test]
fn vm_destroy_ends_queues_bindings_and_waits() {
    let fixture = Fixture::new();
    let (queue, handle) = fixture.queue();
    let destroy = |vm_id, pad| fixture.backend.vm_destroy(&VmDestroy { vm_id, pad });
    assert_eq!(destroy(fixture.vm, 1), Err(Errno::Invalid));
    assert_eq!(destroy(fixture.vm + 100, 0), Err(Errno::NoEntry));
    let number = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            // SAFETY: a call without arguments.
            number.store(unsafe { libc::gettid() }, Ordering::Release);
            fixture.wait(&[entry(handle, 2 * PAGE, 1)], 0, FOREVER)
        });
        until_asleep(&number);
        assert_eq!(destroy(fixture.vm, 0), Ok(()));
        assert_eq!(waits.join().unwrap(), Err(Errno::Io));
    });
    assert_eq!(destroy(fixture.vm, 0), Err(Errno::NoEntry));
    let kick = fixture.backend.queue_kick(&QueueKick { queue_id: queue, pad: 0 });
    assert_eq!(kick, Err(Errno::NoEntry));
    assert_eq!(fixture.bind(fixture.map(handle, 0, 9, 1, RW)), Err(Errno::NoEntry));
    // The window is free for another VM.
    let mut create = VmCreate { start: fixture.start, size: WINDOW, ..Default::default() };
    fixture.backend.vm_create(&mut create).unwrap();
    let mut bind = fixture.map(handle, 0, 0, 3, RW);
    bind.vm_id = create.vm_id;
    assert_eq!(fixture.bind(bind), Ok(()));
}

#[test]
fn vm_bind_refuses_what_has_no_meaning() {
    let fixture = Fixture::new();
    let handle = fixture.bo(4);
    let good = fixture.map(handle, 0, 0, 4, RW);
    let execute = bind_flag::EXECUTE;
    let user = VmBind { op: bind_op::MAP_USERPTR, handle: 0, offset: fixture.va(0), ..good };
    let null = VmBind { op: bind_op::MAP_NULL, handle: 0, ..good };
    let unmap = fixture.unmap(0, 4);
    let bad = [
        ("op", VmBind { op: 4, ..good }),
        ("flags", VmBind { flags: 8, ..good }),
        ("no flags", VmBind { flags: 0, ..good }),
        ("write and execute", VmBind { flags: RW | execute, ..good }),
        ("address", VmBind { address: good.address + 8, ..good }),
        ("size", VmBind { size: 100, ..good }),
        ("no size", VmBind { size: 0, ..good }),
        ("offset", VmBind { offset: 8, ..good }),
        ("beyond the buffer", VmBind { offset: PAGE, ..good }),
        ("far beyond the buffer", VmBind { offset: u64::MAX - 4095, ..good }),
        ("before the window", VmBind { address: fixture.start - PAGE, ..good }),
        ("beyond the window", VmBind { address: fixture.start + WINDOW - PAGE, ..good }),
        ("overflow", VmBind { address: u64::MAX - 4095, ..good }),
        ("unmap with a handle", VmBind { handle, ..unmap }),
        ("unmap with flags", VmBind { flags: RW, ..unmap }),
        ("unmap with an offset", VmBind { offset: PAGE, ..unmap }),
        ("user memory with a handle", VmBind { handle, ..user }),
        ("user memory executable", VmBind { flags: execute, ..user }),
        ("null with a handle", VmBind { handle, ..null }),
        ("null with an offset", VmBind { offset: PAGE, ..null }),
        ("null executable", VmBind { flags: execute, ..null }),
    ];
    for (what, bind) in bad {
        assert_eq!(fixture.bind(bind), Err(Errno::Invalid), "{what}");
    }
    assert_eq!(fixture.bind(VmBind { vm_id: 77, ..good }), Err(Errno::NoEntry));
    assert_eq!(fixture.bind(VmBind { vm_id: 0, ..good }), Err(Errno::NoEntry));
    assert_eq!(fixture.bind(VmBind { handle: 77, ..good }), Err(Errno::NoEntry));
    assert_eq!(fixture.bind(good), Ok(()), "and nothing was changed");
}

#[test]
fn vm_bind_maps_only_where_nothing_is_and_unmaps_parts() {
    let fixture = Fixture::new();
    let handle = fixture.memory(0, 8);
    for page in 0..8 {
        fixture.word(fixture.va(page)).store(page + 1, Ordering::Relaxed);
    }
    for (page, pages) in [(0, 8), (7, 2), (3, 1)] {
        let bind = fixture.map(handle, 0, page, pages, RW);
        assert_eq!(fixture.bind(bind), Err(Errno::Exists), "{page} {pages}");
    }
    fixture.bind(fixture.unmap(3, 2)).unwrap();
    fixture.bind(fixture.unmap(3, 2)).unwrap();
    fixture.bind(fixture.map(handle, 7, 3, 1, RW)).unwrap();
    fixture.bind(fixture.map(handle, 0, 4, 1, bind_flag::READ)).unwrap();
    if !fixture.backend.sees_process() {
        // The host's mappings are apart from the device's.
        for (offset, page) in [(7, 3), (0, 4)] {
            let at = NonNull::new(fixture.va(page) as *mut u8);
            // SAFETY: pages of the test's own window.
            unsafe { fixture.backend.bo_map(handle, offset * PAGE, PAGE as usize, at) }.unwrap();
        }
    }
    let seen: Vec<u64> =
        (0..8).map(|page| fixture.word(fixture.va(page)).load(Ordering::Relaxed)).collect();
    assert_eq!(seen, [1, 2, 3, 8, 1, 6, 7, 8]);
    // The memory outlives the handle as long as it is bound.
    fixture.backend.bo_close(handle).unwrap();
    assert_eq!(fixture.word(fixture.va(7)).load(Ordering::Relaxed), 8);
    fixture.bind(fixture.unmap(0, 4096)).unwrap();
    let handle = fixture.memory(0, 8);
    assert_eq!(fixture.word(fixture.va(7)).load(Ordering::Relaxed), 0);
    fixture.backend.bo_close(handle).unwrap();
}

#[test]
fn user_memory_and_null_memory_are_bound() {
    let fixture = Fixture::new();
    let null = VmBind {
        vm_id: fixture.vm,
        op: bind_op::MAP_NULL,
        flags: RW,
        address: fixture.va(0),
        size: 2 * PAGE,
        ..Default::default()
    };
    fixture.bind(null).unwrap();
    // If the device uses the process's page table, the host sees the zeros too.
    if fixture.backend.sees_process() {
        assert_eq!(fixture.word(fixture.va(1)).load(Ordering::Relaxed), 0);
        fixture.word(fixture.va(1)).store(1, Ordering::Relaxed);
    }
    assert_eq!(fixture.bind(null), Err(Errno::Exists));
    fixture.bind(fixture.unmap(0, 2)).unwrap();
    // "On the embedded lane ... MAP_USERPTR is accepted only where `offset` = `address`."
    let elsewhere = reserve();
    let memory = if fixture.backend.sees_process() { fixture.va(0) } else { elsewhere };
    let user = VmBind { op: bind_op::MAP_USERPTR, offset: memory, ..null };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: pages of the test's own reservations.
    unsafe { libc::mprotect(memory as *mut _, 2 * PAGE as usize, protection) };
    assert_eq!(fixture.bind(user), Ok(()));
    fixture.bind(fixture.unmap(0, 2)).unwrap();
    // SAFETY: a hole in the test's own reservation.
    unsafe { libc::munmap((memory + PAGE) as *mut _, PAGE as usize) };
    assert_eq!(fixture.bind(user), Err(Errno::Fault));
    if fixture.backend.sees_process() {
        let other = VmBind { offset: elsewhere, ..user };
        assert_eq!(fixture.bind(other), Err(Errno::NotSupported));
    }
}

// "Pages stay pinned while mapped."
#[test]
#[ignore = "needs the kernel lane"]
fn user_memory_is_copied_as_it_is_when_the_copy_runs() {
    let fixture = Fixture::new();
    assert!(!fixture.backend.sees_process(), "the embedded lane pins nothing");
    let (queue, handle) = fixture.queue();
    let memory = reserve();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: pages of the test's own reservation.
    unsafe { libc::mprotect(memory as *mut _, PAGE as usize, protection) };
    let user = VmBind {
        vm_id: fixture.vm,
        op: bind_op::MAP_USERPTR,
        flags: RW,
        offset: memory,
        address: fixture.va(8),
        size: PAGE,
        ..Default::default()
    };
    fixture.bind(user).unwrap();
    // SAFETY: a word of the memory, which the test uses as an atomic only.
    let word = |at: u64| unsafe { AtomicU64::from_ptr((memory + at) as *mut u64) };
    word(0).store(7, Ordering::Release);
    let header = Header { opcode: opcode::COPY, flags: flag::ORDERED, ..Default::default() };
    let copy =
        |dst, src| Copy { header, dst, src, size: 8, zero: [0; 2], post: PostSync::default() };
    fixture.push(queue, 0, copy(fixture.va(2) + 64, fixture.va(8)));
    fixture.push(queue, 1, copy(fixture.va(8) + 8, fixture.va(2) + 64));
    fixture.push(queue, 2, signal(fixture.va(2), 1));
    assert_eq!(fixture.wait(&[entry(handle, 2 * PAGE, 1)], 0, FOREVER), Ok(0));
    assert_eq!(fixture.word(fixture.va(2) + 64).load(Ordering::Acquire), 7);
    assert_eq!(word(8).load(Ordering::Acquire), 7);
}

#[test]
fn queue_create_refuses_what_has_no_meaning() {
    let fixture = Fixture::new();
    let handle = fixture.memory(0, 3);
    let good = fixture.queue_create();
    let create = |create: QueueCreate| fixture.backend.queue_create(&mut create.clone());
    let bad = [
        ("class", QueueCreate { engine_class: 2, ..good }),
        ("index", QueueCreate { engine_index: 4, ..good }),
        ("copy index", QueueCreate { engine_class: 1, engine_index: 2, ..good }),
        ("priority", QueueCreate { priority: 3, ..good }),
        ("packets", QueueCreate { packets: 17, ..good }),
        ("few packets", QueueCreate { packets: 8, ..good }),
        ("no packets", QueueCreate { packets: 0, ..good }),
        ("many packets", QueueCreate { packets: 1 << 21, ..good }),
        ("ring", QueueCreate { ring: good.ring + 32, ..good }),
        ("ring's end", QueueCreate { ring: u64::MAX - 63, ..good }),
        ("control", QueueCreate { control: good.control + 64, ..good }),
        ("control's end", QueueCreate { control: u64::MAX - 4095, ..good }),
        ("flags", QueueCreate { flags: 1, ..good }),
        ("pad", QueueCreate { pad: 1, ..good }),
    ];
    for (what, bad) in bad {
        assert_eq!(create(bad), Err(Errno::Invalid), "{what}");
    }
    assert_eq!(create(QueueCreate { vm_id: 99, ..good }), Err(Errno::NoEntry));
    assert_eq!(create(QueueCreate { ring: fixture.va(8), ..good }), Err(Errno::Fault));
    assert_eq!(create(QueueCreate { ring: 0, ..good }), Err(Errno::Fault));
    assert_eq!(create(QueueCreate { packets: 256, ..good }), Err(Errno::Fault));
    assert_eq!(create(QueueCreate { control: fixture.va(8), ..good }), Err(Errno::Fault));
    fixture.bind(fixture.unmap(0, 1)).unwrap();
    fixture.bind(fixture.map(handle, 0, 0, 1, bind_flag::READ)).unwrap();
    assert_eq!(create(good), Err(Errno::Fault), "a control page that cannot be written");
}

#[test]
fn there_are_as_many_queues_as_query_says() {
    let fixture = Fixture::new();
    fixture.queue();
    let info: DeviceInfo = ask(&*fixture.backend, query::DEVICE);
    // None of them is ever kicked, so they may share a ring.
    let mut create = fixture.queue_create();
    for _ in 1..info.max_queues {
        fixture.backend.queue_create(&mut create).unwrap();
    }
    let last = create.queue_id;
    assert_eq!(fixture.backend.queue_create(&mut create), Err(Errno::NoSpace));
    fixture.backend.queue_destroy(&QueueDestroy { queue_id: last, pad: 0 }).unwrap();
    assert_eq!(fixture.backend.queue_create(&mut create), Ok(()));
}

#[test]
fn queues_run_until_they_are_destroyed() {
    let fixture = Fixture::new();
    let (queue, handle) = fixture.queue();
    let cell = fixture.va(2);
    for value in 1..=100 {
        fixture.push(queue, value - 1, signal(cell, value));
        assert_eq!(fixture.wait(&[entry(handle, 2 * PAGE, value)], 0, FOREVER), Ok(0));
    }
    let mut status = QueueQuery { queue_id: queue, ..Default::default() };
    eventually(|| {
        fixture.backend.queue_query(&mut status).unwrap();
        status.state == queue_state::IDLE
    });
    assert_eq!((status.head, status.fault_kind, status.parked_address), (100, 0, 0));
    assert_ne!(status.busy_ns, 0);
    let pad = QueueQuery { queue_id: queue, pad: 1, ..Default::default() };
    assert_eq!(fixture.backend.queue_query(&mut pad.clone()), Err(Errno::Invalid));
    let kick = |queue_id, pad| fixture.backend.queue_kick(&QueueKick { queue_id, pad }).map(drop);
    assert_eq!(kick(queue, 0), Ok(()), "harmless at any time");
    assert_eq!(kick(queue, 1), Err(Errno::Invalid));
    assert_eq!(kick(queue + 9, 0), Err(Errno::NoEntry));
    let destroy = |queue_id, pad| fixture.backend.queue_destroy(&QueueDestroy { queue_id, pad });
    assert_eq!(destroy(queue, 1), Err(Errno::Invalid));
    assert_eq!(destroy(queue, 0), Ok(()));
    assert_eq!(destroy(queue, 0), Err(Errno::NoEntry));
    assert_eq!(kick(queue, 0), Err(Errno::NoEntry));
    let mut gone = QueueQuery { queue_id: queue, ..Default::default() };
    assert_eq!(fixture.backend.queue_query(&mut gone), Err(Errno::NoEntry));
}

#[test]
fn a_lost_vm_answers_eio_and_can_be_unmapped() {
    let fixture = Fixture::new();
    let (queue, handle) = fixture.queue();
    let far = now_ns() + 60_000_000_000;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| fixture.wait(&[entry(handle, 2 * PAGE, 1)], 0, FOREVER));
        let other = scope.spawn(|| fixture.wait_with(&[entry(handle, 2 * PAGE + 8, 1)], 0, far, 0));
        std::thread::sleep(Duration::from_millis(30));
        fixture.lose(queue, 0);
        assert_eq!(waits.join().unwrap(), Err(Errno::Io));
        // The wait that named no VM goes on.
        fixture.word(fixture.va(2) + 8).store(1, Ordering::Release);
        let wake = SemWake { handle, pad: 0, offset: 2 * PAGE + 8 };
        fixture.backend.sem_wake(&wake).unwrap();
        assert_eq!(other.join().unwrap(), Ok(0));
    });
    let mut status = QueueQuery { queue_id: queue, ..Default::default() };
    fixture.backend.queue_query(&mut status).unwrap();
    assert_eq!(status.state, queue_state::STOPPED);
    assert_eq!(status.fault_kind, FaultKind::BadOpcode as u32);
    assert_eq!(status.fault_packet, 0);
    assert_eq!(fixture.wait(&[entry(handle, 2 * PAGE, 1)], 0, 0), Err(Errno::Io));
    assert_eq!(fixture.wait(&[entry(handle, 2 * PAGE + 8, 1)], 0, 0), Ok(0), "met is met");
    assert_eq!(fixture.backend.queue_create(&mut fixture.queue_create()), Err(Errno::Io));
    assert_eq!(fixture.bind(fixture.map(handle, 0, 20, 1, RW)), Err(Errno::Io));
    assert_eq!(fixture.bind(fixture.unmap(0, 3)), Ok(()));
    let destroy = QueueDestroy { queue_id: queue, pad: 0 };
    assert_eq!(fixture.backend.queue_destroy(&destroy), Ok(()));
    assert_eq!(fixture.backend.vm_destroy(&VmDestroy { vm_id: fixture.vm, pad: 0 }), Ok(()));
}

#[test]
fn sem_wait_refuses_what_has_no_meaning() {
    let fixture = Fixture::new();
    let handle = fixture.memory(0, 1);
    let good = entry(handle, 0, 0);
    let wait = |entries: &[SemWaitEntry], flags| fixture.wait(entries, flags, 0);
    assert_eq!(wait(&[good], 0), Ok(0));
    assert_eq!(wait(&[], 0), Err(Errno::Invalid));
    assert_eq!(wait(&[good; 64], 0), Ok(0));
    assert_eq!(wait(&[good; 65], 0), Err(Errno::Invalid));
    assert_eq!(wait(&[good], 4), Err(Errno::Invalid));
    assert_eq!(wait(&[SemWaitEntry { compare: 6, ..good }], 0), Err(Errno::Invalid));
    assert_eq!(wait(&[SemWaitEntry { compare: 256, ..good }], 0), Err(Errno::Invalid));
    assert_eq!(wait(&[SemWaitEntry { offset: 4, ..good }], 0), Err(Errno::Invalid));
    assert_eq!(wait(&[SemWaitEntry { offset: PAGE, ..good }], 0), Err(Errno::Invalid));
    assert_eq!(wait(&[SemWaitEntry { handle: 99, ..good }], 0), Err(Errno::NoEntry));
    assert_eq!(fixture.wait_with(&[good], 0, 0, 99), Err(Errno::NoEntry));
    let mut nowhere = SemWait { count: 1, ..Default::default() };
    // SAFETY: an address of 0 is refused before it is read.
    assert_eq!(unsafe { fixture.backend.sem_wait(&mut nowhere) }, Err(Errno::Fault));
}

// "With FILE (since 0.3) the ioctl does not sleep." "EOPNOTSUPP: FILE on the embedded lane."
#[test]
fn sem_wait_makes_files_for_event_loops() {
    let fixture = Fixture::new();
    let handle = fixture.memory(0, 1);
    let file = fixture.wait(&[entry(handle, 0, 1)], sem_wait_flag::FILE, 0);
    if fixture.backend.lane() == "embedded" {
        assert_eq!(file, Err(Errno::NotSupported));
        return;
    }
    // SAFETY: the ioctl has made it for us.
    let file = unsafe { OwnedFd::from_raw_fd(file.unwrap() as i32) };
    let polled = || {
        let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        assert!(unsafe { libc::poll(&mut poll, 1, 0) } >= 0);
        poll.revents
    };
    assert_eq!(polled(), 0);
    fixture.word(fixture.va(0)).store(1, Ordering::Release);
    assert_eq!(polled(), libc::POLLIN);
    let timed = fixture.wait(&[entry(handle, 0, 1)], sem_wait_flag::FILE, 1);
    assert_eq!(timed, Err(Errno::Invalid));
}

// SEM_NOTIFY: "adds 1 to the eventfd" "EOPNOTSUPP: the embedded lane."
#[test]
fn sem_notify_tells_an_eventfd() {
    let fixture = Fixture::new();
    let handle = fixture.memory(0, 1);
    let cells = [entry(handle, 0, 1)];
    // SAFETY: takes numbers.
    let eventfd = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK)) };
    let arg = SemNotify {
        entries: cells.as_ptr().addr() as u64,
        count: 1,
        target: eventfd.as_raw_fd() as u32,
        ..Default::default()
    };
    fixture.word(fixture.va(0)).store(1, Ordering::Release);
    // SAFETY: one entry.
    let told = unsafe { fixture.backend.sem_notify(&arg) };
    if fixture.backend.lane() == "embedded" {
        assert_eq!(told, Err(Errno::NotSupported));
        return;
    }
    assert_eq!(told, Ok(()));
    let mut count = 0u64;
    // SAFETY: room for the number.
    assert_eq!(unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut count).cast(), 8) }, 8);
    assert_eq!(count, 1);
}

// SEM_FOLLOW: "EINVAL: … `source` is no sync file" "EOPNOTSUPP: the embedded lane."
#[test]
fn sem_follow_wants_a_fence_of_the_kernel() {
    let fixture = Fixture::new();
    let handle = fixture.memory(0, 1);
    let refused = fixture.backend.sem_follow(&SemFollow { handle, value: 1, ..Default::default() });
    let embedded = fixture.backend.lane() == "embedded";
    assert_eq!(refused, Err(if embedded { Errno::NotSupported } else { Errno::Invalid }));
    assert_eq!(fixture.word(fixture.va(0)).load(Ordering::Acquire), 0);
}

#[test]
fn sem_wait_compares_all_or_any_until_its_time() {
    let fixture = Fixture::new();
    let handle = fixture.memory(0, 1);
    fixture.word(fixture.va(0) + 8).store(5, Ordering::Relaxed);
    let cell = |compare: Compare, value| SemWaitEntry {
        handle,
        compare: compare as u32,
        offset: 8,
        value,
    };
    let met = [
        cell(Compare::GreaterEqual, 5),
        cell(Compare::Greater, 4),
        cell(Compare::LessEqual, 5),
        cell(Compare::Less, 6),
        cell(Compare::Equal, 5),
        cell(Compare::NotEqual, 4),
    ];
    let unmet = [
        cell(Compare::GreaterEqual, 6),
        cell(Compare::Greater, 5),
        cell(Compare::LessEqual, 4),
        cell(Compare::Less, 5),
        cell(Compare::Equal, 4),
        cell(Compare::NotEqual, 5),
    ];
    assert_eq!(fixture.wait(&met, 0, 0), Ok(0));
    for (i, entry) in unmet.into_iter().enumerate() {
        assert_eq!(fixture.wait(&[entry], 0, 0), Err(Errno::TimedOut), "{i}");
        assert_eq!(fixture.wait(&[met[i], entry], 0, -1), Err(Errno::TimedOut), "{i}");
        assert_eq!(fixture.wait(&[entry, met[i]], sem_wait_flag::ANY, 0), Ok(1), "{i}");
    }
    let until = now_ns() + 20_000_000;
    assert_eq!(fixture.wait(&[unmet[0]], 0, until), Err(Errno::TimedOut));
    assert!(now_ns() >= until, "not before its time");
}

#[test]
fn entries_of_an_all_wait_may_be_met_at_different_moments() {
    let fixture = Fixture::new();
    let handle = fixture.memory(0, 1);
    let wake = |offset, value| {
        fixture.word(fixture.va(0) + offset).store(value, Ordering::Release);
        fixture.backend.sem_wake(&SemWake { handle, pad: 0, offset }).unwrap();
    };
    let number = AtomicI32::new(0);
    let (entries, soon) = ([entry(handle, 8, 1), entry(handle, 16, 1)], now_ns() + 60_000_000_000);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            // SAFETY: a call without arguments.
            number.store(unsafe { libc::gettid() }, Ordering::Release);
            fixture.wait(&entries, 0, soon)
        });
        until_asleep(&number);
        wake(8, 1);
        // It has seen the first, and sleeps for the second.
        until_asleep(&number);
        wake(8, 0);
        wake(16, 1);
        assert_eq!(waits.join().unwrap(), Ok(0));
    });
}

#[test]
fn sem_wake_wakes_hosts_and_queues_and_refuses_what_has_no_meaning() {
    let fixture = Fixture::new();
    let handle = fixture.memory(0, 1);
    let wake = |handle, pad, offset| fixture.backend.sem_wake(&SemWake { handle, pad, offset });
    assert_eq!(wake(handle, 0, 8), Ok(()));
    assert_eq!(wake(0, 0, 0), Ok(()));
    assert_eq!(wake(handle, 1, 8), Err(Errno::Invalid));
    assert_eq!(wake(handle, 0, 4), Err(Errno::Invalid));
    assert_eq!(wake(handle, 0, PAGE), Err(Errno::Invalid));
    assert_eq!(wake(0, 0, 8), Err(Errno::Invalid));
    assert_eq!(wake(99, 0, 8), Err(Errno::NoEntry));
}

#[test]
fn many_hosts_wait_for_one_queue() {
    let fixture = Fixture::new();
    let (queue, handle) = fixture.queue();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let fixture = &fixture;
            scope.spawn(move || {
                for value in 1..=50 {
                    let entries = [entry(handle, 2 * PAGE + thread % 3 * 8, value)];
                    assert_eq!(fixture.wait(&entries, 0, FOREVER), Ok(0));
                }
            });
        }
        for value in 1..=50u64 {
            for cell in 0..3 {
                let index = (value - 1) * 3 + cell;
                fixture.push(queue, index, signal(fixture.va(2) + cell * 8, value));
            }
            // The ring has 64 slots: wait for this round.
            assert_eq!(fixture.wait(&[entry(handle, 2 * PAGE + 16, value)], 0, FOREVER), Ok(0));
        }
    });
}

// VM_ORPHAN: "EINVAL: address or size not a multiple of 8, range empty or outside the window.
// ENOENT. EIO: the VM is lost. ENOSPC: more than 1,024 ranges that do not touch."
#[test]
fn vm_orphan_refuses_what_has_no_meaning() {
    let f = Fixture::new();
    let orphan =
        |address, size| f.backend.vm_orphan(&VmOrphan { vm_id: f.vm, pad: 0, address, size });
    let (start, end) = (f.start, f.start + WINDOW);
    for (address, size) in
        [(start + 4, 8), (start, 4), (start, 0), (start - 8, 16), (end - 8, 16), (!7, 16)]
    {
        assert_eq!(orphan(address, size), Err(Errno::Invalid), "{address:#x} {size:#x}");
    }
    let good = VmOrphan { vm_id: f.vm, pad: 0, address: start, size: 8 };
    assert_eq!(f.backend.vm_orphan(&VmOrphan { pad: 1, ..good }), Err(Errno::Invalid));
    assert_eq!(f.backend.vm_orphan(&VmOrphan { vm_id: 9999, ..good }), Err(Errno::NoEntry));
    for index in 0..1024 {
        assert_eq!(orphan(start + index * 64, 8), Ok(()));
    }
    assert_eq!(orphan(end - 8, 8), Err(Errno::NoSpace));
    assert_eq!(orphan(start, WINDOW), Ok(()), "those that touch are one");
    assert_eq!(orphan(end - 8, 8), Ok(()));
}

// "waits that are met are taken as usual. A queue with an unmet wait there, now or later, faults
// (kind 10), and its VM is lost." "The declaration holds for the addresses until they are unmapped."
#[test]
fn a_queue_does_not_wait_for_orphaned_cells() {
    for parked_before in [true, false] {
        let f = Fixture::new();
        let (queue, handle) = f.queue();
        let cells = f.memory(20, 1);
        let orphan = || {
            let (address, size) = (f.va(20), PAGE);
            f.backend.vm_orphan(&VmOrphan { vm_id: f.vm, pad: 0, address, size })
        };
        orphan().unwrap();
        f.bind(f.unmap(20, 1)).unwrap();
        f.bind(f.map(cells, 0, 20, 1, RW)).unwrap();
        let at = NonNull::new(f.va(20) as *mut u8);
        // SAFETY: the range was just bound and is the test's.
        unsafe { f.backend.bo_map(cells, 0, PAGE as usize, at) }.unwrap();
        f.word(f.va(20)).store(1, Ordering::SeqCst);
        f.push(queue, 0, wait_for(f.va(20), 1));
        f.push(queue, 1, signal(f.va(2), 1));
        let state = || {
            let mut query = QueueQuery { queue_id: queue, ..Default::default() };
            f.backend.queue_query(&mut query).unwrap();
            query
        };
        if parked_before {
            f.push(queue, 2, wait_for(f.va(20), 2));
            eventually(|| state().state == queue_state::PARKED);
        }
        orphan().unwrap();
        if !parked_before {
            f.push(queue, 2, wait_for(f.va(20), 2));
        }
        assert_eq!(f.wait(&[entry(handle, 2 * PAGE, 1)], 0, FOREVER), Ok(0));
        assert_eq!(f.wait(&[entry(handle, 2 * PAGE, 2)], 0, FOREVER), Err(Errno::Io));
        eventually(|| state().state == queue_state::STOPPED);
        assert_eq!(state().fault_kind, FaultKind::Orphaned as u32);
        assert_eq!((state().fault_address, state().fault_packet), (f.va(20), 2));
        assert_eq!(orphan(), Err(Errno::Io));
    }
}

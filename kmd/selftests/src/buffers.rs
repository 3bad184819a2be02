// SPDX-License-Identifier: GPL-2.0
//! Buffers and bindings that work.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

use tally_uapi::ioctl::{BoInfo, DeviceInfo, Query, VmBind, bind_op, query};
use tally_uapi::packet::{Copy, Header, PostSync, flag, opcode};
use zerocopy::FromZeros;

use crate::Outcome;
use crate::device::{
    FOREVER, Fixture, Mapped, Node, PAGE, RW, counter, eventually, memory_limit, nobody_is_left,
    shared_kib,
};
use crate::processes::process;

const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// "The memory is zero, shared"
pub fn memory_is_zero_and_shared() {
    let node = Node::open();
    for _ in 0..3 {
        let handle = node.bo(4, 0).unwrap();
        let (one, two) = (node.map(handle, BOTH).unwrap(), node.map(handle, BOTH).unwrap());
        for word in 0..4 * PAGE as usize / 8 {
            assert_eq!(one.word(word).swap(7, Relaxed), 0);
            assert_eq!(two.word(word).load(Relaxed), 7);
        }
        node.close(handle).unwrap();
        assert_eq!(node.close(handle), Err(libc::EINVAL));
    }
}

/// "a mapping or binding keeps it alive after its handle is closed"
pub fn a_mapping_outlives_its_handle() {
    nobody_is_left();
    let before = counter("memory");
    let fixture = Fixture::new();
    let (handle, mapped) = fixture.memory(0, 1);
    fixture.node.close(handle).unwrap();
    mapped.word(0).store(5, Relaxed);
    assert!(counter("memory") >= before + PAGE);
    fixture.bind(fixture.unmap(0, 1)).unwrap();
    assert_eq!(mapped.word(0).load(Relaxed), 5);
    drop(mapped);
    eventually(|| counter("memory") == before);
}

/// Bytes of a client's memory in fdinfo, 0 if the key is missing.
fn told(node: &Node, what: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", node.fd())).unwrap();
    let key = format!("drm-{what}-memory:");
    let Some(value) = text.lines().find_map(|line| line.strip_prefix(&key)) else { return 0 };
    let mut words = value.split_whitespace();
    let number: u64 = words.next().and_then(|word| word.parse().ok()).expect("a number");
    let shift = match words.next() {
        None => 0,
        Some("KiB") => 10,
        Some("MiB") => 20,
        Some(unit) => panic!("{unit}"),
    };
    number << shift
}

/// "drm-resident: The total size of buffers that are resident": each counts once, however often it is mapped.
pub fn tools_see_each_buffer_once() {
    let fixture = Fixture::new();
    let handle = fixture.node.bo(512, 0).unwrap();
    let other = fixture.node.bo(1, 0).unwrap();
    let memory = || ["total", "resident", "shared"].map(|what| told(&fixture.node, what) / PAGE);
    assert_eq!(memory(), [513, 0, 0]);
    for page in [0, 512, 1024] {
        fixture.bind(fixture.map(handle, 0, page, 512, RW)).unwrap();
    }
    let start = 0x20_0000_0000;
    let second = Fixture::create_vm(&fixture.node, start).unwrap();
    let there = VmBind { vm_id: second, address: start, ..fixture.map(handle, 0, 0, 512, RW) };
    fixture.bind(there).unwrap();
    let _mapped = fixture.node.map(handle, BOTH).unwrap();
    assert_eq!(memory(), [513, 512, 0]);
    // Any process can have a dma-buf.
    let _exported = fixture.node.export(other).unwrap();
    assert_eq!(memory(), [513, 512, 1]);
    fixture.node.close(handle).unwrap();
    assert_eq!(memory(), [1, 0, 1]);
}

/// Pages that a client may have, from QUERY.
fn limit(node: &Node) -> u64 {
    let mut info = DeviceInfo::new_zeroed();
    let data = (&raw mut info).addr() as u64;
    let size = size_of::<DeviceInfo>() as u32;
    node.call(&mut Query { what: query::DEVICE, size, data, reserved: 0 }).unwrap();
    info.memory_bytes / PAGE
}

/// "ENOSPC: more than `memory_bytes` of QUERY DEVICE in this client's buffers": other clients are not affected.
pub fn clients_have_limits() -> Outcome {
    let (node, other) = (Node::open(), Node::open());
    let all = limit(&node);
    let handle = node.bo(all, 0).unwrap();
    assert_eq!(node.bo(1, 0), Err(libc::ENOSPC));
    if other.bo(1, 0).is_err() {
        return Outcome::Skipped("the module was loaded without client_memory_mib");
    }
    // An imported buffer is not charged to the importer.
    let fd = node.export(handle).unwrap();
    other.import(fd.as_raw_fd()).unwrap();
    let rest = other.bo(all - 1, 0).unwrap();
    assert_eq!(other.bo(1, 0), Err(libc::ENOSPC));
    other.close(rest).unwrap();
    other.bo(all - 1, 0).unwrap();
    Outcome::Passed
}

/// "or more than its user may have": the buffers of all the user's files count.
pub fn memory_has_a_limit() {
    nobody_is_left();
    let last = Node::open();
    // A failure takes nothing, and closing a buffer gives its memory back.
    for _ in 0..3 {
        let mut left = (memory_limit() / 8 * 7 - counter("memory")) / PAGE;
        let mut buffers = Vec::new();
        while left != 0 {
            let node = Node::open();
            let pages = left.min(limit(&node));
            buffers.push((node.bo(pages, 0).unwrap(), node));
            left -= pages;
        }
        assert_eq!(last.bo(1, 0), Err(libc::ENOSPC));
        for (handle, node) in buffers {
            node.close(handle).unwrap();
        }
    }
}

/// "Only a fatal signal ends such a wait early": a process that is killed while it binds a large buffer does
/// not get all the buffer's memory first.
pub fn a_bind_ends_with_its_caller() -> Outcome {
    nobody_is_left();
    for by_mmap in [false, true] {
        let fixture = Fixture::new();
        let pages = limit(&fixture.node).min(crate::device::WINDOW_PAGES);
        let handle = fixture.node.bo(pages, 0).unwrap();
        let whole = pages * (PAGE >> 10);
        let before = shared_kib();
        let child = process(|| match by_mmap {
            true => fixture.node.map(handle, BOTH).is_ok(),
            false => fixture.bind(fixture.map(handle, 0, 0, pages, RW)).is_ok(),
        });
        eventually(|| shared_kib() > before + (1 << 10));
        if !child.kill_if_alive() {
            return Outcome::Skipped("all the memory was there before the caller could be killed");
        }
        let taken = shared_kib().saturating_sub(before);
        assert!(taken + (8 << 10) < whole, "{taken} of {whole} KiB");
    }
    Outcome::Passed
}

/// Copies a word from page to page on the device.
fn copy_word(
    fixture: &Fixture,
    queue: &mut crate::device::Queue<'_>,
    from: u64,
    to: u64,
    done: u64,
) {
    let header = Header {
        opcode: opcode::COPY,
        flags: flag::ORDERED | flag::POST_SYNC,
        ..Header::default()
    };
    let post = PostSync { address: queue.cell(0), value: done };
    let copy =
        Copy { header, dst: fixture.va(to), src: fixture.va(from), size: 8, zero: [0; 2], post };
    queue.push(copy);
    assert_eq!(fixture.wait(&[queue.entry(0, done)], 0, FOREVER), Ok(0));
}

/// VM_BIND: "when it returns, the device uses the new mappings"; "UNMAP removes whatever is mapped in
/// the range, if anything."
pub fn bindings_are_cut_and_joined() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(100);
    let (handle, mapped) = fixture.memory(0, 4);
    let word = |page: usize| mapped.word(page * PAGE as usize / 8);
    word(1).store(11, Relaxed);
    copy_word(&fixture, &mut queue, 1, 3, 1);
    assert_eq!(word(3).load(Relaxed), 11);
    // The middle is unmapped and mapped again with its pages swapped.
    fixture.bind(fixture.unmap(1, 2)).unwrap();
    fixture.bind(fixture.unmap(1, 2)).unwrap();
    fixture.bind(fixture.map(handle, 1, 2, 1, RW)).unwrap();
    fixture.bind(fixture.map(handle, 2, 1, 1, RW)).unwrap();
    word(2).store(22, Relaxed);
    copy_word(&fixture, &mut queue, 1, 0, 2);
    assert_eq!(word(0).load(Relaxed), 22);
    copy_word(&fixture, &mut queue, 2, 0, 3);
    assert_eq!(word(0).load(Relaxed), 11);
    fixture.bind(fixture.unmap(0, 50)).unwrap();
}

/// MAP_USERPTR: the device uses the caller's own pages.
pub fn userptr_is_the_callers_memory() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(100);
    let own = Mapped::new(-1, 0, 2 * PAGE, BOTH).err();
    assert_eq!(own, Some(libc::EBADF), "files only");
    let memory = anonymous(2);
    memory[0].store(33, Relaxed);
    let offset = memory.as_ptr().addr() as u64;
    let bind = VmBind { op: bind_op::MAP_USERPTR, offset, ..fixture.map(0, 0, 0, 2, RW) };
    fixture.bind(bind).unwrap();
    copy_word(&fixture, &mut queue, 0, 1, 1);
    assert_eq!(memory[PAGE as usize / 8].load(Relaxed), 33);
    fixture.bind(fixture.unmap(0, 2)).unwrap();
    // "ENOSPC: … too much locked memory", for a process without the right to more.
    // SAFETY: plain system calls of a child that only exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let limit = libc::rlimit { rlim_cur: PAGE, rlim_max: PAGE };
            let set =
                libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) == 0 && libc::setuid(65534) == 0;
            let refused = fixture.bind(bind) == Err(libc::ENOSPC);
            libc::_exit(i32::from(!(set && refused)));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
}

/// A page of the caller is bound any number of times; the kernel's DMA debugging reports no leftover mapping.
pub fn a_page_is_bound_many_times() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(100);
    let memory = anonymous(2);
    memory[0].store(34, Relaxed);
    let offset = memory.as_ptr().addr() as u64;
    for slot in 0..20 {
        let map = fixture.map(0, 0, 2 * slot, 2, RW);
        fixture.bind(VmBind { op: bind_op::MAP_USERPTR, offset, ..map }).unwrap();
    }
    copy_word(&fixture, &mut queue, 0, 39, 1);
    assert_eq!(memory[PAGE as usize / 8].load(Relaxed), 34);
}

/// Whole pages of anonymous memory, for the life of the program.
fn anonymous(pages: u64) -> &'static [std::sync::atomic::AtomicU64] {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let bytes = (pages * PAGE) as usize;
    // SAFETY: a new mapping, which is never undone.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), bytes, BOTH, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts(at.cast(), bytes / 8)
    }
}

/// Many pages, in one contiguous piece and in many pieces.
pub fn huge_and_many() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(60_000);
    let (_, large) = fixture.memory(0, 8192);
    let last = 8191;
    large.word(0).store(44, Relaxed);
    copy_word(&fixture, &mut queue, 0, last, 1);
    assert_eq!(large.word(last as usize * 512).load(Relaxed), 44);
    // Single pages of a buffer in reverse: no two of them can be joined.
    let handle = fixture.node.bo(1024, 0).unwrap();
    let many = fixture.node.map(handle, BOTH).unwrap();
    for page in 0..1024 {
        fixture.bind(fixture.map(handle, 1023 - page, 10_000 + page, 1, RW)).unwrap();
    }
    many.word(1023 * 512).store(55, Relaxed);
    copy_word(&fixture, &mut queue, 10_000, 10_001, 2);
    assert_eq!(many.word(1022 * 512).load(Relaxed), 55);
    fixture.bind(fixture.unmap(10_000, 1024)).unwrap();
}

/// BO_INFO: "a part of the buffer is mapped by adding its offset": each page shows its own content, even
/// when munmap or mremap cuts the mapping before it is touched.
pub fn parts_are_mapped_and_mappings_are_cut() {
    let node = Node::open();
    let (read, both) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
    let words = PAGE as usize / 8;
    for pages in [8, 1024] {
        let handle = node.bo(pages, 0).unwrap();
        let whole = node.map(handle, both).unwrap();
        for page in 0..pages as usize {
            whole.word(page * words).store(page as u64 + 1, Relaxed);
        }
        drop(whole);
        let mut info = BoInfo { handle, ..Default::default() };
        node.call(&mut info).unwrap();
        let part = |from: u64, count: u64| {
            Mapped::new(node.fd(), info.mmap_offset + from * PAGE, count * PAGE, read)
        };
        let middle = part(3, 2).unwrap();
        assert_eq!((middle.word(0).load(Relaxed), middle.word(words).load(Relaxed)), (4, 5));
        assert_eq!(part(pages - 1, 1).unwrap().word(0).load(Relaxed), pages);
        for (from, count) in [(pages - 1, 2), (pages, 1), (0, pages + 1)] {
            assert_eq!(part(from, count).err(), Some(libc::EINVAL));
        }
        // "A mapping … keeps it alive after its handle is closed": from here the file alone keeps it.
        let fd = node.export(handle).unwrap();
        let of_dmabuf = Mapped::new(fd.as_raw_fd(), 2 * PAGE, 2 * PAGE, read).unwrap();
        assert_eq!(of_dmabuf.word(words).load(Relaxed), 4);
        let mut cut = part(0, pages).unwrap();
        cut.cut_front(5 * PAGE);
        assert_eq!(cut.word(0).load(Relaxed), 6);
        cut.move_elsewhere();
        assert_eq!(cut.word(words).load(Relaxed), 7);
        node.close(handle).unwrap();
        assert_eq!(cut.word(2 * words).load(Relaxed), 8);
    }
}

/// "ENOMEM: no memory for the kernel's own needs", "An ioctl that fails has changed nothing.": each
/// allocation of the first VM_BIND of a buffer fails once, and then it works. The kernel itself reports
/// leaks.
pub fn a_bind_without_memory_changes_nothing() -> Outcome {
    let nth = OpenOptions::new().read(true).write(true).open("/proc/thread-self/fail-nth");
    let Ok(nth) = nth else { return Outcome::Skipped("no allocation can be made to fail") };
    crate::fuzz::may_fail();
    let fixture = Fixture::new();
    let mut refused = 0;
    for number in 1..500 {
        let handle = fixture.node.bo(4, 0).unwrap();
        let bind = fixture.map(handle, 0, 0, 4, RW);
        nth.write_at(number.to_string().as_bytes(), 0).unwrap();
        let answer = fixture.bind(bind);
        let mut left = [0; 8];
        // These copies fail as well, if the bind made fewer than `number` allocations.
        let length = nth.read_at(&mut left, 0);
        let _ = nth.write_at(b"0", 0);
        match answer {
            // The kernel also makes copies of the struct fail; at the copy back the bind was done.
            Ok(()) | Err(libc::EFAULT) => fixture.bind(fixture.unmap(0, 4)).unwrap(),
            Err(error) => {
                assert_eq!(error, libc::ENOMEM, "allocation {number}");
                refused += 1;
            }
        }
        fixture.bind(bind).unwrap();
        fixture.bind(fixture.unmap(0, 4)).unwrap();
        fixture.node.close(handle).unwrap();
        // The bind made fewer allocations.
        if length.is_err() || !left.starts_with(b"0") {
            assert_ne!(refused, 0, "of {number}");
            return Outcome::Passed;
        }
    }
    panic!("a bind without end");
}

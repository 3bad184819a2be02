// SPDX-License-Identifier: GPL-2.0
//! PRIME with other drivers: buffers of udmabuf, vgem and dma heaps are imported.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

use tally_uapi::ioctl::{BoInfo, SemFollow, SemWake, bind_flag, follow_kind};
use tally_uapi::packet::{Copy, Header, PostSync, flag, opcode};

use crate::Outcome;
use crate::device::{
    FOREVER, Fixture, Mapped, Node, PAGE, Queue, RW, counter, entry, eventually, nobody_is_left,
    wait,
};
use crate::foreign::{Vgem, heap_buffer, sync_file_of, udmabuf, udmabufs};
use crate::half::{Gone, another, is_pci};
use crate::processes::process;

const NO_UDMABUF: Outcome = Outcome::Skipped("the kernel has no udmabuf");
const NO_VGEM: Outcome = Outcome::Skipped("the kernel has no vgem");
const NO_HEAP: Outcome = Outcome::Skipped("the kernel has no dma heap");
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Words of a page.
const WORDS: usize = PAGE as usize / 8;

/// Waits until all that was used is free: the buffers, and what they were imported from.
fn nothing_is_left() {
    nobody_is_left();
    eventually(|| (counter("buffers"), udmabufs()) == (0, 0));
}

fn copy(fixture: &Fixture, queue: &mut Queue<'_>, from: u64, to: u64, size: u64, done: u64) {
    let flags = flag::ORDERED | flag::POST_SYNC;
    let header = Header { opcode: opcode::COPY, flags, ..Header::default() };
    let post = PostSync { address: queue.cell(0), value: done };
    let (dst, src) = (fixture.va(to), fixture.va(from));
    queue.push(Copy { header, dst, src, size, zero: [0; 2], post });
}

/// Copies pages, and waits for the copy.
fn copied(fixture: &Fixture, queue: &mut Queue<'_>, from: u64, to: u64, pages: u64, done: u64) {
    copy(fixture, queue, from, to, pages * PAGE, done);
    assert_eq!(fixture.wait(&[queue.entry(0, done)], 0, FOREVER), Ok(0));
}

fn fill(memory: &Mapped, pages: usize, seed: u64) {
    for word in 0..pages * WORDS {
        memory.word(word).store(seed + word as u64, Relaxed);
    }
}

fn holds(memory: &Mapped, pages: usize, seed: u64) -> bool {
    (0..pages * WORDS).all(|word| memory.word(word).load(Relaxed) == seed + word as u64)
}

/// "Its memory is the exporter's": four pages that are the same for the exporter, the device and all mappings. `theirs`
/// is the exporter's mapping. With `from_start` processes map it only from its first page on.
fn copies_agree(fd: &OwnedFd, theirs: &Mapped, from_start: bool) {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(100);
    let handle = fixture.node.import(fd.as_raw_fd()).expect("an import");
    let mut info = BoInfo { handle, ..Default::default() };
    fixture.node.call(&mut info).unwrap();
    assert_eq!(info.size, 4 * PAGE);
    fixture.bind(fixture.map(handle, 0, 0, 4, RW)).unwrap();
    let (_, ours) = fixture.memory(10, 4);
    fill(theirs, 4, 1000);
    copied(&fixture, &mut queue, 0, 10, 4, 1);
    assert!(holds(&ours, 4, 1000));
    fill(&ours, 4, 50_000);
    copied(&fixture, &mut queue, 10, 0, 4, 2);
    assert!(holds(theirs, 4, 50_000));
    // The render node maps the same memory, whole and in part.
    let whole = fixture.node.map(handle, BOTH).unwrap();
    assert!(holds(&whole, 4, 50_000));
    let parts = |from: u64, pages: u64| {
        let (at, bytes) = (info.mmap_offset + from * PAGE, pages * PAGE);
        Mapped::new(fixture.node.fd(), at, bytes, BOTH)
    };
    theirs.word(3 * WORDS + 1).store(77, Relaxed);
    if from_start {
        assert_eq!(parts(3, 1).err(), Some(libc::EOPNOTSUPP));
    } else {
        assert_eq!(parts(3, 1).unwrap().word(1).load(Relaxed), 77);
        assert_eq!(parts(3, 2).err(), Some(libc::EINVAL));
    }
    assert_eq!(parts(0, 1).unwrap().word(1).load(Relaxed), 50_001);
    if from_start && !is_pci() {
        assert_eq!(fixture.bind(fixture.map(handle, 2, 20, 2, RW)), Err(libc::EOPNOTSUPP));
        assert_eq!(fixture.bind(fixture.unmap(0, 2)), Err(libc::EOPNOTSUPP));
        fixture.bind(fixture.unmap(2, 2)).unwrap();
    } else {
        // A part of it at another place, beside the rest.
        fixture.bind(fixture.map(handle, 2, 20, 2, RW)).unwrap();
        copied(&fixture, &mut queue, 20, 10, 2, 3);
        assert_eq!(ours.word(WORDS + 1).load(Relaxed), 77);
        // What is cut off is unmapped, and nothing else.
        fixture.bind(fixture.unmap(1, 1)).unwrap();
        fixture.bind(fixture.map(handle, 3, 1, 1, RW)).unwrap();
        copied(&fixture, &mut queue, 1, 11, 1, 4);
        assert_eq!(ours.word(WORDS + 1).load(Relaxed), 77);
        theirs.word(2 * WORDS).store(78, Relaxed);
        copied(&fixture, &mut queue, 2, 12, 1, 5);
        assert_eq!(ours.word(2 * WORDS).load(Relaxed), 78);
    }
    // Its place serves a buffer of ours afterwards.
    fixture.bind(fixture.unmap(0, 4)).unwrap();
    let (_, next) = fixture.memory(0, 4);
    fill(&ours, 4, 3);
    copied(&fixture, &mut queue, 10, 0, 4, 6);
    assert!(holds(&next, 4, 3));
    assert_eq!(theirs.word(3 * WORDS + 1).load(Relaxed), 77);
}

pub fn udmabufs_are_copied_to_and_from() -> Outcome {
    let Some((fd, memory)) = udmabuf(4) else { return NO_UDMABUF };
    copies_agree(&fd, &Mapped::new(memory.as_raw_fd(), 0, 4 * PAGE, BOTH).unwrap(), false);
    Outcome::Passed
}

pub fn vgem_buffers_are_copied_to_and_from() -> Outcome {
    let Some(vgem) = Vgem::open() else { return NO_VGEM };
    let fd = vgem.0.export(vgem.buffer(4)).unwrap();
    copies_agree(&fd, &Mapped::new(fd.as_raw_fd(), 0, 4 * PAGE, BOTH).unwrap(), true);
    Outcome::Passed
}

pub fn heap_buffers_are_copied_to_and_from() -> Outcome {
    let Some(fd) = heap_buffer(4, true) else { return NO_HEAP };
    copies_agree(&fd, &Mapped::new(fd.as_raw_fd(), 0, 4 * PAGE, BOTH).unwrap(), false);
    Outcome::Passed
}

fn inode(fd: RawFd) -> u64 {
    // SAFETY: fills the struct.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(fd, &mut stat), 0);
        stat.st_ino
    }
}

/// "A file has one handle for a buffer, however often it is imported": its own, and those of others. "Exported again it
/// is the dma-buf that was imported."
pub fn an_import_is_the_same_buffer() -> Outcome {
    if udmabuf(1).is_none() {
        return NO_UDMABUF;
    }
    nothing_is_left();
    let (fd, memory) = udmabuf(1).expect("udmabuf");
    let (node, other) = (Node::open(), Node::open());
    let own = node.bo(1, 0).unwrap();
    assert_eq!(node.import(node.export(own).unwrap().as_raw_fd()), Ok(own));
    let handle = node.import(fd.as_raw_fd()).unwrap();
    assert_eq!(node.import(fd.as_raw_fd()), Ok(handle));
    // "the import counts as a buffer of the file that gets the first handle"
    assert_eq!(counter("buffers"), 2);
    let again = node.export(handle).unwrap();
    assert_eq!(inode(again.as_raw_fd()), inode(fd.as_raw_fd()));
    assert_eq!(node.import(again.as_raw_fd()), Ok(handle));
    // To another file it is another buffer, with the same memory.
    let theirs = other.import(again.as_raw_fd()).unwrap();
    assert_eq!(counter("buffers"), 3);
    node.map(handle, BOTH).unwrap().word(5).store(6, Relaxed);
    assert_eq!(other.map(theirs, BOTH).unwrap().word(5).load(Relaxed), 6);
    if let Some(vgem) = Vgem::open() {
        let vgems = vgem.0.import(again.as_raw_fd()).unwrap();
        assert_eq!(inode(vgem.0.export(vgems).unwrap().as_raw_fd()), inode(fd.as_raw_fd()));
    }
    node.close(handle).unwrap();
    let new = node.import(fd.as_raw_fd()).unwrap();
    assert_eq!(node.map(new, BOTH).unwrap().word(5).load(Relaxed), 6);
    drop((node, other, fd, again, memory));
    nothing_is_left();
    Outcome::Passed
}

/// "EINVAL: no dma-buf", and what VM_BIND and the ioctls of cells refuse.
pub fn imports_are_checked() -> Outcome {
    let Some((fd, memory)) = udmabuf(2) else { return NO_UDMABUF };
    let fixture = Fixture::new();
    let node = &fixture.node;
    // No dma-buf, or no file at all.
    assert_eq!(node.import(memory.as_raw_fd()), Err(libc::EINVAL));
    assert_eq!(node.import(node.fd()), Err(libc::EINVAL));
    assert_eq!(node.import(-1), Err(libc::EBADF));
    let handle = node.import(fd.as_raw_fd()).unwrap();
    for (from, pages, flags, error) in [
        (0, 3, RW, libc::EINVAL),
        (1, 2, RW, libc::EINVAL),
        (2, 1, RW, libc::EINVAL),
        (0, 1, bind_flag::READ | bind_flag::EXECUTE, libc::EACCES),
    ] {
        assert_eq!(fixture.bind(fixture.map(handle, from, 0, pages, flags)), Err(error));
    }
    fixture.bind(fixture.map(handle, 0, 0, 2, RW)).unwrap();
    assert_eq!(fixture.bind(fixture.map(handle, 0, 1, 1, RW)), Err(libc::EEXIST));
    // "Cells lie in buffers of the device's own"
    assert_eq!(fixture.wait(&[entry(handle, 0, 1)], 0, 0), Err(libc::EINVAL));
    let kind = follow_kind::SYNC_FILE;
    let mut follow = SemFollow { handle, value: 1, kind, ..Default::default() };
    assert_eq!(node.call(&mut follow), Err(libc::EINVAL));
    // A wake looks at no memory.
    node.call(&mut SemWake { handle, offset: 8, ..Default::default() }).unwrap();
    // A write of a binding that is only read loses the VM, and leaves the memory as it is.
    fixture.bind(fixture.unmap(0, 2)).unwrap();
    fixture.bind(fixture.map(handle, 0, 0, 2, bind_flag::READ)).unwrap();
    let theirs = Mapped::new(memory.as_raw_fd(), 0, 2 * PAGE, BOTH).unwrap();
    let mut queue = fixture.queue(100);
    fixture.memory(10, 1).1.word(0).store(9, Relaxed);
    theirs.word(0).store(3, Relaxed);
    copied(&fixture, &mut queue, 0, 10, 1, 1);
    fixture.memory(11, 1).1.word(0).store(9, Relaxed);
    copy(&fixture, &mut queue, 11, 0, 8, 2);
    assert_eq!(fixture.wait(&[queue.entry(0, 2)], 0, FOREVER), Err(libc::EIO));
    assert_eq!(theirs.word(0).load(Relaxed), 3);
    Outcome::Passed
}

/// "If the file of the dma-buf is open for reading only, the import may be bound READ and mapped PROT_READ, and nothing
/// more: EACCES."
pub fn read_only_imports_are_only_read() -> Outcome {
    let Some(fd) = heap_buffer(1, false) else { return NO_HEAP };
    let fixture = Fixture::new();
    let handle = fixture.node.import(fd.as_raw_fd()).unwrap();
    assert_eq!(fixture.bind(fixture.map(handle, 0, 0, 1, RW)), Err(libc::EACCES));
    assert_eq!(fixture.node.map(handle, BOTH).err(), Some(libc::EACCES));
    let mapped = fixture.node.map(handle, libc::PROT_READ).unwrap();
    assert_eq!(mapped.protect(BOTH), Err(libc::EACCES));
    fixture.bind(fixture.map(handle, 0, 0, 1, bind_flag::READ)).unwrap();
    let mut queue = fixture.queue(100);
    let (_, ours) = fixture.memory(10, 1);
    ours.word(0).store(5, Relaxed);
    copied(&fixture, &mut queue, 0, 10, 1, 1);
    assert_eq!(ours.word(0).load(Relaxed), 0);
    Outcome::Passed
}

/// "It lives until its handles, mappings and bindings are gone, also without the descriptor, the exporter's handle and
/// the process that made it."
pub fn imports_outlive_their_files_and_makers() -> Outcome {
    if udmabuf(1).is_none() {
        return NO_UDMABUF;
    }
    nothing_is_left();
    let (mut read, write) = std::io::pipe().expect("a pipe");
    let child = process(|| {
        let (fd, memory) = udmabuf(2).expect("udmabuf");
        Mapped::new(memory.as_raw_fd(), 0, 2 * PAGE, BOTH).unwrap().word(WORDS).store(41, Relaxed);
        let number = fd.as_raw_fd().to_ne_bytes();
        (&write).write_all(&number).is_ok() && {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
            true
        }
    });
    let mut number = [0; 4];
    read.read_exact(&mut number).expect("its number");
    // SAFETY: numbers; the descriptors are new.
    let fd = unsafe {
        let of = OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, child.pid(), 0) as i32);
        let number = i32::from_ne_bytes(number);
        let fd = libc::syscall(libc::SYS_pidfd_getfd, of.as_raw_fd(), number, 0) as i32;
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    };
    let fixture = Fixture::new();
    let handle = fixture.node.import(fd.as_raw_fd()).unwrap();
    drop(fd);
    child.kill();
    fixture.bind(fixture.map(handle, 0, 0, 2, RW)).unwrap();
    fixture.node.close(handle).unwrap();
    let mut queue = fixture.queue(100);
    let (_, ours) = fixture.memory(10, 1);
    copied(&fixture, &mut queue, 1, 10, 1, 1);
    assert_eq!(ours.word(0).load(Relaxed), 41);
    drop((queue, ours));
    drop(fixture);
    nothing_is_left();
    Outcome::Passed
}

/// A process that has imports bound, and its queue at work on them, is killed.
pub fn importers_are_killed() -> Outcome {
    if udmabuf(1).is_none() {
        return NO_UDMABUF;
    }
    nothing_is_left();
    for _ in 0..3 {
        let (mut read, write) = std::io::pipe().expect("a pipe");
        let child = process(|| {
            let fixture = Fixture::new();
            let mut queue = fixture.queue(1000);
            for index in 0..8 {
                let (fd, _memory) = udmabuf(16).expect("udmabuf");
                let handle = fixture.node.import(fd.as_raw_fd()).unwrap();
                fixture.bind(fixture.map(handle, 0, 16 * index, 16, RW)).unwrap();
            }
            for round in 0..60 {
                copy(&fixture, &mut queue, 0, 64, 64 * PAGE, round);
            }
            (&write).write_all(&[1]).is_ok() && {
                // SAFETY: takes nothing.
                unsafe { libc::pause() };
                true
            }
        });
        read.read_exact(&mut [0]).expect("its word");
        child.kill();
        nothing_is_left();
    }
    Outcome::Passed
}

/// Closing all that names an import while a command uses it ends nothing, because the binding keeps the memory. The
/// end of the binding is a page fault, as for any memory.
pub fn an_import_ends_while_a_command_uses_it() -> Outcome {
    const PAGES: u64 = 2048;
    let Some((fd, memory)) = udmabuf(PAGES) else { return NO_UDMABUF };
    let theirs = Mapped::new(memory.as_raw_fd(), 0, PAGES * PAGE, BOTH).unwrap();
    let fixture = Fixture::new();
    let mut queue = fixture.queue(3 * PAGES);
    let (_, ours) = fixture.memory(PAGES, PAGES);
    let handle = fixture.node.import(fd.as_raw_fd()).unwrap();
    fixture.bind(fixture.map(handle, 0, 0, PAGES, RW)).unwrap();
    fill(&theirs, PAGES as usize, 7);
    for round in 1..20 {
        copy(&fixture, &mut queue, 0, PAGES, PAGES * PAGE, round);
    }
    fixture.node.close(handle).unwrap();
    drop((fd, memory));
    assert_eq!(fixture.wait(&[queue.entry(0, 19)], 0, FOREVER), Ok(0));
    assert!(holds(&ours, PAGES as usize, 7));
    for round in 20..60 {
        copy(&fixture, &mut queue, 0, PAGES, PAGES * PAGE, round);
    }
    fixture.bind(fixture.unmap(0, PAGES)).unwrap();
    // The commands may just have been done.
    let ended = fixture.wait(&[queue.entry(0, 59)], 0, FOREVER);
    assert!(matches!(ended, Ok(0) | Err(libc::EIO)), "{ended:?}");
    eventually(|| udmabufs() == 0);
    Outcome::Passed
}

/// "fences of the dma-buf are neither waited for nor added": a command runs before. "SEM_FOLLOW follows them".
pub fn fences_of_imports_are_not_waited_for() -> Outcome {
    let Some(vgem) = Vgem::open() else { return NO_VGEM };
    let buffer = vgem.buffer(1);
    let fd = vgem.0.export(buffer).unwrap();
    let fence = vgem.attach(buffer);
    let fixture = Fixture::new();
    let handle = fixture.node.import(fd.as_raw_fd()).unwrap();
    fixture.bind(fixture.map(handle, 0, 0, 1, RW)).unwrap();
    let mut queue = fixture.queue(100);
    let (cells, _memory) = fixture.memory(10, 1);
    copied(&fixture, &mut queue, 0, 10, 1, 1);
    let source = sync_file_of(fd.as_raw_fd());
    let (kind, source) = (follow_kind::SYNC_FILE, source.as_raw_fd() as u32);
    let mut follow = SemFollow { handle: cells, value: 1, kind, source, ..Default::default() };
    fixture.node.call(&mut follow).unwrap();
    // vgem may have signalled by itself, after ten seconds.
    let _ = vgem.signal(fence);
    assert_eq!(fixture.wait(&[entry(cells, 0, 1)], 0, FOREVER), Ok(0));
    Outcome::Passed
}

/// "It is mapped for the device from the first binding to the end of the last": however many there are at a time, in
/// several VMs, and again after all have gone.
pub fn imports_are_bound_again() -> Outcome {
    let Some((fd, memory)) = udmabuf(2) else { return NO_UDMABUF };
    let theirs = Mapped::new(memory.as_raw_fd(), 0, 2 * PAGE, BOTH).unwrap();
    let fixture = Fixture::new();
    let mut queue = fixture.queue(1000);
    let (_, ours) = fixture.memory(500, 1);
    let handle = fixture.node.import(fd.as_raw_fd()).unwrap();
    for round in 0..3 {
        for place in 0..20 {
            fixture.bind(fixture.map(handle, place % 2, 3 * place, 1, RW)).unwrap();
        }
        let start = 0x20_0000_0000;
        let second = Fixture::create_vm(&fixture.node, start).unwrap();
        let mut there = fixture.map(handle, 0, 0, 2, bind_flag::READ);
        (there.vm_id, there.address) = (second, start);
        fixture.bind(there).unwrap();
        theirs.word(WORDS).store(round, Relaxed);
        for place in [1, 19] {
            let done = round * 100 + place;
            copied(&fixture, &mut queue, 3 * place, 500, 1, done);
            assert_eq!(ours.word(0).swap(99, Relaxed), round);
        }
        fixture.bind(fixture.unmap(0, 100)).unwrap();
    }
    Outcome::Passed
}

/// The end of the device ends the use of an import by the device. Its memory is its exporter's, and mappings of it
/// stay.
pub fn an_import_ends_with_its_device() -> Outcome {
    let Some((fd, memory)) = udmabuf(2) else { return NO_UDMABUF };
    let theirs = Mapped::new(memory.as_raw_fd(), 0, 2 * PAGE, BOTH).unwrap();
    let fixture = Fixture::new();
    let handle = fixture.node.import(fd.as_raw_fd()).unwrap();
    fixture.bind(fixture.map(handle, 0, 0, 2, RW)).unwrap();
    let mapped = fixture.node.map(handle, BOTH).unwrap();
    let gone = Gone::now();
    assert_eq!(fixture.node.import(fd.as_raw_fd()), Err(libc::ENODEV));
    assert_eq!(fixture.bind(fixture.map(handle, 0, 10, 2, RW)), Err(libc::ENODEV));
    theirs.word(3).store(4, Relaxed);
    assert_eq!(mapped.word(3).load(Relaxed), 4);
    drop((fd, fixture));
    assert_eq!(mapped.word(3).load(Relaxed), 4);
    drop(mapped);
    eventually(|| udmabufs() == 0);
    drop(gone);
    crate::queues::a_signal_arrives();
    Outcome::Passed
}

/// Two GPUs are two drivers to each other.
pub fn another_gpu_has_a_buffer() -> Outcome {
    if is_pci() {
        return Outcome::Skipped("there is one GPU");
    }
    let (running, path) = another();
    let fixture = Fixture::new();
    let there = Fixture::on(Node::open_path(&path));
    let (handle, memory) = fixture.memory(0, 1);
    let fd = fixture.node.export(handle).unwrap();
    let theirs = there.node.import(fd.as_raw_fd()).unwrap();
    there.bind(there.map(theirs, 0, 0, 1, RW)).unwrap();
    let mut queue = there.queue(100);
    let (_, ours) = there.memory(10, 1);
    memory.word(8).store(88, Relaxed);
    copied(&there, &mut queue, 0, 10, 1, 1);
    assert_eq!(ours.word(8).load(Relaxed), 88);
    // The GPU that made it ends, and the memory does not.
    drop((memory, fixture, fd));
    copied(&there, &mut queue, 10, 0, 1, 2);
    assert_eq!(wait(&there.node, 0, &[queue.entry(0, 2)], 0, 0), Ok(0));
    drop((queue, ours));
    drop(there);
    drop(running);
    Outcome::Passed
}

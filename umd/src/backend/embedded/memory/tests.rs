// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;

use tally_uapi::ioctl::bind_flag;

use super::backing::{Anonymous, identity};
use super::*;

fn memory(limit: u64) -> Arc<Memory> {
    Arc::new(Memory::new(limit))
}

fn check_pool(pool: Pool) {
    let memory = memory(1 << 30);
    memory.pools().push(Arc::new(pool));
    let size = 3 * PAGE_SIZE;
    for round in 0..3 {
        let extent = memory.alloc(size, BoUse::Driver, false).unwrap();
        let access = bind_flag::READ | bind_flag::WRITE;
        let one =
            extent.map(Part { offset: 0, size, access, at: None }).unwrap().as_ptr().cast::<u64>();
        let two =
            extent.map(Part { offset: PAGE_SIZE, size: PAGE_SIZE, access, at: None }).unwrap();
        let two = two.as_ptr().cast::<u64>();
        // SAFETY: the mappings are whole, and unmapped at the end.
        unsafe {
            assert_eq!(one.add(512).read_volatile(), 0, "round {round}");
            one.add(512).write_volatile(0x1234);
            assert_eq!(two.read_volatile(), 0x1234);
            libc::munmap(one.cast(), size as usize);
            libc::munmap(two.cast(), PAGE_SIZE as usize);
        }
    }
}

#[test]
fn memory_is_zero_shared_between_mappings_and_zero_again() {
    check_pool(Pool::new(1 << 20).unwrap());
}

#[test]
fn without_memfd_anonymous_memory_does_the_same() {
    let size = 1 << 20;
    let backing = Backing::Anonymous(Anonymous::new(size).unwrap());
    check_pool(Pool::over(backing, size));
}

#[test]
fn freed_extents_join_and_the_limit_is_the_limit() {
    let memory = memory(8 * PAGE_SIZE);
    let parts: Vec<_> =
        (0..8).map(|_| memory.alloc(PAGE_SIZE, BoUse::Driver, false).unwrap()).collect();
    assert_eq!(memory.alloc(PAGE_SIZE, BoUse::Driver, false).map(|_| ()), Err(Errno::NoSpace));
    assert_eq!(
        memory.alloc(u64::MAX - 4095, BoUse::Driver, false).map(|_| ()),
        Err(Errno::NoSpace)
    );
    drop(parts);
    assert!(memory.pools()[0].is_empty());
    assert!(memory.alloc(8 * PAGE_SIZE, BoUse::Driver, false).is_ok());
}

#[test]
fn what_can_be_exported_lies_in_a_file_of_its_own_and_the_drivers_own_cannot() {
    let memory = memory(1 << 30);
    let uses = [BoUse::User, BoUse::User, BoUse::Block, BoUse::Block, BoUse::Shared];
    let extents = uses.map(|it| memory.alloc(3 * PAGE_SIZE, it, false).unwrap());
    let mut files = Vec::new();
    for extent in &extents {
        let shared = extent.share().unwrap();
        let bytes = File::from(shared.file.try_clone().unwrap()).metadata().unwrap().len();
        assert_eq!((shared.offset, shared.size, bytes), (0, 3 * PAGE_SIZE, 3 * PAGE_SIZE));
        files.push(identity(&shared.file).unwrap());
    }
    files.sort_unstable();
    files.dedup();
    assert_eq!(files.len(), uses.len());
    let own = memory.alloc(PAGE_SIZE, BoUse::Driver, false).unwrap();
    assert_eq!(own.share().map(|_| ()), Err(Errno::NotSupported));
    assert_eq!(memory.used(), 10 * PAGE_SIZE, "blocks are counted by who uses them");
    drop((extents, own));
    assert_eq!(memory.used(), 0);
}

#[test]
fn what_is_shared_read_only_cannot_be_mapped_for_writing_by_anybody() {
    let memory = memory(1 << 30);
    let extent = memory.alloc(PAGE_SIZE, BoUse::SharedReadOnly, true).unwrap();
    let both = bind_flag::READ | bind_flag::WRITE;
    let before =
        extent.map(Part { offset: 0, size: PAGE_SIZE, access: both, at: None }).unwrap().as_ptr();
    let copy = import(extent.share().unwrap()).unwrap();
    assert!(copy.is_read_only());
    assert_eq!(
        copy.map(Part { offset: 0, size: PAGE_SIZE, access: both, at: None }).map(|_| ()),
        Err(Errno::NoMemory)
    );
    let view = copy
        .map(Part { offset: 0, size: PAGE_SIZE, access: bind_flag::READ, at: None })
        .unwrap()
        .as_ptr();
    // SAFETY: both mappings are a page long, and unmapped here.
    unsafe {
        before.write_volatile(7);
        assert_eq!(view.read_volatile(), 7);
        libc::munmap(before.cast(), PAGE_SIZE as usize);
        libc::munmap(view.cast(), PAGE_SIZE as usize);
    }
}

#[test]
fn files_that_could_shrink_or_are_too_short_are_not_imported() {
    let memory = memory(1 << 30);
    let extent = memory.alloc(2 * PAGE_SIZE, BoUse::User, false).unwrap();
    let shared = |offset, size| SharedBo { offset, size, ..extent.share().unwrap() };
    assert!(import(shared(PAGE_SIZE, PAGE_SIZE)).is_ok());
    for (offset, size) in [(0, 0), (PAGE_SIZE, 2 * PAGE_SIZE), (1, PAGE_SIZE), (0, 8)] {
        assert_eq!(import(shared(offset, size)).map(|_| ()), Err(Errno::Invalid), "{size}");
    }
    assert_eq!(import(shared(u64::MAX - 4095, PAGE_SIZE)).map(|_| ()), Err(Errno::Invalid));
    let file = std::fs::File::open("/proc/self/exe").unwrap().into();
    let other = SharedBo { file, ..shared(0, PAGE_SIZE) };
    assert_eq!(import(other).map(|_| ()), Err(Errno::Invalid));
}

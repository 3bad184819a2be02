// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the allocator with the embedded kernel, whose memory is real, and with the fake one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::backend::{Backend, embedded};
use crate::space::{self, Space};
use crate::vm::tests::fake;

const HOST: ze_memory_type_t = ze_memory_type_t::ZE_MEMORY_TYPE_HOST;

/// A VM of a device of this process, over a VA reservation of `size` bytes.
fn made(size: u64) -> Arc<Vm> {
    let settings = crate::settings::Settings {
        workers: Some(1),
        memory: Some(1 << 30),
        ..crate::settings::Settings::default()
    };
    let backend: Arc<dyn Backend> = embedded::open(&settings).expect("threads");
    let space = Space::reserve(Some(size), 4096, 1 << 47).expect("addresses");
    Vm::create(&backend, &Arc::new(space)).expect("a VM")
}

fn free(vm: &Vm, base: u64) {
    vm.free(vm.release(base, 1).expect("context 1's"));
}

fn bytes<'a>(base: u64, size: u64) -> &'a mut [u8] {
    // SAFETY: the tests pass memory that they have allocated and that no other thread uses.
    unsafe { std::slice::from_raw_parts_mut(space::pointer(base), size as usize) }
}

#[test]
fn a_freed_block_serves_the_next_allocation_of_its_size_and_is_zero() {
    let vm = made(1 << 30);
    for size in [1, 4096, 5000, 60_000, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 5 << 20] {
        let first = vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room");
        let id = vm.find(first).expect("known").id;
        bytes(first, size).fill(7);
        free(&vm, first);
        assert_eq!((vm.find(first), vm.rest(first)), (None, None), "{size}");
        let again = vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room");
        assert_eq!(again, first, "{size}");
        assert_ne!(vm.find(again).expect("known").id, id, "numbers are never used again");
        assert!(bytes(again, size).iter().all(|&it| it == 0), "{size}");
        free(&vm, again);
    }
}

#[test]
fn what_is_counted_is_what_was_asked_for_in_pages_and_nothing_while_it_rests() {
    let vm = made(1 << 30);
    let before = vm.backend().memory_used();
    let used = || vm.backend().memory_used() - before;
    let all: Vec<u64> = [1, 4097, 65_536, 3 << 20]
        .map(|size| vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room"))
        .into();
    assert_eq!(used(), 4096 + 8192 + 65_536 + (3 << 20));
    all.iter().for_each(|&base| free(&vm, base));
    assert_eq!(used(), 0);
    let all: Vec<u64> =
        (0..300).map(|_| vm.allocate(Source::New, 4096, 1, HOST, 1, None).expect("room")).collect();
    assert_eq!(used(), 300 * 4096);
    assert_eq!(vm.release_all(1).len(), all.len());
    assert_eq!(used(), 0);
}

#[test]
fn memory_can_be_read_to_the_end_of_the_next_granule_and_ends_where_it_was_asked_to() {
    let vm = made(1 << 30);
    for size in [1, 4096, 65_536, 70_000, 98_304, 131_072, 1 << 20, (1 << 20) + 1, 5_000_000] {
        let base = vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room");
        let end = (base + size).next_multiple_of(GRANULE) + GRANULE;
        assert!(bytes(base, end - base).iter().all(|&it| it == 0), "{size}");
        assert_eq!(vm.find(base + size), None, "{size}: it is not the allocation's");
        assert_eq!(vm.rest(base + size - 1), Some(1));
        // Memory that is allocated for export has no file beyond its pages, but is still readable there.
        let file = vm.allocate(Source::ForExport, size, 1, HOST, 1, None).expect("room");
        let end = (file + size).next_multiple_of(GRANULE) + GRANULE;
        assert!(bytes(file, end - file).iter().all(|&it| it == 0), "{size}");
        free(&vm, base);
        free(&vm, file);
    }
}

#[test]
fn a_block_that_another_process_has_got_serves_no_other_allocation() {
    let vm = made(1 << 30);
    for size in [4096, 3 << 20] {
        let first = vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room");
        let found = vm.find(first).expect("known");
        let (shared, hold) = vm.export(first, found.id).expect("a file").expect("it exists");
        bytes(first, size).fill(7);
        free(&vm, first);
        assert!(vm.export(first, found.id).expect("no error").is_none(), "it is freed");
        let importer = vm.import_memory(shared).expect("mapped");
        let again = vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room");
        bytes(again, size).fill(9);
        assert!(bytes(importer.va(), size).iter().all(|&it| it == 7), "{size}");
        free(&vm, again);
        drop((importer, hold));
    }
}

/// Bytes of the pages in a range that are in memory.
fn resident(base: u64, size: u64) -> u64 {
    let mut pages = vec![0_u8; (size / PAGE_SIZE) as usize];
    // SAFETY: writes one byte a page to `pages`.
    let known = unsafe {
        libc::mincore(space::pointer(base).cast(), size as usize, pages.as_mut_ptr()) == 0
    };
    assert!(known, "the addresses are reserved");
    pages.iter().filter(|&&it| it & 1 != 0).count() as u64 * PAGE_SIZE
}

/// Whether the process may read an address.
fn is_readable(address: u64) -> bool {
    let mut byte = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: space::pointer(address).cast(), iov_len: 1 };
    // SAFETY: the system writes at most one byte, to `byte`.
    unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) == 1 }
}

#[test]
fn a_large_block_rests_with_the_pages_that_were_touched_from_its_start_and_cannot_be_accessed() {
    let vm = made(1 << 30);
    for (size, touched) in [(5 << 20, 5 << 20), (40 << 20, 20 << 20), (3 << 20, 4096)] {
        let base = vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room");
        bytes(base, touched).fill(7);
        // A page behind a gap is given back.
        bytes(base + size - 4096, 1)[0] = 7;
        assert!(is_readable(base));
        free(&vm, base);
        assert!(!is_readable(base) && !is_readable(base + size - 1), "{size}");
        let again = vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room");
        assert_eq!((again, resident(base, size)), (base, touched), "{size}");
        assert!(bytes(again, size).iter().all(|&it| it == 0), "{size}");
        free(&vm, again);
    }
}

#[test]
fn resting_blocks_keep_an_eighth_of_the_memory_that_is_not_in_use() {
    const SIZE: u64 = 10 << 20;
    let vm = made(4 << 30);
    let all: Vec<u64> = (0..20)
        .map(|_| vm.allocate(Source::New, SIZE, 1, HOST, 1, None).expect("room"))
        .inspect(|&base| bytes(base, SIZE).fill(7))
        .collect();
    let kept = || all.iter().map(|&base| resident(base, SIZE)).sum::<u64>();
    all.iter().for_each(|&base| free(&vm, base));
    // Of 128 MiB.
    assert_eq!(kept(), 12 * SIZE);
    assert_eq!(resident(all[19], SIZE), SIZE, "the oldest make room");
    let most = vm.allocate(Source::New, 800 << 20, 1, HOST, 1, None).expect("room");
    assert_eq!(kept(), 2 * SIZE, "of 28 MiB");
    free(&vm, most);
    let again = vm.allocate(Source::New, SIZE, 1, HOST, 1, None).expect("room");
    assert_eq!((again, resident(again, SIZE)), (all[19], SIZE));
}

/// Each allocation has one file, as long as its block.
#[test]
fn allocations_share_no_file() {
    use std::os::unix::fs::MetadataExt;
    let vm = made(1 << 30);
    let all: Vec<u64> =
        (0..40).map(|_| vm.allocate(Source::New, 100, 1, HOST, 1, None).expect("room")).collect();
    let mut inodes: Vec<u64> = all
        .iter()
        .map(|&base| {
            let id = vm.find(base).expect("known").id;
            let (shared, _hold) = vm.export(base, id).expect("a file").expect("it exists");
            let facts = std::fs::File::from(shared.file).metadata().expect("a file");
            assert_eq!((shared.offset, shared.size, facts.len()), (0, GRANULE, GRANULE));
            facts.ino()
        })
        .collect();
    inodes.sort_unstable();
    inodes.dedup();
    assert_eq!(inodes.len(), all.len());
    vm.release_all(1);
}

#[test]
fn alignments_are_kept_also_where_blocks_rest() {
    let vm = made(1 << 30);
    for round in 0..3 {
        for align in [1, 4096, 65_536, 1 << 20, 32 << 20] {
            for size in [10, 300_000, 3 << 20] {
                let base = vm.allocate(Source::New, size, align, HOST, 1, None).expect("room");
                assert_eq!(base % align, 0, "round {round}, {align}, {size}");
                free(&vm, base);
            }
        }
    }
}

/// The second-level caches of many processors have sets for 128 KiB: rows of several arrays that lie at multiples of that
/// would compete for one set.
#[test]
fn large_blocks_begin_at_huge_pages_or_at_different_sets_of_a_cache() {
    const SETS: u64 = 128 << 10;
    let vm = made(1 << 30);
    let size = 8 << 20;
    let all = [0; 4].map(|_| vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room"));
    for pair in all.windows(2) {
        match vm.backend().has_huge_pages() {
            true => assert_eq!(pair[0] % HUGE_PAGE, 0),
            false => assert_ne!(pair[0] % SETS, pair[1] % SETS),
        }
    }
    vm.release_all(1);
}

/// Cached blocks are freed when their resources are missing: here addresses.
#[test]
fn what_rests_makes_room_for_what_is_asked_for() {
    let vm = made(256 << 20);
    let all: Vec<u64> = (0..100)
        .map(|_| vm.allocate(Source::New, 1 << 20, 1, HOST, 1, None).expect("room"))
        .collect();
    all.iter().for_each(|&base| free(&vm, base));
    for _ in 0..3 {
        let most =
            vm.allocate(Source::New, 240 << 20, 1, HOST, 1, None).expect("what rests is unmapped");
        free(&vm, most);
        let few = vm.allocate(Source::New, 200 << 20, 1, HOST, 1, None).expect("and this too");
        free(&vm, few);
    }
}

#[test]
fn without_sparse_buffers_each_allocation_is_a_buffer_of_its_pages_and_zeros() {
    let (backend, vm) = fake();
    let base = vm.allocate(Source::New, 5000, 1, HOST, 1, None).expect("room");
    let zeros = (2 * GRANULE - 8192, bind_flag::READ);
    let bound = [base, base + 8192].map(|at| backend.state().bindings.get(&at).copied());
    assert_eq!(bound, [Some((8192, bind_flag::READ | bind_flag::WRITE)), Some(zeros)]);
    free(&vm, base);
    assert!(backend.state().buffers.is_empty() && backend.state().bindings.is_empty());
}

/// A thread's model of an allocation: its size, and the byte that fills it.
struct Known {
    size: u64,
    id: u64,
    fill: u8,
}

/// Pseudo-random numbers, the same for the same seed.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn size_of(random: u64) -> u64 {
    let bits = random % 23;
    1 + (random >> 5) % (1 << bits)
}

/// Threads allocate, free, export and look up memory, some of it allocated by other threads; each has a
/// model of its allocations. Another thread looks up addresses all the while.
#[test]
fn random_operations_of_several_threads_agree_with_a_model() {
    let vm = made(4 << 30);
    let before = vm.backend().memory_used();
    let (done, handed) =
        (AtomicBool::new(false), std::sync::Mutex::new(Vec::<(u64, Known)>::new()));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let (vm, handed) = (&vm, &handed);
                scope.spawn(move || {
                    let mut seed = 1 + thread;
                    let mut model = BTreeMap::<u64, Known>::new();
                    for _ in 0..3_000 {
                        step(vm, &mut seed, &mut model, handed);
                    }
                    let left: u64 = model.values().map(|it| it.size.next_multiple_of(4096)).sum();
                    (model, left)
                })
            })
            .collect();
        let (vm, done) = (&vm, &done);
        scope.spawn(move || {
            let mut seed = 77;
            while !done.load(Ordering::Relaxed) {
                let address = vm.bindings.space.start() + random(&mut seed) % (256 << 20);
                if let Some(found) = vm.find(address) {
                    assert!(address - found.base < found.size && found.context == 1);
                    assert!(found.id != 0 && found.kind == HOST, "no mixture: {found:?}");
                }
            }
        });
        let ends: Vec<_> = workers.into_iter().map(|it| it.join()).collect();
        // Even if a thread has failed: only this ends the other thread.
        done.store(true, Ordering::Relaxed);
        let models: Vec<_> = ends.into_iter().map(|it| it.expect("it agrees")).collect();
        let mut handed = std::mem::take(&mut *handed.lock().expect("no panic"));
        let left = models.iter().map(|it| it.1).sum::<u64>()
            + handed.iter().map(|it| it.1.size.next_multiple_of(4096)).sum::<u64>();
        assert_eq!(vm.backend().memory_used() - before, left);
        for (base, known) in models.into_iter().flat_map(|it| it.0).chain(handed.drain(..)) {
            check(vm, base, &known);
        }
    });
    drop(vm.release_all(1));
    assert_eq!(vm.backend().memory_used(), before);
}

fn check(vm: &Vm, base: u64, known: &Known) {
    let inside = base + known.size / 2;
    let found = vm.find(inside).expect("it is there");
    assert_eq!((found.base, found.size, found.id), (base, known.size, known.id));
    assert_eq!(vm.find(base + known.size).filter(|it| it.base == base), None);
    let (first, last) =
        (bytes(base, known.size)[0], bytes(base, known.size)[known.size as usize - 1]);
    assert_eq!((first, last), (known.fill, known.fill), "nothing else lies there");
}

fn step(
    vm: &Vm,
    seed: &mut u64,
    model: &mut BTreeMap<u64, Known>,
    handed: &std::sync::Mutex<Vec<(u64, Known)>>,
) {
    let any = |model: &BTreeMap<u64, Known>, at: u64| {
        let count = model.len() as u64;
        model.keys().nth((at % count.max(1)) as usize).copied()
    };
    match random(seed) % 8 {
        0..=3 if model.len() < 60 => {
            let (size, align) = (size_of(random(seed)), 1 << (random(seed) % 18));
            let base = vm.allocate(Source::New, size, align, HOST, 1, None).expect("room");
            let memory = bytes(base, size);
            assert!(base.is_multiple_of(align) && memory.iter().all(|&it| it == 0));
            let fill = (random(seed) % 250 + 1) as u8;
            memory.fill(fill);
            let id = vm.find(base).expect("known").id;
            assert!(model.insert(base, Known { size, id, fill }).is_none(), "given out twice");
        }
        0..=5 => {
            let Some(base) = any(model, random(seed)) else { return };
            let known = model.remove(&base).expect("chosen from it");
            check(vm, base, &known);
            free(vm, base);
        }
        6 => {
            // One thread may free memory that another has allocated.
            let mine = any(model, random(seed)).and_then(|it| model.remove_entry(&it));
            let mut handed = handed.lock().expect("no panic");
            handed.extend(mine);
            let theirs = (random(seed).is_multiple_of(2)).then(|| handed.pop()).flatten();
            drop(handed);
            if let Some((base, known)) = theirs {
                check(vm, base, &known);
                free(vm, base);
            }
        }
        _ => {
            let Some(base) = any(model, random(seed)) else { return };
            let shared = vm.export(base, model[&base].id).expect("a file");
            assert!(shared.is_some() && vm.export(base, 0).expect("no error").is_none());
        }
    }
}

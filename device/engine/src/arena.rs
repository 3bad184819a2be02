// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory without system calls: the engine process's heap is a fixed pool in
//! the program's own image, and so below 4 GiB, outside of every VM's window.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::{Allocator, Dlmalloc};

/// Bytes of the pool. Pages that are not used cost nothing.
const POOL_BYTES: usize = 256 << 20;

#[repr(C, align(4096))]
struct Pool(UnsafeCell<MaybeUninit<[u8; POOL_BYTES]>>);

// SAFETY: each part of it is given out once, by an atomic count.
unsafe impl Sync for Pool {}

static POOL: Pool = Pool(UnsafeCell::new(MaybeUninit::zeroed()));
static USED: AtomicUsize = AtomicUsize::new(0);

/// The pool as dlmalloc's only source of memory.
struct Source;

// SAFETY: parts of the pool do not overlap, are page-aligned and never taken
// back.
unsafe impl Allocator for Source {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(self.page_size());
        let fits = |used: usize| used.checked_add(size).filter(|&end| end <= POOL_BYTES);
        match USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(used) => (POOL.0.get().cast::<u8>().wrapping_add(used), size, 0),
            Err(_) => (std::ptr::null_mut(), 0, 0),
        }
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

/// The heap of an engine process.
pub struct Arena(Mutex<Dlmalloc<Source>>);

impl Arena {
    /// The heap, of which a process has one.
    #[allow(clippy::new_without_default, reason = "a second one would share the pool")]
    pub const fn new() -> Self {
        Self(Mutex::new(Dlmalloc::new_with_allocator(Source)))
    }

    fn lock(&self) -> MutexGuard<'_, Dlmalloc<Source>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: dlmalloc keeps the contract, under a lock; its only state is the
// pool, which nothing else uses.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { self.lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { self.lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { self.lock().free(ptr, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { self.lock().realloc(ptr, layout.size(), layout.align(), size) }
    }
}

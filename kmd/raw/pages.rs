// SPDX-License-Identifier: GPL-2.0
//! Pages of buffers and of processes: pinned, mapped for the device, and mapped into processes.

use core::ffi::{c_int, c_ulong, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use kernel::bindings;
use kernel::device::{Bound, Device};
use kernel::drm::gem::{shmem, DriverObject, IntoGEMObject};
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::scatterlist::SGTable;
use kernel::sync::aref::ARef;
use kernel::sync::Mutex;

use super::space::Shown;

// The empty structs that bindgen makes inside kernel structs depend on the configuration only.
#[allow(improper_ctypes)]
extern "C" {
    fn tally_fill_buffer(obj: *mut bindings::drm_gem_object) -> c_int;
    fn tally_page_address(page: *mut bindings::page) -> *mut c_void;
    fn tally_buffer_page(obj: *mut bindings::drm_gem_object, index: usize) -> *mut bindings::page;
    fn tally_put_page(page: *mut bindings::page);
    fn tally_dirty_page(page: *mut bindings::page);
    fn tally_user_pin(
        address: u64,
        count: usize,
        write: bool,
        out: *mut *mut RawUserPages,
    ) -> c_int;
    fn tally_user_map(user: *mut RawUserPages, dev: *mut bindings::device) -> c_int;
    fn tally_user_table(user: *mut RawUserPages) -> *mut bindings::sg_table;
    fn tally_user_array(user: *mut RawUserPages) -> *mut *mut bindings::page;
    fn tally_user_unpin(user: *mut RawUserPages);
    fn tally_null_new(count: c_ulong) -> *mut RawNull;
    fn tally_null_pages(null: *mut RawNull) -> *mut *mut bindings::page;
    fn tally_null_fill(null: *mut RawNull, index: c_ulong) -> c_int;
    fn tally_null_free(null: *mut RawNull);
}

/// The part of its memory that a binding shows: pages by their index in the memory.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// The wanted page.
    pub(crate) index: u64,
    /// The first page of the binding.
    pub(crate) first: u64,
    /// The first page after the binding.
    pub(crate) end: u64,
    /// Whether the device may write.
    pub(crate) write: bool,
    /// Whether the device may execute.
    pub(crate) execute: bool,
}

impl Part {
    /// The shim's description of this part of `pages`, or of zeros if that is NULL.
    fn of(self, pages: *const *mut bindings::page, whole_folios: bool) -> Shown {
        let Self {
            index,
            first,
            end,
            write,
            execute,
        } = self;
        let [index, first, end] = [index, first, end].map(|it| it as c_ulong);
        Shown {
            pages,
            index,
            first,
            end,
            write,
            execute,
            whole_folios,
        }
    }
}

/// Zeros that are only read.
pub(crate) fn zeros(part: Part) -> Shown {
    Part {
        write: false,
        ..part
    }
    .of(core::ptr::null(), false)
}

/// Maps the pages of a buffer for a process.
///
/// # Safety
/// `vma` is an area to be set up, of a file through which the buffer is mapped.
pub(super) unsafe fn map_all<B: DriverObject>(
    bo: &shmem::Object<B>,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: a live shmem object.
    let filled = unsafe { tally_fill_buffer(bo.as_raw()) };
    if filled != 0 {
        return filled;
    }
    // SAFETY: a live shmem object; the caller guarantees that the area is to be set up.
    let mapped = unsafe { bindings::drm_gem_shmem_object_mmap(bo.as_raw(), vma) };
    if mapped == 0 {
        let resv = reservation(bo);
        // SAFETY: the lock of a live object, whose pages the new mapping holds.
        unsafe {
            bindings::dma_resv_lock(resv, core::ptr::null_mut());
            keep_content(bo);
            bindings::dma_resv_unlock(resv);
        }
    }
    mapped
}

/// Has the content of the buffer's pages kept when the pages are not in use any more. The kernel
/// may drop pages that it believes were not written, and it does not see the device's writes.
///
/// # Safety
/// The caller holds the buffer's lock, and its pages are in use.
unsafe fn keep_content<B: DriverObject>(bo: &shmem::Object<B>) {
    // SAFETY: a live shmem object; the field is protected by the lock.
    unsafe { (*base(bo)).set_pages_mark_dirty_on_put(true) };
}

/// The C object of a buffer.
fn base<B: DriverObject>(bo: &shmem::Object<B>) -> *mut bindings::drm_gem_shmem_object {
    // SAFETY: the GEM object is part of a shmem object.
    unsafe { kernel::container_of!(bo.as_raw(), bindings::drm_gem_shmem_object, base) }
}

/// The lock of a buffer.
fn reservation<B: DriverObject>(bo: &shmem::Object<B>) -> *mut bindings::dma_resv {
    // SAFETY: a live object; the field was set when it was made.
    unsafe { (*bo.as_raw()).resv }
}

/// A buffer all of whose pages are pinned.
///
/// The abstraction pins only together with a DMA mapping, which ends at unbind.
pub(crate) struct PinnedBo<B: DriverObject>(ARef<shmem::Object<B>>);

/// Allocates all pages of a buffer. That takes long for a large one: the caller holds nothing that other
/// threads wait for.
///
/// # Errors
/// ENOMEM; EINTR: killed; ENODEV: unbound meanwhile.
pub(crate) fn fill<B: DriverObject>(bo: &shmem::Object<B>) -> Result {
    // SAFETY: a live shmem object.
    to_result(unsafe { tally_fill_buffer(bo.as_raw()) })
}

impl<B: DriverObject> PinnedBo<B> {
    /// Pins a buffer that was filled. Pages that are missing nevertheless are allocated here, and signals do not
    /// interrupt that.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(bo: ARef<shmem::Object<B>>) -> Result<Self> {
        let (base, resv) = (base(&bo), reservation(&bo));
        // `drm_gem_shmem_pin` would answer EINTR to any signal while another thread holds
        // the lock, which the uapi excludes.
        // SAFETY: a live shmem object that was not imported, and its own lock.
        let pinned = unsafe {
            bindings::dma_resv_lock(resv, core::ptr::null_mut());
            let pinned = bindings::drm_gem_shmem_pin_locked(base);
            if pinned == 0 {
                keep_content(&bo);
            }
            bindings::dma_resv_unlock(resv);
            pinned
        };
        to_result(pinned)?;
        Ok(Self(bo))
    }

    /// The buffer.
    pub(crate) fn bo(&self) -> &shmem::Object<B> {
        &self.0
    }

    /// The pages that a binding of it shows. `part` lies within the buffer.
    pub(crate) fn shown(&self, part: Part) -> Shown {
        // SAFETY: a live shmem object, whose array of pages stays as long as they are pinned.
        part.of(unsafe { (*base(&self.0)).pages }, true)
    }
}

impl<B: DriverObject> Drop for PinnedBo<B> {
    fn drop(&mut self) {
        // The object's own callback leaves the lock to its caller; this one takes it.
        // SAFETY: pinned by `new`.
        unsafe { bindings::drm_gem_shmem_unpin(base(&self.0)) };
    }
}

/// A word of a buffer, in a page that stays in place. The buffer's other pages need not be allocated.
pub(crate) struct PinnedWord {
    page: NonNull<bindings::page>,
    word: NonNull<u64>,
}

// SAFETY: the word is accessed by atomics only, and the reference to its page is counted.
unsafe impl Send for PinnedWord {}
// SAFETY: as above.
unsafe impl Sync for PinnedWord {}

impl PinnedWord {
    /// The word at `offset`.
    ///
    /// # Errors
    /// EINVAL: beyond the buffer, or not aligned, or the buffer has no pages of its own. ENOMEM. EINTR: killed.
    pub(crate) fn new<B: DriverObject>(bo: &shmem::Object<B>, offset: u64) -> Result<Self> {
        let offset = usize::try_from(offset).map_err(|_| EINVAL)?;
        // SAFETY: a live object.
        if offset % 8 != 0 || offset >= unsafe { (*bo.as_raw()).size } {
            return Err(EINVAL);
        }
        // SAFETY: a live shmem object, and a page of it.
        let page = from_err_ptr(unsafe { tally_buffer_page(bo.as_raw(), offset >> 12) })?;
        let page = NonNull::new(page).ok_or(ENOMEM)?;
        // SAFETY: a page in use; on x86-64 all memory is mapped.
        let address = unsafe { tally_page_address(page.as_ptr()) }.cast::<u8>();
        // SAFETY: within the page.
        let word = NonNull::new(unsafe { address.add(offset & 0xfff) }.cast()).ok_or(EFAULT)?;
        Ok(Self { page, word })
    }

    /// The word's value.
    pub(crate) fn load(&self) -> u64 {
        // SAFETY: the word is aligned, and in a page that stays. All concurrent writers use whole aligned
        // stores.
        let word = unsafe { AtomicU64::from_ptr(self.word.as_ptr()) };
        word.load(Ordering::Acquire)
    }

    /// Stores `value`. May sleep.
    pub(crate) fn store(&self, value: u64) {
        // SAFETY: as in `load`.
        let word = unsafe { AtomicU64::from_ptr(self.word.as_ptr()) };
        word.store(value, Ordering::Release);
        self.keep();
    }

    /// Stores `value` unless the word holds a larger one, and orders all earlier writes before that. May sleep.
    pub(crate) fn raise(&self, value: u64) {
        // SAFETY: as in `load`.
        let word = unsafe { AtomicU64::from_ptr(self.word.as_ptr()) };
        word.fetch_max(value, Ordering::SeqCst);
        self.keep();
    }

    /// Has what was stored kept when the buffer is not in use.
    fn keep(&self) {
        // SAFETY: the page is ours to use, and not locked by the caller.
        unsafe { tally_dirty_page(self.page.as_ptr()) };
    }
}

impl Drop for PinnedWord {
    fn drop(&mut self) {
        // SAFETY: the reference of `new`.
        unsafe { tally_put_page(self.page.as_ptr()) };
    }
}

/// The table of a buffer's pages for the device. It is made once, and kept until unbind.
///
/// If the abstraction has made the table and then finds no memory to remember it, it frees the table
/// but not the table's reference to the pages. So this function makes the table, and drops that reference
/// on such a failure. `alone` is the buffer's own lock: with two callers at a time the table that is
/// missing afterwards need not be the one that was there before.
///
/// # Errors
/// ENOMEM. EINTR: a signal arrived while another thread held the buffer's lock.
pub(crate) fn sg_table<'a, B: DriverObject>(
    bo: &'a shmem::Object<B>,
    dev: &'a Device<Bound>,
    alone: &Mutex<()>,
) -> Result<&'a SGTable> {
    let base = base(bo);
    let _alone = alone.lock();
    // SAFETY: a live shmem object that was not imported.
    from_err_ptr(unsafe { bindings::drm_gem_shmem_get_pages_sgt(base) })?;
    bo.sg_table(dev).inspect_err(|_| {
        let resv = reservation(bo);
        // SAFETY: a live object and its lock. The table had a reference to the pages, which stay in
        // use as long as that reference exists.
        unsafe {
            bindings::dma_resv_lock(resv, core::ptr::null_mut());
            if (*base).sgt.is_null() {
                bindings::drm_gem_shmem_put_pages_locked(base);
            }
            bindings::dma_resv_unlock(resv);
        }
    })
}

#[repr(C)]
struct RawUserPages {
    private: [u8; 0],
}

/// Pages of a process, pinned and accounted.
pub(crate) struct PinnedUser(NonNull<RawUserPages>);

// SAFETY: the shim's object may be used and freed by any thread.
unsafe impl Send for PinnedUser {}
// SAFETY: only `UserPages::map` changes it, and it owns the value.
unsafe impl Sync for PinnedUser {}

impl PinnedUser {
    /// Pins `count` pages of the calling process from `address`. Any process or file system may have to provide
    /// the memory, so this may take any time: the caller holds nothing that other threads wait for.
    ///
    /// # Errors
    /// EFAULT: no memory there, or not writable. ENOSPC: RLIMIT_MEMLOCK. ENOMEM, EINTR.
    pub(crate) fn new(address: u64, count: usize, write: bool) -> Result<Self> {
        let mut out = core::ptr::null_mut();
        // SAFETY: `out` is a place for the result; the shim checks the address.
        to_result(unsafe { tally_user_pin(address, count, write, &mut out) })?;
        NonNull::new(out).map(Self).ok_or(ENOMEM)
    }
}

impl PinnedUser {
    /// The pages that a binding of them shows. `part` lies within them.
    pub(crate) fn shown(&self, part: Part) -> Shown {
        // A folio of a process may be mapped in any order.
        // SAFETY: a live object of the shim's.
        part.of(unsafe { tally_user_array(self.0.as_ptr()) }, false)
    }
}

impl Drop for PinnedUser {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used after this.
        unsafe { tally_user_unpin(self.0.as_ptr()) };
    }
}

/// Pages of a process, mapped for the device as long as this lives.
pub(crate) struct UserPages(PinnedUser);

impl UserPages {
    /// # Errors
    /// ENOMEM and others: they cannot be mapped.
    pub(crate) fn map(pinned: PinnedUser, dev: &Device<Bound>) -> Result<Self> {
        // `Device` is a transparent wrapper.
        let dev = core::ptr::from_ref(dev)
            .cast::<bindings::device>()
            .cast_mut();
        // SAFETY: a bound device, and pages that are not mapped yet, since this owns them.
        to_result(unsafe { tally_user_map(pinned.0.as_ptr(), dev) })?;
        Ok(Self(pinned))
    }

    /// The pages' bus addresses.
    pub(crate) fn table(&self) -> &SGTable {
        // SAFETY: the table is mapped; it lives and stays as it is until `drop`.
        unsafe { SGTable::from_raw(tally_user_table(self.0 .0.as_ptr())) }
    }
}

#[repr(C)]
struct RawNull {
    private: [u8; 0],
}

/// Memory that no buffer owns. It is zero at first, and allocated page by page.
pub(crate) struct NullPages(NonNull<RawNull>);

// SAFETY: the shim's object may be used and freed by any thread.
unsafe impl Send for NullPages {}
// SAFETY: entries are set atomically, and cleared only on drop.
unsafe impl Sync for NullPages {}

impl NullPages {
    /// Room for `count` pages, which will be charged to the caller's cgroup.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(count: u64) -> Result<Self> {
        // SAFETY: takes a number.
        NonNull::new(unsafe { tally_null_new(count as c_ulong) })
            .map(Self)
            .ok_or(ENOMEM)
    }

    fn array(&self) -> *mut *mut bindings::page {
        // SAFETY: a live object of the shim's.
        unsafe { tally_null_pages(self.0.as_ptr()) }
    }

    /// The pages that a binding shows, if the wanted page is allocated. `part` lies within the memory.
    pub(crate) fn shown(&self, part: Part) -> Option<Shown> {
        // SAFETY: within the array, whose entries are written atomically.
        let page = unsafe { AtomicPtr::from_ptr(self.array().add(part.index as usize)) };
        (!page.load(Ordering::Acquire).is_null()).then(|| part.of(self.array(), false))
    }

    /// Allocates page `index`, if it is missing. The caller holds no lock that a process could wait for while it
    /// holds memory.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn fill(&self, index: u64) -> Result {
        // SAFETY: a live object of the shim's; the caller guarantees that `index` is within the array.
        to_result(unsafe { tally_null_fill(self.0.as_ptr(), index as c_ulong) })
    }
}

impl Drop for NullPages {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and no binding shows it any more.
        unsafe { tally_null_free(self.0.as_ptr()) };
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Pages of buffers and of processes: pinned, as the device sees them, and mapped.

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

// bindgen's empty structs inside of the kernel's are an artefact of configuration.
#[allow(improper_ctypes)]
extern "C" {
    fn tally_fill_buffer(obj: *mut bindings::drm_gem_object) -> c_int;
    fn tally_page_address(page: *mut bindings::page) -> *mut c_void;
    fn tally_buffer_page(obj: *mut bindings::drm_gem_object, index: usize) -> *mut bindings::page;
    fn tally_put_page(page: *mut bindings::page);
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

/// What a binding shows of the memory behind it: pages by their number there.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// The page that is meant.
    pub(crate) index: u64,
    /// The first page of the binding.
    pub(crate) first: u64,
    /// The first page behind it.
    pub(crate) end: u64,
    /// Whether the device may write.
    pub(crate) write: bool,
    /// Whether the device may execute.
    pub(crate) execute: bool,
}

impl Part {
    /// Of these pages, or of zeros where there are none.
    fn of(self, pages: *const *mut bindings::page, whole_folios: bool) -> Shown {
        let Self { index, first, end, write, execute } = self;
        let [index, first, end] = [index, first, end].map(|it| it as c_ulong);
        Shown { pages, index, first, end, write, execute, whole_folios }
    }
}

/// Zeros that are only read.
pub(crate) fn zeros(part: Part) -> Shown {
    Part { write: false, ..part }.of(core::ptr::null(), false)
}

/// The pages of a buffer, mapped by a process.
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
    // SAFETY: a live shmem object, and as the caller says.
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

/// Has the buffer's pages kept when nobody uses them any more. The kernel may drop pages that
/// it thinks nobody has written, and the device's writes it does not see.
///
/// # Safety
/// The caller has the buffer's lock, and its pages are in use.
unsafe fn keep_content<B: DriverObject>(bo: &shmem::Object<B>) {
    // SAFETY: a live shmem object; the field is protected by the lock.
    unsafe { (*base(bo)).set_pages_mark_dirty_on_put(true) };
}

/// The C object of a buffer.
fn base<B: DriverObject>(bo: &shmem::Object<B>) -> *mut bindings::drm_gem_shmem_object {
    // SAFETY: a shmem object, in which the GEM object is.
    unsafe { kernel::container_of!(bo.as_raw(), bindings::drm_gem_shmem_object, base) }
}

/// The lock of a buffer.
fn reservation<B: DriverObject>(bo: &shmem::Object<B>) -> *mut bindings::dma_resv {
    // SAFETY: a live object; set when it was made.
    unsafe { (*bo.as_raw()).resv }
}

/// A buffer whose pages stay where they are, all of them.
///
/// The abstraction pins only with a DMA mapping, which is undone at unbind.
pub(crate) struct PinnedBo<B: DriverObject>(ARef<shmem::Object<B>>);

/// Has memory for all pages of a buffer. For a large one that takes long: the caller holds nothing that
/// others wait for.
///
/// # Errors
/// ENOMEM; EINTR: killed; ENODEV: unbound meanwhile.
pub(crate) fn fill<B: DriverObject>(bo: &shmem::Object<B>) -> Result {
    // SAFETY: a live shmem object.
    to_result(unsafe { tally_fill_buffer(bo.as_raw()) })
}

impl<B: DriverObject> PinnedBo<B> {
    /// Of a buffer that was filled: what is missing nevertheless is had here, and no signal heard.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(bo: ARef<shmem::Object<B>>) -> Result<Self> {
        let (base, resv) = (base(&bo), reservation(&bo));
        // `drm_gem_shmem_pin` would answer EINTR to any signal while another thread has
        // the lock, and the uapi promises otherwise.
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

    /// What a binding of it shows. The buffer is as long as `part` says.
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

/// A word of a buffer, whose page stays where it is. The buffer's other pages need not be there.
pub(crate) struct PinnedWord {
    page: NonNull<bindings::page>,
    word: NonNull<u64>,
}

// SAFETY: memory that is used by atomics only, and a reference to its page.
unsafe impl Send for PinnedWord {}
// SAFETY: as above.
unsafe impl Sync for PinnedWord {}

impl PinnedWord {
    /// The word at `offset`.
    ///
    /// # Errors
    /// EINVAL: beyond the buffer, or not aligned. ENOMEM. EINTR: killed.
    pub(crate) fn new<B: DriverObject>(bo: &shmem::Object<B>, offset: u64) -> Result<Self> {
        let offset = usize::try_from(offset).map_err(|_| EINVAL)?;
        // SAFETY: a live object.
        if offset % 8 != 0 || offset >= unsafe { (*bo.as_raw()).size } {
            return Err(EINVAL);
        }
        // SAFETY: a live shmem object, and a page of it.
        let page = from_err_ptr(unsafe { tally_buffer_page(bo.as_raw(), offset >> 12) })?;
        let page = NonNull::new(page).ok_or(ENOMEM)?;
        // SAFETY: a page in use; x86-64 has all memory mapped.
        let address = unsafe { tally_page_address(page.as_ptr()) }.cast::<u8>();
        // SAFETY: within the page.
        let word = NonNull::new(unsafe { address.add(offset & 0xfff) }.cast()).ok_or(EFAULT)?;
        Ok(Self { page, word })
    }

    /// What it holds.
    pub(crate) fn load(&self) -> u64 {
        // SAFETY: the word is aligned, and in a page that stays. Everybody who changes it while we look
        // does so with whole aligned stores.
        let word = unsafe { AtomicU64::from_ptr(self.word.as_ptr()) };
        word.load(Ordering::Acquire)
    }
}

impl Drop for PinnedWord {
    fn drop(&mut self) {
        // SAFETY: the reference of `new`.
        unsafe { tally_put_page(self.page.as_ptr()) };
    }
}

/// A buffer's pages as the device sees them; made once, and kept until unbind.
///
/// When the abstraction has made the table and then finds no memory to remember it, it frees the table
/// but not the reference to the pages that came with it. So the table is made here, and that
/// reference is ours. `alone` is the buffer's own: with two at a time the table that is missing
/// afterwards need not be the one that was there.
///
/// # Errors
/// ENOMEM. EINTR: a signal came while another thread had the buffer's lock.
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
        // SAFETY: a live object and its lock. The table had a reference to the pages, which are
        // used as long as that is there.
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
// SAFETY: nothing changes it but `UserPages::map`, which owns it.
unsafe impl Sync for PinnedUser {}

impl PinnedUser {
    /// Pins `count` pages of the calling process from `address`. The memory may be anybody's to provide,
    /// so this may take any time: the caller holds nothing that others wait for.
    ///
    /// # Errors
    /// EFAULT: no memory there, or not writable. ENOSPC: RLIMIT_MEMLOCK. ENOMEM, EINTR.
    pub(crate) fn new(address: u64, count: usize, write: bool) -> Result<Self> {
        let mut out = core::ptr::null_mut();
        // SAFETY: a place for the result; any address will do.
        to_result(unsafe { tally_user_pin(address, count, write, &mut out) })?;
        NonNull::new(out).map(Self).ok_or(ENOMEM)
    }
}

impl PinnedUser {
    /// What a binding of them shows. They are as many as `part` says.
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
        let dev = core::ptr::from_ref(dev).cast::<bindings::device>().cast_mut();
        // SAFETY: a bound device, and pages that are not mapped yet, since this owns them.
        to_result(unsafe { tally_user_map(pinned.0.as_ptr(), dev) })?;
        Ok(Self(pinned))
    }

    /// Where the pages are.
    pub(crate) fn table(&self) -> &SGTable {
        // SAFETY: the table is mapped; it lives and stays as it is until `drop`.
        unsafe { SGTable::from_raw(tally_user_table(self.0 .0.as_ptr())) }
    }
}

#[repr(C)]
struct RawNull {
    private: [u8; 0],
}

/// Memory that no buffer owns; it begins as zero, and comes page by page.
pub(crate) struct NullPages(NonNull<RawNull>);

// SAFETY: the shim's object may be used and freed by any thread.
unsafe impl Send for NullPages {}
// SAFETY: places are filled atomically, and emptied at the end only.
unsafe impl Sync for NullPages {}

impl NullPages {
    /// Room for `count` pages, which the caller's cgroup will pay for.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(count: u64) -> Result<Self> {
        // SAFETY: takes a number.
        NonNull::new(unsafe { tally_null_new(count as c_ulong) }).map(Self).ok_or(ENOMEM)
    }

    fn array(&self) -> *mut *mut bindings::page {
        // SAFETY: a live object of the shim's.
        unsafe { tally_null_pages(self.0.as_ptr()) }
    }

    /// What a binding shows, if the page is there. It is as long as `part` says.
    pub(crate) fn shown(&self, part: Part) -> Option<Shown> {
        // SAFETY: within the array, which is written atomically.
        let page = unsafe { AtomicPtr::from_ptr(self.array().add(part.index as usize)) };
        (!page.load(Ordering::Acquire).is_null()).then(|| part.of(self.array(), false))
    }

    /// Has page `index` there. The caller holds no lock that a process could wait for while it holds memory.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn fill(&self, index: u64) -> Result {
        // SAFETY: a live object of the shim's; within the array, as the caller says.
        to_result(unsafe { tally_null_fill(self.0.as_ptr(), index as c_ulong) })
    }
}

impl Drop for NullPages {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not shown any more.
        unsafe { tally_null_free(self.0.as_ptr()) };
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Files whose mappings show what is bound in a VM: offset is VA. And memory that the kernel shares with a
//! process. The kernel crate has neither faults nor anonymous files.

use core::ffi::{c_int, c_uint, c_ulong, c_void};
use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::from_err_ptr;
use kernel::fs::File;
use kernel::mm::virt::VmaNew;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

/// `struct tally_shown` of the shim: what is bound at a page.
#[repr(C)]
pub(crate) struct Shown {
    pub(super) pages: *const *mut bindings::page,
    pub(super) index: c_ulong,
    pub(super) first: c_ulong,
    pub(super) end: c_ulong,
    pub(super) write: bool,
    pub(super) execute: bool,
    pub(super) whole_folios: bool,
}

// bindgen's empty structs inside of the kernel's are an artefact of configuration.
#[allow(improper_ctypes)]
extern "C" {
    fn tally_fs_pin() -> c_int;
    fn tally_fs_unpin();
    fn tally_space_file(
        fops: *const bindings::file_operations,
        data: *mut c_void,
    ) -> *mut bindings::file;
    fn tally_space_zap(file: *mut bindings::file, start: u64, bytes: u64);
    fn tally_space_map(vma: *mut bindings::vm_area_struct);
    fn tally_space_show(
        vmf: *mut bindings::vm_fault,
        order: c_uint,
        shown: *const Shown,
    ) -> bindings::vm_fault_t;
    fn tally_area_new(bytes: c_ulong) -> *mut c_void;
    fn tally_area_map(vma: *mut bindings::vm_area_struct, area: *mut c_void) -> c_int;
    fn tally_area_free(area: *mut c_void);
    fn tally_area_page(area: *mut c_void, offset: c_ulong) -> *mut bindings::page;
    fn tally_put_page(page: *mut bindings::page);
    /// The module whose code this is, which its files keep. The linker makes it.
    static __this_module: bindings::module;
}

const PAGE: usize = tally_uapi::PAGE_SIZE as usize;
const SIGBUS: bindings::vm_fault_t = bindings::vm_fault_reason_VM_FAULT_SIGBUS;
const NOPAGE: bindings::vm_fault_t = bindings::vm_fault_reason_VM_FAULT_NOPAGE;

/// What is bound in a VM.
pub(crate) trait Bound: Send + Sync + 'static {
    /// Calls `show` with what is bound at the page at `va`, which stays so until `show` has returned. False if
    /// nothing is, or there is no memory for it. Called with a process's mmap lock held.
    fn with_page(&self, va: u64, show: &mut dyn FnMut(&Shown)) -> bool;
}

/// Memory of the kernel's that processes can map.
pub(crate) struct Area {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: it is memory, and used by volatile and atomic accesses only.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Whole pages, all zero.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        // SAFETY: takes a number.
        let start = unsafe { tally_area_new(bytes as c_ulong) };
        Ok(Self { start: NonNull::new(start).ok_or(ENOMEM)?, bytes })
    }

    /// Where `bytes` bytes at `offset` are, page-aligned as `offset` is.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Option<NonNull<u64>> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: within the memory.
        (end <= self.bytes).then(|| unsafe { self.start.byte_add(offset) }.cast())
    }

    /// Maps a part of it, which outlives it then.
    ///
    /// # Errors
    /// EINVAL: beyond its end, or private, or executable. ENOMEM.
    pub(crate) fn map(&self, vma: &VmaNew) -> Result {
        if vma.flags() & bindings::VM_SHARED == 0 {
            return Err(EINVAL);
        }
        vma.try_clear_mayexec()?;
        // SAFETY: an area to be set up, and memory of the kind that can be mapped so.
        kernel::error::to_result(unsafe { tally_area_map(vma.as_ptr(), self.start.as_ptr()) })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: made by `new`. Mappings have references to its pages.
        unsafe { tally_area_free(self.start.as_ptr()) };
    }
}

/// A reference to a page of an [`Area`].
struct SharedPage(NonNull<bindings::page>);

// SAFETY: a counted reference.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    fn of(area: &Area, offset: usize) -> Result<Self> {
        area.part(offset, PAGE).ok_or(EINVAL)?;
        // SAFETY: within the area. It comes with a reference.
        let page = unsafe { tally_area_page(area.start.as_ptr(), offset as c_ulong) };
        Ok(Self(NonNull::new(page).ok_or(ENOMEM)?))
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: the reference of `of`.
        unsafe { tally_put_page(self.0.as_ptr()) };
    }
}

/// A process, only to be compared with others while the file lives that it opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(usize);

impl Process {
    /// The calling one.
    pub(crate) fn current() -> Self {
        // SAFETY: the calling task.
        Self(unsafe { (*bindings::get_current()).mm }.addr())
    }
}

/// Keeps the file system of VMs' files, which can be made while this lives.
pub(crate) struct Files(());

impl Files {
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: has no requirements.
        kernel::error::to_result(unsafe { tally_fs_pin() })?;
        Ok(Self(()))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // SAFETY: pinned by `new`.
        unsafe { tally_fs_unpin() };
    }
}

/// What the file of a VM holds.
struct View<B> {
    bound: Arc<B>,
    /// What can be mapped at offset 0.
    waiters: SharedPage,
    /// Who may not map it.
    except: Process,
}

/// The file of a VM. Its mappings show what is bound; they do not keep it bound.
pub(crate) struct Space<B> {
    file: ARef<File>,
    _of: PhantomData<fn(B)>,
}

impl<B: Bound> Space<B> {
    const FILE: bindings::file_operations = bindings::file_operations {
        owner: (&raw const __this_module).cast_mut(),
        mmap: Some(mmap::<B>),
        release: Some(release::<B>),
        ..pin_init::zeroed()
    };

    const AREA: bindings::vm_operations_struct = bindings::vm_operations_struct {
        fault: Some(fault::<B>),
        huge_fault: Some(huge_fault::<B>),
        pfn_mkwrite: Some(pfn_mkwrite::<B>),
        ..pin_init::zeroed()
    };

    /// A file for what is bound, with a page of `area` for readers, which all but `except` may map.
    ///
    /// # Errors
    /// ENOMEM, ENFILE.
    pub(crate) fn new(
        _files: &Files,
        bound: Arc<B>,
        area: &Area,
        offset: usize,
        except: Process,
    ) -> Result<Self> {
        let view = KBox::new(
            View { bound, waiters: SharedPage::of(area, offset)?, except },
            GFP_KERNEL_ACCOUNT,
        )?;
        let view = KBox::into_raw(view);
        // SAFETY: the table is static, and the file system there. The file owns the view, from which `release` frees it.
        let file = from_err_ptr(unsafe { tally_space_file(&Self::FILE, view.cast()) })
            .inspect_err(|_| {
                // SAFETY: there is no file that could have taken it.
                drop(unsafe { KBox::from_raw(view) });
            })?;
        let file = NonNull::new(file).ok_or(ENOMEM)?;
        // SAFETY: a new file with one reference, which is ours; no call on it is going on.
        Ok(Self { file: unsafe { ARef::from_raw(file.cast()) }, _of: PhantomData })
    }

    /// The file itself.
    pub(crate) fn file(&self) -> ARef<File> {
        self.file.clone()
    }

    /// Takes what is shown in a range out of all mappings. The caller sees to it that nothing of it is
    /// shown again meanwhile.
    pub(crate) fn zap(&self, start: u64, bytes: u64) {
        // SAFETY: a live file of ours.
        unsafe { tally_space_zap(self.file.as_ptr(), start, bytes) };
    }
}

/// # Safety
/// For the kernel alone: the last reference to a file of [`Space::new`] goes.
unsafe extern "C" fn release<B: Bound>(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: `Space::new` has put it there, and nobody else takes it out.
    drop(unsafe { KBox::from_raw((*file).private_data.cast::<View<B>>()) });
    0
}

/// # Safety
/// For the kernel alone: an area of a file of [`Space::new`] is to be set up.
unsafe extern "C" fn mmap<B: Bound>(
    file: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: the file has its view as long as it lives.
    let view = unsafe { &*(*file).private_data.cast::<View<B>>() };
    // SAFETY: as we were called.
    let area = unsafe { VmaNew::from_raw(vma) };
    let shared = area.flags() & bindings::VM_SHARED != 0;
    if view.except == Process::current() {
        return EPERM.to_errno();
    }
    if !shared || area.writable() && area.executable() {
        return EINVAL.to_errno();
    }
    // Nor does it become both later, by mprotect.
    let kept = match area.executable() {
        true => area.try_clear_maywrite(),
        false => area.try_clear_mayexec(),
    };
    if let Err(error) = kept {
        return error.to_errno();
    }
    // SAFETY: as we were called.
    if unsafe { (*vma).vm_pgoff } != 0 {
        // SAFETY: an area to be set up, whose flags and operations are ours to choose.
        unsafe {
            tally_space_map(vma);
            (*vma).vm_ops = &Space::<B>::AREA;
        }
        return 0;
    }
    if area.end() - area.start() != PAGE || area.writable() {
        return EINVAL.to_errno();
    }
    area.set_dontcopy();
    let result = area.try_clear_maywrite().and_then(|()| area.try_clear_mayexec());
    // SAFETY: a new area of one page, and a page that can be mapped so.
    let insert = || unsafe { bindings::vm_insert_page(vma, area.start(), view.waiters.0.as_ptr()) };
    match result {
        Ok(()) => insert(),
        Err(error) => error.to_errno(),
    }
}

/// # Safety
/// For the kernel alone: a fault in an area of a file of [`Space::new`].
unsafe extern "C" fn fault<B: Bound>(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: as we were called.
    unsafe { huge_fault::<B>(vmf, 0) }
}

/// # Safety
/// As [`fault`].
unsafe extern "C" fn huge_fault<B: Bound>(
    vmf: *mut bindings::vm_fault,
    order: c_uint,
) -> bindings::vm_fault_t {
    let mut result = SIGBUS;
    // SAFETY: as we were called.
    let (view, va) = unsafe { of_fault::<B>(vmf) };
    // SAFETY: as we were called; the page is bound, and has memory, until this returns.
    view.bound.with_page(va, &mut |shown| result = unsafe { tally_space_show(vmf, order, shown) });
    result
}

/// The first write to a page that is shown to be read only. Such a page was bound so, or shown to an area that
/// was for reading at that time.
///
/// # Safety
/// As [`fault`].
unsafe extern "C" fn pfn_mkwrite<B: Bound>(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let mut result = SIGBUS;
    // SAFETY: as we were called.
    let (view, va) = unsafe { of_fault::<B>(vmf) };
    view.bound.with_page(va, &mut |shown| {
        if shown.write {
            // The kernel would change what it has seen before this call, which may be another page by now.
            // So it is taken away here, where nothing else changes, and comes back by another fault.
            // SAFETY: as we were called.
            unsafe { tally_space_zap((*(*vmf).__bindgen_anon_1.vma).vm_file, va, PAGE as u64) };
            result = NOPAGE;
        }
    });
    result
}

/// What is faulted on.
///
/// # Safety
/// As [`fault`]. The view stays as long as the fault is handled.
unsafe fn of_fault<'a, B: Bound>(vmf: *mut bindings::vm_fault) -> (&'a View<B>, u64) {
    // SAFETY: as the caller says: an area has its file, and the file its view.
    unsafe {
        let place = (*vmf).__bindgen_anon_1;
        let view = (*(*place.vma).vm_file).private_data.cast::<View<B>>();
        (&*view, (place.pgoff as u64) << PAGE.trailing_zeros())
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Files whose mappings show the memory that is bound in a VM, at offsets equal to the VAs, and memory that the
//! kernel shares with a process. The kernel crate supports neither page faults nor anonymous files.

use core::ffi::{c_int, c_uint, c_ulong, c_void};
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::from_err_ptr;
use kernel::fs::File;
use kernel::mm::virt::VmaNew;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

use super::foreign::Foreign;

/// `struct tally_shown` of the shim: the memory that is bound at a page.
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

// The empty structs that bindgen generates within the kernel's structs are an artefact of the configuration.
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
    /// This module, which its files keep loaded. The linker provides the symbol.
    static __this_module: bindings::module;
}

const PAGE: usize = tally_uapi::PAGE_SIZE as usize;
const SIGBUS: bindings::vm_fault_t = bindings::vm_fault_reason_VM_FAULT_SIGBUS;
const NOPAGE: bindings::vm_fault_t = bindings::vm_fault_reason_VM_FAULT_NOPAGE;

/// The mappings of a VM.
pub(crate) trait Bound: Send + Sync + 'static {
    /// Calls `show` with the memory that is bound at the page at `va`; it stays bound until `show` has returned.
    /// False if nothing is bound, or there is no memory for it. Called with a process's mmap lock held.
    fn with_page(&self, va: u64, show: &mut dyn FnMut(&Shown)) -> bool;
    /// The memory of another driver that one mapping has in the whole of a range. Called with a process's mmap
    /// lock held.
    fn foreign(&self, range: &Range<u64>) -> Option<Elsewhere>;
}

/// Memory of another driver that is bound.
pub(crate) struct Elsewhere {
    /// The memory.
    pub(crate) foreign: Arc<Foreign>,
    /// The page of it that is wanted first.
    pub(crate) page: u64,
    /// Whether the device may write.
    pub(crate) write: bool,
}

/// Kernel memory that processes can map.
pub(crate) struct Area {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the memory is used only by volatile and atomic accesses.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Allocates zeroed memory of whole pages.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        // SAFETY: the call takes only a number.
        let start = unsafe { tally_area_new(bytes as c_ulong) };
        Ok(Self {
            start: NonNull::new(start).ok_or(ENOMEM)?,
            bytes,
        })
    }

    /// The address of `bytes` bytes at `offset`, page-aligned if `offset` is.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Option<NonNull<u64>> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: the offset lies within the memory.
        (end <= self.bytes).then(|| unsafe { self.start.byte_add(offset) }.cast())
    }

    /// Maps a part of it; the mapped pages may outlive the area.
    ///
    /// # Errors
    /// EINVAL: the mapping is beyond its end, private or executable. ENOMEM.
    pub(crate) fn map(&self, vma: &VmaNew) -> Result {
        if vma.flags() & bindings::VM_SHARED == 0 {
            return Err(EINVAL);
        }
        vma.try_clear_mayexec()?;
        // SAFETY: `vma` is being set up, and the memory is of the kind that this call can map.
        kernel::error::to_result(unsafe { tally_area_map(vma.as_ptr(), self.start.as_ptr()) })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it. Mappings have their own references to its pages.
        unsafe { tally_area_free(self.start.as_ptr()) };
    }
}

/// A reference to a page of an [`Area`].
struct SharedPage(NonNull<bindings::page>);

// SAFETY: the page is held by a counted reference.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    fn of(area: &Area, offset: usize) -> Result<Self> {
        area.part(offset, PAGE).ok_or(EINVAL)?;
        // SAFETY: the offset lies within the area. The call returns the page with a reference.
        let page = unsafe { tally_area_page(area.start.as_ptr(), offset as c_ulong) };
        Ok(Self(NonNull::new(page).ok_or(ENOMEM)?))
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: drops the reference that `of` has got.
        unsafe { tally_put_page(self.0.as_ptr()) };
    }
}

/// The identity of a process. It may only be compared with others while the file that the process opened exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(usize);

impl Process {
    /// The calling process.
    pub(crate) fn current() -> Self {
        // SAFETY: the current task is valid.
        Self(unsafe { (*bindings::get_current()).mm }.addr())
    }
}

/// Keeps the file system of the VMs' files mounted; files can be created while this exists.
pub(crate) struct Files(());

impl Files {
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: the call has no requirements.
        kernel::error::to_result(unsafe { tally_fs_pin() })?;
        Ok(Self(()))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // SAFETY: `new` has pinned it.
        unsafe { tally_fs_unpin() };
    }
}

/// The private data of a VM's file.
struct View<B> {
    bound: Arc<B>,
    /// The page that can be mapped at offset 0.
    waiters: SharedPage,
    /// The process that may not map the file.
    except: Process,
}

/// The file of a VM. Its mappings show the bound memory; they do not keep it bound.
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

    /// Creates a file for the bound memory, with a page of `area` for readers. All processes but `except` may map
    /// it.
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
            View {
                bound,
                waiters: SharedPage::of(area, offset)?,
                except,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        let view = KBox::into_raw(view);
        // SAFETY: the table is static, and the file system exists. The file owns the view, which `release` frees.
        let file = from_err_ptr(unsafe { tally_space_file(&Self::FILE, view.cast()) })
            .inspect_err(|_| {
                // SAFETY: no file was created, so nothing else owns the view.
                drop(unsafe { KBox::from_raw(view) });
            })?;
        let file = NonNull::new(file).ok_or(ENOMEM)?;
        // SAFETY: the file is new, its only reference is ours, and no call on it is in progress.
        let file = unsafe { ARef::from_raw(file.cast()) };
        Ok(Self {
            file,
            _of: PhantomData,
        })
    }

    /// The file itself.
    pub(crate) fn file(&self) -> ARef<File> {
        self.file.clone()
    }

    /// Removes the pages of a range from all mappings. The caller makes sure that none of them is mapped again
    /// meanwhile.
    pub(crate) fn zap(&self, start: u64, bytes: u64) {
        // SAFETY: the file exists and is one of ours.
        unsafe { tally_space_zap(self.file.as_ptr(), start, bytes) };
    }
}

/// # Safety
/// Only the kernel may call this, when the last reference to a file of [`Space::new`] is dropped.
unsafe extern "C" fn release<B: Bound>(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: `Space::new` has stored the view there, and nothing else takes it out.
    drop(unsafe { KBox::from_raw((*file).private_data.cast::<View<B>>()) });
    0
}

/// # Safety
/// Only the kernel may call this, to set up an area of a file of [`Space::new`].
unsafe extern "C" fn mmap<B: Bound>(
    file: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: the file has its view as long as it exists.
    let view = unsafe { &*(*file).private_data.cast::<View<B>>() };
    // SAFETY: as the contract of this function requires.
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
    // SAFETY: as the contract of this function requires.
    let start = (unsafe { (*vma).vm_pgoff } as u64) << PAGE.trailing_zeros();
    let end = start.saturating_add((area.end() - area.start()) as u64);
    // An area with more access than the binding is for what was bound there before.
    let elsewhere = view
        .bound
        .foreign(&(start..end))
        .filter(|it| !area.executable() && (it.write || !area.writable()));
    if let Some(Elsewhere {
        foreign,
        page,
        write,
    }) = elsewhere
    {
        if !write {
            if let Err(error) = area.try_clear_maywrite() {
                return error.to_errno();
            }
        }
        area.set_dontcopy();
        // Only its exporter may map its pages. The area is the exporter's then, and nothing here takes pages away
        // from it: the process has to map this file anew.
        // SAFETY: as the contract of this function requires.
        return unsafe { foreign.map_area(vma, page) };
    }
    if start != 0 {
        // SAFETY: the area is being set up, so this file chooses its flags and operations.
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
    let result = area
        .try_clear_maywrite()
        .and_then(|()| area.try_clear_mayexec());
    // SAFETY: the area is new and has one page, and the page is one that this call can map.
    let insert = || unsafe { bindings::vm_insert_page(vma, area.start(), view.waiters.0.as_ptr()) };
    match result {
        Ok(()) => insert(),
        Err(error) => error.to_errno(),
    }
}

/// # Safety
/// Only the kernel may call this, for a fault in an area of a file of [`Space::new`].
unsafe extern "C" fn fault<B: Bound>(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: as the contract of this function requires.
    unsafe { huge_fault::<B>(vmf, 0) }
}

/// # Safety
/// The same as [`fault`].
unsafe extern "C" fn huge_fault<B: Bound>(
    vmf: *mut bindings::vm_fault,
    order: c_uint,
) -> bindings::vm_fault_t {
    let mut result = SIGBUS;
    // SAFETY: as the contract of this function requires.
    let (view, va) = unsafe { of_fault::<B>(vmf) };
    view.bound.with_page(va, &mut |shown| {
        // SAFETY: as the contract of this function requires; the page is bound and has memory until this returns.
        result = unsafe { tally_space_show(vmf, order, shown) }
    });
    result
}

/// The first write to a page that is mapped read-only. Such a page was bound read-only, or the area was
/// read-only when the page was mapped.
///
/// # Safety
/// The same as [`fault`].
unsafe extern "C" fn pfn_mkwrite<B: Bound>(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let mut result = SIGBUS;
    // SAFETY: as the contract of this function requires.
    let (view, va) = unsafe { of_fault::<B>(vmf) };
    view.bound.with_page(va, &mut |shown| {
        if shown.write {
            // The kernel would change the page table entry that it has seen before this call, which may be for
            // another page by now. So this removes the entry here, where nothing else changes, and another fault
            // maps the page again. SAFETY: as the contract of this function requires.
            unsafe { tally_space_zap((*(*vmf).__bindgen_anon_1.vma).vm_file, va, PAGE as u64) };
            result = NOPAGE;
        }
    });
    result
}

/// The view and the VA of a fault.
///
/// # Safety
/// The same as [`fault`]. The view stays as long as the fault is handled.
unsafe fn of_fault<'a, B: Bound>(vmf: *mut bindings::vm_fault) -> (&'a View<B>, u64) {
    // SAFETY: as the caller guarantees: an area has its file, and the file its view.
    unsafe {
        let place = (*vmf).__bindgen_anon_1;
        let view = (*(*place.vma).vm_file).private_data.cast::<View<B>>();
        (&*view, (place.pgoff as u64) << PAGE.trailing_zeros())
    }
}

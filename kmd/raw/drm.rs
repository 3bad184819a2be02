// SPDX-License-Identifier: GPL-2.0
//! DRM's tables of functions, changed where the abstraction cannot express the driver's
//! needs, and conversions from C pointers to the abstraction's types.

use core::ffi::{c_int, c_uint};
use core::marker::PhantomData;

use kernel::bindings;
use kernel::device::{AsBusDevice, Bound, Device, DeviceContext, Normal};
use kernel::drm;
use kernel::drm::gem::{shmem, DriverObject, IntoGEMObject};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{Arc, SetOnce};

use super::foreign::Foreign;
use super::pages;

// The empty structs that bindgen makes inside kernel structs depend on the configuration only.
#[allow(improper_ctypes)]
extern "C" {
    fn tally_huge_pages(drm: *mut bindings::drm_device) -> c_int;
    fn tally_pin_buffer(obj: *mut bindings::drm_gem_object) -> c_int;
    fn tally_buffer_status(obj: *mut bindings::drm_gem_object) -> bindings::drm_gem_object_status;
    fn tally_mmap(file: *mut bindings::file, vma: *mut bindings::vm_area_struct) -> c_int;
    fn tally_fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t;
    fn tally_huge_fault(vmf: *mut bindings::vm_fault, order: c_uint) -> bindings::vm_fault_t;
    // Exported by the kernel; bindgen does not see its header.
    fn drm_puts(printer: *mut bindings::drm_printer, text: *const core::ffi::c_char);
}

/// A client with lines of its own in fdinfo.
pub(crate) trait Fdinfo: drm::file::DriverFile {
    /// Writes its lines.
    fn show(&self, out: &mut Printer);
}

/// Buffers of a driver: shmem objects, about which the driver knows more than the abstraction asks for.
pub(crate) trait Buffer:
    DriverObject<Driver: drm::Driver<Object = shmem::Object<Self>, File: Fdinfo>>
{
    /// The changed tables of its driver.
    fn tables() -> &'static Tables<Self>;
    /// Whether `client`, or an unknown one if `None`, may do more than read.
    fn may_write(&self, client: Option<&FileOf<Self>>) -> bool;
    /// A buffer for memory of another driver, for which [`Buffer::foreign`] then answers that memory. Called
    /// with locks of the DRM core's held, for which imports and exports of all clients wait.
    ///
    /// # Errors
    /// EINVAL, EOPNOTSUPP: such memory cannot be used. ENOMEM.
    fn import(
        drm: &drm::Device<Self::Driver>,
        foreign: Arc<Foreign>,
    ) -> Result<ARef<shmem::Object<Self>>>;
    /// The memory of another driver that the buffer stands for. None: it has pages of its own.
    fn foreign(&self) -> Option<&Arc<Foreign>>;
}

/// The clients of a buffer's driver.
pub(crate) type FileOf<B> = <<B as DriverObject>::Driver as drm::Driver>::File;

/// Types that a handler of an ioctl has in its signature.
pub(crate) use bindings::{drm_device, drm_file};

/// The parent of a DRM device, on any bus. The abstraction wants one type of bus.
#[repr(transparent)]
pub(crate) struct Parent<C: DeviceContext = Normal>(Device<C>);

impl<C: DeviceContext> AsRef<Device<C>> for Parent<C> {
    fn as_ref(&self) -> &Device<C> {
        &self.0
    }
}

// SAFETY: the wrapper is transparent, so the device is at offset 0.
unsafe impl<C: DeviceContext> AsBusDevice<C> for Parent<C> {
    const OFFSET: usize = 0;
}

impl Parent<Bound> {
    /// A bound device as a parent.
    pub(crate) fn of(dev: &Device<Bound>) -> &Self {
        // SAFETY: `Parent` is a transparent wrapper of `Device`.
        unsafe { &*core::ptr::from_ref(dev).cast() }
    }
}

/// The C device of a DRM device, which is its first field.
fn raw<D: drm::Driver, C: drm::DeviceContext>(
    dev: &drm::Device<D, C>,
) -> *mut bindings::drm_device {
    core::ptr::from_ref(dev)
        .cast::<bindings::drm_device>()
        .cast_mut()
}

/// The `Ioctl` context of a device that has been registered, which a device with an open
/// file or a queued watchdog has been: that is all that the context asserts. The guard of
/// an unregistered device would refer to nothing. Outside of an ioctl there is no other
/// way to a registration guard.
pub(crate) fn once_registered<D: drm::Driver>(dev: &drm::Device<D>) -> &drm::Device<D, drm::Ioctl> {
    // SAFETY: a live device of the driver `D` that was registered, see above.
    unsafe { drm::Device::from_raw(raw(dev)) }
}

/// The device and the file of an ioctl, from what the core passes to its handler.
///
/// # Safety
/// Both are the arguments of a handler in the driver's table of ioctls.
pub(crate) unsafe fn ioctl_arguments<'a, D: drm::Driver>(
    dev: *mut drm_device,
    file: *mut drm_file,
) -> (&'a drm::Device<D, drm::Ioctl>, &'a drm::File<D::File>) {
    // SAFETY: the core keeps both alive during the call; both are of this driver.
    unsafe { (drm::Device::from_raw(dev), drm::File::from_raw(file)) }
}

/// A C table of functions, copied and changed once, and then only read.
struct Patched<T>(SetOnce<T>);

// SAFETY: the tables point to static data, and are never written once they can be seen.
unsafe impl<T> Sync for Patched<T> {}

impl<T> Patched<T> {
    /// The table; `make` makes it the first time.
    fn get_or(&'static self, make: impl FnOnce() -> T) -> &'static T {
        if self.0.as_ref().is_none() {
            // Two callers may both find it missing. They make the same table, and the first one stays.
            let _ = self.0.populate(make());
        }
        loop {
            match self.0.as_ref() {
                Some(table) => return table,
                // The other caller is about to finish its copy.
                None => core::hint::spin_loop(),
            }
        }
    }
}

/// The changed tables of the driver whose buffers are `B`; the type keeps other drivers from using them.
pub(crate) struct Tables<B> {
    driver: Patched<bindings::drm_driver>,
    files: Patched<bindings::file_operations>,
    buffers: Patched<bindings::drm_gem_object_funcs>,
    private_buffers: Patched<bindings::drm_gem_object_funcs>,
    foreign_buffers: Patched<bindings::drm_gem_object_funcs>,
    areas: Patched<bindings::vm_operations_struct>,
    _of: PhantomData<fn(B)>,
}

impl<B> Tables<B> {
    /// Tables that are made when they are first needed.
    pub(crate) const fn new() -> Self {
        Self {
            driver: Patched(SetOnce::new()),
            files: Patched(SetOnce::new()),
            buffers: Patched(SetOnce::new()),
            private_buffers: Patched(SetOnce::new()),
            foreign_buffers: Patched(SetOnce::new()),
            areas: Patched(SetOnce::new()),
            _of: PhantomData,
        }
    }
}

/// Replaces the C vtable of a device that is not registered yet by a copy with changes
/// that the abstraction cannot express:
///
/// - imports of foreign buffers by a function of our own, and no dumb buffers: the helper's
///   functions make bare C objects, which `lookup_handle` would then take for one of our buffers;
/// - fdinfo;
/// - sync objects, whose ioctls are the DRM core's;
/// - mmap of parts of buffers.
///
/// It also asks for huge pages; without them buffers work, in smaller pages.
pub(crate) fn patch_driver<B: Buffer>(drm: &drm::UnregisteredDevice<B::Driver>) {
    let raw = raw::<B::Driver, drm::Normal>(drm);
    // SAFETY: the device is alive and not shared yet.
    let original = unsafe { &*(*raw).driver };
    let fops = B::tables().files.get_or(|| bindings::file_operations {
        show_fdinfo: Some(bindings::drm_show_fdinfo),
        mmap: Some(tally_mmap),
        // SAFETY: the abstraction always sets it, to a constant.
        ..unsafe { *original.fops }
    });
    let driver = B::tables().driver.get_or(|| bindings::drm_driver {
        gem_prime_import: Some(import::<B>),
        gem_prime_import_sg_table: None,
        dumb_create: None,
        driver_features: original.driver_features
            | bindings::drm_driver_feature_DRIVER_SYNCOBJ
            | bindings::drm_driver_feature_DRIVER_SYNCOBJ_TIMELINE,
        show_fdinfo: Some(show_fdinfo::<B>),
        fops,
        ..*original
    });
    // SAFETY: the device is not registered, so no other thread reads the field; the new table
    // is static and so lives as long as the module, which outlives the device.
    unsafe { (*raw).driver = driver };
    // SAFETY: a live device before its registration.
    if unsafe { tally_huge_pages(raw) } != 0 {
        pr_info!("no huge pages for buffers\n");
    }
}

/// The buffer of a dma-buf.
///
/// # Safety
/// Only the DRM core may call this, with a device of the driver whose buffers are `B`, and a dma-buf.
unsafe extern "C" fn import<B: Buffer>(
    drm: *mut bindings::drm_device,
    buf: *mut bindings::dma_buf,
) -> *mut bindings::drm_gem_object {
    // SAFETY: the core passes both.
    unsafe {
        if bindings::drm_gem_is_prime_exported_dma_buf(drm, buf) {
            // One of ours: the core finds the buffer itself.
            return bindings::drm_gem_prime_import(drm, buf);
        }
        let imported = Foreign::of(buf).and_then(|foreign| {
            let bo = B::import(drm::Device::from_raw(drm), foreign)?;
            patch_foreign(&bo)?;
            Ok(bo)
        });
        match imported {
            // The core takes the reference.
            Ok(bo) => ARef::into_raw(bo).as_ref().as_raw(),
            Err(error) => error.to_ptr(),
        }
    }
}

/// Has a new buffer stand for memory of another driver, and gives it functions that never look for pages of its
/// own. When it is exported, the core passes on the dma-buf that it was imported from.
fn patch_foreign<B: Buffer>(bo: &shmem::Object<B>) -> Result {
    let raw = bo.as_raw();
    let foreign = bo.foreign().ok_or(EINVAL)?;
    let funcs = B::tables()
        .foreign_buffers
        .get_or(|| bindings::drm_gem_object_funcs {
            export: Some(refuse_export),
            mmap: Some(mmap::<B>),
            pin: None,
            unpin: None,
            get_sg_table: None,
            vmap: None,
            vunmap: None,
            vm_ops: core::ptr::null(),
            // SAFETY: the abstraction has set it, to a constant.
            ..unsafe { *(*raw).funcs }
        });
    // SAFETY: the buffer has no handle yet, so no other thread uses it; the table is static. `bo` keeps
    // `foreign` until it is freed, after the core has released it.
    unsafe {
        (*raw).funcs = funcs;
        foreign.adopt(raw);
    }
    Ok(())
}

/// A dma-buf of a buffer that stands for another one. The core never asks for it, as long as the buffer has a handle.
///
/// # Safety
/// Any arguments will do.
unsafe extern "C" fn refuse_export(
    _obj: *mut bindings::drm_gem_object,
    _flags: c_int,
) -> *mut bindings::dma_buf {
    EINVAL.to_ptr()
}

/// The client's part of its fdinfo.
///
/// # Safety
/// Only the DRM core may call this, with an open file of the driver whose buffers are `B`.
unsafe extern "C" fn show_fdinfo<B: Buffer>(
    printer: *mut bindings::drm_printer,
    raw_file: *mut bindings::drm_file,
) {
    // SAFETY: the core passes an open file of this driver.
    let file = unsafe { drm::File::<FileOf<B>>::from_raw(raw_file) };
    let mut text = Printer(printer);
    file.inner().show(&mut text);
    // SAFETY: printer and file are those that the core passed, and live during the call.
    unsafe { bindings::drm_show_memory_stats(printer, raw_file) };
}

/// A `drm_printer`, which has no abstraction.
pub(crate) struct Printer(*mut bindings::drm_printer);

impl kernel::fmt::Write for Printer {
    fn write_str(&mut self, text: &str) -> kernel::fmt::Result {
        // Copied to a buffer, because C wants a NUL.
        let mut buffer = [0u8; 64];
        for piece in text.as_bytes().chunks(buffer.len() - 1) {
            buffer[..piece.len()].copy_from_slice(piece);
            buffer[piece.len()] = 0;
            // SAFETY: the printer lives during the call that gave it to us; the text ends in NUL.
            unsafe { drm_puts(self.0, buffer.as_ptr().cast()) };
        }
        Ok(())
    }
}

/// Gives a new buffer functions of our own: an mmap that enforces IMPORT_READ_ONLY,
/// faults that find the page of a partial mapping, and a status that tells whether it has
/// memory. Other drivers may attach to it and pin its pages, unless the flag is set, which
/// they would not enforce.
pub(crate) fn patch_buffer<B: Buffer>(bo: &shmem::Object<B>) {
    let raw = bo.as_raw();
    let vm_ops = B::tables().areas.get_or(|| bindings::vm_operations_struct {
        fault: Some(tally_fault),
        huge_fault: Some(tally_huge_fault),
        // The helper's function tracks dirty pages, but all pages are dirty: see `pages::keep_content`.
        pfn_mkwrite: None,
        // SAFETY: a constant of the helper's.
        ..unsafe { bindings::drm_gem_shmem_vm_ops }
    });
    let original = bindings::drm_gem_object_funcs {
        mmap: Some(mmap::<B>),
        vm_ops,
        pin: Some(tally_pin_buffer),
        status: Some(tally_buffer_status),
        // SAFETY: the abstraction has set it, to a constant.
        ..unsafe { *(*raw).funcs }
    };
    let funcs = if bo.may_write(None) {
        B::tables().buffers.get_or(|| original)
    } else {
        let private = || bindings::drm_gem_object_funcs {
            get_sg_table: None,
            vmap: None,
            vunmap: None,
            ..original
        };
        B::tables().private_buffers.get_or(private)
    };
    // SAFETY: the buffer has no handle yet, so no other thread uses it; the table is static.
    unsafe { (*raw).funcs = funcs };
}

/// mmap of a buffer, through the render node or through its dma-buf.
///
/// # Safety
/// Only the DRM core may call this, with a buffer `B` and an area to be set up.
unsafe extern "C" fn mmap<B: Buffer>(
    obj: *mut bindings::drm_gem_object,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: all objects of this driver are of this type, see `patch_driver`.
    let bo = unsafe { shmem::Object::<B>::from_raw(obj) };
    // SAFETY: the area is ours to set up; it has a file, by which we were called.
    let (file, flags) = unsafe { ((*vma).vm_file, (*vma).__bindgen_anon_2.vm_flags) };
    // SAFETY: a file in use has operations; the device's driver is set since `patch_driver`.
    let through_node = unsafe { (*file).f_op == (*(*(*obj).dev).driver).fops };
    // Any process can map a dma-buf.
    let client = through_node.then(|| {
        // SAFETY: a file of the render node holds a `drm_file` of this driver.
        unsafe { drm::File::<FileOf<B>>::from_raw((*file).private_data.cast()) }.inner()
    });
    if !bo.may_write(client.as_deref()) {
        if flags & bindings::VM_WRITE as bindings::vm_flags_t != 0 {
            return EACCES.to_errno();
        }
        // Not by a later mprotect either.
        // SAFETY: the area is being set up, and locked for that.
        unsafe {
            (*vma).__bindgen_anon_2.vm_flags =
                flags & !(bindings::VM_MAYWRITE as bindings::vm_flags_t);
        }
    }
    // SAFETY: the core passes an area to be set up, of a file through which `bo` is mapped.
    unsafe {
        match bo.foreign() {
            Some(foreign) => foreign.map_object(obj, vma),
            None => pages::map_all(bo, vma),
        }
    }
}

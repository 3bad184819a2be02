// SPDX-License-Identifier: GPL-2.0
//! Everything that goes round the kernel crate's abstractions: raw bindings, the
//! shim, and pointers that the abstractions keep to themselves. No other file of
//! the driver uses `kernel::bindings`.
//!
//! Why each is here stands at each; most are things that the abstractions of DRM
//! cannot express yet.

use core::ffi::{c_int, c_void};
use core::pin::Pin;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::device::{Bound, BoundInternal, Device};
use kernel::drm;
use kernel::drm::gem::IntoGEMObject;
use kernel::error::{from_err_ptr, to_result};
use kernel::pci;
use kernel::prelude::*;
use kernel::scatterlist::SGTable;
use kernel::sync::aref::ARef;
use kernel::sync::SetOnce;
use kernel::types::Opaque;

use crate::driver::{Tally, TallyDevice, TallyPciData};
use crate::file::TallyFile;
use crate::gem::Bo;

// bindgen's empty structs inside of the kernel's are an artefact of configuration.
#[allow(improper_ctypes)]
extern "C" {
    fn tally_waiter_init(queue: *mut bindings::wait_queue_head);
    fn tally_waiter_sleep(
        queue: *mut bindings::wait_queue_head,
        woken: *const u32,
        deadline: i64,
        killable: bool,
    ) -> c_int;
    fn tally_waiter_wake(queue: *mut bindings::wait_queue_head, woken: *mut u32);
    fn tally_memory_bytes() -> u64;
    fn tally_current_user() -> u32;
    fn tally_reset_function(pdev: *mut bindings::pci_dev) -> c_int;
    fn tally_handle_resets(pdev: *mut bindings::pci_dev);
    fn tally_huge_pages(drm: *mut bindings::drm_device) -> c_int;
    fn tally_fill_buffer(obj: *mut bindings::drm_gem_object) -> c_int;
    fn tally_page_address(page: *mut bindings::page) -> *mut c_void;
    fn tally_buffer_page(obj: *mut bindings::drm_gem_object, index: usize) -> *mut bindings::page;
    fn tally_buffer_status(
        obj: *mut bindings::drm_gem_object,
    ) -> bindings::drm_gem_object_status;
    fn tally_put_page(page: *mut bindings::page);
    fn tally_mmap(file: *mut bindings::file, vma: *mut bindings::vm_area_struct) -> c_int;
    fn tally_fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t;
    fn tally_huge_fault(
        vmf: *mut bindings::vm_fault,
        order: core::ffi::c_uint,
    ) -> bindings::vm_fault_t;
    fn tally_user_pin(
        dev: *mut bindings::device,
        address: u64,
        count: usize,
        write: bool,
        out: *mut *mut RawUserPages,
    ) -> c_int;
    fn tally_user_table(user: *mut RawUserPages) -> *mut bindings::sg_table;
    fn tally_user_unpin(user: *mut RawUserPages);
    // The kernel's own; bindgen does not see its header.
    fn drm_puts(printer: *mut bindings::drm_printer, text: *const core::ffi::c_char);
}

/// The PCI id of a vendor that the kernel has no name for, which is all that
/// `pci::Vendor` knows.
pub(crate) const fn pci_id(vendor: u16, device: u16) -> pci::DeviceId {
    let raw = bindings::pci_device_id {
        vendor: vendor as u32,
        device: device as u32,
        subvendor: !0,
        subdevice: !0,
        class: 0,
        class_mask: 0,
        driver_data: 0,
        override_only: 0,
    };
    // SAFETY: `pci::DeviceId` is a transparent wrapper of the C struct and adds no invariant.
    unsafe { core::mem::transmute(raw) }
}

/// CLOCK_MONOTONIC in ns. `Instant` gives no number, and user space sends numbers.
pub(crate) fn monotonic_ns() -> i64 {
    // SAFETY: has no requirements.
    unsafe { bindings::ktime_get() }
}

/// Bytes of memory that the machine has.
pub(crate) fn memory_bytes() -> u64 {
    // SAFETY: has no requirements.
    unsafe { tally_memory_bytes() }
}

/// The number of the user of the calling process, in the first user namespace.
pub(crate) fn current_user() -> u32 {
    // SAFETY: has no requirements.
    unsafe { tally_current_user() }
}

/// Why a sleep ended without a wake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// The deadline passed.
    Late,
    /// A signal came.
    Signal,
}

/// A place where one thread sleeps until it is woken, a deadline (CLOCK_MONOTONIC
/// to the ns, as the uapi promises), or a signal.
///
/// `CondVar` counts in jiffies and cannot sleep killably.
#[pin_data]
pub(crate) struct Waiter {
    #[pin]
    queue: Opaque<bindings::wait_queue_head>,
    woken: Opaque<u32>,
}

// SAFETY: the wait queue has its own lock, and `woken` is accessed atomically.
unsafe impl Send for Waiter {}
// SAFETY: as above.
unsafe impl Sync for Waiter {}

impl Waiter {
    /// A waiter that was not woken yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: the slot is memory for a wait queue that stays where it is.
            queue <- Opaque::ffi_init(|slot| unsafe { tally_waiter_init(slot) }),
            woken: Opaque::new(0),
        })
    }

    /// Sleeps until [`Self::wake`] was called since the last [`Self::rearm`].
    ///
    /// With `killable` only fatal signals count. `i64::MAX` is no deadline.
    pub(crate) fn sleep(&self, deadline_ns: i64, killable: bool) -> Result<(), Interrupted> {
        // SAFETY: both are valid and pinned; the shim reads `woken` atomically.
        let ret = unsafe {
            tally_waiter_sleep(self.queue.get(), self.woken.get(), deadline_ns, killable)
        };
        match ret {
            0 => Ok(()),
            late if late == ETIME.to_errno() => Err(Interrupted::Late),
            _ => Err(Interrupted::Signal),
        }
    }

    /// Wakes the sleeper, or keeps it from falling asleep.
    pub(crate) fn wake(&self) {
        // SAFETY: both are valid and pinned; the shim writes `woken` atomically.
        unsafe { tally_waiter_wake(self.queue.get(), self.woken.get()) };
    }

    /// Forgets wakes so far. The caller looks at what it waits for afterwards.
    pub(crate) fn rearm(&self) {
        // SAFETY: `woken` is valid for the life of `self` and accessed atomically only.
        let woken = unsafe { core::sync::atomic::AtomicU32::from_ptr(self.woken.get()) };
        woken.store(0, core::sync::atomic::Ordering::SeqCst);
    }
}

/// The C device of a DRM device, which is its first field.
fn drm_raw<C: drm::DeviceContext>(dev: &TallyDevice<C>) -> *mut bindings::drm_device {
    core::ptr::from_ref(dev).cast::<bindings::drm_device>().cast_mut()
}

/// The C device of a PCI device.
fn pci_raw(pdev: &pci::Device<Bound>) -> *mut bindings::pci_dev {
    // `pci::Device` is a transparent wrapper.
    core::ptr::from_ref(pdev).cast::<bindings::pci_dev>().cast_mut()
}

/// A device that a file was opened on, or whose watchdog was queued, has been registered:
/// that is all that the `Ioctl` context says. Unregistered, its guard would lead to nothing.
/// There is no other way to a registration guard outside of an ioctl.
pub(crate) fn once_registered(dev: &TallyDevice) -> &TallyDevice<drm::Ioctl> {
    // SAFETY: the device is a live `Device<Tally>`, and was registered, see above.
    unsafe { drm::Device::from_raw(drm_raw(dev)) }
}

/// The device and the file of an ioctl, from what the core passes to its handler.
///
/// # Safety
/// As the arguments of a handler in this driver's table of ioctls.
pub(crate) unsafe fn ioctl_arguments<'a>(
    dev: *mut bindings::drm_device,
    file: *mut bindings::drm_file,
) -> (&'a TallyDevice<drm::Ioctl>, &'a drm::File<TallyFile>) {
    // SAFETY: the core keeps both alive during the call; both are of this driver.
    unsafe { (drm::Device::from_raw(dev), drm::File::from_raw(file)) }
}

/// Types that ioctl.rs names in the signature of its handlers.
pub(crate) use bindings::{drm_device, drm_file};

/// A C table of functions, copied and changed once, and then only read.
struct Patched<T>(SetOnce<T>);

// SAFETY: the tables point to static data, and are never written once they can be seen.
unsafe impl<T> Sync for Patched<T> {}

impl<T> Patched<T> {
    /// The table; `make` makes it, should it be the first time.
    fn get_or(&'static self, make: impl FnOnce() -> T) -> &'static T {
        if self.0.as_ref().is_none() {
            // Of two who come first at the same time one is in vain: they make the same.
            let _ = self.0.populate(make());
        }
        loop {
            match self.0.as_ref() {
                Some(table) => return table,
                // The other is about to have copied his.
                None => core::hint::spin_loop(),
            }
        }
    }
}

static DRIVER: Patched<bindings::drm_driver> = Patched(SetOnce::new());
static FOPS: Patched<bindings::file_operations> = Patched(SetOnce::new());
static FUNCS: Patched<bindings::drm_gem_object_funcs> = Patched(SetOnce::new());
static VM_OPS: Patched<bindings::vm_operations_struct> = Patched(SetOnce::new());

/// Replaces the C vtable of a device that is not registered yet by a copy with
/// what the abstraction cannot say:
///
/// - no import of foreign buffers and no dumb buffers: both would make bare C
///   objects, which `lookup_handle` would then take for a [`Bo`];
/// - fdinfo;
/// - mmap of parts of buffers.
///
/// It also asks for huge pages; without them buffers work, in smaller pieces.
pub(crate) fn patch_driver(drm: &drm::UnregisteredDevice<Tally>) {
    let raw = drm_raw::<drm::Normal>(drm);
    // SAFETY: the device is alive and not shared yet.
    let original = unsafe { &*(*raw).driver };
    let fops = FOPS.get_or(|| bindings::file_operations {
        show_fdinfo: Some(bindings::drm_show_fdinfo),
        mmap: Some(tally_mmap),
        // SAFETY: the abstraction always sets it, to a constant.
        ..unsafe { *original.fops }
    });
    let driver = DRIVER.get_or(|| bindings::drm_driver {
        gem_prime_import_sg_table: None,
        dumb_create: None,
        show_fdinfo: Some(show_fdinfo),
        fops,
        ..*original
    });
    // SAFETY: not registered, so nobody else reads it; the new table is static and
    // so lives as long as the module, which outlives the device.
    unsafe { (*raw).driver = driver };
    // SAFETY: a live device before its registration.
    if unsafe { tally_huge_pages(raw) } != 0 {
        pr_info!("no huge pages for buffers\n");
    }
}

/// The client's part of its fdinfo.
///
/// # Safety
/// For the DRM core alone, with an open file of this driver.
unsafe extern "C" fn show_fdinfo(
    printer: *mut bindings::drm_printer,
    raw_file: *mut bindings::drm_file,
) {
    // SAFETY: the core calls this with an open file of this driver.
    let file = unsafe { drm::File::<TallyFile>::from_raw(raw_file) };
    let mut text = Printer(printer);
    crate::fdinfo::show(&file.inner(), &mut text);
    // SAFETY: as we were called.
    unsafe { bindings::drm_show_memory_stats(printer, raw_file) };
}

/// A `drm_printer`, which has no abstraction.
pub(crate) struct Printer(*mut bindings::drm_printer);

impl kernel::fmt::Write for Printer {
    fn write_str(&mut self, text: &str) -> kernel::fmt::Result {
        // Through a buffer: C wants a NUL.
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

/// Gives a new buffer functions of our own: mmap that knows IMPORT_READ_ONLY, faults
/// that find the page of a part, whether it has memory, and no way for other drivers to
/// map the pages, which would not know it.
pub(crate) fn patch_bo(bo: &Bo) {
    let raw = bo.as_raw();
    let vm_ops = VM_OPS.get_or(|| bindings::vm_operations_struct {
        fault: Some(tally_fault),
        huge_fault: Some(tally_huge_fault),
        // It keeps track of dirty pages, which all are: see `keep_content`.
        pfn_mkwrite: None,
        // SAFETY: a constant of the helper's.
        ..unsafe { bindings::drm_gem_shmem_vm_ops }
    });
    let funcs = FUNCS.get_or(|| bindings::drm_gem_object_funcs {
        mmap: Some(mmap),
        vm_ops,
        get_sg_table: None,
        vmap: None,
        vunmap: None,
        status: Some(tally_buffer_status),
        // SAFETY: the abstraction has set it, to a constant.
        ..unsafe { *(*raw).funcs }
    });
    // SAFETY: the buffer has no handle yet, so nobody else uses it; static data.
    unsafe { (*raw).funcs = funcs };
}

/// mmap of a buffer, through the render node or through its dma-buf.
///
/// # Safety
/// For the DRM core alone, with an object of this driver and an area to be set up.
unsafe extern "C" fn mmap(
    obj: *mut bindings::drm_gem_object,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: all objects of this driver are of this type, see `patch_driver`.
    let bo = unsafe { Bo::from_raw(obj) };
    // SAFETY: the area is ours to set up; it has a file, by which we were called.
    let (file, flags) = unsafe { ((*vma).vm_file, (*vma).__bindgen_anon_2.vm_flags) };
    // SAFETY: a file in use has operations; the device's driver is set since `patch_driver`.
    let through_node = unsafe { (*file).f_op == (*(*(*obj).dev).driver).fops };
    // A dma-buf's mapping can be anybody's.
    let client = through_node.then(|| {
        // SAFETY: a file of the render node holds a `drm_file` of this driver.
        unsafe { drm::File::<TallyFile>::from_raw((*file).private_data.cast()) }.inner().id()
    });
    if !bo.may_write(client) {
        if flags & bindings::VM_WRITE as bindings::vm_flags_t != 0 {
            return EACCES.to_errno();
        }
        // Also not by mprotect later.
        // SAFETY: the area is being set up, and locked for that.
        unsafe {
            (*vma).__bindgen_anon_2.vm_flags =
                flags & !(bindings::VM_MAYWRITE as bindings::vm_flags_t);
        }
    }
    // SAFETY: as we were called.
    let filled = unsafe { tally_fill_buffer(obj) };
    if filled != 0 {
        return filled;
    }
    // SAFETY: as we were called.
    let mapped = unsafe { bindings::drm_gem_shmem_object_mmap(obj, vma) };
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
unsafe fn keep_content(bo: &Bo) {
    // SAFETY: a live object of this driver; the field is protected by the lock.
    unsafe { (*shmem(bo)).set_pages_mark_dirty_on_put(true) };
}

/// The C object of a buffer.
fn shmem(bo: &Bo) -> *mut bindings::drm_gem_shmem_object {
    // SAFETY: the objects of this driver are shmem objects.
    unsafe { kernel::container_of!(bo.as_raw(), bindings::drm_gem_shmem_object, base) }
}

/// The lock of a buffer.
fn reservation(bo: &Bo) -> *mut bindings::dma_resv {
    // SAFETY: a live object; set when it was made.
    unsafe { (*bo.as_raw()).resv }
}

/// A buffer whose pages stay where they are, all of them.
///
/// The abstraction pins only with a DMA mapping, which is undone at unbind.
pub(crate) struct PinnedBo(ARef<Bo>);

impl PinnedBo {
    /// # Errors
    /// ENOMEM; EINTR: killed.
    pub(crate) fn new(bo: ARef<Bo>) -> Result<Self> {
        let (base, resv) = (shmem(&bo), reservation(&bo));
        // SAFETY: a live shmem object of this driver.
        to_result(unsafe { tally_fill_buffer(bo.as_raw()) })?;
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
    pub(crate) fn bo(&self) -> &Bo {
        &self.0
    }
}

impl Drop for PinnedBo {
    fn drop(&mut self) {
        // The object's own callback leaves the lock to its caller; this one takes it.
        // SAFETY: pinned by `new`.
        unsafe { bindings::drm_gem_shmem_unpin(shmem(&self.0)) };
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
    pub(crate) fn new(bo: &Bo, offset: u64) -> Result<Self> {
        let offset = usize::try_from(offset).map_err(|_| EINVAL)?;
        // SAFETY: a live object.
        if offset % 8 != 0 || offset >= unsafe { (*bo.as_raw()).size } {
            return Err(EINVAL);
        }
        // SAFETY: a live shmem object of this driver, and a page of it.
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
        let word = unsafe { core::sync::atomic::AtomicU64::from_ptr(self.word.as_ptr()) };
        word.load(core::sync::atomic::Ordering::Acquire)
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
/// reference is ours.
///
/// # Errors
/// ENOMEM. EINTR: a signal came while another thread had the buffer's lock.
pub(crate) fn sg_table<'a>(bo: &'a Bo, dev: &'a Device<Bound>) -> Result<&'a SGTable> {
    let base = shmem(bo);
    // One at a time: a table that is missing afterwards is the one that was there.
    let _alone = bo.table_lock.lock();
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

/// Pages of a process, pinned, accounted and mapped for the device.
pub(crate) struct UserPages(NonNull<RawUserPages>);

// SAFETY: the shim's object may be used and freed by any thread.
unsafe impl Send for UserPages {}
// SAFETY: it is not changed after it was made.
unsafe impl Sync for UserPages {}

impl UserPages {
    /// Pins `count` pages of the calling process from `address`.
    ///
    /// # Errors
    /// EFAULT: no memory there, or not writable. ENOSPC: RLIMIT_MEMLOCK. ENOMEM, EINTR.
    pub(crate) fn pin(
        dev: &Device<Bound>,
        address: u64,
        count: usize,
        write: bool,
    ) -> Result<Self> {
        let mut out = core::ptr::null_mut();
        // `Device` is a transparent wrapper.
        let dev = core::ptr::from_ref(dev).cast::<bindings::device>().cast_mut();
        // SAFETY: a bound device, and a place for the result; any address will do.
        to_result(unsafe { tally_user_pin(dev, address, count, write, &mut out) })?;
        NonNull::new(out).map(Self).ok_or(ENOMEM)
    }

    /// Where the pages are.
    pub(crate) fn table(&self) -> &SGTable {
        // SAFETY: the table lives and stays as it is until `drop`.
        unsafe { SGTable::from_raw(tally_user_table(self.0.as_ptr())) }
    }
}

impl Drop for UserPages {
    fn drop(&mut self) {
        // SAFETY: made by `pin`, and not used after this.
        unsafe { tally_user_unpin(self.0.as_ptr()) };
    }
}

/// Has [`tally_halt`], [`tally_pause`] and [`tally_go_on`] called when the device is reset through sysfs, PCI recovers
/// from an error, or the machine sleeps. The abstraction of PCI drivers has no such callbacks.
pub(crate) fn handle_resets(pdev: &pci::Device<Bound>) {
    // SAFETY: a device that is being bound, and so has a driver: ours.
    unsafe { tally_handle_resets(pci_raw(pdev)) };
}

/// The data of a bound device.
///
/// # Safety
/// `pdev` is bound to this driver, and stays so for `'a`.
unsafe fn bound_data<'a>(pdev: *mut bindings::pci_dev) -> Pin<&'a TallyPciData<'a>> {
    // SAFETY: a transparent wrapper of a live device that is bound.
    let pdev = unsafe { &*pdev.cast::<pci::Device<BoundInternal>>() };
    // SAFETY: bound, so `probe` has stored its data, which is of this type.
    unsafe { AsRef::<Device<BoundInternal>>::as_ref(pdev).drvdata_borrow() }
}

/// PCI is about to reset the device, or to take its power.
///
/// # Safety
/// For the shim alone: `pdev` is bound to this driver, and locked so that it stays so.
#[no_mangle]
unsafe extern "C" fn tally_pause(pdev: *mut bindings::pci_dev) {
    // SAFETY: as we were called.
    crate::driver::pause(unsafe { bound_data(pdev) });
}

/// PCI has found an error of the device's bus.
///
/// # Safety
/// As [`tally_pause`].
#[no_mangle]
unsafe extern "C" fn tally_halt(pdev: *mut bindings::pci_dev) {
    // SAFETY: as we were called.
    crate::driver::halt(unsafe { bound_data(pdev) });
}

/// PCI has reset the device, or given it power again.
///
/// # Safety
/// As [`tally_pause`].
#[no_mangle]
unsafe extern "C" fn tally_go_on(pdev: *mut bindings::pci_dev) {
    // SAFETY: as we were called.
    crate::driver::go_on(unsafe { bound_data(pdev) });
}

/// Takes from the device the right to reach memory.
pub(crate) fn clear_master(pdev: &pci::Device<Bound>) {
    // SAFETY: a bound device.
    unsafe { bindings::pci_clear_master(pci_raw(pdev)) };
}

/// Function-level reset by PCI.
///
/// # Errors
/// ENOTTY: the function has none. Others: it did not come back.
pub(crate) fn reset_function(pdev: &pci::Device<Bound>) -> Result {
    // SAFETY: a bound device.
    to_result(unsafe { tally_reset_function(pci_raw(pdev)) })
}

/// Ends pending and running work of `dev`, the watchdog and the reaper: no code of it runs afterwards.
/// Work items of the kernel crate cannot be cancelled, and ours must not outlive
/// the module.
pub(crate) fn cancel_work(dev: &TallyDevice) {
    let RawWork(watchdog) = crate::driver::watchdog_work(dev);
    let RawWork(reaper) = crate::driver::reaper_work(dev);
    // SAFETY: the work is part of the live device; `delayed_work` begins with it.
    let pending = unsafe {
        [bindings::cancel_delayed_work_sync(watchdog.cast()), bindings::cancel_work_sync(reaper)]
    };
    for _ in pending.into_iter().filter(|&pending| pending) {
        // SAFETY: a pending work owns a reference to its device, which is ours now.
        drop(unsafe { ARef::<TallyDevice>::from_raw(NonNull::from(dev)) });
    }
}

/// A work item as C sees it.
pub(crate) struct RawWork(*mut bindings::work_struct);

/// The work item in C of a work.
pub(crate) fn work<T: ?Sized, const ID: u64>(work: &kernel::workqueue::Work<T, ID>) -> RawWork {
    // SAFETY: a live object; the pointer is only computed.
    RawWork(unsafe { kernel::workqueue::Work::raw_get(work) })
}

/// The work item of a delayed work, which its type keeps to itself.
pub(crate) fn delayed_work<T: ?Sized, const ID: u64>(
    work: Pin<&kernel::workqueue::DelayedWork<T, ID>>,
) -> RawWork {
    // SAFETY: a live object; the pointers are only computed.
    RawWork(unsafe {
        kernel::workqueue::Work::raw_get(kernel::workqueue::DelayedWork::raw_as_work(
            core::ptr::from_ref(work.get_ref()),
        ))
    })
}

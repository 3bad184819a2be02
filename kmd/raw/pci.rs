// SPDX-License-Identifier: GPL-2.0
//! Services that the abstraction of PCI drivers lacks: other vendors' ids, resets by
//! others, recovery from errors, sleep, and the end of bus mastering.

use core::ffi::c_int;
use core::marker::PhantomData;
use core::pin::Pin;

use kernel::bindings;
use kernel::device::{Bound, BoundInternal, Device};
use kernel::error::to_result;
use kernel::pci;
use kernel::prelude::*;

/// `struct tally_power` of the shim.
#[repr(C)]
struct Callbacks {
    halt: unsafe extern "C" fn(*mut bindings::pci_dev),
    pause: unsafe extern "C" fn(*mut bindings::pci_dev),
    go_on: unsafe extern "C" fn(*mut bindings::pci_dev),
}

// The empty structs that bindgen makes inside kernel structs depend on the configuration only.
#[allow(improper_ctypes)]
extern "C" {
    fn tally_reset_function(pdev: *mut bindings::pci_dev) -> c_int;
    fn tally_handle_power(pdev: *mut bindings::pci_dev, callbacks: *const Callbacks);
}

/// A driver whose devices may be reset by others, or lose power, while it is bound.
pub(crate) trait Power: pci::Driver {
    /// Called when PCI has found an error of the device's bus.
    fn halt(data: Pin<&Self::Data<'_>>);
    /// Called before PCI resets the device or takes its power.
    fn pause(data: Pin<&Self::Data<'_>>);
    /// Called after PCI has reset the device or given it power again.
    fn go_on(data: Pin<&Self::Data<'_>>);
}

/// The PCI id of a vendor that the kernel has no name for. `pci::Vendor` has only
/// vendors with names.
pub(crate) const fn id(vendor: u16, device: u16) -> pci::DeviceId {
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

/// The C device of a PCI device.
fn raw(pdev: &pci::Device<Bound>) -> *mut bindings::pci_dev {
    // `pci::Device` is a transparent wrapper.
    core::ptr::from_ref(pdev)
        .cast::<bindings::pci_dev>()
        .cast_mut()
}

/// Installs the functions of [`Power`]. The abstraction of PCI drivers has no such callbacks.
///
/// # Safety
/// `pdev` is being bound to the driver `D`, and no other driver of this module calls this.
pub(crate) unsafe fn handle_power<D: Power>(pdev: &pci::Device<Bound>) {
    // SAFETY: the device is being bound, and so has a driver, `D`; the callbacks are static.
    unsafe { tally_handle_power(raw(pdev), &const { CallbacksOf::<D>::ALL }) };
}

struct CallbacksOf<D>(PhantomData<D>);

impl<D: Power> CallbacksOf<D> {
    const ALL: Callbacks = Callbacks {
        halt: halt::<D>,
        pause: pause::<D>,
        go_on: go_on::<D>,
    };
}

/// The data of a bound device.
///
/// # Safety
/// `pdev` is bound to the driver `D`, and stays so for `'a`.
unsafe fn bound_data<'a, D: pci::Driver>(pdev: *mut bindings::pci_dev) -> Pin<&'a D::Data<'a>> {
    // SAFETY: a transparent wrapper of a live device that is bound.
    let pdev = unsafe { &*pdev.cast::<pci::Device<BoundInternal>>() };
    // SAFETY: bound, so `probe` has stored its data, which is of this type.
    unsafe { AsRef::<Device<BoundInternal>>::as_ref(pdev).drvdata_borrow() }
}

/// # Safety
/// Only the shim may call this: `pdev` is bound to the driver `D`, and locked so that it stays bound.
unsafe extern "C" fn halt<D: Power>(pdev: *mut bindings::pci_dev) {
    // SAFETY: the shim passes a device that is bound to `D` and locked.
    D::halt(unsafe { bound_data::<D>(pdev) });
}

/// # Safety
/// The same as for [`halt`].
unsafe extern "C" fn pause<D: Power>(pdev: *mut bindings::pci_dev) {
    // SAFETY: the shim passes a device that is bound to `D` and locked.
    D::pause(unsafe { bound_data::<D>(pdev) });
}

/// # Safety
/// The same as for [`halt`].
unsafe extern "C" fn go_on<D: Power>(pdev: *mut bindings::pci_dev) {
    // SAFETY: the shim passes a device that is bound to `D` and locked.
    D::go_on(unsafe { bound_data::<D>(pdev) });
}

/// Ends the device's access to memory.
pub(crate) fn clear_master(pdev: &pci::Device<Bound>) {
    // SAFETY: a bound device.
    unsafe { bindings::pci_clear_master(raw(pdev)) };
}

/// Function-level reset by PCI.
///
/// # Errors
/// ENOTTY: the function has none. Others: it did not come back.
pub(crate) fn reset_function(pdev: &pci::Device<Bound>) -> Result {
    // SAFETY: a bound device.
    to_result(unsafe { tally_reset_function(raw(pdev)) })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver object. There is one, made by the first zeInit, and it lives until the process ends.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tally_ze::{ze_context_handle_t, ze_driver_handle_t};

use crate::core::context::Context;
use crate::core::device::{Device, Devices};
use crate::core::list::special;
use crate::error::Result;
use crate::handle::{self, Kind, object};
use crate::vm::printf;
use crate::{checks, hang, process, settings, trace};

/// The start of the driver's UUID; the rest is its version.
const UUID: [u8; 12] = *b"Tally driver";

/// The driver.
pub struct Driver {
    devices: Devices,
    /// The default context's handle; null while there is none.
    default_context: AtomicPtr<c_void>,
    /// Held while a default context is made.
    making: Mutex<()>,
}

object!(ze_driver_handle_t => Driver, Kind::Driver);

static DRIVER: OnceLock<ze_driver_handle_t> = OnceLock::new();

impl Driver {
    /// Makes the driver once, with all its devices. After a failure the next call tries again.
    ///
    /// # Errors
    /// The reason why the device cannot be opened.
    pub fn init() -> Result<ze_driver_handle_t> {
        static ONCE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONCE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&driver) = DRIVER.get() {
            return Ok(driver);
        }
        let settings = settings::get();
        crate::log::start(settings.log.as_deref());
        for complaint in &settings.complaints {
            log::warn!("{complaint}");
        }
        process::watch();
        hang::install();
        if let Some(path) = &settings.trace {
            trace::start(path);
        }
        let devices = Devices::open(settings)?;
        if checks::get().is_some() {
            special::set_checked();
            printf::include_checks();
        }
        let default_context = AtomicPtr::default();
        let driver = handle::create(Self { devices, default_context, making: Mutex::new(()) })?;
        process::set_ready();
        Ok(*DRIVER.get_or_init(|| driver))
    }

    /// The driver's handle, after [`Driver::init`].
    pub fn get() -> Option<ze_driver_handle_t> {
        DRIVER.get().copied()
    }

    /// The devices of zeDeviceGet.
    pub fn devices(&self) -> &[&'static Device] {
        &self.devices.listed
    }

    /// The devices that are not sub-devices of another one.
    pub fn roots(&self) -> &[&'static Device] {
        &self.devices.roots
    }

    /// Every device and sub-device, beginning with those of zeDeviceGet.
    pub fn all_devices(&self) -> impl Iterator<Item = &'static Device> {
        let all = self.devices.roots.first().map_or(&[][..], |root| root.gpu().devices());
        let listed = &self.devices.listed;
        let is_listed = |device: &Device| listed.iter().any(|it| it.number() == device.number());
        listed.iter().chain(all.iter().filter(move |it| !is_listed(it))).copied()
    }

    /// Makes a context of all devices, beginning with those of zeDeviceGet, and its handle.
    ///
    /// # Errors
    /// Those of [`Context::create`].
    pub fn create_context(&self) -> Result<ze_context_handle_t> {
        let devices: Vec<_> = self.devices().iter().chain(self.roots()).copied().collect();
        Context::create(&devices)
    }

    /// The context that an application gets without creating one. The first call makes it, and so does the next
    /// call after the application has destroyed it.
    ///
    /// # Errors
    /// Those of [`Context::create`].
    pub fn default_context(&self) -> Result<ze_context_handle_t> {
        let known =
            || Some(self.default_context.load(Ordering::Acquire)).filter(|it| !it.is_null());
        if let Some(raw) = known() {
            return Ok(ze_context_handle_t(raw));
        }
        let _one = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(raw) = known() {
            return Ok(ze_context_handle_t(raw));
        }
        let context = self.create_context()?;
        self.default_context.store(context.0, Ordering::Release);
        Ok(context)
    }

    /// Called when the application has destroyed a context. If it was the default one, there is none now.
    pub fn context_destroyed(&self, context: ze_context_handle_t) {
        let null = std::ptr::null_mut();
        // This fails for every other context.
        let _ = self.default_context.compare_exchange(
            context.0,
            null,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// The driver's version: one byte each for major and minor, two for the patch level.
    pub fn version() -> u32 {
        let part = |text: &str| text.parse::<u32>().unwrap_or(0);
        (part(env!("CARGO_PKG_VERSION_MAJOR")) << 24)
            | (part(env!("CARGO_PKG_VERSION_MINOR")) << 16)
            | part(env!("CARGO_PKG_VERSION_PATCH"))
    }

    /// A UUID that identifies this version of the driver.
    pub fn uuid() -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..12].copy_from_slice(&UUID);
        uuid[12..].copy_from_slice(&Self::version().to_le_bytes());
        uuid
    }
}

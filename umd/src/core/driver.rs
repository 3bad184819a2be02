// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver: there is one, made by the first zeInit, and it stays until the process ends.

use std::sync::{Mutex, OnceLock, PoisonError};

use tally_ze::ze_driver_handle_t;

use crate::core::device::{Device, Devices};
use crate::error::Result;
use crate::handle::{self, Kind, object};
use crate::{process, settings, trace};

/// What the driver's UUID begins with; the rest is its version.
const UUID: [u8; 12] = *b"Tally driver";

/// The driver.
pub struct Driver {
    devices: Devices,
}

object!(ze_driver_handle_t => Driver, Kind::Driver);

static DRIVER: OnceLock<ze_driver_handle_t> = OnceLock::new();

impl Driver {
    /// Makes the driver, once, with all its devices. A failure is not kept: the next call tries again.
    ///
    /// # Errors
    /// What stands in the way of opening the device.
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
        if let Some(path) = &settings.trace {
            trace::start(path);
        }
        let devices = Devices::open(settings)?;
        let driver = handle::create(Self { devices })?;
        process::set_ready();
        Ok(*DRIVER.get_or_init(|| driver))
    }

    /// The driver's handle, after [`Driver::init`].
    pub fn get() -> Option<ze_driver_handle_t> {
        DRIVER.get().copied()
    }

    /// The devices that zeDeviceGet answers.
    pub fn devices(&self) -> &[&'static Device] {
        &self.devices.listed
    }

    /// The devices that are no part of another one.
    pub fn roots(&self) -> &[&'static Device] {
        &self.devices.roots
    }

    /// The driver's version: a byte each of major and minor, two of patch level.
    pub fn version() -> u32 {
        let part = |text: &str| text.parse::<u32>().unwrap_or(0);
        (part(env!("CARGO_PKG_VERSION_MAJOR")) << 24)
            | (part(env!("CARGO_PKG_VERSION_MINOR")) << 16)
            | part(env!("CARGO_PKG_VERSION_PATCH"))
    }

    /// Identifies this version of the driver.
    pub fn uuid() -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..12].copy_from_slice(&UUID);
        uuid[12..].copy_from_slice(&Self::version().to_le_bytes());
        uuid
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The embedded kernel: the ioctls over the device library in this process.

use std::sync::Arc;

use tally_uapi::ioctl::Errno;

use super::{Kernel, Result};
use crate::settings::Settings;

/// Opens the device.
///
/// # Errors
/// ENODEV: this is the interface only; the device comes with its implementation.
pub fn open(_settings: &Settings) -> Result<Arc<dyn Kernel>> {
    Err(Errno::NoDevice)
}

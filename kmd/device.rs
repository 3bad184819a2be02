// SPDX-License-Identifier: GPL-2.0
//! The names of the DRM driver and its device, by which all modules speak of them. What
//! the driver is made of is said in `driver.rs`.

use kernel::drm;

/// The DRM driver.
pub(crate) struct Tally;

/// The DRM device.
pub(crate) type TallyDevice<C = drm::Normal> = drm::Device<Tally, C>;

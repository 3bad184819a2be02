// SPDX-License-Identifier: GPL-2.0
//! The types of the DRM driver and its device, by which all modules name them. `driver.rs`
//! implements the driver.

use kernel::drm;

/// The DRM driver.
pub(crate) struct Tally;

/// The DRM device.
pub(crate) type TallyDevice<C = drm::Normal> = drm::Device<Tally, C>;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The border to the system: a device file of the kernel, or the device in this process.
//!
//! ```text
//!  Backend ─┬─ Ioctls    the requests of uapi/UAPI.md
//!           ├─ Sharing   export and import of buffers, watches of cells
//!           └─ HostWait  what a waiting thread tells the device
//!
//!  drm: the render node of tally.ko    embedded: the device library in this process
//! ```
//!
//! Everything above this module is the same on every lane.

use std::sync::Arc;

use tally_ze::ze_result_t;

use crate::error::{self, Error};
use crate::settings::{Lane, Settings};

pub mod drm;
pub mod embedded;
#[cfg(test)]
pub mod fake;
mod host_wait;
mod ioctls;
mod lane;
mod sharing;
mod syncobjs;

pub use host_wait::HostWait;
pub use ioctls::{Ioctls, Result};
pub use lane::{Backend, Loss};
pub use sharing::{BoUse, Hold, SharedBo, Sharing, Watcher, is_dma_buf};
pub use syncobjs::Syncobjs;

/// Opens the device of this machine: a Tally render node if there is one, otherwise the device in this
/// process, unless the settings name the lane.
///
/// # Errors
/// UNINITIALIZED: the settings ask for a render node, and there is none. DEVICE_LOST: no threads for the
/// device in this process. OUT_OF_HOST_MEMORY.
pub fn open(settings: &Settings) -> error::Result<Arc<dyn Backend>> {
    let missing = match settings.lane {
        Some(Lane::Embedded) => None,
        Some(Lane::Drm) | None => match drm::open() {
            Ok(node) => return Ok(node),
            Err(missing) => Some(missing),
        },
    };
    match missing {
        Some(missing) if settings.lane == Some(Lane::Drm) => {
            let text = format!("TALLY_LANE=drm: {missing}");
            // Without a driver the application has no handle by which it could ask for the reason.
            eprintln!("tally: {text}");
            Err(Error::new(ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED, text))
        }
        _ => embedded::open(settings).map_err(|errno| Error::kernel("open", errno)),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that this library is in: what else it has loaded.

use std::os::unix::ffi::OsStrExt;

use tally_opencl_c::loaded;

/// The beginnings of the names of libraries that compute with Level Zero: its loader, this driver, SYCL.
const LEVEL_ZERO: [&str; 4] =
    ["libze_loader.so", "libze_tally.so", "libsycl.so", "libur_loader.so"];

/// Whether the process computes with Level Zero, or may soon. A program that has loaded only OpenCL looks for a
/// device to run on, for which a platform without queues would be in the way.
pub fn uses_level_zero() -> bool {
    loaded::files().iter().any(|file| {
        let name = file.file_name().unwrap_or_default().as_bytes();
        LEVEL_ZERO.iter().any(|known| name.starts_with(known.as_bytes()))
    })
}

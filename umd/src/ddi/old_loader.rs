// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects a loader that is too old for the program.
//!
//! SYCL's adapters for Level Zero look up `zeInitDrivers`, which loaders have since API 1.10, and call it
//! without a check: under an older loader the process ends with a segmentation fault. The driver is opened
//! before that. It cannot give the program another loader, but it can report the problem, and refuse to be a
//! driver, so that SYCL sees no device.

use std::sync::Once;

use tally_ze::ze_api_version_t;

/// The first API version whose loader has `zeInitDrivers`.
const INIT_DRIVERS: u32 = 1 << 16 | 10;

/// Part of the file names of SYCL's adapters, `libur_adapter_level_zero.so.0` and
/// `libur_adapter_level_zero_v2.so.0`.
const ADAPTER: &str = "/libur_adapter_level_zero";

/// Whether the loader, whose headers are of `version`, would crash this process. Reports it the first time.
pub fn would_crash(version: ze_api_version_t) -> bool {
    if version.0 >= INIT_DRIVERS || !has_adapter() {
        return false;
    }
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let (major, minor) = (version.0 >> 16, version.0 & 0xffff);
        eprintln!(
            "tally: the Level Zero loader of this process is too old for SYCL (API {major}.{minor}; 1.10 is needed), which would crash: start the program with tally-run, or install a newer libze1"
        );
    });
    true
}

/// Whether one of SYCL's adapters is in this process.
fn has_adapter() -> bool {
    // Without /proc this is unknown, and nothing is refused.
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains(ADAPTER))
}

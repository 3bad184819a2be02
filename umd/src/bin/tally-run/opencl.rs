// SPDX-License-Identifier: MIT OR Apache-2.0
//! The OpenCL platform for programs that compile kernels with OpenCL and run them with Level Zero.

use std::env;
use std::ffi::OsString;
use std::path::Path;

/// The variable with the libraries that OpenCL's loader opens besides those in the system's list.
pub(crate) const PLATFORMS: &str = "OCL_ICD_FILENAMES";
const LIBRARY: &str = "libtally_opencl.so";

/// The variable's value with Tally's platform beside the driver: behind the user's own, since programs may take
/// the first platform. Nothing if there is no such library, or if it is in the list.
pub(crate) fn platforms(driver: &Path, before: Option<OsString>) -> Option<OsString> {
    let own = driver.with_file_name(LIBRARY);
    let before = before.unwrap_or_default();
    let mut all: Vec<_> =
        env::split_paths(&before).filter(|it| !it.as_os_str().is_empty()).collect();
    if !own.is_file() || all.contains(&own) {
        return None;
    }
    all.push(own);
    // It fails if the folder's name has a colon, which no list can name.
    env::join_paths(all).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_platforms_stay_and_come_first() {
        let folder = env::temp_dir().join(format!("tally-opencl-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let driver = folder.join("libze_tally.so");
        assert_eq!(platforms(&driver, None), None, "there is no library");
        let own = folder.join(LIBRARY);
        std::fs::write(&own, "").unwrap();
        let of = |before: &str| platforms(&driver, Some(before.into()));
        assert_eq!(platforms(&driver, None), Some(own.clone().into()));
        assert_eq!(of(""), Some(own.clone().into()));
        let list = format!("a.so:/b/c.so:{}", own.display());
        assert_eq!(of("a.so:/b/c.so"), Some(list.clone().into()));
        assert_eq!(of(&list), None, "it is there");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that this library is in: what else it has loaded.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The beginnings of the names of libraries that compute with Level Zero: its loader, this driver, SYCL.
const LEVEL_ZERO: [&str; 4] =
    ["libze_loader.so", "libze_tally.so", "libsycl.so", "libur_loader.so"];

/// Whether the process computes with Level Zero, or may soon. A program that has loaded only OpenCL looks for a
/// device to run on, for which a platform without queues would be in the way.
pub fn uses_level_zero() -> bool {
    loaded().iter().any(|file| {
        let name = file.file_name().unwrap_or_default().as_bytes();
        LEVEL_ZERO.iter().any(|known| name.starts_with(known.as_bytes()))
    })
}

/// The folders of the libraries in this process.
pub fn folders() -> BTreeSet<PathBuf> {
    let loaded = loaded();
    let folders = loaded.iter().filter_map(|file| file.parent());
    folders.filter(|folder| folder.is_absolute()).map(Path::to_owned).collect()
}

/// The files of the libraries in this process.
fn loaded() -> Vec<PathBuf> {
    unsafe extern "C" fn note(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes its own structure and the pointer that it was given; a name is terminated.
        let (name, found) = unsafe {
            let name = (*info).dlpi_name;
            if name.is_null() {
                return 0;
            }
            (CStr::from_ptr(name), &mut *found.cast::<Vec<PathBuf>>())
        };
        found.push(OsStr::from_bytes(name.to_bytes()).into());
        0
    }
    let mut found = Vec::<PathBuf>::new();
    // SAFETY: `note` gets the list, which nothing else uses meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    found
}

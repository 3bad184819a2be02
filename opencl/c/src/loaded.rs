// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libraries that this process has loaded.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folders of the libraries in this process.
pub fn folders() -> BTreeSet<PathBuf> {
    let loaded = files();
    let folders = loaded.iter().filter_map(|file| file.parent());
    folders.filter(|folder| folder.is_absolute()).map(Path::to_owned).collect()
}

/// The files of the libraries in this process, with the names by which the dynamic linker knows them.
pub fn files() -> Vec<PathBuf> {
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

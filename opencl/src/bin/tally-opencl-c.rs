// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that compiles OpenCL C for `libze_tally.so` and `libtally_opencl.so`, which start it and
//! send it a request.

use std::fs::File;
use std::os::fd::FromRawFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    // SAFETY: the descriptor is open, and nothing else in this process uses it.
    let mut socket = unsafe { File::from_raw_fd(0) };
    match tally_opencl_c::serve(&mut socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "tally-opencl-c: {error} (libze_tally.so and libtally_opencl.so start this program)"
            );
            ExitCode::from(2)
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-gpu`: the Tally GPU for a virtual machine, served over vfio-user.

use std::process::ExitCode;

use tally_cli::Parser;
use tally_cli::gpu::{self, Arguments};
use tally_gpu::{MAX_ENGINES, MAX_WORKERS, Settings, serve};

// The command line refuses what the device would.
const _: () = assert!(gpu::MAX_ENGINES == MAX_ENGINES && gpu::MAX_WORKERS == MAX_WORKERS);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    allow_descriptors();
    if let Err(error) = serve(&arguments.socket, settings(&arguments)) {
        eprintln!("tally-gpu: {}: {error}", arguments.socket.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn settings(arguments: &Arguments) -> Settings {
    let default = Settings::default();
    let null_bytes = arguments.null_mib.map(|mib| u64::from(mib) << 20);
    Settings {
        compute_engines: arguments.compute_engines.unwrap_or(default.compute_engines),
        copy_engines: arguments.copy_engines.unwrap_or(default.copy_engines),
        workers: arguments.workers.unwrap_or(default.workers),
        substitutes: arguments.substitutes.unwrap_or(default.substitutes),
        reset_ms: arguments.reset_ms.unwrap_or(default.reset_ms),
        null_bytes: null_bytes.unwrap_or(default.null_bytes),
        chaos: arguments.chaos,
    }
}

/// Each VM takes a few descriptors: as many are allowed as the process may allow itself.
fn allow_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

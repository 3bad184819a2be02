// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-gpu`: the Tally GPU, for a virtual machine over vfio-user, or for this machine.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::ExitCode;

use tally_cli::Parser;
use tally_cli::gpu::{self, Arguments};
use tally_gpu::{MAX_ENGINES, MAX_WORKERS, Settings, host, serve};

// The command line enforces the device's limits.
const _: () = assert!(gpu::MAX_ENGINES == MAX_ENGINES && gpu::MAX_WORKERS == MAX_WORKERS);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    allow_descriptors();
    let settings = settings(&arguments);
    let result = match &arguments.socket {
        Some(socket) => {
            serve(socket, settings).map_err(|error| format!("{}: {error}", socket.display()))
        }
        None => serve_here(settings),
    };
    if let Err(error) = result {
        eprintln!("tally-gpu: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn serve_here(settings: Settings) -> Result<(), String> {
    let supervisor = Supervisor::find();
    let ready = |number| {
        eprintln!("tally-gpu: GPU tally-host.{number} is ready");
        supervisor.tell_ready();
    };
    host::serve(settings, ready).map_err(|error| error.to_string())
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
        refuse_unmap: arguments.refuse_unmap,
    }
}

/// The supervisor that has started this program and waits for its readiness, by systemd's sd_notify(3).
struct Supervisor(Option<UnixDatagram>);

impl Supervisor {
    /// Connects to it, if there is one. Called while the process still has the right to.
    fn find() -> Self {
        let connect = || {
            let name = std::env::var_os("NOTIFY_SOCKET")?;
            let address = match name.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name).ok()?,
                None => SocketAddr::from_pathname(&name).ok()?,
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.connect_addr(&address).ok()?;
            Some(socket)
        };
        Self(connect())
    }

    fn tell_ready(&self) {
        if let Some(socket) = &self.0 {
            // A failure cannot be reported to it.
            let _ = socket.send(b"READY=1");
        }
    }
}

/// Raises the limit of descriptors to the most that the process may have, since each VM takes a few.
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

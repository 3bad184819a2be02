// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-gpu`: the Tally GPU for a virtual machine, served over vfio-user.

use std::path::PathBuf;
use std::process::ExitCode;

use tally_gpu::{MAX_ENGINES, MAX_WORKERS, Settings, serve};

const USAGE: &str = "\
usage: tally-gpu --socket PATH [OPTION]...

Serves the Tally GPU to one virtual machine and ends with it. QEMU (10.1 or newer) attaches it with

  -M q35,memory-backend=mem -object memory-backend-memfd,id=mem,size=SIZE,share=on
  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"PATH\"}}'

  --socket PATH          where to listen
  --compute-engines N    engines that take all packets (4)
  --copy-engines N       engines that take all but DISPATCH (2)
  --workers N            execution units of each address space (one a CPU)
  --substitutes N        threads that take the place of stuck ones (8)
  --reset-ms N           how long a kernel may go on when its queue is destroyed (100)
  --null-mib N           memory of NULL mappings, of all address spaces together (a quarter of
                         this machine's)
  --chaos N              decides by chance whatever is open, alike for the same number
  -h, --help             this text
  -V, --version          the version
";

enum Request {
    Serve(PathBuf, Settings),
    Help,
    Version,
}

fn main() -> ExitCode {
    let request = match parse(std::env::args_os().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("tally-gpu: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match request {
        Request::Help => print!("{USAGE}"),
        Request::Version => println!("tally-gpu {}", env!("CARGO_PKG_VERSION")),
        Request::Serve(socket, settings) => {
            allow_descriptors();
            if let Err(error) = serve(&socket, settings) {
                eprintln!("tally-gpu: {}: {error}", socket.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn parse(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> Result<Request, String> {
    let mut settings = Settings::default();
    let mut socket = None;
    while let Some(argument) = arguments.next() {
        let name = argument.to_str().unwrap_or_default().to_owned();
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        let mut long = |least: u64, most: u64| {
            let text = value()?;
            let number = text.to_str().and_then(|text| text.parse::<u64>().ok());
            let number = number.filter(|number| (least..=most).contains(number));
            number.ok_or(format!("{name} {text:?}: a number from {least} to {most} is needed"))
        };
        let mut number =
            |least: u32, most: u32| long(least.into(), most.into()).map(|number| number as u32);
        match name.as_str() {
            "--socket" => socket = Some(PathBuf::from(value()?)),
            "--compute-engines" => settings.compute_engines = number(1, MAX_ENGINES)?,
            "--copy-engines" => settings.copy_engines = number(0, MAX_ENGINES)?,
            "--workers" => settings.workers = number(1, MAX_WORKERS)?,
            "--substitutes" => settings.substitutes = number(0, MAX_WORKERS)?,
            "--reset-ms" => settings.reset_ms = number(1, 60_000)?,
            "--null-mib" => settings.null_bytes = u64::from(number(0, u32::MAX)?) << 20,
            "--chaos" => settings.chaos = Some(long(0, u64::MAX)?),
            "-h" | "--help" => return Ok(Request::Help),
            "-V" | "--version" => return Ok(Request::Version),
            _ => return Err(format!("what is {argument:?}?")),
        }
    }
    let socket = socket.ok_or("--socket PATH is needed")?;
    Ok(Request::Serve(socket, settings))
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

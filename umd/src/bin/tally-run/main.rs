// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-run PROGRAM`: starts a Level Zero program with Tally as its driver.
//!
//! Nothing is installed. The driver is the one beside this program (or in `../lib`); `ZE_ENABLE_ALT_DRIVERS`
//! names it to the loader. The loader is the one that the program's search path names, or else the system's, except
//! for SYCL and Python programs if it is older than they need. Those get the one beside the driver, which the Python
//! package has, or the newest that `scripts/loaders` has unpacked, and are not started if there is none, since SYCL
//! crashes with a loader that is too old. An unpacked loader needs a newer C library than the system's, so that
//! library's dynamic linker then starts the program. A program that opens the system's loader by its full name gets
//! the newer one, too: see `ze_tally::audit`.

use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use tally_cli::Parser;
use tally_cli::run::Arguments;

use image::{Image, find_program};
use loader::{Loader, driver};

mod checks;
mod environment;
mod image;
mod loader;
mod opencl;

/// Exit statuses of env and of shells: the program exists and cannot be started, or does not exist.
const CANNOT_START: u8 = 126;
const NOT_FOUND: u8 = 127;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command.as_slice() {
        program if arguments.check_environment => {
            environment::show(program.first().map(AsRef::as_ref), arguments.json)
        }
        [program, of_its_own @ ..] => run(&arguments, program, of_its_own),
        [] => unreachable!("the parser has refused it"),
    }
}

/// Becomes the program; returns only if that fails.
fn run(arguments: &Arguments, program: &OsStr, of_its_own: &[OsString]) -> ExitCode {
    let Some(path) = find_program(program) else {
        eprintln!("tally-run: {}: not found", program.to_string_lossy());
        return ExitCode::from(NOT_FOUND);
    };
    let started = command(arguments, &path, of_its_own).map(|mut command| {
        if arguments.print {
            show(&command);
            return Ok(());
        }
        Err(command.exec())
    });
    match started {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("tally-run: {}: {error}", path.display());
            ExitCode::from(CANNOT_START)
        }
        Err(error) => {
            eprintln!("tally-run: {error}");
            ExitCode::from(CANNOT_START)
        }
    }
}

/// The command that starts `program` on Tally.
fn command(arguments: &Arguments, program: &Path, of_its_own: &[OsString]) -> Result<Command> {
    // With a debugger it is what the debugger starts.
    let behind_args = of_its_own.iter().skip_while(|word| *word != "--args").nth(1);
    let debuggee = behind_args.filter(|_| arguments.debug).and_then(|name| find_program(name));
    let image = Image::of(debuggee.as_deref().unwrap_or(program));
    let loader = Loader::choose(&arguments.loader, &image)?;
    let driver = driver()?;
    let mut command = loader.command(program, &image, &driver);
    if arguments.debug {
        command.env("TALLY_DEBUG", "1");
        if env::var_os("TALLY_LANE").is_none() {
            // Kernels run in the program's process.
            command.env("TALLY_LANE", "embedded");
        }
        if program.file_name().is_some_and(|name| name == "gdb") {
            // Kernels are not there before the program has created them.
            command.args(["-iex", "set breakpoint pending on"]);
        }
    }
    command.args(of_its_own).env("ZE_ENABLE_ALT_DRIVERS", &driver);
    if let Some(platforms) = opencl::platforms(&driver, env::var_os(opencl::PLATFORMS)) {
        command.env(opencl::PLATFORMS, platforms);
    }
    if let Some(identity) = &arguments.identity {
        command.env("TALLY_DEVICE_AS", identity);
    }
    if let Some(file) = &arguments.record {
        // The program may change its folder.
        command.env("TALLY_RECORD", std::path::absolute(file)?);
    }
    checks::ask_for(&mut command, &arguments.checks)?;
    Ok(command)
}

/// Prints a command as a shell would take it.
fn show(command: &Command) {
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.into_owned(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), quoted(value?))));
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted);
    println!("{}", variables.chain(words).collect::<Vec<_>>().join(" "));
}

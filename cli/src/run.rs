// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `tally-run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, ValueHint};

/// GPUs that the device can pass for.
pub const IDENTITIES: [&str; 5] = ["uhd-630", "uhd-770", "arc-a770", "arc-b580", "max-1100"];
/// Checks that there are, and all of them.
pub const CHECKS: [&str; 8] =
    ["memory", "init", "leaks", "portable", "races", "same-values", "sync", "all"];

/// Starts a Level Zero, SYCL or Python program on Tally
#[derive(Debug, Parser)]
#[command(
    name = "tally-run",
    version,
    max_term_width = 80,
    override_usage = "tally-run [OPTIONS] PROGRAM [ARGUMENT]...\n       \
        tally-run --check-environment [--json] [PROGRAM]",
    after_long_help = AFTER
)]
pub struct Arguments {
    /// The Level Zero loader: auto, tally, system, trixie, sid or a folder
    #[arg(long, value_name = "WHICH", default_value = "auto", value_hint = ValueHint::DirPath)]
    pub loader: OsString,

    /// The GPU whose name and numbers the device has (TALLY_DEVICE_AS)
    #[arg(long = "as", value_name = "GPU", value_parser = IDENTITIES)]
    pub identity: Option<String>,

    /// Build kernels for a debugger: PROGRAM is gdb, with its arguments (TALLY_DEBUG)
    #[arg(long)]
    pub debug: bool,

    /// Record the device's work in FILE, or in a file for each process in a folder (TALLY_RECORD)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub record: Option<PathBuf>,

    /// Say what would be started, and do not start it
    #[arg(long)]
    pub print: bool,

    /// Say which drivers and loaders there are, and which PROGRAM gets
    #[arg(long)]
    pub check_environment: bool,

    /// With --check-environment: answer as JSON
    #[arg(long, requires = "check_environment")]
    pub json: bool,

    /// The program and its arguments, which may be options
    #[arg(
        value_name = "PROGRAM",
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments,
        required_unless_present = "check_environment"
    )]
    pub command: Vec<OsString>,

    // Last, since its heading counts for all options behind it.
    /// How the program is checked.
    #[command(flatten)]
    pub checks: Checks,
}

/// The options for checks of a program: `docs/checks.md`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Checks")]
pub struct Checks {
    /// Find mistakes of the program: memory and init, or what CHECKS names
    #[arg(
        long = "check",
        value_name = "CHECKS",
        value_parser = CHECKS,
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_values = ["memory", "init"]
    )]
    pub wanted: Vec<String>,

    /// Write what was found to FILE, as JSON; %p stands for the process id
    #[arg(long, value_name = "FILE", requires = "wanted", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    /// Write what was found to FILE, as SARIF
    #[arg(long, value_name = "FILE", requires = "wanted", value_hint = ValueHint::FilePath)]
    pub sarif: Option<PathBuf>,

    /// Do not tell the mistakes that FILE names; may be repeated
    #[arg(long, value_name = "FILE", requires = "wanted", value_hint = ValueHint::FilePath)]
    pub suppressions: Vec<PathBuf>,

    /// The exit status if anything was found
    #[arg(
        long,
        value_name = "STATUS",
        requires = "wanted",
        value_parser = clap::value_parser!(u8).range(1..)
    )]
    pub error_exitcode: Option<u8>,

    /// Tell from where the program has called
    #[arg(long, requires = "wanted")]
    pub stacks: bool,
}

const AFTER: &str = "\
Loaders:
  auto    the program's own, or the system's, or a newer one where the program
          needs it
  tally   the one beside the driver, which Tally's packages have
  system  the system's, even if it is older than the program needs
  trixie  that of Debian 13, as scripts/loaders has unpacked it
  sid     that of Debian unstable, likewise
  FOLDER  the one in a folder that holds libze_loader.so.1

Examples:
  tally-run ./program                     a Level Zero program
  tally-run python -c 'import dpctl'      a Python program that uses SYCL
  tally-run --as arc-a770 ./program       the device calls itself an Arc A770
  TALLY_HANG_MS=1000 tally-run ./program  says who waits for whom when it hangs
  tally-run --check ./program             finds wrong accesses to memory
  tally-run --record f.tally ./program    records, for tally-replay
  tally-run --debug gdb --args ./program  breakpoints in kernels

Exit status:
  that of the program, or the one that --error-exitcode gives; or
  2    the command line is wrong
  126  the program cannot be started
  127  there is no such program

Environment:
  The program runs with ZE_ENABLE_ALT_DRIVERS set to Tally's driver, and
  with its OpenCL platform, which only compiles, in OCL_ICD_FILENAMES. The
  driver's own settings begin with TALLY_; docs/settings.md lists them.

See also:
  tally-info(1), tally-replay(1), tally-top(1), tally-compiler(1)";

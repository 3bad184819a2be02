// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `tally-replay`.

use std::path::PathBuf;

use clap::{Parser, ValueHint};

use crate::run::Checks;

/// Runs the device's work of a recorded program again, without the program
#[derive(Debug, Parser)]
#[command(name = "tally-replay", version, max_term_width = 80, after_long_help = AFTER)]
pub struct Arguments {
    /// Compare memory with the recorded run's, after each submission
    #[arg(long)]
    pub verify: bool,

    /// Say what the recording holds, call by call, and run nothing
    #[arg(long, conflicts_with = "verify")]
    pub list: bool,

    /// Run the call with this number alone, after all before it, and stop
    #[arg(long, value_name = "N", conflicts_with = "list")]
    pub only: Option<u64>,

    /// Run on a device that decides by chance what is not guaranteed (TALLY_CHAOS)
    #[arg(long, value_name = "NUMBER")]
    pub chaos: Option<u64>,

    /// Write a timeline to FILE (TALLY_TRACE)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,

    /// How long to wait for work that had ended in the recorded run
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u32,

    /// The recording
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    // Last, since its heading counts for all options behind it.
    /// How the work is checked.
    #[command(flatten)]
    pub checks: Checks,
}

const AFTER: &str = "\
Examples:
  tally-run --record work.tally ./program  records
  tally-replay work.tally                  runs the same work again
  tally-replay --verify work.tally         does it come to the same bytes?
  tally-replay --check work.tally          finds wrong accesses to memory
  tally-replay --list work.tally           the calls, with their numbers

Exit status:
  0  the work has run; with --verify, to the same bytes
  1  the work cannot be run as it was, or comes to other bytes
  2  the command line is wrong, or the file is no whole recording
  or the one that --error-exitcode gives

Environment:
  Settings of the driver count as for any program; docs/settings.md lists
  them.

See also:
  tally-run(1)";

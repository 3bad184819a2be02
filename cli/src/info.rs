// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `tally-info`.

use clap::Parser;

/// Shows what Tally reports to a Level Zero program on this machine
#[derive(Debug, Parser)]
#[command(name = "tally-info", version, max_term_width = 80, after_long_help = AFTER)]
pub struct Arguments {
    /// Show names only
    #[arg(short, long, conflicts_with = "json")]
    pub list: bool,

    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

const AFTER: &str = "\
Examples:
  tally-info
  TALLY_DEVICES=2 tally-info --list
  tally-info --json | jq '.drivers[0].devices[0].memory_bytes'

Exit status:
  0  the driver has answered, also if it shows no device
  1  the driver cannot start; the message says why
  2  the command line is wrong

See also:
  tally-run(1)";

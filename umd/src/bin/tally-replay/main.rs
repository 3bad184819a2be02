// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-replay FILE`: runs the device's work of a recording again, without the program (`docs/replay.md`).
//!
//! It opens the driver's library as a loader does, and makes the recorded calls, with what the host wrote between
//! them. So all settings of the driver work, and checks, chaos and a trace see what they would have seen. Calls
//! are made in the order of the recording on one thread: what waits is recorded when it returns, so all that it
//! waited for comes before.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use tally_cli::Parser;
use tally_cli::replay::Arguments;

use player::{Outcome, Player};
use scan::Scan;
use ze_tally::recording::Problem;

mod arguments;
mod driver;
mod environment;
mod functions;
mod listing;
mod memory;
mod player;
mod scan;

/// The work cannot be run as it was, or comes to other bytes.
const FAILED: u8 = 1;
/// The file is no whole recording.
const NO_RECORDING: u8 = 2;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let file = &arguments.file;
    let failed = |error: Box<dyn Error>, status| {
        eprintln!("tally-replay: {}: {error}", file.display());
        ExitCode::from(status)
    };
    let mut scan = match Scan::of(file) {
        Ok(scan) => scan,
        Err(error) => return failed(error, NO_RECORDING),
    };
    if arguments.list {
        return match listing::print(file, &scan) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(error, FAILED),
        };
    }
    tell(&scan);
    match replay(&arguments, file, &mut scan) {
        Ok(outcome) => {
            outcome.tell(arguments.verify);
            ExitCode::from(if outcome.differs() { FAILED } else { 0 })
        }
        Err(error) if error.is::<Problem>() => failed(error, NO_RECORDING),
        Err(error) => failed(error, FAILED),
    }
}

fn replay(arguments: &Arguments, file: &Path, scan: &mut Scan) -> Result<Outcome> {
    environment::set(arguments, scan)?;
    let writes = std::mem::take(&mut scan.functions);
    Player::new(arguments, scan, writes)?.play(file)
}

/// Says what a replay cannot know.
fn tell(scan: &Scan) {
    if scan.cut || !scan.ended {
        eprintln!(
            "tally-replay: the program was ended from outside; what it did up to there is replayed"
        );
    }
    for what in &scan.not_kept {
        eprintln!("tally-replay: the recording does not have {what}");
    }
}

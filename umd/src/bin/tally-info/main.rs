// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-info`: shows what Tally reports to a Level Zero application on this machine.
//!
//! It asks the driver's own entry points, in this process and without a loader, so it also works
//! where no loader is installed.

use std::io::Write;
use std::process::ExitCode;

use tally_cli::Parser;
use tally_cli::info::Arguments;

mod query;
mod text;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match answer(&Arguments::parse()) {
        Ok(text) => {
            // A pipe that closes early is not a failure of the driver.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("tally-info: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(arguments: &Arguments) -> Result<String> {
    let info = query::info()?;
    Ok(match (arguments.json, arguments.list) {
        (true, _) => serde_json::to_string_pretty(&info)? + "\n",
        (false, true) => text::list(&info),
        (false, false) => text::table(&info),
    })
}

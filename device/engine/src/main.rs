// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-engine`: the engine process. The build of `tally-gpu` makes it static
//! and with fixed addresses, and `tally-gpu` carries and starts it; built in any
//! other way it says so and ends.

use std::process::ExitCode;

use tally_engine::arena::Arena;

#[global_allocator]
static ARENA: Arena = Arena::new();

fn main() -> ExitCode {
    let Err(error) = tally_engine::process::run();
    eprintln!("tally-engine: {error}");
    ExitCode::FAILURE
}

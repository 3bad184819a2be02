// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-engine`: the engine process. The build of `tally-gpu` links it statically
//! at fixed addresses, and `tally-gpu` contains and starts it. Built in any other
//! way, it reports that and ends.

use std::process::ExitCode;

use tally_engine::arena::Arena;

#[global_allocator]
static ARENA: Arena = Arena::new();

fn main() -> ExitCode {
    let Err(error) = tally_engine::process::run();
    eprintln!("tally-engine: {error}");
    ExitCode::FAILURE
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver compared with the model, on random programs, through the stock loader.
//!
//! TALLY_PROGRAMS and TALLY_SEED set the number of programs and the first one. TALLY_RUNS is the number
//! of times that each is run: a campaign prefers more programs to more runs of each. TALLY_PROGRESS
//! names a file with the number of finished programs, as a 64-bit integer: it distinguishes a program
//! that hangs from a slow one, and tells which one of the seed it is.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use tally_tests::model::Model;
use tally_tests::program::Program;
use tally_tests::program::generate::{Shape, search};
use tally_tests::program::run::run;
use tally_tests::ze_backend::{Driver, can_share, partner};

/// The first failure was printed.
static FIRST: std::sync::Once = std::sync::Once::new();

fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}

fn agrees(program: &Program, runs: u32) -> Result<(), String> {
    let model = Model::of(program).map_err(|(step, refusal)| format!("step {step}: {refusal}"))?;
    let expected = model.expected().map_err(|refusal| refusal.to_string())?;
    for _ in 0..runs {
        run(program, &expected, &Driver::new()).map_err(|mismatch| {
            // Printed at once: while it is shrunk, a program may well hang in a synchronous append.
            FIRST.call_once(|| eprintln!("{mismatch}, before it is made smaller:\n{program}"));
            mismatch.to_string()
        })?;
    }
    Ok(())
}

/// The driver behaves as the model expects for every valid program.
#[test]
fn the_driver_agrees_with_the_model() {
    let (cases, seed) = (number("TALLY_PROGRAMS", 200), number("TALLY_SEED", 1));
    let shape = Shape { sharing: can_share(), ..Shape::default() };
    let progress = std::env::var_os("TALLY_PROGRESS")
        .map(|file| File::create(file).expect("the file of TALLY_PROGRESS can be written"));
    let done = Cell::new(0_u64);
    let agrees = |program: &Program, runs| {
        // While a failing program is shrunk, a run that passes by luck costs more.
        let runs = if FIRST.is_completed() { runs } else { number("TALLY_RUNS", runs) };
        agrees(program, runs)?;
        done.set(done.get() + 1);
        if let Some(file) = &progress {
            file.write_all_at(&done.get().to_le_bytes(), 0).expect("the file stays writable");
        }
        Ok(())
    };
    if let Err(found) = search(shape, seed.into(), cases, agrees) {
        panic!("{found}");
    }
}

/// The other process of programs that share events.
#[test]
#[ignore = "runs in a child process"]
fn partner() {
    partner::serve();
}

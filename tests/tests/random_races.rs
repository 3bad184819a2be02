// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs in which commands race, by the model, and what the driver's checks say of them: a program with
//! races has a report, and each report is a race of the model.
//!
//! TALLY_PROGRAMS and TALLY_SEED set the number of programs and the first one. TALLY_RACES_LOG names a folder for
//! the checks' log, TALLY_PROGRESS a file with the number of finished programs, as a 64-bit integer. In every other
//! program the host pauses before each step, so that waits find complete what they would wait for. TALLY_FIRST is the
//! number of a seed's first program: with TALLY_PROGRAMS=1 that program runs alone.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use tally_tests::checks_log::{LOG, Log, Pair, told};
use tally_tests::model::Model;
use tally_tests::program::generate::with_races;
use tally_tests::program::run::{Mismatch, run_slowly};
use tally_tests::program::{Action, Program};
use tally_tests::ze_backend::Driver;

/// Longer than most commands take.
const PAUSE: Duration = Duration::from_micros(300);

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}

/// The driver tells the races of random programs, and nothing else.
#[test]
fn the_driver_tells_the_races_of_the_model() {
    told("programs", "races-alone", &[]);
}

/// It does so, too, while it records them: what the recorder waits for orders nothing.
#[test]
fn the_driver_tells_them_while_it_records() {
    let recording = env::temp_dir().join(format!("tally-races-{}.tally", std::process::id()));
    let file = recording.to_str().expect("plain letters");
    told("programs", "races-recorded", &[("TALLY_RECORD", file)]);
    fs::remove_file(&recording).expect("it was recorded");
}

/// The steps that are commands to the checks, in their order.
fn commands(program: &Program) -> Vec<usize> {
    let is = |action: &Action| {
        matches!(action, Action::Append(..) | Action::AppendLists { .. } | Action::Execute { .. })
    };
    (0..program.steps.len()).filter(|&step| is(&program.steps[step].action)).collect()
}

fn check(program: &Program, log: &mut Log, pause: Duration) -> Result<BTreeSet<Pair>, String> {
    let model = Model::of_racing(program).map_err(|(step, it)| format!("step {step}: {it}"))?;
    let expected = model.expected().map_err(|refusal| refusal.to_string())?;
    match run_slowly(program, &expected, &Driver::alone(), pause) {
        // With races the memory may hold anything.
        Ok(()) | Err(Mismatch::Memory { .. }) => {}
        Err(mismatch) => return Err(mismatch.to_string()),
    }
    let (count, found) = log.take();
    let steps = commands(program);
    if count != steps.len() {
        return Err(format!("{count} commands instead of {}", steps.len()));
    }
    let found: BTreeSet<Pair> =
        found.into_iter().map(|(one, two)| (steps[one], steps[two])).collect();
    let racing = model.racing();
    if let Some(pair) = found.difference(&racing).next() {
        return Err(format!("{pair:?} is no race; the model has {racing:?}"));
    }
    if found.is_empty() && !racing.is_empty() {
        return Err(format!("none of the races was told: {racing:?}"));
    }
    Ok(found)
}

#[test]
#[ignore = "runs in a child process"]
fn programs() {
    let (cases, seed) = (number("TALLY_PROGRAMS", 200), number("TALLY_SEED", 1));
    let path = PathBuf::from(env::var_os(LOG).expect("the parent sets it"));
    let mut log = Log::new(path);
    let (mut racing, mut told) = (0, 0);
    let first = number("TALLY_FIRST", 0);
    let progress = env::var_os("TALLY_PROGRESS").map(|it| File::create(it).expect("a file"));
    for case in first..first + cases {
        let number = seed.wrapping_mul(1 << 32).wrapping_add(case);
        let program = with_races(number);
        let pause = if case % 2 == 0 { Duration::ZERO } else { PAUSE };
        match check(&program, &mut log, pause) {
            Ok(found) => {
                racing += u64::from(!found.is_empty());
                told += found.len();
            }
            Err(reason) => panic!("program {case} of the seed {seed}: {reason}\n{program}"),
        }
        if let Some(file) = &progress {
            file.write_all_at(&(case - first + 1).to_le_bytes(), 0)
                .expect("the file stays writable");
        }
    }
    println!("{cases} programs, {racing} with races, {told} pairs told");
    assert!(cases < 100 || racing > cases / 10, "{racing} of {cases} programs have races");
}

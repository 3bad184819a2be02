// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-top`, for tests that inspect a live process with it: this one, or one that they have started.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::ze;

/// The variable that a child needs in its environment to be inspected.
pub const VARIABLE: (&str, &str) = ("TALLY_TOP", "1");
/// The time limit of [`until`].
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs `tally-top`, which lies beside the driver, or in the folder above if Cargo has put only the driver
/// beside the tests.
///
/// # Panics
/// If it does not exist.
pub fn top(arguments: &[&str]) -> Output {
    let library = ze::library();
    let folders = library.ancestors().skip(1).take(2);
    let program = folders.map(|it| it.join("tally-top")).find(|it| it.exists());
    Command::new(program.expect("tally-top is built with the driver"))
        .args(arguments)
        .output()
        .expect("tally-top runs")
}

/// All its output.
pub fn text(output: &Output) -> String {
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&said).into_owned()
}

/// Runs `tally-top` on this process until its output is `enough`, and returns the last output. The
/// process has [`VARIABLE`] in its environment.
pub fn until(enough: impl Fn(&str) -> bool) -> String {
    let process = std::process::id().to_string();
    let end = Instant::now() + PATIENCE;
    loop {
        let shown = text(&top(&[&process]));
        if enough(&shown) || Instant::now() >= end {
            return shown;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits until this many queues of this process have parked.
///
/// # Panics
/// If they do not.
pub fn until_parked(queues: usize) {
    let parked = |shown: &str| shown.matches(" parked ").count();
    let shown = until(|shown| parked(shown) == queues);
    assert_eq!(parked(&shown), queues, "queues are parked:\n{shown}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_CHECK_LOG`: a line for each appended command, for each copy of one, and for each pair of commands that race,
//! for tests that know which commands race. Reports name each place in a program once; a test runs many programs from
//! the same places.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::settings;

fn log() -> Option<&'static Mutex<File>> {
    static LOG: OnceLock<Option<Mutex<File>>> = OnceLock::new();
    let open = || {
        let path = settings::get().checks.log.as_ref()?;
        File::options().append(true).create(true).open(path).ok().map(Mutex::new)
    };
    LOG.get_or_init(open).as_ref()
}

/// Whether there is a log.
pub fn is_on() -> bool {
    log().is_some()
}

fn write(line: std::fmt::Arguments<'_>) {
    if let Some(log) = log() {
        // The test notices what is missing.
        let _ = writeln!(log.lock().unwrap_or_else(PoisonError::into_inner), "{line}");
    }
}

/// Notes that a thread appends a command with this number.
pub fn append(number: u32, thread: i32) {
    write(format_args!("append {number} {thread}"));
}

/// Notes that a command with this number is a copy of another one, in a copy of its list.
pub fn copy(number: u32, of: u32) {
    write(format_args!("copy {number} {of}"));
}

/// Notes that two commands race.
pub fn race(earlier: u32, later: u32) {
    static KNOWN: Mutex<Option<HashSet<(u32, u32)>>> = Mutex::new(None);
    if log().is_none() {
        return;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.get_or_insert_default().insert((earlier, later)) {
        write(format_args!("race {earlier} {later}"));
    }
}

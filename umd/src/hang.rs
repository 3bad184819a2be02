// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_HANG_MS`: reports which queue waits for which, when a host wait lasts suspiciously long; and
//! `TALLY_TOP`: the same at any time, for `tally-top`.
//!
//! One report for each such wait is written to standard error. It contains the value that the host waits for; for
//! every parked queue of the process the cell and value that it waits for, the call that appended the wait, and
//! the queues that will signal it; and any cycle of these waits.
//!
//! ```text
//!  names ── whose counter, whose event a cell is ──┐
//!  calls ── which call wrote which packets ────────┼─► waiter ── a queue's remaining steps ───► cycle
//!  QUEUE_QUERY, rings, recordings ─────────────────┘                                             │
//!                                                               text and JSON ◄── report ◄──────┘
//! ```
//!
//! The remaining steps are read from the packets themselves. Besides the packets, the driver keeps only names and
//! a word for each command, and nothing while the setting is off.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::checks;
use crate::host_waits::{self, HostWait, Waiting};
use crate::settings;

pub mod calls;
pub mod cycle;
mod gather;
pub mod names;
pub mod observed;
pub mod report;
pub mod top;
pub mod waiter;

use calls::CallLog;
use gather::gather;
use report::Report;

/// Begins the log of a new list's calls, if hangs are reported.
pub fn log_calls() -> Option<Box<CallLog>> {
    settings::get().observes_waits().then(|| {
        crate::process::set_watched();
        top::serve();
        Box::default()
    })
}

/// Begins to report waits that last too long.
pub fn install() {
    host_waits::report_with(report);
}

/// Reports a host wait that has lasted for `lasted`.
#[cold]
fn report(waiting: Waiting, lasted: Duration) {
    if crate::process::is_gone() {
        return;
    }
    let since = Instant::now().checked_sub(lasted).unwrap_or_else(Instant::now);
    let report = gather(&[HostWait::here(waiting, since)]);
    let lines = report.lines();
    if settings::get().checks.sync && report.never_ends() && is_alone() {
        checks::never_signalled(lines.clone());
    }
    if settings::get().hang_ms.is_none() {
        return;
    }
    crate::trace::hang(gather::nanoseconds(lasted), &lines);
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "tally ERROR hang: {line}");
    }
    // There is no way to report a standard error that is closed.
    let _ = std::io::stderr().write_all(text.as_bytes());
    if let Some(path) = &settings::get().hang_json
        && let Err(error) = append(path, &report)
    {
        log::error!("TALLY_HANG_JSON: {}: {error}", path.display());
    }
}

/// Whether all other threads of the process are the driver's, and none of them calls functions of the program or
/// serves another process: then no other thread can signal anything.
fn is_alone() -> bool {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    let mut others = threads.flatten().filter_map(|it| {
        let is_this = it.file_name().to_str()?.parse() == Ok(HostWait::this_thread());
        if is_this { None } else { std::fs::read_to_string(it.path().join("comm")).ok() }
    });
    let is_ours = |name: String| {
        name.starts_with("tally-") && !["tally-host-fn", "tally-ipc"].contains(&name.trim())
    };
    others.all(is_ours)
}

/// Appends the report to a file as one line, in one write, since other threads and processes may write there, too.
fn append(path: &Path, report: &Report) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    file.write_all(format!("{}\n", report.to_json()).as_bytes())
}

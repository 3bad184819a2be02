// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_HANG_MS`: reports which queue waits for which, when a wait of the host lasts suspiciously
//! long; and `TALLY_TOP`: the same at any time, for `tally-top`.
//!
//! Once for each such wait a report goes to standard error: the value that the host waits for; for every
//! parked queue of the process the cell and value that it waits for, the call that appended the
//! wait, and the queues that are going to signal it; and any cycle that these waits form.
//!
//! ```text
//!  names ── whose counter, whose event a cell is ──┐
//!  calls ── which call wrote which packets ────────┼─► waiter ── what a queue is still to do ─► cycle
//!  QUEUE_QUERY, rings, recordings ─────────────────┘                                             │
//!                                                                          report ◄──────────────┘
//! ```
//!
//! The steps that are still to come are read from the packets themselves. Besides the packets, the
//! driver keeps only names and a word for each command; and nothing while the setting is off.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use crate::settings;

pub mod calls;
pub mod cycle;
pub mod names;
pub mod top;
pub mod waiter;

use waiter::Waiter;

/// How long a host wait lasts before it is reported, in ns; `None`: for ever.
pub fn limit_ns() -> Option<u64> {
    settings::get().hang_ms.map(|ms| ms * 1_000_000)
}

/// Whether names and calls are kept for reports.
pub fn is_on() -> bool {
    settings::get().hang_ms.is_some() || settings::get().top
}

/// What a host thread waits for.
#[derive(Clone, Copy, Debug)]
pub enum Waiting {
    /// A cell to be at least a value.
    Cell {
        /// VA of the cell.
        address: u64,
        /// The value.
        value: u64,
    },
    /// A fence that was given to no execution since it was made or reset.
    Fence,
}

/// Reports a host wait that has lasted for `lasted`.
#[cold]
pub fn report(waiting: Waiting, lasted: Duration) {
    if crate::process::is_gone() {
        return;
    }
    let waiters: Vec<Waiter> = names::lists().iter().filter_map(|list| waiter::of(list)).collect();
    let lines = describe(waiting, lasted, &waiters);
    crate::trace::hang(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX), &lines);
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "tally ERROR hang: {line}");
    }
    // There is no way to report a standard error that is closed.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn describe(waiting: Waiting, lasted: Duration, waiters: &[Waiter]) -> Vec<String> {
    let call = calls::current();
    let lasted = lasted.as_millis();
    let mut lines = Vec::new();
    match waiting {
        Waiting::Cell { address, value } => {
            let cell = names::cell(address);
            lines.push(format!("{call} has waited for {lasted} ms for {}", cell.awaited(value)));
            lines.extend(signallers(waiters, address, value, None));
        }
        Waiting::Fence => {
            lines.push(format!("{call} has waited for {lasted} ms for a fence"));
            lines.push("  no lists have been executed with it since it was made or reset".into());
        }
    }
    lines.extend(parked(waiters));
    lines
}

/// What the parked queues wait for, and where the waits form a cycle.
fn parked(waiters: &[Waiter]) -> Vec<String> {
    let mut lines = Vec::new();
    for (i, waiter) in waiters.iter().enumerate() {
        let Some((address, value)) = waiter.parked() else { continue };
        lines.push(format!("{} waits for {}", waiter.name, names::cell(address).awaited(value)));
        let unknown = "a call that is not known: its list is too long, or was reset";
        lines.push(format!("  appended by {}", waiter.by.as_deref().unwrap_or(unknown)));
        lines.extend(signallers(waiters, address, value, Some(i)));
    }
    if let Some(cycle) = cycle::find(waiters) {
        let mut names: Vec<&str> = cycle.iter().map(|&i| waiters[i].name.as_str()).collect();
        names.push(names[0]);
        lines.push(format!("the waits form a cycle: {}", names.join(" waits for ")));
    }
    lines
}

/// The waiters that are going to signal a cell, or why none is. `own`: the one that waits for it.
fn signallers(waiters: &[Waiter], address: u64, value: u64, own: Option<usize>) -> Vec<String> {
    let found = cycle::signallers(waiters, address, value);
    if !found.is_empty() {
        let line = |i: usize| match waiters[i].parked() {
            _ if own == Some(i) => "  to be signalled by itself, behind this wait".to_owned(),
            Some(_) => format!("  to be signalled by {}, which waits itself", waiters[i].name),
            None => format!("  to be signalled by {}, which does not wait", waiters[i].name),
        };
        return found.into_iter().map(line).collect();
    }
    let mut lines = match names::cell(address).fate(value) {
        Some(fate) => vec![format!("  {fate}")],
        None => vec!["  nothing that is submitted and still to start signals it".to_owned()],
    };
    for (name, executed) in names::would_signal(address) {
        let when = if executed { "executed again" } else { "executed, which it never was" };
        lines.push(format!("  {name} would signal it when {when}"));
    }
    lines
}

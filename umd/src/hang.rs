// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_HANG_MS`: who waits for whom, when a wait of the host lasts suspiciously long; and
//! `TALLY_TOP`: the same at any time, for `tally-top`.
//!
//! Once for each such wait a report goes to standard error: what the host waits for; for every
//! parked queue of the process the cell and value that it waits for, the call that appended the
//! wait, and who is going to signal it; and where these waits close a circle.
//!
//! ```text
//!  names ── whose counter, whose event a cell is ──┐
//!  calls ── which call wrote which packets ────────┼─► party ── what a queue is still to do ─► circle
//!  QUEUE_QUERY, rings, recordings ─────────────────┘                                             │
//!                                                                          report ◄──────────────┘
//! ```
//!
//! What is to come is read from the packets themselves. Beside them only names are kept, and a word
//! for each command; nothing at all while the setting is off.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use crate::settings;

pub mod calls;
pub mod circle;
pub mod names;
pub mod party;
pub mod top;

use party::Party;

/// How long a host wait lasts before it is reported, in ns; `None`: for ever.
pub fn limit_ns() -> Option<u64> {
    settings::get().hang_ms.map(|ms| ms * 1_000_000)
}

/// Whether names and calls are kept, since somebody may ask for them.
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
    let parties: Vec<Party> = names::lists().iter().filter_map(|list| party::of(list)).collect();
    let lines = describe(waiting, lasted, &parties);
    crate::trace::hang(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX), &lines);
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "tally ERROR hang: {line}");
    }
    // Nobody is left to tell of a standard error that is closed.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn describe(waiting: Waiting, lasted: Duration, parties: &[Party]) -> Vec<String> {
    let call = calls::current();
    let lasted = lasted.as_millis();
    let mut lines = Vec::new();
    match waiting {
        Waiting::Cell { address, value } => {
            let cell = names::cell(address);
            lines.push(format!("{call} has waited for {lasted} ms for {}", cell.wish(value)));
            lines.extend(signallers(parties, address, value, None));
        }
        Waiting::Fence => {
            lines.push(format!("{call} has waited for {lasted} ms for a fence"));
            lines.push("  no lists have been executed with it since it was made or reset".into());
        }
    }
    lines.extend(parked(parties));
    lines
}

/// What the parked queues wait for, and where the waits close a circle.
fn parked(parties: &[Party]) -> Vec<String> {
    let mut lines = Vec::new();
    for (i, party) in parties.iter().enumerate() {
        let Some((address, value)) = party.parked() else { continue };
        lines.push(format!("{} waits for {}", party.name, names::cell(address).wish(value)));
        let unknown = "a call that is not known: its list is too long, or was reset";
        lines.push(format!("  appended by {}", party.by.as_deref().unwrap_or(unknown)));
        lines.extend(signallers(parties, address, value, Some(i)));
    }
    if let Some(circle) = circle::find(parties) {
        let mut names: Vec<&str> = circle.iter().map(|&i| parties[i].name.as_str()).collect();
        names.push(names[0]);
        lines.push(format!("the waits close a circle: {}", names.join(" waits for ")));
    }
    lines
}

/// Who is going to signal a cell, or why nobody is. `own`: the one that waits.
fn signallers(parties: &[Party], address: u64, value: u64, own: Option<usize>) -> Vec<String> {
    let found = circle::signallers(parties, address, value);
    if !found.is_empty() {
        let line = |i: usize| match parties[i].parked() {
            _ if own == Some(i) => "  to be signalled by itself, behind this wait".to_owned(),
            Some(_) => format!("  to be signalled by {}, which waits itself", parties[i].name),
            None => format!("  to be signalled by {}, which does not wait", parties[i].name),
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

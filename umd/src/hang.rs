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
//!                                                      text and JSON ◄── report ◄┘
//! ```
//!
//! The steps that are still to come are read from the packets themselves. Besides the packets, the
//! driver keeps only names and a word for each command; and nothing while the setting is off.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::settings;

pub mod calls;
pub mod cycle;
pub mod names;
pub mod report;
pub mod top;
pub mod waiter;

use report::{Awaited, Parked, Report, Signal, Signaller, SignallerState};
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

/// A wait of a host thread.
#[derive(Clone, Copy)]
struct HostWait {
    thread: i32,
    call: &'static str,
    waiting: Waiting,
    lasted: Duration,
}

/// Reports a host wait that has lasted for `lasted`.
#[cold]
pub fn report(waiting: Waiting, lasted: Duration) {
    if crate::process::is_gone() {
        return;
    }
    let report = gather(&[HostWait { thread: thread(), call: calls::current(), waiting, lasted }]);
    let lines = report.lines();
    crate::trace::hang(nanoseconds(lasted), &lines);
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

/// Adds the report to a file as one line, in one piece: other threads and processes may write there too.
fn append(path: &Path, report: &Report) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    file.write_all(format!("{}\n", report.to_json()).as_bytes())
}

/// The number of the calling thread.
fn thread() -> i32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::gettid() }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The queues of this process and these waits.
fn gather(waits: &[HostWait]) -> Report {
    let waiters: Vec<Waiter> = names::lists().iter().filter_map(|list| waiter::of(list)).collect();
    let awaited = |address, value| Awaited { cell: names::cell(address).cell, value };
    let host_wait = |wait: &HostWait| {
        let (awaited, signal) = match wait.waiting {
            Waiting::Cell { address, value } => {
                (Some(awaited(address, value)), Some(signal(&waiters, address, value, None)))
            }
            Waiting::Fence => (None, None),
        };
        let waited_ns = nanoseconds(wait.lasted);
        let (thread, call) = (wait.thread, wait.call.into());
        report::HostWait { thread, call, waited_ns, awaited, signal }
    };
    let parked = |(i, waiter): (usize, &Waiter)| {
        let (address, value) = waiter.parked()?;
        Some(Parked {
            queue: waiter.name.clone(),
            awaited: awaited(address, value),
            appended_by: waiter.by.clone(),
            signal: signal(&waiters, address, value, Some(i)),
        })
    };
    let name = |i: usize| waiters[i].name.clone();
    Report {
        queues: waiters.iter().map(Waiter::queue).collect(),
        host_waits: waits.iter().map(host_wait).collect(),
        parked: waiters.iter().enumerate().filter_map(parked).collect(),
        cycle: cycle::find(&waiters).unwrap_or_default().into_iter().map(name).collect(),
    }
}

/// The waiters that are going to signal a cell, or why none is. `own`: the one that waits for it.
fn signal(waiters: &[Waiter], address: u64, value: u64, own: Option<usize>) -> Signal {
    let found = cycle::signallers(waiters, address, value);
    if found.is_empty() {
        let (reason, lists) = (names::cell(address).reason(value), names::would_signal(address));
        return Signal::Missing { reason, lists };
    }
    let signaller = |i: usize| Signaller {
        queue: waiters[i].name.clone(),
        state: match waiters[i].parked() {
            _ if own == Some(i) => SignallerState::Itself,
            Some(_) => SignallerState::Waits,
            None => SignallerState::Runs,
        },
    };
    Signal::By(found.into_iter().map(signaller).collect())
}

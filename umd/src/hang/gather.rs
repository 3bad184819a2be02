// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gathers a report of the present state: the queues of this process, host waits, and cycles of both.

use std::time::Duration;

use super::report::{self, Awaited, Parked, Report, Signal, Signaller, SignallerState};
use super::waiter::{self, Waiter};
use super::{cycle, names};
use crate::host_waits::{HostWait, Waiting};

/// A time in ns, for reports.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A report of the queues of this process and these host waits.
pub(super) fn gather(waits: &[HostWait]) -> Report {
    let waiters: Vec<Waiter> =
        names::lists().iter().filter_map(|list| waiter::of(&**list)).collect();
    let awaited = |address, value| Awaited { cell: names::cell(address).cell, value };
    let host_wait = |wait: &HostWait| {
        let (awaited, signal) = match wait.waiting {
            Waiting::Cell { address, value } => {
                (Some(awaited(address, value)), Some(signal(&waiters, address, value, None)))
            }
            Waiting::Fence => (None, None),
        };
        let waited_ns = nanoseconds(wait.since.elapsed());
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

/// The waiters that will signal a cell, or the reason why none will. `own`: the one that waits for it.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the signal that ended each wait.
//!
//! Signals and waits arrive from several sources in no particular order. A wait was ended by the first
//! signal of its cell that had at least its value and happened while it lasted.

use std::collections::{HashMap, HashSet, VecDeque};

/// The longest time by which a wait may seem to end before its signal: a record has the time before the
/// signal, and the clocks of the host and of the device are related by reading both.
const SLACK_NS: u64 = 50_000;
/// The time for which a signal may stay unseen after the wait that it ended was noted.
const LATE_NS: u64 = 1_000_000_000;
/// Number of signals that are kept per cell, and number of cells.
const SIGNALS: usize = 1024;
const CELLS: usize = 16_384;

/// A slice on the timeline, and a moment within it; in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) process: u32,
    pub(super) track: u64,
    pub(super) at: u64,
}

/// A write of a value to a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    pub(super) cell: u64,
    /// `None`: the signal adds to the cell, and any wait may be met.
    pub(super) value: Option<u64>,
    pub(super) from: Point,
}

/// A wait that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) cell: u64,
    pub(super) value: u64,
    pub(super) since: u64,
    pub(super) to: Point,
}

/// Signals and waits that have found no partner yet.
#[derive(Debug, Default)]
pub(super) struct Arrows {
    signals: HashMap<u64, VecDeque<Signal>>,
    waits: Vec<Wait>,
    /// Arrows that were drawn lately, since a host wait that first spins and then sleeps is recorded as two.
    drawn: HashSet<(u64, u64, u32, u64)>,
    newest: u64,
}

impl Arrows {
    pub(super) fn signal(&mut self, signal: Signal) {
        self.newest = self.newest.max(signal.from.at);
        if self.signals.len() >= CELLS && !self.signals.contains_key(&signal.cell) {
            let oldest = self.newest.saturating_sub(LATE_NS);
            self.signals.retain(|_, all| all.back().is_some_and(|it| it.from.at >= oldest));
            if self.signals.len() >= CELLS {
                return;
            }
        }
        let all = self.signals.entry(signal.cell).or_default();
        if all.len() == SIGNALS {
            all.pop_front();
        }
        // Threads of the device hand over simultaneous signals in any order.
        let place = all.iter().rposition(|it| it.from.at <= signal.from.at).map_or(0, |it| it + 1);
        all.insert(place, signal);
    }

    pub(super) fn wait(&mut self, wait: Wait) {
        self.newest = self.newest.max(wait.to.at);
        self.waits.push(wait);
    }

    /// The arrows of which both ends are known. Waits for which no signal arrived in time are dropped, all of
    /// them if the trace is `over`.
    pub(super) fn take(&mut self, over: bool) -> Vec<(Point, Point)> {
        let mut found = Vec::new();
        let oldest = self.newest.saturating_sub(LATE_NS);
        let Self { signals, waits, drawn, .. } = self;
        waits.retain(|wait| {
            let Some(signal) = ended_by(signals, wait) else {
                return !over && wait.to.at >= oldest;
            };
            let key = (signal.cell, signal.from.at, wait.to.process, wait.to.track);
            if drawn.insert(key) {
                found.push((signal.from, wait.to));
            }
            false
        });
        drawn.retain(|(_, at, ..)| *at >= oldest);
        found
    }
}

/// The signal that ended a wait.
fn ended_by<'a>(signals: &'a HashMap<u64, VecDeque<Signal>>, wait: &Wait) -> Option<&'a Signal> {
    let lasted = wait.since..=wait.to.at.saturating_add(SLACK_NS);
    signals.get(&wait.cell)?.iter().find(|signal| {
        lasted.contains(&signal.from.at) && signal.value.is_none_or(|value| value >= wait.value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(track: u64, at: u64) -> Point {
        Point { process: 1, track, at }
    }

    fn signal(cell: u64, value: u64, at: u64) -> Signal {
        Signal { cell, value: Some(value), from: point(1, at) }
    }

    fn wait(cell: u64, value: u64, since: u64, at: u64) -> Wait {
        Wait { cell, value, since, to: point(2, at) }
    }

    fn ends(found: &[(Point, Point)]) -> Vec<(u64, u64)> {
        found.iter().map(|(from, to)| (from.at, to.at)).collect()
    }

    #[test]
    fn a_wait_was_ended_by_the_first_signal_that_was_enough() {
        let mut arrows = Arrows::default();
        for (value, at) in [(1, 100), (2, 200), (3, 300), (4, 400)] {
            arrows.signal(signal(8, value, at));
        }
        arrows.signal(signal(16, 9, 150));
        arrows.wait(wait(8, 3, 50, 310));
        assert_eq!(ends(&arrows.take(false)), [(300, 310)]);
        assert!(arrows.take(true).is_empty(), "once");
    }

    #[test]
    fn the_order_in_which_both_are_noted_does_not_matter() {
        let mut arrows = Arrows::default();
        arrows.wait(wait(8, 1, 50, 310));
        assert!(arrows.take(false).is_empty());
        arrows.signal(signal(8, 5, 320));
        arrows.signal(signal(8, 1, 305));
        assert_eq!(ends(&arrows.take(false)), [(305, 310)]);
    }

    #[test]
    fn an_event_that_was_signalled_before_has_not_ended_the_wait() {
        let mut arrows = Arrows::default();
        arrows.signal(signal(8, 1, 10));
        arrows.signal(signal(8, 1, 90));
        arrows.wait(wait(8, 1, 50, 100));
        arrows.wait(wait(8, 1, 2 * SLACK_NS, 3 * SLACK_NS));
        assert_eq!(ends(&arrows.take(true)), [(90, 100)]);
    }

    #[test]
    fn an_addition_may_meet_any_wait() {
        let mut arrows = Arrows::default();
        arrows.signal(Signal { value: None, ..signal(8, 0, 90) });
        arrows.wait(wait(8, 7, 50, 100));
        assert_eq!(ends(&arrows.take(false)), [(90, 100)]);
    }

    #[test]
    fn one_thread_has_one_arrow_from_a_signal() {
        let mut arrows = Arrows::default();
        arrows.signal(signal(8, 1, 90));
        arrows.wait(wait(8, 1, 50, 70));
        arrows.wait(wait(8, 1, 70, 95));
        assert_eq!(arrows.take(false).len(), 1);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut arrows = Arrows::default();
        for i in 0..3 * SIGNALS as u64 {
            arrows.signal(signal(8, i, i));
        }
        for cell in 0..2 * CELLS as u64 {
            arrows.signal(signal(8 * cell, 1, 5000 + cell));
        }
        assert!(arrows.signals[&8].len() <= SIGNALS && arrows.signals.len() <= CELLS);
        arrows.wait(wait(1 << 40, 1, 0, 5000));
        arrows.signal(signal(8, 1, 5000 + 3 * LATE_NS));
        assert!(arrows.take(false).is_empty() && arrows.waits.is_empty());
    }
}

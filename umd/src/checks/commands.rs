// SPDX-License-Identifier: MIT OR Apache-2.0
//! Races between commands: accesses of copies, fills and the like, and the sentence that says what would order two
//! commands.

use std::sync::{Mutex, PoisonError};

use super::cells::{Access, Raced, Who};
use super::order::{Execution, Named, Started};
use super::report::{Report, Rule};
use super::rows::{Rows, Transfer};
use super::{Checks, collector, describe, log};

impl Checks {
    /// The device starts a command, in the execution of a regular list with this base: its accesses other than by
    /// kernels take place.
    pub(super) fn command_starts(&self, command: u32, base: u64) {
        let Some(order) = &self.order else { return };
        let Some(Started { execution, transfers }) = order.started(command, base) else { return };
        // Of two commands at the same time, one sees the other.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        for Transfer { to, from } in transfers.iter() {
            let all = [(from, Access::Read), (to, Access::Write)];
            for (rows, kind) in
                all.into_iter().filter_map(|(rows, kind)| Some((rows.as_ref()?, kind)))
            {
                self.accesses(execution, rows, kind);
            }
        }
    }

    fn accesses(&self, execution: Execution, rows: &Rows, kind: Access) {
        let (Some(order), Some(cells)) = (&self.order, &self.cells) else { return };
        let mut found: Vec<Raced> = Vec::new();
        for (address, size) in rows.pieces() {
            let ask = |earlier, later| order.ordered(earlier, later);
            for raced in cells.access(address, size, kind, execution, ask) {
                if !found.iter().any(|it| is_same(&it.other, &raced.other)) {
                    found.push(raced);
                }
            }
        }
        found.iter().for_each(|raced| self.tell_command_race(execution, kind, raced));
    }

    fn tell_command_race(&self, execution: Execution, kind: Access, raced: &Raced) {
        let Some(order) = &self.order else { return };
        let (other, epoch) = (&raced.other, self.history.epoch());
        let mine = Who { execution, writes: kind == Access::Write, atomic: false, kernel: None };
        if self.is_host_race(other.execution, &mine, (raced.address, epoch)) {
            return;
        }
        let (Some(later), Some(earlier)) = (order.named(execution), order.named(other.execution))
        else {
            return;
        };
        log::race(earlier.number, later.number);
        let verb = |writes| if writes { "writes" } else { "reads" };
        let bytes = describe::bytes(raced.size);
        let message = format!(
            "a command {} {bytes} that another command {}, and nothing orders the two",
            verb(kind == Access::Write),
            verb(other.writes)
        );
        let (memory, _) = self.place(raced.address, raced.size, epoch);
        let mut notes: Vec<String> = of_kernel(other).into_iter().collect();
        notes.push(missing(&earlier, &later));
        let report = Report {
            memory,
            call: Some(later.call.clone()),
            other: Some(earlier.call.clone()),
            notes,
            ..Report::of_call(Rule::CommandRace, message)
        };
        collector::add_of_caller(earlier.place_with(&later), report);
    }
}

/// Reports that the current call waits for what nothing is going to signal; the sentences say for what.
pub fn never_signalled(sentences: Vec<String>) {
    if let Some(order) = super::get().and_then(Checks::order) {
        order.tell_what_still_waits();
    }
    let message = "the host waits, and nothing that is submitted ends that".to_owned();
    // How long it has waited is not of interest.
    let short = |sentence: String| match sentence.split_once(" ms for ") {
        Some((_, rest)) => format!("it waits for {rest}"),
        None => sentence,
    };
    let notes = sentences.into_iter().map(short).collect();
    let report = Report { notes, ..Report::of_call(Rule::NeverSignalled, message) };
    collector::add(report, None);
}

/// Whether two accesses are reported as one.
fn is_same(a: &Who, b: &Who) -> bool {
    a.execution == b.execution && a.writes == b.writes
}

/// The place in a kernel of the other access.
fn of_kernel(who: &Who) -> Option<String> {
    let kernel = who.kernel.as_ref()?;
    let place = kernel.site.and_then(|site| kernel.watched.sites.sites.get(site as usize));
    let place = place.map(|site| describe::place(&kernel.watched, site).words());
    let place = place.map_or(String::new(), |words| format!(", at {words}"));
    let name = super::names::demangled(&kernel.watched.kernel);
    Some(format!("the other one is kernel '{name}'{place}"))
}

/// What would order two commands.
pub(super) fn missing(earlier: &Named, later: &Named) -> String {
    let same_copy = earlier.copy == later.copy;
    // In a graph one waits for what was captured before, whichever has run first.
    let (earlier, later) = match later.captured && same_copy {
        true if earlier.call.number > later.call.number => (later, earlier),
        _ => (earlier, later),
    };
    let (a, b) = (earlier.call.number, later.call.number);
    let list = |it: &Named| match (it.list, it.copy) {
        (0, _) => "its list".to_owned(),
        (_, call) if it.captured && !same_copy => {
            format!("the executable graph that call {call} made")
        }
        (_, call) if call != 0 && !it.captured => format!("the copy that call {call} made"),
        (call, _) => format!("the list that call {call} made"),
    };
    let same_list = earlier.list == later.list && same_copy;
    let two_graphs = earlier.captured && later.captured && !same_copy;
    if two_graphs || a == b && !same_list {
        return format!(
            "nothing orders the executions of {} and of {}: the host has to wait for one before the other, or one for an event that the other one signals",
            list(earlier),
            list(later)
        );
    }
    if a == b && later.captured {
        let graph = later.copy;
        return format!(
            "the executable graph that call {graph} made has call {a} more than once, and nothing orders the two: one needs a wait for an event that the other one signals"
        );
    }
    if a == b {
        return format!(
            "{} is executed again, and nothing orders the executions: the host has to wait for one before the next, or the list has to be in order",
            list(later)
        );
    }
    if same_list && !earlier.in_order {
        return format!(
            "{} is not in order: it needs a barrier between calls {a} and {b}, or call {b} a wait for an event that call {a} signals",
            list(later)
        );
    }
    let signals = if earlier.signals { "signals" } else { "would have to signal" };
    format!(
        "call {b}, in {}, needs a wait for an event that call {a}, in {}, {signals}",
        list(later),
        list(earlier)
    )
}

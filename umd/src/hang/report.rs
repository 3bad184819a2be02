// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hang report, which says which queue or thread waits for which: as a value, as readable text, and as JSON.
//!
//! JSON has the fields of these types under their names. Addresses are hexadecimal strings, since not every JSON
//! reader has 64-bit integers.

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sync::cell::SIGNALLED;

/// The queues of a process and the waits in it, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// All queues.
    pub queues: Vec<Queue>,
    /// Waits of host threads: the one that has lasted too long, or all of them for `tally-top`.
    pub host_waits: Vec<HostWait>,
    /// The waits of the parked queues.
    pub parked: Vec<Parked>,
    /// Names of queues of which each waits for the next one, and the last one for the first; empty if no
    /// waits form a cycle.
    pub cycle: Vec<String>,
}

/// A queue and its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// The list or command queue that it belongs to.
    pub name: String,
    /// Its state.
    pub state: State,
    /// Its counter's value.
    pub counter: u64,
    /// The value at which all submitted commands are complete, as far as the counter covers them.
    pub reserved: u64,
    /// Number of packets that the device has not finished.
    pub packets: u64,
    /// Time on an engine, in ns.
    pub busy_ns: u64,
}

/// The state of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// It has nothing to do.
    Idle,
    /// It has commands in flight.
    Running,
    /// It waits for a cell.
    Parked,
    /// It has faulted, or its VM has.
    Stopped,
}

/// A wait of a host thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostWait {
    /// The system's id of the thread.
    pub thread: i32,
    /// The function that it has called.
    pub call: Cow<'static, str>,
    /// The time that it has waited.
    pub waited_ns: u64,
    /// The cell that it waits for; none if it waits for a fence that was passed to no execution.
    pub awaited: Option<Awaited>,
    /// The signal that would end the wait, for a cell.
    pub signal: Option<Signal>,
}

/// A wait of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parked {
    /// The queue.
    pub queue: String,
    /// The value that it waits for.
    pub awaited: Awaited,
    /// The calls that appended the wait; none if the list is too long, or was reset.
    pub appended_by: Option<Source>,
    /// The signal that would end the wait.
    pub signal: Signal,
}

/// A value of a cell that something waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Awaited {
    /// The cell.
    pub cell: Cell,
    /// The least value that ends the wait.
    pub value: u64,
}

/// A word that something waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its address.
    #[serde(with = "hexadecimal")]
    pub address: u64,
    /// Its owner.
    #[serde(flatten)]
    pub kind: CellKind,
    /// Its value, if it may be read.
    pub present: Option<u64>,
}

/// The owner of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum CellKind {
    /// It is a counter.
    Counter {
        /// The list, queue or process whose counter it is.
        owner: String,
    },
    /// It is the cell of a regular event.
    Event {
        /// Its index in the pool.
        index: u32,
        /// The pool.
        pool: String,
    },
    /// It is the number of resets of a regular event by the device.
    Resets {
        /// The event's index in the pool.
        index: u32,
        /// The pool.
        pool: String,
    },
    /// It does not belong to the driver.
    Memory,
}

/// The calls that appended a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The call that appended it.
    pub call: Call,
    /// The call that executed the list which it is in, if that is a regular list.
    pub executed_by: Option<Call>,
    /// The list whose previous execution has to complete before the one that the call begins.
    pub after_execution_of: Option<String>,
}

/// A call that appended a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The entry point.
    pub function: Cow<'static, str>,
    /// The number of the command that it appended to the list, from 1.
    pub command: u64,
    /// The list.
    pub list: String,
}

/// The queues that will signal a cell, or the reason why none will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// These queues have a command that does it.
    By(Vec<Signaller>),
    /// No submitted command does it.
    Missing {
        /// The reason.
        reason: Reason,
        /// Lists that would, if they were executed.
        lists: Vec<List>,
    },
}

/// A queue that will signal a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signaller {
    /// The queue.
    pub queue: String,
    /// The obstacle, if there is one.
    pub state: SignallerState,
}

/// The obstacle that keeps a queue from signalling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignallerState {
    /// It is the waiting queue itself, and would signal after the wait.
    Itself,
    /// It waits, too.
    Waits,
    /// There is none.
    Runs,
}

/// The reason why no submitted command signals a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The cell has been signalled since.
    Reached,
    /// The list that would have signalled it was reset or destroyed before it was executed.
    ListGone,
    /// No such command was submitted.
    NotSubmitted,
}

/// A regular list that signals a cell when it is executed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct List {
    /// Its name.
    pub name: String,
    /// Whether it was ever executed.
    pub executed: bool,
}

/// Addresses as "0x1f".
mod hexadecimal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(address: &u64, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&format_args!("{address:#x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
        let text = String::deserialize(input)?;
        let digits = text.strip_prefix("0x").ok_or_else(|| D::Error::custom("no 0x"))?;
        u64::from_str_radix(digits, 16).map_err(D::Error::custom)
    }
}

impl Report {
    /// Whether nothing that is submitted ends one of the host's waits. A command that runs may still do so.
    pub fn never_ends(&self) -> bool {
        let runs = self.queues.iter().any(|it| it.state == State::Running);
        !runs
            && self
                .host_waits
                .iter()
                .any(|it| !it.signal.as_ref().is_some_and(|it| self.comes(it, &[])))
    }

    /// Whether a submitted command will make the signal, in a queue that can go on. `behind`: the queues
    /// that wait for it.
    fn comes(&self, signal: &Signal, behind: &[&str]) -> bool {
        let signallers = match signal {
            Signal::By(signallers) => signallers,
            Signal::Missing { reason, .. } => return *reason == Reason::Reached,
        };
        signallers.iter().any(|Signaller { queue, state }| match state {
            SignallerState::Runs => true,
            SignallerState::Itself => false,
            SignallerState::Waits if behind.contains(&queue.as_str()) => false,
            SignallerState::Waits => {
                let behind = [behind, &[queue.as_str()]].concat();
                let parked = self.parked.iter().find(|it| it.queue == *queue);
                parked.is_none_or(|it| self.comes(&it.signal, &behind))
            }
        })
    }

    /// The lines about a host wait that has lasted too long, and about the parked queues.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for wait in &self.host_waits {
            let (call, waited) = (&wait.call, Duration::from_nanos(wait.waited_ns).as_millis());
            match &wait.awaited {
                Some(it) => lines.push(format!("{call} has waited for {waited} ms for {it}")),
                None => {
                    lines.push(format!("{call} has waited for {waited} ms for a fence"));
                    let why = "no lists have been executed with it since it was made or reset";
                    lines.push(format!("  {why}"));
                }
            }
            lines.extend(wait.signal.iter().flat_map(Signal::lines));
        }
        lines.extend(self.parked_lines());
        lines
    }

    /// Lines about the parked queues, and about a cycle of their waits.
    fn parked_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for it in &self.parked {
            lines.push(format!("{} waits for {}", it.queue, it.awaited));
            lines.push(match &it.appended_by {
                Some(source) => format!("  appended by {source}"),
                None => {
                    "  appended by a call that is not known: its list is too long, or was reset"
                        .to_owned()
                }
            });
            lines.extend(it.signal.lines());
        }
        if let Some(first) = self.cycle.first() {
            let mut names: Vec<&str> = self.cycle.iter().map(String::as_str).collect();
            names.push(first);
            lines.push(format!("the waits form a cycle: {}", names.join(" waits for ")));
        }
        lines
    }

    /// The text of `tally-top`: a table of the queues, then the waits.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let heads = ["queue", "state", "counter", "packets", "busy"];
        let mut row = |[name, state, counter, packets, busy]: [&str; 5]| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name:<58} {state:>8} {counter:>20} {packets:>8} {busy:>10}");
        };
        row(heads);
        for queue in &self.queues {
            let counter = format!("{} of {}", queue.counter, queue.reserved);
            let busy = format!("{:.1} ms", queue.busy_ns as f64 / 1e6);
            row([&queue.name, queue.state.into(), &counter, &queue.packets.to_string(), &busy]);
        }
        for line in self.wait_lines() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// The lines of `tally-top` about host waits and parked queues.
    pub fn wait_lines(&self) -> Vec<String> {
        let host = self.host_waits.iter().map(|wait| {
            let seconds = Duration::from_nanos(wait.waited_ns).as_secs_f32();
            let (thread, call) = (wait.thread, &wait.call);
            let awaited = wait.awaited.as_ref().map(ToString::to_string);
            let awaited = awaited.unwrap_or("a fence that is given to no execution".to_owned());
            format!("thread {thread}: {call} has waited for {seconds:.1} s for {awaited}")
        });
        host.chain(self.parked_lines()).collect()
    }

    /// The report as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report has only strings as keys")
    }

    /// Reads what [`Report::to_json`] wrote.
    ///
    /// # Errors
    /// The text is not such a report.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

impl Signal {
    fn lines(&self) -> Vec<String> {
        match self {
            Self::By(queues) => queues
                .iter()
                .map(|Signaller { queue, state }| match state {
                    SignallerState::Itself => {
                        "  to be signalled by itself, behind this wait".to_owned()
                    }
                    SignallerState::Waits => {
                        format!("  to be signalled by {queue}, which waits itself")
                    }
                    SignallerState::Runs => {
                        format!("  to be signalled by {queue}, which does not wait")
                    }
                })
                .collect(),
            Self::Missing { reason, lists } => {
                let mut lines = vec![format!("  {}", reason.text())];
                lines.extend(lists.iter().map(|List { name, executed }| {
                    let when =
                        if *executed { "executed again" } else { "executed, which it never was" };
                    format!("  {name} would signal it when {when}")
                }));
                lines
            }
        }
    }
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Self::Reached => "it has got there by now",
            Self::ListGone => "its list was reset or destroyed before it was executed",
            Self::NotSubmitted => "nothing that is submitted and still to start signals it",
        }
    }
}

/// "the counter at 0x1000 of X to be at least 3; it is 2"
impl Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cell: Cell { address, kind, present }, value } = self;
        match kind {
            CellKind::Counter { owner } => write!(f, "the counter at {address:#x} of {owner}")?,
            CellKind::Event { index, pool } => {
                write!(f, "event {index} of event pool {pool}, at {address:#x},")?;
                if *value == SIGNALLED {
                    return write!(f, " to be signalled");
                }
            }
            CellKind::Resets { index, pool } => {
                write!(f, "the resets of event {index} of event pool {pool}, at {address:#x},")?;
            }
            CellKind::Memory => {
                write!(f, "the memory at {address:#x}, which is not the driver's,")?;
            }
        }
        write!(f, " to be at least {value}")?;
        present.map_or(Ok(()), |present| write!(f, "; it is {present}"))
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, command {} of {}", self.function, self.command, self.list)
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call)?;
        if let Some(outer) = &self.executed_by {
            write!(f, ", executed by {outer}")?;
        }
        if let Some(list) = &self.after_execution_of {
            write!(f, ", to let the execution of {list} before this one complete")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

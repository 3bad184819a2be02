// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of events: counter-based ones, which host calls change, and cells of 0 or 1.

use super::order::Node;
use crate::program::{EventId, ListId};

/// Names a recording: the commands of a regular list from its creation or reset to the next reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordingId(pub usize);

/// The state of a counter-based (CB) event. It "represents host programming sequence, without
/// managing the state" (counter-based-events): calls of the host change it, the device never does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CbState {
    /// "After creation, a CB Event is initially marked as completed."
    Complete,
    /// "When a CB Event is passed as a signal event, it points to a specific counter value and
    /// memory location": the immediate list whose counter it is, and the value, which is reached
    /// when that many commands of the list are complete.
    Counter {
        /// The list that owns the counter.
        list: ListId,
        /// From 1.
        value: usize,
    },
    /// Signalled by a command of a regular list. This is a place in a recording; the execution that it
    /// refers to is determined at the wait or the query (architecture, decision 7): the latest one
    /// submitted, or the first if there was none.
    Recorded {
        /// The recording.
        recording: RecordingId,
        /// The index of the command in it, from 0.
        index: usize,
    },
}

/// A dependency that an append has captured: later changes of the event do not affect it.
///
/// "cmdList2 can be still running on GPU. It waits for counter=X on memory CL1_alloc. Its also
/// safe to delete Event object."
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dependency {
    /// On the state that a CB event had.
    CounterBased(CbState),
    /// On a regular event, whatever its state will be.
    Regular(EventId),
    /// On the user's word, by the number of its cell: whatever it will hold, even if the event has
    /// another state or is destroyed.
    Word(usize),
    /// On an opened event, which never changes.
    Opened(Bound),
}

/// The work that a CB event's state refers to when it is bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// No wait is needed.
    Met,
    /// The completion of this command.
    Command(Node),
    /// The completion of a command in the first execution of a recording, which is still to come.
    FirstExecution {
        /// The recording.
        recording: RecordingId,
        /// The index of the command in it.
        index: usize,
    },
    /// A recording that was never executed and is gone: "from its append to a regular list until
    /// the execution that signals it completes, a CB event is not ready" (ERRATA), so, never.
    Never,
}

/// A regular event or a fence: "only has two states: not signaled and signaled". Or the user's word
/// of an external or aggregated event, which is compared with one value.
///
/// The history is cut into epochs by the resets, in the order in which they are submitted. A
/// program is valid only if everything in an epoch is ordered after the reset that begins it and
/// before the one that ends it; then each wait has one meaning on every legal device.
#[derive(Clone, Debug)]
pub struct EventCell {
    /// At least one: creation counts as a reset.
    pub epochs: Vec<Epoch>,
    /// The number of signals of one epoch that complete it: 1, except for aggregated events.
    pub needed: usize,
    /// Whether it has timestamps: then a second signal of an epoch would replace them, and a reader
    /// could not know which command they belong to.
    pub timed: bool,
}

/// The time between two resets.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// The reset that begins it.
    pub reset: Node,
    /// Signals. As many as are needed have no order among themselves; they are ordered before all
    /// others: "signaling a signaled event is valid and has no effect on the state of the event", and
    /// an addition to a word beyond its final value leaves it complete.
    pub signals: Vec<Node>,
    /// Waits of the device and of the host.
    pub waits: Vec<Node>,
}

impl EventCell {
    /// A cell that is not signalled, from `reset` on.
    #[must_use]
    pub fn new(reset: Node, needed: usize) -> Self {
        let epochs = vec![Epoch { reset, signals: Vec::new(), waits: Vec::new() }];
        EventCell { epochs, needed, timed: false }
    }

    /// The signals that complete it in the current epoch; none as long as some are missing.
    #[must_use]
    pub fn completed(&self) -> Option<&[Node]> {
        self.current().signals.get(..self.needed)
    }

    /// The epoch to which submissions belong now.
    #[must_use]
    pub fn current(&self) -> &Epoch {
        self.epochs.last().expect("creation begins the first epoch")
    }

    /// The same, mutable.
    pub fn current_mut(&mut self) -> &mut Epoch {
        self.epochs.last_mut().expect("creation begins the first epoch")
    }

    /// All nodes that ever used it.
    pub fn uses(&self) -> impl Iterator<Item = Node> + '_ {
        self.epochs.iter().flat_map(|epoch| {
            epoch.signals.iter().chain(&epoch.waits).copied().chain([epoch.reset])
        })
    }
}

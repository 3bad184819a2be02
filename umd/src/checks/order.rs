// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of commands: which ones are complete before which other ones start, whatever the device does.

/// One execution of one command. A regular list that is executed again has new ones. 0: none that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Execution(pub u32);

impl Execution {
    /// No execution, or one whose order is not known: it races with nothing.
    pub const NONE: Self = Self(0);
}

/// What is known of the order of commands.
#[derive(Debug, Default)]
pub struct Order {}

impl Order {
    /// The execution that a launch with this number (`Launches::add`) is in now. Launches of one regular list never
    /// overlap with themselves.
    pub fn of_launch(&self, _launch: u64) -> Execution {
        Execution::NONE
    }

    /// Whether something makes the execution `earlier` complete before `later` starts. `later` has started.
    pub fn ordered(&self, earlier: Execution, later: Execution) -> bool {
        earlier == later || earlier == Execution::NONE || later == Execution::NONE
    }
}

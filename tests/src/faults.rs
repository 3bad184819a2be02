// SPDX-License-Identifier: MIT OR Apache-2.0
//! Injected faults of a driver, which show that the tests would find them.
//!
//! The toy driver takes a [`Fault`] when it is created. The real driver, built with
//! tests/mutants/driver/faults.patch, reads the name from the environment variable [`VARIABLE`].
//! "Every" below means each time; a fault that shows once in a thousand calls would need a thousand
//! times as many programs.

use std::fmt;

/// The environment variable with the name of the fault to inject.
pub const VARIABLE: &str = "TALLY_FAULT";

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// One injected fault.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Fault {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Fault] = &[$(Fault::$variant,)+];

            /// The value of [`VARIABLE`].
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Fault::$variant => $name,)+
                }
            }

            /// A description of the fault.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Fault::$variant => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

faults! {
    /// The first wait of every wait list is left out.
    WaitDropped = "wait-dropped",
    /// Every execution of a regular list after its first takes a base that is one too low.
    BaseOffByOne = "base-off-by-one",
    /// A barrier without a wait list orders nothing.
    BarrierIgnored = "barrier-ignored",
    /// A counter slot starts from zero when a list is created in it, not from its last value.
    SlotZeroed = "slot-zeroed",
    /// A wait for an event of a regular list is bound to its last execution but one.
    WaitBoundToEarlierExecution = "wait-bound-to-earlier-execution",
    /// An append to an immediate list replaces the state of its CB signal event when the command is complete, not when it is appended.
    EventReplacedLate = "event-replaced-late",
    /// The signal of a command is written when the command starts.
    SignalBeforeWork = "signal-before-work",
    /// A reset of a regular event by the device does nothing.
    DeviceResetIgnored = "device-reset-ignored",
    /// A reset of a regular event by the host does nothing.
    HostResetIgnored = "host-reset-ignored",
    /// A CB event keeps its old state when it is recorded as a signal event, until the execution.
    RecordedKeepsState = "recorded-keeps-state",
    /// A wait recorded in a regular list takes the state that its CB event has at the execution, and none if it was destroyed.
    WaitCapturedLate = "wait-captured-late",
    /// A wait for an event of a regular list that was not executed yet is taken as met.
    UnsubmittedIsMet = "unsubmitted-is-met",
    /// An execution leaves an event alone that another list has signalled since it was recorded.
    ExecutionKeepsState = "execution-keeps-state",
    /// Executions of one regular list do not wait for each other.
    ExecutionsOverlap = "executions-overlap",
    /// The commands of an in-order list do not wait for each other.
    InOrderIgnored = "in-order-ignored",
    /// A fence is signalled when its lists are submitted.
    FenceEarly = "fence-early",
    /// A copy reads its source when it is appended.
    CopyReadsAtAppend = "copy-reads-at-append",
    /// A slot whose reserved value was never reached is given to the next list.
    ReservedNotRetired = "reserved-not-retired",
    /// An append that signals an aggregated event replaces its state, as that of another CB event.
    AggregateReplaced = "aggregate-replaced",
    /// The increment that a signal should add to the word of an aggregated event is stored to it.
    IncrementStored = "increment-stored",
    /// A wait for the user's word that is met when it is appended is left out, also in later executions of a regular list.
    WordWaitElided = "word-wait-elided",
    /// The commands of a copy of a list signal the counter of the list that was copied.
    CloneKeepsCounter = "clone-keeps-counter",
    /// An execution of a copy of a list leaves the events alone that it signals.
    CloneKeepsState = "clone-keeps-state",
    /// Lists that an immediate list executes do not wait for what it holds before them.
    AppendedListsUnordered = "appended-lists-unordered",
    /// An execution by an out-of-order immediate list signals its event when its lists begin.
    UnorderedListsSignalEarly = "unordered-lists-signal-early",
    /// The wait list of an execution by an immediate list is left out.
    AppendedListsIgnoreWaits = "appended-lists-ignore-waits",
    /// A list goes on when a function of the host was called, not when it has returned.
    HostFunctionNotAwaited = "host-function-not-awaited",
    /// The times of all commands of counter-based events go to one slot.
    TimestampsShared = "timestamps-shared",
    /// A command that signals a regular event leaves out its times.
    RegularTimesLost = "regular-times-lost",
    /// An event that is made of a handle is complete, whatever the handle stands for.
    OpenedIsMet = "opened-is-met",
    /// A signal of an event that processes share wakes no thread of the other process.
    SharedSignalUnheard = "shared-signal-unheard",
}

impl Fault {
    /// The fault of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Fault> {
        Fault::ALL.iter().copied().find(|fault| fault.name() == name)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

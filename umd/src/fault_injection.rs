// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults that the driver injects into itself on request, to show that the tests would find them.
//!
//! This needs the feature `faults`; the environment variable TALLY_FAULT then names one. Without the
//! feature [`on`] is constant, and the compiler removes every check.

/// The name of an injected fault.
pub type Name = &'static str;

/// The first wait of every wait list is left out.
pub const WAIT_DROPPED: Name = "wait-dropped";
/// Every execution of a regular list after its first takes a base that is one too low.
pub const BASE_OFF_BY_ONE: Name = "base-off-by-one";
/// A barrier without a wait list orders nothing.
pub const BARRIER_IGNORED: Name = "barrier-ignored";
/// A counter starts from zero when it is given to a new owner.
pub const SLOT_ZEROED: Name = "slot-zeroed";
/// A wait for an event of a regular list is bound to its last execution but one.
pub const WAIT_BOUND_TO_EARLIER_EXECUTION: Name = "wait-bound-to-earlier-execution";
/// The signal of a command is written when the command starts.
pub const SIGNAL_BEFORE_WORK: Name = "signal-before-work";
/// A reset of a regular event by the device does nothing.
pub const DEVICE_RESET_IGNORED: Name = "device-reset-ignored";
/// A reset of a regular event by the host does nothing.
pub const HOST_RESET_IGNORED: Name = "host-reset-ignored";
/// A CB event keeps its old state when it is recorded as a signal event, until the execution.
pub const RECORDED_KEEPS_STATE: Name = "recorded-keeps-state";
/// A wait for an event of a regular list that was not executed yet is taken as met.
pub const UNSUBMITTED_IS_MET: Name = "unsubmitted-is-met";
/// An execution leaves an event alone that another list has signalled since it was recorded.
pub const EXECUTION_KEEPS_STATE: Name = "execution-keeps-state";
/// The commands of an in-order list do not wait for each other.
pub const IN_ORDER_IGNORED: Name = "in-order-ignored";
/// A fence is signalled when its lists are submitted.
pub const FENCE_EARLY: Name = "fence-early";
/// A counter whose reserved value was never reached is given to the next owner.
pub const RESERVED_NOT_RETIRED: Name = "reserved-not-retired";
/// An append that signals an aggregated event replaces its state.
pub const AGGREGATE_REPLACED: Name = "aggregate-replaced";
/// What a signal of an aggregated event should add to the user's word is stored to it.
pub const INCREMENT_STORED: Name = "increment-stored";
/// A wait for the user's word that is met when it is appended is left out, for ever.
pub const WORD_WAIT_ELIDED: Name = "word-wait-elided";

/// The commands of a copy of a list signal the counter of the list that was copied.
pub const CLONE_KEEPS_COUNTER: Name = "clone-keeps-counter";
/// An execution of a copy of a list leaves the events alone that it signals.
pub const CLONE_KEEPS_STATE: Name = "clone-keeps-state";
/// Lists that an immediate list executes do not wait for what it holds before them.
pub const APPENDED_LISTS_UNORDERED: Name = "appended-lists-unordered";
/// An execution by an out-of-order immediate list signals its event when its lists begin.
pub const UNORDERED_LISTS_SIGNAL_EARLY: Name = "unordered-lists-signal-early";
/// The wait list of an execution by an immediate list is left out.
pub const APPENDED_LISTS_IGNORE_WAITS: Name = "appended-lists-ignore-waits";
/// A list goes on when a function of the host was called, not when it has returned.
pub const HOST_FUNCTION_NOT_AWAITED: Name = "host-function-not-awaited";
/// The times of all commands of counter-based events go to one slot.
pub const TIMESTAMPS_SHARED: Name = "timestamps-shared";
/// A command that signals a regular event leaves out its times.
pub const REGULAR_TIMES_LOST: Name = "regular-times-lost";
/// An event that is made of a handle is complete, whatever the handle stands for.
pub const OPENED_IS_MET: Name = "opened-is-met";
/// A signal of an event that processes share wakes no thread of the other process.
pub const SHARED_SIGNAL_UNHEARD: Name = "shared-signal-unheard";

/// Whether the driver can inject faults. All appends then take the general path, which has the checks.
pub const BUILT: bool = cfg!(feature = "faults");

/// Whether the driver injects this fault.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub const fn on(_: Name) -> bool {
    false
}

/// Whether the driver injects this fault.
#[cfg(feature = "faults")]
pub fn on(name: Name) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("TALLY_FAULT").ok());
    CHOSEN.as_deref() == Some(name)
}

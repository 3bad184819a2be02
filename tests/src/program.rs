// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs: the vocabulary that the reference model, the generator and every backend share.
//!
//! A program is a list of [`Step`]s at the level of the Level Zero API: create a list, append a
//! command, execute, synchronise, query. It names objects by small numbers, so that people can read a
//! program, the [model](crate::model) can judge it, and a driver can [run](run::run) it.
//!
//! Memory is a handful of [`Cell`]s, each a 32-bit integer. A backend may make a cell larger (the same
//! value in every element of a buffer): the operations apply to each element alike.
//!
//! Glossary: a *cell* is a piece of the program's memory, not an event cell of the device; a
//! *list* is a command list; *immediate* and *regular* lists are those of the specification.

pub mod backend;
pub mod build;
pub mod examples;
pub mod generate;
pub mod run;
pub mod shrink;
mod text;

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub usize);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// A command list, immediate or regular. Numbers are given in order of creation, from 0, and are
    /// never reused, even after the list was destroyed. The same holds for the other names.
    ListId, "L"
);
id!(
    /// A command queue.
    QueueId, "Q"
);
id!(
    /// An event, regular or counter-based.
    EventId, "E"
);
id!(
    /// A fence.
    FenceId, "F"
);
id!(
    /// A 32-bit integer of the program's memory.
    Cell, "m"
);

/// The command queue group of a queue or list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Ordinal 0: kernels, copies and fills.
    Compute,
    /// Ordinal 1: copies and fills only.
    Copy,
}

/// Whether the commands of a list are ordered among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListOrder {
    /// `ZE_COMMAND_LIST_FLAG_IN_ORDER` or `ZE_COMMAND_QUEUE_FLAG_IN_ORDER`.
    InOrder,
    /// No flag: commands overlap unless events or barriers order them.
    OutOfOrder,
}

/// The kind of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListKind {
    /// Recorded, closed, then executed on a queue any number of times.
    Regular,
    /// `zeCommandListCreateImmediate` with `ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS`.
    Immediate,
    /// The same with `ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS`: an append returns when it is complete.
    ImmediateSynchronous,
}

/// The properties of a new list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListDesc {
    /// Its queue group.
    pub engine: Engine,
    /// Its order.
    pub order: ListOrder,
    /// Its kind.
    pub kind: ListKind,
}

/// The kind of an event. All events are visible to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// From an ordinary pool: signalled and reset by host and device.
    Regular,
    /// The same with the times of the command that signalled it.
    RegularTimed,
    /// Counter-based, for immediate and regular lists. The backend chooses the form of creation
    /// (pool, core or zex function); all forms mean the same.
    CounterBased,
    /// Counter-based, with the times of the command that it stands for.
    Timed,
    /// Opened from the IPC handle of another counter-based event: it has the state that that event had
    /// then, and is for waits and queries only.
    Opened,
    /// Counter-based with external storage: a word of the user's, not reached at first. The event
    /// follows it until an append replaces its state.
    External,
    /// An aggregated event: each append that signals it adds to a word of the user's, 0 at first,
    /// and its state is never replaced.
    Aggregated {
        /// The number of increments that complete it, at least 1.
        increments: u8,
    },
}

impl EventKind {
    /// Whether only in-order lists may signal it.
    #[must_use]
    pub fn is_counter_based(self) -> bool {
        !self.is_regular()
    }

    /// Whether it is a cell that host and device set and reset.
    #[must_use]
    pub fn is_regular(self) -> bool {
        matches!(self, EventKind::Regular | EventKind::RegularTimed)
    }

    /// Whether a signal replaces its state.
    #[must_use]
    pub fn is_replaced(self) -> bool {
        matches!(self, EventKind::CounterBased | EventKind::Timed | EventKind::External)
    }

    /// Whether it has a word of the user's.
    #[must_use]
    pub fn has_word(self) -> bool {
        matches!(self, EventKind::External | EventKind::Aggregated { .. })
    }
}

/// The operation of a command, apart from its wait list and signal event. Arithmetic wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Kernel: `dst = dst * 3 + src + add`. Not commutative, so the order shows in the result.
    Mix {
        /// Read and written.
        dst: Cell,
        /// Read.
        src: Cell,
        /// Constant.
        add: u32,
    },
    /// Kernel: an atomic `dst += add`. Additions to one cell need no order among themselves.
    Add {
        /// Incremented.
        dst: Cell,
        /// Constant.
        add: u32,
    },
    /// `zeCommandListAppendMemoryCopy` of a cell.
    Copy {
        /// Written.
        dst: Cell,
        /// Read.
        src: Cell,
    },
    /// `zeCommandListAppendMemoryFill` of a cell with a 4-byte pattern.
    Fill {
        /// Written.
        dst: Cell,
        /// Pattern.
        value: u32,
    },
    /// `zeCommandListAppendHostFunction`: a thread of the host does `dst = dst * 3 + add`.
    HostCall {
        /// Read and written.
        dst: Cell,
        /// Constant.
        add: u32,
    },
    /// `zeCommandListAppendQueryKernelTimestamps` of one event, whose command is complete before, to a
    /// place of its own.
    QueryTimes {
        /// The event.
        event: EventId,
        /// The number of the place, from 0; each is used once.
        place: usize,
    },
    /// `zeCommandListAppendBarrier`.
    Barrier,
    /// `zeCommandListAppendSignalEvent`: the event is the command's signal event; no wait list.
    SignalEvent,
    /// `zeCommandListAppendWaitOnEvents`: the wait list is the command's; no signal event.
    WaitOnEvents,
    /// `zeCommandListAppendEventReset`, or a fill of the user's word with 0: no wait list, no signal
    /// event.
    ResetEvent(EventId),
    /// A fill of the word of an external event with the value that completes it: no wait list, no
    /// signal event.
    SetWord(EventId),
}

impl Op {
    /// Whether a list of the copy queue group may contain it.
    #[must_use]
    pub fn fits(self, engine: Engine) -> bool {
        engine == Engine::Compute || !matches!(self, Op::Mix { .. } | Op::Add { .. })
    }
}

/// An appended command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// Its operation.
    pub op: Op,
    /// `phWaitEvents`.
    pub waits: Vec<EventId>,
    /// `hSignalEvent`.
    pub signal: Option<EventId>,
}

/// An object that the host can wait for or query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Object {
    /// An immediate list: all that was appended so far (`zeCommandListHostSynchronize`).
    List(ListId),
    /// A queue: all that was executed on it so far.
    Queue(QueueId),
    /// An event.
    Event(EventId),
    /// A fence.
    Fence(FenceId),
}

/// One call of a host thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// `zeCommandListCreate` or `zeCommandListCreateImmediate`.
    CreateList(ListId, ListDesc),
    /// `zeCommandQueueCreate`, asynchronous.
    CreateQueue(QueueId, Engine),
    /// `zeEventCreate`, `zeEventCounterBasedCreate` or `zexCounterBasedEventCreate2`.
    CreateEvent(EventId, EventKind),
    /// `zeFenceCreate`, not signalled.
    CreateFence(FenceId, QueueId),
    /// `zeCommandListCreateCloneExp` of a closed regular list: first the list, then its copy.
    CloneList(ListId, ListId),
    /// `zexCounterBasedEventGetIpcHandle` and `zexCounterBasedEventOpenIpcHandle`, or the core
    /// functions: first the event, then the one that is opened from its handle. The backend chooses the
    /// process that opens it.
    Share(EventId, EventId),
    /// Any of the `zeCommandListAppend…` functions.
    Append(ListId, Command),
    /// `zeCommandListImmediateAppendCommandListsExp`.
    AppendLists {
        /// The immediate list that executes them.
        list: ListId,
        /// The executed lists.
        lists: Vec<ListId>,
        /// `phWaitEvents`.
        waits: Vec<EventId>,
        /// `hSignalEvent`.
        signal: Option<EventId>,
    },
    /// `zeCommandListClose`.
    Close(ListId),
    /// `zeCommandListReset`: the list is open again and empty.
    ResetList(ListId),
    /// `zeCommandListDestroy`.
    DestroyList(ListId),
    /// `zeEventDestroy`.
    DestroyEvent(EventId),
    /// `zeCommandQueueExecuteCommandLists`.
    Execute {
        /// The queue.
        queue: QueueId,
        /// The executed lists, in this order.
        lists: Vec<ListId>,
        /// `hFence`.
        fence: Option<FenceId>,
    },
    /// A host wait without a limit.
    Synchronize(Object),
    /// A host wait with timeout 0, or `zeEventQueryStatus` or `zeFenceQueryStatus`.
    Query(Object),
    /// `zeEventQueryKernelTimestamp` of an event that was signalled.
    Times(EventId),
    /// `zexEventGetDeviceAddress` or `zeEventCounterBasedGetDeviceAddress`, and a read of the counter:
    /// the pair is reached or not. It is read again after the last step.
    Address(EventId),
    /// `zeEventHostSignal`; or the host writes the word of an external event, also after its state
    /// was replaced, or adds to that of an aggregated one.
    HostSignal(EventId),
    /// `zeEventHostReset`, or the host writes 0 to the user's word.
    HostReset(EventId),
    /// `zeFenceReset`.
    ResetFence(FenceId),
    /// The host reads a cell.
    Read(Cell),
    /// The host writes a cell.
    Write(Cell, u32),
    /// Not a call: this thread continues when every earlier step of every thread has returned.
    Join,
}

/// An action and the host thread that executes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Host thread, from 0.
    pub thread: usize,
    /// Its action.
    pub action: Action,
}

/// A program: steps in an order in which they could be run by one thread.
///
/// Steps of different threads run at the same time unless they use the same object in a way where
/// their order matters; [`Expected::after`](crate::model::Expected::after) says for each step
/// which earlier ones must have returned.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// The steps.
    pub steps: Vec<Step>,
}

/// The maximum number of cells of a program.
pub const CELLS: usize = 16;
/// The maximum number of results of [`Op::QueryTimes`] of a program.
pub const PLACES: usize = 16;

/// The value of a cell before the first step.
#[must_use]
pub fn initial_value(cell: Cell) -> u32 {
    100 * (u32::try_from(cell.0).unwrap_or(0) + 1)
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl Program {
    /// The number of host threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.steps.iter().map(|step| step.thread + 1).max().unwrap_or(1)
    }
}

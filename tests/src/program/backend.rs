// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface to an implementation that runs programs: the driver behind the loader, or the toy of
//! the self-tests.

use super::{
    Cell, Command, Engine, EventId, EventKind, FenceId, ListDesc, ListId, Object, QueueId,
};
use std::fmt;

/// The time that a host wait may last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Timeout 0: return the present state.
    Poll,
    /// Until it is ready. A backend that suspects a hang gives up and returns "not ready".
    Completion,
}

/// A call that failed where the specification says that it succeeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendError {
    /// The function, for example `zeCommandListClose`.
    pub call: String,
    /// Its result, in words or as the name of its code.
    pub answer: String,
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}", self.call, self.answer)
    }
}

/// The address of a CB event's counter, and the value that completes the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterAddress {
    /// An address for [`Backend::reached`], which need not be one of this process' memory.
    pub address: u64,
    /// The event is complete when the counter is at least this.
    pub value: u64,
}

/// The time span of a command, in ticks of the device's clock, which is never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// The start. Everything that the command is ordered after is complete by then.
    pub start: u64,
    /// The end, which is not before the start.
    pub end: u64,
}

/// The result of a backend's call.
pub type Answered<T> = Result<T, BackendError>;

/// The calls of a program, one method for each [`Action`](super::Action).
///
/// Methods take `&self` because host threads call at the same time, as the API allows. The runner never
/// makes two calls at once whose order would matter. Names are those of the program: the backend maps
/// them to its handles. Dropping a backend frees all objects that the program has left.
///
/// A fast device hides missing order. A backend of a real driver should make some kernels slow
/// (for example those with an odd constant) by tens of microseconds.
#[allow(missing_docs, reason = "each method is the action of the same name")]
pub trait Backend: Sync {
    fn create_list(&self, list: ListId, desc: ListDesc) -> Answered<()>;
    fn create_queue(&self, queue: QueueId, engine: Engine) -> Answered<()>;
    fn create_event(&self, event: EventId, kind: EventKind) -> Answered<()>;
    fn create_fence(&self, fence: FenceId, queue: QueueId) -> Answered<()>;
    fn clone_list(&self, list: ListId, copy: ListId) -> Answered<()>;
    fn share(&self, event: EventId, opened: EventId) -> Answered<()>;
    fn append(&self, list: ListId, command: &Command) -> Answered<()>;
    fn append_lists(
        &self,
        list: ListId,
        lists: &[ListId],
        waits: &[EventId],
        signal: Option<EventId>,
    ) -> Answered<()>;
    fn close(&self, list: ListId) -> Answered<()>;
    fn reset_list(&self, list: ListId) -> Answered<()>;
    fn destroy_list(&self, list: ListId) -> Answered<()>;
    fn destroy_event(&self, event: EventId) -> Answered<()>;
    fn execute(&self, queue: QueueId, lists: &[ListId], fence: Option<FenceId>) -> Answered<()>;
    /// Waits or polls; `true` is ready (`ZE_RESULT_SUCCESS`), `false` is `ZE_RESULT_NOT_READY`.
    fn synchronize(&self, object: Object, wait: Wait) -> Answered<bool>;
    /// The times of the command that the event refers to; `None` while it is not ready.
    fn times(&self, event: EventId) -> Answered<Option<Times>>;
    /// The result of [`Op::QueryTimes`](super::Op::QueryTimes) at a place.
    fn times_at(&self, place: usize) -> Answered<Times>;
    fn address(&self, event: EventId) -> Answered<CounterAddress>;
    /// Reads the counter of an address that [`Backend::address`] has returned, even if the event or
    /// list was destroyed since: "an address and value pair, once satisfied, stays so".
    fn reached(&self, address: CounterAddress) -> Answered<bool>;
    fn host_signal(&self, event: EventId) -> Answered<()>;
    fn host_reset(&self, event: EventId) -> Answered<()>;
    fn reset_fence(&self, fence: FenceId) -> Answered<()>;
    fn read(&self, cell: Cell) -> Answered<u32>;
    fn write(&self, cell: Cell, value: u32) -> Answered<()>;
}

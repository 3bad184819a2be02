// SPDX-License-Identifier: MIT OR Apache-2.0
//! The textual form of programs: one line per step, for readers of a failing case.

use super::{
    Action, Command, Engine, EventId, EventKind, ListDesc, ListKind, ListOrder, Object, Op,
    Program, Step,
};
use std::fmt::{self, Display, Formatter};

fn joined<T: Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

impl Display for ListDesc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ListKind::Regular => "regular",
            ListKind::Immediate => "immediate",
            ListKind::ImmediateSynchronous => "immediate synchronous",
        };
        let order = match self.order {
            ListOrder::InOrder => "in-order",
            ListOrder::OutOfOrder => "out-of-order",
        };
        write!(f, "{kind} {order} {}", self.engine)
    }
}

impl Display for Engine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Compute => "compute",
            Engine::Copy => "copy",
        })
    }
}

impl Display for EventKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            EventKind::Regular => f.write_str("regular"),
            EventKind::RegularTimed => f.write_str("regular, timed"),
            EventKind::CounterBased => f.write_str("counter-based"),
            EventKind::Timed => f.write_str("counter-based, timed"),
            EventKind::Opened => f.write_str("opened"),
            EventKind::External => f.write_str("external"),
            EventKind::Aggregated { increments } => write!(f, "aggregated (of {increments})"),
        }
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Op::Mix { dst, src, add } => write!(f, "kernel {dst} = {dst} * 3 + {src} + {add}"),
            Op::Add { dst, add } => write!(f, "kernel {dst} += {add} atomically"),
            Op::Copy { dst, src } => write!(f, "copy {dst} = {src}"),
            Op::Fill { dst, value } => write!(f, "fill {dst} = {value}"),
            Op::HostCall { dst, add } => write!(f, "host function {dst} = {dst} * 3 + {add}"),
            Op::QueryTimes { event, place } => write!(f, "query times of {event} to place {place}"),
            Op::Barrier => f.write_str("barrier"),
            Op::SignalEvent => f.write_str("signal event"),
            Op::WaitOnEvents => f.write_str("wait on events"),
            Op::ResetEvent(event) => write!(f, "reset event {event}"),
            Op::SetWord(event) => write!(f, "set the word of {event}"),
        }
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)?;
        write_events(f, &self.waits, self.signal)
    }
}

fn write_events(f: &mut Formatter<'_>, waits: &[EventId], signal: Option<EventId>) -> fmt::Result {
    if !waits.is_empty() {
        write!(f, ", after {}", joined(waits))?;
    }
    match signal {
        Some(event) => write!(f, ", signals {event}"),
        None => Ok(()),
    }
}

impl Display for Object {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Object::List(list) => list.fmt(f),
            Object::Queue(queue) => queue.fmt(f),
            Object::Event(event) => event.fmt(f),
            Object::Fence(fence) => fence.fmt(f),
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Action::CreateList(list, desc) => write!(f, "create {list}: {desc} list"),
            Action::CreateQueue(queue, engine) => write!(f, "create {queue}: {engine} queue"),
            Action::CreateEvent(event, kind) => write!(f, "create {event}: {kind} event"),
            Action::CreateFence(fence, queue) => write!(f, "create {fence}: fence of {queue}"),
            Action::CloneList(list, copy) => write!(f, "clone {list} as {copy}"),
            Action::Share(event, opened) => write!(f, "share {event} and open it as {opened}"),
            Action::Append(list, command) => write!(f, "append to {list}: {command}"),
            Action::AppendLists { list, lists, waits, signal } => {
                write!(f, "append to {list}: execution of {}", joined(lists))?;
                write_events(f, waits, *signal)
            }
            Action::Close(list) => write!(f, "close {list}"),
            Action::ResetList(list) => write!(f, "reset {list}"),
            Action::DestroyList(list) => write!(f, "destroy {list}"),
            Action::DestroyEvent(event) => write!(f, "destroy {event}"),
            Action::Execute { queue, lists, fence } => {
                write!(f, "execute on {queue}: {}", joined(lists))?;
                match fence {
                    Some(fence) => write!(f, ", fence {fence}"),
                    None => Ok(()),
                }
            }
            Action::Synchronize(object) => write!(f, "synchronize {object}"),
            Action::Query(object) => write!(f, "query {object}"),
            Action::Times(event) => write!(f, "times of {event}"),
            Action::Address(event) => write!(f, "address and value of {event}"),
            Action::HostSignal(event) => write!(f, "host signals {event}"),
            Action::HostReset(event) => write!(f, "host resets {event}"),
            Action::ResetFence(fence) => write!(f, "reset {fence}"),
            Action::Read(cell) => write!(f, "host reads {cell}"),
            Action::Write(cell, value) => write!(f, "host writes {cell} = {value}"),
            Action::Join => f.write_str("join all threads"),
        }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "t{}  {}", self.thread, self.action)
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{number:>3}  {step}")?;
        }
        Ok(())
    }
}

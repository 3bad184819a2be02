// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue of the device as a waiter: the waits and writes that it still has to do.

use tally_uapi::ioctl::queue_state;
use tally_uapi::packet::{Call, Command, Operand, Packet, Place, PostOp, flag};

use super::calls::CallLog;
use super::names;
use super::observed::Stream;
use super::report::{self, Source, State};
use crate::submit::ring::Ring;

/// A step of a queue.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Until the cell is at least the value.
    Wait {
        /// VA of the cell.
        address: u64,
        /// The value.
        value: u64,
        /// The packet.
        origin: Origin,
    },
    /// A write to a cell.
    Write {
        /// VA of the cell.
        address: u64,
        /// The value; the largest for an addition.
        value: u64,
    },
}

/// The place of a step's packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// Number of the ring's packet.
    packet: u64,
    /// VA of the counter of the recording that the packet calls, or 0.
    recording: u64,
    /// Place in the recording; `None`: the call waits for its turn.
    inside: Option<u64>,
}

/// A queue.
#[derive(Debug)]
pub struct Waiter {
    /// The name in the report's text.
    pub name: String,
    /// The call that appended what it is parked on, if it is known.
    pub by: Option<Source>,
    /// Its state in numbers.
    pub facts: Facts,
    parked: Option<(u64, u64)>,
    /// The steps that are not done.
    steps: Vec<Step>,
}

/// The known facts about a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// One of [`queue_state`].
    pub state: u32,
    /// Its counter's value.
    pub present: u64,
    /// The value at which all that was submitted is complete, as far as the counter covers it.
    pub reserved: u64,
    /// Packets that the device has not done with.
    pub packets: u64,
    /// Time on an engine, in ns.
    pub busy_ns: u64,
}

impl Waiter {
    /// A queue with its steps. If it is parked on a cell and value, what comes before that wait is
    /// done.
    pub fn new(name: String, parked: Option<(u64, u64)>, mut steps: Vec<Step>) -> Self {
        let here = |step: &Step| match step {
            Step::Wait { address, value, .. } => parked == Some((*address, *value)),
            Step::Write { .. } => false,
        };
        if let Some(at) = steps.iter().position(here) {
            steps.drain(..at);
        }
        Self { name, by: None, facts: Facts::default(), parked, steps }
    }

    /// The cell and the value on which it is parked, if it is.
    pub fn parked(&self) -> Option<(u64, u64)> {
        self.parked
    }

    /// Its row in a report.
    pub fn queue(&self) -> report::Queue {
        let Facts { state, present, reserved, packets, busy_ns } = self.facts;
        let state = match state {
            queue_state::IDLE => State::Idle,
            queue_state::RUNNING => State::Running,
            queue_state::PARKED => State::Parked,
            _ => State::Stopped,
        };
        let name = self.name.clone();
        report::Queue { name, state, counter: present, reserved, packets, busy_ns }
    }

    /// The packet that parks it, if it is known.
    fn origin(&self) -> Option<Origin> {
        match self.steps.first()? {
            Step::Wait { address, value, origin } if self.parked == Some((*address, *value)) => {
                Some(*origin)
            }
            _ => None,
        }
    }

    /// Whether it is still to write at least `value` to a cell.
    pub fn signals(&self, cell: u64, least: u64) -> bool {
        let signals = |step: &Step| match step {
            Step::Write { address, value } => *address == cell && *value >= least,
            Step::Wait { .. } => false,
        };
        self.steps.iter().any(signals)
    }
}

/// The waiter for the queue of a list; `None` if the queue cannot be queried.
pub fn of(list: &dyn Stream) -> Option<Waiter> {
    let name = names::owner(list.cell().va());
    let mut found = None;
    list.look(&mut |ring, calls| found = look(list, name.clone(), ring, calls));
    found
}

/// The waiter for the queue of a list whose lock is held.
fn look(list: &dyn Stream, name: String, ring: &Ring, calls: Option<&CallLog>) -> Option<Waiter> {
    let query = ring.query().ok()?;
    let parked =
        (query.state == queue_state::PARKED).then_some((query.parked_address, query.parked_value));
    let mut steps = Vec::new();
    for (number, packet) in ring.pending().filter(|(number, _)| *number >= query.head) {
        match packet.decode(Place::Ring) {
            // SAFETY: the operands lie in memory of the list that stays until the CALL is
            // complete. After that only an append gives it back or uses it again, which has to
            // wait: the caller holds the list's lock since before this found the CALL in the ring.
            Ok(Command::Call(call)) => unsafe { execution(&call, number, &mut steps) },
            _ => {
                let origin = Origin { packet: number, ..Origin::default() };
                add(&packet, 0, &[], origin, &mut steps);
            }
        }
    }
    let mut waiter = Waiter::new(name, parked, steps);
    waiter.facts = Facts {
        state: query.state,
        present: list.cell().load(),
        reserved: list.reserved(),
        packets: ring.next().saturating_sub(query.head),
        busy_ns: query.busy_ns,
    };
    waiter.by = waiter.origin().and_then(|origin| source(origin, calls, &waiter.name));
    Some(waiter)
}

/// The calls that wrote a packet.
fn source(origin: Origin, calls: Option<&CallLog>, list: &str) -> Option<Source> {
    let call = |calls: Option<&CallLog>, packet, list: &str| {
        let (function, command) = calls?.find(packet)?;
        Some(report::Call { function: function.into(), command, list: list.to_owned() })
    };
    let outer = call(calls, origin.packet, list)?;
    if origin.recording == 0 {
        return Some(Source { call: outer, executed_by: None, after_execution_of: None });
    }
    let name = names::owner(origin.recording);
    let Some(inside) = origin.inside else {
        return Some(Source { call: outer, executed_by: None, after_execution_of: Some(name) });
    };
    let regular = names::regular(origin.recording)?;
    let mut inner = None;
    regular.look(&mut |_, _, calls| inner = call(calls, inside, &name));
    Some(Source { call: inner?, executed_by: Some(outer), after_execution_of: None })
}

/// The steps of an execution of a regular list by packet `number`.
///
/// # Safety
/// The operands of the call may be read.
unsafe fn execution(call: &Call, number: u64, steps: &mut Vec<Step>) {
    let origin = Origin { packet: number, recording: call.counter, inside: None };
    steps.push(Step::Wait { address: call.counter, value: call.base, origin });
    let operands: &[Operand] = if call.operand_count == 0 {
        &[]
    } else {
        let at = std::ptr::with_exposed_provenance(call.operands as usize);
        // SAFETY: as many operands lie there, at the same address for host and device, and any bits
        // are an operand; that they may be read is the caller's promise.
        unsafe { std::slice::from_raw_parts(at, call.operand_count as usize) }
    };
    if let Some(list) = names::regular(call.counter) {
        list.look(&mut |recording, packets, _| {
            // Reset since: what the execution consists of is not known any more.
            if !recording.holds(call.counter, call.base) {
                return;
            }
            let reached = recording.counter().cell().load();
            let start = steps.len();
            for (inside, packet) in (0..).zip(packets) {
                let origin = Origin { inside: Some(inside), ..origin };
                add(packet, call.base, operands, origin, steps);
                let from_base = packet.header.flags & flag::FROM_BASE != 0;
                if from_base && call.base + packet.post.value <= reached {
                    steps.truncate(start);
                }
            }
        });
    }
    let signals = u64::from(call.header.param);
    steps.push(Step::Write { address: call.counter, value: call.base + signals });
    write(&Packet::from(*call), 0, steps);
}

/// The steps of a packet that is no CALL.
fn add(packet: &Packet, base: u64, operands: &[Operand], origin: Origin, steps: &mut Vec<Step>) {
    // A recording's packets are valid with operands and FROM_BASE, a ring's without.
    let Ok(Command::Wait(wait)) = packet.decode(Place::Recording) else {
        return write(packet, base, steps);
    };
    for (i, entry) in wait.entries.iter().enumerate().take(wait.header.param as usize) {
        let (address, value) = if wait.operands & 1 << i == 0 {
            (entry.address, entry.value)
        } else {
            let operand = operands.get(entry.value as usize).copied().unwrap_or_default();
            (operand.address, operand.value)
        };
        if address != 0 {
            steps.push(Step::Wait { address, value, origin });
        }
    }
}

/// Whether a packet writes to a cell when it is done. WAIT and the prefixes have other things there.
pub(super) fn posts(packet: &Packet) -> bool {
    packet.header.flags & flag::POST_SYNC != 0
}

fn write(packet: &Packet, base: u64, steps: &mut Vec<Step>) {
    if !posts(packet) {
        return;
    }
    let from_base = packet.header.flags & flag::FROM_BASE != 0;
    let value = match packet.header.post_op {
        op if op == PostOp::Add as u8 => u64::MAX,
        _ => packet.post.value + if from_base { base } else { 0 },
    };
    steps.push(Step::Write { address: packet.post.address, value });
}

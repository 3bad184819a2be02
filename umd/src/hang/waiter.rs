// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue of the device as a waiter: its remaining waits and writes.

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
    /// A wait until the cell is at least the value.
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
        /// The value; the largest possible one for an addition.
        value: u64,
    },
}

/// The place of a step's packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// Number of the packet in the ring.
    packet: u64,
    /// VA of the counter of the recording that the packet calls, or 0.
    recording: u64,
    /// Index in the recording; `None`: the CALL itself waits for its turn.
    inside: Option<u64>,
}

/// A queue.
#[derive(Debug)]
pub struct Waiter {
    /// The name in the report's text.
    pub name: String,
    /// The call that appended the wait on which it is parked, if it is known.
    pub by: Option<Source>,
    /// Its state in numbers.
    pub facts: Facts,
    parked: Option<(u64, u64)>,
    /// The remaining steps.
    steps: Vec<Step>,
}

/// The known facts about a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// One of [`queue_state`].
    pub state: u32,
    /// Its counter's value.
    pub present: u64,
    /// The value at which all submitted commands are complete, as far as the counter covers them.
    pub reserved: u64,
    /// Number of packets that the device has not finished.
    pub packets: u64,
    /// Time on an engine, in ns.
    pub busy_ns: u64,
}

impl Waiter {
    /// A queue with its steps. If it is parked on a cell and value, the steps before that wait are
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

    /// Whether it still has to write at least `least` to a cell.
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
            // SAFETY: the operands are in memory of the list that stays until the CALL is
            // complete. After that only an append frees or reuses it, which has to wait: the
            // caller has held the list's lock since before this found the CALL in the ring.
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
        // SAFETY: there are that many operands, at the same address for host and device, and any bits
        // are a valid operand; the caller promises that they may be read.
        unsafe { std::slice::from_raw_parts(at, call.operand_count as usize) }
    };
    if let Some(list) = names::regular(call.counter) {
        list.look(&mut |recording, packets, _| {
            // The list was reset since, so the packets of the execution are not known any more.
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

/// The steps of a packet that is not a CALL.
fn add(packet: &Packet, base: u64, operands: &[Operand], origin: Origin, steps: &mut Vec<Step>) {
    // Packets of a recording may have operands and FROM_BASE, packets of a ring may not.
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

/// Whether a packet writes to a cell when it is done. WAIT and the prefixes have other fields in that place.
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

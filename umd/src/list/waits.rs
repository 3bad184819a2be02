// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wait lists: the waits that are not met already, in WAIT packets of three.

use tally_uapi::cell::{CellKind, Compare};
use tally_uapi::packet::{Header, Packet, WAITS_PER_PACKET, Wait, WaitEntry, opcode};
use tally_ze::ze_result_t;

use super::target::{Condition, Target};
use crate::error::{Error, Result};
use crate::sync::event::{Event, EventKind};
use crate::sync::resets::Engine;

/// The events of a call's wait list, looked up one by one.
pub type WaitList<'i, 'e> = &'i mut (dyn ExactSizeIterator<Item = Result<&'e Event>> + 'i);

/// Writes the packets for a wait list; returns their number.
///
/// # Errors
/// Those of the look-up; INVALID_SYNCHRONIZATION_OBJECT for an event that cannot be waited for.
#[inline(always)]
pub(super) fn encode<'e, T: Target>(
    target: &mut T,
    waits: impl Iterator<Item = Result<&'e Event>>,
) -> Result<usize> {
    // The most common case: no waits.
    if waits.size_hint().1 == Some(0) {
        return Ok(0);
    }
    // The list's own order is all that many wait for: no packet is begun for those.
    let mut begun: Option<Group> = None;
    let mut packets = 0;
    for event in waits {
        let event = event?;
        event.check()?;
        if target.orders(event) {
            continue;
        }
        let before = target.engine().and_then(|engine| condition_before(engine, event));
        let condition = target.condition(event)?;
        let group = begun.get_or_insert_default();
        for condition in before.into_iter().chain([condition]) {
            if condition != Condition::Met && group.add(condition) {
                target.push(group.take());
                packets += 1;
            }
        }
    }
    if let Some(mut group) = begun
        && group.count != 0
    {
        target.push(group.take());
        packets += 1;
    }
    Ok(packets)
}

/// The condition that comes before a wait on an engine, so that the wait does not find the event as it was before
/// an earlier reset.
fn condition_before(engine: Engine, event: &Event) -> Option<Condition> {
    let EventKind::Regular(place) = &event.kind else { return None };
    let (made, submitted) = place.resets_before(engine)?;
    Some(Condition::AtLeast(made.va(), CellKind::Counter, submitted))
}

/// The packets that wait for all of these conditions; none if all are met.
pub(super) fn packets(conditions: impl IntoIterator<Item = Condition>) -> Vec<Packet> {
    let mut group = Group::default();
    let mut packets = Vec::new();
    for condition in conditions {
        if group.add(condition) {
            packets.push(group.take());
        }
    }
    if group.count != 0 {
        packets.push(group.take());
    }
    packets
}

/// The addresses that a packet waits for, if it is a WAIT.
pub(super) fn addresses(packet: &Packet) -> impl Iterator<Item = u64> + use<> {
    let is_wait = packet.header.opcode == opcode::WAIT;
    let wait: Option<Wait> = is_wait.then(|| zerocopy::transmute!(*packet));
    let count = packet.header.param as usize;
    wait.into_iter().flat_map(move |wait| {
        let own = move |&i: &usize| wait.operands & (1 << i) == 0;
        (0..count).filter(own).map(move |i| wait.entries[i].address)
    })
}

/// The packet that waits until an event cell holds at least `value`.
pub(super) fn at_least(cell: u64, value: u64) -> Packet {
    let mut group = Group::default();
    group.add(Condition::AtLeast(cell, CellKind::Event, value));
    group.take()
}

/// An upper bound, cheap since every append needs it, of the packets of a wait list. Each event has up to two
/// conditions.
#[inline]
pub(super) const fn bound(events: usize) -> usize {
    const { assert!(WAITS_PER_PACKET > 2) };
    events
}

/// A WAIT packet under construction.
#[derive(Default)]
struct Group {
    count: usize,
    entries: [WaitEntry; WAITS_PER_PACKET],
    kinds: [u8; WAITS_PER_PACKET],
    operands: u8,
}

impl Group {
    /// Adds an entry; returns true when the packet is full.
    fn add(&mut self, condition: Condition) -> bool {
        let i = self.count;
        match condition {
            Condition::Met => return false,
            Condition::AtLeast(address, kind, value) => {
                self.entries[i] = WaitEntry { address, value };
                self.kinds[i] = kind as u8;
            }
            Condition::Operand(number) => {
                self.entries[i].value = u64::from(number);
                self.operands |= 1 << i;
            }
        }
        self.count += 1;
        self.count == WAITS_PER_PACKET
    }

    fn take(&mut self) -> Packet {
        let group = std::mem::take(self);
        let header =
            Header { opcode: opcode::WAIT, param: group.count as u32, ..Default::default() };
        Wait {
            header,
            entries: group.entries,
            kinds: group.kinds,
            // Event cells are 0 or 1 and counters only grow: all waits are the same comparison.
            compares: [Compare::GreaterEqual as u8; WAITS_PER_PACKET],
            operands: group.operands,
            reserved: 0,
        }
        .into()
    }
}

/// The error for a wait that would never end.
pub(super) fn dead() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
        "phWaitEvents: the list that would signal the event was reset or destroyed before it was executed",
    )
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! CALL: the execution of a recording.

use std::sync::Arc;

use tally_uapi::packet::{Call, Operand, Packet};

use crate::cell::CellWait;
use crate::fields::{bad_field, packet_address};
use crate::guard::{Guard, Trap};
use crate::queue::{Frame, Scope};
use crate::ring::Ahead;

impl Frame {
    /// Reads the operands. `packets` is 0 for a CALL whose predicate is not met.
    pub(super) fn new(
        guard: &mut Guard,
        call: &Call,
        packets: u32,
        scope: Arc<Scope>,
    ) -> Result<Self, Trap> {
        let packets = u64::from(packets);
        if packet_address(call.recording, packets).is_none() {
            return Err(bad_field(call.recording));
        }
        let mut operands = Vec::new();
        if packets != 0 && call.operand_count != 0 {
            let count = u64::from(call.operand_count);
            let bytes = count * size_of::<Operand>() as u64;
            if call.operands.checked_add(bytes).is_none() {
                return Err(bad_field(call.operands));
            }
            if operands.try_reserve_exact(count as usize).is_err() {
                return Err(bad_field(count));
            }
            for i in 0..count {
                let operand: Operand =
                    guard.read(call.operands + i * size_of::<Operand>() as u64)?;
                operand.decode().map_err(|kind| Trap::new(kind, operand.address))?;
                operands.push(operand);
            }
        }
        let packets = Ahead { base: call.recording, mask: u64::MAX, next: 0, end: packets };
        Ok(Self { packets, base: call.base, operands, scope })
    }

    pub(super) fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The wait that an operand stands for; None if it is met already.
    pub(super) fn operand(&self, index: u64) -> Result<Option<CellWait>, Trap> {
        let operand = usize::try_from(index).ok().and_then(|i| self.operands.get(i));
        let operand = operand.ok_or_else(|| bad_field(index))?;
        let decoded = operand.decode().map_err(|kind| Trap::new(kind, operand.address))?;
        Ok(decoded.map(|(kind, compare)| CellWait {
            address: operand.address,
            value: operand.value,
            kind,
            compare,
        }))
    }

    /// Copies the next packet. False at the end.
    pub(super) fn fetch(&self, guard: &mut Guard, packet: &mut Packet) -> Result<bool, Trap> {
        let (mut packets, mut found) = (self.packets, false);
        // SAFETY: in a guarded call; decode() has checked the alignment.
        guard.run(|| found = unsafe { packets.take(packet) })?;
        Ok(found)
    }

    /// The packets after the next.
    pub(super) fn ahead(&self) -> Ahead {
        Ahead { next: self.packets.next + 1, ..self.packets }
    }

    /// The packet after the next.
    pub(super) fn peek(&self, guard: &mut Guard) -> Option<Packet> {
        self.ahead().peek(guard)
    }

    pub(super) fn advance(&mut self, packets: u64) {
        self.packets.next += packets;
    }
}

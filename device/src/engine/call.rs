// SPDX-License-Identifier: MIT OR Apache-2.0
//! CALL: the execution of a recording.

use std::sync::Arc;

use tally_uapi::packet::{Call, Operand, PACKET_SIZE, Packet};

use super::packet_address;
use crate::cell::CellWait;
use crate::guard::{Guard, Trap};
use crate::scope::Scope;
use crate::work::bad_field;

/// A CALL that is being run.
#[derive(Debug)]
pub(crate) struct Frame {
    recording: u64,
    packets: u64,
    next: u64,
    base: u64,
    operands: Vec<Operand>,
    scope: Arc<Scope>,
}

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
        let base = call.base;
        Ok(Self { recording: call.recording, packets, next: 0, base, operands, scope })
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
        if self.next == self.packets {
            return Ok(false);
        }
        *packet = guard.read(self.recording + self.next * PACKET_SIZE)?;
        Ok(true)
    }

    /// The packet after the next.
    pub(super) fn peek(&self, guard: &mut Guard) -> Option<Packet> {
        if self.next + 1 >= self.packets {
            return None;
        }
        guard.read(self.recording + (self.next + 1) * PACKET_SIZE).ok()
    }

    pub(super) fn advance(&mut self) {
        self.next += 1;
    }
}

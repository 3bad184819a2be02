// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operands of an `OpExtInst`.

use super::body::Body;
use super::error::Result;
use super::words::Instruction;
use crate::ir::{Operand, TypeId};

/// Index of the first operand behind the set and the number of the instruction.
pub const FIRST: usize = 2;

/// The operands of an extended instruction.
pub struct Args<'i, 'w> {
    /// The `OpExtInst`.
    pub inst: &'i Instruction<'w>,
}

impl Args<'_, '_> {
    /// Operand `index` as a value.
    pub fn value(&self, body: &Body<'_, '_>, index: usize) -> Result<Operand> {
        body.arg(self.inst, FIRST + index)
    }

    /// Operand `index` as a value with as many components as `ty`.
    pub fn like(&self, body: &mut Body<'_, '_>, index: usize, ty: TypeId) -> Result<Operand> {
        let value = self.value(body, index)?;
        let from = body.type_of(value);
        let types = &body.b.module.types;
        let (have, want) = (types.lanes(from), types.lanes(ty));
        if have == 1 && want > 1 {
            let element = types.element(from);
            let ty = body.b.module.types.with_element(ty, element);
            return Ok(body.broadcast(value, ty));
        }
        Ok(value)
    }

    /// Operand `index` as a literal.
    pub fn literal(&self, index: usize) -> Result<u32> {
        self.inst.arg(FIRST + index)
    }
}

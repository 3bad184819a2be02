// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows that lie backwards, the last item's first, as in a mirrored image. They are accessed as the rows of the items in
//! the opposite order, and what is read, written or masked is turned round in a register:
//!
//! ```text
//!   c3 d3 c2 d2 c1 d1 c0 d0   ──▶   c3 c2 c1 c0   ──▶   c0 c1 c2 c3
//!                                   d3 d2 d1 d0         d0 d1 d2 d3
//! ```

use super::{Chunk, Part, Writer, is_all};
use crate::ir::{Op, Operand, ValueId};

impl Writer<'_> {
    /// The rows of the items in the opposite order.
    fn turned(&mut self, chunk: &Chunk) -> Chunk {
        let step = chunk.rows.step.unwrap_or(0);
        let to_last = step.wrapping_mul(i64::from(chunk.lanes) - 1);
        let parts = chunk.parts.iter();
        let parts =
            parts.map(|part| Part { beyond: part.beyond.wrapping_add(to_last), ..part.clone() });
        let mut rows = chunk.rows.clone();
        rows.step = Some(-step);
        let mut turned = Chunk { rows, parts: parts.collect(), passed: Vec::new(), ..*chunk };
        if !is_all(self.module, chunk.mask) {
            turned.mask = self.reversed(chunk.mask);
        }
        turned
    }

    /// Reads rows that lie backwards. What stands for each part.
    pub(super) fn read_backwards(&mut self, chunk: &Chunk) -> Vec<(ValueId, Operand)> {
        let turned = self.turned(chunk);
        let read = self.read(&turned);
        read.into_iter().map(|(value, vector)| (value, self.reversed(vector))).collect()
    }

    /// Writes rows that lie backwards.
    pub(super) fn write_backwards(&mut self, chunk: &Chunk) {
        let mut turned = self.turned(chunk);
        for part in &mut turned.parts {
            part.value = self.reversed(part.value);
        }
        self.write(&turned);
    }

    /// A vector with its elements in the opposite order.
    fn reversed(&mut self, vector: Operand) -> Operand {
        let ty = self.module.operand_type(self.function, vector);
        let lanes = self.module.types.lanes(ty);
        self.value(Op::Shuffle(vector, vector, (0..lanes).rev().map(Some).collect()), ty)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of several parts that are adjacent in memory: a vector for each part in registers, one long vector, the
//! *line*, in memory.
//!
//! ```text
//!   line    x0 y0 x1 y1 x2 y2 x3 y3
//!   parts   x0 x1 x2 x3 | y0 y1 y2 y3
//! ```

use super::emit::Widener;
use crate::ir::{Op, Operand, TypeId};

impl Widener<'_> {
    /// A mask for the parts of values that are adjacent in memory: each item's bit `n` times.
    pub(super) fn mask_of_parts(&mut self, mask: Operand, n: u32) -> Operand {
        if n == 1 {
            return mask;
        }
        let lanes = self.out.lanes;
        let bool = self.out.module.types.bool();
        let ty = self.out.vector(bool, n * lanes);
        let pick = (0..n * lanes).map(|part| Some(part / n)).collect();
        self.out.value(Op::Shuffle(mask, mask, pick), ty)
    }

    /// So many components of a vector, from one on.
    pub(super) fn cut(&mut self, vector: Operand, first: u32, count: u32) -> Operand {
        let ty = self.out.type_of(vector);
        if self.out.module.types.lanes(ty) == count {
            return vector;
        }
        let element = self.out.module.types.element(ty);
        let ty = self.out.vector(element, count);
        let pick = (first..first + count).map(Some).collect();
        self.out.value(Op::Shuffle(vector, vector, pick), ty)
    }

    /// A power of two of vectors of so many components as one.
    pub(super) fn joined(
        &mut self,
        mut vectors: Vec<Operand>,
        element: TypeId,
        mut count: u32,
    ) -> Operand {
        while vectors.len() > 1 {
            count *= 2;
            let ty = self.out.vector(element, count);
            let pick: Vec<Option<u32>> = (0..count).map(Some).collect();
            let join =
                |pair: &[Operand]| self.out.value(Op::Shuffle(pair[0], pair[1], pick.clone()), ty);
            vectors = vectors.chunks_exact(2).map(join).collect();
        }
        vectors[0]
    }

    /// The parts of the values of a line.
    pub(super) fn parts_of_line(&mut self, line: Operand, part: TypeId, n: u32) -> Vec<Operand> {
        let lanes = self.out.lanes;
        let pick = |k: u32| (0..lanes).map(|lane| Some(lane * n + k)).collect();
        (0..n).map(|k| self.out.value(Op::Shuffle(line, line, pick(k)), part)).collect()
    }

    /// The line of the parts of values, a power of two of them. `leaf` is the type of an item's part.
    pub(super) fn line_of_parts(&mut self, values: &[Operand], leaf: TypeId) -> Operand {
        let lanes = self.out.lanes;
        // Two parts at a time: shuffles take two vectors.
        let mut parts: Vec<Operand> = values.to_vec();
        let mut count = lanes;
        while parts.len() > 1 {
            count *= 2;
            let ty = self.out.vector(leaf, count);
            let half = count / 2;
            let pick: Vec<Option<u32>> =
                (0..count).map(|i| Some(if i % 2 == 0 { i / 2 } else { half + i / 2 })).collect();
            let pairs = parts.len() / 2;
            parts = (0..pairs)
                .map(|i| {
                    let op = Op::Shuffle(parts[i], parts[i + pairs], pick.clone());
                    self.out.value(op, ty)
                })
                .collect();
        }
        parts[0]
    }
}

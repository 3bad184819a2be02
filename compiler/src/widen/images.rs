// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes of images by all items of a vector in one call of the run-time library.
//!
//! Most steps of a read are the same for all texels of an image: which format it has, where the edges are, what the
//! sampler wants. A read took seven nanoseconds of an item, and takes two (`README.md`, "Images").

use super::emit::Widener;
use super::refusal::Refusal;
use super::shape::Shape;
use crate::ir::{ImageOp, Op, Operand, ValueId};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "images";

impl Widener<'_> {
    /// Reads or writes an image that is the same for all items, as is the sampler. `false` if that does not hold.
    pub(super) fn images(
        &mut self,
        op: ImageOp,
        operands: &[Operand],
        result: Option<ValueId>,
    ) -> Result<bool, Refusal> {
        let shared = if op == ImageOp::Write { 1 } else { 2 };
        let (same, different) = operands.split_at(shared);
        if is_skipped(NAME) || same.iter().any(|&it| self.shape(it) != Shape::Uniform) {
            return Ok(false);
        }
        let mut all: Vec<Operand> = same.iter().map(|&it| self.one(it)).collect();
        for &operand in different {
            all.extend(self.vectors(operand)?);
        }
        all.push(self.mask_value());
        let Some(result) = result else {
            self.out.effect(Op::Images(op, all), Default::default());
            return Ok(true);
        };
        let lanes = self.out.lanes;
        let leaves = self.leaves(self.from.values[result].ty)?;
        let ty = self.out.vector(leaves[0].ty, lanes * leaves.len() as u32);
        let texels = self.out.value(Op::Images(op, all), ty);
        let channels: Vec<Operand> =
            (0..leaves.len() as u32).map(|i| self.cut(texels, i * lanes, lanes)).collect();
        self.set(result, &channels)?;
        Ok(true)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items that access places close to each other, though not in line: as sorting networks and Fourier transforms do in
//! local memory, with strides that are shorter than a vector.
//!
//! ```text
//!   items                        0  1  2  3  4  5  6  7 ...
//!   2 * i - (i & (stride - 1))   0  1  4  5  8  9 12 13 ...    stride 2
//!                                0  1  2  3  8  9 10 11 ...    stride 4
//! ```
//!
//! Which they are is known when they run. If all places lie in a block of [`MOST`] words of each item, the block is
//! loaded, and its words are permuted (`rt/maths/close.c`).

use super::emit::Widener;
use super::ops::Leaf;
use super::refusal::Refusal;
use crate::ir::{Access, Op, Operand};

/// The items of a vector for which there are functions.
const LANES: u32 = 16;
/// Bytes of a word.
const WORD: u64 = 4;
/// So many elements lie in a block.
const MOST: u64 = 32;

impl Widener<'_> {
    /// Whether it is worth testing if the items' places are close to each other.
    fn may_be_close(&self, leaves: &[Leaf], size: u64, access: Access) -> bool {
        let words = leaves.iter().all(|leaf| self.out.module.types.size(leaf.ty) == WORD);
        self.out.lanes == LANES
            && words
            && matches!(size / WORD, 1 | 2)
            && u64::from(access.align) >= size
            && !access.volatile
    }

    /// Gathers from places that arithmetic has made, and that are not in line.
    pub(super) fn gather_close(
        &mut self,
        places: Operand,
        leaves: &[Leaf],
        size: u64,
        access: Access,
    ) -> Result<Vec<Operand>, Refusal> {
        if !self.may_be_close(leaves, size, access) {
            return Ok(self.gather_from(places, leaves, access));
        }
        let mask = self.mask_value();
        let (bool, block) = (self.out.module.types.bool(), MOST * size);
        let close = self.out.value(Op::Close(places, mask, block), bool);
        self.guarded(
            Some(close),
            leaves,
            |this| {
                let int = this.out.module.types.int(8 * WORD as u32);
                let words = this.out.vector_of(int);
                let mut all = Vec::new();
                for leaf in leaves {
                    let op = Op::GatherClose(places, block, leaf.offset);
                    let found = this.out.value(op, words);
                    let ty = this.out.vector_of(leaf.ty);
                    all.push(this.bits_as(found, ty));
                }
                Ok(all)
            },
            |this| Ok(this.gather_from(places, leaves, access)),
        )
    }

    /// Scatters to places that arithmetic has made, and that are not in line.
    pub(super) fn scatter_close(
        &mut self,
        places: Operand,
        values: &[Operand],
        leaves: &[Leaf],
        access: Access,
    ) -> Result<Vec<Operand>, Refusal> {
        let scatter = |this: &mut Self| {
            this.scatter_to(places, values, leaves, access);
            Ok(Vec::new())
        };
        if leaves.len() != 1 || !self.may_be_close(leaves, WORD, access) {
            return scatter(self);
        }
        let mask = self.mask_value();
        let bool = self.out.module.types.bool();
        let int = self.out.module.types.int(8 * WORD as u32);
        let words = self.out.vector_of(int);
        let value = self.bits_as(values[0], words);
        let done = self.out.value(Op::ScatterClose(places, value, mask), bool);
        self.guarded(Some(done), &[], |_| Ok(Vec::new()), scatter)
    }
}

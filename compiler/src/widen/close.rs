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
//! Which they are is known when they run. If all places lie in one block of memory, the block is loaded, and its words
//! are permuted (`rt/maths/close.c`).

use super::emit::Widener;
use super::ops::Leaf;
use super::refusal::Refusal;
use crate::ir::{Access, ConvertOp, Op, Operand, Type};

/// The items of a vector for which there are functions.
pub(super) const LANES: u32 = 16;
/// Bytes of a word.
pub(super) const WORD: u64 = 4;
/// So many elements of words lie in a block.
const MOST: u64 = 32;
/// Bytes of a block with shorter ones.
const SHORT: u64 = 256;

impl Widener<'_> {
    /// Whether it is worth testing if the items' places are close to each other.
    fn may_be_close(&self, leaves: &[Leaf], size: u64, access: Access) -> bool {
        let types = &self.out.module.types;
        let plain = |leaf: &Leaf| matches!(types[leaf.ty], Type::Int(_) | Type::Float(_));
        let words = leaves.iter().all(|leaf| types.size(leaf.ty) == WORD);
        self.out.lanes == LANES
            && (words && matches!(size, 4 | 8)
                || matches!((leaves, size), ([leaf], 1 | 2) if plain(leaf)))
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
        let bool = self.out.module.types.bool();
        let block = if size < WORD { SHORT } else { MOST * size };
        let close = self.out.value(Op::Close(places, mask, block), bool);
        self.guarded(
            Some(close),
            leaves,
            |this| {
                let int = this.out.module.types.int(8 * WORD as u32);
                let words = this.out.vector_of(int);
                let long = this.out.module.types.int(64);
                let numbers = this.out.vector_of(long);
                let place = this.out.value(Op::Convert(ConvertOp::PtrToInt, places), numbers);
                let place = this.out.value(Op::Convert(ConvertOp::Trunc, place), words);
                let mut all = Vec::new();
                for leaf in leaves {
                    let found = this.out.value(Op::GatherClose(places, block, leaf.offset), words);
                    all.push(this.part_of_words(found, place, leaf.ty));
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
        size: u64,
        access: Access,
    ) -> Result<Vec<Operand>, Refusal> {
        let scatter = |this: &mut Self| {
            this.scatter_to(places, values, leaves, access);
            Ok(Vec::new())
        };
        if leaves.len() != 1 || size != WORD || !self.may_be_close(leaves, size, access) {
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

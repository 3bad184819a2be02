// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of few bytes in which items look up elements: of bytes by a byte, of numbers by a few bits.
//!
//! ```text
//!   out[i] = table[in[i]];       table: uchar *, in: uchar *      256 bytes
//!   sum += values[q >> 4];       values: float *, q: uchar        64 bytes
//! ```
//!
//! What the index is made of tells how much of the table items may read ([`bounds`](super::bounds)). If so many bytes lie
//! in one page, all of them may be read where any item reads one. They are loaded, and their words are permuted
//! (`rt/maths/close.c`).

use super::close::{LANES, WORD};
use super::emit::Widener;
use super::ops::Leaf;
use super::refusal::Refusal;
use super::shape::Shape;
use crate::ir::{Access, AddressSpace, BinaryOp, ConvertOp, Op, Operand, Type, TypeId};

/// The most bytes of a table. With 1,024, two neighbours of 256 floats (`table` of `scripts/bench kernels`) take twice the
/// time of gathers.
pub(super) const MOST: u64 = 512;
/// Bytes of the fewest that are loaded.
pub(super) const LEAST: u64 = 64;

/// A table, and each item's place in it.
struct Table {
    /// The address.
    at: Operand,
    /// The items' indices, and the distance from one to the next.
    index: Operand,
    stride: u64,
    /// As many bytes as are loaded.
    bytes: u64,
}

impl Widener<'_> {
    /// Gathers from places that need not be near each other.
    pub(super) fn gather_apart(
        &mut self,
        at: Operand,
        leaves: &[Leaf],
        size: u64,
        access: Access,
    ) -> Result<Vec<Operand>, Refusal> {
        let varies = self.shape(at) == Shape::Varying && !self.is_private(at);
        // The test would part small elements that are written side by side, which reads of constants and of local
        // memory do not.
        let ty = &self.out.module.types[self.type_in(at)];
        let other = matches!(ty, Type::Pointer(AddressSpace::Constant | AddressSpace::Local));
        let joins = size < WORD && other && self.stores_parts_of_words();
        let places = self.vector(at)?;
        let table = match leaves {
            [leaf] if varies && !joins && !access.volatile => self.table_of(places, leaf, size),
            _ => None,
        };
        let Some(table) = table else { return Ok(self.gather_from(places, leaves, access)) };
        let bool = self.out.module.types.bool();
        let holds = self.out.value(Op::Table(table.at, table.bytes), bool);
        self.guarded(
            Some(holds),
            leaves,
            |this| Ok(vec![this.look_up(&table, &leaves[0])]),
            |this| Ok(this.gather_from(places, leaves, access)),
        )
    }

    /// Whether the kernel stores elements that are shorter than a word.
    fn stores_parts_of_words(&self) -> bool {
        let mut insts = self.from.blocks.iter().flat_map(|(_, block)| &block.insts);
        insts.any(|inst| match inst.op {
            Op::Store(_, value, _) => self.out.module.types.size(self.type_in(value)) < WORD,
            _ => false,
        })
    }

    /// The table that addresses point into.
    fn table_of(&mut self, places: Operand, leaf: &Leaf, size: u64) -> Option<Table> {
        let module = &self.out.module;
        let plain = matches!(module.types[leaf.ty], Type::Int(_) | Type::Float(_));
        let Operand::Value(value) = places else { return None };
        let Some(Op::Address { base, offset, terms, .. }) = self.out.made.get(&value) else {
            return None;
        };
        if !plain || self.out.lanes != LANES || size > WORD || !size.is_power_of_two() {
            return None;
        }
        let is_vector = |operand| module.types.lanes(self.out.type_of(operand)) > 1;
        let mut varying = terms.iter().filter(|&&(index, _)| is_vector(index));
        let (&(index, stride), None) = (varying.next()?, varying.next()) else { return None };
        if is_vector(*base) {
            return None;
        }
        let most = *self.reach.get(&value)?;
        let stride = u64::try_from(stride).ok().filter(|stride| stride.is_multiple_of(size))?;
        let last = most.checked_mul(stride)?.checked_add(size).filter(|&last| last <= MOST)?;
        let terms = terms.iter().copied().filter(|&(index, _)| !is_vector(index)).collect();
        let op = Op::Address { base: *base, offset: *offset, terms, inbounds: false };
        let ty = self.out.type_of(*base);
        let at = self.out.value(op, ty);
        Some(Table { at, index, stride, bytes: last.next_power_of_two().max(LEAST) })
    }

    /// The items' elements.
    fn look_up(&mut self, table: &Table, leaf: &Leaf) -> Operand {
        let int = self.out.module.types.int(8 * WORD as u32);
        let words = self.out.vector_of(int);
        let bits = self.out.module.types.scalar_bits(self.out.type_of(table.index));
        let mut place = match bits {
            32 => table.index,
            64 => self.out.value(Op::Convert(ConvertOp::Trunc, table.index), words),
            _ => self.out.value(Op::Convert(ConvertOp::ZExt, table.index), words),
        };
        if table.stride != 1 {
            let stride = self.out.int(words, table.stride as i64);
            place = self.out.value(Op::Binary(BinaryOp::Mul, place, stride), words);
        }
        let found = self.out.value(Op::LookUp(table.at, place, table.bytes), words);
        self.part_of_words(found, place, leaf.ty)
    }

    /// The elements of a type out of the words in which they lie, at these addresses or places.
    pub(super) fn part_of_words(&mut self, found: Operand, place: Operand, ty: TypeId) -> Operand {
        let size = self.out.module.types.size(ty);
        let vector = self.out.vector_of(ty);
        if size == WORD {
            return self.bits_as(found, vector);
        }
        let words = self.out.type_of(found);
        let [most, three] = [WORD as i64 - 1, 3].map(|number| self.out.int(words, number));
        let byte = self.out.value(Op::Binary(BinaryOp::And, place, most), words);
        let bit = self.out.value(Op::Binary(BinaryOp::Shl, byte, three), words);
        let moved = self.out.value(Op::Binary(BinaryOp::LShr, found, bit), words);
        let small = self.out.module.types.int(8 * size as u32);
        let small = self.out.vector_of(small);
        let cut = self.out.value(Op::Convert(ConvertOp::Trunc, moved), small);
        self.bits_as(cut, vector)
    }
}

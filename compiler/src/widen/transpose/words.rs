// SPDX-License-Identifier: MIT OR Apache-2.0
//! Neighbouring elements of each item as one word: one gather or scatter in place of several. Words that follow each
//! other without a gap, as complex numbers do, are one load or store.
//!
//! ```text
//!   item 0: a0 a1        a0 a1 b0 b1 c0 c1 d0 d1          a0 b0 c0 d0
//!   item 1: b0 b1  ──▶   from one gather of words   ──▶   a1 b1 c1 d1
//!   ...
//! ```

use super::{Chunk, Kind, Part, Writer, is_all};
use crate::ir::{Access, ConvertOp, Inst, Op, Operand, TypeId, ValueId};

/// Bytes of words, the longest first.
pub(super) const SIZES: [u64; 3] = [8, 4, 2];

/// Bytes of the shortest words that processors gather and scatter.
const SHORTEST: u64 = 4;

/// Whether words of so many bytes at addresses with an alignment are an advantage. Shorter words than the processor
/// gathers are read with those around them if they are aligned, and written one by one.
pub(super) fn may_be(kind: Kind, bytes: u64, align: u32) -> bool {
    bytes >= SHORTEST || kind == Kind::Read && u64::from(align) >= bytes
}

impl Writer<'_> {
    /// Gathers the words. What stands for each part.
    pub(super) fn gather(&mut self, chunk: &Chunk) -> Vec<(ValueId, Operand)> {
        let [words, line, part] = self.word_types(chunk);
        let op = match self.line(chunk) {
            Some((at, access)) if is_all(self.module, chunk.mask) => Op::Load(at, access),
            Some((at, access)) => Op::MaskedLoad(at, chunk.mask, access),
            None => {
                let (at, access) = self.words(chunk);
                Op::Gather(at, chunk.mask, access)
            }
        };
        let words = self.value(op, words);
        let line = self.value(Op::Convert(ConvertOp::Bitcast, words), line);
        let count = chunk.parts.len() as u32;
        let mut results = Vec::new();
        for (number, it) in (0..).zip(&chunk.parts) {
            let pick = (0..chunk.lanes).map(|item| Some(item * count + number)).collect();
            let vector = self.value(Op::Shuffle(line, line, pick), part);
            if let Operand::Value(value) = it.value {
                results.push((value, vector));
            }
        }
        results
    }

    /// Scatters the words.
    pub(super) fn scatter(&mut self, chunk: &Chunk) {
        let [words, ..] = self.word_types(chunk);
        let mut values: Vec<Operand> = chunk.parts.iter().map(|part| part.value).collect();
        let mut length = chunk.lanes;
        // The parts of even numbers with those of odd ones in between, until one line is left.
        while values.len() > 1 {
            let half = values.len() / 2;
            let pick: Vec<Option<u32>> =
                (0..2 * length).map(|i| Some(i / 2 + i % 2 * length)).collect();
            length *= 2;
            let ty = self.vector(chunk.element, length as usize);
            values = (0..half)
                .map(|i| self.value(Op::Shuffle(values[i], values[i + half], pick.clone()), ty))
                .collect();
        }
        let value = self.value(Op::Convert(ConvertOp::Bitcast, values[0]), words);
        let op = match self.line(chunk) {
            Some((at, access)) if is_all(self.module, chunk.mask) => Op::Store(at, value, access),
            Some((at, access)) => Op::MaskedStore(at, value, chunk.mask, access),
            None => {
                let (at, access) = self.words(chunk);
                Op::Scatter(at, value, chunk.mask, access)
            }
        };
        let (flags, loc) = (Default::default(), self.loc);
        self.insts.push(Inst { result: None, op, flags, loc });
    }

    /// The address of the first item's word, if each item's word follows the one before it.
    fn line(&mut self, chunk: &Chunk) -> Option<(Operand, Access)> {
        let bytes = chunk.bytes(self.module);
        let is_line = chunk.rows.step == Some(bytes as i64) && bytes >= SHORTEST;
        let access = Access { align: chunk.parts[0].align, volatile: false, nontemporal: false };
        is_line.then(|| (self.row(chunk, 0), access))
    }

    /// The addresses of the words, and how they are accessed.
    fn words(&mut self, chunk: &Chunk) -> (Operand, Access) {
        let place = chunk.place();
        let first = &chunk.parts[0];
        // Only this part's addresses are known to exist here.
        let nearest: &Part = chunk.parts.iter().find(|it| it.index == place).unwrap_or(first);
        let access = Access { align: first.align, volatile: false, nontemporal: false };
        let offset = first.offset.wrapping_sub(nearest.offset);
        if offset == 0 {
            return (nearest.at, access);
        }
        let (base, terms) = (nearest.at, Vec::new());
        let ty = self.module.operand_type(self.function, base);
        (self.value(Op::Address { base, offset, terms, inbounds: false }, ty), access)
    }

    /// The types of the words, of all their parts one after the other, and of one part of all items.
    fn word_types(&mut self, chunk: &Chunk) -> [TypeId; 3] {
        let (count, lanes) = (chunk.parts.len(), chunk.lanes as usize);
        let bytes = chunk.bytes(self.module);
        let word = self.module.types.int(8 * bytes as u32);
        [
            self.vector(word, lanes),
            self.vector(chunk.element, count * lanes),
            self.vector(chunk.element, lanes),
        ]
    }
}

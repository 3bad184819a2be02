// SPDX-License-Identifier: MIT OR Apache-2.0
//! Neighbouring elements of each item as one word: one gather or scatter in place of several. Words that follow each
//! other without a gap, as complex numbers do, are one load or store.
//!
//! ```text
//!   item 0: a0 a1        a0 a1 b0 b1 c0 c1 d0 d1          a0 b0 c0 d0
//!   item 1: b0 b1  ──▶   from one gather of words   ──▶   a1 b1 c1 d1
//!   ...
//! ```
//!
//! Elements that are fewer than a word, or have gaps, are read with what lies around them, which is in the same page:
//! [`Writer::around`].

use super::{Chunk, Kind, Part, Writer, is_all};
use crate::ir::{
    Access, BinaryOp, ConstKind, ConvertOp, Inst, Module, Op, Operand, Type, TypeId, ValueId,
};

/// Bytes of words, the longest first.
pub(super) const SIZES: [u64; 3] = [8, 4, 2];

/// Bytes of the shortest and the longest words that processors gather and scatter.
const SHORTEST: u64 = 4;
pub(super) const LONGEST: u64 = 8;

/// Whether words of so many bytes at addresses with an alignment are an advantage. Shorter words than the processor
/// gathers are read with those around them if they are aligned, and written one by one unless they follow each other.
pub(super) fn may_be(chunk: &Chunk, bytes: u64, align: u32) -> bool {
    match chunk.kind {
        _ if bytes >= SHORTEST => true,
        Kind::Read => u64::from(align) >= bytes,
        Kind::Write => follow(chunk, bytes),
    }
}

/// How many of the parts, which are in order, are read as one word, gaps included; 1 if it is none but the first.
pub(super) fn parts_around(module: &Module, chunk: &Chunk, parts: &[Part]) -> usize {
    if chunk.kind == Kind::Write {
        return 1;
    }
    let (size, first) = (module.types.size(chunk.element) as i64, parts[0].offset);
    let fits = |part: &Part| match part.offset.checked_sub(first) {
        Some(distance) => distance % size == 0 && distance + size <= LONGEST as i64,
        None => false,
    };
    // An element that is read twice is no neighbour of itself.
    let here = |two: &&[Part]| two[0].offset < two[1].offset && fits(&two[1]);
    1 + parts.windows(2).take_while(here).count()
}

/// Whether the words follow each other without a gap, or each is before the last one.
pub(super) fn is_line(module: &Module, chunk: &Chunk) -> bool {
    let bytes = chunk.bytes(module);
    let long = bytes >= SHORTEST || chunk.kind == Kind::Write;
    !chunk.has_more && long && follow(chunk, bytes)
}

/// Whether words of so many bytes follow each other.
fn follow(chunk: &Chunk, bytes: u64) -> bool {
    chunk.rows.step.map(i64::unsigned_abs) == Some(bytes)
}

/// Bytes of a word that has an item's parts, and of its parts with the gaps in between.
fn word_around(module: &Module, chunk: &Chunk) -> (u64, u64) {
    let offsets = || chunk.parts.iter().map(|part| part.offset);
    let reach = offsets().max().unwrap_or(0).wrapping_sub(offsets().min().unwrap_or(0));
    let bytes = reach as u64 + module.types.size(chunk.element);
    (if bytes <= SHORTEST { SHORTEST } else { LONGEST }, bytes)
}

impl Writer<'_> {
    /// Gathers words that have the parts, and more. What stands for each part.
    ///
    /// A word begins at the parts if their end is beyond the aligned word that they begin in, less what it has more than
    /// they have; else it is that aligned word. In both cases it lies in the aligned words that the parts lie in:
    ///
    /// ```text
    ///   two bytes   ab......  .ab.....  ..ab....  ...ab...
    ///   their word  WWWW      WWWW      WWWW       WWWW
    /// ```
    pub(super) fn around(&mut self, chunk: &Chunk) -> Vec<(ValueId, Operand)> {
        let (word, bytes) = word_around(self.module, chunk);
        let lanes = chunk.lanes as usize;
        let int = self.module.types.int(8 * word as u32);
        let words = self.vector(int, lanes);
        let (at, access) = self.words(chunk);
        let value = if bytes == word || u64::from(access.align) >= word {
            self.value(Op::Gather(at, chunk.mask, access), words)
        } else {
            let long = self.module.types.int(64);
            let longs = self.vector(long, lanes);
            let pointers = self.module.operand_type(self.function, at);
            let number = self.value(Op::Convert(ConvertOp::PtrToInt, at), longs);
            let most = self.splat(long, longs, word - 1);
            let before = self.value(Op::Binary(BinaryOp::And, number, most), longs);
            let most = self.splat(long, longs, word - bytes);
            let before = self.value(Op::Binary(BinaryOp::UMin, before, most), longs);
            let begin = self.value(Op::Binary(BinaryOp::Sub, number, before), longs);
            let at = self.value(Op::Convert(ConvertOp::IntToPtr, begin), pointers);
            let access = Access { align: 1, ..access };
            let value = self.value(Op::Gather(at, chunk.mask, access), words);
            let before = match word {
                LONGEST => before,
                _ => self.value(Op::Convert(ConvertOp::Trunc, before), words),
            };
            let three = self.splat(int, words, 3);
            let bits = self.value(Op::Binary(BinaryOp::Shl, before, three), words);
            self.value(Op::Binary(BinaryOp::LShr, value, bits), words)
        };
        let size = self.module.types.size(chunk.element);
        self.parts_of(chunk, value, word / size)
    }

    /// The same number for all items.
    fn splat(&mut self, element: TypeId, ty: TypeId, number: u64) -> Operand {
        let Type::Vector(_, lanes) = self.module.types[ty] else { unreachable!("a vector") };
        let one = self.module.const_int(element, number);
        let all = ConstKind::Composite(vec![one; lanes as usize]);
        Operand::Const(self.module.constant(ty, all))
    }

    /// Each part out of words of so many elements.
    fn parts_of(&mut self, chunk: &Chunk, words: Operand, count: u64) -> Vec<(ValueId, Operand)> {
        let size = self.module.types.size(chunk.element) as i64;
        let line = self.vector(chunk.element, count as usize * chunk.lanes as usize);
        let ty = self.vector(chunk.element, chunk.lanes as usize);
        let line = self.value(Op::Convert(ConvertOp::Bitcast, words), line);
        let mut results = Vec::new();
        for part in &chunk.parts {
            let number = (part.offset.wrapping_sub(chunk.parts[0].offset) / size) as u32;
            let pick = (0..chunk.lanes).map(|item| Some(item * count as u32 + number)).collect();
            let vector = self.value(Op::Shuffle(line, line, pick), ty);
            if let Operand::Value(value) = part.value {
                results.push((value, vector));
            }
        }
        results
    }

    /// Gathers the words. What stands for each part.
    pub(super) fn gather(&mut self, chunk: &Chunk) -> Vec<(ValueId, Operand)> {
        let words = self.words_type(chunk);
        let op = match self.line(chunk) {
            Some((at, access)) if is_all(self.module, chunk.mask) => Op::Load(at, access),
            Some((at, access)) => Op::MaskedLoad(at, chunk.mask, access),
            None => {
                let (at, access) = self.words(chunk);
                Op::Gather(at, chunk.mask, access)
            }
        };
        let words = self.value(op, words);
        self.parts_of(chunk, words, chunk.parts.len() as u64)
    }

    /// Scatters the words.
    pub(super) fn scatter(&mut self, chunk: &Chunk) {
        let words = self.words_type(chunk);
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
        let access = Access { align: chunk.parts[0].align, volatile: false, nontemporal: false };
        is_line(self.module, chunk).then(|| (self.row(chunk, 0, 0), access))
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

    /// The type of the words.
    fn words_type(&mut self, chunk: &Chunk) -> TypeId {
        let bytes = chunk.bytes(self.module);
        let word = self.module.types.int(8 * bytes as u32);
        self.vector(word, chunk.lanes as usize)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements that the items have a few bytes apart: parts of structures, colours of pixels, every second number. The
//! bytes from the first item's to the last one's are loaded as vectors, gaps included, and each part is picked out of
//! them:
//!
//! ```text
//!   x y z x y z x y z x y z    ──▶    x x x x    y y y y    z z z z
//! ```
//!
//! The gaps are shorter than a page, so they can be read if both their ends can. Under a mask of the items, the vectors
//! are read under masks that have their elements alone. What is written has to have no gaps, and no mask.

use std::ops::RangeInclusive;

use super::{CHUNK, Chunk, Kind, Part, Writer, is_all};
use crate::ir::{Access, ConstKind, Inst, Module, Op, Operand, ValueId};
use crate::optimise::is_skipped;
use crate::widen::picks::{Pick, Source, picks};

/// The name by which lines under masks are left out.
const NAME: &str = "masked-lines";

/// Bytes of elements that all processors load under masks.
const MASKED: RangeInclusive<i64> = 4..=8;
/// Bytes of the longest vectors.
const LONGEST: u64 = 64;
/// The most vectors of a line: picking a part takes at most as many instructions.
const MOST: u32 = 4;
/// Bytes from an item to the next one in the longest lines, those of few items.
const LONGEST_STEP: i64 = LONGEST as i64 * MOST as i64;
/// How many parts of an item are written as a line: fewer and more are words, or rows.
const WRITTEN: usize = 3;

/// How many of the parts, which are in order, are accessed as one line; 0 if that is not possible.
pub(super) fn parts_of_line(module: &Module, chunk: &Chunk, parts: &[Part]) -> usize {
    let size = module.types.size(chunk.element) as i64;
    let step = chunk.rows.step.map(i64::abs);
    let (Some(step), Some(first)) = (step, parts.first()) else { return 0 };
    let masks = chunk.kind == Kind::Read && MASKED.contains(&size) && !is_skipped(NAME);
    if !(is_all(module, chunk.mask) || masks)
        || step % size != 0
        || !(size + 1..=LONGEST_STEP).contains(&step)
    {
        return 0;
    }
    let here = |part: &&Part| {
        let distance = part.offset - first.offset;
        distance < step && distance % size == 0
    };
    let count = parts.iter().take_while(here).count();
    let fits = match chunk.kind {
        Kind::Read => {
            let line = Line::of(size, step, &parts[..count], chunk.lanes);
            line.count() <= MOST
        }
        Kind::Write => {
            let next = |(number, part): (i64, &Part)| part.offset == first.offset + number * size;
            count == WRITTEN
                && step == WRITTEN as i64 * size
                && size as u64 * 2 <= CHUNK
                && (0..).zip(&parts[..count]).all(next)
        }
    };
    if fits { count } else { 0 }
}

/// The elements from the first item's first part to the last item's last one.
struct Line {
    /// Bytes of an element.
    size: u64,
    /// Elements from an item's to the next one's.
    step: u32,
    elements: u32,
    /// The elements of a vector.
    each: u32,
}

impl Line {
    fn of(size: i64, step: i64, parts: &[Part], lanes: u32) -> Self {
        let reach = parts.iter().map(|part| part.offset - parts[0].offset).max().unwrap_or(0);
        let step = (step / size) as u32;
        let elements = (lanes - 1) * step + (reach / size) as u32 + 1;
        let size = size as u64;
        let each = ((LONGEST / size) as u32).min(1 << elements.ilog2());
        Self { size, step, elements, each }
    }

    /// How many vectors it takes.
    fn count(&self) -> u32 {
        self.elements.div_ceil(self.each)
    }

    /// The first element of each vector. The last one ends where the line does.
    fn begins(&self) -> impl Iterator<Item = u32> {
        let (last, each) = (self.elements - self.each, self.each);
        (0..self.count()).map(move |number| (number * each).min(last))
    }
}

impl Writer<'_> {
    /// Loads a line. What stands for each part.
    pub(super) fn load_line(&mut self, chunk: &Chunk) -> Vec<(ValueId, Operand)> {
        let size = self.module.types.size(chunk.element);
        let step = chunk.rows.step.unwrap_or(0);
        let line = Line::of(size as i64, step, &chunk.parts, chunk.lanes);
        let ty = self.vector(chunk.element, line.each as usize);
        let reach = |part: &Part| ((part.offset - chunk.parts[0].offset) as u64 / size) as u32;
        let mut vectors = Vec::new();
        for first in line.begins() {
            let (at, access) = self.place_in_line(chunk, u64::from(first) * line.size);
            let op = if is_all(self.module, chunk.mask) {
                Op::Load(at, access)
            } else {
                let of_part = |place| chunk.parts.iter().any(|part| reach(part) == place);
                let elements = first..first + line.each;
                let item = |at| of_part(at % line.step).then_some(at / line.step);
                let mask = self.mask_of_elements(chunk, elements.map(item));
                Op::MaskedLoad(at, mask, access)
            };
            vectors.push(self.value(op, ty));
        }
        let mut results = Vec::new();
        for part in &chunk.parts {
            let wanted: Vec<u32> =
                (0..chunk.lanes).map(|item| item * line.step + reach(part)).collect();
            let vector = self.picked(&line, &vectors, &wanted, chunk);
            if let Operand::Value(value) = part.value {
                results.push((value, vector));
            }
        }
        results
    }

    /// The mask of elements, each of which belongs to an item or to none.
    fn mask_of_elements(
        &mut self,
        chunk: &Chunk,
        items: impl Iterator<Item = Option<u32>>,
    ) -> Operand {
        let (masks, bool) =
            (self.module.operand_type(self.function, chunk.mask), self.module.types.bool());
        let none = Operand::Const(self.module.constant(masks, ConstKind::Null));
        let picks: Vec<Option<u32>> = items.map(|item| Some(item.unwrap_or(chunk.lanes))).collect();
        let ty = self.vector(bool, picks.len());
        self.value(Op::Shuffle(chunk.mask, none, picks), ty)
    }

    /// A vector of some elements of a line, whose vectors begin at the given ones.
    fn picked(
        &mut self,
        line: &Line,
        vectors: &[Operand],
        wanted: &[u32],
        chunk: &Chunk,
    ) -> Operand {
        let ty = self.vector(chunk.element, wanted.len());
        let begins: Vec<u32> = line.begins().collect();
        let mut picked = Vec::new();
        for Pick { of, places } in picks(&begins, line.each, wanted) {
            let [a, b] = of.map(|source| match source {
                Source::Vector(number) => vectors[number],
                Source::Shuffle(number) => picked[number],
            });
            picked.push(self.value(Op::Shuffle(a, b, places), ty));
        }
        picked.pop().unwrap_or(vectors[0])
    }

    /// Stores a line.
    pub(super) fn store_line(&mut self, chunk: &Chunk) {
        let (count, lanes) = (chunk.parts.len() as u32, chunk.lanes);
        let ty = self.vector(chunk.element, lanes as usize);
        let size = self.module.types.size(chunk.element);
        for piece in 0..count {
            let mut vector = chunk.parts[0].value;
            for number in 1..count {
                // The elements of the parts up to this one, where they belong.
                let place = |lane: u32| {
                    let element = piece * lanes + lane;
                    let (item, part) = (element / count, element % count);
                    match part {
                        part if part == number => Some(item + lanes),
                        part if part > number => None,
                        _ if number == 1 => Some(item),
                        _ => Some(lane),
                    }
                };
                let pick = (0..lanes).map(place).collect();
                let next = chunk.parts[number as usize].value;
                vector = self.value(Op::Shuffle(vector, next, pick), ty);
            }
            let (at, access) = self.place_in_line(chunk, u64::from(piece * lanes) * size);
            let (flags, loc) = (Default::default(), self.loc);
            let op = Op::Store(at, vector, access);
            self.insts.push(Inst { result: None, op, flags, loc });
        }
    }

    /// The address so many bytes behind the beginning of a line.
    fn place_in_line(&mut self, chunk: &Chunk, bytes: u64) -> (Operand, Access) {
        let size = self.module.types.size(chunk.element) as u32;
        let mut base = self.row(chunk, 0, 0);
        if bytes > 0 {
            let (ty, terms) = (self.module.operand_type(self.function, base), Vec::new());
            base =
                self.value(Op::Address { base, offset: bytes as i64, terms, inbounds: false }, ty);
        }
        let align = chunk.parts.iter().map(|part| part.align).min().unwrap_or(1).min(size);
        (base, Access { align, volatile: false, nontemporal: false })
    }
}

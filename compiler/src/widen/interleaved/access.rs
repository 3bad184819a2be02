// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads and stores of interleaved vectors: as long vectors where the items' rows follow each other, else row by row.

use super::kept::{Addresses, Masks, Plan, Rows, Words};
use crate::ir::{Access, Op, Operand, TypeId};
use crate::widen::close::WORD;
use crate::widen::emit::Widener;
use crate::widen::lie::{Lie, Places};
use crate::widen::memory::LONGEST_WORD;
use crate::widen::refusal::Refusal;

/// The ways to access rows.
pub(super) enum Way {
    /// Each vector for itself.
    ByVector(Plan),
    /// All at once: a row is one word, of this type.
    Words { rows: Rows, word: TypeId },
    /// As the first, if a condition holds, else by the addresses of [`Widener::apart`].
    If(Operand, Plan),
}

impl Widener<'_> {
    /// How rows of a type are accessed.
    pub(super) fn way_of_rows(
        &mut self,
        at: Operand,
        ty: TypeId,
        elements: u32,
        access: Access,
        reads: bool,
    ) -> Result<Way, Refusal> {
        let (leaf, parts) = self.components(ty);
        let size = self.out.module.types.size(leaf);
        let rows = Rows { leaf, size, parts, elements, count: parts * self.out.lanes / elements };
        if rows.bytes() <= LONGEST_WORD {
            let word = self.out.module.types.int(8 * rows.bytes() as u32);
            return Ok(Way::Words { rows, word });
        }
        let masked = !(reads && self.is_readable(at, access));
        let (addresses, holds) = match self.lie(at, rows.bytes()) {
            Lie::Line(guard) => {
                let first = self.one(at);
                if guard.is_none() && masked && reads {
                    self.prefetch(at, first, rows.bytes());
                }
                (Addresses::Line(vec![first]), self.holds(guard))
            }
            // Vectors of several rows that are written backwards take twice as long where they cross lines of the cache,
            // and row by row as long as in line. Under masks there are fewer of these.
            Lie::Back(guard) if rows.parts <= rows.elements && (reads || self.mask.is_some()) => {
                (Addresses::Back(self.one(at)), self.holds(guard))
            }
            Lie::Back(guard) => {
                let step = -(rows.bytes() as i64);
                (Addresses::Steps(self.one(at), step), self.holds(guard))
            }
            Lie::Steps(step, guard) => (Addresses::Steps(self.one(at), step), self.holds(guard)),
            Lie::Stride(growth) => {
                let stride = self.strided(growth, at)?;
                let (first, holds) = self.line_of_rows(&stride, rows.bytes());
                (Addresses::Line(vec![first]), Some(holds))
            }
            Lie::Computed => {
                let Places { firsts, holds, .. } = self.computed(at, rows.bytes())?;
                (Addresses::Line(firsts), Some(holds))
            }
            Lie::Close | Lie::Apart => (Addresses::Apart(self.vector(at)?), None),
        };
        let masks = if masked { self.masks_of_words(rows) } else { None };
        let plan = Plan { rows, at: addresses, masks, access };
        Ok(match holds {
            Some(holds) => Way::If(holds, plan),
            None => Way::ByVector(plan),
        })
    }

    /// The plan for rows of which nothing is known.
    fn apart(&mut self, at: Operand, rows: Rows, access: Access) -> Result<Plan, Refusal> {
        let at = Addresses::Apart(self.vector(at)?);
        Ok(Plan { rows, at, masks: self.masks_of_words(rows), access })
    }

    /// The masks of accesses. Processors have masks for words of 4 and 8 bytes, not all for shorter ones.
    fn masks_of_words(&mut self, rows: Rows) -> Option<Masks> {
        let mask = self.mask?;
        let Words { ty, each } = self.words(rows.leaf, rows.parts, rows.elements);
        let of_words = self.for_components(mask, rows.parts / each, rows.elements / each);
        Some(Masks { of_words, word: ty, each })
    }

    /// An address so many bytes behind another one, and the access there.
    fn address_behind(&mut self, at: Operand, bytes: u64, access: Access) -> (Operand, Access) {
        if bytes == 0 {
            return (at, access);
        }
        let known = 1u64 << bytes.trailing_zeros().min(31);
        let align = known.min(u64::from(access.align)) as u32;
        let ty = self.out.type_of(at);
        let offset = bytes as i64;
        let op = Op::Address { base: at, offset, terms: Vec::new(), inbounds: false };
        (self.out.value(op, ty), Access { align, ..access })
    }

    /// The elements of each piece of a vector that lies at one address.
    fn length(plan: &Plan) -> u32 {
        match &plan.at {
            Addresses::Line(firsts) => Self::of_part(plan, firsts).min(plan.rows.elements),
            Addresses::Back(_) => plan.rows.elements,
            // A vector has several rows, or a part of one.
            _ => plan.rows.parts.min(plan.rows.elements),
        }
    }

    /// The elements in line from each of some addresses.
    fn of_part(plan: &Plan, firsts: &[Operand]) -> u32 {
        plan.rows.elements * plan.rows.count / firsts.len() as u32
    }

    /// The address of a piece of a vector, and the access there.
    fn piece(&mut self, plan: &Plan, vector: u32, first: u32) -> (Operand, Access) {
        let Rows { size, parts, elements, .. } = plan.rows;
        let element = vector * elements + first;
        let place = match plan.at {
            Addresses::Line(ref firsts) => {
                let each = Self::of_part(plan, firsts);
                let (first, behind) = (firsts[(element / each) as usize], element % each);
                return self.address_behind(first, size * u64::from(behind), plan.access);
            }
            Addresses::Back(at) => {
                let ty = self.out.type_of(at);
                let last = i64::from((element + elements) / parts) - 1;
                let offset = -(plan.rows.bytes() as i64) * last;
                let op = Op::Address { base: at, offset, terms: Vec::new(), inbounds: false };
                return (self.out.value(op, ty), plan.access);
            }
            Addresses::Steps(at, step) => {
                let ty = self.out.type_of(at);
                let offset = step.wrapping_mul(i64::from(element / parts));
                let op = Op::Address { base: at, offset, terms: Vec::new(), inbounds: false };
                self.out.value(op, ty)
            }
            Addresses::Apart(places) => {
                let ty = self.out.type_of(places);
                let ty = self.out.module.types.element(ty);
                self.out.value(Op::Extract(places, vec![element / parts]), ty)
            }
        };
        self.address_behind(place, size * u64::from(element % parts), plan.access)
    }

    /// The mask and the type of a piece of a vector under a mask.
    fn masked_piece(
        &mut self,
        plan: &Plan,
        vector: u32,
        first: u32,
        length: u32,
    ) -> Option<(Operand, TypeId)> {
        let Masks { of_words, word, each } = plan.masks.as_ref()?;
        let words = self.out.vector(*word, length / each);
        let mask = self.cut(of_words[vector as usize], first / each, length / each);
        let mask = self.in_order(plan, mask, plan.rows.parts / each);
        Some((mask, words))
    }

    /// The rows of a vector in the order in which they lie in memory, or in the items' from that one. `length`: the
    /// elements of each row.
    fn in_order(&mut self, plan: &Plan, vector: Operand, length: u32) -> Operand {
        if !matches!(plan.at, Addresses::Back(_)) {
            return vector;
        }
        let ty = self.out.type_of(vector);
        let count = self.out.module.types.lanes(ty);
        let rows = (0..count / length).rev();
        let pick = rows.flat_map(|row| row * length..(row + 1) * length).map(Some).collect();
        self.out.value(Op::Shuffle(vector, vector, pick), ty)
    }

    /// Loads one of the vectors.
    pub(super) fn load_vector(&mut self, plan: &Plan, vector: u32) -> Operand {
        let length = Self::length(plan);
        let ty = self.out.vector(plan.rows.leaf, length);
        let mut pieces = Vec::new();
        for first in (0..plan.rows.elements).step_by(length as usize) {
            let (at, access) = self.piece(plan, vector, first);
            pieces.push(match self.masked_piece(plan, vector, first, length) {
                None => self.out.value(Op::Load(at, access), ty),
                Some((mask, words)) => {
                    let loaded = self.out.value(Op::MaskedLoad(at, mask, access), words);
                    self.bits_as(loaded, ty)
                }
            });
        }
        let vector = self.joined(pieces, plan.rows.leaf, length);
        self.in_order(plan, vector, plan.rows.parts)
    }

    /// Stores one of the vectors.
    pub(super) fn store_vector(&mut self, plan: &Plan, vector: u32, value: Operand) {
        let length = Self::length(plan);
        let value = self.in_order(plan, value, plan.rows.parts);
        for first in (0..plan.rows.elements).step_by(length as usize) {
            let (at, access) = self.piece(plan, vector, first);
            let piece = self.cut(value, first, length);
            let op = match self.masked_piece(plan, vector, first, length) {
                None => Op::Store(at, piece, access),
                Some((mask, words)) => {
                    Op::MaskedStore(at, self.bits_as(piece, words), mask, access)
                }
            };
            self.out.effect(op, Default::default());
        }
    }

    fn load_vectors(&mut self, plan: &Plan) -> Vec<Operand> {
        (0..plan.rows.count).map(|n| self.load_vector(plan, n)).collect()
    }

    fn store_vectors(&mut self, plan: &Plan, values: &[Operand]) {
        for (n, &value) in (0..).zip(values) {
            self.store_vector(plan, n, value);
        }
    }

    /// Loads rows at once.
    pub(super) fn load_rows(
        &mut self,
        at: Operand,
        way: &Way,
        access: Access,
    ) -> Result<Vec<Operand>, Refusal> {
        match way {
            Way::ByVector(plan) => Ok(self.load_vectors(plan)),
            // Where places are close to each other, as those of a picture that is scaled, words of 4 bytes are looked up.
            &Way::Words { rows, .. }
                if rows.size == WORD && matches!(self.lie(at, rows.bytes()), Lie::Computed) =>
            {
                let ty = self.out.vector(rows.leaf, rows.parts);
                let values = self.load(at, ty, access)?;
                Ok(self.interleave(&values, rows.leaf, rows.elements))
            }
            &Way::Words { rows, word } => {
                let whole = self.out.vector(rows.leaf, rows.parts * self.out.lanes);
                let mut values = Vec::new();
                for words in self.load(at, word, access)? {
                    let all = self.bits_as(words, whole);
                    let firsts = (0..rows.count).map(|n| n * rows.elements);
                    values.extend(firsts.map(|first| self.cut(all, first, rows.elements)));
                }
                Ok(values)
            }
            Way::If(holds, plan) => {
                let rows = plan.rows;
                let ty = self.out.vector(rows.leaf, rows.elements);
                self.guarded_as(
                    Some(*holds),
                    &vec![ty; rows.count as usize],
                    |this| Ok(this.load_vectors(plan)),
                    |this| {
                        let apart = this.apart(at, rows, access)?;
                        Ok(this.load_vectors(&apart))
                    },
                )
            }
        }
    }

    /// Stores rows at once.
    pub(super) fn store_rows(
        &mut self,
        at: Operand,
        way: &Way,
        values: &[Operand],
        access: Access,
    ) -> Result<(), Refusal> {
        match way {
            Way::ByVector(plan) => self.store_vectors(plan, values),
            &Way::Words { rows, word } => {
                let words = self.out.vector_of(word);
                let all = self.joined(values.to_vec(), rows.leaf, rows.elements);
                let all = self.bits_as(all, words);
                self.store(at, word, &[all], access)?;
            }
            Way::If(holds, plan) => {
                self.guarded(
                    Some(*holds),
                    &[],
                    |this| {
                        this.store_vectors(plan, values);
                        Ok(Vec::new())
                    },
                    |this| {
                        let apart = this.apart(at, plan.rows, access)?;
                        this.store_vectors(&apart, values);
                        Ok(Vec::new())
                    },
                )?;
            }
        }
        Ok(())
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products of matrices that are spread over the items of a sub-group.
//!
//! A sub-group is a vector, so a component of all items is a vector, and holds neighbouring elements of a row.
//! With as many columns as items, a row of the result is the sum of the second factor's rows, each times one
//! element of the first factor. Other sizes need shuffles, and all of them are constant.

use std::collections::HashMap;

use super::emit::Widener;
use super::refusal::Refusal;
use crate::ir::group::{Product, Saturation};
use crate::ir::{Access, BinaryOp, ConstKind, ConvertOp, Flags, Op, Operand, Type, TypeId};

/// Vectors of elements of a factor that were made so far, by the elements.
type Picked = HashMap<Vec<u32>, Operand>;

/// A volatile access of a known alignment.
fn volatile(align: u64) -> Access {
    Access { align: align as u32, volatile: true, nontemporal: false }
}

impl Widener<'_> {
    /// The vectors of a product to which other vectors are added. `factors` are those of the first factor, then
    /// those of the second one. The elements of items that do not run are zeros.
    pub(super) fn product(
        &mut self,
        it: Product,
        factors: &[Operand],
        added: &[Operand],
    ) -> Result<Vec<Operand>, Refusal> {
        let (Some(&one), true) = (added.first(), it.lanes == self.out.lanes) else {
            return Err(Refusal::new("matrices over sub-groups of another size"));
        };
        let ty = self.out.type_of(one);
        let element = self.out.module.types.element(ty);
        let zero = Operand::Const(self.out.module.constant(element, ConstKind::Bits(0)));
        let zero = self.out.splat(zero);
        let mut factors = factors.to_vec();
        if let (Some(mask), Some(&one)) = (self.mask, factors.first()) {
            let ty = self.out.type_of(one);
            let element = self.out.module.types.element(ty);
            let zero = Operand::Const(self.out.module.constant(element, ConstKind::Bits(0)));
            let zero = self.out.splat(zero);
            for vector in &mut factors {
                *vector = self.out.value(Op::Select(mask, *vector, zero), ty);
            }
        }
        // Where all items have the same row, they need the same element of the first factor.
        let in_rows = it.columns.is_multiple_of(it.lanes);
        let in_pairs = in_rows && it.narrow && it.depth.is_multiple_of(2);
        let mut second = factors.split_off((it.first() as usize).min(factors.len()));
        let mut first = factors;
        if it.narrow && !in_pairs {
            for vector in first.iter_mut().chain(&mut second) {
                *vector = self.out.value(Op::Convert(ConvertOp::SExt, *vector), ty);
            }
        }
        let (mut depth, mut at_once) = (it.depth, it.lanes);
        let stored = if in_rows { self.stored(&first) } else { Vec::new() };
        if in_pairs {
            // Two elements of 16 bits are one of 32, and both factors are matrices of half the depth.
            second = self.paired(&second, (it.columns / it.lanes) as usize, ty);
            (depth, at_once) = (depth / 2, at_once / 2);
        }
        let floats = matches!(self.out.module.types[element], Type::Float(_));
        let (multiply, add, flags) = match floats {
            true => (BinaryOp::FMul, BinaryOp::FAdd, Flags::CONTRACT),
            false if in_pairs => (BinaryOp::PairDot, BinaryOp::Add, Flags::empty()),
            false => (BinaryOp::Mul, BinaryOp::Add, Flags::empty()),
        };
        let places: Vec<Vec<Option<(u32, u32)>>> = (0..it.result())
            .map(|component| (0..it.lanes).map(|lane| it.place(component, lane)).collect())
            .collect();
        let saturates = it.saturation != Saturation::None;
        let mut sums = if saturates { vec![zero; added.len()] } else { added.to_vec() };
        let (mut lefts, mut rights) = (Picked::new(), Picked::new());
        for k in 0..depth {
            for (places, sum) in places.iter().zip(&mut sums) {
                // Items without an element take one that there is; their results are not used.
                let at = |place: &Option<(u32, u32)>| place.unwrap_or((0, 0));
                let left: Vec<u32> = places.iter().map(|place| at(place).0 * depth + k).collect();
                let right = places.iter().map(|place| k * it.columns + at(place).1).collect();
                let left = match in_rows {
                    true => self.repeated(&stored, element, (left[0], at_once), &mut lefts),
                    false => self.picked(&first, left, &mut lefts),
                };
                let right = self.picked(&second, right, &mut rights);
                let product = self.out.def(Op::Binary(multiply, left, right), ty, flags);
                *sum = self.out.def(Op::Binary(add, *sum, product), ty, flags);
            }
        }
        for ((places, sum), &start) in places.iter().zip(&mut sums).zip(added) {
            match it.saturation {
                Saturation::None => {}
                Saturation::Signed => {
                    *sum = self.out.value(Op::Binary(BinaryOp::SAddSat, *sum, start), ty);
                }
                Saturation::Unsigned => {
                    *sum = self.out.value(Op::Binary(BinaryOp::UAddSat, *sum, start), ty);
                }
            }
            if places.iter().any(Option::is_none) {
                let lanes = it.lanes;
                let own = |(place, lane): (&Option<_>, u32)| {
                    Some(if place.is_some() { lane } else { lane + lanes })
                };
                let pick = places.iter().zip(0..).map(own).collect();
                *sum = self.out.value(Op::Shuffle(*sum, start, pick), ty);
            }
        }
        Ok(sums)
    }

    /// Memory that has the vectors of a factor. Volatile accesses keep LLVM from making shuffles of them.
    fn stored(&mut self, vectors: &[Operand]) -> Vec<Operand> {
        let mut places = Vec::new();
        for &vector in vectors {
            let ty = self.out.type_of(vector);
            let known = self.tables.iter().filter(|(of, _)| *of == ty).nth(places.len());
            let place = known.map(|&(_, place)| place).unwrap_or_else(|| {
                let place = self.table(ty);
                self.tables.push((ty, place));
                place
            });
            self.out.effect(Op::Store(place, vector, volatile(64)), Flags::empty());
            places.push(place);
        }
        places
    }

    /// A vector of one element of a factor whose vectors are in memory, `each` elements in one: to load it from there is a part of the
    /// multiplication, while a shuffle takes as long as one, on the same units.
    fn repeated(
        &mut self,
        places: &[Operand],
        element: TypeId,
        (at, each): (u32, u32),
        made: &mut Picked,
    ) -> Operand {
        if let Some(&known) = made.get(&vec![at]) {
            return known;
        }
        let place = places[(at / each) as usize];
        let pointer = self.out.type_of(place);
        let size = self.out.module.types.size(element);
        let offset = i64::from(at % each) * size as i64;
        let op = Op::Address { base: place, offset, terms: Vec::new(), inbounds: true };
        let from = self.out.value(op, pointer);
        let one = self.out.value(Op::Load(from, volatile(size)), element);
        let vector = self.out.splat(one);
        made.insert(vec![at], vector);
        vector
    }

    /// Vectors, of type `ty`, of pairs of elements that are in one column and in neighbouring rows, which have
    /// `across` vectors each.
    fn paired(&mut self, vectors: &[Operand], across: usize, ty: TypeId) -> Vec<Operand> {
        let lanes = self.out.lanes;
        let short = self.out.module.types.int(16);
        let both = self.out.vector(short, 2 * lanes);
        let pick: Vec<_> = (0..lanes).flat_map(|lane| [Some(lane), Some(lane + lanes)]).collect();
        let mut pairs = Vec::new();
        for rows in vectors.chunks_exact(2 * across) {
            let (upper, lower) = rows.split_at(across);
            for (&upper, &lower) in upper.iter().zip(lower) {
                let pair = self.out.value(Op::Shuffle(upper, lower, pick.clone()), both);
                pairs.push(self.out.value(Op::Convert(ConvertOp::Bitcast, pair), ty));
            }
        }
        pairs
    }

    /// A vector of elements of a factor, by their numbers.
    fn picked(&mut self, vectors: &[Operand], elements: Vec<u32>, made: &mut Picked) -> Operand {
        if let Some(&known) = made.get(&elements) {
            return known;
        }
        let lanes = self.out.lanes;
        let mut components: Vec<u32> = elements.iter().map(|element| element / lanes).collect();
        components.dedup();
        components.sort_unstable();
        components.dedup();
        let mut whole = vectors[components[0] as usize];
        let ty = self.out.type_of(whole);
        let own = (0..lanes).all(|lane| elements[lane as usize] % lanes == lane);
        if components.len() > 1 || !own {
            let pick = elements.iter().map(|element| Some(element % lanes)).collect();
            whole = self.out.value(Op::Shuffle(whole, whole, pick), ty);
        }
        for &component in &components[1..] {
            let from = |(element, lane): (&u32, u32)| {
                let here = element / lanes == component;
                Some(if here { lanes + element % lanes } else { lane })
            };
            let pick = elements.iter().zip(0..).map(from).collect();
            let vector = vectors[component as usize];
            whole = self.out.value(Op::Shuffle(whole, vector, pick), ty);
        }
        made.insert(elements, whole);
        whole
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products of matrices that are spread over the items of a sub-group.
//!
//! A sub-group is a vector, so a component of all items is a vector, and holds neighbouring elements of a row.
//! With as many columns as items, a row of the result is the sum of the second factor's rows, each times one
//! element of the first factor, which a shuffle copies to all items. Other sizes need other shuffles, and all
//! of them are constant.

use std::collections::HashMap;

use super::emit::Widener;
use super::refusal::Refusal;
use crate::ir::group::{Product, Saturation};
use crate::ir::{BinaryOp, ConstKind, Flags, Op, Operand, Type};

/// Vectors of elements of a factor that were made so far, by the elements.
type Picked = HashMap<Vec<u32>, Operand>;

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
        if let Some(mask) = self.mask {
            for vector in &mut factors {
                *vector = self.out.value(Op::Select(mask, *vector, zero), ty);
            }
        }
        let (first, second) = factors.split_at((it.first() as usize).min(factors.len()));
        let floats = matches!(self.out.module.types[element], Type::Float(_));
        let (multiply, add, flags) = match floats {
            true => (BinaryOp::FMul, BinaryOp::FAdd, Flags::CONTRACT),
            false => (BinaryOp::Mul, BinaryOp::Add, Flags::empty()),
        };
        let places: Vec<Vec<Option<(u32, u32)>>> = (0..it.result())
            .map(|component| (0..it.lanes).map(|lane| it.place(component, lane)).collect())
            .collect();
        let saturates = it.saturation != Saturation::None;
        let mut sums = if saturates { vec![zero; added.len()] } else { added.to_vec() };
        let (mut lefts, mut rights) = (Picked::new(), Picked::new());
        for k in 0..it.depth {
            for (places, sum) in places.iter().zip(&mut sums) {
                // Items without an element take one that there is; their results are not used.
                let at = |place: &Option<(u32, u32)>| place.unwrap_or((0, 0));
                let left = places.iter().map(|place| at(place).0 * it.depth + k).collect();
                let right = places.iter().map(|place| k * it.columns + at(place).1).collect();
                let left = self.picked(first, left, &mut lefts);
                let right = self.picked(second, right, &mut rights);
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

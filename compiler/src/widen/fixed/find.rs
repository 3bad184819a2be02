// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds how far apart the items' addresses are, on the way back from an address to ids and constants.

use std::collections::HashMap;

use super::spread::{ALL_BITS, FAR, Spread};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, ConvertOp, Definition, Op, Operand, ValueId, WorkItemQuery, definitions,
};
use crate::widen::emit::Widener;
use crate::widen::shape::Shape;

/// The most operations that are looked at on the way back from an address.
const MOST_SEEN: usize = 64;

/// An extended number that must not wrap around between the items.
pub(super) struct Check {
    pub(super) number: Operand,
    pub(super) signed: bool,
    /// The item with the least number, and the distance to the greatest one.
    pub(super) least: u32,
    pub(super) span: i64,
}

#[derive(Default)]
pub(super) struct Search {
    seen: usize,
    known: HashMap<ValueId, Option<Spread>>,
    /// What the phis of loops around are taken for.
    phis: Vec<(ValueId, Spread)>,
    pub(super) checks: Vec<Check>,
}

impl Widener<'_> {
    /// The items' numbers or addresses.
    pub(super) fn spread(&self, operand: Operand, search: &mut Search) -> Option<Spread> {
        // Narrow numbers wrap around.
        if self.width(operand) < 32 {
            return None;
        }
        let lanes = self.out.lanes;
        let strided = |step: i64| {
            let items = (0..i64::from(lanes)).map(|item| item.wrapping_mul(step)).collect();
            let free = self.zeros(operand, MOST_SEEN);
            Spread { items, rows: vec![0; lanes as usize], free }
        };
        let spread = match self.shape(operand) {
            Shape::Uniform => Some(strided(0)),
            Shape::Strided { step, guard: None } => Some(strided(step)),
            _ if !self.may_spread(operand) => None,
            _ => {
                let Operand::Value(value) = operand else { return None };
                if let Some(known) = search.known.get(&value) {
                    return known.clone();
                }
                let found = self.spread_of(value, search);
                search.known.insert(value, found.clone());
                found
            }
        };
        spread.filter(|it| it.items.iter().all(|&item| (-FAR..FAR).contains(&item)))
    }

    /// Whether a number or an address has no step, or only if some bits of an index do not wrap around, which they do.
    pub(super) fn may_spread(&self, operand: Operand) -> bool {
        match self.shape(operand) {
            Shape::Uniform | Shape::Strided { guard: None, .. } => false,
            Shape::Strided { guard: Some(guard), .. } => {
                matches!(self.op_of(guard), Some((_, Op::Binary(BinaryOp::And, ..))))
            }
            Shape::Varying => true,
        }
    }

    pub(super) fn op_of(&self, value: ValueId) -> Option<(BlockId, &Op)> {
        let definitions = self.definitions.get_or_init(|| definitions(self.from));
        match definitions[value.index()]? {
            Definition::Inst(block, index) => {
                Some((block, &self.from.blocks[block].insts[index].op))
            }
            Definition::Entry => None,
        }
    }

    /// A constant with the sign of its type.
    fn fixed_number(&self, operand: Operand) -> Option<i64> {
        let Operand::Const(id) = operand else { return None };
        let unused = 64 - self.width(operand).clamp(1, 64);
        self.out.module.const_bits(id).map(|bits| ((bits << unused) as i64) >> unused)
    }

    pub(super) fn width(&self, operand: Operand) -> u32 {
        self.out.module.types.scalar_bits(self.type_in(operand))
    }

    fn spread_of(&self, value: ValueId, search: &mut Search) -> Option<Spread> {
        use BinaryOp as B;
        if search.seen >= MOST_SEEN || self.shapes.escapes(self.flow, value, self.block) {
            return None;
        }
        search.seen += 1;
        let (block, op) = self.op_of(value)?;
        match *op {
            Op::Binary(B::Add, a, b) => {
                let (a, b) = (self.spread(a, search)?, self.spread(b, search)?);
                Some(a.plus(&b, 1))
            }
            Op::Binary(B::Sub, a, b) => {
                let (a, b) = (self.spread(a, search)?, self.spread(b, search)?);
                Some(a.plus(&b, -1))
            }
            Op::Binary(B::Mul, a, b) => {
                let (number, by) = match (self.shape(a), self.shape(b)) {
                    (_, Shape::Uniform) => (a, b),
                    (Shape::Uniform, _) => (b, a),
                    _ => return None,
                };
                let number = self.spread(number, search)?;
                match self.fixed_number(by) {
                    Some(by) => number.times(by),
                    None => Some(number.in_rows(self.zeros(by, MOST_SEEN))),
                }
            }
            Op::Binary(op @ (B::And | B::Or | B::Xor), a, b) => {
                match (self.fixed_number(a), self.fixed_number(b)) {
                    (_, Some(by)) => self.spread(a, search)?.bits(op, by),
                    (Some(by), _) => self.spread(b, search)?.bits(op, by),
                    _ => {
                        let spreads = [self.spread(a, search)?, self.spread(b, search)?];
                        self.bits_of_two(op, [a, b], &spreads)
                    }
                }
            }
            Op::Binary(B::Shl, a, b) => {
                let by = self.fixed_number(b).filter(|by| (0..31).contains(by))?;
                self.spread(a, search)?.times(1 << by)
            }
            Op::Binary(op @ (B::LShr | B::AShr), a, b) => {
                let by = self.fixed_number(b)?;
                let fits = (0..i64::from(self.width(a))).contains(&by);
                self.spread(a, search).filter(|_| fits)?.bits(op, by)
            }
            Op::Binary(op @ (B::UDiv | B::URem | B::SDiv | B::SRem), a, b) => {
                let by = self.fixed_number(b).filter(|&by| by > 0)?;
                let unsigned = matches!(op, B::UDiv | B::URem);
                let positive = unsigned || self.shapes.most(&self.out.module, a).is_some();
                let quotient = matches!(op, B::UDiv | B::SDiv);
                self.spread(a, search).filter(|_| positive)?.divided(quotient, by)
            }
            Op::Convert(ConvertOp::Trunc | ConvertOp::PtrCast, a) => self.spread(a, search),
            Op::Convert(op @ (ConvertOp::SExt | ConvertOp::ZExt), a) => {
                let spread = self.spread(a, search)?;
                self.extended(spread, a, op == ConvertOp::SExt, search)
            }
            Op::Address { base, ref terms, .. } => {
                let mut all = self.spread(base, search)?;
                for &(index, by) in terms {
                    let spread = self.spread(index, search)?;
                    let whole = self.width(index) == 64
                        || self.shape(index) == Shape::Uniform
                        || self.shapes.most(&self.out.module, index).is_some();
                    all = all.plus(&spread.times(by).filter(|_| whole)?, 1);
                }
                Some(all)
            }
            Op::Phi(ref arms) => self.spread_of_phi(value, block, arms, search),
            _ => None,
        }
    }

    /// The same of a number when it is extended.
    fn extended(
        &self,
        spread: Spread,
        number: Operand,
        signed: bool,
        search: &mut Search,
    ) -> Option<Spread> {
        let bits = self.width(number);
        let known = self.shapes.most(&self.out.module, number).is_some();
        for row in 0..=*spread.rows.iter().max()? {
            let of_row = (0..).zip(spread.rows.iter().zip(&spread.items));
            let of_row =
                of_row.filter(|(_, (of, _))| **of == row).map(|(item, (_, at))| (*at, item));
            let of_row: Vec<(i64, u32)> = of_row.collect();
            let (&(low, least), &(high, _)) = (of_row.iter().min()?, of_row.iter().max()?);
            let span = high - low;
            if span >= 1 << (bits.min(32) - 1) {
                return None;
            }
            if span > 0 && !known {
                search.checks.push(Check { number, signed, least, span });
            }
        }
        // Numbers that nothing is added to are these.
        let free = match spread.is_constant() {
            true => ALL_BITS,
            false => spread.free.min(bits - 1),
        };
        Some(Spread { free, ..spread })
    }

    /// Bits of two numbers.
    fn bits_of_two(
        &self,
        op: BinaryOp,
        numbers: [Operand; 2],
        [a, b]: &[Spread; 2],
    ) -> Option<Spread> {
        if a.is_constant() || b.is_constant() {
            let (own, low) = if b.is_constant() { (a, b) } else { (b, a) };
            let below = own.is_below() && low.items.iter().all(|&item| own.has_free(item));
            let of = |(&a, &b): (&i64, &i64)| match op {
                BinaryOp::And => a & b,
                BinaryOp::Or => a | b,
                _ => a ^ b,
            };
            let items = own.items.iter().zip(&low.items).map(of).collect();
            let free = if op == BinaryOp::And { ALL_BITS } else { own.free };
            return below.then(|| Spread { items, rows: own.rows.clone(), free });
        }
        // If no bit is in both, that is their sum.
        let apart = |number: usize| {
            let (low, [own, other]) = (numbers[number], if number == 0 { [a, b] } else { [b, a] });
            let most = self.shapes.most(&self.out.module, low)?;
            let bits = (most.checked_add(1)?.checked_next_power_of_two()? - 1) as i64;
            let lowest = (1i64 << self.zeros(low, MOST_SEEN).min(62)) - 1;
            let bits = if self.shape(low) == Shape::Uniform { bits & !lowest } else { bits };
            let free = other.items.iter().all(|item| item & bits == 0) && other.is_below();
            (own.rows == other.rows && other.has_free(bits) && free).then_some(())
        };
        let sum = op != BinaryOp::And && (apart(0).is_some() || apart(1).is_some());
        sum.then(|| a.plus(b, 1))
    }

    /// What all that arrive there together are; one of a loop is taken for that in the loop's turns.
    fn spread_of_phi(
        &self,
        phi: ValueId,
        block: BlockId,
        arms: &[(BlockId, Operand)],
        search: &mut Search,
    ) -> Option<Spread> {
        if let Some((_, found)) = search.phis.iter().find(|(known, _)| *known == phi) {
            return Some(found.clone());
        }
        let parts = |from| self.flow.mixes(from, block) || self.flow.leaves_masked(from, block);
        if arms.iter().any(|&(from, _)| parts(from)) {
            return None;
        }
        let is_turn = |from| self.flow.back_edge(from, block).is_some();
        let &(_, first) = arms.iter().find(|&&(from, _)| !is_turn(from))?;
        // What was checked in an earlier turn is not known here.
        let checks = search.checks.len();
        let found = Spread { free: 0, ..self.spread(first, search)? };
        search.phis.push((phi, found.clone()));
        let alike = |&(_, arm): &(BlockId, Operand)| {
            let spread = self.spread(arm, search);
            spread.is_some_and(|it| it.items == found.items && it.rows == found.rows)
        };
        let alike = arms.iter().all(alike);
        search.phis.pop();
        // These were found for what the phi was taken for.
        search.known.clear();
        (alike && search.checks.len() == checks).then_some(found)
    }

    /// So many of the lowest bits of the first item's number are zeros.
    fn zeros(&self, operand: Operand, depth: usize) -> u32 {
        use BinaryOp as B;
        let value = match operand {
            Operand::Const(id) => {
                return self.out.module.const_bits(id).map_or(0, u64::trailing_zeros);
            }
            Operand::Value(value) => value,
        };
        let Some((_, op)) = self.op_of(value).filter(|_| depth > 0) else { return 0 };
        let next = |operand| self.zeros(operand, depth / 2);
        let fixed = |operand| self.fixed_number(operand);
        match *op {
            Op::WorkItem(WorkItemQuery::LocalId, 0) => self.out.lanes.trailing_zeros(),
            Op::WorkItem(WorkItemQuery::SubgroupLocalId, _) => ALL_BITS,
            Op::Binary(B::Add | B::Sub | B::Or | B::Xor, a, b) => next(a).min(next(b)),
            Op::Binary(B::And, a, b) => next(a).max(next(b)),
            Op::Binary(B::Mul, a, b) => (next(a) + next(b)).min(ALL_BITS),
            Op::Binary(B::Shl, a, b) => match fixed(b) {
                Some(by @ 0..63) => (next(a) + by as u32).min(ALL_BITS),
                _ => 0,
            },
            // C compilers write an extension so.
            Op::Binary(B::LShr | B::AShr, a, b) => match (next(a), fixed(b)) {
                (ALL_BITS, _) => ALL_BITS,
                (zeros, Some(by @ 0..63)) => zeros.saturating_sub(by as u32),
                _ => 0,
            },
            Op::Convert(ConvertOp::Trunc, a) => next(a),
            Op::Convert(ConvertOp::ZExt | ConvertOp::SExt, a) => match next(a) {
                zeros if zeros >= self.width(a) => ALL_BITS,
                zeros => zeros,
            },
            _ => 0,
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items whose places are at distances that are constants, though not in line: rows that several items share, parts of
//! rows, rows that are taken in another order.
//!
//! ```text
//!   items                             0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
//!   row[l % 8]                        0  1  2  3  4  5  6  7  0  1  2  3  4  5  6  7
//!   tile[l / 8 * 64 + l % 8]          0  1  2  3  4  5  6  7 64 65 66 67 68 69 70 71
//!   sums[l ^ 4]                       4  5  6  7  0  1  2  3 12 13 14 15  8  9 10 11
//! ```
//!
//! The first local id of a vector is a multiple of its items, and the number of an item in its sub-group is a constant.
//! So what lies side by side is known, and each stretch of it is loaded or stored as a vector, whose elements are
//! exchanged. Numbers of 32 bits must not wrap around between the items, which scalars tell.

use std::collections::HashMap;

use super::emit::{Widener, is_pointer};
use super::ops::Leaf;
use super::refusal::Refusal;
use super::shape::{Rows, Shape};
use crate::ir::arena::Id;
use crate::ir::{
    Access, BinaryOp, BlockId, CompareOp, ConvertOp, Definition, Op, Operand, Type, TypeId,
    ValueId, WorkItemQuery, definitions,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "fixed-places";

/// The most operations that are looked at on the way back from an address.
const MOST_SEEN: usize = 64;

/// The greatest distance.
const FAR: i64 = 1 << 24;

/// So many items have one vector in memory, at least.
const FEWEST_ITEMS: usize = 4;

/// Bits that are free in zero.
const ALL_BITS: u32 = 64;

/// What the items' numbers, or addresses in bytes, are: each a constant more than a number that the items of a row share.
#[derive(Clone, PartialEq)]
struct Spread {
    /// The constants, modulo the width of the number.
    items: Vec<i64>,
    /// The items' rows, in their order.
    rows: Vec<u32>,
    /// The lowest bits of the rows' numbers are zeros, so many of them.
    free: u32,
}

/// An extended number that must not wrap around between the items.
struct Check {
    number: Operand,
    signed: bool,
    /// The item with the least number, and the distance to the greatest one.
    least: u32,
    span: i64,
}

#[derive(Default)]
struct Search {
    seen: usize,
    known: HashMap<ValueId, Option<Spread>>,
    /// What the phis of loops around are taken for.
    phis: Vec<(ValueId, Spread)>,
    checks: Vec<Check>,
}

/// Elements that lie side by side, or nearly so.
struct Stretch {
    /// An item of the row, and the distance in bytes from its address.
    item: u32,
    offset: i64,
    /// The elements, and how many of them the items have. Rows of which each item reads some elements are transposed.
    len: u32,
    used: u32,
}

/// Where the parts of the items' elements lie.
pub(super) struct Fixed {
    at: Operand,
    stretches: Vec<Stretch>,
    /// For each part of an element and each item, the stretch and the place in it.
    picks: Vec<Vec<(usize, u32)>>,
    checks: Vec<Check>,
}

impl Widener<'_> {
    /// Where elements lie that are loaded, if these are fixed places.
    pub(super) fn fixed_loads(
        &self,
        at: Operand,
        leaves: &[Leaf],
        access: Access,
        readable: bool,
    ) -> Option<Fixed> {
        let runs = self.mask.is_none() || readable;
        if !runs { None } else { self.fixed(at, leaves, access, true) }
    }

    /// Where elements lie that are stored, if these are fixed places.
    pub(super) fn fixed_stores(
        &self,
        at: Operand,
        leaves: &[Leaf],
        access: Access,
    ) -> Option<Fixed> {
        if self.mask.is_some() { None } else { self.fixed(at, leaves, access, false) }
    }

    fn fixed(&self, at: Operand, leaves: &[Leaf], access: Access, gaps: bool) -> Option<Fixed> {
        let types = &self.out.module.types;
        let first = leaves.first()?;
        let plain = |leaf: &Leaf| {
            leaf.ty == first.ty && matches!(types[leaf.ty], Type::Int(_) | Type::Float(_))
        };
        if !self.may_spread(at)
            || self.part != self.out.lanes
            || self.rows != Rows::Whole
            || access.volatile
            || self.is_private(at)
            || !leaves.iter().all(plain)
            || !(gaps || leaves.len().is_power_of_two())
            || is_skipped(NAME)
        {
            return None;
        }
        let mut search = Search::default();
        let spread = self.spread(at, &mut search)?;
        let size = types.size(first.ty) as i64;
        let lanes = spread.items.len();
        let mut all = Vec::with_capacity(lanes * leaves.len());
        for (item, (&distance, &row)) in spread.items.iter().zip(&spread.rows).enumerate() {
            for (part, leaf) in leaves.iter().enumerate() {
                all.push((row, distance + leaf.offset as i64, item, part));
            }
        }
        all.sort_unstable();
        let mut stretches: Vec<(u32, i64, Stretch)> = Vec::new();
        let mut picks = vec![vec![(0, 0); lanes]; leaves.len()];
        for (row, offset, item, part) in all {
            let open = stretches.last_mut().filter(|(of, from, stretch)| {
                let (distance, most) = (offset - from, size * lanes as i64);
                let next = i64::from(stretch.len) * size;
                let next = if gaps { next + size } else { next };
                *of == row && distance % size == 0 && distance < most && distance <= next
            });
            match open {
                Some((_, from, stretch)) => {
                    let len = ((offset - *from) / size + 1) as u32;
                    stretch.used += u32::from(len != stretch.len);
                    stretch.len = len;
                }
                None => {
                    let first = spread.rows.iter().position(|of| *of == row)?;
                    let distance = offset - spread.items[first];
                    let item = first as u32;
                    let stretch = Stretch { item, offset: distance, len: 1, used: 1 };
                    stretches.push((row, offset, stretch));
                }
            }
            let (_, from, _) = stretches.last()?;
            picks[part][item] = (stretches.len() - 1, ((offset - from) / size) as u32);
        }
        let few = stretches.len() * FEWEST_ITEMS <= lanes;
        let stretches: Vec<Stretch> = stretches.into_iter().map(|(.., stretch)| stretch).collect();
        let dense = stretches.iter().all(|it| 4 * it.used >= 3 * it.len);
        (few && dense).then_some(Fixed { at, stretches, picks, checks: search.checks })
    }

    /// The items' numbers or addresses.
    fn spread(&self, operand: Operand, search: &mut Search) -> Option<Spread> {
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
    fn may_spread(&self, operand: Operand) -> bool {
        match self.shape(operand) {
            Shape::Uniform | Shape::Strided { guard: None, .. } => false,
            Shape::Strided { guard: Some(guard), .. } => {
                matches!(self.op_of(guard), Some((_, Op::Binary(BinaryOp::And, ..))))
            }
            Shape::Varying => true,
        }
    }

    fn op_of(&self, value: ValueId) -> Option<(BlockId, &Op)> {
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

    fn width(&self, operand: Operand) -> u32 {
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

    /// An item's number or address as a scalar. LLVM does not take vectors apart that have other uses.
    fn of_item(
        &mut self,
        operand: Operand,
        item: u32,
        known: &mut HashMap<(ValueId, u32), Operand>,
    ) -> Result<Operand, Refusal> {
        let ty = self.type_in(operand);
        match self.shape(operand) {
            Shape::Uniform => return Ok(self.one(operand)),
            Shape::Strided { step, guard: None } => {
                let first = self.one(operand);
                let distance = step.wrapping_mul(i64::from(item));
                if is_pointer(&self.out.module, ty) {
                    return Ok(self.beyond(first, distance));
                }
                let distance = self.out.int(ty, distance);
                return Ok(self.out.value(Op::Binary(BinaryOp::Add, first, distance), ty));
            }
            _ => {}
        }
        let Operand::Value(value) = operand else { return Ok(operand) };
        if let Some(&known) = known.get(&(value, item)) {
            return Ok(known);
        }
        let scalar = match self.op_of(value).map(|(_, op)| op.clone()) {
            Some(mut op @ (Op::Binary(..) | Op::Convert(..) | Op::Address { .. })) => {
                let mut operands = Vec::new();
                op.for_each_operand(|operand| operands.push(operand));
                for operand in &mut operands {
                    *operand = self.of_item(*operand, item, known)?;
                }
                let mut operands = operands.into_iter();
                op.for_each_operand_mut(|operand| {
                    if let Some(own) = operands.next() {
                        *operand = own;
                    }
                });
                if let Op::Address { inbounds, .. } = &mut op {
                    *inbounds = false;
                }
                self.out.value(op, ty)
            }
            _ => {
                let vector = self.vector(operand)?;
                self.out.value(Op::Extract(vector, vec![item]), ty)
            }
        };
        known.insert((value, item), scalar);
        Ok(scalar)
    }

    fn beyond(&mut self, pointer: Operand, offset: i64) -> Operand {
        if offset == 0 {
            return pointer;
        }
        let ty = self.out.type_of(pointer);
        let op = Op::Address { base: pointer, offset, terms: Vec::new(), inbounds: false };
        self.out.value(op, ty)
    }

    /// Whether no number wraps around, if that is not known.
    fn hold(&mut self, checks: &[Check]) -> Result<Option<Operand>, Refusal> {
        let bool = self.out.module.types.bool();
        let mut all = None;
        let mut known = HashMap::new();
        for check in checks {
            let ty = self.type_in(check.number);
            let bits = self.width(check.number);
            let (op, most) = match check.signed {
                true => (CompareOp::SLe, i64::MAX >> (64 - bits)),
                false => (CompareOp::ULe, (u64::MAX >> (64 - bits)) as i64),
            };
            let least = self.of_item(check.number, check.least, &mut known)?;
            let most = self.out.int(ty, most.wrapping_sub(check.span));
            let holds = self.out.value(Op::Compare(op, least, most), bool);
            all = Some(match all {
                Some(all) => self.out.value(Op::Binary(BinaryOp::And, all, holds), bool),
                None => holds,
            });
        }
        Ok(all)
    }

    /// Loads elements at fixed places.
    pub(super) fn load_fixed(
        &mut self,
        fixed: &Fixed,
        leaves: &[Leaf],
        access: Access,
    ) -> Result<Vec<Operand>, Refusal> {
        let holds = self.hold(&fixed.checks)?;
        self.guarded(
            holds,
            leaves,
            |this| {
                let ty = leaves[0].ty;
                let access = this.fixed_access(access, ty);
                let mut lines = Vec::new();
                let mut known = HashMap::new();
                for stretch in &fixed.stretches {
                    let from = this.of_item(fixed.at, stretch.item, &mut known)?;
                    let from = this.beyond(from, stretch.offset);
                    lines.push(match stretch.len {
                        1 => {
                            let one = this.out.value(Op::Load(from, access), ty);
                            this.out.splat(one)
                        }
                        len => {
                            let line = this.out.vector(ty, len);
                            this.out.value(Op::Load(from, access), line)
                        }
                    });
                }
                Ok(fixed.picks.iter().map(|picks| this.pick_from(&lines, picks, ty)).collect())
            },
            |this| {
                let places = this.vector(fixed.at)?;
                Ok(this.gather_from(places, leaves, access))
            },
        )
    }

    /// What the items pick from several vectors.
    fn pick_from(&mut self, lines: &[Operand], picks: &[(usize, u32)], ty: TypeId) -> Operand {
        let vector = self.out.vector_of(ty);
        let mut all = None;
        for (number, &line) in lines.iter().enumerate() {
            let own = |&(from, place): &(usize, u32)| (from == number).then_some(place);
            let own: Vec<Option<u32>> = picks.iter().map(own).collect();
            if own.iter().all(Option::is_none) {
                continue;
            }
            let is_all = self.out.type_of(line) == vector
                && (0..).zip(&own).all(|(item, pick)| *pick == Some(item));
            let these = match is_all {
                true => line,
                false => self.out.value(Op::Shuffle(line, line, own.clone()), vector),
            };
            all = Some(match all {
                None => these,
                Some(others) => {
                    let second = |pick: &Option<u32>| if pick.is_some() { own.len() } else { 0 };
                    let which = own.iter().enumerate();
                    let which = which.map(|(item, pick)| Some((item + second(pick)) as u32));
                    let which = which.collect();
                    self.out.value(Op::Shuffle(others, these, which), vector)
                }
            });
        }
        all.unwrap_or_else(|| self.out.undef(vector))
    }

    /// Stores elements at fixed places.
    pub(super) fn store_fixed(
        &mut self,
        fixed: &Fixed,
        values: &[Operand],
        leaves: &[Leaf],
        access: Access,
    ) -> Result<(), Refusal> {
        let holds = self.hold(&fixed.checks)?;
        self.guarded(
            holds,
            &[],
            |this| {
                let ty = leaves[0].ty;
                let access = this.fixed_access(access, ty);
                let all = this.line_of_parts(values, ty);
                let mut known = HashMap::new();
                for (number, stretch) in fixed.stretches.iter().enumerate() {
                    let mut own = vec![None; stretch.len as usize];
                    // Of items that write to one place the last one does.
                    for (part, picks) in fixed.picks.iter().enumerate() {
                        for (item, &(from, place)) in picks.iter().enumerate() {
                            if from == number {
                                let index = (item * leaves.len() + part) as u32;
                                own[place as usize] = own[place as usize].max(Some(index));
                            }
                        }
                    }
                    let line = match own[..] {
                        [Some(index)] => this.out.value(Op::Extract(all, vec![index]), ty),
                        _ => {
                            let line = this.out.vector(ty, stretch.len);
                            this.out.value(Op::Shuffle(all, all, own), line)
                        }
                    };
                    let to = this.of_item(fixed.at, stretch.item, &mut known)?;
                    let to = this.beyond(to, stretch.offset);
                    this.out.effect(Op::Store(to, line, access), Default::default());
                }
                Ok(Vec::new())
            },
            |this| {
                let places = this.vector(fixed.at)?;
                this.scatter_to(places, values, leaves, access);
                Ok(Vec::new())
            },
        )?;
        Ok(())
    }

    /// The access to elements one of which is a part of another one's place.
    fn fixed_access(&self, access: Access, ty: TypeId) -> Access {
        Access { align: access.align.min(self.out.module.types.size(ty) as u32), ..access }
    }
}

impl Spread {
    /// Whether an item has free bits alone.
    fn has_free(&self, item: i64) -> bool {
        (0..1i64 << self.free.min(62)).contains(&item)
    }

    /// Whether all items have.
    fn is_below(&self) -> bool {
        self.items.iter().all(|&item| self.has_free(item))
    }

    /// Whether the numbers are the constants.
    fn is_constant(&self) -> bool {
        self.free == ALL_BITS && self.is_below()
    }

    fn map(&self, free: u32, of: impl Fn(i64) -> i64) -> Spread {
        let items = self.items.iter().map(|&item| of(item)).collect();
        Spread { items, rows: self.rows.clone(), free }
    }

    fn plus(&self, other: &Spread, times: i64) -> Spread {
        let items = self.items.iter().zip(&other.items).map(|(&a, &b)| a + b * times).collect();
        let rows = numbered(self.rows.iter().zip(&other.rows));
        Spread { items, rows, free: self.free.min(other.free) }
    }

    fn times(&self, by: i64) -> Option<Spread> {
        let zeros = if by == 0 { ALL_BITS } else { by.trailing_zeros() };
        let free = (self.free + zeros).min(ALL_BITS);
        let fits = by.abs() <= FAR;
        fits.then(|| self.map(free, |item| item.wrapping_mul(by)))
    }

    /// The product with a number that all items share, and whose lowest bits are zeros.
    fn in_rows(&self, zeros: u32) -> Spread {
        let rows = numbered(self.rows.iter().zip(&self.items));
        Spread { items: vec![0; rows.len()], rows, free: zeros.min(ALL_BITS) }
    }

    /// An operation with bits, of which the rows' numbers have their own.
    fn bits(&self, op: BinaryOp, by: i64) -> Option<Spread> {
        if !self.is_below() {
            return None;
        }
        let low = by & ((1i64 << self.free.min(62)) - 1);
        Some(match op {
            BinaryOp::And => {
                let free = if self.has_free(by) { ALL_BITS } else { self.free };
                self.map(free, |item| item & low)
            }
            BinaryOp::Or => self.map(self.free, |item| item | low),
            BinaryOp::Xor => self.map(self.free, |item| item ^ low),
            BinaryOp::LShr | BinaryOp::AShr => {
                let shifted = self.free.saturating_sub(by as u32);
                let free = if self.free == ALL_BITS { ALL_BITS } else { shifted };
                self.map(free, |item| item >> by.min(62))
            }
            _ => return None,
        })
    }

    /// A quotient or a remainder of a number without a sign.
    fn divided(&self, quotient: bool, by: i64) -> Option<Spread> {
        if by & (by - 1) == 0 {
            return match quotient {
                true => self.bits(BinaryOp::LShr, i64::from(by.trailing_zeros())),
                false => self.bits(BinaryOp::And, by - 1),
            };
        }
        let of = |item: i64| if quotient { item / by } else { item % by };
        self.is_constant().then(|| self.map(ALL_BITS, of))
    }
}

/// Numbers of what is different, in the order in which it comes.
fn numbered<T: PartialEq>(of: impl Iterator<Item = T>) -> Vec<u32> {
    let mut seen = Vec::new();
    of.map(|it| {
        let known = seen.iter().position(|other| *other == it);
        let number = known.unwrap_or_else(|| {
            seen.push(it);
            seen.len() - 1
        });
        number as u32
    })
    .collect()
}

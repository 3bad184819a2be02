// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements whose distance from item to item is an argument: the step of a filter or of a pooling, the strides of a
//! matrix.
//!
//! ```text
//!   in[(y * step + j) * w + x * step + i]      the distance is step; mostly 1 or 2
//! ```
//!
//! Their addresses are a vector that tells nothing, and testing it took ten instructions for each access. But all items
//! share the argument, so scalars tell which distance there is. Where it is that of neighbours, they are loaded or
//! stored in line; where it is two to four times that, vectors with what lies in between are ([`every`]). Numbers of 32
//! bits that wrap around between two items are found by the last item's address.

mod every;

use super::emit::Widener;
use super::ops::Leaf;
use super::refusal::Refusal;
use super::shape::Shape;
use crate::ir::arena::Id;
use crate::ir::{
    Access, BinaryOp, BlockId, CompareOp, ConvertOp, Definition, Op, Operand, Terminator, ValueId,
    definitions,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "strides";

/// The most operations that are looked at on the way from an address back to the argument.
const MOST_SEEN: usize = 64;

/// The largest factor of an extended number: with it, no number of 32 bits wraps around 64 bits.
const MOST_BEHIND: i64 = 1 << 24;

/// How much a number grows from item to item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    /// By this number that all items share, if there is one,
    factor: Option<Operand>,
    /// times this,
    times: i64,
    /// and, if it was extended to 64 bits then, times this behind that.
    extended: Option<i64>,
}

impl Growth {
    const NONE: Growth = Growth { factor: None, times: 0, extended: None };

    fn constant(times: i64) -> Growth {
        Growth { times, ..Growth::NONE }
    }

    fn times(self, by: i64) -> Option<Growth> {
        let [times, extended] = match self.extended {
            None => [Some(self.times.checked_mul(by)?), None],
            Some(behind) => [Some(self.times), Some(behind.checked_mul(by)?)],
        };
        let fits = extended.is_none_or(|behind| behind.abs() <= MOST_BEHIND);
        Some(Growth { times: times?, extended, ..self }).filter(|_| fits)
    }

    fn plus(self, other: Growth) -> Option<Growth> {
        if other.is_none() {
            return Some(self);
        }
        if self.is_none() {
            return Some(other);
        }
        let alike = self.factor == other.factor && (self.extended, other.extended) == (None, None);
        let times = self.times.checked_add(other.times)?;
        alike.then_some(Growth { times, ..self })
    }

    fn is_none(self) -> bool {
        self.factor.is_none() && self.times == 0
    }
}

/// What is known on the way back from an address.
#[derive(Default)]
struct Search {
    /// What the phis of loops around are taken to grow by.
    phis: Vec<(ValueId, Growth)>,
    /// The operations that have been looked at.
    seen: usize,
}

/// Addresses whose distance is known when they are accessed.
pub(super) struct Stride {
    /// The items' addresses.
    places: Operand,
    /// The distance in bytes, unless numbers wrap around.
    by: Operand,
    /// A number that it is a multiple of.
    unit: u64,
}

impl Widener<'_> {
    /// How much addresses grow from item to item, if that is a number that all items share.
    pub(super) fn stride(&self, at: Operand) -> Option<Growth> {
        if is_skipped(NAME) || self.part != self.out.lanes {
            return None;
        }
        self.growth(at, &mut Search::default()).filter(|growth| growth.factor.is_some())
    }

    /// The stride of addresses that grow so.
    pub(super) fn strided(&mut self, growth: Growth, at: Operand) -> Result<Stride, Refusal> {
        let places = self.known_places(at)?;
        let long = self.out.module.types.int(64);
        let mut by = match growth.factor {
            Some(factor) => self.one(factor),
            None => self.out.int(long, 1),
        };
        by = self.scaled(by, growth.times);
        let behind = growth.extended.unwrap_or(1);
        if growth.extended.is_some() {
            by = self.out.value(Op::Convert(ConvertOp::SExt, by), long);
            by = self.scaled(by, behind);
        }
        let unit = growth.times.unsigned_abs().saturating_mul(behind.unsigned_abs());
        Ok(Stride { places, by, unit })
    }

    /// An item's address.
    fn place(&mut self, stride: &Stride, item: u32) -> Operand {
        let vector = self.out.type_of(stride.places);
        let pointer = self.out.module.types.element(vector);
        self.out.value(Op::Extract(stride.places, vec![item]), pointer)
    }

    fn scaled(&mut self, number: Operand, by: i64) -> Operand {
        let ty = self.out.type_of(number);
        let by = self.out.int(ty, by);
        self.out.value(Op::Binary(BinaryOp::Mul, number, by), ty)
    }

    /// How much a number of the function, or an address in bytes, grows from item to item.
    fn growth(&self, operand: Operand, search: &mut Search) -> Option<Growth> {
        use BinaryOp as B;
        match self.shape(operand) {
            Shape::Uniform => return Some(Growth::NONE),
            Shape::Strided { step, guard: None } => return Some(Growth::constant(step)),
            Shape::Strided { .. } => return None,
            Shape::Varying => {}
        }
        let Operand::Value(value) = operand else { return None };
        let definitions = self.definitions.get_or_init(|| definitions(self.from));
        let Some(Definition::Inst(block, index)) = definitions[value.index()] else { return None };
        // Behind a loop that items leave at different times, each has its own turn's value. What is accessed along items'
        // rows is transposed.
        if search.seen >= MOST_SEEN
            || self.shapes.escapes(self.flow, value, self.block)
            || self.shapes.is_kept_apart(operand)
        {
            return None;
        }
        search.seen += 1;
        let mut next = |operand| self.growth(operand, search);
        let bits = |operand| self.out.module.types.scalar_bits(self.type_in(operand));
        let constant = |operand| match operand {
            Operand::Const(id) => {
                let unused = 64 - bits(operand).clamp(1, 64);
                self.out.module.const_bits(id).map(|bits| ((bits << unused) as i64) >> unused)
            }
            Operand::Value(_) => None,
        };
        match self.from.blocks[block].insts[index].op {
            Op::Binary(B::Add, a, b) => next(a)?.plus(next(b)?),
            Op::Binary(B::Sub, a, b) => next(a)?.plus(next(b)?.times(-1)?),
            Op::Binary(B::Shl, a, b) => {
                let amount = constant(b).filter(|amount| (0..32).contains(amount))?;
                next(a)?.times(1 << amount)
            }
            Op::Binary(B::Mul, a, b) => {
                let (number, by) = match (self.shape(a), self.shape(b)) {
                    (_, Shape::Uniform) => (a, b),
                    (Shape::Uniform, _) => (b, a),
                    _ => return None,
                };
                let growth = next(number)?;
                match constant(by) {
                    Some(by) => growth.times(by),
                    None if (growth.factor, growth.extended) == (None, None) => {
                        Some(Growth { factor: Some(by), ..growth })
                    }
                    None => None,
                }
            }
            Op::Convert(ConvertOp::SExt | ConvertOp::ZExt, a) if bits(a) == 32 => {
                let growth = next(a).filter(|it| it.extended.is_none())?;
                Some(Growth { extended: Some(1), ..growth })
            }
            Op::Convert(ConvertOp::PtrCast, a) => next(a),
            Op::Phi(ref arms) => self.growth_of_phi(value, block, arms, search),
            Op::Address { base, ref terms, .. } => {
                let mut all = next(base)?;
                for &(index, by) in terms {
                    let growth = next(index)?;
                    if bits(index) < 64 && !growth.is_none() {
                        return None;
                    }
                    all = all.plus(growth.times(by)?)?;
                }
                Some(all)
            }
            _ => None,
        }
    }

    /// A phi grows as all do that may arrive there together; one of a loop is taken for that in the loop's turns.
    fn growth_of_phi(
        &self,
        phi: ValueId,
        block: BlockId,
        arms: &[(BlockId, Operand)],
        search: &mut Search,
    ) -> Option<Growth> {
        if let Some(&(_, growth)) = search.phis.iter().find(|(known, _)| *known == phi) {
            return Some(growth);
        }
        let parts = |from| self.flow.mixes(from, block) || self.flow.leaves_masked(from, block);
        if arms.iter().any(|&(from, _)| parts(from)) {
            return None;
        }
        let is_turn = |from| self.flow.back_edge(from, block).is_some();
        let &(_, first) = arms.iter().find(|&&(from, _)| !is_turn(from))?;
        let growth = self.growth(first, search)?;
        search.phis.push((phi, growth));
        let alike = arms.iter().all(|&(_, arm)| self.growth(arm, search) == Some(growth));
        search.phis.pop();
        alike.then_some(growth)
    }

    /// Whether elements are so many bytes apart. The distance is the same in all turns of a loop around, and where it is
    /// another one, nothing else is looked at.
    fn is_apart_by(&mut self, stride: &Stride, bytes: u64) -> Operand {
        let (long, bool) = (self.out.module.types.int(64), self.out.module.types.bool());
        let bytes = bytes as i64;
        let [wanted, whole] =
            [bytes, (i64::from(self.out.lanes) - 1) * bytes].map(|it| self.out.int(long, it));
        let apart = self.out.value(Op::Compare(CompareOp::Eq, stride.by, wanted), bool);
        let holds = self.out.var(bool);
        let no = self.out.int(bool, 0);
        self.out.write(holds, no);
        let [yes, join] = std::array::from_fn(|_| self.out.new_block());
        self.out.end(Terminator::CondBranch(apart, yes, join));
        self.out.switch_to(yes);
        let [from, to] = [0, self.out.lanes - 1].map(|item| {
            let place = self.place(stride, item);
            self.out.value(Op::Convert(ConvertOp::PtrToInt, place), long)
        });
        let is = self.out.value(Op::Binary(BinaryOp::Sub, to, from), long);
        let all = self.out.value(Op::Compare(CompareOp::Eq, is, whole), bool);
        self.out.write(holds, all);
        self.out.end(Terminator::Branch(join));
        self.out.switch_to(join);
        self.out.read(holds)
    }

    /// The address of the first of rows of so many bytes, and whether they are in line.
    pub(super) fn line_of_rows(&mut self, stride: &Stride, bytes: u64) -> (Operand, Operand) {
        let holds = self.is_apart_by(stride, bytes);
        (self.place(stride, 0), holds)
    }

    /// Loads elements with a stride.
    pub(super) fn load_strided(
        &mut self,
        stride: &Stride,
        leaves: &[Leaf],
        size: u64,
        access: Access,
    ) -> Result<Vec<Operand>, Refusal> {
        let in_line = self.is_apart_by(stride, size);
        self.guarded(
            Some(in_line),
            leaves,
            |this| {
                let first = this.place(stride, 0);
                Ok(this.load_line(&[first], leaves, access, false))
            },
            |this| this.load_apart(stride, leaves, size, access, 2),
        )
    }

    /// Loads elements that are so many apart, or more.
    fn load_apart(
        &mut self,
        stride: &Stride,
        leaves: &[Leaf],
        size: u64,
        access: Access,
        step: u32,
    ) -> Result<Vec<Operand>, Refusal> {
        let Some(step) = self.step(stride, leaves, size, access, step) else {
            return Ok(self.gather_from(stride.places, leaves, access));
        };
        let apart = self.is_apart_by(stride, u64::from(step) * size);
        self.guarded(
            Some(apart),
            leaves,
            |this| {
                let first = this.place(stride, 0);
                Ok(vec![this.load_every(step, first, leaves[0].ty, size, access)])
            },
            |this| this.load_apart(stride, leaves, size, access, step + 1),
        )
    }

    /// Stores elements with a stride.
    pub(super) fn store_strided(
        &mut self,
        stride: &Stride,
        values: &[Operand],
        leaves: &[Leaf],
        size: u64,
        access: Access,
    ) -> Result<(), Refusal> {
        let in_line = self.is_apart_by(stride, size);
        self.guarded(
            Some(in_line),
            &[],
            |this| {
                let first = this.place(stride, 0);
                this.store_line(&[first], values, leaves, access, false);
                Ok(Vec::new())
            },
            |this| this.store_apart(stride, values, leaves, size, access, 2),
        )?;
        Ok(())
    }

    /// Stores elements that are so many apart, or more.
    fn store_apart(
        &mut self,
        stride: &Stride,
        values: &[Operand],
        leaves: &[Leaf],
        size: u64,
        access: Access,
        step: u32,
    ) -> Result<Vec<Operand>, Refusal> {
        let Some(step) = self.step(stride, leaves, size, access, step) else {
            self.scatter_to(stride.places, values, leaves, access);
            return Ok(Vec::new());
        };
        let apart = self.is_apart_by(stride, u64::from(step) * size);
        self.guarded(
            Some(apart),
            &[],
            |this| {
                let first = this.place(stride, 0);
                this.store_every(step, first, values[0], size, access);
                Ok(Vec::new())
            },
            |this| this.store_apart(stride, values, leaves, size, access, step + 1),
        )
    }
}

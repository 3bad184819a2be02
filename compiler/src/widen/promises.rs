// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of 32 bits that must not wrap around in a group, for the steps of indices to hold.
//!
//! `in[y * n + x]` with ids that are `int` or `uint` may wrap around, for all that its types say. What is made of ids,
//! sizes, the kernel's arguments and the counters of loops by sums and products has bounds in each group, though, which
//! the entry function computes before it runs the group in vectors ([`crate::lower`]): a few instructions for each group
//! in place of a test, and of a second path, for each access. Groups in which such a number may wrap around run one item
//! at a time; in a program in C that is a fault if the number has a sign. One without a sign is to stay below 2^31, and
//! only if it is an index: a hash may well wrap around.
//!
//! ```text
//!   y * n + x     y from 16 to 31, x from 32 to 63 + 63, n = 512      from 8,224 to 15,998
//! ```

mod counted;

pub(super) use counted::is_counted;

use rustc_hash::{FxHashMap, FxHashSet};

use super::flow::Flow;
use crate::ir::{
    BinaryOp, ConvertOp, Function, Inst, Module, Op, Operand, RowOp, Type, ValueId, WorkItemQuery,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "promises";

/// A number, made of others before it in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// A constant of at most 32 bits with its sign.
    Constant(i64),
    /// What a query gives, in a dimension of the launch.
    Query(WorkItemQuery, u8),
    /// An argument of the kernel, by its number, and its bits.
    Argument(usize, u32),
    /// The sum of two.
    Sum(usize, usize),
    /// The difference of two.
    Difference(usize, usize),
    /// The product of two.
    Product(usize, usize),
    /// The least of two.
    Least(usize, usize),
    /// The greatest of two.
    Most(usize, usize),
    /// One of two.
    Either(usize, usize),
    /// The quotient of two that are not negative; a divisor of 0 counts as 1.
    Quotient(usize, usize),
    /// What is left of the first one of two then.
    Rest(usize, usize),
}

/// What must hold of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holds {
    /// It fits 32 bits with a sign.
    Fits,
    /// It fits, and is not negative.
    Positive,
}

/// Numbers, and what must hold of some of them in a group.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// The numbers.
    pub numbers: Vec<Number>,
    /// What must hold.
    pub conditions: Vec<(usize, Holds)>,
}

/// The most numbers of a kernel: computing their bounds takes a few instructions each.
const MOST: usize = 128;

/// The most bits of a sum, so that its bounds do not wrap around either.
const MOST_BITS: u32 = 62;

impl Promises {
    fn number(&mut self, number: Number) -> usize {
        if let Some(found) = self.numbers.iter().position(|it| *it == number) {
            return found;
        }
        self.numbers.push(number);
        self.numbers.len() - 1
    }

    /// A sum or a difference, unless its bounds could wrap around 64 bits.
    fn sum(&mut self, sum: Number) -> Option<usize> {
        // The bits of each number, whose parts are before it: all others have to fit 32 bits with a sign.
        let mut bits = Vec::with_capacity(self.numbers.len());
        let of = |number: &Number, bits: &[u32]| match *number {
            Number::Sum(a, b) | Number::Difference(a, b) => bits[a].max(bits[b]) + 1,
            Number::Either(a, b) => bits[a].max(bits[b]),
            _ => 31,
        };
        for number in &self.numbers {
            bits.push(of(number, &bits));
        }
        (of(&sum, &bits) <= MOST_BITS).then(|| self.number(sum))
    }

    /// Whether a number depends on where in a launch a group is, or an item.
    fn differs(&self, number: usize) -> bool {
        use WorkItemQuery as Q;
        // Of each number, whose parts are before it.
        let mut differs: Vec<bool> = Vec::with_capacity(number + 1);
        for it in &self.numbers[..=number] {
            differs.push(match *it {
                Number::Constant(_) | Number::Argument(..) => false,
                Number::Query(it, _) => matches!(it, Q::GlobalId | Q::LocalId | Q::GroupId),
                Number::Sum(a, b)
                | Number::Difference(a, b)
                | Number::Product(a, b)
                | Number::Least(a, b)
                | Number::Most(a, b)
                | Number::Quotient(a, b)
                | Number::Rest(a, b)
                | Number::Either(a, b) => differs[a] || differs[b],
            });
        }
        differs[number]
    }

    fn require(&mut self, number: usize, holds: Holds) {
        if !self.conditions.contains(&(number, holds)) {
            self.conditions.push((number, holds));
        }
    }

    /// The same for a function whose first local id is an item's number in the group ([`flat`](super::flat)).
    pub(super) fn of_flat(&self) -> Self {
        let mut flat = self.clone();
        for number in &mut flat.numbers {
            if let Number::Query(query @ WorkItemQuery::LocalId, 0) = number {
                *query = WorkItemQuery::LocalLinearId;
            }
        }
        flat
    }

    /// Adds what a function needs. `physical` is the dimension of the launch for each of the function's.
    pub(super) fn join(&mut self, others: &Promises, physical: impl Fn(u8) -> u8) {
        let mut places: Vec<usize> = Vec::new();
        for number in &others.numbers {
            let number = match *number {
                Number::Query(query, dimension) => Number::Query(query, physical(dimension)),
                Number::Sum(a, b) => Number::Sum(places[a], places[b]),
                Number::Difference(a, b) => Number::Difference(places[a], places[b]),
                Number::Product(a, b) => Number::Product(places[a], places[b]),
                Number::Least(a, b) => Number::Least(places[a], places[b]),
                Number::Most(a, b) => Number::Most(places[a], places[b]),
                Number::Either(a, b) => Number::Either(places[a], places[b]),
                Number::Quotient(a, b) => Number::Quotient(places[a], places[b]),
                Number::Rest(a, b) => Number::Rest(places[a], places[b]),
                other @ (Number::Constant(_) | Number::Argument(..)) => other,
            };
            places.push(self.number(number));
        }
        for &(number, holds) in &others.conditions {
            self.require(places[number], holds);
        }
    }
}

/// The instructions that make numbers, by result.
struct Makers<'f> {
    module: &'f Module,
    function: &'f Function,
    flow: &'f Flow,
    of: FxHashMap<ValueId, &'f Inst>,
    /// The loops by the phis of their headers.
    headers: FxHashMap<ValueId, usize>,
}

/// How an operation makes 64 bits of a number of 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Extends {
    /// With its sign.
    Signed,
    /// With zeros, or by a mask of what was computed in 64 bits.
    Unsigned,
}

impl Extends {
    /// How an operation extends which number.
    pub(super) fn of(module: &Module, op: &Op) -> Option<(Self, Operand)> {
        match *op {
            Op::Convert(ConvertOp::SExt, from) => Some((Self::Signed, from)),
            Op::Convert(ConvertOp::ZExt, from) => Some((Self::Unsigned, from)),
            Op::Binary(BinaryOp::And, from, Operand::Const(mask))
                if module.const_bits(mask) == Some(u64::from(u32::MAX)) =>
            {
                Some((Self::Unsigned, from))
            }
            _ => None,
        }
    }

    /// What must hold of the number, for it to keep its value.
    fn holds(self) -> Holds {
        match self {
            Self::Signed => Holds::Fits,
            Self::Unsigned => Holds::Positive,
        }
    }
}

/// What a function's extensions may rely on.
#[derive(Default)]
pub(super) struct Found {
    /// The extensions whose operands have bounds in each group.
    pub(super) extensions: Vec<ValueId>,
    /// The turns of each loop, or one less, where that is a constant.
    pub(super) turns: Vec<Option<u64>>,
    /// Of those whose operands are sums with a constant, the operands and the constants: the rest fits, too, and is not
    /// negative if the extension has no sign.
    pub(super) moved: FxHashMap<(Extends, ValueId), i64>,
    /// What must hold for them not to wrap around.
    pub(super) promises: Promises,
}

/// What extensions may rely on, of those that are `wanted`.
pub(super) fn find(
    module: &Module,
    function: &Function,
    flow: &Flow,
    wanted: impl Fn(ValueId, Extends, Operand) -> bool,
) -> Found {
    if is_skipped(NAME) {
        return Default::default();
    }
    let insts = || function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let of = insts().filter_map(|inst| Some((inst.result?, inst))).collect();
    let headers = counted::headers(function, flow).into_iter().collect();
    let makers = Makers { module, function, flow, of, headers };
    let mut indices: FxHashSet<Operand> = FxHashSet::default();
    for inst in insts() {
        if let Op::Address { terms, .. } = &inst.op {
            indices.extend(terms.iter().map(|term| term.0));
        }
    }
    let mut found = Found::default();
    for inst in insts() {
        let (Some(result), Some((extends, from))) = (inst.result, Extends::of(module, &inst.op))
        else {
            continue;
        };
        let bits = |operand| module.types.scalar_bits(module.operand_type(function, operand));
        let is_made = matches!(from, Operand::Value(from) if makers.is_made(from));
        let is_mask = matches!(inst.op, Op::Binary(..));
        let to_64 = bits(Operand::Value(result)) == 64 && (is_mask || bits(from) == 32);
        let may_wrap = extends == Extends::Unsigned && !indices.contains(&Operand::Value(result));
        if !is_made || !to_64 || may_wrap || !wanted(result, extends, from) {
            continue;
        }
        // Half a number is of no use.
        let mut more = Trial { promises: found.promises.clone(), ..Trial::default() };
        if let Some(number) = makers.number(&mut more, from).filter(|_| more.has_room()) {
            let promises = &mut more.promises;
            promises.require(number, extends.holds());
            if let (Operand::Value(from), Some((rest, constant))) = (from, makers.split(from))
                && let Some(&rest) = more.of.get(&rest)
            {
                promises.require(rest, extends.holds());
                found.moved.insert((extends, from), constant);
            }
            found.promises = more.promises;
            found.extensions.push(result);
        }
    }
    found.turns = (0..flow.loops.len()).map(|it| makers.constant_turns(it)).collect();
    found
}

/// Promises with the numbers that a value is made of, and what each of those values is: one may be used many times.
#[derive(Default)]
struct Trial {
    promises: Promises,
    of: FxHashMap<ValueId, usize>,
    /// The values that are looked at: a loop may lead back to them.
    open: FxHashSet<ValueId>,
    /// The operations from the value to the one that is looked at.
    depth: usize,
}

impl Trial {
    fn has_room(&self) -> bool {
        self.promises.numbers.len() <= MOST && self.depth <= 2 * MOST
    }
}

/// The number that an operand is, with its sign, if it is a constant.
pub(super) fn signed_bits(module: &Module, operand: Operand) -> Option<i64> {
    let Operand::Const(id) = operand else { return None };
    let unused = 64 - module.types.scalar_bits(module.constants[id].ty).clamp(1, 64);
    Some(((module.const_bits(id)? << unused) as i64) >> unused)
}

impl Makers<'_> {
    /// What a constant is added to, and the constant.
    fn split(&self, operand: Operand) -> Option<(ValueId, i64)> {
        let Operand::Value(value) = operand else { return None };
        let constant =
            |id| self.constant(Operand::Const(id)).filter(|by| i32::try_from(*by).is_ok());
        match self.of.get(&value)?.op {
            Op::Binary(BinaryOp::Add, Operand::Value(rest), Operand::Const(id))
            | Op::Binary(BinaryOp::Add, Operand::Const(id), Operand::Value(rest)) => {
                Some((rest, constant(id)?))
            }
            Op::Binary(BinaryOp::Sub, Operand::Value(rest), Operand::Const(id)) => {
                Some((rest, -constant(id)?))
            }
            _ => None,
        }
    }

    /// Whether a value is a sum, a product or one of several numbers, or 32 bits of such a one: ids alone need no
    /// promise.
    fn is_made(&self, value: ValueId) -> bool {
        use BinaryOp::{Add, Mul, Or, SMax, SMin, Shl, Sub, UMax, UMin};
        match self.of.get(&value).map(|inst| &inst.op) {
            Some(&Op::Convert(ConvertOp::Trunc, Operand::Value(from))) => self.is_made(from),
            Some(Op::Binary(op, ..)) => {
                matches!(op, Add | Sub | Mul | Shl | Or | SMin | SMax | UMin | UMax)
            }
            Some(Op::Select(..) | Op::Phi(_)) => true,
            _ => false,
        }
    }

    /// The number that a value is, added to a list.
    fn number(&self, trial: &mut Trial, operand: Operand) -> Option<usize> {
        let ty = self.module.operand_type(self.function, operand);
        let Type::Int(bits @ (32 | 64)) = self.module.types[ty] else { return None };
        let value = match operand {
            Operand::Const(id) => {
                let unused = 64 - bits;
                let number = ((self.module.const_bits(id)? << unused) as i64) >> unused;
                i32::try_from(number).ok()?;
                return Some(trial.promises.number(Number::Constant(number)));
            }
            Operand::Value(value) => value,
        };
        if let Some(&number) = trial.of.get(&value) {
            return Some(number);
        }
        if !trial.open.insert(value) {
            return None;
        }
        trial.depth += 1;
        let number = if trial.has_room() { self.made(trial, value, bits)? } else { return None };
        trial.depth -= 1;
        trial.open.remove(&value);
        trial.of.insert(value, number);
        Some(number)
    }

    /// The number that an operation, or an argument, of so many bits makes.
    fn made(&self, trial: &mut Trial, value: ValueId, bits: u32) -> Option<usize> {
        let to = &mut trial.promises;
        if let Some(index) = self.function.params.iter().position(|it| *it == value) {
            let number = to.number(Number::Argument(index, bits));
            if bits == 64 {
                to.require(number, Holds::Fits);
            }
            return Some(number);
        }
        match self.of.get(&value)?.op {
            Op::WorkItem(query, dimension) => {
                use WorkItemQuery as Q;
                if !matches!(
                    query,
                    Q::GlobalId
                        | Q::LocalId
                        | Q::GroupId
                        | Q::LocalSize
                        | Q::EnqueuedLocalSize
                        | Q::NumGroups
                        | Q::GlobalSize
                        | Q::GlobalOffset
                ) {
                    return None;
                }
                let number = to.number(Number::Query(query, dimension));
                to.require(number, Holds::Fits);
                Some(number)
            }
            // What fits keeps its value.
            Op::Convert(ConvertOp::Trunc | ConvertOp::SExt, from) => {
                let number = self.number(trial, from)?;
                trial.promises.require(number, Holds::Fits);
                Some(number)
            }
            Op::Convert(ConvertOp::ZExt, from) => {
                let number = self.number(trial, from)?;
                trial.promises.require(number, Holds::Positive);
                Some(number)
            }
            Op::Binary(BinaryOp::Add, a, b) => {
                let (a, b) = (self.number(trial, a)?, self.number(trial, b)?);
                trial.promises.sum(Number::Sum(a, b))
            }
            Op::Binary(BinaryOp::Sub, a, b) => {
                let (a, b) = (self.number(trial, a)?, self.number(trial, b)?);
                trial.promises.sum(Number::Difference(a, b))
            }
            // `2 * a + 1`, as clang writes it.
            Op::Binary(BinaryOp::Or, a, Operand::Const(by))
                if self.module.const_bits(by)? >> self.zeros(a, 0) == 0 =>
            {
                let by = self.number(trial, Operand::Const(by))?;
                let a = self.number(trial, a)?;
                trial.promises.sum(Number::Sum(a, by))
            }
            // `-1 - a`.
            Op::Binary(BinaryOp::Xor, a, Operand::Const(ones))
                if self.module.const_bits(ones) == Some(u64::MAX >> (64 - bits)) =>
            {
                let a = self.number(trial, a)?;
                let ones = trial.promises.number(Number::Constant(-1));
                trial.promises.sum(Number::Difference(ones, a))
            }
            Op::Binary(BinaryOp::Mul, a, b) => {
                let (a, b) = (self.number(trial, a)?, self.number(trial, b)?);
                Some(product(&mut trial.promises, a, b))
            }
            // What is compared has to be the numbers themselves.
            Op::Binary(op @ (BinaryOp::SMin | BinaryOp::SMax), a, b) => {
                let (a, b) = (self.held(trial, a, Holds::Fits)?, self.held(trial, b, Holds::Fits)?);
                Some(trial.promises.number(match op {
                    BinaryOp::SMin => Number::Least(a, b),
                    _ => Number::Most(a, b),
                }))
            }
            Op::Binary(op @ (BinaryOp::UMin | BinaryOp::UMax), a, b) => {
                let a = self.held(trial, a, Holds::Positive)?;
                let b = self.held(trial, b, Holds::Positive)?;
                Some(trial.promises.number(match op {
                    BinaryOp::UMin => Number::Least(a, b),
                    _ => Number::Most(a, b),
                }))
            }
            Op::Row(op @ (RowOp::Number | RowOp::Place), a, b) => {
                let a = self.held(trial, a, Holds::Positive)?;
                let b = self.held(trial, b, Holds::Positive)?;
                Some(trial.promises.number(match op {
                    RowOp::Place => Number::Rest(a, b),
                    _ => Number::Quotient(a, b),
                }))
            }
            // A row's number without its lowest bits: `y << 1`, as clang writes it for a `y` that is `i >> 6`.
            Op::Binary(BinaryOp::And, row @ Operand::Value(from), mask)
                if matches!(self.of.get(&from)?.op, Op::Row(RowOp::Number, ..)) =>
            {
                let free = -signed_bits(self.module, mask).filter(|mask| *mask < 0)?;
                let free = Some(free).filter(|free| free.count_ones() == 1 && *free < 1 << 16)?;
                let row = self.number(trial, row)?;
                let [none, most] =
                    [0, free - 1].map(|it| trial.promises.number(Number::Constant(it)));
                let off = trial.promises.number(Number::Either(none, most));
                trial.promises.sum(Number::Difference(row, off))
            }
            Op::Select(_, a, b) => {
                let (a, b) = (self.number(trial, a)?, self.number(trial, b)?);
                Some(trial.promises.number(Number::Either(a, b)))
            }
            Op::Phi(_) if self.headers.contains_key(&value) => {
                self.counted(trial, value, self.headers[&value])
            }
            Op::Phi(ref arms) => {
                let mut either = None;
                for &(_, arm) in arms {
                    let arm = self.number(trial, arm)?;
                    either = Some(match either {
                        Some(so_far) if so_far != arm => {
                            trial.promises.number(Number::Either(so_far, arm))
                        }
                        _ => arm,
                    });
                }
                either
            }
            Op::Binary(BinaryOp::Shl, a, Operand::Const(by)) => {
                let by = self.module.const_bits(by).filter(|by| *by < 31)?;
                let a = self.number(trial, a)?;
                let b = trial.promises.number(Number::Constant(1 << by));
                Some(product(&mut trial.promises, a, b))
            }
            _ => None,
        }
    }

    /// How many low bits of a number are zeros, as far as shifts and sums tell.
    fn zeros(&self, operand: Operand, depth: usize) -> u32 {
        let Operand::Value(value) = operand else { return 0 };
        match self.of.get(&value).filter(|_| depth < 4).map(|inst| &inst.op) {
            Some(&Op::Binary(BinaryOp::Shl, _, Operand::Const(by))) => {
                self.module.const_bits(by).filter(|by| *by < 31).map_or(0, |by| by as u32)
            }
            Some(&Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b)) => {
                self.zeros(a, depth + 1).min(self.zeros(b, depth + 1))
            }
            Some(&Op::Convert(ConvertOp::Trunc | ConvertOp::SExt | ConvertOp::ZExt, a)) => {
                self.zeros(a, depth + 1)
            }
            _ => 0,
        }
    }

    /// A number of which this holds.
    fn held(&self, trial: &mut Trial, operand: Operand, holds: Holds) -> Option<usize> {
        let number = self.number(trial, operand)?;
        trial.promises.require(number, holds);
        Some(number)
    }
}

/// The product of two numbers that fit; it has to fit too, so that sums of such ones fit 64 bits.
fn product(to: &mut Promises, a: usize, b: usize) -> usize {
    to.require(a, Holds::Fits);
    to.require(b, Holds::Fits);
    let product = to.number(Number::Product(a, b));
    to.require(product, Holds::Fits);
    product
}

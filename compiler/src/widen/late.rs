// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums in memory: stores of a loop to one place happen once, behind it.
//!
//! ```text
//!                                       if (all items: out + i does not lie in what the loop loads)
//!   for (k = 0; k < n; k++)               for (k = 0; k < n; k++)
//!     out[i] += a[k] * b[k];    ──▶         sum += a[k] * b[k];
//!                                         out[i] = sum;
//!                                       else
//!                                         for ...                             ; as before
//! ```
//!
//! Pointers of kernels are rarely `restrict`, so front ends keep a store in each turn: the next load might be of that
//! place. But what a loop loads lies between the places of its first turn and its last one, if these move by the same
//! distance in each turn, so a test in front of it tells. The numbers of a turn are those that they were, and are stored
//! in the same order.
//!
//! Loops of one block, with nothing that other items wait for.

use std::collections::{HashMap, HashSet};

use super::compares::{mirrored, opposite};
use super::shape::Shape;
use super::strips;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{
    Access, AddressSpace, BinaryOp, Block, BlockId, CompareOp, ConvertOp, Flags, Function, Inst,
    Loc, Module, Op, Operand, Terminator, Type, TypeId, ValueId,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "late";

/// The maximum number of instructions of a loop: it is copied.
const MAX_COPIED: usize = 64;

/// The maximum number of places that are stored to, and of other accesses: each pair of them is a test.
const MAX_PLACES: usize = 4;
const MAX_OTHERS: usize = 8;

/// The least number of turns for which addresses are tested. Triangles of 16 x 16 numbers, whose loops have 8 turns in the
/// mean, took 1.3 times as long with the test alone.
const LEAST_TURNS: u64 = 16;

/// The longest way from an address back to what it is computed from.
const MAX_DEPTH: usize = 12;

/// Moves stores behind loops. Whether it found some.
pub(super) fn run(module: &mut Module, function: &mut Function, way: &Way) -> bool {
    if is_skipped(NAME) {
        return false;
    }
    let headers = way.flow.loops.iter().map(|it| it.header);
    let gains = |&header: &BlockId| {
        let plan = plan(module, function, header);
        plan.is_some_and(|plan| plan.gains(module, way))
    };
    let mut headers: Vec<BlockId> = headers.filter(gains).collect();
    if !headers.is_empty() {
        // A loop around one would be too large for strips with both copies.
        let inner = strips::inner(module, function, way);
        headers.retain(|header| !inner.contains(header));
    }
    for &header in &headers {
        if let Some(plan) = plan(module, function, header) {
            Writer { module, function, insts: Vec::new(), loc: Loc::default() }.write(&plan);
        }
    }
    !headers.is_empty()
}

fn plan(module: &Module, function: &Function, header: BlockId) -> Option<Plan> {
    Finder::new(module, function, header)?.plan()
}

/// A place that does not move, and that the loop stores to.
struct Place {
    at: Operand,
    ty: TypeId,
    access: Access,
    loc: Loc,
    /// Whether a turn loads it before it stores to it.
    is_loaded: bool,
}

/// Another access: its address, and its bytes.
struct Other {
    at: Operand,
    bytes: i64,
}

/// How often a loop goes on.
struct Count {
    first: Operand,
    bound: Operand,
    /// It goes on while this holds of the number in the next turn and the bound.
    stays: CompareOp,
    /// The power of two by which the number grows, or shrinks.
    shift: u32,
    shrinks: bool,
}

struct Plan {
    header: BlockId,
    entry: BlockId,
    after: BlockId,
    made: HashMap<ValueId, Inst>,
    places: Vec<Place>,
    others: Vec<Other>,
    /// Pairs of a place and another one, and of a place and another access.
    beside: Vec<(usize, usize)>,
    tests: Vec<(usize, usize)>,
    count: Count,
}

impl Plan {
    /// Whether a turn takes longer than a few loads and stores of neighbours. Sums of columns, which do not, took 1.5
    /// times as long without the store: perhaps the processor then reads further ahead, in more rows.
    fn gains(&self, module: &Module, way: &Way) -> bool {
        let is_slow = |at: Operand, bytes: u64| match at {
            Operand::Const(_) => false,
            Operand::Value(value) => match way.shapes.of(value) {
                Shape::Uniform => false,
                Shape::Strided { step, .. } => step.unsigned_abs() != bytes,
                _ => true,
            },
        };
        let stored = |place: &Place| is_slow(place.at, module.types.size(place.ty));
        let other = |other: &Other| is_slow(other.at, other.bytes as u64);
        self.places.iter().any(stored) || self.others.iter().any(other)
    }

    /// The place that an instruction loads or stores.
    fn place_of(&self, module: &Module, function: &Function, inst: &Inst) -> Option<usize> {
        let (at, ty) = match inst.op {
            Op::Load(at, _) => (at, function.values[inst.result?].ty),
            Op::Store(at, value, _) => (at, module.operand_type(function, value)),
            _ => return None,
        };
        self.places.iter().position(|place| place.at == at && place.ty == ty)
    }
}

struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    header: BlockId,
    entry: BlockId,
    after: BlockId,
    made: HashMap<ValueId, Inst>,
}

impl<'a> Finder<'a> {
    /// A loop of one block, with one way in.
    fn new(module: &'a Module, function: &'a Function, header: BlockId) -> Option<Self> {
        let block = &function.blocks[header];
        let &Terminator::CondBranch(_, yes, no) = &block.terminator else { return None };
        let after = match (yes == header, no == header) {
            (true, false) => no,
            (false, true) => yes,
            _ => return None,
        };
        let predecessors = function.predecessors();
        let mut before = predecessors[header.index()].iter().filter(|&&it| it != header);
        let (&entry, None) = (before.next()?, before.next()) else { return None };
        let insts = block.insts.iter();
        let made = insts.filter_map(|inst| Some((inst.result?, inst.clone()))).collect();
        Some(Self { module, function, header, entry, after, made })
    }

    fn plan(self) -> Option<Plan> {
        let insts = &self.function.blocks[self.header].insts;
        if insts.len() > MAX_COPIED {
            return None;
        }
        let mut places: Vec<Place> = Vec::new();
        for inst in insts {
            let &Op::Store(at, value, access) = &inst.op else { continue };
            let ty = self.type_of(value);
            let known = places.iter().any(|place| place.at == at && place.ty == ty);
            if !access.volatile && self.is_fixed(at) && self.is_shared(at) && !known {
                places.push(Place { at, ty, access, loc: inst.loc, is_loaded: false });
            }
        }
        if places.is_empty() || places.len() > MAX_PLACES {
            return None;
        }
        let mut others: Vec<Other> = Vec::new();
        let mut stored = HashSet::new();
        for inst in insts {
            let (at, ty, access, is_store) = match inst.op {
                Op::Load(at, access) => (at, self.function.values[inst.result?].ty, access, false),
                Op::Store(at, value, access) => (at, self.type_of(value), access, true),
                Op::Phi(_) | Op::Assume(_) => continue,
                ref op if op.is_pure() => continue,
                _ => return None,
            };
            if access.volatile {
                return None;
            }
            let place = places.iter().position(|place| place.at == at && place.ty == ty);
            if let Some(number) = place {
                places[number].is_loaded |= !is_store && !stored.contains(&number);
                if is_store {
                    stored.insert(number);
                }
                continue;
            }
            let bytes = self.module.types.layout(ty)?.size as i64;
            if self.is_shared(at) || self.space(at) == AddressSpace::Generic {
                others.push(Other { at, bytes });
            }
        }
        let pairs = |count: usize| {
            let pairs = (0..places.len()).flat_map(|a| (0..count).map(move |b| (a, b)));
            pairs.collect::<Vec<_>>()
        };
        let beside = pairs(places.len());
        let meet = |a: Operand, b: Operand| self.may_meet(a, b);
        let beside = beside.into_iter().filter(|&(a, b)| a < b);
        let beside: Vec<_> = beside.filter(|&(a, b)| meet(places[a].at, places[b].at)).collect();
        let tests = pairs(others.len()).into_iter();
        let tests: Vec<_> = tests.filter(|&(a, b)| meet(places[a].at, others[b].at)).collect();
        let moves = |&(_, other): &(usize, usize)| self.moves(others[other].at, None, 0);
        if others.len() > MAX_OTHERS || !tests.iter().all(moves) {
            return None;
        }
        let count = self.count()?;
        let Self { header, entry, after, made, .. } = self;
        Some(Plan { header, entry, after, made, places, others, beside, tests, count })
    }

    fn type_of(&self, operand: Operand) -> TypeId {
        self.module.operand_type(self.function, operand)
    }

    fn space(&self, at: Operand) -> AddressSpace {
        match self.module.types[self.type_of(at)] {
            Type::Pointer(space) => space,
            _ => AddressSpace::Generic,
        }
    }

    /// Whether an address is known not to be private, and may be written.
    fn is_shared(&self, at: Operand) -> bool {
        matches!(self.space(at), AddressSpace::Global | AddressSpace::Local)
    }

    fn may_meet(&self, place: Operand, other: Operand) -> bool {
        let (a, b) = (self.space(place), self.space(other));
        a == b || b == AddressSpace::Generic
    }

    fn is_fixed(&self, operand: Operand) -> bool {
        !matches!(operand, Operand::Value(value) if self.made.contains_key(&value))
    }

    /// What a phi is in the first turn, and in the next one.
    fn arms(&self, phi: &Inst) -> Option<(Operand, Operand)> {
        let Op::Phi(arms) = &phi.op else { return None };
        let of = |from: BlockId| arms.iter().find(|arm| arm.0 == from).map(|arm| arm.1);
        Some((of(self.entry)?, of(self.header)?))
    }

    /// Whether a number, or a pointer, moves by the same distance in each turn: one of fewer than 64 bits if it does not
    /// wrap around, as this flag says.
    fn moves(&self, operand: Operand, flag: Option<Flags>, depth: usize) -> bool {
        let Operand::Value(value) = operand else { return true };
        let Some(inst) = self.made.get(&value) else { return true };
        if depth > MAX_DEPTH {
            return false;
        }
        let keeps = |inst: &Inst| flag.is_none_or(|flag| inst.flags.contains(flag));
        let moves = |operand: Operand| self.moves(operand, flag, depth + 1);
        match inst.op {
            Op::Phi(_) => {
                let Some((_, Operand::Value(next))) = self.arms(inst) else { return false };
                let Some(next) = self.made.get(&next) else { return false };
                match next.op {
                    Op::Binary(BinaryOp::Add, a, by) => {
                        a == operand && self.is_fixed(by) && keeps(next)
                    }
                    Op::Address { base, ref terms, .. } => {
                        base == operand && terms.iter().all(|&(term, _)| self.is_fixed(term))
                    }
                    _ => false,
                }
            }
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => keeps(inst) && moves(a) && moves(b),
            Op::Binary(BinaryOp::Mul, a, b) => {
                keeps(inst) && (self.is_fixed(a) && moves(b) || self.is_fixed(b) && moves(a))
            }
            Op::Binary(BinaryOp::Shl, a, b) => keeps(inst) && self.is_fixed(b) && moves(a),
            Op::Address { base, ref terms, .. } => {
                // Indices of 32 bits are extended with their signs.
                let flag = |term: Operand| {
                    let bits = self.module.types.scalar_bits(self.type_of(term));
                    (bits < 64).then_some(Flags::NSW)
                };
                let moves = |&(term, _): &(Operand, i64)| self.moves(term, flag(term), depth + 1);
                self.moves(base, None, depth + 1) && terms.iter().all(moves)
            }
            Op::Convert(op @ (ConvertOp::SExt | ConvertOp::ZExt), from) => {
                let own = if op == ConvertOp::SExt { Flags::NSW } else { Flags::NUW };
                flag.is_none() && self.moves(from, Some(own), depth + 1)
            }
            _ => false,
        }
    }

    fn count(&self) -> Option<Count> {
        let &Terminator::CondBranch(condition, yes, _) =
            &self.function.blocks[self.header].terminator
        else {
            return None;
        };
        let made = |operand: Operand| match operand {
            Operand::Value(value) => self.made.get(&value),
            Operand::Const(_) => None,
        };
        let &Op::Compare(op, a, b) = &made(condition)?.op else { return None };
        let op = if yes == self.header { op } else { opposite(op)? };
        let (stays, next, bound) = match (self.is_fixed(a), self.is_fixed(b)) {
            (false, true) => (op, a, b),
            (true, false) => (mirrored(op), b, a),
            _ => return None,
        };
        let &Op::Binary(BinaryOp::Add, phi, Operand::Const(by)) = &made(next)?.op else {
            return None;
        };
        let (first, again) = self.arms(made(phi)?)?;
        let bits = self.module.types.scalar_bits(self.module.constants[by].ty);
        if again != next || !matches!(bits, 32 | 64) {
            return None;
        }
        let by = (self.module.const_bits(by)? << (64 - bits)) as i64 >> (64 - bits);
        let shrinks = by < 0;
        use CompareOp::{Ne, SGt, SLt, UGt, ULt};
        let ends = match stays {
            Ne => true,
            SLt | ULt => !shrinks,
            SGt | UGt => shrinks,
            _ => false,
        };
        let size = by.unsigned_abs();
        let shift = size.trailing_zeros();
        (ends && size.is_power_of_two()).then_some(Count { first, bound, stays, shift, shrinks })
    }
}

struct Writer<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    insts: Vec<Inst>,
    loc: Loc,
}

impl Writer<'_> {
    fn write(mut self, plan: &Plan) {
        let source = self.function.blocks[plan.header].clone();
        self.loc = source.loc;
        let empty =
            || Block { insts: Vec::new(), terminator: Terminator::Unreachable, loc: source.loc };
        let [count, test, enter, leave, behind, slow] =
            std::array::from_fn(|_| self.function.blocks.push(empty()));
        let (copies, names) = self.function.copies_of(&[plan.header]);
        let fast = copies[&plan.header];
        // In front: whether there are many turns, and whether no place is among the others.
        let more = self.more(&plan.count);
        let many = self.many(more);
        self.finish(count, Terminator::CondBranch(many, test, slow));
        let apart = self.apart(plan, more);
        self.finish(test, Terminator::CondBranch(apart, enter, slow));
        self.finish(slow, Terminator::Branch(plan.header));
        // What the places hold.
        let mut now: Vec<Option<Operand>> = Vec::new();
        let mut phis: Vec<Option<(ValueId, Operand)>> = Vec::new();
        for place in &plan.places {
            let held = place.is_loaded.then(|| {
                let held = self.value(Op::Load(place.at, place.access), place.ty);
                (self.function.new_value(place.ty), held)
            });
            now.push(held.map(|(phi, _)| Operand::Value(phi)));
            phis.push(held);
        }
        self.finish(enter, Terminator::Branch(fast));
        // The loop.
        let mut held: HashMap<ValueId, Operand> = HashMap::new();
        let named = |held: &HashMap<ValueId, Operand>, operand: Operand| match operand {
            Operand::Value(value) => {
                let copy = names.get(&value).map_or(operand, |&name| Operand::Value(name));
                held.get(&value).copied().unwrap_or(copy)
            }
            constant => constant,
        };
        let (mut heads, mut insts) = (Vec::new(), Vec::new());
        for inst in &source.insts {
            match (plan.place_of(self.module, self.function, inst), &inst.op, inst.result) {
                (Some(number), &Op::Store(_, value, _), _) => {
                    now[number] = Some(named(&held, value));
                    continue;
                }
                (Some(number), _, Some(result)) => {
                    held.extend(now[number].map(|value| (result, value)));
                    continue;
                }
                _ => {}
            }
            let mut new = inst.clone();
            new.result = inst.result.map(|result| names[&result]);
            if let Op::Phi(_) = inst.op {
                heads.push(new);
                continue;
            }
            new.op.for_each_operand_mut(|operand| *operand = named(&held, *operand));
            insts.push(new);
        }
        for inst in &mut heads {
            inst.op.for_each_operand_mut(|operand| *operand = named(&held, *operand));
            let Op::Phi(arms) = &mut inst.op else { continue };
            let from = |id: BlockId| if id == plan.header { fast } else { enter };
            arms.iter_mut().for_each(|arm| arm.0 = from(arm.0));
        }
        for (phi, last) in phis.iter().zip(&now) {
            let &Some((phi, first)) = phi else { continue };
            let arms = vec![(enter, first), (fast, last.unwrap_or(first))];
            let (op, flags) = (Op::Phi(arms), Flags::empty());
            heads.push(Inst { result: Some(phi), op, flags, loc: self.loc });
        }
        heads.append(&mut insts);
        let mut terminator = source.terminator.clone();
        terminator.for_each_operand_mut(|operand| *operand = named(&held, *operand));
        terminator.for_each_successor_mut(|next| {
            *next = if *next == plan.header { fast } else { leave };
        });
        self.function.blocks[fast].insts = heads;
        self.function.blocks[fast].terminator = terminator;
        for (place, value) in plan.places.iter().zip(now) {
            let Some(value) = value else { continue };
            let (op, flags) = (Op::Store(place.at, value, place.access), Flags::empty());
            self.insts.push(Inst { result: None, op, flags, loc: place.loc });
        }
        self.finish(leave, Terminator::Branch(behind));
        self.join(plan, (fast, leave, behind), |value| named(&held, Operand::Value(value)));
        self.function.blocks[plan.entry].terminator.for_each_successor_mut(|next| {
            if *next == plan.header {
                *next = count;
            }
        });
        self.function.blocks[plan.header].redirect_phis(plan.entry, slow);
    }

    /// The code behind uses the values of either loop.
    fn join(
        &mut self,
        plan: &Plan,
        (fast, leave, behind): (BlockId, BlockId, BlockId),
        copy: impl Fn(ValueId) -> Operand,
    ) {
        self.function.blocks[plan.after].redirect_phis(plan.header, behind);
        let blocks: Vec<BlockId> = self.function.blocks.ids().collect();
        let (mut used, mut order) = (HashMap::new(), Vec::new());
        for id in blocks {
            if [plan.header, fast, leave].contains(&id) {
                continue;
            }
            let mut block = std::mem::replace(
                &mut self.function.blocks[id],
                Block { insts: Vec::new(), terminator: Terminator::Unreachable, loc: self.loc },
            );
            let mut rename = |operand: &mut Operand| {
                if let Operand::Value(value) = *operand
                    && plan.made.contains_key(&value)
                {
                    let name = *used.entry(value).or_insert_with(|| {
                        order.push(value);
                        let ty = self.function.values[value].ty;
                        self.function.new_value(ty)
                    });
                    *operand = Operand::Value(name);
                }
            };
            block.insts.iter_mut().for_each(|inst| inst.op.for_each_operand_mut(&mut rename));
            block.terminator.for_each_operand_mut(&mut rename);
            self.function.blocks[id] = block;
        }
        let phi = |value: ValueId| {
            let op = Op::Phi(vec![(plan.header, Operand::Value(value)), (leave, copy(value))]);
            Inst { result: Some(used[&value]), op, flags: Flags::empty(), loc: self.loc }
        };
        self.insts = order.into_iter().map(phi).collect();
        self.finish(behind, Terminator::Branch(plan.after));
        self.function.blocks[plan.header].terminator.for_each_successor_mut(|next| {
            if *next == plan.after {
                *next = behind;
            }
        });
    }

    /// Whether no place is among other accesses, or among other places.
    fn apart(&mut self, plan: &Plan, more: Operand) -> Operand {
        let long = self.module.types.int(64);
        let mut all = None;
        let mut ends: HashMap<usize, [Operand; 2]> = HashMap::new();
        let mut places = Vec::new();
        for place in &plan.places {
            let start = self.value(Op::Convert(ConvertOp::PtrToInt, place.at), long);
            let size = self.module.types.size(place.ty) as i64;
            places.push([start, self.ahead(start, size)]);
        }
        for &(a, b) in &plan.beside {
            self.test(places[a], places[b], &mut all);
        }
        for &(place, other) in &plan.tests {
            let ends = match ends.get(&other) {
                Some(&ends) => ends,
                None => {
                    let Other { at, bytes } = plan.others[other];
                    let places = [None, Some(more)].map(|more| {
                        let at = self.at(plan, at, more, &mut HashMap::new());
                        self.value(Op::Convert(ConvertOp::PtrToInt, at), long)
                    });
                    let [a, b] = places;
                    let least = self.value(Op::Binary(BinaryOp::UMin, a, b), long);
                    let most = self.value(Op::Binary(BinaryOp::UMax, a, b), long);
                    let both = [least, self.ahead(most, bytes)];
                    ends.insert(other, both);
                    both
                }
            };
            self.test(places[place], ends, &mut all);
        }
        let bool = self.module.types.bool();
        let all = all.unwrap_or_else(|| Operand::Const(self.module.const_int(bool, 1)));
        self.value(Op::Whole(all), bool)
    }

    fn test(&mut self, a: [Operand; 2], b: [Operand; 2], all: &mut Option<Operand>) {
        let bool = self.module.types.bool();
        let before = self.value(Op::Compare(CompareOp::ULe, a[1], b[0]), bool);
        let behind = self.value(Op::Compare(CompareOp::ULe, b[1], a[0]), bool);
        let apart = self.value(Op::Binary(BinaryOp::Or, before, behind), bool);
        *all = Some(match *all {
            None => apart,
            Some(all) => self.value(Op::Binary(BinaryOp::And, all, apart), bool),
        });
    }

    /// Whether that many turns are worth a test.
    fn many(&mut self, more: Operand) -> Operand {
        let [long, bool] = [self.module.types.int(64), self.module.types.bool()];
        let least = Operand::Const(self.module.const_int(long, LEAST_TURNS));
        let many = self.value(Op::Compare(CompareOp::UGe, more, least), bool);
        self.value(Op::Whole(many), bool)
    }

    /// The turns behind the first one, as 64 bits.
    fn more(&mut self, count: &Count) -> Operand {
        let long = self.module.types.int(64);
        let ty = self.module.operand_type(self.function, count.first);
        let narrow = self.module.types.scalar_bits(ty) < 64;
        let (from, to) =
            if count.shrinks { (count.bound, count.first) } else { (count.first, count.bound) };
        let op = match count.stays {
            CompareOp::SLt | CompareOp::SGt => ConvertOp::SExt,
            _ => ConvertOp::ZExt,
        };
        let one = |this: &mut Self, ty| Operand::Const(this.module.const_int(ty, 1));
        let left = if count.stays == CompareOp::Ne {
            // It wraps around as the number does.
            let all = self.value(Op::Binary(BinaryOp::Sub, to, from), ty);
            let one = one(self, ty);
            let left = self.value(Op::Binary(BinaryOp::Sub, all, one), ty);
            if narrow { self.value(Op::Convert(op, left), long) } else { left }
        } else {
            let [from, to] = [from, to].map(|end| match narrow {
                true => self.value(Op::Convert(op, end), long),
                false => end,
            });
            let all = self.value(Op::Binary(BinaryOp::Sub, to, from), long);
            let one = one(self, long);
            // A loop has a turn before it asks.
            let least =
                if op == ConvertOp::SExt || narrow { BinaryOp::SMax } else { BinaryOp::UMax };
            let all = self.value(Op::Binary(least, all, one), long);
            self.value(Op::Binary(BinaryOp::Sub, all, one), long)
        };
        if count.shift == 0 {
            return left;
        }
        let shift = Operand::Const(self.module.const_int(long, u64::from(count.shift)));
        self.value(Op::Binary(BinaryOp::LShr, left, shift), long)
    }

    /// A value of the loop in the first turn, or so many turns behind it.
    fn at(
        &mut self,
        plan: &Plan,
        operand: Operand,
        more: Option<Operand>,
        names: &mut HashMap<ValueId, Operand>,
    ) -> Operand {
        let Operand::Value(value) = operand else { return operand };
        let Some(inst) = plan.made.get(&value) else { return operand };
        if let Some(&name) = names.get(&value) {
            return name;
        }
        let ty = self.function.values[value].ty;
        let new = if let Op::Phi(arms) = &inst.op {
            let of = |from: BlockId| arms.iter().find(|arm| arm.0 == from).map(|arm| arm.1);
            let first = of(plan.entry).unwrap_or(operand);
            let next = match of(plan.header) {
                Some(Operand::Value(next)) => plan.made.get(&next).map(|inst| inst.op.clone()),
                _ => None,
            };
            match (more, next) {
                (Some(more), Some(Op::Address { offset, terms, .. })) => {
                    let long = self.module.types.int(64);
                    let mut moved = vec![(more, offset)];
                    for (term, by) in terms {
                        let from = self.module.operand_type(self.function, term);
                        let wide = match self.module.types.scalar_bits(from) < 64 {
                            true => self.value(Op::Convert(ConvertOp::SExt, term), long),
                            false => term,
                        };
                        let all = self.value(Op::Binary(BinaryOp::Mul, wide, more), long);
                        moved.push((all, by));
                    }
                    moved.retain(|&(_, by)| by != 0);
                    let op = Op::Address { base: first, offset: 0, terms: moved, inbounds: false };
                    self.value(op, ty)
                }
                (Some(more), Some(Op::Binary(_, _, by))) => {
                    let narrow = self.module.types.scalar_bits(ty) < 64;
                    let more = if narrow {
                        self.value(Op::Convert(ConvertOp::Trunc, more), ty)
                    } else {
                        more
                    };
                    let all = self.value(Op::Binary(BinaryOp::Mul, more, by), ty);
                    self.value(Op::Binary(BinaryOp::Add, first, all), ty)
                }
                _ => first,
            }
        } else {
            let mut op = inst.op.clone();
            let mut operands = Vec::new();
            op.for_each_operand(|operand| operands.push(operand));
            let copies: Vec<Operand> =
                operands.into_iter().map(|it| self.at(plan, it, more, names)).collect();
            let mut copies = copies.into_iter();
            op.for_each_operand_mut(|operand| {
                if let Some(copy) = copies.next() {
                    *operand = copy;
                }
            });
            // In front of the loop, nothing is promised.
            if let Op::Address { inbounds, .. } = &mut op {
                *inbounds = false;
            }
            self.value(op, ty)
        };
        names.insert(value, new);
        new
    }

    fn ahead(&mut self, from: Operand, by: i64) -> Operand {
        let long = self.module.types.int(64);
        let by = Operand::Const(self.module.const_int(long, by as u64));
        self.value(Op::Binary(BinaryOp::Add, from, by), long)
    }

    fn value(&mut self, op: Op, ty: TypeId) -> Operand {
        let result = self.function.new_value(ty);
        let (flags, loc) = (Flags::empty(), self.loc);
        self.insts.push(Inst { result: Some(result), op, flags, loc });
        Operand::Value(result)
    }

    /// Gives a block what has been written.
    fn finish(&mut self, block: BlockId, terminator: Terminator) {
        let insts = std::mem::take(&mut self.insts);
        self.function.blocks[block] = Block { insts, terminator, loc: self.loc };
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiles: a function that runs several rows of a group at once.
//!
//! A kernel that transposes a matrix has items side by side in the first dimension where it reads, and in the second
//! one where it writes. Whichever dimension a vector lies in, one of the accesses is a gather or a scatter, which takes
//! a cache line for each item. A tile of 16 x 16 items takes each line once. So such a kernel also has a function in
//! which the rows are the turns of a loop, along which each item of a vector walks:
//!
//! ```text
//!                                        if (all: x < w && y + 15 < h)
//!   if (x < w && y < h)                    for (r = 0; r < 16; r++)
//!     o[x * h + y] = a[y * w + x];  ──▶      o[x * h + y + r] = a[(y + r) * w + x];
//!                                        else
//!                                          for (r = 0; r < 16; r++)
//!                                            if (x < w && y + r < h)
//!                                              o[x * h + y + r] = a[(y + r) * w + x];
//! ```
//!
//! [`strips`] then takes the first of these loops as one strip. Its turns are items, whose accesses have no order, so
//! that nothing has to be known of the addresses. The function that runs a group calls it for as many rows as there
//! are (`lower/entry.rs`).

use std::collections::{HashMap, HashSet};

use super::costs::accesses;
use super::promises::{self, Promises};
use super::shape::Rows;
use super::strips::{self, Names, named};
use super::way::Way;
use crate::ir::{
    BinaryOp, Block, BlockId, CompareOp, ConvertOp, ENTRY, Flags, Function, Inst, Module, Op,
    Operand, Terminator, TypeId, UnaryOp, ValueId, WorkItemQuery,
};
use crate::optimise::is_skipped;

/// The name by which they are left out.
const NAME: &str = "tiles";

/// The rows of tiles, the most first. 16 floats of an item are a cache line. Groups of 8 x 8 that transpose take 0.21 of
/// the time with tiles of 8 rows, 0.52 with two of 4. Each function takes about as long to build as the kernel without.
pub(super) const HEIGHTS: [u32; 2] = [16, 8];

/// The most tests in front of a kernel's accesses.
const MOST_TESTS: usize = 6;

/// By how much accesses have to become cheaper: the kernel is built twice then.
const GAIN: u64 = 2;

/// A kernel that runs a tile, ready to be widened.
pub(super) struct Tile {
    /// Its rows.
    pub(super) height: u32,
    pub(super) function: Function,
    pub(super) way: Way,
    /// What has to hold in a group for the rows of items to be where the function takes them to be.
    pub(super) promises: Promises,
}

/// The function for tiles of so many rows of a kernel in which no item waits, if it is worth being built. `way` is the
/// kernel's.
pub(super) fn tile(
    module: &mut Module,
    source: &Function,
    way: &Way,
    steps: &[i64],
    height: u32,
) -> Option<Tile> {
    if is_skipped(NAME) || !source.variables.is_empty() {
        return None;
    }
    let chain = Chain::of(source)?;
    let (mut function, fast) = Builder::new(module, source, &chain, height)?.build();
    let tiled = Way::new(module, &function, Rows::Whole, steps).ok()?;
    let usual = accesses(module, source, way, chain.last, &HashSet::new());
    let of_rows: HashSet<ValueId> =
        function.blocks[fast].insts.iter().filter_map(|inst| inst.result).collect();
    let found =
        promises::find(module, &function, &tiled.flow, |value, _, _| of_rows.contains(&value));
    let known = (&found.extensions[..], height);
    let rows = strips::rows_of_tile(module, &function, &tiled, fast, known);
    if usual < GAIN * accesses(module, &function, &tiled, fast, &rows) {
        return None;
    }
    let apart = strips::take_tile(module, &mut function, &tiled, fast, known)?;
    let mut way = Way::new(module, &function, Rows::Whole, steps).ok()?;
    way.shapes.keep_apart(&apart);
    Some(Tile { height, function, way, promises: found.promises })
}

/// The blocks of a kernel that only tests, and then accesses memory.
struct Chain {
    /// The blocks but the last one, each with the condition to go on, and what that has to be.
    tests: Vec<(BlockId, Operand, bool)>,
    last: BlockId,
}

impl Chain {
    fn of(source: &Function) -> Option<Self> {
        let ends = |id: BlockId| {
            let Block { insts, terminator, .. } = &source.blocks[id];
            insts.is_empty() && matches!(terminator, Terminator::Return(None))
        };
        let (mut tests, mut here) = (Vec::new(), ENTRY);
        loop {
            match source.blocks[here].terminator {
                Terminator::CondBranch(condition, next, end) if ends(end) && !ends(next) => {
                    tests.push((here, condition, true));
                    here = next;
                }
                Terminator::CondBranch(condition, end, next) if ends(end) && !ends(next) => {
                    tests.push((here, condition, false));
                    here = next;
                }
                Terminator::Branch(end) if ends(end) => break,
                Terminator::Return(None) => break,
                _ => return None,
            }
            if tests.len() > MOST_TESTS {
                return None;
            }
        }
        let chain = Self { tests, last: here };
        chain.is_plain(source).then_some(chain)
    }

    /// Its blocks in their order.
    fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.tests.iter().map(|test| test.0).chain([self.last])
    }

    /// Whether the last block alone accesses memory, and what is in front of it may be computed before all tests.
    fn is_plain(&self, source: &Function) -> bool {
        let is_plain = |block: BlockId, inst: &Inst| match &inst.op {
            Op::WorkItem(WorkItemQuery::GlobalLinearId | WorkItemQuery::LocalLinearId, _) => false,
            // An address's divisor may be what a test keeps from being 0.
            Op::Binary(
                BinaryOp::UDiv | BinaryOp::SDiv | BinaryOp::URem | BinaryOp::SRem,
                _,
                by,
            ) => {
                matches!(by, Operand::Const(_))
            }
            Op::Assume(_) => true,
            Op::Load(_, access) | Op::Store(_, _, access) => block == self.last && !access.volatile,
            op => op.is_pure(),
        };
        self.blocks().all(|id| source.blocks[id].insts.iter().all(|inst| is_plain(id, inst)))
    }
}

/// A value of the kernel that counts rows: its place in the second dimension, or the low bits of that.
struct Row {
    value: ValueId,
    ty: TypeId,
}

struct Builder<'a> {
    module: &'a mut Module,
    source: &'a Function,
    chain: &'a Chain,
    height: u64,
    function: Function,
    /// The instructions of the chain, by result.
    made: HashMap<ValueId, &'a Inst>,
    rows: Vec<Row>,
    /// What differs from row to row.
    varies: HashSet<ValueId>,
}

impl<'a> Builder<'a> {
    fn new(
        module: &'a mut Module,
        source: &'a Function,
        chain: &'a Chain,
        height: u32,
    ) -> Option<Self> {
        let insts = || chain.blocks().flat_map(|id| &source.blocks[id].insts);
        let made = insts().filter_map(|inst| Some((inst.result?, inst))).collect();
        let (mut rows, mut varies) = (Vec::<Row>::new(), HashSet::new());
        for inst in insts() {
            let Some(value) = inst.result else { continue };
            let counts = match inst.op {
                Op::WorkItem(WorkItemQuery::GlobalId | WorkItemQuery::LocalId, 1) => true,
                Op::Convert(ConvertOp::Trunc, Operand::Value(of)) => {
                    rows.iter().any(|row| row.value == of)
                }
                _ => false,
            };
            if counts {
                rows.push(Row { value, ty: source.values[value].ty });
            }
            let mut differs = counts || matches!(inst.op, Op::Load(..));
            inst.op.for_each_operand(|operand| {
                differs |= matches!(operand, Operand::Value(it) if varies.contains(&it));
            });
            if differs {
                varies.insert(value);
            }
        }
        let mut function = source.clone();
        function.blocks = Default::default();
        let height = u64::from(height);
        let has_rows = !rows.is_empty();
        has_rows.then_some(Self { module, source, chain, height, function, made, rows, varies })
    }

    /// The function, and the block that is the loop over whole rows.
    fn build(mut self) -> (Function, BlockId) {
        let loc = self.source.loc;
        let block = || Block { insts: Vec::new(), terminator: Terminator::Return(None), loc };
        let [entry, fast, end] = [(); 3].map(|()| self.function.blocks.push(block()));
        debug_assert_eq!(entry, ENTRY, "the first block is the entry");
        let mut first = self.before_rows();
        let condition = self.condition(&mut first);
        let slow = match condition {
            Some(_) => self.function.blocks.push(block()),
            None => fast,
        };
        self.function.blocks[entry].terminator = match condition {
            Some(all) => Terminator::CondBranch(all, fast, slow),
            None => Terminator::Branch(fast),
        };
        self.function.blocks[entry].insts = first;
        self.whole_rows(entry, fast, end);
        if slow != fast {
            self.other_rows(entry, slow, end);
        }
        (self.function, fast)
    }

    /// What is the same for all rows, and where they begin.
    fn before_rows(&self) -> Vec<Inst> {
        let insts = self.chain.blocks().flat_map(|id| &self.source.blocks[id].insts);
        let begins = |value| self.rows.iter().any(|row| row.value == value);
        let same = insts.filter(|inst| {
            inst.result.is_some_and(|value| begins(value) || !self.varies.contains(&value))
        });
        same.map(|inst| Inst { result: inst.result, ..unconditional(inst) }).collect()
    }

    /// Whether all tests hold for all rows and items.
    fn condition(&mut self, insts: &mut Vec<Inst>) -> Option<Operand> {
        let bool = self.module.types.bool();
        let mut all = None;
        for row in 0..self.height {
            let mut names = Names::new();
            for index in 0..self.rows.len() {
                let Row { value, ty } = self.rows[index];
                let by = Operand::Const(self.module.const_int(ty, row));
                let op = Op::Binary(BinaryOp::Add, Operand::Value(value), by);
                names.insert(value, self.value(insts, op, ty));
            }
            for &(_, condition, when) in &self.chain.tests {
                let differs = matches!(condition, Operand::Value(it) if self.varies.contains(&it));
                if row > 0 && !differs {
                    continue;
                }
                let mut holds = self.copied(insts, condition, &mut names);
                if !when {
                    holds = self.value(insts, Op::Unary(UnaryOp::Not, holds), bool);
                }
                all = Some(match all {
                    Some(all) => self.value(insts, Op::Binary(BinaryOp::And, all, holds), bool),
                    None => holds,
                });
            }
        }
        all.map(|all| self.value(insts, Op::Whole(all), bool))
    }

    /// A value of a row, from what the tests are made of.
    fn copied(&mut self, insts: &mut Vec<Inst>, operand: Operand, names: &mut Names) -> Operand {
        let Operand::Value(value) = operand else { return operand };
        if let Some(&name) = names.get(&value) {
            return name;
        }
        let Some(&inst) = self.made.get(&value).filter(|_| self.varies.contains(&value)) else {
            return operand;
        };
        let mut new = unconditional(inst);
        let mut operands = Vec::new();
        inst.op.for_each_operand(|operand| operands.push(operand));
        let mut copies = Vec::with_capacity(operands.len());
        for operand in operands {
            copies.push(self.copied(insts, operand, names));
        }
        let mut copies = copies.into_iter();
        new.op.for_each_operand_mut(|operand| *operand = copies.next().unwrap_or(*operand));
        let name = self.function.new_value(self.source.values[value].ty);
        new.result = Some(name);
        insts.push(new);
        names.insert(value, Operand::Value(name));
        Operand::Value(name)
    }

    /// The loop without tests.
    fn whole_rows(&mut self, entry: BlockId, fast: BlockId, end: BlockId) {
        let (mut insts, mut names, counters) = self.begin(entry, fast);
        for id in self.chain.blocks() {
            self.row(&mut insts, id, &mut names);
        }
        self.function.blocks[fast].insts = insts;
        self.close(fast, fast, end, &counters);
    }

    /// The loop with the tests.
    fn other_rows(&mut self, entry: BlockId, slow: BlockId, end: BlockId) {
        let loc = self.source.loc;
        let block = || Block { insts: Vec::new(), terminator: Terminator::Return(None), loc };
        let latch = self.function.blocks.push(block());
        let (mut insts, mut names, counters) = self.begin(entry, latch);
        let mut here = slow;
        for &(id, condition, when) in &self.chain.tests {
            self.row(&mut insts, id, &mut names);
            let next = self.function.blocks.push(block());
            let condition = named(&names, condition);
            self.function.blocks[here].insts = std::mem::take(&mut insts);
            self.function.blocks[here].terminator = match when {
                true => Terminator::CondBranch(condition, next, latch),
                false => Terminator::CondBranch(condition, latch, next),
            };
            here = next;
        }
        self.row(&mut insts, self.chain.last, &mut names);
        self.function.blocks[here].insts = insts;
        self.function.blocks[here].terminator = Terminator::Branch(latch);
        self.close(latch, slow, end, &counters);
    }

    /// The beginning of a loop: its counters, one of each type that counts rows, and the names of what counts them.
    fn begin(&mut self, entry: BlockId, latch: BlockId) -> (Vec<Inst>, Names, Vec<Counter>) {
        let (mut insts, mut names, mut counters) =
            (Vec::new(), Names::new(), Vec::<Counter>::new());
        let long = self.module.types.int(64);
        for ty in [long].into_iter().chain(self.rows.iter().map(|row| row.ty)) {
            if counters.iter().any(|counter| counter.ty == ty) {
                continue;
            }
            let [turn, next] = [(); 2].map(|()| self.function.new_value(ty));
            let zero = Operand::Const(self.module.const_int(ty, 0));
            let op = Op::Phi(vec![(entry, zero), (latch, Operand::Value(next))]);
            insts.push(self.inst(Some(turn), op));
            counters.push(Counter { turn, next, ty });
        }
        for index in 0..self.rows.len() {
            let Row { value, ty } = self.rows[index];
            let Some(counter) = counters.iter().find(|counter| counter.ty == ty) else { continue };
            let turn = Operand::Value(counter.turn);
            let op = Op::Binary(BinaryOp::Add, Operand::Value(value), turn);
            names.insert(value, self.value(&mut insts, op, ty));
        }
        (insts, names, counters)
    }

    /// A block of the kernel for one row, but for what is the same in all.
    fn row(&mut self, insts: &mut Vec<Inst>, id: BlockId, names: &mut Names) {
        for inst in &self.source.blocks[id].insts {
            let is_same = |value| !self.varies.contains(&value) || names.contains_key(&value);
            if inst.result.is_some_and(is_same) || matches!(inst.op, Op::Assume(_)) {
                continue;
            }
            let mut new = inst.clone();
            new.op.for_each_operand_mut(|operand| *operand = named(names, *operand));
            if let Some(result) = inst.result {
                let name = self.function.new_value(self.source.values[result].ty);
                names.insert(result, Operand::Value(name));
                new.result = Some(name);
            }
            insts.push(new);
        }
    }

    /// The end of a loop: `latch` leads to its `header` until all rows have been taken.
    fn close(&mut self, latch: BlockId, header: BlockId, end: BlockId, counters: &[Counter]) {
        let mut insts = std::mem::take(&mut self.function.blocks[latch].insts);
        for counter in counters {
            let one = Operand::Const(self.module.const_int(counter.ty, 1));
            let op = Op::Binary(BinaryOp::Add, Operand::Value(counter.turn), one);
            insts.push(self.inst(Some(counter.next), op));
        }
        // The first counter is the one of 64 bits.
        let Counter { next, ty, .. } = counters[0];
        let (bool, most) = (self.module.types.bool(), self.module.const_int(ty, self.height));
        let op = Op::Compare(CompareOp::ULt, Operand::Value(next), Operand::Const(most));
        let again = self.value(&mut insts, op, bool);
        let terminator = Terminator::CondBranch(again, header, end);
        self.function.blocks[latch].insts = insts;
        self.function.blocks[latch].terminator = terminator;
    }

    fn inst(&self, result: Option<ValueId>, op: Op) -> Inst {
        Inst { result, op, flags: Flags::empty(), loc: self.source.loc }
    }

    fn value(&mut self, insts: &mut Vec<Inst>, op: Op, ty: TypeId) -> Operand {
        let result = self.function.new_value(ty);
        insts.push(self.inst(Some(result), op));
        Operand::Value(result)
    }
}

/// What counts the turns of a loop in a type.
struct Counter {
    turn: ValueId,
    next: ValueId,
    ty: TypeId,
}

/// An instruction that is computed although a test may fail that was in front of it.
fn unconditional(inst: &Inst) -> Inst {
    let mut new = inst.clone();
    for poison in [Flags::NNAN, Flags::NINF, Flags::NSW, Flags::NUW] {
        new.flags = new.flags.without(poison);
    }
    if let Op::Address { inbounds, .. } = &mut new.op {
        *inbounds = false;
    }
    new
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mathematical functions of a loop's counter and of what all items share: for several turns at once.
//!
//! `sincos(t * step)` in a loop over `t` is the same for all items, so widening leaves it a scalar, and one such
//! function can take longer than everything else that a vector of items does in a turn. But the turns are known
//! before they come: every 16th turn the function is computed for 16 turns as a vector, and each turn takes its
//! component.
//!
//! ```text
//!                                  header:
//!   header:                          t = phi 0, t + 1
//!     t = phi 0, t + 1               n = phi 0, n + 1
//!     angle = t * step      ──▶      if (n % 16 == 0)
//!     s = sin(angle)                   table = sin((t, t + 1, ..., t + 15) * step)
//!     ...                            s = table[n % 16]
//!                                    ...
//! ```
//!
//! A number in a vector has the result that it has alone, so results stay what they are. Turns that never come are
//! computed too: only operations without effects are done ahead. Functions in code that not every turn runs stay
//! where they are. This is a pass over what widening has written.

use std::collections::HashMap;

use crate::ir::arena::Id;
use crate::ir::{
    Access, AddressSpace, BinaryOp, Block, BlockId, CompareOp, ConstKind, ConvertOp, Definition,
    Dominators, Flags, Float, Function, Inst, Loc, Loops, MathOp, Module, Op, Operand,
    PrivateVariable, Terminator, Type, TypeId, ValueId, definitions,
};
use crate::optimise::is_skipped;
use crate::regions::stop_scope;

/// The name by which it is left out.
const NAME: &str = "ahead";

/// The turns that are computed at once: a vector of floats.
const TURNS: u32 = 16;

/// The alignment of a table in bytes: that of the longest vectors.
const ALIGN: u64 = 64;

/// The maximum number of instructions from the counter to the functions of a loop.
const MAX_CHAIN: usize = 64;

/// The maximum number of functions in a kernel: each has a table on the stack, or in the frame of a vector of items.
const MAX_FUNCTIONS: usize = 16;

/// Computes functions of a widened function's counters for several turns at once.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let is_scalar = |inst: &Inst| inst.result.is_some_and(|it| !is_vector(module, function, it));
    let has_any = insts.any(|inst| is_costly(&inst.op) && is_scalar(inst));
    drop(insts);
    if !has_any || is_skipped(NAME) {
        return;
    }
    let plans = Finder::new(module, function).find();
    for plan in plans {
        Writer { module, function, insts: Vec::new(), loc: Loc::default() }.write(&plan);
    }
}

/// Whether an operation is a function that takes longer than a test and a load.
fn is_costly(op: &Op) -> bool {
    matches!(op, Op::Math(op, _) if op.takes_vectors() && *op != MathOp::Rsqrt)
}

/// Whether a value is a vector, or consists of such.
fn is_vector(module: &Module, function: &Function, value: ValueId) -> bool {
    match &module.types[function.values[value].ty] {
        Type::Struct { members, .. } => members.iter().any(|&it| module.types.lanes(it) > 1),
        Type::Vector(..) => true,
        _ => false,
    }
}

/// A loop with functions that are computed ahead.
struct Plan {
    header: BlockId,
    /// The block that leads back to the header.
    latch: BlockId,
    /// The counters with their steps.
    counters: Vec<(ValueId, u64)>,
    /// The instructions that the functions need and the functions, each after those that it uses.
    chain: Vec<Inst>,
    functions: Vec<ValueId>,
}

struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    definitions: Vec<Option<Definition>>,
    predecessors: Vec<Vec<BlockId>>,
    dominators: Dominators,
    loops: Loops,
}

impl<'a> Finder<'a> {
    fn new(module: &'a Module, function: &'a Function) -> Self {
        let predecessors = function.predecessors();
        let dominators = Dominators::of(function, &predecessors);
        let loops = Loops::of(&dominators, &predecessors);
        let definitions = definitions(function);
        Self { module, function, definitions, predecessors, dominators, loops }
    }

    fn find(&self) -> Vec<Plan> {
        let mut left = MAX_FUNCTIONS;
        let mut plans = Vec::new();
        for index in 0..self.loops.all.len() {
            let plan = self.plan(index).filter(|plan| plan.functions.len() <= left);
            left -= plan.as_ref().map_or(0, |plan| plan.functions.len());
            plans.extend(plan);
        }
        plans
    }

    fn plan(&self, index: usize) -> Option<Plan> {
        let it = &self.loops.all[index];
        let &[latch] = it.latches.as_slice() else { return None };
        if self.predecessors[it.header.index()].len() != 2 {
            return None;
        }
        let (header, counters) = (it.header, Vec::new());
        let (chain, functions) = (Vec::new(), Vec::new());
        let mut plan = Plan { header, latch, counters, chain, functions };
        for (id, block) in self.function.blocks.iter() {
            let here = self.loops.within[id.index()] == Some(index);
            if !here || !self.dominators.dominates(id, latch) {
                continue;
            }
            for inst in block.insts.iter().filter(|inst| is_costly(&inst.op)) {
                let Some(result) = inst.result else { continue };
                let (counters, chain) = (plan.counters.len(), plan.chain.len());
                // What only depends on values from outside the loop is computed there, by LLVM.
                if self.follow(result, index, &mut plan) == Some(true) {
                    plan.functions.push(result);
                } else {
                    plan.counters.truncate(counters);
                    plan.chain.truncate(chain);
                }
            }
        }
        // Items that wait in the loop keep their values in frames.
        let blocks = self.function.blocks.ids().filter(|&id| self.loops.contains(index, id));
        let mut insts = blocks.flat_map(|id| &self.function.blocks[id].insts);
        let stops = insts.any(|inst| stop_scope(&inst.op).is_some());
        (!plan.functions.is_empty() && !stops).then_some(plan)
    }

    /// Adds what a value needs to a plan. Whether it depends on a counter; `None` if it cannot be known ahead.
    fn follow(&self, value: ValueId, index: usize, plan: &mut Plan) -> Option<bool> {
        let Some(Definition::Inst(block, place)) = self.definitions[value.index()] else {
            return Some(false);
        };
        if !self.loops.contains(index, block) {
            return Some(false);
        }
        let inst = &self.function.blocks[block].insts[place];
        let known = plan.chain.iter().any(|inst| inst.result == Some(value));
        if known || plan.counters.iter().any(|counter| counter.0 == value) {
            return Some(true);
        }
        if let Op::Phi(arms) = &inst.op {
            let step = self.step(value, arms, plan).filter(|_| block == plan.header)?;
            plan.counters.push((value, step));
            return Some(true);
        }
        if !self.may_be_ahead(inst, index) || plan.chain.len() >= MAX_CHAIN {
            return None;
        }
        let mut operands = Vec::new();
        inst.op.for_each_operand(|operand| operands.push(operand));
        let mut counts = false;
        for operand in operands {
            if let Operand::Value(operand) = operand {
                counts |= self.follow(operand, index, plan)?;
            }
        }
        // Also what does not count is in the loop, so it is computed once more for all turns.
        plan.chain.push(inst.clone());
        Some(counts)
    }

    /// The number that is added to a phi of the header in each turn.
    fn step(&self, phi: ValueId, arms: &[(BlockId, Operand)], plan: &Plan) -> Option<u64> {
        let &(_, Operand::Value(next)) = arms.iter().find(|arm| arm.0 == plan.latch)? else {
            return None;
        };
        let Some(Definition::Inst(block, place)) = self.definitions[next.index()] else {
            return None;
        };
        let phi = Operand::Value(phi);
        match self.function.blocks[block].insts[place].op {
            Op::Binary(BinaryOp::Add, a, Operand::Const(by)) if a == phi => {
                self.module.const_bits(by)
            }
            Op::Binary(BinaryOp::Sub, a, Operand::Const(by)) if a == phi => {
                self.module.const_bits(by).map(u64::wrapping_neg)
            }
            _ => None,
        }
    }

    /// Whether an instruction has a form for vectors that may run for turns that never come, and is no slower for
    /// them than for one.
    fn may_be_ahead(&self, inst: &Inst, index: usize) -> bool {
        let types = &self.module.types;
        let is_number = |ty: TypeId| match types[ty] {
            Type::Bool => true,
            Type::Int(bits) => bits >= 32,
            Type::Float(float) => matches!(float, Float::F32 | Float::F64),
            _ => false,
        };
        let mut numbers = true;
        inst.op.for_each_operand(|operand| {
            let ty = self.module.operand_type(self.function, operand);
            numbers &= is_number(ty) || matches!(inst.op, Op::Extract(..));
        });
        let Some(ty) = inst.result.map(|result| self.function.values[result].ty) else {
            return false;
        };
        use BinaryOp::{
            Add, And, FAdd, FDiv, FDivNear, FMax, FMin, FMul, FSub, Mul, Or, Shl, Sub, Xor,
        };
        match &inst.op {
            Op::Unary(..) | Op::Ternary(..) | Op::Compare(..) | Op::Select(..) => {
                numbers && is_number(ty)
            }
            Op::Binary(op, ..) => {
                let simple = matches!(
                    op,
                    Add | Sub
                        | Mul
                        | And
                        | Or
                        | Xor
                        | Shl
                        | FAdd
                        | FSub
                        | FMul
                        | FDiv
                        | FDivNear
                        | FMin
                        | FMax
                );
                simple && numbers && is_number(ty)
            }
            Op::Convert(op, _) => {
                use ConvertOp::{FToF, SExt, SToF, Trunc, UToF, ZExt};
                let simple = matches!(op, FToF | SExt | SToF | Trunc | UToF | ZExt);
                simple && numbers && is_number(ty)
            }
            Op::Math(op, _) => op.takes_vectors() && numbers && parts(self.module, ty).is_some(),
            // A part of a function's results.
            Op::Extract(Operand::Value(of), path) => {
                let made = self.definitions[of.index()];
                let Some(Definition::Inst(block, place)) = made else { return false };
                let op = &self.function.blocks[block].insts[place].op;
                let here = self.loops.contains(index, block);
                here && matches!(op, Op::Math(..)) && path.len() == 1 && is_number(ty)
            }
            _ => false,
        }
    }
}

/// The types of a function's results, if these are floats.
fn parts(module: &Module, ty: TypeId) -> Option<Vec<TypeId>> {
    let parts = match &module.types[ty] {
        Type::Struct { members, .. } => members.clone(),
        _ => vec![ty],
    };
    let is_float = |&it: &TypeId| matches!(module.types[it], Type::Float(Float::F32 | Float::F64));
    parts.iter().all(is_float).then_some(parts)
}

struct Writer<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    /// The block that is written.
    insts: Vec<Inst>,
    loc: Loc,
}

impl Writer<'_> {
    fn write(mut self, plan: &Plan) {
        self.loc = self.function.blocks[plan.header].loc;
        // The tables of each function.
        let mut tables: HashMap<ValueId, Vec<(ValueId, TypeId)>> = HashMap::new();
        for &result in &plan.functions {
            let ty = self.function.values[result].ty;
            let parts = parts(self.module, ty).unwrap_or_default();
            let tables_of = parts.into_iter().map(|part| (self.table(part), part)).collect();
            tables.insert(result, tables_of);
        }
        let [fill, rest] = [(); 2].map(|()| {
            let terminator = Terminator::Unreachable;
            self.function.blocks.push(Block { insts: Vec::new(), terminator, loc: self.loc })
        });
        let turn = self.split(plan, fill, rest);
        // The functions are loads from their tables from now on.
        for id in self.function.blocks.ids() {
            let found = |inst: &Inst| inst.result.and_then(|it| tables.get(&it));
            if !self.function.blocks[id].insts.iter().any(|inst| found(inst).is_some()) {
                continue;
            }
            for mut inst in std::mem::take(&mut self.function.blocks[id].insts) {
                if let Some(tables) = found(&inst) {
                    self.loc = inst.loc;
                    inst.op = self.read(tables, turn);
                    inst.flags = Flags::empty();
                }
                self.insts.push(inst);
            }
            self.function.blocks[id].insts = std::mem::take(&mut self.insts);
        }
        self.fill(plan, &tables);
        let block = &mut self.function.blocks[fill];
        (block.insts, block.terminator) =
            (std::mem::take(&mut self.insts), Terminator::Branch(rest));
    }

    /// Ends the header behind its phis: there it goes on to `fill` in every so many turns, and else to the rest of
    /// it. The turn's place in a table.
    fn split(&mut self, plan: &Plan, fill: BlockId, rest: BlockId) -> Operand {
        let (int, bool) = (self.module.types.int(32), self.module.types.bool());
        let [zero, one, last] =
            [0, 1, u64::from(TURNS - 1)].map(|n| Operand::Const(self.module.const_int(int, n)));
        for (_, block) in self.function.blocks.iter_mut() {
            block.redirect_phis(plan.header, rest);
        }
        let header = &mut self.function.blocks[plan.header];
        let phis = header.phis().count();
        let behind = header.insts.split_off(phis);
        let terminator = std::mem::replace(&mut header.terminator, Terminator::Unreachable);
        let loc = header.loc;
        self.insts = std::mem::take(&mut header.insts);
        self.function.blocks[rest] = Block { insts: behind, terminator, loc };
        let latch = if plan.latch == plan.header { rest } else { plan.latch };
        // The block in front may be the rest of another header by now. There is a counter, so a phi.
        let arms = self.insts.iter().find_map(|inst| match &inst.op {
            Op::Phi(arms) => Some(arms.clone()),
            _ => None,
        });
        let number = self.function.new_value(int);
        let next = self.function.new_value(int);
        let arms = arms
            .unwrap_or_default()
            .into_iter()
            .map(|(from, _)| (from, if from == latch { Operand::Value(next) } else { zero }));
        let (flags, op) = (Flags::empty(), Op::Phi(arms.collect()));
        self.insts.push(Inst { result: Some(number), op, flags, loc });
        let number = Operand::Value(number);
        let op = Op::Binary(BinaryOp::Add, number, one);
        self.insts.push(Inst { result: Some(next), op, flags, loc });
        let turn = self.value(Op::Binary(BinaryOp::And, number, last), int);
        let first = self.value(Op::Compare(CompareOp::Eq, turn, zero), bool);
        let header = &mut self.function.blocks[plan.header];
        header.insts = std::mem::take(&mut self.insts);
        header.terminator = Terminator::CondBranch(first, fill, rest);
        turn
    }

    /// A private variable for a result of all turns.
    fn table(&mut self, part: TypeId) -> ValueId {
        let ty = self.vector(part);
        let size = self.module.types.size(ty);
        let pointer = self.module.types.pointer(AddressSpace::Private);
        let address = self.function.new_value(pointer);
        let align = ALIGN.min(size);
        self.function.variables.push(PrivateVariable { address, ty, size, align, init: None });
        address
    }

    /// Reads the results of a turn from their tables: the operation that stands for the function.
    fn read(&mut self, tables: &[(ValueId, TypeId)], turn: Operand) -> Op {
        let mut loads = Vec::new();
        for &(table, part) in tables {
            let size = self.module.types.size(part);
            let terms = vec![(turn, size as i64)];
            let pointer = self.module.types.pointer(AddressSpace::Private);
            let base = Operand::Value(table);
            let at = self.value(Op::Address { base, offset: 0, terms, inbounds: true }, pointer);
            let access = Access { align: size as u32, volatile: false, nontemporal: false };
            loads.push((Op::Load(at, access), part));
        }
        match <[_; 1]>::try_from(loads) {
            Ok([(load, _)]) => load,
            Err(loads) => {
                let parts = loads.into_iter().map(|(load, part)| self.value(load, part)).collect();
                Op::Construct(parts)
            }
        }
    }

    /// Computes the functions for the next turns and writes them to their tables.
    fn fill(&mut self, plan: &Plan, tables: &HashMap<ValueId, Vec<(ValueId, TypeId)>>) {
        let mut names: HashMap<ValueId, Operand> = HashMap::new();
        for &(counter, step) in &plan.counters {
            let element = self.function.values[counter].ty;
            let ty = self.vector(element);
            let turns = (0..u64::from(TURNS))
                .map(|turn| self.module.const_int(element, turn.wrapping_mul(step)))
                .collect();
            let turns = Operand::Const(self.module.constant(ty, ConstKind::Composite(turns)));
            let now = self.value(Op::Splat(Operand::Value(counter)), ty);
            let all = self.value(Op::Binary(BinaryOp::Add, now, turns), ty);
            names.insert(counter, all);
        }
        for inst in &plan.chain {
            let Some(result) = inst.result else { continue };
            self.loc = inst.loc;
            let mut op = inst.op.clone();
            op.for_each_operand_mut(|operand| {
                let name = match operand {
                    Operand::Value(value) => names.get(value).copied(),
                    Operand::Const(_) => None,
                };
                *operand = name.unwrap_or_else(|| {
                    let ty = self.module.operand_type(self.function, *operand);
                    let ty = self.vector(ty);
                    self.value(Op::Splat(*operand), ty)
                });
            });
            let ty = self.vectors(self.function.values[result].ty);
            // A turn that never comes may be anything.
            let promises = [Flags::NSW, Flags::NUW, Flags::NNAN, Flags::NINF];
            let promises = promises.into_iter().fold(Flags::empty(), Flags::union);
            let vector = self.function.new_value(ty);
            let flags = inst.flags.without(promises);
            self.insts.push(Inst { result: Some(vector), op, flags, loc: self.loc });
            names.insert(result, Operand::Value(vector));
            let Some(tables) = tables.get(&result) else { continue };
            for (number, &(table, part)) in (0..).zip(tables) {
                let mut value = Operand::Value(vector);
                let ty = self.vector(part);
                if tables.len() > 1 {
                    value = self.value(Op::Extract(value, vec![number]), ty);
                }
                let align = ALIGN.min(self.module.types.size(ty)) as u32;
                let access = Access { align, volatile: false, nontemporal: false };
                let op = Op::Store(Operand::Value(table), value, access);
                let (flags, loc) = (Flags::empty(), self.loc);
                self.insts.push(Inst { result: None, op, flags, loc });
            }
        }
    }

    /// The type of a value of all turns.
    fn vectors(&mut self, ty: TypeId) -> TypeId {
        match self.module.types[ty].clone() {
            Type::Struct { members, packed } => {
                let members = members.into_iter().map(|member| self.vector(member)).collect();
                self.module.types.intern(Type::Struct { members, packed }).unwrap_or(ty)
            }
            _ => self.vector(ty),
        }
    }

    /// A vector of scalars, which is far below the limit on sizes.
    fn vector(&mut self, element: TypeId) -> TypeId {
        self.module.types.intern(Type::Vector(element, TURNS)).unwrap_or(element)
    }

    fn value(&mut self, op: Op, ty: TypeId) -> Operand {
        let result = self.function.new_value(ty);
        let (flags, loc) = (Flags::empty(), self.loc);
        self.insts.push(Inst { result: Some(result), op, flags, loc });
        Operand::Value(result)
    }
}

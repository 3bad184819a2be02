// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns private variables into values, with phis where several values may arrive.
//!
//! ```text
//!   %1 = private f32x4                    branch ...
//!   store %1, %5                   ──▶    %8: f32x4 = phi bb1: %5, bb2: %7
//!   ...                                   ... %8 ...
//!   %6: f32x4 = load %1
//! ```
//!
//! Phis are placed at the dominance frontiers of writes where the value is still read (Cytron and
//! others, "Efficiently computing static single assignment form", 1991). A read before any write is
//! undefined.

use std::collections::HashMap;

use super::slots::{Slot, Slots, Traffic};
use super::units::Unit;
use crate::ir::eval::apply;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, ConstKind, ConvertOp, Dominators, ENTRY, Flags, Function, Id,
    Inst, Loc, Module, Op, Operand, Type, TypeId, ValueId,
};

/// The maximum of slots times blocks: a bound on the time that one function takes.
const MAX_WORK: usize = 1 << 20;

/// Replaces the variables of a function whose blocks can all be reached.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    replace(module, function, &[]);
}

/// The same for variables that are written before they are read, on each way through the function.
pub(super) fn run_for_written(module: &mut Module, function: &mut Function) {
    let slots = Slots::find(module, function, MAX_WORK / function.blocks.len().max(1), &[]);
    let unwritten = unwritten(module, function, &slots);
    replace(module, function, &unwritten);
}

/// Whether a variable may be read before it is written, by index.
fn unwritten(module: &Module, function: &Function, slots: &Slots) -> Vec<bool> {
    let mut unwritten = vec![false; function.variables.len()];
    let traffic = Traffic::new(module, function, slots);
    let predecessors = function.predecessors();
    let count = function.blocks.len();
    let (mut live, mut written) = (vec![0; count], vec![0; count]);
    for (slot, info) in slots.all.iter().enumerate() {
        mark_live(&traffic, &predecessors, slot, &mut live, &mut written);
        let at_entry = live[ENTRY.index()] == slot + 1;
        let starts = function.variables[info.variable].init.is_some();
        unwritten[info.variable] |= at_entry && !starts;
    }
    unwritten
}

/// Replaces all variables but those that are left out, by index.
fn replace(module: &mut Module, function: &mut Function, left_out: &[bool]) {
    if function.variables.is_empty() {
        return;
    }
    let limit = MAX_WORK / function.blocks.len().max(1);
    let slots = Slots::find(module, function, limit, left_out);
    if !slots.chosen.contains(&true) {
        return;
    }
    let predecessors = function.predecessors();
    let dominators = Dominators::of(function, &predecessors);
    let phis = place(module, function, &slots, &predecessors, &dominators);
    let current = slots.all.iter().map(|slot| start(module, slot)).collect();
    let mut renamer = Renamer {
        module,
        function,
        slots: &slots,
        phis,
        arms: HashMap::new(),
        current,
        old: Vec::new(),
        replaced: HashMap::new(),
        out: Vec::new(),
        loc: Loc::default(),
    };
    renamer.walk(&dominators);
    renamer.finish();
    let mut index = 0;
    function.variables.retain(|_| {
        index += 1;
        !slots.chosen[index - 1]
    });
}

/// The value of a slot before the first write.
fn start(module: &mut Module, slot: &Slot) -> Operand {
    // The value of parts that were never written does not matter beside those that were.
    let kind = if slot.shared { ConstKind::Null } else { ConstKind::Undef };
    Operand::Const(module.constant(slot.ty, kind))
}

/// For each block, the slots that need a phi there, with the phi's result.
fn place(
    module: &Module,
    function: &mut Function,
    slots: &Slots,
    predecessors: &[Vec<BlockId>],
    dominators: &Dominators,
) -> Vec<Vec<(usize, ValueId)>> {
    let traffic = Traffic::new(module, function, slots);
    let frontiers = dominators.frontiers(predecessors);
    let count = function.blocks.len();
    let mut phis = vec![Vec::new(); count];
    // For each block, the last slot that was found to be live at its start, to have a phi there, to be
    // written there; from 1.
    let (mut live, mut placed, mut written) = (vec![0; count], vec![0; count], vec![0; count]);
    for (slot, info) in slots.all.iter().enumerate() {
        let mark = slot + 1;
        mark_live(&traffic, predecessors, slot, &mut live, &mut written);
        let mut work = traffic.writes[slot].clone();
        while let Some(block) = work.pop() {
            for &join in &frontiers[block.index()] {
                if live[join.index()] == mark && placed[join.index()] != mark {
                    placed[join.index()] = mark;
                    let name =
                        function.values[function.variables[info.variable].address].name.clone();
                    let result = function.new_value(info.ty);
                    function.values[result].name = name;
                    phis[join.index()].push((slot, result));
                    work.push(join);
                }
            }
        }
    }
    phis
}

/// Marks the blocks at whose start a slot's earlier value may still be read, and those that write it,
/// with the slot's number from 1.
fn mark_live(
    traffic: &Traffic,
    predecessors: &[Vec<BlockId>],
    slot: usize,
    live: &mut [usize],
    written: &mut [usize],
) {
    let mark = slot + 1;
    traffic.writes[slot].iter().for_each(|block| written[block.index()] = mark);
    let mut work = traffic.reads[slot].clone();
    work.iter().for_each(|block| live[block.index()] = mark);
    while let Some(block) = work.pop() {
        for &before in &predecessors[block.index()] {
            if written[before.index()] != mark && live[before.index()] != mark {
                live[before.index()] = mark;
                work.push(before);
            }
        }
    }
}

/// Traverses the blocks with the current values of the slots.
struct Renamer<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    slots: &'a Slots,
    phis: Vec<Vec<(usize, ValueId)>>,
    /// For each phi, the values that arrive.
    arms: HashMap<ValueId, Vec<(BlockId, Operand)>>,
    /// For each slot, its value here.
    current: Vec<Operand>,
    /// The previous values of slots, the latest one last.
    old: Vec<(usize, Operand)>,
    /// The values of removed loads.
    replaced: HashMap<ValueId, Operand>,
    /// The instructions of the block.
    out: Vec<Inst>,
    loc: Loc,
}

impl Renamer<'_> {
    /// All blocks, each behind those that dominate it.
    fn walk(&mut self, dominators: &Dominators) {
        let mut stack = vec![(ENTRY, 0, 0)];
        while let Some((block, next, mark)) = stack.last_mut() {
            if *next == 0 {
                *mark = self.old.len();
                self.block(*block);
            }
            let child = dominators.children(*block).get(*next).copied();
            *next += 1;
            if let Some(child) = child {
                stack.push((child, 0, 0));
                continue;
            }
            for (slot, operand) in self.old.drain(*mark..).rev() {
                self.current[slot] = operand;
            }
            stack.pop();
        }
    }

    fn set(&mut self, slot: usize, value: Operand) {
        let old = std::mem::replace(&mut self.current[slot], value);
        self.old.push((slot, old));
    }

    fn block(&mut self, id: BlockId) {
        for (slot, result) in self.phis[id.index()].clone() {
            self.set(slot, Operand::Value(result));
        }
        let insts = std::mem::take(&mut self.function.blocks[id].insts);
        self.out = Vec::with_capacity(insts.len());
        if id == ENTRY {
            self.initialise();
        }
        for inst in insts {
            self.loc = inst.loc;
            self.inst(inst);
        }
        self.function.blocks[id].insts = std::mem::take(&mut self.out);
        let mut next = self.function.blocks[id].terminator.successors();
        next.sort();
        next.dedup();
        for next in next {
            for &(slot, result) in &self.phis[next.index()] {
                let arms = self.arms.entry(result).or_default();
                arms.push((id, self.current[slot]));
            }
        }
    }

    /// Sets the initial values of the variables.
    fn initialise(&mut self) {
        for index in 0..self.function.variables.len() {
            let init = self.function.variables[index].init.filter(|_| self.slots.chosen[index]);
            let Some(init) = init else { continue };
            if self.module.constants[init].kind == ConstKind::Null {
                for slot in self.slots.of(index) {
                    let zero = self.module.constant(self.slots.all[slot].ty, ConstKind::Null);
                    self.set(slot, Operand::Const(zero));
                }
            } else {
                let ty = self.function.variables[index].ty;
                self.store(index, Operand::Const(init), &mut Vec::new(), ty, 0);
            }
        }
    }

    fn inst(&mut self, inst: Inst) {
        let place = |operand: Operand| match operand {
            Operand::Value(value) => self.slots.addresses.get(&value).copied(),
            Operand::Const(_) => None,
        };
        if inst.result.is_some_and(|result| self.slots.addresses.contains_key(&result)) {
            return;
        }
        match inst.op {
            Op::Load(at, _) if place(at).is_some() => {
                let (Some((variable, offset)), Some(result)) = (place(at), inst.result) else {
                    return;
                };
                let ty = self.function.values[result].ty;
                let value = self.load(variable, ty, offset);
                self.replaced.insert(result, value);
            }
            Op::Store(at, value, _) if place(at).is_some() => {
                let Some((variable, offset)) = place(at) else { return };
                let value = self.resolved(value);
                let ty = self.module.operand_type(self.function, value);
                self.store(variable, value, &mut Vec::new(), ty, offset);
            }
            _ => self.out.push(inst),
        }
    }

    fn resolved(&self, operand: Operand) -> Operand {
        match operand {
            Operand::Value(value) => self.replaced.get(&value).copied().unwrap_or(operand),
            Operand::Const(_) => operand,
        }
    }

    /// Adds an instruction, or returns the constant that it would produce.
    fn make(&mut self, op: Op, ty: TypeId) -> Operand {
        let mut constants = Some(Vec::new());
        op.for_each_operand(|operand| match (operand, &mut constants) {
            (Operand::Const(id), Some(list)) => list.push(id),
            _ => constants = None,
        });
        if let Some(constants) = constants
            && let Some(constant) = apply(self.module, &op, ty, &constants)
        {
            return Operand::Const(constant);
        }
        let result = self.function.new_value(ty);
        let flags = Flags::empty();
        self.out.push(Inst { result: Some(result), op, flags, loc: self.loc });
        Operand::Value(result)
    }

    /// The types and offsets of the parts of a composite; `None` of scalars.
    fn parts(&self, ty: TypeId) -> Option<Vec<(TypeId, u64)>> {
        let types = &self.module.types;
        let in_row = |element: TypeId, n: u64| {
            let stride = types.stride(element);
            (0..n).map(|i| (element, i * stride)).collect()
        };
        match &types[ty] {
            Type::Vector(element, n) => Some(in_row(*element, u64::from(*n))),
            Type::Array(element, n) => Some(in_row(*element, *n)),
            Type::Struct { members, .. } => {
                let at = |i| types.member_offset(ty, i).unwrap_or(0);
                Some((0..).zip(members).map(|(i, &member)| (member, at(i))).collect())
            }
            _ => None,
        }
    }

    /// The slot whose whole value a scalar or vector is, or of which a scalar is a part.
    fn slot_of(&self, variable: usize, ty: TypeId, offset: u64) -> Option<usize> {
        let unit = Unit::new(&self.module.types, ty, offset);
        let slot = self.slots.within(variable, unit.offset, unit.end()).next()?;
        let info = &self.slots.all[slot];
        let whole = (info.start, info.end) == (unit.offset, unit.end());
        let vector = self.module.types.lanes(ty) > 1;
        ((whole && info.ty == ty) || !vector).then_some(slot)
    }

    fn load(&mut self, variable: usize, ty: TypeId, offset: u64) -> Operand {
        let composite = matches!(self.module.types[ty], Type::Array(..) | Type::Struct { .. });
        if !composite && let Some(slot) = self.slot_of(variable, ty, offset) {
            let Slot { start, ty: slot_ty, shared, .. } = self.slots.all[slot];
            let value = self.current[slot];
            if !shared {
                return self.reinterpret(value, slot_ty, ty);
            }
            let part = self.part_type(ty);
            let bits = self.module.const_int(slot_ty, 8 * (offset - start));
            let op = Op::Binary(BinaryOp::LShr, value, Operand::Const(bits));
            let moved = if offset == start { value } else { self.make(op, slot_ty) };
            let cut = match part == slot_ty {
                true => moved,
                false => self.make(Op::Convert(ConvertOp::Trunc, moved), part),
            };
            return self.reinterpret(cut, part, ty);
        }
        let parts = self.parts(ty).unwrap_or_default();
        let mut values = Vec::with_capacity(parts.len());
        for (part, at) in parts {
            values.push(self.load(variable, part, offset + at));
        }
        if values.is_empty() {
            return Operand::Const(self.module.constant(ty, ConstKind::Undef));
        }
        self.make(Op::Construct(values), ty)
    }

    /// Stores the part of a value at a path.
    fn store(&mut self, variable: usize, value: Operand, path: &mut Vec<u32>, ty: TypeId, to: u64) {
        let composite = matches!(self.module.types[ty], Type::Array(..) | Type::Struct { .. });
        if !composite && let Some(slot) = self.slot_of(variable, ty, to) {
            let Slot { start, ty: slot_ty, shared, .. } = self.slots.all[slot];
            let part = match path.is_empty() {
                true => value,
                false => self.make(Op::Extract(value, path.clone()), ty),
            };
            let new = match shared {
                false => self.reinterpret(part, ty, slot_ty),
                true => self.merged(self.current[slot], slot_ty, part, ty, to - start),
            };
            self.set(slot, new);
            return;
        }
        for (i, (part, at)) in (0..).zip(self.parts(ty).unwrap_or_default()) {
            path.push(i);
            self.store(variable, value, path, part, to + at);
            path.pop();
        }
    }

    /// An integer with some of its bytes replaced by a scalar.
    fn merged(
        &mut self,
        old: Operand,
        ty: TypeId,
        value: Operand,
        value_ty: TypeId,
        at: u64,
    ) -> Operand {
        let part = self.part_type(value_ty);
        let value = self.reinterpret(value, value_ty, part);
        if part == ty {
            return value;
        }
        let bits = self.module.types.scalar_bits(part);
        let mask = (u64::MAX >> (64 - bits)) << (8 * at);
        let others = Operand::Const(self.module.const_int(ty, !mask));
        let shift = Operand::Const(self.module.const_int(ty, 8 * at));
        let kept = self.make(Op::Binary(BinaryOp::And, old, others), ty);
        let wide = self.make(Op::Convert(ConvertOp::ZExt, value), ty);
        let moved = self.make(Op::Binary(BinaryOp::Shl, wide, shift), ty);
        self.make(Op::Binary(BinaryOp::Or, kept, moved), ty)
    }

    /// The integer type of a scalar's size in memory.
    fn part_type(&mut self, ty: TypeId) -> TypeId {
        let bits = self.module.types.size(ty) as u32 * 8;
        self.module.types.int(bits)
    }

    /// The same bytes in memory as another scalar type of that size.
    fn reinterpret(&mut self, value: Operand, from: TypeId, to: TypeId) -> Operand {
        if from == to {
            return value;
        }
        let int = self.part_type(from);
        let kinds = (&self.module.types[from], &self.module.types[to]);
        if let (Type::Pointer(_), Type::Pointer(_)) = kinds {
            return self.make(Op::Convert(ConvertOp::PtrCast, value), to);
        }
        let one = Operand::Const(self.module.const_int(int, 1));
        let zero = Operand::Const(self.module.const_int(int, 0));
        let bits = match self.module.types[from] {
            Type::Int(_) => value,
            Type::Bool => self.make(Op::Select(value, one, zero), int),
            Type::Pointer(_) => self.make(Op::Convert(ConvertOp::PtrToInt, value), int),
            _ => self.make(Op::Convert(ConvertOp::Bitcast, value), int),
        };
        match self.module.types[to] {
            Type::Int(_) => bits,
            Type::Bool => self.make(Op::Compare(CompareOp::Ne, bits, zero), to),
            Type::Pointer(_) => self.make(Op::Convert(ConvertOp::IntToPtr, bits), to),
            _ => self.make(Op::Convert(ConvertOp::Bitcast, bits), to),
        }
    }

    /// Writes the phis, and replaces the uses of removed loads.
    fn finish(self) {
        let Self { function, phis, mut arms, replaced, .. } = self;
        for (id, own) in function.blocks.ids().zip(phis) {
            let block = &mut function.blocks[id];
            let loc = block.loc;
            let insts = own.into_iter().map(|(_, result)| {
                let mut incoming = arms.remove(&result).unwrap_or_default();
                incoming.sort_by_key(|&(from, _)| from);
                Inst { result: Some(result), op: Op::Phi(incoming), flags: Flags::empty(), loc }
            });
            block.insts.splice(0..0, insts);
        }
        super::rename::rename(function, &replaced);
    }
}

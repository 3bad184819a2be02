// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes instructions without a vector form for one item after the other.

use super::costs::FORWARDED;
use super::emit::{Widener, is_pointer};
use super::refusal::Refusal;
use super::shape::{Rows, Shape};
use crate::ir::arena::Id;
use crate::ir::{
    Access, AddressSpace, BinaryOp, BlockId, CompareOp, ConvertOp, Flags, Inst, Op, Operand,
    Terminator, Type, TypeId, UnaryOp,
};
use crate::optimise::is_skipped;

/// The name by which loops over updates of local memory are left out.
const NAME: &str = "local-updates";

/// A block that is being written, and the number of writes to memory before.
type Moment = (BlockId, u32);

/// The maximum number of operations between a load and a value that is recomputed for each item.
const RELOADED_STEPS: u32 = 2;
/// The maximum number of steps of an address that are recomputed for each item.
const ADDRESS_STEPS: u32 = 3;

/// The items' values of an operand.
#[derive(Clone)]
enum Part {
    /// The same for all.
    One(Operand),
    /// An integer or a pointer: the first item's, and the step to the next one's.
    Steps(Operand, i64),
    /// A vector for each scalar in values of a type.
    Vectors(TypeId, Vec<Operand>),
}

/// How an item's value is found by the item's number.
enum Numbered {
    /// The same for all.
    One(Operand),
    /// The first item's, and the step to the next one's.
    Steps(Operand, i64),
    /// A value of a type, of these scalars.
    Parts(TypeId, Vec<Numbered>),
    /// The component of a vector in memory, of this type.
    Stored(Operand, TypeId),
    Address {
        base: Box<Numbered>,
        offset: i64,
        terms: Vec<(Numbered, i64)>,
        ty: TypeId,
    },
    Convert(ConvertOp, Box<Numbered>, TypeId),
}

/// The items' operands of an instruction, and when they were asked for.
pub(super) struct Parts {
    parts: Vec<Part>,
    at: Moment,
}

impl Widener<'_> {
    /// Executes an operation for each running item, one after the other.
    pub(super) fn one_by_one(&mut self, inst: &Inst) -> Result<(), Refusal> {
        // If all items run, their masks are not tested: atomics are short compared with a branch. The
        // form for uneven rows has each atomic once, to be built in less time.
        let updates = matches!(inst.op, Op::AtomicRmw(..));
        let unmasked = updates && self.rows == Rows::Whole && !self.updates_local(inst);
        let parts = self.parts(inst)?;
        let results = self.one_by_one_of(inst, &parts, unmasked, None)?;
        match inst.result {
            Some(result) => self.set(result, &results),
            None => Ok(()),
        }
    }

    /// The items' operands. What there is of them is known best in the block that made them, so blocks
    /// that come between ask for them first.
    pub(super) fn parts(&mut self, inst: &Inst) -> Result<Parts, Refusal> {
        let mut operands = Vec::new();
        inst.op.for_each_operand(|operand| operands.push(operand));
        let mut parts = Vec::new();
        for operand in operands {
            parts.push(match self.shape(operand) {
                Shape::Uniform => Part::One(self.one(operand)),
                Shape::Strided { step, guard: None } => Part::Steps(self.one(operand), step),
                _ => Part::Vectors(self.type_in(operand), self.vectors(operand)?),
            });
        }
        Ok(Parts { parts, at: (self.out.block, self.out.writes) })
    }

    /// The same with operands that were asked for before, without writes since; returns the results. `unmasked`: whether
    /// there is code of its own for the case that all items run. `others`: the results of items that do not run.
    pub(super) fn one_by_one_of(
        &mut self,
        inst: &Inst,
        parts: &Parts,
        unmasked: bool,
        others: Option<&[Operand]>,
    ) -> Result<Vec<Operand>, Refusal> {
        self.remark("takes its items one by one for an operation on memory");
        let in_loop = self.flow.within[self.block.index()].is_some();
        let mask = match self.mask {
            Some(mask) => mask,
            None if in_loop && self.updates_local(inst) => self.mask_value(),
            None => return self.each(inst, parts),
        };
        if !unmasked {
            return self.some(inst, parts, mask, others);
        }
        let bool = self.out.module.types.bool();
        let waits = self.not(mask);
        let some_wait = self.out.value(Op::Any(waits), bool);
        let leaves = match inst.result {
            Some(result) => self.leaves(self.from.values[result].ty)?,
            None => Vec::new(),
        };
        self.guarded(
            Some(some_wait),
            &leaves,
            |this| this.some(inst, parts, mask, others),
            |this| this.each(inst, parts),
        )
    }

    /// Whether an instruction updates local memory, which takes no atomic instruction. Sixteen of these behind each other
    /// may take processors that predict which store a load follows 5 to 10 ns each (EPYC of Zen 4), since they predict
    /// wrong. In a loop, where one instruction does them all, each takes 0.5 to 1 ns.
    fn updates_local(&self, inst: &Inst) -> bool {
        let Op::AtomicRmw(_, at, ..) = inst.op else { return false };
        let local = Type::Pointer(AddressSpace::Local);
        self.out.module.types[self.type_in(at)] == local && !is_skipped(NAME)
    }

    /// All items take turns: code for each.
    fn each(&mut self, inst: &Inst, parts: &Parts) -> Result<Vec<Operand>, Refusal> {
        let mut results = Vec::new();
        for lane in 0..self.out.lanes {
            let mut scalars = Vec::new();
            for part in &parts.parts {
                scalars.push(self.of_lane(part, lane, parts.at)?);
            }
            let scalars = self.of_one(inst, scalars)?;
            for (number, scalar) in scalars.into_iter().enumerate() {
                let ty = self.out.type_of(scalar);
                let vector = self.out.vector_of(ty);
                if results.len() == number {
                    results.push(self.out.undef(vector));
                }
                let with = Op::Insert(results[number], scalar, vec![lane]);
                results[number] = self.out.value(with, vector);
            }
        }
        Ok(results)
    }

    /// The operation of one item, and the scalars of its result.
    fn of_one(&mut self, inst: &Inst, operands: Vec<Operand>) -> Result<Vec<Operand>, Refusal> {
        let mut op = inst.op.clone();
        let mut operands = operands.into_iter();
        op.for_each_operand_mut(|operand| {
            if let Some(own) = operands.next() {
                *operand = own;
            }
        });
        let Some(result) = inst.result else {
            self.out.effect(op, inst.flags);
            return Ok(Vec::new());
        };
        let value = self.out.def(op, self.from.values[result].ty, inst.flags);
        self.scalars(value)
    }

    /// The items of a mask take turns: a loop over its bits. Operands and results go through memory. Tests for each item
    /// would be mispredicted.
    fn some(
        &mut self,
        inst: &Inst,
        parts: &Parts,
        mask: Operand,
        others: Option<&[Operand]>,
    ) -> Result<Vec<Operand>, Refusal> {
        let mut tables = Vec::new();
        let mut each = Vec::new();
        for part in &parts.parts {
            each.push(self.by_number(part, &mut tables));
        }
        let leaves = match inst.result {
            Some(result) => self.leaves(self.from.values[result].ty)?,
            None => Vec::new(),
        };
        // Updates of global memory whose results are stored take 0.65 of the time, where threads have lines in common.
        let is_used =
            inst.result.is_some_and(|result| !self.updates_local(inst) || self.is_used(result));
        let mut results = Vec::new();
        for (number, leaf) in leaves.iter().enumerate().filter(|_| is_used) {
            let vector = self.out.vector_of(leaf.ty);
            let table = self.free_table(vector, &mut tables);
            if let Some(others) = others {
                let access = self.own(leaf.ty);
                self.out.effect(Op::Store(table, others[number], access), Flags::empty());
            }
            results.push((table, vector, leaf.ty));
        }
        let types = &mut self.out.module.types;
        let (bool, int) = (types.bool(), types.int(32));
        let left = self.out.var(int);
        let mut bits = self.out.value(Op::Bits(mask), int);
        if matches!(mask, Operand::Const(_)) {
            // LLVM makes 16 updates of a loop whose turns it knows, and processors predict wrong again.
            let table = self.free_table(int, &mut tables);
            let access = Access { volatile: true, ..self.own(int) };
            self.out.effect(Op::Store(table, bits, access), Flags::empty());
            bits = self.out.value(Op::Load(table, access), int);
        }
        self.out.write(left, bits);
        let [head, body, join] = std::array::from_fn(|_| self.out.new_block());
        self.out.end(Terminator::Branch(head));
        self.out.switch_to(head);
        let bits = self.out.read(left);
        let zero = self.out.int(int, 0);
        let more = self.out.value(Op::Compare(CompareOp::Ne, bits, zero), bool);
        self.out.end(Terminator::CondBranch(more, body, join));
        self.out.switch_to(body);
        let lane = self.out.value(Op::Unary(UnaryOp::Ctz, bits), int);
        let minus = self.out.int(int, -1);
        let less = self.out.value(Op::Binary(BinaryOp::Add, bits, minus), int);
        let rest = self.out.value(Op::Binary(BinaryOp::And, bits, less), int);
        self.out.write(left, rest);
        let mut scalars = Vec::new();
        for part in &each {
            scalars.push(self.numbered(part, lane)?);
        }
        let scalars = self.of_one(inst, scalars)?;
        for (&(table, _, ty), scalar) in results.iter().zip(scalars) {
            let (at, access) = self.entry_of(table, lane, ty);
            self.out.effect(Op::Store(at, scalar, access), Flags::empty());
        }
        self.out.end(Terminator::Branch(head));
        self.out.switch_to(join);
        if !is_used {
            let undef = leaves.iter().map(|leaf| {
                let vector = self.out.vector_of(leaf.ty);
                self.out.undef(vector)
            });
            return Ok(undef.collect());
        }
        let results = results.into_iter().map(|(table, vector, ty)| {
            let access = self.own(ty);
            self.out.value(Op::Load(table, access), vector)
        });
        Ok(results.collect())
    }

    /// How an item's value of an operand is found by the item's number. Stores what that needs.
    fn by_number(&mut self, part: &Part, tables: &mut Vec<Operand>) -> Numbered {
        match part {
            Part::One(value) => Numbered::One(*value),
            &Part::Steps(first, step) => Numbered::Steps(first, step),
            Part::Vectors(ty, vectors) => {
                let place = |&vector| self.stored_part(vector, ADDRESS_STEPS, tables);
                Numbered::Parts(*ty, vectors.iter().map(place).collect())
            }
        }
    }

    /// The same of a component of a vector. Addresses are computed from what they consist of.
    fn stored_part(&mut self, vector: Operand, steps: u32, tables: &mut Vec<Operand>) -> Numbered {
        let ty = self.out.type_of(vector);
        let element = self.out.module.types.element(ty);
        if element == ty {
            return Numbered::One(vector);
        }
        let made = match vector {
            Operand::Value(value) => self.out.made.get(&value).cloned(),
            Operand::Const(_) => None,
        };
        match made {
            Some(Op::Splat(scalar)) => Numbered::One(scalar),
            Some(Op::Address { base, offset, terms, .. }) if steps > 0 => {
                let mut part = |of| self.stored_part(of, steps - 1, tables);
                let base = Box::new(part(base));
                let terms = terms.iter().map(|&(it, by)| (part(it), by)).collect();
                Numbered::Address { base, offset, terms, ty: element }
            }
            Some(Op::Convert(kind @ (ConvertOp::SExt | ConvertOp::ZExt), from)) if steps > 0 => {
                let from = self.stored_part(from, steps - 1, tables);
                Numbered::Convert(kind, Box::new(from), element)
            }
            _ => {
                let table = self.free_table(ty, tables);
                self.spill(vector, table);
                Numbered::Stored(table, element)
            }
        }
    }

    /// Stores a vector whose components are loaded one by one.
    fn spill(&mut self, vector: Operand, table: Operand) {
        let ty = self.out.type_of(vector);
        let element = self.out.module.types.element(ty);
        let (size, lanes) = (self.out.module.types.size(element), self.out.lanes);
        let part = (FORWARDED / size) as u32;
        let access = self.own(element);
        if part >= lanes {
            self.out.effect(Op::Store(table, vector, access), Flags::empty());
            return;
        }
        let (part_type, pointer) = (self.out.vector(element, part), self.out.type_of(table));
        for first in (0..lanes).step_by(part as usize) {
            let pick = (first..first + part).map(Some).collect();
            let value = self.out.value(Op::Shuffle(vector, vector, pick), part_type);
            let offset = (u64::from(first) * size) as i64;
            let op = Op::Address { base: table, offset, terms: Vec::new(), inbounds: true };
            let at = self.out.value(op, pointer);
            // LLVM would join the parts.
            let access = Access { volatile: true, ..access };
            self.out.effect(Op::Store(at, value, access), Flags::empty());
        }
    }

    /// An item's value of an operand.
    fn numbered(&mut self, part: &Numbered, lane: Operand) -> Result<Operand, Refusal> {
        Ok(match part {
            Numbered::One(value) => *value,
            &Numbered::Steps(first, step) => {
                let ty = self.out.type_of(first);
                if is_pointer(&self.out.module, ty) {
                    let (base, terms) = (first, vec![(lane, step)]);
                    let op = Op::Address { base, offset: 0, terms, inbounds: false };
                    return Ok(self.out.value(op, ty));
                }
                let number = self.resized(lane, ty);
                let step = self.out.int(ty, step);
                let distance = self.out.value(Op::Binary(BinaryOp::Mul, number, step), ty);
                self.out.value(Op::Binary(BinaryOp::Add, first, distance), ty)
            }
            Numbered::Parts(ty, parts) => {
                let mut scalars = Vec::new();
                for part in parts {
                    scalars.push(self.numbered(part, lane)?);
                }
                self.assemble(*ty, &mut scalars.into_iter())?
            }
            &Numbered::Stored(table, ty) => {
                let (at, access) = self.entry_of(table, lane, ty);
                self.out.value(Op::Load(at, access), ty)
            }
            Numbered::Address { base, offset, terms, ty } => {
                let base = self.numbered(base, lane)?;
                let mut all = Vec::new();
                for (term, by) in terms {
                    all.push((self.numbered(term, lane)?, *by));
                }
                let op = Op::Address { base, offset: *offset, terms: all, inbounds: false };
                self.out.value(op, *ty)
            }
            Numbered::Convert(kind, from, ty) => {
                let from = self.numbered(from, lane)?;
                self.out.value(Op::Convert(*kind, from), *ty)
            }
        })
    }

    /// The number of an item as an integer of a type.
    fn resized(&mut self, number: Operand, ty: TypeId) -> Operand {
        match self.out.module.types.scalar_bits(ty) {
            32 => number,
            64 => self.out.value(Op::Convert(ConvertOp::ZExt, number), ty),
            _ => self.out.value(Op::Convert(ConvertOp::Trunc, number), ty),
        }
    }

    /// The place of a vector's component in its table.
    fn entry_of(&mut self, table: Operand, lane: Operand, ty: TypeId) -> (Operand, Access) {
        let (size, pointer) = (self.out.module.types.size(ty), self.out.type_of(table));
        let terms = vec![(lane, size as i64)];
        let op = Op::Address { base: table, offset: 0, terms, inbounds: true };
        (self.out.value(op, pointer), self.own(ty))
    }

    /// The access to a component in a table.
    fn own(&self, ty: TypeId) -> Access {
        let align = self.out.module.types.size(ty).clamp(1, 64) as u32;
        Access { align, volatile: false, nontemporal: false }
    }

    /// A table of a type beside those that are in use.
    fn free_table(&mut self, ty: TypeId, used: &mut Vec<Operand>) -> Operand {
        let free = self.tables.iter().find(|(of, table)| *of == ty && !used.contains(table));
        let known = free.map(|&(_, table)| table);
        let table = known.unwrap_or_else(|| {
            let table = self.table(ty);
            self.tables.push((ty, table));
            table
        });
        used.push(table);
        table
    }

    /// An item's value of an operand.
    fn of_lane(&mut self, part: &Part, lane: u32, now: Moment) -> Result<Operand, Refusal> {
        match part {
            Part::One(value) => Ok(*value),
            &Part::Steps(first, step) => {
                let ty = self.out.type_of(first);
                let distance = step.wrapping_mul(i64::from(lane));
                if is_pointer(&self.out.module, ty) {
                    let (base, offset) = (first, distance);
                    let op = Op::Address { base, offset, terms: Vec::new(), inbounds: false };
                    return Ok(self.out.value(op, ty));
                }
                let distance = self.out.int(ty, distance);
                Ok(self.out.value(Op::Binary(BinaryOp::Add, first, distance), ty))
            }
            Part::Vectors(ty, vectors) => {
                let component = |&vector| self.component_of(vector, lane, now, ADDRESS_STEPS);
                let items: Vec<Operand> = vectors.iter().map(component).collect();
                self.assemble(*ty, &mut items.into_iter())
            }
        }
    }

    /// A component of a vector. An address is computed from the components of its operands, and so is a
    /// converted integer, up to `steps` operations deep: the processor adds and scales them in the
    /// access to memory.
    ///
    /// A value that was loaded from contiguous memory and went through few operations is loaded again
    /// by itself. Addresses extracted from vectors are available late, and until then no later item may
    /// load. `now` is the block and time at which the turns begin: no item has written since the load,
    /// and writes of others in their turns would be a race with it.
    fn component_of(&mut self, vector: Operand, lane: u32, now: Moment, steps: u32) -> Operand {
        let ty = self.out.type_of(vector);
        let element = self.out.module.types.element(ty);
        if element == ty {
            // The same for all: addresses may have uniform bases.
            return vector;
        }
        let made = match vector {
            Operand::Value(value) => self.out.made.get(&value).cloned(),
            Operand::Const(_) => None,
        };
        let op = match made {
            Some(Op::Address { base, offset, terms, .. }) if steps > 0 => {
                let mut component = |of| self.component_of(of, lane, now, steps - 1);
                let base = component(base);
                let terms = terms.iter().map(|&(it, by)| (component(it), by)).collect();
                Op::Address { base, offset, terms, inbounds: false }
            }
            Some(Op::Convert(kind @ (ConvertOp::SExt | ConvertOp::ZExt), from)) if steps > 0 => {
                Op::Convert(kind, self.component_of(from, lane, now, steps - 1))
            }
            Some(op) if self.is_reloadable(vector, RELOADED_STEPS, now) => match op {
                Op::Splat(scalar) => return scalar,
                Op::Load(first, access) => {
                    let size = self.out.module.types.size(element);
                    let (ty, offset) = (self.out.type_of(first), i64::from(lane) * size as i64);
                    let op =
                        Op::Address { base: first, offset, terms: Vec::new(), inbounds: false };
                    let at = self.out.value(op, ty);
                    let align = access.align.min(size as u32);
                    Op::Load(at, Access { align, ..access })
                }
                Op::Binary(kind, a, b) => {
                    let mut component = |of| self.component_of(of, lane, now, steps);
                    Op::Binary(kind, component(a), component(b))
                }
                _ => Op::Extract(vector, vec![lane]),
            },
            _ => Op::Extract(vector, vec![lane]),
        };
        self.out.value(op, element)
    }

    /// Whether a component is a load followed by few operations with constants.
    fn is_reloadable(&self, vector: Operand, steps: u32, now: Moment) -> bool {
        let Operand::Value(value) = vector else { return true };
        let ty = self.out.type_of(vector);
        match self.out.made.get(&value) {
            Some(&Op::Splat(_)) => true,
            Some(&Op::Load(_, access)) => {
                let whole = self.out.module.types.lanes(ty) == self.out.lanes;
                let fresh = self.out.loaded.get(&value) == Some(&now);
                whole && fresh && !access.volatile
            }
            Some(&Op::Binary(kind, a, b)) => {
                use BinaryOp as B;
                matches!(kind, B::And | B::Or | B::Xor | B::Add | B::Sub | B::Shl | B::LShr)
                    && steps > 0
                    && self.is_reloadable(a, steps - 1, now)
                    && self.is_reloadable(b, steps - 1, now)
            }
            _ => false,
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes instructions without a vector form for one item after the other.

use super::build::Var;
use super::emit::{Mask, Widener, is_pointer};
use super::refusal::Refusal;
use super::shape::{Rows, Shape};
use crate::ir::{
    Access, BinaryOp, BlockId, ConvertOp, Inst, Op, Operand, Terminator, TypeId, UnaryOp,
};

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
        let unmasked = matches!(inst.op, Op::AtomicRmw(..)) && self.rows == Rows::Whole;
        let parts = self.parts(inst)?;
        self.one_by_one_of(inst, &parts, unmasked)
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

    /// The same with operands that were asked for before, without writes since. `unmasked`: whether there
    /// is code of its own for the case that all items run.
    pub(super) fn one_by_one_of(
        &mut self,
        inst: &Inst,
        parts: &Parts,
        unmasked: bool,
    ) -> Result<(), Refusal> {
        self.remark("takes its items one by one for an operation on memory");
        let (now, parts) = (parts.at, &parts.parts);
        let ty = inst.result.map(|result| self.from.values[result].ty);
        let leaves = match ty {
            Some(ty) => self.leaves(ty)?,
            None => Vec::new(),
        };
        let mut results = Vec::new();
        for leaf in &leaves {
            let vector = self.out.vector_of(leaf.ty);
            let var = self.out.var(vector);
            let undef = self.out.undef(vector);
            self.out.write(var, undef);
            results.push(var);
        }
        match self.mask {
            Some(mask) if unmasked => {
                let bool = self.out.module.types.bool();
                let others = self.not(mask);
                let some_wait = self.out.value(Op::Any(others), bool);
                let all = self.out.value(Op::Unary(UnaryOp::Not, some_wait), bool);
                let [yes, no, join] = std::array::from_fn(|_| self.out.new_block());
                self.out.end(Terminator::CondBranch(all, yes, no));
                for (block, mask) in [(yes, None), (no, Some(mask))] {
                    self.out.switch_to(block);
                    self.turns(inst, parts, mask, &results, now)?;
                    self.out.end(Terminator::Branch(join));
                }
                self.out.switch_to(join);
            }
            mask => self.turns(inst, parts, mask, &results, now)?,
        }
        if let Some(result) = inst.result {
            let values: Vec<Operand> = results.into_iter().map(|var| self.out.read(var)).collect();
            self.set(result, &values)?;
        }
        Ok(())
    }

    /// The items of a mask take turns. Their results are assigned to variables.
    fn turns(
        &mut self,
        inst: &Inst,
        parts: &[Part],
        mask: Mask,
        results: &[Var],
        now: Moment,
    ) -> Result<(), Refusal> {
        let bool = self.out.module.types.bool();
        for lane in 0..self.out.lanes {
            let next = mask.map(|mask| {
                let runs = self.out.value(Op::Extract(mask, vec![lane]), bool);
                let (here, next) = (self.out.new_block(), self.out.new_block());
                self.out.end(Terminator::CondBranch(runs, here, next));
                self.out.switch_to(here);
                next
            });
            let mut scalars = Vec::new();
            for part in parts {
                scalars.push(self.of_lane(part, lane, now)?);
            }
            let mut op = inst.op.clone();
            let mut scalars = scalars.into_iter();
            op.for_each_operand_mut(|operand| {
                if let Some(scalar) = scalars.next() {
                    *operand = scalar;
                }
            });
            match inst.result.map(|result| self.from.values[result].ty) {
                Some(ty) => {
                    let value = self.out.def(op, ty, inst.flags);
                    let scalars = self.scalars(value)?;
                    for (&var, scalar) in results.iter().zip(scalars) {
                        let so_far = self.out.read(var);
                        let vector = self.out.var_type(var);
                        let op = Op::Insert(so_far, scalar, vec![lane]);
                        let with = self.out.value(op, vector);
                        self.out.write(var, with);
                    }
                }
                None => self.out.effect(op, inst.flags),
            }
            if let Some(next) = next {
                self.out.end(Terminator::Branch(next));
                self.out.switch_to(next);
            }
        }
        Ok(())
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

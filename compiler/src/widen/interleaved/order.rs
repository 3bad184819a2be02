// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of operations on interleaved vectors: all those on the first vector come first.
//!
//! An interleaved `double4` of 16 items has 8 vectors, a `double16` 32. If each operation were written for all of them before the next one, all would
//! have to be in registers, and the items' rows would be walked through once for each access:
//!
//! ```text
//!   a0 a1 a2 a3 = load     a0 = load    a1 = load    ...
//!   b0 b1 b2 b3 = load     b0 = load    b1 = load
//!   c0 c1 c2 c3 = a + b    c0 = a0+b0   c1 = a1+b1
//!   store c0 c1 c2 c3      store c0     store c1
//! ```
//!
//! So they are kept back until another operation needs their results, or has to come behind them. Items do not see
//! each other's accesses without a barrier, so one item's may all come before another's.

use rustc_hash::FxHashMap;

use super::access::Way;
use super::kept::{Kept, Part, Step};
use crate::ir::{ConvertOp, Inst, Op, Operand, ValueId};
use crate::widen::emit::Widener;
use crate::widen::refusal::Refusal;
use crate::widen::shape::Shape;

impl Widener<'_> {
    /// Writes an operation on interleaved vectors, or keeps it back. `false` if it is none.
    pub(in crate::widen) fn by_vector(&mut self, inst: &Inst) -> Result<bool, Refusal> {
        let written = match inst.op {
            Op::Load(at, access) => {
                let Some(result) = inst.result else { return self.follow(inst) };
                let Some(elements) = self.elements(result) else { return self.follow(inst) };
                let ty = self.from.values[result].ty;
                if !self.is_row(at, ty, access, self.block) {
                    return self.follow(inst);
                }
                let way = self.way_of_rows(at, ty, elements, access, true)?;
                if let Way::ByVector(plan) = way {
                    self.keep_back(plan.rows.count, Some(result), Step::Load(result, plan));
                    return Ok(true);
                }
                if matches!(way, Way::If(..)) || self.kept.stores {
                    self.write_kept();
                }
                let values = self.load_rows(at, &way, access)?;
                self.set_interleaved(result, &values);
                true
            }
            Op::Store(at, value, access)
                if self.is_row(at, self.type_in(value), access, self.block) =>
            {
                let Some(elements) = self.elements_to_store(value) else {
                    return self.follow(inst);
                };
                let ty = self.type_in(value);
                let way = self.way_of_rows(at, ty, elements, access, false)?;
                if let Way::ByVector(plan) = way {
                    let part = self.part_of(value, elements)?;
                    self.keep_back(plan.rows.count, None, Step::Store(part, plan));
                    return Ok(true);
                }
                self.write_kept();
                let values = self.interleaved(value, elements)?;
                self.store_rows(at, &way, &values, access)?;
                true
            }
            _ => match inst.result.and_then(|result| Some((result, self.elements(result)?))) {
                Some((result, elements)) if self.is_of_components(inst, self.block) => {
                    self.compute_later(inst, result, elements)?;
                    true
                }
                _ => return self.follow(inst),
            },
        };
        Ok(written)
    }

    /// Writes what has been kept back if an instruction of another kind needs it, or has to come behind it.
    fn follow(&mut self, inst: &Inst) -> Result<bool, Refusal> {
        let mut needs = match &inst.op {
            Op::Load(_, access) => access.volatile || self.kept.stores,
            op => !op.is_pure(),
        };
        inst.op.for_each_operand(|operand| needs |= self.is_kept(operand));
        if needs {
            self.write_kept();
        }
        Ok(false)
    }

    fn is_kept(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Value(value) if self.kept.results.contains_key(&value))
    }

    fn part_of(&mut self, operand: Operand, elements: u32) -> Result<Part, Refusal> {
        match operand {
            Operand::Value(value) if self.is_kept(operand) => Ok(Part::Kept(value)),
            _ => Ok(Part::Known(self.interleaved(operand, elements)?)),
        }
    }

    fn keep_back(&mut self, vectors: u32, result: Option<ValueId>, step: Step) {
        if self.kept.vectors != vectors {
            self.write_kept();
            self.kept.vectors = vectors;
        }
        self.kept.stores |= matches!(step, Step::Store(..));
        if let Some(result) = result {
            self.kept.results.insert(result, Vec::new());
        }
        self.kept.steps.push((step, self.out.loc));
    }

    /// Keeps back the computation of components.
    fn compute_later(
        &mut self,
        inst: &Inst,
        result: ValueId,
        elements: u32,
    ) -> Result<(), Refusal> {
        let (leaf, parts) = self.components(self.from.values[result].ty);
        let count = parts * self.out.lanes / elements;
        if let Op::Construct(scalars) = &inst.op {
            let scalar = self.vector(scalars[0])?;
            let values = self.for_components(scalar, parts, elements);
            self.set_interleaved(result, &values);
            return Ok(());
        }
        let mut operands = Vec::new();
        inst.op.for_each_operand(|operand| operands.push(operand));
        if self.kept.vectors != count {
            self.write_kept();
        }
        if let &Op::Select(condition, yes, no) = &inst.op
            && self.lanes_of(condition) == 1
            && self.shape(condition) != Shape::Uniform
        {
            let words = self.words(leaf, parts, elements);
            let mask = self.vector(condition)?;
            let masks = self.for_components(mask, parts / words.each, elements / words.each);
            let (yes, no) = (self.part_of(yes, elements)?, self.part_of(no, elements)?);
            let step = Step::Choose { result, masks, yes, no, words };
            self.keep_back(count, Some(result), step);
            return Ok(());
        }
        let mut all = Vec::with_capacity(operands.len());
        for operand in operands {
            all.push(match self.lanes_of(operand) {
                1 => Part::Known(vec![self.one(operand); count as usize]),
                _ => self.part_of(operand, elements)?,
            });
        }
        let ty = self.out.vector(leaf, elements);
        let step = Step::Compute { result, inst: inst.clone(), parts: all, ty };
        self.keep_back(count, Some(result), step);
        Ok(())
    }

    /// Writes what has been kept back.
    pub(in crate::widen) fn write_kept(&mut self) {
        let Kept { steps, mut results, vectors, .. } = std::mem::take(&mut self.kept);
        let loc = self.out.loc;
        for n in 0..vectors {
            let get = |results: &FxHashMap<ValueId, Vec<Operand>>, part: &Part| match part {
                Part::Known(values) => values[n as usize],
                Part::Kept(value) => results[value][n as usize],
            };
            for (step, loc) in &steps {
                self.out.loc = *loc;
                let (result, value) = match step {
                    Step::Load(result, plan) => (result, self.load_vector(plan, n)),
                    Step::Store(part, plan) => {
                        self.store_vector(plan, n, get(&results, part));
                        continue;
                    }
                    Step::Compute { result, inst, parts, ty } => {
                        let mut op = inst.op.clone();
                        let mut parts = parts.iter();
                        op.for_each_operand_mut(|operand| {
                            if let Some(part) = parts.next() {
                                *operand = get(&results, part);
                            }
                        });
                        let value = match op {
                            Op::Convert(ConvertOp::Bitcast, value) => self.bits_as(value, *ty),
                            op => self.out.def(op, *ty, inst.flags),
                        };
                        (result, value)
                    }
                    Step::Choose { result, masks, yes, no, words } => {
                        let (yes, no) = (get(&results, yes), get(&results, no));
                        (result, self.chosen(masks[n as usize], yes, no, *words))
                    }
                };
                if let Some(values) = results.get_mut(result) {
                    values.push(value);
                }
            }
        }
        self.out.loc = loc;
        for (step, _) in &steps {
            let (Step::Load(result, _)
            | Step::Compute { result, .. }
            | Step::Choose { result, .. }) = step
            else {
                continue;
            };
            let values = results.remove(result).unwrap_or_default();
            self.set_interleaved(*result, &values);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads and stores of elements at fixed places.

use std::collections::HashMap;

use super::Fixed;
use super::find::Check;
use crate::ir::{Access, BinaryOp, CompareOp, Op, Operand, TypeId, ValueId};
use crate::widen::emit::{Widener, is_pointer};
use crate::widen::ops::Leaf;
use crate::widen::refusal::Refusal;
use crate::widen::shape::Shape;

impl Widener<'_> {
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
    pub(in crate::widen) fn load_fixed(
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
    pub(in crate::widen) fn store_fixed(
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

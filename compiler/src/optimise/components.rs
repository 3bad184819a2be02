// SPDX-License-Identifier: MIT OR Apache-2.0
//! Components of places.
//!
//! Programs keep the place of a pixel or a voxel in a vector, and C compilers compute with that as a whole:
//!
//! ```text
//!   pos + (int2)(-1, 1)       %3 = add %pos, (-1, 1)
//!                             %4 = extract %3 at 0        ──▶     %4 = add %x, -1
//! ```
//!
//! In the left form nothing that knows steps, bounds and edges of places sees that the place is an id and a constant.
//! So a component of a sum, of a limited number, of a choice or of a phi is computed from the components of what that
//! is made of. The vector is removed if nothing else uses it; what is the same for all items is computed twice
//! if something does. Vectors of more than four components are data.

use std::collections::HashMap;

use super::rename::rename;
use super::unused;
use crate::ir::arena::Id;
use crate::ir::eval::apply;
use crate::ir::{
    BlockId, ConvertOp, Definition, ENTRY, Flags, Function, Inst, Loc, Module, Op, Operand, Type,
    TypeId, ValueId, definitions,
};

/// The most components of a place.
const MOST: u32 = 4;

/// The longest way from a component back to what it is made of: compilation recurses along it.
const MAX_DEPTH: usize = 64;

/// Computes components of places one by one.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let definitions = definitions(function);
    let (made, added) = (HashMap::new(), HashMap::new());
    let mut apart = Apart { module, function, definitions, made, added };
    let mut names: HashMap<ValueId, Operand> = HashMap::new();
    for block in apart.function.blocks.ids().collect::<Vec<_>>() {
        for place in 0..apart.function.blocks[block].insts.len() {
            let inst = &apart.function.blocks[block].insts[place];
            let (Op::Extract(whole, path), Some(result)) = (&inst.op, inst.result) else {
                continue;
            };
            if let (whole, &[lane]) = (*whole, path.as_slice())
                && apart.is_computed(whole)
            {
                let part = apart.component(whole, lane, 0);
                names.insert(result, part);
            }
        }
    }
    if names.is_empty() {
        return;
    }
    let added = apart.added;
    for (id, block) in function.blocks.iter_mut() {
        let insts = std::mem::take(&mut block.insts);
        let new = |place| added.get(&(id, place)).into_iter().flatten().cloned();
        block.insts.extend(new(None));
        for (place, inst) in insts.into_iter().enumerate() {
            block.insts.push(inst);
            block.insts.extend(new(Some(place)));
        }
    }
    rename(function, &names);
    unused::run(function);
}

struct Apart<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    definitions: Vec<Option<Definition>>,
    /// The components that there are.
    made: HashMap<(ValueId, u32), Operand>,
    /// New instructions of a block: those in front of it, and those behind each of its own.
    added: HashMap<(BlockId, Option<usize>), Vec<Inst>>,
}

impl Apart<'_> {
    /// The instruction that makes a value, and where it is.
    fn made(&self, value: ValueId) -> Option<(BlockId, usize, &Inst)> {
        match self.definitions[value.index()]? {
            Definition::Inst(block, place) => {
                Some((block, place, &self.function.blocks[block].insts[place]))
            }
            Definition::Entry => None,
        }
    }

    fn type_of(&self, operand: Operand) -> TypeId {
        self.module.operand_type(self.function, operand)
    }

    /// Whether a value is a vector of a few numbers as places have them, or of conditions.
    fn is_place(&self, operand: Operand) -> bool {
        let types = &self.module.types;
        let ty = self.type_of(operand);
        matches!(types[ty], Type::Vector(_, 2..=MOST))
            && matches!(types[types.element(ty)], Type::Int(32 | 64) | Type::Bool)
    }

    /// Whether each component of a value is computed from the same ones of others.
    fn is_computed(&self, operand: Operand) -> bool {
        let Operand::Value(value) = operand else { return false };
        let Some((.., inst)) = self.made(value) else { return false };
        let by_component = match &inst.op {
            Op::Binary(..) | Op::Unary(..) | Op::Compare(..) | Op::Select(..) | Op::Phi(_) => true,
            Op::Convert(op, _) => {
                matches!(op, ConvertOp::Trunc | ConvertOp::SExt | ConvertOp::ZExt)
            }
            _ => false,
        };
        let mut places = self.is_place(operand);
        let condition = match inst.op {
            Op::Select(condition, ..) => Some(condition),
            _ => None,
        };
        inst.op.for_each_operand(|from| {
            places = places && (Some(from) == condition || self.is_place(from));
        });
        by_component && places
    }

    /// A component of a vector.
    fn component(&mut self, operand: Operand, lane: u32, depth: usize) -> Operand {
        let ty = self.module.types.element(self.type_of(operand));
        let value = match operand {
            Operand::Value(value) => value,
            Operand::Const(id) => {
                let part = apply(self.module, &Op::Extract(operand, vec![lane]), ty, &[id]);
                return Operand::Const(part.expect("constants have components"));
            }
        };
        if let Some(&part) = self.made.get(&(value, lane)) {
            return part;
        }
        let Some((block, place, inst)) = self.made(value) else {
            return self.extract(value, lane, ty, (ENTRY, None), Loc::default());
        };
        let Inst { op, flags, loc, .. } = inst.clone();
        let phis = self.function.blocks[block].phis().count();
        let behind = (block, Some(place.max(phis.saturating_sub(1))));
        let next = depth + 1;
        let is_computed = depth < MAX_DEPTH && self.is_computed(operand);
        let new = match op {
            Op::Insert(whole, part, to) if depth < MAX_DEPTH && to.len() == 1 => {
                let is_this = to[0] == lane;
                return if is_this { part } else { self.component(whole, lane, next) };
            }
            Op::Construct(parts) if parts.len() > lane as usize => return parts[lane as usize],
            Op::Shuffle(one, two, mask) if depth < MAX_DEPTH => {
                let lanes = self.module.types.lanes(self.type_of(one));
                return match mask[lane as usize] {
                    Some(from) if from < lanes => self.component(one, from, next),
                    Some(from) => self.component(two, from - lanes, next),
                    None => self.extract(value, lane, ty, behind, loc),
                };
            }
            Op::Phi(arms) if is_computed => {
                // A phi may be among its own arms.
                let result = self.function.new_value(ty);
                self.made.insert((value, lane), Operand::Value(result));
                let part = |this: &mut Self, from| this.component(from, lane, next);
                let arms = arms.iter().map(|&(from, arm)| (from, part(self, arm))).collect();
                let inst = Inst { result: Some(result), op: Op::Phi(arms), flags, loc };
                self.added.entry((block, None)).or_default().push(inst);
                return Operand::Value(result);
            }
            mut op if is_computed => {
                op.for_each_operand_mut(|from| {
                    if self.module.types.lanes(self.type_of(*from)) > 1 {
                        *from = self.component(*from, lane, next);
                    }
                });
                op
            }
            _ => return self.extract(value, lane, ty, behind, loc),
        };
        // A phi that the operands come from may have asked for it in the meantime.
        match self.made.get(&(value, lane)) {
            Some(&part) => part,
            None => self.add((value, lane), new, ty, behind, (flags, loc)),
        }
    }

    /// A component of a vector that is not computed by component.
    fn extract(
        &mut self,
        value: ValueId,
        lane: u32,
        ty: TypeId,
        at: (BlockId, Option<usize>),
        loc: Loc,
    ) -> Operand {
        let op = Op::Extract(Operand::Value(value), vec![lane]);
        self.add((value, lane), op, ty, at, (Flags::empty(), loc))
    }

    fn add(
        &mut self,
        of: (ValueId, u32),
        op: Op,
        ty: TypeId,
        at: (BlockId, Option<usize>),
        (flags, loc): (Flags, Loc),
    ) -> Operand {
        let result = self.function.new_value(ty);
        self.made.insert(of, Operand::Value(result));
        let inst = Inst { result: Some(result), op, flags, loc };
        self.added.entry(at).or_default().push(inst);
        Operand::Value(result)
    }
}

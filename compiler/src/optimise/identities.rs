// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds operations whose result is an operand, a constant, or a part that an operand was constructed
//! from.

use super::units::constant_offset;
use crate::ir::eval::apply;
use crate::ir::{
    AddressSpace, BinaryOp, CompareOp, ConstId, ConstKind, ConvertOp, Function, Id, Inst, Module,
    Op, Operand, Type, TypeId, UnaryOp, ValueId,
};

/// The maximum number of steps for one operation.
const MAX_STEPS: usize = 16;

/// The operations that define values, as far as the identities need them.
pub(super) struct Known(Vec<Option<Op>>);

impl Known {
    pub(super) fn new(function: &Function) -> Self {
        Self(vec![None; function.values.len()])
    }

    /// Records the operation that defines a value.
    pub(super) fn note(&mut self, result: ValueId, op: &Op) {
        let useful = match op {
            Op::Construct(_)
            | Op::Insert(..)
            | Op::Extract(..)
            | Op::Shuffle(..)
            | Op::Convert(..)
            | Op::Select(..)
            | Op::Unary(UnaryOp::Not, _)
            | Op::Binary(
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::LShr | BinaryOp::AShr,
                ..,
            ) => true,
            Op::Address { terms, .. } => terms.is_empty(),
            _ => false,
        };
        if useful && let Some(slot) = self.0.get_mut(result.index()) {
            *slot = Some(op.clone());
        }
    }

    fn made(&self, operand: Operand) -> Option<&Op> {
        match operand {
            Operand::Value(value) => self.0.get(value.index())?.as_ref(),
            Operand::Const(_) => None,
        }
    }

    /// An existing value that equals the result of an instruction, if there is one. Else the operation
    /// may be replaced by a simpler one.
    pub(super) fn simplified(
        &self,
        module: &mut Module,
        function: &Function,
        inst: &mut Inst,
        ty: TypeId,
    ) -> Option<Operand> {
        if let Some(constant) = folded(module, &inst.op, ty) {
            return Some(constant);
        }
        for _ in 0..MAX_STEPS {
            match self.step(module, function, inst, ty) {
                Step::Name(name) => return Some(name),
                Step::Changed(op) => inst.op = op,
                Step::Same => break,
            }
        }
        None
    }

    fn step(&self, module: &mut Module, function: &Function, inst: &Inst, ty: TypeId) -> Step {
        let same_type = |module: &Module, operand| module.operand_type(function, operand) == ty;
        match &inst.op {
            Op::Phi(incoming) => {
                let own = inst.result.map(Operand::Value);
                let mut others = incoming.iter().map(|arm| arm.1).filter(|&it| Some(it) != own);
                let Some(first) = others.next() else { return Step::Same };
                if others.all(|other| other == first) { Step::Name(first) } else { Step::Same }
            }
            &Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b)
                if let Some(before) = self.moved_back(module, op, a, b, ty) =>
            {
                Step::Name(before)
            }
            &Op::Binary(op, a, b) => binary(module, op, a, b, ty),
            Op::Unary(UnaryOp::Not, a) => match self.made(*a) {
                Some(&Op::Unary(UnaryOp::Not, inner)) => Step::Name(inner),
                _ => Step::Same,
            },
            &Op::Compare(op, a, b) => self.compare(module, op, a, b),
            &Op::Select(condition, a, b) => {
                if a == b {
                    return Step::Name(a);
                }
                match module.operand_bits(condition) {
                    Some(0) => Step::Name(b),
                    Some(_) => Step::Name(a),
                    None if module.types[ty] == Type::Bool
                        && (module.operand_bits(a), module.operand_bits(b))
                            == (Some(1), Some(0)) =>
                    {
                        Step::Name(condition)
                    }
                    None => Step::Same,
                }
            }
            &Op::Convert(op, a) => match (op, self.made(a)) {
                (ConvertOp::PtrCast, _) if same_type(module, a) => Step::Name(a),
                (
                    ConvertOp::Trunc,
                    Some(&Op::Convert(ConvertOp::ZExt | ConvertOp::SExt, inner)),
                )
                | (ConvertOp::Bitcast, Some(&Op::Convert(ConvertOp::Bitcast, inner)))
                | (ConvertOp::PtrCast, Some(&Op::Convert(ConvertOp::PtrCast, inner)))
                | (ConvertOp::PtrToInt, Some(&Op::Convert(ConvertOp::IntToPtr, inner)))
                | (ConvertOp::IntToPtr, Some(&Op::Convert(ConvertOp::PtrToInt, inner)))
                    if same_type(module, inner) =>
                {
                    Step::Name(inner)
                }
                (ConvertOp::Trunc, Some(_)) => self.half_of_product(module, function, a, ty),
                _ => Step::Same,
            },
            Op::Load(Operand::Const(at), access) if !access.volatile => {
                match constant_at(module, *at, ty) {
                    Some(constant) => Step::Name(Operand::Const(constant)),
                    None => Step::Same,
                }
            }
            Op::Extract(a, path) => self.extract(module, function, *a, path),
            Op::Construct(parts) => match self.taken_apart(module, function, parts, ty) {
                Some(whole) => Step::Name(whole),
                None => Step::Same,
            },
            Op::Address { base, offset, terms, inbounds } => {
                if terms.is_empty() && *offset == 0 && same_type(module, *base) {
                    return Step::Name(*base);
                }
                if terms.iter().any(|(index, _)| matches!(index, Operand::Const(_))) {
                    let (fixed, terms): (Vec<_>, Vec<_>) =
                        terms.iter().partition(|(index, _)| matches!(index, Operand::Const(_)));
                    return match constant_offset(module, *offset, &fixed) {
                        Some(offset) => {
                            let (base, inbounds) = (*base, *inbounds);
                            Step::Changed(Op::Address { base, offset, terms, inbounds })
                        }
                        None => Step::Same,
                    };
                }
                match self.made(*base) {
                    Some(Op::Address { base: inner, offset: before, inbounds: too, .. }) => {
                        Step::Changed(Op::Address {
                            base: *inner,
                            offset: before.wrapping_add(*offset),
                            terms: terms.clone(),
                            inbounds: *inbounds && *too,
                        })
                    }
                    _ => Step::Same,
                }
            }
            _ => Step::Same,
        }
    }

    /// C compilers convert a condition to an integer and compare that with zero.
    fn compare(&self, module: &mut Module, op: CompareOp, a: Operand, b: Operand) -> Step {
        let negated = match op {
            CompareOp::Ne => false,
            CompareOp::Eq => true,
            _ => return Step::Same,
        };
        let Some(&Op::Select(condition, yes, no)) = self.made(a) else { return Step::Same };
        let (Some(0), Some(1..), Some(0)) =
            (module.operand_bits(b), module.operand_bits(yes), module.operand_bits(no))
        else {
            return Step::Same;
        };
        match negated {
            true => Step::Changed(Op::Unary(UnaryOp::Not, condition)),
            false => Step::Name(condition),
        }
    }

    /// The half of a product that is computed in twice as many bits, which processors have an instruction for:
    /// `(uint)((ulong)x * y >> 32)` is `mul_hi(x, y)`. A generator that takes both halves of two products (philox) takes
    /// 0.8 of the time then.
    fn half_of_product(
        &self,
        module: &mut Module,
        function: &Function,
        a: Operand,
        ty: TypeId,
    ) -> Step {
        let Type::Int(width) = module.types[ty] else { return Step::Same };
        let (product, is_high) = match self.made(a) {
            Some(&Op::Binary(BinaryOp::LShr | BinaryOp::AShr, product, by))
                if module.operand_bits(by) == Some(width.into()) =>
            {
                (product, true)
            }
            _ => (a, false),
        };
        let wide = module.types.scalar_bits(module.operand_type(function, product));
        let Some(&Op::Binary(BinaryOp::Mul, x, y)) = self.made(product) else { return Step::Same };
        if wide != 2 * width {
            return Step::Same;
        }
        let halves = [false, true].into_iter().find_map(|signed| {
            let mut half = |factor| self.half(module, function, factor, ty, signed);
            Some((half(x)?, half(y)?, signed))
        });
        let Some((x, y, signed)) = halves else { return Step::Same };
        Step::Changed(match (is_high, signed) {
            (false, _) => Op::Binary(BinaryOp::Mul, x, y),
            (true, false) => Op::Binary(BinaryOp::UMulHi, x, y),
            (true, true) => Op::Binary(BinaryOp::SMulHi, x, y),
        })
    }

    /// The integer of a type that an operand of twice as many bits extends.
    fn half(
        &self,
        module: &mut Module,
        function: &Function,
        operand: Operand,
        ty: TypeId,
        signed: bool,
    ) -> Option<Operand> {
        if let Some(bits) = module.operand_bits(operand) {
            let width = module.types.scalar_bits(ty);
            let half = bits & (u64::MAX >> (64 - width));
            let again = match signed {
                true => ((half << (64 - width)) as i64 >> (64 - width)) as u64,
                false => half,
            };
            let same = (again ^ bits) << (64 - 2 * width) == 0;
            return same.then(|| Operand::Const(module.const_int(ty, half)));
        }
        let extension = if signed { ConvertOp::SExt } else { ConvertOp::ZExt };
        match self.made(operand) {
            Some(&Op::Convert(op, inner)) if op == extension => {
                (module.operand_type(function, inner) == ty).then_some(inner)
            }
            _ => None,
        }
    }

    /// What a constant is added to and subtracted from again: clang compares pointers that it has moved on already.
    fn moved_back(
        &self,
        module: &Module,
        op: BinaryOp,
        a: Operand,
        b: Operand,
        ty: TypeId,
    ) -> Option<Operand> {
        let Type::Int(width) = module.types[ty] else { return None };
        let by = |op: BinaryOp, by: Operand| match op {
            BinaryOp::Add => module.operand_bits(by),
            BinaryOp::Sub => module.operand_bits(by).map(u64::wrapping_neg),
            _ => None,
        };
        let Some(&Op::Binary(first, before, c)) = self.made(a) else { return None };
        let moved = by(first, c)?.wrapping_add(by(op, b)?);
        (moved << (64 - width) == 0).then_some(before)
    }

    fn extract(&self, module: &Module, function: &Function, a: Operand, path: &[u32]) -> Step {
        let part = |whole: Operand, rest: &[u32]| match rest {
            [] => Step::Name(whole),
            rest => Step::Changed(Op::Extract(whole, rest.to_vec())),
        };
        let Some((&first, rest)) = path.split_first() else { return Step::Same };
        match self.made(a) {
            Some(Op::Construct(parts)) => match parts.get(first as usize) {
                Some(&whole) => part(whole, rest),
                None => Step::Same,
            },
            Some(Op::Insert(whole, value, to)) => {
                if let Some(rest) = path.strip_prefix(to.as_slice()) {
                    part(*value, rest)
                } else if to.starts_with(path) {
                    Step::Same
                } else {
                    part(*whole, path)
                }
            }
            Some(Op::Extract(whole, to)) => {
                let path = to.iter().chain(path).copied().collect();
                Step::Changed(Op::Extract(*whole, path))
            }
            Some(Op::Shuffle(one, two, mask)) => {
                let lanes = module.types.lanes(module.operand_type(function, *one));
                match mask.get(first as usize) {
                    Some(&Some(lane)) if lane < lanes => {
                        Step::Changed(Op::Extract(*one, vec![lane]))
                    }
                    Some(&Some(lane)) => Step::Changed(Op::Extract(*two, vec![lane - lanes])),
                    _ => Step::Same,
                }
            }
            _ => Step::Same,
        }
    }

    /// A composite that is constructed from the parts of another one.
    fn taken_apart(
        &self,
        module: &Module,
        function: &Function,
        parts: &[Operand],
        ty: TypeId,
    ) -> Option<Operand> {
        let source = |(index, &part): (usize, &Operand)| match self.made(part) {
            Some(Op::Extract(whole, path)) if path[..] == [index as u32] => Some(*whole),
            _ => None,
        };
        let whole = source((0, parts.first()?))?;
        let all = parts.iter().enumerate().all(|part| source(part) == Some(whole));
        (all && module.operand_type(function, whole) == ty).then_some(whole)
    }
}

enum Step {
    /// The result equals another value.
    Name(Operand),
    /// This operation has the same result.
    Changed(Op),
    Same,
}

/// The constant result of an operation on constants.
fn folded(module: &mut Module, op: &Op, ty: TypeId) -> Option<Operand> {
    let mut constants = Some(Vec::new());
    op.for_each_operand(|operand| match (operand, &mut constants) {
        (Operand::Const(id), Some(list)) => list.push(id),
        _ => constants = None,
    });
    let constants = constants.filter(|list| !list.is_empty())?;
    if matches!(op, Op::Phi(_)) {
        return None;
    }
    apply(module, op, ty, &constants).map(Operand::Const)
}

/// The constant that a load of a type from a constant address returns, if that memory never changes.
fn constant_at(module: &mut Module, at: ConstId, ty: TypeId) -> Option<ConstId> {
    let ConstKind::Address(global, offset) = module.constants[at].kind else { return None };
    let global = &module.globals[global];
    if global.space != AddressSpace::Constant || global.imported {
        return None;
    }
    let mut offset = u64::try_from(offset).ok()?;
    let mut whole = global.init?;
    // Each step descends into a part.
    loop {
        let own = module.constants[whole].ty;
        if offset == 0 && own == ty {
            return Some(whole);
        }
        let types = &module.types;
        let (index, rest) = match &types[own] {
            Type::Vector(element, _) | Type::Array(element, _) => {
                let stride = types.stride(*element);
                (offset.checked_div(stride)?, offset % stride)
            }
            Type::Struct { members, .. } => {
                let at = |index: &u32| types.member_offset(own, *index).unwrap_or(u64::MAX);
                let index = (0..members.len() as u32).rev().find(|i| at(i) <= offset)?;
                (u64::from(index), offset - at(&index))
            }
            _ => return None,
        };
        let path = vec![u32::try_from(index).ok()?];
        let part = match &types[own] {
            Type::Vector(element, _) | Type::Array(element, _) => *element,
            Type::Struct { members, .. } => members[index as usize],
            _ => return None,
        };
        whole = apply(module, &Op::Extract(Operand::Const(whole), path), part, &[whole])?;
        offset = rest;
    }
}

/// Identities of scalar integers.
fn binary(module: &mut Module, op: BinaryOp, a: Operand, b: Operand, ty: TypeId) -> Step {
    use BinaryOp as B;
    let width = match module.types[ty] {
        Type::Int(bits) => bits,
        Type::Bool => 1,
        _ => return Step::Same,
    };
    let ones = u64::MAX >> (64 - width);
    let zero = |module: &mut Module| Step::Name(Operand::Const(module.const_int(ty, 0)));
    // Puts a constant first operand of a commutative operation second.
    let (a, b) = match op {
        B::Add | B::Mul | B::And | B::Or | B::Xor if module.operand_bits(a).is_some() => (b, a),
        _ => (a, b),
    };
    if a == b {
        match op {
            B::And | B::Or => return Step::Name(a),
            B::Sub | B::Xor => return zero(module),
            _ => {}
        }
    }
    let Some(b) = module.operand_bits(b) else { return Step::Same };
    match op {
        B::Add | B::Sub | B::Or | B::Xor if b == 0 => Step::Name(a),
        B::Shl | B::LShr | B::AShr | B::Rotl if b.is_multiple_of(u64::from(width)) => Step::Name(a),
        B::Mul | B::And if b == 0 => zero(module),
        B::Mul | B::UDiv | B::SDiv if b == 1 && width > 1 => Step::Name(a),
        B::And if b == ones => Step::Name(a),
        _ => Step::Same,
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folds instructions on constants to constants.

use std::collections::HashMap;

use super::{Float, Scalar, binary, compare, convert, library, ternary, test, unary};
use crate::ir::{
    ConstId, ConstKind, ConvertOp, Function, Inst, MathOp, Module, Op, Operand, Type, TypeId,
    ValueId,
};

/// The constant value of `result` after the instructions, whose operands must be constants or results
/// of earlier instructions. `None` if an instruction has no constant result.
pub fn fold(
    module: &mut Module,
    function: &Function,
    insts: &[Inst],
    result: Operand,
) -> Option<ConstId> {
    let mut known: HashMap<ValueId, ConstId> = HashMap::new();
    let get = |known: &HashMap<ValueId, ConstId>, operand: Operand| match operand {
        Operand::Const(id) => Some(id),
        Operand::Value(value) => known.get(&value).copied(),
    };
    for inst in insts {
        let value = inst.result?;
        let ty = function.values.get(value)?.ty;
        let mut operands = Vec::new();
        let mut missing = false;
        inst.op.for_each_operand(|operand| match get(&known, operand) {
            Some(id) => operands.push(id),
            None => missing = true,
        });
        if missing {
            return None;
        }
        let folded = apply(module, &inst.op, ty, &operands)?;
        known.insert(value, folded);
    }
    get(&known, result)
}

/// The constant of type `ty` that results from an operation on constants, if it can be folded.
pub fn apply(module: &mut Module, op: &Op, ty: TypeId, args: &[ConstId]) -> Option<ConstId> {
    match (op, args) {
        (Op::Construct(_), parts) => {
            Some(module.constant(ty, ConstKind::Composite(parts.to_vec())))
        }
        (Op::Extract(_, path), [whole]) => {
            path.iter().try_fold(*whole, |id, &index| component(module, id, index))
        }
        (Op::Insert(_, _, path), [whole, value]) => insert(module, *whole, *value, path),
        (Op::Shuffle(_, _, mask), [a, b]) => {
            let lanes = module.types.lanes(module.constants[*a].ty);
            let element = module.types.element(ty);
            let parts: Option<Vec<ConstId>> = mask
                .iter()
                .map(|&lane| match lane {
                    Some(n) if n < lanes => component(module, *a, n),
                    Some(n) => component(module, *b, n - lanes),
                    None => Some(module.constant(element, ConstKind::Undef)),
                })
                .collect();
            parts.map(|parts| module.constant(ty, ConstKind::Composite(parts)))
        }
        (Op::Select(..), [condition, yes, no])
            if module.types.lanes(module.constants[*condition].ty) == 1 =>
        {
            Some(if module.const_bits(*condition)? != 0 { *yes } else { *no })
        }
        (Op::Address { offset, terms, .. }, [base, indices @ ..]) => {
            let mut at = *offset;
            for (&index, &(_, stride)) in indices.iter().zip(terms) {
                let bits = module.types.scalar_bits(module.constants[index].ty);
                let index = super::signed(module.const_bits(index)?, bits);
                at = at.wrapping_add(index.wrapping_mul(stride));
            }
            match module.constants[*base].kind {
                ConstKind::Address(global, start) => {
                    let kind = ConstKind::Address(global, start.wrapping_add(at));
                    Some(module.constant(ty, kind))
                }
                ConstKind::Null => Some(module.constant(ty, ConstKind::Bits(at as u64))),
                _ => None,
            }
        }
        (Op::Convert(ConvertOp::PtrCast, _), [a]) => {
            let kind = module.constants[*a].kind.clone();
            Some(module.constant(ty, kind))
        }
        (Op::Math(op, _), args) => math(module, *op, ty, args),
        _ => by_component(module, op, ty, args),
    }
}

/// A library function of constants, if what `library` computes is within OpenCL's limits.
fn math(module: &mut Module, op: MathOp, ty: TypeId, args: &[ConstId]) -> Option<ConstId> {
    let of = module.constants[*args.first()?].ty;
    let Scalar::Float(float) = Scalar::of(&module.types[module.types.element(of)])? else {
        return None;
    };
    use MathOp::{Lgamma, LgammaR, Rootn, Tgamma};
    match float {
        Float::F32 => {}
        Float::F64 if !matches!(op, Lgamma | LgammaR | Rootn | Tgamma) => {}
        _ => return None,
    }
    let results = match &module.types[ty] {
        Type::Struct { members, .. } => members.clone(),
        _ => vec![ty],
    };
    let lanes = module.types.lanes(of);
    let mut parts = vec![Vec::new(); results.len()];
    for lane in 0..lanes {
        let mut bits = Vec::with_capacity(args.len());
        for &arg in args {
            let part = if lanes == 1 { arg } else { component(module, arg, lane)? };
            bits.push(module.const_bits(part)?);
        }
        let (first, second) = library(op, float, &bits);
        for ((part, &ty), bits) in parts.iter_mut().zip(&results).zip([first, second]) {
            let element = module.types.element(ty);
            part.push(module.const_int(element, bits));
        }
    }
    let mut whole = Vec::with_capacity(results.len());
    for (part, &ty) in parts.into_iter().zip(&results) {
        whole.push(match part[..] {
            [only] if lanes == 1 => only,
            _ => module.constant(ty, ConstKind::Composite(part)),
        });
    }
    match whole[..] {
        [only] => Some(only),
        _ => Some(module.constant(ty, ConstKind::Composite(whole))),
    }
}

/// Component `index` of a constant composite.
fn component(module: &mut Module, id: ConstId, index: u32) -> Option<ConstId> {
    let constant = module.constants[id].clone();
    let ty = match &module.types[constant.ty] {
        Type::Vector(element, n) if index < *n => *element,
        Type::Array(element, n) if u64::from(index) < *n => *element,
        Type::Struct { members, .. } => *members.get(index as usize)?,
        _ => return None,
    };
    match constant.kind {
        ConstKind::Composite(parts) => parts.get(index as usize).copied(),
        kind @ (ConstKind::Null | ConstKind::Undef) => Some(module.constant(ty, kind)),
        _ => None,
    }
}

/// The maximum number of components of a composite that is split to change one of them.
const MAX_COMPONENTS: u64 = 1 << 16;

fn insert(module: &mut Module, whole: ConstId, value: ConstId, path: &[u32]) -> Option<ConstId> {
    let Some((&index, rest)) = path.split_first() else { return Some(value) };
    let ty = module.constants[whole].ty;
    let count = match &module.types[ty] {
        Type::Vector(_, n) => u64::from(*n),
        Type::Array(_, n) => *n,
        Type::Struct { members, .. } => members.len() as u64,
        _ => 0,
    };
    if count > MAX_COMPONENTS {
        return None;
    }
    let mut parts = Vec::new();
    for i in 0..count as u32 {
        parts.push(component(module, whole, i)?);
    }
    let part = parts.get_mut(index as usize)?;
    *part = insert(module, *part, value, rest)?;
    Some(module.constant(ty, ConstKind::Composite(parts)))
}

fn by_component(module: &mut Module, op: &Op, ty: TypeId, args: &[ConstId]) -> Option<ConstId> {
    let to = Scalar::of(&module.types[module.types.element(ty)])?;
    let element = module.types.element(ty);
    let lanes = module.types.lanes(ty);
    let mut parts = Vec::with_capacity(lanes as usize);
    for lane in 0..lanes {
        let mut scalars = Vec::with_capacity(args.len());
        for &arg in args {
            let arg_ty = module.constants[arg].ty;
            let scalar = Scalar::of(&module.types[module.types.element(arg_ty)])?;
            let part = match module.types.lanes(arg_ty) {
                1 => arg,
                n if n == lanes => component(module, arg, lane)?,
                _ => return None,
            };
            scalars.push((scalar, module.const_bits(part)?));
        }
        let bits = match (op, scalars.as_slice()) {
            (Op::Unary(op, _), &[(s, a)]) => unary(*op, s, a)?,
            (Op::Binary(op, ..), &[(s, a), (_, b)]) => binary(*op, s, a, b)?,
            (Op::Ternary(op, ..), &[(s, a), (_, b), (_, c)]) => ternary(*op, s, a, b, c)?,
            (Op::Compare(op, ..), &[(s, a), (_, b)]) => u64::from(compare(*op, s, a, b)?),
            (Op::Test(op, _), &[(Scalar::Float(float), a)]) => u64::from(test(*op, float, a)),
            (Op::Convert(op, _), &[(from, a)]) if op_keeps_lanes(*op, from, to) => {
                convert(*op, from, to, a)?
            }
            (Op::Select(..), &[(_, condition), (_, yes), (_, no)]) => {
                if condition != 0 {
                    yes
                } else {
                    no
                }
            }
            _ => return None,
        };
        let part = module.const_int(element, bits);
        if lanes == 1 {
            return Some(part);
        }
        parts.push(part);
    }
    Some(module.constant(ty, ConstKind::Composite(parts)))
}

/// Whether a conversion works component by component: only a bit cast can change their number.
fn op_keeps_lanes(op: ConvertOp, from: Scalar, to: Scalar) -> bool {
    op != ConvertOp::Bitcast || from.bits() == to.bits()
}

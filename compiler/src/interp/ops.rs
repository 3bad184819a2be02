// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on values alone.

use super::value::Value;
use crate::ir::{BinaryOp, ConvertOp, MathOp, Module, Op, Type, TypeId};
use crate::ir::{Scalar, eval};

/// The result of an operation on typed values. `Err` names what cannot be done.
pub fn apply(
    module: &Module,
    op: &Op,
    ty: TypeId,
    args: &[(TypeId, Value)],
) -> Result<Value, String> {
    let arg = |i: usize| args.get(i).map_or(Value::Bits(0), |(_, value)| value.clone());
    Ok(match op {
        Op::Construct(_) => Value::Parts(args.iter().map(|(_, value)| value.clone()).collect()),
        Op::Extract(_, path) => {
            path.iter().fold(arg(0), |value, &index| value.part(index as usize))
        }
        Op::Insert(_, _, path) => {
            let (mut whole, part) = (arg(0), arg(1));
            insert(&mut whole, part, path);
            whole
        }
        Op::ExtractDynamic(..) => match arg(0) {
            Value::Parts(parts) => {
                parts.get(arg(1).bits() as usize).cloned().unwrap_or(Value::Bits(0))
            }
            scalar @ Value::Bits(_) => scalar,
        },
        Op::InsertDynamic(..) => {
            let mut whole = arg(0);
            if let Value::Parts(parts) = &mut whole
                && let Some(slot) = parts.get_mut(arg(2).bits() as usize)
            {
                *slot = arg(1);
            }
            whole
        }
        Op::Shuffle(_, _, mask) => {
            let mut parts = Vec::new();
            for value in [arg(0), arg(1)] {
                if let Value::Parts(more) = value {
                    parts.extend(more);
                }
            }
            let lane = |lane: &Option<u32>| {
                lane.and_then(|n| parts.get(n as usize).cloned()).unwrap_or(Value::Bits(0))
            };
            Value::Parts(mask.iter().map(lane).collect())
        }
        // A condition of one `bool` selects the whole value.
        Op::Select(..) if matches!(arg(0), Value::Bits(_)) => {
            if arg(0).bits() != 0 {
                arg(1)
            } else {
                arg(2)
            }
        }
        Op::Convert(ConvertOp::Bitcast, _) => bitcast(module, ty, args),
        Op::Math(op, _) => library(module, *op, args)?,
        Op::AddCarry(..) | Op::SubBorrow(..) | Op::UMulExtended(..) | Op::SMulExtended(..) => {
            extended(module, op, args)?
        }
        _ => by_component(module, op, ty, args)?,
    })
}

fn insert(whole: &mut Value, part: Value, path: &[u32]) {
    match (path.split_first(), whole) {
        (None, whole) => *whole = part,
        (Some((&index, rest)), Value::Parts(parts)) => {
            if let Some(slot) = parts.get_mut(index as usize) {
                insert(slot, part, rest);
            }
        }
        (Some(_), Value::Bits(_)) => {}
    }
}

/// Joins the bits of all components and splits them again.
fn bitcast(module: &Module, ty: TypeId, args: &[(TypeId, Value)]) -> Value {
    let types = &module.types;
    let mut bytes = Vec::new();
    for (from, value) in args {
        let size = (types.scalar_bits(*from) / 8) as usize;
        for lane in 0..types.lanes(*from) {
            bytes.extend_from_slice(&value.part(lane as usize).bits().to_le_bytes()[..size.min(8)]);
        }
    }
    let size = ((types.scalar_bits(ty) / 8) as usize).clamp(1, 8);
    let mut parts = bytes.chunks(size).map(|chunk| {
        let mut bits = [0; 8];
        bits[..chunk.len()].copy_from_slice(chunk);
        Value::Bits(u64::from_le_bytes(bits))
    });
    match types[ty] {
        Type::Vector(..) => Value::Parts(parts.collect()),
        _ => parts.next().unwrap_or(Value::Bits(0)),
    }
}

/// Applies a function to each component of values and passes it the component's number.
fn each_lane(
    module: &Module,
    ty: TypeId,
    mut lane: impl FnMut(usize) -> Result<u64, String>,
) -> Result<Value, String> {
    match module.types[ty] {
        Type::Vector(_, n) => {
            let parts: Result<Vec<Value>, String> =
                (0..n as usize).map(|i| lane(i).map(Value::Bits)).collect();
            parts.map(Value::Parts)
        }
        _ => lane(0).map(Value::Bits),
    }
}

fn scalar_of(module: &Module, ty: TypeId) -> Result<Scalar, String> {
    Scalar::of(&module.types[module.types.element(ty)])
        .ok_or_else(|| format!("an operation on {}", module.types.text(ty)))
}

fn by_component(
    module: &Module,
    op: &Op,
    ty: TypeId,
    args: &[(TypeId, Value)],
) -> Result<Value, String> {
    let unknown = || format!("{op:?}");
    let first = args.first().ok_or_else(unknown)?.0;
    let (from, to) = (scalar_of(module, first)?, scalar_of(module, ty)?);
    each_lane(module, ty, |lane| {
        let arg = |i: usize| args.get(i).map_or(0, |(_, value)| value.part(lane).bits());
        let (a, b, c) = (arg(0), arg(1), arg(2));
        match (op, from) {
            (Op::Unary(op, _), _) => eval::unary(*op, from, a),
            (Op::Binary(op, ..), _) => eval::binary(*op, from, a, b),
            (Op::Ternary(op, ..), _) => eval::ternary(*op, from, a, b, c),
            (Op::Compare(op, ..), _) => eval::compare(*op, from, a, b).map(u64::from),
            (Op::Test(op, _), Scalar::Float(float)) => Some(u64::from(eval::test(*op, float, a))),
            (Op::Select(..), _) => Some(if a != 0 { b } else { c }),
            (Op::Convert(op, _), _) => eval::convert(*op, from, to, a),
            _ => None,
        }
        .ok_or_else(unknown)
    })
}

fn library(module: &Module, op: MathOp, args: &[(TypeId, Value)]) -> Result<Value, String> {
    let first = args.first().ok_or_else(|| op.name().to_owned())?.0;
    let Scalar::Float(float) = scalar_of(module, first)? else {
        return Err(format!("{} of {}", op.name(), module.types.text(first)));
    };
    let compute = |lane: usize| {
        let bits: Vec<u64> = args.iter().map(|(_, value)| value.part(lane).bits()).collect();
        eval::library(op, float, &bits)
    };
    let result = each_lane(module, first, |lane| Ok(compute(lane).0))?;
    if op.second_result().is_none() {
        return Ok(result);
    }
    let second = each_lane(module, first, |lane| Ok(compute(lane).1))?;
    Ok(Value::Parts(vec![result, second]))
}

/// Sums, differences and products with the part that does not fit.
fn extended(module: &Module, op: &Op, args: &[(TypeId, Value)]) -> Result<Value, String> {
    let [(ty, a), (_, b)] = args else { return Err(format!("{op:?}")) };
    let scalar = scalar_of(module, *ty)?;
    let compute = |lane: usize| {
        let (a, b) = (a.part(lane).bits(), b.part(lane).bits());
        let (low, high) = match op {
            Op::AddCarry(..) => (BinaryOp::Add, None),
            Op::SubBorrow(..) => (BinaryOp::Sub, None),
            Op::UMulExtended(..) => (BinaryOp::Mul, Some(BinaryOp::UMulHi)),
            _ => (BinaryOp::Mul, Some(BinaryOp::SMulHi)),
        };
        let low = eval::binary(low, scalar, a, b)?;
        let high = match high {
            Some(high) => eval::binary(high, scalar, a, b)?,
            None if matches!(op, Op::AddCarry(..)) => u64::from(low < a),
            None => u64::from(a < b),
        };
        Some((low, high))
    };
    let unknown = || format!("{op:?}");
    let low = each_lane(module, *ty, |lane| compute(lane).map(|r| r.0).ok_or_else(unknown))?;
    let high = each_lane(module, *ty, |lane| compute(lane).map(|r| r.1).ok_or_else(unknown))?;
    Ok(Value::Parts(vec![low, high]))
}

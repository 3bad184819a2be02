// SPDX-License-Identifier: MIT OR Apache-2.0
//! The OpenCL.std instruction set: integers, vectors and memory. Floats are in
//! [`super::opencl_float`].

use rspirv::spirv::OpenclStd100Op as Cl;

use super::body::Body;
use super::controls::Rounding;
use super::error::Result;
use super::extended::{Args, FIRST};
use super::memory::plain_access;
use super::opencl_float;
use super::printf;
use super::words::Instruction;
use crate::ir::{BinaryOp, CompareOp, Float, Op, Operand, TernaryOp, TypeId, UnaryOp};

/// Translates an instruction of OpenCL.std.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let number = inst.arg(1)?;
    let Some(cl) = Cl::from_u32(number) else {
        return Err(inst.error(format!("names instruction {number}, which OpenCL.std has not")));
    };
    if cl == Cl::printf {
        return printf::translate(body, inst, FIRST);
    }
    let ty = body.result_type(inst)?;
    let args = Args { inst };
    let result = match integer(body, cl, ty, &args)? {
        Some(result) => Some(result),
        None => match vector(body, cl, ty, &args)? {
            Some(result) => Some(result),
            None if memory(body, cl, ty, &args)? => return Ok(()),
            None => opencl_float::translate(body, cl, ty, &args)?,
        },
    };
    match result {
        Some(result) => body.set_result(inst, result),
        None => body.unsupported(inst, &format!("OpExtInst {cl:?} of OpenCL.std")),
    }
}

fn integer(
    body: &mut Body<'_, '_>,
    cl: Cl,
    ty: TypeId,
    args: &Args<'_, '_>,
) -> Result<Option<Operand>> {
    let unary = match cl {
        Cl::s_abs => Some(UnaryOp::Abs),
        Cl::clz => Some(UnaryOp::Clz),
        Cl::ctz => Some(UnaryOp::Ctz),
        Cl::popcount => Some(UnaryOp::PopCount),
        _ => None,
    };
    if let Some(op) = unary {
        let a = args.value(body, 0)?;
        return Ok(Some(body.emit(ty, Op::Unary(op, a))));
    }
    let binary = match cl {
        Cl::s_abs_diff => Some(BinaryOp::SAbsDiff),
        Cl::u_abs_diff => Some(BinaryOp::UAbsDiff),
        Cl::s_add_sat => Some(BinaryOp::SAddSat),
        Cl::u_add_sat => Some(BinaryOp::UAddSat),
        Cl::s_sub_sat => Some(BinaryOp::SSubSat),
        Cl::u_sub_sat => Some(BinaryOp::USubSat),
        Cl::s_hadd => Some(BinaryOp::SHAdd),
        Cl::u_hadd => Some(BinaryOp::UHAdd),
        Cl::s_rhadd => Some(BinaryOp::SRHAdd),
        Cl::u_rhadd => Some(BinaryOp::URHAdd),
        Cl::s_max => Some(BinaryOp::SMax),
        Cl::u_max => Some(BinaryOp::UMax),
        Cl::s_min => Some(BinaryOp::SMin),
        Cl::u_min => Some(BinaryOp::UMin),
        Cl::s_mul_hi => Some(BinaryOp::SMulHi),
        Cl::u_mul_hi => Some(BinaryOp::UMulHi),
        Cl::s_mul24 | Cl::u_mul24 => Some(BinaryOp::Mul),
        Cl::rotate => Some(BinaryOp::Rotl),
        _ => None,
    };
    if let Some(op) = binary {
        let (a, b) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
        return Ok(Some(body.emit(ty, Op::Binary(op, a, b))));
    }
    // Operations of three operands: one operation, then possibly another one with the third operand.
    let (first, second) = match cl {
        Cl::s_clamp => (BinaryOp::SMax, BinaryOp::SMin),
        Cl::u_clamp => (BinaryOp::UMax, BinaryOp::UMin),
        Cl::s_mad_hi => (BinaryOp::SMulHi, BinaryOp::Add),
        Cl::u_mad_hi => (BinaryOp::UMulHi, BinaryOp::Add),
        Cl::s_mad24 | Cl::u_mad24 => (BinaryOp::Mul, BinaryOp::Add),
        Cl::s_mad_sat | Cl::u_mad_sat => {
            let op = if cl == Cl::s_mad_sat { TernaryOp::SMadSat } else { TernaryOp::UMadSat };
            let (a, b) = (args.value(body, 0)?, args.value(body, 1)?);
            let c = args.value(body, 2)?;
            return Ok(Some(body.emit(ty, Op::Ternary(op, a, b, c))));
        }
        Cl::u_upsample | Cl::s_upsample => {
            let (high, low) = (args.value(body, 0)?, args.value(body, 1)?);
            let half = u64::from(body.b.module.types.scalar_bits(ty) / 2);
            let high = body.resize_int(high, ty, false);
            let low = body.resize_int(low, ty, false);
            let by = body.splat(ty, half);
            let high = body.emit(ty, Op::Binary(BinaryOp::Shl, high, by));
            return Ok(Some(body.emit(ty, Op::Binary(BinaryOp::Or, high, low))));
        }
        Cl::u_abs => return args.value(body, 0).map(Some),
        _ => return Ok(None),
    };
    let (a, b) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
    let c = args.like(body, 2, ty)?;
    let partial = body.emit(ty, Op::Binary(first, a, b));
    Ok(Some(body.emit(ty, Op::Binary(second, partial, c))))
}

fn vector(
    body: &mut Body<'_, '_>,
    cl: Cl,
    ty: TypeId,
    args: &Args<'_, '_>,
) -> Result<Option<Operand>> {
    Ok(Some(match cl {
        Cl::select => {
            let (no, yes) = (args.value(body, 0)?, args.value(body, 1)?);
            let choice = args.value(body, 2)?;
            let choice_ty = body.type_of(choice);
            let bool_ty = body.bool_like(choice_ty);
            let zero = body.splat(choice_ty, 0);
            // A vector selects by the top bit of each component.
            let is_vector = body.b.module.types.lanes(choice_ty) > 1;
            let compare = if is_vector { CompareOp::SLt } else { CompareOp::Ne };
            let condition = body.emit(bool_ty, Op::Compare(compare, choice, zero));
            body.emit(ty, Op::Select(condition, yes, no))
        }
        Cl::bitselect => {
            let bits = body.int_like(ty);
            let (a, b) = (args.value(body, 0)?, args.value(body, 1)?);
            let c = args.value(body, 2)?;
            let [a, b, c] = [a, b, c].map(|x| body.bitcast(x, bits));
            let not_c = body.emit(bits, Op::Unary(UnaryOp::Not, c));
            let a = body.emit(bits, Op::Binary(BinaryOp::And, a, not_c));
            let b = body.emit(bits, Op::Binary(BinaryOp::And, b, c));
            let result = body.emit(bits, Op::Binary(BinaryOp::Or, a, b));
            body.bitcast(result, ty)
        }
        Cl::shuffle | Cl::shuffle2 => {
            let a = args.value(body, 0)?;
            let b = if cl == Cl::shuffle2 { Some(args.value(body, 1)?) } else { None };
            let mask = args.value(body, if b.is_some() { 2 } else { 1 })?;
            let from = body.type_of(a);
            let n = u64::from(body.b.module.types.lanes(from));
            let element = body.b.module.types.element(ty);
            let index_ty = body.b.module.types.element(body.type_of(mask));
            let (low, high) = (body.int(index_ty, n - 1), body.int(index_ty, n));
            let mut parts = Vec::new();
            for index in body.lanes(mask) {
                let within = body.emit(index_ty, Op::Binary(BinaryOp::And, index, low));
                let mut part = body.emit(element, Op::ExtractDynamic(a, within));
                if let Some(b) = b {
                    let other = body.emit(element, Op::ExtractDynamic(b, within));
                    let bit = body.emit(index_ty, Op::Binary(BinaryOp::And, index, high));
                    let bool_ty = body.b.module.types.bool();
                    let zero = body.int(index_ty, 0);
                    let second = body.emit(bool_ty, Op::Compare(CompareOp::Ne, bit, zero));
                    part = body.emit(element, Op::Select(second, other, part));
                }
                parts.push(part);
            }
            body.emit(ty, Op::Construct(parts))
        }
        _ => return Ok(None),
    }))
}

/// Loads and stores of vectors and halves. `false` if it is another instruction.
fn memory(body: &mut Body<'_, '_>, cl: Cl, ty: TypeId, args: &Args<'_, '_>) -> Result<bool> {
    match cl {
        Cl::prefetch => {}
        Cl::vloadn => {
            let element = body.b.module.types.element(ty);
            let n = body.b.module.types.lanes(ty);
            let align = body.b.module.types.align(element);
            let ptr = element_address(body, args, 0, element, u64::from(n))?;
            let result = body.emit(ty, Op::Load(ptr, plain_access(align)));
            body.set_result(args.inst, result)?;
        }
        Cl::vstoren => {
            let value = args.value(body, 0)?;
            let value_ty = body.type_of(value);
            let element = body.b.module.types.element(value_ty);
            let n = body.b.module.types.lanes(value_ty);
            let align = body.b.module.types.align(element);
            let ptr = element_address(body, args, 1, element, u64::from(n))?;
            body.emit_void(Op::Store(ptr, value, plain_access(align)));
        }
        Cl::vload_half | Cl::vload_halfn | Cl::vloada_halfn => {
            let (half, wide) = half_like(body, ty);
            let (stride, align) = half_layout(body, ty, cl == Cl::vloada_halfn);
            let ptr = element_address(body, args, 0, half, stride)?;
            let value = body.emit(wide, Op::Load(ptr, plain_access(align)));
            let result = body.float_to_float(value, ty, Rounding::Nearest);
            body.set_result(args.inst, result)?;
        }
        Cl::vstore_half
        | Cl::vstore_half_r
        | Cl::vstore_halfn
        | Cl::vstore_halfn_r
        | Cl::vstorea_halfn
        | Cl::vstorea_halfn_r => {
            let rounding = match cl {
                Cl::vstore_half_r | Cl::vstore_halfn_r | Cl::vstorea_halfn_r => {
                    let mode = args.literal(3)?;
                    Rounding::decode(mode).ok_or_else(|| {
                        args.inst.error(format!("has rounding mode {mode}, which does not exist"))
                    })?
                }
                _ => Rounding::Nearest,
            };
            let value = args.value(body, 0)?;
            let value_ty = body.type_of(value);
            let (half, narrow) = half_like(body, value_ty);
            let aligned = matches!(cl, Cl::vstorea_halfn | Cl::vstorea_halfn_r);
            let (stride, align) = half_layout(body, value_ty, aligned);
            let ptr = element_address(body, args, 1, half, stride)?;
            let value = body.float_to_float(value, narrow, rounding);
            body.emit_void(Op::Store(ptr, value, plain_access(align)));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// `f16`, and as many of it as `ty` has components.
fn half_like(body: &mut Body<'_, '_>, ty: TypeId) -> (TypeId, TypeId) {
    let half = body.b.module.types.float(Float::F16);
    (half, body.b.module.types.with_element(ty, half))
}

/// The distance of vectors of halves in elements, and their alignment in bytes.
fn half_layout(body: &Body<'_, '_>, ty: TypeId, aligned: bool) -> (u64, u64) {
    match (u64::from(body.b.module.types.lanes(ty)), aligned) {
        (3, true) => (4, 8),
        (n, true) => (n, 2 * n),
        (n, false) => (n, 2),
    }
}

/// `p + offset * n` of elements, for the operands `offset` (at `index`) and `p`.
fn element_address(
    body: &mut Body<'_, '_>,
    args: &Args<'_, '_>,
    index: usize,
    element: TypeId,
    n: u64,
) -> Result<Operand> {
    let (offset, base) = (args.value(body, index)?, args.value(body, index + 1)?);
    let stride = (n * body.b.module.types.size(element)) as i64;
    Ok(match body.signed_constant(offset) {
        Some(0) => base,
        Some(n) => body.address(base, n.wrapping_mul(stride), Vec::new(), true),
        None => body.address(base, 0, vec![(offset, stride)], true),
    })
}

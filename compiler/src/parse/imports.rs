// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of functions that a module imports and the compiler knows: LLVM's intrinsics, the atomics and
//! the sub-group barrier and reads of half floats from images of OpenCL C, which LLVM's SPIR-V back end leaves under
//! their mangled names, and the memory accesses of Intel's graphics compiler.

use super::body::Body;
use super::error::Result;
use super::mangled::{demangle, pointee_code};
use super::words::Instruction;
use super::{image, lsc, opencl_c};
use crate::ir::{AtomicOp, BinaryOp, Op, Operand, Ordering, Scope, UnaryOp};

/// Translates a call of an imported function; returns whether the compiler knows it.
pub fn call(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    name: &str,
    args: &[Operand],
) -> Result<bool> {
    if let Some(("sub_group_barrier", _)) = demangle(name) {
        // The flags select the memory that is ordered; here all of it is.
        let (execution, ordering) = (Scope::Subgroup, Ordering::SeqCst);
        body.emit_void(Op::ControlBarrier { execution, memory: execution, ordering });
        return Ok(true);
    }
    if let Some(("read_imageh", _)) = demangle(name) {
        image::read_half(body, inst)?;
        return Ok(true);
    }
    if opencl_c::effect(body, name) || lsc::call(body, inst, name, args)? {
        return Ok(true);
    }
    let ty = body.result_type(inst)?;
    if let Some((name, _)) = demangle(name)
        && let Some(number) = image::channels(body, name, args, ty)
    {
        body.set_result(inst, number)?;
        return Ok(true);
    }
    if let Some(value) = opencl_c::value(body, name, args, ty) {
        body.set_result(inst, value)?;
        return Ok(true);
    }
    let known = match intrinsic(name, args) {
        Some(op) => Some(op),
        None => atomic(body, name, args),
    };
    let Some(op) = known else { return Ok(false) };
    let operand = body.emit(ty, op);
    body.set_result(inst, operand)?;
    Ok(true)
}

/// Functions such as `llvm.usub.sat.i32`.
fn intrinsic(name: &str, args: &[Operand]) -> Option<Op> {
    let (stem, _) = name.strip_prefix("llvm.")?.rsplit_once('.')?;
    let binary = |op| match args {
        [a, b] => Some(Op::Binary(op, *a, *b)),
        _ => None,
    };
    let unary = |op| args.first().map(|&a| Op::Unary(op, a));
    match stem {
        "usub.sat" => binary(BinaryOp::USubSat),
        "uadd.sat" => binary(BinaryOp::UAddSat),
        "ssub.sat" => binary(BinaryOp::SSubSat),
        "sadd.sat" => binary(BinaryOp::SAddSat),
        "umin" => binary(BinaryOp::UMin),
        "umax" => binary(BinaryOp::UMax),
        "smin" => binary(BinaryOp::SMin),
        "smax" => binary(BinaryOp::SMax),
        "ctpop" => unary(UnaryOp::PopCount),
        "bitreverse" => unary(UnaryOp::BitReverse),
        "ctlz" => unary(UnaryOp::Clz),
        "cttz" => unary(UnaryOp::Ctz),
        "abs" => unary(UnaryOp::Abs),
        "fshl" => match args {
            [a, b, n] if a == b => Some(Op::Binary(BinaryOp::Rotl, *a, *n)),
            _ => None,
        },
        _ => None,
    }
}

fn atomic(body: &mut Body<'_, '_>, name: &str, args: &[Operand]) -> Option<Op> {
    let (name, params) = demangle(name)?;
    let code = pointee_code(params)?;
    let (operation, explicit) = match name.strip_suffix("_explicit") {
        Some(stem) => (stem, true),
        None => (name, false),
    };
    // The old functions are relaxed, those of C11 sequentially consistent unless they specify an order.
    let fetch = operation.strip_prefix("atomic_fetch_");
    let old = operation.strip_prefix("atomic_").or_else(|| operation.strip_prefix("atom_"));
    let (operation, order) = match (fetch, old) {
        (Some(operation), _) if explicit => {
            let order = args.get(2).and_then(|&order| body.signed_constant(order));
            (operation, order.map_or(Ordering::SeqCst, c11_order))
        }
        (Some(operation), _) => (operation, Ordering::SeqCst),
        (None, Some(operation)) if !explicit => (operation, Ordering::Relaxed),
        _ => return None,
    };
    let &ptr = args.first()?;
    let signed = matches!(code, 'i' | 'l');
    let float = matches!(code, 'f' | 'd' | 'D');
    let op = match operation {
        "inc" | "dec" => {
            let bits = if matches!(code, 'l' | 'm') { 64 } else { 32 };
            let ty = body.b.module.types.int(bits);
            let one = body.int(ty, 1);
            let op = if operation == "inc" { AtomicOp::Add } else { AtomicOp::Sub };
            return Some(Op::AtomicRmw(op, ptr, one, order, Scope::Device));
        }
        "add" if float => AtomicOp::FAdd,
        "min" if float => AtomicOp::FMin,
        "max" if float => AtomicOp::FMax,
        "add" => AtomicOp::Add,
        "sub" => AtomicOp::Sub,
        "and" => AtomicOp::And,
        "or" => AtomicOp::Or,
        "xor" => AtomicOp::Xor,
        "xchg" => AtomicOp::Exchange,
        "min" if signed => AtomicOp::SMin,
        "min" => AtomicOp::UMin,
        "max" if signed => AtomicOp::SMax,
        "max" => AtomicOp::UMax,
        _ => return None,
    };
    Some(Op::AtomicRmw(op, ptr, *args.get(1)?, order, Scope::Device))
}

/// The numbers of `memory_order` in OpenCL C.
fn c11_order(order: i64) -> Ordering {
    match order {
        0 => Ordering::Relaxed,
        1 | 2 => Ordering::Acquire,
        3 => Ordering::Release,
        4 => Ordering::AcqRel,
        _ => Ordering::SeqCst,
    }
}

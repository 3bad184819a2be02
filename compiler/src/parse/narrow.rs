// SPDX-License-Identifier: MIT OR Apache-2.0
//! Integers of other widths than 8, 16, 32 and 64 bits (SPV_INTEL_arbitrary_precision_integers, which is ALTERA's
//! now), up to 63: LLVM makes them of neighbouring members of structures, and AdaptiveCpp allows them.
//!
//! The IR has each as the next wider integer, and the upper bits of that are zero: of a result they are cleared,
//! and a signed operation gets operands whose sign is extended. In memory such an integer takes only the bytes that
//! it needs.

use rspirv::spirv::Op as Spv;

use super::arith;
use super::body::{Body, Val};
use super::builder::SpvKind;
use super::error::Result;
use super::memory;
use super::words::Instruction;
use crate::ir::{Access, BinaryOp, Flags, Op, Operand, Type, TypeId};

/// Translates an instruction for such integers. `false` if it is for others, or does the same for these.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    if !body.b.has_narrow {
        return Ok(false);
    }
    let to = inst.result_type().and_then(|ty| width(body, inst, ty));
    match inst.op() {
        Spv::Load if to.is_some() => load(body, inst, to)?,
        Spv::Store => return store(body, inst),
        Spv::Bitcast => return bitcast(body, inst, to),
        Spv::UConvert | Spv::SConvert => {
            if to.is_none() && of(body, inst, 0).is_none() {
                return Ok(false);
            }
            let is_signed = inst.op() == Spv::SConvert;
            let a = if is_signed { signed(body, inst, 0)? } else { body.arg(inst, 0)? };
            let ty = body.result_type(inst)?;
            let resized = body.resize_int(a, ty, is_signed);
            let result = low(body, resized, to);
            body.set_result(inst, result)?;
        }
        Spv::SDiv | Spv::SRem | Spv::SMod if to.is_some() => with_signed(body, inst, 2, to)?,
        Spv::ShiftRightArithmetic if to.is_some() => with_signed(body, inst, 1, to)?,
        Spv::SLessThan
        | Spv::SLessThanEqual
        | Spv::SGreaterThan
        | Spv::SGreaterThanEqual
        | Spv::ConvertSToF
            if of(body, inst, 0).is_some() =>
        {
            with_signed(body, inst, if inst.op() == Spv::ConvertSToF { 1 } else { 2 }, to)?;
        }
        Spv::IAdd
        | Spv::ISub
        | Spv::IMul
        | Spv::SNegate
        | Spv::Not
        | Spv::UDiv
        | Spv::UMod
        | Spv::BitwiseAnd
        | Spv::BitwiseOr
        | Spv::BitwiseXor
        | Spv::ShiftLeftLogical
        | Spv::ShiftRightLogical
        | Spv::ConvertFToU
        | Spv::ConvertFToS
        | Spv::CompositeExtract
            if to.is_some() =>
        {
            with_signed(body, inst, 0, to)?;
        }
        Spv::Phi | Spv::Select | Spv::Undef | Spv::FunctionCall | Spv::CopyObject => {
            return Ok(false);
        }
        Spv::AccessChain
        | Spv::InBoundsAccessChain
        | Spv::PtrAccessChain
        | Spv::InBoundsPtrAccessChain
            if index_width(body, inst).is_some() =>
        {
            refuse(body, inst, index_width(body, inst))?;
        }
        Spv::AtomicStore if of(body, inst, 3).is_some() => refuse(body, inst, of(body, inst, 3))?,
        Spv::Switch
        | Spv::SatConvertSToU
        | Spv::SatConvertUToS
        | Spv::ConvertUToPtr
        | Spv::IAddCarry
        | Spv::ISubBorrow
        | Spv::UMulExtended
        | Spv::SMulExtended
            if of(body, inst, 0).is_some() =>
        {
            refuse(body, inst, of(body, inst, 0))?
        }
        _ if to.is_some() => refuse(body, inst, to)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// The number of bits of a type that is such an integer.
pub fn width(body: &Body<'_, '_>, inst: &Instruction<'_>, ty: u32) -> Option<u32> {
    match body.b.spv_type(inst, ty).ok()?.kind {
        SpvKind::Narrow(bits) => Some(bits),
        _ => None,
    }
}

/// An integer with its upper bits cleared, if it has so many bits.
pub fn low(body: &mut Body<'_, '_>, a: Operand, bits: Option<u32>) -> Operand {
    let Some(bits) = bits else { return a };
    let ty = body.type_of(a);
    let mask = body.int(ty, (1 << bits) - 1);
    body.emit(ty, Op::Binary(BinaryOp::And, a, mask))
}

/// The number of bits of an operand that is such an integer.
fn of(body: &Body<'_, '_>, inst: &Instruction<'_>, index: usize) -> Option<u32> {
    let (_, ty) = body.value(inst, inst.arg(index).ok()?).ok()?;
    width(body, inst, ty)
}

/// The number of bits of an index that is such an integer.
fn index_width(body: &Body<'_, '_>, inst: &Instruction<'_>) -> Option<u32> {
    (1..inst.rest().len()).find_map(|index| of(body, inst, index))
}

/// An operand with its sign extended, if it is such an integer.
fn signed(body: &mut Body<'_, '_>, inst: &Instruction<'_>, index: usize) -> Result<Operand> {
    let a = body.arg(inst, index)?;
    let Some(bits) = of(body, inst, index) else { return Ok(a) };
    let ty = body.type_of(a);
    let by = body.int(ty, u64::from(body.b.module.types.scalar_bits(ty) - bits));
    let high = body.emit(ty, Op::Binary(BinaryOp::Shl, a, by));
    Ok(body.emit(ty, Op::Binary(BinaryOp::AShr, high, by)))
}

/// The operation on the wider integers, of which the first so many get their sign extended.
fn with_signed(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    count: usize,
    to: Option<u32>,
) -> Result<()> {
    // An overflow of fewer bits is none of more, and the other way round.
    let flags = std::mem::replace(&mut body.int_flags, Flags::empty());
    let mut before = Vec::new();
    let mut extended = Vec::new();
    for index in 0..count {
        let id = inst.arg(index)?;
        let (_, ty) = body.value(inst, id)?;
        extended.push((id, (Val::Operand(signed(body, inst, index)?), ty)));
    }
    for (id, value) in extended {
        before.push((id, body.values.insert(id, value)));
    }
    let done = arith::translate(body, inst);
    for (id, value) in before.into_iter().rev() {
        match value {
            Some(value) => body.values.insert(id, value),
            None => body.values.remove(&id),
        };
    }
    body.int_flags = flags;
    if !done? {
        return refuse(body, inst, to);
    }
    let id = inst.result().unwrap_or_default();
    let (value, ty) = body.value(inst, id)?;
    if let (Val::Operand(value), Some(_)) = (value, to) {
        let value = low(body, value, to);
        body.values.insert(id, (Val::Operand(value), ty));
    }
    Ok(())
}

/// The parts of such an integer in memory: integers of the IR, by their offset in bytes and size in bits.
fn parts(bits: u32) -> Vec<(u32, u32)> {
    let mut parts = Vec::new();
    let (mut at, end) = (0, bits.div_ceil(8));
    for size in [4, 2, 1] {
        if end - at >= size {
            parts.push((at, size * 8));
            at += size;
        }
    }
    parts
}

/// The address of a part, its type, and the access to it.
fn part(
    body: &mut Body<'_, '_>,
    whole: Operand,
    (offset, bits): (u32, u32),
    access: Access,
) -> (Operand, TypeId, Access) {
    let pointer = body.type_of(whole);
    let address =
        Op::Address { base: whole, offset: i64::from(offset), terms: Vec::new(), inbounds: true };
    let at = if offset == 0 { whole } else { body.emit(pointer, address) };
    let align =
        if offset == 0 { access.align } else { access.align.min(offset & offset.wrapping_neg()) };
    (at, body.b.module.types.int(bits), Access { align, ..access })
}

fn load(body: &mut Body<'_, '_>, inst: &Instruction<'_>, to: Option<u32>) -> Result<()> {
    let ty = body.result_type(inst)?;
    let access = memory::access(body, inst, 1, ty)?;
    let whole = body.arg(inst, 0)?;
    let mut result = body.int(ty, 0);
    for place in parts(to.unwrap_or_default()) {
        let (at, part_ty, access) = part(body, whole, place, access);
        let bits = body.emit(part_ty, Op::Load(at, access));
        let wide = body.resize_int(bits, ty, false);
        let by = body.int(ty, u64::from(place.0 * 8));
        let moved = body.emit(ty, Op::Binary(BinaryOp::Shl, wide, by));
        result = body.emit(ty, Op::Binary(BinaryOp::Or, result, moved));
    }
    let result = low(body, result, to);
    body.set_result(inst, result)
}

fn store(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let Some(bits) = of(body, inst, 1) else { return Ok(false) };
    let (whole, value) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
    let ty = body.type_of(value);
    let access = memory::access(body, inst, 2, ty)?;
    for place in parts(bits) {
        let (at, part_ty, access) = part(body, whole, place, access);
        let by = body.int(ty, u64::from(place.0 * 8));
        let moved = body.emit(ty, Op::Binary(BinaryOp::LShr, value, by));
        let bits = body.resize_int(moved, part_ty, false);
        body.emit_void(Op::Store(at, bits, access));
    }
    Ok(true)
}

/// From or to a vector of as many bits.
fn bitcast(body: &mut Body<'_, '_>, inst: &Instruction<'_>, to: Option<u32>) -> Result<bool> {
    let from = of(body, inst, 0);
    let Some(bits) = to.or(from).filter(|_| to != from) else {
        return Ok(to.is_some() && copy(body, inst)?);
    };
    let (a, ty) = (body.arg(inst, 0)?, body.result_type(inst)?);
    let (vector, word) = if to.is_some() { (body.type_of(a), ty) } else { (ty, body.type_of(a)) };
    let (Type::Vector(_, lanes), size) =
        (body.b.module.types[vector].clone(), body.b.module.types.scalar_bits(vector))
    else {
        return refuse(body, inst, Some(bits)).map(|()| true);
    };
    if lanes * size != bits {
        return Err(inst.error("changes the number of bits".into()));
    }
    let ints = body.int_like(vector);
    let int = body.b.module.types.element(ints);
    if to.is_some() {
        let all = body.bitcast(a, ints);
        let mut result = body.int(word, 0);
        for lane in 0..lanes {
            let one = body.extract(all, int, vec![lane]);
            let wide = body.resize_int(one, word, false);
            let by = body.int(word, u64::from(lane * size));
            let moved = body.emit(word, Op::Binary(BinaryOp::Shl, wide, by));
            result = body.emit(word, Op::Binary(BinaryOp::Or, result, moved));
        }
        body.set_result(inst, result)?;
        return Ok(true);
    }
    let mut all = Vec::new();
    for lane in 0..lanes {
        let by = body.int(word, u64::from(lane * size));
        let moved = body.emit(word, Op::Binary(BinaryOp::LShr, a, by));
        all.push(body.resize_int(moved, int, false));
    }
    let whole = body.emit(ints, Op::Construct(all));
    let result = body.bitcast(whole, ty);
    body.set_result(inst, result)?;
    Ok(true)
}

/// From such a type to itself.
fn copy(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let a = body.arg(inst, 0)?;
    body.set_result(inst, a)?;
    Ok(true)
}

fn refuse(body: &mut Body<'_, '_>, inst: &Instruction<'_>, bits: Option<u32>) -> Result<()> {
    let bits = bits.unwrap_or_default();
    body.unsupported(inst, &format!("{} with an integer of {bits} bits", inst.grammar.name))
}

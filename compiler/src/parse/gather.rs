// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors of pointers, and accesses through them (SPV_INTEL_masked_gather_scatter).
//!
//! A gather is a load for each component whose mask is true, one after the other, and a scatter is as many
//! stores: where two go to one place, the later component's value stays. Widening makes gathers and scatters
//! of the items of a vector of each of them.

use rspirv::spirv::Op as Spv;

use super::annotations::alignment;
use super::body::Body;
use super::error::Result;
use super::memory::plain_access;
use super::words::Instruction;
use crate::ir::{BinaryOp, CompareOp, ConstKind, ConvertOp, Op, Operand, Terminator, Type, TypeId};

/// Translates an instruction on vectors of pointers. `false` if it is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    match inst.op() {
        Spv::MaskedGatherINTEL => gather(body, inst)?,
        Spv::MaskedScatterINTEL => scatter(body, inst)?,
        Spv::PtrEqual | Spv::PtrNotEqual | Spv::PtrDiff if is_vector(body, inst, 0)? => {
            compute(body, inst)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn is_vector(body: &Body<'_, '_>, inst: &Instruction<'_>, index: usize) -> Result<bool> {
    let ty = body.type_of(body.arg(inst, index)?);
    Ok(body.b.module.types.lanes(ty) > 1)
}

/// Comparisons and differences.
fn compute(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let ty = body.result_type(inst)?;
    let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
    let i64 = body.b.module.types.int(64);
    let wide = body.b.module.types.with_element(body.type_of(a), i64);
    let [a, b] = [a, b].map(|pointers| body.emit(wide, Op::Convert(ConvertOp::PtrToInt, pointers)));
    let result = match inst.op() {
        Spv::PtrEqual => body.emit(ty, Op::Compare(CompareOp::Eq, a, b)),
        Spv::PtrNotEqual => body.emit(ty, Op::Compare(CompareOp::Ne, a, b)),
        _ => {
            let (_, type_id) = body.value(inst, inst.arg(0)?)?;
            let size = body.pointer_step(inst, type_id)?;
            let bytes = body.emit(wide, Op::Binary(BinaryOp::Sub, a, b));
            let size = body.splat(wide, size);
            let count = body.emit(wide, Op::Binary(BinaryOp::SDiv, bytes, size));
            body.resize_int(count, ty, true)
        }
    };
    body.set_result(inst, result)
}

/// The components of a gather's or a scatter's pointers and mask, which have to be as many as those of its
/// values.
fn places(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    values: TypeId,
    pointers: Operand,
    mask: Operand,
) -> Result<Vec<(Operand, Operand)>> {
    let types = &body.b.module.types;
    let lanes = types.lanes(values);
    let of = |operand: Operand| {
        let ty = body.type_of(operand);
        (&types[types.element(ty)], types.lanes(ty))
    };
    let (pointer, pointers_lanes) = of(pointers);
    if lanes < 2 || !matches!(pointer, Type::Pointer(_)) || pointers_lanes != lanes {
        let (values, pointers) = (types.text(values), types.text(body.type_of(pointers)));
        return Err(inst.error(format!("accesses {values} through pointers of type {pointers}")));
    }
    if of(mask) != (&Type::Bool, lanes) {
        let mask = types.text(body.type_of(mask));
        return Err(inst.error(format!("has a mask of type {mask} for {lanes} components")));
    }
    let flags = known(body, mask);
    let masks = match flags {
        Some(flags) => flags,
        None => body.lanes(mask),
    };
    Ok(body.lanes(pointers).into_iter().zip(masks).collect())
}

/// The components of a constant mask, which need no test.
fn known(body: &mut Body<'_, '_>, mask: Operand) -> Option<Vec<Operand>> {
    let Operand::Const(id) = mask else { return None };
    match &body.b.module.constants[id].kind {
        ConstKind::Composite(parts) => {
            Some(parts.iter().map(|&part| Operand::Const(part)).collect())
        }
        _ => None,
    }
}

/// Whether a mask's component is a constant.
fn fixed(body: &Body<'_, '_>, flag: Operand) -> Option<bool> {
    match flag {
        Operand::Const(id) => body.b.module.const_bits(id).map(|bits| bits != 0),
        Operand::Value(_) => None,
    }
}

fn gather(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let ty = body.result_type(inst)?;
    let (pointers, mask) = (body.arg(inst, 0)?, body.arg(inst, 2)?);
    let access = plain_access(u64::from(alignment(inst, inst.arg(1)?)?));
    let fill = body.arg(inst, 3)?;
    if body.type_of(fill) != ty {
        return Err(inst.error("fills with values of another type than its result".into()));
    }
    let places = places(body, inst, ty, pointers, mask)?;
    let element = body.b.module.types.element(ty);
    let mut parts = Vec::with_capacity(places.len());
    for (index, (pointer, flag)) in places.into_iter().enumerate() {
        let other = body.extract(fill, element, vec![index as u32]);
        parts.push(match fixed(body, flag) {
            Some(true) => body.emit(element, Op::Load(pointer, access)),
            Some(false) => other,
            None => {
                let before = body.current_block();
                let [read, next] = [body.new_block(), body.new_block()];
                body.go_on(Terminator::CondBranch(flag, read, next), read);
                let value = body.emit(element, Op::Load(pointer, access));
                body.go_on(Terminator::Branch(next), next);
                body.emit(element, Op::Phi(vec![(before, other), (read, value)]))
            }
        });
    }
    let whole = body.emit(ty, Op::Construct(parts));
    body.set_result(inst, whole)
}

fn scatter(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let (values, pointers) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
    let access = plain_access(u64::from(alignment(inst, inst.arg(2)?)?));
    let mask = body.arg(inst, 3)?;
    let ty = body.type_of(values);
    let places = places(body, inst, ty, pointers, mask)?;
    let values = body.lanes(values);
    for ((pointer, flag), value) in places.into_iter().zip(values) {
        match fixed(body, flag) {
            Some(true) => body.emit_void(Op::Store(pointer, value, access)),
            Some(false) => {}
            None => {
                let [write, next] = [body.new_block(), body.new_block()];
                body.go_on(Terminator::CondBranch(flag, write, next), write);
                body.emit_void(Op::Store(pointer, value, access));
                body.go_on(Terminator::Branch(next), next);
            }
        }
    }
    Ok(())
}

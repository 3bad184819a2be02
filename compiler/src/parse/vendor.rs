// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions of extensions that correspond to one operation of the IR, or nearly: integer functions,
//! split barriers, brain floats, casts to and from more address spaces.

use rspirv::spirv::Op as Spv;

use super::body::Body;
use super::error::Result;
use super::memory::{memory_ordering, scope};
use super::words::Instruction;
use crate::ir::{BinaryOp, Float, FloatTest, Op, Operand, Ordering, TypeId, UnaryOp};

/// Translates such an instruction. `false` if it is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let unary = match inst.op() {
        Spv::UCountLeadingZerosINTEL => Some(UnaryOp::Clz),
        Spv::UCountTrailingZerosINTEL => Some(UnaryOp::Ctz),
        _ => None,
    };
    let binary = match inst.op() {
        Spv::AbsISubINTEL => Some(BinaryOp::SAbsDiff),
        Spv::AbsUSubINTEL => Some(BinaryOp::UAbsDiff),
        Spv::IAddSatINTEL => Some(BinaryOp::SAddSat),
        Spv::UAddSatINTEL => Some(BinaryOp::UAddSat),
        Spv::ISubSatINTEL => Some(BinaryOp::SSubSat),
        Spv::USubSatINTEL => Some(BinaryOp::USubSat),
        Spv::IAverageINTEL => Some(BinaryOp::SHAdd),
        Spv::UAverageINTEL => Some(BinaryOp::UHAdd),
        Spv::IAverageRoundedINTEL => Some(BinaryOp::SRHAdd),
        Spv::UAverageRoundedINTEL => Some(BinaryOp::URHAdd),
        _ => None,
    };
    let result = match inst.op() {
        Spv::ControlBarrierArriveINTEL => {
            // An item that has arrived waits later; it is enough that it waits for all there.
            scope(body, inst, 0)?;
            let (memory, _) = (scope(body, inst, 1)?, memory_ordering(body, inst, 2)?);
            body.emit_void(Op::Fence(memory, Ordering::SeqCst));
            return Ok(true);
        }
        Spv::ControlBarrierWaitINTEL => {
            let (execution, memory) = (scope(body, inst, 0)?, scope(body, inst, 1)?);
            let ordering = memory_ordering(body, inst, 2)?;
            body.emit_void(Op::ControlBarrier { execution, memory, ordering });
            return Ok(true);
        }
        _ => {
            let known = unary.is_some()
                || binary.is_some()
                || matches!(
                    inst.op(),
                    Spv::IMul32x16INTEL
                        | Spv::UMul32x16INTEL
                        | Spv::ArithmeticFenceEXT
                        | Spv::ConvertFToBF16INTEL
                        | Spv::ConvertBF16ToFINTEL
                        | Spv::SizeOf
                        | Spv::GenericPtrMemSemantics
                );
            if !known {
                return Ok(false);
            }
            let ty = body.result_type(inst)?;
            match (unary, binary) {
                (Some(op), _) => {
                    let a = body.arg(inst, 0)?;
                    body.emit(ty, Op::Unary(op, a))
                }
                (_, Some(op)) => {
                    let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
                    body.emit(ty, Op::Binary(op, a, b))
                }
                _ => other(body, inst, ty)?,
            }
        }
    };
    body.set_result(inst, result)?;
    Ok(true)
}

fn other(body: &mut Body<'_, '_>, inst: &Instruction<'_>, ty: TypeId) -> Result<Operand> {
    Ok(match inst.op() {
        Spv::IMul32x16INTEL | Spv::UMul32x16INTEL => {
            let signed = inst.op() == Spv::IMul32x16INTEL;
            let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let [a, b] = [a, b].map(|x| body.resize_int(x, ty, signed));
            body.emit(ty, Op::Binary(BinaryOp::Mul, a, b))
        }
        Spv::ConvertFToBF16INTEL => to_brain(body, inst, ty)?,
        Spv::ConvertBF16ToFINTEL => {
            let a = body.arg(inst, 0)?;
            let i32 = body.b.module.types.int(32);
            let wide = body.b.module.types.with_element(ty, i32);
            let bits = body.resize_int(a, wide, false);
            let by = body.splat(wide, 16);
            let bits = body.emit(wide, Op::Binary(BinaryOp::Shl, bits, by));
            body.bitcast(bits, ty)
        }
        Spv::SizeOf => {
            let (_, pointer) = body.value(inst, inst.arg(0)?)?;
            let pointee = body.pointee(inst, pointer)?;
            let size = body.b.module.types.size(pointee);
            body.int(ty, size)
        }
        Spv::GenericPtrMemSemantics => {
            // All address spaces are ranges of one: the original one is unknown.
            body.arg(inst, 0)?;
            body.int(ty, 0x300)
        }
        _ => body.arg(inst, 0)?,
    })
}

/// Brain floats: the upper half of a float, rounded to nearest, ties to even. NaN stays one.
fn to_brain(body: &mut Body<'_, '_>, inst: &Instruction<'_>, ty: TypeId) -> Result<Operand> {
    let a = body.arg(inst, 0)?;
    let from = body.type_of(a);
    if body.b.module.types.scalar_bits(from) != Float::F32.bits() {
        return Err(inst.error("converts something else than 32-bit floats".into()));
    }
    let (bits_ty, bool_ty) = (body.int_like(from), body.bool_like(from));
    let bits = body.bitcast(a, bits_ty);
    let constant = |body: &mut Body<'_, '_>, value| body.splat(bits_ty, value);
    let (sixteen, one) = (constant(body, 16), constant(body, 1));
    let (half, quiet) = (constant(body, 0x7fff), constant(body, 0x40_0000));
    let binary = |body: &mut Body<'_, '_>, op, a, b| body.emit(bits_ty, Op::Binary(op, a, b));
    let last = binary(body, BinaryOp::LShr, bits, sixteen);
    let odd = binary(body, BinaryOp::And, last, one);
    let rounded = binary(body, BinaryOp::Add, bits, half);
    let rounded = binary(body, BinaryOp::Add, rounded, odd);
    let nan = body.emit(bool_ty, Op::Test(FloatTest::IsNan, a));
    let kept = binary(body, BinaryOp::Or, bits, quiet);
    let chosen = body.emit(bits_ty, Op::Select(nan, kept, rounded));
    let high = binary(body, BinaryOp::LShr, chosen, sixteen);
    Ok(body.resize_int(high, ty, false))
}

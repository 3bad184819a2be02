// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions of extensions that correspond to one operation of the IR, or nearly: integer functions,
//! split barriers, casts to and from more address spaces.

use rspirv::spirv::Op as Spv;

use super::body::Body;
use super::error::Result;
use super::memory::{memory_ordering, scope};
use super::words::Instruction;
use crate::ir::{BinaryOp, Op, Operand, Ordering, TypeId, UnaryOp};

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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Integer dot products (SPV_KHR_integer_dot_product).

use rspirv::spirv::Op as Spv;

use super::body::Body;
use super::error::Result;
use super::words::Instruction;
use crate::ir::{BinaryOp, ConvertOp, Op, Operand, Type};

/// `PackedVectorFormat4x8Bit`: four signed or unsigned bytes in 32 bits.
const PACKED_4X8: u32 = 0;

/// Translates a dot product. `false` if it is another instruction.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    // Whether the first and the second vector are signed, and whether a third operand is added.
    let (signed, adds) = match inst.op() {
        Spv::SDot => ((true, true), false),
        Spv::UDot => ((false, false), false),
        Spv::SUDot => ((true, false), false),
        Spv::SDotAccSat => ((true, true), true),
        Spv::UDotAccSat => ((false, false), true),
        Spv::SUDotAccSat => ((true, false), true),
        _ => return Ok(false),
    };
    let ty = body.result_type(inst)?;
    let format = inst.arg(if adds { 3 } else { 2 }).ok();
    let (a, b) = (vector(body, inst, 0, format)?, vector(body, inst, 1, format)?);
    let bits = body.b.module.types.scalar_bits(ty);
    let parts = body.b.module.types.scalar_bits(body.type_of(a));
    // With at most sixteen products of 16 bits, 64 bits hold the exact sum, for any addend.
    let exact = parts <= 16 && bits <= 32;
    let wide = body.b.module.types.int(if exact { 64 } else { bits });
    let (a, b) = (body.lanes(a), body.lanes(b));
    let mut sum = body.int(wide, 0);
    for (a, b) in a.into_iter().zip(b) {
        let [a, b] =
            [(a, signed.0), (b, signed.1)].map(|(x, signed)| body.resize_int(x, wide, signed));
        let product = body.emit(wide, Op::Binary(BinaryOp::Mul, a, b));
        sum = body.emit(wide, Op::Binary(BinaryOp::Add, sum, product));
    }
    let signed = signed.0;
    let result = if !adds {
        body.resize_int(sum, ty, signed)
    } else if exact {
        let more = body.arg(inst, 2)?;
        let more = body.resize_int(more, wide, signed);
        let sum = body.emit(wide, Op::Binary(BinaryOp::Add, sum, more));
        // The exact sum is a signed number even if the operands are unsigned: it is below 2^63.
        body.saturate_int(sum, ty, true, signed)
    } else {
        let more = body.arg(inst, 2)?;
        let op = if signed { BinaryOp::SAddSat } else { BinaryOp::UAddSat };
        body.emit(ty, Op::Binary(op, sum, more))
    };
    body.set_result(inst, result)?;
    Ok(true)
}

/// An operand as a vector of integers.
fn vector(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    index: usize,
    format: Option<u32>,
) -> Result<Operand> {
    let a = body.arg(inst, index)?;
    let ty = body.type_of(a);
    match (&body.b.module.types[ty], format) {
        (Type::Vector(..), _) => Ok(a),
        (Type::Int(32), Some(PACKED_4X8)) => {
            let byte = body.b.module.types.int(8);
            let bytes = body.b.module.types.intern(Type::Vector(byte, 4));
            let bytes = bytes.ok_or_else(|| inst.error("has no vector".into()))?;
            Ok(body.emit(bytes, Op::Convert(ConvertOp::Bitcast, a)))
        }
        _ => Err(inst.error(format!("has operand {index} that is no vector"))),
    }
}

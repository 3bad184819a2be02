// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floats with fewer bits of fraction: brain floats, which are the upper half of a 32-bit float and which the IR
//! has as integers of 16 bits, and TF32, whose numbers are 32-bit floats.

use rspirv::spirv::Op as Spv;

use super::body::Body;
use super::builder::SpvKind;
use super::error::Result;
use super::words::Instruction;
use crate::ir::{BinaryOp, Float, FloatTest, Op, Operand, TypeId};

/// Translates a conversion of Intel's extensions. `false` if the instruction is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    if !is_conversion(inst.op()) {
        return Ok(false);
    }
    let (a, ty) = (body.arg(inst, 0)?, body.result_type(inst)?);
    let result = converted(body, inst, a, ty)?;
    body.set_result(inst, result)?;
    Ok(true)
}

/// Whether an instruction is such a conversion.
pub fn is_conversion(op: Spv) -> bool {
    matches!(op, Spv::ConvertFToBF16INTEL | Spv::ConvertBF16ToFINTEL | Spv::RoundFToTF32INTEL)
}

/// A number, or a vector of them, converted as an instruction does to a type.
pub fn converted(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    a: Operand,
    ty: TypeId,
) -> Result<Operand> {
    let from = body.b.module.types.scalar_bits(body.type_of(a));
    let wanted = if inst.op() == Spv::ConvertBF16ToFINTEL { 16 } else { Float::F32.bits() };
    if from != wanted {
        return Err(inst.error(format!("converts something else than {wanted}-bit floats")));
    }
    Ok(match inst.op() {
        Spv::ConvertFToBF16INTEL => body.float_to_brain(a, ty),
        Spv::RoundFToTF32INTEL => body.without_low_bits(a, 13),
        _ => body.brain_to_float(a),
    })
}

/// Whether the operand of an instruction, and its result, are brain floats or vectors or matrices of them.
pub fn brains(body: &Body<'_, '_>, inst: &Instruction<'_>) -> Result<(bool, bool)> {
    let (_, from) = body.value(inst, inst.arg(0)?)?;
    let to = inst.result_type().unwrap_or_default();
    Ok((is_brain(body, inst, from)?, is_brain(body, inst, to)?))
}

/// Whether a type is one of brain floats.
pub fn is_brain(body: &Body<'_, '_>, inst: &Instruction<'_>, ty: u32) -> Result<bool> {
    Ok(match &body.b.spv_type(inst, ty)?.kind {
        SpvKind::Brain => true,
        SpvKind::Matrix(matrix) => {
            matches!(body.b.spv_type(inst, matrix.component)?.kind, SpvKind::Brain)
        }
        _ => false,
    })
}

impl Body<'_, '_> {
    /// 32-bit floats of brain floats.
    pub fn brain_to_float(&mut self, a: Operand) -> Operand {
        let ty = self.type_of(a);
        let (i32, float) = (self.b.module.types.int(32), self.b.module.types.float(Float::F32));
        let wide = self.b.module.types.with_element(ty, i32);
        let floats = self.b.module.types.with_element(ty, float);
        let bits = self.resize_int(a, wide, false);
        let by = self.splat(wide, 16);
        let bits = self.emit(wide, Op::Binary(BinaryOp::Shl, bits, by));
        self.bitcast(bits, floats)
    }

    /// Brain floats of 32-bit floats, rounded to nearest, ties to even.
    pub fn float_to_brain(&mut self, a: Operand, ty: TypeId) -> Operand {
        let rounded = self.without_low_bits(a, 16);
        let bits_ty = self.int_like(self.type_of(a));
        let bits = self.bitcast(rounded, bits_ty);
        let by = self.splat(bits_ty, 16);
        let high = self.emit(bits_ty, Op::Binary(BinaryOp::LShr, bits, by));
        self.resize_int(high, ty, false)
    }

    /// 32-bit floats whose lowest bits are zero, rounded to nearest, ties to even. NaN stays one.
    fn without_low_bits(&mut self, a: Operand, low: u32) -> Operand {
        let ty = self.type_of(a);
        let (bits_ty, bool_ty) = (self.int_like(ty), self.bool_like(ty));
        let bits = self.bitcast(a, bits_ty);
        let constant = |body: &mut Self, value| body.splat(bits_ty, value);
        let (by, one) = (constant(self, low.into()), constant(self, 1));
        let half = constant(self, (1 << (low - 1)) - 1);
        let (quiet, high) = (constant(self, 0x40_0000), constant(self, u64::MAX << low));
        let binary = |body: &mut Self, op, a, b| body.emit(bits_ty, Op::Binary(op, a, b));
        let last = binary(self, BinaryOp::LShr, bits, by);
        let odd = binary(self, BinaryOp::And, last, one);
        let rounded = binary(self, BinaryOp::Add, bits, half);
        let rounded = binary(self, BinaryOp::Add, rounded, odd);
        let nan = self.emit(bool_ty, Op::Test(FloatTest::IsNan, a));
        let kept = binary(self, BinaryOp::Or, bits, quiet);
        let chosen = self.emit(bits_ty, Op::Select(nan, kept, rounded));
        let cut = binary(self, BinaryOp::And, chosen, high);
        self.bitcast(cut, ty)
    }
}

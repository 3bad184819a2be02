// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions that compute on values alone: arithmetic, comparisons, conversions, composites.

use rspirv::spirv::Op as Spv;

use super::body::Body;
use super::brain;
use super::controls::Rounding;
use super::error::Result;
use super::words::Instruction;
use crate::ir::{
    BinaryOp, CompareOp, ConstKind, ConvertOp, Float, FloatTest, MathOp, Op, Operand, TernaryOp,
    Type, TypeId, UnaryOp,
};

/// Translates an instruction that computes on values. `false` if it is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    if let Some(op) = unary_op(inst.op()) {
        let a = body.arg(inst, 0)?;
        body.simple(inst, Op::Unary(op, a))?;
    } else if let Some(op) = binary_op(inst.op()) {
        let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
        let (a, b) = match inst.op() {
            Spv::BitwiseAnd
            | Spv::BitwiseOr
            | Spv::BitwiseXor
            | Spv::IAdd
            | Spv::ISub
            | Spv::IMul => (body.low_bits(inst, a)?, body.low_bits(inst, b)?),
            Spv::ShiftLeftLogical => (body.low_bits(inst, a)?, b),
            _ => (a, b),
        };
        let b = if matches!(op, BinaryOp::Shl | BinaryOp::LShr | BinaryOp::AShr) {
            let ty = body.type_of(a);
            body.resize_int(b, ty, false)
        } else {
            b
        };
        body.simple(inst, Op::Binary(op, a, b))?;
    } else if let Some(op) = compare_op(inst.op()) {
        let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
        body.simple(inst, Op::Compare(op, a, b))?;
    } else if let Some(test) = float_test(inst.op()) {
        let a = body.arg(inst, 0)?;
        body.simple(inst, Op::Test(test, a))?;
    } else {
        return Ok(convert(body, inst)? || composite(body, inst)? || other(body, inst)?);
    }
    Ok(true)
}

pub fn unary_op(op: Spv) -> Option<UnaryOp> {
    Some(match op {
        Spv::SNegate => UnaryOp::Neg,
        Spv::FNegate => UnaryOp::FNeg,
        Spv::Not | Spv::LogicalNot => UnaryOp::Not,
        Spv::BitReverse => UnaryOp::BitReverse,
        _ => return None,
    })
}

pub fn binary_op(op: Spv) -> Option<BinaryOp> {
    Some(match op {
        Spv::IAdd => BinaryOp::Add,
        Spv::ISub => BinaryOp::Sub,
        Spv::IMul => BinaryOp::Mul,
        Spv::UDiv => BinaryOp::UDiv,
        Spv::SDiv => BinaryOp::SDiv,
        Spv::UMod => BinaryOp::URem,
        Spv::SRem => BinaryOp::SRem,
        Spv::SMod => BinaryOp::SMod,
        Spv::FAdd => BinaryOp::FAdd,
        Spv::FSub => BinaryOp::FSub,
        Spv::FMul => BinaryOp::FMul,
        Spv::FDiv => BinaryOp::FDiv,
        Spv::ShiftLeftLogical => BinaryOp::Shl,
        Spv::ShiftRightLogical => BinaryOp::LShr,
        Spv::ShiftRightArithmetic => BinaryOp::AShr,
        Spv::BitwiseAnd | Spv::LogicalAnd => BinaryOp::And,
        Spv::BitwiseOr | Spv::LogicalOr => BinaryOp::Or,
        Spv::BitwiseXor => BinaryOp::Xor,
        _ => return None,
    })
}

fn compare_op(op: Spv) -> Option<CompareOp> {
    Some(match op {
        Spv::IEqual | Spv::LogicalEqual | Spv::PtrEqual => CompareOp::Eq,
        Spv::INotEqual | Spv::LogicalNotEqual | Spv::PtrNotEqual => CompareOp::Ne,
        Spv::ULessThan => CompareOp::ULt,
        Spv::ULessThanEqual => CompareOp::ULe,
        Spv::UGreaterThan => CompareOp::UGt,
        Spv::UGreaterThanEqual => CompareOp::UGe,
        Spv::SLessThan => CompareOp::SLt,
        Spv::SLessThanEqual => CompareOp::SLe,
        Spv::SGreaterThan => CompareOp::SGt,
        Spv::SGreaterThanEqual => CompareOp::SGe,
        Spv::FOrdEqual => CompareOp::FOEq,
        Spv::FOrdNotEqual | Spv::LessOrGreater => CompareOp::FONe,
        Spv::FOrdLessThan => CompareOp::FOLt,
        Spv::FOrdLessThanEqual => CompareOp::FOLe,
        Spv::FOrdGreaterThan => CompareOp::FOGt,
        Spv::FOrdGreaterThanEqual => CompareOp::FOGe,
        Spv::FUnordEqual => CompareOp::FUEq,
        Spv::FUnordNotEqual => CompareOp::FUNe,
        Spv::FUnordLessThan => CompareOp::FULt,
        Spv::FUnordLessThanEqual => CompareOp::FULe,
        Spv::FUnordGreaterThan => CompareOp::FUGt,
        Spv::FUnordGreaterThanEqual => CompareOp::FUGe,
        Spv::Ordered => CompareOp::FOrd,
        Spv::Unordered => CompareOp::FUno,
        _ => return None,
    })
}

fn float_test(op: Spv) -> Option<FloatTest> {
    Some(match op {
        Spv::IsNan => FloatTest::IsNan,
        Spv::IsInf => FloatTest::IsInf,
        Spv::IsFinite => FloatTest::IsFinite,
        Spv::IsNormal => FloatTest::IsNormal,
        Spv::SignBitSet => FloatTest::SignBit,
        _ => return None,
    })
}

/// Conversions.
fn convert(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let op = inst.op();
    if !matches!(
        op,
        Spv::ConvertFToU
            | Spv::ConvertFToS
            | Spv::ConvertSToF
            | Spv::ConvertUToF
            | Spv::UConvert
            | Spv::SConvert
            | Spv::FConvert
            | Spv::QuantizeToF16
            | Spv::SatConvertSToU
            | Spv::SatConvertUToS
    ) {
        return Ok(false);
    }
    let a = body.arg(inst, 0)?;
    let ty = body.result_type(inst)?;
    let (from_brain, to_brain) = brain::brains(body, inst)?;
    let a = if from_brain { body.brain_to_float(a) } else { a };
    if !to_brain {
        let result = converted(body, inst, a, ty);
        return body.set_result(inst, result).map(|()| true);
    }
    let float = body.b.module.types.float(Float::F32);
    let float = body.b.module.types.with_element(ty, float);
    let wide = converted(body, inst, a, float);
    let result = body.float_to_brain(wide, ty);
    body.set_result(inst, result)?;
    Ok(true)
}

/// A number, or a vector of them, converted as an instruction does to a type.
pub fn converted(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    a: Operand,
    ty: TypeId,
) -> Operand {
    let op = inst.op();
    let decorations = body.decorations(inst);
    let rounding = decorations.rounding;
    let to_float = rounding.or(body.default_rounding(ty)).unwrap_or(Rounding::Nearest);
    let saturated = decorations.saturated;
    match op {
        Spv::ConvertFToU | Spv::ConvertFToS => {
            let a = body.round_to_integral(a, rounding.unwrap_or(Rounding::Zero));
            let convert = match (op, saturated) {
                (Spv::ConvertFToU, false) => ConvertOp::FToU,
                (Spv::ConvertFToU, true) => ConvertOp::FToUSat,
                (_, false) => ConvertOp::FToS,
                (_, true) => ConvertOp::FToSSat,
            };
            body.emit(ty, Op::Convert(convert, a))
        }
        Spv::ConvertSToF => body.int_to_float(a, ty, true, to_float),
        Spv::ConvertUToF => body.int_to_float(a, ty, false, to_float),
        Spv::FConvert => body.float_to_float(a, ty, to_float),
        Spv::QuantizeToF16 => {
            let half = body.b.module.types.float(Float::F16);
            let half = body.b.module.types.with_element(ty, half);
            let narrow = body.float_to_float(a, half, Rounding::Nearest);
            body.float_to_float(narrow, ty, Rounding::Nearest)
        }
        Spv::SatConvertSToU => body.saturate_int(a, ty, true, false),
        Spv::SatConvertUToS => body.saturate_int(a, ty, false, true),
        Spv::UConvert if saturated => body.saturate_int(a, ty, false, false),
        Spv::SConvert if saturated => body.saturate_int(a, ty, true, true),
        _ => body.resize_int(a, ty, op == Spv::SConvert),
    }
}

/// Composites.
fn composite(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let result = match inst.op() {
        Spv::CompositeConstruct => {
            let ty = body.result_type(inst)?;
            let mut parts = Vec::new();
            for &id in inst.rest() {
                let part = body.operand(inst, id)?;
                let part_ty = body.type_of(part);
                match (&body.b.module.types[ty], &body.b.module.types[part_ty]) {
                    (Type::Vector(..), &Type::Vector(element, n)) => {
                        for i in 0..n {
                            parts.push(body.extract(part, element, vec![i]));
                        }
                    }
                    _ => parts.push(part),
                }
            }
            body.emit(ty, Op::Construct(parts))
        }
        Spv::CompositeConstructReplicateEXT => {
            let ty = body.result_type(inst)?;
            let part = body.arg(inst, 0)?;
            let count = body.b.repeated_components(inst, ty)?;
            body.emit(ty, Op::Construct(vec![part; count]))
        }
        Spv::CompositeExtract => {
            let whole = body.arg(inst, 0)?;
            let path = inst.rest()[1..].to_vec();
            let ty = body.result_type(inst)?;
            if path.is_empty() { whole } else { body.extract(whole, ty, path) }
        }
        Spv::CompositeInsert => {
            let (value, whole) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let path = inst.rest()[2..].to_vec();
            let ty = body.result_type(inst)?;
            if path.is_empty() { value } else { body.emit(ty, Op::Insert(whole, value, path)) }
        }
        Spv::VectorShuffle => {
            let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let mask = inst.rest()[2..].iter().map(|&n| (n != u32::MAX).then_some(n)).collect();
            let ty = body.result_type(inst)?;
            body.emit(ty, Op::Shuffle(a, b, mask))
        }
        Spv::VectorExtractDynamic => {
            let (vector, index) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let ty = body.result_type(inst)?;
            body.emit(ty, Op::ExtractDynamic(vector, index))
        }
        Spv::VectorInsertDynamic => {
            let (vector, part) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let index = body.arg(inst, 2)?;
            let ty = body.result_type(inst)?;
            body.emit(ty, Op::InsertDynamic(vector, part, index))
        }
        _ => return Ok(false),
    };
    body.set_result(inst, result)?;
    Ok(true)
}

/// Everything else that computes on values.
fn other(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let ty = match inst.result_type() {
        Some(id) => body.b.ty(inst, id)?,
        None if inst.op() == Spv::AssumeTrueKHR => {
            let condition = body.arg(inst, 0)?;
            body.emit_void(Op::Assume(condition));
            return Ok(true);
        }
        None => return Ok(false),
    };
    let result = match inst.op() {
        Spv::Undef => body.b.const_operand(ty, ConstKind::Undef),
        Spv::CopyObject | Spv::CopyLogical | Spv::ExpectKHR => body.arg(inst, 0)?,
        Spv::Select => {
            let (condition, yes) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let no = body.arg(inst, 2)?;
            body.emit(ty, Op::Select(condition, yes, no))
        }
        Spv::FRem => {
            let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            body.math(MathOp::Fmod, ty, vec![a, b])
        }
        Spv::FMod => {
            let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            body.floored_mod(ty, a, b)
        }
        Spv::VectorTimesScalar => {
            let (vector, scalar) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let scalar = body.broadcast(scalar, ty);
            body.emit(ty, Op::Binary(BinaryOp::FMul, vector, scalar))
        }
        Spv::FmaKHR => {
            let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let c = body.arg(inst, 2)?;
            body.emit(ty, Op::Ternary(TernaryOp::Fma, a, b, c))
        }
        Spv::Dot => {
            let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            body.dot(a, b)
        }
        Spv::Any | Spv::All => {
            let mut a = body.arg(inst, 0)?;
            let from = body.type_of(a);
            if matches!(body.b.module.types[body.b.module.types.element(from)], Type::Int(_)) {
                // LLVM writes OpenCL C's any() and all(), which test the top bits, in this form.
                let (zero, bools) = (body.splat(from, 0), body.bool_like(from));
                a = body.emit(bools, Op::Compare(CompareOp::SLt, a, zero));
            }
            let op = if inst.op() == Spv::Any { BinaryOp::Or } else { BinaryOp::And };
            body.fold_lanes(a, op)
        }
        Spv::BitCount => {
            let a = body.arg(inst, 0)?;
            let from = body.type_of(a);
            let count = body.emit(from, Op::Unary(UnaryOp::PopCount, a));
            body.resize_int(count, ty, false)
        }
        Spv::BitFieldInsert | Spv::BitFieldSExtract | Spv::BitFieldUExtract => {
            bit_field(body, inst, ty)?
        }
        Spv::IAddCarry | Spv::ISubBorrow | Spv::UMulExtended | Spv::SMulExtended => {
            let (a, b) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let op = match inst.op() {
                Spv::IAddCarry => Op::AddCarry(a, b),
                Spv::ISubBorrow => Op::SubBorrow(a, b),
                Spv::UMulExtended => Op::UMulExtended(a, b),
                _ => Op::SMulExtended(a, b),
            };
            body.emit(ty, op)
        }
        _ => return Ok(false),
    };
    body.set_result(inst, result)?;
    Ok(true)
}

fn bit_field(body: &mut Body<'_, '_>, inst: &Instruction<'_>, ty: TypeId) -> Result<Operand> {
    let base = body.arg(inst, 0)?;
    let insert = inst.op() == Spv::BitFieldInsert;
    let first = if insert { 2 } else { 1 };
    let element = body.b.module.types.element(ty);
    let mut field = |index| -> Result<Operand> {
        let scalar = body.arg(inst, index)?;
        let scalar = body.resize_int(scalar, element, false);
        Ok(body.broadcast(scalar, ty))
    };
    let (offset, count) = (field(first)?, field(first + 1)?);
    let width = u64::from(body.b.module.types.scalar_bits(ty));
    let bits = body.splat(ty, width);
    let binary = |body: &mut Body<'_, '_>, op, a, b| body.emit(ty, Op::Binary(op, a, b));
    // Shifting by the whole width must give nothing, but amounts count modulo the width; so fields of
    // width bits or of none are handled separately.
    let zero = body.splat(ty, 0);
    let unused = binary(body, BinaryOp::Sub, bits, count);
    let bool_ty = body.bool_like(ty);
    let empty = body.emit(bool_ty, Op::Compare(CompareOp::Eq, count, zero));
    if insert {
        let ones = body.splat(ty, u64::MAX);
        let mask = binary(body, BinaryOp::LShr, ones, unused);
        let mask = body.emit(ty, Op::Select(empty, zero, mask));
        let mask = binary(body, BinaryOp::Shl, mask, offset);
        let value = body.arg(inst, 1)?;
        let value = binary(body, BinaryOp::Shl, value, offset);
        let value = binary(body, BinaryOp::And, value, mask);
        let kept = body.emit(ty, Op::Unary(UnaryOp::Not, mask));
        let kept = binary(body, BinaryOp::And, base, kept);
        return Ok(binary(body, BinaryOp::Or, kept, value));
    }
    let shift = if inst.op() == Spv::BitFieldSExtract { BinaryOp::AShr } else { BinaryOp::LShr };
    let left = binary(body, BinaryOp::Sub, unused, offset);
    let high = binary(body, BinaryOp::Shl, base, left);
    let value = binary(body, shift, high, unused);
    Ok(body.emit(ty, Op::Select(empty, zero, value)))
}

/// Helpers that several instructions share. Each appends what it needs and returns the result.
impl Body<'_, '_> {
    /// One operation for one instruction.
    fn simple(&mut self, inst: &Instruction<'_>, op: Op) -> Result<()> {
        let ty = self.result_type(inst)?;
        let operand = self.emit(ty, op);
        self.set_result(inst, operand)
    }

    /// `bool`, or as many of it as `ty` has components.
    pub fn bool_like(&mut self, ty: TypeId) -> TypeId {
        let bool_ty = self.b.module.types.bool();
        self.b.module.types.with_element(ty, bool_ty)
    }

    /// The integer type as wide as `ty`'s components, in as many components as `ty` has.
    pub fn int_like(&mut self, ty: TypeId) -> TypeId {
        let bits = match self.b.module.types.scalar_bits(ty) {
            bits @ (8 | 16 | 32 | 64) => bits,
            // Not a number: an operation on it is refused later.
            _ => 64,
        };
        let int = self.b.module.types.int(bits);
        self.b.module.types.with_element(ty, int)
    }

    /// The same bits as another type of the same size.
    pub fn bitcast(&mut self, a: Operand, ty: TypeId) -> Operand {
        if self.type_of(a) == ty { a } else { self.emit(ty, Op::Convert(ConvertOp::Bitcast, a)) }
    }

    /// The component of a composite, seen through its construction.
    pub fn extract(&mut self, whole: Operand, ty: TypeId, path: Vec<u32>) -> Operand {
        if let (Operand::Value(value), [index]) = (whole, path.as_slice()) {
            let part = self.constructs.get(&value).and_then(|parts| parts.get(*index as usize));
            if let Some(&part) = part {
                return part;
            }
        }
        self.emit(ty, Op::Extract(whole, path))
    }

    /// An integer made wider or narrower to fit `ty`.
    pub fn resize_int(&mut self, a: Operand, ty: TypeId, signed: bool) -> Operand {
        let from = self.b.module.types.scalar_bits(self.type_of(a));
        let to = self.b.module.types.scalar_bits(ty);
        let op = match from.cmp(&to) {
            std::cmp::Ordering::Equal => return a,
            std::cmp::Ordering::Greater => ConvertOp::Trunc,
            std::cmp::Ordering::Less if signed => ConvertOp::SExt,
            std::cmp::Ordering::Less => ConvertOp::ZExt,
        };
        if let Operand::Const(id) = a
            && let (Some(bits), 1) = (self.b.module.const_bits(id), self.b.module.types.lanes(ty))
        {
            let unused = 64 - from;
            let bits = if signed { (((bits << unused) as i64) >> unused) as u64 } else { bits };
            return self.int(ty, bits);
        }
        self.emit(ty, Op::Convert(op, a))
    }

    /// An operand on whose low bits alone those of the result depend. LLVM 22 now and then leaves out the truncation
    /// of such a number: then its low bits are meant.
    fn low_bits(&mut self, inst: &Instruction<'_>, a: Operand) -> Result<Operand> {
        let (from, to) = (self.type_of(a), self.result_type(inst)?);
        let types = &self.b.module.types;
        let int = |ty: TypeId| matches!(types[types.element(ty)], Type::Int(_));
        let wider = int(from)
            && int(to)
            && types.lanes(from) == types.lanes(to)
            && types.scalar_bits(from) > types.scalar_bits(to);
        Ok(if wider { self.resize_int(a, to, false) } else { a })
    }

    /// A scalar in every component of `ty`.
    pub fn broadcast(&mut self, scalar: Operand, ty: TypeId) -> Operand {
        match self.b.module.types.lanes(ty) {
            1 => scalar,
            n => self.emit(ty, Op::Construct(vec![scalar; n as usize])),
        }
    }

    /// The components of a vector, or the scalar itself.
    pub fn lanes(&mut self, a: Operand) -> Vec<Operand> {
        let ty = self.type_of(a);
        let element = self.b.module.types.element(ty);
        match self.b.module.types.lanes(ty) {
            1 => vec![a],
            n => (0..n).map(|i| self.extract(a, element, vec![i])).collect(),
        }
    }

    /// All components combined by an operation.
    pub fn fold_lanes(&mut self, a: Operand, op: BinaryOp) -> Operand {
        let ty = self.type_of(a);
        let element = self.b.module.types.element(ty);
        let lanes = self.lanes(a);
        let mut result = lanes[0];
        for &lane in &lanes[1..] {
            result = self.emit(element, Op::Binary(op, result, lane));
        }
        result
    }

    /// The sum of the products of components.
    pub fn dot(&mut self, a: Operand, b: Operand) -> Operand {
        let ty = self.type_of(a);
        let product = self.emit(ty, Op::Binary(BinaryOp::FMul, a, b));
        self.fold_lanes(product, BinaryOp::FAdd)
    }

    /// Clamps an integer of one signedness to the range of another type and resizes it.
    pub fn saturate_int(
        &mut self,
        a: Operand,
        ty: TypeId,
        from_signed: bool,
        to_signed: bool,
    ) -> Operand {
        let from_ty = self.type_of(a);
        let from = self.b.module.types.scalar_bits(from_ty).clamp(8, 64);
        let to = self.b.module.types.scalar_bits(ty).clamp(8, 64);
        let max = |bits: u32, signed: bool| u64::MAX >> (64 - bits + u32::from(signed));
        let mut clamped = a;
        if from_signed {
            // Below: zero, or the target's minimum if that is above the source's.
            let low = if !to_signed {
                Some(0)
            } else {
                (to < from).then(|| (!max(to, true)) & max(from, false))
            };
            if let Some(low) = low {
                let low = self.splat(from_ty, low);
                clamped = self.emit(from_ty, Op::Binary(BinaryOp::SMax, clamped, low));
            }
        }
        if max(to, to_signed) < max(from, from_signed) {
            let high = self.splat(from_ty, max(to, to_signed));
            let op = if from_signed { BinaryOp::SMin } else { BinaryOp::UMin };
            clamped = self.emit(from_ty, Op::Binary(op, clamped, high));
        }
        self.resize_int(clamped, ty, from_signed && to_signed)
    }

    /// A float rounded to an integral value.
    pub fn round_to_integral(&mut self, a: Operand, rounding: Rounding) -> Operand {
        let op = match rounding {
            Rounding::Nearest => UnaryOp::Rint,
            Rounding::Zero => return a,
            Rounding::Up => UnaryOp::Ceil,
            Rounding::Down => UnaryOp::Floor,
        };
        let ty = self.type_of(a);
        self.emit(ty, Op::Unary(op, a))
    }

    /// A float as another format, rounded in a direction.
    pub fn float_to_float(&mut self, a: Operand, ty: TypeId, rounding: Rounding) -> Operand {
        let from = self.type_of(a);
        if from == ty {
            return a;
        }
        let nearest = self.emit(ty, Op::Convert(ConvertOp::FToF, a));
        let (from_bits, to_bits) =
            (self.b.module.types.scalar_bits(from), self.b.module.types.scalar_bits(ty));
        if rounding == Rounding::Nearest || from_bits <= to_bits {
            return nearest;
        }
        let bool_ty = self.bool_like(ty);
        let back = self.emit(from, Op::Convert(ConvertOp::FToF, nearest));
        let over = self.emit(bool_ty, Op::Compare(CompareOp::FOGt, back, a));
        let under = self.emit(bool_ty, Op::Compare(CompareOp::FOLt, back, a));
        self.direct(nearest, over, under, rounding)
    }

    /// An integer as a float, rounded in a direction.
    pub fn int_to_float(
        &mut self,
        a: Operand,
        ty: TypeId,
        signed: bool,
        rounding: Rounding,
    ) -> Operand {
        let op = if signed { ConvertOp::SToF } else { ConvertOp::UToF };
        let from = self.type_of(a);
        let types = &mut self.b.module.types;
        let (bits, to_bits) = (types.scalar_bits(from), types.scalar_bits(ty));
        let digits = if signed { bits.saturating_sub(1) } else { bits };
        let exact = match to_bits {
            16 => 11,
            32 => 24,
            _ => 53,
        };
        if rounding == Rounding::Nearest || digits <= exact {
            return self.emit(ty, Op::Convert(op, a));
        }
        // A wider float that has all of the integer's bits is rounded in the direction.
        let float = types.float(if to_bits == 16 { Float::F32 } else { Float::F64 });
        let (float, int) = (types.with_element(ty, float), types.int(32));
        let int = types.with_element(ty, int);
        if to_bits == 16 {
            let a = self.within_half(a, digits, signed);
            let a = self.resize_int(a, int, signed);
            let a = self.emit(float, Op::Convert(ConvertOp::SToF, a));
            return self.float_to_float(a, ty, rounding);
        }
        if to_bits == 32 && digits <= 53 {
            let a = self.emit(float, Op::Convert(op, a));
            return self.float_to_float(a, ty, rounding);
        }
        let i64 = self.b.module.types.int(64);
        let wide = self.b.module.types.with_element(ty, i64);
        let a = self.resize_int(a, wide, signed);
        let nearest = self.emit(ty, Op::Convert(op, a));
        let back_op = if signed { ConvertOp::FToSSat } else { ConvertOp::FToUSat };
        let back = self.emit(wide, Op::Convert(back_op, nearest));
        let bool_ty = self.bool_like(ty);
        let (gt, lt) = if signed {
            (CompareOp::SGt, CompareOp::SLt)
        } else {
            (CompareOp::UGt, CompareOp::ULt)
        };
        let over = self.emit(bool_ty, Op::Compare(gt, back, a));
        let under = self.emit(bool_ty, Op::Compare(lt, back, a));
        // The conversion back clamps at the top, where the float can only be too large.
        let top = self.splat_float(ty, if signed { 2f64.powi(63) } else { 2f64.powi(64) });
        let clamped = self.emit(bool_ty, Op::Compare(CompareOp::FOGe, nearest, top));
        let over = self.emit(bool_ty, Op::Binary(BinaryOp::Or, over, clamped));
        self.direct(nearest, over, under, rounding)
    }

    /// An integer of so many digits, or the nearest one of 20 digits: all of more are as far from half floats.
    fn within_half(&mut self, a: Operand, digits: u32, signed: bool) -> Operand {
        if digits <= 20 {
            return a;
        }
        let ty = self.type_of(a);
        let unused = 64 - self.b.module.types.scalar_bits(ty);
        let [most, least] = [1i64 << 20, -(1 << 20)].map(|limit| {
            let bits = limit.cast_unsigned() << unused >> unused;
            self.splat(ty, bits)
        });
        if !signed {
            return self.emit(ty, Op::Binary(BinaryOp::UMin, a, most));
        }
        let a = self.emit(ty, Op::Binary(BinaryOp::SMin, a, most));
        self.emit(ty, Op::Binary(BinaryOp::SMax, a, least))
    }

    /// Moves a float that was rounded to nearest by one step if that went in the wrong direction:
    /// `over` and `under` tell where it is above and below the exact value.
    pub fn direct(
        &mut self,
        nearest: Operand,
        over: Operand,
        under: Operand,
        rounding: Rounding,
    ) -> Operand {
        let ty = self.type_of(nearest);
        let bits_ty = self.int_like(ty);
        let bool_ty = self.bool_like(ty);
        let width = self.b.module.types.scalar_bits(ty).max(1);
        let bits = self.bitcast(nearest, bits_ty);
        let zero = self.splat(bits_ty, 0);
        let one = self.splat(bits_ty, 1);
        let sign = self.splat(bits_ty, 1 << (width - 1));
        let negative = self.emit(bool_ty, Op::Compare(CompareOp::SLt, bits, zero));
        let larger = self.emit(bits_ty, Op::Binary(BinaryOp::Add, bits, one));
        let smaller = self.emit(bits_ty, Op::Binary(BinaryOp::Sub, bits, one));
        // One step down: away from zero below it, towards zero above it, and from +0 to the smallest
        // negative number. One step up is its mirror image.
        let is_zero = self.emit(bool_ty, Op::Compare(CompareOp::Eq, bits, zero));
        let below_zero = self.emit(bits_ty, Op::Binary(BinaryOp::Or, sign, one));
        let down = self.emit(bits_ty, Op::Select(is_zero, below_zero, smaller));
        let down = self.emit(bits_ty, Op::Select(negative, larger, down));
        let is_minus_zero = self.emit(bool_ty, Op::Compare(CompareOp::Eq, bits, sign));
        let up = self.emit(bits_ty, Op::Select(is_minus_zero, one, smaller));
        let up = self.emit(bits_ty, Op::Select(negative, up, larger));
        let moved = match rounding {
            Rounding::Nearest => bits,
            Rounding::Down => self.emit(bits_ty, Op::Select(over, down, bits)),
            Rounding::Up => self.emit(bits_ty, Op::Select(under, up, bits)),
            Rounding::Zero => {
                let below = self.emit(bits_ty, Op::Select(under, up, bits));
                let above = self.emit(bits_ty, Op::Select(over, down, bits));
                self.emit(bits_ty, Op::Select(negative, below, above))
            }
        };
        self.bitcast(moved, ty)
    }

    /// `fmod` with the sign of the divisor.
    fn floored_mod(&mut self, ty: TypeId, a: Operand, b: Operand) -> Operand {
        let remainder = self.math(MathOp::Fmod, ty, vec![a, b]);
        let bool_ty = self.bool_like(ty);
        let zero = self.splat(ty, 0);
        let nonzero = self.emit(bool_ty, Op::Compare(CompareOp::FONe, remainder, zero));
        let negative = self.emit(bool_ty, Op::Test(FloatTest::SignBit, remainder));
        let divisor_negative = self.emit(bool_ty, Op::Test(FloatTest::SignBit, b));
        let differ = self.emit(bool_ty, Op::Binary(BinaryOp::Xor, negative, divisor_negative));
        let wrong = self.emit(bool_ty, Op::Binary(BinaryOp::And, nonzero, differ));
        let moved = self.emit(ty, Op::Binary(BinaryOp::FAdd, remainder, b));
        self.emit(ty, Op::Select(wrong, moved, remainder))
    }
}

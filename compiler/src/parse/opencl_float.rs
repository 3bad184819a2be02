// SPDX-License-Identifier: MIT OR Apache-2.0
//! The OpenCL.std instruction set: floats.
//!
//! Functions for which the IR has no operation, and that do not need a library, are expanded here by
//! their definition in the OpenCL C specification.

use rspirv::spirv::OpenclStd100Op as Cl;

use super::body::Body;
use super::controls::Rounding;
use super::error::Result;
use super::extended::Args;
use super::memory::plain_access;
use crate::ir::{
    BinaryOp, CompareOp, ConvertOp, Float, FloatTest, MathOp, Op, Operand, SecondResult, TernaryOp,
    Type, TypeId, UnaryOp,
};

/// The library function for an instruction, and whether it may be approximate.
fn math_op(cl: Cl) -> Option<(MathOp, bool)> {
    let exact = |op| Some((op, false));
    let approximate = |op| Some((op, true));
    match cl {
        Cl::acos => exact(MathOp::Acos),
        Cl::acosh => exact(MathOp::Acosh),
        Cl::acospi => exact(MathOp::Acospi),
        Cl::asin => exact(MathOp::Asin),
        Cl::asinh => exact(MathOp::Asinh),
        Cl::asinpi => exact(MathOp::Asinpi),
        Cl::atan => exact(MathOp::Atan),
        Cl::atan2 => exact(MathOp::Atan2),
        Cl::atanh => exact(MathOp::Atanh),
        Cl::atanpi => exact(MathOp::Atanpi),
        Cl::atan2pi => exact(MathOp::Atan2pi),
        Cl::cbrt => exact(MathOp::Cbrt),
        Cl::cos => exact(MathOp::Cos),
        Cl::cosh => exact(MathOp::Cosh),
        Cl::cospi => exact(MathOp::Cospi),
        Cl::erf => exact(MathOp::Erf),
        Cl::erfc => exact(MathOp::Erfc),
        Cl::exp => exact(MathOp::Exp),
        Cl::exp2 => exact(MathOp::Exp2),
        Cl::exp10 => exact(MathOp::Exp10),
        Cl::expm1 => exact(MathOp::Expm1),
        Cl::fmod => exact(MathOp::Fmod),
        Cl::fract => exact(MathOp::Fract),
        Cl::frexp => exact(MathOp::Frexp),
        Cl::hypot => exact(MathOp::Hypot),
        Cl::ilogb => exact(MathOp::Ilogb),
        Cl::ldexp => exact(MathOp::Ldexp),
        Cl::lgamma => exact(MathOp::Lgamma),
        Cl::lgamma_r => exact(MathOp::LgammaR),
        Cl::log => exact(MathOp::Log),
        Cl::log2 => exact(MathOp::Log2),
        Cl::log10 => exact(MathOp::Log10),
        Cl::log1p => exact(MathOp::Log1p),
        Cl::logb => exact(MathOp::Logb),
        Cl::modf => exact(MathOp::Modf),
        Cl::nextafter => exact(MathOp::Nextafter),
        Cl::pow => exact(MathOp::Pow),
        Cl::pown => exact(MathOp::Pown),
        Cl::powr => exact(MathOp::Powr),
        Cl::remainder => exact(MathOp::Remainder),
        Cl::remquo => exact(MathOp::Remquo),
        Cl::rootn => exact(MathOp::Rootn),
        Cl::rsqrt => exact(MathOp::Rsqrt),
        Cl::sin => exact(MathOp::Sin),
        Cl::sincos => exact(MathOp::Sincos),
        Cl::sinh => exact(MathOp::Sinh),
        Cl::sinpi => exact(MathOp::Sinpi),
        Cl::tan => exact(MathOp::Tan),
        Cl::tanh => exact(MathOp::Tanh),
        Cl::tanpi => exact(MathOp::Tanpi),
        Cl::tgamma => exact(MathOp::Tgamma),
        Cl::half_cos | Cl::native_cos => approximate(MathOp::Cos),
        Cl::half_exp | Cl::native_exp => approximate(MathOp::Exp),
        Cl::half_exp2 | Cl::native_exp2 => approximate(MathOp::Exp2),
        Cl::half_exp10 | Cl::native_exp10 => approximate(MathOp::Exp10),
        Cl::half_log | Cl::native_log => approximate(MathOp::Log),
        Cl::half_log2 | Cl::native_log2 => approximate(MathOp::Log2),
        Cl::half_log10 | Cl::native_log10 => approximate(MathOp::Log10),
        Cl::half_powr | Cl::native_powr => approximate(MathOp::Powr),
        Cl::half_rsqrt | Cl::native_rsqrt => approximate(MathOp::Rsqrt),
        Cl::half_sin | Cl::native_sin => approximate(MathOp::Sin),
        Cl::half_tan | Cl::native_tan => approximate(MathOp::Tan),
        _ => None,
    }
}

/// Translates an instruction on floats. `None` if the compiler cannot do it.
pub fn translate(
    body: &mut Body<'_, '_>,
    cl: Cl,
    ty: TypeId,
    args: &Args<'_, '_>,
) -> Result<Option<Operand>> {
    if let Some((op, approximate)) = math_op(cl) {
        if approximate {
            body.allow_approximation();
        }
        return library(body, op, ty, args).map(Some);
    }
    if let Some(result) = basic(body, cl, ty, args)? {
        return Ok(Some(result));
    }
    if let Some(result) = common(body, cl, ty, args)? {
        return Ok(Some(result));
    }
    geometric(body, cl, ty, args)
}

fn library(
    body: &mut Body<'_, '_>,
    op: MathOp,
    ty: TypeId,
    args: &Args<'_, '_>,
) -> Result<Operand> {
    let mut values = Vec::with_capacity(op.arity());
    for index in 0..op.arity() {
        values.push(args.like(body, index, ty)?);
    }
    if op == MathOp::Nextafter && body.b.module.types.scalar_bits(ty) == 16 {
        return Ok(body.next_half(ty, values[0], values[1]));
    }
    let Some(_) = op.second_result() else { return Ok(body.math(op, ty, values)) };
    let (first, second) = body.math_pair(op, ty, values);
    let ptr = args.value(body, op.arity())?;
    let second_ty = body.type_of(second);
    let align = body.b.module.types.align(second_ty);
    body.emit_void(Op::Store(ptr, second, plain_access(align)));
    Ok(first)
}

/// Instructions that are one operation of the IR, or nearly so.
fn basic(
    body: &mut Body<'_, '_>,
    cl: Cl,
    ty: TypeId,
    args: &Args<'_, '_>,
) -> Result<Option<Operand>> {
    let unary = match cl {
        Cl::ceil => Some(UnaryOp::Ceil),
        Cl::fabs => Some(UnaryOp::FAbs),
        Cl::floor => Some(UnaryOp::Floor),
        Cl::rint => Some(UnaryOp::Rint),
        Cl::round => Some(UnaryOp::Round),
        Cl::trunc => Some(UnaryOp::Trunc),
        Cl::sqrt | Cl::native_sqrt | Cl::half_sqrt => Some(UnaryOp::Sqrt),
        _ => None,
    };
    if let Some(op) = unary {
        let a = args.value(body, 0)?;
        return Ok(Some(body.emit(ty, Op::Unary(op, a))));
    }
    let binary = match cl {
        Cl::copysign => Some(BinaryOp::CopySign),
        Cl::fmax | Cl::fmax_common => Some(BinaryOp::FMax),
        Cl::fmin | Cl::fmin_common => Some(BinaryOp::FMin),
        _ => None,
    };
    if let Some(op) = binary {
        let (a, b) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
        return Ok(Some(body.emit(ty, Op::Binary(op, a, b))));
    }
    Ok(Some(match cl {
        Cl::half_divide | Cl::native_divide => {
            let (a, b) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
            near_quotient(body, ty, a, b)
        }
        Cl::half_recip | Cl::native_recip => {
            let (one, a) = (body.splat_float(ty, 1.0), args.value(body, 0)?);
            near_quotient(body, ty, one, a)
        }
        Cl::fma => {
            let (a, b) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
            let c = args.like(body, 2, ty)?;
            body.emit(ty, Op::Ternary(TernaryOp::Fma, a, b, c))
        }
        Cl::mad => {
            let (a, b) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
            let c = args.like(body, 2, ty)?;
            // `mad` may round once or twice, whichever is faster, regardless of other settings.
            body.allow_contraction();
            let product = body.emit(ty, Op::Binary(BinaryOp::FMul, a, b));
            body.emit(ty, Op::Binary(BinaryOp::FAdd, product, c))
        }
        Cl::fdim => {
            let (a, b) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
            let (zero, bool_ty) = (body.splat(ty, 0), body.bool_like(ty));
            let difference = body.emit(ty, Op::Binary(BinaryOp::FSub, a, b));
            let none = body.emit(bool_ty, Op::Compare(CompareOp::FOLe, a, b));
            body.emit(ty, Op::Select(none, zero, difference))
        }
        Cl::maxmag | Cl::minmag => {
            let (a, b) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
            let bool_ty = body.bool_like(ty);
            let (size_a, size_b) = (
                body.emit(ty, Op::Unary(UnaryOp::FAbs, a)),
                body.emit(ty, Op::Unary(UnaryOp::FAbs, b)),
            );
            let (compare, tie) = if cl == Cl::maxmag {
                (CompareOp::FOGt, BinaryOp::FMax)
            } else {
                (CompareOp::FOLt, BinaryOp::FMin)
            };
            let take_a = body.emit(bool_ty, Op::Compare(compare, size_a, size_b));
            let take_b = body.emit(bool_ty, Op::Compare(compare, size_b, size_a));
            let tie = body.emit(ty, Op::Binary(tie, a, b));
            let result = body.emit(ty, Op::Select(take_b, b, tie));
            body.emit(ty, Op::Select(take_a, a, result))
        }
        Cl::nan => {
            let bits_ty = body.int_like(ty);
            let code = args.value(body, 0)?;
            let quiet = body.splat_float(ty, f64::NAN);
            let quiet = body.bitcast(quiet, bits_ty);
            let bits = body.emit(bits_ty, Op::Binary(BinaryOp::Or, quiet, code));
            body.bitcast(bits, ty)
        }
        _ => return Ok(None),
    }))
}

/// A quotient that need not be rounded correctly. That by a constant is a product with its inverse.
fn near_quotient(body: &mut Body<'_, '_>, ty: TypeId, a: Operand, b: Operand) -> Operand {
    if matches!(b, Operand::Const(_)) {
        body.allow_reciprocals();
        return body.emit(ty, Op::Binary(BinaryOp::FDiv, a, b));
    }
    let is_float = body.b.module.types.scalar_bits(ty) == 32;
    let op = if is_float { BinaryOp::FDivNear } else { BinaryOp::FDiv };
    body.emit(ty, Op::Binary(op, a, b))
}

/// The common functions.
fn common(
    body: &mut Body<'_, '_>,
    cl: Cl,
    ty: TypeId,
    args: &Args<'_, '_>,
) -> Result<Option<Operand>> {
    let binary = |body: &mut Body<'_, '_>, op, a, b| body.emit(ty, Op::Binary(op, a, b));
    Ok(Some(match cl {
        Cl::fclamp => {
            let (x, low) = (args.value(body, 0)?, args.like(body, 1, ty)?);
            let high = args.like(body, 2, ty)?;
            let raised = binary(body, BinaryOp::FMax, x, low);
            binary(body, BinaryOp::FMin, raised, high)
        }
        Cl::degrees | Cl::radians => {
            let factor = if cl == Cl::degrees {
                180.0 / std::f64::consts::PI
            } else {
                std::f64::consts::PI / 180.0
            };
            let (x, factor) = (args.value(body, 0)?, body.splat_float(ty, factor));
            binary(body, BinaryOp::FMul, x, factor)
        }
        Cl::mix => {
            let (a, b) = (args.value(body, 0)?, args.like(body, 1, ty)?);
            let t = args.like(body, 2, ty)?;
            let range = binary(body, BinaryOp::FSub, b, a);
            let part = binary(body, BinaryOp::FMul, range, t);
            binary(body, BinaryOp::FAdd, a, part)
        }
        Cl::step => {
            let (edge, x) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
            let bool_ty = body.bool_like(ty);
            let below = body.emit(bool_ty, Op::Compare(CompareOp::FOLt, x, edge));
            let (zero, one) = (body.splat(ty, 0), body.splat_float(ty, 1.0));
            body.emit(ty, Op::Select(below, zero, one))
        }
        Cl::smoothstep => {
            let (low, high) = (args.like(body, 0, ty)?, args.like(body, 1, ty)?);
            let x = args.like(body, 2, ty)?;
            let [zero, one, two, three] = [0.0, 1.0, 2.0, 3.0].map(|n| body.splat_float(ty, n));
            let above = binary(body, BinaryOp::FSub, x, low);
            let range = binary(body, BinaryOp::FSub, high, low);
            let t = binary(body, BinaryOp::FDiv, above, range);
            let t = binary(body, BinaryOp::FMax, t, zero);
            let t = binary(body, BinaryOp::FMin, t, one);
            let square = binary(body, BinaryOp::FMul, t, t);
            let twice = binary(body, BinaryOp::FMul, two, t);
            let rest = binary(body, BinaryOp::FSub, three, twice);
            binary(body, BinaryOp::FMul, square, rest)
        }
        Cl::sign => {
            let x = args.value(body, 0)?;
            let bool_ty = body.bool_like(ty);
            let (zero, one) = (body.splat(ty, 0), body.splat_float(ty, 1.0));
            let signed_one = binary(body, BinaryOp::CopySign, one, x);
            let is_zero = body.emit(bool_ty, Op::Compare(CompareOp::FOEq, x, zero));
            let is_nan = body.emit(bool_ty, Op::Test(FloatTest::IsNan, x));
            let result = body.emit(ty, Op::Select(is_zero, x, signed_one));
            body.emit(ty, Op::Select(is_nan, zero, result))
        }
        _ => return Ok(None),
    }))
}

/// The geometric functions.
fn geometric(
    body: &mut Body<'_, '_>,
    cl: Cl,
    ty: TypeId,
    args: &Args<'_, '_>,
) -> Result<Option<Operand>> {
    Ok(Some(match cl {
        Cl::cross => {
            let (a, b) = (args.value(body, 0)?, args.value(body, 1)?);
            let (a, b) = (body.lanes(a), body.lanes(b));
            let element = body.b.module.types.element(ty);
            if a.len() < 3 || b.len() != a.len() {
                return Err(args.inst.error("cross needs vectors of 3 or 4".into()));
            }
            let mut parts = Vec::new();
            for (i, j) in [(1, 2), (2, 0), (0, 1)] {
                let plus = body.emit(element, Op::Binary(BinaryOp::FMul, a[i], b[j]));
                let minus = body.emit(element, Op::Binary(BinaryOp::FMul, a[j], b[i]));
                parts.push(body.emit(element, Op::Binary(BinaryOp::FSub, plus, minus)));
            }
            if a.len() == 4 {
                parts.push(body.splat(element, 0));
            }
            body.emit(ty, Op::Construct(parts))
        }
        Cl::length | Cl::fast_length => {
            let a = args.value(body, 0)?;
            body.length(a).1
        }
        Cl::distance | Cl::fast_distance => {
            let (a, b) = (args.value(body, 0)?, args.value(body, 1)?);
            let from = body.type_of(a);
            let difference = body.emit(from, Op::Binary(BinaryOp::FSub, a, b));
            body.length(difference).1
        }
        Cl::normalize | Cl::fast_normalize => {
            let a = args.value(body, 0)?;
            let (scaled, _) = body.length(a);
            let scaled_ty = body.type_of(scaled);
            let square = body.dot(scaled, scaled);
            let element = body.b.module.types.element(scaled_ty);
            let norm = body.emit(element, Op::Unary(UnaryOp::Sqrt, square));
            let divisor = body.broadcast(norm, scaled_ty);
            let unit = body.emit(scaled_ty, Op::Binary(BinaryOp::FDiv, scaled, divisor));
            let unit = body.float_to_float(unit, ty, Rounding::Nearest);
            // A vector of zeros stays as it is.
            let bool_ty = body.b.module.types.bool();
            let zero = body.splat(element, 0);
            let none = body.emit(bool_ty, Op::Compare(CompareOp::FOEq, norm, zero));
            body.emit(ty, Op::Select(none, a, unit))
        }
        _ => return Ok(None),
    }))
}

impl Body<'_, '_> {
    /// Calls a library function with one result. `f16` is computed in `f32`.
    pub fn math(&mut self, op: MathOp, ty: TypeId, mut args: Vec<Operand>) -> Operand {
        let Some(wide) = self.widened(op, &mut args) else {
            return self.emit(ty, Op::Math(op, args));
        };
        let wide_ty = if op.returns_int() { ty } else { wide };
        let result = self.emit(wide_ty, Op::Math(op, args));
        if op.returns_int() { result } else { self.float_to_float(result, ty, Rounding::Nearest) }
    }

    /// Calls a library function with two results. `f16` is computed in `f32`.
    pub fn math_pair(
        &mut self,
        op: MathOp,
        ty: TypeId,
        mut args: Vec<Operand>,
    ) -> (Operand, Operand) {
        let wide = self.widened(op, &mut args);
        let first_ty = wide.unwrap_or(ty);
        let i32 = self.b.module.types.int(32);
        let second_ty = match op.second_result() {
            Some(SecondResult::Int) => self.b.module.types.with_element(first_ty, i32),
            _ => first_ty,
        };
        let pair = Type::Struct { members: vec![first_ty, second_ty], packed: false };
        // Two vectors of numbers are far below the size limit of types.
        let Some(pair) = self.b.module.types.intern(pair) else { return (args[0], args[0]) };
        let both = self.emit(pair, Op::Math(op, args));
        let mut first = self.emit(first_ty, Op::Extract(both, vec![0]));
        let mut second = self.emit(second_ty, Op::Extract(both, vec![1]));
        if wide.is_some() {
            first = self.float_to_float(first, ty, Rounding::Nearest);
            if op.second_result() == Some(SecondResult::Float) {
                second = self.float_to_float(second, ty, Rounding::Nearest);
            }
            if op == MathOp::Fract {
                // The largest `f32` below one rounds up to one.
                let limit = self.splat_float(ty, 1.0 - 2f64.powi(-11));
                first = self.emit(ty, Op::Binary(BinaryOp::FMin, first, limit));
            }
        }
        (first, second)
    }

    /// Widens `f16` arguments to `f32`; returns their type then.
    fn widened(&mut self, op: MathOp, args: &mut [Operand]) -> Option<TypeId> {
        let from = self.type_of(*args.first()?);
        let half = Type::Float(Float::F16);
        if self.b.module.types[self.b.module.types.element(from)] != half {
            return None;
        }
        let f32 = self.b.module.types.float(Float::F32);
        let wide = self.b.module.types.with_element(from, f32);
        let floats = args.len() - usize::from(op.takes_int());
        for arg in &mut args[..floats] {
            *arg = self.emit(wide, Op::Convert(ConvertOp::FToF, *arg));
        }
        Some(wide)
    }

    /// A vector scaled (or widened) so that its squares neither overflow nor vanish, and the
    /// length of the vector itself.
    fn length(&mut self, a: Operand) -> (Operand, Operand) {
        let ty = self.type_of(a);
        let element = self.b.module.types.element(ty);
        let f64 = self.b.module.types.float(Float::F64);
        if element != f64 {
            // `f64` holds the squares of all `f16` and `f32` exactly enough.
            let wide_ty = self.b.module.types.with_element(ty, f64);
            let wide = self.emit(wide_ty, Op::Convert(ConvertOp::FToF, a));
            let square = self.dot(wide, wide);
            let norm = self.emit(f64, Op::Unary(UnaryOp::Sqrt, square));
            return (wide, self.float_to_float(norm, element, Rounding::Nearest));
        }
        let size = self.emit(ty, Op::Unary(UnaryOp::FAbs, a));
        let largest = self.fold_lanes(size, BinaryOp::FMax);
        let bool_ty = self.b.module.types.bool();
        // Scaling by powers of two changes no digit.
        let scale_for = |body: &mut Self, compare, limit: f64, scale: f64, otherwise| {
            let limit = body.splat_float(f64, limit);
            let scale = body.splat_float(f64, scale);
            let hit = body.emit(bool_ty, Op::Compare(compare, largest, limit));
            body.emit(f64, Op::Select(hit, scale, otherwise))
        };
        let one = self.splat_float(f64, 1.0);
        let up = 2f64.powi(600);
        let scale = scale_for(self, CompareOp::FOLt, 2f64.powi(-450), up, one);
        let scale = scale_for(self, CompareOp::FOGt, 2f64.powi(450), 1.0 / up, scale);
        let scales = self.broadcast(scale, ty);
        let scaled = self.emit(ty, Op::Binary(BinaryOp::FMul, a, scales));
        let square = self.dot(scaled, scaled);
        let norm = self.emit(f64, Op::Unary(UnaryOp::Sqrt, square));
        (scaled, self.emit(f64, Op::Binary(BinaryOp::FDiv, norm, scale)))
    }

    /// `nextafter` of halves, on their bits.
    fn next_half(&mut self, ty: TypeId, from: Operand, to: Operand) -> Operand {
        let (bits_ty, bool_ty) = (self.int_like(ty), self.bool_like(ty));
        let bits = self.bitcast(from, bits_ty);
        let to_bits = self.bitcast(to, bits_ty);
        let [zero, one, sign] = [0, 1, 0x8000].map(|n| self.splat(bits_ty, n));
        let float_zero = self.splat(ty, 0);
        let up = self.emit(bool_ty, Op::Compare(CompareOp::FOLt, from, to));
        let negative = self.emit(bool_ty, Op::Compare(CompareOp::SLt, bits, zero));
        // Away from zero the bits grow: upwards for positive, downwards for negative numbers.
        let grows = self.emit(bool_ty, Op::Binary(BinaryOp::Xor, up, negative));
        let larger = self.emit(bits_ty, Op::Binary(BinaryOp::Add, bits, one));
        let smaller = self.emit(bits_ty, Op::Binary(BinaryOp::Sub, bits, one));
        let moved = self.emit(bits_ty, Op::Select(grows, larger, smaller));
        // The neighbour of zero is the smallest number with the target's sign.
        let to_sign = self.emit(bits_ty, Op::Binary(BinaryOp::And, to_bits, sign));
        let least = self.emit(bits_ty, Op::Binary(BinaryOp::Or, to_sign, one));
        let is_zero = self.emit(bool_ty, Op::Compare(CompareOp::FOEq, from, float_zero));
        let moved = self.emit(bits_ty, Op::Select(is_zero, least, moved));
        let moved = self.bitcast(moved, ty);
        let equal = self.emit(bool_ty, Op::Compare(CompareOp::FOEq, from, to));
        let result = self.emit(ty, Op::Select(equal, to, moved));
        // A sum with a NaN is a NaN.
        let unordered = self.emit(bool_ty, Op::Compare(CompareOp::FUno, from, to));
        let nan = self.emit(ty, Op::Binary(BinaryOp::FAdd, from, to));
        self.emit(ty, Op::Select(unordered, nan, result))
    }
}

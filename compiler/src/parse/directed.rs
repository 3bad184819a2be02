// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arithmetic in a kernel's own modes ([`super::controls`]): operations of the IR round to nearest, so those
//! that round in another direction are made of several.
//!
//! The error of a result that is rounded to nearest can be computed exactly, and its sign tells whether the
//! neighbour is wanted (Knuth, The Art of Computer Programming, volume 2, 4.2.2, for sums; Boldo and Muller,
//! "Exact and approximated error of the FMA", for the rest). Floats and halves are computed as doubles, whose
//! rounding then only matters for sums. Doubles are scaled by powers of two where an error could be too small
//! for a number.

use super::body::Body;
use super::controls::Rounding;
use crate::ir::{
    BinaryOp, CompareOp, ConvertOp, Flags, Float, FloatTest, MathOp, Op, Operand, TernaryOp, Type,
    TypeId, UnaryOp,
};

/// A result that was rounded to nearest, and where it is above and below the exact one.
struct Rounded {
    nearest: Operand,
    over: Operand,
    under: Operand,
}

/// Emits an operation in the function's modes; `None` if it is the same without.
pub fn emit(body: &mut Body<'_, '_>, ty: TypeId, op: &Op) -> Option<Operand> {
    let mut op = op.clone();
    let concerned = match &op {
        Op::Unary(op, _) => !matches!(op, UnaryOp::FNeg | UnaryOp::FAbs),
        Op::Binary(op, ..) => *op != BinaryOp::CopySign,
        Op::Ternary(..) | Op::Compare(..) | Op::Math(..) => true,
        Op::Convert(convert, _) => *convert == ConvertOp::FToF,
        _ => false,
    };
    if !concerned {
        return None;
    }
    let rounding = match op {
        Op::Binary(BinaryOp::FAdd | BinaryOp::FSub | BinaryOp::FMul | BinaryOp::FDiv, ..)
        | Op::Ternary(TernaryOp::Fma, ..)
        | Op::Unary(UnaryOp::Sqrt, _) => body.default_rounding(ty),
        _ => None,
    };
    let flushed = body.flushes(ty);
    let mut changed = rounding.is_some() || flushed;
    let mut operands = Vec::new();
    op.for_each_operand(|operand| operands.push(operand));
    for operand in &mut operands {
        let from = body.type_of(*operand);
        if body.flushes(from) {
            *operand = flush(body, *operand);
            changed = true;
        }
    }
    if !changed {
        return None;
    }
    let mut flushed_operands = operands.into_iter();
    op.for_each_operand_mut(|operand| {
        if let Some(new) = flushed_operands.next() {
            *operand = new;
        }
    });
    let result = match rounding {
        Some(rounding) => {
            // What an operation may do to the result must not be done to its steps.
            let flags = std::mem::replace(&mut body.float_flags, Flags::empty());
            let result = directed(body, ty, &op, rounding);
            body.float_flags = flags;
            result
        }
        None => body.emit(ty, op),
    };
    Some(if flushed { flush(body, result) } else { result })
}

/// Zero with a number's sign in place of a subnormal number.
fn flush(body: &mut Body<'_, '_>, a: Operand) -> Operand {
    let ty = body.type_of(a);
    let (bits_ty, bool_ty) = (body.int_like(ty), body.bool_like(ty));
    let (width, exponent) = match body.b.module.types.scalar_bits(ty) {
        16 => (16, 0x7c00),
        32 => (32, 0x7f80_0000),
        _ => (64, 0x7ff0_0000_0000_0000),
    };
    let bits = body.bitcast(a, bits_ty);
    let [zero, exponent, sign] = [0, exponent, 1 << (width - 1)].map(|n| body.splat(bits_ty, n));
    let exponent = body.emit(bits_ty, Op::Binary(BinaryOp::And, bits, exponent));
    let small = body.emit(bool_ty, Op::Compare(CompareOp::Eq, exponent, zero));
    let sign = body.emit(bits_ty, Op::Binary(BinaryOp::And, bits, sign));
    let kept = body.emit(bits_ty, Op::Select(small, sign, bits));
    body.bitcast(kept, ty)
}

/// An operation rounded in a direction.
fn directed(body: &mut Body<'_, '_>, ty: TypeId, op: &Op, rounding: Rounding) -> Operand {
    let f64 = body.b.module.types.float(Float::F64);
    let wide = body.b.module.types.with_element(ty, f64);
    let mut steps = Steps { ty: wide, bools: body.bool_like(ty), body };
    if ty == wide {
        let (rounded, signs) = match *op {
            Op::Binary(BinaryOp::FAdd, a, b) => (steps.sum(a, b), Some((a, b))),
            Op::Binary(BinaryOp::FSub, a, b) => {
                let b = steps.negate(b);
                (steps.sum(a, b), Some((a, b)))
            }
            Op::Binary(BinaryOp::FMul, a, b) => (steps.product(a, b), None),
            Op::Binary(_, a, b) => (steps.quotient(a, b), None),
            Op::Ternary(_, a, b, c) => {
                let product = steps.binary(BinaryOp::FMul, a, b);
                (steps.fused(a, b, c), Some((product, c)))
            }
            Op::Unary(_, a) => (steps.root(a), None),
            _ => return steps.body.emit(ty, op.clone()),
        };
        return steps.choose(rounded, signs, rounding);
    }
    let (exact, terms) = match *op {
        Op::Binary(BinaryOp::FAdd, a, b) => (None, [steps.widen(a), steps.widen(b)]),
        Op::Binary(BinaryOp::FSub, a, b) => {
            let (a, b) = (steps.widen(a), steps.widen(b));
            (None, [a, steps.negate(b)])
        }
        Op::Ternary(_, a, b, c) => {
            let [a, b, c] = [a, b, c].map(|x| steps.widen(x));
            (None, [steps.binary(BinaryOp::FMul, a, b), c])
        }
        // A product fits into a double. A quotient or a root of numbers with so few digits is never so near to
        // another such number that its double is that.
        Op::Binary(op, a, b) => {
            let (a, b) = (steps.widen(a), steps.widen(b));
            (Some(steps.binary(op, a, b)), [a, b])
        }
        Op::Unary(op, a) => {
            let a = steps.widen(a);
            (Some(steps.unary(op, a)), [a, a])
        }
        _ => return steps.body.emit(ty, op.clone()),
    };
    if let Some(exact) = exact {
        return steps.body.float_to_float(exact, ty, rounding);
    }
    let [a, b] = terms;
    let (sum, error) = steps.two_sum(a, b);
    let nearest = steps.body.emit(ty, Op::Convert(ConvertOp::FToF, sum));
    let back = steps.widen(nearest);
    let same = steps.compare(CompareOp::FOEq, back, sum);
    let [over, under] = [(CompareOp::FOGt, CompareOp::FOLt), (CompareOp::FOLt, CompareOp::FOGt)]
        .map(|(off, by_error)| {
            let off = steps.compare(off, back, sum);
            let zero = steps.number(0.0);
            let by_error = steps.compare(by_error, error, zero);
            let by_error = steps.both(same, by_error);
            steps.either(off, by_error)
        });
    steps.choose(Rounded { nearest, over, under }, Some((a, b)), rounding)
}

/// Emits operations on doubles.
struct Steps<'s, 'b, 'a> {
    body: &'s mut Body<'b, 'a>,
    ty: TypeId,
    bools: TypeId,
}

impl Steps<'_, '_, '_> {
    fn number(&mut self, value: f64) -> Operand {
        self.body.splat_float(self.ty, value)
    }

    fn unary(&mut self, op: UnaryOp, a: Operand) -> Operand {
        self.body.emit(self.ty, Op::Unary(op, a))
    }

    fn negate(&mut self, a: Operand) -> Operand {
        self.unary(UnaryOp::FNeg, a)
    }

    fn binary(&mut self, op: BinaryOp, a: Operand, b: Operand) -> Operand {
        self.body.emit(self.ty, Op::Binary(op, a, b))
    }

    fn fma(&mut self, a: Operand, b: Operand, c: Operand) -> Operand {
        self.body.emit(self.ty, Op::Ternary(TernaryOp::Fma, a, b, c))
    }

    fn widen(&mut self, a: Operand) -> Operand {
        let ty = self.ty;
        self.body.emit(ty, Op::Convert(ConvertOp::FToF, a))
    }

    fn compare(&mut self, op: CompareOp, a: Operand, b: Operand) -> Operand {
        self.body.emit(self.bools, Op::Compare(op, a, b))
    }

    fn both(&mut self, a: Operand, b: Operand) -> Operand {
        self.body.emit(self.bools, Op::Binary(BinaryOp::And, a, b))
    }

    fn either(&mut self, a: Operand, b: Operand) -> Operand {
        self.body.emit(self.bools, Op::Binary(BinaryOp::Or, a, b))
    }

    fn not(&mut self, a: Operand) -> Operand {
        self.body.emit(self.bools, Op::Unary(UnaryOp::Not, a))
    }

    fn select(&mut self, condition: Operand, yes: Operand, no: Operand) -> Operand {
        self.body.emit(self.ty, Op::Select(condition, yes, no))
    }

    /// Whether a number is nearer to zero than a limit.
    fn below(&mut self, a: Operand, limit: f64) -> Operand {
        let size = self.unary(UnaryOp::FAbs, a);
        let limit = self.number(limit);
        self.compare(CompareOp::FOLt, size, limit)
    }

    /// 2^600 where a condition holds, else 1.
    fn scale(&mut self, condition: Operand) -> Operand {
        let (large, one) = (self.number(2f64.powi(600)), self.number(1.0));
        self.select(condition, large, one)
    }

    /// A sum and its error. The error of a sum that is too large for a double is infinite.
    fn two_sum(&mut self, a: Operand, b: Operand) -> (Operand, Operand) {
        let [size_a, size_b] = [a, b].map(|x| self.unary(UnaryOp::FAbs, x));
        let swapped = self.compare(CompareOp::FOLt, size_a, size_b);
        let large = self.select(swapped, b, a);
        let small = self.select(swapped, a, b);
        let sum = self.binary(BinaryOp::FAdd, large, small);
        let taken = self.binary(BinaryOp::FSub, sum, large);
        (sum, self.binary(BinaryOp::FSub, small, taken))
    }

    /// A result, and whether the exact one is this much above (or below) it.
    fn with_error(&mut self, nearest: Operand, error: Operand) -> Rounded {
        let zero = self.number(0.0);
        let over = self.compare(CompareOp::FOLt, error, zero);
        let under = self.compare(CompareOp::FOGt, error, zero);
        Rounded { nearest, over, under }
    }

    fn sum(&mut self, a: Operand, b: Operand) -> Rounded {
        let (sum, error) = self.two_sum(a, b);
        self.with_error(sum, error)
    }

    fn product(&mut self, a: Operand, b: Operand) -> Rounded {
        let product = self.binary(BinaryOp::FMul, a, b);
        let small = self.below(product, 2f64.powi(-700));
        let [scale_a, scale_b] = [a, b].map(|x| {
            let below = self.below(x, 1.0);
            let scaled = self.both(small, below);
            self.scale(scaled)
        });
        let a = self.binary(BinaryOp::FMul, a, scale_a);
        let b = self.binary(BinaryOp::FMul, b, scale_b);
        let scaled = self.binary(BinaryOp::FMul, product, scale_a);
        let scaled = self.binary(BinaryOp::FMul, scaled, scale_b);
        let minus = self.negate(scaled);
        let error = self.fma(a, b, minus);
        self.with_error(product, error)
    }

    fn quotient(&mut self, a: Operand, b: Operand) -> Rounded {
        let quotient = self.binary(BinaryOp::FDiv, a, b);
        let small = self.below(a, 2f64.powi(-500));
        let below = self.below(b, 1.0);
        let by_b = self.both(small, below);
        let not_below = self.not(below);
        let by_quotient = self.both(small, not_below);
        let [scale_a, scale_b, scale_q] = [small, by_b, by_quotient].map(|it| self.scale(it));
        let scaled_a = self.binary(BinaryOp::FMul, a, scale_a);
        let scaled_b = self.binary(BinaryOp::FMul, b, scale_b);
        let scaled_q = self.binary(BinaryOp::FMul, quotient, scale_q);
        let minus = self.negate(scaled_q);
        let rest = self.fma(minus, scaled_b, scaled_a);
        let one = self.number(1.0);
        let sign = self.binary(BinaryOp::CopySign, one, b);
        let error = self.binary(BinaryOp::FMul, rest, sign);
        self.with_error(quotient, error)
    }

    fn root(&mut self, a: Operand) -> Rounded {
        let root = self.unary(UnaryOp::Sqrt, a);
        let small = self.below(a, 2f64.powi(-500));
        let (large, one) = (self.number(2f64.powi(300)), self.number(1.0));
        let scale_root = self.select(small, large, one);
        let scale = self.scale(small);
        let scaled = self.binary(BinaryOp::FMul, a, scale);
        let scaled_root = self.binary(BinaryOp::FMul, root, scale_root);
        let minus = self.negate(scaled_root);
        let error = self.fma(minus, scaled_root, scaled);
        self.with_error(root, error)
    }

    /// A fused multiply-add. The error is computed of mantissas, so that no step is too large or too small; a
    /// summand far below the product is moved up, but stays below all of the product's digits.
    fn fused(&mut self, a: Operand, b: Operand, c: Operand) -> Rounded {
        let nearest = self.fma(a, b, c);
        let [(ma, ea), (mb, eb), (mc, ec)] =
            [a, b, c].map(|x| self.body.math_pair(MathOp::Frexp, self.ty, vec![x]));
        let ints = self.body.type_of(ea);
        let int = |steps: &mut Self, op, a, b| steps.body.emit(ints, Op::Binary(op, a, b));
        let exponent = int(self, BinaryOp::Add, ea, eb);
        let distance = int(self, BinaryOp::Sub, ec, exponent);
        let [low, high, zero] =
            [-200i32, 130, 0].map(|n| self.body.splat(ints, u64::from(n as u32)));
        let far = self.compare(CompareOp::SGt, distance, high);
        let distance = int(self, BinaryOp::SMax, distance, low);
        let distance = int(self, BinaryOp::SMin, distance, high);
        let down = int(self, BinaryOp::Sub, zero, exponent);
        let [scaled_c, scaled] = [(mc, distance), (nearest, down)]
            .map(|(x, by)| self.body.math(MathOp::Ldexp, self.ty, vec![x, by]));

        let product = self.binary(BinaryOp::FMul, ma, mb);
        let minus = self.negate(product);
        let rest = self.fma(ma, mb, minus);
        let (lower, lowest) = self.two_sum(scaled_c, rest);
        let (upper, middle) = self.two_sum(product, lower);
        let error = self.binary(BinaryOp::FSub, upper, scaled);
        let error = self.binary(BinaryOp::FAdd, error, middle);
        let error = self.binary(BinaryOp::FAdd, error, lowest);

        // A product far below the summand: the result is the summand.
        let nothing = self.number(0.0);
        let some = self.compare(CompareOp::FONe, c, nothing);
        let far = self.both(far, some);
        let error = self.select(far, product, error);
        // No product at all.
        let any = self.compare(CompareOp::FONe, product, nothing);
        let error = self.select(any, error, nothing);
        // A result that is too large for a double.
        let infinite = self.body.emit(self.bools, Op::Test(FloatTest::IsInf, nearest));
        let inward = self.negate(nearest);
        let error = self.select(infinite, inward, error);
        let mut finite: Option<Operand> = None;
        for x in [a, b, c] {
            let this = self.body.emit(self.bools, Op::Test(FloatTest::IsFinite, x));
            finite = Some(finite.map_or(this, |all| self.both(all, this)));
        }
        let error = finite.map_or(error, |finite| self.select(finite, error, nothing));
        self.with_error(nearest, error)
    }

    /// The neighbour of a result that its direction asks for. A sum (of `terms`) that is exactly zero is
    /// negative if it is rounded down, unless all terms are positive zeros (IEEE 754-2019, 6.3).
    fn choose(
        &mut self,
        rounded: Rounded,
        terms: Option<(Operand, Operand)>,
        rounding: Rounding,
    ) -> Operand {
        let Rounded { nearest, over, under } = rounded;
        let result = self.body.direct(nearest, over, under, rounding);
        let Some((a, b)) = terms.filter(|_| rounding == Rounding::Down) else { return result };
        let ty = self.body.type_of(nearest);
        let [nothing, minus] = [0.0, -0.0].map(|zero| self.body.splat_float(ty, zero));
        let zero = self.compare(CompareOp::FOEq, nearest, nothing);
        let inexact = self.either(over, under);
        let exact = self.not(inexact);
        let [a, b] = [a, b].map(|x| self.body.emit(self.bools, Op::Test(FloatTest::SignBit, x)));
        let negative = self.either(a, b);
        let exact_zero = self.both(zero, exact);
        let replaced = self.both(exact_zero, negative);
        self.body.emit(ty, Op::Select(replaced, minus, result))
    }
}

impl Body<'_, '_> {
    /// The bits of a type's components, if they are floats.
    fn float_bits(&self, ty: TypeId) -> Option<u32> {
        let types = &self.b.module.types;
        match types[types.element(ty)] {
            Type::Float(float) => Some(float.bits()),
            _ => None,
        }
    }

    /// The direction in which results of this type are rounded, unless it is the nearest number.
    pub fn default_rounding(&self, ty: TypeId) -> Option<Rounding> {
        self.floats.rounding(self.float_bits(ty)?)
    }

    /// Whether subnormal numbers of this type count as zeros.
    fn flushes(&self, ty: TypeId) -> bool {
        self.float_bits(ty).is_some_and(|bits| self.floats.flushes(bits))
    }
}

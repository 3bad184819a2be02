// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operators of the IR's operations.

use super::named::named_enum;

named_enum! {
    /// Operations on one value; the result has the operand's type.
    UnaryOp {
        /// Integer negation, wrapping.
        Neg = "neg",
        /// Complement of every bit; on `bool` the logical negation.
        Not = "not",
        /// Absolute value of a signed integer, wrapping (`abs(MIN) == MIN`).
        Abs = "abs",
        /// Leading zero bits; the width for 0.
        Clz = "clz",
        /// Trailing zero bits; the width for 0.
        Ctz = "ctz",
        /// Number of bits that are set.
        PopCount = "popcount",
        /// Bits in reverse order.
        BitReverse = "bit_reverse",
        /// Sign flipped, also of NaN.
        FNeg = "fneg",
        /// Sign cleared, also of NaN.
        FAbs = "fabs",
        /// Square root, correctly rounded.
        Sqrt = "sqrt",
        /// Rounded down to an integral value.
        Floor = "floor",
        /// Rounded up to an integral value.
        Ceil = "ceil",
        /// Rounded to an integral value towards zero.
        Trunc = "trunc",
        /// Rounded to the nearest integral value, ties to even.
        Rint = "rint",
        /// Rounded to the nearest integral value, ties away from zero.
        Round = "round",
    }
}

named_enum! {
    /// Operations on two values of one type; the result has that type.
    BinaryOp {
        /// Wrapping sum.
        Add = "add",
        /// Wrapping difference.
        Sub = "sub",
        /// Wrapping product.
        Mul = "mul",
        /// Unsigned quotient; some value if the divisor is 0.
        UDiv = "udiv",
        /// Signed quotient towards zero; some value if the divisor is 0 or the result overflows.
        SDiv = "sdiv",
        /// Unsigned remainder; some value if the divisor is 0.
        URem = "urem",
        /// Signed remainder with the sign of the dividend; some value if the divisor is 0 or the
        /// quotient overflows.
        SRem = "srem",
        /// Signed remainder with the sign of the divisor; some value if the divisor is 0 or the
        /// quotient overflows.
        SMod = "smod",
        /// Bitwise and; on `bool` the logical one.
        And = "and",
        /// Bitwise or; on `bool` the logical one.
        Or = "or",
        /// Bitwise exclusive or; on `bool` the logical one.
        Xor = "xor",
        /// Shift left; the amount counts modulo the width.
        Shl = "shl",
        /// Logical shift right; the amount counts modulo the width.
        LShr = "lshr",
        /// Arithmetic shift right; the amount counts modulo the width.
        AShr = "ashr",
        /// Rotation to the left; the amount counts modulo the width.
        Rotl = "rotl",
        /// The smaller signed integer.
        SMin = "smin",
        /// The smaller unsigned integer.
        UMin = "umin",
        /// The larger signed integer.
        SMax = "smax",
        /// The larger unsigned integer.
        UMax = "umax",
        /// Signed sum, saturating.
        SAddSat = "sadd_sat",
        /// Unsigned sum, saturating.
        UAddSat = "uadd_sat",
        /// Signed difference, saturating.
        SSubSat = "ssub_sat",
        /// Unsigned difference, saturating.
        USubSat = "usub_sat",
        /// High half of the signed product.
        SMulHi = "smul_hi",
        /// High half of the unsigned product.
        UMulHi = "umul_hi",
        /// `(a + b) >> 1` without overflow, signed.
        SHAdd = "shadd",
        /// `(a + b) >> 1` without overflow, unsigned.
        UHAdd = "uhadd",
        /// `(a + b + 1) >> 1` without overflow, signed.
        SRHAdd = "srhadd",
        /// `(a + b + 1) >> 1` without overflow, unsigned.
        URHAdd = "urhadd",
        /// `|a - b|` of signed integers as an unsigned one, without overflow.
        SAbsDiff = "sabs_diff",
        /// `|a - b|` of unsigned integers, without overflow.
        UAbsDiff = "uabs_diff",
        /// The sum of the products of the signed lower and upper halves of integers of 32 bits.
        PairDot = "pair_dot",
        /// Sum.
        FAdd = "fadd",
        /// Difference.
        FSub = "fsub",
        /// Product.
        FMul = "fmul",
        /// Quotient, correctly rounded.
        FDiv = "fdiv",
        /// Quotient up to one unit in the last place off: of floats (`native_divide`; subnormal numbers may count
        /// as zero), and of doubles that are normal and whose quotient is.
        FDivNear = "fdiv_near",
        /// The smaller number; the other operand if one is NaN.
        FMin = "fmin",
        /// The larger number; the other operand if one is NaN.
        FMax = "fmax",
        /// The first operand with the sign of the second.
        CopySign = "copysign",
    }
}

named_enum! {
    /// Operations on three values of one type; the result has that type.
    TernaryOp {
        /// `a * b + c` rounded once.
        Fma = "fma",
        /// `a * b + c` of signed integers, saturating once at the end.
        SMadSat = "smad_sat",
        /// `a * b + c` of unsigned integers, saturating once at the end.
        UMadSat = "umad_sat",
    }
}

named_enum! {
    /// Comparisons of integers or pointers (the first ten) or of floats; the result is `bool` or a
    /// vector of it. Ordered comparisons (`o`) are false if an operand is NaN, unordered ones (`u`)
    /// are true.
    CompareOp {
        /// Equal (integers, pointers, `bool`).
        Eq = "eq",
        /// Not equal (integers, pointers, `bool`).
        Ne = "ne",
        /// Unsigned less.
        ULt = "ult",
        /// Unsigned less or equal.
        ULe = "ule",
        /// Unsigned greater.
        UGt = "ugt",
        /// Unsigned greater or equal.
        UGe = "uge",
        /// Signed less.
        SLt = "slt",
        /// Signed less or equal.
        SLe = "sle",
        /// Signed greater.
        SGt = "sgt",
        /// Signed greater or equal.
        SGe = "sge",
        /// Ordered and equal.
        FOEq = "foeq",
        /// Ordered and not equal.
        FONe = "fone",
        /// Ordered and less.
        FOLt = "folt",
        /// Ordered and less or equal.
        FOLe = "fole",
        /// Ordered and greater.
        FOGt = "fogt",
        /// Ordered and greater or equal.
        FOGe = "foge",
        /// Unordered or equal.
        FUEq = "fueq",
        /// Unordered or not equal.
        FUNe = "fune",
        /// Unordered or less.
        FULt = "fult",
        /// Unordered or less or equal.
        FULe = "fule",
        /// Unordered or greater.
        FUGt = "fugt",
        /// Unordered or greater or equal.
        FUGe = "fuge",
        /// Neither operand is NaN.
        FOrd = "ford",
        /// An operand is NaN.
        FUno = "funo",
    }
}

named_enum! {
    /// Tests of one float; the result is `bool` or a vector of it. They look at the bits and ignore
    /// fast-math flags.
    FloatTest {
        /// NaN.
        IsNan = "is_nan",
        /// Infinity of either sign.
        IsInf = "is_inf",
        /// Neither infinity nor NaN.
        IsFinite = "is_finite",
        /// Neither zero, subnormal, infinity nor NaN.
        IsNormal = "is_normal",
        /// The sign bit is set.
        SignBit = "sign_bit",
    }
}

named_enum! {
    /// Conversions of type. Results that are floats are rounded to nearest, ties to even; results that
    /// are integers are truncated towards zero.
    ConvertOp {
        /// Integer to a narrower integer: the low bits.
        Trunc = "trunc",
        /// Integer to a wider one, sign-extended.
        SExt = "sext",
        /// Integer to a wider one, zero-extended.
        ZExt = "zext",
        /// Float to signed integer; some value if it does not fit.
        FToS = "ftos",
        /// Float to unsigned integer; some value if it does not fit.
        FToU = "ftou",
        /// Float to signed integer; the nearest limit if it does not fit, 0 for NaN.
        FToSSat = "ftos_sat",
        /// Float to unsigned integer; the nearest limit if it does not fit, 0 for NaN.
        FToUSat = "ftou_sat",
        /// Signed integer to float.
        SToF = "stof",
        /// Unsigned integer to float.
        UToF = "utof",
        /// Float to a wider or narrower float.
        FToF = "ftof",
        /// The same bits as another type of the same size (numbers and vectors of numbers; scalar
        /// component 0 of a vector is in the low bits). Never involves pointers.
        Bitcast = "bitcast",
        /// Pointer to a 64-bit integer.
        PtrToInt = "ptr_to_int",
        /// 64-bit integer to a pointer.
        IntToPtr = "int_to_ptr",
        /// Pointer of one address space to the same address in another.
        PtrCast = "ptr_cast",
    }
}

/// Declares [`MathOp`] with the number of arguments of each function.
macro_rules! math_ops {
    ($($variant:ident = $text:literal, $arity:literal;)*) => {
        /// Functions of OpenCL.std that need a library. Arguments and result are all `f32` or all `f64`
        /// (or vectors of them), except where noted; the parser computes `f16` in `f32`. The result of
        /// a function with two results is a structure of the two.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum MathOp { $(#[doc = concat!("`", $text, "` of OpenCL.std.")] $variant),* }

        impl MathOp {
            /// The name in OpenCL.std, the textual form and the run-time library.
            pub fn name(self) -> &'static str {
                match self { $(MathOp::$variant => $text),* }
            }

            /// The number of arguments, not counting OpenCL.std's out-pointers.
            pub fn arity(self) -> usize {
                match self { $(MathOp::$variant => $arity),* }
            }
        }
    };
}

math_ops! {
    Acos = "acos", 1;
    Acosh = "acosh", 1;
    Acospi = "acospi", 1;
    Asin = "asin", 1;
    Asinh = "asinh", 1;
    Asinpi = "asinpi", 1;
    Atan = "atan", 1;
    Atan2 = "atan2", 2;
    Atanh = "atanh", 1;
    Atanpi = "atanpi", 1;
    Atan2pi = "atan2pi", 2;
    Cbrt = "cbrt", 1;
    Cos = "cos", 1;
    Cosh = "cosh", 1;
    Cospi = "cospi", 1;
    Erf = "erf", 1;
    Erfc = "erfc", 1;
    Exp = "exp", 1;
    Exp2 = "exp2", 1;
    Exp10 = "exp10", 1;
    Expm1 = "expm1", 1;
    Fmod = "fmod", 2;
    Fract = "fract", 1;
    Frexp = "frexp", 1;
    Hypot = "hypot", 2;
    Ilogb = "ilogb", 1;
    Ldexp = "ldexp", 2;
    Lgamma = "lgamma", 1;
    LgammaR = "lgamma_r", 1;
    Log = "log", 1;
    Log2 = "log2", 1;
    Log10 = "log10", 1;
    Log1p = "log1p", 1;
    Logb = "logb", 1;
    Modf = "modf", 1;
    Nextafter = "nextafter", 2;
    Pow = "pow", 2;
    Pown = "pown", 2;
    Powr = "powr", 2;
    Remainder = "remainder", 2;
    Remquo = "remquo", 2;
    Rootn = "rootn", 2;
    Rsqrt = "rsqrt", 1;
    Sin = "sin", 1;
    Sincos = "sincos", 1;
    Sinh = "sinh", 1;
    Sinpi = "sinpi", 1;
    Tan = "tan", 1;
    Tanh = "tanh", 1;
    Tanpi = "tanpi", 1;
    Tgamma = "tgamma", 1;
}

/// The second result of a [`MathOp`], which OpenCL.std stores through a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondResult {
    /// A float of the first result's type: `fract` (the floor), `modf` (the integral part),
    /// `sincos` (the cosine).
    Float,
    /// A 32-bit integer: `frexp` (the exponent), `lgamma_r` (the sign), `remquo` (the quotient's
    /// low bits).
    Int,
}

impl MathOp {
    /// The second result, if the function has two: the instruction's type is then the structure
    /// `{first, second}`.
    pub fn second_result(self) -> Option<SecondResult> {
        match self {
            MathOp::Fract | MathOp::Modf | MathOp::Sincos => Some(SecondResult::Float),
            MathOp::Frexp | MathOp::LgammaR | MathOp::Remquo => Some(SecondResult::Int),
            _ => None,
        }
    }

    /// Whether the last argument is a 32-bit integer (or a vector of them): `ldexp`, `pown`,
    /// `rootn`.
    pub fn takes_int(self) -> bool {
        matches!(self, MathOp::Ldexp | MathOp::Pown | MathOp::Rootn)
    }

    /// Whether the library has a cheaper form of it, for `native_` and `half_` functions.
    pub fn has_native(self) -> bool {
        use MathOp::{Cos, Exp, Exp2, Exp10, Log, Log2, Log10, Powr, Rsqrt, Sin, Tan};
        matches!(self, Cos | Exp | Exp2 | Exp10 | Log | Log2 | Log10 | Powr | Rsqrt | Sin | Tan)
    }

    /// Whether the library has forms of it for vectors.
    pub fn takes_vectors(self) -> bool {
        use MathOp::{Fract, Frexp, Ilogb, LgammaR, Logb, Modf, Nextafter, Remquo};
        !matches!(self, Fract | Frexp | Ilogb | LgammaR | Logb | Modf | Nextafter | Remquo)
    }

    /// Whether the only result is a 32-bit integer (or a vector of them): `ilogb`.
    pub fn returns_int(self) -> bool {
        matches!(self, MathOp::Ilogb)
    }
}

named_enum! {
    /// Operations on an image. The first operand is the address of its descriptor, a pointer to
    /// constant memory; texels are vectors of four `i32`, the bits of floats or integers depending on
    /// the image's format. Coordinates are three scalars; the image's kind says how many are used.
    ImageOp {
        /// Image, sampler (`i64`), coordinates as `i32`: the texel there.
        Fetch = "fetch",
        /// Image, sampler (`i64`), coordinates as `f32`: the sampler's filtered value of the texels
        /// there.
        Sample = "sample",
        /// Image, coordinates as `i32`, texel. Has no result.
        Write = "write",
    }
}

named_enum! {
    /// Operations that read and write a location in one step; the result is the old value.
    AtomicOp {
        /// Replace.
        Exchange = "xchg",
        /// Integer sum.
        Add = "add",
        /// Integer difference, old - value.
        Sub = "sub",
        /// Smaller signed integer.
        SMin = "smin",
        /// Smaller unsigned integer.
        UMin = "umin",
        /// Larger signed integer.
        SMax = "smax",
        /// Larger unsigned integer.
        UMax = "umax",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Float sum.
        FAdd = "fadd",
        /// Smaller float, like [`BinaryOp::FMin`].
        FMin = "fmin",
        /// Larger float, like [`BinaryOp::FMax`].
        FMax = "fmax",
    }
}

named_enum! {
    /// Memory ordering of an atomic operation or a fence.
    Ordering {
        /// Not at all.
        Relaxed = "relaxed",
        /// Later accesses stay later.
        Acquire = "acquire",
        /// Earlier accesses stay earlier.
        Release = "release",
        /// Both.
        AcqRel = "acq_rel",
        /// Both, and one total order of all such operations.
        SeqCst = "seq_cst",
    }
}

named_enum! {
    /// What is known of the numbers of items that run together, divided by a number that they share.
    RowOp {
        /// Whether all have the same quotient, and none is negative: their items lie in one row. A `bool`.
        Fits = "in_row",
        /// The quotient of all, if they fit.
        Number = "row",
        /// The remainder of each, if they fit.
        Place = "place",
    }
}

named_enum! {
    /// The set of work-items that an operation synchronises with.
    Scope {
        /// The work-item itself.
        WorkItem = "work_item",
        /// The sub-group.
        Subgroup = "subgroup",
        /// The work-group.
        Workgroup = "workgroup",
        /// The device.
        Device = "device",
        /// All devices and the host.
        System = "system",
    }
}

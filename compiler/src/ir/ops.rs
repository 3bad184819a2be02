// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations of the IR.
//!
//! The set is small on purpose. The parser rewrites what SPIR-V and OpenCL.std can say in terms of
//! it (geometric functions, `vloadn`, `select`, bit fields, directed roundings, ...), so that the
//! interpreter, code generation and widening each see one way to say a thing.
//!
//! Arithmetic, comparisons, conversions, `Select` and `Math` work on scalars and, component by
//! component, on vectors. No operation traps and none has undefined behaviour on values alone:
//! where SPIR-V leaves a result undefined, it is some value of the type.

use super::group::{GroupOp, WorkItemQuery};
use super::{BlockId, FunctionId, GlobalId, Operand};

/// Declares a field-less enum with the lower-case name of each variant for the textual form.
macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),* }

        impl $name {
            /// The name in the textual form.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }
    };
}

pub(crate) use named_enum;

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
        /// Bits that are set.
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
        /// Sum.
        FAdd = "fadd",
        /// Difference.
        FSub = "fsub",
        /// Product.
        FMul = "fmul",
        /// Quotient, correctly rounded.
        FDiv = "fdiv",
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
    /// Questions about one float; the result is `bool` or a vector of it. They answer by the bits,
    /// whatever fast-math flags say elsewhere.
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
    /// Changes of type. Results that are floats are rounded to nearest, ties to even; results that
    /// are integers are truncated towards zero.
    ConvertOp {
        /// Integer to a narrower integer: the low bits.
        Trunc = "trunc",
        /// Integer to a wider one by sign.
        SExt = "sext",
        /// Integer to a wider one by zeros.
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
        /// Functions of OpenCL.std that need a library. Arguments and result are `f32` or `f64`
        /// (or vectors of them) alike, except where noted; `f16` is computed in `f32` by the
        /// parser. The result of a function with two results is a structure of the two.
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
        use MathOp::{Cos, Exp, Exp2, Exp10, Log, Log2, Log10, Powr, Sin, Tan};
        matches!(self, Cos | Exp | Exp2 | Exp10 | Log | Log2 | Log10 | Powr | Sin | Tan)
    }

    /// Whether the only result is a 32-bit integer (or a vector of them): `ilogb`.
    pub fn returns_int(self) -> bool {
        matches!(self, MathOp::Ilogb)
    }
}

named_enum! {
    /// Operations on an image. The first operand is the address of its descriptor, a pointer to
    /// constant memory; texels are vectors of four `i32`, the bits of floats or integers as the
    /// image's format has it. Coordinates are three scalars, the image's kind says how many count.
    ImageOp {
        /// Image, sampler (`i64`), coordinates as `i32`: the texel there.
        Fetch = "fetch",
        /// Image, sampler (`i64`), coordinates as `f32`: what the sampler makes of the texels there.
        Sample = "sample",
        /// Image, coordinates as `i32`, texel. Has no result.
        Write = "write",
    }
}

named_enum! {
    /// Operations that read a location and write it as one step; the result is the old value.
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
        /// Smaller float, as [`BinaryOp::FMin`].
        FMin = "fmin",
        /// Larger float, as [`BinaryOp::FMax`].
        FMax = "fmax",
    }
}

named_enum! {
    /// How strongly an atomic operation or a fence orders other accesses.
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
    /// The set of work-items that an operation speaks to.
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

/// How a memory access behaves beyond its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Alignment in bytes that the address is known to have, a power of two.
    pub align: u32,
    /// The access must happen as written.
    pub volatile: bool,
    /// The data is not expected to be used again soon.
    pub nontemporal: bool,
}

/// What an instruction computes. The instruction's result value has the type.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// One operand, same type.
    Unary(UnaryOp, Operand),
    /// Two operands of one type, same type.
    Binary(BinaryOp, Operand, Operand),
    /// Three operands of one type, same type.
    Ternary(TernaryOp, Operand, Operand, Operand),
    /// Two operands of one type; `bool` or a vector of it.
    Compare(CompareOp, Operand, Operand),
    /// A float or a vector of floats; `bool` or a vector of it.
    Test(FloatTest, Operand),
    /// The second operand where the first is true, else the third. The condition is a `bool`, or a
    /// vector of `bool` when it chooses per component. Operands may be of any type.
    Select(Operand, Operand, Operand),
    /// A change of type to the result's.
    Convert(ConvertOp, Operand),
    /// A library function.
    Math(MathOp, Vec<Operand>),
    /// Reads, samples or writes an image.
    Image(ImageOp, Vec<Operand>),
    /// Sum and carry (0 or 1) of unsigned integers: a structure of two of the operands' type.
    AddCarry(Operand, Operand),
    /// Difference and borrow (0 or 1) of unsigned integers: a structure of two.
    SubBorrow(Operand, Operand),
    /// Low and high half of the unsigned product: a structure of two.
    UMulExtended(Operand, Operand),
    /// Low and high half of the signed product: a structure of two.
    SMulExtended(Operand, Operand),

    /// A vector, array or structure from all its components.
    Construct(Vec<Operand>),
    /// The component of a composite at a path of constant indices; never empty.
    Extract(Operand, Vec<u32>),
    /// A composite (first) with the component at a path replaced by a value (second).
    Insert(Operand, Operand, Vec<u32>),
    /// The component of a vector at an integer index; some value if it is out of range.
    ExtractDynamic(Operand, Operand),
    /// A vector with the component at an integer index (third) replaced by a value (second); some
    /// vector if it is out of range.
    InsertDynamic(Operand, Operand, Operand),
    /// Components chosen from the concatenation of two vectors of one component type; `None` is
    /// some value.
    Shuffle(Operand, Operand, Vec<Option<u32>>),

    /// An address: `base + offset + sum(index * stride)` bytes, wrapping. Indices are signed
    /// integers of any width. In widened code the base and indices may be vectors; the result then
    /// is a vector of pointers.
    Address {
        /// A pointer; the result is of the same address space.
        base: Operand,
        /// Constant part in bytes.
        offset: i64,
        /// Index and stride in bytes of each variable part.
        terms: Vec<(Operand, i64)>,
        /// The address lies in the object that `base` points into, or one past its end.
        inbounds: bool,
    },
    /// Reads a value of the result's type. A vector of three reads three components.
    Load(Operand, Access),
    /// Writes a value (second) to a pointer (first). A vector of three writes three components.
    Store(Operand, Operand, Access),
    /// Copies bytes to a pointer (first) from another (second); an integer (third) says how many.
    /// The ranges are the same or do not overlap.
    Copy(Operand, Operand, Operand, Access),
    /// An atomic load of an integer, float or pointer.
    AtomicLoad(Operand, Ordering, Scope),
    /// An atomic store of a value (second) to a pointer (first).
    AtomicStore(Operand, Operand, Ordering, Scope),
    /// An atomic update of the location at a pointer with a value; the result is the old value.
    AtomicRmw(AtomicOp, Operand, Operand, Ordering, Scope),
    /// Stores `value` at `ptr` if it holds `expected`; the result is the old value in either case.
    AtomicCompareExchange {
        /// The location.
        ptr: Operand,
        /// What it must hold.
        expected: Operand,
        /// What is stored then.
        value: Operand,
        /// Ordering if it did.
        success: Ordering,
        /// Ordering if it did not.
        failure: Ordering,
        /// The scope of other accesses to the location.
        scope: Scope,
    },

    /// Prints by a format string (first) the arguments that lie, so many bytes, at a private pointer
    /// (second), in the form of [`tally_compiler_protocol::printf`]. The result is an `i32`: 0, or
    /// -1 if there was no room.
    Printf(Operand, Operand, u32),

    /// What the work-item is. The number is the dimension, 0 where there is none.
    WorkItem(WorkItemQuery, u8),
    /// All work-items of the execution scope wait for each other; memory is ordered for the memory
    /// scope. Has no result.
    ControlBarrier {
        /// The scope of items that wait.
        execution: Scope,
        /// The scope in which the memory becomes visible.
        memory: Scope,
        /// How memory is ordered.
        ordering: Ordering,
    },
    /// The work-group waits for all others of the launch, which is cooperative. One work-item says so,
    /// between two barriers of the work-group. Has no result.
    GridBarrier,
    /// Memory is ordered for the scope. Has no result.
    Fence(Scope, Ordering),
    /// Shows a value to the other work-items of the scope and waits for all of them, to return or
    /// to stop too. Has no result; a [`Op::Collect`] comes next.
    Offer(Scope, Operand),
    /// What becomes of the values that the [`Op::Offer`] before it has shown, those of the
    /// work-items that came there together. Of the offered type. A shuffle has an `i32` index.
    Collect(GroupOp, Scope, Option<Operand>),

    /// Which work-items of a vector there are, a vector of `bool`: fewer at the end of an uneven row.
    Present,
    /// A value in every component of a vector.
    Splat(Operand),
    /// Whether any component of a vector of `bool` is true.
    Any(Operand),
    /// The index of the last true component of a vector of `bool`, `i32`; some number if there is
    /// none.
    LastTrue(Operand),
    /// Whether the addresses of a vector (first) lie one behind the other, so many bytes apart, where
    /// a vector of `bool` (second) is true, and it is true for the first component. `bool`.
    InLine(Operand, Operand, u64),
    /// Tells the processor that what lies at a pointer will be read. Accesses nothing.
    Prefetch(Operand),
    /// Reads the components of a vector, which lie one behind the other at a pointer (first), where
    /// a vector of `bool` (second) is true; others are some value and are not accessed.
    MaskedLoad(Operand, Operand, Access),
    /// Writes the components of a vector (second) one behind the other at a pointer (first) where a
    /// vector of `bool` (third) is true.
    MaskedStore(Operand, Operand, Operand, Access),
    /// Reads one component through each pointer of a vector (first) where a vector of `bool`
    /// (second) is true; others are some value and are not accessed.
    Gather(Operand, Operand, Access),
    /// Writes each component of a vector (second) through its pointer of a vector (first) where a
    /// vector of `bool` (third) is true, in the order of the components.
    Scatter(Operand, Operand, Operand, Access),

    /// A call of a function of the module. Has a result unless the function returns `void`.
    Call(FunctionId, Vec<Operand>),
    /// The value that belongs to the predecessor the block was entered from. Each predecessor is
    /// named once. All phis of a block come first and take effect together.
    Phi(Vec<(BlockId, Operand)>),
    /// The operand is true; otherwise behaviour is undefined. Has no result.
    Assume(Operand),
    /// Something the compiler cannot do, by name. `check` refuses it where it is reachable, so no
    /// later stage sees it. Operands are not kept.
    Unsupported(String),
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Goes on at a block.
    Branch(BlockId),
    /// Goes on at the first block if the `bool` is true, else at the second.
    CondBranch(Operand, BlockId, BlockId),
    /// Goes on at the block of the first case that equals the integer, else at the default.
    Switch {
        /// An integer.
        value: Operand,
        /// The target if no case matches.
        default: BlockId,
        /// Values, zero-extended to 64 bits, and where to go. No value appears twice.
        cases: Vec<(u64, BlockId)>,
    },
    /// Ends the function, with a value unless it returns `void`.
    Return(Option<Operand>),
    /// Is never reached.
    Unreachable,
}

impl Terminator {
    /// The blocks that may come next, in order; a block may appear more than once.
    pub fn successors(&self) -> Vec<BlockId> {
        match self {
            Terminator::Branch(next) => vec![*next],
            Terminator::CondBranch(_, yes, no) => vec![*yes, *no],
            Terminator::Switch { default, cases, .. } => {
                std::iter::once(*default).chain(cases.iter().map(|&(_, block)| block)).collect()
            }
            Terminator::Return(_) | Terminator::Unreachable => Vec::new(),
        }
    }

    /// Calls `visit` on each operand.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Operand)) {
        match self {
            Terminator::CondBranch(value, ..)
            | Terminator::Switch { value, .. }
            | Terminator::Return(Some(value)) => visit(*value),
            Terminator::Branch(_) | Terminator::Return(None) | Terminator::Unreachable => {}
        }
    }

    /// Calls `change` on each operand.
    pub fn for_each_operand_mut(&mut self, mut change: impl FnMut(&mut Operand)) {
        match self {
            Terminator::CondBranch(value, ..)
            | Terminator::Switch { value, .. }
            | Terminator::Return(Some(value)) => change(value),
            Terminator::Branch(_) | Terminator::Return(None) | Terminator::Unreachable => {}
        }
    }

    /// Calls `change` on each block that may come next.
    pub fn for_each_successor_mut(&mut self, mut change: impl FnMut(&mut BlockId)) {
        match self {
            Terminator::Branch(next) => change(next),
            Terminator::CondBranch(_, yes, no) => {
                change(yes);
                change(no);
            }
            Terminator::Switch { default, cases, .. } => {
                change(default);
                cases.iter_mut().for_each(|(_, block)| change(block));
            }
            Terminator::Return(_) | Terminator::Unreachable => {}
        }
    }
}

/// One list of operands for readers and for writers.
macro_rules! visit_operands {
    ($op:expr, $visit:expr, $iter:ident) => {{
        let mut visit = $visit;
        match $op {
            Op::Unary(_, a)
            | Op::Test(_, a)
            | Op::Convert(_, a)
            | Op::Extract(a, _)
            | Op::Load(a, _)
            | Op::AtomicLoad(a, ..)
            | Op::Offer(_, a)
            | Op::Collect(_, _, Some(a))
            | Op::Splat(a)
            | Op::Any(a)
            | Op::LastTrue(a)
            | Op::Prefetch(a)
            | Op::Assume(a) => visit(a),
            Op::Binary(_, a, b)
            | Op::Compare(_, a, b)
            | Op::AddCarry(a, b)
            | Op::SubBorrow(a, b)
            | Op::UMulExtended(a, b)
            | Op::SMulExtended(a, b)
            | Op::Insert(a, b, _)
            | Op::ExtractDynamic(a, b)
            | Op::Shuffle(a, b, _)
            | Op::Store(a, b, _)
            | Op::MaskedLoad(a, b, _)
            | Op::Gather(a, b, _)
            | Op::InLine(a, b, _)
            | Op::AtomicStore(a, b, ..)
            | Op::AtomicRmw(_, a, b, ..)
            | Op::Printf(a, b, _) => {
                visit(a);
                visit(b);
            }
            Op::Ternary(_, a, b, c)
            | Op::Select(a, b, c)
            | Op::MaskedStore(a, b, c, _)
            | Op::Scatter(a, b, c, _)
            | Op::InsertDynamic(a, b, c)
            | Op::Copy(a, b, c, _) => {
                visit(a);
                visit(b);
                visit(c);
            }
            Op::AtomicCompareExchange { ptr, expected, value, .. } => {
                visit(ptr);
                visit(expected);
                visit(value);
            }
            Op::Math(_, args) | Op::Image(_, args) | Op::Construct(args) | Op::Call(_, args) => {
                args.$iter().for_each(visit);
            }
            Op::Address { base, terms, .. } => {
                visit(base);
                terms.$iter().for_each(|(index, _)| visit(index));
            }
            Op::Phi(incoming) => incoming.$iter().for_each(|(_, value)| visit(value)),
            Op::WorkItem(..)
            | Op::Present
            | Op::ControlBarrier { .. }
            | Op::GridBarrier
            | Op::Fence(..)
            | Op::Collect(_, _, None)
            | Op::Unsupported(_) => {}
        }
    }};
}

impl Op {
    /// Calls `visit` on each operand, in order. A phi's operands are visited too.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Operand)) {
        visit_operands!(self, |operand: &Operand| visit(*operand), iter);
    }

    /// Calls `change` on each operand, in order.
    pub fn for_each_operand_mut(&mut self, change: impl FnMut(&mut Operand)) {
        visit_operands!(self, change, iter_mut);
    }
}

/// A reference from the bytes of one global variable to the address of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalReloc {
    /// Byte offset of the 64-bit address within the initial bytes.
    pub offset: u64,
    /// The variable whose address it is.
    pub global: GlobalId,
    /// Added to the address.
    pub addend: i64,
}

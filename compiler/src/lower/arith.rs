// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arithmetic, comparisons, conversions and library functions.
//!
//! The IR gives every operation a value, where LLVM would trap or be undefined: divisors are guarded,
//! shift amounts masked, and a conversion that does not fit is frozen.

use super::body::Body;
use super::library;
use super::types::{is_bool, suffix, value_type};
use super::unit::LowerError;
use crate::ir::{
    BinaryOp, CompareOp, ConvertOp, Flags, Float, FloatTest, Inst, MathOp, Op, Operand,
    SecondResult, TernaryOp, Type, TypeId, UnaryOp,
};

impl Body<'_, '_> {
    /// Text of the instruction that computes an operation. Adds the instructions that it needs; `None`
    /// if the operation is complete with these.
    pub(super) fn op(&mut self, inst: &Inst) -> Result<Option<String>, LowerError> {
        let ty = inst.result.map(|result| self.function.values[result].ty);
        let result = || ty.ok_or(LowerError::Unsupported("a value without a name".into()));
        Ok(Some(match &inst.op {
            &Op::Unary(op, a) => self.unary(op, a, inst.flags),
            &Op::Binary(op, a, b) => self.binary(op, a, b, inst.flags),
            &Op::Ternary(op, a, b, c) => self.ternary(op, [a, b, c], inst.flags),
            &Op::Compare(op, a, b) => self.compare(op, a, b, inst.flags),
            &Op::Test(test, a) => self.test(test, a),
            &Op::Select(condition, a, b) => {
                let (condition, a) = (self.typed(condition), self.typed(a));
                format!("select {condition}, {a}, {}", self.typed(b))
            }
            &Op::Convert(op, a) => self.convert(op, a, result()?),
            Op::Math(op, args) => self.math(*op, args, result()?, inst.flags)?,
            Op::Image(op, args) => self.image(*op, args),
            Op::Images(op, args) => return Ok(self.images(*op, args, ty)),
            &Op::AddCarry(a, b) => self.carry("add", a, b, result()?),
            &Op::SubBorrow(a, b) => self.carry("sub", a, b, result()?),
            &Op::UMulExtended(a, b) => self.mul_extended("zext", a, b, result()?),
            &Op::SMulExtended(a, b) => self.mul_extended("sext", a, b, result()?),
            Op::Construct(_)
            | Op::Extract(..)
            | Op::Insert(..)
            | Op::ExtractDynamic(..)
            | Op::InsertDynamic(..)
            | Op::Shuffle(..) => self.composite(&inst.op, result()?)?,
            Op::Call(callee, args) => {
                let args: String =
                    args.iter().map(|&arg| format!(", {}", self.typed(arg))).collect();
                let return_type = self.unit.module.functions[*callee].return_type;
                let return_type = self.value_type(return_type);
                let symbol = super::unit::function_symbol(*callee);
                let item = "ptr %ctx, i64 %lx, i64 %ly, i64 %lz, ptr %priv";
                format!("call {return_type} {symbol}({item}{args})")
            }
            &Op::Assume(condition) => {
                self.unit.declare("void", "llvm.assume", "i1");
                format!("call void @llvm.assume({})", self.typed(condition))
            }
            Op::Unsupported(what) => return Err(LowerError::Unsupported(what.clone())),
            Op::WorkItem(..) | Op::Phi(_) => return Ok(None),
            // Sums are made behind everything else.
            Op::Offer(..) if self.frame.is_some_and(|frame| !frame.sums.is_empty()) => {
                return Ok(None);
            }
            &Op::Offer(scope, value) => {
                self.offer(scope, value)?;
                return Ok(None);
            }
            &Op::Collect(op, scope, index) => match self.sum(inst) {
                Some(sum) => sum,
                None => self.collect(op, scope, index, result()?)?,
            },
            Op::Present
            | Op::Splat(_)
            | Op::Any(_)
            | Op::LastTrue(_)
            | Op::Bits(_)
            | Op::Freeze(_)
            | Op::InLine(..)
            | Op::Prefetch(_)
            | Op::MaskedLoad(..)
            | Op::MaskedStore(..)
            | Op::Gather(..)
            | Op::Scatter(..)
            | Op::Close(..)
            | Op::GatherClose(..)
            | Op::Table(..)
            | Op::LookUp(..)
            | Op::ScatterClose(..)
            | Op::AddLater(..) => return self.vector_op(&inst.op, ty),
            &Op::Printf(format, args, bytes) => self.printf(format, args, bytes)?,
            Op::Shadow(_)
            | Op::CheckWord(_)
            | Op::Accessible(..)
            | Op::Texels(..)
            | Op::Strings(..)
            | Op::CopyStates(..)
            | Op::Report { .. } => return self.checks(&inst.op, ty),
            op => return self.memory(op, ty),
        }))
    }

    /// Text of a call of `llvm.{name}` for a type, with `arity` arguments of it.
    pub(super) fn intrinsic(&mut self, name: &str, ty: TypeId, args: &str, arity: usize) -> String {
        let llvm = self.value_type(ty);
        let name = format!("llvm.{name}.{}", suffix(self.unit.module, ty));
        self.unit.declare(&llvm, &name, &vec![llvm.clone(); arity].join(", "));
        format!("call {llvm} @{name}({args})")
    }

    /// Like [`Self::intrinsic`], with an `i1 false` behind the argument: no result is poison.
    fn total_intrinsic(&mut self, name: &str, ty: TypeId, arg: &str) -> String {
        let llvm = self.value_type(ty);
        let name = format!("llvm.{name}.{}", suffix(self.unit.module, ty));
        self.unit.declare(&llvm, &name, &format!("{llvm}, i1"));
        format!("call {llvm} @{name}({arg}, i1 false)")
    }

    fn unary(&mut self, op: UnaryOp, a: Operand, flags: Flags) -> String {
        let ty = self.type_of(a);
        let llvm = self.value_type(ty);
        let fast = fast_math(flags);
        let float = |body: &mut Self, name: &str, a: &str| {
            let call = body.intrinsic(name, ty, &format!("{llvm} {a}"), 1);
            call.replacen("call ", &format!("call {fast}"), 1)
        };
        let a = self.operand(a);
        let typed = format!("{llvm} {a}");
        match op {
            UnaryOp::Neg => format!("sub {}{llvm} {}, {a}", wrap(flags), self.splat(ty, 0)),
            UnaryOp::Not if is_bool(self.unit.module, ty) => {
                let ones =
                    if self.unit.module.types.lanes(ty) == 1 { "true" } else { "splat (i1 true)" };
                format!("xor {typed}, {ones}")
            }
            UnaryOp::Not => format!("xor {typed}, {}", self.splat(ty, -1)),
            UnaryOp::Abs => self.total_intrinsic("abs", ty, &typed),
            UnaryOp::Clz => self.total_intrinsic("ctlz", ty, &typed),
            UnaryOp::Ctz => self.total_intrinsic("cttz", ty, &typed),
            UnaryOp::PopCount => self.intrinsic("ctpop", ty, &typed, 1),
            UnaryOp::BitReverse => self.intrinsic("bitreverse", ty, &typed, 1),
            UnaryOp::FNeg => format!("fneg {fast}{typed}"),
            UnaryOp::FAbs => float(self, "fabs", &a),
            UnaryOp::Sqrt => float(self, "sqrt", &a),
            UnaryOp::Floor => float(self, "floor", &a),
            UnaryOp::Ceil => float(self, "ceil", &a),
            UnaryOp::Trunc => float(self, "trunc", &a),
            UnaryOp::Rint => float(self, "rint", &a),
            UnaryOp::Round => float(self, "round", &a),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: Operand, b: Operand, flags: Flags) -> String {
        use BinaryOp as B;
        let ty = self.type_of(a);
        let llvm = self.value_type(ty);
        let (fast, wrap) = (fast_math(flags), wrap(flags));
        let (a_operand, b_operand, a) = (a, b, self.operand(a));
        let b = self.operand(b);
        let plain = |name: &str| format!("{name} {llvm} {a}, {b}");
        let pair = format!("{llvm} {a}, {llvm} {b}");
        match op {
            B::Add => format!("add {wrap}{llvm} {a}, {b}"),
            B::Sub => format!("sub {wrap}{llvm} {a}, {b}"),
            B::Mul => format!("mul {wrap}{llvm} {a}, {b}"),
            B::UDiv | B::URem | B::SDiv | B::SRem => {
                let (name, signed) = match op {
                    B::UDiv => ("udiv", false),
                    B::URem => ("urem", false),
                    B::SDiv => ("sdiv", true),
                    _ => ("srem", true),
                };
                let b = self.divisor(ty, &a, &b, b_operand, signed);
                format!("{name} {llvm} {a}, {b}")
            }
            B::SMod => self.modulo(ty, &a, &b, b_operand),
            B::And => plain("and"),
            B::Or => plain("or"),
            B::Xor => plain("xor"),
            B::Shl | B::LShr | B::AShr => {
                let amount = self.shift_amount(ty, &b, b_operand);
                match op {
                    B::Shl => format!("shl {wrap}{llvm} {a}, {amount}"),
                    B::LShr => format!("lshr {llvm} {a}, {amount}"),
                    _ => format!("ashr {llvm} {a}, {amount}"),
                }
            }
            B::Rotl => self.intrinsic("fshl", ty, &format!("{llvm} {a}, {pair}"), 3),
            B::SMin => self.intrinsic("smin", ty, &pair, 2),
            B::UMin => self.intrinsic("umin", ty, &pair, 2),
            B::SMax => self.intrinsic("smax", ty, &pair, 2),
            B::UMax => self.intrinsic("umax", ty, &pair, 2),
            B::SAddSat => self.intrinsic("sadd.sat", ty, &pair, 2),
            B::UAddSat => self.intrinsic("uadd.sat", ty, &pair, 2),
            B::SSubSat => self.intrinsic("ssub.sat", ty, &pair, 2),
            B::USubSat => self.intrinsic("usub.sat", ty, &pair, 2),
            B::SMulHi => self.mul_high("sext", ty, &a, &b),
            B::UMulHi => self.mul_high("zext", ty, &a, &b),
            B::SHAdd => self.half_sum(["and", "ashr", "add"], ty, &a, &b),
            B::UHAdd => self.half_sum(["and", "lshr", "add"], ty, &a, &b),
            B::SRHAdd => self.half_sum(["or", "ashr", "sub"], ty, &a, &b),
            B::URHAdd => self.half_sum(["or", "lshr", "sub"], ty, &a, &b),
            B::SAbsDiff => self.distance(["smax", "smin"], ty, &pair),
            B::UAbsDiff => self.distance(["umax", "umin"], ty, &pair),
            B::PairDot => self.pair_dot(a_operand, b_operand, ty),
            B::FAdd => format!("fadd {fast}{llvm} {a}, {b}"),
            B::FSub => format!("fsub {fast}{llvm} {a}, {b}"),
            B::FMul => format!("fmul {fast}{llvm} {a}, {b}"),
            B::FDiv => format!("fdiv {fast}{llvm} {a}, {b}"),
            B::FDivNear => self
                .near_quotient(a_operand, b_operand, ty)
                .unwrap_or_else(|| format!("fdiv {fast}{llvm} {a}, {b}")),
            B::FMin => self.intrinsic("minnum", ty, &pair, 2),
            B::FMax => self.intrinsic("maxnum", ty, &pair, 2),
            B::CopySign => self.intrinsic("copysign", ty, &pair, 2),
        }
    }

    /// A shift amount, modulo the width.
    fn shift_amount(&mut self, ty: TypeId, amount: &str, operand: Operand) -> String {
        let module = self.unit.module;
        let width = module.types.scalar_bits(ty);
        if let Operand::Const(id) = operand
            && module.const_bits(id).is_some_and(|amount| amount < width.into())
        {
            return amount.into();
        }
        let mask = self.splat(ty, i64::from(width) - 1);
        self.def(&format!("and {} {amount}, {mask}", self.value_type(ty)))
    }

    /// The divisor, with 1 in place of a divisor that would trap.
    fn divisor(&mut self, ty: TypeId, a: &str, b: &str, operand: Operand, signed: bool) -> String {
        let module = self.unit.module;
        let bits = module.types.scalar_bits(ty);
        let ones = u64::MAX >> (64 - bits);
        if let Operand::Const(id) = operand {
            let harmless = |value| value != 0 && !(signed && value == ones);
            if module.const_bits(id).is_some_and(harmless) {
                return b.into();
            }
        }
        let (llvm, truth) = (self.value_type(ty), self.truth_type(ty));
        let mut bad = self.def(&format!("icmp eq {llvm} {b}, {}", self.splat(ty, 0)));
        if signed {
            let lowest = self.splat(ty, i64::MIN >> (64 - bits));
            let lowest = self.def(&format!("icmp eq {llvm} {a}, {lowest}"));
            let minus_one = self.def(&format!("icmp eq {llvm} {b}, {}", self.splat(ty, -1)));
            let overflow = self.def(&format!("and {truth} {lowest}, {minus_one}"));
            bad = self.def(&format!("or {truth} {bad}, {overflow}"));
        }
        self.def(&format!("select {truth} {bad}, {llvm} {}, {llvm} {b}", self.splat(ty, 1)))
    }

    /// The remainder with the divisor's sign.
    fn modulo(&mut self, ty: TypeId, a: &str, b: &str, operand: Operand) -> String {
        let (llvm, truth) = (self.value_type(ty), self.truth_type(ty));
        let zero = self.splat(ty, 0);
        let b = self.divisor(ty, a, b, operand, true);
        let rest = self.def(&format!("srem {llvm} {a}, {b}"));
        let some = self.def(&format!("icmp ne {llvm} {rest}, {zero}"));
        let signs = self.def(&format!("xor {llvm} {rest}, {b}"));
        let differ = self.def(&format!("icmp slt {llvm} {signs}, {zero}"));
        let wrong = self.def(&format!("and {truth} {some}, {differ}"));
        let moved = self.def(&format!("add {llvm} {rest}, {b}"));
        format!("select {truth} {wrong}, {llvm} {moved}, {llvm} {rest}")
    }

    /// `bool`, in as many components as `ty` has.
    fn truth_type(&self, ty: TypeId) -> String {
        match self.unit.module.types[ty] {
            Type::Vector(_, n) => format!("<{n} x i1>"),
            _ => "i1".into(),
        }
    }

    /// The integer type of twice the width, and how a constant of it is written.
    fn wide(&self, ty: TypeId) -> (String, impl Fn(i128) -> String + use<>) {
        let bits = 2 * self.unit.module.types.scalar_bits(ty);
        let lanes = self.unit.module.types.lanes(ty);
        let (llvm, vector) = match lanes {
            1 => (format!("i{bits}"), false),
            n => (format!("<{n} x i{bits}>"), true),
        };
        let constant = move |value: i128| {
            if vector { format!("splat (i{bits} {value})") } else { value.to_string() }
        };
        (llvm, constant)
    }

    /// The product in twice the width.
    fn wide_product(&mut self, extend: &str, ty: TypeId, a: &str, b: &str) -> String {
        let llvm = self.value_type(ty);
        let (wide, _) = self.wide(ty);
        let a = self.def(&format!("{extend} {llvm} {a} to {wide}"));
        let b = self.def(&format!("{extend} {llvm} {b} to {wide}"));
        self.def(&format!("mul {wide} {a}, {b}"))
    }

    /// Text of the upper half of a product.
    fn mul_high(&mut self, extend: &str, ty: TypeId, a: &str, b: &str) -> String {
        let types = &self.unit.module.types;
        if types.scalar_bits(ty) == 64 && types.lanes(ty) > 1 {
            return self.mul_high_by_words(extend == "sext", ty, a, b);
        }
        let (wide, constant) = self.wide(ty);
        let product = self.wide_product(extend, ty, a, b);
        let bits = constant(self.unit.module.types.scalar_bits(ty).into());
        let high = self.def(&format!("lshr {wide} {product}, {bits}"));
        format!("trunc {wide} {high} to {}", self.value_type(ty))
    }

    /// Text of the upper half of a product of vectors of 64 bits. Processors have products of 32 by 32 bits; LLVM would
    /// take the vectors apart: `mul_hi` of `ulong` took four times as long.
    fn mul_high_by_words(&mut self, is_signed: bool, ty: TypeId, a: &str, b: &str) -> String {
        let llvm = self.value_type(ty);
        let [word, sign] = [32, 63].map(|places| self.splat(ty, places));
        let mask = self.splat(ty, u32::MAX.into());
        let mut def = |op: &str, a: &str, b: &str| self.def(&format!("{op} {llvm} {a}, {b}"));
        let (a_low, a_high) = (def("and", a, &mask), def("lshr", a, &word));
        let (b_low, b_high) = (def("and", b, &mask), def("lshr", b, &word));
        let low = def("mul", &a_low, &b_low);
        let carried = def("lshr", &low, &word);
        let middle = def("mul", &a_high, &b_low);
        let middle = def("add", &middle, &carried);
        let part = def("and", &middle, &mask);
        let other = def("mul", &a_low, &b_high);
        let other = def("add", &other, &part);
        let [middle, other] = [middle, other].map(|sum| def("lshr", &sum, &word));
        let high = def("mul", &a_high, &b_high);
        let high = def("add", &high, &middle);
        if !is_signed {
            return format!("add {llvm} {high}, {other}");
        }
        // A negative number is 2^64 less than the same bits without a sign.
        let high = def("add", &high, &other);
        let [more_a, more_b] = [(a, b), (b, a)].map(|(negative, other)| {
            let signs = def("ashr", negative, &sign);
            def("and", &signs, other)
        });
        let high = def("sub", &high, &more_a);
        format!("sub {llvm} {high}, {more_b}")
    }

    /// `(a + b) >> 1` or, rounded up, `(a + b + 1) >> 1`: the bits that both have in common, or that
    /// either has, and half of the difference.
    fn half_sum(
        &mut self,
        [common, shift, join]: [&str; 3],
        ty: TypeId,
        a: &str,
        b: &str,
    ) -> String {
        let llvm = self.value_type(ty);
        let common = self.def(&format!("{common} {llvm} {a}, {b}"));
        let differ = self.def(&format!("xor {llvm} {a}, {b}"));
        let half = self.def(&format!("{shift} {llvm} {differ}, {}", self.splat(ty, 1)));
        format!("{join} {llvm} {common}, {half}")
    }

    /// Text of the distance of two integers. LLVM makes little of a choice between two differences: sums of distances
    /// of bytes took 2.3 times as long with AVX2, 1.14 times with AVX-512.
    fn distance(&mut self, ends: [&str; 2], ty: TypeId, pair: &str) -> String {
        let [most, least] = ends.map(|end| {
            let call = self.intrinsic(end, ty, pair, 2);
            self.def(&call)
        });
        format!("sub {} {most}, {least}", self.value_type(ty))
    }

    fn ternary(&mut self, op: TernaryOp, args: [Operand; 3], flags: Flags) -> String {
        let ty = self.type_of(args[0]);
        let llvm = self.value_type(ty);
        let [a, b, c] = args.map(|arg| self.operand(arg));
        match op {
            TernaryOp::Fma => {
                let args = format!("{llvm} {a}, {llvm} {b}, {llvm} {c}");
                let call = self.intrinsic("fma", ty, &args, 3);
                call.replacen("call ", &format!("call {}", fast_math(flags)), 1)
            }
            TernaryOp::SMadSat | TernaryOp::UMadSat => {
                let signed = op == TernaryOp::SMadSat;
                let extend = if signed { "sext" } else { "zext" };
                let bits = self.unit.module.types.scalar_bits(ty);
                let (wide, constant) = self.wide(ty);
                let product = self.wide_product(extend, ty, &a, &b);
                let c = self.def(&format!("{extend} {llvm} {c} to {wide}"));
                let sum = self.def(&format!("add {wide} {product}, {c}"));
                let (high, less, low) = if signed {
                    ((1 << (bits - 1)) - 1, "slt", Some(-(1i128 << (bits - 1))))
                } else {
                    ((1i128 << bits) - 1, "ult", None)
                };
                let mut clamp = |sum: String, test: &str, limit: i128| {
                    let limit = constant(limit);
                    let truth = self.truth_type(ty);
                    let keep = self.def(&format!("icmp {test} {wide} {sum}, {limit}"));
                    self.def(&format!("select {truth} {keep}, {wide} {sum}, {wide} {limit}"))
                };
                let sum = clamp(sum, less, high);
                let sum = match low {
                    Some(low) => clamp(sum, "sgt", low),
                    None => sum,
                };
                format!("trunc {wide} {sum} to {llvm}")
            }
        }
    }

    fn compare(&mut self, op: CompareOp, a: Operand, b: Operand, flags: Flags) -> String {
        let (a, b) = (self.typed(a), self.operand(b));
        match op.name().strip_prefix('f') {
            Some(test) => format!("fcmp {}{test} {a}, {b}", fast_math(flags)),
            None => format!("icmp {} {a}, {b}", op.name()),
        }
    }

    fn test(&mut self, test: FloatTest, a: Operand) -> String {
        // The classes of LLVM's is.fpclass: signalling and quiet NaN, then from -infinity, normal,
        // subnormal, zero to their positive counterparts.
        let classes = match test {
            FloatTest::IsNan => 0b00_0000_0011,
            FloatTest::IsInf => 0b10_0000_0100,
            FloatTest::IsFinite => 0b01_1111_1000,
            FloatTest::IsNormal => 0b01_0000_1000,
            FloatTest::SignBit => return self.sign_bit(a),
        };
        let ty = self.type_of(a);
        let (llvm, truth) = (self.value_type(ty), self.truth_type(ty));
        let name = format!("llvm.is.fpclass.{}", suffix(self.unit.module, ty));
        self.unit.declare(&truth, &name, &format!("{llvm}, i32"));
        format!("call {truth} @{name}({}, i32 {classes})", self.typed(a))
    }

    fn sign_bit(&mut self, a: Operand) -> String {
        let ty = self.type_of(a);
        let bits = self.unit.module.types.scalar_bits(ty);
        let (integer, zero) = match self.unit.module.types.lanes(ty) {
            1 => (format!("i{bits}"), "0"),
            n => (format!("<{n} x i{bits}>"), "zeroinitializer"),
        };
        let a = self.typed(a);
        let a = self.def(&format!("bitcast {a} to {integer}"));
        format!("icmp slt {integer} {a}, {zero}")
    }

    fn convert(&mut self, op: ConvertOp, a: Operand, to: TypeId) -> String {
        let from = self.type_of(a);
        let value = self.operand(a);
        let a = format!("{} {value}", self.value_type(from));
        let llvm = self.value_type(to);
        let bits = |ty| self.unit.module.types.scalar_bits(ty);
        let (from_bits, to_bits) = (bits(from), bits(to));
        let plain = |name: &str| format!("{name} {a} to {llvm}");
        let same = |body: &Self| {
            let truth = String::from("i1 true");
            let from = body.value_type(from);
            if from == llvm { Some(format!("select {truth}, {a}, {a}")) } else { None }
        };
        match op {
            ConvertOp::Trunc | ConvertOp::SExt | ConvertOp::ZExt | ConvertOp::FToF
                if from_bits == to_bits =>
            {
                same(self).unwrap_or_else(|| plain("bitcast"))
            }
            ConvertOp::Trunc => plain("trunc"),
            ConvertOp::SExt => plain("sext"),
            ConvertOp::ZExt => plain("zext"),
            ConvertOp::FToS | ConvertOp::FToU => {
                let name = if op == ConvertOp::FToS { "fptosi" } else { "fptoui" };
                let value = self.def(&plain(name));
                format!("freeze {llvm} {value}")
            }
            ConvertOp::FToSSat | ConvertOp::FToUSat if library::is_long(self.unit.module, from) => {
                self.saturated(&value, from, to, op == ConvertOp::FToSSat)
            }
            ConvertOp::FToSSat | ConvertOp::FToUSat => {
                let name = if op == ConvertOp::FToSSat { "fptosi" } else { "fptoui" };
                let module = self.unit.module;
                let name =
                    format!("llvm.{name}.sat.{}.{}", suffix(module, to), suffix(module, from));
                self.unit.declare(&llvm, &name, &value_type(module, from));
                format!("call {llvm} @{name}({a})")
            }
            ConvertOp::SToF => plain("sitofp"),
            ConvertOp::UToF => plain("uitofp"),
            ConvertOp::FToF if from_bits < to_bits => plain("fpext"),
            ConvertOp::FToF => plain("fptrunc"),
            ConvertOp::Bitcast => plain("bitcast"),
            ConvertOp::PtrToInt => plain("ptrtoint"),
            ConvertOp::IntToPtr => plain("inttoptr"),
            ConvertOp::PtrCast => same(self).unwrap_or_else(|| plain("bitcast")),
        }
    }

    fn carry(&mut self, name: &str, a: Operand, b: Operand, ty: TypeId) -> String {
        let part = self.type_of(a);
        let (llvm, truth) = (self.value_type(part), self.truth_type(part));
        let (a, b) = (self.operand(a), self.operand(b));
        let low = self.def(&format!("{name} {llvm} {a}, {b}"));
        let (left, right) = if name == "add" { (&low, &a) } else { (&a, &b) };
        let carry = self.def(&format!("icmp ult {llvm} {left}, {right}"));
        let carry = self.def(&format!("zext {truth} {carry} to {llvm}"));
        self.assemble(ty, &[low, carry])
    }

    fn mul_extended(&mut self, extend: &str, a: Operand, b: Operand, ty: TypeId) -> String {
        let part = self.type_of(a);
        let llvm = self.value_type(part);
        let (a, b) = (self.operand(a), self.operand(b));
        let (wide, constant) = self.wide(part);
        let product = self.wide_product(extend, part, &a, &b);
        let low = self.def(&format!("trunc {wide} {product} to {llvm}"));
        let bits = constant(self.unit.module.types.scalar_bits(part).into());
        let high = self.def(&format!("lshr {wide} {product}, {bits}"));
        let high = self.def(&format!("trunc {wide} {high} to {llvm}"));
        self.assemble(ty, &[low, high])
    }

    /// A function of the run-time library, called for each component.
    fn math(
        &mut self,
        op: MathOp,
        args: &[Operand],
        ty: TypeId,
        flags: Flags,
    ) -> Result<String, LowerError> {
        let module = self.unit.module;
        let argument_type = self.type_of(args[0]);
        let lanes = module.types.lanes(argument_type);
        let element = module.types.element(argument_type);
        let float = self.value_type(element);
        let width = if module.types[element] == Type::Float(Float::F64) { "f64" } else { "f32" };
        // The cheaper form exists for floats only, as in OpenCL.
        let native = flags.contains(Flags::AFN) && width == "f32" && op.has_native();
        let form = if native { "native_" } else { "" };
        let function = format!("__tally_{form}{}_{width}", op.name());
        let scalar_result = if op.returns_int() { "i32".to_owned() } else { float.clone() };
        let out_type = op.second_result().map(|second| match second {
            SecondResult::Float => float.clone(),
            SecondResult::Int => "i32".into(),
        });
        let mut params: Vec<&str> = vec![&float; args.len()];
        if op.takes_int() {
            *params.last_mut().unwrap_or(&mut "") = "i32";
        }
        params.extend(out_type.iter().map(|_| "ptr"));
        let params = params.join(", ");
        self.unit.declare(&scalar_result, &function, &params);
        if library::is_long(module, argument_type) {
            return self.library_call(op, args, &function, ty);
        }

        let out = out_type.as_ref().map(|out_type| {
            let out = self.prelude_def(&format!("alloca {out_type}"));
            (out, out_type.clone())
        });
        let fast = if op.returns_int() { String::new() } else { fast_math(flags) };
        let args: Vec<(String, String)> = args
            .iter()
            .map(|&arg| {
                let element = module.types.element(self.type_of(arg));
                (self.typed(arg), self.value_type(element))
            })
            .collect();
        let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
        for lane in 0..lanes {
            let mut list = Vec::new();
            for (arg, element) in &args {
                list.push(match lanes {
                    1 => arg.clone(),
                    _ => {
                        let part = self.def(&format!("extractelement {arg}, i32 {lane}"));
                        format!("{element} {part}")
                    }
                });
            }
            list.extend(out.iter().map(|(out, _)| format!("ptr {out}")));
            let call = format!("call {fast}{scalar_result} @{function}({})", list.join(", "));
            if lanes == 1 && out.is_none() {
                return Ok(call);
            }
            firsts.push(self.def(&call));
            if let Some((out, out_type)) = &out {
                seconds.push(self.def(&format!("load {out_type}, ptr {out}")));
            }
        }
        if out.is_none() {
            return Ok(self.assemble(ty, &firsts));
        }
        let Type::Struct { members, .. } = &module.types[ty] else {
            return Ok(self.assemble(ty, &firsts));
        };
        let mut parts = Vec::new();
        for (&member, values) in members.iter().zip([firsts, seconds]) {
            parts.push(match values.as_slice() {
                [value] => value.clone(),
                values => {
                    let text = self.assemble(member, values);
                    self.def(&text)
                }
            });
        }
        Ok(self.assemble(ty, &parts))
    }
}

/// LLVM's flags for a floating-point instruction.
fn fast_math(flags: Flags) -> String {
    let flag = |flag: Flags, name: &str| {
        if flags.contains(flag) { format!("{name} ") } else { String::new() }
    };
    [
        flag(Flags::NNAN, "nnan"),
        flag(Flags::NINF, "ninf"),
        flag(Flags::NSZ, "nsz"),
        flag(Flags::ARCP, "arcp"),
        flag(Flags::CONTRACT, "contract"),
        flag(Flags::AFN, "afn"),
        flag(Flags::REASSOC, "reassoc"),
    ]
    .concat()
}

/// LLVM's flags for an integer instruction.
fn wrap(flags: Flags) -> &'static str {
    match (flags.contains(Flags::NUW), flags.contains(Flags::NSW)) {
        (false, false) => "",
        (false, true) => "nsw ",
        (true, false) => "nuw ",
        (true, true) => "nuw nsw ",
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Half floats, where the processor has only conversions of them.
//!
//! LLVM computes sums, products and comparisons of vectors of half floats as floats. Of what follows it does one component
//! at a time, or calls a function for each:
//!
//! - Minimum, maximum, roundings to integers and square roots. They are computed as floats here, which is exact, or rounded
//!   twice without harm. LLVM would make operations of half floats of them again, so it must not know what the floats are
//!   made of: `llvm.arithmetic.fence` hides it.
//! - Doubles that become half floats, and fused multiply-adds. Doubles are exact enough for these. Here the float that a
//!   double or a sum is rounded to ends with a one wherever it is not exact (rounding to odd). It has more than two bits more
//!   than a half float, so rounding it once more gives what rounding the exact number itself gives.

use inkwell::FloatPredicate::{OGT, ONE};
use inkwell::IntPredicate::EQ;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicTypeEnum, VectorType};
use inkwell::values::{
    BasicValueEnum, CallSiteValue, InstructionOpcode, InstructionValue, IntValue, VectorValue,
};

use super::rewrite::rewrite;

/// LLVM's functions that are computed as functions of floats.
const OF_FLOATS: [&str; 8] =
    ["minnum", "maxnum", "floor", "ceil", "trunc", "rint", "round", "sqrt"];

/// Writes the operations on half floats that LLVM does one by one as operations of floats.
pub(super) fn expand<'c>(context: &'c Context, module: &Module<'c>) -> Result<(), BuilderError> {
    rewrite(context, module, |builder, instruction| {
        let halves = Halves { context, module, builder };
        if instruction.get_opcode() == InstructionOpcode::FPTrunc {
            return halves.of_doubles(instruction);
        }
        let Some(function) = function(instruction) else { return Ok(None) };
        halves.call(&function, instruction)
    })
}

/// The function of LLVM's that an instruction calls for half floats: `fma`.
fn function(instruction: InstructionValue<'_>) -> Option<String> {
    let call = CallSiteValue::try_from(instruction).ok()?;
    let name = call.get_called_fn_value()?.get_name().to_string_lossy().into_owned();
    let (function, kind) = name.strip_prefix("llvm.")?.split_once('.')?;
    let is_half = kind.ends_with("f16") && !kind.ends_with("bf16");
    let is_here = function == "fma" || OF_FLOATS.contains(&function);
    (is_half && is_here).then(|| function.to_owned())
}

/// Builds operations in place of those of half floats.
struct Halves<'h, 'c> {
    context: &'c Context,
    module: &'h Module<'c>,
    builder: &'h Builder<'c>,
}

impl<'c> Halves<'_, 'c> {
    /// Vectors of doubles as half floats.
    fn of_doubles(
        &self,
        instruction: InstructionValue<'c>,
    ) -> Result<Option<BasicValueEnum<'c>>, BuilderError> {
        let operand = instruction.get_operand(0).and_then(|it| it.value());
        let Some(BasicValueEnum::VectorValue(exact)) = operand else { return Ok(None) };
        let doubles = exact.get_type();
        let half = instruction.get_type().into_vector_type();
        let [from, to] = [doubles, half].map(|ty| ty.get_element_type());
        let is_here =
            from == self.context.f64_type().into() && to == self.context.f16_type().into();
        if !is_here {
            return Ok(None);
        }
        let builder = self.builder;
        let float = self.context.f32_type().vec_type(half.get_size());
        let near = builder.build_float_trunc(exact, float, "near")?;
        let back = builder.build_float_ext(near, doubles, "")?;
        let is_lost = builder.build_float_compare(ONE, back, exact, "")?;
        let [back, exact] = [back, exact].map(|it| self.size(it));
        let is_larger = builder.build_float_compare(OGT, back?, exact?, "")?;
        let ints = self.context.i32_type().vec_type(half.get_size());
        // One step towards the exact number.
        let step = builder.build_int_s_extend(is_larger, ints, "")?;
        let step = builder.build_or(step, self.splat(ints, 1), "")?;
        Ok(Some(self.odd_halves(near, is_lost, step)?.into()))
    }

    /// A vector's numbers without their signs.
    fn size(&self, of: VectorValue<'c>) -> Result<VectorValue<'c>, BuilderError> {
        let ty = of.get_type();
        let bits = self.context.i64_type().vec_type(ty.get_size());
        let all = self.builder.build_bit_cast(of, bits, "")?.into_vector_value();
        let size = self.builder.build_and(all, self.splat(bits, i64::MAX as u64), "")?;
        Ok(self.builder.build_bit_cast(size, ty, "")?.into_vector_value())
    }

    /// A call of a function for half floats. A number is a vector of one.
    fn call(
        &self,
        function: &str,
        instruction: InstructionValue<'c>,
    ) -> Result<Option<BasicValueEnum<'c>>, BuilderError> {
        let builder = self.builder;
        let first = self.context.i32_type().const_zero();
        let is_number =
            !matches!(instruction.get_type().try_into(), Ok(BasicTypeEnum::VectorType(_)));
        let mut arguments = Vec::new();
        // The last operand is the function.
        for i in 0..instruction.get_num_operands() - 1 {
            let Some(argument) = instruction.get_operand(i).and_then(|it| it.value()) else {
                return Ok(None);
            };
            arguments.push(match argument {
                BasicValueEnum::VectorValue(vector) => vector,
                number => {
                    let none = self.context.f16_type().vec_type(1).get_poison();
                    builder.build_insert_element(none, number, first, "")?
                }
            });
        }
        let vector = match (function, &arguments[..]) {
            ("fma", &[a, b, c]) => self.fused([a, b, c])?,
            (function, arguments) => {
                let Some(vector) = self.as_floats(function, arguments)? else { return Ok(None) };
                vector
            }
        };
        if is_number {
            return Ok(Some(builder.build_extract_element(vector, first, "number")?));
        }
        Ok(Some(vector.into()))
    }

    /// A function of half floats as that of floats.
    fn as_floats(
        &self,
        function: &str,
        arguments: &[VectorValue<'c>],
    ) -> Result<Option<VectorValue<'c>>, BuilderError> {
        let Some(half) = arguments.first().map(|it| it.get_type()) else { return Ok(None) };
        let float = self.context.f32_type().vec_type(half.get_size());
        let declare = |name: &str| {
            Intrinsic::find(name).and_then(|it| it.get_declaration(self.module, &[float.into()]))
        };
        let names = ["llvm.arithmetic.fence".to_owned(), format!("llvm.{function}")];
        let [Some(fence), Some(function)] = names.map(|name| declare(&name)) else {
            return Ok(None);
        };
        let mut floats = Vec::new();
        for &argument in arguments {
            let wide = self.builder.build_float_ext(argument, float, "")?;
            let hidden = self.builder.build_call(fence, &[wide.into()], "")?;
            let Some(hidden) = hidden.try_as_basic_value().basic() else { return Ok(None) };
            floats.push(hidden.into());
        }
        let result = self.builder.build_call(function, &floats, "")?;
        let Some(BasicValueEnum::VectorValue(result)) = result.try_as_basic_value().basic() else {
            return Ok(None);
        };
        Ok(Some(self.builder.build_float_trunc(result, half, "")?))
    }

    /// A product and a sum, rounded once.
    fn fused(&self, arguments: [VectorValue<'c>; 3]) -> Result<VectorValue<'c>, BuilderError> {
        let builder = self.builder;
        let count = arguments[0].get_type().get_size();
        let float = self.context.f32_type().vec_type(count);
        let ints = self.context.i32_type().vec_type(count);
        let wide = |i: usize| builder.build_float_ext(arguments[i], float, "");
        let (a, b, c) = (wide(0)?, wide(1)?, wide(2)?);
        // The product has 22 bits.
        let product = builder.build_float_mul(a, b, "product")?;
        let sum = builder.build_float_add(product, c, "sum")?;
        // What the sum has lost, exactly, by Knuth's algorithm. It is NaN where the sum is not finite.
        let of_c = builder.build_float_sub(sum, product, "")?;
        let of_product = builder.build_float_sub(sum, of_c, "")?;
        let lost_product = builder.build_float_sub(product, of_product, "")?;
        let lost_c = builder.build_float_sub(c, of_c, "")?;
        let lost = builder.build_float_add(lost_product, lost_c, "lost")?;
        let is_lost = builder.build_float_compare(ONE, lost, float.const_zero(), "")?;
        // One step towards the exact sum: away from zero if what was lost has the same sign.
        let [bits, lost] = [sum, lost].map(|it| builder.build_bit_cast(it, ints, ""));
        let signs = builder.build_xor(bits?.into_vector_value(), lost?.into_vector_value(), "")?;
        let signs = builder.build_right_shift(signs, self.splat(ints, 31), true, "")?;
        let step = builder.build_or(signs, self.splat(ints, 1), "")?;
        self.odd_halves(sum, is_lost, step)
    }

    /// Half floats of floats that are made odd first by a step where something is lost.
    fn odd_halves(
        &self,
        near: VectorValue<'c>,
        is_lost: VectorValue<'c>,
        step: VectorValue<'c>,
    ) -> Result<VectorValue<'c>, BuilderError> {
        let builder = self.builder;
        let (float, ints) = (near.get_type(), step.get_type());
        let bits = builder.build_bit_cast(near, ints, "")?.into_vector_value();
        let last = builder.build_and(bits, self.splat(ints, 1), "")?;
        let is_even = builder.build_int_compare(EQ, last, self.splat(ints, 0), "")?;
        let moves = builder.build_and(is_lost, is_even, "")?;
        let odd = builder.build_int_add(bits, step, "")?;
        let odd = builder.build_select(moves, odd, bits, "odd")?;
        let odd = builder.build_bit_cast(odd, float, "")?.into_vector_value();
        let half = self.context.f16_type().vec_type(float.get_size());
        builder.build_float_trunc(odd, half, "halves")
    }

    /// A vector of equal integers.
    fn splat(&self, ty: VectorType<'c>, value: u64) -> VectorValue<'c> {
        let one: IntValue<'c> = ty.get_element_type().into_int_type().const_int(value, false);
        VectorType::const_vector(&vec![one; ty.get_size() as usize])
    }
}

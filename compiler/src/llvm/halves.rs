// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fused multiply-adds of half floats, where the processor has no instruction for them.
//!
//! LLVM would compute them as floats and round twice, which may be wrong. Doubles are exact enough, but such
//! processors do not make half floats of them: LLVM calls a function for each. Here the float that the sum is
//! rounded to ends with a one wherever it is not exact (rounding to odd). It has more than two bits more than a
//! half float, so rounding it once more gives what rounding the sum itself gives.

use inkwell::FloatPredicate::ONE;
use inkwell::IntPredicate::EQ;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::types::VectorType;
use inkwell::values::{BasicValueEnum, CallSiteValue, InstructionValue, VectorValue};

use super::rewrite::rewrite;

/// Writes a module's fused multiply-adds of half floats as operations of floats.
pub(super) fn expand<'c>(context: &'c Context, module: &Module<'c>) -> Result<(), BuilderError> {
    let zero = context.i32_type().const_zero();
    rewrite(context, module, |builder, instruction| {
        let Some(arguments) = arguments(instruction) else { return Ok(None) };
        let [BasicValueEnum::FloatValue(a), ..] = arguments else {
            let [a, b, c] = arguments.map(BasicValueEnum::into_vector_value);
            return Ok(Some(fused(context, builder, [a, b, c])?.into()));
        };
        // A number is a vector of one.
        let one = |value: BasicValueEnum<'c>| {
            let none = a.get_type().vec_type(1).get_poison();
            builder.build_insert_element(none, value, zero, "")
        };
        let [a, b, c] = arguments;
        let vector = fused(context, builder, [one(a)?, one(b)?, one(c)?])?;
        Ok(Some(builder.build_extract_element(vector, zero, "fused")?))
    })
}

/// The arguments of a call that fuses a product and a sum of half floats.
fn arguments(instruction: InstructionValue<'_>) -> Option<[BasicValueEnum<'_>; 3]> {
    let call = CallSiteValue::try_from(instruction).ok()?;
    let name = call.get_called_fn_value()?.get_name().to_string_lossy().into_owned();
    let kind = name.strip_prefix("llvm.fma.")?;
    if !kind.ends_with("f16") || kind.ends_with("bf16") {
        return None;
    }
    let operand = |i| instruction.get_operand(i)?.value();
    Some([operand(0)?, operand(1)?, operand(2)?])
}

fn fused<'c>(
    context: &'c Context,
    builder: &Builder<'c>,
    arguments: [VectorValue<'c>; 3],
) -> Result<VectorValue<'c>, BuilderError> {
    let half = arguments[0].get_type();
    let count = half.get_size();
    let (float, bits) = (context.f32_type().vec_type(count), context.i32_type().vec_type(count));
    let splat = |value: u64| {
        let one = context.i32_type().const_int(value, false);
        VectorType::const_vector(&vec![one; count as usize])
    };
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
    let sum = builder.build_bit_cast(sum, bits, "")?.into_vector_value();
    let lost = builder.build_bit_cast(lost, bits, "")?.into_vector_value();
    let last = builder.build_and(sum, splat(1), "")?;
    let is_even = builder.build_int_compare(EQ, last, splat(0), "")?;
    let moves = builder.build_and(is_lost, is_even, "")?;
    // One step towards the exact sum: away from zero if what was lost has the same sign.
    let signs = builder.build_xor(sum, lost, "")?;
    let signs = builder.build_right_shift(signs, splat(31), true, "")?;
    let step = builder.build_or(signs, splat(1), "")?;
    let odd = builder.build_int_add(sum, step, "")?;
    let odd = builder.build_select(moves, odd, sum, "odd")?;
    let odd = builder.build_bit_cast(odd, float, "")?.into_vector_value();
    builder.build_float_trunc(odd, half, "fused")
}

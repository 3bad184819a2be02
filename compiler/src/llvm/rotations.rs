// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rotations of vectors, as shifts that LLVM cannot take for undefined ones.
//!
//! On processors with AVX2 and without AVX-512, LLVM 22 makes a rotation by `n` a shift to the left by `n` and
//! one to the right by `bits - n` (`LowerRotate` in X86ISelLowering.cpp). If it finds out only then that the
//! amounts of a part of the vector are 0, that is a shift by all bits, which may give anything, and the part gets
//! wrong bits. Here the right shift is by `-n` without its high bits, which is defined for 0. LLVM would make a
//! rotation of that again, so it must not know the mask that removes the bits: an empty assembly statement hides
//! it.

use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::types::VectorType;
use inkwell::values::{BasicValueEnum, CallSiteValue, InstructionValue, VectorValue};

use super::rewrite::rewrite;

/// Writes the rotations of a module's vectors by amounts that are no constants as shifts.
pub(super) fn expand<'c>(context: &'c Context, module: &Module<'c>) -> Result<(), BuilderError> {
    rewrite(context, module, |builder, instruction| {
        let shifts = Rotation::of(instruction).map(|it| it.shifts(context, builder)).transpose()?;
        Ok(shifts.map(Into::into))
    })
}

/// A rotation of a vector.
struct Rotation<'c> {
    is_left: bool,
    value: VectorValue<'c>,
    amounts: VectorValue<'c>,
}

impl<'c> Rotation<'c> {
    /// The rotation that an instruction is: a funnel shift of a value and itself.
    fn of(instruction: InstructionValue<'c>) -> Option<Self> {
        let call = CallSiteValue::try_from(instruction).ok()?;
        let name = call.get_called_fn_value()?.get_name().to_string_lossy().into_owned();
        let is_left = name.starts_with("llvm.fshl.v");
        if !is_left && !name.starts_with("llvm.fshr.v") {
            return None;
        }
        let operand = |i| instruction.get_operand(i)?.value();
        let [high, low, amounts] = [operand(0)?, operand(1)?, operand(2)?];
        match (high, amounts) {
            (BasicValueEnum::VectorValue(value), BasicValueEnum::VectorValue(amounts))
                if high == low && !amounts.is_const() =>
            {
                Some(Self { is_left, value, amounts })
            }
            _ => None,
        }
    }

    fn shifts(
        &self,
        context: &'c Context,
        builder: &Builder<'c>,
    ) -> Result<VectorValue<'c>, BuilderError> {
        let Self { is_left, value, amounts } = *self;
        let mask = hidden_mask(context, builder, value.get_type())?;
        let amount = builder.build_and(amounts, mask, "amount")?;
        let rest = builder.build_and(builder.build_int_neg(amounts, "")?, mask, "rest")?;
        let (left, right) = if is_left { (amount, rest) } else { (rest, amount) };
        let left = builder.build_left_shift(value, left, "left")?;
        let right = builder.build_right_shift(value, right, false, "right")?;
        builder.build_or(left, right, "rotated")
    }
}

/// A vector of the number of bits of an element, less 1, which LLVM does not know.
fn hidden_mask<'c>(
    context: &'c Context,
    builder: &Builder<'c>,
    ty: VectorType<'c>,
) -> Result<VectorValue<'c>, BuilderError> {
    let element = ty.get_element_type().into_int_type();
    // No register holds a byte on its own.
    let register =
        if element.get_bit_width() == 64 { context.i64_type() } else { context.i32_type() };
    let hides = register.fn_type(&[register.into()], false);
    let (empty, same_register) = (String::new(), "=r,0".to_owned());
    let assembly =
        context.create_inline_asm(hides, empty, same_register, false, false, None, false);
    let bits = register.const_int(u64::from(element.get_bit_width()) - 1, false);
    let call = builder.build_indirect_call(hides, assembly, &[bits.into()], "mask")?;
    let mask = call.try_as_basic_value().unwrap_basic().into_int_value();
    let mask = builder.build_int_truncate_or_bit_cast(mask, element, "")?;
    let first = context.i32_type().const_zero();
    let one = builder.build_insert_element(ty.get_poison(), mask, first, "")?;
    let all = vec![first; ty.get_size() as usize];
    builder.build_shuffle_vector(one, ty.get_poison(), VectorType::const_vector(&all), "masks")
}

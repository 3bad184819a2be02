// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gathers of bytes and of 16-bit elements, as gathers of the words around them.
//!
//! Processors gather elements of 32 and 64 bits. LLVM makes of smaller ones a test, a branch and a load for each
//! item: a kernel with 480 such gathers of half floats became 940 KB of code. The aligned 32 bits around an
//! element lie in the same page, so they can be read wherever the element can. The element is shifted out of them.

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicTypeEnum, VectorType};
use inkwell::values::{BasicValue, BasicValueEnum, CallSiteValue, InstructionValue, VectorValue};

use super::rewrite::rewrite;

/// Bytes of a word.
const WORD: u64 = 4;

/// Writes a module's gathers of small elements as gathers of words.
pub(super) fn widen<'c>(context: &'c Context, module: &Module<'c>) -> Result<(), BuilderError> {
    rewrite(context, module, |builder, instruction| match Gather::of(context, instruction) {
        Some(gather) => Ok(gather.by_words(context, module, builder)?.map(Into::into)),
        None => Ok(None),
    })
}

/// A gather of elements that lie in one aligned word each.
struct Gather<'c> {
    instruction: InstructionValue<'c>,
    /// What is gathered.
    elements: VectorType<'c>,
    /// Bits of an element.
    bits: u32,
    at: VectorValue<'c>,
    /// Alignment in bytes that all addresses are known to have.
    align: u64,
    mask: VectorValue<'c>,
}

impl<'c> Gather<'c> {
    fn of(context: &'c Context, instruction: InstructionValue<'c>) -> Option<Self> {
        let call = CallSiteValue::try_from(instruction).ok()?;
        let function = call.get_called_fn_value()?;
        if !function.get_name().to_bytes().starts_with(b"llvm.masked.gather.v") {
            return None;
        }
        let BasicTypeEnum::VectorType(elements) = call.try_as_basic_value().basic()?.get_type()
        else {
            return None;
        };
        let bits = match elements.get_element_type() {
            BasicTypeEnum::IntType(int) => int.get_bit_width(),
            BasicTypeEnum::FloatType(float) if float == context.f16_type() => 16,
            _ => return None,
        };
        let kind = Attribute::get_named_enum_kind_id("align");
        let align = call.get_enum_attribute(AttributeLoc::Param(0), kind)?.get_enum_value();
        let vector = |i| match instruction.get_operand(i)?.value()? {
            BasicValueEnum::VectorValue(vector) => Some(vector),
            _ => None,
        };
        let (at, mask) = (vector(0)?, vector(1)?);
        let is_in_word = matches!(bits, 8 | 16) && u64::from(bits / 8) <= align;
        is_in_word.then_some(Self { instruction, elements, bits, at, align, mask })
    }

    /// The elements, from the words around them.
    fn by_words(
        &self,
        context: &'c Context,
        module: &Module<'c>,
        builder: &Builder<'c>,
    ) -> Result<Option<VectorValue<'c>>, BuilderError> {
        let Self { elements, at, mask, .. } = *self;
        let count = elements.get_size();
        let (int, long) = (context.i32_type().vec_type(count), context.i64_type().vec_type(count));
        let splat = |ty: VectorType<'c>, value: u64| {
            let one = ty.get_element_type().into_int_type().const_int(value, false);
            VectorType::const_vector(&vec![one; count as usize])
        };
        let (mut words, mut shift) = (at, None);
        if self.align < WORD {
            let numbers = builder.build_ptr_to_int(at, long, "")?;
            let begins = builder.build_and(numbers, splat(long, !(WORD - 1)), "")?;
            words = builder.build_int_to_ptr(begins, at.get_type(), "words")?;
            let bytes = builder.build_int_truncate(numbers, int, "")?;
            let bytes = builder.build_and(bytes, splat(int, WORD - 1), "")?;
            shift = Some(builder.build_left_shift(bytes, splat(int, 3), "shift")?);
        }
        let types = [int.into(), at.get_type().into()];
        let Some(gather) = Intrinsic::find("llvm.masked.gather")
            .and_then(|gather| gather.get_declaration(module, &types))
        else {
            return Ok(None);
        };
        let arguments = [words.into(), mask.into(), int.get_poison().into()];
        let call = builder.build_call(gather, &arguments, "around")?;
        let kind = Attribute::get_named_enum_kind_id("align");
        let align = context.create_enum_attribute(kind, self.align.max(WORD));
        call.add_attribute(AttributeLoc::Param(0), align);
        self.keep_metadata(context, call);
        let Some(BasicValueEnum::VectorValue(mut value)) = call.try_as_basic_value().basic() else {
            return Ok(None);
        };
        if let Some(shift) = shift {
            value = builder.build_right_shift(value, shift, false, "")?;
        }
        let small = if self.bits == 8 { context.i8_type() } else { context.i16_type() };
        let small = small.vec_type(count);
        let value = builder.build_int_truncate(value, small, "elements")?;
        if small == elements {
            return Ok(Some(value));
        }
        Ok(Some(builder.build_bit_cast(value, elements, "elements")?.into_vector_value()))
    }

    /// Gives the new gather what is known of the old one's memory.
    fn keep_metadata(&self, context: &'c Context, call: CallSiteValue<'c>) {
        let Some(new) = call.try_as_basic_value().basic().and_then(|it| it.as_instruction_value())
        else {
            return;
        };
        for kind in ["noalias", "alias.scope"].map(|name| context.get_kind_id(name)) {
            if let Some(known) = self.instruction.get_metadata(kind) {
                // It is a node, as the old instruction's was.
                let _ = new.set_metadata(known, kind);
            }
        }
    }
}

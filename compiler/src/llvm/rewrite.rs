// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions of LLVM's in place of others.

use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::values::{BasicValue, BasicValueEnum, InstructionValue};

/// Replaces the instructions of a module for which `with` builds another value, which is no constant.
pub(super) fn rewrite<'c>(
    context: &'c Context,
    module: &Module<'c>,
    with: impl Fn(
        &Builder<'c>,
        InstructionValue<'c>,
    ) -> Result<Option<BasicValueEnum<'c>>, BuilderError>,
) -> Result<(), BuilderError> {
    let builder = context.create_builder();
    for function in module.get_functions() {
        for block in function.get_basic_block_iter() {
            // An instruction is erased while the iterator stands on it otherwise.
            for instruction in block.get_instructions().collect::<Vec<_>>() {
                builder.position_before(&instruction);
                let value = with(&builder, instruction)?;
                if let Some(new) = value.and_then(|it| it.as_instruction_value()) {
                    instruction.replace_all_uses_with(&new);
                    instruction.erase_from_basic_block();
                }
            }
        }
    }
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps functions of the run-time library out of kernels that call them from many places.
//!
//! A function on vectors has 30 to 150 instructions, and LLVM inlines those of up to a hundred wherever they are called. An
//! unrolled loop, or a kernel with code of its own for some vectors, calls one from tens of places. Most of the time to
//! code is spent on these copies then, although a call costs no more than a few of the function's instructions.

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::values::{BasicValue, FunctionValue};

use crate::optimise::{cost::MAX_INLINED, is_skipped};

/// The name by which it is left out.
const NAME: &str = "library-calls";

/// Has LLVM leave calls of functions that would be too many instructions if they were inlined.
pub(super) fn run<'c>(context: &'c Context, module: &Module<'c>) {
    if is_skipped(NAME) {
        return;
    }
    let kind = Attribute::get_named_enum_kind_id;
    let never = context.create_enum_attribute(kind("noinline"), 0);
    for function in module.get_functions() {
        let always = function.get_enum_attribute(AttributeLoc::Function, kind("alwaysinline"));
        let on_vectors =
            function.get_type().get_return_type().is_some_and(|it| it.is_vector_type());
        let is_library = on_vectors && function.get_name().to_bytes().starts_with(b"__tally_");
        if is_library && always.is_none() && inlined(function) > MAX_INLINED {
            function.add_attribute(AttributeLoc::Function, never);
        }
    }
}

/// The number of instructions of all copies of a function, if it is inlined wherever it is used.
fn inlined(function: FunctionValue<'_>) -> usize {
    let first = function.as_global_value().as_pointer_value().get_first_use();
    let uses = std::iter::successors(first, |it| it.get_next_use()).count();
    let size: usize =
        function.get_basic_block_iter().map(|block| block.get_instructions().count()).sum();
    uses * size
}

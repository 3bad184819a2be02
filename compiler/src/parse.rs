// SPDX-License-Identifier: MIT OR Apache-2.0
//! SPIR-V → IR.
//!
//! Takes modules for OpenCL: `Kernel` capability, `Physical64` addressing, versions 1.0 to 1.6, in
//! either byte order. The stages:
//! - [`words`]: the binary's outer form;
//! - [`annotations`]: names, decorations, entry points, execution modes, gathered first;
//! - [`module`]: types, constants, variables, signatures, which [`builder`] holds;
//! - [`function`]: function bodies, one instruction at a time. It finds the file that translates an
//!   instruction: [`arith`], [`matrix`], [`matrix_checked`], [`brain`], [`narrow`], [`dot`], [`vendor`], [`memory`], [`gather`], [`group`], [`async_copy`], [`image`],
//!   [`opencl`], [`opencl_float`], [`printf`], [`imports`], [`opencl_c`], [`indirect`], [`debug`].
//!   All of them emit through [`body`], which depends on none of them, and [`directed`] computes in the modes
//!   of floats that kernels have ([`controls`], [`modes`]);
//! - [`kernels`]: entry points and their arguments;
//! - [`alignment`]: what accesses say of variables.
//!
//! Input that is not valid SPIR-V is an [`Error`] here. Valid input that cannot be compiled becomes
//! [`crate::ir::Op::Unsupported`], which [`crate::check`] refuses where a kernel reaches it.
//!
//! Any input gives a module or an error; time and memory are bounded by the input's size.

mod alignment;
mod angles;
mod annotations;
mod arith;
mod async_copy;
mod body;
mod brain;
mod builder;
mod collected;
mod controls;
mod debug;
mod directed;
mod dot;
mod error;
mod extended;
mod function;
mod gather;
mod group;
mod image;
mod imports;
mod indirect;
mod kernels;
mod lines;
mod lsc;
mod mangled;
mod matrix;
mod matrix_checked;
mod memory;
mod modes;
mod module;
mod narrow;
mod opencl;
mod opencl_c;
mod opencl_float;
mod pipe;
mod pointers;
mod printf;
mod vendor;
mod words;

pub use builder::SpecConstants;
pub use error::{Error, Result};

use crate::ir;

/// The name of an opcode, as in `OpIAdd`; `None` if there is none with this number.
pub fn opcode_name(opcode: u16) -> Option<String> {
    words::grammar(u32::from(opcode)).filter(|_| opcode != 0).map(|grammar| grammar.name.clone())
}

/// Whether an instruction needs all items of a sub-group, over which a matrix is spread, by its opcode.
pub fn is_of_matrix(opcode: u16) -> bool {
    use rspirv::spirv::Op;
    use words::intel::{MATRIX_LOAD_CHECKED, MATRIX_STORE_CHECKED};
    [
        Op::CooperativeMatrixLoadKHR as u32,
        Op::CooperativeMatrixStoreKHR as u32,
        Op::CooperativeMatrixMulAddKHR as u32,
        MATRIX_LOAD_CHECKED,
        MATRIX_STORE_CHECKED,
    ]
    .contains(&u32::from(opcode))
}

/// Parses a module, with specialization constants set to the given values or, where none is given,
/// to their defaults.
///
/// # Errors
/// If the bytes are not a valid module for OpenCL with 64-bit addresses; see [`Error`].
pub fn parse(bytes: &[u8], spec_constants: &SpecConstants) -> Result<ir::Module> {
    parse_either(bytes, spec_constants, false)
}

/// Like [`parse`], for a debugger: variables that the front end of the source's language has made values are in
/// memory, too, as far as debug information names them.
///
/// # Errors
/// Those of [`parse`].
pub fn parse_for_debugger(bytes: &[u8], spec_constants: &SpecConstants) -> Result<ir::Module> {
    parse_either(bytes, spec_constants, true)
}

fn parse_either(
    bytes: &[u8],
    spec_constants: &SpecConstants,
    keeps_values: bool,
) -> Result<ir::Module> {
    let binary = words::Binary::new(bytes)?;
    let instructions = binary.instructions()?;
    let annotations = annotations::Annotations::collect(&instructions)?;
    let mut builder = builder::Builder::new(annotations, binary.bound, spec_constants);
    builder.indirect = pointers::Indirect::new(bytes);
    builder.debug.keeps_values = keeps_values;
    let bodies = builder.module_scope(&instructions)?;
    for function in &bodies {
        function::build(&mut builder, function)?;
    }
    indirect::finish(&mut builder)?;
    kernels::build(&mut builder)?;
    alignment::raise(&mut builder.module);
    Ok(builder.module)
}

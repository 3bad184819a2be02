// SPDX-License-Identifier: MIT OR Apache-2.0
//! SPIR-V → IR.
//!
//! Takes modules for OpenCL: `Kernel` capability, `Physical64` addressing, versions 1.0 to 1.6, in
//! either byte order. The stages:
//! - [`words`]: the binary's outer form;
//! - [`annotations`]: names, decorations, entry points, execution modes, gathered first;
//! - [`module`]: types, constants, variables, signatures;
//! - [`body`] and below it [`arith`], [`dot`], [`vendor`], [`memory`], [`group`], [`async_copy`],
//!   [`image`], [`opencl`], [`printf`], [`imports`], [`opencl_c`], [`indirect`], [`lines`]: function
//!   bodies, one instruction at a time;
//! - [`kernels`]: entry points and their arguments.
//!
//! What is not valid SPIR-V is an [`Error`] here. What is valid but cannot be compiled becomes
//! [`crate::ir::Op::Unsupported`], which [`crate::check`] refuses where a kernel reaches it.
//!
//! Any input gives a module or an error; time and memory are bounded by the input's size.

mod annotations;
mod arith;
mod async_copy;
mod body;
mod dot;
mod group;
mod image;
mod imports;
mod indirect;
mod kernels;
mod lines;
mod memory;
mod module;
mod opencl;
mod opencl_c;
mod opencl_float;
mod printf;
mod vendor;
mod words;

use std::fmt;

use crate::ir;

/// Why a module was refused, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Offset in the module, in words.
    pub word: usize,
    /// The instruction's name, as in `OpIAdd`.
    pub opcode: Option<String>,
    /// The kernel or function.
    pub place: Option<String>,
    /// File, line and column if the module says.
    pub source: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "word {}", self.word)?;
        if let Some(place) = &self.place {
            write!(f, " in {place}")?;
        }
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        match &self.opcode {
            Some(opcode) => write!(f, ": {opcode} {}", self.message),
            None => write!(f, ": {}", self.message),
        }
    }
}

impl std::error::Error for Error {}

/// The result of a parsing step.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The name of an opcode, as in `OpIAdd`; `None` if there is none with this number.
pub fn opcode_name(opcode: u16) -> Option<String> {
    words::grammar(u32::from(opcode)).filter(|_| opcode != 0).map(|grammar| grammar.name.clone())
}

/// Values for specialization constants: `SpecId` and the value's bits.
pub type SpecConstants = [(u32, u64)];

/// Parses a module, with specialization constants set to the given values or, where none is given,
/// to their defaults.
///
/// # Errors
/// If the bytes are not a valid module for OpenCL with 64-bit addresses; see [`Error`].
pub fn parse(bytes: &[u8], spec_constants: &SpecConstants) -> Result<ir::Module> {
    let binary = words::Binary::new(bytes)?;
    let instructions = binary.instructions()?;
    let annotations = annotations::Annotations::collect(&instructions)?;
    let mut builder = module::Builder::new(annotations, binary.bound, spec_constants);
    builder.indirect = indirect::Indirect::new(bytes);
    let bodies = builder.module_scope(&instructions)?;
    for function in &bodies {
        body::build(&mut builder, function)?;
    }
    indirect::finish(&mut builder)?;
    kernels::build(&mut builder)?;
    Ok(builder.module)
}

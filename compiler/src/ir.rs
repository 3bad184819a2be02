// SPDX-License-Identifier: MIT OR Apache-2.0
//! The typed intermediate representation between SPIR-V and machine code.
//!
//! A [`Module`] owns interned types and constants, global variables, functions and kernels. A
//! [`Function`] is a control-flow graph in SSA form: blocks of instructions, each with at most one
//! typed result, phis for joins. Nothing is assumed about the graph's shape; irreducible flow is
//! fine. Block 0 is the entry, has no predecessors and no phis.
//!
//! All numbers that name something are typed indices (see [`arena`]). Analyses keep their facts in
//! tables beside the IR, indexed by the same numbers.
//!
//! The textual form (`Display`) is for readers and golden tests; it is not parsed.

pub mod arena;
mod debug;
mod dominators;
pub mod eval;
pub mod group;
mod ids;
mod image;
mod loops;
mod module;
mod named;
mod operators;
pub mod ops;
mod text;
pub mod types;
mod uses;

pub use arena::{Arena, Id};
pub use debug::{
    DebugInfo, Encoding, Inlined, KeptValue, Member, SourcePlace, SourceType, SourceVariable,
};
pub use dominators::Dominators;
pub use group::{GroupOp, WorkItemQuery};
pub use ids::{
    BlockId, ConstId, FileId, FunctionId, GlobalId, InlinedId, Operand, SourceTypeId, ValueId,
};
pub use image::GlobalImage;
pub use loops::{Loop, Loops};
pub use module::{
    ArgKind, Block, ConstKind, Constant, ENTRY, Flags, Function, Global, ImageArg, ImageKind, Inst,
    Kernel, KernelArg, KernelFacts, Loc, Module, PrivateVariable, Value,
};
pub use operators::{
    AtomicOp, BinaryOp, CompareOp, ConvertOp, FloatTest, ImageOp, MathOp, Ordering, RowOp, Scope,
    SecondResult, TernaryOp, UnaryOp,
};
pub use ops::{Access, GlobalReloc, Op, Terminator};
pub use types::{AddressSpace, Float, Layout, Scalar, Type, TypeId, Types};
pub use uses::{Definition, Uses, definitions};

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations of the IR.
//!
//! The set is small on purpose. The parser expresses everything in SPIR-V and OpenCL.std with it
//! (geometric functions, `vloadn`, `select`, bit fields, directed roundings, ...), so that the
//! interpreter, code generation and widening each handle only one form of each operation.
//!
//! Arithmetic, comparisons, conversions, `Select` and `Math` work on scalars and, component by
//! component, on vectors. No operation traps and none has undefined behaviour on values alone: where
//! SPIR-V leaves a result undefined, it is some value of the type.

use super::group::{GroupOp, WorkItemQuery};
use super::ids::{BlockId, FunctionId, GlobalId, Operand};
use super::operators::{
    AtomicOp, BinaryOp, CompareOp, ConvertOp, FloatTest, ImageOp, MathOp, Ordering, RowOp, Scope,
    TernaryOp, UnaryOp,
};

/// Properties of a memory access beyond its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Alignment in bytes that the address is known to have, a power of two.
    pub align: u32,
    /// The access must happen as written.
    pub volatile: bool,
    /// The data is not expected to be used again soon.
    pub nontemporal: bool,
}

/// An instruction's operation. The result value has the type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// One operand, same type.
    Unary(UnaryOp, Operand),
    /// Two operands of one type, same type.
    Binary(BinaryOp, Operand, Operand),
    /// Three operands of one type, same type.
    Ternary(TernaryOp, Operand, Operand, Operand),
    /// Two operands of one type; `bool` or a vector of it.
    Compare(CompareOp, Operand, Operand),
    /// A float or a vector of floats; `bool` or a vector of it.
    Test(FloatTest, Operand),
    /// The second operand where the first is true, else the third. The condition is a `bool`, or a
    /// vector of `bool` when it chooses per component. Operands may be of any type.
    Select(Operand, Operand, Operand),
    /// A change of type to the result's.
    Convert(ConvertOp, Operand),
    /// A library function.
    Math(MathOp, Vec<Operand>),
    /// Reads, samples or writes an image.
    Image(ImageOp, Vec<Operand>),
    /// Sum and carry (0 or 1) of unsigned integers: a structure of two of the operands' type.
    AddCarry(Operand, Operand),
    /// Difference and borrow (0 or 1) of unsigned integers: a structure of two.
    SubBorrow(Operand, Operand),
    /// Low and high half of the unsigned product: a structure of two.
    UMulExtended(Operand, Operand),
    /// Low and high half of the signed product: a structure of two.
    SMulExtended(Operand, Operand),

    /// A vector, array or structure from all its components.
    Construct(Vec<Operand>),
    /// The component of a composite at a path of constant indices; never empty.
    Extract(Operand, Vec<u32>),
    /// A composite (first) with the component at a path replaced by a value (second).
    Insert(Operand, Operand, Vec<u32>),
    /// The component of a vector at an integer index; some value if it is out of range.
    ExtractDynamic(Operand, Operand),
    /// A vector with the component at an integer index (third) replaced by a value (second); some
    /// vector if it is out of range.
    InsertDynamic(Operand, Operand, Operand),
    /// Components chosen from the concatenation of two vectors of one component type; `None` is
    /// some value.
    Shuffle(Operand, Operand, Vec<Option<u32>>),

    /// An address: `base + offset + sum(index * stride)` bytes, wrapping. Indices are signed
    /// integers of any width. In widened code the base and indices may be vectors; the result then
    /// is a vector of pointers.
    Address {
        /// A pointer; the result is of the same address space.
        base: Operand,
        /// Constant part in bytes.
        offset: i64,
        /// Index and stride in bytes of each variable part.
        terms: Vec<(Operand, i64)>,
        /// The address lies in the object that `base` points into, or one past its end.
        inbounds: bool,
    },
    /// Reads a value of the result's type. A vector of three reads three components.
    Load(Operand, Access),
    /// Writes a value (second) to a pointer (first). A vector of three writes three components.
    Store(Operand, Operand, Access),
    /// Copies bytes to a pointer (first) from another (second); an integer (third) is their number.
    /// Ranges may overlap, as with `memmove`, which clang writes in this way.
    Copy(Operand, Operand, Operand, Access),
    /// An atomic load of an integer, float or pointer.
    AtomicLoad(Operand, Ordering, Scope),
    /// An atomic store of a value (second) to a pointer (first).
    AtomicStore(Operand, Operand, Ordering, Scope),
    /// An atomic update of the location at a pointer with a value; the result is the old value.
    AtomicRmw(AtomicOp, Operand, Operand, Ordering, Scope),
    /// Stores `value` at `ptr` if it holds `expected`; the result is the old value in either case.
    AtomicCompareExchange {
        /// The location.
        ptr: Operand,
        /// The value that the memory must hold.
        expected: Operand,
        /// The value that is stored then.
        value: Operand,
        /// Ordering if it did.
        success: Ordering,
        /// Ordering if it did not.
        failure: Ordering,
        /// The scope of other accesses to the location.
        scope: Scope,
    },

    /// Prints by a format string (first) the arguments at a private pointer (second), whose size in
    /// bytes is given, in the form of [`tally_compiler_protocol::printf`]. The result is an `i32`: 0,
    /// or -1 if there was no room.
    Printf(Operand, Operand, u32),

    /// The address, in global memory, of the states of the bytes at a pointer
    /// ([`tally_compiler_protocol::checks`]), one byte for each. Reading there never traps, whatever
    /// the pointer is.
    Shadow(Operand),
    /// A 64-bit word that the driver passes to a checked kernel, by its offset among these words.
    CheckWord(u32),
    /// The number of accessible bytes, 64 bits: of at most so many (second, 64 bits) from a pointer on,
    /// up to the first one that may not be accessed. 0 if the bytes have no states.
    Accessible(Operand, Operand),
    /// Looks at the texels that [`Op::Image`] with these operands touches, without a write's texel: 64 bits,
    /// 0 if there is no mistake ([`tally_compiler_protocol::checks::texel`]). Texels that are written count
    /// as written from then on, and so do those that are told.
    Texels(ImageOp, Vec<Operand>),
    /// The address, 64 bits, of the first byte that [`Op::Printf`] would read of its strings and that it may
    /// not read, or that nothing has written; 0 if there is none. The operands are the private pointer and
    /// the size.
    Strings(Operand, u32),
    /// Gives the bytes from a pointer on the states of the bytes at another one (second; null: they
    /// become defined). The third operand is their number, of 64 bits. A private pointer refers to
    /// states themselves, those of a private variable.
    CopyStates(Operand, Operand, Operand),
    /// Reports a mistake at one of a kernel's checked places, if there is one. Has no result.
    Report {
        /// The number of the place.
        site: u32,
        /// The number of bytes whose states are wrong; 0 for another kind of mistake.
        size: u32,
        /// The address that is accessed, or an offset of 64 bits. In widened code it may be the first
        /// item's, or a vector.
        at: Operand,
        /// Bytes from one item's address to the next one's, if `at` is the first item's.
        step: i64,
        /// Whether there is a mistake: a `bool`, or in widened code a vector of it.
        mistake: Operand,
        /// In widened code the items that make the mistake, if it is the same for all: a vector of
        /// `bool`.
        items: Option<Operand>,
    },

    /// A work-item's place. The number is the dimension, 0 where there is none.
    WorkItem(WorkItemQuery, u8),
    /// All work-items of the execution scope wait for each other; memory is ordered for the memory
    /// scope. Has no result.
    ControlBarrier {
        /// The scope of items that wait.
        execution: Scope,
        /// The scope in which the memory becomes visible.
        memory: Scope,
        /// The memory ordering.
        ordering: Ordering,
    },
    /// The sub-group waits until as many sub-groups of the work-group have reached the named barrier as the
    /// 32-bit number at a pointer to local memory says; memory is ordered for the scope. Has no result.
    NamedBarrier(Operand, Scope, Ordering),
    /// The work-group waits for all others of the launch, which is cooperative. One work-item executes
    /// it, between two barriers of the work-group. Has no result.
    GridBarrier,
    /// Orders memory for the scope. Has no result.
    Fence(Scope, Ordering),
    /// Shows a value to the other work-items of the scope and waits until all of them have stopped here
    /// or returned. Has no result; a [`Op::Collect`] follows it.
    Offer(Scope, Operand),
    /// Combines the values that the [`Op::Offer`] before it has shown: those of the work-items that
    /// reached it together. Of the offered type. A shuffle has an `i32` index. A product of matrices has
    /// the item's part of the matrix that it is added to, and is of that type.
    Collect(GroupOp, Scope, Option<Operand>),

    /// Whether a `bool` is true for all items that run together with this one; before widening, its own.
    Whole(Operand),
    /// What is known of numbers (first) that are not negative and grow by a constant from item to item, divided by a
    /// number that all items share (second): of the items that run together, before widening of one.
    Row(RowOp, Operand, Operand),
    /// The work-items of a vector that exist, a vector of `bool`: fewer at the end of an uneven row.
    Present,
    /// A value in every component of a vector.
    Splat(Operand),
    /// Whether any component of a vector of `bool` is true.
    Any(Operand),
    /// The index of the last true component of a vector of `bool`, `i32`; that of some component if there is
    /// none.
    LastTrue(Operand),
    /// A vector of `bool` of at most 32 components as bits of an `i32`, the first component as the lowest one.
    Bits(Operand),
    /// A vector, with one value for each component that may be any, in all that uses the result.
    Freeze(Operand),
    /// Whether the addresses of a vector (first) are contiguous at the given distance in bytes, in each part of so many
    /// components (last), where a vector of `bool` (second) is true. Those of the first components of the parts count
    /// where it is false, too, and have to be frozen. `bool`.
    InLine(Operand, Operand, u64, u32),
    /// Hints to the processor that the memory at a pointer will be read. Accesses nothing.
    Prefetch(Operand),
    /// Reads the components of a vector, which are contiguous at a pointer (first), where a vector of
    /// `bool` (second) is true; others are some value and are not accessed.
    MaskedLoad(Operand, Operand, Access),
    /// Writes the components of a vector (second) contiguously at a pointer (first) where a vector of
    /// `bool` (third) is true.
    MaskedStore(Operand, Operand, Operand, Access),
    /// Reads one component through each pointer of a vector (first) where a vector of `bool`
    /// (second) is true; others are some value and are not accessed.
    Gather(Operand, Operand, Access),
    /// Writes each component of a vector (second) through its pointer of a vector (first) where a
    /// vector of `bool` (third) is true, in the order of the components.
    Scatter(Operand, Operand, Operand, Access),
    /// Whether the addresses of a vector (first) lie in one aligned block of so many bytes (last), that of the first
    /// address, where a vector of `bool` (second) is true. The addresses have to be frozen. False if no component is
    /// true, and where it gains nothing. `bool`.
    Close(Operand, Operand, u64),
    /// What [`Op::Gather`] reads of words at an offset in bytes (last) from addresses for which [`Op::Close`] has held,
    /// with the same block.
    GatherClose(Operand, u64, u64),
    /// Whether as many bytes as the number says lie in one page from a pointer on. False where it gains nothing. `bool`.
    Table(Operand, u64),
    /// The aligned words, counted from a pointer (first), that hold the bytes at the distances of a vector (second), of
    /// so many bytes for which [`Op::Table`] has held. Any of these bytes has to be readable.
    LookUp(Operand, Operand, u64),
    /// Does what [`Op::Scatter`] does with words. The result, a `bool`, is false if that gains nothing, and nothing is
    /// written then.
    ScatterClose(Operand, Operand, Operand),

    /// Adds each component of a vector of integers (second) atomically to the integer at its pointer of a vector
    /// (first) where a vector of `bool` (third) is true, before the work-groups end that run together. The result, a
    /// `bool`, is false if it is not worthwhile, and nothing is added then.
    AddLater(Operand, Operand, Operand),

    /// [`Op::Image`] of a vector of items with one image and sampler: vectors of coordinates and, of a write, four vectors of
    /// channels; last the mask of the items that it concerns. A result has a vector for each channel, one behind the other.
    Images(ImageOp, Vec<Operand>),

    /// A call of a function of the module. Has a result unless the function returns `void`.
    Call(FunctionId, Vec<Operand>),
    /// The value that belongs to the predecessor the block was entered from. Each predecessor is named
    /// once. All phis of a block stand at its start and take effect together.
    Phi(Vec<(BlockId, Operand)>),
    /// The operand is true; otherwise behaviour is undefined. Has no result.
    Assume(Operand),
    /// An operation that the compiler does not support, by name. `check` refuses it where it is
    /// reachable, so no later stage sees it. Operands are not kept.
    Unsupported(String),
}

/// The terminator of a block.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Continues at a block.
    Branch(BlockId),
    /// Continues at the first block if the `bool` is true, else at the second.
    CondBranch(Operand, BlockId, BlockId),
    /// Continues at the block of the first case that equals the integer, else at the default.
    Switch {
        /// An integer.
        value: Operand,
        /// The target if no case matches.
        default: BlockId,
        /// Values, zero-extended to 64 bits, and their targets. No value appears twice.
        cases: Vec<(u64, BlockId)>,
    },
    /// Ends the function, with a value unless it returns `void`.
    Return(Option<Operand>),
    /// Is never reached.
    Unreachable,
}

impl Terminator {
    /// The successors, in order; a block may appear more than once.
    pub fn successors(&self) -> Vec<BlockId> {
        match self {
            Terminator::Branch(next) => vec![*next],
            Terminator::CondBranch(_, yes, no) => vec![*yes, *no],
            Terminator::Switch { default, cases, .. } => {
                std::iter::once(*default).chain(cases.iter().map(|&(_, block)| block)).collect()
            }
            Terminator::Return(_) | Terminator::Unreachable => Vec::new(),
        }
    }

    /// Calls `visit` on each operand.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Operand)) {
        match self {
            Terminator::CondBranch(value, ..)
            | Terminator::Switch { value, .. }
            | Terminator::Return(Some(value)) => visit(*value),
            Terminator::Branch(_) | Terminator::Return(None) | Terminator::Unreachable => {}
        }
    }

    /// Calls `change` on each operand.
    pub fn for_each_operand_mut(&mut self, mut change: impl FnMut(&mut Operand)) {
        match self {
            Terminator::CondBranch(value, ..)
            | Terminator::Switch { value, .. }
            | Terminator::Return(Some(value)) => change(value),
            Terminator::Branch(_) | Terminator::Return(None) | Terminator::Unreachable => {}
        }
    }

    /// Calls `change` on each successor.
    pub fn for_each_successor_mut(&mut self, mut change: impl FnMut(&mut BlockId)) {
        match self {
            Terminator::Branch(next) => change(next),
            Terminator::CondBranch(_, yes, no) => {
                change(yes);
                change(no);
            }
            Terminator::Switch { default, cases, .. } => {
                change(default);
                cases.iter_mut().for_each(|(_, block)| change(block));
            }
            Terminator::Return(_) | Terminator::Unreachable => {}
        }
    }
}

/// Lists the operands of each operation once, for readers and for writers.
macro_rules! visit_operands {
    ($op:expr, $visit:expr, $iter:ident) => {{
        let mut visit = $visit;
        match $op {
            Op::Unary(_, a)
            | Op::Test(_, a)
            | Op::Convert(_, a)
            | Op::Extract(a, _)
            | Op::Load(a, _)
            | Op::AtomicLoad(a, ..)
            | Op::NamedBarrier(a, ..)
            | Op::Offer(_, a)
            | Op::Collect(_, _, Some(a))
            | Op::Splat(a)
            | Op::Any(a)
            | Op::Whole(a)
            | Op::LastTrue(a)
            | Op::Bits(a)
            | Op::Freeze(a)
            | Op::GatherClose(a, ..)
            | Op::Table(a, _)
            | Op::Prefetch(a)
            | Op::Shadow(a)
            | Op::Strings(a, _)
            | Op::Assume(a) => visit(a),
            Op::Binary(_, a, b)
            | Op::Compare(_, a, b)
            | Op::Row(_, a, b)
            | Op::AddCarry(a, b)
            | Op::SubBorrow(a, b)
            | Op::UMulExtended(a, b)
            | Op::SMulExtended(a, b)
            | Op::Insert(a, b, _)
            | Op::ExtractDynamic(a, b)
            | Op::Shuffle(a, b, _)
            | Op::Store(a, b, _)
            | Op::MaskedLoad(a, b, _)
            | Op::Gather(a, b, _)
            | Op::InLine(a, b, ..)
            | Op::Close(a, b, ..)
            | Op::LookUp(a, b, _)
            | Op::AtomicStore(a, b, ..)
            | Op::AtomicRmw(_, a, b, ..)
            | Op::Accessible(a, b)
            | Op::Printf(a, b, _) => {
                visit(a);
                visit(b);
            }
            Op::Ternary(_, a, b, c)
            | Op::Select(a, b, c)
            | Op::MaskedStore(a, b, c, _)
            | Op::Scatter(a, b, c, _)
            | Op::ScatterClose(a, b, c)
            | Op::AddLater(a, b, c)
            | Op::InsertDynamic(a, b, c)
            | Op::CopyStates(a, b, c)
            | Op::Copy(a, b, c, _) => {
                visit(a);
                visit(b);
                visit(c);
            }
            Op::AtomicCompareExchange { ptr, expected, value, .. } => {
                visit(ptr);
                visit(expected);
                visit(value);
            }
            Op::Report { at, mistake, items, .. } => {
                visit(at);
                visit(mistake);
                if let Some(items) = items {
                    visit(items);
                }
            }
            Op::Math(_, args)
            | Op::Image(_, args)
            | Op::Images(_, args)
            | Op::Texels(_, args)
            | Op::Construct(args)
            | Op::Call(_, args) => {
                args.$iter().for_each(visit);
            }
            Op::Address { base, terms, .. } => {
                visit(base);
                terms.$iter().for_each(|(index, _)| visit(index));
            }
            Op::Phi(incoming) => incoming.$iter().for_each(|(_, value)| visit(value)),
            Op::WorkItem(..)
            | Op::Present
            | Op::CheckWord(_)
            | Op::ControlBarrier { .. }
            | Op::GridBarrier
            | Op::Fence(..)
            | Op::Collect(_, _, None)
            | Op::Unsupported(_) => {}
        }
    }};
}

impl Op {
    /// Calls `visit` on each operand, in order. A phi's operands are visited too.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Operand)) {
        visit_operands!(self, |operand: &Operand| visit(*operand), iter);
    }

    /// Calls `change` on each operand, in order.
    pub fn for_each_operand_mut(&mut self, change: impl FnMut(&mut Operand)) {
        visit_operands!(self, change, iter_mut);
    }
}

impl Op {
    /// Whether it concerns sub-groups: an item's place in one, or the other items there.
    pub fn is_of_subgroup(&self) -> bool {
        match self {
            Op::WorkItem(query, _) => query.is_subgroup(),
            Op::ControlBarrier { execution, .. } => *execution == Scope::Subgroup,
            Op::NamedBarrier(..) => true,
            Op::Offer(scope, _) => *scope == Scope::Subgroup,
            _ => false,
        }
    }

    /// Whether its result depends on its operands and the work-item alone, and it has no effect.
    pub fn is_pure(&self) -> bool {
        matches!(
            self,
            Op::Unary(..)
                | Op::Binary(..)
                | Op::Ternary(..)
                | Op::Compare(..)
                | Op::Test(..)
                | Op::Select(..)
                | Op::Convert(..)
                | Op::Math(..)
                | Op::AddCarry(..)
                | Op::SubBorrow(..)
                | Op::UMulExtended(..)
                | Op::SMulExtended(..)
                | Op::Construct(..)
                | Op::Extract(..)
                | Op::Insert(..)
                | Op::ExtractDynamic(..)
                | Op::InsertDynamic(..)
                | Op::Shuffle(..)
                | Op::Address { .. }
                | Op::Shadow(_)
                | Op::CheckWord(_)
                | Op::WorkItem(..)
                | Op::Row(..)
        )
    }
}

/// A reference from the bytes of one global variable to the address of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalReloc {
    /// Byte offset of the 64-bit address within the initial bytes.
    pub offset: u64,
    /// The variable whose address it is.
    pub global: GlobalId,
    /// Added to the address.
    pub addend: i64,
}

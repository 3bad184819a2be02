// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that try again until a change of memory has succeeded.
//!
//! ```text
//!   do {                                         old = *at;
//!     count = tag | (s[data] & MASK) + 1;        do {
//!     s[data] = count;                             seen = old;
//!   } while (s[data] != count);                    old = atomic_cmpxchg(at, seen, f(seen));
//!                                                } while (old != seen);
//! ```
//!
//! In a vector, all items take turns until the last of them has succeeded, and such exchanges go item by item in each. A
//! kernel that does little else is faster one item at a time: in local memory if it retries again and again, in global
//! memory anyway, where each item may also spoil what the others of its vector have read. So is one in which a single item
//! of a group adds up what the others have left, in any memory: in a vector, each of its exchanges waits for a mask and for
//! parts of vectors.
//!
//! ```text
//!   barrier(CLK_LOCAL_MEM_FENCE);
//!   if (get_local_id(0) != 0) return;
//!   for (i = 0; i < size; i++) atomic_add_f(grid + place[i], share[i]);
//! ```

use super::shape::Shape;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{
    AddressSpace, BinaryOp, BlockId, CompareOp, Definition, ENTRY, Function, Inst, Module, Op,
    Operand, Terminator, Type, definitions,
};

/// The most instructions beside the loop of retries: in the loop around it, and in the kernel. Histograms in local memory
/// have 13 to 16 and 46 to 61 of them; one item at a time they take 0.36 to 0.66 of the time. Rodinia's bucket sort has 67
/// and 116, since it searches for each element's bucket first, and takes 1.3 times as long.
const MOST_AROUND: usize = 32;
const MOST: usize = 128;

/// The most instructions of a kernel that retries changes of global memory. Sums of floats at random places have 15, and
/// take 0.75 of the time one item at a time, 0.6 where many items share a place (Xeon with AVX-512, two threads); what
/// is computed for each costs a third of a cycle an instruction then, and next to nothing in a vector.
const MOST_GLOBAL: usize = 32;

/// Whether a kernel is faster one item at a time.
pub(super) fn prevail(module: &Module, source: &Function, way: &Way) -> bool {
    let loops = &way.flow.loops;
    let size = |of: &dyn Fn(Option<usize>) -> bool| {
        let inside = source.blocks.iter().filter(|(id, _)| of(way.flow.within[id.index()]));
        inside.map(|(_, block)| block.insts.len()).sum::<usize>()
    };
    let alone = |index: usize| loops.iter().all(|it| it.parent != Some(index));
    let only = |parent: usize| loops.iter().filter(|it| it.parent == Some(parent)).count() == 1;
    loops.iter().enumerate().any(|(index, it)| {
        if size(&|_| true) <= MOST_GLOBAL
            && alone(index)
            && retries_global(module, source, way, index)
        {
            return true;
        }
        let Some(parent) = it.parent.filter(|_| it.masked) else {
            return false;
        };
        let by_one = || is_of_one(module, source, way, loops[parent].header);
        if alone(index) && exchanges(source, way, index) && by_one() {
            return true;
        }
        only(parent)
            && alone(index)
            && retries(module, source, way, index)
            && size(&|at| at == Some(parent)) <= MOST_AROUND
            && size(&|at| at != Some(index)) <= MOST
    })
}

/// Whether a loop exchanges values that it compares.
fn exchanges(source: &Function, way: &Way, index: usize) -> bool {
    let mut blocks =
        source.blocks.iter().filter(|(id, _)| way.flow.within[id.index()] == Some(index));
    let is_one = |inst: &Inst| matches!(inst.op, Op::AtomicCompareExchange { .. });
    blocks.any(|(_, block)| block.insts.iter().any(is_one))
}

/// Whether all items that run enter a loop and exchange values in each turn, in memory that groups share, for what they
/// compute from those they have read there.
fn retries_global(module: &Module, source: &Function, way: &Way, index: usize) -> bool {
    let shape = |operand| match operand {
        Operand::Value(value) => way.shapes.of(value),
        Operand::Const(_) => Shape::Uniform,
    };
    let is_one = |inst: &Inst| match inst.op {
        Op::AtomicCompareExchange { ptr, expected, .. } => {
            let ty = &module.types[module.operand_type(source, ptr)];
            matches!(ty, Type::Pointer(AddressSpace::Global | AddressSpace::Generic))
                && shape(expected) != Shape::Uniform
        }
        _ => false,
    };
    let it = &way.flow.loops[index];
    let around = it.parent.map_or(ENTRY, |parent| way.flow.loops[parent].header);
    it.masked
        && way.flow.entry_leader[it.header.index()] == Some(way.flow.leader[around.index()])
        && way.flow.blocks_of(index).any(|block| {
            way.flow.leader[block.index()] == it.header
                && source.blocks[block].insts.iter().any(is_one)
        })
}

/// Whether at most one item of a row runs a block: its id has been compared with a number that all items share.
pub(super) fn is_of_one(module: &Module, source: &Function, way: &Way, block: BlockId) -> bool {
    let shape = |operand| match operand {
        Operand::Value(value) => way.shapes.of(value),
        Operand::Const(_) => Shape::Uniform,
    };
    let definitions = definitions(source);
    let is_id = |shape: Shape| matches!(shape, Shape::Strided { .. });
    // What holds, or does not, if a condition does, or does not; conditions are combined.
    let tells = |condition: Operand, holds: bool| {
        let mut work = vec![condition];
        while let Some(Operand::Value(value)) = work.pop() {
            let Some(Definition::Inst(home, at)) = definitions[value.index()] else { continue };
            match source.blocks[home].insts[at].op {
                Op::Compare(op @ (CompareOp::Eq | CompareOp::Ne), a, b)
                    if (op == CompareOp::Eq) == holds =>
                {
                    let (a, b) = (shape(a), shape(b));
                    if is_id(a) && b == Shape::Uniform || a == Shape::Uniform && is_id(b) {
                        return true;
                    }
                }
                Op::Binary(BinaryOp::And, a, b) if holds => work.extend([a, b]),
                Op::Binary(BinaryOp::Or, a, b) if !holds => work.extend([a, b]),
                Op::Select(a, b, no) if holds && module.operand_bits(no) == Some(0) => {
                    work.extend([a, b]);
                }
                Op::Select(a, yes, b) if !holds && module.operand_bits(yes) == Some(1) => {
                    work.extend([a, b]);
                }
                _ => {}
            }
        }
        false
    };
    source.blocks.iter().any(|(test, it)| {
        let Terminator::CondBranch(condition, yes, no) = it.terminator else { return false };
        [(yes, true), (no, false)].into_iter().any(|(to, holds)| {
            yes != no
                && way.flow.predecessors[to.index()] == [test]
                && way.flow.dominates(to, block)
                && tells(condition, holds)
        })
    })
}

/// Whether the items of a loop go one by one to places of their own in local memory.
fn retries(module: &Module, source: &Function, way: &Way, index: usize) -> bool {
    let local = |at: Operand| match at {
        Operand::Value(value) => {
            let ty = &module.types[source.values[value].ty];
            matches!(ty, Type::Pointer(AddressSpace::Local))
                && way.shapes.of(value) != Shape::Uniform
        }
        Operand::Const(_) => false,
    };
    let one_by_one = |inst: &Inst| match inst.op {
        Op::Store(at, _, access) => access.volatile && local(at),
        Op::AtomicCompareExchange { ptr, .. } => local(ptr),
        _ => false,
    };
    let mut blocks =
        source.blocks.iter().filter(|(id, _)| way.flow.within[id.index()] == Some(index));
    blocks.any(|(_, block)| block.insts.iter().any(one_by_one))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that try again until a change of local memory has succeeded.
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
//! kernel that does little else is faster one item at a time.

use super::shape::Shape;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{AddressSpace, Function, Inst, Module, Op, Operand, Type};

/// The most instructions beside the loop of retries: in the loop around it, and in the kernel. Histograms in local memory
/// have 13 to 16 and 46 to 61 of them; one item at a time they take 0.36 to 0.66 of the time. Rodinia's bucket sort has 67
/// and 116, since it searches for each element's bucket first, and takes 1.3 times as long.
const MOST_AROUND: usize = 32;
const MOST: usize = 128;

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
        let Some(parent) = it.parent.filter(|&parent| it.masked && only(parent)) else {
            return false;
        };
        alone(index)
            && retries(module, source, way, index)
            && size(&|at| at == Some(parent)) <= MOST_AROUND
            && size(&|at| at != Some(index)) <= MOST
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

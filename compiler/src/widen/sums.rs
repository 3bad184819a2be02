// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic additions with unused results, which groups sum up before they reach memory.
//!
//! ```text
//!   atomic_inc(&bins[x[i]])              add_later bins + x[i], 1
//! ```
//!
//! Relaxed additions are in no order with what other items do, so they may all seem to be the last that happens. For
//! the item itself that is true if nothing follows them but other such additions. `rt/sums.c` runs many groups as one
//! for these kernels, keeps their sums, and adds those to memory at the end.
//!
//! A generic pointer leads to global memory: these kernels have no local memory, and OpenCL C leaves atomics of private
//! memory undefined. A fault ends the kernel before the sums are added, which no one may rely on.
//!
//! Additions to one place for all items are combined anyway ([`super::atomics`]), and those of neighbours to
//! neighbouring places meet no place twice.

use super::shape::Shape;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{
    AddressSpace, AtomicOp, BlockId, Function, Inst, Module, Op, Operand, Ordering, Scope, Type,
    Uses,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "sums";

/// The size in bytes of the integers of which groups keep sums, if they do, for a kernel whose groups may join
/// ([`super::joins`]): then no update is in a loop.
pub(super) fn size(module: &Module, source: &Function, way: &Way) -> Option<u64> {
    let uses = Uses::of_function(source);
    let added = |inst: &Inst| {
        let unused = inst.result.is_none_or(|result| uses.of(result).is_empty());
        addition(module, source, &inst.op).filter(|_| unused)
    };
    let mut later = Vec::new();
    let mut sizes = Vec::new();
    for (id, block) in source.blocks.iter() {
        for (index, inst) in block.insts.iter().enumerate() {
            let Some((at, value)) = added(inst) else { continue };
            if way.shapes.at(&way.flow, at, id) == Some(Shape::Varying) {
                later.push((id, index));
                sizes.push(module.types.size(module.operand_type(source, value)));
            }
        }
    }
    let size = *sizes.first()?;
    let alike = matches!(size, 4 | 8) && sizes.iter().all(|&other| other == size);
    let follows = |inst: &Inst| added(inst).is_none() && touches(module, source, &inst.op);
    (alike && !is_skipped(NAME) && !is_any_behind(source, &later, follows)).then_some(size)
}

/// The place and the value of a relaxed addition to global memory that the host does not wait for.
pub(super) fn addition(module: &Module, source: &Function, op: &Op) -> Option<(Operand, Operand)> {
    use AtomicOp::{Add, Sub};
    let &Op::AtomicRmw(Add | Sub, at, value, Ordering::Relaxed, scope) = op else { return None };
    let ty = &module.types[module.operand_type(source, at)];
    let global = matches!(ty, Type::Pointer(AddressSpace::Global | AddressSpace::Generic));
    (global && scope != Scope::System).then_some((at, value))
}

/// Whether an item's operation is one on memory that others share, or has another effect.
fn touches(module: &Module, source: &Function, op: &Op) -> bool {
    let shared = |at: Operand| {
        let ty = &module.types[module.operand_type(source, at)];
        !matches!(ty, Type::Pointer(AddressSpace::Private | AddressSpace::Constant))
    };
    match op {
        Op::Load(at, _) | Op::Store(at, ..) => shared(*at),
        Op::Copy(to, from, ..) => shared(*to) || shared(*from),
        Op::Phi(_) | Op::Assume(_) => false,
        op => !op.is_pure(),
    }
}

/// Whether an instruction may run behind one of these in the same item.
fn is_any_behind(
    source: &Function,
    from: &[(BlockId, usize)],
    wanted: impl Fn(&Inst) -> bool,
) -> bool {
    let mut seen = vec![false; source.blocks.len()];
    let mut open = Vec::new();
    for &(id, index) in from {
        if source.blocks[id].insts[index + 1..].iter().any(&wanted) {
            return true;
        }
        open.extend(source.blocks[id].terminator.successors());
    }
    while let Some(id) = open.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        if source.blocks[id].insts.iter().any(&wanted) {
            return true;
        }
        open.extend(source.blocks[id].terminator.successors());
    }
    false
}

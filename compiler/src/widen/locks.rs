// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops in which an item waits for another one.
//!
//! ```text
//!   while (atomic_cmpxchg(&lock[i], 0, 1) != 0);      while (atomic_load(&done[before]) == 0);
//!   count[i]++;                                       x[i] = f(x[before]);
//!   atomic_xchg(&lock[i], 0);                         atomic_store(&done[i], 1);
//! ```
//!
//! All items of a vector leave such a loop together. If two of them want one lock, its owner stays in the loop until the
//! other one leaves, and never releases the lock. In scalar code each item finishes before the next one starts.
//! Clang moves the critical section behind the loop, even if the program has it inside.
//!
//! A turn of such a loop changes nothing by itself: it leaves the loop, or the next one does the same again. Loops that
//! try again with what they have read (lock-free updates), look elsewhere (hash tables) or fetch work (`atomic_inc`) do
//! not count.

use std::collections::HashSet;

use super::retries;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{
    AddressSpace, AtomicOp, BlockId, Definition, Function, Inst, Module, Op, Operand, Terminator,
    Type, definitions,
};

/// Whether items of a vector may wait for each other. An item that is alone in its vector waits for none there.
pub(super) fn may_wait(module: &Module, source: &Function, way: &Way) -> bool {
    let definitions = definitions(source);
    (0..way.flow.loops.len()).filter(|&index| way.flow.loops[index].masked).any(|index| {
        let this = Loop { module, source, way, definitions: &definitions, index };
        let mut ends = way.flow.blocks_of(index).filter(|&block| way.parting[block.index()]);
        ends.any(|block| this.waits_at(block))
            && !retries::is_of_one(module, source, way, way.flow.loops[index].header)
    })
}

/// A loop that items leave at different times.
#[derive(Clone, Copy)]
struct Loop<'a> {
    module: &'a Module,
    source: &'a Function,
    way: &'a Way,
    definitions: &'a [Option<Definition>],
    index: usize,
}

/// What values in a loop depend on.
#[derive(Default)]
struct Causes<'a> {
    /// Accesses to memory that others may change meanwhile; not what these depend on.
    looks: Vec<&'a Inst>,
    /// What earlier turns have done.
    turns: bool,
}

impl<'a> Loop<'a> {
    fn insts(self) -> impl Iterator<Item = &'a Inst> {
        let blocks = self.way.flow.blocks_of(self.index);
        blocks.flat_map(move |block| &self.source.blocks[block].insts)
    }

    /// Whether an item leaves the loop at the end of a block only once another one has changed memory.
    fn waits_at(self, block: BlockId) -> bool {
        let Terminator::CondBranch(condition, yes, no) = self.source.blocks[block].terminator
        else {
            return false;
        };
        if [yes, no].iter().all(|&to| self.way.flow.contains(self.index, to)) {
            return false;
        }
        let Causes { looks, turns } = self.causes(vec![condition], None);
        // A loop that writes and then only looks has changed what it looks at.
        let changes = |inst: &Inst| matches!(inst.op, Op::Store(..) | Op::AtomicStore(..));
        let acts = looks.iter().any(|inst| place(&inst.op).is_some());
        !turns
            && !looks.is_empty()
            && looks.iter().all(|inst| self.repeats(inst))
            && (acts || !self.insts().any(|inst| changes(inst) || place(&inst.op).is_some()))
    }

    /// Whether an access does the same in each turn, until something else has changed memory.
    fn repeats(self, inst: &Inst) -> bool {
        let changes_little = match inst.op {
            Op::AtomicRmw(AtomicOp::Add | AtomicOp::Sub | AtomicOp::Xor, _, value, ..) => {
                self.module.operand_bits(value) == Some(0)
            }
            Op::AtomicRmw(op, ..) => op != AtomicOp::FAdd,
            _ => true,
        };
        let mut operands = Vec::new();
        inst.op.for_each_operand(|operand| operands.push(operand));
        let Causes { looks, turns } = self.causes(operands, place(&inst.op));
        changes_little && looks.is_empty() && !turns
    }

    /// What operands depend on. Loads of `place` count as looks.
    fn causes(self, mut work: Vec<Operand>, place: Option<Operand>) -> Causes<'a> {
        let mut causes = Causes::default();
        let mut seen = HashSet::new();
        while let Some(operand) = work.pop() {
            let Operand::Value(value) = operand else { continue };
            let Some(Definition::Inst(block, at)) = self.definitions[value.index()] else {
                continue;
            };
            if !self.way.flow.contains(self.index, block) || !seen.insert(value) {
                continue;
            }
            let inst = &self.source.blocks[block].insts[at];
            let is_look = match inst.op {
                Op::Load(from, access) => access.volatile || Some(from) == place,
                Op::AtomicLoad(..) | Op::AtomicRmw(..) | Op::AtomicCompareExchange { .. } => true,
                _ => false,
            };
            if is_look {
                causes.looks.push(inst);
                continue;
            }
            causes.turns |= match inst.op {
                Op::Phi(_) => self
                    .way
                    .flow
                    .around(block)
                    .any(|index| self.way.flow.loops[index].header == block),
                Op::Load(from, _) => {
                    let ty = self.module.operand_type(self.source, from);
                    matches!(self.module.types[ty], Type::Pointer(AddressSpace::Private))
                }
                _ => false,
            };
            inst.op.for_each_operand(|operand| work.push(operand));
        }
        causes
    }
}

/// The place that an atomic operation updates.
fn place(op: &Op) -> Option<Operand> {
    match *op {
        Op::AtomicRmw(_, at, ..) | Op::AtomicCompareExchange { ptr: at, .. } => Some(at),
        _ => None,
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether all items of a group, or all vectors of them, reach the same barriers in the same
//! order.
//!
//! A value is *shared* if it is the same for all of them: arguments, sizes, and results computed from
//! such values. They diverge at branches on other values, and reconverge where all paths from there
//! have joined; the blocks between are a *detour*. So all run the blocks that are in no detour, in the
//! same order, and a phi there has the same value for all if its operands have. No barrier may lie in a
//! detour.

use std::collections::HashSet;

use super::barrier::stop_scope;
use crate::ir::arena::Id;
use crate::ir::{
    Block, BlockId, ConstKind, Function, GroupOp, Module, Op, Operand, Scope, Terminator, ValueId,
    WorkItemQuery,
};

/// The values that are the same for all items, or vectors of them, that run a function, if all
/// certainly reach the same barriers; `None` if they may not.
pub fn shared(module: &Module, function: &Function) -> Option<Shared> {
    let behind = Behind::new(function)?;
    let mut shared = Shared::new(module, function);
    let mut parting = HashSet::new();
    // Each round finds divergent branches, or is the last one.
    loop {
        shared.update(module, function);
        let parts = |(id, block): (BlockId, &Block)| {
            let on = match block.terminator {
                Terminator::CondBranch(value, ..) | Terminator::Switch { value, .. } => value,
                _ => return None,
            };
            (!shared.has(module, on)).then_some(id)
        };
        let new: Vec<BlockId> =
            function.blocks.iter().filter_map(parts).filter(|id| !parting.contains(id)).collect();
        if new.is_empty() {
            return Some(shared);
        }
        for from in new {
            parting.insert(from);
            for (id, meets) in behind.detour(function, from) {
                let block = &function.blocks[id];
                if !meets && block.insts.iter().any(|inst| stop_scope(&inst.op).is_some()) {
                    return None;
                }
                for result in block.phis().filter_map(|phi| phi.result) {
                    shared.drop(result);
                }
            }
        }
    }
}

/// The values that are the same for all.
pub struct Shared(Vec<bool>);

impl Shared {
    /// Whether a value is the same for all that compute it between the same two barriers.
    pub fn contains(&self, value: ValueId) -> bool {
        self.0[value.index()]
    }

    /// All values except those that are known from the start to differ.
    fn new(module: &Module, function: &Function) -> Self {
        let mut shared = Self(vec![true; function.values.len()]);
        for variable in &function.variables {
            shared.drop(variable.address);
        }
        for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
            let Some(result) = inst.result else { continue };
            let mut known = true;
            inst.op.for_each_operand(|operand| known &= shared.has(module, operand));
            if !(known && can_share(&inst.op)) {
                shared.drop(result);
            }
        }
        shared
    }

    fn has(&self, module: &Module, operand: Operand) -> bool {
        match operand {
            Operand::Value(value) => self.0[value.index()],
            // An undefined value may differ each time.
            Operand::Const(id) => !matches!(module.constants[id].kind, ConstKind::Undef),
        }
    }

    fn drop(&mut self, value: ValueId) {
        self.0[value.index()] = false;
    }

    /// Drops values computed from dropped ones.
    fn update(&mut self, module: &Module, function: &Function) {
        let mut changed = true;
        while changed {
            changed = false;
            for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
                let Some(result) = inst.result.filter(|result| self.0[result.index()]) else {
                    continue;
                };
                let mut all = true;
                inst.op.for_each_operand(|operand| all &= self.has(module, operand));
                if !all {
                    self.drop(result);
                    changed = true;
                }
            }
        }
    }
}

/// Whether an operation has the same result for all that execute it with the same operands.
fn can_share(op: &Op) -> bool {
    use WorkItemQuery as Q;
    match op {
        Op::WorkItem(query, _) => matches!(
            query,
            Q::GlobalSize
                | Q::GlobalOffset
                | Q::GroupId
                | Q::NumGroups
                | Q::LocalSize
                | Q::EnqueuedLocalSize
                | Q::WorkDim
                | Q::SubgroupMaxSize
                | Q::NumSubgroups
                | Q::NumEnqueuedSubgroups
        ),
        Op::Phi(_)
        | Op::Unary(..)
        | Op::Binary(..)
        | Op::Ternary(..)
        | Op::Compare(..)
        | Op::Test(..)
        | Op::Select(..)
        | Op::Convert(..)
        | Op::Math(..)
        | Op::Construct(_)
        | Op::Extract(..)
        | Op::Splat(_)
        | Op::Any(_)
        | Op::Address { .. } => true,
        Op::Shuffle(_, _, picks) => picks.iter().all(Option::is_some),
        // All stop there, as none is in a detour.
        Op::Collect(GroupOp::Reduce(_, None), Scope::Workgroup, _) => true,
        _ => false,
    }
}

/// For each block, the blocks on every path from it to the end.
struct Behind(Vec<HashSet<BlockId>>);

impl Behind {
    /// The maximum number of blocks of a function that is analysed: the size of the sets is quadratic
    /// in it.
    const MAX_BLOCKS: usize = 512;

    /// `None` if there are too many blocks, or some from which there is no path to the end.
    fn new(function: &Function) -> Option<Self> {
        let count = function.blocks.len();
        if count > Self::MAX_BLOCKS {
            return None;
        }
        // Blocks that have not been visited yet have no set.
        let mut behind: Vec<Option<HashSet<BlockId>>> = vec![None; count];
        let mut changed = true;
        while changed {
            changed = false;
            for id in function.blocks.ids().rev() {
                let next = function.blocks[id].terminator.successors();
                let mut all: Option<HashSet<BlockId>> = next.is_empty().then(HashSet::new);
                for to in next {
                    let Some(further) = &behind[to.index()] else { continue };
                    let with = || further.iter().copied().chain([to]);
                    match &mut all {
                        None => all = Some(with().collect()),
                        Some(all) => all.retain(|id| *id == to || further.contains(id)),
                    }
                }
                if all != behind[id.index()] {
                    behind[id.index()] = all;
                    changed = true;
                }
            }
        }
        behind.into_iter().collect::<Option<Vec<_>>>().map(Self)
    }

    /// The blocks that items may run after diverging at the end of a block and before all reconverge;
    /// and, marked with `true`, the block where they do.
    fn detour(&self, function: &Function, from: BlockId) -> Vec<(BlockId, bool)> {
        let meet = &self.0[from.index()];
        let mut work = function.blocks[from].terminator.successors();
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        while let Some(id) = work.pop() {
            if !seen.insert(id) {
                continue;
            }
            let meets = meet.contains(&id);
            found.push((id, meets));
            if !meets {
                work.extend(function.blocks[id].terminator.successors());
            }
        }
        found
    }
}

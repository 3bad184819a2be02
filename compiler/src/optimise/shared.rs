// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves mathematical functions of what all items share in front of tests that differ from item to item.
//!
//! ```text
//!   if (x >= w) return;                     t = pow(2, gain);
//!   out[x] = in[x] * pow(2, gain);   ──▶    if (x >= w) return;
//!                                           out[x] = in[x] * t;
//! ```
//!
//! There LLVM takes them out of the loop over a group's vectors. From behind a test it does not: the functions load from
//! tables, at places that it does not know to exist. What is behind a test of the launch's arguments, or one for equality,
//! which few items pass, stays there: it may never be needed.

use std::collections::HashSet;

use super::is_skipped;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, Dominators, Function, Id, Inst, Op, Operand, Terminator, ValueId,
    WorkItemQuery,
};
use crate::regions::stop_scope;

/// The name by which it is left out.
const NAME: &str = "shared-maths";

/// The longest way back from a function to what is known in front of the tests.
const MAX_DEPTH: usize = 32;

/// Runs the pass over a function whose blocks can all be reached. What is in front of a barrier would have to be kept for
/// what is behind it.
pub(super) fn run(function: &mut Function) {
    let any = |is: &dyn Fn(&Op) -> bool| {
        function.blocks.iter().flat_map(|(_, block)| &block.insts).any(|inst| is(&inst.op))
    };
    let has_maths = any(&|op| matches!(op, Op::Math(..)));
    if !has_maths || is_skipped(NAME) || any(&|op| stop_scope(op).is_some()) {
        return;
    }
    let dominators = Dominators::of(function, &function.predecessors());
    let mut homes = vec![None; function.values.len()];
    let (mut maths, mut equalities) = (Vec::new(), HashSet::new());
    let sharers = sharers(function, &dominators);
    for &home in dominators.order() {
        for inst in &function.blocks[home].insts {
            let Some(result) = inst.result else { continue };
            homes[result.index()] = Some(home);
            match inst.op {
                Op::Math(..) if sharers[result.index()] != Sharers::None => maths.push(result),
                Op::Compare(CompareOp::Eq | CompareOp::Ne, ..) => drop(equalities.insert(result)),
                _ => (),
            }
        }
    }
    let mut mover = Mover { function, dominators, sharers, homes, equalities };
    for value in maths {
        let Some(home) = mover.homes[value.index()] else { continue };
        let target = mover.in_front(home);
        if target != home {
            mover.take(value, target);
        }
    }
}

struct Mover<'a> {
    function: &'a mut Function,
    dominators: Dominators,
    /// By value, which items share it.
    sharers: Vec<Sharers>,
    /// By value, the block of the instruction that makes it.
    homes: Vec<Option<BlockId>>,
    /// The comparisons for equality.
    equalities: HashSet<ValueId>,
}

/// Those that share a value, the fewest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sharers {
    None,
    /// Items that follow one another in the first dimension.
    Row,
    Launch,
}

impl Mover<'_> {
    /// The first block on the way to another one from which only tests lead there that items may pass alone.
    fn in_front(&self, home: BlockId) -> BlockId {
        let mut at = home;
        while let Some(before) = self.dominators.parent(at) {
            let passes = match &self.function.blocks[before].terminator {
                Terminator::CondBranch(test, ..) => self.parts_items(*test),
                Terminator::Switch { .. } => false,
                _ => true,
            };
            if !passes {
                break;
            }
            at = before;
        }
        at
    }

    /// Whether a test differs between items, and many of them may pass it either way.
    fn parts_items(&self, test: Operand) -> bool {
        let Operand::Value(value) = test else { return false };
        self.sharers[value.index()] != Sharers::Launch && !self.equalities.contains(&value)
    }

    /// Moves the instruction that makes a value, and those that it needs, to the end of a block that dominates it.
    fn take(&mut self, value: ValueId, target: BlockId) {
        let mut needs = Vec::new();
        if !self.needs(value, target, &mut needs, MAX_DEPTH) {
            return;
        }
        for value in needs {
            let Some(home) = self.homes[value.index()].replace(target) else { continue };
            let insts = &mut self.function.blocks[home].insts;
            let place = insts.iter().position(|inst| inst.result == Some(value));
            let inst = place.map(|place| insts.remove(place));
            self.function.blocks[target].insts.extend(inst);
        }
    }

    /// Collects a value and what it needs that is not there in a block, in order. Whether all of it may move there.
    fn needs(
        &self,
        value: ValueId,
        target: BlockId,
        needs: &mut Vec<ValueId>,
        depth: usize,
    ) -> bool {
        let Some(home) = self.homes[value.index()] else { return true };
        if needs.contains(&value) || self.dominators.dominates(home, target) {
            return true;
        }
        let mut insts = self.function.blocks[home].insts.iter();
        let Some(inst) = insts.find(|inst| inst.result == Some(value)) else { return false };
        let mut may = may_move(inst) && depth > 0;
        inst.op.for_each_operand(|operand| {
            if let Operand::Value(it) = operand {
                may = may && self.needs(it, target, needs, depth - 1);
            }
        });
        needs.push(value);
        may
    }
}

/// Whether an instruction may run where it would not have run.
fn may_move(inst: &Inst) -> bool {
    match inst.op {
        Op::Math(..) | Op::Binary(BinaryOp::FDiv, ..) | Op::Unary(..) => true,
        _ => super::invariants::is_harmless(&inst.op),
    }
}

/// By value, which items share it, as far as that is seen without following phis.
fn sharers(function: &Function, dominators: &Dominators) -> Vec<Sharers> {
    let mut sharers = vec![Sharers::None; function.values.len()];
    for param in &function.params {
        sharers[param.index()] = Sharers::Launch;
    }
    // Each value is behind those that it is computed from.
    for &id in dominators.order() {
        for inst in &function.blocks[id].insts {
            let Some(result) = inst.result else { continue };
            let mut of = match inst.op {
                Op::WorkItem(query, dimension) => of_query(query, dimension),
                Op::Load(_, access) if access.volatile => Sharers::None,
                Op::Load(..) => Sharers::Launch,
                _ if inst.op.is_pure() => Sharers::Launch,
                _ => Sharers::None,
            };
            inst.op.for_each_operand(|operand| {
                if let Operand::Value(it) = operand {
                    of = of.min(sharers[it.index()]);
                }
            });
            sharers[result.index()] = of;
        }
    }
    sharers
}

fn of_query(query: WorkItemQuery, dimension: u8) -> Sharers {
    use WorkItemQuery as Q;
    match query {
        Q::GlobalId | Q::LocalId if dimension > 0 => Sharers::Row,
        Q::GroupId | Q::LocalSize => Sharers::Row,
        Q::GlobalSize | Q::GlobalOffset | Q::NumGroups | Q::EnqueuedLocalSize | Q::WorkDim => {
            Sharers::Launch
        }
        _ => Sharers::None,
    }
}

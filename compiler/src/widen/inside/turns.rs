// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops by which a launch of any size does all of the work: `for (i = get_global_id(0); i < n; i += get_global_size(0))`.

use std::collections::HashSet;

use crate::ir::arena::Id;
use crate::ir::{BlockId, Function, Module, Op, Operand, Terminator, ValueId, WorkItemQuery};
use crate::optimise::is_skipped;
use crate::widen::edges::Finder;
use crate::widen::way::Way;

/// The name by which they are left out.
const NAME: &str = "one-turn";

/// A loop that items may leave after their first turn.
pub(super) struct Turns {
    header: BlockId,
    latch: BlockId,
    exit: BlockId,
    /// The condition at the end of a turn, and what it is if there is another one.
    pub(super) condition: Operand,
    pub(super) when: bool,
}

/// The loops whose items go on by the size of the launch.
pub(super) fn all(module: &Module, function: &Function, way: &Way) -> Vec<Turns> {
    if is_skipped(NAME) {
        return Vec::new();
    }
    let finder = Finder::new(module, function, way);
    let predecessors = function.predecessors();
    let outer = way.flow.loops.iter().filter(|it| it.masked && it.parent.is_none());
    let found = outer.filter_map(|it| {
        let header = it.header;
        let &[a, b] = predecessors[header.index()].as_slice() else { return None };
        let is_turn = |from| way.flow.back_edge(from, header).is_some();
        let latch = match (is_turn(a), is_turn(b)) {
            (true, false) => a,
            (false, true) => b,
            _ => return None,
        };
        let (condition, when, exit) = match function.blocks[latch].terminator {
            Terminator::CondBranch(condition, yes, no) if yes == header => (condition, true, no),
            Terminator::CondBranch(condition, yes, no) if no == header => (condition, false, yes),
            _ => return None,
        };
        let phis = finder.phis(&[condition])?;
        let own: HashSet<ValueId> =
            function.blocks[header].phis().filter_map(|phi| phi.result).collect();
        let mut counters = function.blocks[header]
            .phis()
            .filter(|phi| phi.result.is_some_and(|result| phis.contains(&result)));
        let strides = counters.all(|phi| {
            let Op::Phi(arms) = &phi.op else { return false };
            let arms = arms.iter();
            let (next, first): (Vec<_>, Vec<_>) = arms.copied().partition(|arm| arm.0 == latch);
            let [next, first] =
                [next, first].map(|arms| arms.iter().map(|arm| arm.1).collect::<Vec<_>>());
            finder.phis(&first).is_some_and(|phis| phis.is_empty())
                && depends_on_size(&finder, next)
        });
        let strides = strides && !phis.is_empty() && phis.is_subset(&own);
        strides.then_some(Turns { header, latch, exit, condition, when })
    });
    found.collect()
}

/// Whether numbers depend on the size of the launch.
fn depends_on_size(finder: &Finder<'_>, numbers: Vec<Operand>) -> bool {
    let (mut work, mut seen) = (numbers, HashSet::new());
    while let Some(operand) = work.pop() {
        match finder.op(operand) {
            Some(Op::WorkItem(WorkItemQuery::GlobalSize | WorkItemQuery::NumGroups, _)) => {
                return true;
            }
            Some(Op::Phi(_)) | None => {}
            Some(op) if seen.insert(operand) => op.for_each_operand(|operand| work.push(operand)),
            Some(_) => {}
        }
    }
    false
}

impl Turns {
    /// Makes the loop's body what is done once.
    pub(super) fn do_once(&self, function: &mut Function) {
        function.blocks[self.latch].terminator = Terminator::Branch(self.exit);
        let mut firsts: Vec<(ValueId, Operand)> = Vec::new();
        function.blocks[self.header].insts.retain(|inst| match (&inst.op, inst.result) {
            (Op::Phi(arms), Some(result)) => {
                let first = arms.iter().find(|arm| arm.0 != self.latch);
                firsts.extend(first.map(|arm| (result, arm.1)));
                false
            }
            _ => true,
        });
        let rename = |operand: &mut Operand| {
            // What comes from outside of the loop is none of its phis.
            if let Some(first) = firsts.iter().find(|it| Operand::Value(it.0) == *operand) {
                *operand = first.1;
            }
        };
        for (_, block) in function.blocks.iter_mut() {
            block.insts.iter_mut().for_each(|inst| inst.op.for_each_operand_mut(rename));
            block.terminator.for_each_operand_mut(rename);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folds constants and removes redundant computations.
//!
//! Phis whose arms compute the same become that computation ([`alike`]). One walk down the dominator tree folds constants, drops operations that change nothing, and replaces
//! a value that was computed before by the earlier one (value numbering). A branch on a constant
//! becomes unconditional, and blocks that only follow one another are merged.
//!
//! A value is not reused outside of its loop: behind a loop that the items of a vector leave at
//! different times, each value of the loop has to be kept for every item. Where items wait for each
//! other, only values of one cheap instruction are shared across the wait: they are recomputed behind
//! it, while any other value would have to be saved.

use std::collections::HashMap;

use super::identities::Known;
use super::rename::rename;
use super::{alike, blocks};
use crate::ir::{
    BinaryOp, BlockId, ConvertOp, Dominators, ENTRY, Flags, Function, Id, Inst, Loops, Module, Op,
    Operand, Terminator, TypeId, ValueId,
};
use crate::regions::stop_scope;

/// Simplifies a function.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let predecessors = function.predecessors();
    let dominators = Dominators::of(function, &predecessors);
    let loops = Loops::of(&dominators, &predecessors);
    alike::run(function, &loops, &predecessors);
    let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let waits = insts.any(|inst| stop_scope(&inst.op).is_some());
    drop(insts);
    let mut walk = Walk {
        loops,
        waits,
        stops: 0,
        known: Known::new(function),
        numbered: HashMap::new(),
        added: Vec::new(),
        replaced: HashMap::new(),
    };
    walk.run(module, function, &dominators);
    rename(function, &walk.replaced);
    go_one_way(module, function);
    blocks::remove_unreachable(function);
    drop_single_phis(function);
    blocks::join_chains(function);
}

/// An operation with everything that its result depends on.
type Key = (Op, TypeId, Flags);

/// A value, its block, and the stops before it.
type Numbered = (ValueId, BlockId, usize);

struct Walk {
    loops: Loops,
    /// Whether items wait for each other anywhere.
    waits: bool,
    /// The number of waits and blocks so far.
    stops: usize,
    known: Known,
    /// The values of operations in the dominating blocks.
    numbered: HashMap<Key, Numbered>,
    /// The keys of the dominating blocks in order, with their previous values.
    added: Vec<(Key, Option<Numbered>)>,
    replaced: HashMap<ValueId, Operand>,
}

impl Walk {
    fn run(&mut self, module: &mut Module, function: &mut Function, dominators: &Dominators) {
        let mut stack = vec![(ENTRY, 0, 0)];
        while let Some((block, next, mark)) = stack.last_mut() {
            if *next == 0 {
                *mark = self.added.len();
                self.block(module, function, *block);
            }
            let child = dominators.children(*block).get(*next).copied();
            *next += 1;
            if let Some(child) = child {
                stack.push((child, 0, 0));
                continue;
            }
            for (key, before) in self.added.drain(*mark..).rev() {
                match before {
                    Some(before) => self.numbered.insert(key, before),
                    None => self.numbered.remove(&key),
                };
            }
            stack.pop();
        }
    }

    fn block(&mut self, module: &mut Module, function: &mut Function, id: BlockId) {
        self.stops += 1;
        let mut insts = std::mem::take(&mut function.blocks[id].insts);
        insts.retain_mut(|inst| self.keeps(module, function, id, inst));
        let block = &mut function.blocks[id];
        block.insts = insts;
        block.terminator.for_each_operand_mut(|operand| *operand = self.resolved(*operand));
    }

    fn resolved(&self, mut operand: Operand) -> Operand {
        while let Operand::Value(value) = operand
            && let Some(&name) = self.replaced.get(&value)
        {
            operand = name;
        }
        operand
    }

    /// Simplifies an instruction; `false` if another value replaces it.
    fn keeps(
        &mut self,
        module: &mut Module,
        function: &Function,
        block: BlockId,
        inst: &mut Inst,
    ) -> bool {
        if stop_scope(&inst.op).is_some() {
            self.stops += 1;
        }
        inst.op.for_each_operand_mut(|operand| *operand = self.resolved(*operand));
        if let Op::Report { mistake: Operand::Const(id), .. } = inst.op {
            return module.const_bits(id) != Some(0);
        }
        let Some(result) = inst.result else { return true };
        let ty = function.values[result].ty;
        if let Some(name) = self.known.simplified(module, function, inst, ty) {
            let name = self.resolved(name);
            if name != Operand::Value(result) {
                self.replaced.insert(result, name);
                return false;
            }
        }
        if !inst.op.is_pure() {
            return true;
        }
        let key = (ordered(&inst.op), ty, inst.flags);
        if let Some(&(value, home, stops)) = self.numbered.get(&key)
            && self.may_share(&inst.op, home, block, stops)
        {
            self.replaced.insert(result, Operand::Value(value));
            return false;
        }
        self.known.note(result, &inst.op);
        let before = self.numbered.insert(key.clone(), (result, block, self.stops));
        self.added.push((key, before));
        true
    }

    /// Whether a block may use a value of a dominating block.
    fn may_share(&self, op: &Op, home: BlockId, user: BlockId, stops: usize) -> bool {
        let leaves = self.loops.within[home.index()];
        let same_loop = leaves.is_none_or(|index| self.loops.contains(index, user));
        same_loop && (!self.waits || stops == self.stops || is_cheap(op))
    }
}

/// Whether a value is recomputed behind a wait instead of being saved, as long as its operands are
/// saved.
pub(super) fn is_cheap(op: &Op) -> bool {
    use BinaryOp as B;
    use ConvertOp as C;
    match op {
        Op::WorkItem(..) | Op::Address { .. } => true,
        Op::Convert(kind, _) => matches!(kind, C::Trunc | C::SExt | C::ZExt | C::PtrCast),
        Op::Binary(kind, ..) => matches!(kind, B::Add | B::Sub | B::Mul | B::And | B::Shl),
        _ => false,
    }
}

/// An operation with its operands in canonical order, if their order does not matter.
fn ordered(op: &Op) -> Op {
    use BinaryOp as B;
    let rank = |operand: Operand| match operand {
        Operand::Value(value) => (0, value.0),
        Operand::Const(id) => (1, id.0),
    };
    match *op {
        Op::Binary(
            kind @ (B::Add
            | B::Mul
            | B::And
            | B::Or
            | B::Xor
            | B::SMin
            | B::SMax
            | B::UMin
            | B::UMax),
            a,
            b,
        ) if rank(a) > rank(b) => Op::Binary(kind, b, a),
        _ => op.clone(),
    }
}

/// Makes branches on constants, and those with one target, unconditional.
fn go_one_way(module: &Module, function: &mut Function) {
    for id in function.blocks.ids() {
        let bits = |operand: &Operand| module.operand_bits(*operand);
        let end = &function.blocks[id].terminator;
        let to = match end {
            Terminator::CondBranch(_, yes, no) if yes == no => Some(*yes),
            Terminator::CondBranch(condition, yes, no) => {
                bits(condition).map(|bits| if bits != 0 { *yes } else { *no })
            }
            Terminator::Switch { value, default, cases } => bits(value).map(|bits| {
                let case = cases.iter().find(|(case, _)| *case == bits);
                case.map_or(*default, |&(_, block)| block)
            }),
            _ => None,
        };
        let Some(to) = to else { continue };
        let mut left = end.successors();
        left.retain(|&next| next != to);
        function.blocks[id].terminator = Terminator::Branch(to);
        for next in left {
            for inst in &mut function.blocks[next].insts {
                let Op::Phi(incoming) = &mut inst.op else { break };
                incoming.retain(|&(from, _)| from != id);
            }
        }
    }
}

/// Replaces phis with one remaining arm by the value that arrives.
pub(super) fn drop_single_phis(function: &mut Function) {
    let mut names = HashMap::new();
    for (_, block) in function.blocks.iter_mut() {
        block.insts.retain(|inst| match (&inst.op, inst.result) {
            (Op::Phi(incoming), Some(result)) if incoming.len() == 1 => {
                names.insert(result, incoming[0].1);
                false
            }
            _ => true,
        });
    }
    // In reachable code no phi with one arm has itself as operand.
    rename(function, &names);
}

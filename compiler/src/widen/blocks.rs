// SPDX-License-Identifier: MIT OR Apache-2.0
//! The widened control flow: masks, pending blocks, and the values of phis.

use std::collections::{BTreeSet, HashMap};

use super::build::Var;
use super::emit::{Mask, Place, Widener};
use super::flow::Node;
use super::ops::divides;
use super::refusal::Refusal;
use super::shape::Shape;
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, Block, BlockId, CompareOp, ENTRY, Inst, Op, Operand, Scope, Terminator, UnaryOp,
};
use crate::regions;

/// The maximum number of values of a widened function.
const MAX_WIDENED: usize = 1 << 19;

impl Widener<'_> {
    /// The items of a mask for which a vector of `bool` is true. Its other components may be undefined.
    pub(super) fn and(&mut self, mask: Mask, condition: Operand) -> Operand {
        let Some(mask) = mask else { return condition };
        let ty = self.out.mask_type();
        let none = self.out.null(ty);
        self.out.value(Op::Select(mask, condition, none), ty)
    }

    fn or(&mut self, a: Operand, b: Operand) -> Operand {
        let ty = self.out.mask_type();
        if a == self.out.null(ty) {
            return b;
        }
        self.out.value(Op::Binary(BinaryOp::Or, a, b), ty)
    }

    pub(super) fn not(&mut self, a: Operand) -> Operand {
        let ty = self.out.mask_type();
        self.out.value(Op::Unary(UnaryOp::Not, a), ty)
    }

    /// A mask as a value.
    pub(super) fn mask_value(&mut self) -> Operand {
        match self.mask {
            Some(mask) => mask,
            None => self.out.all(),
        }
    }

    /// The places that may be pending when a block has run, without its own successors.
    fn pending(&self, place: usize, block: BlockId) -> BTreeSet<usize> {
        let mut pending = self.flow.pending[place].clone();
        let equals = self.flow.equals_of(block).iter();
        pending.extend(equals.map(|other| self.flow.place[other.index()]));
        pending
    }

    /// Ends the block that is being written with a jump to the first place that may be pending.
    fn go(&mut self, pending: &BTreeSet<usize>) {
        match pending.first() {
            Some(&next) => self.out.end(Terminator::Branch(self.labels[next])),
            None => self.out.end(Terminator::Return(None)),
        }
    }

    pub(super) fn write_latch(&mut self, place: usize, index: usize) {
        let header = self.flow.loops[index].header;
        let Some(waiting) = self.waiting[header.index()] else { return };
        let mask = self.out.read(waiting);
        let bool = self.out.module.types.bool();
        let any = self.out.value(Op::Any(mask), bool);
        let leave = self.out.new_block();
        let again = self.bodies[self.flow.loops[index].first];
        self.out.end(Terminator::CondBranch(any, again, leave));
        self.out.switch_to(leave);
        let ty = self.out.mask_type();
        let none = self.out.null(ty);
        self.out.write(waiting, none);
        self.go(&self.flow.pending[place].clone());
    }

    pub(super) fn write_block(&mut self, place: usize, id: BlockId) -> Result<(), Refusal> {
        let block = &self.from.blocks[id];
        self.block = id;
        self.out.loc = block.loc;
        let leader = self.flow.leader[id.index()];
        if leader == id && id != ENTRY {
            self.enter(place, id);
        } else {
            self.mask = self.running[leader.index()].map(|var| self.out.read(var));
        }
        for result in block.phis().filter_map(|inst| inst.result) {
            match self.arriving[result.index()].clone() {
                Place::One(var) => {
                    let value = self.out.read(var);
                    self.set_one(result, value)?;
                }
                Place::Vectors(vars) => {
                    let values: Vec<Operand> =
                        vars.into_iter().map(|var| self.out.read(var)).collect();
                    self.set(result, &values)?;
                }
                Place::Interleaved(vars) => {
                    let values: Vec<Operand> =
                        vars.into_iter().map(|var| self.out.read(var)).collect();
                    self.set_interleaved(result, &values);
                }
                Place::Nowhere => {}
            }
        }
        for inst in block.insts.iter().skip(block.phis().count()) {
            self.out.loc = inst.loc;
            if self.out.function.values.len() > MAX_WIDENED {
                return Err(Refusal::new("too many instructions once widened"));
            }
            if regions::stop_scope(&inst.op) == Some(Scope::Workgroup) {
                self.check_stop(place, id, inst)?;
            }
            self.inst(inst)?;
        }
        self.write_kept();
        self.out.loc = block.loc;
        self.terminator(place, id, block)
    }

    /// Starts a block with a mask of its own, and skips it if the mask is empty.
    fn enter(&mut self, place: usize, id: BlockId) {
        let (Some(waiting), Some(running)) = (self.waiting[id.index()], self.running[id.index()])
        else {
            return;
        };
        let ty = self.out.mask_type();
        let masked_header = self.flow.back_edges_are_masked(id);
        let skip = if masked_header {
            self.flow.entry_leader[id.index()].is_none()
        } else {
            !self.harmless(id)
        };
        if skip {
            let mask = self.out.read(waiting);
            let bool = self.out.module.types.bool();
            let any = self.out.value(Op::Any(mask), bool);
            let (body, leave) = (self.out.new_block(), self.out.new_block());
            self.out.end(Terminator::CondBranch(any, body, leave));
            self.out.switch_to(leave);
            // The test implies this; LLVM would keep the mask alive until it is united with another.
            let none = self.out.null(ty);
            self.out.write(waiting, none);
            self.go(&self.flow.pending[place].clone());
            self.out.switch_to(body);
            self.bodies[place] = body;
        } else if masked_header {
            // The latch jumps back here, past the code that may be in front.
            let body = self.out.new_block();
            self.out.end(Terminator::Branch(body));
            self.out.switch_to(body);
            self.bodies[place] = body;
        }
        let mask = self.out.read(waiting);
        let none = self.out.null(ty);
        self.out.write(waiting, none);
        self.out.write(running, mask);
        self.mask = Some(mask);
    }

    /// Whether a block may run without items: it has a few operations on values, and no other block
    /// relies on its having items. Flags and assumptions may not hold then, so that LLVM may take the
    /// values for anything; only a divisor must not be. Divisors that differ between the items are
    /// masked.
    fn harmless(&self, id: BlockId) -> bool {
        const FEW: usize = 6;
        let block = &self.from.blocks[id];
        let follows = |other: &BlockId| *other == id;
        let led = self.flow.leader.iter().filter(|leader| follows(leader)).count();
        let led = led + self.flow.entry_leader.iter().flatten().filter(|l| follows(l)).count();
        led == 1
            && block.insts.len() <= FEW
            && matches!(block.terminator, Terminator::Branch(_))
            && block.insts.iter().all(|inst| {
                let uniform =
                    inst.result.map(|result| self.shapes.of(result)) == Some(Shape::Uniform);
                match inst.op {
                    Op::Binary(kind, ..) => !(divides(kind) && uniform),
                    Op::Phi(_)
                    | Op::Unary(..)
                    | Op::Ternary(..)
                    | Op::Compare(..)
                    | Op::Test(..)
                    | Op::Select(..)
                    | Op::Convert(..)
                    | Op::Address { .. }
                    | Op::WorkItem(..) => true,
                    _ => false,
                }
            })
    }

    /// Where items of a work-group exchange values, all items of the vector have to be together. A pending
    /// block that all of them run later has no item yet: one behind a loop is pending in all of it.
    ///
    /// The same holds for a barrier in a kernel that tells which items reach it. In others, the vector stops there if
    /// any of its items does. In valid programs all items of a group do or none does, and the test (`row < rows`)
    /// only looks as if it parted them; items of others that do not reach the barrier wait where they meet again.
    fn check_stop(&self, place: usize, id: BlockId, inst: &Inst) -> Result<(), Refusal> {
        if self.may_part && matches!(inst.op, Op::ControlBarrier { .. }) {
            return Ok(());
        }
        let led = |block: BlockId| self.flow.leader[block.index()] == ENTRY;
        let empty = |&place: &usize| match self.flow.order[place] {
            Node::Block(block) => led(block),
            Node::Latch(_) => false,
        };
        let together = led(id)
            && self.flow.masked_around(id).is_none()
            && self.flow.pending[place].iter().all(empty);
        if together {
            return Ok(());
        }
        Err(Refusal::of_rows("a barrier where the items of a vector may have parted"))
    }

    fn terminator(&mut self, place: usize, id: BlockId, block: &Block) -> Result<(), Refusal> {
        let mut pending = self.pending(place, id);
        let mut next = block.terminator.successors();
        next.sort();
        next.dedup();
        if next.is_empty() {
            self.go(&pending);
            return Ok(());
        }
        let parts = self.shapes.parts(self.from, self.flow, id);
        if parts {
            let masks = self.edge_masks(&block.terminator)?;
            for (to, mask) in masks {
                self.edge(id, to, Some(mask))?;
                self.add_target(id, to, &mut pending);
            }
            self.go(&pending);
            return Ok(());
        }
        if let [to] = next[..] {
            self.edge(id, to, self.mask)?;
            self.leave_for(id, to, &pending);
            return Ok(());
        }
        let mut edges = HashMap::new();
        for &to in &next {
            edges.insert(to, self.out.new_block());
        }
        let mut end = block.terminator.clone();
        if let Terminator::CondBranch(value, ..) | Terminator::Switch { value, .. } = &mut end {
            *value = self.one(*value);
        }
        end.for_each_successor_mut(|to| *to = edges[to]);
        self.out.end(end);
        for &to in &next {
            self.out.switch_to(edges[&to]);
            self.edge(id, to, self.mask)?;
            self.leave_for(id, to, &pending);
        }
        Ok(())
    }

    /// Ends the block with a jump to the target of all its items.
    fn leave_for(&mut self, from: BlockId, to: BlockId, pending: &BTreeSet<usize>) {
        if let Some(index) = self.flow.back_edge(from, to)
            && !self.flow.loops[index].masked
        {
            let header = self.labels[self.flow.loops[index].first];
            self.out.end(Terminator::Branch(header));
            return;
        }
        let mut pending = pending.clone();
        self.add_target(from, to, &mut pending);
        self.go(&pending);
    }

    fn add_target(&self, from: BlockId, to: BlockId, pending: &mut BTreeSet<usize>) {
        if self.flow.back_edge(from, to).is_none() {
            pending.insert(self.flow.place[to.index()]);
        }
        for index in self.flow.around(to) {
            if self.flow.loops[index].masked {
                pending.insert(self.flow.loops[index].latch);
            }
        }
    }

    /// The items that take each edge of a divergent branch.
    fn edge_masks(&mut self, end: &Terminator) -> Result<Vec<(BlockId, Operand)>, Refusal> {
        match end {
            &Terminator::CondBranch(condition, yes, no) => {
                let condition = self.vector(condition)?;
                let others = self.not(condition);
                Ok(vec![(yes, self.and(self.mask, condition)), (no, self.and(self.mask, others))])
            }
            Terminator::Switch { value, default, cases } => {
                let value = self.vector(*value)?;
                let ty = self.out.type_of(value);
                let mask_type = self.out.mask_type();
                let mut masks: Vec<(BlockId, Operand)> = Vec::new();
                let mut add = |this: &mut Self, to: BlockId, mask: Operand| match masks
                    .iter_mut()
                    .find(|(block, _)| *block == to)
                {
                    Some((_, so_far)) => *so_far = this.or(*so_far, mask),
                    None => masks.push((to, mask)),
                };
                let mut any = self.out.null(mask_type);
                for &(case, to) in cases {
                    let case = self.out.int(ty, case as i64);
                    let op = Op::Compare(CompareOp::Eq, value, case);
                    let is = self.out.value(op, mask_type);
                    any = self.or(any, is);
                    let mask = self.and(self.mask, is);
                    add(self, to, mask);
                }
                let none = self.not(any);
                let mask = self.and(self.mask, none);
                add(self, *default, mask);
                Ok(masks)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Sends the items of a mask along an edge: they become pending at its target, and its phis get
    /// their values.
    fn edge(&mut self, from: BlockId, to: BlockId, mask: Mask) -> Result<(), Refusal> {
        if let Some(waiting) = self.waiting[to.index()] {
            let before = self.out.read(waiting);
            let more = match mask {
                Some(mask) => mask,
                None => self.out.all(),
            };
            let both = self.or(before, more);
            self.out.write(waiting, both);
        }
        let blend = self.must_blend(from, to);
        // All are read before any is written: phis take effect together.
        let mut writes = Vec::new();
        for inst in self.from.blocks[to].phis() {
            let (Op::Phi(incoming), Some(result)) = (&inst.op, inst.result) else { continue };
            let arm = incoming.iter().find(|(block, _)| *block == from);
            let Some(&(_, operand)) = arm else { continue };
            match self.arriving[result.index()].clone() {
                Place::One(var) => {
                    let value = self.one(operand);
                    writes.push((var, value, None));
                }
                Place::Vectors(vars) => {
                    let values = self.vectors(operand)?;
                    let mask = mask.filter(|_| blend);
                    writes.extend(vars.into_iter().zip(values).map(|(var, v)| (var, v, mask)));
                }
                Place::Interleaved(vars) => {
                    let mask = mask.filter(|_| blend);
                    let values = self.interleaved_arm(result, &vars, operand, mask)?;
                    writes.extend(vars.into_iter().zip(values).map(|(var, v)| (var, v, None)));
                }
                Place::Nowhere => {}
            }
        }
        let values: Vec<(Var, Operand)> = writes
            .into_iter()
            .map(|(var, value, mask)| {
                let Some(mask) = mask else { return (var, value) };
                let old = self.out.read(var);
                let ty = self.out.var_type(var);
                (var, self.out.value(Op::Select(mask, value, old), ty))
            })
            .collect();
        for (var, value) in values {
            self.out.write(var, value);
        }
        Ok(())
    }

    /// Whether items of other edges, or of another iteration of a loop, may be pending at the target.
    fn must_blend(&self, from: BlockId, to: BlockId) -> bool {
        if !self.flow.mixes(from, to) {
            return false;
        }
        // The first edge to arrive finds no pending item there.
        let here = self.flow.back_edge(from, to).is_some();
        let place = |block: BlockId| self.flow.place[block.index()];
        let others = self.flow.predecessors[to.index()].iter();
        let mut others = others.filter(|&&other| {
            self.flow.back_edge(other, to).is_some() == here && place(other) < place(from)
        });
        self.flow.leaves_masked(from, to) || others.next().is_some()
    }
}

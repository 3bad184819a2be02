// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the widened function: blocks in the order of the flow, masks, and phis.

use super::Refusal;
use super::build::{Builder, Var};
use super::flow::{Flow, Node};
use super::shape::{Shape, Shapes, mixes, outer_masked};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, Block, BlockId, CompareOp, ENTRY, Flags, Function, Inst, Op, Operand, Scope,
    Terminator, TypeId, UnaryOp, ValueId,
};
use crate::regions;

/// Where a value of the function lies in the widened one.
#[derive(Clone)]
pub(super) enum Place {
    /// Not seen yet.
    Nowhere,
    /// One value for all items, or the first item's if the shape has a step.
    One(Var),
    /// A vector for each scalar that the value is made of.
    Vectors(Vec<Var>),
}

/// What it takes to use a guarded step.
#[derive(Clone, Copy)]
pub(super) struct Guard {
    /// Whether the step holds.
    pub(super) holds: Var,
    /// How far each item's value is from the first one's, 64 bits.
    pub(super) distance: Var,
    /// The step of the extension.
    pub(super) step: i64,
}

/// The items that run a block: all, or those of a mask.
pub(super) type Mask = Option<Operand>;

/// Turns a function into one that runs a vector of work-items.
pub(super) struct Widener<'f> {
    pub(super) from: &'f Function,
    pub(super) flow: &'f Flow,
    pub(super) shapes: &'f Shapes,
    pub(super) out: Builder,
    /// Places of values, by number.
    places: Vec<Place>,
    /// Places of values behind the loops that items leave at different times.
    escaped: Vec<Option<Vec<Var>>>,
    /// What phis will be, by result.
    arriving: Vec<Place>,
    pub(super) guards: Vec<Option<Guard>>,
    /// The masks of what is pending, by block.
    waiting: Vec<Option<Var>>,
    /// The masks of running blocks, by leader.
    running: Vec<Option<Var>>,
    /// The block of the function that is being written.
    pub(super) block: BlockId,
    pub(super) mask: Mask,
    /// Where the code of each place of the order begins.
    labels: Vec<BlockId>,
    /// Where it goes on when it is known to have items.
    bodies: Vec<BlockId>,
    /// What was offered last to the items of a group.
    pub(super) offered: Option<Operand>,
    /// What slows the code down, for people.
    pub(super) remarks: Vec<String>,
}

impl<'f> Widener<'f> {
    pub(super) fn new(
        from: &'f Function,
        flow: &'f Flow,
        shapes: &'f Shapes,
        out: Builder,
    ) -> Self {
        let values = from.values.len();
        let blocks = from.blocks.len();
        Self {
            from,
            flow,
            shapes,
            out,
            places: vec![Place::Nowhere; values],
            escaped: vec![None; values],
            arriving: vec![Place::Nowhere; values],
            guards: vec![None; values],
            waiting: vec![None; blocks],
            running: vec![None; blocks],
            block: ENTRY,
            mask: None,
            labels: Vec::new(),
            bodies: Vec::new(),
            offered: None,
            remarks: Vec::new(),
        }
    }

    /// Writes everything.
    pub(super) fn run(&mut self) -> Result<(), Refusal> {
        self.labels.push(ENTRY);
        for _ in 1..self.flow.order.len() {
            let label = self.out.new_block();
            self.labels.push(label);
        }
        self.bodies = self.labels.clone();
        self.find_escapes()?;
        self.declare_masks();
        for &param in &self.from.params {
            let ty = self.from.values[param].ty;
            let var = self.out.var(ty);
            let new = self.out.function.new_value(ty);
            self.out.function.params.push(new);
            self.out.write(var, Operand::Value(new));
            self.places[param.index()] = Place::One(var);
        }
        self.variables()?;
        self.declare_phis()?;
        for place in 0..self.flow.order.len() {
            if !self.flow.reached[place] {
                continue;
            }
            self.out.switch_to(self.labels[place]);
            match self.flow.order[place] {
                Node::Block(block) => self.write_block(place, block)?,
                Node::Latch(index) => self.write_latch(place, index),
            }
        }
        Ok(())
    }

    fn declare_masks(&mut self) {
        let ty = self.out.mask_type();
        let none = self.out.null(ty);
        for (id, _) in self.from.blocks.iter() {
            if id != ENTRY && self.flow.leader[id.index()] == id {
                let (waiting, running) = (self.out.var(ty), self.out.var(ty));
                self.out.write(waiting, none);
                self.waiting[id.index()] = Some(waiting);
                self.running[id.index()] = Some(running);
            }
        }
    }

    /// The private variables: one of each for every item, one behind the other.
    fn variables(&mut self) -> Result<(), Refusal> {
        for variable in &self.from.variables {
            let mut new = super::widen_variable(&mut self.out, variable)?;
            let ty = self.from.values[variable.address].ty;
            new.address = self.out.function.new_value(ty);
            let var = self.out.var(ty);
            self.out.write(var, Operand::Value(new.address));
            self.places[variable.address.index()] = Place::One(var);
            self.out.function.variables.push(new);
        }
        Ok(())
    }

    fn declare_phis(&mut self) -> Result<(), Refusal> {
        for (_, block) in self.from.blocks.iter() {
            for result in block.phis().filter_map(|inst| inst.result) {
                self.arriving[result.index()] = self.new_place(result)?;
            }
        }
        Ok(())
    }

    /// Variables for the values that are used behind a masked loop around their definition.
    fn find_escapes(&mut self) -> Result<(), Refusal> {
        let mut found: Vec<ValueId> = Vec::new();
        let mut note = |shapes: &Shapes, flow: &Flow, operand: Operand, user: BlockId| {
            if let Operand::Value(value) = operand
                && shapes.escapes(flow, value, user)
            {
                found.push(value);
            }
        };
        for (id, block) in self.from.blocks.iter() {
            for inst in &block.insts {
                match &inst.op {
                    Op::Phi(incoming) => {
                        for &(from, operand) in incoming {
                            note(self.shapes, self.flow, operand, from);
                        }
                    }
                    op => op.for_each_operand(|o| note(self.shapes, self.flow, o, id)),
                }
            }
            block.terminator.for_each_operand(|o| note(self.shapes, self.flow, o, id));
        }
        for value in found {
            if self.escaped[value.index()].is_none() {
                let vars = self.vector_vars(self.from.values[value].ty)?;
                self.escaped[value.index()] = Some(vars);
            }
        }
        Ok(())
    }

    /// Variables for a value with its shape.
    fn new_place(&mut self, value: ValueId) -> Result<Place, Refusal> {
        let ty = self.from.values[value].ty;
        Ok(match self.shapes.of(value) {
            Shape::Uniform | Shape::Strided { .. } => Place::One(self.out.var(ty)),
            Shape::Varying => Place::Vectors(self.vector_vars(ty)?),
        })
    }

    fn vector_vars(&mut self, ty: TypeId) -> Result<Vec<Var>, Refusal> {
        let mut vars = Vec::new();
        for leaf in self.leaves(ty)? {
            let vector = self.out.vector_of(leaf.ty);
            vars.push(self.out.var(vector));
        }
        Ok(vars)
    }

    // Values.

    /// The shape of an operand here.
    pub(super) fn shape(&self, operand: Operand) -> Shape {
        self.shapes.at(self.flow, operand, self.block).unwrap_or(Shape::Uniform)
    }

    /// The value of a uniform operand, or the first item's value of one with a step.
    pub(super) fn one(&mut self, operand: Operand) -> Operand {
        let Operand::Value(value) = operand else { return operand };
        match self.places[value.index()] {
            Place::One(var) => self.out.read(var),
            // Code that is not reached may use what is never defined.
            _ => {
                let ty = self.from.values[value].ty;
                self.out.undef(ty)
            }
        }
    }

    /// The vectors of an operand, one for each scalar in it.
    pub(super) fn vectors(&mut self, operand: Operand) -> Result<Vec<Operand>, Refusal> {
        if let Operand::Value(value) = operand {
            if self.shapes.escapes(self.flow, value, self.block)
                && let Some(vars) = self.escaped[value.index()].clone()
            {
                return Ok(vars.into_iter().map(|var| self.out.read(var)).collect());
            }
            if let Place::Vectors(vars) = self.places[value.index()].clone() {
                return Ok(vars.into_iter().map(|var| self.out.read(var)).collect());
            }
        }
        let one = self.one(operand);
        match self.shape(operand) {
            Shape::Strided { step, guard } => Ok(vec![self.stepped(one, step, guard)]),
            _ => {
                let scalars = self.scalars(one)?;
                Ok(scalars.into_iter().map(|scalar| self.out.splat(scalar)).collect())
            }
        }
    }

    /// The vector of a scalar operand.
    pub(super) fn vector(&mut self, operand: Operand) -> Result<Operand, Refusal> {
        let vectors = self.vectors(operand)?;
        vectors.first().copied().ok_or_else(|| Refusal::new("a value without contents"))
    }

    /// All items' values out of the first one's and the step.
    pub(super) fn stepped(&mut self, first: Operand, step: i64, guard: Option<ValueId>) -> Operand {
        let ty = self.out.type_of(first);
        let vector = self.out.vector_of(ty);
        let pointer = super::is_pointer(&self.out.module, ty);
        let i64_type = self.out.module.types.int(64);
        let guard = guard.and_then(|value| self.guards[value.index()]);
        if let Some(guard) = guard {
            let distance = self.out.read(guard.distance);
            let factor = step / guard.step;
            if pointer {
                let terms = vec![(distance, factor)];
                let op = Op::Address { base: first, offset: 0, terms, inbounds: false };
                return self.out.value(op, vector);
            }
            let wide = self.out.type_of(distance);
            let factor = self.out.int(wide, factor);
            let moved = self.out.value(Op::Binary(BinaryOp::Mul, distance, factor), wide);
            let first = self.out.splat(first);
            return self.out.value(Op::Binary(BinaryOp::Add, first, moved), vector);
        }
        if pointer {
            let steps = self.out.steps(i64_type, 1);
            let terms = vec![(steps, step)];
            let op = Op::Address { base: first, offset: 0, terms, inbounds: false };
            return self.out.value(op, vector);
        }
        let steps = self.out.steps(ty, step);
        let first = self.out.splat(first);
        self.out.value(Op::Binary(BinaryOp::Add, first, steps), vector)
    }

    /// Sets a uniform result, or the first item's.
    pub(super) fn set_one(&mut self, result: ValueId, value: Operand) -> Result<(), Refusal> {
        if matches!(self.places[result.index()], Place::Nowhere) {
            self.places[result.index()] = self.new_place(result)?;
        }
        if let Place::One(var) = self.places[result.index()] {
            self.out.write(var, value);
        }
        self.keep(result)
    }

    /// Sets a varying result.
    pub(super) fn set(&mut self, result: ValueId, values: &[Operand]) -> Result<(), Refusal> {
        if matches!(self.places[result.index()], Place::Nowhere) {
            self.places[result.index()] = self.new_place(result)?;
        }
        if let Place::Vectors(vars) = self.places[result.index()].clone() {
            for (var, &value) in vars.into_iter().zip(values) {
                self.out.write(var, value);
            }
        }
        self.keep(result)
    }

    /// Keeps the running items' values for code behind the loop.
    fn keep(&mut self, result: ValueId) -> Result<(), Refusal> {
        let Some(vars) = self.escaped[result.index()].clone() else { return Ok(()) };
        let values = self.vectors(Operand::Value(result))?;
        for (var, value) in vars.into_iter().zip(values) {
            self.blend(var, value, self.mask);
        }
        Ok(())
    }

    /// Assigns a variable for the items of a mask.
    fn blend(&mut self, var: Var, value: Operand, mask: Mask) {
        let new = match mask {
            None => value,
            Some(mask) => {
                let old = self.out.read(var);
                let ty = self.out.var_type(var);
                self.out.value(Op::Select(mask, value, old), ty)
            }
        };
        self.out.write(var, new);
    }

    // Masks.

    /// Those items of a mask for which a vector of `bool` is true. Others' may be undefined.
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

    // Control flow.

    /// What may be pending when a block has been run, without where it goes.
    fn pending(&self, place: usize, block: BlockId) -> std::collections::BTreeSet<usize> {
        let mut pending = self.flow.pending[place].clone();
        let equals = self.flow.equals_of(block).iter();
        pending.extend(equals.map(|other| self.flow.place[other.index()]));
        pending
    }

    /// Ends the block that is being written by going to the first of what may be pending.
    fn go(&mut self, pending: &std::collections::BTreeSet<usize>) {
        match pending.first() {
            Some(&next) => self.out.end(Terminator::Branch(self.labels[next])),
            None => self.out.end(Terminator::Return(None)),
        }
    }

    fn write_latch(&mut self, place: usize, index: usize) {
        let header = self.flow.loops[index].header;
        let Some(waiting) = self.waiting[header.index()] else { return };
        let mask = self.out.read(waiting);
        let bool = self.out.module.types.bool();
        let any = self.out.value(Op::Any(mask), bool);
        let leave = self.out.new_block();
        let again = self.bodies[self.flow.loops[index].first];
        self.out.end(Terminator::CondBranch(any, again, leave));
        self.out.switch_to(leave);
        self.go(&self.flow.pending[place].clone());
    }

    fn write_block(&mut self, place: usize, id: BlockId) -> Result<(), Refusal> {
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
                Place::Nowhere => {}
            }
        }
        for inst in block.insts.iter().skip(block.phis().count()) {
            self.out.loc = inst.loc;
            if regions::stop_scope(&inst.op) == Some(Scope::Workgroup) {
                self.check_stop(place, id)?;
            }
            self.inst(inst)?;
        }
        self.out.loc = block.loc;
        self.terminator(place, id, block)
    }

    /// Starts a block with a mask of its own, and leaves it out if the mask is empty.
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
            self.go(&self.flow.pending[place].clone());
            self.out.switch_to(body);
            self.bodies[place] = body;
        } else if masked_header {
            // The latch comes back here, not to what may be in front.
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

    /// Whether a block may be run without items: a few operations on values, and no other block
    /// relies on its having items.
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
                matches!(
                    inst.op,
                    Op::Phi(_)
                        | Op::Unary(..)
                        | Op::Ternary(..)
                        | Op::Compare(..)
                        | Op::Test(..)
                        | Op::Select(..)
                        | Op::Convert(..)
                        | Op::Address { .. }
                        | Op::WorkItem(..)
                        | Op::Binary(..)
                )
            })
    }

    /// A barrier of the work-group can only stand where all items of the vector come together.
    fn check_stop(&self, place: usize, id: BlockId) -> Result<(), Refusal> {
        let together = self.flow.leader[id.index()] == ENTRY
            && self.flow.masked_around(id).is_none()
            && self.flow.pending[place].is_empty();
        if together {
            return Ok(());
        }
        Err(Refusal::new("a barrier where the items of a vector may have parted"))
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
        let mut edges = std::collections::HashMap::new();
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

    /// Ends the block by going where all its items go.
    fn leave_for(
        &mut self,
        from: BlockId,
        to: BlockId,
        pending: &std::collections::BTreeSet<usize>,
    ) {
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

    fn add_target(
        &self,
        from: BlockId,
        to: BlockId,
        pending: &mut std::collections::BTreeSet<usize>,
    ) {
        if self.flow.back_edge(from, to).is_none() {
            pending.insert(self.flow.place[to.index()]);
        }
        for index in self.flow.around(to) {
            if self.flow.loops[index].masked {
                pending.insert(self.flow.loops[index].latch);
            }
        }
    }

    /// The items that go along each edge of a branch where they part.
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

    /// Sends the items of a mask along an edge: they wait there, and its phis have their values.
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

    /// Whether items of other edges, or of another time around a loop, may wait at the target.
    fn must_blend(&self, from: BlockId, to: BlockId) -> bool {
        if !mixes(self.flow, from, to) {
            return false;
        }
        // The first that comes finds nobody.
        let here = self.flow.back_edge(from, to).is_some();
        let place = |block: BlockId| self.flow.place[block.index()];
        let others = self.flow.predecessors[to.index()].iter();
        let mut others = others.filter(|&&other| {
            self.flow.back_edge(other, to).is_some() == here && place(other) < place(from)
        });
        let leaves = !here && self.flow.masked_around(from) != outer_masked(self.flow, to);
        leaves || others.next().is_some()
    }

    // Instructions.

    fn inst(&mut self, inst: &Inst) -> Result<(), Refusal> {
        if self.memory(inst)? || self.exchange(inst)? {
            return Ok(());
        }
        let Some(result) = inst.result else {
            match &inst.op {
                // What is assumed helps the scalar code only.
                Op::Assume(condition) if self.shape(*condition) != Shape::Uniform => {}
                op => {
                    let op = self.renamed(op);
                    self.out.effect(op, inst.flags);
                }
            }
            return Ok(());
        };
        let ty = self.from.values[result].ty;
        match self.shapes.of(result) {
            Shape::Uniform => {
                let op = self.renamed(&inst.op);
                let value = self.out.def(op, ty, inst.flags);
                self.set_one(result, value)
            }
            Shape::Strided { step, guard } => {
                let mut op = self.renamed(&inst.op);
                // The first item may not run this: nothing is promised of its value.
                if let Op::Address { inbounds, .. } = &mut op {
                    *inbounds = false;
                }
                let flags = inst.flags.without(Flags::NSW.union(Flags::NUW));
                let value = self.out.def(op, ty, flags);
                if guard == Some(result) {
                    self.guard(result, inst, value, step)?;
                }
                self.set_one(result, value)
            }
            Shape::Varying => {
                let values = self.compute(inst, ty)?;
                self.set(result, &values)
            }
        }
    }

    /// An operation on uniform operands, or on the first item's.
    pub(super) fn renamed(&mut self, op: &Op) -> Op {
        let mut op = op.clone();
        op.for_each_operand_mut(|operand| *operand = self.one(*operand));
        op
    }

    /// Finds out whether an extension keeps its step.
    fn guard(
        &mut self,
        result: ValueId,
        inst: &Inst,
        first: Operand,
        step: i64,
    ) -> Result<(), Refusal> {
        let Op::Convert(convert, from) = inst.op else { return Ok(()) };
        let i64_type = self.out.module.types.int(64);
        let bool = self.out.module.types.bool();
        let narrow = self.out.module.operand_type(self.from, from);
        let lanes = i64::from(self.out.lanes);
        let way = self.out.int(i64_type, step.wrapping_mul(lanes - 1));
        let last = self.out.value(Op::Binary(BinaryOp::Add, first, way), i64_type);
        let cut = self.out.value(Op::Convert(crate::ir::ConvertOp::Trunc, last), narrow);
        let again = self.out.value(Op::Convert(convert, cut), i64_type);
        let holds = self.out.value(Op::Compare(CompareOp::Eq, again, last), bool);
        let vector = self.vector(from)?;
        let wide_type = self.out.vector_of(i64_type);
        let wide = self.out.value(Op::Convert(convert, vector), wide_type);
        let firsts = self.out.splat(first);
        let distance = self.out.value(Op::Binary(BinaryOp::Sub, wide, firsts), wide_type);
        let guard = Guard { holds: self.out.var(bool), distance: self.out.var(wide_type), step };
        self.out.write(guard.holds, holds);
        self.out.write(guard.distance, distance);
        self.guards[result.index()] = Some(guard);
        Ok(())
    }
}

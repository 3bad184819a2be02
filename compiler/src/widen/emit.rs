// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the widened function: the places of its values, and their computation.

use std::cell::OnceCell;

use rustc_hash::FxHashMap;

use super::build::{Builder, Var};
use super::flow::{Flow, Node};
use super::guard::Guard;
use super::interleaved::kept::Kept;
use super::refusal::Refusal;
use super::shape::{Rows, Shape, Shapes};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, ConstKind, Definition, ENTRY, Flags, Function, Inst, Loc, Module, Op,
    Operand, PrivateVariable, Type, TypeId, UnaryOp, Uses, ValueId,
};

/// The place in the widened function of a value of the original.
#[derive(Clone)]
pub(super) enum Place {
    /// Not seen yet.
    Nowhere,
    /// One value for all items, or the first item's if the shape has a step.
    One(Var),
    /// A vector for each scalar of the value.
    Vectors(Vec<Var>),
    /// Vectors in which the components of an item lie side by side ([`super::interleaved`]).
    Interleaved(Vec<Var>),
}

/// The items that run a block: all, or those of a mask.
pub(super) type Mask = Option<Operand>;

/// What was divided last, and where.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Divided {
    pub(super) block: BlockId,
    pub(super) is_signed: bool,
    pub(super) dividend: Operand,
    pub(super) divisor: Operand,
}

/// Turns a function into one that runs a vector of work-items.
pub(super) struct Widener<'f> {
    pub(super) from: &'f Function,
    pub(super) flow: &'f Flow,
    pub(super) shapes: &'f Shapes,
    pub(super) out: Builder,
    /// The rows of the groups that it runs.
    pub(super) rows: Rows,
    /// Items of a vector that lie in one row.
    pub(super) part: u32,
    /// Places of values, by number.
    pub(super) places: Vec<Place>,
    /// Places of values behind the loops that items leave at different times.
    pub(super) escaped: Vec<Option<Vec<Var>>>,
    /// What is constant though it is no constant of the original, as the number of an item in its sub-group is: in the
    /// form of the place that it has.
    constants: FxHashMap<ValueId, Vec<Operand>>,
    /// The elements of each vector of the values that stay interleaved.
    pub(super) interleaved: FxHashMap<ValueId, u32>,
    /// Operations on these that are kept back.
    pub(super) kept: Kept,
    /// The values that phis will have, by result.
    pub(super) arriving: Vec<Place>,
    pub(super) guards: Vec<Option<Guard>>,
    /// The masks of pending items, by block.
    pub(super) waiting: Vec<Option<Var>>,
    /// The masks of running blocks, by leader; that of the first block only if rows are uneven.
    pub(super) running: Vec<Option<Var>>,
    /// The block of the function that is being written.
    pub(super) block: BlockId,
    pub(super) mask: Mask,
    /// The first block of the code for each place of the order.
    pub(super) labels: Vec<BlockId>,
    /// The block in which it continues once it is known to have items.
    pub(super) bodies: Vec<BlockId>,
    /// The 64-bit numbers that were last divided, and their quotients.
    pub(super) divided: Option<(Divided, Operand)>,
    /// The value that was last offered to the items of a group.
    pub(super) offered: Option<Operand>,
    /// Private memory for vectors of the first factor of a product of matrices.
    pub(super) tables: Vec<(TypeId, Operand)>,
    /// Whether a vector takes so long that the processor does not look ahead to the next one's loads.
    pub(super) long: bool,
    /// The same of the turns of each loop.
    pub(super) long_turns: Vec<bool>,
    /// Whether barriers may be where the items of a vector may have parted.
    pub(super) may_part: bool,
    /// The size in bytes of the integers of which the group keeps sums, if it does ([`super::sums`]).
    pub(super) sums: Option<u64>,
    /// Remarks for readers on what slows the code down.
    pub(super) remarks: Vec<(Loc, String)>,
    /// How large the index of an address that varies may be, by the vector of addresses.
    pub(super) reach: FxHashMap<ValueId, u64>,
    /// The uses in `from`, once a pass has asked for them.
    pub(super) uses: OnceCell<Uses>,
    /// The definitions of values in `from`, likewise.
    pub(super) definitions: OnceCell<Vec<Option<Definition>>>,
}

impl<'f> Widener<'f> {
    pub(super) fn new(
        from: &'f Function,
        flow: &'f Flow,
        shapes: &'f Shapes,
        out: Builder,
        rows: Rows,
        long: bool,
    ) -> Self {
        let values = from.values.len();
        let blocks = from.blocks.len();
        let lanes = out.lanes;
        Self {
            from,
            flow,
            shapes,
            out,
            rows,
            part: lanes,
            places: vec![Place::Nowhere; values],
            escaped: vec![None; values],
            constants: FxHashMap::default(),
            interleaved: FxHashMap::default(),
            kept: Kept::default(),
            arriving: vec![Place::Nowhere; values],
            guards: vec![None; values],
            waiting: vec![None; blocks],
            running: vec![None; blocks],
            block: ENTRY,
            mask: None,
            labels: Vec::new(),
            bodies: Vec::new(),
            divided: None,
            offered: None,
            tables: Vec::new(),
            long,
            long_turns: Vec::new(),
            may_part: false,
            sums: None,
            reach: FxHashMap::default(),
            uses: OnceCell::new(),
            definitions: OnceCell::new(),
            remarks: Vec::new(),
        }
    }

    /// Writes the whole function.
    pub(super) fn run(&mut self) -> Result<(), Refusal> {
        self.labels.push(ENTRY);
        for _ in 1..self.flow.order.len() {
            let label = self.out.new_block();
            self.labels.push(label);
        }
        self.bodies = self.labels.clone();
        self.find_escapes()?;
        self.find_interleaved();
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
        if self.rows == Rows::Any {
            let (present, running) = (self.out.value(Op::Present, ty), self.out.var(ty));
            self.out.write(running, present);
            self.running[ENTRY.index()] = Some(running);
        }
        for (id, _) in self.from.blocks.iter() {
            if id != ENTRY && self.flow.leader[id.index()] == id {
                let (waiting, running) = (self.out.var(ty), self.out.var(ty));
                self.out.write(waiting, none);
                self.waiting[id.index()] = Some(waiting);
                self.running[id.index()] = Some(running);
            }
        }
    }

    /// The private variables: one for each item, one after the other.
    fn variables(&mut self) -> Result<(), Refusal> {
        for variable in &self.from.variables {
            let step = match self.shapes.of(variable.address) {
                Shape::Strided { step, .. } => step,
                _ => 0,
            };
            let mut new = widen_variable(&mut self.out, variable, step)?;
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
        if let Some(place) = self.interleaved_place(value) {
            return Ok(place);
        }
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

    /// The shape of an operand here.
    pub(super) fn shape(&self, operand: Operand) -> Shape {
        self.shapes.at(self.flow, operand, self.block).unwrap_or(Shape::Uniform)
    }

    /// The greatest that each item's value of an operand of integers may be, if none is negative or wraps around.
    pub(super) fn most(&self, operand: Operand) -> Option<u64> {
        let small = self.shapes.is_small(operand).then_some((1 << 30) - 1);
        let most = self.shapes.most(&self.out.module, operand);
        small.into_iter().chain(most).min()
    }

    /// The value of a uniform operand, or the first item's value of one with a step.
    pub(super) fn one(&mut self, operand: Operand) -> Operand {
        let Operand::Value(value) = operand else { return operand };
        match self.places[value.index()] {
            Place::One(var) => match self.constants.get(&value).map(Vec::as_slice) {
                Some(&[constant]) => constant,
                _ => self.out.read(var),
            },
            // Unreachable code may use values that are never defined.
            _ => {
                let ty = self.from.values[value].ty;
                self.out.undef(ty)
            }
        }
    }

    /// The vectors of an operand, one for each scalar in it.
    pub(super) fn vectors(&mut self, operand: Operand) -> Result<Vec<Operand>, Refusal> {
        if let Operand::Value(value) = operand {
            if let (Place::Vectors(_), Some(constants)) =
                (&self.places[value.index()], self.constants.get(&value))
            {
                return Ok(constants.clone());
            }
            if self.shapes.escapes(self.flow, value, self.block)
                && let Some(vars) = self.escaped[value.index()].clone()
            {
                return Ok(vars.into_iter().map(|var| self.out.read(var)).collect());
            }
            match self.places[value.index()].clone() {
                Place::Vectors(vars) => {
                    return Ok(vars.into_iter().map(|var| self.out.read(var)).collect());
                }
                Place::Interleaved(vars) => {
                    let vectors = vars.into_iter().map(|var| self.out.read(var)).collect();
                    return Ok(self.separated(value, vectors));
                }
                Place::Nowhere | Place::One(_) => {}
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

    /// Computes all items' values from the first one's and the step.
    pub(super) fn stepped(&mut self, first: Operand, step: i64, guard: Option<ValueId>) -> Operand {
        let ty = self.out.type_of(first);
        let vector = self.out.vector_of(ty);
        let pointer = is_pointer(&self.out.module, ty);
        let i64_type = self.out.module.types.int(64);
        let guard = guard.and_then(|value| self.guards[value.index()]);
        if let Some(guard) = guard {
            let distance = self.distance(guard);
            // The division is exact, and correct modulo 2^64 if the minimum is divided by -1.
            let factor = step.wrapping_div(guard.step);
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
        self.note_constants(result, &[value]);
        self.keep(result)
    }

    /// Sets a varying result.
    pub(super) fn set(&mut self, result: ValueId, values: &[Operand]) -> Result<(), Refusal> {
        if matches!(self.places[result.index()], Place::Nowhere) {
            self.places[result.index()] = self.new_place(result)?;
        }
        match self.places[result.index()].clone() {
            Place::Vectors(vars) => {
                for (var, &value) in vars.into_iter().zip(values) {
                    self.out.write(var, value);
                }
            }
            Place::Interleaved(_) => {
                self.interleave_result(result, values);
                return Ok(());
            }
            Place::Nowhere | Place::One(_) => {}
        }
        self.note_constants(result, values);
        self.keep(result)
    }

    /// Remembers a result that is constant for all code that uses it. A phi's may be another one each time.
    fn note_constants(&mut self, result: ValueId, values: &[Operand]) {
        let is_phi = !matches!(self.arriving[result.index()], Place::Nowhere);
        if !is_phi && values.iter().all(|value| matches!(value, Operand::Const(_))) {
            self.constants.insert(result, values.to_vec());
        }
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
    pub(super) fn blend(&mut self, var: Var, value: Operand, mask: Mask) {
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

    /// An extension of a sum as a sum with an extension: so neighbours have a common part.
    fn moved_behind(&mut self, mut op: Op, ty: TypeId, narrow: i64, wide: i64) -> Operand {
        let mut first = None;
        op.for_each_operand(|operand| first = first.or(Some(operand)));
        let Some(from) = first else { return self.out.value(op, ty) };
        let narrow_type = self.out.type_of(from);
        let less = self.out.int(narrow_type, narrow);
        let before = self.out.value(Op::Binary(BinaryOp::Sub, from, less), narrow_type);
        op.for_each_operand_mut(|operand| {
            if *operand == from {
                *operand = before;
            }
        });
        let extended = self.out.value(op, ty);
        let more = self.out.int(ty, wide);
        self.out.value(Op::Binary(BinaryOp::Add, extended, more), ty)
    }

    pub(super) fn inst(&mut self, inst: &Inst) -> Result<(), Refusal> {
        if self.by_vector(inst)? || self.memory(inst)? || self.exchange(inst)? {
            return Ok(());
        }
        let Some(result) = inst.result else {
            match &inst.op {
                // Assumptions help the scalar code only.
                Op::Assume(condition) if self.shape(*condition) != Shape::Uniform => {}
                op => {
                    let op = self.renamed(op);
                    self.out.effect(op, inst.flags);
                }
            }
            return Ok(());
        };
        let ty = self.from.values[result].ty;
        if let Op::Row(op, number, divisor) = inst.op {
            let value = self.row(op, number, divisor);
            return self.set_one(result, value);
        }
        if let Op::Whole(condition) = inst.op {
            let holds = self.vector(condition)?;
            let fails = self.not(holds);
            let fails = self.and(self.mask, fails);
            let any = self.out.value(Op::Any(fails), ty);
            let whole = self.out.value(Op::Unary(UnaryOp::Not, any), ty);
            return self.set_one(result, whole);
        }
        match self.shapes.of(result) {
            Shape::Uniform => {
                let op = self.renamed(&inst.op);
                let value = self.out.def(op, ty, inst.flags);
                self.set_one(result, value)
            }
            Shape::Strided { step, guard } => {
                let mut op = self.renamed(&inst.op);
                // The first item may not run this, so its value has no guarantees.
                if let Op::Address { inbounds, .. } = &mut op {
                    *inbounds = false;
                }
                let flags = inst.flags.without(Flags::NSW.union(Flags::NUW));
                let value = match self.shapes.moved(&self.out.module, &inst.op) {
                    Some((narrow, wide)) => self.moved_behind(op, ty, narrow, wide),
                    None => self.out.def(op, ty, flags),
                };
                if guard == Some(result) {
                    self.guard(result, inst, value, step)?;
                }
                self.set_one(result, value)
            }
            Shape::Varying => {
                let values = match self.compare_narrow(&inst.op) {
                    Some(mask) => vec![mask],
                    None => self.compute(inst, ty)?,
                };
                if let [mask] = values[..] {
                    self.note_compare(&inst.op, mask);
                }
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
}

/// A private variable for all items of a vector, which are `step` bytes apart.
fn widen_variable(
    builder: &mut Builder,
    variable: &PrivateVariable,
    step: i64,
) -> Result<PrivateVariable, Refusal> {
    let size = builder.module.types.size(variable.ty);
    let step = step as u64;
    // An element of a variable that is laid out element by element is smaller. One that is aligned to more than its
    // size, as DPC++ aligns halves to 8 bytes, has room for several.
    let copies = match step.checked_div(size) {
        Some(copies) if copies * size == step => copies.max(1),
        _ if step <= size => 1,
        _ => return Err(Refusal::of_type(&builder.module, variable.ty)),
    };
    let lanes = u64::from(builder.lanes) * copies;
    let ty = Type::Array(variable.ty, lanes);
    let too_large = || Refusal::new("too much private memory");
    let ty = builder.module.types.intern(ty).ok_or_else(too_large)?;
    let init = variable
        .init
        .map(|init| builder.module.constant(ty, ConstKind::Composite(vec![init; lanes as usize])));
    Ok(PrivateVariable { address: ValueId(0), ty, size: size * lanes, align: variable.align, init })
}

/// Whether a type is a pointer.
pub(super) fn is_pointer(module: &Module, ty: TypeId) -> bool {
    matches!(module.types[ty], Type::Pointer(_))
}

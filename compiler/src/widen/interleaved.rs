// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors of a kernel whose components stay interleaved, as they lie in memory.
//!
//! Most kernels compute with a vector for each component, which holds that component of all items ([`super::ops`]).
//! Where vectors are only read, computed with component by component, and written, that would transpose them, and
//! transpose the results back. They need not be:
//!
//! ```text
//!   separate      x0 x1 x2 x3 x4 x5 x6 x7 | y0 y1 y2 y3 y4 y5 y6 y7
//!   interleaved   x0 y0 x1 y1 x2 y2 x3 y3 | x4 y4 x5 y5 x6 y6 x7 y7
//! ```
//!
//! Operations on components take as many instructions either way. A scalar that is used for all components has to be
//! repeated, and what is done with single components has to be transposed. So it is decided for all vectors together
//! that are connected by such operations, a *class*: by the number of shuffles that each form takes.

use rustc_hash::FxHashMap;

use super::emit::{Place, Widener};
use super::ops::divides;
use super::shape::Shape;
use crate::ir::arena::Id;
use crate::ir::{Access, BlockId, ConvertOp, Inst, Op, Operand, Type, TypeId, ValueId};
use crate::optimise::is_skipped;

mod access;
mod code;
pub(super) mod kept;
mod order;

/// The name by which it is left out.
const NAME: &str = "interleaved";

/// Bytes of the vectors of a class, those of its largest components.
const REGISTER: u64 = 64;

/// How much more often the code of a loop runs than that around it, and the most loops that count.
const TURNS: i64 = 8;
const MOST_LOOPS: usize = 3;

/// The classes of a function's values.
struct Classes {
    /// By value, another one of its class.
    above: Vec<usize>,
    /// By value, the components, or 0 if it is in no class.
    parts: Vec<u32>,
    /// By the first value of a class, the shuffles that it saves if it is interleaved.
    gain: FxHashMap<usize, i64>,
    /// Likewise, the bytes of its largest component.
    largest: FxHashMap<usize, u64>,
}

impl Classes {
    fn first(&mut self, mut value: usize) -> usize {
        while self.above[value] != value {
            self.above[value] = self.above[self.above[value]];
            value = self.above[value];
        }
        value
    }

    fn unite(&mut self, a: ValueId, b: ValueId) {
        let (a, b) = (self.first(a.index()), self.first(b.index()));
        self.above[b] = a;
    }

    fn has(&self, value: ValueId) -> bool {
        self.parts[value.index()] > 0
    }

    fn add(&mut self, value: ValueId, gain: i64) {
        let first = self.first(value.index());
        *self.gain.entry(first).or_default() += gain;
    }
}

/// The levels of shuffles that transpose so many components.
fn levels(parts: u32) -> i64 {
    i64::from(parts.ilog2())
}

impl Widener<'_> {
    /// Decides which vectors stay interleaved.
    pub(super) fn find_interleaved(&mut self) {
        if is_skipped(NAME) {
            return;
        }
        let count = self.from.values.len();
        let mut classes = Classes {
            above: (0..count).collect(),
            parts: self.from.values.ids().map(|value| self.components_of(value)).collect(),
            gain: FxHashMap::default(),
            largest: FxHashMap::default(),
        };
        if classes.parts.iter().all(|&parts| parts == 0) {
            return;
        }
        for (id, block) in self.from.blocks.iter() {
            block.insts.iter().for_each(|inst| self.unite(&mut classes, id, inst));
        }
        // The most often that a value is transposed.
        let mut transposed: FxHashMap<ValueId, i64> = FxHashMap::default();
        for (id, block) in self.from.blocks.iter() {
            let loops = self.flow.around(id).count().min(MOST_LOOPS);
            let often = TURNS.pow(loops as u32);
            for inst in &block.insts {
                self.weigh(&mut classes, &mut transposed, id, inst, often);
            }
        }
        for (value, often) in transposed {
            if classes.has(value) {
                classes.add(value, -often * levels(classes.parts[value.index()]));
            }
        }
        for value in self.from.values.ids().filter(|&value| self.components_of(value) > 0) {
            let size = self.component_size(value);
            let first = classes.first(value.index());
            let largest = classes.largest.entry(first).or_default();
            *largest = size.max(*largest);
        }
        for value in self.from.values.ids() {
            let parts = classes.parts[value.index()];
            let first = classes.first(value.index());
            if parts > 0 && classes.gain.get(&first).is_some_and(|&gain| gain > 0) {
                let fitting = REGISTER / classes.largest[&first];
                let elements = fitting.min(u64::from(parts * self.out.lanes)) as u32;
                self.interleaved.insert(value, elements);
            }
        }
    }

    /// The components of a vector that may stay interleaved; 0 of other values.
    fn components_of(&self, value: ValueId) -> u32 {
        let types = &self.out.module.types;
        match types[self.from.values[value].ty] {
            Type::Vector(element, parts)
                if parts.is_power_of_two()
                    && matches!(types[element], Type::Int(_) | Type::Float(_) | Type::Bool)
                    && self.shapes.of(value) == Shape::Varying
                    && self.escaped[value.index()].is_none() =>
            {
                parts
            }
            _ => 0,
        }
    }

    fn component_size(&self, value: ValueId) -> u64 {
        let types = &self.out.module.types;
        types.size(types.element(self.from.values[value].ty))
    }

    /// Puts the vectors of an operation on components into one class.
    fn unite(&self, classes: &mut Classes, block: BlockId, inst: &Inst) {
        let Some(result) = inst.result.filter(|&result| classes.has(result)) else { return };
        if self.is_of_components(inst, block) {
            inst.op.for_each_operand(|operand| {
                if let Operand::Value(value) = operand
                    && classes.has(value)
                {
                    classes.unite(result, value);
                }
            });
        }
    }

    /// Counts what an instruction costs or saves if its vectors stay interleaved.
    fn weigh(
        &self,
        classes: &mut Classes,
        transposed: &mut FxHashMap<ValueId, i64>,
        block: BlockId,
        inst: &Inst,
        often: i64,
    ) {
        let result = inst.result.filter(|&result| classes.has(result));
        match &inst.op {
            &Op::Load(at, access)
                if result
                    .is_some_and(|it| self.is_row(at, self.from.values[it].ty, access, block)) =>
            {
                if let Some(result) = result {
                    classes.add(result, often * levels(classes.parts[result.index()]));
                }
            }
            &Op::Store(at, Operand::Value(value), access)
                if classes.has(value)
                    && self.is_row(at, self.from.values[value].ty, access, block) =>
            {
                classes.add(value, often * levels(classes.parts[value.index()]));
            }
            _ if self.is_of_components(inst, block) => {
                let Some(result) = result else { return };
                match &inst.op {
                    // A scalar is repeated.
                    Op::Construct(_) => classes.add(result, -often),
                    // So is a mask, in three instructions.
                    &Op::Select(condition, ..)
                        if self.lanes_of(condition) == 1
                            && self.shapes.at(self.flow, condition, block)
                                != Some(Shape::Uniform) =>
                    {
                        classes.add(result, -2 * often);
                    }
                    _ => {}
                }
            }
            op => {
                if let Some(result) = result {
                    classes.add(result, -often * levels(classes.parts[result.index()]));
                }
                op.for_each_operand(|operand| {
                    if let Operand::Value(value) = operand {
                        let most = transposed.entry(value).or_default();
                        *most = often.max(*most);
                    }
                });
            }
        }
    }

    fn lanes_of(&self, operand: Operand) -> u32 {
        self.out.module.types.lanes(self.type_in(operand))
    }

    /// Whether an instruction computes each component of its result from the same ones of its operands.
    pub(super) fn is_of_components(&self, inst: &Inst, block: BlockId) -> bool {
        let Some(result) = inst.result else { return false };
        let parts = self.out.module.types.lanes(self.from.values[result].ty);
        let all = |op: &Op| {
            let mut all = true;
            op.for_each_operand(|operand| all &= self.lanes_of(operand) == parts);
            all
        };
        match &inst.op {
            Op::Binary(op, ..) => !divides(*op),
            Op::Unary(..) | Op::Ternary(..) | Op::Compare(..) | Op::Test(..) | Op::Phi(_) => true,
            op @ Op::Convert(ConvertOp::Bitcast, _) => all(op),
            Op::Convert(..) => true,
            op @ Op::Math(math, _) => {
                math.takes_vectors() && math.second_result().is_none() && all(op)
            }
            Op::Select(..) => true,
            Op::Construct(scalars) => {
                let first = scalars.first().copied();
                first.is_some_and(|first| {
                    self.lanes_of(first) == 1
                        && self.shapes.at(self.flow, first, block) != Some(Shape::Uniform)
                        && scalars.iter().all(|&scalar| scalar == first)
                })
            }
            _ => false,
        }
    }

    /// Whether items access rows of numbers in memory that other items see. Conditions have no bytes that are those of a
    /// vector of them.
    fn is_row(&self, at: Operand, ty: TypeId, access: Access, block: BlockId) -> bool {
        let types = &self.out.module.types;
        matches!(types[types.element(ty)], Type::Int(_) | Type::Float(_))
            && !access.volatile
            && !self.is_private(at)
            && !matches!(self.shapes.at(self.flow, at, block), None | Some(Shape::Uniform))
    }

    /// The elements of each vector of an interleaved value.
    pub(super) fn elements(&self, value: ValueId) -> Option<u32> {
        self.interleaved.get(&value).copied()
    }

    /// The elements of each vector of a value that is stored interleaved: one that is, or that all items share.
    fn elements_to_store(&self, value: Operand) -> Option<u32> {
        if let Operand::Value(value) = value
            && let Some(elements) = self.elements(value)
        {
            return Some(elements);
        }
        let (leaf, parts) = self.components(self.type_in(value));
        let types = &self.out.module.types;
        let fits = parts.is_power_of_two()
            && parts > 1
            && self.shape(value) == Shape::Uniform
            && !is_skipped(NAME);
        let all = u64::from(parts * self.out.lanes);
        fits.then(|| all.min(REGISTER / types.size(leaf)) as u32)
    }

    /// The place of a value that stays interleaved.
    pub(super) fn interleaved_place(&mut self, value: ValueId) -> Option<Place> {
        let elements = self.elements(value)?;
        let (leaf, parts) = self.components(self.from.values[value].ty);
        let ty = self.out.vector(leaf, elements);
        let count = parts * self.out.lanes / elements;
        Some(Place::Interleaved((0..count).map(|_| self.out.var(ty)).collect()))
    }

    /// The type and the number of a vector's components.
    fn components(&self, ty: TypeId) -> (TypeId, u32) {
        let types = &self.out.module.types;
        (types.element(ty), types.lanes(ty))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of a value: how it differs between the items of a vector. It is uniform, has a constant
//! step, or varies.
//!
//! The items of a vector are adjacent in the first dimension. An address whose step is the size of the
//! data there is contiguous, and arithmetic on values with steps needs only the first item's value.
//!
//! A 32-bit number with a step that is extended to 64 bits keeps the step only if it does not wrap
//! around within the vector. That is known of ids; for other values it is tested at run time: the value
//! is then *guarded*, and code that uses its step has a second path for the other case
//! ([`guard`](super::guard)).

mod masks;
mod places;

use std::collections::{HashMap, HashSet};

use super::bounds::Bounds;
use super::flow::{Flow, Node};
use super::promises::{self, Extends, Found, Promises};
use super::queries::{of_group, of_query};
use super::steps::{Product, keeps_small, shifted_right, sum, times};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, ConvertOp, Function, Inst, Module, Op, Operand, RowOp, Terminator, Type,
    UnaryOp, ValueId, WorkItemQuery, definitions,
};

/// The rows of the groups that a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Rows consist of whole vectors, or only their whole vectors are run.
    Whole,
    /// Any rows: the last vector of a row may have fewer items ([`Op::Present`]).
    Any,
}

/// The longest step of an index whose bits are masked: with longer steps elements are not adjacent.
const MOST_STEP: i64 = 16;

/// The shape of a value: how it differs between the items of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The same for all.
    Uniform,
    /// Item `i` has the first item's value plus `i` times the step, wrapping. Only for integers and
    /// pointers.
    Strided {
        /// The step, not 0.
        step: i64,
        /// The operation that must not wrap around for this to hold.
        guard: Option<ValueId>,
    },
    /// Any value for each.
    Varying,
}

impl Shape {
    fn step(self) -> Option<(i64, Option<ValueId>)> {
        match self {
            Shape::Uniform => Some((0, None)),
            Shape::Strided { step, guard } => Some((step, guard)),
            Shape::Varying => None,
        }
    }

    /// Uniform if the step is 0.
    pub(super) fn with_step(step: i64, guard: Option<ValueId>) -> Shape {
        if step == 0 { Shape::Uniform } else { Shape::Strided { step, guard } }
    }
}

/// The shapes of a function's values.
pub(super) struct Shapes {
    /// By value; `None` for values that no reachable code defines.
    shapes: Vec<Option<Shape>>,
    /// The block that defines each value; `None` for parameters and the like.
    home: Vec<Option<BlockId>>,
    /// Values between 0 and 2^30 - 1 for every item.
    small: Vec<bool>,
    /// The greatest number that each may be, as far as that does not depend on the launch.
    bounds: Bounds,
    /// Values computed from ids and uniform values by arithmetic alone.
    computed: Vec<bool>,
    /// Values computed from these and from what floats were converted to.
    placed: Vec<bool>,
    /// Addresses of rows of items.
    apart: Vec<bool>,
    /// Small numbers that are shifted to the left by at most 32 of 64 bits, by the result; if by 32,
    /// also after a multiplication, and with a constant added.
    shifted: HashMap<ValueId, (Operand, i64, Product)>,
    /// Small numbers that are multiplied by a constant, and then moved by one.
    products: HashMap<ValueId, Product>,
    /// The largest factor of a small number on which a step depends.
    factor: i64,
    /// Values that are used as indices of addresses, and for nothing else.
    indices: Vec<bool>,
    /// Masked numbers of 32 bits that are extended for such indices alone, and how.
    masked: HashMap<ValueId, ConvertOp>,
    /// Addresses in the items' own variables that have the same offset in all items.
    own: Vec<bool>,
    /// Addresses that can be read whatever they are.
    readable: Vec<bool>,
    /// The smallest number of items of a vector.
    least: u64,
    /// The extensions of numbers that may be promised not to wrap around, by value, and what is promised.
    promised: Vec<bool>,
    found: Found,
}

impl Shapes {
    /// Computes the shapes for a path through the function. `steps` are the distances in bytes from one
    /// item's private variables to the next one's.
    pub(super) fn new(
        module: &Module,
        function: &Function,
        flow: &Flow,
        rows: Rows,
        steps: &[i64],
    ) -> Self {
        let count = function.values.len();
        let indices = indices(function);
        let masked = masks::find(module, function, &indices);
        let mut shapes = Self {
            shapes: vec![None; count],
            home: vec![None; count],
            small: vec![false; count],
            bounds: Bounds::new(module, function, flow),
            computed: vec![false; count],
            placed: vec![false; count],
            apart: vec![false; count],
            shifted: HashMap::new(),
            products: HashMap::new(),
            factor: 1,
            indices,
            masked,
            own: vec![false; count],
            readable: vec![false; count],
            least: if rows == Rows::Whole { 8 } else { 1 },
            promised: vec![false; count],
            found: Found::default(),
        };
        for value in promises::find(module, function, flow, |_, _, _| true).extensions {
            shapes.promised[value.index()] = true;
        }
        for &param in &function.params {
            shapes.shapes[param.index()] = Some(Shape::Uniform);
        }
        for (variable, &step) in function.variables.iter().zip(steps) {
            shapes.own[variable.address.index()] = true;
            shapes.shapes[variable.address.index()] = Some(Shape::with_step(step, None));
        }
        for (id, block) in function.blocks.iter() {
            for result in block.insts.iter().filter_map(|inst| inst.result) {
                shapes.home[result.index()] = Some(id);
            }
        }
        shapes.find_small(module, function);
        let mut changed = true;
        while changed {
            changed = false;
            for node in &flow.order {
                let Node::Block(block) = *node else { continue };
                for inst in &function.blocks[block].insts {
                    let Some(result) = inst.result else { continue };
                    let new = shapes.of_inst(module, function, flow, block, inst);
                    let old = shapes.shapes[result.index()];
                    let both = match (old, new) {
                        (None, new) => new,
                        (old, None) => old,
                        (Some(old), Some(new)) if old == new => Some(new),
                        _ => Some(Shape::Varying),
                    };
                    changed |= both != old;
                    shapes.shapes[result.index()] = both;
                }
            }
        }
        shapes.find_computed(function, flow, &HashSet::new());
        shapes.find_factor(module, function);
        let definitions = definitions(function);
        let needs = |result: ValueId, extends: Extends, from: Operand| {
            let used = match shapes.of(result) {
                Shape::Strided { guard, .. } => guard.is_none(),
                Shape::Varying => shapes.home[result.index()].is_some_and(|home| {
                    promises::is_counted(function, flow, &definitions, home, from)
                }),
                Shape::Uniform => false,
            };
            used && !shapes.keeps_step(module, extends, from)
        };
        shapes.found = promises::find(module, function, flow, needs);
        shapes
    }

    /// What the steps rely on that the entry function has to find out.
    pub(super) fn promises(&self) -> &Promises {
        &self.found.promises
    }

    /// The extensions whose operands are promised to keep their values.
    pub(super) fn promised(&self) -> &[ValueId] {
        &self.found.extensions
    }

    /// Whether a number of 32 bits with a step keeps it when it is extended, whatever the group.
    fn keeps_step(&self, module: &Module, extends: Extends, from: Operand) -> bool {
        let fits = |product: Product| extends == Extends::Signed || product.moved >= 0;
        self.is_small(from)
            || self.bounds.most(module, from).is_some()
            || self.product(from).is_some_and(fits)
    }

    /// The largest factor by which ids are multiplied that must not overflow 32 bits: the steps hold for
    /// ids below 2^30 divided by it.
    pub(super) fn factor(&self) -> i64 {
        self.factor
    }

    fn find_factor(&mut self, module: &Module, function: &Function) {
        let mut factor = 1;
        for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
            let mut uses = |product: Option<Product>| {
                factor = factor.max(product.map_or(1, |product| product.factor));
            };
            match &inst.op {
                Op::Convert(ConvertOp::SExt | ConvertOp::ZExt, a) => uses(self.product(*a)),
                Op::Binary(BinaryOp::And, a, Operand::Const(_)) => uses(self.product(*a)),
                Op::Binary(BinaryOp::AShr, Operand::Value(a), _) => {
                    uses(self.shifted.get(a).map(|shifted| shifted.2));
                }
                Op::Address { terms, .. } => {
                    for &(index, _) in terms {
                        let bits = module.types.scalar_bits(module.operand_type(function, index));
                        uses(self.product(index).filter(|_| bits < 64));
                    }
                }
                _ => {}
            }
        }
        self.factor = factor;
    }

    /// A value as a small number, multiplied and moved; in 32 bits that does not overflow.
    pub(super) fn product(&self, operand: Operand) -> Option<Product> {
        let Operand::Value(value) = operand else { return None };
        match self.small[value.index()] {
            true => Some(Product { factor: 1, moved: 0 }),
            false => self.products.get(&value).copied(),
        }
    }

    /// How a masked number of 32 bits is extended, if it is only used as an index.
    pub(super) fn extension(&self, masked: ValueId) -> Option<ConvertOp> {
        self.masked.get(&masked).copied()
    }

    /// The constant by which a product, or what is promised to fit, is moved before an operation extends it to 64
    /// bits, as the operation's operand has it and as its result has it.
    pub(super) fn moved(&self, module: &Module, op: &Op) -> Option<(i64, i64)> {
        let promised = match Extends::of(module, op) {
            Some((extends, Operand::Value(from))) => self.found.moved.get(&(extends, from)),
            _ => None,
        };
        let (narrow, wide) = match op {
            _ if let Some(&moved) = promised => (moved, moved),
            Op::Convert(ConvertOp::SExt | ConvertOp::ZExt, a) => {
                let moved = self.product(*a)?.moved;
                (moved, moved)
            }
            Op::Binary(BinaryOp::And, a, Operand::Const(mask)) => {
                let product = self.product(*a)?;
                module.const_bits(*mask).filter(|&mask| product.is_kept_by(mask as i64))?;
                (product.moved, product.moved)
            }
            Op::Binary(BinaryOp::AShr, Operand::Value(a), Operand::Const(right)) => {
                let &(_, 32, product) = self.shifted.get(a)? else { return None };
                let right = module.const_bits(*right).filter(|right| *right <= 32)?;
                (product.moved << 32, product.moved << (32 - right))
            }
            _ => return None,
        };
        (wide != 0).then_some((narrow, wide))
    }

    /// The product that an operation makes of another one.
    fn product_of(&self, module: &Module, function: &Function, inst: &Inst) -> Option<Product> {
        let ty = function.values[inst.result?].ty;
        let bits = module.types.scalar_bits(ty);
        if bits < 32 || module.types.lanes(ty) > 1 {
            return None;
        }
        let constant = |operand: Operand| match operand {
            Operand::Const(id) => {
                let unused = 64 - bits.clamp(1, 64);
                module.const_bits(id).map(|bits| ((bits << unused) as i64) >> unused)
            }
            Operand::Value(_) => None,
        };
        match inst.op {
            Op::Convert(ConvertOp::Trunc | ConvertOp::SExt, a) => self.product(a),
            Op::Convert(ConvertOp::ZExt, a) => self.product(a).filter(|it| it.moved >= 0),
            Op::Binary(op, a, b) => {
                let (product, by) = (self.product(a)?, constant(b)?);
                match op {
                    BinaryOp::Mul => product.times(by),
                    BinaryOp::Shl => product.times(1i64.checked_shl(by.try_into().ok()?)?),
                    BinaryOp::Add => product.plus(by),
                    BinaryOp::Sub => product.plus(by.checked_neg()?),
                    BinaryOp::And => Some(product).filter(|it| it.is_kept_by(by)),
                    // Bits below those of all multiples of the factor.
                    BinaryOp::Or if product.moved == 0 && by >= 0 => {
                        let below = 1i64 << product.factor.trailing_zeros();
                        product.plus(by).filter(|_| by < below)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The shape of a value where it is defined.
    pub(super) fn of(&self, value: ValueId) -> Shape {
        self.shapes[value.index()].unwrap_or(Shape::Uniform)
    }

    /// Whether a value is used behind a loop that items have left at different times: then each item
    /// may have the value of another iteration.
    pub(super) fn escapes(&self, flow: &Flow, value: ValueId, user: BlockId) -> bool {
        let Some(home) = self.home[value.index()] else { return false };
        flow.masked_around(home).is_some_and(|index| !flow.contains(index, user))
    }

    /// Whether a value is recomputed in each turn of the innermost loop of a block that uses it.
    pub(super) fn moves_in_loop(&self, flow: &Flow, value: ValueId, user: BlockId) -> bool {
        flow.within[user.index()].is_some_and(|index| self.is_in_loop(flow, value, index))
    }

    /// Whether a value is computed in a loop, or in one that lies in it.
    pub(super) fn is_in_loop(&self, flow: &Flow, value: ValueId, index: usize) -> bool {
        self.home[value.index()].is_some_and(|home| flow.contains(index, home))
    }

    /// Whether a value is computed in the same innermost loop, or also outside of all loops.
    pub(super) fn is_of_loop(&self, flow: &Flow, value: ValueId, within: Option<usize>) -> bool {
        self.home[value.index()].is_some_and(|home| flow.within[home.index()] == within)
    }

    /// The turns of all loops around a block together, if they are constants; 1 outside of loops.
    pub(super) fn turns_around(&self, flow: &Flow, block: BlockId) -> Option<u64> {
        let turns = |index: usize| self.found.turns.get(index).copied().flatten();
        flow.around(block).try_fold(1_u64, |all, index| Some(all.saturating_mul(turns(index)?)))
    }

    /// The shape of an operand where a block uses it.
    pub(super) fn at(&self, flow: &Flow, operand: Operand, user: BlockId) -> Option<Shape> {
        match operand {
            Operand::Const(_) => Some(Shape::Uniform),
            Operand::Value(value) if self.escapes(flow, value, user) => Some(Shape::Varying),
            Operand::Value(value) => self.shapes[value.index()],
        }
    }

    /// Whether the items diverge at the end of a block.
    pub(super) fn parts(&self, function: &Function, flow: &Flow, block: BlockId) -> bool {
        let terminator = &function.blocks[block].terminator;
        let mut next = terminator.successors();
        next.dedup();
        let mut parts = false;
        if let Terminator::CondBranch(value, ..) | Terminator::Switch { value, .. } = terminator {
            let shape = self.at(flow, *value, block);
            parts = next.len() > 1 && shape.is_some_and(|shape| shape != Shape::Uniform);
        }
        parts
    }

    /// Finds numbers that are small in every launch, provided that global ids are (the entry function
    /// ensures that).
    fn find_small(&mut self, module: &Module, function: &Function) {
        use WorkItemQuery as Q;
        let mut changed = true;
        while changed {
            changed = false;
            for (_, block) in function.blocks.iter() {
                for inst in &block.insts {
                    let Some(result) = inst.result else { continue };
                    let small = match &inst.op {
                        Op::WorkItem(Q::LocalId | Q::LocalLinearId | Q::SubgroupLocalId, _) => true,
                        Op::WorkItem(Q::GlobalId, dimension) => *dimension == 0,
                        Op::Convert(
                            ConvertOp::Trunc | ConvertOp::SExt | ConvertOp::ZExt,
                            Operand::Value(from),
                        ) => {
                            self.small[from.index()]
                                && module.types.scalar_bits(function.values[result].ty) >= 32
                                && module.types.lanes(function.values[result].ty) == 1
                        }
                        // The result is not larger than the first operand.
                        Op::Binary(
                            BinaryOp::UDiv
                            | BinaryOp::URem
                            | BinaryOp::SRem
                            | BinaryOp::LShr
                            | BinaryOp::AShr
                            | BinaryOp::And
                            | BinaryOp::UMin,
                            a,
                            _,
                        )
                        | Op::Row(RowOp::Number | RowOp::Place, a, _)
                            if self.is_small(*a) =>
                        {
                            true
                        }
                        // The extension of a truncated id, as C compilers write it.
                        Op::Binary(BinaryOp::AShr, Operand::Value(a), by) => {
                            let again = self.shifted.get(a).filter(|it| it.2.is_same());
                            let left = again.and_then(|it| u64::try_from(it.1).ok());
                            left.is_some() && left == module.operand_bits(*by)
                        }
                        _ => false,
                    };
                    changed |= small && !self.small[result.index()];
                    self.small[result.index()] |= small;
                    if small {
                        continue;
                    }
                    if let Some(product) = self.product_of(module, function, inst) {
                        changed |= self.products.insert(result, product).is_none();
                    }
                    if let Some(shifted) = self.shifted_by(module, function, inst) {
                        changed |= self.shifted.insert(result, shifted).is_none();
                    }
                }
            }
        }
    }

    /// The small number that an operation shifts to the left.
    fn shifted_by(
        &self,
        module: &Module,
        function: &Function,
        inst: &Inst,
    ) -> Option<(Operand, i64, Product)> {
        if module.types.scalar_bits(function.values[inst.result?].ty) != 64 {
            return None;
        }
        let constant = |operand: Operand| match operand {
            Operand::Const(id) => module.const_bits(id).map(|bits| bits as i64),
            Operand::Value(_) => None,
        };
        let high = |bits: i64| (bits as u32 == 0).then_some(bits >> 32);
        let one = Product { factor: 1, moved: 0 };
        match inst.op {
            Op::Binary(BinaryOp::Shl, a, b) if self.is_small(a) => match constant(b)? {
                left @ 0..=32 => Some((a, left, one)),
                left @ 33..=62 => Some((a, 32, one.times(1 << (left - 32))?)),
                _ => None,
            },
            Op::Binary(BinaryOp::Mul, a, b) if self.is_small(a) => {
                Some((a, 32, one.times(high(constant(b)?)?)?))
            }
            Op::Binary(BinaryOp::Add, Operand::Value(a), b) => match self.shifted.get(&a) {
                Some(&(small, 32, product)) => {
                    Some((small, 32, product.plus(high(constant(b)?)?)?))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether a value is between 0 and 2^30 - 1 for every item.
    pub(super) fn is_small(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Value(value) if self.small[value.index()])
    }

    /// The greatest number that each item's value may be, if none is negative or wraps around.
    pub(super) fn most(&self, module: &Module, operand: Operand) -> Option<u64> {
        self.bounds.most(module, operand)
    }

    /// Whether a number has no bits but those that all multiples of a product's factor leave free.
    fn fits_below(&self, module: &Module, number: Operand, product: Operand) -> bool {
        let free = self.product(product).filter(|it| it.moved == 0);
        let free = free.map_or(1, |product| 1u64 << product.factor.trailing_zeros());
        self.bounds.most(module, number).is_some_and(|most| most < free)
    }

    fn of_inst(
        &self,
        module: &Module,
        function: &Function,
        flow: &Flow,
        block: BlockId,
        inst: &Inst,
    ) -> Option<Shape> {
        use BinaryOp as B;
        let at = |operand: Operand| self.at(flow, operand, block);
        let result = inst.result?;
        let ty = function.values[result].ty;
        let scalar = matches!(module.types[ty], Type::Int(_) | Type::Pointer(_));
        let constant = |operand: Operand| match operand {
            Operand::Const(id) => module.const_bits(id).map(|bits| {
                let unused = 64 - module.types.scalar_bits(ty).clamp(1, 64);
                ((bits << unused) as i64) >> unused
            }),
            Operand::Value(_) => None,
        };
        match &inst.op {
            Op::Phi(incoming) => return self.of_phi(flow, block, incoming),
            Op::WorkItem(query, dimension) => return Some(of_query(*query, *dimension)),
            Op::Whole(_) | Op::Row(RowOp::Fits | RowOp::Number, ..) => return Some(Shape::Uniform),
            Op::AtomicRmw(..)
            | Op::AtomicCompareExchange { .. }
            | Op::Printf(..)
            | Op::Strings(..)
            | Op::Call(..) => {
                return Some(Shape::Varying);
            }
            Op::Collect(_, _, index) => {
                let uniform = index.is_none_or(|index| at(index) == Some(Shape::Uniform));
                let (op, least) = (&inst.op, self.least);
                return Some(of_group(module, flow, block, op, uniform, least));
            }
            _ => {}
        }
        let mut uniform = true;
        let mut unknown = false;
        inst.op.for_each_operand(|operand| match at(operand) {
            Some(shape) => uniform &= shape == Shape::Uniform,
            None => unknown = true,
        });
        if unknown {
            return None;
        }
        if uniform {
            return Some(Shape::Uniform);
        }
        if !scalar {
            return Some(Shape::Varying);
        }
        let step = |operand: Operand| at(operand).and_then(Shape::step);
        // Amounts of shifts count modulo the width.
        let amount = |operand: Operand| {
            constant(operand).map(|amount| amount & (i64::from(module.types.scalar_bits(ty)) - 1))
        };
        let strided = match &inst.op {
            Op::Row(RowOp::Place, a, _) => step(*a),
            Op::Unary(UnaryOp::Neg, a) => times(step(*a), -1),
            Op::Binary(B::Add, a, b) => sum(step(*a), step(*b), 1),
            Op::Binary(B::Sub, a, b) => sum(step(*a), step(*b), -1),
            Op::Binary(B::Mul, a, b) => match (constant(*a), constant(*b)) {
                (_, Some(factor)) => times(step(*a), factor),
                (Some(factor), _) => times(step(*b), factor),
                _ => None,
            },
            Op::Binary(B::Shl, a, b) => amount(*b).and_then(|amount| times(step(*a), 1 << amount)),
            // The same holds for the truncation of an id to 32 bits: it keeps all bits of a small
            // number.
            Op::Binary(B::And, a, b) => match (constant(*a), constant(*b)) {
                (_, Some(mask)) if self.is_small(*a) && keeps_small(mask) => step(*a),
                (_, Some(_)) if self.products.contains_key(&result) => step(*a),
                (_, Some(_)) if self.promised[result.index()] => step(*a),
                (Some(mask), _) if self.is_small(*b) && keeps_small(mask) => step(*b),
                // For an index, a test at run time is worth it.
                _ if self.indices[result.index()] && module.types.scalar_bits(ty) == 64
                    || self.masked.contains_key(&result) =>
                {
                    match (step(*a), step(*b)) {
                        (Some((by, None)), Some((0, None)))
                        | (Some((0, None)), Some((by, None)))
                            if (1..=MOST_STEP).contains(&by) =>
                        {
                            Some((by, Some(result)))
                        }
                        _ => None,
                    }
                }
                _ => None,
            },
            // `-1 - a`, as clang writes what is subtracted from a size less one.
            Op::Unary(UnaryOp::Not, a) => times(step(*a), -1),
            Op::Binary(B::Xor, a, b) if constant(*b) == Some(-1) => times(step(*a), -1),
            Op::Binary(B::Or, a, _) if self.products.contains_key(&result) => step(*a),
            Op::Binary(B::Or, a, b) => match (step(*a), step(*b)) {
                (Some((0, None)), by) if self.fits_below(module, *a, *b) => by,
                (by, Some((0, None))) if self.fits_below(module, *b, *a) => by,
                _ => None,
            },
            Op::Binary(B::AShr | B::LShr, a, b) if self.bounds.most(module, *a).is_some() => {
                shifted_right(step(*a), amount(*b))
            }
            // C compilers write the extension of a 32-bit id, times a power of two, in this form.
            Op::Binary(B::AShr, a, b) => {
                let shifted = match a {
                    Operand::Value(value) => self.shifted.get(value),
                    Operand::Const(_) => None,
                };
                match (shifted, amount(*b), module.types.scalar_bits(ty)) {
                    (Some(&(small, left, product)), Some(right), 64) if right <= left => {
                        times(step(small), product.factor << (left - right))
                    }
                    _ => None,
                }
            }
            Op::Convert(ConvertOp::Trunc, a) => step(*a).filter(|(_, guard)| guard.is_none()),
            Op::Convert(ConvertOp::PtrToInt | ConvertOp::IntToPtr | ConvertOp::PtrCast, a)
            | Op::Shadow(a) => step(*a),
            Op::Convert(ConvertOp::SExt | ConvertOp::ZExt, a) => match step(*a) {
                // The low bits of a mask do not reach the sign.
                guarded @ Some((_, Some(_))) => guarded,
                Some((by, None)) if self.is_small(*a) => Some((by, None)),
                Some((by, None))
                    if self.bounds.most(module, *a).is_some()
                        && module.types.scalar_bits(module.operand_type(function, *a)) == 32 =>
                {
                    Some((i64::from(by as i32), None))
                }
                Some((by, None))
                    if self.product(*a).is_some_and(|product| {
                        product.moved >= 0 || matches!(inst.op, Op::Convert(ConvertOp::SExt, _))
                    }) =>
                {
                    Some((i64::from(by as i32), None))
                }
                Some((by, None))
                    if module.types.scalar_bits(ty) == 64
                        && module.types.scalar_bits(module.operand_type(function, *a)) == 32 =>
                {
                    // A signed number of 32 bits: it is the same modulo 2^32.
                    let guard = Some(result).filter(|_| !self.promised[result.index()]);
                    Some((i64::from(by as i32), guard))
                }
                _ => None,
            },
            Op::Address { base, terms, .. } => {
                terms.iter().fold(step(*base), |so_far, &(index, stride)| {
                    let bits = module.types.scalar_bits(module.operand_type(function, index));
                    let whole = bits == 64
                        || self.product(index).is_some()
                        || self.bounds.most(module, index).is_some()
                        || at(index) == Some(Shape::Uniform);
                    sum(so_far, times(step(index).filter(|_| whole), stride), 1)
                })
            }
            Op::Select(condition, a, b) if at(*condition) == Some(Shape::Uniform) => {
                step(*a).filter(|_| at(*a) == at(*b))
            }
            _ => None,
        };
        Some(strided.map_or(Shape::Varying, |(step, guard)| Shape::with_step(step, guard)))
    }

    fn of_phi(
        &self,
        flow: &Flow,
        block: BlockId,
        incoming: &[(BlockId, Operand)],
    ) -> Option<Shape> {
        let first = incoming.first()?.1;
        let one = incoming.iter().all(|&(_, operand)| operand == first);
        if one && matches!(first, Operand::Const(_)) {
            return Some(Shape::Uniform);
        }
        if incoming.iter().any(|&(from, _)| flow.mixes(from, block)) && !one {
            return Some(Shape::Varying);
        }
        if incoming.iter().any(|&(from, _)| flow.leaves_masked(from, block)) {
            return Some(Shape::Varying);
        }
        let mut shape = None;
        for &(from, operand) in incoming {
            let Some(next) = self.at(flow, operand, from) else { continue };
            if shape.is_some_and(|shape| shape != next) {
                return Some(Shape::Varying);
            }
            shape = Some(next);
        }
        shape
    }
}

/// The distance in bytes from one item's private variable to the next item's.
pub(super) fn private_step(size: u64, align: u64) -> i64 {
    size.next_multiple_of(align.max(1)) as i64
}

/// The values that are used as indices of addresses, and for nothing else, by number.
fn indices(function: &Function) -> Vec<bool> {
    let mut indices = vec![true; function.values.len()];
    let mut other = |operand: Operand| {
        if let Operand::Value(value) = operand {
            indices[value.index()] = false;
        }
    };
    for (_, block) in function.blocks.iter() {
        for inst in &block.insts {
            match &inst.op {
                Op::Address { base, .. } => other(*base),
                op => op.for_each_operand(&mut other),
            }
        }
        block.terminator.for_each_operand(&mut other);
    }
    indices
}

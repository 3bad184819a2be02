// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items that read rows at places which are never in line.
//!
//! ```text
//!   phase = i * 147 % 160                   taps: const float *
//!   taps[phase * 16 + k]                    k from 0 to 15: rows begin at multiples of 64 bytes
//!   in[i * 147 / 160 + k]                   a quotient: items share places, or leave some out
//! ```
//!
//! Arithmetic alone has made such addresses, so each element would be read behind a test whether the items' addresses are
//! in line, and another one whether they are close. The tests also part the elements of a row from each other, which are
//! one load otherwise ([`transpose`](super::transpose)). What has a remainder too (`in[i / w * h + i % w + k]`) is in line
//! more often than not.

use std::cell::RefCell;
use std::collections::HashMap;

use super::shape::Shape;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, ConvertOp, Definition, Function, Module, Op, Operand, ValueId, definitions,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "far";

/// Low bits in which the items' addresses agree: rows begin at multiples of 32 bytes.
const BITS: u32 = 5;

/// The fewest elements of a row that are read.
const FEWEST: usize = 4;

/// The fewest elements of a row that are read one after the other if rows may begin anywhere.
const LONG: usize = 8;

/// The fewest bits of a quotient that a mask leaves.
const WHOLE: u32 = 24;

/// The longest way back from an address.
const MAX_DEPTH: u32 = 16;

/// The addresses of elements of such rows that are read.
pub(super) fn find(module: &Module, source: &Function, way: &Way) -> Vec<ValueId> {
    if is_skipped(NAME) {
        return Vec::new();
    }
    let known = RefCell::default();
    let finder = Finder { module, source, way, definitions: definitions(source), known };
    let (mut rows, mut runs) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
    for inst in source.blocks.iter().flat_map(|(_, block)| &block.insts) {
        let (&Op::Load(Operand::Value(at), _), Some(result)) = (&inst.op, inst.result) else {
            continue;
        };
        let address = Operand::Value(at);
        if way.shapes.of(at) != Shape::Varying || !way.shapes.is_computed(address) {
            continue;
        }
        let Some(base) = finder.base(at) else { continue };
        if finder.agree(address, MAX_DEPTH) >= BITS {
            rows.entry(base).or_default().push(at);
        }
        let size = module.types.size(source.values[result].ty);
        let (root, offset) = finder.root(address);
        if finder.is_quotient(root, MAX_DEPTH) {
            runs.entry((root, size)).or_default().push((offset, at));
        }
    }
    let rows = rows.into_values().filter(|row| row.len() >= FEWEST).flatten();
    let long = |((_, size), mut run): ((Operand, u64), Vec<(i64, ValueId)>)| {
        run.sort_by_key(|&(offset, at)| (offset, at.index()));
        let mut all = run.iter().map(|&(offset, _)| offset).collect::<Vec<_>>();
        all.dedup();
        let is_long = all.len() >= LONG && all.windows(2).all(|two| two[1] - two[0] == size as i64);
        is_long.then(|| run.into_iter().map(|(_, at)| at))
    };
    let runs = runs.into_iter().filter_map(long).flatten();
    rows.chain(runs).collect()
}

struct Finder<'a> {
    module: &'a Module,
    source: &'a Function,
    way: &'a Way,
    definitions: Vec<Option<Definition>>,
    /// What [`agree`](Self::agree) has found.
    known: RefCell<HashMap<Operand, u32>>,
}

impl<'a> Finder<'a> {
    fn made(&self, operand: Operand) -> Option<&'a Op> {
        let Operand::Value(value) = operand else { return None };
        match self.definitions[value.index()]? {
            Definition::Inst(block, index) => Some(&self.source.blocks[block].insts[index].op),
            Definition::Entry => None,
        }
    }

    fn shape(&self, operand: Operand) -> Shape {
        match operand {
            Operand::Value(value) => self.way.shapes.of(value),
            Operand::Const(_) => Shape::Uniform,
        }
    }

    /// An address to which a distance is added, and the distance.
    fn root(&self, at: Operand) -> (Operand, i64) {
        let (mut at, mut all) = (at, 0i64);
        while let Some(Op::Address { base, offset, terms, .. }) = self.made(at)
            && terms.is_empty()
        {
            (at, all) = (*base, all.wrapping_add(*offset));
        }
        (at, all)
    }

    /// Whether an operand is a quotient of a number with a step, or what all items add to one or multiply it with. Such
    /// places are not in line, as those are that also have a remainder.
    fn is_quotient(&self, operand: Operand, depth: u32) -> bool {
        if self.shape(operand) != Shape::Varying || depth == 0 {
            return false;
        }
        let of = |operand| self.is_quotient(operand, depth - 1);
        let is_uniform = |operand| self.shape(operand) == Shape::Uniform;
        match self.made(operand) {
            Some(Op::Address { base, terms, .. }) => {
                let mut varying =
                    terms.iter().map(|&(index, _)| index).filter(|&index| !is_uniform(index));
                let first = varying.next();
                match first.filter(|_| varying.next().is_none()) {
                    Some(index) => is_uniform(*base) && of(index),
                    None => first.is_none() && of(*base),
                }
            }
            Some(&Op::Convert(
                ConvertOp::Trunc | ConvertOp::SExt | ConvertOp::ZExt | ConvertOp::PtrCast,
                a,
            )) => of(a),
            Some(&Op::Binary(op, a, b)) => match op {
                BinaryOp::UDiv | BinaryOp::SDiv | BinaryOp::LShr | BinaryOp::AShr => {
                    is_uniform(b) && (of(a) || matches!(self.shape(a), Shape::Strided { .. }))
                }
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Shl => {
                    is_uniform(b) && of(a) || is_uniform(a) && of(b)
                }
                // A number without a sign, shifted after it was extended.
                BinaryOp::And => {
                    let is_whole = |mask: u64| {
                        mask.trailing_ones() >= WHOLE && mask & mask.wrapping_add(1) == 0
                    };
                    self.module.operand_bits(b).is_some_and(is_whole) && of(a)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// What all items share of an address that differs.
    fn base(&self, at: ValueId) -> Option<Operand> {
        let mut at = Operand::Value(at);
        for _ in 0..MAX_DEPTH {
            if self.shape(at) == Shape::Uniform {
                return Some(at);
            }
            match self.made(at)? {
                &Op::Address { base, .. } | &Op::Convert(ConvertOp::PtrCast, base) => at = base,
                _ => return None,
            }
        }
        None
    }

    /// The number of low bits in which all items' numbers or addresses agree.
    fn agree(&self, operand: Operand, depth: u32) -> u32 {
        let of = |operand| self.agree(operand, depth - 1);
        match self.shape(operand) {
            Shape::Uniform => return u64::BITS,
            Shape::Strided { step, .. } => return step.trailing_zeros(),
            Shape::Varying if depth == 0 => return 0,
            Shape::Varying => {}
        }
        if let Some(&known) = self.known.borrow().get(&operand) {
            return known;
        }
        let constant = |operand| self.module.operand_bits(operand);
        let zeros = |operand| constant(operand).map_or(0, u64::trailing_zeros);
        let found = match self.made(operand) {
            Some(Op::Address { base, terms, .. }) => {
                let terms = terms.iter().map(|&(index, stride)| {
                    of(index).saturating_add(stride.trailing_zeros()).min(u64::BITS)
                });
                terms.fold(of(*base), u32::min)
            }
            Some(&Op::Convert(
                ConvertOp::Trunc | ConvertOp::SExt | ConvertOp::ZExt | ConvertOp::PtrCast,
                a,
            )) => of(a),
            Some(&Op::Binary(op, a, b)) => {
                let both = of(a).min(of(b));
                match op {
                    BinaryOp::Add | BinaryOp::Sub | BinaryOp::Or | BinaryOp::Xor => both,
                    BinaryOp::And => both.max(zeros(a)).max(zeros(b)),
                    // One of both is no constant.
                    BinaryOp::Mul => both.saturating_add(zeros(a) + zeros(b)).min(u64::BITS),
                    BinaryOp::Shl => match constant(b) {
                        Some(by @ ..64) => of(a).saturating_add(by as u32).min(u64::BITS),
                        _ => 0,
                    },
                    _ => 0,
                }
            }
            _ => 0,
        };
        self.known.borrow_mut().insert(operand, found);
        found
    }
}

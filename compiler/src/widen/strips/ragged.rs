// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels whose items walk along rows of different lengths, and do little else.
//!
//! ```text
//!   for (j = first[i]; j < first[i + 1]; j++)
//!     sum += value[j] * x[column[j]];
//! ```
//!
//! A vector gathers everything in each turn, until its longest row has ended. One item loads neighbours one after
//! the other, which the processor foresees, and computes the little that there is to compute meanwhile.

use super::{Body, Lines};
use crate::ir::arena::Id;
use crate::ir::{
    AddressSpace, BinaryOp, BlockId, ConvertOp, Function, Inst, Module, Op, Operand, Type,
};
use crate::optimise::is_skipped;
use crate::widen::shape::Shape;
use crate::widen::way::Way;

/// The name by which it is left out.
const NAME: &str = "ragged";

/// The most operations for each element that a turn gathers. With 3 elements in a turn, one item at a time takes 0.4 of
/// the time with 2 operations, 0.55 with 10, 0.7 with 18 and 0.9 with 34; with one element 0.6 with one, 0.8 with 9
/// and 1.3 with 17.
const MOST_EACH: usize = 4;

/// The most instructions beside such loops.
const MOST_BESIDE: usize = 128;

/// As many operations as a division, and a product of integers, counts.
const DIVISION: usize = 4;
const PRODUCT: usize = 2;

/// The longest way back from an address to a counter.
const MAX_DEPTH: usize = 8;

/// Whether a kernel whose items do not wait for each other is faster one item at a time.
pub(in crate::widen) fn prevail(module: &Module, source: &Function, way: &Way) -> bool {
    let loops = &way.flow.loops;
    let inner: Vec<usize> =
        (0..loops.len()).filter(|&index| way.flow.is_innermost(index)).collect();
    if inner.is_empty() || is_skipped(NAME) {
        return false;
    }
    let within = |id: BlockId| way.flow.within[id.index()];
    let beside = |id: BlockId| within(id).is_none_or(|index| !inner.contains(&index));
    let others = source.blocks.iter().filter(|(id, _)| beside(*id));
    others.map(|(_, block)| block.insts.len()).sum::<usize>() <= MOST_BESIDE
        && inner.iter().all(|&index| is_ragged(module, source, way, index))
}

/// Whether the turns of a loop differ from item to item, and mostly load from each item's row and from where that says.
fn is_ragged(module: &Module, source: &Function, way: &Way, index: usize) -> bool {
    let header = way.flow.loops[index].header;
    let Some(body) = Body::of(source, &way.flow, header) else { return false };
    let differs = match body.condition {
        Operand::Value(value) => way.shapes.of(value) != Shape::Uniform,
        Operand::Const(_) => false,
    };
    if !differs || body.blocks.len() > 1 {
        return false;
    }
    let lines = Lines::new(module, source, way.shapes.promised(), &body);
    let (mut rows, mut elements, mut operations) = (0, 0, 0);
    for (_, inst) in body.insts(source) {
        let (at, ty, access) = match (&inst.op, inst.result) {
            (&Op::Load(at, access), Some(value)) => (at, source.values[value].ty, access),
            (&Op::Store(at, value, access), _) => (at, module.operand_type(source, value), access),
            (op, Some(_)) => match cost(module, source, op) {
                Some(cost) => {
                    operations += cost;
                    continue;
                }
                None => return false,
            },
            _ => return false,
        };
        let size = module.types.size(ty) as i64;
        let Type::Pointer(space) = module.types[module.operand_type(source, at)] else {
            return false;
        };
        if access.volatile || matches!(space, AddressSpace::Private | AddressSpace::Local) {
            return false;
        }
        match lines.shape(way, at) {
            Shape::Uniform => {}
            Shape::Strided { step, .. } if step == size => {}
            _ => {
                elements += module.types.lanes(ty) as usize;
                rows += usize::from(grows(&lines, at, 0) == Some(size));
            }
        }
    }
    rows > 0 && operations <= MOST_EACH * elements
}

/// How many operations an instruction without an effect is, if it takes few.
fn cost(module: &Module, source: &Function, op: &Op) -> Option<usize> {
    let lanes = |operand| module.types.lanes(module.operand_type(source, operand)) as usize;
    Some(match *op {
        Op::Phi(_) | Op::Assume(_) | Op::Address { .. } | Op::Convert(..) => 0,
        Op::Binary(op, a, _) => {
            use BinaryOp::{FDiv, FDivNear, Mul, SDiv, SRem, UDiv, URem};
            lanes(a)
                * match op {
                    FDiv | FDivNear | SDiv | SRem | UDiv | URem => DIVISION,
                    Mul => PRODUCT,
                    _ => 1,
                }
        }
        Op::Compare(_, a, _) | Op::Select(_, a, _) | Op::Ternary(_, a, ..) => lanes(a),
        Op::Extract(..) | Op::Insert(..) | Op::Construct(_) | Op::Shuffle(..) => 1,
        _ => return None,
    })
}

/// By how much an address or a number grows in a turn, if numbers do not wrap around.
pub(super) fn grows(lines: &Lines<'_>, operand: Operand, depth: usize) -> Option<i64> {
    if let Some(step) = lines.step(operand, 0) {
        return Some(step);
    }
    let Inst { op, .. } = lines.made(operand).filter(|_| depth < MAX_DEPTH)?;
    let grows = |operand| grows(lines, operand, depth + 1);
    match op {
        Op::Convert(ConvertOp::SExt | ConvertOp::ZExt | ConvertOp::PtrCast, a) => grows(*a),
        Op::Address { base, terms, .. } => {
            terms.iter().try_fold(grows(*base)?, |sum, &(index, by)| {
                Some(sum + grows(index)?.checked_mul(by)?)
            })
        }
        &Op::Binary(BinaryOp::Add, a, b) => grows(a)?.checked_add(grows(b)?),
        // In a loop inside this one it grows by what its first value does.
        Op::Phi(arms) if !lines.is_of_header(operand) => {
            arms.iter().find_map(|&(_, arm)| grows(arm))
        }
        _ => None,
    }
}

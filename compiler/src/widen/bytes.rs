// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels of bytes and of integers of two bytes.
//!
//! A vector of 16 bytes is a quarter of a register, and each operation on it one instruction. So kernels that read, compute
//! and write little else are widened once more, to vectors of twice as many items, which take as many instructions:
//!
//! ```text
//!   vpminub %xmm0, %xmm1, %xmm0     ──▶     vpminub %ymm0, %ymm1, %ymm0
//! ```
//!
//! A median of 3 x 3 bytes takes 0.6 of the time, differences of two pictures 0.9, copies 0.83.

use super::shape::Shape;
use super::way::Way;
use crate::ir::{Function, Module, Op, Type};

/// The maximum size of a number, in bytes. Halves are computed with as numbers of four bytes.
const MAX_SIZE: u64 = 2;

/// The share of a kernel's operations that have such results: nine of ten. Conversions to words take as many instructions
/// for each item with any vectors, and need twice as many registers. A minimum of 5 x 5 bytes at places that are limited to a
/// picture, computed as words, would take 2.4 times as long.
const SHARE: (usize, usize) = (9, 10);

/// Whether a kernel without loops computes little but small integers, and accesses no others, all of them in lines.
pub(super) fn is_of_bytes(module: &Module, source: &Function, way: &Way) -> bool {
    if !way.flow.loops.is_empty() || !source.variables.is_empty() {
        return false;
    }
    let size = |ty| match module.types[ty] {
        Type::Int(_) => module.types.size(ty),
        _ => u64::MAX,
    };
    let (mut few, mut all, mut lines) = (0, 0, 0);
    for (id, block) in source.blocks.iter() {
        for inst in &block.insts {
            let (at, ty) = match (&inst.op, inst.result) {
                (&Op::Load(at, _), Some(result)) => (at, source.values[result].ty),
                (&Op::Store(at, value, _), _) => (at, module.operand_type(source, value)),
                (op, Some(result)) if op.is_pure() || matches!(op, Op::Phi(_)) => {
                    let ty = source.values[result].ty;
                    if way.shapes.of(result) == Shape::Varying && module.types.scalar_bits(ty) > 1 {
                        all += 1;
                        few += usize::from(size(ty) <= MAX_SIZE);
                    }
                    continue;
                }
                _ => return false,
            };
            match way.shapes.at(&way.flow, at, id) {
                Some(Shape::Uniform) => {}
                Some(Shape::Strided { step, .. })
                    if size(ty) <= MAX_SIZE && step.unsigned_abs() == size(ty) =>
                {
                    lines += 1;
                }
                _ => return false,
            }
        }
    }
    lines > 0 && few * SHARE.1 >= all * SHARE.0
}

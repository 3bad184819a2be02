// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values that the resumed code recomputes instead of loading them from the frame.

use std::collections::{HashMap, HashSet};

use super::barrier::Barrier;
use crate::ir::{BinaryOp, ConvertOp, Function, Module, Op, Operand, Type, TypeId, ValueId};

/// Removes the values that are recomputed from the values that barriers keep. Returns them, and the
/// values from which they are computed.
pub(super) fn take_out(
    module: &Module,
    function: &Function,
    barriers: &mut [Barrier],
) -> HashSet<ValueId> {
    let cheap = remakable(module, function);
    let mut remade = HashSet::new();
    for barrier in barriers {
        remade.extend(barrier.live.iter().filter(|value| cheap.contains(value)).copied());
        barrier.live.retain(|value| !cheap.contains(value));
        barrier.changed.retain(|value| !cheap.contains(value));
    }
    close(function, &mut remade);
    remade
}

/// Adds the operands of a set's values, transitively.
fn close(function: &Function, set: &mut HashSet<ValueId>) {
    loop {
        let before = set.len();
        for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
            if inst.result.is_some_and(|result| set.contains(&result)) {
                inst.op.for_each_operand(|operand| {
                    if let Operand::Value(value) = operand {
                        set.insert(value);
                    }
                });
            }
        }
        if set.len() == before {
            return;
        }
    }
}

/// The maximum number of instructions for recomputing a value.
const REMADE_STEPS: u32 = 6;

/// The values that the resumed code can recompute instead of keeping them: parameters, addresses of
/// private variables, the item's queries for its place, and integers and addresses that take few
/// instructions from there.
///
/// Code generation computes them at the start of the function, before any region.
fn remakable(module: &Module, function: &Function) -> HashSet<ValueId> {
    let given = function.variables.iter().map(|variable| variable.address);
    // By value, the number of instructions that it takes.
    let mut steps: HashMap<ValueId, u32> =
        function.params.iter().copied().chain(given).map(|value| (value, 0)).collect();
    // Definitions may follow uses in block order, so this repeats until nothing is added.
    loop {
        let before = steps.len();
        for (_, block) in function.blocks.iter() {
            for inst in &block.insts {
                let Some(result) = inst.result else { continue };
                if steps.contains_key(&result) {
                    continue;
                }
                let mut sum = match &inst.op {
                    Op::WorkItem(..) | Op::Present => 0,
                    op if is_simple(op) && is_scalar(module, function.values[result].ty) => 1,
                    _ => continue,
                };
                inst.op.for_each_operand(|operand| {
                    if let Operand::Value(value) = operand {
                        sum += steps.get(&value).copied().unwrap_or(REMADE_STEPS + 1);
                    }
                });
                if sum <= REMADE_STEPS {
                    steps.insert(result, sum);
                }
            }
        }
        if steps.len() == before {
            return steps.into_keys().collect();
        }
    }
}

/// Whether an operation takes an instruction or two and may be executed speculatively.
fn is_simple(op: &Op) -> bool {
    use BinaryOp as B;
    match op {
        Op::Convert(kind, _) => {
            use ConvertOp as C;
            matches!(kind, C::Trunc | C::SExt | C::ZExt | C::PtrCast | C::PtrToInt | C::IntToPtr)
        }
        Op::Binary(kind, ..) => matches!(
            kind,
            B::Add | B::Sub | B::Mul | B::And | B::Or | B::Xor | B::Shl | B::LShr | B::AShr
        ),
        Op::Address { .. } => true,
        _ => false,
    }
}

fn is_scalar(module: &Module, ty: TypeId) -> bool {
    matches!(module.types[ty], Type::Int(_) | Type::Pointer(_))
}

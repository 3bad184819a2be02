// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether groups of a kernel may wait for each other.

use crate::ir::{
    AddressSpace, ConstKind, ConvertOp, Definition, Function, Inst, Module, Op, Operand, Type,
    Uses, arena::Id, definitions,
};

/// Whether a group may wait in a function until another group has written something. It then looks at memory that
/// groups share, time and again: by loads that are volatile or atomic, by the results of other atomic operations, or
/// with a fence before each look. A group that only adds to such memory does not wait.
///
/// Groups that print count as well: what they print is expected in their order.
pub(super) fn may_wait(module: &Module, function: &Function) -> bool {
    let insts = || function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let looks = |inst: &Inst| match inst.op {
        Op::Load(at, access) => access.volatile.then_some(at),
        Op::Copy(_, from, _, access) => access.volatile.then_some(from),
        Op::AtomicLoad(at, ..)
        | Op::AtomicRmw(_, at, ..)
        | Op::AtomicCompareExchange { ptr: at, .. } => Some(at),
        _ => None,
    };
    if insts().any(|inst| matches!(inst.op, Op::Fence(..) | Op::GridBarrier | Op::Printf(..))) {
        return true;
    }
    if insts().all(|inst| looks(inst).is_none()) {
        return false;
    }
    let (uses, definitions) = (Uses::of_function(function), definitions(function));
    let is_used = |inst: &Inst| inst.result.is_some_and(|result| !uses.of(result).is_empty());
    insts().any(|inst| {
        let is_shared = |at| is_shared(module, function, &definitions, at);
        looks(inst).is_some_and(|at| is_shared(at) && (is_used(inst) || inst.result.is_none()))
    })
}

/// Whether other groups may reach the memory at a pointer.
fn is_shared(
    module: &Module,
    function: &Function,
    definitions: &[Option<Definition>],
    at: Operand,
) -> bool {
    let mut at = at;
    // Pointers of no certain space are made from others; clang writes atomic operations with them.
    for _ in 0..8 {
        match module.types[module.operand_type(function, at)] {
            Type::Pointer(AddressSpace::Local | AddressSpace::Private) => return false,
            Type::Pointer(AddressSpace::Generic) => {}
            _ => return true,
        }
        let value = match at {
            Operand::Value(value) => value,
            Operand::Const(id) => match module.constants[id].kind {
                ConstKind::Address(global, _) => {
                    return module.globals[global].space != AddressSpace::Local;
                }
                _ => return true,
            },
        };
        let Some(Definition::Inst(block, index)) = definitions[value.index()] else { return true };
        match function.blocks[block].insts[index].op {
            Op::Convert(ConvertOp::PtrCast, from) => at = from,
            Op::Address { base, .. } => at = base,
            _ => return true,
        }
    }
    true
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the values whose states are tracked from the load to their uses.
//!
//! A program may move bytes that it has never written: padding of structures, the fourth component of a
//! vector of three, the rest of a row. That is no mistake before something depends on them. So a load
//! is not checked if its value is only moved; the states move along, and are checked where the value
//!
//! - is an operand of arithmetic or a comparison, decides a branch, or is an address,
//! - except for arithmetic that compilers speculate before they know whether the result is needed: arithmetic
//!   whose results are only selected, by a select or by a later branch, is not a use; its result is followed
//!   too.
//!
//! Most loads are used right after, in their own block. Those are checked at once and not followed.

use std::collections::HashSet;

use crate::ir::{
    AddressSpace, BinaryOp, BlockId, ConvertOp, Dominators, Function, Inst, Module, Op, Operand,
    Type, Uses, ValueId,
};

/// The effect of an instruction on an operand's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Its result holds the value, or a part of it.
    Moves,
    /// It writes the value to memory.
    Stores,
    /// It shows the value to other items; it is not followed there.
    Ends,
    /// It depends on the value.
    Depends,
}

/// The values that are followed.
pub(super) struct Followed {
    values: HashSet<ValueId>,
    /// Arithmetic whose results are only selected.
    speculated: HashSet<ValueId>,
}

impl Followed {
    /// Finds the values to follow in a function.
    /// `has_states`: whether memory at an address has states.
    pub(super) fn find(
        module: &Module,
        function: &Function,
        dominators: &Dominators,
        has_states: impl Fn(Operand) -> bool,
    ) -> Self {
        let uses = Uses::of_function(function);
        let speculated = speculated(function, &uses, dominators);
        let mut values = HashSet::new();
        let mut work = Vec::new();
        for (id, block) in function.blocks.iter() {
            for (index, inst) in block.insts.iter().enumerate() {
                let Op::Load(at, _) = inst.op else { continue };
                let Some(result) = inst.result else { continue };
                if has_states(at) && !used_at_once(module, function, &uses, &speculated, id, index)
                {
                    values.insert(result);
                    work.push(result);
                }
            }
        }
        while let Some(value) = work.pop() {
            for &(block, index) in uses.of(value) {
                let Some(inst) = function.blocks[block].insts.get(index as usize) else { continue };
                let Some(result) = inst.result else { continue };
                let moves = use_of(module, function, inst, value) == Use::Moves;
                if (moves || speculated.contains(&result)) && values.insert(result) {
                    work.push(result);
                }
            }
        }
        Self { values, speculated }
    }

    /// Follows no value.
    pub(super) fn none() -> Self {
        Self { values: HashSet::new(), speculated: HashSet::new() }
    }

    /// Whether a value is followed.
    pub(super) fn has(&self, value: ValueId) -> bool {
        self.values.contains(&value)
    }

    /// Whether an operand is followed.
    pub(super) fn has_operand(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Value(value) if self.has(value))
    }

    /// Whether a value is arithmetic whose results are only selected.
    pub(super) fn is_speculated(&self, value: ValueId) -> bool {
        self.speculated.contains(&value)
    }
}

/// Whether memory at an address has states in the shadow: private memory has none.
pub(super) fn has_shadow(module: &Module, function: &Function, at: Operand) -> bool {
    !matches!(space_of(module, function, at), Some(AddressSpace::Private))
}

/// The address space of a pointer.
pub(super) fn space_of(module: &Module, function: &Function, at: Operand) -> Option<AddressSpace> {
    match module.types[module.operand_type(function, at)] {
        Type::Pointer(space) => Some(space),
        _ => None,
    }
}

/// Whether an instruction in a load's own block depends on all of its value.
fn used_at_once(
    module: &Module,
    function: &Function,
    uses: &Uses,
    speculated: &HashSet<ValueId>,
    id: BlockId,
    index: usize,
) -> bool {
    let block = &function.blocks[id];
    let Some(result) = block.insts[index].result else { return false };
    // A phi of this block takes the value in the next iteration of a loop.
    let here =
        uses.of(result).iter().filter(|&&(at, use_index)| at == id && use_index as usize > index);
    here.into_iter().any(|&(_, use_index)| match block.insts.get(use_index as usize) {
        Some(inst) => {
            let late = inst.result.is_some_and(|result| speculated.contains(&result));
            use_of(module, function, inst, result) == Use::Depends && !late
        }
        None => true,
    })
}

/// The effect of an instruction on a value that is among its operands.
pub(super) fn use_of(module: &Module, function: &Function, inst: &Inst, value: ValueId) -> Use {
    let is = |operand: &Operand| *operand == Operand::Value(value);
    match &inst.op {
        Op::Phi(_) | Op::Construct(_) | Op::Shuffle(..) | Op::Extract(..) | Op::Insert(..) => {
            Use::Moves
        }
        Op::Select(condition, ..) if !is(condition) => Use::Moves,
        Op::Convert(
            ConvertOp::Trunc
            | ConvertOp::SExt
            | ConvertOp::ZExt
            | ConvertOp::PtrToInt
            | ConvertOp::IntToPtr
            | ConvertOp::PtrCast
            | ConvertOp::Bitcast,
            _,
        ) => Use::Moves,
        Op::Binary(BinaryOp::And | BinaryOp::Or | BinaryOp::Xor, ..) => match inst.result {
            // A boolean is one bit of a byte: it is computed.
            Some(result) if is_bool(module, function, result) => Use::Depends,
            _ => Use::Moves,
        },
        Op::Binary(BinaryOp::Shl | BinaryOp::LShr | BinaryOp::AShr, a, b) if is(a) => {
            match whole_bytes(module, *b) {
                Some(_) => Use::Moves,
                None => Use::Depends,
            }
        }
        Op::Store(at, stored, _) | Op::AtomicStore(at, stored, ..) if !is(at) && is(stored) => {
            Use::Stores
        }
        Op::Offer(..) | Op::Report { .. } => Use::Ends,
        _ => Use::Depends,
    }
}

fn is_bool(module: &Module, function: &Function, value: ValueId) -> bool {
    let ty = function.values[value].ty;
    module.types[module.types.element(ty)] == Type::Bool
}

/// The constant amount of an integer's shift, in bits, if it is a multiple of eight.
pub(super) fn whole_bytes(module: &Module, amount: Operand) -> Option<u64> {
    let Operand::Const(id) = amount else { return None };
    let bits = u64::from(module.types.scalar_bits(module.constants[id].ty));
    let amount = module.const_bits(id)? % bits.max(1);
    amount.is_multiple_of(8).then_some(amount)
}

/// Finds arithmetic whose results are only selected, also by way of other such arithmetic: by selects,
/// and by phis in other blocks that its block dominates. (A value that a loop accumulates counts as
/// used.)
fn speculated(function: &Function, uses: &Uses, dominators: &Dominators) -> HashSet<ValueId> {
    let is_arithmetic = |inst: &Inst| {
        matches!(
            inst.op,
            Op::Unary(..)
                | Op::Binary(..)
                | Op::Ternary(..)
                | Op::Compare(..)
                | Op::Test(..)
                | Op::Convert(..)
        )
    };
    let mut found: HashSet<ValueId> = HashSet::new();
    for (id, block) in function.blocks.iter() {
        // Users come later in the block, so one pass backwards is enough.
        for inst in block.insts.iter().rev().filter(|inst| is_arithmetic(inst)) {
            let Some(result) = inst.result else { continue };
            let all = uses.of(result);
            let late = |&(at, index): &(BlockId, u32)| {
                let Some(user) = function.blocks[at].insts.get(index as usize) else {
                    return false;
                };
                match &user.op {
                    Op::Select(condition, ..) => *condition != Operand::Value(result),
                    Op::Phi(_) => at != id && dominators.dominates(id, at),
                    _ => at == id && user.result.is_some_and(|it| found.contains(&it)),
                }
            };
            if !all.is_empty() && all.iter().all(late) {
                found.insert(result);
            }
        }
    }
    found
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inlines functions that contain a barrier into the kernel that calls them: only one function can be
//! cut into regions. Calls are not recursive, so this ends.

use std::collections::{HashMap, HashSet};

use super::barrier::stop_scope;
use super::cut::rename_predecessor;
use crate::ir::arena::Id;
use crate::ir::{
    Block, BlockId, Function, FunctionId, Inst, Module, Op, Operand, PrivateVariable, Terminator,
    ValueId,
};

/// The functions among `functions` that reach a barrier, by themselves or by a call.
pub fn with_barrier(module: &Module, functions: &[FunctionId]) -> HashSet<FunctionId> {
    let mut found = HashSet::new();
    loop {
        let before = found.len();
        for &id in functions {
            let insts = module.functions[id].blocks.iter().flat_map(|(_, block)| &block.insts);
            let stops = insts.into_iter().any(|inst| match &inst.op {
                Op::Call(callee, _) => found.contains(callee),
                op => stop_scope(op).is_some(),
            });
            if stops {
                found.insert(id);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The largest [weight] that a kernel with barriers in called functions may have when they are
/// inlined; beyond it code generation would take unreasonably long.
pub const MAX_WEIGHT: usize = 1 << 20;

/// The number of values, blocks and cases that an instruction of weight one may name.
const USUAL_PARTS: usize = 8;

/// A copy of `kernel` in which no call of a function in `stopping` is left. `None` if it would
/// weigh more than `limit`.
pub fn inline(
    module: &Module,
    kernel: FunctionId,
    stopping: &HashSet<FunctionId>,
    limit: usize,
) -> Option<Function> {
    let mut function = module.functions[kernel].clone();
    let mut weights = HashMap::new();
    let mut size = weight(&function);
    let mut work: Vec<BlockId> = function.blocks.ids().rev().collect();
    while let Some(id) = work.pop() {
        let call = function.blocks[id]
            .insts
            .iter()
            .position(|inst| matches!(&inst.op, Op::Call(callee, _) if stopping.contains(callee)));
        let Some(at) = call else { continue };
        let Op::Call(callee, _) = function.blocks[id].insts[at].op else { continue };
        size += *weights.entry(callee).or_insert_with(|| weight(&module.functions[callee]));
        if size > limit {
            return None;
        }
        let first = function.blocks.len();
        inline_call(module, &mut function, id, at);
        // The callee's blocks may call further functions, and the rest of this block too.
        work.extend((first..function.blocks.len()).rev().map(BlockId::from_index));
    }
    Some(function)
}

/// The cost of copying a function: its instructions. One that names thousands of values or cases counts
/// as many, and values without an instruction count a little.
fn weight(function: &Function) -> usize {
    let long = |parts: usize| parts.saturating_sub(USUAL_PARTS) + 1;
    let of_block = |block: &Block| {
        let operands = |inst: &Inst| {
            let mut operands = 0;
            inst.op.for_each_operand(|_| operands += 1);
            long(operands)
        };
        let cases = match &block.terminator {
            Terminator::Switch { cases, .. } => cases.len(),
            _ => 0,
        };
        block.insts.iter().map(operands).sum::<usize>() + long(cases)
    };
    let blocks: usize = function.blocks.iter().map(|(_, block)| of_block(block)).sum();
    blocks.max(function.values.len() / USUAL_PARTS)
}

/// Replaces the call at instruction `at` of block `head` by the callee's body.
fn inline_call(module: &Module, function: &mut Function, head: BlockId, at: usize) {
    let mut tail = function.blocks[head].insts.split_off(at);
    let call = tail.remove(0);
    let Op::Call(callee, args) = call.op else { return };
    let callee = &module.functions[callee];
    let mut values: HashMap<ValueId, Operand> =
        callee.params.iter().copied().zip(args.iter().copied()).collect();
    for (id, value) in callee.values.iter() {
        values.entry(id).or_insert_with(|| Operand::Value(function.values.push(value.clone())));
    }
    let loc = function.blocks[head].loc;
    let placeholder = || Block { insts: Vec::new(), terminator: Terminator::Unreachable, loc };
    let blocks: Vec<BlockId> =
        callee.blocks.ids().map(|_| function.blocks.push(placeholder())).collect();
    let join = function.blocks.push(placeholder());
    let rename = |operand: &mut Operand| {
        if let Operand::Value(value) = operand {
            *operand = values[value];
        }
    };
    let new_value = |value: ValueId| match values[&value] {
        Operand::Value(value) => value,
        // Only parameters map to constants, and instructions define none of those.
        Operand::Const(_) => value,
    };

    let mut returned = Vec::new();
    for (id, block) in callee.blocks.iter() {
        let mut block = block.clone();
        for inst in &mut block.insts {
            inst.op.for_each_operand_mut(rename);
            if let Op::Phi(incoming) = &mut inst.op {
                incoming.iter_mut().for_each(|(from, _)| *from = blocks[from.index()]);
            }
            inst.result = inst.result.map(new_value);
        }
        block.terminator.for_each_operand_mut(rename);
        block.terminator.for_each_successor_mut(|next| *next = blocks[next.index()]);
        if let Terminator::Return(value) = block.terminator {
            returned.extend(value.map(|value| (blocks[id.index()], value)));
            block.terminator = Terminator::Branch(join);
        }
        function.blocks[blocks[id.index()]] = block;
    }
    // A private variable is new in each call, but one place in the frame serves all: the calls of one
    // site follow one another.
    for variable in &callee.variables {
        let address = new_value(variable.address);
        let init = variable.init;
        function.variables.push(PrivateVariable { address, init: None, ..variable.clone() });
        if let Some(init) = init {
            let access = crate::ir::Access {
                align: u32::try_from(variable.align).unwrap_or(1),
                volatile: false,
                nontemporal: false,
            };
            let op = Op::Store(Operand::Value(address), Operand::Const(init), access);
            let store = Inst { result: None, op, flags: Default::default(), loc: callee.loc };
            function.blocks[blocks[0]].insts.insert(0, store);
        }
    }
    if let Some(result) = call.result {
        let op = Op::Phi(returned);
        tail.insert(0, Inst { result: Some(result), op, flags: call.flags, loc: call.loc });
    }
    let end =
        std::mem::replace(&mut function.blocks[head].terminator, Terminator::Branch(blocks[0]));
    rename_predecessor(function, &end, head, join);
    function.blocks[join].insts = tail;
    function.blocks[join].terminator = end;
}

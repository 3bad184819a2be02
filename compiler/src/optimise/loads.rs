// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes loads of what was loaded from, or stored to, the same address before.
//!
//! ```text
//!   if (a[i] > m) m = a[i];      ──▶      x = a[i]; if (x > m) m = x;
//! ```
//!
//! LLVM does so too, but only after widening, when such loads may be gathers behind tests of their addresses, or masked.
//! A branch whose way loads nothing becomes a choice ([`selects`](super::selects)).
//!
//! Known are the loads and stores of the block and of those that lead to it alone, up to a store that may be to the same
//! memory, or anything else that other items may notice. A value is not used outside of its loop, as in
//! [`simplify`](super::simplify).

use std::collections::HashMap;

use super::rename::rename;
use crate::ir::{
    AddressSpace, BlockId, Dominators, ENTRY, Function, Id, Loops, Module, Op, Operand, Type,
    TypeId, ValueId,
};

/// Runs the pass over a function whose blocks can all be reached.
pub(super) fn run(module: &Module, function: &mut Function) {
    let predecessors = function.predecessors();
    let dominators = Dominators::of(function, &predecessors);
    let loops = Loops::of(&dominators, &predecessors);
    let mut walk = Walk { known: HashMap::new(), replaced: HashMap::new(), states: 0 };
    // The memory at the end of each block.
    let mut ends = vec![[0; SPACES]; function.blocks.len()];
    for &block in dominators.order() {
        let alone = match predecessors[block.index()].as_slice() {
            &[before] if block != ENTRY => Some(ends[before.index()]),
            _ => None,
        };
        let memory = alone.unwrap_or_else(|| [walk.new_state(); SPACES]);
        ends[block.index()] = walk.block(module, function, (&loops, &dominators), block, memory);
    }
    let replaced = walk.replaced;
    if replaced.is_empty() {
        return;
    }
    for (_, block) in function.blocks.iter_mut() {
        block.insts.retain(|inst| inst.result.is_none_or(|it| !replaced.contains_key(&it)));
    }
    rename(function, &replaced);
}

/// The address spaces.
const SPACES: usize = 5;

/// A state of the memory of each address space: equal numbers mean equal contents.
type Memory = [usize; SPACES];

struct Walk {
    /// What lies at an address, as a value of a type, in which state of memory, and the block that found it out.
    known: HashMap<(Operand, TypeId), (Operand, usize, BlockId)>,
    replaced: HashMap<ValueId, Operand>,
    states: usize,
}

impl Walk {
    fn new_state(&mut self) -> usize {
        self.states += 1;
        self.states
    }

    /// Looks at a block that begins with a state of memory. Returns that at its end.
    fn block(
        &mut self,
        module: &Module,
        function: &Function,
        (loops, dominators): (&Loops, &Dominators),
        id: BlockId,
        mut memory: Memory,
    ) -> Memory {
        let space = |at| match module.types[module.operand_type(function, at)] {
            Type::Pointer(space) => space,
            _ => AddressSpace::Generic,
        };
        for inst in &function.blocks[id].insts {
            match inst.op {
                Op::Load(at, access) if !access.volatile => {
                    let Some(result) = inst.result else { continue };
                    let (at, ty) = (self.resolved(at), function.values[result].ty);
                    let state = memory[space(at) as usize];
                    match self.known.get(&(at, ty)) {
                        Some(&(value, then, home))
                            if then == state
                                && dominators.dominates(home, id)
                                && loops.within[home.index()]
                                    .is_none_or(|index| loops.contains(index, id)) =>
                        {
                            self.replaced.insert(result, value);
                        }
                        _ => {
                            self.known.insert((at, ty), (Operand::Value(result), state, id));
                        }
                    }
                }
                Op::Store(at, value, access) if !access.volatile => {
                    let (at, value) = (self.resolved(at), self.resolved(value));
                    let to = space(at);
                    let state = self.new_state();
                    match to {
                        AddressSpace::Generic => memory = [state; SPACES],
                        _ => {
                            memory[to as usize] = state;
                            memory[AddressSpace::Generic as usize] = state;
                        }
                    }
                    let ty = module.operand_type(function, value);
                    self.known.insert((at, ty), (value, state, id));
                }
                Op::Phi(_) | Op::Assume(_) => {}
                ref op if op.is_pure() => {}
                _ => memory = [self.new_state(); SPACES],
            }
        }
        memory
    }

    fn resolved(&self, operand: Operand) -> Operand {
        match operand {
            Operand::Value(value) => self.replaced.get(&value).copied().unwrap_or(operand),
            Operand::Const(_) => operand,
        }
    }
}

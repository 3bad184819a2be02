// SPDX-License-Identifier: MIT OR Apache-2.0
//! The definitions and the uses of a function's values.

use super::arena::Id;
use super::ids::{BlockId, Operand, ValueId};
use super::module::Function;

/// The place where a value is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// Parameters and private variables: before the entry block.
    Entry,
    /// By the instruction at an index of a block.
    Inst(BlockId, usize),
}

/// The definition of each value, by value; `None` for values without one.
pub fn definitions(function: &Function) -> Vec<Option<Definition>> {
    let mut definitions = vec![None; function.values.len()];
    let mut set = |value: ValueId, definition| {
        if let Some(slot) = definitions.get_mut(value.index()) {
            *slot = Some(definition);
        }
    };
    for &param in &function.params {
        set(param, Definition::Entry);
    }
    for variable in &function.variables {
        set(variable.address, Definition::Entry);
    }
    for (id, block) in function.blocks.iter() {
        for (index, inst) in block.insts.iter().enumerate() {
            if let Some(result) = inst.result {
                set(result, Definition::Inst(id, index));
            }
        }
    }
    definitions
}

/// The places where each value is used.
pub struct Uses {
    /// By value, the index of its first place; one more entry at the end.
    starts: Vec<u32>,
    /// The block, and the index of the instruction in it; the number of instructions stands for the
    /// block's terminator.
    places: Vec<(BlockId, u32)>,
}

impl Uses {
    /// Collects the uses in a function. An instruction that names a value twice is listed twice.
    pub fn of_function(function: &Function) -> Self {
        let mut starts = vec![0; function.values.len() + 1];
        for_each_use(function, |value, _| starts[value.index() + 1] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut places = vec![(BlockId(0), 0); starts.last().map_or(0, |&all| all as usize)];
        for_each_use(function, |value, place| {
            places[next[value.index()] as usize] = place;
            next[value.index()] += 1;
        });
        Self { starts, places }
    }

    /// The places where a value is used.
    pub fn of(&self, value: ValueId) -> &[(BlockId, u32)] {
        let index = value.index();
        &self.places[self.starts[index] as usize..self.starts[index + 1] as usize]
    }
}

fn for_each_use(function: &Function, mut visit: impl FnMut(ValueId, (BlockId, u32))) {
    for (id, block) in function.blocks.iter() {
        let mut note = |operand: Operand, index: usize| {
            if let Operand::Value(value) = operand {
                visit(value, (id, index as u32));
            }
        };
        for (index, inst) in block.insts.iter().enumerate() {
            inst.op.for_each_operand(|operand| note(operand, index));
        }
        block.terminator.for_each_operand(|operand| note(operand, block.insts.len()));
    }
}

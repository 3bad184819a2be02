// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads structures that a kernel is given by value where they are.
//!
//! ```text
//!   %1 = private {i32, i32, ...}
//!   copy %1, %argument, i64 388            %2: i32 = load %argument + 16
//!   %2: i32 = load %1 + 16          ──▶
//! ```
//!
//! C compilers give each item a copy, since the item may change it. If none does, all items may read the one that there
//! is, and what they read is the same for all. A variable is replaced if the copy alone writes it, as a whole, if all else is
//! loads from it, and if nothing writes the argument.

use std::collections::{HashMap, HashSet};

use super::rename::rename;
use crate::ir::{
    AddressSpace, BlockId, ConvertOp, Function, Module, Op, Operand, Type, Uses, ValueId,
};

/// The alignment of arguments by value, in bytes, that is surely that of their types.
const MAX_ALIGN: u64 = 8;

/// Replaces such variables of a kernel's function that has all calls inlined.
pub(super) fn run(module: &Module, function: &mut Function) {
    // Debuggers look for variables where they are.
    if !function.shown.is_empty() {
        return;
    }
    // What was copied may have been copied again.
    while !function.variables.is_empty() && replaces(module, function) {}
}

/// Replaces variables that are copies of arguments. `false` if there is none.
fn replaces(module: &Module, function: &mut Function) -> bool {
    let is_private = |&value: &ValueId| {
        let ty = &module.types[function.values[value].ty];
        matches!(ty, Type::Pointer(AddressSpace::Private))
    };
    let mut arguments: Vec<ValueId> = function.params.iter().copied().filter(is_private).collect();
    if arguments.is_empty() {
        return false;
    }
    let uses = Uses::of_function(function);
    arguments.retain(|&it| accesses(function, &uses, it).is_some_and(|it| it.copies.is_empty()));
    let mut names = HashMap::new();
    let mut copies = Vec::new();
    let mut loads = Vec::new();
    for variable in &function.variables {
        let Some(found) = accesses(function, &uses, variable.address) else { continue };
        let &[(block, index)] = found.copies.as_slice() else { continue };
        let Op::Copy(_, Operand::Value(from), Operand::Const(len), _) =
            function.blocks[block].insts[index].op
        else {
            continue;
        };
        let whole = module.const_bits(len) == Some(variable.size);
        if whole && variable.init.is_none() && arguments.contains(&from) {
            names.insert(variable.address, Operand::Value(from));
            copies.push((block, index));
            let align = module.types.align(variable.ty).min(MAX_ALIGN) as u32;
            loads.extend(found.loads.into_iter().map(|place| (place, align)));
        }
    }
    for ((block, index), most) in loads {
        if let Op::Load(_, access) = &mut function.blocks[block].insts[index].op {
            access.align = access.align.min(most);
        }
    }
    function.variables.retain(|variable| !names.contains_key(&variable.address));
    copies.sort();
    for &(block, index) in copies.iter().rev() {
        function.blocks[block].insts.remove(index);
    }
    rename(function, &names);
    !names.is_empty()
}

/// An instruction's block, and its place there.
type Place = (BlockId, usize);

/// The accesses to some memory.
#[derive(Default)]
struct Accesses {
    loads: Vec<Place>,
    /// Copies to it from its start on.
    copies: Vec<Place>,
}

/// The accesses to the memory at an address; `None` if it may be written otherwise, or if its address is used for
/// anything but loads and copies.
fn accesses(function: &Function, uses: &Uses, memory: ValueId) -> Option<Accesses> {
    let mut found = Accesses::default();
    let mut open = vec![memory];
    let mut seen = HashSet::new();
    while let Some(at) = open.pop() {
        if !seen.insert(at) {
            continue;
        }
        let own = Operand::Value(at);
        for &(block, index) in uses.of(at) {
            let place = (block, index as usize);
            let inst = function.blocks[block].insts.get(place.1)?;
            match &inst.op {
                Op::Load(_, access) if !access.volatile => found.loads.push(place),
                Op::Address { terms, .. } if terms.iter().all(|term| term.0 != own) => {
                    open.extend(inst.result);
                }
                Op::Convert(ConvertOp::PtrCast, _) | Op::Phi(_) | Op::Select(..) => {
                    open.extend(inst.result);
                }
                Op::Copy(to, _, _, access) if !access.volatile && (*to != own || at == memory) => {
                    if *to == own {
                        found.copies.push(place);
                    }
                }
                _ => return None,
            }
        }
    }
    Some(found)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private variables of module scope, in a kernel with all calls inlined: what is never written becomes a
//! constant table, everything else a private variable of the kernel.
//!
//! Such variables live as long as the kernel's execution by an item. numba and LLVM's translator write
//! tables in this form.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::spelled;
use crate::ir::{
    AddressSpace, ConstId, ConstKind, ConvertOp, ENTRY, Flags, Function, Global, GlobalId, Inst,
    Module, Op, Operand, PrivateVariable, Type, Uses, ValueId,
};

/// The largest table that is made constant. A copy of it is part of the code, as of other small constants.
const MAX_TABLE_BYTES: u64 = 64 << 10;

/// Replaces the private variables of module scope that a function uses. Those whose addresses are in more
/// components of other constants than are spelled out stay.
pub(super) fn run(module: &mut Module, function: &mut Function, watched: bool) {
    if !has_private_globals(module, function) {
        return;
    }
    spelled::run(module, function);
    let mut used: BTreeMap<GlobalId, Vec<ConstId>> = BTreeMap::new();
    let mut seen = HashSet::new();
    function.for_each_constant(|id| {
        if let ConstKind::Address(global, _) = module.constants[id].kind
            && module.globals[global].space == AddressSpace::Private
            && seen.insert(id)
        {
            used.entry(global).or_default().push(id);
        }
    });
    let held = held(module, function, used.keys().copied());
    used.retain(|global, _| !held.contains(global));
    if used.is_empty() {
        return;
    }
    let uses = Uses::of_function(function);
    for (global, addresses) in used {
        let places = (!watched).then(|| read_only(module, function, &uses, global, &addresses));
        let names = match places.flatten() {
            Some(places) => as_table(module, function, global, &addresses, &places),
            None => as_variable(module, function, global, &addresses),
        };
        rename(function, &names);
    }
}

/// The variables whose addresses are in initialisers or parts of other constants. No value of the function can
/// take their place there.
fn held(
    module: &Module,
    function: &Function,
    used: impl Iterator<Item = GlobalId>,
) -> BTreeSet<GlobalId> {
    let mut holders: Vec<ConstId> = used.filter_map(|id| module.globals[id].init).collect();
    holders.extend(function.variables.iter().filter_map(|variable| variable.init));
    function.for_each_constant(|id| {
        if matches!(module.constants[id].kind, ConstKind::Composite(_)) {
            holders.push(id);
        }
    });
    let mut held = BTreeSet::new();
    while !holders.is_empty() {
        let found = module.globals_in(holders.drain(..));
        let new = found.into_iter().filter(|&global| held.insert(global));
        holders = new.filter_map(|global| module.globals[global].init).collect();
    }
    held
}

/// The values that are addresses in a variable, if all that is done with these is to read there.
fn read_only(
    module: &Module,
    function: &Function,
    uses: &Uses,
    global: GlobalId,
    addresses: &[ConstId],
) -> Option<Vec<ValueId>> {
    let variable = &module.globals[global];
    let plain = |init: ConstId| module.globals_in([init]).is_empty();
    if variable.exported || variable.size > MAX_TABLE_BYTES || !variable.init.is_some_and(plain) {
        return None;
    }
    let mut places = Vec::new();
    let mut found = |inst: &Inst, at: Operand| match &inst.op {
        Op::Load(_, access) => (!access.volatile).then_some(()),
        Op::Address { base, terms, .. } => {
            let (index, result) = (terms.iter().any(|term| term.0 == at), inst.result?);
            (*base == at && !index).then(|| places.push(result))
        }
        _ => None,
    };
    for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
        for &address in addresses {
            let at = Operand::Const(address);
            let mut names = false;
            inst.op.for_each_operand(|operand| names |= operand == at);
            if names {
                found(inst, at)?;
            }
        }
    }
    for (_, block) in function.blocks.iter() {
        let mut ends = false;
        block.terminator.for_each_operand(|operand| {
            ends |= addresses.iter().any(|&address| operand == Operand::Const(address));
        });
        if ends {
            return None;
        }
    }
    let mut next = 0;
    while next < places.len() {
        let place = places[next];
        next += 1;
        for &(block, index) in uses.of(place) {
            let inst = function.blocks[block].insts.get(index as usize)?;
            let at = Operand::Value(place);
            match &inst.op {
                Op::Load(_, access) if !access.volatile => {}
                Op::Address { base, terms, .. }
                    if *base == at && !terms.iter().any(|term| term.0 == at) =>
                {
                    places.push(inst.result?);
                }
                _ => return None,
            }
        }
    }
    Some(places)
}

/// A copy of a variable in constant memory.
fn as_table(
    module: &mut Module,
    function: &mut Function,
    global: GlobalId,
    addresses: &[ConstId],
    places: &[ValueId],
) -> HashMap<ConstId, Operand> {
    let space = AddressSpace::Constant;
    let copy = Global { space, ..module.globals[global].clone() };
    let copy = module.globals.push(copy);
    let Some(pointer) = module.types.intern(Type::Pointer(space)) else { return HashMap::new() };
    for &place in places {
        function.values[place].ty = pointer;
    }
    addresses
        .iter()
        .filter_map(|&address| match module.constants[address].kind {
            ConstKind::Address(_, offset) => {
                let new = module.constant(pointer, ConstKind::Address(copy, offset));
                Some((address, Operand::Const(new)))
            }
            _ => None,
        })
        .collect()
}

/// A private variable of the function.
fn as_variable(
    module: &mut Module,
    function: &mut Function,
    global: GlobalId,
    addresses: &[ConstId],
) -> HashMap<ConstId, Operand> {
    let variable = module.globals[global].clone();
    let pointer = module.types.pointer(AddressSpace::Private);
    let init = variable.init.unwrap_or_else(|| module.constant(variable.ty, ConstKind::Null));
    let address = function.new_value(pointer);
    function.variables.push(PrivateVariable {
        address,
        ty: variable.ty,
        size: variable.size,
        align: variable.align,
        init: Some(init),
    });
    let mut names = HashMap::new();
    let mut before = Vec::new();
    for &id in addresses {
        let ConstKind::Address(_, offset) = module.constants[id].kind else { continue };
        let mut place = Operand::Value(address);
        let mut emit = |ty, op| {
            let result = function.new_value(ty);
            let (flags, loc) = (Flags::empty(), function.loc);
            before.push(Inst { result: Some(result), op, flags, loc });
            Operand::Value(result)
        };
        if offset != 0 {
            let base = place;
            place = emit(pointer, Op::Address { base, offset, terms: Vec::new(), inbounds: false });
        }
        let ty = module.constants[id].ty;
        if ty != pointer {
            place = emit(ty, Op::Convert(ConvertOp::PtrCast, place));
        }
        names.insert(id, place);
    }
    function.blocks[ENTRY].insts.splice(0..0, before);
    names
}

fn rename(function: &mut Function, names: &HashMap<ConstId, Operand>) {
    let change = |operand: &mut Operand| {
        if let Operand::Const(id) = operand
            && let Some(&name) = names.get(id)
        {
            *operand = name;
        }
    };
    for id in function.blocks.ids() {
        let block = &mut function.blocks[id];
        block.insts.iter_mut().for_each(|inst| inst.op.for_each_operand_mut(change));
        block.terminator.for_each_operand_mut(change);
    }
}

/// Whether a function still names a private variable of module scope.
pub fn has_private_globals(module: &Module, function: &Function) -> bool {
    let mut constants = Vec::new();
    function.for_each_constant(|id| constants.push(id));
    let globals = module.globals_in(constants);
    globals.into_iter().any(|id| module.globals[id].space == AddressSpace::Private)
}

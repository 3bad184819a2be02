// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives functions the modes about floats of the entry points that call them.

use std::collections::{HashMap, HashSet};

use rspirv::spirv::Op;

use super::builder::{Builder, Def, Signature};
use super::controls::Controls;
use super::error::Result;
use super::words::Instruction;
use crate::ir::{FunctionId, Id};

/// The maximum number of instructions in functions that are built again because modes differ.
const MAX_COPIED: usize = 1 << 20;

/// Gives each function the modes of the entry points that call it, with copies of those that are called with
/// several.
///
/// # Errors
/// If the copies are too large.
pub fn spread(builder: &mut Builder<'_>, functions: &mut Vec<Signature<'_>>) -> Result<()> {
    let modes = &builder.annotations.modes;
    if !modes.values().any(|modes| modes.floats.any()) {
        return Ok(());
    }
    let called = |signature: &Signature<'_>| -> Vec<FunctionId> {
        let calls = signature.body.iter().filter(|inst| inst.op() == Op::FunctionCall);
        let callees = calls.filter_map(|inst| match builder.defs.get(&inst.arg(0).ok()?) {
            Some(&Def::Function(callee)) => Some(callee),
            _ => None,
        });
        callees.collect()
    };
    let exported = |head: &Instruction<'_>| {
        builder.decorations(head).linkage.as_ref().is_some_and(|linkage| !linkage.import)
    };
    let calls: Vec<Vec<FunctionId>> = functions.iter().map(called).collect();
    // An entry point has its own modes, any other function those that it is first seen with.
    let mut first: HashMap<FunctionId, Controls> = HashMap::new();
    let mut work = Vec::new();
    for (index, signature) in functions.iter().enumerate() {
        let id = signature.head.result().unwrap_or_default();
        if builder.annotations.kernels.contains_key(&id) {
            let floats = modes.get(&id).map(|modes| modes.floats).unwrap_or_default();
            first.insert(FunctionId::from_index(index), floats);
            work.push((FunctionId::from_index(index), floats));
        } else if builder.indirect.taken.contains_key(&id) || exported(&signature.head) {
            // Code without modes may call it through a pointer, or from another module.
            first.insert(FunctionId::from_index(index), Controls::default());
        }
    }
    let mut seen: HashSet<(FunctionId, Controls)> = work.iter().copied().collect();
    let mut next = 0;
    while let Some(&(function, floats)) = work.get(next) {
        next += 1;
        for &callee in &calls[function.index()] {
            if seen.insert((callee, floats)) {
                work.push((callee, floats));
            }
        }
    }
    let mut copied = 0;
    for (function, floats) in work {
        if *first.entry(function).or_insert(floats) == floats {
            functions[function.index()].floats = floats;
            continue;
        }
        let original = &functions[function.index()];
        copied += original.body.len() + 1;
        if copied > MAX_COPIED {
            let what = format!(
                "is called in different modes of floats, which makes it {copied} instructions that are \
                 built again; the limit of a module is {MAX_COPIED}"
            );
            return Err(original.head.error(what));
        }
        let id = FunctionId::from_index(functions.len());
        let copy = Signature { id, floats, copied: true, ..original.clone() };
        let (at, types) = (function.index(), &mut builder.parameter_types);
        builder.function_ids.push(builder.function_ids[at]);
        types.push(types[at].clone());
        builder.copies.insert((function, floats), id);
        functions.push(copy);
    }
    Ok(())
}

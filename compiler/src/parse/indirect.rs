// SPDX-License-Identifier: MIT OR Apache-2.0
//! Function pointers (SPV_INTEL_function_pointers): collects what [`crate::pointers`] needs from a
//! SPIR-V module.
//!
//! A call through a pointer may call the functions whose addresses the module takes and those that it
//! exports, whose pointers the driver returns. Linking adds those of other modules.

use std::collections::BTreeSet;

use rspirv::spirv::Op as Spv;

use super::body::Body;
use super::builder::{Builder, Def};
use super::error::Result;
use super::pointers::{Dispatcher, ID_BITS};
use super::words::Instruction;
use crate::ir::{ConstKind, FunctionId, Id, Type};
use crate::pointers::{Callers, Signature, add_case, new_dispatcher};

/// `OpConstantFunctionPointerINTEL`.
pub(super) fn constant(builder: &mut Builder<'_>, inst: &Instruction<'_>) -> Result<()> {
    let type_id = inst.result_type().unwrap_or_default();
    let ty = builder.ty(inst, type_id)?;
    if !matches!(builder.module.types[ty], Type::Pointer(_)) {
        return Err(inst.error("has a type that is not a pointer".into()));
    }
    let function = inst.arg(0)?;
    if function >= 1 << ID_BITS {
        return Err(inst.error(format!("names %{function}, which is beyond the limit of ids")));
    }
    builder.indirect.taken.entry(function).or_insert(inst.word);
    let bits = builder.indirect.pointer(function);
    let constant = builder.module.constant(ty, ConstKind::Bits(bits));
    builder.define(inst, Def::Const(constant, type_id))
}

/// `OpFunctionPointerCallINTEL`. `false` if it is another instruction.
pub(super) fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    if inst.op() != Spv::FunctionPointerCallINTEL {
        return Ok(false);
    }
    if body.floats.any() {
        body.unsupported(
            inst,
            "a call through a pointer in a kernel with its own modes of floats",
        )?;
        return Ok(true);
    }
    let mut args = Vec::with_capacity(inst.rest().len());
    for &id in inst.rest() {
        args.push(body.operand(inst, id)?);
    }
    let returns = body.result_type(inst)?;
    let Some(&pointer) = args.first() else {
        return Err(inst.error("names no pointer".into()));
    };
    let pointer = body.type_of(pointer);
    if !matches!(body.b.module.types[pointer], Type::Pointer(_)) {
        return Err(inst.error("calls what is not a pointer".into()));
    }
    let params = args[1..].iter().map(|&arg| body.type_of(arg)).collect();
    let signature = Signature { params, returns };
    let indirect = &mut body.b.indirect;
    let same = |it: &Dispatcher| it.signature == signature && it.pointer == pointer;
    let number = indirect.dispatchers.iter().position(same).unwrap_or_else(|| {
        indirect.dispatchers.push(Dispatcher { pointer, signature });
        indirect.dispatchers.len() - 1
    });
    // Dispatchers follow the module's own functions.
    let callee = FunctionId::from_index(body.b.function_ids.len() + number);
    body.call_function(inst, callee, args)?;
    Ok(true)
}

/// Adds the dispatchers, and records the pointers of exported functions.
pub(super) fn finish(builder: &mut Builder<'_>) -> Result<()> {
    let indirect = std::mem::take(&mut builder.indirect);
    let mut taken = BTreeSet::new();
    for (&id, &word) in &indirect.taken {
        match builder.defs.get(&id) {
            Some(&Def::Function(function)) => {
                taken.insert(function);
            }
            _ => {
                return Err(super::error::Error {
                    word,
                    opcode: Some("OpConstantFunctionPointerINTEL".into()),
                    place: None,
                    source: None,
                    message: format!("names %{id}, which is not a function with a body"),
                });
            }
        }
    }
    let ids = builder.function_ids.clone();
    let mut offered = BTreeSet::new();
    for (function_id, &id) in ids.iter().enumerate().map(|(i, id)| (FunctionId::from_index(i), id))
    {
        let function = &builder.module.functions[function_id];
        if function.exported && !function.is_declared() && id < 1 << ID_BITS {
            let name = function.name.clone();
            builder.module.pointers.insert(name, indirect.pointer(id));
            offered.insert(function_id);
        }
    }
    for dispatcher in &indirect.dispatchers {
        let function =
            new_dispatcher(&mut builder.module, dispatcher.pointer, &dispatcher.signature);
        let id = builder.module.functions.push(function);
        builder.module.dispatchers.push(id);
    }
    let mut callers = Callers::of(&builder.module);
    // The functions that are certainly called come first: exported ones are added only if no recursion
    // results.
    let mut callees = Vec::new();
    for (&number, dispatcher) in builder.module.dispatchers.iter().zip(&indirect.dispatchers) {
        let fits = |id: &&FunctionId| {
            Signature::of(&builder.module.functions[**id]) == dispatcher.signature
        };
        let surely: Vec<_> = taken.iter().filter(fits).copied().collect();
        surely.iter().for_each(|&callee| callers.add(number, callee));
        callees.push(surely);
    }
    for ((&number, dispatcher), callees) in
        builder.module.dispatchers.iter().zip(&indirect.dispatchers).zip(&mut callees)
    {
        // An exported function that reaches such a call itself would be recursion.
        let above = callers.above(number);
        for &id in &offered {
            let fits = Signature::of(&builder.module.functions[id]) == dispatcher.signature;
            if fits && !above.contains(&id) && !callees.contains(&id) {
                callers.add(number, id);
                callees.push(id);
            }
        }
    }
    let pointer = |id: FunctionId| indirect.pointer(ids[id.index()]);
    for (number, callees) in builder.module.dispatchers.clone().into_iter().zip(callees) {
        for callee in callees {
            add_case(&mut builder.module, number, pointer(callee), callee);
        }
    }
    let callable: BTreeSet<FunctionId> = taken.into_iter().chain(offered).collect();
    builder.module.callable = callable.into_iter().map(|id| (pointer(id), id)).collect();
    Ok(())
}

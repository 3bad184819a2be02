// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of the compiler, beyond those that the types express.

use crate::ir::{AddressSpace, Function, GlobalId, Inst, Module, Op, Scope, Type, TypeId};

/// The largest program-scope variable in bytes, since its initial bytes are sent to the driver.
pub const MAX_GLOBAL_BYTES: u64 = 1 << 30;

/// The reason why an instruction is not supported; `None` if it is.
pub fn inst(module: &Module, function: &Function, inst: &Inst) -> Option<String> {
    if let Op::Unsupported(what) = &inst.op {
        // The error names the opcode already; only further details are added.
        let only_opcode = what.starts_with("Op") && !what.contains(' ');
        return Some(if only_opcode {
            "is not supported".into()
        } else {
            format!("is not supported: {what}")
        });
    }
    if let Some(message) =
        inst.result.and_then(|result| value_type(module, function.values[result].ty))
    {
        return Some(format!("gives a value {message}"));
    }
    let mut operand_message = None;
    inst.op.for_each_operand(|operand| {
        let ty = module.operand_type(function, operand);
        operand_message = operand_message.take().or_else(|| value_type(module, ty));
    });
    if let Some(message) = operand_message {
        return Some(format!("takes a value {message}"));
    }
    match &inst.op {
        Op::ControlBarrier { execution: scope, .. } | Op::Offer(scope, _)
            if !matches!(scope, Scope::Workgroup | Scope::Subgroup) =>
        {
            Some(format!("at {} scope is not supported", scope.name()))
        }
        Op::AtomicLoad(..) => {
            inst.result.and_then(|result| atomic_type(module, function.values[result].ty))
        }
        Op::AtomicStore(_, value, ..)
        | Op::AtomicRmw(_, _, value, ..)
        | Op::AtomicCompareExchange { value, .. } => {
            atomic_type(module, module.operand_type(function, *value))
        }
        Op::Call(callee, _) if module.functions.get(*callee).is_none() => {
            Some("calls a function without a body".into())
        }
        _ => None,
    }
}

fn atomic_type(module: &Module, ty: TypeId) -> Option<String> {
    let scalar = matches!(module.types[ty], Type::Int(_) | Type::Float(_) | Type::Pointer(_));
    (!scalar).then(|| {
        format!("works on {}; atomics are supported on numbers and pointers", module.types.text(ty))
    })
}

/// The reason why values of a type are not supported; `None` if they are.
pub fn value_type(module: &Module, ty: TypeId) -> Option<String> {
    if module.types.layout(ty).is_some() {
        return None;
    }
    Some(format!("of type {}, which is not supported", module.types.text(ty)))
}

/// The reason why a variable of module scope (other than a local one) is not supported; `None` if it
/// is.
pub fn global(module: &Module, id: GlobalId) -> Option<String> {
    let global = &module.globals[id];
    let name = &global.name;
    if global.imported {
        return Some(format!("uses variable {name:?}, which the module only imports"));
    }
    if global.size > MAX_GLOBAL_BYTES {
        let size = global.size;
        return Some(format!(
            "uses variable {name:?} of {size} bytes, the limit is {MAX_GLOBAL_BYTES}"
        ));
    }
    let held = module.globals_in(global.init);
    let local = held.into_iter().find(|&held| {
        let held = &module.globals[held];
        !held.imported && !matches!(held.space, AddressSpace::Global | AddressSpace::Constant)
    });
    local.map(|held| {
        let held = &module.globals[held].name;
        format!("uses variable {name:?}, which holds the address of {held:?}, not of global memory")
    })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel reaches. Stands in for the checks until they fill the facts themselves.

use std::collections::BTreeSet;

use crate::ir::{AddressSpace, FunctionId, GlobalId, KernelFacts, Module, Op, Operand};

/// Fills the facts of each kernel.
pub fn fill(module: &mut Module) {
    for index in 0..module.kernels.len() {
        module.kernels[index].facts = facts(module, module.kernels[index].function);
    }
}

fn facts(module: &Module, kernel: FunctionId) -> KernelFacts {
    let mut facts = KernelFacts { functions: vec![kernel], ..KernelFacts::default() };
    let mut named: BTreeSet<GlobalId> = BTreeSet::new();
    let mut next = 0;
    while let Some(&id) = facts.functions.get(next) {
        next += 1;
        let function = &module.functions[id];
        let mut constants: Vec<_> = function.variables.iter().filter_map(|v| v.init).collect();
        let mut constant = |operand| {
            constants.extend(match operand {
                Operand::Const(id) => Some(id),
                Operand::Value(_) => None,
            })
        };
        for (_, block) in function.blocks.iter() {
            block.terminator.for_each_operand(&mut constant);
            for inst in &block.insts {
                inst.op.for_each_operand(&mut constant);
                match inst.op {
                    Op::Call(callee, _) if !facts.functions.contains(&callee) => {
                        facts.functions.push(callee);
                    }
                    Op::ControlBarrier { .. } => facts.uses_barrier = true,
                    _ => {}
                }
            }
        }
        named.extend(module.globals_in(constants));
        facts.private_bytes += function.variables.iter().map(|v| v.size).sum::<u64>();
    }
    for id in named {
        let global = &module.globals[id];
        if global.space == AddressSpace::Local {
            let offset = facts.local_static_bytes.next_multiple_of(global.align);
            facts.locals.push((id, offset));
            facts.local_static_bytes = offset + global.size;
        } else {
            facts.globals.push(id);
        }
    }
    facts
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! SPIR-V through the compiler's front end, the interpreter and the lowering. LLVM is not called.

use tally_compiler::check::check;
use tally_compiler::interp::{Arg, Launch, Memory, run};
use tally_compiler::ir::{ArgKind, KernelArg, Module};
use tally_compiler::lower::{LowerError, lower};
use tally_compiler::parse::parse;

/// Address of the one buffer that kernels get.
const BUFFER: u64 = 0x1000;
/// Larger modules only take longer.
const MAX_BYTES: usize = 64 << 10;
/// Steps of the interpreter for each kernel.
const STEPS: u64 = 500;
/// Largest variable that is laid out.
const MAX_GLOBAL: u64 = 1 << 20;

/// Builds a module as zeModuleCreate and zeKernelCreate do, as far as that needs no LLVM.
///
/// # Panics
/// If the lowering finds an operation that the checks should have refused, or if any stage panics.
pub fn spirv(data: &[u8]) {
    if data.len() > MAX_BYTES {
        return;
    }
    let Ok(mut module) = parse(data, &[]) else { return };
    let passed = check(&mut module).is_ok();
    // The text is for people who look at what failed, too.
    let _ = module.to_string();
    if !passed || module.globals.iter().any(|(_, global)| global.size > MAX_GLOBAL) {
        return;
    }
    for global in module.globals.ids() {
        let _ = module.global_image(global);
    }
    for (index, kernel) in module.kernels.iter().enumerate() {
        if let Err(LowerError::Unsupported(what)) = lower(&module, kernel) {
            panic!("{}: the checks let {what} pass", kernel.name);
        }
        interpret(&module, index);
    }
}

/// Runs a kernel for a while. What it does may be wrong, but never the interpreter's undoing.
fn interpret(module: &Module, index: usize) {
    let kernel = &module.kernels[index];
    let argument = |arg: &KernelArg| match arg.kind {
        ArgKind::LocalPointer => Arg::Local(256),
        ArgKind::Value => Arg::Bytes(vec![3; arg.size as usize]),
        _ => Arg::pointer(BUFFER),
    };
    let args: Vec<Arg> = kernel.args.iter().map(argument).collect();
    let group_size = kernel.required_group_size.unwrap_or([4, 1, 1]);
    let global_size = group_size.map(|n| u64::from(n.min(64)));
    let launch = Launch { global_size, group_size, step_limit: STEPS, ..Launch::linear(4, 4) };
    let mut memory = Memory::new();
    if memory.map(BUFFER, vec![1; 4096]).is_ok() {
        // A refusal is as good as a result.
        let _ = run(module, index, &launch, &args, &mut memory);
    }
}

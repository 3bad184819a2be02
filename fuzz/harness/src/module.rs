// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs SPIR-V through the compiler's front end, the linking of modules, the interpreter, the widening
//! and the lowering. LLVM is not called.

use tally_compiler::check::{check, check_unlinked};
use tally_compiler::interp::{Arg, Launch, Memory, run};
use tally_compiler::ir::{ArgKind, Kernel, KernelArg, Module};
use tally_compiler::link::{Object, link};
use tally_compiler::lower::{LowerError, Lowered, lower, lower_widened};
use tally_compiler::parse::parse;
use tally_compiler::widen::widen;

/// The address of the kernels' only buffer.
const BUFFER: u64 = 0x1000;
/// Larger modules only take longer.
const MAX_BYTES: usize = 64 << 10;
/// Work-items of a vector.
const LANES: u32 = 16;
/// The limit on the interpreter's steps for each kernel.
const STEPS: u64 = 500;
/// The largest variable that is laid out, in bytes.
const MAX_GLOBAL: u64 = 1 << 20;

/// Builds a module like zeModuleCreate and zeKernelCreate, alone and linked, up to LLVM.
///
/// # Panics
/// If the lowering finds an operation that the checks should have refused, or if any stage panics.
pub fn spirv(data: &[u8]) {
    if data.len() > MAX_BYTES {
        return;
    }
    let Ok(mut module) = parse(data, &[]) else { return };
    linked(module.clone());
    let passed = check(&mut module).is_ok();
    // The text is printed too, because people read it to look at failures.
    let _ = module.to_string();
    if !passed || module.globals.iter().any(|(_, global)| global.size > MAX_GLOBAL) {
        return;
    }
    for global in module.globals.ids() {
        let _ = module.global_image(global);
    }
    for (index, kernel) in module.kernels.iter().enumerate() {
        supported(kernel, lower(&module, kernel));
        if let Ok(widened) = widen(&module, kernel, LANES) {
            supported(kernel, lower_widened(&widened, kernel));
        }
        interpret(&module, index);
    }
}

/// Accepts limits of size, which are no fault.
fn supported(kernel: &Kernel, lowered: Result<Lowered, LowerError>) {
    if let Err(LowerError::Unsupported(what)) = lowered {
        panic!("{}: the checks let {what} pass", kernel.name);
    }
}

/// Links a module with itself, as one object and as two that find everything in each other. A module
/// that then passes the checks can be lowered.
fn linked(module: Module) {
    let functions = module.functions.iter().map(|(_, function)| &function.name);
    let names = functions.chain(module.globals.iter().map(|(_, global)| &global.name));
    let names: Vec<&String> = names.collect();
    let links = |object| names.iter().map(|&name| (name.clone(), object)).collect();
    let object = |object| Object { modules: vec![module.clone()], links: links(object) };
    let twice = Object { modules: vec![module.clone(), module.clone()], ..Object::default() };
    for objects in [vec![twice], vec![object(1), object(0)]] {
        let Ok(mut linked) = link(objects) else { continue };
        let _ = check_unlinked(&mut linked);
        if check(&mut linked).is_ok() {
            linked.kernels.iter().for_each(|kernel| supported(kernel, lower(&linked, kernel)));
        }
    }
}

/// Runs a kernel for a while. Its accesses may be wrong, but must not break the interpreter.
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

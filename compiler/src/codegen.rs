// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiler's output for a checked module: its description, and the code of one kernel.

use std::collections::HashMap;

use tally_compiler_protocol::checks::Checks;
use tally_compiler_protocol::{
    Access, ArgInfo, ArgKind, Export, ForeignGlobal, Form, GlobalInfo, ImageKind, Import,
    KernelCode, KernelInfo, ModuleInfo, Reloc, TargetCpu,
};

use crate::check::Unlinked;
use crate::instrument::{Instrumented, instrument};
use crate::ir::{self, AddressSpace, GlobalId, Kernel, Module};
use crate::llvm::{Level, Output};
use crate::lower::Lowered;
use crate::lower::places::Kind;
use crate::widen::{Refusal, Widened};
use crate::{blob, llvm, lower, widen};

/// Options of code generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The optimisation level.
    pub level: Level,
    /// Whether to generate debug information.
    pub debug: bool,
    /// The checks that kernels make while they run.
    pub checks: Checks,
}

/// LLVM's time grows faster than the size of its input. A kernel with more assembly language than this
/// takes minutes, in which the process reaches its limit, and seconds without optimisation.
const MAX_OPTIMISED_BYTES: usize = 32 << 20;

/// Describes a module; `unlinked` are the imports that it needs from others.
pub fn module_info(module: &Module, unlinked: &Unlinked) -> ModuleInfo {
    let numbers = global_numbers(module);
    let own = |id: &GlobalId| object_of(module, *id) == 0;
    let foreign = driver_globals(module).filter(|id| !own(id));
    let imports = unlinked.imports.iter();
    ModuleInfo {
        kernels: module.kernels.iter().map(kernel_info).collect(),
        globals: driver_globals(module)
            .filter(own)
            .map(|id| global_info(module, id, &numbers))
            .collect(),
        foreign: foreign.map(|id| foreign_global(module, id)).collect(),
        exports: exports(module),
        imports: imports
            .map(|(name, &by_kernels)| Import { name: name.clone(), by_kernels })
            .collect(),
    }
}

/// The definitions that other modules may import. Not used for a linked module.
fn exports(module: &Module) -> Vec<Export> {
    let functions = module.functions.iter().filter(|(_, it)| it.exported).map(|(_, it)| &it.name);
    let globals = module.globals.iter().filter(|(_, it)| it.exported).map(|(_, it)| &it.name);
    functions
        .chain(globals)
        .map(|name| Export {
            name: name.clone(),
            once: module.link_once.contains(name),
            pointer: module.pointers.get(name).copied(),
        })
        .collect()
}

/// The object that a variable of a linked module belongs to.
fn object_of(module: &Module, id: GlobalId) -> usize {
    module.foreign.partition_point(|&first| first <= id)
}

/// The number of a variable of another object in that object.
fn foreign_global(module: &Module, id: GlobalId) -> ForeignGlobal {
    let object = object_of(module, id);
    let first = object.checked_sub(1).and_then(|before| module.foreign.get(before));
    let before = driver_globals(module).filter(|&other| Some(&other) >= first && other < id);
    ForeignGlobal { object: object as u32, global: before.count() as u32 }
}

/// Generates the code of a kernel, as wide as is good for the processor, for all groups.
///
/// # Errors
/// A log. After the checks only limits and faults of the compiler are left.
pub fn kernel_code(
    module: &Module,
    kernel: &Kernel,
    target: &TargetCpu,
    options: Options,
) -> Result<KernelCode, String> {
    checked(module, kernel, options.checks, |module, kernel| {
        let lanes = match options.level {
            Level::None => 1,
            Level::Little | Level::Full => widen::lanes(kernel),
        };
        let twice = options.level == Level::Full && llvm::has_long_vectors(target);
        let widened = match twice {
            true => widen::widen_twice(module, kernel, lanes),
            false => widen::widen(module, kernel, lanes),
        };
        code_of(module, kernel, target, options, lanes, widened)
    })
}

/// Like [`kernel_code`], in one form, which takes less time if there are two. Code with debug
/// information, and code that checks, is one piece for all groups.
///
/// # Errors
/// Those of [`kernel_code`], and if the kernel does not have the form.
pub fn kernel_code_in(
    module: &Module,
    kernel: &Kernel,
    target: &TargetCpu,
    options: Options,
    form: Form,
) -> Result<KernelCode, String> {
    let lanes = widen::lanes(kernel);
    let one_piece = options.debug || options.checks.any() || options.level == Level::None;
    if one_piece && form == Form::Usual {
        return kernel_code(module, kernel, target, options);
    }
    let refused =
        |why: &dyn std::fmt::Display| format!("kernel {:?} has no such form: {why}", kernel.name);
    if one_piece {
        return Err(refused(&"it is one piece"));
    }
    let sized;
    let (kernel, lanes) = match form {
        Form::Sized(_) if kernel.required_group_size.is_some() => {
            return Err(refused(&"it requires its group size"));
        }
        Form::Sized(size) => {
            sized = Kernel { required_group_size: Some(size), ..kernel.clone() };
            (&sized, widen::lanes(&sized))
        }
        Form::Usual | Form::Uneven => (kernel, lanes),
    };
    let twice = options.level == Level::Full && llvm::has_long_vectors(target);
    let widened = widen::widen_in(module, kernel, lanes, twice, form);
    match (&widened, form) {
        (Err(why), Form::Uneven | Form::Sized(_)) => return Err(refused(why)),
        (Err(why), Form::Usual) => {
            let uneven = widen::others_than_refused(kernel, lanes, why);
            let code = code_of(module, kernel, target, options, lanes, widened)?;
            return Ok(KernelCode { uneven, ..code });
        }
        (Ok(_), _) => {}
    }
    code_of(module, kernel, target, options, lanes, widened)
}

/// Generates the code of a kernel with vectors of `lanes` items, or scalar code if it can't be widened
/// to them.
///
/// # Errors
/// The same as those of [`kernel_code`].
pub fn kernel_code_of(
    module: &Module,
    kernel: &Kernel,
    target: &TargetCpu,
    options: Options,
    lanes: u32,
) -> Result<KernelCode, String> {
    checked(module, kernel, options.checks, |module, kernel| {
        code_of(module, kernel, target, options, lanes, widen::widen(module, kernel, lanes))
    })
}

/// Generates the code of a kernel after adding its checks, if any are requested.
fn checked(
    module: &Module,
    kernel: &Kernel,
    checks: Checks,
    make: impl FnOnce(&Module, &Kernel) -> Result<KernelCode, String>,
) -> Result<KernelCode, String> {
    if !checks.any() {
        return make(module, kernel);
    }
    let Some(Instrumented { part, sites }) = instrument(module, kernel, checks) else {
        let mut code = make(module, kernel)?;
        let before = if code.remark.is_empty() { "" } else { "; " };
        code.remark += &format!("{before}unchecked: it is too large");
        return Ok(code);
    };
    let (module, kernel) =
        part.as_ref().map_or((module, kernel), |(module, kernel)| (module, kernel));
    Ok(KernelCode { sites: Some(sites), ..make(module, kernel)? })
}

fn code_of(
    module: &Module,
    kernel: &Kernel,
    target: &TargetCpu,
    options: Options,
    lanes: u32,
    widened: Result<Widened, Refusal>,
) -> Result<KernelCode, String> {
    let log = |error: &dyn std::error::Error| format!("kernel {:?}: {error}", kernel.name);
    let (widened, mut remark) = match widened {
        Ok(widened) => (Some(widened), String::new()),
        Err(why) if lanes > 1 => (None, format!("one item at a time: {why}")),
        Err(_) => (None, String::new()),
    };
    let lowered = match (&widened, options.debug) {
        (None, true) if options.level == Level::None => lower::lower_with_variables(module, kernel),
        (widened, true) => lower::lower_with_places(module, kernel, widened.as_ref(), Kind::Lines),
        (Some(widened), false) => lower::lower_widened(widened, kernel),
        (None, false) => lower::lower(module, kernel),
    };
    let lowered = lowered.map_err(|error| log(&error))?;
    let level = affordable(options.level, lowered.text.len());
    if level != options.level {
        let mib = lowered.text.len() >> 20;
        let before = if remark.is_empty() { "" } else { "; " };
        remark +=
            &format!("{before}without optimisation: it is {mib} MiB of LLVM's assembly language");
    }
    let code = lowered_code(module, lowered, target, level).map_err(|error| log(&*error))?;
    let turned = widened.as_ref().and_then(|widened| widened.turned);
    let side_by_side = widened.as_ref().is_some_and(|widened| widened.side_by_side);
    let uneven = widened.and_then(|widened| widened.left_out);
    let axis = turned.map_or(0, |it| it.axis);
    Ok(KernelCode { remark, uneven, axis, side_by_side, ..code })
}

/// The optimisation level for a kernel of `bytes` bytes of LLVM's assembly language: `level`, or none
/// if it is too large.
fn affordable(level: Level, bytes: usize) -> Level {
    if bytes > MAX_OPTIMISED_BYTES { Level::None } else { level }
}

/// The code of a kernel of `module` that has been lowered.
///
/// # Errors
/// LLVM's, or those of linking.
pub fn lowered_code(
    module: &Module,
    lowered: Lowered,
    target: &TargetCpu,
    level: Level,
) -> Result<KernelCode, Box<dyn std::error::Error>> {
    let object = llvm::compile(&lowered.text, lowered.work, target, level, Output::Object)?;
    let numbers = global_numbers(module);
    let globals = lowered.globals.iter();
    let globals = globals.filter_map(|(symbol, id)| Some((symbol.clone(), *numbers.get(id)?)));
    let blob = blob::link(&object, llvm::support(), lower::ENTRY, &globals.collect())?;
    Ok(KernelCode {
        blob: blob.bytes,
        entry: blob.entry,
        relocs: blob.relocs,
        scratch_bytes_fixed: lowered.scratch_bytes_fixed,
        scratch_bytes_per_item: lowered.scratch_bytes_per_item,
        local_static_bytes: lowered.local_static_bytes,
        remark: String::new(),
        debug: blob.debug,
        sites: None,
        uneven: None,
        axis: 0,
        side_by_side: false,
    })
}

/// The globals that the driver allocates. Local and private ones come with each group and item.
fn driver_globals(module: &Module) -> impl Iterator<Item = GlobalId> {
    let driver = |space| matches!(space, AddressSpace::Global | AddressSpace::Constant);
    let mine = move |global: &ir::Global| driver(global.space) && !global.imported;
    module.globals.iter().filter(move |(_, global)| mine(global)).map(|(id, _)| id)
}

/// The driver's number of each global: the module's own globals are the first.
fn global_numbers(module: &Module) -> HashMap<GlobalId, u32> {
    driver_globals(module).zip(0..).collect()
}

fn global_info(module: &Module, id: GlobalId, numbers: &HashMap<GlobalId, u32>) -> GlobalInfo {
    let global = &module.globals[id];
    let mut image = module.global_image(id);
    let used = image.bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    image.bytes.truncate(used);
    let relocs = image.relocs.iter().filter_map(|reloc| {
        let number = *numbers.get(&reloc.global)?;
        Some(Reloc { offset: reloc.offset, global: number, addend: reloc.addend })
    });
    GlobalInfo {
        name: global.name.clone(),
        size: global.size,
        align: narrow(global.align),
        relocs: relocs.collect(),
        init: image.bytes,
        constant: global.space == AddressSpace::Constant,
        exported: global.exported,
    }
}

fn kernel_info(kernel: &Kernel) -> KernelInfo {
    let facts = &kernel.facts;
    KernelInfo {
        name: kernel.name.clone(),
        args: kernel.args.iter().map(arg_info).collect(),
        args_size: narrow(kernel.block_size()),
        printf_ring: facts.printf_ring.map(narrow),
        checks: facts.watch.map(narrow),
        required_group_size: kernel.required_group_size,
        group_size_hint: kernel.group_size_hint,
        local_static_bytes: narrow(facts.local_static_bytes),
        private_bytes: narrow(facts.private_bytes),
        uses_barrier: facts.uses_barrier,
        uses_system_scope: facts.uses_system_scope,
        may_wait: facts.may_wait,
        full_subgroups: facts.uses_matrices,
        max_subgroup_size: kernel.subgroup_size(),
        required_subgroup_size: kernel.required_subgroup_size,
        source_attributes: kernel.source_attributes.clone(),
    }
}

fn arg_info(arg: &ir::KernelArg) -> ArgInfo {
    let kind = match arg.kind {
        ir::ArgKind::Value => ArgKind::Value,
        ir::ArgKind::GlobalPointer => ArgKind::GlobalPointer,
        ir::ArgKind::ConstantPointer => ArgKind::ConstantPointer,
        ir::ArgKind::LocalPointer => ArgKind::LocalPointer,
        ir::ArgKind::Image => ArgKind::Image,
        ir::ArgKind::Sampler => ArgKind::Sampler,
    };
    let access = match kind {
        ArgKind::ConstantPointer => Access::Read,
        ArgKind::GlobalPointer if arg.qualifiers.contains(&"const") => Access::Read,
        ArgKind::GlobalPointer | ArgKind::LocalPointer => Access::ReadWrite,
        ArgKind::Image => match arg.image {
            Some(ir::ImageArg { read: true, write: false, .. }) => Access::Read,
            Some(ir::ImageArg { read: false, write: true, .. }) => Access::Write,
            _ => Access::ReadWrite,
        },
        ArgKind::Value | ArgKind::Sampler => Access::None,
    };
    ArgInfo {
        kind,
        size: narrow(arg.size),
        align: narrow(arg.align),
        offset: narrow(arg.offset),
        name: arg.name.clone(),
        type_name: arg.type_name.clone(),
        access,
        image: arg.image.map(|image| match image.kind {
            ir::ImageKind::D1 => ImageKind::D1,
            ir::ImageKind::D1Array => ImageKind::D1Array,
            ir::ImageKind::D2 => ImageKind::D2,
            ir::ImageKind::D2Array => ImageKind::D2Array,
            ir::ImageKind::D3 => ImageKind::D3,
            ir::ImageKind::Buffer => ImageKind::Buffer,
        }),
    }
}

/// A size in 32 bits. The checks bound what goes through here; a size that were larger could not
/// be served anyway.
fn narrow(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with too much assembly language is not optimised; others are, as requested.
    #[test]
    fn what_would_take_minutes_is_not_optimised() {
        for level in [Level::None, Level::Little, Level::Full] {
            assert_eq!(affordable(level, MAX_OPTIMISED_BYTES), level);
            assert_eq!(affordable(level, MAX_OPTIMISED_BYTES + 1), Level::None);
        }
    }
}

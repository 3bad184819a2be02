// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points and their arguments.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::annotations::{EntryPoint, Modes};
use super::builder::{Builder, Def, SpvKind};
use super::error::{Error, Result};
use crate::ir::{
    AddressSpace, ArgKind, FunctionId, Kernel, KernelArg, KernelFacts, Loc, Op, Operand, Type,
};

/// Adds a kernel for each entry point.
pub fn build(builder: &mut Builder<'_>) -> Result<()> {
    let strings = std::mem::take(&mut builder.annotations.strings);
    let about_args: BTreeSet<String> =
        strings.into_values().filter(|text| text.starts_with(TYPES)).collect();
    for entry in std::mem::take(&mut builder.annotations.entry_points) {
        let kernel = kernel(builder, &entry, &about_args).map_err(|message| Error {
            word: entry.word,
            opcode: Some("OpEntryPoint".into()),
            place: Some(format!("kernel {:?}", entry.name)),
            source: None,
            message,
        })?;
        builder.module.kernels.push(kernel);
    }
    Ok(())
}

fn kernel(
    builder: &mut Builder<'_>,
    entry: &EntryPoint,
    about_args: &BTreeSet<String>,
) -> Result<Kernel, String> {
    let id = entry.function;
    let Some(&Def::Function(function)) = builder.defs.get(&id) else {
        return Err(format!("names %{id}, which is not a function with a body"));
    };
    let return_type = builder.module.functions[function].return_type;
    if builder.module.types[return_type] != Type::Void {
        return Err("names a function that returns a value".into());
    }
    let modes = builder.annotations.modes.get(&id).cloned().unwrap_or_default();
    let mut args = arguments(builder, function);
    let args_size = lay_out(&mut args);
    name_types(about_args, &entry.name, &mut args);
    let required_group_size = match (modes.local_size, modes.local_size_ids) {
        (Some(size), _) => Some(size),
        (None, Some(ids)) => Some(size_from_ids(builder, ids)?),
        (None, None) => None,
    };
    let word = u32::try_from(entry.word).unwrap_or(u32::MAX);
    Ok(Kernel {
        name: entry.name.clone(),
        function,
        args,
        args_size,
        required_group_size,
        group_size_hint: modes.local_size_hint,
        vec_type_hint: modes.vec_type_hint,
        required_subgroup_size: modes.subgroup_size,
        source_attributes: source_attributes(&modes, required_group_size),
        facts: KernelFacts::default(),
        loc: Loc { word, ..Loc::default() },
    })
}

fn size_from_ids(builder: &Builder<'_>, ids: [u32; 3]) -> Result<[u32; 3], String> {
    let mut size = [0; 3];
    for (dimension, id) in size.iter_mut().zip(ids) {
        *dimension = match builder.defs.get(&id) {
            Some(&Def::Const(constant, _)) => builder.module.const_bits(constant),
            _ => None,
        }
        .and_then(|bits| u32::try_from(bits).ok())
        .ok_or_else(|| format!("has a work-group size %{id} that is no integer constant"))?;
    }
    Ok(size)
}

/// The arguments of a kernel with their sizes, not yet laid out.
fn arguments(builder: &Builder<'_>, function: FunctionId) -> Vec<KernelArg> {
    let module = &builder.module;
    let body = &module.functions[function];
    let mut args = Vec::with_capacity(body.params.len());
    let given = builder.parameter_types.get(function.0 as usize);
    for (i, &param) in body.params.iter().enumerate() {
        let value = &body.values[param];
        let mut ty = value.ty;
        let mut by_reference = false;
        let handle = given.and_then(|types| builder.defs.get(types.get(i)?));
        let handle = match handle {
            Some(Def::Type(ty)) => &ty.kind,
            _ => &SpvKind::Plain,
        };
        let image = match handle {
            SpvKind::Image(image) => Some(*image),
            _ => None,
        };
        let kind = match &module.types[ty] {
            _ if image.is_some() => ArgKind::Image,
            _ if matches!(handle, SpvKind::Sampler) => ArgKind::Sampler,
            Type::Pointer(AddressSpace::Global | AddressSpace::Generic) => ArgKind::GlobalPointer,
            Type::Pointer(AddressSpace::Constant) => ArgKind::ConstantPointer,
            Type::Pointer(AddressSpace::Local) => ArgKind::LocalPointer,
            Type::Pointer(AddressSpace::Private) => {
                by_reference = true;
                // At entry, the parsed function copies what the parameter points to into a variable.
                let copied =
                    body.blocks.iter().flat_map(|(_, block)| &block.insts).find_map(|inst| {
                        match inst.op {
                            Op::Copy(Operand::Value(to), Operand::Value(from), ..)
                                if from == param =>
                            {
                                body.variables.iter().find(|variable| variable.address == to)
                            }
                            _ => None,
                        }
                    });
                ty = copied.map_or(ty, |variable| variable.ty);
                ArgKind::Value
            }
            _ => ArgKind::Value,
        };
        args.push(KernelArg {
            kind,
            ty,
            by_reference,
            size: module.types.size(ty),
            align: module.types.align(ty),
            offset: 0,
            name: value.name.clone().unwrap_or_default(),
            type_name: String::new(),
            image,
            qualifiers: Vec::new(),
        });
    }
    args
}

/// Assigns each argument its offset; returns the size of the block.
fn lay_out(args: &mut [KernelArg]) -> u64 {
    let mut end = 0u64;
    for arg in args {
        arg.offset = end.next_multiple_of(arg.align.max(1));
        end = arg.offset.saturating_add(arg.size);
    }
    end
}

/// Prefix of strings about the types of arguments.
const TYPES: &str = "kernel_arg_type";

/// Type names and qualifiers, which producers keep in strings such as
/// `kernel_arg_type.saxpy.float*,float,`.
fn name_types(about_args: &BTreeSet<String>, kernel: &str, args: &mut [KernelArg]) {
    let list = |what: &str| {
        let prefix = format!("{what}.{kernel}.");
        let text = about_args.range(prefix.clone()..).next()?;
        text.strip_prefix(&prefix).map(str::to_owned)
    };
    if let Some(types) = list(TYPES) {
        for (arg, name) in args.iter_mut().zip(types.split(',')) {
            arg.type_name = name.trim().to_owned();
        }
    }
    if let Some(qualifiers) = list("kernel_arg_type_qual") {
        for (arg, text) in args.iter_mut().zip(qualifiers.split(',')) {
            let known = ["const", "restrict", "volatile", "pipe"];
            arg.qualifiers = known
                .into_iter()
                .filter(|name| text.split(' ').any(|word| word == *name))
                .collect();
        }
    }
}

fn source_attributes(modes: &Modes, required: Option<[u32; 3]>) -> String {
    let mut text = String::new();
    let mut add = |name: &str, size: Option<[u32; 3]>| {
        if let Some([x, y, z]) = size {
            // Writing to a string does not fail.
            let _ = write!(text, "{}{name}({x},{y},{z})", if text.is_empty() { "" } else { " " });
        }
    };
    add("reqd_work_group_size", required);
    add("work_group_size_hint", modes.local_size_hint);
    if let Some(hint) = modes.vec_type_hint {
        let names = ["char", "short", "int", "long", "half", "float", "double"];
        if let Some(name) = names.get((hint & 0xffff) as usize) {
            let lanes = match hint >> 16 {
                0 | 1 => String::new(),
                n => n.to_string(),
            };
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}vec_type_hint({name}{lanes})");
        }
    }
    if let Some(size) = modes.subgroup_size {
        let space = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{space}intel_reqd_sub_group_size({size})");
    }
    text
}

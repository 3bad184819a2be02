// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference interpreter: runs a kernel directly from the IR.
//!
//! It is slow and simple on purpose; compiled code is compared with it. Work-groups run one after the
//! other, and the work-items of a group one after the other from barrier to barrier, so runs with the
//! same input give the same result. A barrier releases a work-item once every other item of its scope,
//! work-group or sub-group, waits too or has returned; so a divergent barrier ends, in some order.
//!
//! Every access to memory is checked. Undefined results of instructions are fixed: undefined values and
//! memory are zero.

mod group;
mod image;
mod item;
mod launch;
mod memory;
mod ops;
mod printf;
mod trace;
mod value;

use item::Item;
pub use launch::{Arg, InterpError, Launch};
use launch::{Arguments, Group, LocalLayout};
pub use memory::{Memory, MemoryError};
pub use trace::{Access, Event};
pub use value::Value;

use crate::ir::{AddressSpace, ArgKind, Kernel, Module};

/// The maximum number of work-items of one group, a bound on this interpreter's memory.
const MAX_GROUP_ITEMS: u64 = 1 << 16;
/// Alignment of a kernel's arguments in local memory.
const LOCAL_ALIGN: u64 = 64;

/// Runs kernel number `kernel` of a module over an index space.
///
/// Variables of module scope are placed in `memory` at the first run with it and stay there.
///
/// # Errors
/// If the launch does not fit the kernel, or for the first work-item that does something wrong;
/// `memory` then holds what was written before.
pub fn run(
    module: &Module,
    kernel: usize,
    launch: &Launch,
    args: &[Arg],
    memory: &mut Memory,
) -> Result<(), InterpError> {
    let kernel = module
        .kernels
        .get(kernel)
        .ok_or_else(|| InterpError::Launch(format!("there is no kernel {kernel}")))?;
    memory.place_globals(module).map_err(|error| InterpError::Launch(error.to_string()))?;
    let locals = local_layout(module, kernel);
    let arguments = arguments(module, kernel, args, locals.size)?;
    let sizes = launch.group_size.iter().map(|&n| u64::from(n));
    let items = sizes.fold(1u64, u64::saturating_mul);
    if items == 0 || items > MAX_GROUP_ITEMS {
        return Err(InterpError::Launch(format!("groups of {items} work-items cannot run")));
    }
    if let Some(required) = kernel.required_group_size
        && required != launch.group_size
    {
        return Err(InterpError::Launch(format!(
            "the kernel requires groups of {required:?}, not {:?}",
            launch.group_size
        )));
    }
    let mut steps = launch.step_limit;
    let [nx, ny, nz] = launch.num_groups();
    for z in 0..nz {
        for y in 0..ny {
            for x in 0..nx {
                let id = [x, y, z];
                let size = std::array::from_fn(|d| {
                    let full = u64::from(launch.group_size[d]);
                    full.min(launch.global_size[d] - id[d] * full)
                });
                let group = Group { id, size };
                memory.new_group(arguments.local_bytes);
                run_group(module, kernel, launch, group, &arguments, &locals, memory, &mut steps)?;
            }
        }
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the parts of a launch, taken apart by one caller")]
fn run_group(
    module: &Module,
    kernel: &Kernel,
    launch: &Launch,
    group: Group,
    arguments: &Arguments,
    locals: &LocalLayout,
    memory: &mut Memory,
    steps: &mut u64,
) -> Result<(), InterpError> {
    let [nx, ny, nz] = group.size;
    let mut items = Vec::new();
    for z in 0..nz {
        for y in 0..ny {
            for x in 0..nx {
                let subgroup_size = kernel.subgroup_size();
                let place = item::Place { launch, group, local: [x, y, z], subgroup_size };
                items.push(Item::new(
                    module,
                    kernel,
                    place,
                    locals,
                    items.len(),
                    arguments,
                    memory,
                )?);
            }
        }
    }
    group::run(&mut items, kernel.subgroup_size() as usize, memory, steps)
}

/// All local variables of the module, one after the other. (The kernel's facts would say which it
/// uses, but the interpreter also runs modules that were not checked.)
fn local_layout(module: &Module, kernel: &Kernel) -> LocalLayout {
    let facts = &kernel.facts;
    if !facts.functions.is_empty() {
        return LocalLayout { offsets: facts.locals.clone(), size: facts.local_static_bytes };
    }
    let mut layout = LocalLayout { offsets: Vec::new(), size: 0 };
    for (id, global) in module.globals.iter() {
        if global.space == AddressSpace::Local {
            let offset = layout.size.next_multiple_of(global.align.max(1));
            layout.offsets.push((id, offset));
            layout.size = offset + global.size;
        }
    }
    layout
}

fn arguments(
    module: &Module,
    kernel: &Kernel,
    args: &[Arg],
    local_static: u64,
) -> Result<Arguments, InterpError> {
    if args.len() != kernel.args.len() {
        return Err(InterpError::Launch(format!(
            "the kernel takes {} arguments, not {}",
            kernel.args.len(),
            args.len()
        )));
    }
    let mut values = Vec::with_capacity(args.len());
    let mut local_bytes = local_static;
    for (i, (arg, wanted)) in args.iter().zip(&kernel.args).enumerate() {
        match arg {
            Arg::Local(size) if wanted.kind == ArgKind::LocalPointer => {
                let offset = local_bytes.next_multiple_of(LOCAL_ALIGN);
                values.push((memory::LOCAL_BASE + offset).to_le_bytes().to_vec());
                local_bytes = offset.saturating_add(*size);
            }
            Arg::Bytes(bytes)
                if wanted.kind != ArgKind::LocalPointer && bytes.len() as u64 == wanted.size =>
            {
                values.push(bytes.clone());
            }
            _ => {
                let ty = module.types.text(wanted.ty);
                return Err(InterpError::Launch(format!(
                    "argument {i} is {} of {} bytes, type {ty}; that is not what was given",
                    wanted.kind.name(),
                    wanted.size
                )));
            }
        }
    }
    if local_bytes > memory::MAX_LOCAL {
        return Err(InterpError::Launch(format!(
            "{local_bytes} bytes of local memory are too many"
        )));
    }
    Ok(Arguments { values, local_bytes })
}

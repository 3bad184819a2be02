// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference interpreter: runs a kernel directly from the IR.
//!
//! It is slow and plain on purpose; compiled code is compared with it. Work-groups run one after
//! the other, and the work-items of a group one after the other from barrier to barrier, so a run
//! with the same input gives the same result. A barrier releases a work-item once every other item
//! of its scope, work-group or sub-group, waits too or has returned; a divergent barrier so ends,
//! with some order.
//!
//! Every access to memory is checked. What an instruction leaves open is decided: undefined values
//! and memory are zero.

mod group;
mod image;
mod item;
mod math;
mod memory;
mod ops;
mod printf;
mod value;

use std::fmt;

use item::Item;
pub use memory::{Memory, MemoryError};
pub use value::Value;

use crate::ir::{AddressSpace, ArgKind, GlobalId, Id, Kernel, Module};

/// The index space of a launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Work-items per dimension, not counting the offset. A last group may be partial.
    pub global_size: [u64; 3],
    /// Work-items of a full group per dimension.
    pub group_size: [u32; 3],
    /// Added to every global id.
    pub global_offset: [u64; 3],
    /// What `get_work_dim` answers.
    pub work_dim: u32,
    /// Instructions that the launch may take in all.
    pub step_limit: u64,
}

impl Launch {
    /// A launch in one dimension without offset, with a limit far above what a test needs.
    pub fn linear(global_size: u64, group_size: u32) -> Self {
        Self {
            global_size: [global_size, 1, 1],
            group_size: [group_size, 1, 1],
            global_offset: [0; 3],
            work_dim: 1,
            step_limit: 1 << 26,
        }
    }

    /// Work-groups per dimension.
    pub fn num_groups(&self) -> [u64; 3] {
        std::array::from_fn(|d| self.global_size[d].div_ceil(u64::from(self.group_size[d]).max(1)))
    }
}

/// One argument of a launch.
#[derive(Clone, Debug)]
pub enum Arg {
    /// The bytes of a value, or of a pointer to global or constant memory.
    Bytes(Vec<u8>),
    /// So many bytes of local memory.
    Local(u64),
}

impl Arg {
    /// An address in global or constant memory.
    pub fn pointer(address: u64) -> Self {
        Arg::Bytes(address.to_le_bytes().to_vec())
    }
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterpError {
    /// The launch does not fit the kernel.
    Launch(String),
    /// A wrong access to memory.
    Memory {
        /// What was wrong.
        error: MemoryError,
        /// The function.
        function: String,
        /// The instruction's place in the SPIR-V binary, in words.
        word: u32,
    },
    /// An instruction that the interpreter cannot run; `crate::check` refuses it.
    Unsupported {
        /// What it is.
        what: String,
        /// The function.
        function: String,
        /// The instruction's place in the SPIR-V binary, in words.
        word: u32,
    },
    /// The launch took more than [`Launch::step_limit`] instructions.
    StepLimit,
}

impl fmt::Display for InterpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterpError::Launch(message) => f.write_str(message),
            InterpError::Memory { error, function, word } => {
                write!(f, "word {word} in function {function:?}: {error}")
            }
            InterpError::Unsupported { what, function, word } => {
                write!(f, "word {word} in function {function:?}: cannot run {what}")
            }
            InterpError::StepLimit => f.write_str("the launch took more steps than it may"),
        }
    }
}

impl std::error::Error for InterpError {}

/// The place and size of one work-group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Id per dimension.
    id: [u64; 3],
    /// Work-items per dimension; fewer than in a full group at the edges.
    size: [u64; 3],
}

/// Most work-items of one group, a bound on this interpreter's memory.
const MAX_GROUP_ITEMS: u64 = 1 << 16;
/// Distance of the 64-bit addresses of what a kernel finds at fixed places in local memory.
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

/// The places of a kernel's local variables.
pub(crate) struct LocalLayout {
    offsets: Vec<(GlobalId, u64)>,
    size: u64,
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

/// The arguments of a launch as the kernel sees them.
pub(crate) struct Arguments {
    /// The bytes of each, an address for local memory.
    values: Vec<Vec<u8>>,
    /// Local memory of a group, variables and arguments.
    local_bytes: u64,
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

impl LocalLayout {
    /// The address of a local variable.
    fn address(&self, id: GlobalId) -> Option<u64> {
        // Few kernels have more than a handful.
        let found = self.offsets.iter().find(|(other, _)| other.index() == id.index());
        found.map(|(_, offset)| memory::LOCAL_BASE + offset)
    }
}

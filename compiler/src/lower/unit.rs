// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that the functions of one kernel share while it is lowered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::places::{Form, Places};
use super::types;
use crate::ir::{AddressSpace, FunctionId, GlobalId, Kernel, Module};
use crate::regions::inline;

/// The number of the metadata of loops that LLVM is not to unroll; the next number is taken too.
pub(super) const ONE_ROUND: usize = 2;

/// The strictest alignment that LLVM may rely on: scratch and local memory have it.
pub(super) const MAX_ALIGN: u64 = 64;

/// If private memory exceeds this many bytes, it lies in the group's scratch memory instead of the
/// stack, of which a kernel has 64 KiB.
pub(super) const STACK_BYTES: u64 = 16 << 10;

/// Constants of up to this many bytes are copied into the code, where LLVM can see them.
const EMBED_BYTES: u64 = 64 << 10;

/// The first parameters of every function.
pub(super) const ITEM_PARAMS: &str =
    "ptr noalias readonly align 8 dereferenceable(48) %ctx, i64 %lx, i64 %ly, i64 %lz, ptr %priv";

/// A kernel that exceeds a limit of code generation.
#[derive(Debug, PartialEq, Eq)]
pub enum LowerError {
    /// The private or local memory exceeds 32-bit sizes.
    Memory,
    /// Too many instructions after inlining.
    Size,
    /// An operation that the checks should have refused; its name.
    Unsupported(String),
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("the private or local memory exceeds 4 GiB"),
            Self::Size => write!(
                f,
                "the kernel exceeds the size of {} instructions when the functions with barriers are inlined",
                inline::MAX_WEIGHT
            ),
            Self::Unsupported(what) => write!(f, "{what} is not supported"),
        }
    }
}

impl std::error::Error for LowerError {}

/// The inlining of a function's calls.
#[derive(Clone, Copy)]
pub(super) enum Inlining {
    /// LLVM decides.
    Usual,
    /// They stay, and the function becomes short code: the item function beside a widened one runs only the
    /// remaining items, or groups that are rare. LLVM would spend a third of its time on making the loops around
    /// it fast, and a tenth on unrolling those in it.
    Never,
    /// They are inlined before all else: a widened function has one call, and LLVM would optimise it
    /// twice, by itself and in its place.
    First,
}

/// The state that the functions of one kernel share.
pub(super) struct Unit<'m> {
    pub(super) module: &'m Module,
    /// Declarations of intrinsics and library functions.
    pub(super) declarations: BTreeSet<String>,
    /// Symbols of the referenced globals in the driver's memory.
    pub(super) globals: BTreeMap<GlobalId, String>,
    /// Definitions of the constants that are copied into the code.
    pub(super) embedded: BTreeMap<GlobalId, String>,
    /// Offsets in the group's local memory.
    pub(super) locals: HashMap<GlobalId, u64>,
    /// Offsets in the item's copy of the private variables of module scope.
    pub(super) privates: BTreeMap<GlobalId, u64>,
    /// Size of that copy.
    pub(super) private_size: u64,
    /// The scratch memory in use by private variables of functions so far.
    pub(super) scratch: u64,
    /// Whether private variables of functions go to scratch memory.
    pub(super) spill_variables: bool,
    /// The inlining of calls of the function that is being lowered.
    pub(super) inlining: Inlining,
    /// The size of every group that runs the code, if it is known.
    pub(super) exact: Option<[u32; 3]>,
    /// Whether groups join their rows ([`super::joined`]).
    pub(super) joins: bool,
    /// Whether those of several rows are best in rows as long as can be.
    pub(super) long_rows: bool,
    /// The size in bytes of the integers of which joined groups keep sums (`rt/sums.c`), if they do.
    pub(super) sums: Option<u64>,
    /// Code that finds out whether vectors may run a group ([`super::promises`]).
    pub(super) promised: String,
    /// The dimension in which the vectors of the function lie that is being lowered.
    pub(super) axis: u8,
    /// Work-items of a full sub-group.
    pub(super) subgroup_size: u32,
    /// Offset in the argument block of the address of the ring that `printf` writes to.
    pub(super) printf_ring: Option<u64>,
    /// Offset in the argument block of the words for checks, in a checked kernel.
    pub(super) watch: Option<u64>,
    /// The functions that combine what items exchange, by name.
    pub(super) helpers: BTreeMap<String, String>,
    /// Whether some of them are loops over the components of vectors ([`super::library`]).
    pub(super) has_component_loops: bool,
    /// Debug information, if it is requested, and the form of the function that is being lowered.
    pub(super) places: Option<Places<'m>>,
    /// A debugger is to show variables.
    pub(super) shows_variables: bool,
    pub(super) form: Form,
}

impl<'m> Unit<'m> {
    pub(super) fn new(module: &'m Module, kernel: &Kernel) -> Self {
        let mut privates = BTreeMap::new();
        let mut private_size = 0;
        for &id in &kernel.facts.globals {
            let global = &module.globals[id];
            if global.space == AddressSpace::Private {
                private_size = align_up(private_size, global.align);
                privates.insert(id, private_size);
                private_size += global.size;
            }
        }
        let variables =
            kernel.facts.functions.iter().flat_map(|&id| &module.functions[id].variables);
        let stack: u64 = variables.map(|variable| variable.size).sum::<u64>() + private_size;
        Self {
            module,
            declarations: BTreeSet::new(),
            globals: BTreeMap::new(),
            embedded: BTreeMap::new(),
            locals: kernel.facts.locals.iter().copied().collect(),
            privates,
            private_size: align_up(private_size, MAX_ALIGN),
            // The private globals come first, if they are not on the stack.
            scratch: if stack > STACK_BYTES { align_up(private_size, MAX_ALIGN) } else { 0 },
            spill_variables: stack > STACK_BYTES,
            inlining: Inlining::Usual,
            exact: None,
            joins: false,
            long_rows: false,
            sums: None,
            promised: String::new(),
            axis: 0,
            subgroup_size: kernel.subgroup_size(),
            printf_ring: kernel.facts.printf_ring,
            watch: kernel.facts.watch,
            helpers: BTreeMap::new(),
            has_component_loops: false,
            places: None,
            shows_variables: false,
            form: Form::Item,
        }
    }

    /// LLVM's attributes of the function that is being lowered.
    pub(super) fn attributes(&self) -> &'static str {
        match self.inlining {
            Inlining::Usual => "#0",
            Inlining::Never => "noinline optsize #0",
            Inlining::First => "alwaysinline #0",
        }
    }

    /// The size of a full sub-group is two to this power.
    pub(super) fn subgroup_shift(&self) -> u32 {
        self.subgroup_size.trailing_zeros()
    }

    /// Reserves a private variable in the group's scratch memory. One place serves all items and calls:
    /// items run one after the other, and functions do not recurse.
    pub(super) fn take_scratch(&mut self, size: u64, align: u64) -> u64 {
        let offset = align_up(self.scratch, align);
        self.scratch = offset + size;
        offset
    }

    /// Bytes of scratch memory in front of the items' frames.
    pub(super) fn scratch_fixed(&self) -> u64 {
        align_up(self.scratch, MAX_ALIGN)
    }

    /// The symbol of a global that has one. Local and private globals have none, as their addresses are
    /// known only at run time.
    pub(super) fn symbol(&mut self, id: GlobalId) -> Option<String> {
        let global = &self.module.globals[id];
        if matches!(global.space, AddressSpace::Local | AddressSpace::Private) {
            return None;
        }
        if let Some(symbol) = self.globals.get(&id) {
            return Some(format!("@{symbol}"));
        }
        let symbol = format!("tally.{id}");
        if self.embedded.contains_key(&id) || self.embed(id, &symbol) {
            return Some(format!("@{symbol}"));
        }
        self.globals.insert(id, symbol.clone());
        Some(format!("@{symbol}"))
    }

    /// Copies a constant into the code if a program cannot distinguish the copy from the variable.
    fn embed(&mut self, id: GlobalId, symbol: &str) -> bool {
        let global = &self.module.globals[id];
        let plain = |id| self.module.globals_in([id]).is_empty();
        let eligible = global.space == AddressSpace::Constant
            && !global.exported
            // The checks must see accesses beyond the end of a variable.
            && self.watch.is_none()
            && global.size <= EMBED_BYTES
            && global.init.is_some_and(plain);
        let init = global.init.filter(|_| eligible);
        let text = init.and_then(|init| types::constant(self.module, init, true, &mut |_| None));
        let Some(text) = text else { return false };
        let ty = types::memory_type(self.module, global.ty);
        let align = global.align.min(MAX_ALIGN);
        let line = format!("@{symbol} = internal constant {ty} {text}, align {align}\n");
        self.embedded.insert(id, line);
        true
    }

    /// Declares a function of LLVM or of the run-time library.
    pub(super) fn declare(&mut self, result: &str, name: &str, params: &str) {
        self.declarations.insert(format!("declare {result} @{name}({params})\n"));
    }

    /// The whole module.
    pub(super) fn text(&self, entry: &str, functions: &str) -> String {
        let mut text = String::new();
        self.embedded.values().for_each(|line| text += line);
        for (id, symbol) in &self.globals {
            let align = self.module.globals[*id].align.min(MAX_ALIGN);
            text += &format!("@{symbol} = external global i8, align {align}\n");
        }
        text += entry;
        text += functions;
        self.helpers.values().for_each(|helper| text += helper);
        text += "\n";
        self.declarations.iter().for_each(|line| text += line);
        text += "\n!0 = !{}\n!1 = !{i32 1}\n";
        let disable = ONE_ROUND + 1;
        text += &format!("!{ONE_ROUND} = distinct !{{!{ONE_ROUND}, !{disable}}}\n");
        text += &format!("!{disable} = !{{!\"llvm.loop.unroll.runtime.disable\"}}\n");
        text += &self.places.as_ref().map(|places| places.text()).unwrap_or_default();
        text
    }
}

/// The LLVM function of an IR function.
pub(super) fn function_symbol(id: FunctionId) -> String {
    format!("@{id}")
}

/// Rounds up to an alignment, which is limited to [`MAX_ALIGN`].
pub(super) fn align_up(offset: u64, align: u64) -> u64 {
    offset.next_multiple_of(align.clamp(1, MAX_ALIGN))
}

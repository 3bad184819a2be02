// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked IR → LLVM's assembly language, one item at a time or widened ([`crate::widen`]).
//!
//! The output is text that LLVM parses ([`crate::llvm`]), not calls of its builder: what is
//! generated can be read and compared as it is, a mistake is a message instead of a crash, and
//! this module needs no LLVM.
//!
//! A kernel becomes one function for the device, [`ENTRY`], that runs a whole work-group: it loads
//! the arguments once and runs the *item function* for each work-item in turn. Without barriers
//! that is a loop over the items ([`entry`]); with barriers the item function can be resumed
//! ([`crate::regions`]), and the loop repeats until every item has ended. Operations of groups and
//! sub-groups are barriers too, at which items exchange values ([`group`]).
//!
//! A widened kernel has a second item function, which runs a vector of items. The entry function
//! calls it for whole vectors of a row and the other one for what is left. Some have a third one for
//! vectors of twice as many items, which comes first. With barriers or sub-groups the third one is for
//! groups with uneven rows, and all items of a group go in one form.
//!
//! Every function of a kernel takes the same five values first: the group's context, the item's
//! three local ids, and the item's copy of the private variables of module scope. All address
//! spaces are ranges of one flat space, so a generic pointer is just a pointer.

mod arith;
mod composite;
mod entry;
mod function;
mod group;
mod library;
mod memory;
mod phases;
pub mod places;
mod printf;
mod types;
mod vector;
mod work_item;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::ir::{AddressSpace, Function, FunctionId, GlobalId, Kernel, Module};
use crate::regions::{self, inline};
use crate::widen::{self, Rows, Widened};
use entry::Runner;
use places::{Form, Kind, Places};

/// The symbol of the function that runs a work-group.
pub const ENTRY: &str = "tally_entry";

/// The strictest alignment that is promised to LLVM: scratch and local memory are aligned so.
const MAX_ALIGN: u64 = 64;

/// Private memory beyond this many bytes lies in the group's scratch memory instead of the stack,
/// of which a kernel has 64 KiB.
const STACK_BYTES: u64 = 16 << 10;

/// Constants of up to this many bytes are copied into the code, where LLVM can see them.
const EMBED_BYTES: u64 = 64 << 10;

/// A kernel in LLVM's assembly language, and what its code needs.
#[derive(Debug)]
pub struct Lowered {
    /// The LLVM module.
    pub text: String,
    /// The module's globals that the text refers to, by symbol.
    pub globals: HashMap<String, GlobalId>,
    /// Scratch memory of a group in bytes, whatever its size.
    pub scratch_bytes_fixed: u32,
    /// Scratch memory of each item in bytes.
    pub scratch_bytes_per_item: u32,
    /// Local memory of the kernel's own variables in bytes.
    pub local_static_bytes: u32,
}

/// A kernel that is beyond a limit of code generation.
#[derive(Debug, PartialEq, Eq)]
pub enum LowerError {
    /// More private or local memory than 32-bit sizes can say.
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

/// Lowers one kernel and all that it calls, one item at a time.
///
/// # Errors
/// See [`LowerError`].
pub fn lower(module: &Module, kernel: &Kernel) -> Result<Lowered, LowerError> {
    lower_both(module, kernel, None, None)
}

/// Lowers a kernel that runs vectors of items, and one item at a time where they do not fit.
///
/// # Errors
/// See [`LowerError`].
pub fn lower_widened(widened: &Widened, kernel: &Kernel) -> Result<Lowered, LowerError> {
    lower_both(&widened.module, kernel, Some(widened), None)
}

/// As [`lower`] or [`lower_widened`], with debug information that says where each instruction comes
/// from ([`places`]).
///
/// # Errors
/// See [`LowerError`].
pub fn lower_with_places(
    module: &Module,
    kernel: &Kernel,
    widened: Option<&Widened>,
    kind: Kind,
) -> Result<Lowered, LowerError> {
    let module = widened.map_or(module, |widened| &widened.module);
    lower_both(module, kernel, widened, Some(kind))
}

fn lower_both(
    module: &Module,
    kernel: &Kernel,
    widened: Option<&Widened>,
    places: Option<Kind>,
) -> Result<Lowered, LowerError> {
    let mut unit = Unit::new(module, kernel);
    unit.places = places.map(|kind| Places::new(kind, module));
    let stopping = inline::with_barrier(module, &kernel.facts.functions);
    let mut functions = String::new();
    let whole = widened.is_some_and(|widened| widened.subgroups);
    if widened.is_some() {
        unit.inlining = Inlining::Never;
    }
    let frame = if stopping.contains(&kernel.function) {
        let body = inline::inline(module, kernel.function, &stopping, inline::MAX_WEIGHT)
            .ok_or(LowerError::Size)?;
        Some(lower_resumable(&mut unit, kernel.function, &body, &mut functions)?)
    } else {
        let body = &module.functions[kernel.function];
        functions += &function::lower(&mut unit, kernel.function, body)?;
        None
    };
    unit.inlining = Inlining::Usual;
    for &id in &kernel.facts.functions {
        // Those with barriers have become part of the kernel.
        if id != kernel.function && !stopping.contains(&id) {
            functions += &function::lower(&mut unit, id, &module.functions[id])?;
        }
    }
    let mut per_item = frame.as_ref().map_or(0, |frame| frame.size);
    let one = Runner { function: kernel.function, frame, lanes: 1, rows: Rows::Whole };
    let mut vectors = Vec::new();
    if let Some(widened) = widened {
        unit.form = Form::Vector;
        let lanes = widened.lanes;
        let forms = [
            (widened.double, 2 * lanes, Rows::Whole),
            (Some(widened.function), lanes, widened.rows),
            (widened.uneven, lanes, Rows::Any),
        ];
        let forms = forms.into_iter().filter_map(|(id, lanes, rows)| Some((id?, lanes, rows)));
        for (function, lanes, rows) in forms {
            let body = &module.functions[function];
            let private: u64 = body.variables.iter().map(|variable| variable.size).sum();
            unit.spill_variables = private > STACK_BYTES;
            let waits = !inline::with_barrier(module, &[function]).is_empty();
            if waits || whole || one.frame.is_some() {
                unit.exact = kernel.required_group_size;
            }
            let frame = if waits {
                let frame = lower_resumable(&mut unit, function, body, &mut functions)?;
                // Of the least items for which a vector has a frame.
                let least = if rows == Rows::Any { widen::least_row(lanes) } else { lanes };
                per_item = per_item.max(frame.size.div_ceil(u64::from(least)));
                Some(frame)
            } else {
                unit.inlining = Inlining::First;
                functions += &function::lower(&mut unit, function, body)?;
                unit.inlining = Inlining::Usual;
                None
            };
            unit.exact = None;
            vectors.push(Runner { function, frame, lanes, rows });
        }
    }
    let entry = entry::lower(&mut unit, kernel, &one, &vectors, whole);
    let entry = match &mut unit.places {
        Some(places) => places.around(&entry, kernel),
        None => entry,
    };
    let text = unit.text(&entry, &functions);
    let size = |bytes: u64| u32::try_from(bytes).map_err(|_| LowerError::Memory);
    let symbols = unit.globals.iter().map(|(id, symbol)| (symbol.clone(), *id)).collect();
    Ok(Lowered {
        text,
        globals: symbols,
        scratch_bytes_fixed: size(unit.scratch_fixed())?,
        scratch_bytes_per_item: size(per_item)?,
        local_static_bytes: size(kernel.facts.local_static_bytes)?,
    })
}

/// Lowers a function that can be resumed; gives what a frame of it is.
fn lower_resumable(
    unit: &mut Unit<'_>,
    id: FunctionId,
    body: &Function,
    functions: &mut String,
) -> Result<function::Frame, LowerError> {
    let regions = regions::split(unit.module, body);
    let frame = function::Frame::new(unit, &regions);
    *functions += &function::lower_resumable(unit, &regions, &frame, id)?;
    Ok(frame)
}

/// What becomes of the calls of a function.
#[derive(Clone, Copy)]
enum Inlining {
    /// LLVM decides.
    Usual,
    /// They stay: of the item function beside a widened one, which runs what is left over or groups
    /// that are rare, LLVM would spend a third of its time on making fast loops.
    Never,
    /// They are inlined before all else: a widened function has one call, and LLVM would optimise it
    /// twice, by itself and in its place.
    First,
}

/// What the functions of one kernel share.
struct Unit<'m> {
    module: &'m Module,
    /// Declarations of intrinsics and library functions.
    declarations: BTreeSet<String>,
    /// Symbols of the globals that are named and live in the driver's memory.
    globals: BTreeMap<GlobalId, String>,
    /// Definitions of the constants that are copied into the code.
    embedded: BTreeMap<GlobalId, String>,
    /// Offsets in the group's local memory.
    locals: HashMap<GlobalId, u64>,
    /// Offsets in the item's copy of the private variables of module scope.
    privates: BTreeMap<GlobalId, u64>,
    /// Size of that copy.
    private_size: u64,
    /// The scratch memory that private variables of functions have taken so far.
    scratch: u64,
    /// Whether private variables of functions go to scratch memory.
    spill_variables: bool,
    /// What becomes of the calls of the function that is lowered.
    inlining: Inlining,
    /// The size of every group that runs what is lowered, where it is known.
    exact: Option<[u32; 3]>,
    /// Work-items of a full sub-group.
    subgroup_size: u32,
    /// Offset in the argument block of the address of the ring that `printf` writes to.
    printf_ring: Option<u64>,
    /// The functions that combine what items exchange, by name.
    helpers: BTreeMap<String, String>,
    /// Debug information, if it is asked for, and the form of the function that is lowered.
    places: Option<Places<'m>>,
    form: Form,
}

impl<'m> Unit<'m> {
    fn new(module: &'m Module, kernel: &Kernel) -> Self {
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
            subgroup_size: kernel.subgroup_size(),
            printf_ring: kernel.facts.printf_ring,
            helpers: BTreeMap::new(),
            places: None,
            form: Form::Item,
        }
    }

    /// LLVM's attributes of the function that is lowered.
    fn attributes(&self) -> &'static str {
        match self.inlining {
            Inlining::Usual => "#0",
            Inlining::Never => "noinline #0",
            Inlining::First => "alwaysinline #0",
        }
    }

    /// The size of a full sub-group is two to this power.
    fn subgroup_shift(&self) -> u32 {
        self.subgroup_size.trailing_zeros()
    }

    /// Room in the group's scratch memory for a private variable. One place serves all items and
    /// calls: items run one after the other, and functions do not recurse.
    fn take_scratch(&mut self, size: u64, align: u64) -> u64 {
        let offset = align_up(self.scratch, align);
        self.scratch = offset + size;
        offset
    }

    /// Bytes of scratch memory in front of the items' frames.
    fn scratch_fixed(&self) -> u64 {
        align_up(self.scratch, MAX_ALIGN)
    }

    /// The symbol of a global that has one: not of local and private ones, whose addresses only
    /// running code knows.
    fn symbol(&mut self, id: GlobalId) -> Option<String> {
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

    /// Copies a constant into the code if the copy cannot be told from the variable.
    fn embed(&mut self, id: GlobalId, symbol: &str) -> bool {
        let global = &self.module.globals[id];
        let plain = |id| self.module.globals_in([id]).is_empty();
        let eligible = global.space == AddressSpace::Constant
            && !global.exported
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
    fn declare(&mut self, result: &str, name: &str, params: &str) {
        self.declarations.insert(format!("declare {result} @{name}({params})\n"));
    }

    /// The whole module.
    fn text(&self, entry: &str, functions: &str) -> String {
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
        text += &self.places.as_ref().map(|places| places.text()).unwrap_or_default();
        text
    }
}

/// The LLVM function of an IR function.
fn function_symbol(id: FunctionId) -> String {
    format!("@{id}")
}

/// Rounds up to an alignment, of which no more than [`MAX_ALIGN`] is kept.
fn align_up(offset: u64, align: u64) -> u64 {
    offset.next_multiple_of(align.clamp(1, MAX_ALIGN))
}

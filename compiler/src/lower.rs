// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked IR → LLVM's assembly language, one item at a time or widened ([`crate::widen`]).
//!
//! The output is text that LLVM parses ([`crate::llvm`]), not calls of its builder: the generated code
//! can be read and compared directly, a mistake is a message instead of a crash, and this module needs
//! no LLVM.
//!
//! A kernel becomes one function for the device, [`ENTRY`], that runs a whole work-group: it loads
//! the arguments once and runs the *item function* for each work-item in turn. Without barriers
//! that is a loop over the items ([`entry`]); with barriers the item function can be resumed
//! ([`crate::regions`]), and the loop repeats until every item has ended. Operations of groups and
//! sub-groups are barriers too, at which items exchange values ([`group`]).
//!
//! A widened kernel has a second item function, which runs a vector of items. The entry function calls
//! it for whole vectors of a row and the other one for the remaining items. Some have a third one for
//! vectors of twice as many items, which is used first. With barriers or sub-groups the third one is
//! for groups with uneven rows, and all items of a group run in one form.
//!
//! Every function of a kernel takes the same five values first: the group's context, the item's three
//! local ids, and the item's copy of the private variables of module scope. All address spaces are
//! ranges of one flat space, so a generic pointer is just a pointer.

mod arith;
mod body;
mod checks;
mod composite;
mod context;
mod entry;
mod frame;
mod function;
mod group;
mod images;
mod joined;
mod kept;
mod library;
mod matrix;
mod memory;
mod order;
mod phases;
pub mod places;
mod printf;
mod promises;
mod saturate;
mod source;
mod sums;
mod types;
mod unit;
mod variables;
mod vector;
mod work_item;

use std::collections::{BTreeMap, HashMap};

use crate::ir::{Dominators, Function, FunctionId, GlobalId, Kernel, Loops, Module};
use crate::regions::{self, inline};
use crate::widen::{self, Rows, Widened};
pub use entry::ENTRY;
use entry::Runner;
use frame::Frame;
use places::{Form, Kind, Places};
pub use unit::LowerError;
use unit::{Inlining, STACK_BYTES, Unit};

/// A kernel in LLVM's assembly language, and the resources that its code needs.
#[derive(Debug)]
pub struct Lowered {
    /// The LLVM module.
    pub text: String,
    /// The module's globals that the text refers to, by symbol.
    pub globals: HashMap<String, GlobalId>,
    /// Scratch memory of a group in bytes, independent of its size.
    pub scratch_bytes_fixed: u32,
    /// Scratch memory of each item in bytes.
    pub scratch_bytes_per_item: u32,
    /// Local memory of the kernel's own variables in bytes.
    pub local_static_bytes: u32,
    /// What its code does.
    pub work: Work,
}

/// What the code of a kernel does, as far as LLVM's passes are chosen by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It runs one item at a time.
    Items,
    /// It runs vectors of items.
    Vectors,
    /// The same with loops over the components of vectors, which LLVM makes vector code of.
    Components,
    /// Vectors of items without loops and barriers: it has no loops but those over the items of a group.
    Straight,
}

/// Lowers one kernel and all functions that it calls, one item at a time.
///
/// # Errors
/// See [`LowerError`].
pub fn lower(module: &Module, kernel: &Kernel) -> Result<Lowered, LowerError> {
    lower_both(module, kernel, None, None, false)
}

/// Lowers a kernel that runs vectors of items, and one item at a time where vectors do not fit.
///
/// # Errors
/// See [`LowerError`].
pub fn lower_widened(widened: &Widened, kernel: &Kernel) -> Result<Lowered, LowerError> {
    lower_both(&widened.module, kernel, Some(widened), None, false)
}

/// Like [`lower`] or [`lower_widened`], with debug information that gives the origin of each
/// instruction ([`places`]).
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
    lower_both(module, kernel, widened, Some(kind), false)
}

/// Lowers a kernel for a debugger: one item at a time, with lines and variables.
///
/// # Errors
/// Those of [`lower`].
pub fn lower_with_variables(module: &Module, kernel: &Kernel) -> Result<Lowered, LowerError> {
    lower_both(module, kernel, None, Some(Kind::Lines), true)
}

fn lower_both(
    module: &Module,
    kernel: &Kernel,
    widened: Option<&Widened>,
    places: Option<Kind>,
    shows_variables: bool,
) -> Result<Lowered, LowerError> {
    let mut unit = Unit::new(module, kernel);
    unit.shows_variables = shows_variables;
    unit.joins = widened.is_some_and(|widened| widened.joins);
    unit.long_rows = widened.is_some_and(|widened| widened.long_rows);
    unit.sums = widened.and_then(|widened| widened.sums);
    unit.promised =
        widened.map(|widened| promises::hold(&widened.promises, kernel)).unwrap_or_default();
    unit.places = places.map(|kind| Places::new(kind, module));
    if let Some(places) = unit.places.as_mut().filter(|_| shows_variables) {
        places.variables = Some(BTreeMap::new());
    }
    let stopping = inline::with_barrier(module, &kernel.facts.functions);
    let mut functions = String::new();
    let whole = widened.is_some_and(|widened| widened.subgroups || widened.flat);
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
        // Functions with barriers have become part of the kernel.
        if id != kernel.function && !stopping.contains(&id) {
            functions += &function::lower(&mut unit, id, &module.functions[id])?;
        }
    }
    let mut per_item = frame.as_ref().map_or(0, |frame| frame.size);
    let ids = widened.map_or(0, |widened| widened.ids);
    let one = Runner {
        function: kernel.function,
        frame,
        lanes: 1,
        ids,
        rows: Rows::Whole,
        least: 1,
        axis: 0,
    };
    let mut vectors = Vec::new();
    let flat = widened.is_some_and(|widened| widened.flat);
    let exact = kernel.required_group_size.map(|[x, y, z]| match flat {
        true => [x * y * z, 1, 1],
        false => [x, y, z],
    });
    if let Some(widened) = widened {
        unit.form = Form::Vector;
        let lanes = widened.lanes;
        let (axis, turned) = (widened.axis, widened.turned);
        let (other, other_ids) = turned.map_or((0, 0), |it| (it.axis, it.ids));
        let short = turned.and_then(|it| it.short);
        let forms = [
            (widened.double, 2 * lanes, Rows::Whole, axis, ids),
            (Some(widened.function), lanes, widened.rows, axis, ids),
            (widened.uneven, lanes, Rows::Any, axis, ids),
            (turned.and_then(|it| it.function), lanes, Rows::Whole, other, other_ids),
            (short.map(|it| it.0), lanes, Rows::Any, other, other_ids),
        ];
        for (function, lanes, rows, axis, ids) in forms {
            let Some(function) = function else { continue };
            unit.axis = axis;
            let body = &module.functions[function];
            let private: u64 = body.variables.iter().map(|variable| variable.size).sum();
            unit.spill_variables = private > STACK_BYTES;
            let waits = !inline::with_barrier(module, &[function]).is_empty();
            if waits || whole || one.frame.is_some() {
                unit.exact = exact;
            }
            let least = match (rows, short) {
                (Rows::Whole, _) => lanes,
                (Rows::Any, Some((_, least))) => least,
                (Rows::Any, None) => widen::least_row(lanes),
            };
            let frame = if waits {
                let frame = lower_resumable(&mut unit, function, body, &mut functions)?;
                // The smallest number of items for which a vector has a frame.
                per_item = per_item.max(frame.size.div_ceil(u64::from(least)));
                Some(frame)
            } else {
                unit.inlining = Inlining::First;
                functions += &function::lower(&mut unit, function, body)?;
                unit.inlining = Inlining::Usual;
                None
            };
            (unit.exact, unit.axis) = (None, 0);
            vectors.push(Runner { function, frame, lanes, ids, rows, least, axis });
        }
        for &(function, _) in &widened.tiles {
            unit.inlining = Inlining::First;
            functions += &function::lower(&mut unit, function, &module.functions[function])?;
            unit.inlining = Inlining::Usual;
        }
    }
    let tiles = widened.map_or(&[][..], |widened| &widened.tiles);
    let runners = vectors.iter().chain([&one]);
    let waits = runners.clone().any(|runner| runner.frame.is_some());
    let mut functions_of =
        runners.map(|runner| runner.function).chain(kernel.facts.functions.iter().copied());
    let work = match () {
        () if widened.is_none() => Work::Items,
        () if unit.has_component_loops => Work::Components,
        () if waits || functions_of.any(|id| has_loop(&module.functions[id])) => Work::Vectors,
        () => Work::Straight,
    };
    let entry = entry::lower(&mut unit, kernel, &one, &vectors, tiles, whole, exact);
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
        work,
    })
}

/// Whether a function has a loop.
fn has_loop(function: &Function) -> bool {
    let predecessors = function.predecessors();
    !Loops::of(&Dominators::of(function, &predecessors), &predecessors).all.is_empty()
}

/// Lowers a function that can be resumed, and returns the layout of its frame.
fn lower_resumable(
    unit: &mut Unit<'_>,
    id: FunctionId,
    body: &Function,
    functions: &mut String,
) -> Result<Frame, LowerError> {
    let regions = regions::split(unit.module, body);
    let frame = Frame::new(unit, &regions);
    *functions += &function::lower_resumable(unit, &regions, &frame, id)?;
    Ok(frame)
}

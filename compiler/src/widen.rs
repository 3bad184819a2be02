// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes one function run a whole vector of work-items: widening.
//!
//! The items of a vector follow one another in the first dimension. Where all have the same value
//! it stays a scalar, where they differ it becomes a vector with a component for each item
//! ([`shape`]). Where they part at a branch both ways are run, one after the other, for the items
//! of a *mask* each ([`flow`]).
//!
//! ```text
//!   if (x[i] > 0)            mask = x > 0               items   0 1 2 3 4 5 6 7
//!     y = f(i);              y = f(i)         if mask           * . * * . . . *
//!   else                     others = !mask
//!     y = g(i);              y = g(i)         if others         . * . . * * * .
//!   z[i] = y;                z[i..] = y       for all           * * * * * * * *
//! ```
//!
//! The result is IR again, with vectors and a few operations that only it has, so all that follows
//! is as for one item: it can be cut at barriers, and an item's frame is a vector's.
//!
//! Where items wait for each other, a row that is not made of whole vectors ends with one that has
//! fewer items: the function for such rows ([`Rows`]) begins with the mask of those that there are.
//!
//! Widening is never needed: what it refuses is built with one item at a time, and so are, where no
//! item waits, those of a row that are left over behind the last whole vector.

mod blocks;
mod build;
mod divide;
mod emit;
mod flow;
mod group;
mod guard;
mod known;
mod layout;
mod memory;
mod names;
mod ops;
mod refusal;
mod runs;
mod shape;
mod text;
mod turns;

use crate::ir::arena::Id;
use crate::ir::{Function, FunctionId, Kernel, Loc, Module, Type};
use crate::optimise;
use crate::regions::stop_scope;
use build::Builder;
use emit::Widener;
use flow::Flow;
pub use layout::lay_out;
pub use refusal::Refusal;
use shape::Shapes;
pub use shape::{Rows, Shape};

/// The most instructions of a kernel, with all that it calls, that are widened.
const MAX_INSTRUCTIONS: usize = 1 << 14;
/// The most that they weigh in all, so that what calls grow beyond any measure is not copied first.
pub const MAX_WEIGHT: usize = 4 * MAX_INSTRUCTIONS;
/// The most blocks.
const MAX_BLOCKS: usize = 1 << 11;
/// The most instructions of a kernel that is widened twice: each form takes its time to build, and
/// what is large has enough to do while a result is awaited.
const MAX_DOUBLE_INSTRUCTIONS: usize = 128;
/// The most values that a loop of such a kernel hands on. With more it has several chains to work on, and
/// twice as many do not fit the registers: the eight largest of 64 took 1.5 times as long.
const MAX_DOUBLE_VALUES: u32 = 6;
/// The most private memory of an item in bytes.
const MAX_PRIVATE_BYTES: u64 = 16 << 10;
/// The most where vectors may have few items and frames for all ([`least_row`]): such frames still
/// leave room for the largest groups.
const MAX_UNEVEN_PRIVATE_BYTES: u64 = MAX_PRIVATE_BYTES / 2;

/// A kernel that runs a vector of items.
#[derive(Debug)]
pub struct Widened {
    /// The kernel's part of its module, with the widened function.
    pub module: Module,
    /// The widened function. It takes what the kernel takes; asked for its place, it gives the
    /// first item's.
    pub function: FunctionId,
    /// The rows that it runs: whole ones, unless the kernel requires others.
    pub rows: Rows,
    /// A function of the same for groups with uneven rows, if it needs to know of them.
    pub uneven: Option<FunctionId>,
    /// Items of a vector.
    pub lanes: u32,
    /// A function of the same for twice as many items, where that is good ([`widen_twice`]).
    pub double: Option<FunctionId>,
    /// Whether vectors are sub-groups: those of uneven rows are only while the group is one row.
    pub subgroups: bool,
    /// Remarks for people on what slows the code down, with their places.
    pub remarks: Vec<(Loc, String)>,
    /// The kernel with all calls inlined, after the passes, as it was widened.
    pub source: Function,
    /// The shapes of its values, and its blocks at whose ends items part, for people.
    pub facts: Facts,
}

/// The facts that the analysis found about the kernel that was widened.
#[derive(Debug)]
pub struct Facts {
    shapes: Vec<Shape>,
    parting: Vec<bool>,
    masks: Vec<bool>,
    masked_loops: Vec<bool>,
}

/// How many items of a kernel make a vector: as many as a sub-group if it has to do with those, so
/// that one is the other. Else rows of a required size are made of whole vectors if they can be.
/// `TALLY_LANES` says otherwise; 1 is one item at a time.
pub fn lanes(kernel: &Kernel) -> u32 {
    let usual = kernel.subgroup_size();
    let fits = match kernel.required_group_size {
        Some([row, ..]) if !kernel.facts.uses_subgroups => {
            let fitting = [usual, 16, 8].into_iter().find(|lanes| row % lanes == 0);
            fitting.or((row < 8).then_some(8))
        }
        _ => None,
    };
    asked_lanes().or(fits).unwrap_or(usual)
}

/// The number that `TALLY_LANES` asks for.
fn asked_lanes() -> Option<u32> {
    let asked = std::env::var("TALLY_LANES").ok().and_then(|lanes| lanes.parse().ok());
    asked.filter(|lanes| [1, 8, 16, 32].contains(lanes))
}

/// Widens a kernel.
///
/// # Errors
/// A [`Refusal`] if it holds something that has no widened form.
pub fn widen(module: &Module, kernel: &Kernel, lanes: u32) -> Result<Widened, Refusal> {
    widen_for(module, kernel, lanes, false)
}

/// Widens a kernel; if the loops of its items wait for their own results, also to vectors of twice
/// as many items. Where such a vector is two of the processor's, one works while the other waits.
///
/// # Errors
/// The same as those of [`widen`].
pub fn widen_twice(module: &Module, kernel: &Kernel, lanes: u32) -> Result<Widened, Refusal> {
    widen_for(module, kernel, lanes, asked_lanes().is_none())
}

fn widen_for(
    module: &Module,
    kernel: &Kernel,
    lanes: u32,
    twice: bool,
) -> Result<Widened, Refusal> {
    if lanes < 2 {
        return Err(Refusal::new("one item at a time is asked for"));
    }
    let too_many = || Refusal::new("too many instructions");
    let (mut module, mut source) =
        optimise::inlined(module, kernel, MAX_WEIGHT).ok_or_else(too_many)?;
    for pass in optimise::passes() {
        pass.run(&mut module, &mut source);
    }
    let subgroups = check(&module, kernel, &source, lanes)?;
    let steps = lay_out(&mut module, &mut source, lanes);
    let module = &module;
    let mut insts = source.blocks.iter().flat_map(|(_, block)| &block.insts);
    let together = subgroups || insts.any(|inst| stop_scope(&inst.op).is_some());
    drop(insts);
    let private: u64 = source.variables.iter().map(|variable| variable.size).sum();
    let may_be_uneven = together && private <= MAX_UNEVEN_PRIVATE_BYTES;
    // If items do not communicate, those that are left over run one at a time.
    let rows = match kernel.required_group_size {
        Some([row, rows, planes]) if together && !row.is_multiple_of(lanes) => {
            let one_row = (rows, planes) == (1, 1);
            if !may_be_uneven || row < least_row(lanes) || (subgroups && !one_row) {
                return Err(Refusal::new("rows of a group that fill no vectors"));
            }
            Rows::Any
        }
        _ => Rows::Whole,
    };
    let way = Way::new(module, &source, rows, &steps)?;
    let write = |module: Module, way: &Way, lanes: u32, rows: Rows| {
        let uneven = if rows == Rows::Any { "up to " } else { "" };
        let function = Function {
            name: format!("{} for {uneven}{lanes} items", source.name),
            params: Vec::new(),
            return_type: source.return_type,
            values: Default::default(),
            variables: Vec::new(),
            blocks: Default::default(),
            exported: false,
            loc: source.loc,
        };
        let out = Builder::new(module, function, lanes);
        let mut widener = Widener::new(&source, &way.flow, &way.shapes, out, rows);
        widener.run()?;
        let remarks = std::mem::take(&mut widener.remarks);
        let (mut module, function) = widener.out.finish()?;
        let function = module.functions.push(function);
        Ok::<_, Refusal>((module, function, remarks))
    };
    let (mut module, function, remarks) = write(module.clone(), &way, lanes, rows)?;
    // The one function is there in any case.
    let (mut double, mut uneven) = (None, None);
    let room = kernel.required_group_size.is_none_or(|[row, ..]| row >= 2 * lanes);
    if twice
        && room
        && !together
        && waits_for_itself(&module, &source, &way)
        && let Ok((both, function, _)) = write(module.clone(), &way, 2 * lanes, rows)
    {
        (module, double) = (both, Some(function));
    }
    if may_be_uneven && kernel.required_group_size.is_none() {
        let way = Way::new(&module, &source, Rows::Any, &steps)?;
        if let Ok((both, function, _)) = write(module.clone(), &way, lanes, Rows::Any) {
            (module, uneven) = (both, Some(function));
        }
    }
    let Way { flow, shapes, parting } = way;
    let facts = Facts {
        shapes: source.values.ids().map(|value| shapes.of(value)).collect(),
        masks: source.blocks.ids().map(|id| flow.leader[id.index()] == id).collect(),
        masked_loops: source.blocks.ids().map(|id| flow.back_edges_are_masked(id)).collect(),
        parting,
    };
    Ok(Widened { module, function, rows, uneven, lanes, double, subgroups, remarks, source, facts })
}

/// The way of a vector through a kernel, and what is known of its values.
struct Way {
    flow: Flow,
    shapes: Shapes,
    /// By block, whether items part at its end.
    parting: Vec<bool>,
}

impl Way {
    fn new(module: &Module, source: &Function, rows: Rows, steps: &[i64]) -> Result<Self, Refusal> {
        let mut flow = Flow::new(source)?;
        let mut parting = vec![false; source.blocks.len()];
        loop {
            flow.update(source, &parting);
            let shapes = Shapes::new(module, source, &flow, rows, steps);
            let mut changed = false;
            for id in source.blocks.ids() {
                let parts = shapes.parts(source, &flow, id);
                changed |= parts && !parting[id.index()];
                parting[id.index()] |= parts;
            }
            if !changed {
                return Ok(Self { flow, shapes, parting });
            }
        }
    }
}

/// The shortest uneven row that goes in vectors. Each of those has a frame of its whole size in the
/// group's scratch memory, of which the device has so much for an item.
pub fn least_row(lanes: u32) -> u32 {
    lanes / 4
}

/// Whether a small kernel has a loop in which each item's next value is computed from its last one,
/// and nothing else that counts: no private memory, nothing of 64 bits on that way.
fn waits_for_itself(module: &Module, source: &Function, way: &Way) -> bool {
    let Way { flow, shapes, .. } = way;
    let size: usize = source.blocks.iter().map(|(_, block)| block.insts.len()).sum();
    if size > MAX_DOUBLE_INSTRUCTIONS || !source.variables.is_empty() {
        return false;
    }
    let mut found = 0;
    for (id, block) in source.blocks.iter() {
        let around = flow.around(id).any(|index| flow.loops[index].header == id);
        for result in block.phis().filter_map(|phi| phi.result).filter(|_| around) {
            let ty = source.values[result].ty;
            if shapes.of(result) == Shape::Varying {
                let bits = module.types.scalar_bits(ty);
                if bits > 32 || module.types.lanes(ty) > 1 {
                    return false;
                }
                found += u32::from(matches!(module.types[ty], Type::Int(_) | Type::Float(_)));
            }
        }
    }
    (1..=MAX_DOUBLE_VALUES).contains(&found)
}

/// Refuses what cannot be widened at first sight. Whether the kernel has to do with sub-groups.
fn check(module: &Module, kernel: &Kernel, source: &Function, lanes: u32) -> Result<bool, Refusal> {
    let size: usize = source.blocks.iter().map(|(_, block)| block.insts.len()).sum();
    if size > MAX_INSTRUCTIONS || source.blocks.len() > MAX_BLOCKS {
        return Err(Refusal::new("too many instructions"));
    }
    if source.variables.iter().map(|variable| variable.size).sum::<u64>() > MAX_PRIVATE_BYTES {
        return Err(Refusal::new("too much private memory"));
    }
    let private = |id: &_| module.globals[*id].space == crate::ir::AddressSpace::Private;
    if kernel.facts.globals.iter().any(private) {
        return Err(Refusal::new("private variables of module scope"));
    }
    let mut insts = source.blocks.iter().flat_map(|(_, block)| &block.insts);
    let subgroups = insts.any(|inst| inst.op.is_of_subgroup());
    if subgroups && lanes != kernel.subgroup_size() {
        return Err(Refusal::new("sub-groups of another size than the vectors"));
    }
    Ok(subgroups)
}

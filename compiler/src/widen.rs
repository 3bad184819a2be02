// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes one function run a whole vector of work-items: widening.
//!
//! The items of a vector are adjacent in the first dimension. A value that is the same for all stays a
//! scalar; a value that differs becomes a vector with a component for each item ([`shape`]). If the
//! items diverge at a branch, both sides are run, one after the other, each for the items of a *mask*
//! ([`flow`]).
//!
//! ```text
//!   if (x[i] > 0)            mask = x > 0               items   0 1 2 3 4 5 6 7
//!     y = f(i);              y = f(i)         if mask           * . * * . . . *
//!   else                     others = !mask
//!     y = g(i);              y = g(i)         if others         . * . . * * * .
//!   z[i] = y;                z[i..] = y       for all           * * * * * * * *
//! ```
//!
//! The result is IR again, with vectors and a few operations of its own, so all later stages are the
//! same as for one item: it can be cut at barriers, and a vector's frame takes the place of an item's.
//!
//! If items wait for each other, a row that does not consist of whole vectors ends with a vector of
//! fewer items: the function for such rows ([`Rows`]) begins with the mask of the items that exist.
//!
//! Widening is never required: a kernel that it refuses is built in scalar form. If no item waits, the
//! remaining items of a row behind the last whole vector run in scalar form too, unless rows are so short
//! that these are most of the work: then such a function is worth its time to build ([`Uneven::form`]).

mod ahead;
mod atomics;
mod axis;
mod blocks;
mod bounds;
mod build;
mod bytes;
mod close;
mod compares;
mod costs;
mod crowds;
mod divide;
mod edges;
mod emit;
mod far;
mod fixed;
mod flat;
mod flow;
mod group;
mod guard;
mod images;
mod inside;
mod interleaved;
mod joins;
mod known;
mod late;
mod latency;
mod layout;
mod lie;
mod locks;
mod lookups;
mod matrix;
mod memory;
mod names;
mod ops;
mod parts;
mod picks;
mod prefetch;
mod promises;
mod queries;
mod ranges;
mod refusal;
mod retries;
mod runs;
mod searches;
mod shape;
mod steps;
mod strides;
mod strips;
mod sums;
mod tables;
mod text;
mod tiles;
mod transpose;
mod turns;
mod way;
mod whole;

use crate::ir::arena::Id;
use crate::ir::{Function, FunctionId, Inst, Kernel, Loc, Module, Op, ValueId};
use crate::optimise::{self, Pass};
use crate::regions::stop_scope;
pub use axis::physical;
use build::Builder;
pub(crate) use costs::FORWARDED;
use emit::Widener;
use inside::Inside;
pub use layout::lay_out;
pub use promises::{Holds, Number, Promises};
pub use refusal::Refusal;
pub use shape::{Rows, Shape};
use tally_compiler_protocol::{Form, Uneven};
use tiles::Tile;
use way::Way;

/// The maximum number of instructions of a kernel, with all functions that it calls, that is widened.
const MAX_INSTRUCTIONS: usize = 1 << 16;
/// The maximum weight of these, so that a kernel that inlining would make huge is not copied first.
pub const MAX_WEIGHT: usize = 2 * MAX_INSTRUCTIONS;
/// The maximum number of blocks.
const MAX_BLOCKS: usize = 1 << 13;
/// The maximum private memory of an item in bytes.
const MAX_PRIVATE_BYTES: u64 = 16 << 10;
/// The maximum if vectors may have few items but frames for all ([`least_row`]): such frames still
/// leave room for the largest groups.
const MAX_UNEVEN_PRIVATE_BYTES: u64 = MAX_PRIVATE_BYTES / 2;

/// A kernel that runs a vector of items.
#[derive(Debug)]
pub struct Widened {
    /// The kernel's part of its module, with the widened function.
    pub module: Module,
    /// The widened function. It has the kernel's parameters; queries for its place return the first
    /// item's.
    pub function: FunctionId,
    /// The rows that it runs: whole ones, unless the kernel requires others.
    pub rows: Rows,
    /// A widened function for groups with uneven rows, if these need one of their own.
    pub uneven: Option<FunctionId>,
    /// Whether the widened function runs a group as one row ([`flat`]).
    pub flat: bool,
    /// The groups for which such a function was left out ([`widen_in`]).
    pub left_out: Option<Uneven>,
    /// The number of items of a vector.
    pub lanes: u32,
    /// The global ids of the first dimension that it runs are below this.
    pub ids: u32,
    /// What has to hold in a group for any of the functions to run it.
    pub promises: Promises,
    /// A widened function for twice as many items, if that is faster ([`widen_twice`]).
    pub double: Option<FunctionId>,
    /// Widened functions that run several rows of vectors at once, and how many, if accesses are better so ([`tiles`]):
    /// the most first.
    pub tiles: Vec<(FunctionId, u32)>,
    /// The dimension in which the items of these functions' vectors follow one another.
    pub axis: u8,
    /// A widened function whose vectors lie in another dimension, if accesses are better there.
    pub turned: Option<Turned>,
    /// Whether items access memory side by side in the dimension in which groups are best long
    /// ([`axis::is_side_by_side`]).
    pub side_by_side: bool,
    /// Whether groups may join their rows ([`joins`]).
    pub joins: bool,
    /// Whether groups of several rows are best in rows as long as can be, if they join.
    pub long_rows: bool,
    /// The size in bytes of the integers of which joined groups keep sums, if they do ([`sums`]).
    pub sums: Option<u64>,
    /// Whether vectors are sub-groups: those of uneven rows are only if the group is one row.
    pub subgroups: bool,
    /// Remarks for readers on what slows the code down, with their places.
    pub remarks: Vec<(Loc, String)>,
    /// The kernel with all calls inlined, after the passes, as it was widened.
    pub source: Function,
    /// The shapes of its values, and the blocks at whose ends items diverge, for readers.
    pub facts: Facts,
}

/// A widened function whose vectors lie in another dimension than the first one ([`axis`]).
#[derive(Clone, Copy, Debug)]
pub struct Turned {
    /// The function, unless the kernel requires shorter rows.
    pub function: Option<FunctionId>,
    /// A function for rows that fill no vector, and the shortest one that it runs, where that is worth it.
    pub short: Option<(FunctionId, u32)>,
    /// The dimension.
    pub axis: u8,
    /// The global ids of that dimension that it runs are below this.
    pub ids: u32,
}

/// The facts that the analysis found about the kernel that was widened.
#[derive(Debug)]
pub struct Facts {
    shapes: Vec<Shape>,
    parting: Vec<bool>,
    masks: Vec<bool>,
    masked_loops: Vec<bool>,
}

/// The number of items of a kernel's vectors: that of a sub-group if the kernel uses sub-groups, so
/// that vectors are sub-groups. Else rows of a required size consist of whole vectors, if possible.
/// `TALLY_LANES` overrides this; 1 is scalar. [`widen`] makes it 8 in place of 16 where rows crowd the cache ([`crowds`]).
pub fn lanes(kernel: &Kernel) -> u32 {
    let usual = kernel.subgroup_size();
    let fits = match kernel.required_group_size {
        Some([row, ..]) if !kernel.facts.uses_subgroups && flat_size(kernel, usual).is_none() => {
            let fitting = [usual, 16, 8].into_iter().find(|lanes| row % lanes == 0);
            fitting.or((row < 8).then_some(8))
        }
        _ => None,
    };
    asked_lanes().or(fits).unwrap_or(usual)
}

/// The groups for which a kernel may have other forms than the usual one.
fn others(kernel: &Kernel, lanes: u32) -> Uneven {
    let subgroups = kernel.facts.uses_subgroups;
    let together = subgroups || kernel.facts.uses_barrier;
    Uneven { lanes, least_row: least_row(lanes), one_row: subgroups, together, any: true }
}

/// As [`others`], of a kernel that has no usual form for this reason. It has none for uneven rows either.
pub fn others_than_refused(kernel: &Kernel, lanes: u32, why: &Refusal) -> Option<Uneven> {
    let others = Uneven { any: false, ..others(kernel, lanes) };
    let may_have = why.is_of_rows() && kernel.required_group_size.is_none();
    (may_have && kernel.facts.watch.is_none()).then_some(others)
}

/// The group size that a kernel requires, if its groups run as one row. The items' numbers are not those that checks
/// would report then.
fn flat_size(kernel: &Kernel, lanes: u32) -> Option<[u32; 3]> {
    let size = kernel.required_group_size.filter(|_| kernel.facts.watch.is_none())?;
    let items = size.iter().map(|&n| u64::from(n)).product::<u64>();
    let is_flat = matches!(others(kernel, lanes).form(size), Form::Sized(_));
    (is_flat && items <= flat::MOST_ITEMS).then_some(size)
}

/// The number in `TALLY_LANES`.
fn asked_lanes() -> Option<u32> {
    let asked = std::env::var("TALLY_LANES").ok().and_then(|lanes| lanes.parse().ok());
    asked.filter(|lanes| [1, 8, 16, 32].contains(lanes))
}

/// Widens a kernel.
///
/// # Errors
/// A [`Refusal`] if it contains something that has no widened form.
pub fn widen(module: &Module, kernel: &Kernel, lanes: u32) -> Result<Widened, Refusal> {
    widen_for(module, kernel, lanes, false, None)
}

/// Widens a kernel; if the loops of its items depend on their own results, also to vectors of twice as
/// many items. If such a vector takes two of the processor's, one is computed during the latency of the
/// other.
///
/// # Errors
/// The same as those of [`widen`].
pub fn widen_twice(module: &Module, kernel: &Kernel, lanes: u32) -> Result<Widened, Refusal> {
    widen_for(module, kernel, lanes, asked_lanes().is_none(), None)
}

/// As [`widen`], or [`widen_twice`] if `twice`, but where a kernel has one function for whole rows and
/// another for uneven ones, only that of one form.
///
/// # Errors
/// The same as those of [`widen`], and if the kernel has no function for uneven rows.
pub fn widen_in(
    module: &Module,
    kernel: &Kernel,
    lanes: u32,
    twice: bool,
    form: Form,
) -> Result<Widened, Refusal> {
    widen_for(module, kernel, lanes, twice && asked_lanes().is_none(), Some(form))
}

fn widen_for(
    module: &Module,
    kernel: &Kernel,
    lanes: u32,
    twice: bool,
    form: Option<Form>,
) -> Result<Widened, Refusal> {
    if lanes < 2 {
        return Err(Refusal::new("one item at a time is asked for"));
    }
    let too_many = || Refusal::new("too many instructions");
    let original = module;
    let (mut module, mut source) =
        optimise::inlined(module, kernel, MAX_WEIGHT).ok_or_else(too_many)?;
    let flat = flat_size(kernel, lanes);
    if let Some(size) = flat {
        flat::run(&mut module, &mut source, size);
    }
    for pass in optimise::passes() {
        pass.run(&mut module, &mut source);
    }
    let subgroups = check(&module, kernel, &source, lanes)?;
    if ranges::run(&mut module, &mut source) {
        // Ways that part compute the same now.
        Pass::Simplify.run(&mut module, &mut source);
        Pass::Unused.run(&mut module, &mut source);
    }
    let steps = lay_out(&mut module, &mut source, lanes);
    let mut insts = source.blocks.iter().flat_map(|(_, block)| &block.insts);
    let together = subgroups || insts.any(|inst| stop_scope(&inst.op).is_some());
    drop(insts);
    let private: u64 = source.variables.iter().map(|variable| variable.size).sum();
    let may_be_uneven = private <= MAX_UNEVEN_PRIVATE_BYTES;
    // Two functions, for rows that are whole and for those that are not.
    let has_both = may_be_uneven && kernel.required_group_size.is_none();
    let gains = Uneven { one_row: subgroups, together, ..others(kernel, lanes) };
    let rows = match kernel.required_group_size {
        Some([x, y, z]) if flat.is_some() => match (x * y * z).is_multiple_of(lanes) {
            true => Rows::Whole,
            false if may_be_uneven => Rows::Any,
            false => return Err(Refusal::new("a group that fills no vectors")),
        },
        Some(group @ [row, ..]) if !row.is_multiple_of(lanes) => {
            match may_be_uneven && gains.form(group) == Form::Uneven {
                true => Rows::Any,
                // If items do not communicate, the remaining ones run one at a time.
                false if !together => Rows::Whole,
                false => return Err(Refusal::new("rows of a group that fill no vectors")),
            }
        }
        _ if form == Some(Form::Uneven) => match has_both {
            true => Rows::Any,
            false => return Err(Refusal::new("no function of its own for uneven rows")),
        },
        _ => Rows::Whole,
    };
    let mut way = Way::new(&module, &source, rows, &steps)?;
    if !subgroups && locks::may_wait(&module, &source, &way) {
        return Err(Refusal::new("items that wait for each other"));
    }
    if !subgroups && asked_lanes().is_none() && retries::prevail(&module, &source, &way) {
        return Err(Refusal::new("items that retry, one by one, to change memory"));
    }
    if !together && asked_lanes().is_none() && strips::counts::prevail(&module, &source, &way) {
        return Err(Refusal::new("items that count in private arrays of their own"));
    }
    let inside = match together || flat.is_some() || rows != Rows::Whole {
        true => None,
        false => Inside::of(&mut module, &source, &way, &steps),
    };
    let ragged = |module: &mut Module, source: &Function, way: &Way| {
        strips::ragged::prevail(module, source, way) && !edges::evens(module, source, way, &steps)
    };
    if !together
        && asked_lanes().is_none()
        && ragged(&mut module, &source, &way)
        && inside.as_ref().is_none_or(|it| ragged(&mut module, &it.function, &it.way))
    {
        return Err(Refusal::new("items that walk along rows of different lengths"));
    }
    let part = flat.map_or(u32::MAX, flat::row);
    let other = match together || flat.is_some() || kernel.facts.watch.is_some() {
        true => None,
        false => axis::other(&module, &source, &way, &steps)
            .filter(|_| !edges::evens(&mut module, &source, &way, &steps)),
    };
    // Rows that crowd the cache.
    let may_have_fewer = lanes == 16
        && !together
        && flat.is_none()
        && other.is_none()
        && asked_lanes().is_none()
        && kernel.facts.watch.is_none();
    if may_have_fewer && crowds::crowd(&module, &source, &way, lanes) {
        return widen_for(original, kernel, lanes / 2, false, form);
    }
    let has_own_rows = kernel.required_group_size.is_some() && rows == Rows::Any;
    let may_join =
        !together && flat.is_none() && !has_own_rows && joins::joins(kernel, &source, &way);
    let sums = if may_join { sums::size(&module, &source, &way) } else { None };
    // Sums save more than another dimension does: a histogram of the first 8 numbers in rows of 128 takes a fifth.
    let other = other.filter(|_| sums.is_none());
    let joins = may_join && other.is_none();
    let side_by_side = !together
        && other.as_ref().map_or_else(
            || axis::is_side_by_side(&module, &source, &way),
            |other| other.side_by_side,
        );
    let has_room = |axis: u8, least: u32, below: u32| {
        kernel
            .required_group_size
            .is_none_or(|size| (least..below).contains(&size[usize::from(axis)]))
    };
    let (axis, other) = match other {
        // The last vector of a row has a mask of its own, so such rows may as well lie in that dimension.
        Some(other) if rows == Rows::Any && has_room(other.axis, least_row(lanes), u32::MAX) => {
            source = other.function;
            way = Way::new(&module, &source, rows, &steps)?;
            (other.axis, None)
        }
        _ if rows == Rows::Any => (0, None),
        other => (0, other),
    };
    let may_have_tiles =
        !together && flat.is_none() && axis == 0 && other.is_none() && kernel.facts.watch.is_none();
    let heights = tiles::HEIGHTS.into_iter().filter(|&height| has_room(1, height, u32::MAX));
    let heights = heights.filter(|_| may_have_tiles);
    let tiles: Vec<Tile> = heights
        .filter_map(|height| tiles::tile(&mut module, &source, &way, &steps, height))
        .collect();
    let long_rows = joins && side_by_side && tiles.is_empty() && joins::are_long(&source, &way);
    // Copies of code are no more to wait for.
    let long = prefetch::is_long(&source);
    let doubles = latency::waits_for_itself(&module, &source, &way)
        || bytes::is_of_bytes(&module, &source, &way);
    let crowds = crowds::crowd(&module, &source, &way, 2 * lanes);
    if rows == Rows::Whole {
        way = without_masks(&mut module, &mut source, way, &steps, together, inside)?;
    }
    if part < lanes {
        way.shapes.follow_phis(&source, &way.flow);
    }
    let far = far::find(&module, &source, &way);
    way.shapes.keep_apart(&far);
    let exchanges = |inst: &Inst| matches!(inst.op, Op::Collect(..));
    let mut insts = source.blocks.iter().flat_map(|(_, block)| &block.insts);
    let may_part = kernel.facts.watch.is_none() && !subgroups && !insts.any(exchanges);
    drop(insts);
    let write = |module: Module, source: &Function, way: &Way, lanes: u32, rows: Rows| {
        let uneven = if rows == Rows::Any { "up to " } else { "" };
        let function = Function {
            name: format!("{} for {uneven}{lanes} items", source.name),
            params: Vec::new(),
            return_type: source.return_type,
            values: Default::default(),
            variables: Vec::new(),
            shown: Vec::new(),
            blocks: Default::default(),
            exported: false,
            loc: source.loc,
        };
        let out = Builder::new(module, function, lanes);
        let mut widener = Widener::new(source, &way.flow, &way.shapes, out, rows, long);
        widener.long_turns = prefetch::long_turns(source, &way.flow);
        widener.may_part = may_part;
        widener.sums = sums;
        widener.part = part.min(lanes);
        widener.run()?;
        let remarks = std::mem::take(&mut widener.remarks);
        let (mut module, mut function) = widener.out.finish()?;
        transpose::run(&mut module, &mut function);
        lookups::run(&mut module, &mut function);
        if kernel.facts.watch.is_none() {
            ahead::run(&mut module, &mut function);
        }
        let function = module.functions.push(function);
        Ok::<_, Refusal>((module, function, remarks))
    };
    // In a group that is one row, the first local id is an item's number in it.
    let promised = |way: &Way| match flat {
        Some(_) => way.shapes.promises().of_flat(),
        None => way.shapes.promises().clone(),
    };
    let mut promises = Promises::default();
    promises.join(&promised(&way), |d| physical(axis, d));
    let (mut module, function, remarks) = write(module, &source, &way, lanes, rows)?;
    // The first function exists in any case.
    let (mut double, mut uneven) = (None, None);
    let room = kernel
        .required_group_size
        .is_none_or(|[row, ..]| row >= 2 * lanes || (joins && row == lanes));
    // Tiles have as many items in a row as the usual vectors, and gain more.
    if twice
        && room
        && tiles.is_empty()
        && !together
        && rows == Rows::Whole
        && doubles
        && !crowds
        && let Ok((both, function, _)) = write(module.clone(), &source, &way, 2 * lanes, rows)
    {
        (module, double) = (both, Some(function));
    }
    if has_both && together && form.is_none() {
        let way = Way::new(&module, &source, Rows::Any, &steps)?;
        if let Ok((both, function, _)) = write(module.clone(), &source, &way, lanes, Rows::Any) {
            promises.join(&promised(&way), |d| physical(axis, d));
            (module, uneven) = (both, Some(function));
        }
    }
    let mut tall = Vec::new();
    for Tile { height, function: source, way, promises: of_rows } in tiles {
        if let Ok((both, function, _)) = write(module.clone(), &source, &way, lanes, Rows::Whole) {
            promises.join(&promised(&way), |d| d);
            promises.join(&of_rows, |d| d);
            module = both;
            tall.push((function, height));
        }
    }
    let mut turned = None;
    if let Some(other) = other {
        let least = other.least(lanes).filter(|_| may_be_uneven);
        let least = least.filter(|&least| has_room(other.axis, least, lanes));
        let axis::Other { axis, function: source, .. } = other;
        let mut made = Turned { function: None, short: None, axis, ids: MOST_IDS };
        if has_room(axis, lanes, u32::MAX) {
            let mut source = source.clone();
            let way = Way::new(&module, &source, rows, &steps)?;
            let way = without_masks(&mut module, &mut source, way, &steps, together, None)?;
            if let Ok((both, function, _)) = write(module.clone(), &source, &way, lanes, rows) {
                promises.join(way.shapes.promises(), |d| physical(axis, d));
                (module, made.function) = (both, Some(function));
                made.ids = made.ids.min(most_ids(&way));
            }
        }
        if let Some(least) = least {
            let way = Way::new(&module, &source, Rows::Any, &steps)?;
            if let Ok((both, function, _)) = write(module.clone(), &source, &way, lanes, Rows::Any)
            {
                promises.join(way.shapes.promises(), |d| physical(axis, d));
                (module, made.short) = (both, Some((function, least)));
                made.ids = made.ids.min(most_ids(&way));
            }
        }
        turned = Some(made).filter(|made| made.function.is_some() || made.short.is_some());
    }
    let ids = most_ids(&way);
    let Way { flow, shapes, parting } = way;
    let facts = Facts {
        shapes: source.values.ids().map(|value| shapes.of(value)).collect(),
        masks: source.blocks.ids().map(|id| flow.leader[id.index()] == id).collect(),
        masked_loops: source.blocks.ids().map(|id| flow.back_edges_are_masked(id)).collect(),
        parting,
    };
    let left_out = (has_both && form == Some(Form::Usual)).then_some(gains);
    Ok(Widened {
        module,
        function,
        rows,
        uneven,
        flat: flat.is_some(),
        left_out,
        lanes,
        ids,
        promises,
        double,
        tiles: tall,
        axis,
        turned,
        side_by_side,
        joins,
        long_rows,
        sums,
        subgroups,
        remarks,
        source,
        facts,
    })
}

/// The shortest uneven row that runs in vectors. Each vector has a frame of its whole size in the
/// group's scratch memory, of which the device has a limited amount per item.
pub fn least_row(lanes: u32) -> u32 {
    lanes / 4
}

/// The most global ids of the first dimension that widened code may rely on: their sums fit 32 bits.
const MOST_IDS: u32 = 1 << 30;

/// The global ids that a path's steps hold for are below this.
fn most_ids(way: &Way) -> u32 {
    MOST_IDS / u32::try_from(way.shapes.factor()).unwrap_or(1)
}

/// Adds code for vectors that need no masks, and for those `inside` of a row, if that is given. Returns the way through
/// all.
fn without_masks(
    module: &mut Module,
    source: &mut Function,
    way: Way,
    steps: &[i64],
    together: bool,
    inside: Option<Inside>,
) -> Result<Way, Refusal> {
    let (mut way, mut apart) = copied(module, source, way, steps, together)?;
    if let Some(Inside { mut function, way: its_way, tests }) = inside {
        let (_, its) = copied(module, &mut function, its_way, steps, together)?;
        let names = tests.join(module, source, &function);
        way = Way::new(module, source, Rows::Whole, steps)?;
        apart.extend(its.iter().map(|value| names.get(value).unwrap_or(value)));
    }
    way.shapes.keep_apart(&apart);
    Ok(way)
}

/// Copies of what is behind a test, unless items wait for each other there, and strips of loops. Returns the way through
/// all, and the addresses of rows of items.
fn copied(
    module: &mut Module,
    source: &mut Function,
    mut way: Way,
    steps: &[i64],
    together: bool,
) -> Result<(Way, Vec<ValueId>), Refusal> {
    if !together && let Some(both) = edges::run(module, source, &way, steps) {
        way = both;
    }
    if let Some(split) = strips::splits::run(module, source, &way, steps)? {
        way = split;
    }
    if whole::run(module, source, &way) {
        way = Way::new(module, source, Rows::Whole, steps)?;
    }
    if late::run(module, source, &way) {
        way = Way::new(module, source, Rows::Whole, steps)?;
    }
    if let Some(apart) = strips::run(module, source, &way) {
        way = Way::new(module, source, Rows::Whole, steps)?;
        return Ok((way, apart));
    }
    Ok((way, Vec::new()))
}

/// Refuses kernels that obviously cannot be widened. Returns whether the kernel uses sub-groups.
fn check(module: &Module, kernel: &Kernel, source: &Function, lanes: u32) -> Result<bool, Refusal> {
    let size: usize = source.blocks.iter().map(|(_, block)| block.insts.len()).sum();
    if size > MAX_INSTRUCTIONS || source.blocks.len() > MAX_BLOCKS {
        return Err(Refusal::new("too many instructions"));
    }
    if source.variables.iter().map(|variable| variable.size).sum::<u64>() > MAX_PRIVATE_BYTES {
        return Err(Refusal::new("too much private memory"));
    }
    if optimise::has_private_globals(module, source) {
        return Err(Refusal::new("private variables of module scope"));
    }
    let mut insts = source.blocks.iter().flat_map(|(_, block)| &block.insts);
    let subgroups = insts.any(|inst| inst.op.is_of_subgroup());
    if subgroups && lanes != kernel.subgroup_size() {
        return Err(Refusal::new("sub-groups of another size than the vectors"));
    }
    Ok(subgroups)
}

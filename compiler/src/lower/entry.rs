// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function that the device calls: it runs the items of one work-group.

use std::fmt;

use super::checks;
use super::context::{ARGS, GLOBAL_OFFSET, GLOBAL_SIZE, LOCAL, SCRATCH, load_context, local_size};
use super::frame::{Frame, SHARED};
use super::joined;
use super::order;
use super::phases::Resumable;
use super::types::{self, is_bool, memory_type, value_type};
use super::unit::{MAX_ALIGN, ONE_ROUND, Unit, function_symbol};
use crate::ir::{ArgKind, FunctionId, GlobalId, Kernel};
use crate::widen::Rows;

/// The symbol of the function that runs a work-group.
pub const ENTRY: &str = "tally_entry";

/// A function that runs items: its symbol and properties.
pub(super) struct Runner {
    /// The IR function.
    pub(super) function: FunctionId,
    /// The frame of an item, if the function can be resumed.
    pub(super) frame: Option<Frame>,
    /// The number of items that it runs at a time.
    pub(super) lanes: u32,
    /// The global ids of the vectors' dimension that vectors of the kernel run are below this.
    pub(super) ids: u32,
    /// The rows that it runs, and the shortest of them.
    pub(super) rows: Rows,
    pub(super) least: u32,
    /// The dimension in which its vectors lie.
    pub(super) axis: u8,
}

/// The symbol of the function that runs a group in vectors, where the kernel has barriers.
const VECTORS: &str = "tally.vectors";
/// The symbol of the function that runs a group of a kernel whose accesses or barriers are looked at.
const FOLLOWED: &str = "tally.followed";
/// The symbol of the function that runs a group of a kernel whose groups have an order of their own.
const ORDERED: &str = "tally.ordered";
/// The symbol of the function that runs rows of a kernel whose groups join theirs.
const JOINED: &str = "tally.joined";
/// The symbol of the function that decides whether a group joins those beside it.
const BESIDE: &str = "tally.beside";
/// The symbol of the function that runs a group in vectors of another dimension than the first one.
const TURNED: &str = "tally.turned";
/// The symbol of the function that does so for uneven rows.
const UNEVEN: &str = "tally.uneven";
/// The symbol of the function that runs such a group one item at a time.
const ITEMS: &str = "tally.items";

/// Emits the entry function. `vectors` run several items at a time, if the kernel is widened, and `tiles` several rows
/// of them, if its vectors are those of whole rows in the first dimension. With
/// `subgroups`, vectors are sub-groups: a vector must begin where a sub-group does. `exact` is the group size that
/// they are for, if the kernel requires one: in one row, if that is how a group runs.
pub(super) fn lower(
    unit: &mut Unit<'_>,
    kernel: &Kernel,
    one: &Runner,
    vectors: &[Runner],
    tiles: &[(FunctionId, u32)],
    subgroups: bool,
    exact: Option<[u32; 3]>,
) -> String {
    unit.declare("i64", "llvm.umin.i64", "i64, i64");
    let mut text = format!("; kernel {:?}\n", kernel.name);
    let waits = vectors.iter().chain([one]).any(|runner| runner.frame.is_some());
    let turned = vectors.iter().position(|runner| runner.axis != 0);
    let entry = match (kernel.facts.follows, turned) {
        (Some(_), _) => FOLLOWED,
        (None, Some(_)) => ORDERED,
        (None, None) if unit.joins => JOINED,
        (None, None) => ENTRY,
    };
    let lanes = || vectors.iter().map(|runner| runner.lanes);
    if let (JOINED, Some(least), Some(most)) = (entry, lanes().min(), lanes().max()) {
        text += &head(ENTRY, false);
        text += &match unit.sums {
            Some(size) => joined::summed(unit, JOINED, size),
            None => {
                let sizes = [(0, "%nx"), (1, "%ny"), (2, "%nz")];
                let sizes = sizes.map(|(d, name)| local_size(name, d, None));
                let tall: Vec<u32> = tiles.iter().map(|tile| tile.1).collect();
                let entry = joined::entry(&sizes[1..].concat(), JOINED, BESIDE, most);
                let rows = joined::rows(unit, &sizes.concat(), JOINED, (least, most), &tall);
                entry + &head(BESIDE, false) + &rows
            }
        };
    }
    if let (ORDERED, Some(first)) = (entry, turned) {
        let least = vectors[first..].iter().map(|runner| runner.least).min();
        let (axis, ids) = (vectors[first].axis, vectors[first].ids);
        text += &order::along(
            &head(ENTRY, false),
            ORDERED,
            axis,
            least.unwrap_or(1),
            &ids_are_small(ids, axis, ""),
        );
    }
    let (usual, turned) = vectors.split_at(turned.unwrap_or(vectors.len()));
    let whole = usual.iter().all(|runner| runner.rows == Rows::Whole) && !usual.is_empty();
    if vectors.is_empty() || (whole && !subgroups && !waits) {
        if turned.is_empty() {
            text += &group(unit, kernel, entry, one, usual, tiles);
        } else {
            text += &choice(entry, turned, subgroups, None, unit);
            for runner in turned {
                text += &match runner.rows {
                    Rows::Whole => {
                        group(unit, kernel, TURNED, one, std::slice::from_ref(runner), &[])
                    }
                    Rows::Any => group(unit, kernel, UNEVEN, runner, &[], &[]),
                };
            }
            text += &group(unit, kernel, ITEMS, one, usual, &[]);
        }
    } else {
        text += &choice(entry, vectors, subgroups, kernel.required_group_size, unit);
        unit.exact = exact;
        for runner in vectors {
            text += &group(unit, kernel, symbol(runner), runner, &[], tiles);
        }
        unit.exact = None;
        text += &group(unit, kernel, ITEMS, one, &[], &[]);
    }
    if let Some(flags) = kernel.facts.follows {
        let size = kernel.subgroup_size();
        text += &checks::follow_group(unit, &head(ENTRY, false), FOLLOWED, size, flags);
    }
    text += ATTRIBUTES;
    text
}

/// What all functions have. Where a program allows reciprocals, LLVM would divide in vectors by an estimate of the
/// reciprocal that it improves, and that makes NaN of a zero or an infinite divisor. Intel's GPUs give infinity and
/// zero there, and so does LLVM outside of vectors, and programs count on it: `1 / (1 + exp(-x))` overflows.
const ATTRIBUTES: &str = "attributes #0 = { nounwind \"reciprocal-estimates\"=\"!vec-divf\" }\n";

/// The symbol of the function that runs a group in the runner's vectors, if there is a choice.
fn symbol(runner: &Runner) -> &'static str {
    match (runner.rows, runner.axis) {
        (Rows::Any, _) => UNEVEN,
        (Rows::Whole, 0) => VECTORS,
        (Rows::Whole, _) => TURNED,
    }
}

/// The letters of the dimensions, from the one in which vectors lie to the outermost one. Items that follow one
/// another in the second one read the next rows.
fn nest(axis: u8) -> [&'static str; 3] {
    match axis {
        0 => ["x", "y", "z"],
        1 => ["y", "x", "z"],
        _ => ["z", "y", "x"],
    }
}

/// The entry function of a kernel with several forms. It chooses vectors if rows consist of whole ones,
/// or if the form is for uneven rows and they are not too short for it, or if vectors lie in another dimension and
/// there is one; else it runs one item at a time. If the kernel requires a group size, all sizes are constants in its
/// one form with vectors, which is for that size alone.
fn choice(
    entry: &str,
    vectors: &[Runner],
    subgroups: bool,
    exact: Option<[u32; 3]>,
    unit: &Unit<'_>,
) -> String {
    let joins = unit.joins;
    let mut text = head(entry, joins);
    let given = if joins { joined::PARAMS } else { "" };
    for (dimension, name) in ["%nx", "%ny", "%nz"].into_iter().enumerate() {
        text += &local_size(name, dimension as u8, None);
    }
    let (ids, axis) = vectors.first().map_or((0, 0), |runner| (runner.ids, runner.axis));
    text += &ids_are_small(ids, axis, &unit.promised);
    let row = format!("%n{}", nest(axis)[0]);
    for runner in vectors {
        let (name, lanes) = (symbol(runner), runner.lanes);
        match (exact, runner.rows) {
            (Some(size), _) => {
                for (name, size) in ["%nx", "%ny", "%nz"].into_iter().zip(size) {
                    text += &format!("  {name}.exact = icmp eq i64 {name}, {size}\n");
                }
                text += "  %exact.xy = and i1 %nx.exact, %ny.exact\n";
                text += &format!("  %{name}.fits = and i1 %exact.xy, %nz.exact\n");
            }
            (None, Rows::Whole) if axis != 0 => {
                text += &format!("  %{name}.fits = icmp uge i64 {row}, {lanes}\n");
            }
            (None, Rows::Whole) => {
                let last = lanes - 1;
                text += &format!("  %rest = and i64 %nx, {last}\n");
                text += &format!("  %{name}.fits = icmp eq i64 %rest, 0\n");
            }
            (None, Rows::Any) => {
                text += &format!("  %long = icmp uge i64 {row}, {}\n", runner.least);
                // Sub-groups are numbered through the group: a second row may begin within one.
                text += "  %rows = mul i64 %ny, %nz\n";
                let most = if subgroups { 1 } else { u32::MAX };
                text += &format!("  %few = icmp ule i64 %rows, {most}\n");
                text += &format!("  %{name}.fits = and i1 %long, %few\n");
            }
        }
        text += &format!(
            "  %{name}.goes = and i1 %{name}.fits, %small
  br i1 %{name}.goes, label %{name}.run, label %{name}.else
{name}.run:
  call void @{name}(ptr %ctx{given})
  ret void
{name}.else:
"
        );
    }
    text + &format!("  call void @{ITEMS}(ptr %ctx{given})\n  ret void\n}}\n")
}

/// Computes in `%small` whether the global ids of a dimension are below a number, and, after `promised`, whether what is
/// promised of other numbers holds in the group; widened code relies on that.
fn ids_are_small(below: u32, axis: u8, promised: &str) -> String {
    let mut text = String::new();
    text += "  %launch = load ptr, ptr %ctx, align 8, !invariant.load !0\n";
    for (name, offset) in [("first", GLOBAL_OFFSET), ("size", GLOBAL_SIZE)] {
        let offset = offset + 8 * u32::from(axis);
        text += &format!(
            "  %ids.{name}.at = getelementptr inbounds i8, ptr %launch, i64 {offset}
  %ids.{name} = load i64, ptr %ids.{name}.at, align 8, !invariant.load !0
"
        );
    }
    text + &format!(
        "  %ids.end = add i64 %ids.first, %ids.size
  %ids.first.small = icmp ult i64 %ids.first, {below}
  %ids.end.small = icmp ule i64 %ids.end, {below}
  %ids.small = and i1 %ids.first.small, %ids.end.small
{promised}  %small = and i1 %ids.small, {}
",
        if promised.is_empty() { "true" } else { "%promised" }
    )
}

/// The beginning of a function that runs a group, or, if kernels' groups join, some rows of a group.
fn head(symbol: &str, joins: bool) -> String {
    let params = if joins { joined::PARAMS } else { "" };
    let internal = if symbol == ENTRY { "" } else { "internal " };
    let apart =
        if matches!(symbol, FOLLOWED | ORDERED | JOINED | BESIDE) { "noinline " } else { "" };
    format!(
        "define {internal}void @{symbol}(ptr noalias readonly align 8 dereferenceable(48) %ctx{params}) {apart}#0 {{\nentry:\n"
    )
}

/// Emits a function that runs a group. Without barriers `vectors` run whole vectors of a row, the
/// longest ones first, and `one` runs the remaining items. `tiles` run as many rows as they can of the first
/// ones' vectors.
fn group(
    unit: &mut Unit<'_>,
    kernel: &Kernel,
    symbol: &str,
    one: &Runner,
    vectors: &[Runner],
    tiles: &[(FunctionId, u32)],
) -> String {
    let joins = unit.joins;
    let mut text = head(symbol, joins);
    for (name, offset) in [("%args", ARGS), ("%local", LOCAL), ("%scratch", SCRATCH)] {
        text += &load_context(name, offset);
    }
    if kernel.facts.forgets_local {
        text += &checks::forget_local(unit);
    }
    let axis = vectors.first().map_or(one.axis, |runner| runner.axis);
    let [row, next, _] = nest(axis);
    for (dimension, name) in (0..).zip(["%nx", "%ny", "%nz"]) {
        if joins && dimension != axis {
            // The rows and planes that are to run are given.
            text += &format!("  {name} = add i64 %{}.end, 0\n", &name[2..]);
            continue;
        }
        if one.rows == Rows::Whole || dimension != axis {
            text += &local_size(name, dimension, unit.exact);
            continue;
        }
        // The last vector is whole, though some of its items do not exist.
        text += &local_size(&format!("{name}.items"), dimension, unit.exact);
        let (last, step) = (one.lanes - 1, i64::from(one.lanes));
        text += &format!("  {name}.more = add i64 {name}.items, {last}\n");
        text += &format!("  {name} = and i64 {name}.more, {}\n", -step);
        text += &format!("  {name}.whole{step} = and i64 {name}.items, {}\n", -step);
    }
    let mut args = arguments(unit, kernel, &mut text);
    let function = function_symbol(one.function);
    match &one.frame {
        None => {
            text += &private_place(unit, "%priv");
            let init = private_init(unit, "%priv");
            let args: String = args.iter().map(|arg| format!(", {arg}")).collect();
            let call = |function: &str, first: &str, second: &str| {
                let id = |name: &str| match name {
                    _ if name == row => first.to_owned(),
                    _ if name == next => second.to_owned(),
                    _ => format!("%{name}"),
                };
                let [x, y, z] = ["x", "y", "z"].map(id);
                format!(
                    "  call void {function}(ptr %ctx, i64 {x}, i64 {y}, i64 {z}, ptr %priv{args})\n"
                )
            };
            let (x, y) = (format!("%{row}"), format!("%{next}"));
            let item = format!("{init}{}", call(&function, &x, &y));
            if let Some(runner) = vectors.first() {
                text += &ids_are_small(runner.ids, axis, &unit.promised);
            }
            for runner in vectors {
                let lanes = runner.lanes;
                text += &format!(
                    "  %n{row}.vectors{lanes} = and i64 %n{row}, -{lanes}
  %n{row}.whole{lanes} = select i1 %small, i64 %n{row}.vectors{lanes}, i64 0
"
                );
            }
            text += "  br label %items\nitems:\n";
            let calls = vectors.iter().map(|runner| {
                let v = format!("%v{}", runner.lanes);
                (runner.lanes, call(&function_symbol(runner.function), &v, &y))
            });
            let tiles = tiles.iter().map(|&(function, height)| {
                let [x, y] = ["x", "y"].map(|d| format!("%tile{height}.{d}"));
                (height, call(&function_symbol(function), &x, &y))
            });
            let (calls, tiles): (Vec<_>, Vec<_>) = (calls.collect(), tiles.collect());
            text += &rows(&calls, &tiles, &item, one.lanes, axis, joins);
        }
        Some(frame) => {
            let size = frame.shared.size;
            for name in SHARED.iter().filter(|_| size > 0) {
                text += &format!("  {name} = alloca [{size} x i8], align {MAX_ALIGN}\n");
                args.push(Argument { ty: "ptr".into(), name: (*name).into() });
            }
            let (symbol, args, lanes, rows) = (&*function, &args[..], one.lanes, one.rows);
            text += &Resumable { symbol, args, frame, lanes, rows }.run_group(unit);
        }
    }
    text + "done:\n  ret void\n}\n"
}

/// Emits loops over the rows of a group: for each number of lanes, the whole vectors that still fit,
/// then the remaining items, `lanes` at a time. LLVM does not unroll the loops over vectors:
/// copies took a fifth of the time to build a small kernel, and of 80 kernels of Rodinia, PolyBench and SHOC none
/// became faster by them.
fn rows(
    vectors: &[(u32, String)],
    tall: &[(u32, String)],
    item: &str,
    lanes: u32,
    axis: u8,
    joins: bool,
) -> String {
    let [x, y, z] = nest(axis);
    let [first_y, first_z] = if joins { ["%y.first", "%z.first"] } else { ["0"; 2] };
    let mut text = format!(
        "  br label %{z}.loop
{z}.loop:
  %{z} = phi i64 [ {first_z}, %items ], [ %{z}.next, %{y}.done ]
"
    );
    let (mut from, mut first) = (format!("{y}.loop"), "0".to_owned());
    if tall.is_empty() {
        text += &format!(
            "  br label %{y}.loop
{y}.loop:
  %{y} = phi i64 [ {first_y}, %{z}.loop ], [ %{y}.next, %{x}.done ]
"
        );
    } else {
        let lanes = vectors.first().map_or(lanes, |vector| vector.0);
        text += &tiles(tall, lanes, [x, y, z], first_y);
        first = "%tiles.x".to_owned();
    }
    for (lanes, call) in vectors {
        text += &format!(
            "  %v{lanes}.some = icmp ne i64 %n{x}.whole{lanes}, {first}
  br i1 %v{lanes}.some, label %v{lanes}.loop, label %v{lanes}.done
v{lanes}.loop:
  %v{lanes} = phi i64 [ {first}, %{from} ], [ %v{lanes}.next, %v{lanes}.loop ]
{call}  %v{lanes}.next = add nuw nsw i64 %v{lanes}, {lanes}
  %v{lanes}.last = icmp eq i64 %v{lanes}.next, %n{x}.whole{lanes}
  br i1 %v{lanes}.last, label %v{lanes}.done, label %v{lanes}.loop, !llvm.loop !{ONE_ROUND}
v{lanes}.done:
"
        );
        (from, first) = (format!("v{lanes}.done"), format!("%n{x}.whole{lanes}"));
    }
    text += &match (vectors, tall) {
        ([], []) => format!("  br label %{x}.loop\n"),
        _ => format!(
            "  %{x}.some = icmp ne i64 {first}, %n{x}\n  br i1 %{x}.some, label %{x}.loop, label %{x}.done\n"
        ),
    };
    let rounds = if lanes > 1 { format!(", !llvm.loop !{ONE_ROUND}") } else { String::new() };
    text + &format!(
        "{x}.loop:
  %{x} = phi i64 [ {first}, %{from} ], [ %{x}.next, %{x}.loop ]
{item}  %{x}.next = add nuw nsw i64 %{x}, {lanes}
  %{x}.last = icmp eq i64 %{x}.next, %n{x}
  br i1 %{x}.last, label %{x}.done, label %{x}.loop{rounds}
{x}.done:
  %{y}.next = add nuw nsw i64 %{y}, 1
  %{y}.last = icmp eq i64 %{y}.next, %n{y}
  br i1 %{y}.last, label %{y}.done, label %{y}.loop
{y}.done:
  %{z}.next = add nuw nsw i64 %{z}, 1
  %{z}.last = icmp eq i64 %{z}.next, %n{z}
  br i1 %{z}.last, label %done, label %{z}.loop
"
    )
}

/// Emits loops over the tiles of a plane, and the beginning of the loop over its rows. Of those that tiles have,
/// the items from `%tiles.x` on are left.
fn tiles(tall: &[(u32, String)], lanes: u32, [x, y, z]: [&str; 3], first_y: &str) -> String {
    let whole = format!("%n{x}.whole{lanes}");
    let mut text = format!("  %tiles.none = icmp eq i64 {whole}, 0\n");
    let (mut from, mut before) = (format!("{z}.loop"), first_y.to_owned());
    for (height, call) in tall {
        let t = format!("tile{height}");
        text += &format!(
            "  %{t}.rows = sub i64 %n{y}, {before}
  %{t}.fit = and i64 %{t}.rows, -{height}
  %{t}.height = select i1 %tiles.none, i64 0, i64 %{t}.fit
  %{t}.end = add i64 {before}, %{t}.height
  %{t}.some = icmp ne i64 %{t}.height, 0
  br i1 %{t}.some, label %{t}.rows.loop, label %{t}.done
{t}.rows.loop:
  %{t}.y = phi i64 [ {before}, %{from} ], [ %{t}.y.next, %{t}.next ]
  br label %{t}.loop
{t}.loop:
  %{t}.x = phi i64 [ 0, %{t}.rows.loop ], [ %{t}.x.next, %{t}.loop ]
{call}  %{t}.x.next = add nuw nsw i64 %{t}.x, {lanes}
  %{t}.x.last = icmp eq i64 %{t}.x.next, {whole}
  br i1 %{t}.x.last, label %{t}.next, label %{t}.loop, !llvm.loop !{ONE_ROUND}
{t}.next:
  %{t}.y.next = add nuw nsw i64 %{t}.y, {height}
  %{t}.y.last = icmp eq i64 %{t}.y.next, %{t}.end
  br i1 %{t}.y.last, label %{t}.done, label %{t}.rows.loop
{t}.done:
"
        );
        (from, before) = (format!("{t}.done"), format!("%{t}.end"));
    }
    text + &format!(
        "  %tiles.wide = icmp eq i64 {whole}, %n{x}
  %tiles.high = icmp eq i64 {before}, %n{y}
  %tiles.all = and i1 %tiles.wide, %tiles.high
  br i1 %tiles.all, label %{y}.done, label %{y}.loop
{y}.loop:
  %{y} = phi i64 [ {first_y}, %{from} ], [ %{y}.next, %{x}.done ]
  %tiles.here = icmp ult i64 %{y}, {before}
  %tiles.x = select i1 %tiles.here, i64 {whole}, i64 0
"
    )
}

/// A loaded argument of the kernel.
pub(super) struct Argument {
    /// LLVM's type.
    pub(super) ty: String,
    /// Its name in the function that runs a group.
    name: String,
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.ty, self.name)
    }
}

/// Loads the arguments.
fn arguments(unit: &Unit<'_>, kernel: &Kernel, text: &mut String) -> Vec<Argument> {
    let mut list = Vec::new();
    for (index, arg) in kernel.args.iter().enumerate() {
        let name = format!("%arg{index}");
        let place = format!("{name}.at");
        *text += &format!("  {place} = getelementptr inbounds i8, ptr %args, i64 {}\n", arg.offset);
        let align = arg.align.clamp(1, MAX_ALIGN);
        let load = |ty: &str| format!("load {ty}, ptr {place}, align {align}, !invariant.load !0");
        let value = if arg.by_reference {
            list.push(Argument { ty: "ptr".into(), name: place });
            continue;
        } else if arg.kind == ArgKind::LocalPointer {
            *text += &format!("  {name}.offset = {}\n", load("i64"));
            format!("getelementptr inbounds i8, ptr %local, i64 {name}.offset")
        } else if is_bool(unit.module, arg.ty) {
            let ty = memory_type(unit.module, arg.ty);
            *text += &format!("  {name}.byte = {}\n", load(&ty));
            format!("trunc {ty} {name}.byte to {}", value_type(unit.module, arg.ty))
        } else {
            load(&memory_type(unit.module, arg.ty))
        };
        let ty = match arg.kind {
            ArgKind::LocalPointer => "ptr".into(),
            _ => value_type(unit.module, arg.ty),
        };
        *text += &format!("  {name} = {value}\n");
        list.push(Argument { ty, name });
    }
    list
}

/// The place of the private variables of module scope, if all items share one.
fn private_place(unit: &Unit<'_>, name: &str) -> String {
    match unit.private_size {
        0 => format!("  {name} = getelementptr i8, ptr %scratch, i64 0\n"),
        // `Unit::new` has put them at the start of the scratch memory.
        _ if unit.spill_variables => format!("  {name} = getelementptr i8, ptr %scratch, i64 0\n"),
        size => format!("  {name} = alloca [{size} x i8], align {MAX_ALIGN}\n"),
    }
}

/// Initialises an item's private variables of module scope, at `base`.
pub(super) fn private_init(unit: &mut Unit<'_>, base: &str) -> String {
    let mut text = String::new();
    let privates: Vec<(GlobalId, u64)> = unit.privates.iter().map(|(&id, &at)| (id, at)).collect();
    for (id, offset) in privates {
        let global = &unit.module.globals[id];
        let ty = memory_type(unit.module, global.ty);
        let module = unit.module;
        let constant = |init| types::constant(module, init, true, &mut |id| unit.symbol(id));
        // SPIR-V does not allow the address of a local or private variable as an initialiser.
        let value = global.init.and_then(constant);
        let value = value.unwrap_or_else(|| types::zero(module, global.ty).into());
        let align = global.align.clamp(1, MAX_ALIGN);
        text += &format!("  %{id}.at = getelementptr i8, ptr {base}, i64 {offset}\n");
        text += &format!("  store {ty} {value}, ptr %{id}.at, align {align}\n");
    }
    text
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short rows of groups that lie side by side, joined to long ones.
//!
//! A group of 2 x 32 items has rows of two, which fill no vector. If a kernel asks for no place in a group, and its items
//! do not wait for each other, its results do not depend on how items are divided into groups. So groups that lie
//! side by side put their rows together until these are whole vectors, and each group runs some of the long rows:
//!
//! ```text
//!   groups of 2 x 4           of 8 x 1, in the place of four groups
//!     0 0 1 1 2 2 3 3           0 0 0 0 0 0 0 0
//!     0 0 1 1 2 2 3 3    ──▶    1 1 1 1 1 1 1 1
//!     0 0 1 1 2 2 3 3           2 2 2 2 2 2 2 2
//!     0 0 1 1 2 2 3 3           3 3 3 3 3 3 3 3
//! ```
//!
//! Where items read and write memory side by side, many more groups join ([`LONG`]): rows of a few cache lines, each of
//! which begins elsewhere, take up to four times as long as the same memory in one stretch, and each group takes its time
//! before it runs its first item.
//!
//! The function that runs a group gets a launch whose groups are so wide, and the rows and planes that are to run.
//! [`crate::widen`] says which kernels allow it (`joins`).

use super::context::{GLOBAL_SIZE, GROUP, GROUP_SIZE, NUM_GROUPS};
use super::unit::Unit;

/// The sizes of `GroupContext` and `LaunchInfo`.
const CONTEXT: u32 = 48;
const LAUNCH: u32 = 96;

/// How many times as many groups as join there have to be if some of those that join have no row to run: all
/// threads have work then, however many there are.
const MANY: u32 = 64;

/// The most items of a row for which groups join where long rows are best. A picture of 2048 bytes in a row took 0.4 to 0.9
/// of the time that it took with 1024; a stencil of floats took 1.13 of it.
const LONG: u32 = 2048;
/// How many of its rows a group runs then at least, if there are many groups.
const ROWS: u32 = 4;

/// The parameters for the rows and planes that a function runs, behind the context, and the arguments.
pub(super) const PARAMS: &str = ", i64 %y.first, i64 %y.end, i64 %z.first, i64 %z.end";

/// The function that the device calls, where vectors have at most `most` items. A group of one row of whole vectors calls
/// `inner` as it is. All others call `beside`, which takes 10 cycles and the stack; such a group may take 25.
pub(super) fn entry(sizes: &str, inner: &str, beside: &str, most: u32) -> String {
    format!(
        "{sizes}  %launch = load ptr, ptr %ctx, align 8, !invariant.load !0
  %row.at = getelementptr inbounds i8, ptr %launch, i64 {GROUP_SIZE}
  %row = load i32, ptr %row.at, align 4
  %odd = and i32 %row, {odd}
  %is.whole = icmp eq i32 %odd, 0
  %lines = mul i64 %ny, %nz
  %is.one = icmp eq i64 %lines, 1
  %alone = and i1 %is.whole, %is.one
  br i1 %alone, label %one, label %several
one:
  tail call void @{inner}(ptr %ctx, i64 0, i64 1, i64 0, i64 1)
  ret void
several:
  tail call void @{beside}(ptr %ctx)
  ret void
}}
",
        odd = most - 1,
    )
}

/// The function for groups that join if they have others beside them, which calls `inner`, where vectors have `lanes` items,
/// and some may have `most`.
/// `%nx`, `%ny` and `%nz`, the sizes of the group, are computed. (`inner` must not be inlined, since it takes its context
/// as constant.)
///
/// Rows of whole vectors of `lanes` items join for vectors of `most`: products of matrices in groups of 16 x 16 take 0.55
/// of the time so. Others join for `lanes`, for which fewer groups are needed.
///
/// Where long rows are best, groups join for rows of [`LONG`] items, as far as each has a row to run or [`MANY`] times [`ROWS`] rows are
/// there in all.
///
/// If there are many groups, each runs as many rows as a tile has, of the tallest of `tall` that fits, or none.
///
/// All groups that join must decide alike: what is asked here is the same for all of them. Groups stay alone in launches
/// whose groups do not cover the global size, or lie beyond it.
pub(super) fn rows(
    unit: &mut Unit<'_>,
    sizes: &str,
    inner: &str,
    (lanes, most): (u32, u32),
    tall: &[u32],
) -> String {
    unit.declare("i64", "llvm.cttz.i64", "i64, i1");
    let long = match unit.long_rows {
        true => {
            unit.declare("i64", "llvm.ctlz.i64", "i64, i1");
            unit.declare("i64", "llvm.umax.i64", "i64, i64");
            longer()
        }
        false => "  %shift = add i64 %vectors, 0\n  %suffice = or i1 %spare, false\n".to_owned(),
    };
    let tall = if unit.long_rows { &[ROWS] } else { tall };
    let mut tile = String::new();
    let mut tallest = "-1".to_owned();
    for height in tall.iter().rev() {
        tile += &format!(
            "  %fits{height} = icmp uge i64 %ny, {height}
  %tall{height} = select i1 %fits{height}, i64 -{height}, i64 {tallest}
"
        );
        tallest = format!("%tall{height}");
    }
    let mut text = format!(
        "  %own = alloca [{CONTEXT} x i8], align 16
  %wide = alloca [{LAUNCH} x i8], align 16
{sizes}  %launch = load ptr, ptr %ctx, align 8, !invariant.load !0
"
    );
    let words = [
        ("id", "%ctx", GROUP),
        ("size", "%launch", GROUP_SIZE),
        ("count", "%launch", NUM_GROUPS),
        ("count1", "%launch", NUM_GROUPS + 4),
        ("count2", "%launch", NUM_GROUPS + 8),
    ];
    for (name, base, offset) in words {
        text += &format!(
            "  %{name}.at = getelementptr inbounds i8, ptr {base}, i64 {offset}
  %{name}.word = load i32, ptr %{name}.at, align 4
  %{name} = zext i32 %{name}.word to i64
"
        );
    }
    let [last, log, most_log] = [lanes - 1, lanes.ilog2(), most.ilog2()];
    // Whole vectors are `1 << vectors` groups wide, and rows `1 << shift`.
    text += &format!(
        "  %global.at = getelementptr inbounds i8, ptr %launch, i64 {GLOBAL_SIZE}
  %global = load i64, ptr %global.at, align 8
  %uneven = and i64 %size, {last}
  %is.whole = icmp eq i64 %uneven, 0
  %lanes = select i1 %is.whole, i64 {most}, i64 {lanes}
  %log = select i1 %is.whole, i64 {most_log}, i64 {log}
  %last = sub i64 %lanes, 1
  %marked = or i64 %size, %lanes
  %zeros = call i64 @llvm.cttz.i64(i64 %marked, i1 true)
  %vectors = sub i64 %log, %zeros
  %by.rows = icmp uge i64 %ny, %nz
  %split = select i1 %by.rows, i64 %ny, i64 %nz
  %plane = mul i64 %count, %count1
  %groups = mul i64 %plane, %count2
  %enough = shl i64 {MANY}, %vectors
  %spare = icmp uge i64 %groups, %enough
{long}  %many = shl i64 1, %shift
  %tile = lshr i64 %id, %shift
  %first = shl i64 %tile, %shift
  %share = sub i64 %id, %first
  %behind = sub i64 %count, %first
  %shares = call i64 @llvm.umin.i64(i64 %behind, i64 %many)
  %all = mul i64 %count, %size
  %covers = icmp uge i64 %all, %global
  %before = sub i64 %all, %size
  %run.all = icmp ult i64 %before, %global
  %several = icmp ugt i64 %shares, 1
  %lines = mul i64 %ny, %nz
  %each = icmp uge i64 %lines, %shares
  %pays = or i1 %each, %suffice
  %exact = and i1 %covers, %run.all
  %joins.0 = and i1 %exact, %several
  %joins = and i1 %joins.0, %pays
  br i1 %joins, label %join, label %as.it.is
join:
  %lot = mul i64 %split, %share
  %lots = add i64 %lot, %split
  %is.full = icmp eq i64 %shares, %many
  br i1 %is.full, label %full, label %rest
full:
  %full.from = lshr i64 %lot, %shift
  %full.to = lshr i64 %lots, %shift
  br label %shared
rest:
  %rest.from = udiv i64 %lot, %shares
  %rest.to = udiv i64 %lots, %shares
  br label %shared
shared:
  %from.row = phi i64 [ %full.from, %full ], [ %rest.from, %rest ]
  %to.row = phi i64 [ %full.to, %full ], [ %rest.to, %rest ]
{tile}  %tiles = and i1 %by.rows, %suffice
  %tall = select i1 %tiles, i64 {tallest}, i64 -1
  %from = and i64 %from.row, %tall
  %to.tile = and i64 %to.row, %tall
  %is.last = icmp eq i64 %to.row, %split
  %to = select i1 %is.last, i64 %to.row, i64 %to.tile
  %some = icmp ult i64 %from, %to
  br i1 %some, label %run, label %nothing
run:
  %y.first = select i1 %by.rows, i64 %from, i64 0
  %y.end = select i1 %by.rows, i64 %to, i64 %ny
  %z.first = select i1 %by.rows, i64 0, i64 %from
  %z.end = select i1 %by.rows, i64 %nz, i64 %to
  call void @llvm.memcpy.inline.p0.p0.i64(ptr align 16 %own, ptr align 8 %ctx, i64 {CONTEXT}, i1 false)
  call void @llvm.memcpy.inline.p0.p0.i64(ptr align 16 %wide, ptr align 8 %launch, i64 {LAUNCH}, i1 false)
  store ptr %wide, ptr %own, align 8
  %tile.word = trunc i64 %tile to i32
  %tile.at = getelementptr inbounds i8, ptr %own, i64 {GROUP}
  store i32 %tile.word, ptr %tile.at, align 4
  %width = shl i64 %size, %shift
  %width.word = trunc i64 %width to i32
  %width.at = getelementptr inbounds i8, ptr %wide, i64 {GROUP_SIZE}
  store i32 %width.word, ptr %width.at, align 4
  call void @{inner}(ptr %own{PARAMS})
  ret void
nothing:
  ret void
as.it.is:
  call void @{inner}(ptr %ctx, i64 0, i64 %ny, i64 0, i64 %nz)
  ret void
}}
"
    );
    text
}

/// Computes how many groups of several rows join for long ones, as a logarithm, and whether so many may have no
/// row to run.
fn longer() -> String {
    let (log, rows) = (LONG.ilog2(), MANY * ROWS);
    format!(
        "  %marked.long = or i64 %size, {LONG}
  %zeros.long = call i64 @llvm.cttz.i64(i64 %marked.long, i1 true)
  %long = sub i64 {log}, %zeros.long
  %many.long = shl i64 1, %long
  %shares.long = call i64 @llvm.umin.i64(i64 %many.long, i64 %count)
  %rows.long = mul i64 %groups, %split
  %enough.long = mul i64 %shares.long, {rows}
  %rows.suffice = icmp uge i64 %rows.long, %enough.long
  %has.rows = icmp uge i64 %split, 2
  %spare.long = and i1 %rows.suffice, %has.rows
  %some.row = or i64 %split, 1
  %zeros.split = call i64 @llvm.ctlz.i64(i64 %some.row, i1 true)
  %log.split = sub i64 63, %zeros.split
  %most.long = select i1 %spare.long, i64 {log}, i64 %log.split
  %less.long = call i64 @llvm.umin.i64(i64 %long, i64 %most.long)
  %shift = call i64 @llvm.umax.i64(i64 %vectors, i64 %less.long)
  %suffice = or i1 %spare, %spare.long
"
    )
}

/// The same for groups that keep sums of `size` bytes (`rt/sums.c`).
pub(super) fn summed(unit: &mut Unit<'_>, inner: &str, size: u64) -> String {
    let end = format!("__tally_add_sums_i{}", 8 * size);
    unit.declare("void", &end, "ptr");
    unit.declare("void", "__tally_run_summed", "ptr, ptr, ptr");
    format!("  call void @__tally_run_summed(ptr %ctx, ptr @{inner}, ptr @{end})\n  ret void\n}}\n")
}

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

/// The parameters for the rows and planes that a function runs, behind the context, and the arguments.
pub(super) const PARAMS: &str = ", i64 %y.first, i64 %y.end, i64 %z.first, i64 %z.end";

/// The function that the device calls, which calls `inner`, where vectors have `lanes` items, and some may have `most`.
/// `%nx`, `%ny` and `%nz`, the sizes of the group, are computed. (`inner` must not be inlined, since it takes its context
/// as constant.)
///
/// Rows of whole vectors of `lanes` items join for vectors of `most`: products of matrices in groups of 16 x 16 take 0.55
/// of the time so. Others join for `lanes`, for which fewer groups are needed.
///
/// If there are many groups, each runs as many rows as a tile has, of the tallest of `tall` that fits, or none.
///
/// All groups that join must decide alike: what is asked here is the same for all of them. Groups stay alone in launches
/// whose groups do not cover the global size, or lie beyond it.
pub(super) fn rows(sizes: &str, inner: &str, (lanes, most): (u32, u32), tall: &[u32]) -> String {
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
    // Whole vectors are `1 << shift` groups wide.
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
  %shift = sub i64 %log, %zeros
  %many = shl i64 1, %shift
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
  %plane = mul i64 %count, %count1
  %groups = mul i64 %plane, %count2
  %enough = mul i64 %many, {MANY}
  %spare = icmp uge i64 %groups, %enough
  %pays = or i1 %each, %spare
  %exact = and i1 %covers, %run.all
  %joins.0 = and i1 %exact, %several
  %joins = and i1 %joins.0, %pays
  br i1 %joins, label %join, label %as.it.is
join:
  %by.rows = icmp uge i64 %ny, %nz
  %split = select i1 %by.rows, i64 %ny, i64 %nz
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
{tile}  %tiles = and i1 %by.rows, %spare
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

/// The same for groups that keep sums of `size` bytes (`rt/sums.c`).
pub(super) fn summed(unit: &mut Unit<'_>, inner: &str, size: u64) -> String {
    let end = format!("__tally_add_sums_i{}", 8 * size);
    unit.declare("void", &end, "ptr");
    unit.declare("void", "__tally_run_summed", "ptr, ptr, ptr");
    format!("  call void @__tally_run_summed(ptr %ctx, ptr @{inner}, ptr @{end})\n  ret void\n}}\n")
}

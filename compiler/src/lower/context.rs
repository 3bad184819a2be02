// SPDX-License-Identifier: MIT OR Apache-2.0
//! The group's context and the launch: the offsets of their fields, and the code that loads them.
//!
//! The context is `GroupContext` of the device's manual, the launch `LaunchInfo`; the offsets here
//! are theirs. Neither changes while a group runs, so every load of them is invariant.

/// Offset of `GroupContext::launch`.
pub(super) const LAUNCH: u32 = 0;
/// Offset of `GroupContext::args`.
pub(super) const ARGS: u32 = 8;
/// Offset of `GroupContext::local`.
pub(super) const LOCAL: u32 = 16;
/// Offset of `GroupContext::scratch`.
pub(super) const SCRATCH: u32 = 24;
/// Offset of `GroupContext::group`: three 32-bit numbers.
pub(super) const GROUP: u32 = 32;
/// Offset of the address of the sums that a group keeps, behind the context: `struct context` of `rt/sums.c`. Only where
/// groups do ([`super::unit::Unit::sums`]).
pub(super) const SUMS: u32 = 48;

/// Offset of `LaunchInfo::global_offset`: three 64-bit numbers.
pub(super) const GLOBAL_OFFSET: u32 = 0;
/// Offset of `LaunchInfo::global_size`: three 64-bit numbers.
pub(super) const GLOBAL_SIZE: u32 = 24;
/// Offset of `LaunchInfo::num_groups`: three 32-bit numbers.
pub(super) const NUM_GROUPS: u32 = 48;
/// Offset of `LaunchInfo::group_size`: three 32-bit numbers.
pub(super) const GROUP_SIZE: u32 = 60;
/// Offset of `LaunchInfo::work_dim`, 32 bits.
pub(super) const WORK_DIM: u32 = 72;
/// Offset of `LaunchInfo::grid_wait`, the address of a function.
pub(super) const GRID_WAIT: u32 = 80;

/// Loads a pointer of the context.
pub(super) fn load_context(name: &str, offset: u32) -> String {
    format!(
        "  {name}.at = getelementptr inbounds i8, ptr %ctx, i64 {offset}\n  \
         {name} = load ptr, ptr {name}.at, align 8, !invariant.load !0\n"
    )
}

/// Computes the size of this work-group in a dimension: the rest of the global size, if that is less
/// than a full group. `exact` is the size of all groups that run this code, if it is known.
pub(super) fn local_size(name: &str, dimension: u8, exact: Option<[u32; 3]>) -> String {
    if let Some(size) = exact {
        return format!("  {name} = add i64 {}, 0\n", size[usize::from(dimension)]);
    }
    let d = u32::from(dimension);
    let mut text = load_launch(&format!("{name}.launch"));
    let mut load = |what: &str, base: &str, ty: &str, offset: u32, align: u32| {
        text += &format!(
            "  {name}.{what}.at = getelementptr inbounds i8, ptr {base}, i64 {offset}\n  \
             {name}.{what} = load {ty}, ptr {name}.{what}.at, align {align}, !invariant.load !0\n"
        );
    };
    let launch = format!("{name}.launch");
    load("group32", "%ctx", "i32", GROUP + 4 * d, 4);
    load("full32", &launch, "i32", GROUP_SIZE + 4 * d, 4);
    load("global", &launch, "i64", GLOBAL_SIZE + 8 * d, 8);
    text + &format!(
        "  {name}.group = zext i32 {name}.group32 to i64
  {name}.full = zext i32 {name}.full32 to i64
  {name}.before = mul i64 {name}.group, {name}.full
  {name}.left = sub i64 {name}.global, {name}.before
  {name} = call i64 @llvm.umin.i64(i64 {name}.left, i64 {name}.full)
"
    )
}

pub(super) fn load_launch(name: &str) -> String {
    format!("  {name} = load ptr, ptr %ctx, align 8, !invariant.load !0\n")
}

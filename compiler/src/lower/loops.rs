// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loops over a group's items, and what an item begins with.

use super::types::{self, memory_type};
use super::unit::{MAX_ALIGN, Unit};
use crate::ir::GlobalId;

/// Initialises an item's private variables of module scope. `tag` keeps names apart.
pub(super) fn private_init(unit: &mut Unit<'_>, base: &str, tag: &str) -> String {
    let mut text = String::new();
    let privates: Vec<(GlobalId, u64)> = unit.privates.iter().map(|(&id, &at)| (id, at)).collect();
    for (id, offset) in privates {
        let global = &unit.module.globals[id];
        let ty = memory_type(unit.module, global.ty);
        let module = unit.module;
        let constant = |init| types::constant(module, init, true, &mut |id| unit.symbol(id));
        // The address of a local or private variable is no initialiser that SPIR-V allows.
        let value = global.init.and_then(constant);
        let value = value.unwrap_or_else(|| types::zero(module, global.ty).into());
        let align = global.align.clamp(1, MAX_ALIGN);
        text += &format!("  %{tag}.{id} = getelementptr i8, ptr {base}, i64 {offset}\n");
        text += &format!("  store {ty} {value}, ptr %{tag}.{id}, align {align}\n");
    }
    text
}

/// Three nested loops over the items, from `from` to block `to`. `body` sees `%x`, `%y`, `%z` and
/// is one block, unless it names its last block in `end`. `lanes` items are run at a time. All
/// names begin with `tag`.
pub(super) fn loops(tag: &str, from: &str, to: &str, end: &str, body: &str, lanes: u32) -> String {
    let first = format!("{tag}x.loop");
    let end = if end.is_empty() { &first } else { end };
    format!(
        "  br label %{tag}z.loop
{tag}z.loop:
  %{tag}z = phi i64 [ 0, %{from} ], [ %{tag}z.next, %{tag}y.done ]
  br label %{tag}y.loop
{tag}y.loop:
  %{tag}y = phi i64 [ 0, %{tag}z.loop ], [ %{tag}y.next, %{tag}x.done ]
  br label %{tag}x.loop
{tag}x.loop:
  %{tag}x = phi i64 [ 0, %{tag}y.loop ], [ %{tag}x.next, %{end} ]
{body}  %{tag}x.next = add nuw nsw i64 %{tag}x, {lanes}
  %{tag}x.last = icmp eq i64 %{tag}x.next, %nx
  br i1 %{tag}x.last, label %{tag}x.done, label %{tag}x.loop
{tag}x.done:
  %{tag}y.next = add nuw nsw i64 %{tag}y, 1
  %{tag}y.last = icmp eq i64 %{tag}y.next, %ny
  br i1 %{tag}y.last, label %{tag}y.done, label %{tag}y.loop
{tag}y.done:
  %{tag}z.next = add nuw nsw i64 %{tag}z, 1
  %{tag}z.last = icmp eq i64 %{tag}z.next, %nz
  br i1 %{tag}z.last, label %{to}, label %{tag}z.loop
"
    )
}

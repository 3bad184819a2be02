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

/// Three nested loops over the items, from block `items` to block `done`. `body` is one block and sees
/// `%x`, `%y`, `%z`. `lanes` items are run at a time.
pub(super) fn loops(body: &str, lanes: u32) -> String {
    format!(
        "  br label %z.loop
z.loop:
  %z = phi i64 [ 0, %items ], [ %z.next, %y.done ]
  br label %y.loop
y.loop:
  %y = phi i64 [ 0, %z.loop ], [ %y.next, %x.done ]
  br label %x.loop
x.loop:
  %x = phi i64 [ 0, %y.loop ], [ %x.next, %x.loop ]
{body}  %x.next = add nuw nsw i64 %x, {lanes}
  %x.last = icmp eq i64 %x.next, %nx
  br i1 %x.last, label %x.done, label %x.loop
x.done:
  %y.next = add nuw nsw i64 %y, 1
  %y.last = icmp eq i64 %y.next, %ny
  br i1 %y.last, label %y.done, label %y.loop
y.done:
  %z.next = add nuw nsw i64 %z, 1
  %z.last = icmp eq i64 %z.next, %nz
  br i1 %z.last, label %done, label %z.loop
"
    )
}

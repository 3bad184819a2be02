// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function that the device calls: runs the items of one work-group.

use super::function::Frame;
use super::types::{is_bool, memory_type};
use super::work_item::{ARGS, LOCAL, SCRATCH, load_context, local_size};
use super::{ENTRY, LowerError, MAX_ALIGN, Unit, function_symbol, group, types};
use crate::ir::{ArgKind, GlobalId, Kernel};

/// The parameters that every function takes first.
pub(super) const ITEM_PARAMS: &str =
    "ptr noalias readonly align 8 dereferenceable(48) %ctx, i64 %lx, i64 %ly, i64 %lz, ptr %priv";

/// Writes the entry function. `frame` is there if the kernel has barriers.
pub(super) fn lower(
    unit: &mut Unit<'_>,
    kernel: &Kernel,
    frame: Option<&Frame>,
) -> Result<String, LowerError> {
    let mut text = format!(
        "; kernel {:?}\ndefine void @{ENTRY}(ptr noalias readonly align 8 dereferenceable(48) %ctx) #0 {{\nentry:\n",
        kernel.name
    );
    for (name, offset) in [("%args", ARGS), ("%local", LOCAL), ("%scratch", SCRATCH)] {
        text += &load_context(name, offset);
    }
    for (dimension, name) in ["%nx", "%ny", "%nz"].into_iter().enumerate() {
        text += &local_size(name, dimension as u8);
    }
    unit.declare("i64", "llvm.umin.i64", "i64, i64");
    let args = arguments(unit, kernel, &mut text);
    let symbol = function_symbol(kernel.function);
    match frame {
        None => {
            text += &private_place(unit, "%priv");
            let call = format!(
                "{}  call void {symbol}(ptr %ctx, i64 %x, i64 %y, i64 %z, ptr %priv{args})\n",
                private_init(unit, "%priv", "x")
            );
            text += "  br label %items\nitems:\n";
            text += &loops("items", "done", "", &call);
        }
        Some(frame) => {
            text += &match &frame.exchange {
                Some(exchange) => group::phases(unit, &symbol, &args, frame, exchange),
                None => phases(unit, &symbol, &args, frame),
            }
        }
    }
    text += "done:\n  ret void\n}\nattributes #0 = { nounwind }\n";
    Ok(text)
}

/// Loads the arguments; gives what to append to the call's list.
fn arguments(unit: &Unit<'_>, kernel: &Kernel, text: &mut String) -> String {
    let mut list = String::new();
    for (index, arg) in kernel.args.iter().enumerate() {
        let name = format!("%arg{index}");
        let place = format!("{name}.at");
        *text += &format!("  {place} = getelementptr inbounds i8, ptr %args, i64 {}\n", arg.offset);
        let align = arg.align.clamp(1, MAX_ALIGN);
        let load = |ty: &str| format!("load {ty}, ptr {place}, align {align}, !invariant.load !0");
        let value = if arg.by_reference {
            list += &format!(", ptr {place}");
            continue;
        } else if arg.kind == ArgKind::LocalPointer {
            *text += &format!("  {name}.offset = {}\n", load("i64"));
            format!("getelementptr inbounds i8, ptr %local, i64 {name}.offset")
        } else if is_bool(unit.module, arg.ty) {
            let ty = memory_type(unit.module, arg.ty);
            *text += &format!("  {name}.byte = {}\n", load(&ty));
            format!("trunc {ty} {name}.byte to {}", types::value_type(unit.module, arg.ty))
        } else {
            load(&memory_type(unit.module, arg.ty))
        };
        let ty = match arg.kind {
            ArgKind::LocalPointer => "ptr".into(),
            _ => types::value_type(unit.module, arg.ty),
        };
        *text += &format!("  {name} = {value}\n");
        list += &format!(", {ty} {name}");
    }
    list
}

/// The place of the private variables of module scope when one serves all items.
fn private_place(unit: &Unit<'_>, name: &str) -> String {
    match unit.private_size {
        0 => format!("  {name} = getelementptr i8, ptr %scratch, i64 0\n"),
        // `Unit::new` has put them at the start of the scratch memory.
        _ if unit.spill_variables => format!("  {name} = getelementptr i8, ptr %scratch, i64 0\n"),
        size => format!("  {name} = alloca [{size} x i8], align {MAX_ALIGN}\n"),
    }
}

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
/// is one block, unless it names its last block in `end`.
fn loops(from: &str, to: &str, end: &str, body: &str) -> String {
    let end = if end.is_empty() { "x.loop" } else { end };
    format!(
        "  br label %z.loop
z.loop:
  %z = phi i64 [ 0, %{from} ], [ %z.next, %y.done ]
  br label %y.loop
y.loop:
  %y = phi i64 [ 0, %z.loop ], [ %y.next, %x.done ]
  br label %x.loop
x.loop:
  %x = phi i64 [ 0, %y.loop ], [ %x.next, %{end} ]
{body}  %x.next = add nuw nsw i64 %x, 1
  %x.last = icmp eq i64 %x.next, %nx
  br i1 %x.last, label %x.done, label %x.loop
x.done:
  %y.next = add nuw nsw i64 %y, 1
  %y.last = icmp eq i64 %y.next, %ny
  br i1 %y.last, label %y.done, label %y.loop
y.done:
  %z.next = add nuw nsw i64 %z, 1
  %z.last = icmp eq i64 %z.next, %nz
  br i1 %z.last, label %{to}, label %z.loop
"
    )
}

/// The loop over phases of a kernel with barriers. An item's frame begins with its state: 0 at
/// first, the number of the barrier where it stopped, or -1 when it has ended.
fn phases(unit: &mut Unit<'_>, symbol: &str, args: &str, frame: &Frame) -> String {
    let stride = frame.size;
    let fixed = unit.scratch_fixed();
    let private = frame.private_offset;
    let init = private_init(unit, "%init.priv", "init");
    let body = format!(
        "  %row = mul i64 %z, %ny
  %row.y = add i64 %row, %y
  %column = mul i64 %row.y, %nx
  %index = add i64 %column, %x
  %offset = mul i64 %index, {stride}
  %frame = getelementptr i8, ptr %frames, i64 %offset
  %state = load i32, ptr %frame, align 4
  %ended = icmp eq i32 %state, -1
  br i1 %ended, label %next, label %run
run:
  %priv = getelementptr i8, ptr %frame, i64 {private}
  %stop = call i32 {symbol}(ptr %ctx, i64 %x, i64 %y, i64 %z, ptr %priv, ptr %frame, i32 %state{args})
  store i32 %stop, ptr %frame, align 4
  %waits = icmp ne i32 %stop, -1
  %waits.before = load i1, ptr %waiting, align 1
  %waits.any = or i1 %waits.before, %waits
  store i1 %waits.any, ptr %waiting, align 1
  br label %next
next:
"
    );
    format!(
        "  %frames = getelementptr i8, ptr %scratch, i64 {fixed}
  %waiting = alloca i1
  %items.xy = mul i64 %nx, %ny
  %items = mul i64 %items.xy, %nz
  br label %init
init:
  %init.i = phi i64 [ 0, %entry ], [ %init.next, %init ]
  %init.offset = mul i64 %init.i, {stride}
  %init.frame = getelementptr i8, ptr %frames, i64 %init.offset
  store i32 0, ptr %init.frame, align 4
  %init.priv = getelementptr i8, ptr %init.frame, i64 {private}
{init}  %init.next = add nuw nsw i64 %init.i, 1
  %init.last = icmp eq i64 %init.next, %items
  br i1 %init.last, label %phase, label %init
phase:
  store i1 false, ptr %waiting, align 1
{}phase.done:
  %again = load i1, ptr %waiting, align 1
  br i1 %again, label %phase, label %done
",
        loops("phase", "phase.done", "next", &body)
    )
}

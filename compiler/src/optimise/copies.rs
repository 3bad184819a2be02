// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns copies of few bytes from or to a private variable into loads and stores of the variable's
//! parts.
//!
//! C compilers write an assignment of structures as a copy of bytes.
//!
//! ```text
//!   copy %a, %b, 8 align 4          %3: f32 = load %b align 4
//!                                   %4 = address %b + 4
//!                            ──▶    %5 = address %a + 4
//!                                   %6: i32 = load %4 align 4
//!                                   store %a, %3 align 4
//!                                   store %5, %6 align 4
//! ```
//!
//! Padding between the members of a structure is copied as integers: a union may have data there.

use super::units::{Unit, constant_offset, units};
use crate::ir::{
    Access, ConvertOp, Definition, Function, Id, Inst, Module, Op, Operand, TypeId, ValueId,
    definitions,
};

/// The maximum size of a copy that is replaced, in bytes.
const MAX_BYTES: u64 = 256;

/// Replaces such copies.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    if !has_copies(function) || function.variables.is_empty() {
        return;
    }
    let places = private_places(module, function);
    for id in function.blocks.ids() {
        let insts = std::mem::take(&mut function.blocks[id].insts);
        let mut out = Vec::with_capacity(insts.len());
        for inst in insts {
            match parts(module, &places, &inst.op) {
                Some(parts) => write(module, function, &mut out, &inst, &parts),
                None => out.push(inst),
            }
        }
        function.blocks[id].insts = out;
    }
}

fn has_copies(function: &Function) -> bool {
    let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    insts.any(|inst| matches!(inst.op, Op::Copy(..)))
}

/// For each value that is an address in a private variable: that variable's type, and the offset.
fn private_places(module: &Module, function: &Function) -> Vec<Option<(TypeId, u64)>> {
    let mut places: Vec<Option<(TypeId, u64)>> = vec![None; function.values.len()];
    for variable in &function.variables {
        places[variable.address.index()] = Some((variable.ty, 0));
    }
    let definitions = definitions(function);
    for value in function.values.ids() {
        let mut way = vec![value];
        // Up to a known address, and back.
        while let Some(&top) = way.last()
            && places[top.index()].is_none()
            && let Some((base, _)) = step(module, function, &definitions, top)
        {
            way.push(base);
        }
        let mut place = way.pop().and_then(|top| places[top.index()]);
        while let Some(value) = way.pop() {
            let offset = step(module, function, &definitions, value).map(|(_, offset)| offset);
            place = place
                .zip(offset)
                .and_then(|((ty, at), offset)| Some((ty, at.checked_add_signed(offset)?)));
            places[value.index()] = place;
        }
    }
    places
}

/// The value that an address is computed from, and its offset from there if that is constant.
fn step(
    module: &Module,
    function: &Function,
    definitions: &[Option<Definition>],
    value: ValueId,
) -> Option<(ValueId, i64)> {
    let Some(Definition::Inst(block, index)) = definitions[value.index()] else { return None };
    match &function.blocks[block].insts[index].op {
        Op::Address { base: Operand::Value(base), offset, terms, .. } => {
            Some((*base, constant_offset(module, *offset, terms)?))
        }
        Op::Convert(ConvertOp::PtrCast, Operand::Value(base)) => Some((*base, 0)),
        _ => None,
    }
}

/// The parts of a copy that is to be replaced, relative to its start; `None` if it is kept.
fn parts(module: &mut Module, places: &[Option<(TypeId, u64)>], op: &Op) -> Option<Vec<Unit>> {
    let Op::Copy(to, from, Operand::Const(len), access) = *op else { return None };
    let len = module.const_bits(len)?;
    if access.volatile || len == 0 || len > MAX_BYTES {
        return None;
    }
    let place = |operand| match operand {
        Operand::Value(value) => places[value.index()],
        Operand::Const(_) => None,
    };
    let (ty, start) = place(to).or_else(|| place(from))?;
    let end = start.checked_add(len)?;
    let mut all = Vec::new();
    if !units(&module.types, ty, 0, &mut all) {
        return None;
    }
    all.retain(|unit| unit.offset < end && unit.end() > start);
    let mut parts = Vec::new();
    let mut at = start;
    for unit in all {
        if unit.offset < at || unit.end() > end {
            return None;
        }
        fill(module, start, at, unit.offset, &mut parts);
        at = unit.end();
        parts.push(Unit { offset: unit.offset - start, ..unit });
    }
    fill(module, start, at, end, &mut parts);
    Some(parts)
}

/// Integers for the bytes between two offsets.
fn fill(module: &mut Module, start: u64, from: u64, to: u64, parts: &mut Vec<Unit>) {
    let mut at = from;
    while at < to {
        let room = 1 << (to - at).ilog2();
        let aligned = if at == 0 { 8 } else { 1 << at.trailing_zeros().min(3) };
        let size: u64 = aligned.min(room);
        let ty = module.types.int(size as u32 * 8);
        parts.push(Unit { offset: at - start, ty, size });
        at += size;
    }
}

fn write(
    module: &Module,
    function: &mut Function,
    out: &mut Vec<Inst>,
    copy: &Inst,
    parts: &[Unit],
) {
    let Op::Copy(to, from, _, access) = copy.op else { return };
    let mut loads = Vec::new();
    let mut stores = Vec::new();
    for part in parts {
        let mut at = |function: &mut Function, base: Operand| {
            if part.offset == 0 {
                return base;
            }
            let result = function.new_value(module.operand_type(function, base));
            let offset = part.offset as i64;
            loads.push((
                Op::Address { base, offset, terms: Vec::new(), inbounds: true },
                Some(result),
            ));
            Operand::Value(result)
        };
        let (source, target) = (at(function, from), at(function, to));
        let known = 1u32 << part.offset.trailing_zeros().min(16);
        let align = if part.offset == 0 { access.align } else { access.align.min(known) };
        let access = Access { align, ..access };
        let value = function.new_value(part.ty);
        loads.push((Op::Load(source, access), Some(value)));
        stores.push((Op::Store(target, Operand::Value(value), access), None));
    }
    // The ranges may overlap, so all is read before anything is written.
    let both = loads.into_iter().chain(stores);
    out.extend(both.map(|(op, result)| Inst { result, op, flags: copy.flags, loc: copy.loc }));
}

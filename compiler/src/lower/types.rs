// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types and constants in LLVM's notation.
//!
//! A `bool` is `i1` as a value and a byte in memory. Inside structures and arrays it is the byte in
//! both cases, so that an aggregate has one LLVM type; it is converted when it is extracted or
//! inserted.

use crate::ir::{ConstId, ConstKind, Float, Module, Type, TypeId};

/// LLVM's type of a value.
pub(super) fn value_type(module: &Module, ty: TypeId) -> String {
    match &module.types[ty] {
        Type::Bool => "i1".into(),
        Type::Vector(element, n) if module.types[*element] == Type::Bool => format!("<{n} x i1>"),
        _ => memory_type(module, ty),
    }
}

/// LLVM's type of a value in memory, or in an aggregate.
pub(super) fn memory_type(module: &Module, ty: TypeId) -> String {
    match &module.types[ty] {
        Type::Void => "void".into(),
        Type::Bool => "i8".into(),
        Type::Int(bits) => format!("i{bits}"),
        Type::Float(Float::F16) => "half".into(),
        Type::Float(Float::F32) => "float".into(),
        Type::Float(Float::F64) => "double".into(),
        // Checked modules have no opaque values; the parser's placeholders become pointers.
        Type::Pointer(_) | Type::Opaque(_) => "ptr".into(),
        Type::Vector(element, n) => format!("<{n} x {}>", memory_type(module, *element)),
        Type::Array(element, n) => format!("[{n} x {}]", memory_type(module, *element)),
        Type::Struct { members, packed } => {
            let members: Vec<_> = members.iter().map(|&m| memory_type(module, m)).collect();
            let members = members.join(", ");
            if *packed { format!("<{{ {members} }}>") } else { format!("{{ {members} }}") }
        }
    }
}

/// The suffix of an intrinsic's name for a type: `v4f32`.
pub(super) fn suffix(module: &Module, ty: TypeId) -> String {
    match &module.types[ty] {
        Type::Bool => "i1".into(),
        Type::Int(bits) => format!("i{bits}"),
        Type::Float(float) => format!("f{}", float.bits()),
        Type::Vector(element, n) => format!("v{n}{}", suffix(module, *element)),
        _ => "p0".into(),
    }
}

/// Whether values of the type are `bool` or vectors of it: their two forms differ.
pub(super) fn is_bool(module: &Module, ty: TypeId) -> bool {
    module.types[module.types.element(ty)] == Type::Bool
}

/// The type of a component: of a vector, an array or a structure.
pub(super) fn component(module: &Module, ty: TypeId, index: u32) -> Option<TypeId> {
    match &module.types[ty] {
        Type::Vector(element, _) | Type::Array(element, _) => Some(*element),
        Type::Struct { members, .. } => members.get(index as usize).copied(),
        _ => None,
    }
}

/// An integer of type `ty`, or a vector with it in every component.
pub(super) fn splat_int(module: &Module, ty: TypeId, value: i64) -> String {
    match &module.types[ty] {
        Type::Vector(element, _) => format!("splat ({} {value})", value_type(module, *element)),
        _ => value.to_string(),
    }
}

/// The text of a constant whose addresses, if any, are of globals with a symbol; `symbol` returns it.
/// `None` if the constant holds another address: those are known only at run time.
///
/// An undefined constant is written as zero, as in the interpreter: LLVM's own `undef` may differ from
/// use to use.
pub(super) fn constant(
    module: &Module,
    id: ConstId,
    in_memory: bool,
    symbol: &mut dyn FnMut(crate::ir::GlobalId) -> Option<String>,
) -> Option<String> {
    let constant_of = &module.constants[id];
    let ty = constant_of.ty;
    Some(match &constant_of.kind {
        ConstKind::Undef | ConstKind::Null => zero(module, ty).into(),
        ConstKind::Bits(bits) => scalar(module, ty, *bits, in_memory),
        ConstKind::Address(global, 0) => symbol(*global)?,
        ConstKind::Address(global, addend) => {
            format!("getelementptr (i8, ptr {}, i64 {addend})", symbol(*global)?)
        }
        ConstKind::Composite(parts) => {
            let vector = matches!(module.types[ty], Type::Vector(..));
            // A vector's components have the vector's own form; an aggregate's have their form in
            // memory.
            let part_in_memory = in_memory || !vector;
            let mut texts = Vec::with_capacity(parts.len());
            for &part in parts {
                let part_ty = module.constants[part].ty;
                let ty = if part_in_memory {
                    memory_type(module, part_ty)
                } else {
                    value_type(module, part_ty)
                };
                texts.push(format!("{ty} {}", constant(module, part, part_in_memory, symbol)?));
            }
            let parts = texts.join(", ");
            match &module.types[ty] {
                Type::Vector(..) => format!("<{parts}>"),
                Type::Array(..) => format!("[{parts}]"),
                Type::Struct { packed: true, .. } => format!("<{{ {parts} }}>"),
                _ => format!("{{ {parts} }}"),
            }
        }
    })
}

/// Zero of any type.
pub(super) fn zero(module: &Module, ty: TypeId) -> &'static str {
    match module.types[ty] {
        Type::Bool | Type::Int(_) => "0",
        Type::Pointer(_) => "null",
        _ => "zeroinitializer",
    }
}

/// A scalar by its bits.
pub(super) fn scalar(module: &Module, ty: TypeId, bits: u64, in_memory: bool) -> String {
    match module.types[ty] {
        Type::Bool if in_memory => "1".into(),
        Type::Bool => "true".into(),
        Type::Float(Float::F16) => format!("0xH{bits:04X}"),
        Type::Float(Float::F32) => {
            let value = f32::from_bits(bits as u32);
            if value.is_nan() {
                // LLVM writes an f32 as the f64 of the same value, which loses a NaN's bits.
                format!("bitcast (i32 {} to float)", bits as u32)
            } else {
                format!("0x{:016X}", f64::from(value).to_bits())
            }
        }
        Type::Float(Float::F64) => format!("0x{bits:016X}"),
        Type::Pointer(_) => format!("inttoptr (i64 {bits} to ptr)"),
        _ => bits.to_string(),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads, stores, prefetches and fences of Intel's load/store cache, which kernels for Intel's GPUs call as
//! `__builtin_IB_lsc_load_global_uint2` and the like. Intel's graphics compiler defines them
//! (`IGCBiF_Intrinsics_Lsc.cl`); its headers do not, so kernels declare them.
//!
//! - `load_SPACE_TYPE(base, offset, cache)`, `store_SPACE_TYPE(base, offset, value, cache)`,
//!   `prefetch_SPACE_TYPE(base, offset, cache)`; in local memory without `cache`. `offset` counts elements.
//! - TYPE is `uint`, `ulong` or a vector of them, without padding: three components take three words. With
//!   `uchar_to_uint` and the like the element in memory is narrower than the value.
//! - `cache` says what each cache of the GPU does. Here it only decides whether an access may be merged with
//!   others or moved out of a loop: kernels poll with what bypasses the first cache.

use super::body::Body;
use super::error::Result;
use super::mangled::demangle;
use super::memory::plain_access;
use super::words::Instruction;
use crate::ir::{Access, Op, Operand, Ordering, Scope, Type, TypeId};

/// Translates a call of such a function; returns whether it is one.
///
/// SYCL's programs declare them with C++'s names or C's.
pub fn call(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    name: &str,
    args: &[Operand],
) -> Result<bool> {
    let name = demangle(name).map_or(name, |(name, _)| name);
    let Some(name) = name.strip_prefix("__builtin_IB_lsc_") else { return Ok(false) };
    let (verb, rest) = name.split_once('_').unwrap_or((name, ""));
    let of = |space: &str| rest.strip_prefix(space).and_then(|rest| rest.strip_prefix('_'));
    let Some(kind) = of("global").or_else(|| of("local")) else {
        return Ok(verb == "fence" && fence(body));
    };
    match (verb, args) {
        ("fence", _) => return Ok(fence(body)),
        ("prefetch", _) => {}
        ("load", &[base, offset, ref cache @ ..]) => {
            let ty = body.result_type(inst)?;
            let Some(memory) = element(body, ty, kind, "_to_uint") else { return Ok(false) };
            let place = place(body, base, offset, memory);
            let access = access(body, memory, cache);
            let mut value = body.emit(memory, Op::Load(place, access));
            if memory != ty {
                value = body.resize_int(value, ty, false);
            }
            body.set_result(inst, value)?;
        }
        ("store", &[base, offset, mut value, ref cache @ ..]) => {
            let ty = body.type_of(value);
            let Some(memory) = element(body, ty, kind, "_from_uint") else { return Ok(false) };
            let place = place(body, base, offset, memory);
            let access = access(body, memory, cache);
            if memory != ty {
                value = body.resize_int(value, memory, false);
            }
            body.emit_void(Op::Store(place, value, access));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// All memory is ordered, whichever of the GPU's ports and scopes the arguments name.
fn fence(body: &mut Body<'_, '_>) -> bool {
    body.emit_void(Op::Fence(Scope::System, Ordering::SeqCst));
    true
}

/// The type in memory of a value of type `ty`; `None` if the function's name says another one.
fn element(body: &mut Body<'_, '_>, ty: TypeId, kind: &str, widened: &str) -> Option<TypeId> {
    let types = &mut body.b.module.types;
    if let Some(narrow) = kind.strip_suffix(widened) {
        let bits = match narrow {
            "uchar" => 8,
            "ushort" => 16,
            _ => return None,
        };
        return (types[ty] == Type::Int(32)).then(|| types.int(bits));
    }
    let (stem, count) = match kind.find(|c: char| c.is_ascii_digit()) {
        Some(at) => (&kind[..at], kind[at..].parse().ok()?),
        None => (kind, 1),
    };
    let bits = match stem {
        "uint" => 32,
        "ulong" => 64,
        _ => return None,
    };
    let component = match types[ty] {
        Type::Vector(component, n) if n == count => component,
        _ if count == 1 => ty,
        _ => return None,
    };
    (types[component] == Type::Int(bits)).then_some(ty)
}

/// The address of the element.
fn place(body: &mut Body<'_, '_>, base: Operand, offset: Operand, memory: TypeId) -> Operand {
    let components = body.b.component_count(memory).max(1);
    let stride = (components * component_size(body, memory)) as i64;
    match body.signed_constant(offset) {
        Some(0) => base,
        Some(offset) => body.address(base, offset.wrapping_mul(stride), Vec::new(), false),
        None => body.address(base, 0, vec![(offset, stride)], false),
    }
}

/// Vectors need the alignment of a component, and the first cache is only there for the work-group's own values.
fn access(body: &Body<'_, '_>, memory: TypeId, cache: &[Operand]) -> Access {
    // The numbers of LSC_L1UC_L3UC and LSC_L1UC_L3C; those of stores are the same.
    let bypasses = |&option: &Operand| !matches!(body.signed_constant(option), Some(0 | 3..));
    let volatile = cache.iter().any(bypasses);
    Access { volatile, ..plain_access(component_size(body, memory)) }
}

fn component_size(body: &Body<'_, '_>, ty: TypeId) -> u64 {
    let types = &body.b.module.types;
    match types[ty] {
        Type::Vector(component, _) => types.size(component),
        _ => types.size(ty),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Built-in functions of OpenCL C that LLVM's SPIR-V back end leaves as calls under their mangled
//! names: conversions to `half` and `double`, memory fences, and queries of pointers.

use super::body::Body;
use super::controls::Rounding;
use super::mangled::demangle;
use crate::ir::{ConvertOp, Op, Operand, Ordering, Scope, Type, TypeId};

/// Translates a call that has no result; `false` if the function is not known.
pub fn effect(body: &mut Body<'_, '_>, name: &str) -> bool {
    let ordering = match demangle(name) {
        Some(("mem_fence", _)) => Ordering::AcqRel,
        Some(("read_mem_fence", _)) => Ordering::Acquire,
        Some(("write_mem_fence", _)) => Ordering::Release,
        _ => return false,
    };
    // "Orders loads and stores of a work-item" for others of its group.
    body.emit_void(Op::Fence(Scope::Workgroup, ordering));
    true
}

/// The value of a call of type `ty`; `None` if the function is not known.
pub fn value(body: &mut Body<'_, '_>, name: &str, args: &[Operand], ty: TypeId) -> Option<Operand> {
    let &a = args.first()?;
    if matches!(name, "__to_global" | "__to_local" | "__to_private") {
        // All address spaces are ranges of one flat space.
        return matches!(body.b.module.types[ty], Type::Pointer(_))
            .then(|| body.pointer_cast(a, ty));
    }
    let (name, params) = demangle(name)?;
    if name == "get_fence" {
        // CLK_LOCAL_MEM_FENCE and CLK_GLOBAL_MEM_FENCE: the original one is unknown.
        return Some(body.int(ty, 3));
    }
    let conversion = Conversion::read(name.strip_prefix("convert_")?)?;
    let signed = is_signed(params)?;
    let types = &body.b.module.types;
    let from = body.type_of(a);
    if types.lanes(from) != types.lanes(ty) {
        return None;
    }
    let is_float = |ty| matches!(types[types.element(ty)], Type::Float(_));
    let (from_float, to_float) = (is_float(from), is_float(ty));
    let rounding = conversion.rounding;
    Some(match (from_float, to_float) {
        (true, true) => body.float_to_float(a, ty, rounding.unwrap_or(Rounding::Nearest)),
        (false, true) => body.int_to_float(a, ty, signed, rounding.unwrap_or(Rounding::Nearest)),
        (true, false) => {
            let a = body.round_to_integral(a, rounding.unwrap_or(Rounding::Zero));
            let op = match (conversion.signed, conversion.saturated) {
                (true, true) => ConvertOp::FToSSat,
                (true, false) => ConvertOp::FToS,
                (false, true) => ConvertOp::FToUSat,
                (false, false) => ConvertOp::FToU,
            };
            body.emit(ty, Op::Convert(op, a))
        }
        (false, false) if conversion.saturated => {
            body.saturate_int(a, ty, signed, conversion.signed)
        }
        (false, false) => body.resize_int(a, ty, signed),
    })
}

/// The parts of the name of a conversion.
struct Conversion {
    /// The result is a signed integer, or a float.
    signed: bool,
    saturated: bool,
    rounding: Option<Rounding>,
}

impl Conversion {
    /// Reads a name such as `uchar4_sat_rte`, the part behind `convert_`.
    fn read(name: &str) -> Option<Self> {
        let mut words = name.split('_');
        let ty = words.next()?.trim_end_matches(|c: char| c.is_ascii_digit());
        let signed = match ty {
            "char" | "short" | "int" | "long" | "half" | "float" | "double" => true,
            "uchar" | "ushort" | "uint" | "ulong" => false,
            _ => return None,
        };
        let mut this = Self { signed, saturated: false, rounding: None };
        for word in words {
            match word {
                "sat" => this.saturated = true,
                "rte" => this.rounding = Some(Rounding::Nearest),
                "rtz" => this.rounding = Some(Rounding::Zero),
                "rtp" => this.rounding = Some(Rounding::Up),
                "rtn" => this.rounding = Some(Rounding::Down),
                _ => return None,
            }
        }
        Some(this)
    }
}

/// Whether the only parameter, mangled, is signed: `i`, `Dv4_h`, `Dh`.
fn is_signed(params: &str) -> Option<bool> {
    let element = match params.strip_prefix("Dv") {
        Some(vector) => vector.split_once('_')?.1,
        None => params,
    };
    match element {
        "c" | "a" | "s" | "i" | "l" | "x" | "f" | "d" | "Dh" | "DF16_" => Some(true),
        "h" | "t" | "j" | "m" | "y" => Some(false),
        _ => None,
    }
}

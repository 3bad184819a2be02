// SPDX-License-Identifier: MIT OR Apache-2.0
//! States of values: an integer for each scalar, with one byte for each byte of the scalar, in the
//! layout of the shadow of its memory.

use tally_compiler_protocol::checks::{ACCESSIBLE, DEFINED, UNDEFINED};

use crate::ir::{ConstKind, Module, Operand, Type, TypeId};

/// The type of the states of values of a type.
pub(super) fn state_type(module: &mut Module, ty: TypeId) -> TypeId {
    let new = match module.types[ty].clone() {
        Type::Vector(element, n) => Type::Vector(state_type(module, element), n),
        Type::Array(element, n) => Type::Array(state_type(module, element), n),
        Type::Struct { members, packed } => {
            let members = members.iter().map(|&member| state_type(module, member)).collect();
            Type::Struct { members, packed }
        }
        Type::Void | Type::Opaque(_) => return ty,
        _ => Type::Int(module.types.size(ty) as u32 * 8),
    };
    // This succeeds: the new type is as large as one that exists.
    module.types.intern(new).unwrap_or(ty)
}

/// A state repeated in all bytes of an integer of `bits` bits.
pub(super) fn repeated(state: u8, bits: u32) -> u64 {
    u64::from_le_bytes([state; 8]) & (u64::MAX >> (64 - bits.clamp(1, 64)))
}

/// A state repeated in all bytes of a value; `ty` is a type of states.
pub(super) fn all(module: &mut Module, ty: TypeId, state: u8) -> Operand {
    let (part, count) = match module.types[ty].clone() {
        Type::Int(bits) => {
            return Operand::Const(module.const_int(ty, repeated(state, bits)));
        }
        Type::Vector(element, n) => (vec![element; 1], n as usize),
        Type::Array(element, n) => (vec![element; 1], n as usize),
        Type::Struct { members, .. } => (members, 1),
        _ => return Operand::Const(module.constant(ty, ConstKind::Undef)),
    };
    let mut parts = Vec::with_capacity(part.len() * count);
    for member in part {
        if let Operand::Const(id) = all(module, member, state) {
            parts.extend(std::iter::repeat_n(id, count));
        }
    }
    Operand::Const(module.constant(ty, ConstKind::Composite(parts)))
}

/// The property that a check requires of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All bytes are defined.
    Defined,
    /// All bytes are accessible.
    Accessible,
}

impl Wanted {
    /// The mask of the bits that are compared, if not all are, and their value if the check succeeds.
    pub(super) fn bits(self) -> (Option<u8>, u8) {
        match self {
            Self::Defined => (None, DEFINED),
            Self::Accessible => (Some(ACCESSIBLE), ACCESSIBLE),
        }
    }
}

/// The states of a scalar that is not known to be defined.
pub(super) const UNKNOWN: u8 = UNDEFINED;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scalars and vectors in a type, with their offsets.

use crate::ir::{Module, Operand, Type, TypeId, Types};

/// The maximum number of parts of a type that is split.
pub(super) const MAX_UNITS: usize = 128;

/// A scalar or a vector at an offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) offset: u64,
    pub(super) ty: TypeId,
    /// The bytes that an access touches: a vector of three has three components.
    pub(super) size: u64,
}

impl Unit {
    /// The unit of a scalar or vector type.
    pub(super) fn new(types: &Types, ty: TypeId, offset: u64) -> Self {
        let size = types.size(types.element(ty)) * u64::from(types.lanes(ty));
        Self { offset, ty, size }
    }

    /// The offset behind it.
    pub(super) fn end(self) -> u64 {
        self.offset + self.size
    }
}

/// Adds the parts of a type at an offset, in ascending order. `false` if there are too many, or if a
/// part is of a type that cannot be accessed.
pub(super) fn units(types: &Types, ty: TypeId, offset: u64, out: &mut Vec<Unit>) -> bool {
    match &types[ty] {
        Type::Array(element, n) => {
            let stride = types.stride(*element);
            *n <= MAX_UNITS as u64
                && (0..*n).all(|i| units(types, *element, offset + i * stride, out))
        }
        Type::Struct { members, .. } => (0..).zip(members).all(|(i, &member)| {
            let at = types.member_offset(ty, i);
            at.is_some_and(|at| units(types, member, offset + at, out))
        }),
        Type::Void | Type::Opaque(_) => false,
        _ => {
            out.push(Unit::new(types, ty, offset));
            out.len() <= MAX_UNITS
        }
    }
}

/// The constant distance of an address from its base, if it is constant.
pub(super) fn constant_offset(
    module: &Module,
    offset: i64,
    terms: &[(Operand, i64)],
) -> Option<i64> {
    terms.iter().try_fold(offset, |sum, &(index, stride)| {
        let Operand::Const(index) = index else { return None };
        let unused = 64 - module.types.scalar_bits(module.constants[index].ty).clamp(1, 64);
        let index = ((module.const_bits(index)? << unused) as i64) >> unused;
        Some(sum.wrapping_add(index.wrapping_mul(stride)))
    })
}

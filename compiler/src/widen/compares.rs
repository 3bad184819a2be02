// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparisons in other forms.

use crate::ir::CompareOp;

/// The comparison with its sides exchanged.
pub(super) fn mirrored(kind: CompareOp) -> CompareOp {
    use CompareOp as C;
    match kind {
        C::ULt => C::UGt,
        C::ULe => C::UGe,
        C::UGt => C::ULt,
        C::UGe => C::ULe,
        C::SLt => C::SGt,
        C::SLe => C::SGe,
        C::SGt => C::SLt,
        C::SGe => C::SLe,
        other => other,
    }
}

/// The comparison that holds where one does not.
pub(super) fn opposite(op: CompareOp) -> Option<CompareOp> {
    Some(match op {
        CompareOp::Eq => CompareOp::Ne,
        CompareOp::UGe => CompareOp::ULt,
        CompareOp::SGe => CompareOp::SLt,
        CompareOp::ULe => CompareOp::UGt,
        CompareOp::SLe => CompareOp::SGt,
        CompareOp::UGt => CompareOp::ULe,
        CompareOp::SGt => CompareOp::SLe,
        CompareOp::ULt => CompareOp::UGe,
        CompareOp::SLt => CompareOp::SGe,
        _ => return None,
    })
}

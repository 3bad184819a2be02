// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries of work-items for their places in groups, and operations that the items of a group compute
//! together.

use super::eval::float_bits;
use super::named::named_enum;
use super::operators::BinaryOp;
use super::types::{Float, Scalar};

/// The size of a full sub-group where the kernel does not ask for one.
pub const DEFAULT_SUBGROUP_SIZE: u32 = 16;

named_enum! {
    /// A query of a work-item for its place. The result is of type `i64` unless noted.
    WorkItemQuery {
        /// Global id, with the global offset. Has a dimension.
        GlobalId = "global_id",
        /// Number of work-items of the launch. Has a dimension.
        GlobalSize = "global_size",
        /// Offset of the global ids. Has a dimension.
        GlobalOffset = "global_offset",
        /// Id of the work-group. Has a dimension.
        GroupId = "group_id",
        /// Number of work-groups. Has a dimension.
        NumGroups = "num_groups",
        /// Id within the work-group. Has a dimension.
        LocalId = "local_id",
        /// Size of this work-group, smaller in a partial last group. Has a dimension.
        LocalSize = "local_size",
        /// Size of a full work-group. Has a dimension.
        EnqueuedLocalSize = "enqueued_local_size",
        /// Number of dimensions of the launch, `i32`.
        WorkDim = "work_dim",
        /// Global id as one number, without the offset.
        GlobalLinearId = "global_linear_id",
        /// Local id as one number.
        LocalLinearId = "local_linear_id",
        /// Size of this sub-group, `i32`.
        SubgroupSize = "subgroup_size",
        /// Size of a full sub-group, `i32`.
        SubgroupMaxSize = "subgroup_max_size",
        /// Sub-groups of this work-group, `i32`.
        NumSubgroups = "num_subgroups",
        /// Sub-groups of a full work-group, `i32`.
        NumEnqueuedSubgroups = "num_enqueued_subgroups",
        /// Id of the sub-group within the work-group, `i32`.
        SubgroupId = "subgroup_id",
        /// Id within the sub-group, `i32`.
        SubgroupLocalId = "subgroup_local_id",
    }
}

impl WorkItemQuery {
    /// Whether the query has a dimension, 0, 1 or 2.
    pub fn has_dimension(self) -> bool {
        use WorkItemQuery::*;
        matches!(
            self,
            GlobalId
                | GlobalSize
                | GlobalOffset
                | GroupId
                | NumGroups
                | LocalId
                | LocalSize
                | EnqueuedLocalSize
        )
    }

    /// Whether the query is about sub-groups.
    pub fn is_subgroup(self) -> bool {
        use WorkItemQuery::*;
        matches!(
            self,
            SubgroupSize
                | SubgroupMaxSize
                | NumSubgroups
                | NumEnqueuedSubgroups
                | SubgroupId
                | SubgroupLocalId
        )
    }

    /// The width of the result in bits: 64 or 32.
    pub fn bits(self) -> u32 {
        if self.is_subgroup() || self == WorkItemQuery::WorkDim { 32 } else { 64 }
    }
}

/// The ways in which the values that work-items have offered are combined ([`super::Op::Collect`]). The
/// items are in the order of their linear ids; combining begins with the [`identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupOp {
    /// All values combined. With a number of items, which is a power of two: the values of each cluster
    /// of so many adjacent items, combined separately.
    Reduce(BinaryOp, Option<u32>),
    /// The values up to the item's own, combined.
    InclusiveScan(BinaryOp),
    /// The values before the item's own, combined.
    ExclusiveScan(BinaryOp),
    /// The value of the item with an index; the item's own if there is none with this index.
    Shuffle,
    /// The item's part of a product of matrices, added to its part of a third one. Each item offers a
    /// structure of two arrays, its parts of the factors.
    MulAdd(Product),
}

/// A product of matrices that are spread over the items of a sub-group: element `e` of a matrix, counted along
/// its rows, is component `e / lanes` of the item with the number `e % lanes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Rows of the first factor and of the result.
    pub rows: u32,
    /// Columns of the second factor and of the result.
    pub columns: u32,
    /// Columns of the first factor, and rows of the second one.
    pub depth: u32,
    /// Items of a full sub-group.
    pub lanes: u32,
    /// Whether the elements of the factors are signed integers of 16 bits, and those of the result have 32;
    /// else all have one type.
    pub narrow: bool,
    /// Whether the addition saturates.
    pub saturation: Saturation,
}

named_enum! {
    /// Whether an addition saturates, and as which numbers.
    Saturation {
        /// It wraps around, or is one of floats.
        None = "",
        /// As signed integers.
        Signed = " saturating signed",
        /// As unsigned integers.
        Unsigned = " saturating unsigned",
    }
}

impl Product {
    /// The number of components of the first factor that an item has.
    pub fn first(self) -> u32 {
        (self.rows * self.depth).div_ceil(self.lanes)
    }

    /// The number of components of the second factor that an item has.
    pub fn second(self) -> u32 {
        (self.depth * self.columns).div_ceil(self.lanes)
    }

    /// The number of components of the result that an item has.
    pub fn result(self) -> u32 {
        (self.rows * self.columns).div_ceil(self.lanes)
    }

    /// Row and column of a component of an item's part of the result; `None` if the matrix has no such
    /// element.
    pub fn place(self, component: u32, lane: u32) -> Option<(u32, u32)> {
        let element = component * self.lanes + lane;
        let place = (element / self.columns, element % self.columns);
        (element < self.rows * self.columns).then_some(place)
    }
}

impl GroupOp {
    /// The operator that combines the values, if values are combined.
    pub fn combines(self) -> Option<BinaryOp> {
        match self {
            GroupOp::Reduce(op, _) | GroupOp::InclusiveScan(op) | GroupOp::ExclusiveScan(op) => {
                Some(op)
            }
            GroupOp::Shuffle | GroupOp::MulAdd(_) => None,
        }
    }

    /// The name in the textual form.
    pub fn text(self) -> String {
        match self {
            GroupOp::Reduce(op, None) => format!("reduce {}", op.name()),
            GroupOp::Reduce(op, Some(n)) => format!("reduce {} by {n}", op.name()),
            GroupOp::InclusiveScan(op) => format!("inclusive_scan {}", op.name()),
            GroupOp::ExclusiveScan(op) => format!("exclusive_scan {}", op.name()),
            GroupOp::Shuffle => "shuffle".into(),
            GroupOp::MulAdd(Product { rows, columns, depth, lanes, narrow, saturation }) => {
                let narrow = if narrow { " of 16 bits" } else { "" };
                let saturation = saturation.name();
                format!("muladd {rows}x{columns}x{depth}{narrow} over {lanes}{saturation}")
            }
        }
    }
}

/// The bits of the value with which combining begins, as SPIR-V defines it for `OpGroup*`. `None` if
/// values of the type cannot be combined with the operator.
pub fn identity(op: BinaryOp, ty: Scalar) -> Option<u64> {
    let infinity = |float| match float {
        Float::F16 => 0x7c00,
        Float::F32 => 0x7f80_0000,
        Float::F64 => 0x7ff0_0000_0000_0000,
    };
    let one = |float| float_bits(float, 1.0);
    let sign = 1u64 << (ty.bits() - 1);
    Some(match (op, ty) {
        (BinaryOp::And, Scalar::Bool | Scalar::Int(_)) => ty.mask(),
        (BinaryOp::Or | BinaryOp::Xor, Scalar::Bool | Scalar::Int(_)) => 0,
        (BinaryOp::Add | BinaryOp::UMax, Scalar::Int(_)) => 0,
        (BinaryOp::Mul, Scalar::Int(_)) => 1,
        (BinaryOp::UMin, Scalar::Int(_)) => ty.mask(),
        (BinaryOp::SMin, Scalar::Int(_)) => ty.mask() ^ sign,
        (BinaryOp::SMax, Scalar::Int(_)) => sign,
        (BinaryOp::FAdd, Scalar::Float(_)) => 0,
        (BinaryOp::FMul, Scalar::Float(float)) => one(float),
        (BinaryOp::FMin, Scalar::Float(float)) => infinity(float),
        (BinaryOp::FMax, Scalar::Float(float)) => infinity(float) | sign,
        _ => return None,
    })
}

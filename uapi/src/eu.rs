// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The entry of compiled kernels: the data that an execution unit passes to native code.
//!
//! `device/SPEC.md`, chapter "Execution units".

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maximum number of work-items in a work-group.
pub const MAX_GROUP_ITEMS: u32 = 1024;
/// Maximum size of a work-group's local memory, in bytes.
pub const MAX_LOCAL_BYTES: u32 = 64 << 10;
/// Maximum size of a work-group's scratch memory, in bytes.
pub const MAX_SCRATCH_BYTES: u32 = 64 << 20;
/// Maximum number of work-groups of a cooperative DISPATCH.
pub const MAX_COOPERATIVE_GROUPS: u32 = 32;
/// Alignment of argument blocks, local memory and scratch, in bytes.
pub const BLOCK_ALIGN: u64 = 64;

/// The first bytes of the block that a DISPATCH names; the arguments follow at
/// [`ARGS_OFFSET`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct KernargHeader {
    /// Added to every global id, in work-items.
    pub global_offset: [u64; 3],
    /// Work-items in each dimension, or 0 for groups x group size.
    pub global_size: [u64; 3],
    /// Must be zero.
    pub reserved: [u64; 2],
}

/// Offset of the compiler's argument block from the DISPATCH's address, in bytes.
pub const ARGS_OFFSET: u64 = core::mem::size_of::<KernargHeader>() as u64;

/// The data that all work-groups of a launch share.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct LaunchInfo {
    /// Added to every global id, in work-items.
    pub global_offset: [u64; 3],
    /// Work-items in each dimension. The last group is partial where this is
    /// less than groups x group size.
    pub global_size: [u64; 3],
    /// Work-groups in each dimension.
    pub num_groups: [u32; 3],
    /// Work-items of a full group in each dimension.
    pub group_size: [u32; 3],
    /// Dimensions in use: 1, 2 or 3.
    pub work_dim: u32,
    /// Zero.
    pub reserved: u32,
    /// Address of a C function that takes the group's [`GroupContext`]: it returns when all groups
    /// of a cooperative launch have called it, and at once in any other.
    pub grid_wait: u64,
    /// For the device's own use.
    pub grid: u64,
}

/// The argument of a kernel's entry: one work-group.
///
/// All pointers are valid for the call; `args`, `local` and `scratch` are
/// aligned to [`BLOCK_ALIGN`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GroupContext {
    /// The launch that the group belongs to.
    pub launch: *const LaunchInfo,
    /// The argument block as the compiler laid it out.
    pub args: *const u8,
    /// Local memory of the group, uninitialised.
    pub local: *mut u8,
    /// Scratch memory, private to the group's code, uninitialised.
    pub scratch: *mut u8,
    /// The id of the group in each dimension.
    pub group: [u32; 3],
    /// Zero.
    pub reserved: u32,
}

/// A compiled kernel: runs one whole work-group, barriers included.
pub type KernelEntry = unsafe extern "C" fn(*const GroupContext);

const _: () = {
    assert!(core::mem::size_of::<KernargHeader>() == 64);
    assert!(core::mem::size_of::<LaunchInfo>() == 96);
    assert!(core::mem::size_of::<GroupContext>() == 48);
};

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Launches of kernels: the argument block and the DISPATCH packet.

use std::ptr::NonNull;

use tally_uapi::eu::{ARGS_OFFSET, BLOCK_ALIGN, KernargHeader, MAX_COOPERATIVE_GROUPS};
use tally_uapi::packet::{Dispatch, Header, Packet, flag, opcode};
use zerocopy::IntoBytes;

use super::target::{Keep, Target};
use crate::error::{Error, Result};

/// A kernel with all state that was set when it was appended.
pub struct Launch<'a> {
    /// VA of the entry.
    pub entry: u64,
    /// The arguments as the compiler laid them out.
    pub args: &'a [u8],
    /// Added to every global id.
    pub global_offset: [u64; 3],
    /// Group size in work-items per dimension; at most 1024 in total.
    pub group_size: [u32; 3],
    /// The number of groups.
    pub groups: Groups,
    /// Dimensions in use, 1 to 3.
    pub work_dim: u32,
    /// Local memory of a group, in bytes.
    pub local_bytes: u32,
    /// Scratch of a group, in bytes.
    pub scratch_bytes: u32,
    /// Whether no group waits for another one, unless the launch is cooperative.
    pub is_independent: bool,
    /// The object that must exist until the kernel has run.
    pub keep: &'a dyn Keep,
}

/// The number of groups of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Groups {
    /// A given number.
    Direct([u32; 3]),
    /// A given number of groups that all run at the same time.
    Cooperative([u32; 3]),
    /// The three 32-bit numbers that the memory at this address holds when the kernel starts.
    Indirect(u64),
}

impl Groups {
    /// The groups of a cooperative launch, which may wait for each other. The guide's sample checks that "the
    /// total group count must be smaller than the queried maximum"; an equal count is accepted too.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: more groups than can run at the same time.
    pub fn cooperative(groups: [u32; 3]) -> Result<Self> {
        let total = groups.iter().fold(1, |total: u64, &n| total.saturating_mul(n.into()));
        if total <= MAX_COOPERATIVE_GROUPS.into() {
            return Ok(Self::Cooperative(groups));
        }
        Err(Error::invalid(format!(
            "pLaunchFuncArgs: a cooperative launch has at most zeKernelSuggestMaxCooperativeGroupCount groups, {MAX_COOPERATIVE_GROUPS}; here are {total}"
        )))
    }
}

/// Writes the arguments to memory that the device reads and makes the packet.
///
/// # Errors
/// OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY.
pub(super) fn encode<T: Target>(target: &mut T, launch: &Launch<'_>) -> Result<Packet> {
    target.keep(launch.keep);
    let block = target.memory(block_bytes(launch), BLOCK_ALIGN)?;
    // SAFETY: the block has that size, and is not yet in use.
    unsafe { write_block(block.ptr, launch) };
    Ok(dispatch(launch, block.va()))
}

/// Bytes of the argument block.
pub(super) fn block_bytes(launch: &Launch<'_>) -> u64 {
    ARGS_OFFSET + launch.args.len() as u64
}

/// Writes the argument block: the header and the arguments.
///
/// # Safety
/// `to` is valid for writes of [`block_bytes`], and the device does not read that memory now.
pub(super) unsafe fn write_block(to: NonNull<u8>, launch: &Launch<'_>) {
    let header = KernargHeader { global_offset: launch.global_offset, ..Default::default() };
    // SAFETY: the caller promises room for the header and the arguments.
    unsafe {
        let to = to.as_ptr();
        to.copy_from_nonoverlapping(header.as_bytes().as_ptr(), ARGS_OFFSET as usize);
        let to = to.add(ARGS_OFFSET as usize);
        to.copy_from_nonoverlapping(launch.args.as_ptr(), launch.args.len());
    }
}

/// The packet of a launch with its argument block at `kernarg`, without its order and its signal.
pub(super) fn dispatch(launch: &Launch<'_>, kernarg: u64) -> Packet {
    let independent = independent(launch);
    let (groups, flags) = match launch.groups {
        Groups::Direct(groups) => (groups, independent),
        Groups::Cooperative(groups) => (groups, flag::COOPERATIVE),
        Groups::Indirect(at) => ([at as u32, (at >> 32) as u32, 0], flag::INDIRECT | independent),
    };
    let header =
        Header { opcode: opcode::DISPATCH, flags, param: launch.local_bytes, ..Default::default() };
    Dispatch {
        header,
        entry: launch.entry,
        kernarg,
        groups,
        scratch_bytes: launch.scratch_bytes,
        group_size: launch.group_size.map(|size| size as u16),
        work_dim: launch.work_dim as u16,
        ..Default::default()
    }
    .into()
}

/// The flag of a launch, which is not cooperative, if its groups do not wait for each other.
pub(super) fn independent(launch: &Launch<'_>) -> u8 {
    if launch.is_independent { flag::INDEPENDENT } else { 0 }
}

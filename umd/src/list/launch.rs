// SPDX-License-Identifier: MIT OR Apache-2.0
//! Launches of kernels: the argument block and the DISPATCH packet.

use std::any::Any;
use std::sync::Arc;

use tally_uapi::eu::{ARGS_OFFSET, BLOCK_ALIGN, KernargHeader};
use tally_uapi::packet::{Dispatch, Header, Packet, flag, opcode};
use zerocopy::IntoBytes;

use super::command::Target;
use crate::error::Result;

/// A kernel with everything that was set when it was appended.
pub struct Launch<'a> {
    /// VA of the entry.
    pub entry: u64,
    /// The arguments as the compiler laid them out.
    pub args: &'a [u8],
    /// Added to every global id.
    pub global_offset: [u64; 3],
    /// Work-items of a group; at most 1024 in all.
    pub group_size: [u32; 3],
    /// How many groups.
    pub groups: Groups,
    /// Dimensions in use, 1 to 3.
    pub work_dim: u32,
    /// Local memory of a group, in bytes.
    pub local_bytes: u32,
    /// Scratch of a group, in bytes.
    pub scratch_bytes: u32,
    /// Whatever must exist until the kernel has run.
    pub keep: &'a dyn Keep,
}

/// How many groups a launch has.
#[derive(Clone, Copy, Debug)]
pub enum Groups {
    /// These.
    Direct([u32; 3]),
    /// These, all at the same time.
    Cooperative([u32; 3]),
    /// The three 32-bit numbers at this address when the kernel starts.
    Indirect(u64),
}

/// Something with shared ownership that a list can keep as long as the device uses it.
pub trait Keep {
    /// The same for two references to the same thing.
    fn identity(&self) -> *const ();
    /// Another reference.
    fn share(&self) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Any + Send + Sync> Keep for Arc<T> {
    fn identity(&self) -> *const () {
        Arc::as_ptr(self).cast()
    }

    fn share(&self) -> Arc<dyn Any + Send + Sync> {
        self.clone()
    }
}

/// Puts the arguments where the device finds them and makes the packet.
///
/// # Errors
/// OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY.
pub(super) fn encode<T: Target>(target: &mut T, launch: &Launch<'_>) -> Result<Packet> {
    target.keep(launch.keep);
    let block = target.memory(ARGS_OFFSET + launch.args.len() as u64, BLOCK_ALIGN)?;
    let header = KernargHeader { global_offset: launch.global_offset, ..Default::default() };
    // SAFETY: the block has room for the header and the arguments, and is not yet in use.
    unsafe {
        let to = block.ptr.as_ptr();
        to.copy_from_nonoverlapping(header.as_bytes().as_ptr(), ARGS_OFFSET as usize);
        let to = to.add(ARGS_OFFSET as usize);
        to.copy_from_nonoverlapping(launch.args.as_ptr(), launch.args.len());
    }
    let (groups, flags) = match launch.groups {
        Groups::Direct(groups) => (groups, 0),
        Groups::Cooperative(groups) => (groups, flag::COOPERATIVE),
        Groups::Indirect(at) => ([at as u32, (at >> 32) as u32, 0], flag::INDIRECT),
    };
    let header =
        Header { opcode: opcode::DISPATCH, flags, param: launch.local_bytes, ..Default::default() };
    Ok(Dispatch {
        header,
        entry: launch.entry,
        kernarg: block.va(),
        groups,
        scratch_bytes: launch.scratch_bytes,
        group_size: launch.group_size.map(|size| size as u16),
        work_dim: launch.work_dim as u16,
        ..Default::default()
    }
    .into())
}

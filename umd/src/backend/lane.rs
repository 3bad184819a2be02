// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trait of a lane: its three interfaces, and the properties in which lanes differ.

use super::{HostWait, Ioctls, Result, Sharing, Syncobjs};

/// A function that returns whether a VM is lost.
pub type Loss = Box<dyn Fn() -> bool + Send + Sync>;

/// An open Tally device.
///
/// All methods may be called from any thread.
pub trait Backend: Ioctls + Sharing + HostWait + Send + Sync {
    /// The lane's name, for reports: "embedded" or "drm".
    fn lane(&self) -> &'static str;

    /// Whether the device can access all memory of this process. If not, it can access only bound memory, and
    /// MAP_USERPTR can bind memory of the process at other addresses, too.
    fn sees_process(&self) -> bool;

    /// Whether bytes of a buffer that are never touched cost no memory.
    fn is_sparse(&self) -> bool {
        false
    }

    /// Whether the system may have huge pages for buffers. If not, nothing is gained by aligning addresses to them.
    fn has_huge_pages(&self) -> bool {
        true
    }

    /// Counts bytes of buffers of [`BoUse::Block`](super::BoUse::Block) as used, if the kernel does not.
    ///
    /// # Errors
    /// ENOSPC: more than the device has.
    fn take_memory(&self, _bytes: u64) -> Result {
        Ok(())
    }

    /// Uncounts bytes of such buffers.
    fn give_memory(&self, _bytes: u64) {}

    /// Bytes that can be taken by [`Backend::take_memory`].
    fn memory_left(&self) -> u64 {
        0
    }

    /// A function that tells without a system call whether a VM is lost, if the lane has one.
    fn loss(&self, _vm: u32) -> Option<Loss> {
        None
    }

    /// The kernel's sync objects, if the lane has a kernel.
    fn syncobjs(&self) -> Option<&dyn Syncobjs> {
        None
    }

    /// Bytes of buffers that this process uses.
    fn memory_used(&self) -> u64 {
        0
    }

    /// The device's place on its bus: domain, bus, device and function. None if it is on none.
    fn pci_address(&self) -> Option<[u32; 4]> {
        None
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that cross the border of a process, and word of the signals to cells in them.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tally_uapi::ioctl::{BoCreate, Errno};

use super::{Ioctls, Result};

/// What a buffer is made for, as far as others may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoUse {
    /// The driver's own; never shared.
    Driver,
    /// The application's, who may share it.
    User,
    /// The same, and counted by who asks for it ([`Backend::take_memory`](super::Backend::take_memory)): it may be larger than what
    /// is used of it, and serve one allocation after the other.
    Block,
    /// To be shared: an importer sees no other buffer's bytes.
    Shared,
    /// The same, and importers can only read it (IMPORT_READ_ONLY).
    SharedReadOnly,
}

/// A buffer on its way from one process to another.
#[derive(Debug)]
pub struct SharedBo {
    /// A DMA-BUF of it, or the file in which its pages lie.
    pub file: OwnedFd,
    /// Where in the file it begins.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
    /// Whether who imports it may only read it.
    pub read_only: bool,
}

/// Keeps the memory of an exported buffer from being used for anything else, where its file does
/// not.
pub type Hold = Box<dyn Any + Send + Sync>;

/// An object that is told when cells are signalled, instead of sleeping in SEM_WAIT.
///
/// Called on threads of the kernel's: must not block and must not call the kernel.
pub trait Watcher: Send + Sync {
    /// The cell of this number, or one that shares its waiters word, was signalled. Only where
    /// processes have devices of their own; where one kernel serves them all it wakes their sleepers.
    fn look(&self, cell: usize);
    /// The VM is lost or destroyed: what was not signalled will not be.
    fn lost(&self);
}

/// Exports, imports, and watches of cells that others signal or wait for.
pub trait Sharing: Ioctls {
    /// Whether the files of buffers are DMA-BUFs.
    fn has_dma_bufs(&self) -> bool {
        false
    }

    /// BO_CREATE of a buffer that others may see.
    fn bo_create_for(&self, arg: &mut BoCreate, _: BoUse) -> Result {
        self.bo_create(arg)
    }

    /// Whether [`Sharing::bo_export`] works here.
    fn can_export(&self) -> bool {
        false
    }

    /// Makes a buffer ready to be sent to another process (PRIME_HANDLE_TO_FD).
    ///
    /// # Errors
    /// ENOENT. EOPNOTSUPP: not on this lane or machine.
    fn bo_export(&self, _handle: u32) -> Result<(SharedBo, Hold)> {
        Err(Errno::NotSupported)
    }

    /// A handle for a buffer of another process (PRIME_FD_TO_HANDLE).
    ///
    /// # Errors
    /// EINVAL: the file is none that a buffer was exported to. EOPNOTSUPP.
    fn bo_import(&self, _bo: SharedBo) -> Result<u32> {
        Err(Errno::NotSupported)
    }

    /// Tells `watcher` from now on of signals to cells, each a buffer and an offset, and of the end
    /// of the VM.
    ///
    /// # Errors
    /// ENOENT, EINVAL, ENOMEM.
    fn watch(&self, vm: u32, cells: &[(u32, u64)], watcher: Arc<dyn Watcher>) -> Result<u64>;

    /// Ends a [`Sharing::watch`]: the watcher is not called any more when this returns. Not to be
    /// called by the watcher.
    fn unwatch(&self, watch: u64);
}

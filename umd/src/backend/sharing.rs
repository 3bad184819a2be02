// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that are shared between processes, and notifications of signals to cells in them.

use std::any::Any;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use tally_uapi::ioctl::{BoCreate, Errno};

use super::{Ioctls, Result};

/// The purpose of a buffer, which decides whether other processes may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoUse {
    /// The driver's own; never shared.
    Driver,
    /// The application's, which may share it.
    User,
    /// The same, and counted by its user ([`Backend::take_memory`](super::Backend::take_memory)): it may be
    /// larger than the part in use, and serve one allocation after the other.
    Block,
    /// For sharing: an importer does not see bytes of other buffers.
    Shared,
    /// The same, and importers can only read it (IMPORT_READ_ONLY).
    SharedReadOnly,
}

/// A buffer in transit from one process to another.
#[derive(Debug)]
pub struct SharedBo {
    /// A DMA-BUF of it, or the file that contains its pages.
    pub file: OwnedFd,
    /// Its offset in the file.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Whether importers may only read it.
    pub read_only: bool,
}

/// Whether a file is a DMA-BUF of the kernel's. Its size never changes.
pub fn is_dma_buf(file: &OwnedFd) -> bool {
    /// DMA_BUF_MAGIC of `linux/magic.h`.
    const MAGIC: libc::__fsword_t = 0x444d_4142;
    // SAFETY: asks about a descriptor that we own; the struct is valid when zero.
    unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        libc::fstatfs(file.as_raw_fd(), &mut system) == 0 && system.f_type == MAGIC
    }
}

/// Keeps the memory of an exported buffer from being reused, if its file does not.
pub type Hold = Box<dyn Any + Send + Sync>;

/// An object that is notified when cells are signalled, instead of sleeping in SEM_WAIT.
///
/// Its methods are called on threads of the back end: they must not block and must not call the back end.
pub trait Watcher: Send + Sync {
    /// The cell of this number, or one that shares its waiters word, was signalled. Called only if processes
    /// have devices of their own; a kernel that serves all of them wakes their sleepers itself.
    fn look(&self, cell: usize);
    /// The VM is lost or destroyed: cells that it has not signalled never will be.
    fn lost(&self);
}

/// Exports, imports, and watches of cells that other processes signal or wait for.
pub trait Sharing: Ioctls {
    /// Whether the files of exported buffers are DMA-BUFs.
    fn has_dma_bufs(&self) -> bool {
        false
    }

    /// BO_CREATE of a buffer that other processes may see.
    fn bo_create_for(&self, arg: &mut BoCreate, _: BoUse) -> Result {
        self.bo_create(arg)
    }

    /// Whether [`Sharing::bo_export`] works here.
    fn can_export(&self) -> bool {
        false
    }

    /// Exports a buffer, for sending it to another process (PRIME_HANDLE_TO_FD).
    ///
    /// # Errors
    /// ENOENT. EOPNOTSUPP: not on this lane or machine.
    fn bo_export(&self, _handle: u32) -> Result<(SharedBo, Hold)> {
        Err(Errno::NotSupported)
    }

    /// A handle for a buffer of another process, or for a DMA-BUF of a driver of the kernel (PRIME_FD_TO_HANDLE).
    ///
    /// # Errors
    /// EINVAL: the file is not an exported buffer. ENOSPC. EOPNOTSUPP.
    fn bo_import(&self, _bo: SharedBo) -> Result<u32> {
        Err(Errno::NotSupported)
    }

    /// Notifies `watcher` from now on of signals to cells, each a buffer and an offset, and of the end
    /// of the VM.
    ///
    /// # Errors
    /// ENOENT, EINVAL, ENOMEM.
    fn watch(&self, vm: u32, cells: &[(u32, u64)], watcher: Arc<dyn Watcher>) -> Result<u64>;

    /// Ends a [`Sharing::watch`]: the watcher is not called any more when this returns. The watcher itself
    /// must not call this.
    fn unwatch(&self, watch: u64);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel as the driver sees it: the ioctls of `uapi/UAPI.md`, one method
//! each, and the two things that are not ioctls of Tally's own (closing and
//! mapping buffers).
//!
//! Everything above this module is the same on every lane.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use tally_uapi::ioctl::{
    BoCreate, BoInfo, Errno, Query, QueueCreate, QueueDestroy, QueueKick, QueueQuery, SemWait,
    SemWake, VmBind, VmCreate, VmDestroy, VmOrphan,
};
use tally_ze::ze_result_t;

use crate::error::{self, Error};
use crate::settings::{Lane, Settings};

pub mod drm;
pub mod embedded;
#[cfg(test)]
pub mod fake;

/// Opens the device of this machine: a Tally render node if there is one, else the device in this
/// process, unless the settings name the lane.
///
/// # Errors
/// UNINITIALIZED: the settings ask for a render node, and there is none. DEVICE_LOST: no threads for the
/// device in this process. OUT_OF_HOST_MEMORY.
pub fn open(settings: &Settings) -> error::Result<Arc<dyn Kernel>> {
    let missing = match settings.lane {
        Some(Lane::Embedded) => None,
        Some(Lane::Drm) | None => match drm::open() {
            Ok(node) => return Ok(node),
            Err(missing) => Some(missing),
        },
    };
    match missing {
        Some(missing) if settings.lane == Some(Lane::Drm) => {
            let text = format!("TALLY_LANE=drm: {missing}");
            // Without a driver the application has no handle by which to ask why.
            eprintln!("tally: {text}");
            Err(Error::new(ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED, text))
        }
        _ => embedded::open(settings).map_err(|errno| Error::kernel("open", errno)),
    }
}

/// What an ioctl answers.
pub type Result<T = ()> = std::result::Result<T, Errno>;

/// What a buffer is made for, as far as others may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoUse {
    /// The driver's own; never shared.
    Driver,
    /// The application's, who may share it.
    User,
    /// The same, and counted by who asks for it ([`Kernel::take_memory`]): it may be larger than what
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

/// Tells whether a VM is lost.
pub type Loss = Box<dyn Fn() -> bool + Send + Sync>;

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

/// An open Tally device.
///
/// Methods take the ioctl's struct, fill its out fields and answer its errors.
/// All may be called from any thread.
pub trait Kernel: Send + Sync {
    /// The lane's name, for reports: "embedded" or "drm".
    fn lane(&self) -> &'static str;
    /// Whether the device reaches all memory of this process. If not, it reaches what is bound, and
    /// MAP_USERPTR binds memory of the process's at other addresses too.
    fn sees_process(&self) -> bool;

    /// Whether the files of buffers are DMA-BUFs.
    fn has_dma_bufs(&self) -> bool {
        false
    }

    /// Whether bytes of a buffer that are never touched cost nothing.
    fn is_sparse(&self) -> bool {
        false
    }

    /// Counts bytes of buffers of [`BoUse::Block`] as used, where the kernel does not.
    ///
    /// # Errors
    /// ENOSPC: more than the device has.
    fn take_memory(&self, _bytes: u64) -> Result {
        Ok(())
    }

    /// Counts them no longer.
    fn give_memory(&self, _bytes: u64) {}

    /// What tells without a call whether a VM is lost, where there is such a thing.
    fn loss(&self, _vm: u32) -> Option<Loss> {
        None
    }

    /// Bytes of buffers that this process uses.
    fn memory_used(&self) -> u64 {
        0
    }
    /// Where the device is on its bus: domain, bus, device and function. None if it is on none.
    fn pci_address(&self) -> Option<[u32; 4]> {
        None
    }

    /// QUERY. `arg.data` is an address in this process.
    ///
    /// # Safety
    /// `arg.data` is 0, or `arg.size` bytes may be written there.
    unsafe fn query(&self, arg: &mut Query) -> Result;
    /// BO_CREATE.
    fn bo_create(&self, arg: &mut BoCreate) -> Result;
    /// BO_CREATE of a buffer that others may see.
    fn bo_create_for(&self, arg: &mut BoCreate, _: BoUse) -> Result {
        self.bo_create(arg)
    }
    /// Whether [`Kernel::bo_export`] works here.
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
    /// BO_INFO.
    fn bo_info(&self, arg: &mut BoInfo) -> Result;
    /// GEM_CLOSE: gives the handle back. Bindings and mappings keep the memory alive.
    fn bo_close(&self, handle: u32) -> Result;
    /// Maps `size` bytes of a buffer from `offset` for the host to read and write; one that was
    /// imported to be read only, to read.
    ///
    /// With `at`, exactly there, replacing what was mapped; else anywhere.
    ///
    /// # Safety
    /// `at` is memory that the caller has reserved and nothing refers to.
    unsafe fn bo_map(
        &self,
        handle: u32,
        offset: u64,
        size: usize,
        at: Option<NonNull<u8>>,
    ) -> Result<NonNull<u8>>;
    /// VM_CREATE.
    fn vm_create(&self, arg: &mut VmCreate) -> Result;
    /// VM_DESTROY.
    fn vm_destroy(&self, arg: &VmDestroy) -> Result;
    /// VM_BIND.
    ///
    /// The window is memory of this process that the driver reserved, and a
    /// buffer that is bound READ and WRITE without EXECUTE may be mapped for
    /// the host at the same address.
    ///
    /// # Safety
    /// The range is in a window that the caller has reserved (PROT_NONE), and
    /// nothing in this process refers to memory that the call replaces.
    unsafe fn vm_bind(&self, arg: &VmBind) -> Result;
    /// QUEUE_CREATE.
    fn queue_create(&self, arg: &mut QueueCreate) -> Result;
    /// QUEUE_DESTROY.
    fn queue_destroy(&self, arg: &QueueDestroy) -> Result;
    /// QUEUE_QUERY.
    fn queue_query(&self, arg: &mut QueueQuery) -> Result;
    /// QUEUE_KICK. True: the device has deferred the wake of a worker, because it expects the calling thread
    /// to wait soon and to help. It needs the doorbells of some later packets too: they show it that the
    /// thread goes on without waiting.
    fn queue_kick(&self, arg: &QueueKick) -> Result<bool>;
    /// SEM_WAIT. `arg.entries` is the address of the entries in this process.
    ///
    /// # Safety
    /// `arg.count` entries may be read at `arg.entries`.
    unsafe fn sem_wait(&self, arg: &mut SemWait) -> Result;
    /// SEM_WAKE.
    fn sem_wake(&self, arg: &SemWake) -> Result;

    /// Has the calling thread, which waits without a time limit until the cell at `address` holds
    /// at least `value`, work for the device meanwhile.
    ///
    /// True once it does; false after `limit` without anything to do. None: this device, or this
    /// thread, has no use for it. The caller holds no lock.
    fn help(&self, _address: u64, _value: u64, _limit: Duration) -> Option<bool> {
        None
    }

    /// Tells the device that a thread came to wait and found the wait met: it was there to help.
    fn arrived(&self) {}

    /// Makes the wake that the device may have deferred: the calling thread asks for a result without
    /// helping, so the device needs a worker.
    fn wake_deferred(&self) {}

    /// Tells `watcher` from now on of signals to cells, each a buffer and an offset, and of the end
    /// of the VM.
    ///
    /// # Errors
    /// ENOENT, EINVAL, ENOMEM.
    fn watch(&self, vm: u32, cells: &[(u32, u64)], watcher: Arc<dyn Watcher>) -> Result<u64>;
    /// Ends a [`Kernel::watch`]: the watcher is not called any more when this returns. Not to be
    /// called by the watcher.
    fn unwatch(&self, watch: u64);
    /// VM_ORPHAN.
    fn vm_orphan(&self, arg: &VmOrphan) -> Result;
}

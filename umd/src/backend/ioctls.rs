// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctls of `uapi/UAPI.md`, one method each, and the two operations on buffers that are not ioctls of
//! Tally's own: closing and mapping them.

use std::ptr::NonNull;

use tally_uapi::ioctl::{
    BoCreate, BoInfo, Errno, Query, QueueCreate, QueueDestroy, QueueKick, QueueQuery, SemFollow,
    SemNotify, SemWait, SemWake, VmBind, VmCreate, VmDestroy, VmOrphan,
};

/// The answer of an ioctl.
pub type Result<T = ()> = std::result::Result<T, Errno>;

/// The requests that a device file answers.
///
/// Methods take the ioctl's struct, fill its out fields and answer its errors.
pub trait Ioctls {
    /// QUERY. `arg.data` is an address in this process.
    ///
    /// # Safety
    /// `arg.data` is 0, or `arg.size` bytes may be written there.
    unsafe fn query(&self, arg: &mut Query) -> Result;

    /// BO_CREATE.
    fn bo_create(&self, arg: &mut BoCreate) -> Result;

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
    /// Whether commands of a queue are in progress, also while it waits for a cell. Without a device in this process
    /// nothing is known.
    fn queue_works(&self, _queue: u32) -> bool {
        false
    }

    /// QUEUE_KICK. True: the device has deferred the wake of a worker, because it expects the calling thread
    /// to wait soon and to help. It needs the doorbells of some later packets too: they show it that the
    /// thread goes on without waiting.
    fn queue_kick(&self, arg: &QueueKick) -> Result<bool>;

    /// SEM_WAIT. `arg.entries` is the address of the entries in this process.
    ///
    /// # Safety
    /// `arg.count` entries may be read at `arg.entries`.
    unsafe fn sem_wait(&self, arg: &mut SemWait) -> Result;

    /// SEM_NOTIFY. `arg.entries` is the address of the entries in this process.
    ///
    /// # Safety
    /// `arg.count` entries may be read at `arg.entries`.
    unsafe fn sem_notify(&self, arg: &SemNotify) -> Result;

    /// SEM_FOLLOW.
    fn sem_follow(&self, arg: &SemFollow) -> Result;

    /// SEM_WAKE.
    fn sem_wake(&self, arg: &SemWake) -> Result;

    /// VM_ORPHAN.
    fn vm_orphan(&self, arg: &VmOrphan) -> Result;
}

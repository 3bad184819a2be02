// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel as the driver sees it: the ioctls of `uapi/UAPI.md`, one method
//! each, and the two things that are not ioctls of Tally's own (closing and
//! mapping buffers).
//!
//! Everything above this module is the same on every lane.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use tally_uapi::ioctl::{
    BoCreate, BoInfo, Errno, Query, QueueCreate, QueueDestroy, QueueKick, QueueQuery, SemWait,
    SemWake, VmBind, VmCreate, VmDestroy,
};

use crate::settings::{Lane, Settings};

pub mod drm;
pub mod embedded;
#[cfg(test)]
pub mod fake;

/// Opens the device of this machine: a Tally render node if there is one, else the device in this
/// process, unless the settings name the lane.
///
/// # Errors
/// ENODEV: the lane that is asked for has no device. ENOMEM.
pub fn open(settings: &Settings) -> Result<Arc<dyn Kernel>> {
    let node = match settings.lane {
        Some(Lane::Embedded) => None,
        Some(Lane::Drm) | None => drm::open(),
    };
    match node {
        Some(node) => Ok(node),
        None if settings.lane == Some(Lane::Drm) => {
            log::error!("TALLY_LANE=drm: no render node of a Tally device can be opened");
            Err(Errno::NoDevice)
        }
        None => embedded::open(settings),
    }
}

/// What an ioctl answers.
pub type Result<T = ()> = std::result::Result<T, Errno>;

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
    /// Maps `size` bytes of a buffer from `offset` for the host to read and write.
    ///
    /// With `at`, exactly there, replacing what was mapped; else anywhere.
    ///
    /// # Safety
    /// `at` is memory that the caller has reserved and nobody refers to.
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
    /// QUEUE_KICK.
    fn queue_kick(&self, arg: &QueueKick) -> Result;
    /// SEM_WAIT. `arg.entries` is the address of the entries in this process.
    ///
    /// # Safety
    /// `arg.count` entries may be read at `arg.entries`.
    unsafe fn sem_wait(&self, arg: &mut SemWait) -> Result;
    /// SEM_WAKE.
    fn sem_wake(&self, arg: &SemWake) -> Result;

    /// Lends the calling thread, which waits without a time limit until the cell at `address` holds
    /// at least `value`, to a device that can use it.
    ///
    /// True once it does; false after `limit` without anything to do. None: this device, or this
    /// thread, has no use for it. The caller holds no lock.
    fn lend(&self, _address: u64, _value: u64, _limit: Duration) -> Option<bool> {
        None
    }
}

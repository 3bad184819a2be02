// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of buffers.
//!
//! ```text
//!  buffer for          lies in                                        is exported as
//!  the driver          a part of a pool: one large memfd for many     never
//!  the application     a file of its own (`files`)                    that file
//!  sharing (events)    a file of its own, a descriptor of the process that file
//! ```
//!
//! A process that imports a buffer gets the file that contains it, and can map all of the file. So an
//! exported file never contains anything else.
//!
//! A memfd needs no file system and no /dev/shm. If a sandbox refuses it, shared anonymous mappings
//! replace it, and nothing can be exported.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::Errno;

use crate::backend::{BoUse, Result, SharedBo, is_dma_buf};
use crate::quota::Quota;

mod backing;
mod files;
mod pool;

use backing::{Backing, HUGE_PAGE, memfd};
pub(super) use backing::{Part, has_huge_pages, protection};
use files::Files;
use pool::Pool;

/// Bytes of a pool: address space, not memory.
const POOL: u64 = 4 << 30;

/// All memory of the device.
pub(super) struct Memory {
    quota: Quota,
    pools: Mutex<Vec<Arc<Pool>>>,
    files: Files,
}

/// The memory of a buffer. It is zero when it is made, and freed on drop.
pub(super) struct Extent {
    pages: Pages,
    size: u64,
    /// The memory that it is counted in, if it is counted here.
    counted: Option<Arc<Memory>>,
}

enum Pages {
    /// A part of a pool, from an offset on.
    Pool { memory: Arc<Memory>, pool: Arc<Pool>, offset: u64 },
    /// A whole backing. `sealed_later`: other processes may only read it once it was exported.
    Own { backing: Backing, sealed_later: bool },
    /// Memory of another process, from an offset on.
    Elsewhere { backing: Backing, offset: u64, read_only: bool, is_dma_buf: bool },
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self { quota: Quota::new(limit), pools: Mutex::default(), files: Files::default() }
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> u64 {
        self.quota.used()
    }

    /// Bytes that are not in use.
    pub(super) fn left(&self) -> u64 {
        self.quota.limit().saturating_sub(self.quota.used())
    }

    /// Counts bytes as used.
    ///
    /// # Errors
    /// ENOSPC: more than the device has.
    pub(super) fn take(&self, bytes: u64) -> Result {
        if self.quota.take(bytes) { Ok(()) } else { Err(Errno::NoSpace) }
    }

    /// Uncounts bytes.
    pub(super) fn give(&self, bytes: u64) {
        self.quota.give(bytes);
    }

    fn pools(&self) -> MutexGuard<'_, Vec<Arc<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `size` bytes, a multiple of the page size. `read_only`: only mappings from before the first export can
    /// write it.
    ///
    /// # Errors
    /// ENOSPC: more than the device has. ENOMEM.
    pub(super) fn alloc(
        self: &Arc<Self>,
        size: u64,
        bo_use: BoUse,
        read_only: bool,
    ) -> Result<Extent> {
        let is_counted = bo_use != BoUse::Block;
        if is_counted {
            self.take(size)?;
        }
        let shared = read_only || matches!(bo_use, BoUse::Shared | BoUse::SharedReadOnly);
        let pages = match bo_use {
            _ if shared => self.own_descriptor(size, read_only),
            BoUse::Driver => self.cut(size),
            _ => self.files.make(size).map(|backing| Pages::Own { backing, sealed_later: false }),
        };
        match pages {
            Ok(pages) => Ok(Extent { pages, size, counted: is_counted.then(|| Arc::clone(self)) }),
            Err(errno) => {
                if is_counted {
                    self.give(size);
                }
                Err(errno)
            }
        }
    }

    fn own_descriptor(&self, size: u64, read_only: bool) -> Result<Pages> {
        let backing = match memfd(size, read_only) {
            Some(file) => Backing::File(file),
            None => Backing::new(size)?,
        };
        Ok(Pages::Own { backing, sealed_later: read_only })
    }

    fn cut(self: &Arc<Self>, size: u64) -> Result<Pages> {
        let mut pools = self.pools();
        let found = pools.iter().find_map(|pool| Some((Arc::clone(pool), pool.take(size)?)));
        let (pool, offset) = match found {
            Some(found) => found,
            None => {
                let whole = size.next_multiple_of(HUGE_PAGE);
                // Under a tight limit of address space there may be room for a small pool.
                let pool = Pool::new(whole.max(POOL)).or_else(|_| Pool::new(whole))?;
                let pool = Arc::new(pool);
                let offset = pool.take(size).ok_or(Errno::NoMemory)?;
                pools.push(Arc::clone(&pool));
                (pool, offset)
            }
        };
        Ok(Pages::Pool { memory: Arc::clone(self), pool, offset })
    }

    /// Frees an extent of a pool. False: its content cannot be made zero.
    fn give_back(&self, pool: &Arc<Pool>, offset: u64, size: u64) -> bool {
        let is_zero = pool.backing.punch(offset, size);
        let mut pools = self.pools();
        if is_zero {
            pool.give(offset, size);
        } else {
            // Memory that cannot be made zero again is not used again.
            log::error!("{size} bytes of device memory cannot be given back");
        }
        // The last pool is kept for the next buffer.
        if pools.len() > 1 && pool.is_empty() {
            pools.retain(|it| !Arc::ptr_eq(it, pool));
        }
        is_zero
    }
}

/// Imports memory of another process, or of a driver of the kernel.
///
/// # Errors
/// EINVAL: the file could become shorter, or is too short already.
pub(super) fn import(bo: SharedBo) -> Result<Extent> {
    let SharedBo { file, offset, size, read_only } = bo;
    let end = offset.checked_add(size).ok_or(Errno::Invalid)?;
    let is_dma_buf = is_dma_buf(&file);
    let sound = size != 0
        && size.is_multiple_of(PAGE_SIZE)
        && offset.is_multiple_of(PAGE_SIZE)
        && (is_dma_buf || is_sealed(&file))
        && end <= length(&file);
    if !sound {
        return Err(Errno::Invalid);
    }
    let backing = Backing::File(file);
    let pages = Pages::Elsewhere { backing, offset, read_only, is_dma_buf };
    Ok(Extent { pages, size, counted: None })
}

/// Whether a file can never become shorter.
fn is_sealed(file: &OwnedFd) -> bool {
    // SAFETY: asks about a descriptor that we own.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

/// The size of a file in bytes; 0 if it is unknown.
fn length(file: &OwnedFd) -> u64 {
    // SAFETY: asks about a descriptor that we own; the struct is valid when zero.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let known = libc::fstat(file.as_raw_fd(), &mut stat) == 0;
        if known { stat.st_size.try_into().unwrap_or(0) } else { 0 }
    }
}

/// Whether buffers are in files here, which can be passed to other processes.
pub(super) fn has_files() -> bool {
    memfd(PAGE_SIZE, false).is_some()
}

impl Extent {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether it belongs to another process, which allows only reads.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.pages, Pages::Elsewhere { read_only: true, .. })
    }

    /// Its file, for another process. The file contains nothing else.
    ///
    /// # Errors
    /// EOPNOTSUPP: there is none, or it is the driver's own memory. ENOMEM: no descriptor is free.
    pub(super) fn share(&self) -> Result<SharedBo> {
        let size = self.size;
        match &self.pages {
            Pages::Pool { .. } => Err(Errno::NotSupported),
            Pages::Own { backing, sealed_later } => {
                let (file, read_only) = (backing.file()?, *sealed_later);
                if read_only {
                    let seals = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
                    // SAFETY: a system call on our own file. Existing mappings stay writable. It
                    // fails if it was done before, and before Linux 5.1, where importers are
                    // trusted.
                    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
                }
                Ok(SharedBo { file, offset: 0, size, read_only })
            }
            Pages::Elsewhere { backing, offset, read_only, .. } => {
                let (file, offset, read_only) = (backing.file()?, *offset, *read_only);
                Ok(SharedBo { file, offset, size, read_only })
            }
        }
    }

    /// Maps a part.
    ///
    /// # Errors
    /// ENOMEM. EOPNOTSUPP: a part of a DMA-BUF that is not its beginning, of which some drivers of the kernel (those
    /// that use its shmem helper) map other pages than those that were asked for.
    pub(super) fn map(&self, part: Part) -> Result<NonNull<u8>> {
        let (backing, from) = match &self.pages {
            Pages::Elsewhere { offset, is_dma_buf: true, .. } if offset + part.offset != 0 => {
                return Err(Errno::NotSupported);
            }
            Pages::Pool { pool, offset, .. } => (&pool.backing, *offset),
            Pages::Own { backing, .. } => (backing, 0),
            Pages::Elsewhere { backing, offset, .. } => (backing, *offset),
        };
        backing.map(Part { offset: from + part.offset, ..part })
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let is_back = match &self.pages {
            Pages::Pool { memory, pool, offset } => memory.give_back(pool, *offset, self.size),
            // The file is freed with its last mapping and descriptor.
            Pages::Own { .. } | Pages::Elsewhere { .. } => true,
        };
        if let Some(memory) = self.counted.as_ref().filter(|_| is_back) {
            memory.give(self.size);
        }
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A VM of the kernel, and buffers at addresses in it.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::{BoCreate, Errno, VmBind, VmDestroy, bind_flag, bind_op, bo_flag};
use tally_ze::ze_result_t;

use crate::backend::{Backend, BoUse, Loss, SharedBo};
use crate::error::{Error, Result};
use crate::process;
use crate::space::{HUGE_PAGE, Space};

/// A VM of the kernel, as far as mappings need it. Destroyed when nothing is mapped any more.
pub struct Bindings {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) space: Arc<Space>,
    pub(super) id: u32,
    /// Set when the VM's loss was first seen; it is never unset.
    pub(super) lost: AtomicBool,
    /// Sees it without a call, if the back end has such a thing.
    pub(super) loss: Option<Loss>,
}

impl Bindings {
    /// Makes a buffer of at least `size` bytes, places it in the VA reservation, binds it with `flags`
    /// ([`bind_flag`]) and maps it for the host at the same address.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST.
    pub fn map(self: &Arc<Self>, size: u64, align: u64, flags: u32) -> Result<Mapping> {
        self.place(size, align)?.opened(flags)
    }

    /// Does the same as [`Bindings::map`], readable and writable, for memory that others may see.
    ///
    /// # Errors
    /// The same errors.
    pub fn map_for(self: &Arc<Self>, bo_use: BoUse, size: u64, align: u64) -> Result<Mapping> {
        self.place_for(bo_use, size, align)?.opened(bind_flag::READ | bind_flag::WRITE)
    }

    /// Maps a buffer of another process.
    ///
    /// # Errors
    /// Those of [`Bindings::map`]; INVALID_ARGUMENT: the buffer is not as the exporter said.
    pub fn import(self: &Arc<Self>, bo: SharedBo, align: u64) -> Result<Mapping> {
        let size = bo.size;
        let align = if size >= HUGE_PAGE { align.max(HUGE_PAGE) } else { align };
        let access = if bo.read_only { 0 } else { bind_flag::WRITE };
        if size > self.space.size() {
            return Err(out_of_addresses(size));
        }
        let bo = self.import_buffer(bo)?;
        self.give_addresses(bo, size, align, PAGE_SIZE)?.opened(bind_flag::READ | access)
    }

    /// A buffer of another process, without addresses.
    pub(super) fn import_buffer(self: &Arc<Self>, bo: SharedBo) -> Result<Buffer> {
        let handle = match self.backend.bo_import(bo) {
            Err(Errno::Invalid) => {
                return Err(Error::invalid("the exporter has sent a file that is no buffer's"));
            }
            handle => handle.map_err(|errno| self.failed("importing a buffer", errno))?,
        };
        Ok(Buffer { bindings: self.clone(), handle })
    }

    /// Makes a buffer and finds addresses for it, without mapping it for anybody.
    ///
    /// # Errors
    /// Those of [`Bindings::map`].
    pub fn place(self: &Arc<Self>, size: u64, align: u64) -> Result<Mapping> {
        self.place_for(BoUse::Driver, size, align)
    }

    pub(super) fn place_for(
        self: &Arc<Self>,
        bo_use: BoUse,
        size: u64,
        align: u64,
    ) -> Result<Mapping> {
        let (bo, size) = self.new_buffer(bo_use, size)?;
        self.give_addresses(bo, size, align, PAGE_SIZE)
    }

    /// A buffer of at least `size` bytes, and how many it has.
    pub(super) fn new_buffer(self: &Arc<Self>, bo_use: BoUse, size: u64) -> Result<(Buffer, u64)> {
        let size = size
            .checked_next_multiple_of(PAGE_SIZE)
            .filter(|&size| size != 0 && size <= self.space.size())
            .ok_or_else(|| out_of_addresses(size))?;
        let read_only = bo_use == BoUse::SharedReadOnly;
        let flags = if read_only { bo_flag::IMPORT_READ_ONLY } else { 0 };
        let mut create = BoCreate { size, flags, ..Default::default() };
        let created = self.backend.bo_create_for(&mut create, bo_use);
        created.map_err(|errno| self.failed("BO_CREATE", errno))?;
        Ok((Buffer { bindings: self.clone(), handle: create.handle }, size))
    }

    /// Finds addresses for a buffer, which has them up to the next multiple of `granule` for itself.
    pub(super) fn give_addresses(
        &self,
        bo: Buffer,
        size: u64,
        align: u64,
        granule: u64,
    ) -> Result<Mapping> {
        // A page behind each mapping, unmapped or only to be read (see `Mapping::pad`), catches what writes over
        // its end. What is left of its granule is of no use to others, and a hole that every search for
        // addresses would look at.
        let room = (size.next_multiple_of(granule) + PAGE_SIZE).next_multiple_of(granule);
        let va =
            self.space.alloc(room, align.max(granule)).ok_or_else(|| out_of_addresses(size))?;
        Ok(Mapping { bo, offset: 0, va, size, room, padding: 0, bound: false })
    }

    /// The error for a failed ioctl; takes note of a loss.
    pub fn failed(&self, ioctl: &str, errno: Errno) -> Error {
        if matches!(errno, Errno::Io | Errno::NoDevice) {
            self.lost.store(true, Ordering::Relaxed);
        }
        Error::kernel(ioctl, errno)
    }
}

impl Drop for Bindings {
    fn drop(&mut self) {
        if process::is_gone() {
            return;
        }
        if let Err(errno) = self.backend.vm_destroy(&VmDestroy { vm_id: self.id, pad: 0 }) {
            log::warn!("VM_DESTROY of VM {}: {}", self.id, errno.name());
        }
    }
}

pub(super) fn out_of_addresses(size: u64) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        format!("no range of {size} bytes is free among the device's addresses"),
    )
}

/// A buffer's handle; closed on drop.
pub(super) struct Buffer {
    pub(super) bindings: Arc<Bindings>,
    pub(super) handle: u32,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if process::is_gone() {
            return;
        }
        if let Err(errno) = self.bindings.backend.bo_close(self.handle) {
            log::warn!("GEM_CLOSE of buffer {}: {}", self.handle, errno.name());
        }
    }
}

/// A buffer at its addresses. Unmapped and given back on drop.
pub struct Mapping {
    pub(super) bo: Buffer,
    /// Its offset in the buffer.
    pub(super) offset: u64,
    pub(super) va: u64,
    pub(super) size: u64,
    /// Addresses that it has for itself.
    pub(super) room: u64,
    /// Bytes of zeros that are mapped behind it.
    pub(super) padding: u64,
    pub(super) bound: bool,
}

impl Mapping {
    /// First address, for the GPU and the host.
    #[inline]
    pub fn va(&self) -> u64 {
        self.va
    }

    /// The same as a pointer.
    #[inline]
    pub fn ptr(&self) -> NonNull<u8> {
        NonNull::new(crate::space::pointer(self.va)).unwrap_or(NonNull::dangling())
    }

    /// Bytes: what was asked for, in whole pages.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The buffer's handle.
    #[inline]
    pub fn bo(&self) -> u32 {
        self.bo.handle
    }

    /// Maps a part of it for the device, at its place.
    ///
    /// # Errors
    /// Those of [`Bindings::map`].
    pub fn bind(&mut self, offset: u64, size: u64, flags: u32) -> Result {
        let bindings = &self.bo.bindings;
        let bind = VmBind {
            vm_id: bindings.id,
            op: bind_op::MAP,
            flags,
            handle: self.bo.handle,
            offset: self.offset + offset,
            address: self.va + offset,
            size,
        };
        // SAFETY: the range is this mapping's part of the VA reservation; while it is not bound,
        // nothing refers to it.
        let bound = unsafe { bindings.backend.vm_bind(&bind) };
        bound.map_err(|errno| bindings.failed("VM_BIND", errno))?;
        self.bound = true;
        Ok(())
    }

    /// Maps zeros, to be read, behind it, up to the end of the addresses that it has for itself.
    pub(super) fn pad(&mut self) -> Result {
        let padding = self.room - self.size;
        let bindings = &self.bo.bindings;
        let bind = VmBind {
            vm_id: bindings.id,
            op: bind_op::MAP_NULL,
            flags: bind_flag::READ,
            address: self.va + self.size,
            size: padding,
            ..Default::default()
        };
        // SAFETY: the range is this mapping's part of the VA reservation, and not mapped.
        let bound = unsafe { bindings.backend.vm_bind(&bind) };
        bound.map_err(|errno| bindings.failed("VM_BIND", errno))?;
        self.padding = padding;
        Ok(())
    }

    /// Binds all of it and maps it for the host.
    pub(super) fn opened(mut self, flags: u32) -> Result<Self> {
        self.bind(0, self.size, flags)?;
        self.open()?;
        Ok(self)
    }

    /// Maps it for the host, at its place.
    pub(super) fn open(&self) -> Result {
        let bindings = &self.bo.bindings;
        let size = self.size as usize;
        // SAFETY: as for `bind`: the range is ours and unused.
        let mapped =
            unsafe { bindings.backend.bo_map(self.bo.handle, self.offset, size, Some(self.ptr())) };
        mapped.map_err(|errno| bindings.failed("mmap of a buffer", errno))?;
        Ok(())
    }

    /// Fills the buffer through a mapping that exists only for this call.
    ///
    /// # Errors
    /// Those of [`Bindings::map`].
    ///
    /// # Panics
    /// If `bytes` is longer than the buffer.
    pub fn write(&self, bytes: &[u8]) -> Result {
        assert!(bytes.len() as u64 <= self.size, "a buffer is filled beyond its end");
        let bindings = &self.bo.bindings;
        let size = self.size as usize;
        // SAFETY: without an address the mapping goes where nothing is.
        let mapped = unsafe { bindings.backend.bo_map(self.bo.handle, 0, size, None) };
        let ptr = mapped.map_err(|errno| bindings.failed("mmap of a buffer", errno))?;
        // SAFETY: the mapping is new, writable, as long as the buffer, and ends here.
        unsafe {
            ptr.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            libc::munmap(ptr.as_ptr().cast(), size);
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if process::is_gone() {
            return;
        }
        let bindings = &self.bo.bindings;
        if self.bound {
            let bind = VmBind {
                vm_id: bindings.id,
                op: bind_op::UNMAP,
                address: self.va,
                size: self.size + self.padding,
                ..Default::default()
            };
            // SAFETY: the range is ours, and its owner, who drops it, has no use for it any more.
            if let Err(errno) = unsafe { bindings.backend.vm_bind(&bind) } {
                // The addresses are not given out again: the device may still use them.
                log::error!("VM_BIND: {:#x} cannot be unmapped: {}", self.va, errno.name());
                return;
            }
        }
        // SAFETY: as above; this also ends the host's mapping where the kernel left it in place.
        unsafe { bindings.space.close(self.va, self.size + self.padding) };
        bindings.space.free(self.va, self.room);
    }
}

/// The source of an allocation's memory.
pub enum Source {
    /// It is new.
    New,
    /// It is new, and can be had as a file.
    ForExport,
    /// It is that of a file which such memory was exported to.
    File(OwnedFd),
}

impl Source {
    /// Whether others can have the memory as a file.
    pub fn is_file(&self) -> bool {
        !matches!(self, Self::New)
    }
}

/// Fills new memory with what no program means. What is freed is unmapped, so an access to that is a
/// fault in any case; but memory that is given out again has, as on a real device, any content.
pub(super) fn poison(va: u64, bytes: u64) {
    const POISON: u8 = 0xd7;
    /// More takes its time and memory, and who takes memory for zeroed looks at its start.
    const MOST: u64 = 64 << 20;
    let start = std::ptr::with_exposed_provenance_mut::<u8>(va as usize);
    // SAFETY: the memory was mapped for reading and writing just now, and nothing else has its address yet.
    unsafe { start.write_bytes(POISON, bytes.min(MOST) as usize) };
}

pub(super) fn lost() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
        "the GPU's address space is lost: a command faulted or was aborted; destroy all contexts, call zeDeviceGetStatus and start again",
    )
}

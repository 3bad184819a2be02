// SPDX-License-Identifier: MIT OR Apache-2.0
//! A VM of the kernel, and the buffers mapped in it.

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

/// The part of a kernel VM that mappings need. It is destroyed when nothing is mapped any more.
pub struct Bindings {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) space: Arc<Space>,
    pub(super) id: u32,
    /// Set when the VM's loss is first noticed, and never cleared.
    pub(super) lost: AtomicBool,
    /// Detects a loss without a call, if the back end supports that.
    pub(super) loss: Option<Loss>,
}

impl Bindings {
    /// Creates a buffer of at least `size` bytes, places it in the VA reservation, binds it with `flags`
    /// ([`bind_flag`]) and maps it for the host at the same address.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST.
    pub fn map(self: &Arc<Self>, size: u64, align: u64, flags: u32) -> Result<Mapping> {
        self.place(size, align)?.opened(flags)
    }

    /// Does the same as [`Bindings::map`], readable and writable, for memory that other processes may access.
    ///
    /// # Errors
    /// The same errors.
    pub fn map_for(self: &Arc<Self>, bo_use: BoUse, size: u64, align: u64) -> Result<Mapping> {
        self.place_for(bo_use, size, align)?.opened(bind_flag::READ | bind_flag::WRITE)
    }

    /// Maps a buffer of another process.
    ///
    /// # Errors
    /// Those of [`Bindings::map`]; INVALID_ARGUMENT: the buffer is not as the exporter described it.
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

    /// Creates a buffer and finds addresses for it, without mapping it for the host or the device.
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

    /// Creates a buffer of at least `size` bytes; returns it with its actual size.
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

    /// Finds addresses for a buffer, which owns them up to the next multiple of `granule`.
    pub(super) fn give_addresses(
        &self,
        bo: Buffer,
        size: u64,
        align: u64,
        granule: u64,
    ) -> Result<Mapping> {
        // A page behind each mapping, unmapped or read-only (see `Mapping::pad`), catches writes beyond its end.
        // The rest of its granule would be of no use to others, only a hole that every search for addresses
        // would visit.
        let room = (size.next_multiple_of(granule) + PAGE_SIZE).next_multiple_of(granule);
        // What lies in granules belongs to the application.
        let va = match granule {
            PAGE_SIZE => self.space.alloc(room, align.max(granule)),
            _ if size > granule && align <= granule => self.space.alloc_beside(room, granule),
            _ => self.space.alloc_apart(room, align.max(granule)),
        };
        let va = va.ok_or_else(|| out_of_addresses(size))?;
        Ok(Mapping { bo, offset: 0, va, size, room, padding: 0, bound: false })
    }

    /// The error for a failed ioctl; also notes a loss.
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

/// A buffer at its addresses. Unmapped and freed on drop.
pub struct Mapping {
    pub(super) bo: Buffer,
    /// Its offset in the buffer.
    pub(super) offset: u64,
    pub(super) va: u64,
    pub(super) size: u64,
    /// Number of bytes of addresses that the mapping owns.
    pub(super) room: u64,
    /// Number of bytes of zero pages that are mapped behind it.
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

    /// The requested size in bytes, rounded up to whole pages.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The buffer's handle.
    #[inline]
    pub fn bo(&self) -> u32 {
        self.bo.handle
    }

    /// Maps a part of it for the device, at its address.
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
            ..Default::default()
        };
        // SAFETY: the range is this mapping's part of the VA reservation; while it is not bound,
        // nothing refers to it.
        let bound = unsafe { bindings.backend.vm_bind(&bind) };
        bound.map_err(|errno| bindings.failed("VM_BIND", errno))?;
        self.bound = true;
        Ok(())
    }

    /// Maps read-only zero pages behind it, up to the end of the addresses that it owns.
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

    /// Maps it for the host, at its address.
    pub(super) fn open(&self) -> Result {
        let bindings = &self.bo.bindings;
        let size = self.size as usize;
        // SAFETY: as for `bind`, the range is ours and unused.
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
        // SAFETY: without an address, the kernel places the mapping where nothing is mapped.
        let mapped = unsafe { bindings.backend.bo_map(self.bo.handle, 0, size, None) };
        let ptr = mapped.map_err(|errno| bindings.failed("mmap of a buffer", errno))?;
        // SAFETY: the mapping is new, writable and as long as the buffer, and is unmapped here.
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
            // SAFETY: the range is ours, and its owner, which drops it, does not use it any more.
            if let Err(errno) = unsafe { bindings.backend.vm_bind(&bind) } {
                // The addresses are never freed, since the device may still use them.
                log::error!("VM_BIND: {:#x} cannot be unmapped: {}", self.va, errno.name());
                return;
            }
        }
        // SAFETY: as above; this also removes the host's mapping where the kernel left it in place.
        unsafe { bindings.space.close(self.va, self.size + self.padding) };
        bindings.space.free(self.va, self.room);
    }
}

/// The source of an allocation's memory.
pub enum Source {
    /// New memory.
    New,
    /// New memory that can be exported as a file.
    ForExport,
    /// The memory of a file to which such memory was exported.
    File(OwnedFd),
}

impl Source {
    /// Whether the memory can be shared as a file.
    pub fn is_file(&self) -> bool {
        !matches!(self, Self::New)
    }
}

/// Fills new memory with a value that no program expects. Freed memory is unmapped, so an access to it is
/// a fault in any case; but memory that is allocated again has, as on a real device, any content.
pub(super) fn poison(va: u64, bytes: u64) {
    const POISON: u8 = 0xd7;
    /// The largest number of bytes that are filled. More would cost time and memory, and a program that
    /// assumes zeroed memory reads its start.
    const MOST: u64 = 64 << 20;
    let start = std::ptr::with_exposed_provenance_mut::<u8>(va as usize);
    // SAFETY: the memory was just mapped for reading and writing, and nothing else knows its address yet.
    unsafe { start.write_bytes(POISON, bytes.min(MOST) as usize) };
}

pub(super) fn lost() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
        "the GPU's address space is lost: a command faulted or was aborted; destroy all contexts, call zeDeviceGetStatus and start again",
    )
}

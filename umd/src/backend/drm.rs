// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel lane: makes the ioctls on the render node of `tally.ko`.
//!
//! The device has an address space of its own on this lane. It reaches what is bound in a VM and nothing
//! else of this process, so ordinary memory of the application's is bound where a command names it
//! (`vm::user`).
//!
//! The descriptor is closed by exec. A forked child inherits it, and with it keeps the file's VMs alive
//! until it ends, but makes no call on it ([`crate::process`]).

use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::{
    BoCreate, BoInfo, Errno, Query, QueueCreate, QueueDestroy, QueueKick, QueueQuery, SemFollow,
    SemNotify, SemWait, SemWake, VmBind, VmCreate, VmDestroy, VmOrphan, bo_flag,
};

use super::{Backend, Hold, HostWait, Ioctls, Result, SharedBo, Sharing, Syncobjs, Watcher};

mod node;
mod watches;

use node::{GemClose, Node};
use watches::Watches;

/// Opens the first render node of a Tally device.
///
/// # Errors
/// A sentence that names the missing requirement.
pub fn open() -> std::result::Result<Arc<dyn Backend>, String> {
    let node = Arc::new(node::find()?);
    Ok(Arc::new(Drm { node, handles: Mutex::default(), watches: Watches::default() }))
}

struct Drm {
    node: Arc<Node>,
    watches: Watches,
    /// The file's buffers. Locked while handles are made and closed: a file has one handle for a
    /// buffer, so importing one that it has already is another use of the same handle.
    handles: Mutex<HashMap<u32, Handle>>,
}

#[derive(Clone, Copy)]
struct Handle {
    uses: u32,
    /// Whether others may only read it (IMPORT_READ_ONLY).
    read_only: bool,
    imported: bool,
}

impl Drm {
    fn handles(&self) -> MutexGuard<'_, HashMap<u32, Handle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// GEM_CLOSE of a handle without uses.
    fn close(&self, handle: u32) -> Result {
        // The core answers EINVAL where the embedded kernel answers ENOENT.
        self.node.gem_close(GemClose { handle, pad: 0 }).map_err(|errno| match errno {
            Errno::Invalid => Errno::NoEntry,
            other => other,
        })
    }

    /// Maps `size` bytes of a buffer from its offset for mmap: at `at`, replacing what is there, or anywhere.
    ///
    /// # Safety
    /// The rules of [`Ioctls::bo_map`] hold.
    unsafe fn map(&self, info: &BoInfo, size: usize, at: *mut c_void) -> Result<NonNull<u8>> {
        let flags = libc::MAP_SHARED | if at.is_null() { 0 } else { libc::MAP_FIXED };
        let handle = self.handles().get(&info.handle).copied();
        let only_read = handle.is_some_and(|it| it.imported && it.read_only);
        let protection = libc::PROT_READ | if only_read { 0 } else { libc::PROT_WRITE };
        let offset = i64::try_from(info.mmap_offset).map_err(|_| Errno::Invalid)?;
        // SAFETY: with an address the caller owns the range; else nothing is replaced.
        let mapped = unsafe { libc::mmap(at, size, protection, flags, self.node.raw(), offset) };
        if mapped == libc::MAP_FAILED {
            return Err(node::last_errno("mmap"));
        }
        NonNull::new(mapped.cast()).ok_or(Errno::Invalid)
    }
}

impl Backend for Drm {
    fn lane(&self) -> &'static str {
        "drm"
    }

    fn sees_process(&self) -> bool {
        false
    }

    fn syncobjs(&self) -> Option<&dyn Syncobjs> {
        Some(self)
    }

    fn memory_used(&self) -> u64 {
        self.node.resident_bytes().unwrap_or(0)
    }

    fn pci_address(&self) -> Option<[u32; 4]> {
        self.node.pci_address()
    }
}

impl Ioctls for Drm {
    unsafe fn query(&self, arg: &mut Query) -> Result {
        // SAFETY: the caller vouches for `arg.data`, the only address in it.
        unsafe { self.node.call(arg) }
    }

    fn bo_create(&self, arg: &mut BoCreate) -> Result {
        let mut handles = self.handles();
        // SAFETY: no field is an address.
        unsafe { self.node.call(arg) }?;
        let read_only = arg.flags & bo_flag::IMPORT_READ_ONLY != 0;
        handles.insert(arg.handle, Handle { uses: 1, read_only, imported: false });
        Ok(())
    }

    fn bo_info(&self, arg: &mut BoInfo) -> Result {
        // SAFETY: no field is an address.
        unsafe { self.node.call(arg) }
    }

    fn bo_close(&self, handle: u32) -> Result {
        let mut handles = self.handles();
        let known = handles.get_mut(&handle).ok_or(Errno::NoEntry)?;
        if known.uses > 1 {
            known.uses -= 1;
            return Ok(());
        }
        handles.remove(&handle);
        self.close(handle)
    }

    unsafe fn bo_map(
        &self,
        handle: u32,
        offset: u64,
        size: usize,
        at: Option<NonNull<u8>>,
    ) -> Result<NonNull<u8>> {
        let mut info = BoInfo { handle, ..Default::default() };
        self.bo_info(&mut info)?;
        let end = offset.checked_add(size as u64);
        let aligned = |value: u64| value.is_multiple_of(PAGE_SIZE);
        let place = at.map_or(ptr::null_mut(), |at| at.as_ptr().cast::<c_void>());
        let valid = size != 0 && aligned(offset | size as u64 | place.addr() as u64);
        if !valid || end.is_none_or(|end| end > info.size) {
            return Err(Errno::Invalid);
        }
        info.mmap_offset += offset;
        // SAFETY: as the caller says.
        unsafe { self.map(&info, size, place) }
    }

    fn vm_create(&self, arg: &mut VmCreate) -> Result {
        // SAFETY: the addresses in it are the VM's, not the process's.
        unsafe { self.node.call(arg) }
    }

    fn vm_destroy(&self, arg: &VmDestroy) -> Result {
        self.watches.vm_ends(arg.vm_id);
        // SAFETY: no field is an address.
        unsafe { self.node.call(&mut { *arg }) }
    }

    unsafe fn vm_bind(&self, arg: &VmBind) -> Result {
        // SAFETY: the process's own mappings stay as they are; MAP_USERPTR reads its page table only.
        // The caller is responsible for the device's accesses to the memory.
        unsafe { self.node.call(&mut { *arg }) }
    }

    fn queue_create(&self, arg: &mut QueueCreate) -> Result {
        // SAFETY: the addresses in it are the VM's, not the process's.
        unsafe { self.node.call(arg) }
    }

    fn queue_destroy(&self, arg: &QueueDestroy) -> Result {
        // SAFETY: no field is an address.
        unsafe { self.node.call(&mut { *arg }) }
    }

    fn queue_query(&self, arg: &mut QueueQuery) -> Result {
        // SAFETY: no field is an address.
        unsafe { self.node.call(arg) }
    }

    fn queue_kick(&self, arg: &QueueKick) -> Result<bool> {
        // SAFETY: no field is an address.
        unsafe { self.node.call(&mut { *arg }) }.map(|()| false)
    }

    unsafe fn sem_wait(&self, arg: &mut SemWait) -> Result {
        // SAFETY: the caller vouches for `arg.entries`, the only address in it.
        unsafe { self.node.call(arg) }
    }

    unsafe fn sem_notify(&self, arg: &SemNotify) -> Result {
        // SAFETY: the caller vouches for `arg.entries`, the only address in it.
        unsafe { self.node.call(&mut { *arg }) }
    }

    fn sem_follow(&self, arg: &SemFollow) -> Result {
        // SAFETY: no field is an address.
        unsafe { self.node.call(&mut { *arg }) }
    }

    fn sem_wake(&self, arg: &SemWake) -> Result {
        // SAFETY: no field is an address.
        unsafe { self.node.call(&mut { *arg }) }
    }

    fn vm_orphan(&self, arg: &VmOrphan) -> Result {
        // SAFETY: the addresses in it are the VM's, not the process's.
        unsafe { self.node.call(&mut { *arg }) }
    }
}

impl Sharing for Drm {
    fn has_dma_bufs(&self) -> bool {
        true
    }

    fn can_export(&self) -> bool {
        true
    }

    fn bo_export(&self, handle: u32) -> Result<(SharedBo, Hold)> {
        let known = self.handles().get(&handle).copied().ok_or(Errno::NoEntry)?;
        let mut info = BoInfo { handle, ..Default::default() };
        self.bo_info(&mut info)?;
        let file = self.node.export(handle, !known.read_only)?;
        let shared = SharedBo { file, offset: 0, size: info.size, read_only: known.read_only };
        // The DMA-BUF itself keeps the memory.
        Ok((shared, Box::new(())))
    }

    fn bo_import(&self, bo: SharedBo) -> Result<u32> {
        let mut handles = self.handles();
        let handle = self.node.import(bo.file.as_fd())?;
        let new = Handle { uses: 0, read_only: bo.read_only, imported: true };
        let known = handles.entry(handle).or_insert(new);
        let mut info = BoInfo { handle, ..Default::default() };
        // A part from the beginning will do, as of a file.
        let fits = self.bo_info(&mut info).is_ok() && bo.size <= info.size && bo.offset == 0;
        if fits {
            known.uses += 1;
            return Ok(handle);
        }
        if known.uses == 0 {
            handles.remove(&handle);
            self.close(handle)?;
        }
        Err(Errno::Invalid)
    }

    fn watch(&self, vm: u32, _: &[(u32, u64)], watcher: Arc<dyn Watcher>) -> Result<u64> {
        self.watches.add(&self.node, vm, watcher)
    }

    fn unwatch(&self, watch: u64) {
        self.watches.remove(watch);
    }
}

impl Syncobjs for Drm {
    fn syncobj_import(&self, file: BorrowedFd<'_>) -> Result<u32> {
        self.node.syncobj_import(file)
    }

    fn syncobj_destroy(&self, handle: u32) {
        if let Err(errno) = self.node.syncobj_destroy(handle) {
            log::error!("SYNCOBJ_DESTROY: {}", errno.name());
        }
    }

    fn syncobj_await(&self, handle: u32, point: u64, eventfd: BorrowedFd<'_>) -> Result {
        self.node.syncobj_await(handle, point, eventfd)
    }
}

impl HostWait for Drm {}

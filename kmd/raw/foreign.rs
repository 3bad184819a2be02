// SPDX-License-Identifier: GPL-2.0
//! Memory of other drivers, by its dma-buf. The kernel crate has no dma-bufs.
//!
//! Its pages belong to the exporter. So they are reached in the two ways that the exporter offers: by a table of
//! bus addresses, for a device that is given addresses, and by the exporter's own mmap, for processes.

use core::ffi::c_int;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::device::{Bound, Device};
use kernel::drm;
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::scatterlist::SGTable;
use kernel::sync::{new_mutex, Arc, Mutex};

// The empty structs that bindgen makes inside kernel structs depend on the configuration only.
#[allow(improper_ctypes)]
extern "C" {
    fn tally_foreign_get(buf: *mut bindings::dma_buf) -> bool;
    fn tally_foreign_mappable(buf: *mut bindings::dma_buf) -> bool;
    fn tally_foreign_from_start(buf: *mut bindings::dma_buf) -> bool;
    fn tally_foreign_adopt(obj: *mut bindings::drm_gem_object, buf: *mut bindings::dma_buf);
    fn tally_foreign_mmap(
        obj: *mut bindings::drm_gem_object,
        buf: *mut bindings::dma_buf,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int;
}

/// A dma-buf of another driver.
#[pin_data(PinnedDrop)]
pub(crate) struct Foreign {
    /// Counted.
    buf: NonNull<bindings::dma_buf>,
    writable: bool,
    /// Held while the exporter is asked to attach, map and unmap, which may take it a while. The exporter takes the
    /// lock of its reservation meanwhile.
    #[pin]
    attached: Mutex<Attached>,
}

/// What the exporter knows of us.
struct Attached {
    attachment: Option<NonNull<bindings::dma_buf_attachment>>,
    /// The table of addresses, and the number of its users. The exporter may have one for an attachment only.
    table: Option<NonNull<bindings::sg_table>>,
    users: usize,
}

// SAFETY: dma-bufs may be used and released by any thread; the rest is behind a lock.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Takes a reference to a dma-buf.
    ///
    /// # Errors
    /// ENOMEM.
    ///
    /// # Safety
    /// `buf` is a live dma-buf.
    pub(super) unsafe fn of(buf: *mut bindings::dma_buf) -> Result<Arc<Self>> {
        let buf = NonNull::new(buf).ok_or(EINVAL)?;
        let attached = Attached {
            attachment: None,
            table: None,
            users: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                // SAFETY: alive, as the caller guarantees. This is done last of what can fail: nothing after it
                // does.
                writable: unsafe { tally_foreign_get(buf.as_ptr()) },
                buf,
                attached <- new_mutex!(attached),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        // SAFETY: alive, and the size never changes.
        unsafe { (*self.buf.as_ptr()).size }
    }

    /// Whether its file may be written. An exporter can have it read only.
    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    /// Whether processes can map it.
    pub(crate) fn mappable(&self) -> bool {
        // SAFETY: alive.
        unsafe { tally_foreign_mappable(self.buf.as_ptr()) }
    }

    /// Whether processes can map it from its first page on only.
    pub(crate) fn only_from_start(&self) -> bool {
        // SAFETY: alive.
        unsafe { tally_foreign_from_start(self.buf.as_ptr()) }
    }

    /// Makes a new buffer, which is not in use yet, stand for this memory.
    ///
    /// # Safety
    /// The buffer keeps `self` until it is released, and its functions find no pages of its own.
    pub(super) unsafe fn adopt(&self, obj: *mut bindings::drm_gem_object) {
        // SAFETY: as the caller guarantees.
        unsafe { tally_foreign_adopt(obj, self.buf.as_ptr()) };
    }

    /// Maps it for a process, as the mmap of the buffer `obj`, whose reference this takes on success.
    ///
    /// # Safety
    /// The DRM core has called the mmap of `obj`, which stands for this memory, with this area.
    pub(super) unsafe fn map_object(
        &self,
        obj: *mut bindings::drm_gem_object,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: as the caller guarantees.
        unsafe { tally_foreign_mmap(obj, self.buf.as_ptr(), vma) }
    }

    /// Maps it for a process, from a page on: from then on the area is one of its exporter's.
    ///
    /// # Safety
    /// The kernel has called the mmap of a file with this area, in which nothing is mapped yet.
    pub(super) unsafe fn map_area(&self, vma: *mut bindings::vm_area_struct, page: u64) -> c_int {
        let Ok(page) = page.try_into() else {
            return EINVAL.to_errno();
        };
        // SAFETY: as the caller guarantees; the call checks that the area lies within the memory.
        unsafe { bindings::dma_buf_mmap(self.buf.as_ptr(), vma, page) }
    }

    /// Attaches the device to it, unless it is attached already. It stays attached until `self` ends. The exporter
    /// may find memory for it now, or move it, so the caller holds nothing that other threads wait for.
    ///
    /// # Errors
    /// Those of the exporter.
    pub(crate) fn attach<D: drm::Driver>(&self, drm: &drm::Device<D, drm::Ioctl>) -> Result {
        let mut attached = self.attached.lock();
        if attached.attachment.is_some() {
            return Ok(());
        }
        // The C device is the first field of the abstraction's.
        let drm = core::ptr::from_ref(drm).cast::<bindings::drm_device>();
        // SAFETY: a live DRM device, which keeps its parent.
        let dev = unsafe { (*drm).dev };
        // SAFETY: both are alive. Attachments without `importer_ops` are pinned as long as they are mapped.
        let new = from_err_ptr(unsafe { bindings::dma_buf_attach(self.buf.as_ptr(), dev) })?;
        attached.attachment = NonNull::new(new);
        Ok(())
    }

    fn direction(&self) -> bindings::dma_data_direction {
        match self.writable {
            true => bindings::dma_data_direction::DMA_BIDIRECTIONAL,
            false => bindings::dma_data_direction::DMA_TO_DEVICE,
        }
    }

    /// Maps it for the device, to which it is attached. It is pinned as long as it is mapped, and mapped once
    /// however many of the results there are.
    ///
    /// # Errors
    /// Those of the exporter. EINVAL: it was not attached, or does not consist of whole pages.
    pub(crate) fn map(self: &Arc<Self>, _dev: &Device<Bound>) -> Result<MappedForeign> {
        let mut attached = self.attached.lock();
        let attachment = attached.attachment.ok_or(EINVAL)?.as_ptr();
        let table = match attached.table {
            Some(table) => table,
            None => {
                // SAFETY: an attachment to a device that is bound, and not mapped.
                let table = from_err_ptr(unsafe {
                    bindings::dma_buf_map_attachment_unlocked(attachment, self.direction())
                })?;
                let table = NonNull::new(table).ok_or(ENOMEM)?;
                // SAFETY: mapped above, and no other thread knows it.
                let whole = unsafe { is_whole(table.as_ptr(), self.bytes() as u64) };
                if !whole {
                    // SAFETY: mapped above with this direction.
                    unsafe { self.unmap(attachment, table) };
                    return Err(EINVAL);
                }
                attached.table = Some(table);
                table
            }
        };
        attached.users += 1;
        Ok(MappedForeign {
            foreign: self.clone(),
            table,
        })
    }

    /// # Safety
    /// The table is the attachment's, mapped by [`Self::map`], and not used any more.
    unsafe fn unmap(
        &self,
        attachment: *mut bindings::dma_buf_attachment,
        table: NonNull<bindings::sg_table>,
    ) {
        // SAFETY: as the caller guarantees.
        unsafe {
            bindings::dma_buf_unmap_attachment_unlocked(
                attachment,
                table.as_ptr(),
                self.direction(),
            );
        }
    }
}

/// Whether a table consists of whole pages, and of `bytes` bytes at least.
///
/// # Safety
/// The table is mapped for a device, and does not change meanwhile.
unsafe fn is_whole(table: *mut bindings::sg_table, bytes: u64) -> bool {
    const WITHIN: u64 = tally_uapi::PAGE_SIZE - 1;
    let mut sum = 0u64;
    // SAFETY: as the caller guarantees.
    for piece in unsafe { SGTable::from_raw(table) }.iter() {
        if (piece.dma_address() | piece.dma_len()) & WITHIN != 0 {
            return false;
        }
        sum = sum.saturating_add(piece.dma_len());
    }
    sum >= bytes
}

#[pinned_drop]
impl PinnedDrop for Foreign {
    fn drop(self: Pin<&mut Self>) {
        let attachment = self.attached.lock().attachment.take();
        // SAFETY: the reference is ours. Nothing is mapped: users of the table keep `self`.
        unsafe {
            if let Some(attachment) = attachment {
                bindings::dma_buf_detach(self.buf.as_ptr(), attachment.as_ptr());
            }
            bindings::dma_buf_put(self.buf.as_ptr());
        }
    }
}

/// Memory of another driver, mapped for the device as long as one of these lives. They end before the driver is
/// unbound: bindings do, and commands that keep them.
pub(crate) struct MappedForeign {
    foreign: Arc<Foreign>,
    table: NonNull<bindings::sg_table>,
}

// SAFETY: the table is only read, and unmapped by any thread.
unsafe impl Send for MappedForeign {}
// SAFETY: as above.
unsafe impl Sync for MappedForeign {}

impl MappedForeign {
    /// Its bus addresses.
    pub(crate) fn table(&self) -> &SGTable {
        // SAFETY: the table is mapped, and stays as it is until the last user has gone.
        unsafe { SGTable::from_raw(self.table.as_ptr()) }
    }
}

impl Drop for MappedForeign {
    fn drop(&mut self) {
        let mut attached = self.foreign.attached.lock();
        attached.users -= 1;
        if attached.users != 0 {
            return;
        }
        if let (Some(attachment), Some(table)) = (attached.attachment, attached.table.take()) {
            // SAFETY: this was its last user.
            unsafe { self.foreign.unmap(attachment.as_ptr(), table) };
        }
    }
}

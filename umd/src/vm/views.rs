// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's view of its memory on the adversarial device (`TALLY_CHAOS`, `docs/chaos.md`), if that
//! has an address space of its own.
//!
//! Host and device use the same pages, so a forgotten scope of an event, or an access to device memory, does
//! no harm. With views the program gets fewer guarantees, as with a GPU that has caches and its own memory:
//!
//! ```text
//!  program ── same addresses ──► view ── flush ────► buffer ◄── same addresses ── device
//!                                     ◄── refresh ──
//! ```
//!
//! - *Device memory* is mapped for the device alone. An access by the host raises SIGSEGV.
//! - *Host and shared memory* has a view: separate pages for the program. Writes of the host reach the
//!   device with the next submission or signal of the host ([`Vm::flush_host`]), writes of the device reach
//!   the host when it has waited for a command that publishes them ([`Vm::refresh_host`]).
//!
//! Either side receives the bytes that changed since both were last equal, and keeps the others, so both
//! may write to different bytes of a page, or of a word, at the same time.
//!
//! Some memory cannot be treated this way. It is *coherent*, which is legal too: large memory, memory that
//! is shared with other processes, and all memory once a program communicates with the device directly.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_uapi::ioctl::Errno;
use tally_ze::ze_memory_type_t;

use super::bindings::Mapping;
use super::{Allocation, Vm};
use crate::error::Result;

/// The largest view in bytes, and the largest sum of all views, since they are compared word by word.
const LARGEST: u64 = 1 << 20;
const MOST: u64 = 16 << 20;

/// The views of a VM.
#[derive(Default)]
pub struct Views(Mutex<State>);

#[derive(Default)]
struct State {
    /// The views by their first address.
    views: BTreeMap<u64, View>,
    bytes: u64,
    /// Whether the program communicates with the device directly, so that there are no views any more.
    ended: bool,
}

/// Separate pages for the program at the addresses of a buffer.
struct View {
    /// The program's pages, which are at the buffer's address.
    host: Words,
    /// The buffer, as the device sees it.
    device: Words,
    /// The content of both when they were last equal.
    alike: Vec<u64>,
}

/// Memory that others may change at any time.
struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: atomics that stay mapped; see `Words::new`.
unsafe impl Send for Words {}

impl Words {
    /// The words of a mapping.
    ///
    /// # Safety
    /// `size` bytes, whole pages, stay mapped for reading and writing as long as this is used.
    unsafe fn new(start: NonNull<u8>, size: u64) -> Self {
        Self { start: start.cast(), count: size as usize / size_of::<u64>() }
    }

    fn get(&self) -> &[AtomicU64] {
        // SAFETY: `new`'s caller guarantees that they exist; any bits are an atomic.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }

    fn bytes(&self) -> usize {
        self.count * size_of::<u64>()
    }

    /// Unmaps a mapping that only this refers to.
    fn unmap(self) {
        // SAFETY: the mapping was made for this, and no reference to it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

/// Copies to `to` the bytes of `from` that have changed since both were equal, with the content `alike`.
fn pass(from: &Words, to: &Words, alike: &mut [u64]) {
    for ((from, to), alike) in from.get().iter().zip(to.get()).zip(alike) {
        let now = from.load(Ordering::Relaxed);
        if now != *alike {
            let changed = changed_bytes(now ^ *alike);
            let merge = |other: u64| Some(other & !changed | now & changed);
            // The closure never returns `None`.
            let _ = to.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
            *alike = now;
        }
    }
}

/// A mask with all bits of each byte that is not 0.
fn changed_bytes(difference: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let highest = (((difference & LOW) + LOW) | difference) & !LOW;
    (highest >> 7) * 0xff
}

impl View {
    /// Replaces the host's mapping of an unused buffer with a view. `None`: it stays coherent.
    fn create(mapping: &Mapping) -> Option<Self> {
        let device = mapping.alias().ok()?;
        let size = mapping.size();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // Shared, so that a forked child sees its parent's writes, as with a buffer.
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let at = mapping.ptr().as_ptr().cast::<c_void>();
        // SAFETY: this is the buffer's own part of the VA reservation; nothing refers to memory there.
        let mapped = unsafe { libc::mmap(at, size as usize, protection, flags, -1, 0) };
        // SAFETY: the pages were just mapped and stay as long as the allocation, which keeps the view.
        let host = unsafe { Words::new(mapping.ptr(), size) };
        if mapped == libc::MAP_FAILED {
            device.unmap();
            return None;
        }
        let mut view = Self { alike: vec![0; host.count], host, device };
        view.refresh();
        Some(view)
    }

    fn flush(&mut self) {
        pass(&self.host, &self.device, &mut self.alike);
    }

    fn refresh(&mut self) {
        pass(&self.device, &self.host, &mut self.alike);
    }

    /// Maps the buffer at its addresses again, with the host's writes. The program may write meanwhile.
    fn end(&mut self, mapping: &Mapping) -> Result {
        self.flush();
        let none = ptr::null_mut::<c_void>();
        let (at, size) = (self.host.start.as_ptr().cast::<c_void>(), self.host.bytes());
        // For a shared mapping this makes a second mapping of the same pages. SAFETY: the kernel places the new
        // mapping where nothing is mapped; the old one stays.
        let again = unsafe { libc::mremap(at, 0, size, libc::MREMAP_MAYMOVE, none) };
        let again = NonNull::new(again.cast::<u8>()).filter(|_| again != libc::MAP_FAILED);
        let Some(again) = again else {
            return Err(mapping.bo.bindings.failed("mremap", Errno::NoMemory));
        };
        // SAFETY: the mapping was just made with that size.
        let last = unsafe { Words::new(again, size as u64) };
        let opened = mapping.open();
        if opened.is_ok() {
            // Includes the writes between the two steps.
            pass(&last, &self.device, &mut self.alike);
        }
        last.unmap();
        opened
    }
}

impl Mapping {
    /// A second mapping of the buffer, for the driver.
    fn alias(&self) -> Result<Words> {
        let bindings = &self.bo.bindings;
        // SAFETY: without an address, the kernel places the mapping where nothing is mapped.
        let mapped =
            unsafe { bindings.backend.bo_map(self.bo.handle, 0, self.size as usize, None) };
        let start = mapped.map_err(|errno| bindings.failed("mmap of a buffer", errno))?;
        // SAFETY: the pages were just mapped and stay until `Words::unmap`.
        Ok(unsafe { Words::new(start, self.size) })
    }
}

impl Views {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hides new memory from the program as far as required, before the program knows the address.
    pub(super) fn enter(&self, allocation: &Allocation) {
        let mapping = &allocation.mapping;
        if allocation.kind == ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE {
            // SAFETY: this is the mapping's own part of the VA reservation, to which nothing refers yet.
            unsafe { mapping.bo.bindings.space.close(mapping.va(), mapping.size()) };
            return;
        }
        let mut state = self.state();
        let size = mapping.size();
        let outside = allocation.exportable || allocation.import.is_some();
        if outside || state.ended || size > LARGEST || state.bytes + size > MOST {
            return;
        }
        if let Some(view) = View::create(mapping) {
            state.bytes += size;
            state.views.insert(mapping.va(), view);
        }
    }

    /// Notes that the memory at `base` is freed.
    pub(super) fn leave(&self, base: u64) {
        self.state().forget(base);
    }
}

impl State {
    fn forget(&mut self, base: u64) {
        if let Some(view) = self.views.remove(&base) {
            self.bytes -= view.host.bytes() as u64;
            view.device.unmap();
        }
    }

    /// Makes memory coherent.
    fn end(&mut self, mapping: &Mapping) -> Result {
        if let Some(view) = self.views.get_mut(&mapping.va()) {
            view.end(mapping)?;
        }
        self.forget(mapping.va());
        Ok(())
    }
}

impl Vm {
    /// Whether the program has views of its memory.
    #[inline]
    pub fn has_views(&self) -> bool {
        self.views().is_some()
    }

    /// Makes the host's writes so far visible to the device.
    #[inline]
    pub fn flush_host(&self) {
        if let Some(views) = self.views() {
            views.state().views.values_mut().for_each(View::flush);
        }
    }

    /// Makes the device's writes so far visible to the host.
    #[inline]
    pub fn refresh_host(&self) {
        if let Some(views) = self.views() {
            views.state().views.values_mut().for_each(View::refresh);
        }
    }

    /// Makes each side's writes to the allocation at `base` visible to the other at once, because it is
    /// shared with another process.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY.
    pub fn make_coherent(&self, base: u64) -> Result {
        let Some(views) = self.views() else { return Ok(()) };
        self.end_view(&mut views.state(), base)
    }

    /// Makes the allocation at `base` coherent. The views are locked before the allocation.
    fn end_view(&self, state: &mut State, base: u64) -> Result {
        let Some(found) = self.usm.find(base) else { return Ok(()) };
        let end = |it: &mut Allocation| state.end(&it.mapping);
        self.usm.with(found.base, found.id, end).unwrap_or(Ok(()))
    }

    /// Does the same for all memory, including future allocations: a kernel and the host communicate by
    /// atomic operations, or the host signals or waits without the driver.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY.
    pub fn make_all_coherent(&self) -> Result {
        let Some(views) = self.views() else { return Ok(()) };
        let mut state = views.state();
        if !std::mem::replace(&mut state.ended, true) {
            log::debug!("TALLY_CHAOS: memory is coherent from now on");
        }
        // No thread continues before all memory is coherent: a second one waits for the lock.
        let bases: Vec<u64> = state.views.keys().copied().collect();
        bases.into_iter().try_for_each(|base| self.end_view(&mut state, base))
    }
}

#[cfg(test)]
mod tests;

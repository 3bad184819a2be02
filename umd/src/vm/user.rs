// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's ordinary memory, where the device does not see the process.
//!
//! A command may refer to any memory: an array on the stack, a file's pages, memory from malloc. On such a
//! lane the pages are bound at addresses of the VA reservation, beside the process's own mapping of them:
//!
//! ```text
//!  process  ...[ pages ]...............[ VA reservation: buffers ]...
//!                   └────── MAP_USERPTR ─────────────────────^
//! ```
//!
//! Bound pages are pinned, so the device works on the memory itself, with the content that it has when the
//! command runs. They are bound for one submission each: the application may unmap memory and map other
//! memory at the same address as soon as the command is complete, and the next submission binds that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::{Errno, VmBind, bind_flag, bind_op};
use tally_ze::ze_result_t;

use super::Vm;
use super::bindings::{Bindings, out_of_addresses};
use crate::error::{Error, Result};
use crate::process;

/// The device's access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read access.
    Read,
    /// Write access, which may include reads.
    Write,
}

/// Addresses for ordinary memory. Freed on drop, when the device no longer uses them.
pub struct UserRange {
    bindings: Arc<Bindings>,
    /// First page, as the process sees it.
    page: u64,
    /// The same page, as the device sees it.
    va: u64,
    size: u64,
    access: Access,
    bound: AtomicBool,
}

impl Vm {
    /// Whether the device finds `size` bytes at `address` as the process does.
    #[inline]
    pub fn reaches(&self, address: u64, size: u64) -> bool {
        let space = &self.bindings.space;
        size == 0
            || self.bindings.backend.sees_process()
            || space.contains(address) && space.contains(address.saturating_add(size - 1))
    }

    /// Whether an address lies in the VA reservation, where the driver's memory is placed.
    pub fn in_reservation(&self, address: u64) -> bool {
        self.bindings.space.contains(address)
    }

    /// Allocates addresses at which the device will find `size` bytes, not 0, of ordinary memory. Nothing is
    /// bound yet.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY: too few addresses are left.
    pub fn user_range(&self, address: u64, size: u64, access: Access) -> Result<UserRange> {
        let page = address & !(PAGE_SIZE - 1);
        let end = address.checked_add(size).and_then(|end| end.checked_next_multiple_of(PAGE_SIZE));
        let bindings = &self.bindings;
        let pages = end.map(|end| end - page).filter(|&pages| pages <= bindings.space.size());
        let placed = pages.and_then(|pages| Some((pages, bindings.space.alloc(pages, PAGE_SIZE)?)));
        let (size, va) = placed.ok_or_else(|| out_of_addresses(size))?;
        let bound = AtomicBool::new(false);
        Ok(UserRange { bindings: bindings.clone(), page, va, size, access, bound })
    }
}

impl UserRange {
    /// The device's address for the process's `address`.
    pub fn translate(&self, address: u64) -> u64 {
        self.va + (address - self.page)
    }

    /// Does the same for an address that may lie outside of the range.
    pub fn finds(&self, address: u64) -> Option<u64> {
        let inside = (self.page..self.page + self.size).contains(&address);
        inside.then(|| self.translate(address))
    }

    /// Whether `va` is one of the device's addresses of this range.
    pub fn holds(&self, va: u64) -> bool {
        (self.va..self.va + self.size).contains(&va)
    }

    /// Binds the pages that the process has there now. Pages that are bound already stay bound.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: there is no such memory. OUT_OF_HOST_MEMORY: RLIMIT_MEMLOCK. DEVICE_LOST.
    pub fn pin(&self) -> Result {
        if self.bound.load(Ordering::Relaxed) {
            return Ok(());
        }
        let write = if self.access == Access::Write { bind_flag::WRITE } else { 0 };
        let bind = VmBind {
            vm_id: self.bindings.id,
            op: bind_op::MAP_USERPTR,
            flags: bind_flag::READ | write,
            handle: 0,
            offset: self.page,
            address: self.va,
            size: self.size,
            ..Default::default()
        };
        // SAFETY: the addresses are this range's part of the reservation, and nothing refers to them.
        unsafe { self.bindings.backend.vm_bind(&bind) }.map_err(|errno| self.refused(errno))?;
        self.bound.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Unbinds the pages. The device no longer uses them.
    pub fn unpin(&self) {
        if !self.bound.swap(false, Ordering::Relaxed) {
            return;
        }
        let bind = VmBind {
            vm_id: self.bindings.id,
            op: bind_op::UNMAP,
            address: self.va,
            size: self.size,
            ..Default::default()
        };
        // SAFETY: as for `pin`; the caller guarantees that the device is done.
        if let Err(errno) = unsafe { self.bindings.backend.vm_bind(&bind) } {
            log::error!("VM_BIND: {:#x} cannot be unmapped: {}", self.va, errno.name());
            self.bound.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    fn refused(&self, errno: Errno) -> Error {
        let range = format!("{:#x} to {:#x}", self.page, self.page + self.size);
        match errno {
            Errno::Fault => Error::invalid(format!("the process has no such memory: {range}")),
            Errno::NoSpace => Error::new(
                ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                format!("{range} cannot be locked for the device; see ulimit -l"),
            ),
            errno => self.bindings.failed("VM_BIND", errno),
        }
    }
}

impl Drop for UserRange {
    fn drop(&mut self) {
        if process::is_gone() {
            return;
        }
        self.unpin();
        // Addresses that the device may still use are never freed.
        if !self.bound.load(Ordering::Relaxed) {
            self.bindings.space.free(self.va, self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::tests::fake;

    #[test]
    fn memory_that_the_device_does_not_see_is_bound_where_it_is_used() {
        let (backend, vm) = fake();
        backend.state().blind = true;
        let bytes = vec![0_u8; 3 * PAGE_SIZE as usize];
        let address = bytes.as_ptr() as u64 + 100;
        assert!(!vm.reaches(address, 1));
        let range = vm.user_range(address, 2 * PAGE_SIZE, Access::Read).expect("addresses");
        assert!(backend.state().bindings.is_empty(), "nothing is bound before it is used");
        range.pin().expect("memory");
        range.pin().expect("a second time is no error");
        let va = range.translate(address);
        assert!(vm.reaches(va, 2 * PAGE_SIZE));
        assert_eq!(va % PAGE_SIZE, address % PAGE_SIZE);
        let bound = backend.state().bindings.clone();
        assert_eq!(bound.len(), 1);
        let (&at, &(size, flags)) = bound.iter().next().expect("one");
        assert!(at <= va && va + 2 * PAGE_SIZE <= at + size);
        assert_eq!(flags, bind_flag::READ, "what is only read may be read-only memory");
        range.unpin();
        assert!(backend.state().bindings.is_empty());
    }

    #[test]
    fn addresses_and_bindings_end_with_the_range() {
        let (backend, vm) = fake();
        backend.state().blind = true;
        let first = vm.user_range(4096, 1, Access::Write).expect("addresses");
        first.pin().expect("the fake binds anything");
        let at = first.translate(4096);
        drop(first);
        assert!(backend.state().bindings.is_empty());
        let again = vm.user_range(4096, 1, Access::Write).expect("addresses");
        assert_eq!(again.translate(4096), at);
    }

    #[test]
    fn a_range_that_cannot_be_is_refused() {
        let (backend, vm) = fake();
        backend.state().blind = true;
        assert!(vm.user_range(4096, 1 << 40, Access::Read).is_err());
        assert!(vm.user_range(u64::MAX - 10, 100, Access::Read).is_err());
        assert!(vm.reaches(u64::MAX, 0), "no bytes are everywhere");
    }
}

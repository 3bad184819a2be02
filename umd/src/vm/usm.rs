// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unified shared memory: the memory that the application allocates and frees.
//!
//! ```text
//!  allocate ──► Cache: blocks that served before ──┐
//!          └──► a new block: buffer and addresses ─┴──► Registry: which allocation holds an address
//!  free ──────► Registry ──► Cache, or unmapped
//! ```
//!
//! A block is a buffer of its own at addresses of its own, in whole granules of 64 KiB, so it can be
//! exported without other memory, and the allocation of an address is found by its granule. Creating a
//! block takes several system calls, so a freed one keeps its buffer and addresses for the next allocation
//! of its size, unless another process has got it. It is zeroed before it is reused. For usual sizes neither path
//! takes a lock that all threads share.
//!
//! Memory up to the end of the granule is readable, and so is the granule behind it. Libraries read
//! there: oneMKL's matrix products load the next block of a matrix before they know that there is none.
//! Most of Intel's GPUs have a scratch page wherever nothing is mapped. Where untouched pages cost nothing,
//! a block extends to the end of its granule; zero pages follow it. The adversarial device has none of
//! this, so it finds such reads. The accounted size is the requested size in pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::bind_flag;
use tally_ze::ze_memory_type_t;

use super::Vm;
use super::bindings::{Bindings, Buffer, Mapping, Source, lost, out_of_addresses, poison};
use super::budget::Charge;
use crate::backend::{BoUse, Hold, SharedBo};
use crate::error::{Error, Result};
use crate::process;
use crate::space::HUGE_PAGE;

mod allocation;
mod cache;
mod registry;

pub use allocation::{Allocation, Found};
use allocation::{GRANULE, MOST_KEPT};
pub(super) use cache::Cache;
use cache::most_warm;
pub(super) use registry::Registry;

/// Memory that is freed when this is dropped, after the device is done with it.
pub struct Retired {
    vm: Arc<Vm>,
    allocation: Option<Box<Allocation>>,
}

impl Retired {
    /// Wraps an allocation that was taken out of `vm`.
    pub fn new(vm: &Arc<Vm>, allocation: Box<Allocation>) -> Self {
        Self { vm: Arc::clone(vm), allocation: Some(allocation) }
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take() {
            self.vm.free(allocation);
        }
    }
}

/// The owner and purpose of an allocation.
struct Owner {
    kind: ze_memory_type_t,
    context: u64,
    charge: Option<Charge>,
}

impl Vm {
    /// Allocates unified shared memory of `size` bytes, not 0.
    ///
    /// # Errors
    /// Those of [`Bindings::map`] and [`Bindings::import`].
    pub fn allocate(
        &self,
        source: Source,
        size: u64,
        align: u64,
        kind: ze_memory_type_t,
        context: u64,
        charge: Option<Charge>,
    ) -> Result<u64> {
        if self.bindings.is_over() {
            return Err(lost());
        }
        let bytes = size.checked_next_multiple_of(PAGE_SIZE);
        let bytes = bytes.ok_or_else(|| out_of_addresses(size))?;
        let exportable = source.is_file();
        let mut block = match source {
            Source::New => self.counted(bytes, |vm| vm.block(bytes, align))?,
            Source::ForExport => self.counted(bytes, |vm| {
                let mapping = vm.bindings.block(BoUse::Block, bytes, align, !vm.poisons)?;
                Ok(Box::new(Allocation::new(mapping)))
            })?,
            Source::File(file) => {
                let bo = SharedBo { file, offset: 0, size: bytes, read_only: false };
                Box::new(Allocation::new(self.bindings.import_block(bo, align, !self.poisons)?))
            }
        };
        block.exportable = exportable;
        Ok(self.enter(block, size, Owner { kind, context, charge }))
    }

    /// Maps memory that another process has shared, for [`Vm::enter_import`].
    ///
    /// # Errors
    /// Those of [`Bindings::import`].
    pub fn import_memory(&self, bo: SharedBo) -> Result<Mapping> {
        self.bindings.import_block(bo, PAGE_SIZE, !self.poisons)
    }

    /// Registers memory that another process has shared and that `link` keeps alive there; returns its address.
    pub fn enter_import(
        &self,
        mapping: Mapping,
        size: u64,
        kind: ze_memory_type_t,
        context: u64,
        charge: Option<Charge>,
        import: Hold,
    ) -> u64 {
        let mut block = Box::new(Allocation::new(mapping));
        block.import = Some(import);
        self.enter(block, size, Owner { kind, context, charge })
    }

    /// A new or reused block of which the kernel counts `bytes`.
    fn counted(
        &self,
        bytes: u64,
        make: impl Fn(&Self) -> Result<Box<Allocation>>,
    ) -> Result<Box<Allocation>> {
        let backend = self.backend();
        backend.take_memory(bytes).map_err(|errno| self.failed("BO_CREATE", errno))?;
        let made = make(self).or_else(|error| {
            // Cached blocks may hold the missing resource: addresses, mappings, files, memory.
            if self.cache.as_ref().is_some_and(Cache::drain) { make(self) } else { Err(error) }
        });
        let mut block = made.inspect_err(|_| backend.give_memory(bytes))?;
        block.counted = bytes;
        Ok(block)
    }

    /// A block of `bytes`, whole pages. They are zero, or under `TALLY_CHAOS` arbitrary.
    fn block(&self, bytes: u64, align: u64) -> Result<Box<Allocation>> {
        let size = match bytes {
            _ if self.poisons || !self.backend().is_sparse() => bytes,
            0..=MOST_KEPT => bytes.next_power_of_two().max(GRANULE),
            _ => bytes.checked_next_multiple_of(GRANULE).ok_or_else(|| out_of_addresses(bytes))?,
        };
        let Some(cache) = &self.cache else {
            let mapping = self.bindings.block(BoUse::Block, size, align, !self.poisons)?;
            let block = Allocation::new(mapping);
            if self.poisons {
                poison(block.mapping.va(), bytes);
            }
            return Ok(Box::new(block));
        };
        let found = cache.get(bytes, size, align);
        if bytes > MOST_KEPT {
            cache.cool(most_warm(self.backend().memory_left()));
        }
        if let Some(mut block) = found {
            if bytes <= MOST_KEPT {
                block.clear();
                return Ok(block);
            }
            if block.open() {
                return Ok(block);
            }
        }
        let mut block = Allocation::new(self.bindings.block(BoUse::Block, size, align, true)?);
        block.reusable = true;
        Ok(Box::new(block))
    }

    fn enter(&self, mut block: Box<Allocation>, size: u64, owner: Owner) -> u64 {
        block.size = size;
        block.kind = owner.kind;
        block.context = owner.context;
        block.charge = owner.charge;
        block.id = Self::allocation_id();
        if let Some(watcher) = &self.watcher {
            watcher.enter(&block, !block.exportable && block.import.is_none());
        }
        self.usm.enter(block)
    }

    /// A new id for an allocation. A thread reserves several at a time.
    pub fn allocation_id() -> u64 {
        const MANY: u64 = 256;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            static MINE: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
        }
        let mine = MINE.try_with(|mine| {
            let (mut next, mut end) = mine.get();
            if next == end {
                next = NEXT.fetch_add(MANY, Ordering::Relaxed);
                end = next + MANY;
            }
            mine.set((next + 1, end));
            next
        });
        // The thread is ending.
        mine.unwrap_or_else(|_| NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes out the allocation with this first address, if it belongs to `context`. Dropping it unmaps it,
    /// while [`Vm::free`] keeps its block.
    pub fn release(&self, base: u64, context: u64) -> Option<Box<Allocation>> {
        self.usm.take(base, context).map(|it| self.taken(it))
    }

    /// Notifies the watcher of an allocation that was taken out, and returns it.
    fn taken(&self, allocation: Box<Allocation>) -> Box<Allocation> {
        if let Some(watcher) = &self.watcher {
            watcher.leave(allocation.mapping.va());
        }
        allocation
    }

    /// Takes out all remaining allocations of a context.
    pub fn release_all(&self, context: u64) -> Vec<Box<Allocation>> {
        let all = self.usm.bases(|it| it.context == context);
        all.into_iter().filter_map(|base| self.release(base, context)).collect()
    }

    /// Frees an allocation that was taken out: its block serves the next allocation of its size.
    pub fn free(&self, mut allocation: Box<Allocation>) {
        let used = allocation.size.next_multiple_of(PAGE_SIZE);
        allocation.uncount();
        let Some(cache) = self.cache.as_ref().filter(|_| allocation.reusable) else { return };
        if self.is_lost() || process::is_gone() {
            return;
        }
        allocation.atomics.clear();
        allocation.dirty = used;
        if used <= MOST_KEPT {
            return cache.put(used, allocation);
        }
        let most = most_warm(self.backend().memory_left());
        if allocation.close(most) {
            cache.put(used, allocation);
            cache.cool(most);
        }
    }

    /// The allocation that contains an address, in any context.
    #[inline]
    pub fn find(&self, address: u64) -> Option<Found> {
        self.usm.find(address)
    }

    /// Bytes from an address to the end of the allocation that contains it, in any context.
    #[inline]
    pub fn rest(&self, address: u64) -> Option<u64> {
        self.usm.rest(address)
    }
}

impl Bindings {
    /// A block of at least `size` bytes for `bo_use`, mapped for host and device; `padded`: followed by zero
    /// pages.
    fn block(
        self: &Arc<Self>,
        bo_use: BoUse,
        size: u64,
        align: u64,
        padded: bool,
    ) -> Result<Mapping> {
        let (bo, size) = self.new_buffer(bo_use, size)?;
        let mut mapping = self.open_block(bo, (0, size), align, true)?;
        if padded {
            mapping.pad()?;
        }
        Ok(mapping)
    }

    /// Does the same for memory of another process.
    fn import_block(self: &Arc<Self>, bo: SharedBo, align: u64, padded: bool) -> Result<Mapping> {
        let SharedBo { offset, size, read_only, .. } = bo;
        let whole = offset.checked_add(size).filter(|&whole| whole <= self.space.size());
        let whole = whole.ok_or_else(|| out_of_addresses(size))?;
        if !offset.is_multiple_of(PAGE_SIZE) {
            return Err(Error::invalid("the exporter has sent an offset that is on no page"));
        }
        // The buffer begins at the start of its file; the mapping begins at the offset.
        let buffer = self.import_buffer(SharedBo { offset: 0, size: whole, ..bo })?;
        let mut mapping = self.open_block(buffer, (offset, size), align, !read_only)?;
        if padded {
            mapping.pad()?;
        }
        Ok(mapping)
    }

    fn open_block(
        self: &Arc<Self>,
        bo: Buffer,
        (offset, size): (u64, u64),
        align: u64,
        writable: bool,
    ) -> Result<Mapping> {
        // Blocks that begin at huge pages compete for the same sets of the processor's caches. Others lie behind one
        // another with a granule between them, so that those of sizes that are powers of two begin at different sets.
        let huge = size >= HUGE_PAGE && self.backend.has_huge_pages();
        let align = if huge { align.max(HUGE_PAGE) } else { align };
        let access = bind_flag::READ | if writable { bind_flag::WRITE } else { 0 };
        let mut mapping = self.give_addresses(bo, size, align, GRANULE)?;
        mapping.offset = offset;
        mapping.opened(access)
    }

    /// Whether the VM is known to be lost, or its loss can be detected without a call.
    fn is_over(&self) -> bool {
        let seen = self.lost.load(Ordering::Relaxed);
        if !seen && self.loss.as_ref().is_some_and(|it| it()) {
            self.lost.store(true, Ordering::Relaxed);
            return true;
        }
        seen
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GPU's address space of this process, and what is mapped in it.
//!
//! ```text
//!  Vm ─┬─ Heap ────── blocks ──┐
//!      ├─ user memory (USM) ───┼─► Mapping: addresses + buffer + binding ─► Bindings: backend, id, VA reservation
//!      └───────────────────────┘
//! ```
//!
//! There is one VM a device and process, shared by all contexts: pointers, counters and copies cross
//! contexts without aliases. It ends when the last context and everything in it is gone.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tally_uapi::PAGE_SIZE;
use tally_uapi::cell::Compare;
use tally_uapi::ioctl::{
    BoCreate, Errno, SemWait, SemWaitEntry, VmBind, VmCreate, VmDestroy, bind_flag, bind_op,
    bo_flag,
};
use tally_uapi::queue::QueueControl;
use tally_ze::ze_result_t;

use crate::backend::{Backend, BoUse, Loss, SharedBo};
use crate::error::{Error, Result};
use crate::process;
use crate::settings;
use crate::space::{HUGE_PAGE, Space};

mod atomics;
pub mod budget;
pub mod heap;
pub mod printf;
pub mod reserved;
mod shared;
mod timeline;
mod user;
mod usm;
mod views;

use atomics::SystemAtomics;
use heap::{Block, Heap};
use reserved::Reserved;
pub use shared::Exported;
use timeline::Timeline;
pub use user::{Access, UserRange};
pub use usm::{Allocation, Found, Retired};
use usm::{Cache, Registry};
use views::Views;

/// A VM of the kernel, as far as mappings need it. Destroyed when nothing is mapped any more.
pub struct Bindings {
    backend: Arc<dyn Backend>,
    space: Arc<Space>,
    id: u32,
    /// Set when the VM's loss was first seen; it is never unset.
    lost: AtomicBool,
    /// Sees it without a call, if the back end has such a thing.
    loss: Option<Loss>,
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
    fn import_buffer(self: &Arc<Self>, bo: SharedBo) -> Result<Buffer> {
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

    fn place_for(self: &Arc<Self>, bo_use: BoUse, size: u64, align: u64) -> Result<Mapping> {
        let (bo, size) = self.new_buffer(bo_use, size)?;
        self.give_addresses(bo, size, align, PAGE_SIZE)
    }

    /// A buffer of at least `size` bytes, and how many it has.
    fn new_buffer(self: &Arc<Self>, bo_use: BoUse, size: u64) -> Result<(Buffer, u64)> {
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
    fn give_addresses(&self, bo: Buffer, size: u64, align: u64, granule: u64) -> Result<Mapping> {
        // An unmapped page behind each mapping catches what runs over its end. What is left of its
        // granule is of no use to others, and a hole that every search for addresses would look at.
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

fn out_of_addresses(size: u64) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        format!("no range of {size} bytes is free among the device's addresses"),
    )
}

/// A buffer's handle; closed on drop.
struct Buffer {
    bindings: Arc<Bindings>,
    handle: u32,
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
    bo: Buffer,
    /// Its offset in the buffer.
    offset: u64,
    va: u64,
    size: u64,
    /// Addresses that it has for itself.
    room: u64,
    /// Bytes of zeros that are mapped behind it.
    padding: u64,
    bound: bool,
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

    /// Maps zeros, to be read, behind it up to the next multiple of `granule`.
    fn pad(&mut self, granule: u64) -> Result {
        let padding = self.size.next_multiple_of(granule) - self.size;
        if padding == 0 {
            return Ok(());
        }
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
    fn opened(mut self, flags: u32) -> Result<Self> {
        self.bind(0, self.size, flags)?;
        self.open()?;
        Ok(self)
    }

    /// Maps it for the host, at its place.
    fn open(&self) -> Result {
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

/// The address space with the driver's heap and the users' memory in it.
pub struct Vm {
    bindings: Arc<Bindings>,
    heap: Arc<Heap>,
    usm: Registry,
    /// Blocks for allocations; none where each is to be new.
    cache: Option<Cache>,
    /// Whether new memory is filled with what no program means.
    poisons: bool,
    /// Attributes of atomics on memory that is none of the driver's.
    system_atomics: SystemAtomics,
    reserved: Reserved,
    /// The program's view of user memory, where that is not the memory itself.
    views: Option<Views>,
    /// A cell that is never met, to ask for the VM's state.
    probe: OnceLock<Block>,
    /// The ring that kernels print to, if any does.
    printf: Mutex<Option<Arc<printf::Ring>>>,
    /// A record of the commands of its queues, if a trace is asked for.
    timeline: Option<Arc<Timeline>>,
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

impl Vm {
    /// Makes the VM over the whole window.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST.
    pub fn create(backend: &Arc<dyn Backend>, space: &Arc<Space>) -> Result<Arc<Self>> {
        let adversarial = settings::get().chaos.is_some() && !backend.sees_process();
        Self::create_with(backend, space, adversarial.then(Views::default))
    }

    fn create_with(
        backend: &Arc<dyn Backend>,
        space: &Arc<Space>,
        views: Option<Views>,
    ) -> Result<Arc<Self>> {
        let mut create =
            VmCreate { start: space.start(), size: space.size(), ..Default::default() };
        backend.vm_create(&mut create).map_err(|errno| Error::kernel("VM_CREATE", errno))?;
        let bindings = Arc::new(Bindings {
            backend: backend.clone(),
            space: space.clone(),
            id: create.vm_id,
            lost: AtomicBool::new(false),
            loss: backend.loss(create.vm_id),
        });
        let heap = Heap::new(bindings.clone());
        let reserved = Reserved::new(bindings.clone());
        let poisons = settings::get().chaos.is_some();
        // A block that rests stays mapped, which would hide an access to freed memory.
        let cache = (backend.is_sparse() && views.is_none() && !poisons).then(Cache::default);
        let (probe, printf) = (OnceLock::new(), Mutex::default());
        let timeline = Timeline::start(&bindings);
        Ok(Arc::new(Self {
            bindings,
            heap,
            usm: Registry::new(space),
            cache,
            poisons,
            system_atomics: SystemAtomics::default(),
            reserved,
            views,
            probe,
            printf,
            timeline,
        }))
    }

    /// The back end that reaches the device.
    #[inline]
    pub fn backend(&self) -> &dyn Backend {
        &*self.bindings.backend
    }

    /// The VM's id, for ioctls.
    #[inline]
    pub fn id(&self) -> u32 {
        self.bindings.id
    }

    /// The driver's memory.
    #[inline]
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Reserved addresses and what is mapped in them.
    #[inline]
    pub fn reserved(&self) -> &Reserved {
        &self.reserved
    }

    /// See [`Bindings::map`].
    ///
    /// # Errors
    /// The same errors.
    pub fn map(&self, size: u64, align: u64, flags: u32) -> Result<Mapping> {
        self.bindings.map(size, align, flags)
    }

    /// See [`Bindings::place`].
    ///
    /// # Errors
    /// The same errors.
    pub fn place(&self, size: u64, align: u64) -> Result<Mapping> {
        self.bindings.place(size, align)
    }

    /// The address of the ring that kernels print to; makes it if there is none.
    ///
    /// # Errors
    /// Those of [`Bindings::map`].
    pub fn printf_ring(&self) -> Result<u64> {
        let mut ring = self.printf.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = &*ring {
            return Ok(ring.va());
        }
        let made = printf::Ring::create(&self.bindings)?;
        Ok(ring.insert(made).va())
    }

    /// Has the device record what a new queue runs, if there is a timeline. `engine`: class and index.
    pub fn trace_queue(&self, control: &QueueControl, queue: u32, engine: (u32, u32)) {
        if let Some(timeline) = &self.timeline {
            timeline.add_queue(control, queue, engine);
        }
    }

    /// The error for a failed ioctl; takes note of a loss.
    pub fn failed(&self, ioctl: &str, errno: Errno) -> Error {
        self.bindings.failed(ioctl, errno)
    }

    /// Whether the VM's loss has been seen. A cheap look; [`Vm::check`] asks the kernel.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.bindings.lost.load(Ordering::Relaxed)
    }

    /// Takes note of a loss.
    pub fn set_lost(&self) {
        self.bindings.lost.store(true, Ordering::Relaxed);
    }

    /// Asks the kernel whether the VM is alive.
    ///
    /// # Errors
    /// DEVICE_LOST, or what stands in the way of asking.
    pub fn check(&self) -> Result {
        if self.is_lost() {
            return Err(lost());
        }
        if self.probe.get().is_none() {
            let mut block = self.heap.alloc(8, 8)?;
            block.clear();
            // Another thread's block is as good.
            let _ = self.probe.set(block);
        }
        let Some(block) = self.probe.get() else { return Ok(()) };
        let entry = SemWaitEntry {
            handle: block.bo(),
            compare: Compare::Equal as u32,
            offset: block.offset(),
            value: 1,
        };
        let mut wait = SemWait {
            entries: (&raw const entry) as u64,
            count: 1,
            vm_id: self.id(),
            ..Default::default()
        };
        // SAFETY: one entry lies there.
        match unsafe { self.backend().sem_wait(&mut wait) } {
            Ok(()) | Err(Errno::TimedOut | Errno::Interrupted) => Ok(()),
            Err(Errno::Io) => {
                self.set_lost();
                Err(lost())
            }
            Err(errno) => Err(self.failed("SEM_WAIT", errno)),
        }
    }

    /// Maps memory of the application's; new memory is for `bo_use`.
    fn map_from(&self, source: Source, bo_use: BoUse, size: u64, align: u64) -> Result<Mapping> {
        let is_new = !matches!(source, Source::File(_));
        let mapping = match source {
            Source::New => self.map_for(bo_use, size, align)?,
            Source::ForExport => self.map_for(BoUse::Shared, size, align)?,
            Source::File(file) => {
                let bytes = size.checked_next_multiple_of(PAGE_SIZE);
                let size = bytes.ok_or_else(|| out_of_addresses(size))?;
                self.bindings.import(SharedBo { file, offset: 0, size, read_only: false }, align)?
            }
        };
        if is_new && self.poisons {
            poison(mapping.va(), size);
        }
        Ok(mapping)
    }

    /// Memory of the driver's whose content is the application's: at first it is any, or that of a file.
    ///
    /// # Errors
    /// Those of [`Vm::allocate`].
    pub fn map_content(&self, source: Source, size: u64) -> Result<Mapping> {
        let align = if size >= HUGE_PAGE { HUGE_PAGE } else { PAGE_SIZE };
        self.map_from(source, BoUse::Driver, size, align)
    }

    /// See [`Bindings::map_for`].
    ///
    /// # Errors
    /// The same errors.
    pub fn map_for(&self, bo_use: BoUse, size: u64, align: u64) -> Result<Mapping> {
        self.bindings.map_for(bo_use, size, align)
    }

    /// See [`Bindings::import`].
    ///
    /// # Errors
    /// The same errors.
    pub fn import(&self, bo: SharedBo) -> Result<Mapping> {
        self.bindings.import(bo, PAGE_SIZE)
    }
}

/// Fills new memory with what no program means. What is freed is unmapped, so an access to that is a
/// fault in any case; but memory that is given out again has, as on a real device, any content.
fn poison(va: u64, bytes: u64) {
    const POISON: u8 = 0xd7;
    /// More takes its time and memory, and who takes memory for zeroed looks at its start.
    const MOST: u64 = 64 << 20;
    let start = std::ptr::with_exposed_provenance_mut::<u8>(va as usize);
    // SAFETY: the memory was mapped for reading and writing just now, and nothing else has its address yet.
    unsafe { start.write_bytes(POISON, bytes.min(MOST) as usize) };
}

fn lost() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
        "the GPU's address space is lost: a command faulted or was aborted; destroy all contexts, call zeDeviceGetStatus and start again",
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tally_ze::ze_memory_type_t;

    use crate::backend::fake::Fake;

    /// A VM over a small window, and the fake behind it.
    pub(crate) fn fake() -> (Arc<Fake>, Arc<Vm>) {
        let fake = Arc::new(Fake::default());
        let space = Space::reserve(Some(1 << 30), 4096, 1 << 47).expect("1 GiB of addresses");
        let backend: Arc<dyn Backend> = fake.clone();
        let vm = Vm::create(&backend, &Arc::new(space)).expect("a fake VM");
        (fake, vm)
    }

    const HOST: ze_memory_type_t = ze_memory_type_t::ZE_MEMORY_TYPE_HOST;

    #[test]
    fn an_address_finds_the_allocation_that_holds_it() {
        let (_, vm) = fake();
        let a = vm.allocate(Source::New, 100, 1, HOST, 1, None).expect("room");
        let b = vm.allocate(Source::New, 4096, 1, HOST, 2, None).expect("room");
        assert_eq!(vm.find(a + 99).map(|it| (it.base, it.size)), Some((a, 100)));
        assert_eq!(vm.find(a + 100), None, "beyond what was asked for");
        assert_eq!(vm.find(b).map(|it| it.context), Some(2));
        assert_eq!(vm.find(a - 1), None);
        assert_eq!(vm.find(8), None);
        let id = |at| vm.find(at).map(|it| it.id);
        assert_ne!(id(a), id(b));
    }

    #[test]
    fn only_the_owner_frees_and_only_by_the_first_address() {
        let (backend, vm) = fake();
        let a = vm.allocate(Source::New, 8192, 1, HOST, 1, None).expect("room");
        assert!(vm.release(a, 2).is_none());
        assert!(vm.release(a + 4096, 1).is_none());
        assert_eq!([vm.rest(a + 1), vm.rest(a + 8192)], [Some(8191), None]);
        drop(vm.release(a, 1).expect("its owner's"));
        assert_eq!(vm.rest(a + 1), None);
        assert!(vm.find(a).is_none() && backend.state().buffers.is_empty());
    }

    #[test]
    fn large_memory_lies_on_huge_pages_and_mappings_do_not_touch() {
        let (_, vm) = fake();
        let a = vm.allocate(Source::New, HUGE_PAGE, 1, HOST, 1, None).expect("room");
        let small = vm.allocate(Source::New, 1, 1, HOST, 1, None).expect("room");
        let next = vm.allocate(Source::New, 1, 1, HOST, 1, None).expect("room");
        assert_eq!(a % HUGE_PAGE, 0);
        assert!(next.abs_diff(small) >= 2 * PAGE_SIZE, "a page between them is not mapped");
    }

    #[test]
    fn code_is_written_before_it_is_mapped_and_never_writable_then() {
        let (backend, vm) = fake();
        let mut code = vm.place(100, 64).expect("room");
        code.write(&[0xc3; 100]).expect("a passing mapping");
        code.bind(0, code.size(), bind_flag::READ | bind_flag::EXECUTE).expect("free");
        let flags = backend.state().bindings.get(&code.va()).map(|it| it.1);
        assert_eq!(flags, Some(bind_flag::READ | bind_flag::EXECUTE));
    }

    #[test]
    fn a_loss_is_seen_once_and_kept() {
        let (backend, vm) = fake();
        assert!(vm.check().is_ok() && !vm.is_lost());
        backend.state().lost = true;
        let code = |result: Result<u64>| result.err().map(|error| error.code());
        let lost = Some(ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST);
        assert_eq!(vm.check().err().map(|error| error.code()), lost);
        assert!(vm.is_lost());
        assert_eq!(code(vm.allocate(Source::New, 1, 1, HOST, 1, None)), lost);
    }
}

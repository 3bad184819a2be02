// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GPU's address space of this process, and what is mapped in it.
//!
//! ```text
//!  Vm ─┬─ Heap ────── blocks ──┐
//!      ├─ user memory (USM) ───┼─► Mapping: addresses + buffer + binding ─► Bindings: backend, id, VA reservation
//!      └───────────────────────┘
//! ```
//!
//! There is one VM per device and process, shared by all contexts: pointers, counters and copies cross
//! contexts without aliases. It is destroyed when the last context and everything in it is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tally_uapi::PAGE_SIZE;
use tally_uapi::cell::Compare;
use tally_uapi::ioctl::{Errno, SemWait, SemWaitEntry, VmCreate};
use tally_uapi::queue::QueueControl;

use crate::backend::{Backend, BoUse, SharedBo};
use crate::checks;
use crate::error::{Error, Result};
use crate::settings;
use crate::space::{HUGE_PAGE, Space};

mod atomics;
mod bindings;
pub mod budget;
pub mod heap;
pub mod printf;
pub mod reserved;
mod shared;
mod timeline;
mod user;
mod usm;
mod views;
mod watcher;

use atomics::SystemAtomics;
pub use bindings::{Bindings, Mapping, Source};
use bindings::{lost, out_of_addresses, poison};
use heap::{Block, Heap};
use reserved::Reserved;
pub use shared::Exported;
use timeline::Timeline;
pub use user::{Access, UserRange};
pub use usm::{Allocation, Found, Retired};
use usm::{Cache, Registry};
use views::Views;
use watcher::Watcher;

/// The address space with the driver's heap and the users' memory in it.
pub struct Vm {
    bindings: Arc<Bindings>,
    heap: Arc<Heap>,
    usm: Registry,
    /// The cache of blocks for allocations; `None` if each block is to be new.
    cache: Option<Cache>,
    /// Whether new memory is filled with a value that no program expects.
    poisons: bool,
    /// Attributes of atomics on memory that does not belong to the driver.
    system_atomics: SystemAtomics,
    reserved: Reserved,
    /// Whether there is work to do when all of a list is complete.
    attends_completion: bool,
    /// The observers of user memory, if there are any.
    watcher: Option<Box<Watcher>>,
    /// A cell that is never signalled, for queries of the VM's state.
    probe: OnceLock<Block>,
    /// The ring to which kernels print, if any kernel prints.
    printf: Mutex<Option<Arc<printf::Ring>>>,
    /// The record of the commands of its queues, if a trace is requested.
    timeline: Option<Arc<Timeline>>,
}

impl Vm {
    /// Creates the VM over the whole window.
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
        // A cached block stays mapped, which would hide an access to freed memory.
        let watched = views.is_some()
            || poisons
            || checks::get().is_some()
            || settings::get().places_memory();
        let cache = (backend.is_sparse() && !watched).then(Cache::default);
        let watcher = Watcher::new(views);
        let publishes_late = watcher.as_ref().is_some_and(|watcher| watcher.publishes_late);
        let attends_completion = publishes_late || !backend.sees_process();
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
            attends_completion,
            watcher,
            probe,
            printf,
            timeline,
        }))
    }

    /// Whether there is work to do when all of a list is complete: the memory of commands is pinned, or the
    /// device's writes have to be made visible to the host.
    #[inline]
    pub fn attends_completion(&self) -> bool {
        self.attends_completion
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

    /// The address of the ring to which kernels print; creates it if there is none.
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

    /// Makes the device record the commands of a new queue, if there is a timeline. `engine`: class and index.
    pub fn trace_queue(&self, control: &QueueControl, queue: u32, engine: (u32, u32)) {
        if let Some(timeline) = &self.timeline {
            timeline.add_queue(control, queue, engine);
        }
    }

    /// The error for a failed ioctl; also notes a loss.
    pub fn failed(&self, ioctl: &str, errno: Errno) -> Error {
        self.bindings.failed(ioctl, errno)
    }

    /// Whether the VM's loss has been noticed. This is cheap; [`Vm::check`] asks the kernel.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.bindings.lost.load(Ordering::Relaxed)
    }

    /// Notes a loss.
    pub fn set_lost(&self) {
        self.bindings.lost.store(true, Ordering::Relaxed);
    }

    /// Asks the kernel whether the VM is alive.
    ///
    /// # Errors
    /// DEVICE_LOST, or the error that prevented the query.
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
        // SAFETY: `entries` points to one entry.
        match unsafe { self.backend().sem_wait(&mut wait) } {
            Ok(()) | Err(Errno::TimedOut | Errno::Interrupted) => Ok(()),
            Err(Errno::Io) => {
                self.set_lost();
                Err(lost())
            }
            Err(errno) => Err(self.failed("SEM_WAIT", errno)),
        }
    }

    /// Maps memory for the application; new memory is for `bo_use`.
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

    /// Maps memory of the driver whose content belongs to the application: initially undefined, or that of a file.
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

#[cfg(test)]
pub(crate) mod tests {
    use tally_uapi::ioctl::bind_flag;
    use tally_ze::{ze_memory_type_t, ze_result_t};

    use super::*;

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

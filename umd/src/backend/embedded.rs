// SPDX-License-Identifier: MIT OR Apache-2.0
//! The embedded kernel: the ioctls over the device library in this process.
//!
//! ```text
//!  Embedded ─┬─ Buffers   handles; memory in files, one for each buffer that others may get
//!            ├─ Bindings  what is mapped where, in all VMs
//!            ├─ Vms, Queues (of tally-device)
//!            └─ Sleepers, Watches ◄── interrupts and losses of the device
//! ```
//!
//! The device runs kernels in this process: its MMU is the process's own page
//! table. So a VM is not a separate address space but a window of the process's,
//! and no other VM can map an address that one VM has mapped (EEXIST).
//!
//! It differs from `uapi/UAPI.md` only where it cannot do otherwise: a host
//! mapping outside the window does not keep a buffer's memory alive after its
//! handle and bindings are gone; MAP_USERPTR at another address is EOPNOTSUPP;
//! MAP_NULL forgets writes only when it is unmapped.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

pub use tally_device::gate;
use tally_device::{
    Config, Device, EngineClass, Error, GroupMemory, Priority, QueueConfig, QueueHandle, QueueId,
    QueueState, Vm, VmId,
};
use tally_uapi::PAGE_SIZE;
use tally_uapi::cell::{CELL_SIZE, waiters_index};
use tally_uapi::ioctl::{
    BoCreate, BoInfo, ClockPair, EngineInfo, Errno, Query, QueueCreate, QueueDestroy, QueueKick,
    QueueQuery, SemFollow, SemNotify, SemWait, SemWake, VmBind, VmCreate, VmDestroy, VmOrphan,
    bind_flag, bind_op, bo_flag, engine_capability, priority, query, queue_state,
};
use tally_uapi::packet::PACKET_SIZE;
use tally_uapi::queue::{RING_MAX_PACKETS, RING_MIN_PACKETS};
use zerocopy::IntoBytes;

use super::{Backend, BoUse, Hold, HostWait, Ioctls, Loss, Result, SharedBo, Sharing, Watcher};
use crate::checks;
use crate::settings::Settings;

mod bindings;
mod buffer;
mod facts;
mod memory;
mod sleepers;
mod watches;
mod window;

/// A kernel may stand still so long in a debugger.
const DEBUGGED: Duration = Duration::from_secs(7 * 24 * 3600);

use bindings::{Bindings, Kind};
use buffer::Buffer;
use memory::{Memory, Part};
use sleepers::{Cell, Sleepers};
use window::Window;

/// Most VMs.
const MAX_VMS: u32 = 256;
/// Most queues.
const MAX_QUEUES: u32 = 1 << 16;

/// Opens the device.
///
/// # Errors
/// ENODEV: no threads for it.
pub fn open(settings: &Settings) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Embedded::new(settings)?))
}

/// Shards of a table.
const SHARDS: u32 = 64;

/// Objects whose ids have the same remainder, alone in their lines. A tree, since a KICK looks for its queue
/// here, and a hash that resists attackers would be most of that.
#[repr(align(128))]
struct Shard<T>(RwLock<BTreeMap<u32, Arc<T>>>);

/// The objects of one type, by their ids. Objects that were made one after the other lie in different
/// shards, so that doorbells of different queues meet at no lock.
struct Table<T> {
    next: AtomicU32,
    count: AtomicU32,
    shards: Box<[Shard<T>]>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Shard(RwLock::default())).collect();
        Self { next: AtomicU32::new(1), count: AtomicU32::new(0), shards }
    }
}

impl<T> Table<T> {
    fn read(&self, id: u32) -> RwLockReadGuard<'_, BTreeMap<u32, Arc<T>>> {
        let shard = &self.shards[(id % SHARDS) as usize];
        shard.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, id: u32) -> RwLockWriteGuard<'_, BTreeMap<u32, Arc<T>>> {
        let shard = &self.shards[(id % SHARDS) as usize];
        shard.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: u32) -> Result<Arc<T>> {
        self.read(id).get(&id).cloned().ok_or(Errno::NoEntry)
    }

    fn take(&self, id: u32) -> Result<Arc<T>> {
        let taken = self.write(id).remove(&id).ok_or(Errno::NoEntry)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Ok(taken)
    }

    /// Drops the objects that `keep` does not say so of.
    fn retain(&self, keep: impl Fn(&T) -> bool) {
        for id in 0..SHARDS {
            let mut objects = self.write(id);
            let before = objects.len();
            objects.retain(|_, object| keep(object));
            self.count.fetch_sub((before - objects.len()) as u32, Ordering::Relaxed);
        }
    }

    /// Adds what `make` makes for a fresh id, unless there are `limit` already.
    fn add(&self, limit: u32, make: impl FnOnce(u32) -> Result<T>) -> Result<u32> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= limit {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::NoSpace);
        }
        loop {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let mut objects = self.write(id);
            if id == 0 || objects.contains_key(&id) {
                continue;
            }
            // The shard stays locked until the object is there: an id that is handed out finds it.
            let made = make(id).inspect_err(|_| _ = self.count.fetch_sub(1, Ordering::Relaxed))?;
            objects.insert(id, Arc::new(made));
            return Ok(id);
        }
    }
}

/// A queue and the VM that it belongs to.
struct OwnedQueue {
    vm_id: u32,
    vm: Vm,
    handle: QueueHandle,
}

/// The device and its kernel, in this process.
pub struct Embedded {
    // The device is dropped first: its threads use nothing of the rest then.
    device: Device,
    sleepers: Arc<Sleepers>,
    facts: facts::Facts,
    memory: Arc<Memory>,
    buffers: Table<Buffer>,
    windows: Table<Window>,
    queues: Table<OwnedQueue>,
    bindings: Mutex<Bindings>,
}

impl Embedded {
    /// Starts a device as the settings ask.
    ///
    /// # Errors
    /// ENOMEM: no threads for it.
    pub fn new(settings: &Settings) -> Result<Self> {
        let defaults = Config::default();
        let devices = settings.devices();
        let engines = |each: Option<u32>, default| each.unwrap_or(default) * devices;
        let compute_engines = engines(settings.compute_engines, defaults.compute_engines);
        let config = Config {
            compute_engines,
            copy_engines: engines(settings.copy_engines, defaults.copy_engines),
            workers: settings
                .workers
                .or(settings.debug.then_some(1))
                .map(|workers| workers as usize),
            reset_time: match settings.reset_ms {
                Some(ms) => Duration::from_millis(ms),
                None if settings.debug => DEBUGGED,
                None => defaults.reset_time,
            },
            chaos: settings.chaos,
            // Checked kernels reach all memory through addresses that have states.
            group_memory: settings.checks.follows_accesses().then_some(GroupMemory {
                take: checks::take_group_memory,
                give: checks::give_group_memory,
            }),
            numbers: (settings.checks.races || settings.checks.sync).then_some(checks::started),
            ..defaults
        };
        let has_keys = settings.checks.races && checks::keys::prepare();
        if has_keys {
            tally_device::watch_threads(checks::keys::allow);
        }
        if settings.checks.portable || has_keys {
            tally_device::watch_refused(|it| match it.by_key {
                true => checks::refused_by_key(it.address, it.writes, it.by_device),
                false => checks::refused(it.address, it.writes, it.by_device),
            });
        }
        let sleepers = Arc::new(Sleepers::default());
        let device = Device::new(config, Arc::<Sleepers>::clone(&sleepers)).map_err(|error| {
            log::error!("the embedded device: {error}");
            Errno::NoMemory
        })?;
        let facts = facts::Facts::gather(settings, &device, MAX_VMS, MAX_QUEUES);
        let memory = Arc::new(Memory::new(facts.device.memory_bytes));
        Ok(Self {
            device,
            sleepers,
            facts,
            memory,
            buffers: Table::default(),
            windows: Table::default(),
            queues: Table::default(),
            bindings: Mutex::default(),
        })
    }

    fn bindings(&self) -> MutexGuard<'_, Bindings> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, what: u32) -> Result<Vec<u8>> {
        match what {
            query::DEVICE => Ok(self.facts.device.as_bytes().to_vec()),
            query::ENGINES => {
                let copy = engine_capability::COPY;
                let engines = [
                    EngineInfo {
                        capabilities: engine_capability::COMPUTE | copy,
                        count: self.device.engines(EngineClass::Compute),
                    },
                    EngineInfo {
                        capabilities: copy,
                        count: self.device.engines(EngineClass::Copy),
                    },
                ];
                Ok(engines.as_bytes().to_vec())
            }
            query::TARGET => Ok(self.facts.target.clone()),
            query::CLOCK => {
                let (host_ns, device_ticks) = self.device.clock_pair();
                Ok(ClockPair { host_ns, device_ticks }.as_bytes().to_vec())
            }
            _ => Err(Errno::Invalid),
        }
    }

    /// The bucket of a cell: its place in a page is the same in all mappings.
    fn cell_of(&self, handle: u32, offset: u64) -> Result<(Arc<Buffer>, usize)> {
        if !offset.is_multiple_of(CELL_SIZE) {
            return Err(Errno::Invalid);
        }
        let buffer = self.buffers.get(handle)?;
        if offset >= buffer.size() {
            return Err(Errno::Invalid);
        }
        Ok((buffer, waiters_index(offset)))
    }

    /// Destroys a queue that is in no table any more.
    fn end_queue(&self, queue: &OwnedQueue) {
        self.device.destroy_queue(&queue.handle);
    }
}

/// Page-aligned, not empty, no overflow.
fn range_is_valid(address: u64, size: u64) -> bool {
    address.is_multiple_of(PAGE_SIZE)
        && size.is_multiple_of(PAGE_SIZE)
        && size != 0
        && address.checked_add(size).is_some()
}

impl Backend for Embedded {
    fn lane(&self) -> &'static str {
        "embedded"
    }

    fn sees_process(&self) -> bool {
        true
    }

    fn is_sparse(&self) -> bool {
        true
    }

    fn has_huge_pages(&self) -> bool {
        memory::has_huge_pages()
    }

    fn take_memory(&self, bytes: u64) -> Result {
        self.memory.take(bytes)
    }

    fn give_memory(&self, bytes: u64) {
        self.memory.give(bytes);
    }

    fn memory_left(&self) -> u64 {
        self.memory.left()
    }

    fn loss(&self, vm: u32) -> Option<Loss> {
        let vm = self.windows.get(vm).ok()?.vm.clone();
        Some(Box::new(move || vm.is_lost()))
    }

    fn memory_used(&self) -> u64 {
        self.memory.used()
    }
}

impl Ioctls for Embedded {
    unsafe fn query(&self, arg: &mut Query) -> Result {
        if arg.reserved != 0 {
            return Err(Errno::Invalid);
        }
        let answer = self.answer(arg.what)?;
        if arg.data != 0 {
            if (arg.size as usize) < answer.len() {
                return Err(Errno::Invalid);
            }
            // SAFETY: the caller says that `size` bytes may be written there.
            unsafe {
                std::ptr::copy_nonoverlapping(answer.as_ptr(), arg.data as *mut u8, answer.len());
            }
        }
        arg.size = answer.len() as u32;
        Ok(())
    }

    fn bo_create(&self, arg: &mut BoCreate) -> Result {
        self.bo_create_for(arg, BoUse::Driver)
    }

    fn bo_info(&self, arg: &mut BoInfo) -> Result {
        if arg.pad != 0 {
            return Err(Errno::Invalid);
        }
        let buffer = self.buffers.get(arg.handle)?;
        arg.size = buffer.size();
        // There is no render node to map it through: `bo_map` takes the handle.
        arg.mmap_offset = 0;
        Ok(())
    }

    fn bo_close(&self, handle: u32) -> Result {
        self.buffers.take(handle).map(drop)
    }

    unsafe fn bo_map(
        &self,
        handle: u32,
        offset: u64,
        size: usize,
        at: Option<NonNull<u8>>,
    ) -> Result<NonNull<u8>> {
        let buffer = self.buffers.get(handle)?;
        let end = offset.checked_add(size as u64);
        let misplaced = at.is_some_and(|at| !at.addr().get().is_multiple_of(PAGE_SIZE as usize));
        let valid = range_is_valid(offset, size as u64) && !misplaced;
        if !valid || end.is_none_or(|end| end > buffer.size()) {
            return Err(Errno::Invalid);
        }
        let access = match buffer.extent().is_read_only() {
            true => bind_flag::READ,
            false => bind_flag::READ | bind_flag::WRITE,
        };
        let Some(at) = at else {
            return buffer.extent().map(Part { offset, size: size as u64, access, at: None });
        };
        let address = at.as_ptr().addr() as u64;
        if address.checked_add(size as u64).is_none() {
            return Err(Errno::Invalid);
        }
        let bindings = self.bindings();
        if bindings.holds(&buffer, offset, address, size as u64, access) {
            return Ok(at);
        }
        if bindings.overlaps(address, size as u64) {
            return Err(Errno::Exists);
        }
        // The bindings stay locked, so no other thread maps there meanwhile.
        buffer.extent().map(Part { offset, size: size as u64, access, at: Some(address) })
    }

    fn vm_create(&self, arg: &mut VmCreate) -> Result {
        if arg.flags != 0 || !range_is_valid(arg.start, arg.size) {
            return Err(Errno::Invalid);
        }
        let (start, end) = (arg.start, arg.start + arg.size);
        if start < self.facts.device.va_start || end > self.facts.device.va_end {
            return Err(Errno::Invalid);
        }
        arg.vm_id = self
            .windows
            .add(MAX_VMS, |id| Ok(Window::new(start, end, self.device.create_vm(VmId(id)))))?;
        Ok(())
    }

    fn vm_destroy(&self, arg: &VmDestroy) -> Result {
        if arg.pad != 0 {
            return Err(Errno::Invalid);
        }
        let window = self.windows.take(arg.vm_id)?;
        self.queues.retain(|queue| queue.vm_id != arg.vm_id);
        self.device.destroy_vm(&window.vm);
        self.bindings().unmap(arg.vm_id, window.start, window.end - window.start)?;
        window.gone.store(true, Ordering::Release);
        self.sleepers.wake_vm(arg.vm_id);
        Ok(())
    }

    unsafe fn vm_bind(&self, arg: &VmBind) -> Result {
        let access = bind_flag::READ | bind_flag::WRITE;
        let (allowed, has_handle, has_offset) = match arg.op {
            bind_op::MAP => (bind_flag::ALL, true, true),
            bind_op::UNMAP => (0, false, false),
            bind_op::MAP_USERPTR => (access, false, true),
            bind_op::MAP_NULL => (access, false, false),
            _ => return Err(Errno::Invalid),
        };
        let both = bind_flag::WRITE | bind_flag::EXECUTE;
        let flags_fit = arg.flags & !allowed == 0
            && (arg.flags != 0) == (allowed != 0)
            && arg.flags & both != both;
        let fields_fit = (has_handle || arg.handle == 0) && (has_offset || arg.offset == 0);
        let range_fits =
            range_is_valid(arg.address, arg.size) && range_is_valid(arg.offset, arg.size);
        if !flags_fit || !fields_fit || !range_fits {
            return Err(Errno::Invalid);
        }
        let plain = VmBind {
            waits: 0,
            signals: 0,
            wait_count: 0,
            signal_count: 0,
            status_handle: 0,
            pad: 0,
            status_offset: 0,
            ..*arg
        };
        if plain.as_bytes() != arg.as_bytes() {
            // Fences are objects of a kernel.
            return Err(if arg.pad == 0 { Errno::NotSupported } else { Errno::Invalid });
        }
        let window = self.windows.get(arg.vm_id)?;
        let buffer = if has_handle { Some(self.buffers.get(arg.handle)?) } else { None };
        if !window.contains(arg.address, arg.size)
            || buffer.as_ref().is_some_and(|buffer| arg.offset + arg.size > buffer.size())
        {
            return Err(Errno::Invalid);
        }
        if arg.op == bind_op::UNMAP {
            self.device.adopt(arg.address..arg.address + arg.size);
            return self.bindings().unmap(arg.vm_id, arg.address, arg.size);
        }
        if window.vm.is_lost() {
            return Err(Errno::Io);
        }
        let more = bind_flag::WRITE | bind_flag::EXECUTE;
        if arg.flags & more != 0 && buffer.as_ref().is_some_and(|it| it.extent().is_read_only()) {
            return Err(Errno::Access);
        }
        let kind = match buffer {
            Some(buffer) => Kind::Buffer { buffer, offset: arg.offset },
            None if arg.op == bind_op::MAP_NULL => Kind::Null,
            None if arg.offset != arg.address => return Err(Errno::NotSupported),
            None => Kind::User,
        };
        self.bindings().map(arg.vm_id, arg.address, arg.size, arg.flags, kind)
    }

    fn queue_create(&self, arg: &mut QueueCreate) -> Result {
        let class = match arg.engine_class {
            0 => EngineClass::Compute,
            1 => EngineClass::Copy,
            _ => return Err(Errno::Invalid),
        };
        let priority = match arg.priority {
            priority::HIGH => Priority::High,
            priority::NORMAL => Priority::Normal,
            priority::LOW => Priority::Low,
            _ => return Err(Errno::Invalid),
        };
        let ring_bytes = u64::from(arg.packets) * PACKET_SIZE;
        let valid = arg.flags == 0
            && arg.pad == 0
            && arg.engine_index < self.device.engines(class)
            && arg.packets.is_power_of_two()
            && (RING_MIN_PACKETS..=RING_MAX_PACKETS).contains(&arg.packets)
            && arg.ring.is_multiple_of(PACKET_SIZE)
            && arg.ring.checked_add(ring_bytes).is_some()
            && arg.control.is_multiple_of(PAGE_SIZE)
            && arg.control.checked_add(PAGE_SIZE).is_some();
        if !valid {
            return Err(Errno::Invalid);
        }
        let window = self.windows.get(arg.vm_id)?;
        if window.vm.is_lost() {
            return Err(Errno::Io);
        }
        let bindings = self.bindings();
        let both = bind_flag::READ | bind_flag::WRITE;
        if !bindings.covers(arg.vm_id, arg.ring, ring_bytes, bind_flag::READ)
            || !bindings.covers(arg.vm_id, arg.control, PAGE_SIZE, both)
        {
            return Err(Errno::Fault);
        }
        let make = |id| {
            let config = QueueConfig {
                id: QueueId(id),
                class,
                index: arg.engine_index,
                priority,
                ring: arg.ring,
                packets: arg.packets,
                control: arg.control,
            };
            let handle =
                self.device.create_queue(&window.vm, &config).map_err(|error| match error {
                    Error::VmLost => Errno::Io,
                    Error::NoEngine | Error::BadQueue | Error::TooManyEngines => Errno::Invalid,
                    Error::Threads(_) => Errno::NoMemory,
                })?;
            Ok(OwnedQueue { vm_id: arg.vm_id, vm: window.vm.clone(), handle })
        };
        let id = self.queues.add(MAX_QUEUES, make)?;
        drop(bindings);
        // A VM_DESTROY that came in between has not seen the queue.
        if self.windows.get(arg.vm_id).is_err() {
            if let Ok(queue) = self.queues.take(id) {
                self.end_queue(&queue);
            }
            return Err(Errno::NoEntry);
        }
        arg.queue_id = id;
        Ok(())
    }

    fn queue_destroy(&self, arg: &QueueDestroy) -> Result {
        if arg.pad != 0 {
            return Err(Errno::Invalid);
        }
        let queue = self.queues.take(arg.queue_id)?;
        self.end_queue(&queue);
        Ok(())
    }

    fn queue_works(&self, queue: u32) -> bool {
        self.queues.get(queue).is_ok_and(|queue| self.device.query(&queue.handle).works)
    }

    fn queue_query(&self, arg: &mut QueueQuery) -> Result {
        if arg.pad != 0 {
            return Err(Errno::Invalid);
        }
        let queue = self.queues.get(arg.queue_id)?;
        let status = self.device.query(&queue.handle);
        let (parked_address, parked_value) = status.parked.unwrap_or_default();
        *arg = QueueQuery {
            queue_id: arg.queue_id,
            state: match status.state {
                QueueState::Idle => queue_state::IDLE,
                QueueState::Running => queue_state::RUNNING,
                QueueState::Parked => queue_state::PARKED,
                QueueState::Stopped => queue_state::STOPPED,
            },
            fault_kind: status.fault.map_or(0, |fault| fault.kind as u32),
            pad: 0,
            fault_address: status.fault.map_or(0, |fault| fault.address),
            fault_packet: status.fault.map_or(0, |fault| fault.packet),
            parked_address,
            parked_value,
            head: status.head,
            busy_ns: status.busy_ns,
        };
        Ok(())
    }

    fn queue_kick(&self, arg: &QueueKick) -> Result<bool> {
        if arg.pad != 0 {
            return Err(Errno::Invalid);
        }
        let queue = self.queues.get(arg.queue_id)?;
        if queue.vm.is_lost() {
            return Err(Errno::Io);
        }
        Ok(self.device.kick(&queue.handle))
    }

    unsafe fn sem_wait(&self, arg: &mut SemWait) -> Result {
        // SAFETY: as the caller says.
        let entries = unsafe { sleepers::entries(arg)? };
        let places = entries.iter().map(|entry| self.cell_of(entry.handle, entry.offset));
        let places = places.collect::<Result<Vec<_>>>()?;
        let cells = entries.iter().zip(&places);
        let cells = cells.map(|(entry, (buffer, bucket))| Cell::new(entry, buffer, *bucket));
        let cells = cells.collect::<Result<Vec<_>>>()?;
        let window = match arg.vm_id {
            0 => None,
            id => Some(self.windows.get(id)?),
        };
        let vm = window.as_deref().map(|window| (arg.vm_id, window));
        arg.index = self.sleepers.wait(&self.device, &cells, vm, arg.flags, arg.timeout_ns)?;
        Ok(())
    }

    unsafe fn sem_notify(&self, _: &SemNotify) -> Result {
        // Its targets are objects of a kernel.
        Err(Errno::NotSupported)
    }

    fn sem_follow(&self, _: &SemFollow) -> Result {
        // Fences are objects of a kernel.
        Err(Errno::NotSupported)
    }

    fn sem_wake(&self, arg: &SemWake) -> Result {
        if arg.pad != 0 || arg.handle == 0 && arg.offset != 0 {
            return Err(Errno::Invalid);
        }
        if arg.handle == 0 {
            self.device.wake_foreign();
            return Ok(());
        }
        let (_, bucket) = self.cell_of(arg.handle, arg.offset)?;
        self.device.wake(bucket);
        self.sleepers.interrupt(bucket);
        Ok(())
    }

    fn vm_orphan(&self, arg: &VmOrphan) -> Result {
        let aligned = (arg.address | arg.size).is_multiple_of(CELL_SIZE);
        let end = arg.address.checked_add(arg.size).filter(|&end| aligned && end > arg.address);
        let (0, Some(end)) = (arg.pad, end) else { return Err(Errno::Invalid) };
        let window = self.windows.get(arg.vm_id)?;
        if !window.contains(arg.address, arg.size) {
            return Err(Errno::Invalid);
        }
        if window.vm.is_lost() {
            return Err(Errno::Io);
        }
        if self.device.orphan(arg.address..end) { Ok(()) } else { Err(Errno::NoSpace) }
    }
}

impl Sharing for Embedded {
    fn bo_create_for(&self, arg: &mut BoCreate, bo_use: BoUse) -> Result {
        if arg.flags & !bo_flag::ALL != 0 || !range_is_valid(0, arg.size) {
            return Err(Errno::Invalid);
        }
        let read_only = arg.flags & bo_flag::IMPORT_READ_ONLY != 0;
        let extent = self.memory.alloc(arg.size, bo_use, read_only)?;
        arg.handle = self.buffers.add(u32::MAX, |_| Ok(Buffer::new(extent)))?;
        Ok(())
    }

    fn can_export(&self) -> bool {
        memory::has_files()
    }

    fn bo_export(&self, handle: u32) -> Result<(SharedBo, Hold)> {
        let buffer = self.buffers.get(handle)?;
        let shared = buffer.extent().share()?;
        Ok((shared, Box::new(buffer)))
    }

    fn bo_import(&self, bo: SharedBo) -> Result<u32> {
        let extent = memory::import(bo)?;
        self.buffers.add(u32::MAX, |_| Ok(Buffer::new(extent)))
    }

    fn watch(&self, vm: u32, cells: &[(u32, u64)], watcher: Arc<dyn Watcher>) -> Result<u64> {
        let window = self.windows.get(vm)?;
        let buckets = cells.iter().map(|&(handle, offset)| Ok(self.cell_of(handle, offset)?.1));
        let buckets = buckets.collect::<Result<Vec<_>>>()?;
        let watch = self.sleepers.watches.add(&self.device, vm, buckets, Arc::clone(&watcher));
        // A loss before this was not reported to the watcher.
        if window.vm.is_lost() || self.windows.get(vm).is_err() {
            watcher.lost();
        }
        Ok(watch)
    }

    fn unwatch(&self, watch: u64) {
        self.sleepers.watches.remove(&self.device, watch);
    }
}

impl HostWait for Embedded {
    fn poll(&self, address: u64, value: u64, limit: Duration) -> Option<bool> {
        self.device.help(address, value, limit)
    }

    fn end_wait(&self) {
        self.device.came();
    }

    fn begin_wait(&self) {
        self.device.hurry();
    }
}

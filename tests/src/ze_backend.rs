// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs on the real driver, through the stock loader.
//!
//! Each program gets memory and objects of its own in one context. What it leaves behind is
//! destroyed when all of it is complete; after a hang it is leaked instead, since the device may
//! still write to it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::Hash;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::lists::NONE;
use crate::program::backend::{Answered, Backend, BackendError, CounterAddress, Wait};
use crate::program::{
    CELLS, Cell, Command, Engine, EventId, EventKind, FenceId, ListDesc, ListId, ListKind,
    ListOrder, Object, Op, QueueId,
};
use crate::ze::{self, Gpu, Usm};
use crate::{call, check};
use tally_ze::zex::*;
use tally_ze::*;

/// How long a wait may take before it counts as a hang, in ns.
const HANG: u64 = 3_000_000_000;
/// Turns of the loop in slow kernels: tens of microseconds.
const SPIN: u32 = 20_000;
/// Elements of 4 bytes between two cells: no cache line is shared.
const STRIDE: usize = 16;
/// Events that a program has at most, in all its time.
const WORDS: usize = 256;
/// Elements of 8 bytes between two words.
const WORD_STRIDE: usize = 8;
/// External events are complete at some value above this.
const FINAL_VALUE: u64 = 10;

/// The context and the kernels, once for all programs of a process.
struct World {
    gpu: Gpu,
    module: ze_module_handle_t,
    mix: Kernels,
    add: Kernels,
}

/// Kernel objects of one name, one for each call that goes on at the same time: a synchronous
/// append may last until another thread has appended.
struct Kernels {
    name: &'static str,
    free: Mutex<Vec<ze_kernel_handle_t>>,
}

impl Kernels {
    fn new(name: &'static str) -> Self {
        Self { name, free: Mutex::default() }
    }

    fn free(&self) -> MutexGuard<'_, Vec<ze_kernel_handle_t>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> ze_kernel_handle_t {
        let free = self.free().pop();
        free.unwrap_or_else(|| {
            let kernel = world().gpu.kernel(world().module, self.name);
            check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
            kernel
        })
    }

    fn give_back(&self, kernel: ze_kernel_handle_t) {
        self.free().push(kernel);
    }
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let gpu = Gpu::new();
        let module = gpu.module(&ze::spirv("program"), "").unwrap_or_else(|log| panic!("{log}"));
        World { gpu, module, mix: Kernels::new("mix"), add: Kernels::new("add") }
    })
}

/// The driver, as one program sees it.
pub struct Driver {
    memory: Option<Usm<u32>>,
    lists: Names<ListId, (ze_command_list_handle_t, ListKind)>,
    queues: Names<QueueId, ze_command_queue_handle_t>,
    events: Names<EventId, (ze_event_handle_t, ze_event_pool_handle_t)>,
    /// Words of the user's, by event; they stay when their event is gone.
    words: Option<Usm<u64>>,
    /// The kinds of the events that have a word.
    kinds: Names<EventId, EventKind>,
    fences: Names<FenceId, ze_fence_handle_t>,
}

/// A program's names for handles.
struct Names<K, V>(Mutex<HashMap<K, V>>);

impl<K: Eq + Hash, V: Copy> Names<K, V> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn map(&self) -> MutexGuard<'_, HashMap<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: K) -> V {
        *self.map().get(&name).expect("programs use what they have created")
    }

    fn all(&self) -> Vec<V> {
        self.map().values().copied().collect()
    }
}

impl Default for Driver {
    fn default() -> Self {
        Self::new()
    }
}

impl Driver {
    /// A driver without objects.
    pub fn new() -> Self {
        Self {
            memory: Some(world().gpu.host(CELLS * STRIDE)),
            lists: Names::new(),
            queues: Names::new(),
            events: Names::new(),
            words: Some(world().gpu.host(WORDS * WORD_STRIDE)),
            kinds: Names::new(),
            fences: Names::new(),
        }
    }

    fn memory(&self) -> &Usm<u32> {
        self.memory.as_ref().expect("it is there until the end")
    }

    fn place(&self, cell: Cell) -> *mut c_void {
        self.memory().ptr().wrapping_add(cell.0 * STRIDE).cast()
    }

    /// The user's word of an event, if it has one.
    fn word(&self, event: EventId) -> Option<Word> {
        let kind = self.kinds.map().get(&event).copied()?;
        let words = self.words.as_ref().expect("it is there until the end");
        assert!(event.0 < WORDS, "programs are small");
        let place = words.ptr().wrapping_add(event.0 * WORD_STRIDE);
        let varied = 1 + event.0 as u64 % 3;
        Some(match kind {
            EventKind::Aggregated { increments } => {
                Word { place, value: varied * u64::from(increments), increment: Some(varied) }
            }
            _ => Word { place, value: FINAL_VALUE + varied, increment: None },
        })
    }

    fn fill_word(&self, list: ze_command_list_handle_t, word: Word, value: u64) -> Answered<()> {
        let (place, pattern) = (word.place.cast(), (&raw const value).cast());
        let size = size_of::<u64>();
        let result = call!(zeCommandListAppendMemoryFill(
            list,
            place,
            pattern,
            size,
            size,
            NONE,
            0,
            ptr::null_mut()
        ));
        answer("zeCommandListAppendMemoryFill", result)
    }

    fn launch(
        &self,
        kernels: &Kernels,
        list: ze_command_list_handle_t,
        arguments: &[(usize, *const c_void)],
        events: &mut Events,
    ) -> Answered<()> {
        let kernel = kernels.take();
        for (index, &(size, value)) in arguments.iter().enumerate() {
            let result = call!(zeKernelSetArgumentValue(kernel, index as u32, size, value));
            answer("zeKernelSetArgumentValue", result)?;
        }
        let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        let result = call!(zeCommandListAppendLaunchKernel(
            list,
            kernel,
            &raw const groups,
            events.signal,
            events.waits.len() as u32,
            events.waits.as_mut_ptr()
        ));
        kernels.give_back(kernel);
        answer("zeCommandListAppendLaunchKernel", result)
    }

    /// Whether everything that was submitted is complete.
    fn is_idle(&self) -> bool {
        let done = |result| result == ze_result_t::ZE_RESULT_SUCCESS;
        self.lists.all().into_iter().all(|(list, kind)| {
            kind == ListKind::Regular || done(call!(zeCommandListHostSynchronize(list, HANG / 10)))
        }) && self
            .queues
            .all()
            .into_iter()
            .all(|queue| done(call!(zeCommandQueueSynchronize(queue, HANG / 10))))
    }
}

/// A word of the user's that completes an event.
#[derive(Clone, Copy)]
struct Word {
    place: *mut u64,
    /// The event is complete when the word is at least this.
    value: u64,
    /// What each signal adds, if the event is aggregated.
    increment: Option<u64>,
}

impl Word {
    fn get(&self) -> &AtomicU64 {
        // SAFETY: the words live as long as the driver's program, and are only accessed atomically.
        unsafe { &*self.place.cast::<AtomicU64>() }
    }
}

/// The events of a command.
struct Events {
    waits: Vec<ze_event_handle_t>,
    signal: ze_event_handle_t,
}

fn answer(call: &str, result: ze_result_t) -> Answered<()> {
    if result == ze_result_t::ZE_RESULT_SUCCESS {
        return Ok(());
    }
    let answer = format!("{result:?}: {}", ze::description());
    Err(BackendError { call: call.to_owned(), answer })
}

/// An argument that is passed by value.
fn value<T>(value: &T) -> (usize, *const c_void) {
    (size_of::<T>(), ptr::from_ref(value).cast())
}

/// Kernels with an odd constant are slow.
fn spin(constant: u32) -> u32 {
    if constant % 2 == 1 { SPIN } else { 0 }
}

fn ordinal(engine: Engine) -> u32 {
    match engine {
        Engine::Compute => 0,
        Engine::Copy => 1,
    }
}

impl Backend for Driver {
    fn create_list(&self, name: ListId, desc: ListDesc) -> Answered<()> {
        let Gpu { context, device } = world().gpu;
        let in_order = desc.order == ListOrder::InOrder;
        let mut list = ze_command_list_handle_t::NULL;
        if desc.kind == ListKind::Regular {
            let mut flags = ze_command_list_flags_t::empty();
            flags.set(ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_IN_ORDER, in_order);
            let desc = ze_command_list_desc_t {
                commandQueueGroupOrdinal: ordinal(desc.engine),
                flags,
                ..Default::default()
            };
            let result =
                call!(zeCommandListCreate(context, device, &raw const desc, &raw mut list));
            answer("zeCommandListCreate", result)?;
        } else {
            use ze_command_queue_mode_t as mode;
            let queue = ze_command_queue_desc_t {
                ordinal: ordinal(desc.engine),
                flags: crate::lists::queue_flags(in_order),
                mode: match desc.kind {
                    ListKind::ImmediateSynchronous => mode::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
                    _ => mode::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
                },
                ..Default::default()
            };
            let result = call!(zeCommandListCreateImmediate(
                context,
                device,
                &raw const queue,
                &raw mut list
            ));
            answer("zeCommandListCreateImmediate", result)?;
        }
        self.lists.map().insert(name, (list, desc.kind));
        Ok(())
    }

    fn create_queue(&self, name: QueueId, engine: Engine) -> Answered<()> {
        let Gpu { context, device } = world().gpu;
        let desc = ze_command_queue_desc_t {
            ordinal: ordinal(engine),
            mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            ..Default::default()
        };
        let mut queue = ze_command_queue_handle_t::NULL;
        let result = call!(zeCommandQueueCreate(context, device, &raw const desc, &raw mut queue));
        answer("zeCommandQueueCreate", result)?;
        self.queues.map().insert(name, queue);
        Ok(())
    }

    fn create_event(&self, name: EventId, kind: EventKind) -> Answered<()> {
        let made = match (kind, name.0 % 3) {
            (EventKind::Regular, _) => pool_event(None)?,
            (EventKind::CounterBased, 0) => {
                pool_event(Some(ze_event_pool_counter_based_exp_flags_t::all()))?
            }
            (EventKind::CounterBased, 1) => {
                (core_event(ptr::null())?, ze_event_pool_handle_t::NULL)
            }
            (EventKind::CounterBased, _) => (zex_event(ptr::null())?, ze_event_pool_handle_t::NULL),
            (EventKind::External | EventKind::Aggregated { .. }, way) => {
                self.kinds.map().insert(name, kind);
                let word = self.word(name).expect("its kind is known");
                (word_event(word, way)?, ze_event_pool_handle_t::NULL)
            }
        };
        self.events.map().insert(name, made);
        Ok(())
    }

    fn create_fence(&self, name: FenceId, queue: QueueId) -> Answered<()> {
        let desc = ze_fence_desc_t::default();
        let mut fence = ze_fence_handle_t::NULL;
        let result = call!(zeFenceCreate(self.queues.get(queue), &raw const desc, &raw mut fence));
        answer("zeFenceCreate", result)?;
        self.fences.map().insert(name, fence);
        Ok(())
    }

    fn append(&self, list: ListId, command: &Command) -> Answered<()> {
        let (list, _) = self.lists.get(list);
        let waits = command.waits.iter().map(|&event| self.events.get(event).0).collect();
        let mut events =
            Events { waits, signal: command.signal.map_or(NONE, |event| self.events.get(event).0) };
        let (count, waits) = (events.waits.len() as u32, events.waits.as_mut_ptr());
        match command.op {
            Op::Mix { dst, src, add } => {
                let (dst, src, spin) = (self.place(dst), self.place(src), spin(add));
                let arguments = [value(&dst), value(&src), value(&add), value(&spin)];
                self.launch(&world().mix, list, &arguments, &mut events)
            }
            Op::Add { dst, add } => {
                let (dst, spin) = (self.place(dst), spin(add));
                let arguments = [value(&dst), value(&add), value(&spin)];
                self.launch(&world().add, list, &arguments, &mut events)
            }
            Op::Copy { dst, src } => {
                let (dst, src) = (self.place(dst), self.place(src));
                let signal = events.signal;
                let result =
                    call!(zeCommandListAppendMemoryCopy(list, dst, src, 4, signal, count, waits));
                answer("zeCommandListAppendMemoryCopy", result)
            }
            Op::Fill { dst, value } => {
                let (dst, pattern) = (self.place(dst), (&raw const value).cast());
                let signal = events.signal;
                let result = call!(zeCommandListAppendMemoryFill(
                    list, dst, pattern, 4, 4, signal, count, waits
                ));
                answer("zeCommandListAppendMemoryFill", result)
            }
            Op::Barrier => {
                let result = call!(zeCommandListAppendBarrier(list, events.signal, count, waits));
                answer("zeCommandListAppendBarrier", result)
            }
            Op::SignalEvent => {
                let result = call!(zeCommandListAppendSignalEvent(list, events.signal));
                answer("zeCommandListAppendSignalEvent", result)
            }
            Op::WaitOnEvents => {
                let result = call!(zeCommandListAppendWaitOnEvents(list, count, waits));
                answer("zeCommandListAppendWaitOnEvents", result)
            }
            Op::ResetEvent(event) => {
                if let Some(word) = self.word(event) {
                    return self.fill_word(list, word, 0);
                }
                let event = self.events.get(event).0;
                let result = call!(zeCommandListAppendEventReset(list, event));
                answer("zeCommandListAppendEventReset", result)
            }
            Op::SetWord(event) => {
                let word = self.word(event).expect("the model knows that it has one");
                self.fill_word(list, word, word.value)
            }
        }
    }

    fn close(&self, list: ListId) -> Answered<()> {
        answer("zeCommandListClose", call!(zeCommandListClose(self.lists.get(list).0)))
    }

    fn reset_list(&self, list: ListId) -> Answered<()> {
        answer("zeCommandListReset", call!(zeCommandListReset(self.lists.get(list).0)))
    }

    fn destroy_list(&self, list: ListId) -> Answered<()> {
        let (list, _) = self.lists.map().remove(&list).expect("programs destroy what there is");
        answer("zeCommandListDestroy", call!(zeCommandListDestroy(list)))
    }

    fn destroy_event(&self, event: EventId) -> Answered<()> {
        let made = self.events.map().remove(&event).expect("programs destroy what there is");
        destroy_event(made)
    }

    fn execute(&self, queue: QueueId, lists: &[ListId], fence: Option<FenceId>) -> Answered<()> {
        let mut lists: Vec<_> = lists.iter().map(|&list| self.lists.get(list).0).collect();
        let fence = fence.map_or(ze_fence_handle_t::NULL, |fence| self.fences.get(fence));
        let result = call!(zeCommandQueueExecuteCommandLists(
            self.queues.get(queue),
            lists.len() as u32,
            lists.as_mut_ptr(),
            fence
        ));
        answer("zeCommandQueueExecuteCommandLists", result)
    }

    fn synchronize(&self, object: Object, wait: Wait) -> Answered<bool> {
        let timeout = match wait {
            Wait::Poll => 0,
            Wait::Completion => HANG,
        };
        let (name, result) = match object {
            Object::List(list) => (
                "zeCommandListHostSynchronize",
                call!(zeCommandListHostSynchronize(self.lists.get(list).0, timeout)),
            ),
            Object::Queue(queue) => (
                "zeCommandQueueSynchronize",
                call!(zeCommandQueueSynchronize(self.queues.get(queue), timeout)),
            ),
            Object::Event(event) => (
                "zeEventHostSynchronize",
                call!(zeEventHostSynchronize(self.events.get(event).0, timeout)),
            ),
            Object::Fence(fence) => (
                "zeFenceHostSynchronize",
                call!(zeFenceHostSynchronize(self.fences.get(fence), timeout)),
            ),
        };
        if result == ze_result_t::ZE_RESULT_NOT_READY {
            return Ok(false);
        }
        answer(name, result).map(|()| true)
    }

    fn address(&self, event: EventId) -> Answered<CounterAddress> {
        let (event, _) = self.events.get(event);
        let (mut value, mut address) = (0, 0);
        let result =
            call!(zeEventCounterBasedGetDeviceAddress(event, &raw mut value, &raw mut address));
        answer("zeEventCounterBasedGetDeviceAddress", result)?;
        Ok(CounterAddress { address, value })
    }

    fn reached(&self, CounterAddress { address, value }: CounterAddress) -> Answered<bool> {
        // SAFETY: the driver promises that counters stay readable as long as the context lives.
        let counter = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(address as usize) };
        Ok(counter.load(Ordering::Acquire) >= value)
    }

    fn host_signal(&self, event: EventId) -> Answered<()> {
        if let Some(word) = self.word(event) {
            match word.increment {
                Some(increment) => _ = word.get().fetch_add(increment, Ordering::AcqRel),
                None => word.get().store(word.value, Ordering::Release),
            }
            return Ok(());
        }
        answer("zeEventHostSignal", call!(zeEventHostSignal(self.events.get(event).0)))
    }

    fn host_reset(&self, event: EventId) -> Answered<()> {
        if let Some(word) = self.word(event) {
            word.get().store(0, Ordering::Release);
            return Ok(());
        }
        answer("zeEventHostReset", call!(zeEventHostReset(self.events.get(event).0)))
    }

    fn reset_fence(&self, fence: FenceId) -> Answered<()> {
        answer("zeFenceReset", call!(zeFenceReset(self.fences.get(fence))))
    }

    fn read(&self, cell: Cell) -> Answered<u32> {
        Ok(self.memory().get(cell.0 * STRIDE))
    }

    fn write(&self, cell: Cell, value: u32) -> Answered<()> {
        self.memory().set(cell.0 * STRIDE, value);
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.is_idle() {
            std::mem::forget(self.memory.take());
            std::mem::forget(self.words.take());
            return;
        }
        // What goes wrong here has been seen, or will be, by a test of destruction.
        for fence in self.fences.all() {
            let _ = call!(zeFenceDestroy(fence));
        }
        for (list, _) in self.lists.all() {
            let _ = call!(zeCommandListDestroy(list));
        }
        for queue in self.queues.all() {
            let _ = call!(zeCommandQueueDestroy(queue));
        }
        for made in self.events.all() {
            let _ = destroy_event(made);
        }
    }
}

fn destroy_event((event, pool): (ze_event_handle_t, ze_event_pool_handle_t)) -> Answered<()> {
    answer("zeEventDestroy", call!(zeEventDestroy(event)))?;
    if pool.is_null() {
        return Ok(());
    }
    answer("zeEventPoolDestroy", call!(zeEventPoolDestroy(pool)))
}

/// An event from a pool of its own.
fn pool_event(
    counter_based: Option<ze_event_pool_counter_based_exp_flags_t>,
) -> Answered<(ze_event_handle_t, ze_event_pool_handle_t)> {
    let extension = ze_event_pool_counter_based_exp_desc_t {
        flags: counter_based.unwrap_or_default(),
        ..Default::default()
    };
    let next = if counter_based.is_some() { (&raw const extension).cast() } else { ptr::null() };
    let desc = ze_event_pool_desc_t {
        pNext: next,
        flags: ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
        count: 1,
        ..Default::default()
    };
    let mut pool = ze_event_pool_handle_t::NULL;
    let devices = ptr::null_mut();
    let context = world().gpu.context;
    let result = call!(zeEventPoolCreate(context, &raw const desc, 0, devices, &raw mut pool));
    answer("zeEventPoolCreate", result)?;
    let desc = ze_event_desc_t {
        signal: ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST,
        wait: ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST,
        ..Default::default()
    };
    let mut event = NONE;
    answer("zeEventCreate", call!(zeEventCreate(pool, &raw const desc, &raw mut event)))?;
    Ok((event, pool))
}

/// An event of the core function.
fn core_event(next: *const c_void) -> Answered<ze_event_handle_t> {
    use ze_event_counter_based_flags_t as flag;
    let Gpu { context, device } = world().gpu;
    let desc = ze_event_counter_based_desc_t {
        pNext: next,
        flags: flag::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
            | flag::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
            | flag::ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE,
        ..Default::default()
    };
    let mut event = NONE;
    let result = call!(zeEventCounterBasedCreate(context, device, &raw const desc, &raw mut event));
    answer("zeEventCounterBasedCreate", result)?;
    Ok(event)
}

/// An event of the experimental function.
fn zex_event(next: *const c_void) -> Answered<ze_event_handle_t> {
    use zex_counter_based_event_exp_flags_t as flag;
    let Gpu { context, device } = world().gpu;
    let desc = zex_counter_based_event_desc_t {
        pNext: next,
        flags: flag::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE
            | flag::ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE
            | flag::ZEX_COUNTER_BASED_EVENT_FLAG_HOST_VISIBLE,
        ..Default::default()
    };
    let mut event = NONE;
    let result =
        call!(zexCounterBasedEventCreate2(context, device, &raw const desc, &raw mut event));
    answer("zexCounterBasedEventCreate2", result)?;
    Ok(event)
}

/// An event that follows a word, by one of the ways to make one.
fn word_event(word: Word, way: usize) -> Answered<ze_event_handle_t> {
    let Word { place, value, increment } = word;
    match (increment, way) {
        (Some(increment), 0) => {
            let storage = ze_event_counter_based_external_aggregate_storage_desc_t {
                deviceAddress: place,
                incrementValue: increment,
                completionValue: value,
                ..Default::default()
            };
            core_event((&raw const storage).cast())
        }
        (Some(increment), _) => {
            let storage = zex_counter_based_event_external_storage_properties_t {
                deviceAddress: place,
                incrementValue: increment,
                completionValue: value,
                ..Default::default()
            };
            zex_event((&raw const storage).cast())
        }
        (None, 0) => {
            let storage = ze_event_counter_based_external_sync_allocation_desc_t {
                deviceAddress: place,
                hostAddress: place,
                completionValue: value,
                ..Default::default()
            };
            core_event((&raw const storage).cast())
        }
        (None, _) => {
            let storage = zex_counter_based_event_external_sync_alloc_properties_t {
                deviceAddress: place,
                hostAddress: place,
                completionValue: value,
                ..Default::default()
            };
            zex_event((&raw const storage).cast())
        }
    }
}

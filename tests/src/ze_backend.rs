// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs on the real driver, through the stock loader.
//!
//! Each program gets memory and objects of its own in one context. Its objects are destroyed when all
//! its work is complete; after a hang they are leaked instead, since the device may still write to
//! them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::Hash;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::lists::NONE;
use crate::program::backend::{Answered, Backend, BackendError, CounterAddress, Times, Wait};
use crate::program::{
    CELLS, Cell, Command, Engine, EventId, EventKind, FenceId, ListDesc, ListId, ListKind,
    ListOrder, Object, Op, PLACES, QueueId,
};
use crate::ze::{self, Gpu, Usm};
use crate::{call, check};
use tally_ze::*;

mod events;
pub mod partner;

use events::{End, Made};
use partner::{Kind, Shared};

/// The time that a wait may take before it counts as a hang, in ns: enough for a busy machine, and less
/// than a partner's limit. A test that looks for hangs sets it in [`HANG_VARIABLE`], in ms.
const HANG: u64 = 30_000_000_000;
/// See [`HANG`].
pub const HANG_VARIABLE: &str = "TALLY_TEST_HANG_MS";
/// The time to wait for the remaining work of a failed program, in ns.
const LEFT: u64 = 300_000_000;
/// Iterations of the loop in slow kernels: tens of microseconds.
const SPIN: u32 = 20_000;
/// The same for functions of the host.
const PAUSE: Duration = Duration::from_micros(50);
/// Elements of 4 bytes between two cells: no cache line is shared.
const STRIDE: usize = 16;
/// The maximum number of events that a program creates.
const WORDS: usize = 256;
/// Elements of 8 bytes between two words.
const WORD_STRIDE: usize = 8;
/// External events are complete at some value above this.
const FINAL_VALUE: u64 = 10;

/// The number of programs so far.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The context and the kernels, created once for all programs of a process.
struct World {
    gpu: Gpu,
    module: ze_module_handle_t,
    mix: Kernels,
    add: Kernels,
}

/// Kernel objects of one name, one for each concurrent call: a synchronous append may last until
/// another thread has appended.
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

/// See [`HANG`].
fn hang() -> u64 {
    static CHOSEN: OnceLock<u64> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let ms = std::env::var(HANG_VARIABLE).ok().and_then(|it| it.parse::<u64>().ok());
        ms.map_or(HANG, |ms| ms * 1_000_000)
    })
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
    events: Names<EventId, Made>,
    /// The number of this program in the process.
    number: u64,
    /// Whether no other process takes part.
    alone: bool,
    /// The events that other processes may open.
    shared: Names<EventId, Shared>,
    /// The number of host calls on shared events so far: another process makes every second one, and
    /// every fourth one is done there by its device.
    turns: AtomicU64,
    /// The parameters of host functions.
    calls: Mutex<Vec<Kept>>,
    /// Results of queries for times.
    times: Option<Usm<ze_kernel_timestamp_result_t>>,
    /// Words of the user's, by event; they stay after their event is destroyed.
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
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            alone: false,
            shared: Names::new(),
            turns: AtomicU64::new(0),
            calls: Mutex::default(),
            times: Some(world().gpu.host(PLACES)),
            words: Some(world().gpu.host(WORDS * WORD_STRIDE)),
            kinds: Names::new(),
            fences: Names::new(),
        }
    }

    /// One for programs in which no other process takes part.
    pub fn alone() -> Self {
        let mut driver = Self::new();
        driver.alone = true;
        driver
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

    /// Whether another process makes this host call on a shared event, which is every second one; and
    /// whether its device does it.
    fn is_others_turn(&self, event: EventId) -> Option<(Shared, bool)> {
        let shared = self.shared.map().get(&event).copied()?;
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        (turn % 2 == 1).then_some((shared, turn % 4 == 3))
    }

    /// Whether everything that was submitted is complete.
    fn is_idle(&self) -> bool {
        let done = |result| result == ze_result_t::ZE_RESULT_SUCCESS;
        self.lists.all().into_iter().all(|(list, kind)| {
            kind == ListKind::Regular || done(call!(zeCommandListHostSynchronize(list, LEFT)))
        }) && self
            .queues
            .all()
            .into_iter()
            .all(|queue| done(call!(zeCommandQueueSynchronize(queue, LEFT))))
    }
}

/// A word of the user's that completes an event.
#[derive(Clone, Copy)]
struct Word {
    place: *mut u64,
    /// The event is complete when the word is at least this.
    value: u64,
    /// The increment of each signal, if the event is aggregated.
    increment: Option<u64>,
}

impl Word {
    fn get(&self) -> &AtomicU64 {
        // SAFETY: the words live as long as the driver's program, and are only accessed atomically.
        unsafe { &*self.place.cast::<AtomicU64>() }
    }
}

/// The parameters of a host function.
struct HostCall {
    dst: *mut u32,
    add: u32,
}

// SAFETY: the cell is memory that is shared with a device; the program orders all that use it.
unsafe impl Send for HostCall {}

/// A [`HostCall`] to which the device has a pointer, until it is dropped.
struct Kept(NonNull<HostCall>);

// SAFETY: it owns what it points to, which may be sent.
unsafe impl Send for Kept {}

impl Kept {
    fn new(call: HostCall) -> Self {
        Self(NonNull::from(Box::leak(Box::new(call))))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: it comes from a box, and it is dropped only when no function is called with it any
        // more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

unsafe extern "C" fn host_call(data: *mut c_void) {
    // SAFETY: the driver's program keeps its parameters until its lists are done, and the cell as long;
    // no other thread uses the cell meanwhile.
    unsafe {
        let call = &*data.cast::<HostCall>();
        if call.add % 2 == 1 {
            std::thread::sleep(PAUSE);
        }
        call.dst.write_volatile(call.dst.read_volatile().wrapping_mul(3).wrapping_add(call.add));
    }
}

/// Whether events can be shared with other processes on this lane. On the embedded lane they can.
///
/// # Panics
/// If the embedded lane does not.
pub fn can_share() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| match events::shared_event().and_then(Made::end) {
        Ok(()) => true,
        Err(_) if ze::on_kernel_lane() => false,
        Err(error) => panic!("events cannot be shared: {error}"),
    })
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

fn of_kernel(times: &ze_kernel_timestamp_result_t) -> Times {
    Times { start: times.global.kernelStart, end: times.global.kernelEnd }
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
            let mut flags = ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE;
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
        let way = name.0 % 3;
        let made = match kind {
            EventKind::Regular if name.0 % 4 == 1 && !self.alone && can_share() => {
                events::shared_event()?
            }
            EventKind::Regular => events::pool_event(None, ze_event_pool_flags_t::empty())?,
            EventKind::RegularTimed => events::regular_timed(name.0 % 2 == 1)?,
            EventKind::CounterBased => events::counter_based(way)?,
            EventKind::Timed => events::timed(way, name.0 % 2 == 1)?,
            EventKind::Opened => unreachable!("an opened event is made of another one"),
            EventKind::External | EventKind::Aggregated { .. } => {
                self.kinds.map().insert(name, kind);
                let word = self.word(name).expect("its kind is known");
                events::word_event(word, way)?
            }
        };
        if let End::SharedPool(_, handle) = made.end {
            self.shared.map().insert(name, Shared { kind: Kind::Pool, handle });
        }
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

    fn clone_list(&self, list: ListId, copy: ListId) -> Answered<()> {
        let (list, kind) = self.lists.get(list);
        let mut made = ze_command_list_handle_t::NULL;
        let result = call!(zeCommandListCreateCloneExp(list, &raw mut made));
        answer("zeCommandListCreateCloneExp", result)?;
        self.lists.map().insert(copy, (made, kind));
        Ok(())
    }

    fn share(&self, event: EventId, opened: EventId) -> Answered<()> {
        let core = opened.0 % 2 == 1;
        let handle = events::handle_of(self.events.get(event).event, core)?;
        self.events.map().insert(opened, events::open(world().gpu.context, handle, core)?);
        self.shared.map().insert(opened, Shared { kind: Kind::Counter, handle });
        Ok(())
    }

    fn append_lists(
        &self,
        list: ListId,
        lists: &[ListId],
        waits: &[EventId],
        signal: Option<EventId>,
    ) -> Answered<()> {
        let mut lists: Vec<_> = lists.iter().map(|&list| self.lists.get(list).0).collect();
        let mut waits: Vec<_> = waits.iter().map(|&event| self.events.get(event).event).collect();
        let result = call!(zeCommandListImmediateAppendCommandListsExp(
            self.lists.get(list).0,
            lists.len() as u32,
            lists.as_mut_ptr(),
            signal.map_or(NONE, |event| self.events.get(event).event),
            waits.len() as u32,
            waits.as_mut_ptr()
        ));
        answer("zeCommandListImmediateAppendCommandListsExp", result)
    }

    fn append(&self, list: ListId, command: &Command) -> Answered<()> {
        let (list, _) = self.lists.get(list);
        let waits = command.waits.iter().map(|&event| self.events.get(event).event).collect();
        let signal = command.signal.map_or(NONE, |event| self.events.get(event).event);
        let mut events = Events { waits, signal };
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
            Op::HostCall { dst, add } => {
                let call = Kept::new(HostCall { dst: self.place(dst).cast(), add });
                let data = call.0.as_ptr().cast();
                self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
                let (next, signal) = (ptr::null(), events.signal);
                let function: ze_host_function_callback_t = Some(host_call);
                let result = call!(zeCommandListAppendHostFunction(
                    list, function, data, next, signal, count, waits
                ));
                answer("zeCommandListAppendHostFunction", result)
            }
            Op::QueryTimes { event, place } => {
                let mut event = self.events.get(event).event;
                let times = self.times.as_ref().expect("it is there until the end");
                let (dst, offsets) = (times.ptr().wrapping_add(place).cast(), ptr::null());
                let (event, signal) = (&raw mut event, events.signal);
                let result = call!(zeCommandListAppendQueryKernelTimestamps(
                    list, 1, event, dst, offsets, signal, count, waits
                ));
                answer("zeCommandListAppendQueryKernelTimestamps", result)
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
                let event = self.events.get(event).event;
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
        self.shared.map().remove(&event);
        made.end()
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
            Wait::Completion => hang(),
        };
        if let Object::Event(event) = object
            && let Some((shared, by_list)) = self.is_others_turn(event)
        {
            let call = match (timeout, by_list) {
                (0, _) => "query".to_owned(),
                (_, false) => format!("wait {timeout}"),
                (_, true) => format!("wait-by-list {timeout}"),
            };
            return partner::ask(self.number, event, shared, &call);
        }
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
                call!(zeEventHostSynchronize(self.events.get(event).event, timeout)),
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

    fn times(&self, event: EventId) -> Answered<Option<Times>> {
        let mut times = ze_kernel_timestamp_result_t::default();
        let event = self.events.get(event).event;
        let result = call!(zeEventQueryKernelTimestamp(event, &raw mut times));
        if result == ze_result_t::ZE_RESULT_NOT_READY {
            return Ok(None);
        }
        answer("zeEventQueryKernelTimestamp", result)?;
        Ok(Some(of_kernel(&times)))
    }

    fn times_at(&self, place: usize) -> Answered<Times> {
        let times = self.times.as_ref().expect("it is there until the end");
        Ok(of_kernel(&times.get(place)))
    }

    fn address(&self, event: EventId) -> Answered<CounterAddress> {
        let event = self.events.get(event).event;
        let (mut value, mut address) = (0, 0);
        let result =
            call!(zeEventCounterBasedGetDeviceAddress(event, &raw mut value, &raw mut address));
        answer("zeEventCounterBasedGetDeviceAddress", result)?;
        Ok(CounterAddress { address, value })
    }

    fn reached(&self, CounterAddress { address, value }: CounterAddress) -> Answered<bool> {
        // SAFETY: the driver guarantees that counters stay readable as long as the context lives.
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
        if let Some((shared, by_list)) = self.is_others_turn(event) {
            let call = if by_list { "signal-by-list" } else { "signal" };
            return partner::ask(self.number, event, shared, call).map(drop);
        }
        answer("zeEventHostSignal", call!(zeEventHostSignal(self.events.get(event).event)))
    }

    fn host_reset(&self, event: EventId) -> Answered<()> {
        if let Some(word) = self.word(event) {
            word.get().store(0, Ordering::Release);
            return Ok(());
        }
        if let Some((shared, _)) = self.is_others_turn(event) {
            return partner::ask(self.number, event, shared, "reset").map(drop);
        }
        answer("zeEventHostReset", call!(zeEventHostReset(self.events.get(event).event)))
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
            std::mem::forget(self.times.take());
            std::mem::forget(std::mem::take(&mut self.calls));
            return;
        }
        // Errors are ignored here: tests of destruction cover them.
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
            let _ = made.end();
        }
    }
}

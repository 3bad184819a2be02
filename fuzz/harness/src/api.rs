// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequences of Level Zero calls in unusual orders and with unusual handles.
//!
//! The calls follow the specification's rules for addresses and lifetimes, because breaking these is
//! undefined; all else is free: null, wild and dead handles, lists in the wrong state, waits for events
//! that are never signalled, objects destroyed while others wait for them.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use arbitrary::{Result, Unstructured};
use tally_ze::*;

mod appends;
mod objects;

/// Bytes of each allocation.
const MEMORY: usize = 4096;
/// The maximum number of calls of an input.
const CALLS: usize = 200;
/// The maximum number of objects of a kind: more only take time.
const MANY: usize = 8;
/// Longest host wait in ns.
const MOMENT: u64 = 50_000;

/// Calls a function of the driver as the loader does, by its table entry.
macro_rules! call {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        let address = ze_tally::ddi::lookup(stringify!($name)).expect("it is implemented");
        // SAFETY: the driver's list gives each name the function of its type.
        let function = unsafe { std::mem::transmute::<*const c_void, functions::$name>(address) };
        // SAFETY: pointers are valid for the call; the driver must refuse wrong handles.
        #[allow(clippy::macro_metavars_in_unsafe)]
        let result = unsafe { function($($arg),*) };
        $crate::api::judge(stringify!($name), result)
    }};
}
pub(crate) use call;

/// Refuses results that no valid or invalid call may have.
///
/// # Panics
/// If the driver found a mistake of its own, or lost a device without a fault.
fn judge(name: &str, result: ze_result_t) -> ze_result_t {
    use ze_result_t as r;
    let never = [r::ZE_RESULT_ERROR_UNKNOWN, r::ZE_RESULT_ERROR_UNINITIALIZED];
    assert!(!never.contains(&result), "{name}: {result:?}");
    result
}

/// The driver, initialised once.
struct Ready {
    driver: usize,
    device: usize,
}

fn ready() -> &'static Mutex<Ready> {
    static READY: OnceLock<Mutex<Ready>> = OnceLock::new();
    READY.get_or_init(|| {
        let ok = ze_result_t::ZE_RESULT_SUCCESS;
        assert_eq!(call!(zeInit(ze_init_flags_t::empty())), ok);
        let (mut driver, mut device) = (ze_driver_handle_t::NULL, ze_device_handle_t::NULL);
        assert_eq!(call!(zeDriverGet(&mut 1, &raw mut driver)), ok);
        assert_eq!(call!(zeDeviceGet(driver, &mut 1, &raw mut device)), ok);
        Mutex::new(Ready { driver: driver.0 as usize, device: device.0 as usize })
    })
}

/// Makes the calls that the input describes, then ends everything.
///
/// # Panics
/// See [`judge`]; and if the device is not usable afterwards.
pub fn calls(data: &[u8]) {
    let ready = ready().lock().unwrap_or_else(PoisonError::into_inner);
    let driver = ze_driver_handle_t(ptr::with_exposed_provenance_mut(ready.driver));
    let device = ze_device_handle_t(ptr::with_exposed_provenance_mut(ready.device));
    let ok = ze_result_t::ZE_RESULT_SUCCESS;
    let desc = ze_context_desc_t::default();
    let mut context = ze_context_handle_t::NULL;
    assert_eq!(call!(zeContextCreate(driver, &raw const desc, &raw mut context)), ok);
    let mut world = World::new(device, context);
    let mut u = Unstructured::new(data);
    for _ in 0..CALLS {
        // An input that ends early describes fewer calls.
        if u.is_empty() || world.step(&mut u).is_err() {
            break;
        }
    }
    world.end();
    assert_eq!(call!(zeContextDestroy(context)), ok);
    assert_eq!(call!(zeDeviceGetStatus(device)), ok, "nothing did anything to the device");
}

/// The existing objects. Handles of destroyed objects may stay in the lists.
struct World {
    device: ze_device_handle_t,
    context: ze_context_handle_t,
    lists: Vec<ze_command_list_handle_t>,
    queues: Vec<ze_command_queue_handle_t>,
    fences: Vec<ze_fence_handle_t>,
    /// Events of the pool: the device may use them until the end.
    events: Vec<ze_event_handle_t>,
    /// Counter-based events, which may be destroyed at any time.
    counters: Vec<ze_event_handle_t>,
    pool: ze_event_pool_handle_t,
    memory: Vec<*mut c_void>,
    /// Whether a list or queue was destroyed before the end.
    destroyed: bool,
}

impl World {
    /// A handle of the list, or a wrong one.
    fn pick<T: Copy>(
        u: &mut Unstructured<'_>,
        from: &[T],
        wild: fn(*mut c_void) -> T,
    ) -> Result<T> {
        let choice = usize::from(u.arbitrary::<u8>()?);
        Ok(match choice {
            0 => wild(ptr::null_mut()),
            1 => wild(ptr::without_provenance_mut(0x10)),
            2 => wild(ptr::without_provenance_mut(usize::MAX)),
            _ if from.is_empty() => wild(ptr::null_mut()),
            _ => from[choice % from.len()],
        })
    }

    fn list(&self, u: &mut Unstructured<'_>) -> Result<ze_command_list_handle_t> {
        Self::pick(u, &self.lists, ze_command_list_handle_t)
    }

    fn queue(&self, u: &mut Unstructured<'_>) -> Result<ze_command_queue_handle_t> {
        Self::pick(u, &self.queues, ze_command_queue_handle_t)
    }

    fn fence(&self, u: &mut Unstructured<'_>) -> Result<ze_fence_handle_t> {
        Self::pick(u, &self.fences, ze_fence_handle_t)
    }

    fn event(&self, u: &mut Unstructured<'_>) -> Result<ze_event_handle_t> {
        let from = if u.arbitrary::<u8>()? < 100 { &self.events } else { &self.counters };
        Self::pick(u, from, ze_event_handle_t)
    }

    /// Makes one call.
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.arbitrary::<u8>()? {
            0..60 => self.create(u),
            60..170 => self.append(u),
            170..200 => self.execute(u),
            200..230 => self.look(u),
            230..250 => self.end_one(u),
            _ => self.ask(u),
        }
    }

    /// Destroys everything, after releasing all waits or, if that is not enough, after losing the
    /// device: an input may leave nothing for the next one.
    fn end(&mut self) {
        for &event in &self.events {
            call!(zeEventHostSignal(event));
        }
        if !self.is_idle() {
            self.lose();
        }
        for &fence in &self.fences {
            call!(zeFenceDestroy(fence));
        }
        for &list in &self.lists {
            call!(zeCommandListDestroy(list));
        }
        for &queue in &self.queues {
            call!(zeCommandQueueDestroy(queue));
        }
        for &event in self.counters.iter().chain(&self.events) {
            call!(zeEventDestroy(event));
        }
        call!(zeEventPoolDestroy(self.pool));
        for &memory in &self.memory {
            call!(zeMemFree(self.context, memory));
        }
    }

    /// Whether nothing runs or waits any more, as far as that can be known.
    fn is_idle(&self) -> bool {
        const LONG: u64 = 20 * MOMENT;
        let ok = ze_result_t::ZE_RESULT_SUCCESS;
        let done = |list| {
            let mut immediate = 0;
            call!(zeCommandListIsImmediate(list, &raw mut immediate));
            immediate == 0 || call!(zeCommandListHostSynchronize(list, LONG)) == ok
        };
        // A list or queue that was destroyed may have left work behind.
        !self.destroyed
            && self.lists.iter().all(|&list| done(list))
            && self.queues.iter().all(|&queue| call!(zeCommandQueueSynchronize(queue, LONG)) == ok)
    }

    /// Makes the device access an unmapped address, and checks that all waits end.
    fn lose(&self) {
        let desc = ze_command_queue_desc_t {
            mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
            ..Default::default()
        };
        let (context, device) = (self.context, self.device);
        let ok = ze_result_t::ZE_RESULT_SUCCESS;
        let lost = ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST;
        let mut list = ze_command_list_handle_t::NULL;
        assert_eq!(call!(zeContextGetStatus(context)), ok, "nothing did anything to the device");
        let made =
            call!(zeCommandListCreateImmediate(context, device, &raw const desc, &raw mut list));
        assert_eq!(made, ok);
        let (nowhere, byte) = (ptr::without_provenance_mut(0x10), 1_u8);
        let (none, pattern) = (ze_event_handle_t::NULL, (&raw const byte).cast());
        let waits = ptr::null_mut();
        assert_eq!(
            call!(zeCommandListAppendMemoryFill(list, nowhere, pattern, 1, 8, none, 0, waits)),
            lost
        );
        assert_eq!(call!(zeCommandListDestroy(list)), ok);
        for &queue in &self.queues {
            // A queue that had no work left has succeeded.
            let answer = call!(zeCommandQueueSynchronize(queue, u64::MAX));
            assert!([ok, lost].contains(&answer), "zeCommandQueueSynchronize: {answer:?}");
        }
    }
}

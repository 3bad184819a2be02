// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event pools that several processes use (core programming guide, "Inter-Process Communication",
//! "Events").

use std::time::Duration;

use tally_tests::lists::{PATIENCE, Pool};
use tally_tests::peer::{self, HandleBytes, Peer};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

const IPC: ze_event_pool_flags_t = ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_IPC;

fn handle_of(pool: &Pool) -> HandleBytes {
    let mut handle = ze_ipc_event_pool_handle_t::default();
    check!(zeEventPoolGetIpcHandle(pool.0, &raw mut handle));
    handle.data
}

/// A pool of another process; closed on drop.
struct Opened(std::mem::ManuallyDrop<Pool>);

impl Opened {
    fn new(gpu: &Gpu, data: HandleBytes) -> Self {
        let mut pool = ze_event_pool_handle_t::NULL;
        let handle = ze_ipc_event_pool_handle_t { data };
        check!(zeEventPoolOpenIpcHandle(gpu.context, handle, &raw mut pool));
        Self(std::mem::ManuallyDrop::new(Pool(pool)))
    }
}

impl std::ops::Deref for Opened {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.0
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        check!(zeEventPoolCloseIpcHandle(self.0.0));
    }
}

/// The guide's sample: "Receiving process creates event at location … Sending process creates event
/// at same location", and waits for what the receiver's device signals.
/// "First, the event pool is created, packaged, and sent on the sending process"; "Next, the event pool
/// is received and un-packaged on the receiving process"; "To cleanup, first close the pool handle in
/// the receiving process"; "Finally, return the IPC handle to the driver with zeEventPoolPutIpcHandle
/// and free the event pool in the sending process." "An event can be shared across devices and
/// processes." "An event pool can be shared via Inter-Process Communication; allowing
/// sharing blocks of events rather than sharing each individual event".
#[test]
fn the_guides_sample() {
    let gpu = Gpu::new();
    let pool = gpu.pool(10, IPC);
    let mut receiver = Peer::start("child_that_signals_event_5");
    receiver.say_handle(&handle_of(&pool));
    receiver.expect("submitted");
    // Also if it is created after the other process has signalled it.
    let event = pool.event(5);
    event.synchronize();
    assert!(event.is_ready());
    assert!(!pool.event(4).is_ready(), "its neighbour is another event");
    receiver.say("end");
    receiver.finish();
    drop(event);
    let handle = ze_ipc_event_pool_handle_t { data: handle_of(&pool) };
    check!(zeEventPoolPutIpcHandle(gpu.context, handle));
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_signals_event_5() {
    let gpu = Gpu::new();
    let pool = Opened::new(&gpu, peer::hear_handle());
    let mut flags = ze_event_pool_flags_t::empty();
    check!(zeEventPoolGetFlags(pool.0.0, &raw mut flags));
    assert_eq!(flags, IPC | ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
    let event = pool.event(5);
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    list.signal(&event);
    list.close();
    queue.execute(&[&list], None);
    queue.synchronize();
    peer::say("submitted");
    peer::expect("end");
}

/// "Each process may now refer to the same device event allocation via its handle": signal, reset and
/// wait work in both, by host and device, whoever sleeps.
#[test]
fn signals_and_resets_of_either_process_wake_the_other() {
    let gpu = Gpu::new();
    let pool = gpu.pool(5, IPC);
    let events: Vec<_> = (0..5).map(|i| pool.event(i)).collect();
    let [ping, pong, seen, reset, end] = &events[..] else { unreachable!("five events") };
    let mut other = Peer::start("child_that_answers");
    other.say_handle(&handle_of(&pool));
    other.expect("ready");
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    for round in 0..100_u32 {
        if round % 3 == 0 {
            // The other process has fallen asleep.
            std::thread::sleep(Duration::from_millis(2));
        }
        if round % 2 == 0 {
            ping.signal();
            pong.synchronize();
        } else {
            // Signalled by this device, waited for by the other one, and the other way round.
            list.signal(ping);
            list.set((&memory, 0), round, None, &[pong]);
            list.synchronize();
            assert_eq!(memory.get(0), round);
        }
        seen.signal();
        // The other process resets them; this one sees that.
        reset.synchronize();
        assert!(!ping.is_ready() && !pong.is_ready() && !seen.is_ready());
        reset.reset();
    }
    end.signal();
    ping.signal();
    other.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_answers() {
    let gpu = Gpu::new();
    let pool = Opened::new(&gpu, peer::hear_handle());
    let events: Vec<_> = (0..5).map(|i| pool.event(i)).collect();
    let [ping, pong, seen, reset, end] = &events[..] else { unreachable!("five events") };
    let list = gpu.immediate(0, true);
    let memory = gpu.host::<u32>(1);
    peer::say("ready");
    for round in 0.. {
        ping.synchronize();
        if end.is_ready() {
            break;
        }
        if round % 2 == 0 {
            list.set((&memory, 0), round, Some(pong), &[ping]);
            list.synchronize();
        } else {
            pong.signal();
        }
        seen.synchronize();
        ping.reset();
        seen.reset();
        list.reset_event(pong);
        list.synchronize();
        reset.signal();
        while reset.is_ready() {
            std::thread::yield_now();
        }
    }
}

/// A signal of one importer wakes another importer: the exporter forwards it.
#[test]
fn importers_wake_each_other() {
    let gpu = Gpu::new();
    let pool = gpu.pool(2, IPC);
    let handle = handle_of(&pool);
    let mut waiter = Peer::start("child_that_waits_for_event_0");
    waiter.say_handle(&handle);
    waiter.expect("waits");
    let mut signaller = Peer::start("child_that_signals_event_0");
    signaller.say_handle(&handle);
    waiter.expect("woken");
    signaller.finish();
    waiter.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_waits_for_event_0() {
    let gpu = Gpu::new();
    let pool = Opened::new(&gpu, peer::hear_handle());
    let event = pool.event(0);
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 1, None, &[&event]);
    peer::say("waits");
    event.synchronize();
    list.synchronize();
    peer::say("woken");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_signals_event_0() {
    let gpu = Gpu::new();
    let pool = Opened::new(&gpu, peer::hear_handle());
    pool.event(0).signal();
}

/// Contexts of one process may open its own exports.
#[test]
fn a_process_opens_its_own_pool() {
    let (gpu, other) = (Gpu::new(), Gpu::new());
    let pool = gpu.pool(2, IPC);
    let event = pool.event(1);
    let opened = Opened::new(&other, handle_of(&pool));
    let same = opened.event(1);
    assert!(!same.is_ready());
    let memory = gpu.host::<u32>(1);
    let list = other.immediate(0, true);
    list.set((&memory, 0), 1, None, &[&same]);
    event.signal();
    list.synchronize();
    same.synchronize();
    event.reset();
    assert!(!same.is_ready());
}

#[test]
fn pools_that_cannot_be_shared_are_refused() {
    let gpu = Gpu::new();
    let mut handle = ze_ipc_event_pool_handle_t::default();
    let plain = gpu.pool(1, ze_event_pool_flags_t::empty());
    let said = refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeEventPoolGetIpcHandle(plain.0, &raw mut handle)
    );
    assert!(said.contains("ZE_EVENT_POOL_FLAG_IPC"), "{said}");
    let counter_based = ze_event_pool_counter_based_exp_desc_t::default();
    let desc = ze_event_pool_desc_t {
        pNext: (&raw const counter_based).cast(),
        flags: IPC,
        count: 1,
        ..Default::default()
    };
    let pool = gpu.pool_of(&desc);
    refused!(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, zeEventPoolGetIpcHandle(pool.0, &raw mut handle));
    // Its events are shared one by one: they inherit the pool's IPC flag.
    let mut one = ze_ipc_event_counter_based_handle_t::default();
    check!(zeEventCounterBasedGetIpcHandle(pool.event(0).0, &raw mut one));

    let shared = gpu.pool(1, IPC);
    let said = refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventPoolCloseIpcHandle(shared.0));
    assert!(said.contains("zeEventPoolDestroy"), "{said}");
    let opened = Opened::new(&gpu, handle_of(&shared));
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeEventPoolGetIpcHandle(opened.0.0, &raw mut handle)
    );
}

/// "If zeEventPoolPutIpcHandle is not called, any actions performed by that call are eventually done
/// by zeEventPoolDestroy."
#[test]
fn a_handle_ends_with_its_put_or_its_pool() {
    let gpu = Gpu::new();
    let mut opened = ze_event_pool_handle_t::NULL;
    let pool = gpu.pool(1, IPC);
    let handle = ze_ipc_event_pool_handle_t { data: handle_of(&pool) };
    check!(zeEventPoolPutIpcHandle(gpu.context, handle));
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeEventPoolOpenIpcHandle(gpu.context, handle, &raw mut opened)
    );
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventPoolPutIpcHandle(gpu.context, handle));
    let handle = ze_ipc_event_pool_handle_t { data: handle_of(&pool) };
    drop(pool);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeEventPoolOpenIpcHandle(gpu.context, handle, &raw mut opened)
    );
}

/// The exporter destroys the pool first: "exporter's death at every step" is no less than that, and
/// what was signalled stays signalled.
#[test]
fn an_opened_pool_outlives_its_original() {
    let gpu = Gpu::new();
    let pool = gpu.pool(2, IPC);
    let opened = Opened::new(&gpu, handle_of(&pool));
    let (first, second) = (opened.event(0), opened.event(1));
    pool.event(0).signal();
    drop(pool);
    assert!(first.is_ready() && !second.is_ready());
    second.signal();
    check!(zeEventHostSynchronize(second.0, PATIENCE));
}

#[test]
fn properties_say_that_it_works() {
    let mut properties = ze_driver_ipc_properties_t::default();
    check!(zeDriverGetIpcProperties(ze::driver(), &raw mut properties));
    assert!(properties.flags.contains(ze_ipc_property_flags_t::ZE_IPC_PROPERTY_FLAG_EVENT_POOL));
    let _ = call!(zeDriverGetIpcProperties(ze::driver(), &raw mut properties));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles as bytes: "Handles of 64 bytes survive any transport as bytes and cannot be forged into
//! access to other memory; works where ptrace is restricted."

use std::ffi::c_char;
use std::ptr;
use std::time::{Duration, Instant};

use tally_tests::lists::NONE;
use tally_tests::peer::{self, HandleBytes, Peer};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

const CB_IPC: ze_event_counter_based_flags_t =
    ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC;

fn open_memory(gpu: &Gpu, data: HandleBytes) -> ze_result_t {
    let mut at = ptr::null_mut();
    let (flags, handle) = (ze_ipc_memory_flags_t::empty(), ze_ipc_mem_handle_t { data });
    let answer = call!(zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut at));
    if answer == ze_result_t::ZE_RESULT_SUCCESS {
        check!(zeMemCloseIpcHandle(gpu.context, at));
    }
    answer
}

fn open_pool(gpu: &Gpu, data: HandleBytes) -> ze_result_t {
    let mut pool = ze_event_pool_handle_t::NULL;
    let handle = ze_ipc_event_pool_handle_t { data };
    let answer = call!(zeEventPoolOpenIpcHandle(gpu.context, handle, &raw mut pool));
    if answer == ze_result_t::ZE_RESULT_SUCCESS {
        check!(zeEventPoolCloseIpcHandle(pool));
    }
    answer
}

fn open_event(gpu: &Gpu, data: HandleBytes) -> ze_result_t {
    let mut event = NONE;
    let handle = ze_ipc_event_counter_based_handle_t { data };
    let answer = call!(zeEventCounterBasedOpenIpcHandle(gpu.context, handle, &raw mut event));
    if answer == ze_result_t::ZE_RESULT_SUCCESS {
        check!(zeEventCounterBasedCloseIpcHandle(event));
    }
    answer
}

const OPENERS: [fn(&Gpu, HandleBytes) -> ze_result_t; 3] = [open_memory, open_pool, open_event];

/// The objects behind the handles of one process, kept alive.
struct Shared {
    gpu: Gpu,
    handles: [HandleBytes; 3],
    #[allow(dead_code, reason = "owned for its drop")]
    owners: Box<dyn std::any::Any>,
}

fn share() -> Shared {
    let gpu = Gpu::new();
    let memory = gpu.device_memory::<u32>(1024);
    let pool = gpu.pool(4, ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_IPC);
    let event = gpu.cb_event_with(CB_IPC);
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 1, Some(&event), &[]);
    list.synchronize();
    let mut handles = (
        ze_ipc_mem_handle_t::default(),
        ze_ipc_event_pool_handle_t::default(),
        ze_ipc_event_counter_based_handle_t::default(),
    );
    check!(zeMemGetIpcHandle(gpu.context, memory.ptr().cast(), &raw mut handles.0));
    check!(zeEventPoolGetIpcHandle(pool.0, &raw mut handles.1));
    check!(zeEventCounterBasedGetIpcHandle(event.0, &raw mut handles.2));
    let handles = [handles.0.data, handles.1.data, handles.2.data];
    Shared { gpu, handles, owners: Box::new((memory, pool, event, list)) }
}

/// Every single bit behind the descriptor counts, of an event's handle, which has none, every bit; and a handle of one kind opens nothing of another.
#[test]
fn a_handle_with_any_bit_flipped_opens_nothing() {
    let shared = share();
    for (i, (handle, open)) in shared.handles.iter().zip(OPENERS).enumerate() {
        assert_eq!(open(&shared.gpu, *handle), ze_result_t::ZE_RESULT_SUCCESS);
        let has_descriptor = descriptor(handle) != 0;
        assert_eq!(has_descriptor, i < 2, "memory and pools have one");
        for bit in if has_descriptor { 32 } else { 0 }..size_of::<HandleBytes>() * 8 {
            let mut forged = *handle;
            forged[bit / 8] ^= (1_u8 << (bit % 8)) as c_char;
            let answer = open(&shared.gpu, forged);
            assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT, "bit {bit}");
        }
        for (j, other) in OPENERS.iter().enumerate().filter(|(j, _)| *j != i) {
            let answer = other(&shared.gpu, *handle);
            assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT, "{i} as {j}");
        }
    }
}

/// The descriptor at the start of the handle.
fn descriptor(handle: &HandleBytes) -> i32 {
    i32::from_ne_bytes(std::array::from_fn(|i| handle[i] as u8))
}

/// "Programs that know drivers whose handles begin so send it … write the number that arrives in its
/// place, and open the handle" (docs/ipc.md). They may also close it, as their own.
#[test]
fn the_descriptor_in_a_handle_can_be_sent_and_replaced() {
    let shared = share();
    for (handle, open) in shared.handles[..2].iter().zip(OPENERS) {
        // A descriptor that arrives by SCM_RIGHTS is a duplicate, too.
        // SAFETY: takes a number; one that is not open is an error.
        let arrived = unsafe { libc::fcntl(descriptor(handle), libc::F_DUPFD_CLOEXEC, 0) };
        assert!(arrived >= 0, "{} is open", descriptor(handle));
        let mut received = *handle;
        for (to, from) in received.iter_mut().zip(arrived.to_ne_bytes()) {
            *to = from as c_char;
        }
        assert_eq!(open(&shared.gpu, received), ze_result_t::ZE_RESULT_SUCCESS);
        // SAFETY: it is this test's own, and not used elsewhere.
        unsafe { libc::close(arrived) };
    }
    // SAFETY: it is neither read nor written; the driver only passes its number on.
    unsafe { libc::close(descriptor(&shared.handles[0])) };
    let memory = shared.gpu.device_memory::<u32>(1);
    let mut another = ze_ipc_mem_handle_t::default();
    check!(zeMemGetIpcHandle(shared.gpu.context, memory.ptr().cast(), &raw mut another));
    // SAFETY: takes a number; one that is not open is an error.
    let flags = unsafe { libc::fcntl(descriptor(&another.data), libc::F_GETFD) };
    assert!(flags >= 0, "{} is open", descriptor(&another.data));
    assert_eq!(open_memory(&shared.gpu, another.data), ze_result_t::ZE_RESULT_SUCCESS);
}

/// A generator of test bytes: the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The check sum is no secret: recomputing it after a change does not help an attacker. Repeats the sum
/// of the driver (FNV-1a of all bytes between the descriptor and it).
fn seal(handle: &mut HandleBytes) {
    let sum = handle[4..56].iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| {
        (sum ^ u64::from(byte as u8)).wrapping_mul(0x100_0000_01b3)
    });
    for (to, from) in handle[56..].iter_mut().zip(sum.to_ne_bytes()) {
        *to = from as c_char;
    }
}

#[test]
fn forged_handles_open_nothing() {
    let shared = share();
    let mut random = Random(0x7a11_7a11);
    let lost = ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST;
    let refused = |answer| answer == ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT;
    for round in 0..3000 {
        let mut bytes: HandleBytes = std::array::from_fn(|_| random.next() as c_char);
        let which = round % 3;
        let genuine = shared.handles[which];
        assert!(refused(OPENERS[which](&shared.gpu, bytes)), "random bytes");
        // The form is right: magic, kind and sum. The name is unused.
        bytes[..16].copy_from_slice(&genuine[..16]);
        seal(&mut bytes);
        assert_eq!(OPENERS[which](&shared.gpu, bytes), lost, "a socket that nobody has");
        // The address of an existing process, with a wrong secret.
        bytes[..32].copy_from_slice(&genuine[..32]);
        seal(&mut bytes);
        assert!(refused(OPENERS[which](&shared.gpu, bytes)), "a secret that is guessed");
        // A genuine secret of another kind.
        let mut bytes = genuine;
        bytes[32..48].copy_from_slice(&shared.handles[(which + 1) % 3][32..48]);
        seal(&mut bytes);
        assert!(refused(OPENERS[which](&shared.gpu, bytes)), "the secret of something else");
    }
    for (handle, open) in shared.handles.iter().zip(OPENERS) {
        assert_eq!(open(&shared.gpu, *handle), ze_result_t::ZE_RESULT_SUCCESS);
    }
}

/// A handle whose value was changed is another wait for the same counter, and gives no further access.
#[test]
fn the_value_of_a_handle_is_only_waited_for() {
    let shared = share();
    let mut bytes = shared.handles[2];
    bytes[48..56].fill(-1);
    seal(&mut bytes);
    let mut event = NONE;
    let handle = ze_ipc_event_counter_based_handle_t { data: bytes };
    check!(zeEventCounterBasedOpenIpcHandle(shared.gpu.context, handle, &raw mut event));
    assert_eq!(call!(zeEventQueryStatus(event)), ze_result_t::ZE_RESULT_NOT_READY);
    check!(zeEventCounterBasedCloseIpcHandle(event));
}

/// "Works where ptrace is restricted": the exporter's process forbids access by all others, as far as
/// it can.
#[test]
fn a_process_that_cannot_be_traced_shares_as_well() {
    let mut exporter = Peer::start("child_that_shares_undumpable");
    let handles = [(); 3].map(|()| exporter.hear_handle());
    let gpu = Gpu::new();
    for (handle, open) in handles.into_iter().zip(OPENERS) {
        assert_eq!(open(&gpu, handle), ze_result_t::ZE_RESULT_SUCCESS);
    }
    exporter.say("end");
    exporter.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_shares_undumpable() {
    // SAFETY: takes numbers, and changes only this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }, 0);
    let shared = share();
    shared.handles.iter().for_each(peer::say_handle);
    peer::expect("end");
}

/// A stopped process is not dead: the handle cannot be opened now, and no call hangs.
#[test]
fn a_process_that_does_not_answer_is_not_waited_for_ever() {
    let mut exporter = Peer::start("child_that_shares_undumpable");
    let handles = [(); 3].map(|()| exporter.hear_handle());
    let gpu = Gpu::new();
    let signal = |signal| {
        // SAFETY: signals our own child.
        assert_eq!(unsafe { libc::kill(exporter.id() as i32, signal) }, 0);
    };
    signal(libc::SIGSTOP);
    // The third word of its status is T once all of it has stopped.
    let status = || std::fs::read_to_string(format!("/proc/{}/stat", exporter.id()));
    let stopped = || status().is_ok_and(|it| it.rsplit(')').next().unwrap_or("").starts_with(" T"));
    let until = Instant::now() + Duration::from_secs(60);
    while !stopped() {
        assert!(Instant::now() < until, "{:?}", status());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(open_memory(&gpu, handles[0]), ze_result_t::ZE_RESULT_ERROR_NOT_AVAILABLE);
    signal(libc::SIGCONT);
    assert_eq!(open_memory(&gpu, handles[0]), ze_result_t::ZE_RESULT_SUCCESS);
    exporter.say("end");
    exporter.finish();
}

/// A process of another user gets nothing, even with a genuine handle.
#[test]
#[ignore = "needs root"]
fn another_users_process_is_turned_away() {
    let shared = share();
    let mut other = Peer::start("child_of_another_user");
    shared.handles.iter().for_each(|handle| other.say_handle(handle));
    other.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_of_another_user() {
    let handles = [(); 3].map(|()| peer::hear_handle());
    let gpu = Gpu::new();
    // SAFETY: changes only this process, which is root's, as the test has checked.
    assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
    for (handle, open) in handles.into_iter().zip(OPENERS) {
        assert_ne!(open(&gpu, handle), ze_result_t::ZE_RESULT_SUCCESS);
        assert!(ze::description().contains("another user"), "{}", ze::description());
    }
}

/// Wrong arguments are refused before another process is contacted.
#[test]
fn null_arguments_are_refused() {
    let shared = share();
    let (context, none) = (shared.gpu.context, ze_context_handle_t::NULL);
    let handle = ze_ipc_event_pool_handle_t { data: shared.handles[1] };
    let mut pool = ze_event_pool_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeEventPoolOpenIpcHandle(none, handle, &raw mut pool)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeEventPoolOpenIpcHandle(context, handle, ptr::null_mut())
    );
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeEventPoolCloseIpcHandle(pool));
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeEventCounterBasedCloseIpcHandle(NONE));
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeEventCounterBasedGetIpcHandle(NONE, ptr::null_mut())
    );
}

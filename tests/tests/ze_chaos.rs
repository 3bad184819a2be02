// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_CHAOS`: the adversarial but legal device, through the stock loader. Programs that keep the
//! rules see no difference; programs that lack a barrier or a wait are caught.

use std::ffi::c_void;
use std::os::unix::process::ExitStatusExt;
use std::ptr;

use tally_tests::check;
use tally_tests::gate::Gate;
use tally_tests::lists::{Event, NONE, PATIENCE};
use tally_tests::model::Model;
use tally_tests::program::generate::{Shape, from_seed};
use tally_tests::program::run::run;
use tally_tests::ze::{Gpu, Usm, child, in_child, on_kernel_lane, spirv, spirv_from};
use tally_tests::ze_backend::{Driver, partner};
use tally_ze::*;

/// The seeds of the tests.
const SEEDS: std::ops::Range<u64> = 1..7;
/// The number of rounds of a small program in one process.
const ROUNDS: u32 = 40;

/// The number of rounds, over all seeds, in which a child's program was wrong.
fn wrong_rounds(child: &str) -> u32 {
    SEEDS
        .map(|seed| {
            let said = in_child(child, &[("TALLY_CHAOS", &seed.to_string())]);
            let count = said.lines().find_map(|line| line.strip_prefix("wrong: "));
            count.expect("the child says it").parse::<u32>().expect("a number")
        })
        .sum()
}

/// Runs a small program repeatedly; it returns whether its result was right.
fn rounds(program: impl Fn(u32) -> bool) {
    let wrong = (1..=ROUNDS).filter(|&round| !program(round)).count();
    println!("\nwrong: {wrong}");
}

/// "A program with a missing barrier [...] is caught by it": two commands of an out-of-order list, of
/// which the second reads what the first wrote.
#[test]
fn a_missing_barrier_is_caught() {
    assert_ne!(wrong_rounds("child_without_a_barrier"), 0);
    assert_eq!(wrong_rounds("child_with_a_barrier"), 0);
}

fn write_and_read(barrier: bool) {
    let gpu = Gpu::new();
    let (memory, list) = (gpu.host::<u32>(2), gpu.immediate(0, false));
    rounds(|round| {
        list.set((&memory, 0), round, None, &[]);
        if barrier {
            list.barrier(None, &[]);
        }
        list.copy((&memory, 1), (&memory, 0), 1, None, &[]);
        list.synchronize();
        memory.get(1) == round
    });
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_a_barrier() {
    write_and_read(false);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_barrier() {
    write_and_read(true);
}

/// "... or a missing wait is caught": two in-order lists, of which the second reads what the first wrote,
/// with and without the event between them.
#[test]
fn a_missing_wait_is_caught() {
    assert_ne!(wrong_rounds("child_without_a_wait"), 0);
    assert_eq!(wrong_rounds("child_with_a_wait"), 0);
}

fn write_then_read(waits: bool) {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (writer, reader, event) = (gpu.immediate(0, true), gpu.immediate(1, true), gpu.cb_event());
    rounds(|round| {
        writer.set((&memory, 0), round, Some(&event), &[]);
        let wait = [&event];
        reader.copy((&memory, 1), (&memory, 0), 1, None, if waits { &wait } else { &[] });
        reader.synchronize();
        writer.synchronize();
        memory.get(1) == round
    });
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_a_wait() {
    write_then_read(false);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_wait() {
    write_then_read(true);
}

/// "unscoped writes published late": a host that has waited for an event without the host's scope does not
/// see the command's writes; with it in either place it does: "0, // no additional memory/cache coherency
/// required on signal", "ZE_EVENT_SCOPE_FLAG_HOST // ensure memory coherency across device and Host after event
/// completes". The device and the program are one process on the embedded lane, where nothing can be held back.
#[test]
fn a_missing_scope_is_caught() {
    let missed = wrong_rounds("child_without_a_scope");
    assert_eq!(missed != 0, on_kernel_lane(), "{missed}");
    assert_eq!(wrong_rounds("child_with_a_scope"), 0);
}

/// A regular and a counter-based event with these scopes.
fn scoped(gpu: &Gpu, signal: ze_event_scope_flags_t, wait: ze_event_scope_flags_t) -> [Event; 2] {
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let desc = ze_event_desc_t { signal, wait, ..Default::default() };
    let mut regular = NONE;
    check!(zeEventCreate(pool.0, &raw const desc, &raw mut regular));
    // The pool must exist as long as its event.
    std::mem::forget(pool);
    let desc = ze_event_counter_based_desc_t { signal, wait, ..Default::default() };
    let (context, device, mut based) = (gpu.context, gpu.device, NONE);
    check!(zeEventCounterBasedCreate(context, device, &raw const desc, &raw mut based));
    [Event(regular), Event(based)]
}

fn write_and_look(
    signal: ze_event_scope_flags_t,
    wait: ze_event_scope_flags_t,
) -> impl Fn(u32) -> bool {
    let gpu = Gpu::new();
    let (memory, list) = (gpu.host::<u32>(1), gpu.immediate(0, true));
    let events = scoped(&gpu, signal, wait);
    move |round| {
        let event = &events[round as usize % 2];
        list.set((&memory, 0), round, Some(event), &[]);
        event.synchronize();
        let right = memory.get(0) == round;
        list.synchronize();
        assert_eq!(memory.get(0), round, "a wait for the list shows all");
        if round.is_multiple_of(2) {
            check!(zeEventHostReset(events[0].0));
        }
        // Captured, and dropped, behind the memory.
        let _context = &gpu;
        right
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_a_scope() {
    let none = ze_event_scope_flags_t::empty();
    let device = ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_DEVICE;
    let ways = [write_and_look(none, none), write_and_look(device, device)];
    rounds(|round| ways.iter().all(|way| way(round)));
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_scope() {
    let none = ze_event_scope_flags_t::empty();
    let host = ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST;
    let ways = [write_and_look(host, none), write_and_look(none, host)];
    rounds(|round| ways.iter().all(|way| way(round)));
}

/// A wait for all of a queue, a list, a fence or the device makes all writes visible: "A fence guarantees both
/// execution completion and memory coherency, across the device and host, prior to being signaled." The same holds for
/// a wait for an event behind a barrier, whose caches are "flushed and invalidated sufficient for device and host
/// access", or behind another event with the scope, and for a function of the host that a list calls. The device
/// reads what the host wrote before it submitted the work, or signalled an event.
#[test]
fn what_is_made_visible_is_seen() {
    assert_eq!(wrong_rounds("child_that_makes_visible"), 0);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_makes_visible() {
    let gpu = Gpu::new();
    let (to, from, aside) = (gpu.host::<u32>(1), gpu.host::<u32>(1), gpu.host::<u32>(1));
    let none = ze_event_scope_flags_t::empty();
    let [_, plain] = scoped(&gpu, none, none);
    let (list, other) = (gpu.immediate(0, true), gpu.immediate(1, true));
    let (queue, recorded) = (gpu.queue(0), gpu.regular(0, true));
    let fence = queue.fence(ze_fence_flags_t::empty());
    recorded.copy((&to, 0), (&from, 0), 1, None, &[]);
    recorded.close();
    let with_barrier = gpu.regular(0, true);
    with_barrier.copy((&to, 0), (&from, 0), 1, None, &[]);
    with_barrier.barrier(None, &[]);
    with_barrier.close();
    let scoped = gpu.cb_event();
    let copy = |event: Option<&Event>| list.copy((&to, 0), (&from, 0), 1, event, &[]);
    rounds(|round| {
        let ways: [&dyn Fn(u32); 9] = [
            &|_| {
                copy(None);
                list.synchronize();
            },
            &|_| {
                queue.execute(&[&recorded], None);
                queue.synchronize();
            },
            &|_| {
                queue.execute(&[&recorded], Some(&fence));
                check!(zeFenceHostSynchronize(fence.0, PATIENCE));
                check!(zeFenceReset(fence.0));
            },
            &|_| {
                copy(None);
                check!(zeDeviceSynchronize(gpu.device));
            },
            &|_| {
                copy(None);
                list.barrier(Some(&plain), &[]);
                plain.synchronize();
            },
            &|_| {
                list.execute(&[&with_barrier], Some(&plain), &[]);
                plain.synchronize();
            },
            &|_| {
                copy(Some(&scoped));
                other.set((&aside, 0), round, Some(&plain), &[&scoped]);
                plain.synchronize();
            },
            &|value| {
                let gate = Gate::new(&gpu);
                list.wait(&[&gate.event]);
                copy(None);
                from.set(0, value);
                gate.open();
                list.synchronize();
            },
            &|value| {
                let mut seen = Seen { to: &to, value, right: false };
                copy(None);
                let (call, data) = (Some(look as _), (&raw mut seen).cast());
                let (none, waits) = (ptr::null_mut(), ptr::null_mut());
                check!(zeCommandListAppendHostFunction(list.0, call, data, none, NONE, 0, waits));
                list.synchronize();
                assert!(seen.right);
            },
        ];
        // Each round uses other values, since those that the previous one has made visible would pass.
        let values = round * 16..;
        ways.iter().zip(values).all(|(way, value)| {
            from.set(0, value);
            way(value);
            to.get(0) == value
        })
    });
}

/// The data of a host function.
struct Seen<'a> {
    to: &'a Usm<u32>,
    value: u32,
    right: bool,
}

unsafe extern "C" fn look(seen: *mut c_void) {
    // SAFETY: the list was given a `Seen`, which lives until the list is waited for.
    let seen = unsafe { &mut *seen.cast::<Seen>() };
    seen.right = seen.to.get(0) == seen.value;
}

/// Atomic operations of system scope reach the host while the kernel runs, and those of the host the
/// kernel.
#[test]
fn a_kernel_and_the_host_may_talk_at_system_scope() {
    assert_eq!(wrong_rounds("child_that_talks_to_a_kernel"), 0);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_talks_to_a_kernel() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let module = gpu.module(&spirv("spin"), "").expect("the module builds");
    let kernel = gpu.kernel(module, "spin");
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    let (flag, outcome) = (memory.address(), memory.address() + 4);
    for (index, value) in [(0, flag), (1, u64::MAX), (2, outcome)] {
        check!(zeKernelSetArgumentValue(kernel, index, 8, (&raw const value).cast()));
    }
    let list = gpu.immediate(0, true);
    let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    rounds(|round| {
        memory.set(0, 0);
        let none = ptr::null_mut();
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const groups, NONE, 0, none));
        memory.set(0, round);
        list.synchronize();
        memory.get(1) == round
    });
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// "device memory not readable by the host": reading or writing it ends the program as an access to no memory
/// does; copies and kernels use it as ever. On the embedded lane host and device are one process.
#[test]
fn device_memory_is_not_the_hosts() {
    assert_eq!(wrong_rounds("child_that_copies_device_memory"), 0);
    for test in ["child_that_reads_device_memory", "child_that_writes_device_memory"] {
        let ended = child(&[], test, &[("TALLY_CHAOS", "1")]).status;
        let signal = if on_kernel_lane() { Some(libc::SIGSEGV) } else { None };
        let by_timeout = ended.code().map(|code| code - 128).filter(|&it| it > 0);
        assert_eq!(ended.signal().or(by_timeout), signal, "{test}: {ended}");
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_reads_device_memory() {
    let gpu = Gpu::new();
    gpu.device_memory::<u32>(64).get(7);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_writes_device_memory() {
    let gpu = Gpu::new();
    gpu.device_memory::<u32>(64).set(7, 1);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_copies_device_memory() {
    let gpu = Gpu::new();
    let (host, device, list) = (gpu.host::<u32>(2), gpu.device_memory(64), gpu.immediate(0, true));
    rounds(|round| {
        host.set(0, round);
        list.copy((&device, 7), (&host, 0), 1, None, &[]);
        list.copy((&host, 1), (&device, 7), 1, None, &[]);
        list.synchronize();
        host.get(1) == round
    });
}

/// New memory is poisoned: a program that expects zeroed memory is caught.
#[test]
fn uninitialised_memory_is_caught() {
    assert_ne!(wrong_rounds("child_that_takes_memory_for_zeroed"), 0);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_takes_memory_for_zeroed() {
    let gpu = Gpu::new();
    let (host, list) = (gpu.host::<u32>(64), gpu.immediate(0, true));
    rounds(|_| {
        let device = gpu.device_memory(64);
        list.copy((&host, 0), (&device, 0), 64, None, &[]);
        list.synchronize();
        host.to_vec() == [0; 64]
    });
}

/// Memory behind an allocation's last page cannot be read; normally it can up to the end of the next 64
/// KiB.
#[test]
fn a_read_behind_an_allocation_is_caught() {
    let said = in_child("child_that_reads_behind_an_allocation", &[("TALLY_CHAOS", "1")]);
    assert!(said.contains("lost: true"), "{said}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_reads_behind_an_allocation() {
    let gpu = Gpu::new();
    let module = gpu.module(
        &spirv_from(
            "kernel void copy(global const uint *from, global uint *to) { to[0] = from[1024]; }",
        ),
        "",
    );
    let kernel = gpu.kernel(module.expect("it builds"), "copy");
    let (from, to) = (gpu.host::<u32>(1024), gpu.host::<u32>(1));
    let list = gpu.immediate(0, true);
    for (at, memory) in (0..).zip([&from, &to]) {
        let address = memory.address();
        check!(zeKernelSetArgumentValue(kernel, at, 8, (&raw const address).cast()));
    }
    let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    let none = ptr::null_mut();
    check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const groups, NONE, 0, none));
    let answer = tally_tests::call!(zeCommandListHostSynchronize(list.0, PATIENCE));
    println!("\nlost: {}", answer == ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST);
}

/// "The tests run under many seeds": random programs agree with the model on the adversarial device too.
#[test]
fn random_programs_agree_with_the_model_under_chaos() {
    for seed in SEEDS {
        in_child("child_with_random_programs", &[("TALLY_CHAOS", &seed.to_string())]);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_random_programs() {
    let seed: u64 = std::env::var("TALLY_CHAOS").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    let programs: u64 = match std::env::var("TALLY_PROGRAMS") {
        Ok(count) => count.parse().expect("TALLY_PROGRAMS is a number"),
        Err(_) => 60,
    };
    for number in 0..programs {
        let program = from_seed(Shape::default(), seed * 1_000_000 + number);
        let model = Model::of(&program).expect("generated programs are valid");
        let expected = model.expected().expect("generated programs end");
        if let Err(mismatch) = run(&program, &expected, &Driver::new()) {
            panic!("program {number} under TALLY_CHAOS={seed}: {mismatch}\n{program}");
        }
    }
}

/// The other process of programs that share events.
#[test]
#[ignore = "runs in a child process"]
fn partner() {
    partner::serve();
}

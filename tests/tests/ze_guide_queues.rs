// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what the core programming guide says of command queues and command lists, sentence by
//! sentence, where no other test shows it; through the stock loader.

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tally_tests::gate::Gate;
use tally_tests::lists::{List, NONE, PATIENCE, Queue};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check, refused};
use tally_ze::*;

use ze_command_list_flags_t as list_flag;
use ze_command_queue_flags_t as queue_flag;

/// The time within which commands run without a wait.
const SOON: Duration = Duration::from_secs(60);

fn groups(gpu: &Gpu) -> Vec<ze_command_queue_group_properties_t> {
    let mut count = 0;
    check!(zeDeviceGetCommandQueueGroupProperties(gpu.device, &raw mut count, ptr::null_mut()));
    let mut groups = vec![ze_command_queue_group_properties_t::default(); count as usize];
    check!(zeDeviceGetCommandQueueGroupProperties(gpu.device, &raw mut count, groups.as_mut_ptr()));
    groups
}

fn queue_of(gpu: &Gpu, desc: &ze_command_queue_desc_t) -> Queue {
    let mut queue = ze_command_queue_handle_t::NULL;
    check!(zeCommandQueueCreate(gpu.context, gpu.device, desc, &raw mut queue));
    Queue(queue)
}

fn list_with(gpu: &Gpu, flags: list_flag) -> List {
    let desc = ze_command_list_desc_t { flags, ..Default::default() };
    let mut list = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut list));
    List(list)
}

/// "A command queue group represents a physical input stream, which represents one or more physical
/// device engines." "Find a command queue type that support compute": the guide's search ends well. "At
/// creation time, the command queue is explicitly bound to a command queue group via its ordinal." "The
/// physical engine within a command queue group on which a command queue executes is virtualized via its
/// index, limited by the number of physical engines of the type of the command queue group, i.e.
/// ze_command_queue_group_properties_t.numQueues."
#[test]
fn every_engine_of_every_group_has_an_index() {
    let gpu = Gpu::new();
    let groups = groups(&gpu);
    let compute =
        ze_command_queue_group_property_flags_t::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
    assert!(groups.iter().any(|group| group.flags.contains(compute)), "no compute queues found");
    let memory = gpu.host::<u32>(1);
    for (ordinal, group) in (0..).zip(&groups) {
        assert_ne!(group.numQueues, 0);
        for index in 0..group.numQueues {
            let desc = ze_command_queue_desc_t { ordinal, index, ..Default::default() };
            let queue = queue_of(&gpu, &desc);
            let (mut bound, mut at) = (99, 99);
            check!(zeCommandQueueGetOrdinal(queue.0, &raw mut bound));
            check!(zeCommandQueueGetIndex(queue.0, &raw mut at));
            assert_eq!((bound, at), (ordinal, index));
            let list = gpu.regular(ordinal, true);
            list.set((&memory, 0), index + 1, None, &[]);
            list.close();
            queue.execute(&[&list], None);
            queue.synchronize();
            assert_eq!(memory.get(0), index + 1);
        }
        let index = group.numQueues;
        let desc = ze_command_queue_desc_t { ordinal, index, ..Default::default() };
        let mut queue = ze_command_queue_handle_t::NULL;
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandQueueCreate(gpu.context, gpu.device, &raw const desc, &raw mut queue)
        );
    }
}

/// "Multiple command queues may be created that use the same command queue group. For example, an
/// application may create a command queue per Host thread with different scheduling priorities."
#[test]
fn each_thread_has_a_queue_of_one_group() {
    use ze_command_queue_priority_t as level;
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(6);
    let priorities = [
        level::ZE_COMMAND_QUEUE_PRIORITY_NORMAL,
        level::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW,
        level::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH,
    ];
    thread::scope(|scope| {
        for (number, &priority) in priorities.iter().cycle().take(6).enumerate() {
            let (gpu, memory) = (&gpu, &memory);
            scope.spawn(move || {
                let desc = ze_command_queue_desc_t { priority, ..Default::default() };
                let (queue, list) = (queue_of(gpu, &desc), gpu.regular(0, true));
                list.set((memory, number), number as u32 + 1, None, &[]);
                list.close();
                queue.execute(&[&list], None);
                queue.synchronize();
            });
        }
    });
    assert_eq!(memory.to_vec(), [1, 2, 3, 4, 5, 6]);
}

/// "The maximum number of command queues an application can create is limited by device-specific
/// resources; e.g., the maximum number of logical hardware contexts supported by the device. This can be
/// queried from ze_device_properties_t.maxHardwareContexts.": a thousand queues, or half as many as
/// that, exist at a time and work.
#[test]
fn a_thousand_queues_exist_at_a_time() {
    let gpu = Gpu::new();
    let mut properties = ze_device_properties_t::default();
    check!(zeDeviceGetProperties(gpu.device, &raw mut properties));
    // Tests that run beside this one have queues too.
    let count = (properties.maxHardwareContexts / 2).min(1000);
    assert_ne!(count, 0);
    let (memory, list) = (gpu.host::<u32>(1), gpu.regular(0, true));
    list.set((&memory, 0), 1, None, &[]);
    list.close();
    let queues: Vec<Queue> = (0..count).map(|_| gpu.queue(0)).collect();
    for queue in &queues {
        memory.set(0, 0);
        queue.execute(&[&list], None);
        queue.synchronize();
        assert_eq!(memory.get(0), 1);
    }
}

/// "Command lists submitted to a command queue are immediately submitted to the device for execution."
/// "Commands appended into an immediate command list are immediately executed on the device.": also if
/// no call follows.
#[test]
fn what_is_submitted_runs_though_nobody_waits() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, queue, immediate) = (gpu.regular(0, true), gpu.queue(0), gpu.immediate(0, true));
    list.set((&memory, 0), 1, None, &[]);
    list.close();
    queue.execute(&[&list], None);
    immediate.set((&memory, 1), 1, None, &[]);
    let start = Instant::now();
    while memory.to_vec() != [1, 1] {
        assert!(start.elapsed() < SOON, "{:?}", memory.to_vec());
        thread::sleep(Duration::from_millis(1));
    }
}

/// "Command queue submission is free-treaded, allowing multiple Host threads to share the same command
/// queue." "If multiple Host threads enter the same command queue simultaneously, then execution order is
/// undefined.": but all is executed, whatever the order.
#[test]
fn many_threads_submit_to_one_queue() {
    const ROUNDS: u32 = 50;
    let gpu = Gpu::new();
    let (memory, queue) = (gpu.host::<u32>(16), gpu.queue(0));
    thread::scope(|scope| {
        for thread in 0..8 {
            let (gpu, memory, queue) = (&gpu, &memory, &queue);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let lists = [0, 1].map(|half| {
                        let list = gpu.regular(0, true);
                        list.set((memory, 2 * thread + half), round, None, &[]);
                        list.close();
                        list
                    });
                    queue.execute(&[&lists[0], &lists[1]], None);
                }
            });
        }
    });
    queue.synchronize();
    assert_eq!(memory.to_vec(), [ROUNDS; 16]);
}

/// "If the application prefers to opt-out of these optimizations, such as when the application plans to
/// perform this distribution itself, then it should use ZE_COMMAND_LIST_FLAG_EXPLICIT_ONLY.", or "[...] then
/// it should use ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY." "Only command lists created using
/// ZE_COMMAND_LIST_FLAG_EXPLICIT_ONLY can be executed on a command queue created using
/// ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY." The latter binds applications; SYCL's first adapter does not keep
/// to it, so lists without the flag are executed as well.
#[test]
fn explicit_queues_take_explicit_lists_and_others() {
    let gpu = Gpu::new();
    let flags = queue_flag::ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY;
    let explicit = queue_of(&gpu, &ze_command_queue_desc_t { flags, ..Default::default() });
    let other = list_with(&gpu, list_flag::empty());
    let list = list_with(&gpu, list_flag::ZE_COMMAND_LIST_FLAG_EXPLICIT_ONLY);
    let memory = gpu.host::<u32>(2);
    for (i, list) in [&other, &list].into_iter().enumerate() {
        list.set((&memory, i), 7, None, &[]);
        list.close();
    }
    explicit.execute(&[&other, &list], None);
    explicit.synchronize();
    assert_eq!(memory.to_vec(), [7; 2]);
    // An explicit list may go anywhere.
    let queue = gpu.queue(0);
    queue.execute(&[&list], None);
    queue.synchronize();
}

/// "Command list construction can occur independently of command queue submission.": a list is recorded
/// before there is a queue, and while another list runs. "A command list represents a sequence of
/// commands for execution on a command queue." "A command list is created for a device to allow
/// device-specific appending of commands."
#[test]
fn lists_are_recorded_without_a_queue() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let gate = Gate::new(&gpu);
    let (first, second) = (gpu.regular(0, true), gpu.regular(0, true));
    let mut device = ze_device_handle_t::NULL;
    check!(zeCommandListGetDeviceHandle(first.0, &raw mut device));
    assert_eq!(device, gpu.device);
    first.set((&memory, 0), 1, None, &[&gate.event]);
    first.close();
    let queue = gpu.queue(0);
    queue.execute(&[&first], None);
    second.set((&memory, 1), 2, None, &[]);
    second.copy((&memory, 0), (&memory, 1), 1, None, &[]);
    second.close();
    assert_eq!(memory.to_vec(), [0, 0], "recording runs nothing");
    gate.open();
    queue.execute(&[&second], None);
    queue.synchronize();
    assert_eq!(memory.to_vec(), [2, 2]);
}

/// "There is no implicit binding of command lists to Host threads. Therefore, an application may share a
/// command list handle across multiple Host threads.": they append in turns, and yet another one executes.
#[test]
fn threads_share_a_list() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(8);
    for immediate in [false, true] {
        memory.fill_with(|_| 0);
        let list = if immediate { gpu.immediate(0, true) } else { gpu.regular(0, true) };
        let turn = Mutex::new(&list);
        thread::scope(|scope| {
            for number in 0..8 {
                let (turn, memory) = (&turn, &memory);
                scope.spawn(move || {
                    for round in 1..=20 {
                        let list = turn.lock().expect("nobody panics");
                        list.set((memory, number), round, None, &[]);
                    }
                });
            }
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                if immediate {
                    return list.synchronize();
                }
                list.close();
                let queue = gpu.queue(0);
                queue.execute(&[&list], None);
                queue.synchronize();
            });
        });
        assert_eq!(memory.to_vec(), [20; 8]);
    }
}

/// "By default, commands are started in the same order in which they are appended.": in a list without
/// order of completion, too, none starts before an earlier one that waits.
#[test]
fn no_command_starts_before_an_earlier_one() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let gate = Gate::new(&gpu);
    let list = gpu.immediate(0, false);
    list.set((&memory, 0), 1, None, &[&gate.event]);
    list.set((&memory, 1), 1, None, &[]);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(memory.to_vec(), [0, 0]);
    gate.open();
    list.synchronize();
    assert_eq!(memory.to_vec(), [1, 1]);
}

/// "However, an application may allow the driver to optimize the ordering by using
/// ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING. Reordering is guaranteed to only occur between barriers and
/// synchronization primitives." "For usage-models where maximum throughput is desired, applications should
/// use ZE_COMMAND_LIST_FLAG_MAXIMIZE_THROUGHPUT.": what barriers order stays in order.
#[test]
fn relaxed_lists_keep_to_their_barriers() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(65);
    for flags in [
        list_flag::ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING,
        list_flag::ZE_COMMAND_LIST_FLAG_MAXIMIZE_THROUGHPUT,
        list_flag::ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING
            | list_flag::ZE_COMMAND_LIST_FLAG_MAXIMIZE_THROUGHPUT,
    ] {
        let (list, queue) = (list_with(&gpu, flags), gpu.queue(0));
        let mut told = list_flag::empty();
        check!(zeCommandListGetFlags(list.0, &raw mut told));
        assert_eq!(told, flags);
        for i in 0..64 {
            list.copy((&memory, i + 1), (&memory, i), 1, None, &[]);
            list.barrier(None, &[]);
        }
        list.close();
        memory.fill_with(|i| if i == 0 { 5 } else { 0 });
        queue.execute(&[&list], None);
        queue.synchronize();
        assert_eq!(memory.to_vec(), [5; 65]);
    }
}

/// One list whose executions would lose additions if they overlapped.
fn adder(gpu: &Gpu, memory: &Usm<u32>) -> (List, ze_module_handle_t, ze_kernel_handle_t) {
    let source = "
        kernel void add(global volatile uint *to, uint value)
        {
            uint old = *to;
            for (uint i = 0; i < 2000; i++)
                to[1] = i;
            *to = old + value;
        }";
    let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
    let kernel = gpu.kernel(module, "add");
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    let list = gpu.regular(0, true);
    launch(&list, kernel, memory, 1);
    list.close();
    (list, module, kernel)
}

fn launch(list: &List, kernel: ze_kernel_handle_t, memory: &Usm<u32>, value: u32) {
    let (to, none) = (memory.ptr(), ptr::null_mut());
    let argument = |it: *const c_void, size, index| {
        check!(zeKernelSetArgumentValue(kernel, index, size, it));
    };
    argument((&raw const to).cast(), 8, 0);
    argument((&raw const value).cast(), 4, 1);
    let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const groups, NONE, 0, none));
}

fn forget(module: ze_module_handle_t, kernel: ze_kernel_handle_t) {
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// "There is no implicit association between a command list and a command queue. Therefore, a command
/// list may be submitted to any or multiple command queues." "By definition, a command list cannot be
/// executed concurrently on multiple command queues.": Tally lets its executions follow each other. "A
/// command list may be submitted multiple times."
#[test]
fn a_list_goes_to_many_queues_one_after_the_other() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, module, kernel) = adder(&gpu, &memory);
    let queues = [0; 3].map(|ordinal| gpu.queue(ordinal));
    for _ in 0..200 {
        for queue in &queues {
            queue.execute(&[&list], None);
        }
    }
    queues.iter().for_each(Queue::synchronize);
    assert_eq!(memory.get(0), 600);
    forget(module, kernel);
}

/// "It is up to the application to ensure that the command list can be executed multiple times. For
/// example, events must be explicitly reset prior to re-execution.": without a reset the event is still
/// signalled, and the second execution does not wait.
#[test]
fn events_are_reset_before_a_list_is_executed_again() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let gate = Gate::new(&gpu);
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    list.set((&memory, 0), 1, None, &[&gate.event]);
    list.close();
    gate.open();
    for _ in 0..2 {
        memory.set(0, 0);
        queue.execute(&[&list], None);
        queue.synchronize();
        assert_eq!(memory.get(0), 1);
    }
    gate.event.reset();
    memory.set(0, 0);
    queue.execute(&[&list], None);
    let result = call!(zeCommandQueueSynchronize(queue.0, 20_000_000));
    assert_eq!((result, memory.get(0)), (ze_result_t::ZE_RESULT_NOT_READY, 0));
    gate.open();
    queue.synchronize();
    assert_eq!(memory.get(0), 1);
}

/// "Command lists do not inherit state from other command lists executed on the same command queue. i.e.
/// each command list begins execution in its own default state.": arguments that are set for one list
/// are not the other's.
#[test]
fn lists_on_one_queue_share_no_state() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (one, module, kernel) = adder(&gpu, &memory);
    let ten = gpu.regular(0, true);
    launch(&ten, kernel, &memory, 10);
    ten.close();
    let queue = gpu.queue(0);
    for (list, sum) in [(&ten, 10), (&one, 11), (&ten, 21), (&one, 22)] {
        queue.execute(&[list], None);
        queue.synchronize();
        assert_eq!(memory.get(0), sum);
    }
    forget(module, kernel);
}

/// "An immediate command list is not required to be closed or reset. However, usage will be honored, and
/// expected behaviors will be followed.": commands go on after both, and what ran before is not undone.
#[test]
fn an_immediate_list_may_be_closed_and_reset() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    for in_order in [true, false] {
        let list = gpu.immediate(0, in_order);
        for round in 1..4 {
            list.set((&memory, 0), round, None, &[]);
            list.close();
            check!(zeCommandListHostSynchronize(list.0, PATIENCE));
            assert_eq!(memory.get(0), round);
            list.reset();
        }
    }
}

/// "All command lists executed on a command queue are guaranteed to only execute on an engine from the
/// command queue group to which it is assigned; e.g., copy commands in a compute command list / queue will
/// execute via the compute engine, not the copy engine.": the timeline says which engine did what.
#[test]
fn copies_of_a_compute_list_run_on_a_compute_engine() {
    let file = std::env::temp_dir().join(format!("tally-guide-{}.trace", std::process::id()));
    let name = file.to_str().expect("plain letters").to_owned();
    for (ordinal, runs, rests) in [("0", "compute", "copy"), ("1", "copy", "compute")] {
        let variables = [("TALLY_TRACE", name.as_str()), ("ORDINAL", ordinal)];
        ze::in_child("child_that_copies", &variables);
        let trace = std::fs::read_to_string(&file).expect("the child has written it");
        let works = |class: &str| trace.contains(&format!("{class} engine"));
        assert!(works(runs) && !works(rests), "group {ordinal}: {trace}");
    }
    std::fs::remove_file(file).expect("it is ours");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_copies() {
    let ordinal = std::env::var("ORDINAL").expect("the parent sets it").parse().expect("0 or 1");
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, queue, immediate) =
        (gpu.regular(ordinal, true), gpu.queue(ordinal), gpu.immediate(ordinal, true));
    list.copy((&memory, 1), (&memory, 0), 1, None, &[]);
    list.close();
    queue.execute(&[&list], None);
    queue.synchronize();
    immediate.copy((&memory, 0), (&memory, 1), 1, None, &[]);
    immediate.synchronize();
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The samples of the deadlock avoidance guide, through the stock loader.
//!
//! The guide describes how an engine that waits affects its other users. Here a wait occupies no
//! engine, so the deadlocks of the guide do not occur; a cycle that exists on any device remains, and
//! the process can end.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tally_tests::lists::{self, Event, List, Queue};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check};
use tally_ze::*;

const LEN: usize = 64;
/// The longest time for an operation that must not hang.
const BOUND: Duration = Duration::from_secs(120);
const NO_FLAGS: ze_event_pool_flags_t = ze_event_pool_flags_t::empty();

const KERNEL: &str = "
    kernel void step(global uint *data, uint factor, uint add)
    {
        data[get_global_id(0)] = data[get_global_id(0)] * factor + add;
    }";

struct Step {
    gpu: Gpu,
    module: ze_module_handle_t,
    kernel: ze_kernel_handle_t,
}

impl Step {
    fn new() -> Self {
        let gpu = Gpu::new();
        let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
        let kernel = gpu.kernel(module, "step");
        check!(zeKernelSetGroupSize(kernel, 8, 1, 1));
        Self { gpu, module, kernel }
    }

    /// data = data * factor + add
    fn launch(
        &self,
        list: &List,
        data: &Usm<u32>,
        (factor, add): (u32, u32),
        signal: Option<&Event>,
        waits: &[&Event],
    ) {
        let address = data.ptr();
        check!(zeKernelSetArgumentValue(self.kernel, 0, 8, (&raw const address).cast()));
        check!(zeKernelSetArgumentValue(self.kernel, 1, 4, (&raw const factor).cast()));
        check!(zeKernelSetArgumentValue(self.kernel, 2, 4, (&raw const add).cast()));
        let groups =
            ze_group_count_t { groupCountX: LEN as u32 / 8, groupCountY: 1, groupCountZ: 1 };
        let mut waits = lists::raws(waits);
        check!(zeCommandListAppendLaunchKernel(
            list.0,
            self.kernel,
            &raw const groups,
            lists::raw(signal),
            waits.len() as u32,
            waits.as_mut_ptr()
        ));
    }

    fn data(&self, first: u32) -> Usm<u32> {
        let data = self.gpu.host(LEN);
        data.fill_with(|i| first + i as u32);
        data
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        // The test reports the failure.
        let _ = call!(zeKernelDestroy(self.kernel));
        let _ = call!(zeModuleDestroy(self.module));
    }
}

fn desc(mode: ze_command_queue_mode_t) -> ze_command_queue_desc_t {
    ze_command_queue_desc_t { ordinal: 0, index: 0, mode, ..Default::default() }
}

/// Sample 1, of which the guide says: "Level Zero allows events to be signaled from the host." "This
/// code sequence will block the engine until host signals event". "Until event is signaled, the
/// physical engine doing the execution of above code is blocked on non-signaled dependency. There may
/// be completely new immediate command list created using the same engine and it will not be able to
/// execute kernel without any dependencies." "this one will stall until event is signaled"; "too late to
/// set event from here". "Until event is signaled from the host, kernel2 will not be able to run,
/// cmdList2 is synchronous so every append operation on it waits until it is completed. This is new
/// command lists without any dependencies, but it is using the same engine that is currently occupied
/// by dependency for kernel which is not resolved. So this API sequence would stall endlessly on append
/// for kernel2 and the code will never reach to zeEventHostSignal(event)."
///
/// Here the event blocks only the list that waits for it: the second list's append returns, and the
/// host continues and signals.
#[test]
fn a_host_signalled_event_blocks_only_its_own_list() {
    let it = Step::new();
    let pool = it.gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let (first, second) = (it.data(1), it.data(1));
    let list =
        it.gpu.immediate_of(&desc(ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS));
    it.launch(&list, &first, (2, 0), None, &[&event]);

    let list2 =
        it.gpu.immediate_of(&desc(ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS));
    it.launch(&list2, &second, (2, 0), None, &[]);
    assert_eq!(second.get(3), 8, "the synchronous append has returned with its work done");
    assert_eq!(first.get(3), 4, "the other list still waits");

    event.signal();
    list.synchronize();
    assert_eq!(first.get(3), 8);
}

/// Sample 1 with queues: "The same applies to command queues scenarios." Here, too, only the queue that
/// waits is blocked.
/// "An event intended to be signaled by the host, another command queue or another device after command
/// list submission to a command queue may prevent subsequent forward progress within the command queue
/// itself." "This can create bubbles in the pipeline or deadlock situations if not correctly
/// scheduled."
#[test]
fn a_host_signalled_event_blocks_only_its_own_queue() {
    let it = Step::new();
    let pool = it.gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let (first, second) = (it.data(1), it.data(1));
    let (waiting, free) = (it.gpu.regular(0, true), it.gpu.regular(0, true));
    it.launch(&waiting, &first, (2, 0), None, &[&event]);
    it.launch(&free, &second, (2, 0), None, &[]);
    waiting.close();
    free.close();

    let queue = it.gpu.queue(0);
    queue.execute(&[&waiting], None);
    let mut queue2 = ze_command_queue_handle_t::NULL;
    let desc = desc(ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    check!(zeCommandQueueCreate(it.gpu.context, it.gpu.device, &raw const desc, &raw mut queue2));
    let queue2 = Queue(queue2);
    queue2.execute(&[&free], None);
    assert_eq!((second.get(3), first.get(3)), (8, 4));

    event.signal();
    queue.synchronize();
    assert_eq!(first.get(3), 8);
}

/// One user of sample 2: "1. copy data from host to device using copy engine. 2. do computation on
/// the compute engine. 3. copy data from device to host. 4. do computation on the compute engine."
struct Workload {
    input: Usm<u32>,
    device: Usm<u32>,
    output: Usm<u32>,
    events: [Event; 4],
}

impl Workload {
    fn new(gpu: &Gpu, first: u32, events: [Event; 4]) -> Self {
        let (input, device, output) = (gpu.host(LEN), gpu.device_memory(LEN), gpu.host(LEN));
        input.fill_with(|i| first + i as u32);
        device.fill_with(|_| 0);
        output.fill_with(|_| 0);
        Self { input, device, output, events }
    }

    /// Appends the four commands, each to its list. They are appended in order, since a counter-based
    /// event that was never signalled counts as complete for a wait.
    fn record(&self, it: &Step, [copy1, compute1, copy2, compute2]: [&List; 4]) {
        let [e1, e2, e3, e4] = &self.events;
        copy1.copy((&self.device, 0), (&self.input, 0), LEN, Some(e1), &[]);
        it.launch(compute1, &self.device, (3, 1), Some(e2), &[e1]);
        copy2.copy((&self.output, 0), (&self.device, 0), LEN, Some(e3), &[e2]);
        it.launch(compute2, &self.output, (1, 5), Some(e4), &[e3]);
    }

    fn finish(&self) {
        self.events[3].synchronize();
        let expected: Vec<u32> = self.input.to_vec().iter().map(|x| x * 3 + 6).collect();
        assert_eq!(self.output.to_vec(), expected);
    }
}

/// Runs a test with both users of sample 2 with regular events, and with counter-based ones.
fn with_workloads(test: impl Fn(&Step, &Workload, &Workload)) {
    let it = Step::new();
    let pool = it.gpu.pool(8, NO_FLAGS);
    let regular = |user: u32| std::array::from_fn(|i| pool.event(4 * user + i as u32));
    let (a, b) = (Workload::new(&it.gpu, 10, regular(0)), Workload::new(&it.gpu, 500, regular(1)));
    test(&it, &a, &b);
    let counter_based = || std::array::from_fn(|_| it.gpu.cb_event());
    let (a, b) =
        (Workload::new(&it.gpu, 20, counter_based()), Workload::new(&it.gpu, 900, counter_based()));
    test(&it, &a, &b);
}

/// Sample 2. "We have 2 users, they are both doing the same sequence within order lists/queues": "1.
/// copy data from host to device using copy engine. 2. do computation on the compute engine. 3. copy data
/// from device to host. 4. do computation on the compute engine." "All above operations must be executed in
/// specific order." "This may be implemented by creating 2 command lists containing following recorded
/// commands"; "Which are further submitted to 2 queues (one doing compute operations and one doing copy
/// operations)". "Situation is not problematic if there is nothing else running on those engines, but as
/// soon as there are resource contention problems may arise. Let's consider that within a process sharing
/// single Level Zero driver instance, 2 non-related upper level libraries do above situation. It may happen
/// that between one library submission there is another library submission, so those submissions that
/// targets the same engines starts to interleave between each other." "This ends up in 4 command queue
/// submissions, 2 to compute and 2 to copy queues. It happens that those submission interleave with each
/// other"; "In the second step it waits on event2b, this is synchronization points to until this happens
/// engine is blocked. event2b will be signaled by step #3 of CCS command list, which depends on signaling of
/// following events"; "But event1a is signaled in step #3 of BCS submission, so after operation #2 is done.
/// This creates a deadlock because operation #2 on BCS engine block operation #3 which would further unblock
/// it." "We can see that there is a circular dependency between BCS and CCS for second kernel in each command
/// list." "Initially we were submitting command lists in order that was not respecting dependencies. CCS
/// submissions were done earlier then BCS submissions, even though they were dependent on those."
///
/// Here a wait does not block an engine: sample 2 finishes in that very order, with the right data.
#[test]
fn interleaved_workloads_with_circular_engine_dependencies_finish() {
    with_workloads(|it, a, b| {
        let list = |ordinal| it.gpu.regular(ordinal, true);
        let (ccs_a, ccs_b, bcs_a, bcs_b) = (list(0), list(0), list(1), list(1));
        a.record(it, [&bcs_a, &ccs_a, &bcs_a, &ccs_a]);
        b.record(it, [&bcs_b, &ccs_b, &bcs_b, &ccs_b]);
        [&ccs_a, &ccs_b, &bcs_a, &bcs_b].into_iter().for_each(List::close);
        // The same index of a group means the same engine.
        let queue = |ordinal| it.gpu.queue(ordinal);
        let (compute_a, compute_b, copy_a, copy_b) = (queue(0), queue(0), queue(1), queue(1));
        compute_a.execute(&[&ccs_a], None);
        compute_b.execute(&[&ccs_b], None);
        copy_b.execute(&[&bcs_b], None);
        copy_a.execute(&[&bcs_a], None);
        a.finish();
        b.finish();
        [&compute_a, &compute_b, &copy_a, &copy_b].into_iter().for_each(Queue::synchronize);
    });
}

/// Sample 2 with one half of the guide's rules: "So, first thing that we do is to split those command list
/// into smaller ones"; "BCS command list doesn't have circular dependencies, so they don't need to be
/// modified." "submit to BCS first as CCS is dependent on BCS". "But here we have another problem, we are
/// submitting to BCS command list that is dependent on CCS command list. So, we may run into the same problem
/// as before, but this time it is not a circular dependency, but a dependency on not yet submitted command
/// list." Here it finishes too.
#[test]
fn the_half_split_workloads_finish() {
    with_workloads(|it, a, b| {
        let list = |ordinal| it.gpu.regular(ordinal, true);
        let (ccs_a, ccs_2a, ccs_b, ccs_2b) = (list(0), list(0), list(0), list(0));
        let (bcs_a, bcs_b) = (list(1), list(1));
        a.record(it, [&bcs_a, &ccs_a, &bcs_a, &ccs_2a]);
        b.record(it, [&bcs_b, &ccs_b, &bcs_b, &ccs_2b]);
        let order =
            [(1, &bcs_b), (1, &bcs_a), (0, &ccs_a), (0, &ccs_b), (0, &ccs_2a), (0, &ccs_2b)];
        let mut queues = Vec::new();
        for (ordinal, list) in order {
            list.close();
            let queue = it.gpu.queue(ordinal);
            queue.execute(&[list], None);
            queues.push(queue);
        }
        a.finish();
        b.finish();
        queues.iter().for_each(Queue::synchronize);
    });
}

/// Sample 2 after all its rules: "Do not submit circular dependencies in command list, break command lists
/// into smaller ones to break the circle." "Submit command lists in proper order, avoid submitting command
/// list that doesn't have all dependencies submitted." "In order to fix that, we need to split
/// BCS command list into 2 command lists, one that is dependent on CCS and one that is not". "Now no matter
/// how those command lists submissions are interleaved, there is no circular dependencies between them, so
/// there is no deadlock."
#[test]
fn the_split_workloads_finish_in_the_final_order_of_the_guide() {
    with_workloads(|it, a, b| {
        let list = |ordinal| it.gpu.regular(ordinal, true);
        let (ccs_a, ccs_2a, ccs_b, ccs_2b) = (list(0), list(0), list(0), list(0));
        let (bcs_a, bcs_2a, bcs_b, bcs_2b) = (list(1), list(1), list(1), list(1));
        a.record(it, [&bcs_a, &ccs_a, &bcs_2a, &ccs_2a]);
        b.record(it, [&bcs_b, &ccs_b, &bcs_2b, &ccs_2b]);
        [&ccs_a, &ccs_2a, &ccs_b, &ccs_2b, &bcs_a, &bcs_2a, &bcs_b, &bcs_2b]
            .into_iter()
            .for_each(List::close);
        let order = [
            (1, [&bcs_b, &bcs_a]),
            (0, [&ccs_a, &ccs_b]),
            (1, [&bcs_2b, &bcs_2a]),
            (0, [&ccs_2a, &ccs_2b]),
        ];
        let mut queues = Vec::new();
        for (ordinal, lists) in order {
            for list in lists {
                let queue = it.gpu.queue(ordinal);
                queue.execute(&[list], None);
                queues.push(queue);
            }
        }
        a.finish();
        b.finish();
        queues.iter().for_each(Queue::synchronize);
    });
}

/// "In Level Zero each engine is exposed as physical instance. Application while creating command queues
/// creates direct connection to physical resources." "The command queue index provides a mechanism for an
/// application to indicate which command queues can execute concurrently (different indices)." "Due to
/// sequential nature of each launch on the same index, it is possible to block the engine until all commands
/// within launch are done.": not here.
///
/// On every index of every group two queues wait in the middle of their launches; the one behind them
/// on the same index finishes, so it depends on neither order nor index.
#[test]
fn queues_of_one_index_do_not_wait_for_each_other() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let memory = gpu.host::<u32>(256);
    let mut count = 0;
    check!(zeDeviceGetCommandQueueGroupProperties(
        gpu.device,
        &raw mut count,
        std::ptr::null_mut()
    ));
    let mut groups = vec![ze_command_queue_group_properties_t::default(); count as usize];
    check!(zeDeviceGetCommandQueueGroupProperties(gpu.device, &raw mut count, groups.as_mut_ptr()));
    let (mut waiting, mut next) = (Vec::new(), 0);
    for (ordinal, group) in groups.iter().enumerate() {
        for index in 0..group.numQueues {
            let queue = || {
                let mut queue = ze_command_queue_handle_t::NULL;
                let desc = ze_command_queue_desc_t {
                    ordinal: ordinal as u32,
                    index,
                    mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
                    ..Default::default()
                };
                let (context, device) = (gpu.context, gpu.device);
                check!(zeCommandQueueCreate(context, device, &raw const desc, &raw mut queue));
                Queue(queue)
            };
            for _ in 0..2 {
                let (queue, list) = (queue(), gpu.regular(ordinal as u32, true));
                list.set((&memory, next), 1, None, &[]);
                list.set((&memory, next), 2, None, &[&event]);
                list.close();
                queue.execute(&[&list], None);
                waiting.push((queue, list));
                next += 1;
            }
            let (queue, list) = (queue(), gpu.regular(ordinal as u32, true));
            list.set((&memory, 255), index, None, &[]);
            list.close();
            queue.execute(&[&list], None);
            queue.synchronize();
            assert_eq!(memory.get(255), index, "group {ordinal}");
        }
    }
    assert!((0..next).all(|i| memory.get(i) != 2));
    event.signal();
    waiting.iter().for_each(|(queue, _)| queue.synchronize());
    assert!((0..next).all(|i| memory.get(i) == 2));
}

/// "What it also means is that if one queue blocks given hardware engine from execution, then other users
/// of this engine will not be able to make forward progress.": a thousand waiting lists block no other list.
#[test]
fn a_thousand_parked_lists_leave_their_engine_to_another() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let memory = gpu.host::<u32>(1001);
    memory.fill_with(|_| 0);
    let parked: Vec<List> = (0..1000).map(|_| gpu.immediate(0, true)).collect();
    for (i, list) in parked.iter().enumerate() {
        list.set((&memory, i), 7, None, &[&event]);
    }
    let list = gpu.immediate(0, true);
    for round in 1..=100 {
        list.set((&memory, 1000), round, None, &[]);
        list.synchronize();
        assert_eq!(memory.get(1000), round);
    }
    assert!((0..1000).all(|i| memory.get(i) == 0));
    event.signal();
    parked.iter().for_each(List::synchronize);
    assert!((0..1000).all(|i| memory.get(i) == 7));
}

/// "There are no protections against events causing deadlocks, such as circular waits scenarios." "These
/// problems are left to the application to avoid.": two lists that wait for each other. A host wait ends in its time, and so does the process.
#[test]
fn a_circle_of_waits_can_be_left() {
    ends("child_with_a_circle");
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_circle() {
    let gpu = Gpu::new();
    let pool = gpu.pool(2, NO_FLAGS);
    let (one, two) = (pool.event(0), pool.event(1));
    let (compute, copy) = (gpu.regular(0, true), gpu.regular(1, true));
    compute.barrier(Some(&one), &[&two]);
    copy.barrier(Some(&two), &[&one]);
    compute.close();
    copy.close();
    let queues = (gpu.queue(0), gpu.queue(1));
    queues.0.execute(&[&compute], None);
    queues.1.execute(&[&copy], None);
    let fence = queues.0.fence(ze_fence_flags_t::empty());
    queues.0.execute(&[&compute], Some(&fence));
    not_ready(|timeout| call!(zeCommandQueueSynchronize(queues.0.0, timeout)));
    not_ready(|timeout| call!(zeCommandQueueSynchronize(queues.1.0, timeout)));
    not_ready(|timeout| call!(zeEventHostSynchronize(one.0, timeout)));
    not_ready(|timeout| call!(zeFenceHostSynchronize(fence.0, timeout)));
    check!(zeFenceDestroy(fence.0));
    std::mem::forget(fence);
    destroy(vec![compute, copy], vec![queues.0, queues.1], vec![one, two]);
    drop((pool, gpu));
}

/// The same for an event that is never signalled, in an immediate list whose thread does not wait.
#[test]
fn a_wait_for_an_event_that_nobody_signals_can_be_left() {
    ends("child_with_an_event_that_nobody_signals");
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_an_event_that_nobody_signals() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let (ordered, unordered) = (gpu.immediate(0, true), gpu.immediate(0, false));
    ordered.barrier(None, &[&event]);
    unordered.barrier(None, &[&event]);
    not_ready(|timeout| call!(zeCommandListHostSynchronize(ordered.0, timeout)));
    not_ready(|timeout| call!(zeCommandListHostSynchronize(unordered.0, timeout)));
    not_ready(|timeout| call!(zeEventHostSynchronize(event.0, timeout)));
    destroy(vec![ordered, unordered], vec![], vec![event]);
    drop((pool, gpu));
}

/// The process also ends without destroying anything, and while a thread is in an endless wait.
#[test]
fn a_process_ends_while_a_thread_waits_for_ever() {
    ends("child_that_ends_while_a_thread_waits");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_ends_while_a_thread_waits() {
    let gpu = Box::leak(Box::new(Gpu::new()));
    let pool = Box::leak(Box::new(gpu.pool(1, NO_FLAGS)));
    let event: &'static Event = Box::leak(Box::new(pool.event(0)));
    thread::spawn(|| call!(zeEventHostSynchronize(event.0, u64::MAX)));
    let list: &'static List = Box::leak(Box::new(gpu.immediate(0, true)));
    list.barrier(None, &[event]);
    thread::spawn(|| call!(zeCommandListHostSynchronize(list.0, u64::MAX)));
    thread::sleep(Duration::from_millis(20));
}

/// A wait with a timeout takes that long, not less, and not much more; then it returns NOT_READY.
fn not_ready(wait: impl Fn(u64) -> ze_result_t) {
    for (timeout, least) in [(0, 0), (1, 0), (30_000_000, 30)] {
        let start = Instant::now();
        assert_eq!(wait(timeout), ze_result_t::ZE_RESULT_NOT_READY);
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(least) && took < BOUND, "{timeout} ns: {took:?}");
    }
}

fn destroy(lists: Vec<List>, queues: Vec<Queue>, events: Vec<Event>) {
    for list in lists {
        check!(zeCommandListDestroy(list.0));
        std::mem::forget(list);
    }
    for queue in queues {
        check!(zeCommandQueueDestroy(queue.0));
        std::mem::forget(queue);
    }
    for event in events {
        check!(zeEventDestroy(event.0));
        std::mem::forget(event);
    }
}

/// Runs a test of this program in a process group of its own: it must succeed, within the time limit,
/// and leave no process of the group.
fn ends(test: &str) {
    let start = Instant::now();
    let mut child = Command::new(std::env::current_exe().expect("Linux knows the program's file"))
        .args(["--exact", test, "--ignored", "--test-threads=1"])
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("a test program can be started");
    let group = -i32::try_from(child.id()).expect("a process id");
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if start.elapsed() > BOUND {
            // SAFETY: the group is the child's own.
            unsafe { libc::kill(group, libc::SIGKILL) };
            panic!("{test} does not end");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{test}: {status}");
    // SAFETY: signal 0 only tests whether the group exists.
    while unsafe { libc::kill(group, 0) } == 0 {
        assert!(start.elapsed() < BOUND, "{test} leaves a process behind");
        thread::sleep(Duration::from_millis(5));
    }
}

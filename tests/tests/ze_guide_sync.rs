// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what the core programming guide says of fences, events and barriers, sentence by sentence,
//! where no other test shows it; through the stock loader.

use std::ffi::c_void;
use std::ptr;

use tally_tests::lists::{Event, List, NONE};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check};
use tally_ze::*;

const NO_FLAGS: ze_event_pool_flags_t = ze_event_pool_flags_t::empty();
const SIZE: usize = 1 << 16;

/// "The primary usage model for fences is to notify the Host when a command list has finished execution
/// to allow: Recycling of memory and images; Recycling of command lists; Recycling of other
/// synchronization primitives; Explicit memory residency." All of it is taken away as soon as the fence
/// says so, many times. "This is typically done by tracking command queue fences, but may also be handled
/// by calling zeCommandQueueSynchronize.": every other round has no fence.
#[test]
fn a_fence_lets_everything_be_recycled() {
    // The guide's list, an item each: "Recycling of memory and images"
    // "Recycling of command lists"
    // "Recycling of other synchronization primitives"
    // "Explicit memory residency."
    let gpu = Gpu::new();
    let list = gpu.regular(0, true);
    for round in 0..50_u32 {
        let queue = gpu.queue(0);
        let (pool, fence) = (gpu.pool(1, NO_FLAGS), queue.fence(ze_fence_flags_t::empty()));
        let (event, memory) = (pool.event(0), gpu.host::<u32>(SIZE));
        let (at, bytes) = (memory.ptr().cast::<c_void>(), memory.bytes());
        check!(zeContextMakeMemoryResident(gpu.context, gpu.device, at, bytes));
        list.set((&memory, 0), round, Some(&event), &[]);
        list.copy((&memory, SIZE / 2), (&memory, 0), 1, None, &[]);
        list.close();
        if round % 2 == 0 {
            queue.execute(&[&list], None);
            queue.synchronize();
        } else {
            queue.execute(&[&list], Some(&fence));
            fence.synchronize();
        }
        assert_eq!((memory.get(0), memory.get(SIZE / 2)), (round, round));
        check!(zeContextEvictMemory(gpu.context, gpu.device, at, bytes));
        list.reset();
        event.reset();
        drop((memory, fence, event, pool, queue));
    }
}

/// "Events - used as fine-grain host-to-device, device-to-host or device-to-device execution and memory
/// dependencies." "An event is used to communicate fine-grain host-to-device, device-to-host or
/// device-to-device dependencies have completed." An event can be "Signaled from within a device's command
/// list and waited upon within the same command list"; "Signaled from within a device's command list and
/// waited upon from the host, another command queue or another device"; "Signaled from the host, and waited
/// upon from within a device's command list."
#[test]
fn events_carry_dependencies_every_way() {
    let gpu = Gpu::new();
    let pool = gpu.pool(4, NO_FLAGS);
    let [to_device, inside, across, to_host] = [0, 1, 2, 3].map(|index| pool.event(index));
    let memory = gpu.host::<u32>(4);
    let (list, queue, other) = (gpu.regular(0, false), gpu.queue(0), gpu.immediate(1, false));
    list.copy((&memory, 1), (&memory, 0), 1, Some(&inside), &[&to_device]);
    list.copy((&memory, 2), (&memory, 1), 1, Some(&across), &[&inside]);
    list.close();
    queue.execute(&[&list], None);
    other.copy((&memory, 3), (&memory, 2), 1, Some(&to_host), &[&across]);
    // Long enough for all of it, if nothing waited.
    let result = call!(zeCommandQueueSynchronize(queue.0, 20_000_000));
    assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "the list waits for the host");
    memory.set(0, 9);
    assert!([&inside, &across, &to_host].iter().all(|event| !event.is_ready()));
    to_device.signal();
    to_host.synchronize();
    assert_eq!(memory.to_vec(), [9; 4]);
    queue.synchronize();
    other.synchronize();
}

/// "An event only has two states: not signaled and signaled." "An event doesn't implicitly reset." "Signaling
/// a signaled event (or resetting an unsignaled event) is valid and has no effect on the state of the event."
/// "An event can be explicitly reset from the Host or device."
#[test]
fn an_event_has_two_states_and_keeps_them() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let (event, list) = (pool.event(0), gpu.immediate(0, true));
    let by_host: [fn(&Event); 2] = [Event::signal, Event::reset];
    for _ in 0..2 {
        assert!(!event.is_ready());
        by_host[1](&event);
        list.reset_event(&event);
        list.synchronize();
        assert!(!event.is_ready(), "it was not signalled");
        by_host[0](&event);
        assert!(event.is_ready());
        by_host[0](&event);
        assert!(event.is_ready(), "the host signals what is signalled");
        list.signal(&event);
        list.wait(&[&event]);
        list.synchronize();
        assert!(event.is_ready(), "the device signals what is signalled");
        event.synchronize();
        assert!(event.is_ready() && event.is_ready(), "waits and queries do not reset it");
        list.reset_event(&event);
        list.synchronize();
        assert!(!event.is_ready(), "reset by the device");
        event.signal();
        event.reset();
        assert!(!event.is_ready(), "reset by the host");
    }
}

/// "Events are generic synchronization primitives that can be used across many different usage-models,
/// including those of fences.": one at the end of a list says that all of it is done.
#[test]
fn an_event_does_what_a_fence_does() {
    let gpu = Gpu::new();
    // Long copies: an event that does not wait for them comes before their last words.
    const WORDS: usize = 1 << 18;
    let (source, memory) = (gpu.host::<u32>(WORDS), gpu.host::<u32>(4 * WORDS));
    source.fill_with(|i| i as u32 + 1);
    let pool = gpu.pool(1, NO_FLAGS);
    let (event, list, queue) = (pool.event(0), gpu.regular(0, false), gpu.queue(0));
    for part in 0..4 {
        list.copy((&memory, part * WORDS), (&source, 0), WORDS, None, &[]);
    }
    list.barrier(Some(&event), &[]);
    list.close();
    for _ in 0..10 {
        memory.fill_with(|_| 0);
        queue.execute(&[&list], None);
        event.synchronize();
        assert!((1..=4).all(|part| memory.get(part * WORDS - 1) == WORDS as u32));
        event.reset();
        queue.synchronize();
    }
}

/// "Events optionally cause fine-grain execution and memory barriers." "An event can invoke an execution
/// and/or memory barrier; which should be used sparingly to avoid device underutilization." "Events provide
/// explicit, fine-grain control over cache and memory coherency dependencies between commands; allowing
/// more opportunities for concurrent execution and higher device utilization." "Ensure hKernel1 memory
/// writes are fully coherent across the device before signaling hEvent1": with each combination of scopes
/// the next command reads what the one before wrote, and one that still runs has not signalled.
#[test]
fn scopes_of_events_publish_what_was_written() {
    use ze_event_scope_flags_t as scope;
    let gpu = Gpu::new();
    let memory = gpu.device_memory::<u32>(2 * SIZE);
    let result = gpu.host::<u32>(SIZE);
    let scopes = [
        scope::empty(),
        scope::ZE_EVENT_SCOPE_FLAG_SUBDEVICE,
        scope::ZE_EVENT_SCOPE_FLAG_DEVICE,
        scope::ZE_EVENT_SCOPE_FLAG_HOST,
    ];
    let (list, other) = (gpu.immediate(0, false), gpu.immediate(1, false));
    let holder = Holder::new(&gpu);
    let mut round = 0;
    for signal in scopes {
        for wait in scopes {
            round += 1;
            let pool = gpu.pool(2, NO_FLAGS);
            let [first, second] = [0, 1].map(|index| {
                let desc = ze_event_desc_t { index, signal, wait, ..Default::default() };
                let mut event = NONE;
                check!(zeEventCreate(pool.0, &raw const desc, &raw mut event));
                Event(event)
            });
            let none = ptr::null_mut();
            let (value, at) = (round, memory.ptr().cast());
            check!(zeCommandListAppendMemoryFill(
                list.0,
                at,
                (&raw const value).cast(),
                4,
                4 * SIZE,
                first.0,
                0,
                none
            ));
            other.copy((&memory, SIZE), (&memory, 0), SIZE, Some(&second), &[&first]);
            list.copy((&result, 0), (&memory, SIZE), SIZE, None, &[&second]);
            list.synchronize();
            assert!(result.to_vec().iter().all(|it| *it == round), "{signal:?}, {wait:?}");
            other.synchronize();

            first.reset();
            holder.launch(&list, &first);
            other.copy((&result, 0), (&holder.words, 1), 1, None, &[&first]);
            let early = call!(zeEventHostSynchronize(first.0, 5_000_000));
            assert_eq!(early, ze_result_t::ZE_RESULT_NOT_READY, "{signal:?}, {wait:?}: it runs");
            assert_eq!(result.get(0), round);
            holder.release();
            other.synchronize();
            assert_eq!(result.get(0), 2, "{signal:?}, {wait:?}");
            list.synchronize();
        }
    }
}

/// A kernel that runs until the host releases it.
struct Holder {
    words: Usm<u32>,
    module: ze_module_handle_t,
    kernel: ze_kernel_handle_t,
}

impl Holder {
    fn new(gpu: &Gpu) -> Self {
        // This number of rounds takes a minute. It is reached only if no signal ends the loop.
        let source = "
            kernel void hold(global volatile uint *it)
            {
                ulong round = 0;
                while (it[0] == 0 && round < 100000000000)
                    round++;
                it[1] = it[0] + 1;
            }";
        let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
        let kernel = gpu.kernel(module, "hold");
        let words = gpu.host::<u32>(2);
        let at = words.ptr();
        check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
        check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const at).cast()));
        Self { words, module, kernel }
    }

    fn launch(&self, list: &List, signal: &Event) {
        self.words.fill_with(|_| 0);
        let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        let none = ptr::null_mut();
        check!(zeCommandListAppendLaunchKernel(
            list.0,
            self.kernel,
            &raw const groups,
            signal.0,
            0,
            none
        ));
    }

    fn release(&self) {
        self.words.set(0, 1);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // A failing test must not leave it running.
        self.release();
        let _ = call!(zeKernelDestroy(self.kernel));
        let _ = call!(zeModuleDestroy(self.module));
    }
}

/// "Commands executed on a command list are only guaranteed to start in the same order in which they are
/// submitted; i.e. there is no implicit definition of the order of completion.": the first command of an
/// out-of-order list ends only when the second has done its work.
#[test]
fn a_later_command_may_end_first() {
    // This number of rounds takes a minute. It is reached only if the second command does wait for the
    // first.
    let source = "
        kernel void meet(global volatile uint *it)
        {
            ulong round = 0;
            while (it[0] == 0 && round < 100000000000)
                round++;
            it[1] = it[0] + 1;
        }";
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
    let kernel = gpu.kernel(module, "meet");
    let memory = gpu.host::<u32>(2);
    let to = memory.ptr();
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const to).cast()));
    let (list, queue) = (gpu.regular(0, false), gpu.queue(0));
    let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let none = ptr::null_mut();
    check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const groups, NONE, 0, none));
    list.set((&memory, 0), 1, None, &[]);
    list.close();
    queue.execute(&[&list], None);
    queue.synchronize();
    assert_eq!(memory.to_vec(), [1, 2], "the first command has seen the second");
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that creates, uses and destroys objects of every kind at random for a given time, and has
//! no more memory, mappings, files and threads in the end than it had before.
//!
//! In the test it runs for a few seconds. For longer: `TALLY_WALK_SECONDS=600 cargo test -p tally-tests
//! --test ze_walk -- --ignored --nocapture`, with `TALLY_WALK_SEED` for another sequence.

use std::ffi::c_void;
use std::time::{Duration, Instant};
use std::{env, fs, ptr, thread};

use tally_tests::device_threads;
use tally_tests::images::{Image, Sampler, format, image_desc};
use tally_tests::lists::{Event, List, NONE, Pool, Queue};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check, refused};
use tally_ze::*;

const SOURCE: &str = "
    kernel void add(global uint *x, uint by) { x[get_global_id(0)] += by; }
    kernel void turn(global uint *x, uint by)
    {
        local uint copy[64];
        copy[get_local_id(0)] = x[get_global_id(0)];
        barrier(CLK_LOCAL_MEM_FENCE);
        x[get_global_id(0)] = copy[63 - get_local_id(0)] + by;
    }";

/// The maximum number of objects of a kind in a world.
const MOST: usize = 6;
/// The number of steps between two measurements.
const STEPS: u32 = 150;
/// The minimum number of measurements on any machine: after ten of them all caches are full.
const ROUNDS: usize = 30;

#[test]
fn whatever_a_program_does_it_gets_no_larger() {
    let seconds = env::var("TALLY_WALK_SECONDS").unwrap_or_else(|_| "0".to_owned());
    let variables = [("TALLY_WALK_SECONDS", seconds.as_str()), device_threads::VARIABLE];
    let said = ze::in_child("child_that_walks", &variables);
    let line = said.lines().find(|line| line.starts_with("steps ")).expect("what it measured");
    eprintln!("{line}");
}

/// The size of the process: KiB in memory, mappings, files, threads.
#[derive(Clone, Copy, Debug, Default)]
struct Size([u64; 4]);

impl Size {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect("Linux tells it");
            let digits = line.split_whitespace().nth(1).expect("a number");
            digits.parse::<u64>().expect("a number")
        };
        // Pages of the device's memory count too.
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux has it").lines().count();
        let files = fs::read_dir("/proc/self/fd").expect("Linux has it").count();
        Self([number("VmRSS:"), maps as u64, files as u64, number("Threads:")])
    }

    /// The smallest of each, which is the permanent part. A thread that is about to end has its stacks
    /// until then.
    fn least(sizes: &[Self]) -> Self {
        let least = |i: usize| sizes.iter().map(|it| it.0[i]).min().unwrap_or(0);
        Self([0, 1, 2, 3].map(least))
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_walks() {
    let number = |name: &str| env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let mut random = Random(number("TALLY_WALK_SEED").unwrap_or(1));
    let seconds = number("TALLY_WALK_SECONDS").unwrap_or(0);
    let end = Instant::now() + Duration::from_secs(seconds);
    let spirv = ze::spirv_from(SOURCE);
    // It keeps the driver's threads and buffers, like a program that works with one context.
    let kept = Gpu::new();
    device_threads::start_all(&kept, &device_threads::spirv());
    let (mut sizes, mut steps) = (Vec::new(), 0_u64);
    while sizes.len() < ROUNDS || Instant::now() < end {
        let mut worlds = vec![World::new(&spirv)];
        for _ in 0..STEPS {
            match random.below(100) {
                0 if worlds.len() < 3 => worlds.push(World::new(&spirv)),
                1 if worlds.len() > 1 => drop(worlds.swap_remove(random.below(worlds.len()))),
                _ => {
                    let world = random.below(worlds.len());
                    worlds[world].step(&mut random, &spirv);
                }
            }
        }
        steps += u64::from(STEPS);
        drop(worlds);
        sizes.push(Size::now());
    }
    // The first third fills the caches.
    let third = sizes.len() / 3;
    let before = Size::least(&sizes[third..2 * third]);
    let after = Size::least(&sizes[2 * third..]);
    let names = ["KiB", "mappings", "files", "threads"];
    // The tolerance between two measurements.
    let room = [8 << 10, 16, 2, 8];
    // The harness leaves its line open.
    println!("\nsteps {steps}, in the second and the last third at least: {before:?}, {after:?}");
    for (i, name) in names.into_iter().enumerate() {
        let (before, after) = (before.0[i], after.0[i]);
        assert!(after <= before + room[i], "{name}: {after}, {before} before");
    }
}

/// Numbers that look random, the same for a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// A place in a collection that is not empty.
    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A module and its kernels; destroyed on drop.
struct Module {
    module: ze_module_handle_t,
    kernels: [ze_kernel_handle_t; 2],
}

impl Drop for Module {
    fn drop(&mut self) {
        for kernel in self.kernels {
            let _ = call!(zeKernelDestroy(kernel));
        }
        let _ = call!(zeModuleDestroy(self.module));
    }
}

/// A context and its objects. No work is pending between two steps.
struct World {
    memory: Vec<Usm<u32>>,
    immediate: Vec<List>,
    regular: Vec<List>,
    queues: Vec<Queue>,
    events: Vec<Event>,
    /// The events are dropped before their pool.
    pools: Vec<(Vec<Event>, Pool)>,
    images: Vec<(Image, [u32; 2])>,
    samplers: Vec<Sampler>,
    modules: Vec<Module>,
    // Last: the others need it while they are dropped.
    gpu: Gpu,
}

/// The minimum number of words of each allocation.
const WORDS: usize = 1024;

impl World {
    fn new(spirv: &[u8]) -> Self {
        let gpu = Gpu::new();
        let mut world = Self {
            memory: vec![gpu.host(WORDS)],
            immediate: vec![gpu.immediate(0, true)],
            regular: Vec::new(),
            queues: vec![gpu.queue(0)],
            events: vec![gpu.cb_event()],
            pools: Vec::new(),
            images: Vec::new(),
            samplers: Vec::new(),
            modules: Vec::new(),
            gpu,
        };
        world.modules.push(world.module(spirv));
        world
    }

    fn module(&self, spirv: &[u8]) -> Module {
        let module = self.gpu.module(spirv, "").expect("it is valid");
        Module { module, kernels: ["add", "turn"].map(|name| self.gpu.kernel(module, name)) }
    }

    fn step(&mut self, random: &mut Random, spirv: &[u8]) {
        match random.below(24) {
            0 => self.change_memory(random),
            1 => {
                let list = self.gpu.immediate(random.below(2) as u32, random.below(2) == 0);
                keep(&mut self.immediate, list, random);
            }
            2 => keep(&mut self.regular, self.gpu.regular(0, random.below(2) == 0), random),
            3 => keep(&mut self.queues, self.gpu.queue(0), random),
            4 => keep(&mut self.events, self.gpu.cb_event(), random),
            5 => {
                let pool = self.gpu.pool(8, ze_event_pool_flags_t::empty());
                let events = (0..4).map(|i| pool.event(i)).collect();
                keep(&mut self.pools, (events, pool), random);
            }
            6 => self.change_images(random),
            7 if random.below(8) == 0 => {
                let module = self.module(spirv);
                keep(&mut self.modules, module, random);
            }
            7 | 8 => self.reserve(),
            9 => self.share(random),
            10 => self.clone_a_list(random),
            11 => self.call_the_host(random),
            12 => self.threads(),
            13 => mistakes(),
            14 | 15 => self.use_images(random),
            16 | 17 => self.record(random),
            18 | 19 => self.use_pool(random),
            _ => self.run(random),
        }
    }

    fn change_memory(&mut self, random: &mut Random) {
        let words = WORDS << random.below(9);
        let memory =
            if random.below(2) == 0 { self.gpu.host(words) } else { self.gpu.device_memory(words) };
        keep(&mut self.memory, memory, random);
    }

    fn change_images(&mut self, random: &mut Random) {
        let [width, height] = [1 + random.below(300) as u32, 1 + random.below(100) as u32];
        let format = format(
            ze_image_format_layout_t::ZE_IMAGE_FORMAT_LAYOUT_32,
            ze_image_format_type_t::ZE_IMAGE_FORMAT_TYPE_UINT,
        );
        let desc = image_desc(ze_image_type_t::ZE_IMAGE_TYPE_2D, format, [width, height, 1]);
        keep(&mut self.images, (self.gpu.image(&desc), [width, height]), random);
        let address = ze_sampler_address_mode_t::ZE_SAMPLER_ADDRESS_MODE_CLAMP;
        let filter = ze_sampler_filter_mode_t::ZE_SAMPLER_FILTER_MODE_NEAREST;
        keep(&mut self.samplers, self.gpu.sampler(address, filter, false), random);
    }

    fn launch(&self, list: &List, random: &mut Random, memory: &Usm<u32>, signal: Option<&Event>) {
        let module = random.of(&self.modules);
        let kernel = *random.of(&module.kernels);
        let (address, by) = (memory.address(), random.below(9) as u32);
        check!(zeKernelSetGroupSize(kernel, 64, 1, 1));
        check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const address).cast()));
        check!(zeKernelSetArgumentValue(kernel, 1, 4, (&raw const by).cast()));
        let groups =
            ze_group_count_t { groupCountX: (WORDS / 64) as u32, groupCountY: 1, groupCountZ: 1 };
        let (groups, none) = (&raw const groups, ptr::null_mut());
        let signal = signal.map_or(NONE, |event| event.0);
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, groups, signal, 0, none));
    }

    /// A kernel and a copy on lists that wait for each other.
    fn run(&mut self, random: &mut Random) {
        let (first, second) = (self.gpu.immediate(0, true), random.of(&self.immediate));
        let (memory, event) = (random.of(&self.memory), random.of(&self.events));
        let out = self.gpu.host::<u32>(1);
        self.launch(&first, random, memory, Some(event));
        let value = random.next() as u32;
        first.set((memory, 0), value, Some(event), &[]);
        second.copy((&out, 0), (memory, 0), 1, None, &[event]);
        second.synchronize();
        event.synchronize();
        assert_eq!(out.get(0), value);
    }

    /// A recording that is executed a few times.
    fn record(&mut self, random: &mut Random) {
        let own;
        let list = match self.regular.is_empty() {
            true => {
                own = self.gpu.regular(0, true);
                &own
            }
            false => random.of(&self.regular),
        };
        let (memory, queue) = (random.of(&self.memory), random.of(&self.queues));
        list.reset();
        list.set((memory, 0), 5, None, &[]);
        list.barrier(None, &[]);
        for _ in 0..random.below(40) {
            self.launch(list, random, memory, None);
            list.barrier(None, &[]);
        }
        list.set((memory, 1), 6, None, &[]);
        list.close();
        let fence = queue.fence(ze_fence_flags_t::empty());
        for _ in 0..3 {
            queue.execute(&[list], Some(&fence));
            fence.synchronize();
            fence.reset();
        }
        assert_eq!(memory.get(1), 6);
        list.reset();
    }

    /// Regular events that host and device signal and reset.
    fn use_pool(&mut self, random: &mut Random) {
        let own;
        let events = match self.pools.is_empty() {
            true => {
                let pool = self.gpu.pool(2, ze_event_pool_flags_t::empty());
                own = (vec![pool.event(0), pool.event(1)], pool);
                &own.0
            }
            false => &random.of(&self.pools).0,
        };
        let (list, memory) = (self.gpu.immediate(1, false), random.of(&self.memory));
        list.set((memory, 3), 1, Some(&events[1]), &[&events[0]]);
        assert!(!events[1].is_ready());
        events[0].signal();
        events[1].synchronize();
        list.synchronize();
        events.iter().for_each(Event::reset);
    }

    fn use_images(&mut self, random: &mut Random) {
        if self.images.is_empty() {
            return;
        }
        let (image, [width, height]) = random.of(&self.images);
        let len = (width * height) as usize;
        let (texels, mut back) = (vec![random.next() as u32; len], vec![0; len]);
        let list = random.of(&self.immediate);
        list.image_from(image, &texels);
        list.barrier(None, &[]);
        list.image_to(image, &mut back);
        list.synchronize();
        assert_eq!(texels, back);
    }

    /// Reserved addresses, with memory mapped for a while.
    fn reserve(&self) {
        let (size, mut at) = (2 << 20, ptr::null_mut());
        let context = self.gpu.context;
        check!(zeVirtualMemReserve(context, ptr::null(), size, &raw mut at));
        let mut desc = ze_physical_mem_desc_t { size, ..Default::default() };
        let mut memory = ze_physical_mem_handle_t::default();
        check!(zePhysicalMemCreate(context, self.gpu.device, &raw mut desc, &raw mut memory));
        let access = ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
        check!(zeVirtualMemMap(context, at, size, memory, 0, access));
        // SAFETY: mapped, for reading and writing.
        unsafe { at.cast::<u64>().write_volatile(1) };
        check!(zeVirtualMemUnmap(context, at, size));
        check!(zePhysicalMemDestroy(context, memory));
        check!(zeVirtualMemFree(context, at, size));
    }

    /// Handles for other processes, which are not opened.
    fn share(&self, random: &mut Random) {
        let context = self.gpu.context;
        let mut handle = ze_ipc_mem_handle_t::default();
        let memory: *const c_void = random.of(&self.memory).ptr().cast();
        check!(zeMemGetIpcHandle(context, memory, &raw mut handle));
        check!(zeMemPutIpcHandle(context, handle));
        let ipc = ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC;
        let (event, list) = (self.gpu.cb_event_with(ipc), self.gpu.immediate(0, true));
        list.signal(&event);
        let mut handle = ze_ipc_event_counter_based_handle_t::default();
        check!(zeEventCounterBasedGetIpcHandle(event.0, &raw mut handle));
        list.synchronize();
    }

    fn clone_a_list(&self, random: &mut Random) {
        let flags = ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE;
        let desc = ze_command_list_desc_t { flags, ..Default::default() };
        let mut list = ze_command_list_handle_t::NULL;
        let Gpu { context, device } = self.gpu;
        check!(zeCommandListCreate(context, device, &raw const desc, &raw mut list));
        let list = List(list);
        let memory = random.of(&self.memory);
        self.launch(&list, random, memory, None);
        list.close();
        let mut copy = ze_command_list_handle_t::NULL;
        check!(zeCommandListCreateCloneExp(list.0, &raw mut copy));
        let copy = List(copy);
        drop(list);
        let queue = random.of(&self.queues);
        queue.execute(&[&copy], None);
        queue.synchronize();
    }

    fn call_the_host(&self, random: &mut Random) {
        let mut called = 0_u32;
        let list = random.of(&self.immediate);
        let data: *mut c_void = (&raw mut called).cast();
        let (next, waits) = (ptr::null(), ptr::null_mut());
        check!(zeCommandListAppendHostFunction(list.0, Some(visit), data, next, NONE, 0, waits));
        list.synchronize();
        // SAFETY: the function has been called, and there is no other reference to it.
        assert_eq!(unsafe { (&raw const called).read_volatile() }, 1);
    }

    /// Threads that use this one's objects, and leave objects for the next one to destroy.
    fn threads(&mut self) {
        let left = thread::scope(|scope| {
            let threads = [0, 1, 2].map(|_| {
                scope.spawn(|| {
                    let (list, event) = (self.gpu.immediate(0, true), self.gpu.cb_event());
                    let memory = self.gpu.host::<u32>(4);
                    list.set((&memory, 0), 7, Some(&event), &[]);
                    event.synchronize();
                    mistakes();
                    (list, event, memory)
                })
            });
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert!(left.iter().all(|(_, _, memory)| memory.get(0) == 7));
    }
}

unsafe extern "C" fn visit(data: *mut c_void) {
    // SAFETY: the walk passes a word and waits for it.
    unsafe { *data.cast::<u32>() += 1 };
}

/// Calls that are refused, each with a description.
fn mistakes() {
    let null = ze_command_list_handle_t::NULL;
    let text = refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeCommandListClose(null));
    assert!(text.contains("hCommandList"), "{text}");
    let null = ze_context_handle_t::NULL;
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeMemFree(null, ptr::null_mut()));
}

/// Adds an object; if there are too many, one is destroyed.
fn keep<T>(all: &mut Vec<T>, new: T, random: &mut Random) {
    all.push(new);
    if all.len() > MOST || random.below(3) == 0 && all.len() > 1 {
        drop(all.swap_remove(random.below(all.len())));
    }
}

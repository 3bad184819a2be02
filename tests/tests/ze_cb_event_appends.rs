// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events with every append function that takes events, through the stock loader.

use std::ffi::c_void;
use std::ptr;

use tally_tests::gate::Gate;
use tally_tests::images::{Image, format, image_desc};
use tally_tests::lists::{Event, List};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check};
use tally_ze::*;

const KERNEL: &str = "
    kernel void put(global uint *to, uint value)
    {
        *to = value;
    }";

/// The objects that the append functions need.
struct Bench {
    gpu: Gpu,
    kernel: ze_kernel_handle_t,
    module: ze_module_handle_t,
    memory: Usm<u32>,
    times: Usm<ze_kernel_timestamp_result_t>,
    groups: Usm<ze_group_count_t>,
    count: Usm<u32>,
    timed: Event,
    inner: List,
    /// Four texels each, of 4 bytes.
    images: [Image; 2],
}

/// The region of a whole image.
static TEXELS: ze_image_region_t =
    ze_image_region_t { originX: 0, originY: 0, originZ: 0, width: 4, height: 1, depth: 1 };

unsafe extern "C" fn nothing(_: *mut c_void) {}

impl Bench {
    fn new() -> Self {
        let gpu = Gpu::new();
        let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
        let kernel = gpu.kernel(module, "put");
        let (memory, groups, count) = (gpu.host::<u32>(64), gpu.host(1), gpu.host(1));
        let (to, value) = (memory.ptr(), 9_u32);
        check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
        check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&to).cast()));
        check!(zeKernelSetArgumentValue(kernel, 1, 4, ptr::from_ref(&value).cast()));
        groups.set(0, ONE);
        count.set(0, 1);
        let flag = ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP;
        let timed = gpu.cb_event_with(flag);
        let list = gpu.immediate(0, true);
        list.signal(&timed);
        list.synchronize();
        let inner = gpu.regular(0, true);
        inner.set((&memory, 1), 5, None, &[]);
        inner.close();
        let times = gpu.host(1);
        let format = format(
            ze_image_format_layout_t::ZE_IMAGE_FORMAT_LAYOUT_32,
            ze_image_format_type_t::ZE_IMAGE_FORMAT_TYPE_UINT,
        );
        let desc = image_desc(ze_image_type_t::ZE_IMAGE_TYPE_2D, format, [4, 1, 1]);
        let images = [gpu.image(&desc), gpu.image(&desc)];
        Self { gpu, kernel, module, memory, times, groups, count, timed, inner, images }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The test reports the failure.
        let _ = call!(zeKernelDestroy(self.kernel));
        let _ = call!(zeModuleDestroy(self.module));
    }
}

static ONE: ze_group_count_t = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };

/// An append with one wait and one signal event.
type Append = fn(&Bench, ze_command_list_handle_t, ze_event_handle_t, *mut ze_event_handle_t);

/// All append functions that take events. Those from [`IMMEDIATE_ONLY`] on are for immediate lists.
const APPENDS: [(&str, Append); 26] = [
    ("Barrier", |_, list, signal, waits| {
        check!(zeCommandListAppendBarrier(list, signal, 1, waits));
    }),
    ("MemoryRangesBarrier", |it, list, signal, waits| {
        let (size, range): (usize, *const c_void) = (4, it.memory.ptr().cast_const().cast());
        let mut ranges = [range];
        check!(zeCommandListAppendMemoryRangesBarrier(
            list,
            1,
            &raw const size,
            ranges.as_mut_ptr(),
            signal,
            1,
            waits
        ));
    }),
    ("WaitOnEvents, SignalEvent", |_, list, signal, waits| {
        check!(zeCommandListAppendWaitOnEvents(list, 1, waits));
        check!(zeCommandListAppendSignalEvent(list, signal));
    }),
    ("WriteGlobalTimestamp", |it, list, signal, waits| {
        let to = it.times.ptr().cast();
        check!(zeCommandListAppendWriteGlobalTimestamp(list, to, signal, 1, waits));
    }),
    ("QueryKernelTimestamps", |it, list, signal, waits| {
        let (mut of, to) = ([it.timed.0], it.times.ptr().cast());
        let of = of.as_mut_ptr();
        let none = ptr::null();
        check!(zeCommandListAppendQueryKernelTimestamps(list, 1, of, to, none, signal, 1, waits));
    }),
    ("MemoryCopy", |it, list, signal, waits| {
        let (dst, src) = (it.memory.ptr().cast(), it.memory.ptr().wrapping_add(8).cast());
        check!(zeCommandListAppendMemoryCopy(list, dst, src, 4, signal, 1, waits));
    }),
    ("MemoryCopyFromContext", |it, list, signal, waits| {
        let (dst, src) = (it.memory.ptr().cast(), it.memory.ptr().wrapping_add(8).cast());
        let from = it.gpu.context;
        check!(zeCommandListAppendMemoryCopyFromContext(list, dst, from, src, 4, signal, 1, waits));
    }),
    ("MemoryFill", |it, list, signal, waits| {
        let (dst, value) = (it.memory.ptr().cast(), 3_u32);
        let value = (&raw const value).cast();
        check!(zeCommandListAppendMemoryFill(list, dst, value, 4, 4, signal, 1, waits));
    }),
    ("MemoryCopyRegion", |it, list, signal, waits| {
        let region = ze_copy_region_t { width: 4, height: 1, depth: 1, ..Default::default() };
        let (dst, src) = (it.memory.ptr().cast(), it.memory.ptr().wrapping_add(8).cast());
        let region = &raw const region;
        check!(zeCommandListAppendMemoryCopyRegion(
            list, dst, region, 4, 4, src, region, 4, 4, signal, 1, waits
        ));
    }),
    ("LaunchKernel", |it, list, signal, waits| {
        let groups = &raw const ONE;
        check!(zeCommandListAppendLaunchKernel(list, it.kernel, groups, signal, 1, waits));
    }),
    ("LaunchCooperativeKernel", |it, list, signal, waits| {
        let groups = &raw const ONE;
        check!(zeCommandListAppendLaunchCooperativeKernel(
            list, it.kernel, groups, signal, 1, waits
        ));
    }),
    ("LaunchKernelIndirect", |it, list, signal, waits| {
        let groups = it.groups.ptr();
        check!(zeCommandListAppendLaunchKernelIndirect(list, it.kernel, groups, signal, 1, waits));
    }),
    ("LaunchMultipleKernelsIndirect", |it, list, signal, waits| {
        let (mut kernels, groups) = ([it.kernel], it.groups.ptr());
        let kernels = kernels.as_mut_ptr();
        let count = it.count.ptr();
        check!(zeCommandListAppendLaunchMultipleKernelsIndirect(
            list, 1, kernels, count, groups, signal, 1, waits
        ));
    }),
    ("LaunchKernelWithParameters", |it, list, signal, waits| {
        let (groups, none) = (&raw const ONE, ptr::null());
        check!(zeCommandListAppendLaunchKernelWithParameters(
            list, it.kernel, groups, none, signal, 1, waits
        ));
    }),
    ("LaunchKernelWithArguments", |it, list, signal, waits| {
        let (to, value) = (it.memory.ptr(), 4_u32);
        let mut arguments: [*mut c_void; 2] =
            [ptr::from_ref(&to).cast_mut().cast(), ptr::from_ref(&value).cast_mut().cast()];
        let size = ze_group_size_t { groupSizeX: 1, groupSizeY: 1, groupSizeZ: 1 };
        check!(zeCommandListAppendLaunchKernelWithArguments(
            list,
            it.kernel,
            ONE,
            size,
            arguments.as_mut_ptr(),
            ptr::null(),
            signal,
            1,
            waits
        ));
    }),
    ("MemoryCopyWithParameters", |it, list, signal, waits| {
        let (to, from, none) = (it.memory.ptr(), it.memory.ptr().wrapping_add(8), ptr::null());
        check!(zeCommandListAppendMemoryCopyWithParameters(
            list,
            to.cast(),
            from.cast_const().cast(),
            4,
            none,
            signal,
            1,
            waits
        ));
    }),
    ("MemoryFillWithParameters", |it, list, signal, waits| {
        let (to, pattern, none) = (it.memory.ptr().cast(), 3_u32, ptr::null());
        let pattern = (&raw const pattern).cast();
        check!(zeCommandListAppendMemoryFillWithParameters(
            list, to, pattern, 4, 4, none, signal, 1, waits
        ));
    }),
    ("HostFunction", |_, list, signal, waits| {
        let (data, none) = (ptr::null_mut(), ptr::null());
        check!(zeCommandListAppendHostFunction(list, Some(nothing), data, none, signal, 1, waits));
    }),
    ("ImageCopy", |it, list, signal, waits| {
        let [to, from] = &it.images;
        check!(zeCommandListAppendImageCopy(list, to.0, from.0, signal, 1, waits));
    }),
    ("ImageCopyRegion", |it, list, signal, waits| {
        let ([to, from], all) = (&it.images, &raw const TEXELS);
        check!(zeCommandListAppendImageCopyRegion(list, to.0, from.0, all, all, signal, 1, waits));
    }),
    ("ImageCopyToMemory", |it, list, signal, waits| {
        let ([from, _], to) = (&it.images, it.memory.ptr().wrapping_add(16).cast());
        check!(zeCommandListAppendImageCopyToMemory(
            list,
            to,
            from.0,
            &raw const TEXELS,
            signal,
            1,
            waits
        ));
    }),
    ("ImageCopyFromMemory", |it, list, signal, waits| {
        let ([to, _], from) = (&it.images, it.memory.ptr().wrapping_add(16).cast_const().cast());
        check!(zeCommandListAppendImageCopyFromMemory(
            list,
            to.0,
            from,
            &raw const TEXELS,
            signal,
            1,
            waits
        ));
    }),
    ("ImageCopyToMemoryExt", |it, list, signal, waits| {
        let ([from, _], to) = (&it.images, it.memory.ptr().wrapping_add(16).cast());
        let all = &raw const TEXELS;
        check!(zeCommandListAppendImageCopyToMemoryExt(
            list, to, from.0, all, 16, 16, signal, 1, waits
        ));
    }),
    ("ImageCopyFromMemoryExt", |it, list, signal, waits| {
        let ([to, _], from) = (&it.images, it.memory.ptr().wrapping_add(16).cast_const().cast());
        let all = &raw const TEXELS;
        check!(zeCommandListAppendImageCopyFromMemoryExt(
            list, to.0, from, all, 16, 16, signal, 1, waits
        ));
    }),
    ("ImmediateAppendCommandListsExp", |it, list, signal, waits| {
        let mut lists = [it.inner.0];
        check!(zeCommandListImmediateAppendCommandListsExp(
            list,
            1,
            lists.as_mut_ptr(),
            signal,
            1,
            waits
        ));
    }),
    ("ImmediateAppendCommandListsWithParameters", |it, list, signal, waits| {
        let (mut lists, none) = ([it.inner.0], ptr::null());
        check!(zeCommandListImmediateAppendCommandListsWithParameters(
            list,
            1,
            lists.as_mut_ptr(),
            none,
            signal,
            1,
            waits
        ));
    }),
];
const IMMEDIATE_ONLY: usize = 24;

/// Every function that takes events accepts CB events: the command waits for one and signals another,
/// in immediate and in regular lists.
#[test]
fn every_append_waits_for_and_signals_events() {
    let it = Bench::new();
    for (i, (name, append)) in APPENDS.iter().enumerate() {
        for recorded in [false, true] {
            if recorded && i >= IMMEDIATE_ONLY {
                continue;
            }
            let gate = Gate::new(&it.gpu);
            let (wait, _producer) = gate.cb_event(&it.gpu);
            let done = it.gpu.cb_event();
            let mut waits = [wait.0];
            let (immediate, regular, queue) =
                (it.gpu.immediate(0, true), it.gpu.regular(0, true), it.gpu.queue(0));
            if recorded {
                append(&it, regular.0, done.0, waits.as_mut_ptr());
                regular.close();
                queue.execute(&[&regular], None);
            } else {
                append(&it, immediate.0, done.0, waits.as_mut_ptr());
            }
            let result = call!(zeEventHostSynchronize(done.0, 200_000));
            assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{name}: it waits");
            gate.open();
            done.synchronize();
            immediate.synchronize();
            queue.synchronize();
        }
    }
    assert_eq!(it.memory.get(1), 5, "the inner list ran");
}

/// In out-of-order lists the same functions can wait for CB events too, but signal none.
#[test]
fn every_append_of_an_out_of_order_list_waits_for_events() {
    let it = Bench::new();
    for (name, append) in &APPENDS {
        let gate = Gate::new(&it.gpu);
        let (wait, _producer) = gate.cb_event(&it.gpu);
        let pool = it.gpu.pool(1, ze_event_pool_flags_t::empty());
        let (done, mut waits) = (pool.event(0), [wait.0]);
        let list = it.gpu.immediate(0, false);
        append(&it, list.0, done.0, waits.as_mut_ptr());
        let result = call!(zeEventHostSynchronize(done.0, 200_000));
        assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{name}: it waits");
        gate.open();
        done.synchronize();
        list.synchronize();
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several devices and sub-devices through the stock loader. Their number, and which are visible, is
//! set before the driver starts, so each test runs in a process of its own (the ignored ones).

use std::mem::ManuallyDrop;
use std::ptr;

use tally_tests::gate::Gate;
use tally_tests::lists::List;
use tally_tests::peer::{Peer, say};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

/// "a system configuration of two devices, each with four sub-devices"
const TWO_BY_FOUR: [(&str, &str); 2] = [("TALLY_DEVICES", "2"), ("TALLY_SUBDEVICES", "4")];
const TWO_BY_TWO: [(&str, &str); 2] = [("TALLY_DEVICES", "2"), ("TALLY_SUBDEVICES", "2")];

fn devices() -> Vec<ze_device_handle_t> {
    let (mut count, mut devices) = (32, [ze_device_handle_t::NULL; 32]);
    check!(zeDeviceGet(ze::driver(), &raw mut count, devices.as_mut_ptr()));
    devices[..count as usize].to_vec()
}

fn parts(device: ze_device_handle_t) -> Vec<ze_device_handle_t> {
    let (mut count, mut devices) = (32, [ze_device_handle_t::NULL; 32]);
    check!(zeDeviceGetSubDevices(device, &raw mut count, devices.as_mut_ptr()));
    devices[..count as usize].to_vec()
}

fn root(device: ze_device_handle_t) -> ze_device_handle_t {
    let mut root = ze_device_handle_t::NULL;
    check!(zeDeviceGetRootDevice(device, &raw mut root));
    root
}

fn properties(device: ze_device_handle_t) -> ze_device_properties_t {
    let mut properties = ze_device_properties_t::default();
    check!(zeDeviceGetProperties(device, &raw mut properties));
    properties
}

fn is_part(device: ze_device_handle_t) -> bool {
    properties(device).flags.contains(ze_device_property_flags_t::ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE)
}

fn memory(device: ze_device_handle_t) -> u64 {
    let (mut count, mut memory) = (1, ze_device_memory_properties_t::default());
    check!(zeDeviceGetMemoryProperties(device, &raw mut count, &raw mut memory));
    memory.totalSize
}

fn groups(device: ze_device_handle_t) -> Vec<ze_command_queue_group_properties_t> {
    let (mut count, mut groups) = (8, [ze_command_queue_group_properties_t::default(); 8]);
    check!(zeDeviceGetCommandQueueGroupProperties(device, &raw mut count, groups.as_mut_ptr()));
    groups[..count as usize].to_vec()
}

/// The same context, used with another device.
fn on(gpu: &Gpu, device: ze_device_handle_t) -> ManuallyDrop<Gpu> {
    ManuallyDrop::new(Gpu { device, context: gpu.context })
}

/// The visible devices by UUIDs: devices with their parts, "uuid(uuid uuid)".
fn shown() -> String {
    let name = |device| {
        let uuid = properties(device).uuid.id;
        uuid.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let text = |&device: &ze_device_handle_t| {
        let parts: Vec<_> = parts(device).iter().map(|&it| name(it)).collect();
        format!("{}({})", name(device), parts.join(" "))
    };
    devices().iter().map(text).collect::<Vec<_>>().join(" ")
}

/// Runs an ignored test with these variables.
fn run(test: &str, variables: &[&[(&str, &str)]]) {
    Peer::start_with(test, &variables.concat()).finish();
}

/// The result of [`shown`] with these variables.
fn shown_with(variables: &[&[(&str, &str)]]) -> String {
    let mut peer = Peer::start_with("says_what_is_shown", &variables.concat());
    let said = peer.hear();
    peer.finish();
    said
}

#[test]
#[ignore = "runs in a child process"]
fn says_what_is_shown() {
    say(&shown());
}

#[test]
fn a_device_has_its_parts_and_a_part_its_device() {
    run("divided_devices", &[&TWO_BY_TWO]);
}

#[test]
#[ignore = "runs in a child process"]
fn divided_devices() {
    let devices = devices();
    assert_eq!(devices.len(), 2);
    let mut uuids = Vec::new();
    for &device in &devices {
        assert!(root(device).is_null() && !is_part(device));
        let parts = parts(device);
        assert_eq!(parts.len(), 2);
        for (i, &part) in parts.iter().enumerate() {
            // "assert(subdeviceProps.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE)"
            assert!(is_part(part));
            assert_eq!(properties(part).subdeviceId as usize, i);
            assert_eq!(root(part), device);
            assert!(self::parts(part).is_empty());
            assert_eq!(2 * memory(part), memory(device));
            uuids.push(properties(part).uuid.id);
        }
        let sums = parts.iter().map(|&it| groups(it)).reduce(|mut sum, more| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| sum.numQueues += more.numQueues);
            sum
        });
        let of_parts: Vec<u32> = sums.expect("parts").iter().map(|it| it.numQueues).collect();
        let of_device: Vec<u32> = groups(device).iter().map(|it| it.numQueues).collect();
        assert!(of_parts.iter().zip(&of_device).all(|(parts, device)| parts >= device));
        let mut eus = ze_eu_count_ext_t::default();
        let mut whole =
            ze_device_properties_t { pNext: (&raw mut eus).cast(), ..Default::default() };
        check!(zeDeviceGetProperties(device, &raw mut whole));
        assert_eq!(whole.numSlices, 2);
        assert_eq!(eus.numTotalEUs, whole.numSlices * whole.numEUsPerSubslice);
        uuids.push(whole.uuid.id);
    }
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), 6, "devices and parts have UUIDs of their own");
}

/// "The affinity mask affects the number of handles returned from zeDeviceGet and
/// zeDeviceGetSubDevices." [...] "0.0: only device 0, sub-device 0 is reported as device 0" [...]
/// "0.2, 1.3, 1.0, 0.3: both device 0 and 1 are reported; device 0 reports sub-devices 2 and 3 as
/// sub-devices 0 and 1, respectively; device 1 reports sub-devices 0 and 3 as sub-devices 0 and 1,
/// respectively; the order is unchanged."
#[test]
fn an_affinity_mask_shows_what_the_guide_says() {
    let all = shown_with(&[&TWO_BY_FOUR]);
    let names: Vec<Vec<&str>> = all
        .split(") ")
        .map(|it| it.split(['(', ')', ' ']).filter(|it| !it.is_empty()).collect())
        .collect();
    let device = |device: usize, parts: &[usize]| {
        let parts: Vec<_> = parts.iter().map(|part| names[device][1 + part]).collect();
        format!("{}({})", names[device][0], parts.join(" "))
    };
    let both = format!("{} {}", device(0, &[0, 1, 2, 3]), device(1, &[0, 1, 2, 3]));
    assert_eq!(all, both);
    for (mask, expected) in [
        ("0, 1", both.clone()),
        ("0", device(0, &[0, 1, 2, 3])),
        ("1", device(1, &[0, 1, 2, 3])),
        ("0.0", format!("{}()", names[0][1])),
        ("1.1, 1.2", device(1, &[1, 2])),
        ("0.2, 1.3, 1.0, 0.3", format!("{} {}", device(0, &[2, 3]), device(1, &[0, 3]))),
    ] {
        assert_eq!(shown_with(&[&TWO_BY_FOUR, &[("ZE_AFFINITY_MASK", mask)]]), expected, "{mask}");
    }
    let flat = [("ZE_FLAT_DEVICE_HIERARCHY", "FLAT"), ("ZE_AFFINITY_MASK", "1,6")];
    let expected = format!("{}() {}()", names[0][2], names[1][3]);
    assert_eq!(shown_with(&[&TWO_BY_FOUR, &flat]), expected, "the mask counts parts");
    let ordered = [("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1")];
    assert_eq!(shown_with(&[&TWO_BY_FOUR, &ordered]), both, "they are in this order already");
}

#[test]
fn flat_and_combined_show_parts_as_devices() {
    for hierarchy in ["FLAT", "COMBINED"] {
        run("parts_are_devices", &[&TWO_BY_TWO, &[("ZE_FLAT_DEVICE_HIERARCHY", hierarchy)]]);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn parts_are_devices() {
    let combined = std::env::var("ZE_FLAT_DEVICE_HIERARCHY").is_ok_and(|it| it == "COMBINED");
    let gpu = Gpu::new();
    let devices = devices();
    assert_eq!(devices.len(), 4);
    for (i, &device) in devices.iter().enumerate() {
        assert!(parts(device).is_empty());
        assert_eq!(is_part(device), combined);
        let root = root(device);
        assert_eq!(root.is_null(), !combined);
        if combined {
            assert_eq!(parts(root)[i % 2], device);
            on(&gpu, root).immediate(0, true).synchronize();
        }
        on(&gpu, device).immediate(0, true).synchronize();
    }
}

#[test]
fn a_part_has_its_own_memory_and_its_device_may_have_more() {
    run("memory_runs_out", &[&TWO_BY_TWO]);
}

#[test]
#[ignore = "runs in a child process"]
fn memory_runs_out() {
    let gpu = Gpu::new();
    let device = devices()[0];
    let part = parts(device)[0];
    let chunk = memory(part) / 4;
    let allocate = |device| {
        let desc = ze_device_mem_alloc_desc_t::default();
        let mut memory = ptr::null_mut();
        let context = gpu.context;
        let size = chunk as usize;
        let result =
            call!(zeMemAllocDevice(context, &raw const desc, size, 0, device, &raw mut memory));
        if result == ze_result_t::ZE_RESULT_SUCCESS { Ok(memory) } else { Err(result) }
    };
    // "when using a sub-device handle, the driver will attempt to place any device memory allocations
    // in the local memory that is attached to the sub-device."
    let mut own: Vec<_> = (0..4).map(|_| allocate(part).expect("its memory")).collect();
    // "If the API call returns ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, then the application may attempt
    // to retry using the parent device."
    assert_eq!(allocate(part), Err(ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
    own.push(allocate(device).expect("the parent has more"));
    let owner = |memory: *mut std::ffi::c_void| {
        let mut properties = ze_memory_allocation_properties_t::default();
        let mut device = ze_device_handle_t::NULL;
        check!(zeMemGetAllocProperties(gpu.context, memory, &raw mut properties, &raw mut device));
        device
    };
    assert_eq!((owner(own[0]), owner(own[4])), (part, device));
    check!(zeMemFree(gpu.context, own[0]));
    own[0] = allocate(part).expect("what was freed is there again");
    let text = refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
        zeMemAllocDevice(
            gpu.context,
            &ze_device_mem_alloc_desc_t::default(),
            memory(part) as usize + 1,
            0,
            part,
            &mut ptr::null_mut()
        )
    );
    assert!(text.contains("maxMemAllocSize"), "{text}");
    for memory in own {
        check!(zeMemFree(gpu.context, memory));
    }
}

/// "Forces all shared allocations into device memory"
#[test]
fn shared_memory_can_be_made_to_count_as_the_devices() {
    run("shared_memory", &[&TWO_BY_TWO, &[("ZE_SHARED_FORCE_DEVICE_ALLOC", "1")]]);
    run("shared_memory", &[&TWO_BY_TWO]);
}

#[test]
#[ignore = "runs in a child process"]
fn shared_memory() {
    let gpu = Gpu::new();
    let part = parts(devices()[0])[0];
    let size = memory(part) as usize;
    let allocate = |size| {
        let mut memory = ptr::null_mut();
        call!(zeMemAllocShared(
            gpu.context,
            &ze_device_mem_alloc_desc_t::default(),
            &ze_host_mem_alloc_desc_t::default(),
            size,
            0,
            part,
            &raw mut memory
        ))
    };
    assert_eq!(allocate(size), ze_result_t::ZE_RESULT_SUCCESS);
    let forced = std::env::var_os("ZE_SHARED_FORCE_DEVICE_ALLOC").is_some();
    let full = allocate(4096) == ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    assert_eq!(full, forced);
}

#[test]
fn every_part_runs_kernels_on_memory_of_all() {
    run("kernels_everywhere", &[&TWO_BY_TWO]);
}

#[test]
#[ignore = "runs in a child process"]
fn kernels_everywhere() {
    let gpu = Gpu::new();
    let all: Vec<_> = devices().into_iter().flat_map(|it| [vec![it], parts(it)].concat()).collect();
    let spirv = ze::spirv("saxpy");
    let n = 1000_u32;
    let y = on(&gpu, all[1]).device_memory::<f32>(n as usize);
    y.fill_with(|_| 0.0);
    for (round, &device) in all.iter().enumerate() {
        let own = on(&gpu, device);
        let module = own.module(&spirv, "").expect("it builds");
        let kernel = own.kernel(module, "saxpy");
        check!(zeKernelSetGroupSize(kernel, 100, 1, 1));
        // "A driver is required to make device memory allocations on the parent device visible to its
        // sub-devices." Here all reach all.
        let x = own.device_memory::<f32>(n as usize);
        x.fill_with(|i| i as f32);
        let set = |index, size, value: *const std::ffi::c_void| {
            check!(zeKernelSetArgumentValue(kernel, index, size, value));
        };
        let (x_at, y_at, a) = (x.ptr(), y.ptr(), 1.0_f32);
        set(0, 4, (&raw const a).cast());
        set(1, 8, (&raw const x_at).cast());
        set(2, 8, (&raw const y_at).cast());
        set(3, 4, (&raw const n).cast());
        // "the application must determine the ordinal from calling
        // zeDeviceGetCommandQueueGroupProperties using the sub-device handle."
        let groups = groups(device);
        let last = groups[0].numQueues - 1;
        let desc = ze_command_queue_desc_t { ordinal: 0, index: last, ..Default::default() };
        let list = own.immediate_of(&desc);
        let count = ze_group_count_t { groupCountX: 10, groupCountY: 1, groupCountZ: 1 };
        let none = ze_event_handle_t::NULL;
        check!(zeCommandListAppendLaunchKernel(
            list.0,
            kernel,
            &raw const count,
            none,
            0,
            ptr::null_mut()
        ));
        list.synchronize();
        assert_eq!(y.get(999), 999.0 * (round + 1) as f32);
        let mut answered = ze_device_handle_t::NULL;
        check!(zeCommandListGetDeviceHandle(list.0, &raw mut answered));
        assert_eq!(answered, device);
        let beyond = ze_command_queue_desc_t { index: last + 1, ..desc };
        let mut queue = ze_command_queue_handle_t::NULL;
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandQueueCreate(gpu.context, device, &raw const beyond, &raw mut queue)
        );
        check!(zeKernelDestroy(kernel));
        check!(zeModuleDestroy(module));
    }
}

/// "do two devices support peer-to-peer access?"
#[test]
fn devices_and_parts_reach_each_other() {
    run("peers", &[&TWO_BY_TWO]);
}

#[test]
#[ignore = "runs in a child process"]
fn peers() {
    use ze_device_p2p_property_flags_t as p2p;
    let all: Vec<_> = devices().into_iter().flat_map(|it| [vec![it], parts(it)].concat()).collect();
    for &device in &all {
        for &peer in &all {
            let mut can = 0;
            check!(zeDeviceCanAccessPeer(device, peer, &raw mut can));
            let mut properties = ze_device_p2p_properties_t::default();
            check!(zeDeviceGetP2PProperties(device, peer, &raw mut properties));
            // "return the same information"
            assert_eq!(can, 1);
            assert!(properties.flags.contains(p2p::ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS));
            assert!(properties.flags.contains(p2p::ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS));
        }
        let mut access = ze_device_memory_access_properties_t::default();
        check!(zeDeviceGetMemoryAccessProperties(device, &raw mut access));
        assert!(!access.sharedCrossDeviceAllocCapabilities.is_empty());
    }
}

#[test]
fn a_context_is_for_its_devices_and_their_parts() {
    run("contexts_of_some", &[&TWO_BY_TWO]);
}

#[test]
#[ignore = "runs in a child process"]
fn contexts_of_some() {
    let devices = devices();
    let context_of = |devices: &[ze_device_handle_t]| {
        let desc = ze_context_desc_t::default();
        let mut context = ze_context_handle_t::NULL;
        let (count, first) = (devices.len() as u32, devices.as_ptr().cast_mut());
        check!(zeContextCreateEx(ze::driver(), &raw const desc, count, first, &raw mut context));
        Gpu { device: devices[0], context }
    };
    let refuses = |gpu: &Gpu, device| {
        let desc = ze_device_mem_alloc_desc_t::default();
        let text = refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeMemAllocDevice(gpu.context, &raw const desc, 64, 0, device, &mut ptr::null_mut())
        );
        assert!(text.contains("hDevice"), "{text}");
    };
    let first = context_of(&devices[..1]);
    drop(on(&first, parts(devices[0])[1]).device_memory::<u8>(64));
    refuses(&first, devices[1]);
    let part = context_of(&[parts(devices[0])[1]]);
    refuses(&part, devices[0]);
    refuses(&part, parts(devices[0])[0]);
    let both = context_of(&devices);
    for &device in &devices {
        on(&both, device).immediate(0, true).synchronize();
    }
    // "memory is not implicitly shared across all devices supported by a driver. However, it is
    // available to be explicitly shared." Copies cross contexts.
    let (from, to) = (first.host::<u32>(1), both.host::<u32>(1));
    from.set(0, 7);
    let list = on(&both, devices[1]).immediate(0, true);
    list.copy((&to, 0), (&from, 0), 1, None, &[]);
    list.synchronize();
    assert_eq!(to.get(0), 7);
}

/// "A command list is created for execution on a specific type of command queue": of its device.
#[test]
fn lists_are_executed_on_queues_of_their_device_and_its_parts() {
    run("lists_of_others", &[&TWO_BY_TWO]);
}

#[test]
#[ignore = "runs in a child process"]
fn lists_of_others() {
    let gpu = Gpu::new();
    let [first, second] = [devices()[0], devices()[1]];
    let [one, two] = [parts(first)[0], parts(first)[1]];
    for (of, fits, others) in [
        (first, vec![first, one, two], vec![second, parts(second)[0]]),
        (one, vec![first, one], vec![two, second, parts(second)[0]]),
    ] {
        let (memory, list) = (gpu.host::<u32>(1), on(&gpu, of).regular(0, true));
        list.set((&memory, 0), 7, None, &[]);
        list.close();
        for device in others {
            let (queue, immediate) =
                (on(&gpu, device).queue(0), on(&gpu, device).immediate(0, true));
            let (mut raw, waits, fence) = (list.0, ptr::null_mut(), ze_fence_handle_t::NULL);
            let text = refused!(
                ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
                zeCommandQueueExecuteCommandLists(queue.0, 1, &raw mut raw, fence)
            );
            assert!(text.contains("of device 0"), "{text}");
            let none = ze_event_handle_t::NULL;
            refused!(
                ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
                zeCommandListImmediateAppendCommandListsExp(
                    immediate.0,
                    1,
                    &raw mut raw,
                    none,
                    0,
                    waits
                )
            );
        }
        for device in fits {
            memory.set(0, 0);
            let queue = on(&gpu, device).queue(0);
            queue.execute(&[&list], None);
            queue.synchronize();
            assert_eq!(memory.get(0), 7);
        }
    }
}

/// "A command list can be copied to create another command list. The application may use this to copy a
/// command list for use on a different device."
#[test]
fn a_copy_of_a_list_is_executed_on_another_device() {
    run("copy_for_another", &[&TWO_BY_TWO]);
}

#[test]
#[ignore = "runs in a child process"]
fn copy_for_another() {
    let gpu = Gpu::new();
    let [first, second] = [devices()[0], devices()[1]];
    let desc = ze_command_list_desc_t {
        flags: ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE,
        ..Default::default()
    };
    let (mut list, mut copy) = (ze_command_list_handle_t::NULL, ze_command_list_handle_t::NULL);
    check!(zeCommandListCreate(gpu.context, first, &raw const desc, &raw mut list));
    let (memory, list) = (gpu.host::<u32>(1), List(list));
    list.set((&memory, 0), 7, None, &[]);
    list.close();
    check!(zeCommandListCreateCloneExp(list.0, &raw mut copy));
    let (copy, queue) = (List(copy), on(&gpu, second).queue(0));
    queue.execute(&[&copy], None);
    queue.synchronize();
    assert_eq!(memory.get(0), 7);
}

#[test]
fn lists_of_one_device_wait_for_events_of_another() {
    run("events_between", &[&TWO_BY_TWO]);
}

#[test]
#[ignore = "runs in a child process"]
fn events_between() {
    let gpu = Gpu::new();
    let [first, second] = [devices()[0], devices()[1]];
    let (one, two) = (on(&gpu, first), on(&gpu, parts(second)[1]));
    let data = gpu.host::<u32>(2);
    let gate = Gate::new(&gpu);
    let (produced, consumed) = (one.cb_event(), two.cb_event());
    let (producer, consumer) = (one.immediate(0, true), two.immediate(1, true));
    producer.wait(&[&gate.event]);
    producer.set((&data, 0), 5, Some(&produced), &[]);
    consumer.copy((&data, 1), (&data, 0), 1, Some(&consumed), &[&produced]);
    assert!(!consumed.is_ready());
    // Work of the other devices does not block an idle one.
    check!(zeDeviceSynchronize(parts(second)[0]));
    gate.open();
    consumed.synchronize();
    assert_eq!(data.get(1), 5);
    // The same with lists that are recorded for one device each.
    let (recorded, queue) = (two.regular(0, true), two.queue(0));
    recorded.set((&data, 1), 9, Some(&consumed), &[&produced]);
    recorded.close();
    queue.execute(&[&recorded], None);
    producer.copy((&data, 0), (&data, 1), 1, Some(&produced), &[&consumed]);
    produced.synchronize();
    assert_eq!(data.get(0), 9);
    check!(zeDeviceSynchronize(first));
    check!(zeDeviceSynchronize(second));
}

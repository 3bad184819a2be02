// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices and contexts through the stock loader.

use std::ffi::{CStr, c_char};
use std::time::{Duration, Instant};
use std::{ptr, thread};

use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

fn properties(stype: ze_structure_type_t) -> ze_device_properties_t {
    let mut properties = ze_device_properties_t { stype, ..Default::default() };
    check!(zeDeviceGetProperties(ze::device(), &raw mut properties));
    properties
}

#[test]
fn the_device_is_an_integrated_gpu_with_a_name_and_a_stable_uuid() {
    let stype = ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    let (first, second) = (properties(stype), properties(stype));
    assert_eq!(first.r#type, ze_device_type_t::ZE_DEVICE_TYPE_GPU);
    assert!(first.flags.contains(ze_device_property_flags_t::ZE_DEVICE_PROPERTY_FLAG_INTEGRATED));
    assert_eq!(first.uuid.id, second.uuid.id);
    assert_ne!(first.uuid.id, [0; 16]);
    // SAFETY: the driver ends the name with a NUL.
    let name = unsafe { CStr::from_ptr(first.name.as_ptr()) };
    assert!(name.to_string_lossy().contains("Tally"));
    assert!(first.maxMemAllocSize > 0 && first.numEUsPerSubslice > 0);
}

#[test]
fn the_timer_is_in_ns_for_the_plain_stype_and_in_hz_for_1_2() {
    let plain = properties(ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
    let in_hz = properties(ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2);
    assert_eq!(plain.timerResolution * in_hz.timerResolution, 1_000_000_000);
    assert!(in_hz.timerResolution > plain.timerResolution, "the clock has more than 31,623 Hz");
    let bits = plain.kernelTimestampValidBits;
    assert!((32..64).contains(&bits), "(1 << bits) - 1 must be a mask: {bits}");
}

#[test]
fn properties_with_another_stype_are_refused() {
    let mut wrong = ze_device_module_properties_t {
        stype: ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES,
        ..Default::default()
    };
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeDeviceGetModuleProperties(ze::device(), &raw mut wrong)
    );
}

#[test]
fn chained_properties_are_filled_and_unknown_ones_left_alone() {
    let mut unknown =
        ze_base_properties_t { stype: ze_structure_type_t(0x7fff_0000), ..Default::default() };
    let mut eus = ze_eu_count_ext_t { pNext: (&raw mut unknown).cast(), ..Default::default() };
    let mut device = ze_device_properties_t { pNext: (&raw mut eus).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(ze::device(), &raw mut device));
    assert_eq!(eus.numTotalEUs, device.numEUsPerSubslice);
}

#[test]
fn memory_that_is_left_and_lines_of_the_cache_are_told() {
    let gpu = Gpu::new();
    let usable = || {
        let mut memory = ze_device_usablemem_size_ext_properties_t::default();
        let mut properties =
            ze_device_properties_t { pNext: (&raw mut memory).cast(), ..Default::default() };
        check!(zeDeviceGetProperties(gpu.device, &raw mut properties));
        assert!(memory.currUsableMemSize <= properties.maxMemAllocSize);
        memory.currUsableMemSize
    };
    // Other tests allocate too, but far less.
    let (before, size) = (usable(), 1 << 30);
    let _memory = gpu.device_memory::<u8>(size);
    assert!(usable() + size as u64 / 2 <= before);
    let mut line = ze_device_cache_line_size_ext_t::default();
    let mut cache =
        ze_device_cache_properties_t { pNext: (&raw mut line).cast(), ..Default::default() };
    check!(zeDeviceGetCacheProperties(gpu.device, &mut 1, &raw mut cache));
    assert!(line.cacheLineSize.is_power_of_two() && line.cacheLineSize >= 32);
}

/// Libraries know only Intel's architectures, and use their SPIR-V for this device.
#[test]
fn the_architecture_is_one_that_libraries_know() {
    let mut ip = ze_device_ip_version_ext_t::default();
    let mut properties =
        ze_device_properties_t { pNext: (&raw mut ip).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(ze::device(), &raw mut properties));
    assert_eq!(ip.ipVersion, 12 << 22 | 2 << 14, "architecture 12.2, revision 0");
}

#[test]
fn a_chain_that_is_a_circle_ends() {
    let mut eus = ze_eu_count_ext_t::default();
    let cycle: *const ze_eu_count_ext_t = &raw const eus;
    eus.pNext = cycle.cast();
    let mut device = ze_device_properties_t { pNext: (&raw mut eus).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(ze::device(), &raw mut device));
}

#[test]
fn a_root_device_has_no_root_and_no_parts() {
    let mut root = ze_device_handle_t(ptr::without_provenance_mut(8));
    check!(zeDeviceGetRootDevice(ze::device(), &raw mut root));
    assert!(root.is_null());
    let mut count = 7;
    check!(zeDeviceGetSubDevices(ze::device(), &raw mut count, ptr::null_mut()));
    assert_eq!(count, 0);
}

#[test]
fn group_zero_computes_and_another_group_only_copies() {
    use ze_command_queue_group_property_flags_t as flag;
    let mut count = 0;
    let device = ze::device();
    check!(zeDeviceGetCommandQueueGroupProperties(device, &raw mut count, ptr::null_mut()));
    let mut groups = vec![ze_command_queue_group_properties_t::default(); count as usize];
    check!(zeDeviceGetCommandQueueGroupProperties(device, &raw mut count, groups.as_mut_ptr()));
    let compute = flag::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
    let copy = flag::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
    let cooperative = flag::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS;
    assert_eq!(groups[0].flags, compute | copy | cooperative);
    assert_eq!(groups[1].flags, copy);
    assert!(groups.iter().all(|it| it.numQueues > 0));
    let patterns: Vec<usize> = groups.iter().map(|it| it.maxMemoryFillPatternSize).collect();
    assert_eq!(patterns, [usize::MAX, 128]);
}

#[test]
fn limits_are_those_of_the_hardware_manual() {
    let mut compute = ze_device_compute_properties_t::default();
    check!(zeDeviceGetComputeProperties(ze::device(), &raw mut compute));
    assert_eq!(compute.maxTotalGroupSize, 1024);
    assert_eq!(compute.maxSharedLocalMemory, 64 << 10);
    assert_eq!(compute.numSubGroupSizes, 3);
    assert_eq!(compute.subGroupSizes[..3], [8, 16, 32]);
    let mut module = ze_device_module_properties_t::default();
    let mut atomics = ze_float_atomic_ext_properties_t::default();
    module.pNext = (&raw mut atomics).cast();
    check!(zeDeviceGetModuleProperties(ze::device(), &raw mut module));
    assert!(module.flags.contains(ze_device_module_flags_t::ZE_DEVICE_MODULE_FLAG_FP64));
    assert!(module.flags.contains(ze_device_module_flags_t::ZE_DEVICE_MODULE_FLAG_DP4A));
    let all = ze_device_fp_atomic_ext_flags_t::all();
    assert_eq!([atomics.fp16Flags, atomics.fp32Flags, atomics.fp64Flags], [all; 3]);
}

#[test]
fn memory_cache_and_images_have_sizes() {
    let device = ze::device();
    let mut count = 1;
    let mut memory = ze_device_memory_properties_t::default();
    check!(zeDeviceGetMemoryProperties(device, &raw mut count, &raw mut memory));
    assert!(count == 1 && memory.totalSize > 0);
    let mut cache = ze_device_cache_properties_t::default();
    check!(zeDeviceGetCacheProperties(device, &raw mut count, &raw mut cache));
    assert!(count == 1 && cache.cacheSize > 0);
    let mut image = ze_device_image_properties_t::default();
    check!(zeDeviceGetImageProperties(device, &raw mut image));
    // OpenCL requires these limits of every device with images.
    assert!(image.maxImageDims2D >= 16384 && image.maxImageDims3D >= 2048);
    assert!(image.maxImageArraySlices >= 2048 && image.maxImageBufferSize >= 65536);
    let mut access = ze_device_memory_access_properties_t::default();
    check!(zeDeviceGetMemoryAccessProperties(device, &raw mut access));
    let rw = ze_memory_access_cap_flags_t::ZE_MEMORY_ACCESS_CAP_FLAG_RW;
    assert!(access.hostAllocCapabilities.contains(rw));
}

#[test]
fn a_device_is_its_own_peer() {
    let device = ze::device();
    let mut can = 0;
    check!(zeDeviceCanAccessPeer(device, device, &raw mut can));
    assert_eq!(can, 1);
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeDeviceCanAccessPeer(device, ze_device_handle_t::NULL, &raw mut can)
    );
}

/// Each clock goes forward by as much as the program's own, which is read in front of each call and behind it: a thread
/// may stand still between any two of these.
#[test]
fn both_clocks_go_forward_at_the_same_rate() {
    let device = ze::device();
    let read = || {
        let (mut host, mut ticks) = (0, 0);
        let before = Instant::now();
        check!(zeDeviceGetGlobalTimestamps(device, &raw mut host, &raw mut ticks));
        (before, [host, ticks], Instant::now())
    };
    let first = read();
    thread::sleep(Duration::from_millis(5));
    let second = read();
    let [least, most] = [second.0 - first.2, second.2 - first.0].map(|it| it.as_nanos() as u64);
    // The program's clock may be adjusted by half a thousandth.
    let slack = most / 1000 + 1000;
    for (from, to) in first.1.into_iter().zip(second.1) {
        let passed = to.checked_sub(from).expect("clocks go forward");
        assert!(
            (least - slack..=most + slack).contains(&passed),
            "{passed} ns, of {least} to {most}"
        );
    }
}

#[test]
fn contexts_are_made_checked_and_destroyed() {
    let gpu = Gpu::new();
    check!(zeContextGetStatus(gpu.context));
    check!(zeContextSystemBarrier(gpu.context, gpu.device));
    let desc = ze_context_desc_t::default();
    let (mut devices, mut other) = ([gpu.device], ze_context_handle_t::NULL);
    let driver = ze::driver();
    check!(zeContextCreateEx(driver, &raw const desc, 1, devices.as_mut_ptr(), &raw mut other));
    assert_ne!(other, gpu.context);
    check!(zeContextDestroy(other));
    let text = refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeContextGetStatus(other));
    assert!(text.contains("has been destroyed"), "{text}");
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeContextDestroy(other));
}

#[test]
fn contexts_refuse_what_the_specification_does_not_know() {
    let driver = ze::driver();
    let mut context = ze_context_handle_t::NULL;
    let desc = ze_context_desc_t::default();
    let (desc, out) = (&raw const desc, &raw mut context);
    let mut none = ze_device_handle_t::NULL;
    refused!(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeContextCreate(driver, ptr::null(), out));
    refused!(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeContextCreate(driver, desc, ptr::null_mut()));
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeContextCreateEx(driver, desc, 1, ptr::null_mut(), out)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeContextCreateEx(driver, desc, 1, &raw mut none, out)
    );
    let mut wrong = ze_context_desc_t {
        flags: ze_context_flags_t::from_bits_retain(1 << 20),
        ..Default::default()
    };
    refused!(ZE_RESULT_ERROR_INVALID_ENUMERATION, zeContextCreate(driver, &raw const wrong, out));
    wrong = ze_context_desc_t::default();
    wrong.stype = ze_structure_type_t::ZE_STRUCTURE_TYPE_FENCE_DESC;
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeContextCreate(driver, &raw const wrong, out));
    assert!(context.is_null(), "a refused call writes nothing");
    let answer = call!(zeDeviceGetStatus(ze::device()));
    assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS);
}

#[test]
fn a_device_without_a_bus_says_what_it_does_not_know() {
    let mut pci = ze_pci_ext_properties_t::default();
    check!(zeDevicePciGetPropertiesExt(ze::device(), &raw mut pci));
    assert_eq!((pci.maxSpeed.genVersion, pci.maxSpeed.maxBandwidth), (-1, -1));
    // Some known programs leave out the stype.
    pci.stype = ze_structure_type_t(0);
    check!(zeDevicePciGetPropertiesExt(ze::device(), &raw mut pci));
}

#[test]
fn native_vectors_fill_the_units_lanes() {
    let (mut count, mut width) = (1, ze_device_vector_width_properties_ext_t::default());
    check!(zeDeviceGetVectorWidthPropertiesExt(ze::device(), &raw mut count, &raw mut width));
    assert_eq!(count, 1);
    assert_eq!(width.native_vector_width_float, width.vector_width_size);
    assert_eq!(width.native_vector_width_char, 4 * width.native_vector_width_int);
}

/// Brand, vendor and model from system management.
fn sysman_names() -> String {
    let (mut one, mut driver) = (1, zes_driver_handle_t::NULL);
    check!(zesInit(zes_init_flags_t::empty()));
    check!(zesDriverGet(&raw mut one, &raw mut driver));
    let mut device = zes_device_handle_t::NULL;
    check!(zesDeviceGet(driver, &raw mut one, &raw mut device));
    let mut it = zes_device_properties_t::default();
    check!(zesDeviceGetProperties(device, &raw mut it));
    // SAFETY: the driver ends each name with a NUL.
    let text =
        |field: &[c_char]| unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned();
    format!("{}, {}, {}", text(&it.brandName), text(&it.vendorName), text(&it.modelName))
}

/// The properties of the device by which programs choose: those that a name in `TALLY_DEVICE_AS`
/// changes, and others that stay.
#[test]
#[ignore = "runs in a child process"]
fn child_that_says_what_it_is() {
    let mut ip = ze_device_ip_version_ext_t::default();
    let mut eus = ze_eu_count_ext_t { pNext: (&raw mut ip).cast(), ..Default::default() };
    let mut it = ze_device_properties_t { pNext: (&raw mut eus).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(ze::device(), &raw mut it));
    // SAFETY: the driver ends the name with a NUL.
    let name = unsafe { CStr::from_ptr(it.name.as_ptr()) }.to_string_lossy();
    println!(
        "changes: {name}, {:x}:{:x}, {:#x}, {} x {} x {} = {}, {} threads of {} lanes at {} MHz",
        it.vendorId,
        it.deviceId,
        ip.ipVersion,
        it.numSlices,
        it.numSubslicesPerSlice,
        it.numEUsPerSubslice,
        eus.numTotalEUs,
        it.numThreadsPerEU,
        it.physicalEUSimdWidth,
        it.coreClockRate,
    );
    println!("sysman: {}", sysman_names());
    let mut compute = ze_device_compute_properties_t::default();
    check!(zeDeviceGetComputeProperties(ze::device(), &raw mut compute));
    let mut module = ze_device_module_properties_t::default();
    check!(zeDeviceGetModuleProperties(ze::device(), &raw mut module));
    println!(
        "stays: {:?} {:x?} {:?}",
        it.flags,
        it.uuid.id,
        (it.maxMemAllocSize, it.timerResolution)
    );
    println!("stays: {compute:?}");
    println!("stays: {:?} {:?}", module.flags, module.fp64flags);
    // Libraries that have binaries for the GPU must use their SPIR-V instead.
    let gpu = Gpu::new();
    let elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\xcd\0\x01\0\0\0";
    let desc = ze_module_desc_t {
        format: ze_module_format_t::ZE_MODULE_FORMAT_NATIVE,
        inputSize: elf.len(),
        pInputModule: elf.as_ptr(),
        ..Default::default()
    };
    let mut module = ze_module_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_INVALID_NATIVE_BINARY,
        zeModuleCreate(gpu.context, gpu.device, &raw const desc, &raw mut module, ptr::null_mut())
    );
}

// docs/clients.md: "changes these answers and no others"
#[test]
fn the_device_passes_for_another_gpu_and_stays_what_it_is() {
    let said = |variables: &[(&str, &str)]| {
        let said = ze::in_child("child_that_says_what_it_is", variables);
        let lines = |word: &str| -> Vec<String> {
            // The name of the test may precede it.
            said.lines().filter_map(|line| Some(line.split_once(word)?.1.to_owned())).collect()
        };
        (lines("changes: ").concat(), lines("sysman: ").concat(), lines("stays: "))
    };
    let (own, sysman, stays) = said(&[]);
    assert!(own.starts_with("Tally virtual GPU, ") && own.contains(", 0x3008000, "), "{own}");
    assert_eq!(sysman, "Tally, Tally, Tally virtual GPU");
    for (key, name, numbers) in [
        (
            "uhd-630",
            "Intel(R) UHD Graphics 630",
            "8086:3e92, 0x2404009, 1 x 3 x 8 = 24, 7 threads of 8 lanes at 1200 MHz",
        ),
        (
            "uhd-770",
            "Intel(R) UHD Graphics 770",
            "8086:4680, 0x3008000, 1 x 2 x 16 = 32, 7 threads of 8 lanes at 1550 MHz",
        ),
        (
            "arc-a770",
            "Intel(R) Arc(TM) A770 Graphics",
            "8086:56a0, 0x30dc008, 8 x 4 x 16 = 512, 8 threads of 8 lanes at 2400 MHz",
        ),
        (
            "arc-b580",
            "Intel(R) Arc(TM) B580 Graphics",
            "8086:e20b, 0x5004004, 5 x 4 x 8 = 160, 8 threads of 16 lanes at 2850 MHz",
        ),
        (
            "max-1100",
            "Intel(R) Data Center GPU Max 1100",
            "8086:bda, 0x30f0007, 1 x 56 x 8 = 448, 8 threads of 16 lanes at 1550 MHz",
        ),
    ] {
        let (changes, sysman, others) = said(&[("TALLY_DEVICE_AS", key)]);
        assert_eq!(changes, format!("{name}, {numbers}"));
        assert_eq!(sysman, format!("Intel(R) Corporation, Intel(R) Corporation, {name}"));
        assert_eq!(others, stays, "{key}");
    }
    assert_eq!(said(&[("TALLY_DEVICE_AS", "a770")]).0, own, "an unknown name changes nothing");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_says_what_its_part_is() {
    let mut one = 1;
    let mut part = ze_device_handle_t::NULL;
    check!(zeDeviceGetSubDevices(ze::device(), &raw mut one, &raw mut part));
    let mut eus = ze_eu_count_ext_t::default();
    let mut it = ze_device_properties_t { pNext: (&raw mut eus).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(part, &raw mut it));
    println!(
        "part: {} x {} x {} = {}",
        it.numSlices, it.numSubslicesPerSlice, it.numEUsPerSubslice, eus.numTotalEUs
    );
}

// docs/clients.md: "A sub-device says its share of the slices, and at least one."
#[test]
fn a_part_of_a_device_that_passes_for_another_has_its_share() {
    for (key, expected) in
        [("arc-a770", "part: 4 x 4 x 16 = 256"), ("uhd-770", "part: 1 x 2 x 16 = 32")]
    {
        let variables = [("TALLY_DEVICE_AS", key), ("TALLY_SUBDEVICES", "2")];
        let said = ze::in_child("child_that_says_what_its_part_is", &variables);
        assert!(said.contains(expected), "{key}: {said}");
    }
}

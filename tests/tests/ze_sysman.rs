// SPDX-License-Identifier: MIT OR Apache-2.0
//! System management through the stock loader.

use std::ffi::c_char;
use std::ptr;

use tally_tests::gate::Gate;
use tally_tests::peer::Peer;
use tally_tests::ze::{self, Gpu};
use tally_tests::{check, refused};
use tally_ze::*;

/// Devices of system management. It is initialised once: a process may use either interface, or both.
fn devices() -> Vec<zes_device_handle_t> {
    check!(zesInit(zes_init_flags_t::empty()));
    let (mut count, mut drivers) = (4, [zes_driver_handle_t::NULL; 4]);
    check!(zesDriverGet(&raw mut count, drivers.as_mut_ptr()));
    assert_eq!(count, 1);
    let (mut count, mut devices) = (16, [zes_device_handle_t::NULL; 16]);
    check!(zesDeviceGet(drivers[0], &raw mut count, devices.as_mut_ptr()));
    devices[..count as usize].to_vec()
}

fn properties(device: zes_device_handle_t) -> zes_device_properties_t {
    let mut properties = zes_device_properties_t::default();
    check!(zesDeviceGetProperties(device, &raw mut properties));
    properties
}

fn engines(device: zes_device_handle_t) -> Vec<(zes_engine_handle_t, zes_engine_properties_t)> {
    let (mut count, mut all) = (32, [zes_engine_handle_t::default(); 32]);
    check!(zesDeviceEnumEngineGroups(device, &raw mut count, all.as_mut_ptr()));
    let facts = |&engine: &zes_engine_handle_t| {
        let mut properties = zes_engine_properties_t::default();
        check!(zesEngineGetProperties(engine, &raw mut properties));
        (engine, properties)
    };
    all[..count as usize].iter().map(facts).collect()
}

fn activity(engine: zes_engine_handle_t) -> zes_engine_stats_t {
    let mut stats = zes_engine_stats_t::default();
    check!(zesEngineGetActivity(engine, &raw mut stats));
    stats
}

fn memories(device: zes_device_handle_t) -> Vec<zes_mem_handle_t> {
    let (mut count, mut all) = (16, [zes_mem_handle_t::default(); 16]);
    check!(zesDeviceEnumMemoryModules(device, &raw mut count, all.as_mut_ptr()));
    all[..count as usize].to_vec()
}

fn free(memory: zes_mem_handle_t) -> u64 {
    let mut state = zes_mem_state_t::default();
    check!(zesMemoryGetState(memory, &raw mut state));
    assert_eq!(state.health, zes_mem_health_t::ZES_MEM_HEALTH_OK);
    assert!(state.free <= state.size);
    state.free
}

fn text(field: &[c_char]) -> String {
    field.iter().take_while(|&&it| it != 0).map(|&it| it as u8 as char).collect()
}

/// Runs an ignored test in a process of its own.
fn run(test: &str, variables: &[(&str, &str)]) {
    Peer::start_with(test, variables).finish();
}

#[test]
fn a_device_is_the_one_of_the_core_interface() {
    let device = devices()[0];
    let mut core = ze_device_properties_t::default();
    check!(zeDeviceGetProperties(ze::device(), &raw mut core));
    let mut more = zes_device_ext_properties_t::default();
    let mut all = zes_device_properties_t { pNext: (&raw mut more).cast(), ..Default::default() };
    check!(zesDeviceGetProperties(device, &raw mut all));
    assert_eq!(all.core.uuid.id, core.uuid.id);
    assert_eq!(more.uuid.id, core.uuid.id);
    assert_eq!(more.r#type, zes_device_type_t::ZES_DEVICE_TYPE_GPU);
    assert!(more.flags.contains(zes_device_property_flags_t::ZES_DEVICE_PROPERTY_FLAG_INTEGRATED));
    assert_eq!(all.numSubdevices, 0);
    assert!(text(&all.modelName).contains("Tally") && !text(&all.driverVersion).is_empty());
    let mut state = zes_device_state_t::default();
    check!(zesDeviceGetState(device, &raw mut state));
    assert!(state.reset.is_empty());
    let mut pci = zes_pci_properties_t::default();
    check!(zesDevicePciGetProperties(device, &raw mut pci));
    assert_eq!((pci.haveBandwidthCounters, pci.maxSpeed.maxBandwidth), (0, -1));
    let mut processes = [zes_process_state_t::default(); 4];
    let mut count = 4;
    check!(zesDeviceProcessesGetState(device, &raw mut count, processes.as_mut_ptr()));
    assert_eq!((count, processes[0].processId), (1, std::process::id()));
}

#[test]
fn it_can_be_used_without_the_core_interface() {
    run("without_zeinit", &[]);
    run("without_zeinit", &[("ZES_ENABLE_SYSMAN", "1")]);
}

#[test]
#[ignore = "runs in a child process"]
fn without_zeinit() {
    let device = devices()[0];
    assert!(text(&properties(device).core.name).contains("Tally"));
    // hwloc calls both interfaces, in this order.
    assert!(!ze::device().is_null());
}

#[test]
fn the_old_way_uses_handles_of_the_core_interface() {
    run("with_zes_enable_sysman", &[("ZES_ENABLE_SYSMAN", "1")]);
}

#[test]
#[ignore = "runs in a child process"]
fn with_zes_enable_sysman() {
    let device = ze::device();
    assert!(text(&properties(device).modelName).contains("Tally"));
    assert!(!engines(device).is_empty());
}

#[test]
fn an_engine_was_busy_as_long_as_it_had_work() {
    let device = devices()[0];
    let groups = engines(device);
    let kinds: Vec<_> = groups.iter().map(|(_, it)| it.r#type).collect();
    let all = zes_engine_group_t::ZES_ENGINE_GROUP_ALL;
    let compute = zes_engine_group_t::ZES_ENGINE_GROUP_COMPUTE_ALL;
    let copy = zes_engine_group_t::ZES_ENGINE_GROUP_COPY_ALL;
    assert_eq!(kinds, [all, compute, copy]);
    let copies = groups[2].0;
    let gpu = Gpu::new();
    let before = activity(copies);
    let (from, to) = (gpu.host::<u8>(64 << 20), gpu.host::<u8>(64 << 20));
    let list = gpu.immediate(1, true);
    list.copy((&to, 0), (&from, 0), 64 << 20, None, &[]);
    list.synchronize();
    let after = activity(copies);
    assert!(after.timestamp > before.timestamp);
    let busy = after.activeTime - before.activeTime;
    assert!(busy > 0, "a copy of 64 MiB takes time");
    assert!(busy <= after.timestamp - before.timestamp, "no more than there was");
    let (mut count, mut process) = (1, zes_process_state_t::default());
    check!(zesDeviceProcessesGetState(device, &raw mut count, &raw mut process));
    let dma = zes_engine_type_flags_t::ZES_ENGINE_TYPE_FLAG_DMA;
    assert!(process.engines.contains(dma), "{:?}", process.engines);
    drop(list);
    let last = activity(copies).activeTime;
    assert!(last >= after.activeTime, "what a queue did counts when it is gone");
}

#[test]
fn memory_that_is_allocated_is_not_free() {
    run("memory_state", &[]);
}

// In a process of its own, since other tests allocate too.
#[test]
#[ignore = "runs in a child process"]
fn memory_state() {
    let memories = memories(devices()[0]);
    assert_eq!(memories.len(), 1);
    let mut facts = zes_mem_properties_t::default();
    check!(zesMemoryGetProperties(memories[0], &raw mut facts));
    assert_eq!(facts.location, zes_mem_loc_t::ZES_MEM_LOC_SYSTEM);
    assert!(facts.physicalSize > 0);
    let gpu = Gpu::new();
    let before = free(memories[0]);
    let some = gpu.host::<u8>(8 << 20);
    let with_host = free(memories[0]);
    assert!(with_host + (8 << 20) <= before);
    let more = gpu.device_memory::<u8>(8 << 20);
    assert!(free(memories[0]) + (8 << 20) <= with_host);
    drop((some, more));
    assert!(free(memories[0]) >= with_host);
}

#[test]
fn parts_are_listed_with_their_device() {
    run("divided", &[("TALLY_DEVICES", "2"), ("TALLY_SUBDEVICES", "2")]);
}

#[test]
#[ignore = "runs in a child process"]
fn divided() {
    let devices = devices();
    assert_eq!(devices.len(), 2);
    let device = devices[1];
    assert_eq!(properties(device).numSubdevices, 2);
    let on_parts: Vec<_> =
        engines(device).iter().map(|(_, it)| (it.onSubdevice, it.subdeviceId)).collect();
    let expected = [(0, 0), (1, 0), (1, 1)].map(|it| [it; 3]).concat();
    assert_eq!(on_parts, expected);
    assert_eq!(memories(device).len(), 2);
    let (mut count, mut parts) = (4, [zes_subdevice_exp_properties_t::default(); 4]);
    check!(zesDeviceGetSubDevicePropertiesExp(device, &raw mut count, parts.as_mut_ptr()));
    assert_eq!((count, parts[1].subdeviceId), (2, 1));
    let (mut found, mut on_part, mut part) = (zes_device_handle_t::NULL, 0, 0);
    check!(zesDriverGetDeviceByUuidExp(
        ze::driver(),
        parts[1].uuid,
        &raw mut found,
        &raw mut on_part,
        &raw mut part
    ));
    assert_eq!((found, on_part, part), (device, 1, 1));
}

#[test]
fn what_the_device_does_not_have_is_a_list_of_none() {
    let device = devices()[0];
    let mut count;
    macro_rules! none {
        ($($name:ident)*) => {$(
            count = 7;
            check!($name(device, &raw mut count, ptr::null_mut()));
            assert_eq!(count, 0, stringify!($name));
        )*};
    }
    none!(zesDeviceEnumFans zesDeviceEnumFrequencyDomains zesDeviceEnumTemperatureSensors
        zesDeviceEnumPowerDomains zesDeviceEnumPsus zesDeviceEnumFabricPorts zesDeviceEnumFirmwares
        zesDeviceEnumLeds zesDeviceEnumSchedulers zesDeviceEnumStandbyDomains
        zesDeviceEnumRasErrorSets zesDeviceEnumPerformanceFactorDomains
        zesDeviceEnumDiagnosticTestSuites zesDevicePciGetBars);
    let mut ecc = 7;
    check!(zesDeviceEccAvailable(device, &raw mut ecc));
    assert_eq!((ecc, count), (0, 0));
}

/// "Will always be 0 when the haveReplayCounters member of zes_pci_properties_t is FALSE", and the same
/// of packets and bytes; the time is a "Monotonic timestamp counter in microseconds".
#[test]
fn a_link_that_counts_nothing_has_a_time() {
    let device = devices()[0];
    let mut facts = zes_pci_properties_t::default();
    check!(zesDevicePciGetProperties(device, &raw mut facts));
    let have = [facts.haveReplayCounters, facts.havePacketCounters, facts.haveBandwidthCounters];
    assert_eq!(have, [0; 3]);
    let stats = || {
        let mut stats = zes_pci_stats_t { replayCounter: 7, rxCounter: 7, ..Default::default() };
        check!(zesDevicePciGetStats(device, &raw mut stats));
        stats
    };
    let first = stats();
    let counters = [first.replayCounter, first.packetCounter, first.rxCounter, first.txCounter];
    assert_eq!(counters, [0; 4]);
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert!(stats().timestamp > first.timestamp);
    refused!(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zesDevicePciGetStats(device, ptr::null_mut()));
}

/// zesDeviceEventRegister: "Specify the list of events to listen to for a given device". A listener
/// for whom the list becomes empty has nothing to wait for.
#[test]
fn who_listens_for_nothing_does_not_wait() {
    run("nothing_to_hear", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn nothing_to_hear() {
    let device = devices()[0];
    let attach = zes_event_type_flags_t::ZES_EVENT_TYPE_FLAG_DEVICE_ATTACH;
    check!(zesDeviceEventRegister(device, attach));
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut device, mut events) = (devices()[0], attach);
        let (driver, mut count) = (ze::driver(), 9);
        let (listened, heard) = (&raw mut device, &raw mut events);
        check!(zesDriverEventListen(driver, u32::MAX, 1, listened, &raw mut count, heard));
        done.send((count, events)).expect("somebody waits for it");
    });
    let brief = std::time::Duration::from_millis(50);
    assert!(ended.recv_timeout(brief).is_err(), "no device comes");
    check!(zesDeviceEventRegister(device, zes_event_type_flags_t::empty()));
    assert_eq!(ended.recv(), Ok((0, zes_event_type_flags_t::empty())));
}

#[test]
fn a_lost_device_is_an_event_and_a_state() {
    run("lost", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn lost() {
    let mut device = devices()[0];
    let reset = zes_event_type_flags_t::ZES_EVENT_TYPE_FLAG_DEVICE_RESET_REQUIRED;
    check!(zesDeviceEventRegister(device, reset));
    let mut listen = |timeout: u64| {
        let (mut count, mut events) = (9, zes_event_type_flags_t::all());
        check!(zesDriverEventListenEx(
            ze::driver(),
            timeout,
            1,
            &raw mut device,
            &raw mut count,
            &raw mut events
        ));
        (count, events)
    };
    let nothing = (0, zes_event_type_flags_t::empty());
    assert_eq!(listen(0), nothing);
    let gpu = Gpu::new();
    assert_eq!(listen(20), nothing);
    let module = gpu.module(&ze::spirv("fault"), "").expect("it builds");
    let kernel = gpu.kernel(module, "fault");
    let (address, value) = (4096_u64, 1_u32);
    check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const address).cast()));
    check!(zeKernelSetArgumentValue(kernel, 1, 4, (&raw const value).cast()));
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    let list = gpu.immediate(0, true);
    let count = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let none = ze_event_handle_t::NULL;
    check!(zeCommandListAppendLaunchKernel(
        list.0,
        kernel,
        &raw const count,
        none,
        0,
        ptr::null_mut()
    ));
    assert_eq!(listen(60_000), (1, reset));
    assert_eq!(listen(0), nothing, "once is enough");
    let mut state = zes_device_state_t::default();
    check!(zesDeviceGetState(device, &raw mut state));
    assert_eq!(state.reset, zes_reset_reason_flags_t::ZES_RESET_REASON_FLAG_WEDGED);
    drop((list, gpu));
    check!(zeDeviceGetStatus(ze::device()));
    check!(zesDeviceGetState(device, &raw mut state));
    assert!(state.reset.is_empty());
}

/// hwloc and AdaptiveCpp query properties with structures that they do not initialise.
#[test]
fn structures_may_come_as_they_lie_in_memory() {
    let device = devices()[0];
    // SAFETY: the fields are numbers, pointers and arrays of these; any bits are a value of each.
    let mut facts: zes_mem_properties_t = unsafe { std::mem::transmute([0xa5_u8; 48]) };
    let next = facts.pNext;
    check!(zesMemoryGetProperties(memories(device)[0], &raw mut facts));
    assert!(facts.physicalSize > 0 && facts.physicalSize < 1 << 50);
    assert_eq!(facts.pNext, next, "what is no structure is neither followed nor written");
    let mut core = ze_device_properties_t {
        stype: ze_structure_type_t(0xd20),
        pNext: ptr::without_provenance_mut(8),
        ..Default::default()
    };
    check!(zeDeviceGetProperties(ze::device(), &raw mut core));
    assert_ne!(core.uuid.id, [0; 16]);
    let mut limits = ze_device_compute_properties_t {
        stype: ze_structure_type_t(0x81e3_6860),
        pNext: ptr::without_provenance_mut(8),
        ..Default::default()
    };
    check!(zeDeviceGetComputeProperties(ze::device(), &raw mut limits));
    assert_ne!(limits.maxTotalGroupSize, 0);
}

#[test]
fn bad_handles_and_pointers_are_refused() {
    let device = devices()[0];
    let mut properties = zes_device_properties_t::default();
    let gate = Gate::new(&Gpu::new());
    let wrong = ze_device_handle_t(gate.event.0.0);
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zesDeviceGetProperties(wrong, &raw mut properties)
    );
    refused!(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zesDeviceGetProperties(device, ptr::null_mut()));
    let engine = zes_engine_handle_t(device.0);
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zesEngineGetActivity(engine, &mut zes_engine_stats_t::default())
    );
    assert!(text.contains("an engine group"), "{text}");
    let unknown = zes_event_type_flags_t::from_bits_retain(1 << 30);
    refused!(ZE_RESULT_ERROR_INVALID_ENUMERATION, zesDeviceEventRegister(device, unknown));
}

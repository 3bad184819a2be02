// SPDX-License-Identifier: MIT OR Apache-2.0
//! System management: the properties and activity of a device, independent of contexts.
//!
//! Its handles of drivers and devices are those of the core interface. The lists of components that the device
//! does not have are empty: fans, power supplies, LEDs, sensors, firmware, links, and adjustable frequencies,
//! power limits and schedulers.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use tally_ze::*;

use super::device::{NAME, describe, set_name};
use super::{Call, api};
use crate::core::device::Device;
use crate::core::driver::Driver;
use crate::core::sysman::{self, Engines};
use crate::ddi;
use crate::error::{Error, Result};
use crate::settings;

api! { always
    /// Spec: `zesInit`. It works with or without an earlier zeInit.
    fn zesInit(call, flags: zes_init_flags_t) {
        call.flags(flags.has_unknown(), "flags")?;
        ddi::dispatch::install();
        Driver::init().map(drop)
    }

    /// Spec: `zesDriverGet`. Before zesInit the list is empty: on an error, a loader that asks too early would
    /// drop the driver.
    fn zesDriverGet(call, pCount: *mut u32, phDrivers: *mut zes_driver_handle_t) {
        call.list(pCount, phDrivers, "pCount", Driver::get().as_slice().iter().copied())
    }
}

api! {
    /// Spec: `zesDriverGetExtensionProperties`.
    fn zesDriverGetExtensionProperties(
        call,
        hDriver: zes_driver_handle_t,
        pCount: *mut u32,
        pExtensionProperties: *mut zes_driver_extension_properties_t,
    ) {
        call.handle(hDriver, "hDriver")?;
        let mut mapping = zes_driver_extension_properties_t {
            version: make_version(1, 0),
            ..Default::default()
        };
        set_name(&mut mapping.name, ZES_SYSMAN_DEVICE_MAPPING_EXP_NAME);
        call.list(pCount, pExtensionProperties, "pCount", [mapping])
    }

    /// Spec: `zesDriverGetExtensionFunctionAddress`.
    fn zesDriverGetExtensionFunctionAddress(
        call,
        hDriver: zes_driver_handle_t,
        name: *const c_char,
        ppFunctionAddress: *mut *mut c_void,
    ) {
        call.handle(hDriver, "hDriver")?;
        super::driver::function_address(call, name, ppFunctionAddress)
    }

    /// Spec: `zesDriverGetDeviceByUuidExp`.
    fn zesDriverGetDeviceByUuidExp(
        call,
        hDriver: zes_driver_handle_t,
        uuid: zes_uuid_t,
        phDevice: *mut zes_device_handle_t,
        onSubdevice: *mut ze_bool_t,
        subdeviceId: *mut u32,
    ) {
        let driver = call.handle(hDriver, "hDriver")?;
        let device = call.out(phDevice, "phDevice")?;
        let on_part = call.out(onSubdevice, "onSubdevice")?;
        let part_id = call.out(subdeviceId, "subdeviceId")?;
        let mut all = driver.roots().iter().flat_map(|root| root.parts().iter().chain([root]));
        let found = all.find(|it| it.uuid() == uuid.id);
        let found = found.ok_or_else(|| Error::invalid("uuid: the driver has no such device"))?;
        device.set(found.parent().unwrap_or(found).raw());
        on_part.set(ze_bool_t::from(found.parent().is_some()));
        part_id.set(found.part());
        Ok(())
    }

    /// Spec: `zesDriverEventListen`. The time is in ms.
    fn zesDriverEventListen(
        call,
        hDriver: ze_driver_handle_t,
        timeout: u32,
        count: u32,
        phDevices: *mut zes_device_handle_t,
        pNumDeviceEvents: *mut u32,
        pEvents: *mut zes_event_type_flags_t,
    ) {
        call.handle(hDriver, "hDriver")?;
        let timeout = if timeout == u32::MAX { u64::MAX } else { u64::from(timeout) };
        listen(call, timeout, (count, phDevices), (pNumDeviceEvents, pEvents))
    }

    /// Spec: `zesDriverEventListenEx`. The time is in ms.
    fn zesDriverEventListenEx(
        call,
        hDriver: ze_driver_handle_t,
        timeout: u64,
        count: u32,
        phDevices: *mut zes_device_handle_t,
        pNumDeviceEvents: *mut u32,
        pEvents: *mut zes_event_type_flags_t,
    ) {
        call.handle(hDriver, "hDriver")?;
        listen(call, timeout, (count, phDevices), (pNumDeviceEvents, pEvents))
    }

    /// Spec: `zesDeviceGet`. Sub-devices are listed by their devices.
    fn zesDeviceGet(
        call,
        hDriver: zes_driver_handle_t,
        pCount: *mut u32,
        phDevices: *mut zes_device_handle_t,
    ) {
        let driver = call.handle(hDriver, "hDriver")?;
        call.list(pCount, phDevices, "pCount", driver.roots().iter().map(|it| it.raw()))
    }

    /// Spec: `zesDeviceGetProperties`.
    fn zesDeviceGetProperties(
        call,
        hDevice: zes_device_handle_t,
        pProperties: *mut zes_device_properties_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let (out, chain) = call.raw_properties(pProperties, "pProperties", &[])?;
        out.core = ze_device_properties_t::default();
        describe(device, &mut out.core, false);
        out.numSubdevices = device.parts().len() as u32;
        set_name(&mut out.serialNumber, "unknown");
        set_name(&mut out.boardNumber, "unknown");
        let (vendor, model) =
            settings::get().device_as.map_or(("Tally", NAME), |it| ("Intel(R) Corporation", it.name));
        set_name(&mut out.brandName, vendor);
        set_name(&mut out.modelName, model);
        set_name(&mut out.vendorName, vendor);
        set_name(&mut out.driverVersion, env!("CARGO_PKG_VERSION"));
        for link in chain {
            if let Some(more) = link.get_mut::<zes_device_ext_properties_t>() {
                more.uuid.id = device.uuid();
                more.r#type = zes_device_type_t::ZES_DEVICE_TYPE_GPU;
                let flags = out.core.flags.bits();
                more.flags = zes_device_property_flags_t::from_bits_retain(flags);
            }
        }
        Ok(())
    }

    /// Spec: `zesDeviceGetState`. A device whose contexts are lost needs a reset, which the application
    /// performs: it destroys its contexts and calls zeDeviceGetStatus.
    fn zesDeviceGetState(
        call,
        hDevice: zes_device_handle_t,
        pState: *mut zes_device_state_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let out = call.properties(pState, "pState")?;
        out.reset = match sysman::needs_reset(device) {
            true => zes_reset_reason_flags_t::ZES_RESET_REASON_FLAG_WEDGED,
            false => zes_reset_reason_flags_t::empty(),
        };
        out.repaired = zes_repair_status_t::ZES_REPAIR_STATUS_UNSUPPORTED;
        Ok(())
    }

    /// Spec: `zesDeviceProcessesGetState`. Only this process is known.
    fn zesDeviceProcessesGetState(
        call,
        hDevice: zes_device_handle_t,
        pCount: *mut u32,
        pProcesses: *mut zes_process_state_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let out = super::device::one(call, pCount, pProcesses, "pProcesses")?;
        let Some((out, _)) = out else { return Ok(()) };
        out.processId = std::process::id();
        out.memSize = device.backend().memory_used();
        out.sharedSize = 0;
        let [compute, copy] = sysman::used(device);
        out.engines = zes_engine_type_flags_t::empty();
        out.engines.set(zes_engine_type_flags_t::ZES_ENGINE_TYPE_FLAG_COMPUTE, compute);
        out.engines.set(zes_engine_type_flags_t::ZES_ENGINE_TYPE_FLAG_DMA, copy);
        Ok(())
    }

    /// Spec: `zesDeviceGetSubDevicePropertiesExp`.
    fn zesDeviceGetSubDevicePropertiesExp(
        call,
        hDevice: zes_device_handle_t,
        pCount: *mut u32,
        pSubdeviceProps: *mut zes_subdevice_exp_properties_t,
    ) {
        let parts = call.handle(hDevice, "hDevice")?.parts();
        let count = call.in_out(pCount, "pCount")?;
        if *count == 0 || pSubdeviceProps.is_null() {
            *count = parts.len() as u32;
            return Ok(());
        }
        *count = (*count).min(parts.len() as u32);
        for (i, part) in parts.iter().take(*count as usize).enumerate() {
            let out = call.properties(pSubdeviceProps.wrapping_add(i), "pSubdeviceProps")?;
            out.subdeviceId = part.part();
            out.uuid.id = part.uuid();
        }
        Ok(())
    }

    /// Spec: `zesDevicePciGetProperties`. The same as zeDevicePciGetPropertiesExt.
    fn zesDevicePciGetProperties(
        call,
        hDevice: zes_device_handle_t,
        pProperties: *mut zes_pci_properties_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let (out, _) = call.raw_properties(pProperties, "pProperties", &[])?;
        let [domain, bus, slot, function] = device.backend().pci_address().unwrap_or_default();
        out.address = zes_pci_address_t { domain, bus, device: slot, function };
        out.maxSpeed = NO_SPEED;
        [out.haveBandwidthCounters, out.havePacketCounters, out.haveReplayCounters] = [0; 3];
        Ok(())
    }

    /// Spec: `zesDevicePciGetState`. There is no link.
    fn zesDevicePciGetState(call, hDevice: zes_device_handle_t, pState: *mut zes_pci_state_t) {
        call.handle(hDevice, "hDevice")?;
        let out = call.properties(pState, "pState")?;
        out.status = zes_pci_link_status_t::ZES_PCI_LINK_STATUS_UNKNOWN;
        out.qualityIssues = zes_pci_link_qual_issue_flags_t::empty();
        out.stabilityIssues = zes_pci_link_stab_issue_flags_t::empty();
        out.speed = NO_SPEED;
        Ok(())
    }

    /// Spec: `zesDevicePciGetStats`. Values that are not counted "will always be 0".
    fn zesDevicePciGetStats(call, hDevice: zes_device_handle_t, pStats: *mut zes_pci_stats_t) {
        let device = call.handle(hDevice, "hDevice")?;
        let out = call.out(pStats, "pStats")?;
        let timestamp = device.clock()?.host_ns / 1000;
        out.set(zes_pci_stats_t { timestamp, speed: NO_SPEED, ..Default::default() });
        Ok(())
    }

    /// Spec: `zesDevicePciGetBars`. There is none that a program could map.
    fn zesDevicePciGetBars(
        call,
        hDevice: zes_device_handle_t,
        pCount: *mut u32,
        pProperties: *mut zes_pci_bar_properties_t,
    ) {
        none_of(call, hDevice, pCount, pProperties)
    }

    /// Spec: `zesDeviceEccAvailable`.
    fn zesDeviceEccAvailable(call, hDevice: zes_device_handle_t, pAvailable: *mut ze_bool_t) {
        call.handle(hDevice, "hDevice")?;
        call.out(pAvailable, "pAvailable")?.set(0);
        Ok(())
    }

    /// Spec: `zesDeviceEccConfigurable`.
    fn zesDeviceEccConfigurable(call, hDevice: zes_device_handle_t, pConfigurable: *mut ze_bool_t) {
        call.handle(hDevice, "hDevice")?;
        call.out(pConfigurable, "pConfigurable")?.set(0);
        Ok(())
    }

    /// Spec: `zesDeviceEventRegister`. DEVICE_RESET_REQUIRED is the only event that happens; others may be
    /// registered, too. A listener whose registrations are all removed does not wait any longer.
    fn zesDeviceEventRegister(
        call,
        hDevice: zes_device_handle_t,
        events: zes_event_type_flags_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        call.flags(events.has_unknown(), "events")?;
        device.sysman().register(events);
        Ok(())
    }

    /// Spec: `zesDeviceEnumEngineGroups`.
    fn zesDeviceEnumEngineGroups(
        call,
        hDevice: zes_device_handle_t,
        pCount: *mut u32,
        phEngine: *mut zes_engine_handle_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        call.list(pCount, phEngine, "pCount", device.sysman().engines.iter().copied())
    }

    /// Spec: `zesEngineGetProperties`.
    fn zesEngineGetProperties(
        call,
        hEngine: zes_engine_handle_t,
        pProperties: *mut zes_engine_properties_t,
    ) {
        let engines = call.handle(hEngine, "hEngine")?;
        let out = call.properties(pProperties, "pProperties")?;
        out.r#type = match engines.compute() {
            None => zes_engine_group_t::ZES_ENGINE_GROUP_ALL,
            Some(true) => zes_engine_group_t::ZES_ENGINE_GROUP_COMPUTE_ALL,
            Some(false) => zes_engine_group_t::ZES_ENGINE_GROUP_COPY_ALL,
        };
        (out.onSubdevice, out.subdeviceId) = place(engines.device);
        Ok(())
    }

    /// Spec: `zesEngineGetActivity`. The activity of other processes is not known.
    fn zesEngineGetActivity(
        call,
        hEngine: zes_engine_handle_t,
        pStats: *mut zes_engine_stats_t,
    ) {
        let engines: &Engines = call.handle(hEngine, "hEngine")?;
        let out = call.out(pStats, "pStats")?;
        let timestamp = engines.device.clock()?.host_ns / 1000;
        out.set(zes_engine_stats_t { activeTime: engines.busy_ns() / 1000, timestamp });
        Ok(())
    }

    /// Spec: `zesDeviceEnumMemoryModules`.
    fn zesDeviceEnumMemoryModules(
        call,
        hDevice: zes_device_handle_t,
        pCount: *mut u32,
        phMemory: *mut zes_mem_handle_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        call.list(pCount, phMemory, "pCount", device.sysman().memories.iter().copied())
    }

    /// Spec: `zesMemoryGetProperties`. The memory is the system's, of unknown type.
    fn zesMemoryGetProperties(
        call,
        hMemory: zes_mem_handle_t,
        pProperties: *mut zes_mem_properties_t,
    ) {
        let memory = call.handle(hMemory, "hMemory")?;
        let (out, _) = call.raw_properties(pProperties, "pProperties", &[])?;
        out.r#type = zes_mem_type_t::ZES_MEM_TYPE_DDR;
        (out.onSubdevice, out.subdeviceId) = place(memory.device);
        out.location = zes_mem_loc_t::ZES_MEM_LOC_SYSTEM;
        out.physicalSize = memory.device.budget().limit();
        [out.busWidth, out.numChannels] = [-1; 2];
        Ok(())
    }

    /// Spec: `zesMemoryGetState`. The use by other processes is not known.
    fn zesMemoryGetState(call, hMemory: zes_mem_handle_t, pState: *mut zes_mem_state_t) {
        let memory = call.handle(hMemory, "hMemory")?;
        let (out, _) = call.raw_properties(pState, "pState", &[])?;
        out.health = zes_mem_health_t::ZES_MEM_HEALTH_OK;
        out.size = memory.device.budget().limit();
        out.free = memory.free();
        Ok(())
    }
}

/// An unknown speed.
const NO_SPEED: zes_pci_speed_t = zes_pci_speed_t { r#gen: -1, width: -1, maxBandwidth: -1 };

/// Lists that are empty for every device.
macro_rules! none_of {
    ($($name:ident: $handle:ident,)*) => {
        api! {
            $(
                /// Lists none, since the device has no such component.
                fn $name(
                    call,
                    hDevice: zes_device_handle_t,
                    pCount: *mut u32,
                    handles: *mut $handle,
                ) {
                    none_of(call, hDevice, pCount, handles)
                }
            )*
        }
    };
}

none_of! {
    zesDeviceEnumDiagnosticTestSuites: zes_diag_handle_t,
    zesDeviceEnumFabricPorts: zes_fabric_port_handle_t,
    zesDeviceEnumFans: zes_fan_handle_t,
    zesDeviceEnumFirmwares: zes_firmware_handle_t,
    zesDeviceEnumFrequencyDomains: zes_freq_handle_t,
    zesDeviceEnumLeds: zes_led_handle_t,
    zesDeviceEnumOverclockDomains: zes_overclock_handle_t,
    zesDeviceEnumPerformanceFactorDomains: zes_perf_handle_t,
    zesDeviceEnumPowerDomains: zes_pwr_handle_t,
    zesDeviceEnumPsus: zes_psu_handle_t,
    zesDeviceEnumRasErrorSets: zes_ras_handle_t,
    zesDeviceEnumSchedulers: zes_sched_handle_t,
    zesDeviceEnumStandbyDomains: zes_standby_handle_t,
    zesDeviceEnumTemperatureSensors: zes_temp_handle_t,
}

fn none_of<T>(call: Call<'_>, device: zes_device_handle_t, count: *mut u32, out: *mut T) -> Result {
    call.handle(device, "hDevice")?;
    call.list(count, out, "pCount", [])
}

/// Whether the object belongs to a sub-device, and to which one.
fn place(device: &Device) -> (ze_bool_t, u32) {
    (ze_bool_t::from(device.parent().is_some()), device.part())
}

fn listen(
    call: Call<'_>,
    timeout_ms: u64,
    (count, devices): (u32, *mut zes_device_handle_t),
    (happened, events): (*mut u32, *mut zes_event_type_flags_t),
) -> Result {
    let happened = call.out(happened, "pNumDeviceEvents")?;
    let devices = call.slice(devices, count as usize, "phDevices")?;
    let devices = devices.iter().map(|&device| call.handle(device, "phDevices").copied());
    let devices = devices.collect::<Result<Vec<_>>>()?;
    let out = call.slice_mut(events, count as usize, "pEvents")?;
    let found = sysman::listen(&devices, Duration::from_millis(timeout_ms));
    happened.set(found.iter().filter(|it| !it.is_empty()).count() as u32);
    out.copy_from_slice(&found);
    Ok(())
}

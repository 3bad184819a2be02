// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer to IDENTIFY.

use tally_device::{CLOCK_HZ, machine};
use tally_engine::VA_START;
use tally_uapi::firmware::{IDENTITY_ENGINES, IDENTITY_TARGET, Identity, MAX_QUEUES, MAX_VMS};
use tally_uapi::ioctl::{DeviceInfo, EngineInfo, engine_capability};
use tally_uapi::regs;

use crate::Settings;

/// The same for every device of this kind.
const UUID: [u8; 16] = *b"Tally virtual 00";

/// The properties of the device.
pub fn identity(settings: &Settings, va_end: u64) -> Identity {
    let device = DeviceInfo {
        uuid: UUID,
        vendor_id: u32::from(regs::PCI_VENDOR),
        device_id: u32::from(regs::PCI_DEVICE),
        execution_units: settings.workers,
        simd_lanes: machine::simd_lanes(),
        core_clock_mhz: machine::core_clock_mhz(),
        cache_line_bytes: machine::cache_line_bytes(),
        memory_bytes: 0,
        cache_bytes: machine::cache_bytes(),
        clock_hz: CLOCK_HZ,
        va_start: VA_START,
        va_end,
        max_vms: MAX_VMS,
        max_queues: MAX_QUEUES,
    };
    let compute = engine_capability::COMPUTE | engine_capability::COPY;
    let mut engines = [EngineInfo::default(); IDENTITY_ENGINES];
    engines[0] = EngineInfo { capabilities: compute, count: settings.compute_engines };
    engines[1] = EngineInfo { capabilities: engine_capability::COPY, count: settings.copy_engines };
    let name = machine::target();
    let mut target = [0; IDENTITY_TARGET];
    // A CPU's features take a few hundred bytes.
    let bytes = name.len().min(IDENTITY_TARGET);
    target[..bytes].copy_from_slice(&name[..bytes]);
    Identity { device, engine_classes: 2, target_bytes: bytes as u32, engines, target }
}

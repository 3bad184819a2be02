// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answers of QUERY DEVICE and QUERY TARGET: properties of the machine.

use tally_device::{CLOCK_HZ, Device, machine};
use tally_uapi::ioctl::DeviceInfo;

use crate::settings::Settings;

/// The embedded device is on no bus, so neither number is a PCI number.
const VENDOR_ID: u32 = 0x1_7a11;
const DEVICE_ID: u32 = 0x0001;

/// Lowest address that Linux lets a process map by default.
const VA_START: u64 = 64 << 10;
/// End of the addresses of an x86-64 process, minus the page that Linux keeps free.
const VA_END: u64 = (1 << 47) - 4096;

/// Properties that do not change.
pub(super) struct Facts {
    pub(super) device: DeviceInfo,
    /// The answer to QUERY TARGET.
    pub(super) target: Vec<u8>,
}

impl Facts {
    pub(super) fn gather(
        settings: &Settings,
        device: &Device,
        max_vms: u32,
        max_queues: u32,
    ) -> Self {
        let memory_bytes = settings.memory.unwrap_or_else(memory_bytes);
        let device = DeviceInfo {
            uuid: UUID,
            vendor_id: VENDOR_ID,
            device_id: DEVICE_ID,
            execution_units: u32::try_from(device.execution_units()).unwrap_or(u32::MAX),
            simd_lanes: machine::simd_lanes(),
            core_clock_mhz: machine::core_clock_mhz(),
            cache_line_bytes: machine::cache_line_bytes(),
            memory_bytes: memory_bytes / 4096 * 4096,
            cache_bytes: machine::cache_bytes(),
            clock_hz: CLOCK_HZ,
            va_start: VA_START,
            va_end: VA_END,
            max_vms,
            max_queues,
        };
        Self { device, target: machine::target() }
    }
}

/// The same in every process and run, so that a program finds again the device
/// it has chosen once.
const UUID: [u8; 16] = *b"Tally embedded 0";

/// The machine's memory, or the limit of this process's address space or of its
/// control group's memory if that is less.
fn memory_bytes() -> u64 {
    let pages = machine::sysconf(libc::_SC_PHYS_PAGES).unwrap_or(1 << 18);
    let physical = pages * machine::sysconf(libc::_SC_PAGESIZE).unwrap_or(4096);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the struct.
    let limited = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    let address_room = if limited { limit.rlim_cur } else { u64::MAX };
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    physical.min(address_room).min(group)
}

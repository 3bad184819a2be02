// SPDX-License-Identifier: MIT OR Apache-2.0
//! What QUERY DEVICE and QUERY TARGET answer: facts of the machine.

use tally_device::{CLOCK_HZ, Device};
use tally_uapi::ioctl::DeviceInfo;

use super::target;
use crate::settings::Settings;

/// The embedded device is on no bus: neither number is one of PCI's.
const VENDOR_ID: u32 = 0x1_7a11;
const DEVICE_ID: u32 = 0x0001;

/// Lowest address that Linux lets a process map by default.
const VA_START: u64 = 64 << 10;
/// End of the addresses of an x86-64 process, less the page that Linux keeps free.
const VA_END: u64 = (1 << 47) - 4096;

/// Facts that do not change.
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
        let (name, features) = target::detect();
        let memory_bytes = settings.memory.unwrap_or_else(memory_bytes);
        let device = DeviceInfo {
            uuid: UUID,
            vendor_id: VENDOR_ID,
            device_id: DEVICE_ID,
            execution_units: u32::try_from(device.execution_units()).unwrap_or(u32::MAX),
            simd_lanes: target::simd_lanes(),
            core_clock_mhz: core_clock_mhz(),
            cache_line_bytes: sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE).unwrap_or(64) as u32,
            memory_bytes: memory_bytes / 4096 * 4096,
            cache_bytes: cache_bytes(),
            clock_hz: CLOCK_HZ,
            va_start: VA_START,
            va_end: VA_END,
            max_vms,
            max_queues,
        };
        Self { device, target: format!("{name}\0{features}\0").into_bytes() }
    }
}

/// A system constant, where it is known and not 0.
fn sysconf(name: i32) -> Option<u64> {
    // SAFETY: takes a number.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).ok().filter(|&value| value != 0)
}

/// The same in every process and run, so that a program finds again the device
/// it has chosen once.
const UUID: [u8; 16] = *b"Tally embedded 0";

/// The machine's memory, or what is less: this process's address room, its
/// control group's memory.
fn memory_bytes() -> u64 {
    let pages = sysconf(libc::_SC_PHYS_PAGES).unwrap_or(1 << 18);
    let physical = pages * sysconf(libc::_SC_PAGESIZE).unwrap_or(4096);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the struct.
    let limited = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    let address_room = if limited { limit.rlim_cur } else { u64::MAX };
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    physical.min(address_room).min(group)
}

/// The first CPU's last cache. Linux is asked before the C library, some versions of which count the
/// cache of a virtual machine once for each of its CPUs.
fn cache_bytes() -> u64 {
    let size = |index: u32| {
        let file = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(file).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let library =
        || sysconf(libc::_SC_LEVEL3_CACHE_SIZE).or_else(|| sysconf(libc::_SC_LEVEL2_CACHE_SIZE));
    size(3).or_else(|| size(2)).or_else(library).unwrap_or(0)
}

/// The highest clock of the first CPU, or what it runs at now, or 1000.
fn core_clock_mhz() -> u32 {
    let khz = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
    if let Some(khz) = khz.ok().and_then(|text| text.trim().parse::<u32>().ok()) {
        return khz / 1000;
    }
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("cpu MHz"));
    let mhz = line.and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    mhz.map_or(1000, |mhz| mhz as u32)
}

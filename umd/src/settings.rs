// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings in the environment, read once.
//!
//! The driver's own and those of its compiler process. `scripts/gen-settings` copies the sections below to
//! `docs/settings.md`, and checks that they name what the code reads.
//!
//! ## To see what happens
//!
//! | variable | value | effect |
//! |---|---|---|
//! | `TALLY_LOG` | env_logger filter: `debug`, `info`, `packets=trace` | messages on standard error. `info` names the kernels that run scalar, and why; `packets=trace` prints the packets that are submitted |
//! | `TALLY_TRACE` | file | a timeline of host calls and engine commands on one clock, on both lanes (Perfetto, chrome://tracing); with `TALLY_HANG_MS` also the wait that hangs |
//! | `TALLY_HANG_MS` | ms | when a host wait lasts that long, says on standard error who waits for whom, and where the waits form a cycle; default: never |
//! | `TALLY_HANG_JSON` | file | with `TALLY_HANG_MS`: adds each report to the file, as one line of JSON with the fields of `tally-top --json` |
//! | `TALLY_TOP` | `1` | the process answers [`tally-top`](tally-top.md), which shows the same for a live process |
//! | `TALLY_CHAOS` | any number | an adversarial device that decides by chance everything that is not guaranteed, the same way for the same number; on the kernel lane the program also sees no more of its memory than is guaranteed ([chaos.md](chaos.md)) |
//! | `TALLY_DEBUG` | `1` | kernels are built for a debugger, without optimisation, and made known to it; a kernel may stop as long as it likes ([running.md](running.md#kernels-in-a-debugger)); embedded lane only |
//! | `TALLY_CHECK` | `memory`, `init`, `leaks`, `portable`, `races`, `same-values`, `sync`, with commas; `all` | finds mistakes of the program ([checks.md](checks.md)); embedded lane only. The variables below count only with it |
//! | `TALLY_CHECK_REPORT` | file | what was found, as JSON; `%p` stands for the process's number |
//! | `TALLY_CHECK_SARIF` | file | the same as SARIF |
//! | `TALLY_CHECK_SUPPRESSIONS` | files, with colons | mistakes that are not reported |
//! | `TALLY_CHECK_EXITCODE` | 1 to 255 | the process's exit status if anything was found; default: the program's |
//! | `TALLY_CHECK_LOG` | a file | for tests: a line for each appended command and each pair of commands that race |
//! | `TALLY_CHECK_STACKS` | `1` | a report shows the program's stack at each call that it names |
//! | `TALLY_RECORD` | file, or folder that exists | records the device's work, for [`tally-replay`](replay.md); `%p` stands for the process's number, and a folder gets a file for each process |
//! | `TALLY_RECORD_MS` | ms | how long a call of a program that is recorded waits for commands that run on; default 1000. What runs for longer is kept less exactly ([replay.md](replay.md#what-is-not-kept)) |
//! | `TALLY_REPLAY` | `1` | set by `tally-replay` for itself: allocations lie where the recording has them |
//!
//! ## The device
//!
//! | variable | value | effect |
//! |---|---|---|
//! | `TALLY_LANE` | `drm`, `embedded` | the kernel module's device, or the one in this process; default: the module's, if there is one |
//! | `TALLY_DEVICES` | 1 to 16 | devices that the GPU is divided into; default 1 |
//! | `TALLY_SUBDEVICES` | 1 to 16 | sub-devices of each device; default 1, which is no division |
//! | `ZE_AFFINITY_MASK` | `0`, `0.1`, `1,0.2`, … | devices and sub-devices to show; default: all |
//! | `ZE_FLAT_DEVICE_HIERARCHY` | `COMPOSITE`, `FLAT`, `COMBINED` | whether zeDeviceGet answers devices (the default), sub-devices, or sub-devices that know their device |
//! | `ZE_SHARED_FORCE_DEVICE_ALLOC` | `1` | shared memory counts as its device's |
//! | `ZE_ENABLE_PCI_ID_DEVICE_ORDER` | | no effect: all devices belong to one PCI function |
//!
//! On the embedded lane only; on the kernel lane `tally-gpu`'s command line and the module's parameters decide:
//!
//! | variable | value | effect |
//! |---|---|---|
//! | `TALLY_WORKERS` | 1 to 1024 | threads that run kernels; default: the processors of this process |
//! | `TALLY_COMPUTE_ENGINES` | 1 to 64 | compute engines of each device; default 4 |
//! | `TALLY_COPY_ENGINES` | 1 to 64 | copy engines of each device; default 2 |
//! | `TALLY_MEMORY` | MiB | memory of all devices; default: the machine's, or what limits leave |
//! | `TALLY_DEVICE_AS` | `uhd-630`, `uhd-770`, `arc-a770`, `arc-b580`, `max-1100` | the device has the name and the numbers of that GPU ([clients.md](clients.md#the-gpu-that-the-device-passes-for)); default: its own |
//! | `TALLY_RESET_MS` | ms | time until a kernel that does not end is aborted; default 100 |
//!
//! `TALLY_WINDOW` (MiB, default 262144) is the size of the VA reservation for buffers.
//!
//! ## The compiler
//!
//! | variable | value | effect |
//! |---|---|---|
//! | `TALLY_COMPILER` | file | the compiler program; default: `tally-compiler` beside the driver, else in PATH |
//! | `TALLY_CACHE` | `0` | no kernels are kept on disk; default: they are |
//! | `TALLY_CACHE_DIR` | folder | where they are kept; default: `tally/kernels` in `XDG_CACHE_HOME`, else in `~/.cache` |
//! | `TALLY_CACHE_MAX` | MiB | about how much is kept; what was not used for the longest time makes room. Default 1024 |
//! | `TALLY_CPU` | `x86-64`, `x86-64-v2`, `x86-64-v3`, `x86-64-v4` | kernels are built for every processor of this level, so that native binaries and the cache serve other machines; default: for the processor at hand. A level above it is ignored |
//! | `TALLY_COMPILER_MEMORY` | MiB | address space of the compiler process; default 8192 |
//! | `TALLY_COMPILER_TIME` | seconds | processor time of one build, for each processor; default 120 |
//! | `TALLY_LANES` | 1, 8, 16, 32 | work-items of a vector; 1 means no widening. Default: the compiler chooses ([compiler/docs/widening.md](../compiler/docs/widening.md)) |
//! | `TALLY_SKIP_PASSES` | names, with commas | passes before widening that are left out, to find what one does: `copies`, `registers`, `simplify`, `selects`, `unroll`, `unused`, `layout`, `edges`, `whole`, `late`, `strips`, `atomics`, `rows`, `ahead` ([compiler/docs/before-widening.md](../compiler/docs/before-widening.md)) |
//!
//! The cache of kernels serves all processes of the user. Its key is all that code depends on: SPIR-V, flags, constants, links, the processor's features, the compiler's build. `tally-info` says where it is and how full, and `TALLY_LOG=info` says where it is. A folder or file that is not the user's own, or that others may write to, is not used; one that is damaged, full or read-only costs the cache and nothing else. Remove the folder to empty it.
//!
//! A program that runs with more rights than its caller (set-user-ID, file capabilities: AT_SECURE)
//! sees none of them: they name files to write and a program to start.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use tally_compiler_protocol::TargetCpu;

use crate::identity::{self, Identity};

mod checks;

pub use checks::Checks;

/// The lane by which a device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Behind the kernel module.
    Drm,
    /// In this process.
    Embedded,
}

/// The answer of zeDeviceGet where devices are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hierarchy {
    /// Devices; zeDeviceGetSubDevices answers their parts.
    #[default]
    Composite,
    /// The parts, as devices that have neither parts nor a root.
    Flat,
    /// The parts; zeDeviceGetRootDevice answers the device.
    Combined,
}

/// The settings, parsed from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `TALLY_LOG`.
    pub log: Option<String>,
    /// `TALLY_TRACE`.
    pub trace: Option<PathBuf>,
    /// `TALLY_LANE`.
    pub lane: Option<Lane>,
    /// `TALLY_WORKERS`.
    pub workers: Option<u32>,
    /// `TALLY_DEVICES`.
    pub devices: Option<u32>,
    /// `TALLY_SUBDEVICES`.
    pub subdevices: Option<u32>,
    /// `TALLY_COMPUTE_ENGINES`.
    pub compute_engines: Option<u32>,
    /// `TALLY_COPY_ENGINES`.
    pub copy_engines: Option<u32>,
    /// `TALLY_MEMORY`, in bytes.
    pub memory: Option<u64>,
    /// `TALLY_HANG_MS`.
    pub hang_ms: Option<u64>,
    /// `TALLY_HANG_JSON`.
    pub hang_json: Option<PathBuf>,
    /// `TALLY_DEVICE_AS`.
    pub device_as: Option<&'static Identity>,
    /// `TALLY_TOP`.
    pub top: bool,
    /// `TALLY_CHAOS`.
    pub chaos: Option<u64>,
    /// `TALLY_DEBUG`.
    pub debug: bool,
    /// `TALLY_CHECK` and its like.
    pub checks: Checks,
    /// `TALLY_RECORD`.
    pub record: Option<PathBuf>,
    /// `TALLY_RECORD_MS`.
    pub record_ms: Option<u64>,
    /// `TALLY_REPLAY`.
    pub replay: bool,
    /// `TALLY_RESET_MS`.
    pub reset_ms: Option<u64>,
    /// `TALLY_WINDOW`, in bytes.
    pub reservation: Option<u64>,
    /// `TALLY_CPU`.
    pub cpu: Option<TargetCpu>,
    /// `TALLY_CACHE` is 0.
    pub no_cache: bool,
    /// `TALLY_CACHE_DIR`, or the folder for it that the user's environment implies.
    pub cache_dir: Option<PathBuf>,
    /// `TALLY_CACHE_MAX`, in bytes.
    pub cache_max: Option<u64>,
    /// `ZE_AFFINITY_MASK`: devices, and perhaps which part of them.
    pub affinity: Option<Vec<(u32, Option<u32>)>>,
    /// `ZE_FLAT_DEVICE_HIERARCHY`.
    pub hierarchy: Hierarchy,
    /// `ZE_SHARED_FORCE_DEVICE_ALLOC`.
    pub shared_on_device: bool,
    /// Settings that could not be understood, as sentences for the log.
    pub complaints: Vec<String>,
}

/// The settings of this process.
pub fn get() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings::read(|name| variable(name, has_more_rights())))
}

/// Whether this process has more rights than the one that started it, and so must not do what the
/// other one's environment says.
pub(crate) fn has_more_rights() -> bool {
    // SAFETY: takes a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A variable of the environment; none for a process that `has_more_rights`.
fn variable(name: &str, has_more_rights: bool) -> Option<OsString> {
    if has_more_rights { None } else { std::env::var_os(name) }
}

impl Settings {
    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut complaints = Vec::new();
        let present = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut number = |name: &str, min: u64, max: u64| {
            let value = present(name)?;
            let text = value.to_string_lossy();
            match text.trim().parse::<u64>() {
                Ok(value) if (min..=max).contains(&value) => Some(value),
                _ => {
                    complaints.push(format!("{name}: {text:?} is no number from {min} to {max}"));
                    None
                }
            }
        };
        const MIB: u64 = 1 << 20;
        let exit_code = number("TALLY_CHECK_EXITCODE", 1, 255).map(|code| code as i32);
        let small = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
        let mut settings = Self {
            workers: small(number("TALLY_WORKERS", 1, 1024)),
            devices: small(number("TALLY_DEVICES", 1, 16)),
            subdevices: small(number("TALLY_SUBDEVICES", 1, 16)),
            compute_engines: small(number("TALLY_COMPUTE_ENGINES", 1, 64)),
            copy_engines: small(number("TALLY_COPY_ENGINES", 1, 64)),
            memory: number("TALLY_MEMORY", 16, 1 << 26).map(|mib| mib * MIB),
            hang_ms: number("TALLY_HANG_MS", 1, 86_400_000),
            top: number("TALLY_TOP", 0, 1) == Some(1),
            debug: number("TALLY_DEBUG", 0, 1) == Some(1),
            replay: number("TALLY_REPLAY", 0, 1) == Some(1),
            no_cache: number("TALLY_CACHE", 0, 1) == Some(0),
            shared_on_device: number("ZE_SHARED_FORCE_DEVICE_ALLOC", 0, 1) == Some(1),
            chaos: number("TALLY_CHAOS", 0, u64::MAX),
            record_ms: number("TALLY_RECORD_MS", 1, 3_600_000),
            reset_ms: number("TALLY_RESET_MS", 1, 3_600_000),
            cache_max: number("TALLY_CACHE_MAX", 1, 1 << 20).map(|mib| mib * MIB),
            reservation: number("TALLY_WINDOW", 256, 1 << 26).map(|mib| mib * MIB),
            checks: Checks { exit_code, ..Checks::read(present, &mut complaints) },
            lane: present("TALLY_LANE").and_then(|value| {
                let lane = Lane::from_name(&value.to_string_lossy());
                if lane.is_none() {
                    complaints.push(format!("TALLY_LANE: {value:?} is neither drm nor embedded"));
                }
                lane
            }),
            device_as: present("TALLY_DEVICE_AS").and_then(|value| {
                let found = identity::find(&value.to_string_lossy());
                if found.is_none() {
                    let known = identity::keys();
                    complaints.push(format!("TALLY_DEVICE_AS: {value:?} is none of {known}"));
                }
                found
            }),
            cpu: present("TALLY_CPU").and_then(|value| {
                let cpu = TargetCpu::of_level(&value.to_string_lossy());
                if cpu.is_none() {
                    let levels = TargetCpu::LEVELS.join(", ");
                    complaints.push(format!("TALLY_CPU: {value:?} is none of {levels}"));
                }
                cpu
            }),
            log: present("TALLY_LOG").map(|value| value.to_string_lossy().into_owned()),
            trace: present("TALLY_TRACE").map(PathBuf::from),
            record: present("TALLY_RECORD").map(PathBuf::from),
            hang_json: present("TALLY_HANG_JSON").map(PathBuf::from),
            cache_dir: present("TALLY_CACHE_DIR").map(PathBuf::from).or_else(|| {
                // The XDG base directory specification requires that a relative path counts as unset.
                let absolute =
                    |name| present(name).map(PathBuf::from).filter(|it| it.is_absolute());
                let home = || absolute("HOME").map(|home| home.join(".cache"));
                Some(absolute("XDG_CACHE_HOME").or_else(home)?.join("tally/kernels"))
            }),
            affinity: present("ZE_AFFINITY_MASK").map(|mask| {
                Self::affinity_of(&mask.to_string_lossy()).unwrap_or_else(|entry| {
                    complaints.push(format!("ZE_AFFINITY_MASK: {entry:?} is not like 0 or 0.1"));
                    Vec::new()
                })
            }),
            hierarchy: present("ZE_FLAT_DEVICE_HIERARCHY").map_or_else(Default::default, |value| {
                Hierarchy::from_name(&value.to_string_lossy()).unwrap_or_else(|| {
                    complaints.push(format!(
                        "ZE_FLAT_DEVICE_HIERARCHY: {value:?} is none of COMPOSITE, FLAT, COMBINED"
                    ));
                    Hierarchy::default()
                })
            }),
            complaints,
        };
        if settings.checks.portable && settings.record.take().is_some() {
            settings.complaints.push("TALLY_RECORD: TALLY_CHECK=portable closes memory that a recording looks at: nothing is recorded".to_owned());
        }
        settings
    }
}

impl Settings {
    /// Whether names of cells and calls are kept for reports of who waits for whom.
    pub fn observes_waits(&self) -> bool {
        self.hang_ms.is_some() || self.top || self.checks.sync
    }

    /// Whether the application's memory lies apart from the driver's, at addresses that a replay can have, too.
    pub fn places_memory(&self) -> bool {
        self.record.is_some() || self.replay
    }

    /// Devices that the GPU is divided into.
    pub fn devices(&self) -> u32 {
        self.devices.unwrap_or(1)
    }

    /// Parts that each device is divided into; 1 if it is not.
    pub fn subdevices(&self) -> u32 {
        self.subdevices.unwrap_or(1)
    }

    /// The devices that a mask such as `0,1.0` names; else the entry that is not understood.
    pub(crate) fn affinity_of(mask: &str) -> Result<Vec<(u32, Option<u32>)>, String> {
        let entries = mask.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let entry = |entry: &str| {
            let (device, part) = match entry.split_once('.') {
                Some((device, part)) => (device, Some(part.parse::<u32>())),
                None => (entry, None),
            };
            let understood = || Some((device.parse().ok()?, part.transpose().ok()?));
            understood().ok_or_else(|| entry.to_owned())
        };
        entries.map(entry).collect()
    }
}

impl Lane {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "drm" => Some(Self::Drm),
            "embedded" => Some(Self::Embedded),
            _ => None,
        }
    }
}

impl Hierarchy {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "COMPOSITE" => Some(Self::Composite),
            "FLAT" => Some(Self::Flat),
            "COMBINED" => Some(Self::Combined),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Settings {
        Settings::read(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn an_empty_environment_and_empty_values_decide_nothing() {
        assert_eq!(read(&[]), Settings::default());
        assert_eq!(read(&[("TALLY_TRACE", ""), ("TALLY_WORKERS", "")]), Settings::default());
    }

    /// "A program that runs with more rights than its caller … sees none of them"
    #[test]
    fn more_rights_mean_no_environment() {
        // Every process has this one.
        assert!(variable("PATH", false).is_some());
        assert_eq!(variable("PATH", true), None);
        assert!(!has_more_rights());
    }

    #[test]
    fn numbers_in_range_are_taken_and_others_reported() {
        let settings = read(&[("TALLY_WORKERS", "3"), ("TALLY_MEMORY", "64")]);
        assert_eq!((settings.workers, settings.memory), (Some(3), Some(64 << 20)));
        for bad in ["0", "1025", "-1", "many", "1e3"] {
            let settings = read(&[("TALLY_WORKERS", bad)]);
            assert_eq!(settings.workers, None, "{bad}");
            assert_eq!(settings.complaints.len(), 1, "{bad}");
            assert!(settings.complaints[0].contains("TALLY_WORKERS"), "{bad}");
        }
    }

    /// "default: `tally/kernels` in `XDG_CACHE_HOME`, else in `~/.cache`"
    #[test]
    fn the_cache_lies_where_the_user_keeps_caches() {
        let folder = |pairs: &[(&str, &str)]| read(pairs).cache_dir;
        let home = ("HOME", "/home");
        assert_eq!(folder(&[home]), Some("/home/.cache/tally/kernels".into()));
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "/c")]), Some("/c/tally/kernels".into()));
        for unset in ["", "relative"] {
            let xdg = ("XDG_CACHE_HOME", unset);
            assert_eq!(folder(&[home, xdg]), Some("/home/.cache/tally/kernels".into()));
        }
        assert_eq!(folder(&[home, ("TALLY_CACHE_DIR", "/x")]), Some("/x".into()));
        assert_eq!(folder(&[("HOME", "")]), None);
        assert!(read(&[("TALLY_CACHE", "0")]).no_cache && !read(&[("TALLY_CACHE", "1")]).no_cache);
    }

    #[test]
    fn a_processor_is_one_of_the_levels() {
        let cpu = read(&[("TALLY_CPU", "x86-64-v2")]).cpu.expect("there is such a level");
        assert_eq!((cpu.name.as_str(), cpu.features.as_str()), ("x86-64-v2", ""));
        let settings = read(&[("TALLY_CPU", "haswell")]);
        assert_eq!((settings.cpu, settings.complaints.len()), (None, 1));
    }

    #[test]
    fn the_lane_is_chosen_by_its_name() {
        assert_eq!(read(&[("TALLY_LANE", "drm")]).lane, Some(Lane::Drm));
        assert_eq!(read(&[("TALLY_LANE", "embedded")]).lane, Some(Lane::Embedded));
        let settings = read(&[("TALLY_LANE", "fast")]);
        assert_eq!((settings.lane, settings.complaints.len()), (None, 1));
    }

    #[test]
    fn the_gpu_to_pass_for_is_chosen_by_its_name() {
        let settings = read(&[("TALLY_DEVICE_AS", "arc-b580")]);
        assert_eq!(settings.device_as.map(|it| it.device_id), Some(0xe20b));
        let settings = read(&[("TALLY_DEVICE_AS", "b580")]);
        assert_eq!((settings.device_as, settings.complaints.len()), (None, 1));
        assert!(settings.complaints[0].contains("arc-b580"));
    }

    #[test]
    fn an_affinity_mask_names_devices_and_parts_of_devices() {
        let mask = |mask| read(&[("ZE_AFFINITY_MASK", mask)]).affinity;
        assert_eq!(mask("1, 0.2,"), Some(vec![(1, None), (0, Some(2))]));
        for bad in ["x", "0.", "-1", "0.0.0", "0;1"] {
            let settings = read(&[("ZE_AFFINITY_MASK", bad)]);
            assert_eq!(settings.affinity, Some(Vec::new()), "{bad}");
            assert!(settings.complaints[0].contains("ZE_AFFINITY_MASK"), "{bad}");
        }
    }

    #[test]
    fn the_hierarchy_is_chosen_by_its_name() {
        let read = |name| read(&[("ZE_FLAT_DEVICE_HIERARCHY", name)]);
        assert_eq!(read("FLAT").hierarchy, Hierarchy::Flat);
        assert_eq!(read("COMBINED").hierarchy, Hierarchy::Combined);
        assert_eq!(
            (read("flat").hierarchy, read("flat").complaints.len()),
            (Hierarchy::Composite, 1)
        );
    }
}

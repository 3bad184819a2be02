// SPDX-License-Identifier: MIT OR Apache-2.0
//! The division of a GPU into devices and sub-devices, and the selection that an application sees.
//!
//! ```text
//!  GPU      engines 0 1 2 3 4 5 6 7        memory
//!  devices  [  0    ] [   1   ]            halves
//!  parts    [0] [1]   [0] [1]              quarters
//! ```
//!
//! `TALLY_DEVICES` and `TALLY_SUBDEVICES` set their numbers; each gets an equal share of the engines of each
//! class, of the execution units and of the memory. With fewer engines than parts, parts share one.
//! `ZE_AFFINITY_MASK` selects the devices that are shown, `ZE_FLAT_DEVICE_HIERARCHY` their form.

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::{DeviceInfo, EngineInfo};

use crate::settings::{Hierarchy, Settings};

/// A hardware device that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The index of the root device.
    pub root: u32,
    /// Its sub-devices that are shown; none if it is not divided.
    pub parts: Vec<u32>,
}

impl Shown {
    /// Whether the only sub-device that is shown represents the device ("only device 0, sub-device 0 is
    /// reported as device 0").
    pub fn is_one_part(&self) -> bool {
        self.parts.len() == 1
    }
}

/// The share of a device or a sub-device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Numbers of its engines, by class.
    pub engines: Vec<Vec<u32>>,
    /// Bytes of memory.
    pub memory: u64,
    /// Execution units.
    pub execution_units: u32,
}

/// The devices that are shown, in the hardware's order.
pub fn shown(settings: &Settings) -> Vec<Shown> {
    let (devices, divided) = (settings.devices(), settings.subdevices());
    let flat = settings.hierarchy != Hierarchy::Composite;
    let named = |root: u32, part: u32| {
        let Some(mask) = &settings.affinity else { return true };
        mask.iter().any(|&(device, of_it)| match of_it {
            None if flat => device == root * divided + part,
            None => device == root,
            // A dot has no meaning if sub-devices are devices, unless nothing is divided.
            Some(of_it) => (!flat || divided == 1) && (device, of_it) == (root, part),
        })
    };
    let all = (0..devices).map(|root| {
        let parts: Vec<u32> = (0..divided).filter(|&part| named(root, part)).collect();
        Shown { root, parts }
    });
    let some = all.filter(|it| !it.parts.is_empty());
    if divided > 1 {
        return some.collect();
    }
    some.map(|it| Shown { parts: Vec::new(), ..it }).collect()
}

/// The share of a shown device, or of one of its sub-devices.
pub fn share(
    settings: &Settings,
    info: &DeviceInfo,
    engines: &[EngineInfo],
    shown: &Shown,
    part: Option<u32>,
) -> Share {
    let divided = settings.subdevices();
    let of = settings.devices() * divided;
    let parts = match part {
        Some(part) => vec![part],
        None if shown.parts.is_empty() => vec![0],
        None => shown.parts.clone(),
    };
    let mut sum = Share { engines: vec![Vec::new(); engines.len()], ..Share::default() };
    for number in parts.iter().map(|part| shown.root * divided + part) {
        for (mine, engine) in sum.engines.iter_mut().zip(engines) {
            mine.extend(slice(engine.count, of, number));
        }
        let pages = info.memory_bytes / PAGE_SIZE;
        sum.memory += pages / u64::from(of) * PAGE_SIZE;
        sum.execution_units += (info.execution_units / of).max(1);
    }
    sum.engines.iter_mut().for_each(|it| it.dedup());
    sum
}

/// The engines of part `number` of `of` parts, out of `count` engines.
fn slice(count: u32, of: u32, number: u32) -> std::ops::Range<u32> {
    match count {
        0 => 0..0,
        _ if count >= of => count * number / of..count * (number + 1) / of,
        _ => number * count / of..number * count / of + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(devices: u32, parts: u32, hierarchy: Hierarchy, mask: &str) -> Settings {
        let affinity = Settings::affinity_of(mask).expect("a mask");
        Settings {
            devices: Some(devices),
            subdevices: Some(parts),
            hierarchy,
            affinity: Some(affinity),
            ..Settings::default()
        }
    }

    /// The shown parts of two devices with four parts each, in the form "0: 1 2; 1:".
    fn of_two(hierarchy: Hierarchy, mask: &str) -> String {
        let text = |it: Shown| {
            let parts: String = it.parts.iter().map(|part| format!(" {part}")).collect();
            format!("{}:{parts}", it.root)
        };
        let shown = shown(&settings(2, 4, hierarchy, mask));
        shown.into_iter().map(text).collect::<Vec<_>>().join("; ")
    }

    /// "The following examples demonstrate proper usage for a system configuration of two devices,
    /// each with four sub-devices"
    #[test]
    fn the_masks_of_the_guide_show_what_it_says() {
        for (mask, shown) in [
            ("0, 1", "0: 0 1 2 3; 1: 0 1 2 3"),
            ("0", "0: 0 1 2 3"),
            ("1", "1: 0 1 2 3"),
            ("0.0", "0: 0"),
            ("1.1, 1.2", "1: 1 2"),
            ("0.2, 1.3, 1.0, 0.3", "0: 2 3; 1: 0 3"),
            ("1.1,1", "1: 0 1 2 3"),
            ("2, 0.4", ""),
        ] {
            assert_eq!(of_two(Hierarchy::Composite, mask), shown, "{mask}");
        }
    }

    #[test]
    fn where_parts_are_devices_the_mask_counts_parts() {
        for hierarchy in [Hierarchy::Flat, Hierarchy::Combined] {
            assert_eq!(of_two(hierarchy, "0,3,5"), "0: 0 3; 1: 1");
            assert_eq!(of_two(hierarchy, "8, 0.1"), "");
        }
    }

    #[test]
    fn without_a_mask_and_division_there_is_one_device() {
        let one = vec![Shown { root: 0, parts: Vec::new() }];
        assert_eq!(shown(&Settings::default()), one);
        assert_eq!(shown(&settings(1, 1, Hierarchy::Composite, "0.0")), one);
        assert_eq!(shown(&settings(1, 1, Hierarchy::Flat, "1")), Vec::new());
    }

    #[test]
    fn shares_are_equal_and_a_device_has_those_of_its_parts() {
        let settings = settings(2, 2, Hierarchy::Composite, "0,1");
        let info = DeviceInfo { memory_bytes: 1 << 30, execution_units: 6, ..Default::default() };
        let engines =
            [EngineInfo { capabilities: 3, count: 8 }, EngineInfo { capabilities: 2, count: 2 }];
        let second = Shown { root: 1, parts: vec![0, 1] };
        let share = |part| share(&settings, &info, &engines, &second, part);
        assert_eq!(share(Some(0)).engines, [vec![4, 5], vec![1]]);
        assert_eq!(share(Some(1)).engines, [vec![6, 7], vec![1]], "parts share the engine");
        assert_eq!(share(None).engines, [vec![4, 5, 6, 7], vec![1]]);
        assert_eq!((share(Some(0)).memory, share(None).memory), (256 << 20, 512 << 20));
        assert_eq!((share(Some(0)).execution_units, share(None).execution_units), (1, 2));
    }
}

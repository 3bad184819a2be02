// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices and sub-devices: parts of the GPU, with engines and a share of the memory of their own.
//!
//! They share everything else, including the address space: all of them can use memory that was allocated for
//! one, and a loss affects all.

use std::sync::{Arc, OnceLock};

use tally_compiler_protocol::TargetCpu;
use tally_uapi::ioctl::{ClockPair, DeviceInfo, EngineInfo};
use tally_ze::ze_device_handle_t;

use crate::backend::{self, Backend};
use crate::core::gpu::Gpu;
use crate::core::sysman::Sysman;
use crate::core::topology::{self, Share, Shown};
use crate::error::Result;
use crate::handle::{self, Kind, object};
use crate::settings::{Hierarchy, Settings};
use crate::vm::Vm;
use crate::vm::budget::Budget;

/// A device or a sub-device. It lives as long as the process.
pub struct Device {
    gpu: &'static Gpu,
    number: u32,
    /// The device of which applications see this as a sub-device.
    parent: Option<&'static Device>,
    /// The number of the sub-device.
    part: u32,
    parts: OnceLock<Vec<&'static Device>>,
    /// Its engine classes; the index is the command queue group ordinal.
    engines: Vec<EngineInfo>,
    share: Share,
    budget: &'static Budget,
    uuid: [u8; 16],
    raw: OnceLock<ze_device_handle_t>,
    /// System management's view of it; made on first use.
    sysman: OnceLock<Sysman>,
}

object!(ze_device_handle_t => &'static Device, Kind::Device);

/// The devices that the driver shows of the GPU.
#[derive(Default)]
pub struct Devices {
    /// The answer of zeDeviceGet.
    pub listed: Vec<&'static Device>,
    /// Devices that are not sub-devices of another one.
    pub roots: Vec<&'static Device>,
}

impl Devices {
    /// Opens the GPU, unless the settings hide it, and makes its devices.
    ///
    /// # Errors
    /// The kernel's errors, or OUT_OF_HOST_MEMORY.
    pub fn open(settings: &Settings) -> Result<Self> {
        let shown = topology::shown(settings);
        if shown.is_empty() {
            return Ok(Self::default());
        }
        let backend = backend::open(settings)?;
        let gpu: &'static Gpu = Box::leak(Box::new(Gpu::new(backend, settings)?));
        let mut maker = Maker { gpu, settings, made: Vec::new() };
        let mut devices = Self::default();
        for shown in &shown {
            let alone = match settings.hierarchy {
                Hierarchy::Flat => !shown.parts.is_empty(),
                Hierarchy::Composite => shown.is_one_part(),
                Hierarchy::Combined => false,
            };
            if alone {
                for &part in &shown.parts {
                    devices.roots.push(maker.make(shown, Some(part), None)?);
                }
                continue;
            }
            let root = maker.make(shown, None, None)?;
            let parts = shown.parts.iter().map(|&part| maker.make(shown, Some(part), Some(root)));
            let parts: Vec<_> = parts.collect::<Result<_>>()?;
            devices.roots.push(root);
            if settings.hierarchy == Hierarchy::Combined {
                devices.listed.extend(&parts);
            }
            root.parts.get_or_init(|| parts);
        }
        if devices.listed.is_empty() {
            devices.listed.clone_from(&devices.roots);
        }
        gpu.set_devices(maker.made);
        Ok(devices)
    }
}

/// Makes the devices of a GPU, in the order of their numbers.
struct Maker<'s> {
    gpu: &'static Gpu,
    settings: &'s Settings,
    made: Vec<&'static Device>,
}

impl Maker<'_> {
    fn make(
        &mut self,
        shown: &Shown,
        part: Option<u32>,
        parent: Option<&'static Device>,
    ) -> Result<&'static Device> {
        let (info, engines) = (self.gpu.info(), self.gpu.engines());
        let share = topology::share(self.settings, info, engines, shown, part);
        let number = self.made.len() as u32;
        // The same in every process and run, whichever other devices are shown.
        let mut uuid = info.uuid;
        uuid[15] ^= shown.root as u8;
        uuid[14] ^= part.map_or(0, |part| part as u8 + 1);
        let own = engines.iter().zip(&share.engines);
        let engines = own.map(|(class, own)| EngineInfo { count: own.len() as u32, ..*class });
        let order = shown.parts.iter().position(|&it| Some(it) == part);
        let device = Device {
            gpu: self.gpu,
            number,
            parent,
            part: parent.and(order).unwrap_or(0) as u32,
            parts: OnceLock::new(),
            engines: engines.collect(),
            budget: Budget::new(number, share.memory, parent.map(|it| it.budget)),
            share,
            uuid,
            raw: OnceLock::new(),
            sysman: OnceLock::new(),
        };
        let device: &'static Device = Box::leak(Box::new(device));
        let raw = handle::create::<ze_device_handle_t>(device)?;
        device.raw.get_or_init(|| raw);
        self.made.push(device);
        Ok(device)
    }
}

impl Device {
    /// System management's view of it.
    pub fn sysman(&'static self) -> &'static Sysman {
        self.sysman.get_or_init(|| Sysman::of(self))
    }

    /// The device's handle.
    pub fn raw(&self) -> ze_device_handle_t {
        self.raw.get().copied().unwrap_or_default()
    }

    /// The GPU.
    #[inline]
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Its index in [`Gpu::devices`].
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The device of which this is a sub-device.
    pub fn parent(&self) -> Option<&'static Device> {
        self.parent
    }

    /// Its number among the sub-devices of its parent.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// Its sub-devices.
    pub fn parts(&self) -> &[&'static Device] {
        self.parts.get().map_or(&[], Vec::as_slice)
    }

    /// Whether it is `other` or a sub-device of it.
    #[inline]
    pub fn is_within(&self, other: &Device) -> bool {
        std::ptr::eq(self, other) || self.parent.is_some_and(|parent| std::ptr::eq(parent, other))
    }

    /// A suffix for messages that names it if there is more than one: " of device 1.0".
    pub fn suffix(&self) -> String {
        let devices = self.gpu.devices();
        let root = self.parent.map_or(self, |parent| parent);
        // Numbers count sub-devices, too.
        let mut roots = devices.iter().filter(|it| it.parent.is_none());
        let index = roots.position(|it| std::ptr::eq(*it, root)).unwrap_or(0);
        match self.parent {
            _ if devices.len() < 2 => String::new(),
            Some(_) => format!(" of device {index}.{}", self.part),
            None => format!(" of device {index}"),
        }
    }

    /// The back end that reaches it.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        self.gpu.backend()
    }

    /// Whether memory can be shared with other processes.
    pub fn can_share(&self) -> bool {
        self.gpu.backend().can_export()
    }

    /// The GPU's properties from the back end.
    pub fn info(&self) -> &DeviceInfo {
        self.gpu.info()
    }

    /// Its UUID, which is the same in all processes and in later runs.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Its engine classes; the index is the command queue group ordinal.
    #[inline]
    pub fn engines(&self) -> &[EngineInfo] {
        &self.engines
    }

    /// The GPU's numbers of the engines of a class.
    pub fn engine_numbers(&self, class: u32) -> &[u32] {
        self.share.engines.get(class as usize).map_or(&[], Vec::as_slice)
    }

    /// The GPU's number of an engine.
    pub fn engine(&self, class: u32, index: u32) -> Option<u32> {
        self.engine_numbers(class).get(index as usize).copied()
    }

    /// Its execution units.
    pub fn execution_units(&self) -> u32 {
        self.share.execution_units
    }

    /// Its memory, and the part in use.
    pub fn budget(&self) -> &'static Budget {
        self.budget
    }

    /// The target that kernels are compiled for.
    pub fn target(&self) -> &TargetCpu {
        self.gpu.target()
    }

    /// Host and device clock at the same moment.
    ///
    /// # Errors
    /// Those of [`Gpu::clock`].
    pub fn clock(&self) -> Result<ClockPair> {
        self.gpu.clock()
    }

    /// The VM of the contexts that exist, if there are any.
    pub fn vm(&self) -> Option<Arc<Vm>> {
        self.gpu.vm()
    }

    /// Whether it works; see [`Gpu::status`].
    ///
    /// # Errors
    /// The same errors.
    pub fn status(&self) -> Result {
        self.gpu.status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Lane;

    #[test]
    fn people_are_told_a_devices_place_among_devices_and_a_parts_in_its_device() {
        let settings = Settings {
            lane: Some(Lane::Embedded),
            devices: Some(2),
            subdevices: Some(2),
            workers: Some(1),
            memory: Some(64 << 20),
            reservation: Some(1 << 30),
            ..Settings::default()
        };
        let devices = Devices::open(&settings).expect("a device in this process");
        let suffixes = devices
            .roots
            .iter()
            .flat_map(|root| [root].into_iter().chain(root.parts()).map(|device| device.suffix()));
        let names = ["0", "0.0", "0.1", "1", "1.0", "1.1"].map(|it| format!(" of device {it}"));
        assert_eq!(suffixes.collect::<Vec<_>>(), names);
    }
}

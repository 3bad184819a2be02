// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GPUs whose identity the device can report (`TALLY_DEVICE_AS`).
//!
//! Libraries choose code, and programs choose devices, by a GPU's name and numbers. An identity changes only
//! these values: limits, extensions, features and the uuid stay the device's own, so programs work the same under
//! any name. docs/clients.md has the table.
//!
//! The numbers are public: device ids in Linux' `intel/pciids.h`, architectures in SYCL's extension
//! `sycl_ext_oneapi_device_architecture`, execution units and clocks in Intel's product pages.

/// The values that identify a device.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    /// The value of `TALLY_DEVICE_AS`.
    pub key: &'static str,
    /// `name` in `ze_device_properties_t`, and the model in Sysman's.
    pub name: &'static str,
    /// The PCI device id.
    pub device_id: u32,
    /// `ze_device_ip_version_ext_t`: architecture in bits 22 to 31, release in 14 to 21, revision in 0
    /// to 5.
    pub ip_version: u32,
    /// Clock of the execution units in MHz.
    pub clock_mhz: u32,
    /// Threads of an execution unit.
    pub threads: u32,
    /// Vector lanes of an execution unit.
    pub lanes: u32,
    /// Slices, sub-slices of each, and execution units of each of those.
    pub slices: [u32; 3],
}

/// Intel's PCI vendor id, which all of them have.
pub const INTEL: u32 = 0x8086;

/// The value of `ze_device_ip_version_ext_t` for the device itself: 12.2.0, Intel's Xe-LP. Libraries refuse an
/// architecture that they do not know (oneMKL: "unknown GPU architecture"). For this one they use their SPIR-V,
/// since it has neither matrix engines nor binaries of its own in them. docs/clients.md lists the observations.
pub const OWN_IP_VERSION: u32 = ip_version(12, 2, 0);

/// All identities.
pub static ALL: [Identity; 5] = [
    Identity {
        key: "uhd-630",
        name: "Intel(R) UHD Graphics 630",
        device_id: 0x3e92,
        ip_version: ip_version(9, 1, 9),
        clock_mhz: 1200,
        threads: 7,
        lanes: 8,
        slices: [1, 3, 8],
    },
    Identity {
        key: "uhd-770",
        name: "Intel(R) UHD Graphics 770",
        device_id: 0x4680,
        ip_version: ip_version(12, 2, 0),
        clock_mhz: 1550,
        threads: 7,
        lanes: 8,
        slices: [1, 2, 16],
    },
    Identity {
        key: "arc-a770",
        name: "Intel(R) Arc(TM) A770 Graphics",
        device_id: 0x56a0,
        ip_version: ip_version(12, 55, 8),
        clock_mhz: 2400,
        threads: 8,
        lanes: 8,
        slices: [8, 4, 16],
    },
    Identity {
        key: "arc-b580",
        name: "Intel(R) Arc(TM) B580 Graphics",
        device_id: 0xe20b,
        ip_version: ip_version(20, 1, 4),
        clock_mhz: 2850,
        threads: 8,
        lanes: 16,
        slices: [5, 4, 8],
    },
    Identity {
        key: "max-1100",
        name: "Intel(R) Data Center GPU Max 1100",
        device_id: 0x0bda,
        ip_version: ip_version(12, 60, 7),
        clock_mhz: 1550,
        threads: 8,
        lanes: 16,
        slices: [1, 56, 8],
    },
];

/// The identity of that name.
pub fn find(key: &str) -> Option<&'static Identity> {
    ALL.iter().find(|it| it.key == key)
}

/// The names, for messages.
pub fn keys() -> String {
    ALL.iter().map(|it| it.key).collect::<Vec<_>>().join(", ")
}

const fn ip_version(architecture: u32, release: u32, revision: u32) -> u32 {
    architecture << 22 | release << 14 | revision
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of SYCL's device_architecture extension for these GPUs.
    #[test]
    fn architectures_are_numbered_as_sycl_numbers_them() {
        let numbers = ALL.each_ref().map(|it| it.ip_version);
        assert_eq!(numbers, [0x0240_4009, 0x0300_8000, 0x030d_c008, 0x0500_4004, 0x030f_0007]);
        assert_eq!(OWN_IP_VERSION, 0x0300_8000);
    }

    #[test]
    fn each_has_a_name_of_its_own() {
        for (i, it) in ALL.iter().enumerate() {
            assert_eq!(find(it.key), Some(it));
            assert!(ALL[..i].iter().all(|other| other.device_id != it.device_id));
        }
        assert_eq!(find("A770"), None);
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The DRM driver of the Tally GPU.
//!
//! `device/SPEC.md` is the device's manual (chapters 12 to 15 are this driver's
//! side of it), `uapi/UAPI.md` describes the interface for user space.
//!
//! ```text
//!  ioctl/ ── request.rs     commands.rs ── admin.rs, lanes.rs ── transport.rs ── device
//!                │                               ▲
//!     object/ ── state.rs ◄── gpu.rs (start, reset, interrupts) ◄── pci.rs
//! ```
//!
//! The driver has two halves with two lifetimes. [`gpu::Gpu`] is the hardware:
//! registers, rings and interrupts. It lives while the driver is bound.
//! [`state::State`] is the state that files refer to: VMs, queues, sleepers,
//! accounts. It lives until the last file is closed, and knows when the hardware
//! has gone.
//!
//! Lock order: a VM's mappings, the admin ring, tables and sleepers (leaves).
//!
//! Abbreviations: BO, buffer object. VM, GPU address space. VA, an address in it.

use kernel::driver::Registration;
use kernel::miscdevice::MiscDeviceRegistration;
use kernel::module::ModuleMetadata;
use kernel::prelude::*;

mod account;
mod admin;
mod buffer;
mod call;
mod clock;
mod commands;
mod data;
mod debugfs;
mod device;
mod driver;
mod extent;
mod fdinfo;
mod file;
mod follower;
mod gpu;
mod host;
mod ioctl;
mod lanes;
mod notifier;
mod object;
mod pci;
mod progress;
mod raw;
mod releases;
mod request;
mod settle;
mod shared;
mod sleepers;
mod state;
mod table;
mod transport;

/// The module: its registrations for each way of reaching a device.
#[pin_data]
pub(crate) struct TallyModule {
    #[pin]
    host: MiscDeviceRegistration<host::HostFile>,
    #[pin]
    pci: Registration<kernel::pci::Adapter<pci::TallyPci>>,
}

impl kernel::InPlaceModule for TallyModule {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            host <- host::register(),
            pci <- Registration::new(<Self as ModuleMetadata>::NAME, module),
        })
    }
}

module! {
    type: TallyModule,
    name: "tally",
    authors: ["The Tally authors"],
    description: "Tally virtual GPU",
    license: "GPL",
    imports_ns: ["DMA_BUF"],
    params: {
        memory_mib: u64 {
            default: 0,
            description: "Memory that buffers may use in all, in MiB; 0 means three quarters of the machine's",
        },
        client_memory_mib: u64 {
            default: 0,
            description: "Memory that the buffers of an open file may use, in MiB; 0 means all of its user's",
        },
        user_memory_mib: u64 {
            default: 0,
            description: "Memory that the buffers of a user may use, in MiB; 0 means seven eighths of all",
        },
        user_buffers: u32 {
            default: 0,
            description: "Most buffers of a user; 0 means half of all, of which there are as many as the kernel allows open files, halved",
        },
        user_kernel_mib: u64 {
            default: 0,
            description: "Kernel memory that the mappings of a user may take, in MiB; 0 means half of all, which is a sixteenth of the machine's",
        },
        max_vms: u32 {
            default: 16,
            description: "Most address spaces of an open file",
        },
        max_queues: u32 {
            default: 2048,
            description: "Most queues of an open file",
        },
        user_vms: u32 {
            default: 128,
            description: "Most address spaces of a user, out of 255",
        },
        user_queues: u32 {
            default: 2048,
            description: "Most queues of a user, out of 4095",
        },
        admin_timeout_ms: u32 {
            default: 10000,
            description: "Time after which a device that has not answered a command is reset, in ms",
        },
        reset_timeout_ms: u32 {
            default: 5000,
            description: "Time that a reset may take before the device is given up, in ms",
        },
    },
}

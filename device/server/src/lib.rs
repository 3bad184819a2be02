// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Tally GPU in a process of its own: the hub. It serves the driver of a
//! virtual machine as a PCI function over vfio-user, or that of its own machine
//! over the driver's host device. `device/SPEC.md`, chapters 12 to 15 and 17,
//! describes the interface for drivers; `device/server/DESIGN.md` describes the
//! implementation and what it trusts.
//!
//! ```text
//!  VMM ── vfio-user ── pci: registers, configuration space, interrupt
//!  driver ── ioctls ── host: register writes, interrupt
//!                         │ ENABLE … RESET; START … the end
//!                      Session ── admin ring ── a lane for each VM
//!                                                  │ commands     ▲ signals, faults
//!                                                  ▼              │
//!                                               Engine: process, gate, ear
//! ```
//!
//! Glossary. **Hub**: this process; it runs no code of the guest.
//! **Session**: the time between ENABLE and RESET. **Lane**: the thread that
//! carries out the admin commands of one VM. **Engine process**: the confined
//! process that runs the queues and kernels of one VM. **Gate**: the thread that
//! allows an engine process's mappings, or ends it. **Ear**: the thread that
//! receives an engine process's messages.

mod confine;
mod engine;
pub mod host;
pub mod identity;
mod lane;
mod links;
pub mod machine;
mod patience;
pub mod pci;
mod ranges;
mod registers;
mod session;
mod status;
mod waiters;

pub use pci::function::{Function, serve};

/// The settings of the device.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Engines that take all packets, at least 1.
    pub compute_engines: u32,
    /// Engines that take all but DISPATCH; may be 0.
    pub copy_engines: u32,
    /// Execution units of each VM, at least 1.
    pub workers: u32,
    /// Threads of each VM that take the place of stuck execution units.
    pub substitutes: u32,
    /// The time for which a kernel may continue to run after its queue's destruction began, in ms.
    pub reset_ms: u32,
    /// Bytes of NULL memory that all VMs may have together: kernels can fill it.
    pub null_bytes: u64,
    /// The seed of the adversarial device. None: the device is not adversarial.
    pub chaos: Option<u64>,
    /// Whether every VM_UNMAP is refused, which no driver may trust a device not to do.
    pub refuse_unmap: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let device = tally_device::Config::default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            compute_engines: device.compute_engines,
            copy_engines: device.copy_engines,
            workers: u32::try_from(cores).unwrap_or(1).min(MAX_WORKERS),
            substitutes: 8,
            reset_ms: device.reset_time.as_millis() as u32,
            null_bytes: host_memory() / 4,
            chaos: None,
            refuse_unmap: false,
        }
    }
}

/// Bytes of this machine's memory.
fn host_memory() -> u64 {
    // SAFETY: take numbers.
    let [pages, bytes] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|it| unsafe { libc::sysconf(it) });
    u64::try_from(pages.saturating_mul(bytes)).unwrap_or(0)
}

/// The most execution units, and the most substitutes.
pub const MAX_WORKERS: u32 = 128;
/// The most engines of a class.
pub const MAX_ENGINES: u32 = 64;
const _: () = assert!(2 * MAX_ENGINES as usize <= tally_device::MAX_ENGINES);

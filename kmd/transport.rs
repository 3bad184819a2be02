// SPDX-License-Identifier: GPL-2.0
//! The driver's access to a device: registers, shared memory, and the device's access to the memory that
//! clients bind. Every difference between the halves of the driver is behind this trait.

use core::ptr::NonNull;

use kernel::alloc::Flags;
use kernel::device::{Bound, Device};
use kernel::prelude::*;

/// The register STATUS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// The admin ring is served.
    pub(crate) enabled: bool,
    /// A reset is in progress.
    pub(crate) resetting: bool,
    /// ENABLE was refused, or the rings became unreadable. A reset clears it.
    pub(crate) failed: bool,
}

/// The addresses that the device is given at ENABLE, each of a [`Memory`].
pub(crate) struct Addresses {
    /// The admin ring.
    pub(crate) ring: u64,
    /// Its answers.
    pub(crate) answers: u64,
    /// Commands in the ring.
    pub(crate) entries: u32,
    /// The waiters page.
    pub(crate) waiters: u64,
    /// The status page.
    pub(crate) status: u64,
}

/// The purpose of memory, which for some devices decides its place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The admin ring.
    Commands,
    /// Its answers.
    Answers,
    /// The status page.
    Status,
    /// The waiters page.
    Waiters,
    /// Memory that a command names by its address.
    Argument,
}

/// Memory that driver and device share: whole pages, zero at first, freed on drop.
pub(crate) trait Memory: Send + Sync {
    /// The address of the memory, which is valid as long as `self` lives.
    fn base(&self) -> NonNull<u64>;
    /// The size in bytes.
    fn bytes(&self) -> usize;
    /// The address that the device uses, page-aligned.
    fn address(&self) -> u64;
}

/// See the module. The registers are those of `device/SPEC.md`, chapter 12.
pub(crate) trait Transport: Send + Sync {
    /// The device as the kernel knows it: the parent of the DRM device.
    fn device(&self) -> &Device<Bound>;

    /// Major and minor version of registers and admin ring.
    fn version(&self) -> (u16, u16);

    /// Whether the device can be reached.
    fn present(&self) -> bool;

    /// State of the device.
    fn status(&self) -> Status;

    /// Begins a reset, which is done when the status shows none in progress. False: this kind of device does
    /// not reset itself.
    fn begin_reset(&self) -> bool;

    /// Stops the device without its help, and for good if it does not reset itself. It is done when this has
    /// returned and the status shows no reset in progress.
    ///
    /// # Errors
    /// It cannot be done.
    fn force_reset(&self) -> Result;

    /// Tells the device where its rings are and lets it serve them.
    fn enable(&self, at: &Addresses);

    /// The device's clock, in ticks.
    ///
    /// # Errors
    /// It cannot be read.
    fn clock(&self) -> Result<u64>;

    /// Tells the device the number of commands published on the admin ring, modulo 2^32.
    fn admin_tail(&self, tail: u32);

    /// Tells the device that a queue was found asleep.
    fn kick(&self, queue: u32);

    /// Tells the device that a cell of `bucket` was written.
    fn wake(&self, bucket: u32);

    /// Memory to share with the device; `flags` say which cgroup is charged.
    ///
    /// # Errors
    /// ENOMEM. EINVAL: the device has no memory for this purpose or size.
    fn memory(&self, purpose: Purpose, bytes: usize, flags: Flags) -> Result<KBox<dyn Memory>>;

    /// The device whose bus addresses VM_MAP uses to name pages. None: the device sees bound pages through the
    /// file of a VM as it needs them, and loses them without being asked.
    fn dma(&self) -> Option<&Device<Bound>>;
}

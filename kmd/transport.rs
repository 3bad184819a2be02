// SPDX-License-Identifier: GPL-2.0
//! How the driver reaches a device: registers, memory that both use, and the way by which the device
//! reaches what clients bind. All that differs between the halves of the driver is behind this trait.

use core::ptr::NonNull;

use kernel::alloc::Flags;
use kernel::device::{Bound, Device};
use kernel::prelude::*;

/// What STATUS says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// The admin ring is served.
    pub(crate) enabled: bool,
    /// A reset goes on.
    pub(crate) resetting: bool,
    /// ENABLE was refused, or the rings became unreadable. A reset clears it.
    pub(crate) failed: bool,
}

/// What the device is told at ENABLE: addresses of [`Memory`].
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

/// What memory is for, of which some devices have a fixed place.
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
    /// What a command names by its address.
    Argument,
}

/// Memory that driver and device use, whole pages, zero at first. It is freed when this is dropped.
pub(crate) trait Memory: Send + Sync {
    /// Where it is. It stays there as long as `self` lives.
    fn base(&self) -> NonNull<u64>;
    /// How long it is.
    fn bytes(&self) -> usize;
    /// Its address as the device knows it, page-aligned.
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

    /// What the device does.
    fn status(&self) -> Status;

    /// Begins a reset, which is done when the status says that none goes on. False: the device is not one
    /// that resets itself.
    fn begin_reset(&self) -> bool;

    /// Ends what the device does without its help, and for good if it is not one that resets itself. It is
    /// done when this has returned and the status says that no reset goes on.
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

    /// So many commands were published on the admin ring, modulo 2^32.
    fn admin_tail(&self, tail: u32);

    /// A queue was found asleep.
    fn kick(&self, queue: u32);

    /// A cell of `bucket` was written.
    fn wake(&self, bucket: u32);

    /// Memory to share with the device; `flags` say who is charged.
    ///
    /// # Errors
    /// ENOMEM. EINVAL: it takes none for this.
    fn memory(&self, purpose: Purpose, bytes: usize, flags: Flags) -> Result<KBox<dyn Memory>>;

    /// The device by whose bus addresses it reaches the pages that VM_MAP names. None: it is shown what is
    /// bound when it needs it, through the file of a VM, and loses it without being asked.
    fn dma(&self) -> Option<&Device<Bound>>;
}

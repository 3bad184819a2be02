// SPDX-License-Identifier: GPL-2.0
//! The registers of BAR 0, by name (`uapi/src/regs.rs`, `device/SPEC.md`, chapter 12).

use kernel::device::Bound;
use kernel::io::Io;
use kernel::pci;
use kernel::prelude::*;
use tally_uapi::regs;

const BAR_SIZE: usize = regs::BAR_SIZE as usize;

/// BAR 0, mapped.
pub(crate) struct Regs<'bound>(pci::Bar<'bound, BAR_SIZE>);

/// What the device is told at ENABLE: bus addresses, page-aligned.
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

impl<'bound> Regs<'bound> {
    /// Maps the BAR and looks whether this is a Tally that this driver knows.
    ///
    /// # Errors
    /// ENODEV: it is not. Others: the BAR cannot be mapped.
    pub(crate) fn new(pdev: &'bound pci::Device<Bound>) -> Result<Self> {
        let regs = Self(pdev.iomap_region_sized::<BAR_SIZE>(0, c"tally")?);
        if !regs.present() {
            dev_err!(pdev, "BAR 0 is no Tally\n");
            return Err(ENODEV);
        }
        let (major, minor) = regs.version();
        if major != regs::VERSION_MAJOR {
            dev_err!(
                pdev,
                "registers of version {major}.{minor}; this driver knows {}.x\n",
                regs::VERSION_MAJOR
            );
            return Err(ENODEV);
        }
        Ok(regs)
    }

    /// Whether something answers that says it is a Tally. A device that is gone reads as ones.
    pub(crate) fn present(&self) -> bool {
        self.0.read32(regs::MAGIC as usize) == regs::MAGIC_VALUE
    }

    /// Major and minor version.
    pub(crate) fn version(&self) -> (u16, u16) {
        let version = self.0.read32(regs::VERSION as usize);
        ((version >> 16) as u16, version as u16)
    }

    /// Bits of `regs::status`.
    pub(crate) fn status(&self) -> u32 {
        self.0.read32(regs::STATUS as usize)
    }

    /// Begins a reset, which is done when RESETTING is clear.
    pub(crate) fn reset(&self) {
        self.0.write32(regs::control::RESET, regs::CONTROL as usize);
    }

    /// Tells the device where its rings are and lets it serve them.
    pub(crate) fn enable(&self, at: &Addresses) {
        self.write_address::<{ regs::ADMIN_RING as usize }>(at.ring);
        self.write_address::<{ regs::ADMIN_ANSWERS as usize }>(at.answers);
        self.write_address::<{ regs::WAITERS_PAGE as usize }>(at.waiters);
        self.write_address::<{ regs::STATUS_PAGE as usize }>(at.status);
        self.0.write32(at.entries, regs::ADMIN_ENTRIES as usize);
        self.0.write32(regs::control::ENABLE, regs::CONTROL as usize);
    }

    /// The device's clock, in ticks: one access, so that the halves belong together.
    ///
    /// # Errors
    /// EINVAL, if the BAR were too small.
    pub(crate) fn clock(&self) -> Result<u64> {
        // The abstraction promises 4-byte alignment of a BAR only, and so checks this
        // when it is run.
        self.0.try_read64(regs::CLOCK as usize)
    }

    /// Commands published on the admin ring.
    pub(crate) fn admin_tail(&self, tail: u32) {
        self.0.write32(tail, regs::ADMIN_TAIL as usize);
    }

    /// A queue was found asleep.
    pub(crate) fn kick(&self, queue: u32) {
        self.0.write32(queue, regs::KICK as usize);
    }

    /// A cell of `bucket` was written.
    pub(crate) fn wake(&self, bucket: u32) {
        self.0.write32(bucket, regs::WAKE as usize);
    }

    /// Writes an address, the lower half first, as the manual allows.
    #[inline(always)]
    fn write_address<const AT: usize>(&self, value: u64) {
        self.0.write32(value as u32, AT);
        self.0.write32((value >> 32) as u32, AT + 4);
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The registers of BAR 0, by name (`uapi/src/regs.rs`, `device/SPEC.md`, chapter 12).

use kernel::device::Bound;
use kernel::io::register;
use kernel::io::register::{Array, Register};
use kernel::io::Io;
use kernel::pci;
use kernel::prelude::*;
use tally_uapi::regs;

use crate::transport::{Addresses, Status};

const BAR_SIZE: usize = regs::BAR_SIZE as usize;

register! {
    /// Identifies a Tally.
    MAGIC(u32) @ 0x000 {
        31:0 value;
    }

    /// The version of registers and admin ring.
    VERSION(u32) @ 0x004 {
        31:16 major => u16;
        15:0 minor => u16;
    }

    /// State of the device.
    STATUS(u32) @ 0x008 {
        /// ENABLE was refused, or the rings became unreadable. RESET clears it.
        2:2 failed => bool;
        /// A reset is in progress.
        1:1 resetting => bool;
        /// The admin ring is served.
        0:0 enabled => bool;
    }

    /// Requests to the device, one at a time.
    CONTROL(u32) @ 0x00c {
        /// Ends all address spaces and forgets all addresses.
        1:1 reset => bool;
        /// Takes the addresses and begins to serve the admin ring.
        0:0 enable => bool;
    }

    /// Bus address of the admin ring, the lower half first.
    ADMIN_RING(u32)[2] @ 0x010 {
        31:0 half;
    }

    /// Bus address of the answers.
    ADMIN_ANSWERS(u32)[2] @ 0x018 {
        31:0 half;
    }

    /// Commands in the admin ring.
    ADMIN_ENTRIES(u32) @ 0x020 {
        31:0 count;
    }

    /// Bus address of the waiters page.
    WAITERS_PAGE(u32)[2] @ 0x028 {
        31:0 half;
    }

    /// Bus address of the status page.
    STATUS_PAGE(u32)[2] @ 0x030 {
        31:0 half;
    }

    /// The device's clock.
    CLOCK(u64) @ 0x038 {
        63:0 ticks;
    }

    /// Commands published on the admin ring, modulo 2^32.
    ADMIN_TAIL(u32) @ 0x1000 {
        31:0 count;
    }

    /// The id of a queue that was found asleep.
    KICK(u32) @ 0x1004 {
        31:0 queue;
    }

    /// The bucket of a cell that the host wrote.
    WAKE(u32) @ 0x1008 {
        31:0 bucket;
    }
}

/// Checks the offsets, which the macro wants as literals, against those of the uapi, which the device uses.
const _: () = {
    let offsets = [
        (MAGIC::OFFSET, regs::MAGIC),
        (VERSION::OFFSET, regs::VERSION),
        (STATUS::OFFSET, regs::STATUS),
        (CONTROL::OFFSET, regs::CONTROL),
        (ADMIN_RING::OFFSET, regs::ADMIN_RING),
        (ADMIN_ANSWERS::OFFSET, regs::ADMIN_ANSWERS),
        (ADMIN_ENTRIES::OFFSET, regs::ADMIN_ENTRIES),
        (WAITERS_PAGE::OFFSET, regs::WAITERS_PAGE),
        (STATUS_PAGE::OFFSET, regs::STATUS_PAGE),
        (CLOCK::OFFSET, regs::CLOCK),
        (ADMIN_TAIL::OFFSET, regs::ADMIN_TAIL),
        (KICK::OFFSET, regs::KICK),
        (WAKE::OFFSET, regs::WAKE),
    ];
    let mut index = 0;
    while index < offsets.len() {
        assert!(offsets[index].0 as u64 == offsets[index].1);
        index += 1;
    }
};

/// BAR 0, mapped.
pub(crate) struct Regs<'bound>(pci::Bar<'bound, BAR_SIZE>);

impl<'bound> Regs<'bound> {
    /// Maps the BAR and checks that this is a Tally whose version the driver knows.
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

    /// Whether a Tally answers. The registers of a device that is gone read as all ones.
    pub(crate) fn present(&self) -> bool {
        u32::from(self.0.read(MAGIC)) == regs::MAGIC_VALUE
    }

    /// Major and minor version.
    pub(crate) fn version(&self) -> (u16, u16) {
        let version = self.0.read(VERSION);
        (version.major(), version.minor())
    }

    /// State of the device.
    pub(crate) fn status(&self) -> Status {
        let status = self.0.read(STATUS);
        Status {
            enabled: status.enabled(),
            resetting: status.resetting(),
            failed: status.failed(),
        }
    }

    /// Begins a reset. It is done when the status shows none in progress.
    pub(crate) fn reset(&self) {
        self.0.write_reg(CONTROL::zeroed().with_reset(true));
    }

    /// Tells the device where its rings are and lets it serve them.
    pub(crate) fn enable(&self, at: &Addresses) {
        // Addresses are written in halves, the lower one first, as the manual allows.
        let halves = |address: u64| (address as u32, (address >> 32) as u32);
        let (low, high) = halves(at.ring);
        self.0.write(ADMIN_RING::at(0), low.into());
        self.0.write(ADMIN_RING::at(1), high.into());
        let (low, high) = halves(at.answers);
        self.0.write(ADMIN_ANSWERS::at(0), low.into());
        self.0.write(ADMIN_ANSWERS::at(1), high.into());
        let (low, high) = halves(at.waiters);
        self.0.write(WAITERS_PAGE::at(0), low.into());
        self.0.write(WAITERS_PAGE::at(1), high.into());
        let (low, high) = halves(at.status);
        self.0.write(STATUS_PAGE::at(0), low.into());
        self.0.write(STATUS_PAGE::at(1), high.into());
        self.0.write_reg(ADMIN_ENTRIES::from(at.entries));
        self.0.write_reg(CONTROL::zeroed().with_enable(true));
    }

    /// The device's clock, in ticks: one access, so that the halves belong together.
    ///
    /// # Errors
    /// EINVAL, if the BAR were too small.
    pub(crate) fn clock(&self) -> Result<u64> {
        // The abstraction promises 4-byte alignment of a BAR only, and so checks this
        // when it is run.
        Ok(self.0.try_read(CLOCK)?.into())
    }

    /// Publishes commands on the admin ring: `tail` is their number, modulo 2^32.
    pub(crate) fn admin_tail(&self, tail: u32) {
        self.0.write_reg(ADMIN_TAIL::from(tail));
    }

    /// Tells the device that a queue was found asleep.
    pub(crate) fn kick(&self, queue: u32) {
        self.0.write_reg(KICK::from(queue));
    }

    /// Tells the device that a cell of `bucket` was written.
    pub(crate) fn wake(&self, bucket: u32) {
        self.0.write_reg(WAKE::from(bucket));
    }
}

/// The fields are the bits of the uapi, too.
#[kernel::macros::kunit_tests(tally_regs)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_uapi() {
        let bits = |enabled: bool, resetting: bool, failed: bool| {
            u32::from(
                STATUS::zeroed()
                    .with_enabled(enabled)
                    .with_resetting(resetting)
                    .with_failed(failed),
            )
        };
        assert_eq!(bits(true, false, false), regs::status::ENABLED);
        assert_eq!(bits(false, true, false), regs::status::RESETTING);
        assert_eq!(bits(false, false, true), regs::status::FAILED);
        assert_eq!(
            u32::from(CONTROL::zeroed().with_enable(true)),
            regs::control::ENABLE
        );
        assert_eq!(
            u32::from(CONTROL::zeroed().with_reset(true)),
            regs::control::RESET
        );
    }
}

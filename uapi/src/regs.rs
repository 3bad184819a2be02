// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The PCI function: identity, BAR 0 and its registers.
//!
//! `device/SPEC.md`, chapter "The PCI function". Registers are little-endian and
//! are read and written whole, with their own width.

/// PCI vendor id: the one that QEMU's own test devices use, which stands for no product.
pub const PCI_VENDOR: u16 = 0x1234;
/// PCI device id.
pub const PCI_DEVICE: u16 = 0x7a11;
/// PCI class, subclass and interface: a processing accelerator.
pub const PCI_CLASS: u32 = 0x12_00_00;

/// Bytes of BAR 0: memory, 64-bit, not prefetchable.
pub const BAR_SIZE: u64 = 0x4000;
/// Offset of the MSI-X table in BAR 0.
pub const MSIX_TABLE: u64 = 0x2000;
/// Offset of the MSI-X pending bits in BAR 0.
pub const MSIX_PENDING: u64 = 0x3000;
/// Interrupt vectors. One serves every cause; the status page has the causes.
pub const MSIX_VECTORS: u16 = 1;

/// u32, read: [`MAGIC_VALUE`].
pub const MAGIC: u64 = 0x000;
/// u32, read: major version in the upper half, minor in the lower.
pub const VERSION: u64 = 0x004;
/// u32, read: bits of [`status`].
pub const STATUS: u64 = 0x008;
/// u32, write: one of [`control`].
pub const CONTROL: u64 = 0x00c;
/// u64: bus address of the admin ring ([`crate::firmware::Command`]), page-aligned.
pub const ADMIN_RING: u64 = 0x010;
/// u64: bus address of the answers ([`crate::firmware::Answer`], [`crate::firmware::ANSWERS`] of them in
/// one piece), page-aligned.
pub const ADMIN_ANSWERS: u64 = 0x018;
/// u32: commands in the admin ring, a power of two, 16 to 1024.
pub const ADMIN_ENTRIES: u64 = 0x020;
/// u64: bus address of the waiters page ([`crate::firmware::WaitersPage`]), page-aligned.
pub const WAITERS_PAGE: u64 = 0x028;
/// u64: bus address of the status page ([`crate::firmware::StatusPage`]), page-aligned.
pub const STATUS_PAGE: u64 = 0x030;
/// u64, read: the device's clock, in ticks.
pub const CLOCK: u64 = 0x038;

/// u32, write: commands published on the admin ring, modulo 2^32.
pub const ADMIN_TAIL: u64 = 0x1000;
/// u32, write: the id of a queue that was found asleep.
pub const KICK: u64 = 0x1004;
/// u32, write: the bucket of a cell that the host wrote, or [`WAKE_FOREIGN`].
pub const WAKE: u64 = 0x1008;

/// The value of [`MAGIC`].
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"TALY");
/// Major version of registers and admin ring: changes when an old driver would break.
pub const VERSION_MAJOR: u16 = 2;
/// Minor version: grows when something is added.
pub const VERSION_MINOR: u16 = 0;
/// A value of [`WAKE`]: all foreign cells are read again.
pub const WAKE_FOREIGN: u32 = u32::MAX;

/// Bits of [`STATUS`].
pub mod status {
    /// The admin ring is served.
    pub const ENABLED: u32 = 1 << 0;
    /// A reset is in progress; all other registers are ignored.
    pub const RESETTING: u32 = 1 << 1;
    /// ENABLE was refused, or the rings became unreadable. RESET clears it.
    pub const FAILED: u32 = 1 << 2;
}

/// Values of [`CONTROL`].
pub mod control {
    /// Takes the addresses and begins to serve the admin ring.
    pub const ENABLE: u32 = 1;
    /// Ends all address spaces and forgets all addresses. Done when
    /// [`super::status::RESETTING`] is clear; from then on the device touches no memory.
    pub const RESET: u32 = 2;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI configuration space: identity, BAR 0, and the capabilities PCI Express
//! (with function-level reset) and MSI-X.
//!
//! The VMM shows the guest most of it as it was read at the start, and handles
//! MSI-X and BARs itself. Writes have little effect here; only the bit that
//! starts a function-level reset does something.

use tally_uapi::regs;

/// Bytes of configuration space, with PCI Express's extension (empty).
pub const CONFIG_BYTES: usize = 4096;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const BAR_0: usize = 0x10;
const CAPABILITIES: usize = 0x34;

/// Memory space, bus master, and the interrupt disable bit.
const COMMAND_BITS: u16 = 1 << 1 | 1 << 2 | 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Memory, 64 bits, not prefetchable.
const BAR_MEMORY_64: u32 = 2 << 1;

const PCIE: usize = 0x40;
const PCIE_DEVICE_CAPABILITIES: usize = PCIE + 4;
const PCIE_DEVICE_CONTROL: usize = PCIE + 8;
const PCIE_ID: u8 = 0x10;
/// Version 2, an endpoint.
const PCIE_ENDPOINT: u16 = 2;
/// Role-based error reporting, which version 2 requires, and function-level reset.
const PCIE_CAPABLE_RESET: u32 = 1 << 15 | 1 << 28;
/// Bit of the device control register: reads as zero.
const PCIE_INITIATE_RESET: u16 = 1 << 15;

const MSIX: usize = 0x80;
const MSIX_CONTROL: usize = MSIX + 2;
const MSIX_ID: u8 = 0x11;
/// Enable, and mask of all vectors.
const MSIX_BITS: u16 = 1 << 15 | 1 << 14;

/// Configuration space.
#[derive(Debug)]
pub struct ConfigSpace {
    bytes: [u8; CONFIG_BYTES],
    /// Bits that can be written.
    writable: [u8; CONFIG_BYTES],
}

impl Default for ConfigSpace {
    fn default() -> Self {
        Self::new()
    }
}

impl ConfigSpace {
    /// The configuration space after a reset.
    pub fn new() -> Self {
        let mut space = Self { bytes: [0; CONFIG_BYTES], writable: [0; CONFIG_BYTES] };
        space.put(0x00, &regs::PCI_VENDOR.to_le_bytes());
        space.put(0x02, &regs::PCI_DEVICE.to_le_bytes());
        space.put(STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        // Revision 0, then the class.
        space.put(0x08, &(regs::PCI_CLASS << 8).to_le_bytes());
        space.put(BAR_0, &BAR_MEMORY_64.to_le_bytes());
        space.put(0x2c, &regs::PCI_VENDOR.to_le_bytes());
        space.put(0x2e, &regs::PCI_DEVICE.to_le_bytes());
        space.put(CAPABILITIES, &[PCIE as u8]);
        space.put(PCIE, &[PCIE_ID, MSIX as u8]);
        space.put(PCIE + 2, &PCIE_ENDPOINT.to_le_bytes());
        space.put(PCIE_DEVICE_CAPABILITIES, &PCIE_CAPABLE_RESET.to_le_bytes());
        space.put(MSIX, &[MSIX_ID, 0]);
        space.put(MSIX_CONTROL, &(regs::MSIX_VECTORS - 1).to_le_bytes());
        // Both are in BAR 0, whose number is the lowest three bits.
        space.put(MSIX + 4, &(regs::MSIX_TABLE as u32).to_le_bytes());
        space.put(MSIX + 8, &(regs::MSIX_PENDING as u32).to_le_bytes());
        space.allow(COMMAND, &COMMAND_BITS.to_le_bytes());
        space.allow(BAR_0, &(!(regs::BAR_SIZE - 1)).to_le_bytes());
        // Interrupt line: storage for software.
        space.allow(0x3c, &[0xff]);
        space.allow(PCIE_DEVICE_CONTROL, &(!PCIE_INITIATE_RESET).to_le_bytes());
        space.allow(MSIX_CONTROL, &MSIX_BITS.to_le_bytes());
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    /// Reads bytes; those beyond the end are all ones.
    pub fn read(&self, at: u64, to: &mut [u8]) {
        for (i, byte) in to.iter_mut().enumerate() {
            let at = usize::try_from(at).unwrap_or(usize::MAX).saturating_add(i);
            *byte = self.bytes.get(at).copied().unwrap_or(0xff);
        }
    }

    /// Writes the writable bits. True if a function-level reset was requested.
    pub fn write(&mut self, at: u64, from: &[u8]) -> bool {
        let mut reset = false;
        for (i, &byte) in from.iter().enumerate() {
            let at = usize::try_from(at).unwrap_or(usize::MAX).saturating_add(i);
            let Some((old, &mask)) = self.bytes.get_mut(at).zip(self.writable.get(at)) else {
                continue;
            };
            *old = *old & !mask | byte & mask;
            let upper = PCIE_INITIATE_RESET.to_le_bytes()[1];
            reset |= at == PCIE_DEVICE_CONTROL + 1 && byte & upper != 0;
        }
        reset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(space: &ConfigSpace, at: usize) -> u32 {
        let mut bytes = [0; 4];
        space.read(at as u64, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn a_bar_answers_its_size() {
        let mut space = ConfigSpace::new();
        space.write(BAR_0 as u64, &u64::MAX.to_le_bytes());
        let (low, high) = (word(&space, BAR_0), word(&space, BAR_0 + 4));
        assert_eq!(low & 0xf, BAR_MEMORY_64);
        let size = !(u64::from(low & !0xf) | u64::from(high) << 32) + 1;
        assert_eq!(size, regs::BAR_SIZE);
    }

    #[test]
    fn capabilities_are_a_list_that_ends() {
        let space = ConfigSpace::new();
        let mut found = Vec::new();
        let mut at = space.bytes[CAPABILITIES] as usize;
        while at != 0 {
            found.push(space.bytes[at]);
            at = space.bytes[at + 1] as usize;
        }
        assert_eq!(found, [PCIE_ID, MSIX_ID]);
    }

    #[test]
    fn identity_cannot_be_written_and_a_reset_is_noticed() {
        let mut space = ConfigSpace::new();
        let before = word(&space, 0);
        assert!(!space.write(0, &[0xff; 4]));
        assert_eq!(word(&space, 0), before);
        assert!(!space.write(PCIE_DEVICE_CONTROL as u64, &0x000fu16.to_le_bytes()));
        assert!(space.write(PCIE_DEVICE_CONTROL as u64, &0x800fu16.to_le_bytes()));
        assert_eq!(word(&space, PCIE_DEVICE_CONTROL) & 0xffff, 0x000f, "the bit reads as zero");
        // A write across the end does nothing.
        assert!(!space.write(CONFIG_BYTES as u64 - 1, &[1, 2, 3, 4]));
    }
}

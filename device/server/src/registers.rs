// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers that keep their values until ENABLE takes them.

use tally_uapi::regs;

/// The values that the driver has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    pub admin_ring: u64,
    pub admin_answers: u64,
    pub admin_entries: u32,
    pub waiters_page: u64,
    pub status_page: u64,
}

impl Registers {
    fn address(&mut self, register: u64) -> Option<&mut u64> {
        Some(match register {
            regs::ADMIN_RING => &mut self.admin_ring,
            regs::ADMIN_ANSWERS => &mut self.admin_answers,
            regs::WAITERS_PAGE => &mut self.waiters_page,
            regs::STATUS_PAGE => &mut self.status_page,
            _ => return None,
        })
    }

    /// The value of a register or of a half of one; 0 if there is none.
    pub fn read(&mut self, offset: u64, bytes: usize) -> u64 {
        if offset == regs::ADMIN_ENTRIES && bytes == 4 {
            return u64::from(self.admin_entries);
        }
        let value = self.address(offset & !7).map_or(0, |value| *value);
        match (offset % 8, bytes) {
            (0, 8) => value,
            (0, 4) => value & u64::from(u32::MAX),
            (4, 4) => value >> 32,
            _ => 0,
        }
    }

    /// Writes a register or a half of one.
    pub fn write(&mut self, offset: u64, bytes: usize, value: u64) {
        if offset == regs::ADMIN_ENTRIES && bytes == 4 {
            self.admin_entries = value as u32;
            return;
        }
        const LOW: u64 = u32::MAX as u64;
        let Some(old) = self.address(offset & !7) else { return };
        *old = match (offset % 8, bytes) {
            (0, 8) => value,
            (0, 4) => *old & !LOW | value & LOW,
            (4, 4) => *old & LOW | value << 32,
            _ => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_u64_register_may_be_written_as_two_u32() {
        let mut registers = Registers::default();
        registers.write(regs::STATUS_PAGE, 4, 0x1234_5000);
        registers.write(regs::STATUS_PAGE + 4, 4, 0xab);
        assert_eq!(registers.status_page, 0xab_1234_5000);
        assert_eq!(registers.read(regs::STATUS_PAGE, 8), 0xab_1234_5000);
        assert_eq!(registers.read(regs::STATUS_PAGE + 4, 4), 0xab);
        registers.write(regs::ADMIN_ENTRIES, 4, 64);
        registers.write(regs::ADMIN_RING + 2, 2, 7);
        let expected =
            Registers { status_page: 0xab_1234_5000, admin_entries: 64, ..Registers::default() };
        assert_eq!(registers, expected);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory budget of a device or of a part of one: its size, and the part in use.
//!
//! All devices of a GPU share its memory. A share is only a limit for accounting, not a region.

use tally_ze::ze_result_t;

use crate::error::{Error, Result};
use crate::quota::Quota;

/// The share of a device. Like the devices, it lives as long as the process.
pub struct Budget {
    device: u32,
    quota: Quota,
    /// The budget of the parent device, of whose memory this is a part.
    parent: Option<&'static Budget>,
}

/// The bytes that an allocation takes of its device's share. Returned on drop.
pub struct Charge {
    budget: &'static Budget,
    bytes: u64,
}

impl Budget {
    /// Creates the share of the device with this number (`Gpu::devices`).
    pub fn new(device: u32, limit: u64, parent: Option<&'static Self>) -> &'static Self {
        Box::leak(Box::new(Self { device, quota: Quota::new(limit), parent }))
    }

    /// The size of the share in bytes.
    pub fn limit(&self) -> u64 {
        self.quota.limit()
    }

    /// Number of bytes in use.
    pub fn used(&self) -> u64 {
        self.quota.used()
    }

    /// Charges `bytes`, which may be 0, for memory of the device.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY.
    pub fn charge(&'static self, bytes: u64) -> Result<Charge> {
        if bytes != 0 {
            self.take(bytes)?;
        }
        Ok(Charge { budget: self, bytes })
    }

    fn take(&self, bytes: u64) -> Result {
        if !self.quota.take(bytes) {
            return Err(self.too_little(bytes));
        }
        match self.parent {
            Some(parent) => parent.take(bytes).inspect_err(|_| self.quota.give(bytes)),
            None => Ok(()),
        }
    }

    fn give(&self, bytes: u64) {
        self.quota.give(bytes);
        if let Some(parent) = self.parent {
            parent.give(bytes);
        }
    }

    #[cold]
    fn too_little(&self, bytes: u64) -> Error {
        let (used, limit) = (self.used(), self.limit());
        Error::new(
            ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
            format!("{bytes} bytes are asked for, and {used} of the device's {limit} are in use"),
        )
    }
}

impl Charge {
    /// The number of the device.
    pub fn device(&self) -> u32 {
        self.budget.device
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes != 0 {
            self.budget.give(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_takes_of_its_own_share_and_of_the_whole() {
        let whole = Budget::new(0, 100, None);
        let parts = [1, 2].map(|number| Budget::new(number, 60, Some(whole)));
        let first = parts[0].charge(50).expect("there is room");
        assert_eq!((parts[0].used(), whole.used()), (50, 50));
        let code = |result: Result<Charge>| result.err().map(|error| error.code());
        let out = Some(ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        assert_eq!(code(parts[0].charge(11)), out, "the part is full");
        assert_eq!(code(parts[1].charge(51)), out, "the whole is full");
        assert_eq!(parts[1].used(), 0, "what failed has taken nothing");
        assert_eq!(code(parts[1].charge(u64::MAX)), out);
        drop(first);
        assert_eq!((parts[0].used(), whole.used()), (0, 0));
    }
}

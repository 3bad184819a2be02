// SPDX-License-Identifier: GPL-2.0
//! Numbers of GPUs, by which the kernel names them. Each GPU takes the lowest free one.

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// The numbers in use, one bit each.
static USED: Atomic<u64> = Atomic::new(0);

/// A number in use, freed on drop.
pub(super) struct Number(u32);

impl Number {
    /// A number that no other GPU has.
    ///
    /// # Errors
    /// ENOSPC: there are 64 GPUs.
    pub(super) fn take() -> Result<Self> {
        let mut used = USED.load(Relaxed);
        loop {
            let number = used.trailing_ones();
            if number == u64::BITS {
                return Err(ENOSPC);
            }
            match USED.cmpxchg(used, used | 1 << number, Full) {
                Ok(_) => return Ok(Self(number)),
                Err(now) => used = now,
            }
        }
    }

    /// The number.
    pub(super) fn get(&self) -> u32 {
        self.0
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        USED.fetch_sub(1u64 << self.0, Full);
    }
}

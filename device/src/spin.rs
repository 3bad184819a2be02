// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spinning of the device's threads.

use crate::sync::thread;

/// A spin that first polls closely, then yields its processor between looks:
/// the thread that will end the spin may need this very processor.
#[derive(Debug, Default)]
pub(crate) struct Spin(u32);

impl Spin {
    /// Looks before the first yield: about 2 µs.
    const CLOSE: u32 = 50;

    /// Called between two looks.
    pub(crate) fn turn(&mut self) {
        self.0 += 1;
        if self.0 <= Self::CLOSE {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

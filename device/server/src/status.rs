// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status page, which contains the reasons for the device's interrupts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tally_uapi::firmware::StatusPage;

use crate::machine::{Machine, View};

/// The status page and its interrupt.
#[derive(Debug)]
pub struct Status {
    page: View<StatusPage>,
    machine: Arc<dyn Machine>,
}

impl Status {
    /// A cleared status page.
    pub fn new(page: View<StatusPage>, machine: Arc<dyn Machine>) -> Self {
        let words = page.signalled.iter().chain(&page.lost);
        let counts = [&page.answered, &page.interrupts];
        words.chain(counts).for_each(|word| word.store(0, Ordering::SeqCst));
        Self { page, machine }
    }

    /// Reports that a cell of the bucket was written while a thread of the driver slept there.
    pub fn signalled(&self, bucket: usize) {
        let bit = 1 << (bucket % 64);
        if self.page.signalled[bucket / 64].fetch_or(bit, Ordering::SeqCst) & bit == 0 {
            self.interrupt();
        }
    }

    /// Reports that a VM was lost. `vm` is a valid id.
    pub fn lost(&self, vm: u32) {
        let bit = 1 << (vm % 64);
        if self.page.lost[vm as usize / 64].fetch_or(bit, Ordering::SeqCst) & bit == 0 {
            self.interrupt();
        }
    }

    /// Reports that an answer was written.
    pub fn answered(&self) {
        self.page.answered.fetch_add(1, Ordering::SeqCst);
        self.interrupt();
    }

    fn interrupt(&self) {
        self.page.interrupts.fetch_add(1, Ordering::SeqCst);
        self.machine.interrupt();
    }
}

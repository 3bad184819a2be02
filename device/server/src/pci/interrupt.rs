// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interrupt: one MSI-X vector, an eventfd of the VMM.

use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The device's only vector.
#[derive(Debug, Default)]
pub struct Interrupt {
    vector: Mutex<Vector>,
}

#[derive(Debug, Default)]
struct Vector {
    eventfd: Option<File>,
    /// It was raised while the VMM had given no eventfd.
    pending: bool,
}

impl Vector {
    fn fire(&mut self) {
        // An eventfd refuses only a count that is full, which interrupts, too.
        self.pending = match &mut self.eventfd {
            Some(eventfd) => eventfd.write(&1u64.to_ne_bytes()).is_err(),
            None => true,
        };
    }
}

impl Interrupt {
    fn lock(&self) -> MutexGuard<'_, Vector> {
        self.vector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interrupts the guest; later, if the vector is masked.
    pub fn raise(&self) {
        self.lock().fire();
    }

    /// The VMM says which eventfd stands for the vector; None masks it.
    pub fn connect(&self, eventfd: Option<File>) {
        let mut vector = self.lock();
        vector.eventfd = eventfd;
        if vector.pending && vector.eventfd.is_some() {
            vector.fire();
        }
    }

    /// The device was reset: nothing is pending.
    pub fn forget(&self) {
        self.lock().pending = false;
    }
}

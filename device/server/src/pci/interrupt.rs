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
    /// Whether it was raised while there was no eventfd of the VMM.
    pending: bool,
}

impl Vector {
    fn fire(&mut self) {
        // A write to an eventfd fails only if its count is full, which interrupts, too.
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

    /// Interrupts the guest, or marks the interrupt as pending if the vector is masked.
    pub fn raise(&self) {
        self.lock().fire();
    }

    /// Sets the VMM's eventfd for the vector; None masks it.
    pub fn connect(&self, eventfd: Option<File>) {
        let mut vector = self.lock();
        vector.eventfd = eventfd;
        if vector.pending && vector.eventfd.is_some() {
            vector.fire();
        }
    }

    /// Clears a pending interrupt, after a reset of the device.
    pub fn forget(&self) {
        self.lock().pending = false;
    }
}

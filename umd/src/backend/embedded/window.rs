// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs of the device in this process.

use std::sync::atomic::{AtomicBool, Ordering};

use tally_device::Vm;

/// A VM: a window of the process's addresses.
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) vm: Vm,
    /// Set by VM_DESTROY, for waits that still name the VM.
    pub(super) gone: AtomicBool,
}

impl Window {
    pub(super) fn new(start: u64, end: u64, vm: Vm) -> Self {
        Self { start, end, vm, gone: AtomicBool::new(false) }
    }

    /// Whether the VM is lost or destroyed: cells that it has not signalled never will be.
    pub(super) fn is_over(&self) -> bool {
        self.gone.load(Ordering::Acquire) || self.vm.is_lost()
    }

    pub(super) fn contains(&self, address: u64, size: u64) -> bool {
        self.start <= address && address + size <= self.end
    }
}

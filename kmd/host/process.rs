// SPDX-License-Identifier: GPL-2.0
//! The transport to a device that is a process of this machine.

use core::mem::offset_of;
use core::ptr::NonNull;

use kernel::alloc::Flags;
use kernel::device::{Bound, Device};
use kernel::prelude::*;
use kernel::sync::Arc;
use tally_uapi::{host, regs};

use super::doorbells::Doorbells;
use crate::raw::space::Area;
use crate::raw::time::monotonic_ns;
use crate::transport::{Addresses, Memory, Purpose, Status, Transport};

/// See the module. Writes of registers become doorbells; registers that are read have their values here.
pub(super) struct Process {
    dev: &'static Device<Bound>,
    area: Arc<Area>,
    doorbells: Arc<Doorbells>,
    clock_start: u64,
}

impl Process {
    pub(super) fn new(
        dev: &'static Device<Bound>,
        area: Arc<Area>,
        doorbells: Arc<Doorbells>,
        clock_start: u64,
    ) -> Self {
        Self {
            dev,
            area,
            doorbells,
            clock_start,
        }
    }
}

/// Part of the area.
struct Part {
    start: NonNull<u64>,
    bytes: usize,
    offset: usize,
    /// Keeps the area alive.
    _area: Arc<Area>,
}

// SAFETY: a part of an `Area`, which it keeps alive and which any thread may use.
unsafe impl Send for Part {}
// SAFETY: as above.
unsafe impl Sync for Part {}

impl Memory for Part {
    fn base(&self) -> NonNull<u64> {
        self.start
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn address(&self) -> u64 {
        self.offset as u64
    }
}

impl Transport for Process {
    fn device(&self) -> &Device<Bound> {
        self.dev
    }

    fn version(&self) -> (u16, u16) {
        (regs::VERSION_MAJOR, regs::VERSION_MINOR)
    }

    fn present(&self) -> bool {
        true
    }

    fn status(&self) -> Status {
        Status {
            enabled: !self.doorbells.ended(),
            resetting: false,
            failed: false,
        }
    }

    /// Returns false: a process that does not answer would not reset itself either.
    fn begin_reset(&self) -> bool {
        false
    }

    /// The process loses its view of the pages with the bindings, which the driver removes itself.
    fn force_reset(&self) -> Result {
        self.doorbells.end();
        Ok(())
    }

    /// Does nothing: START has enabled the device and told the process where everything is.
    fn enable(&self, _: &Addresses) {}

    fn clock(&self) -> Result<u64> {
        Ok((monotonic_ns() as u64).wrapping_sub(self.clock_start))
    }

    fn admin_tail(&self, tail: u32) {
        self.doorbells.admin_tail(tail);
    }

    fn kick(&self, queue: u32) {
        self.doorbells.kick(queue);
    }

    fn wake(&self, bucket: u32) {
        self.doorbells.wake(bucket);
    }

    fn memory(&self, purpose: Purpose, bytes: usize, flags: Flags) -> Result<KBox<dyn Memory>> {
        let offset = match purpose {
            Purpose::Commands => offset_of!(host::Area, commands),
            Purpose::Answers => offset_of!(host::Area, answers),
            Purpose::Status => offset_of!(host::Area, status),
            Purpose::Waiters => offset_of!(host::Area, waiters),
            Purpose::Argument => return Err(EINVAL),
        };
        let start = self.area.part(offset, bytes).ok_or(EINVAL)?;
        Ok(KBox::new(
            Part {
                start,
                bytes,
                offset,
                _area: self.area.clone(),
            },
            flags,
        )?)
    }

    fn dma(&self) -> Option<&Device<Bound>> {
        None
    }
}

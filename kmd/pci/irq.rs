// SPDX-License-Identifier: GPL-2.0
//! The interrupt: one vector, served by a thread, since its handler may sleep.

use kernel::irq::{IrqReturn, ThreadedHandler};

use crate::gpu::Gpu;
use crate::state::Count;

/// The handler of a bound device's vector.
pub(crate) struct Irq<'bound> {
    /// The hardware.
    pub(crate) gpu: &'bound Gpu<'bound>,
}

impl ThreadedHandler for Irq<'_> {
    fn handle_threaded(&self) -> IrqReturn {
        self.gpu.state().count(Count::Interrupts);
        self.gpu.interrupt();
        IrqReturn::Handled
    }
}

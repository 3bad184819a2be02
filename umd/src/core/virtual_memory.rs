// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical memory objects. The VM manages the addresses at which they are mapped (`vm::reserved`).

use std::sync::Arc;

use crate::core::context::Context;
use crate::core::device::Device;
use crate::error::{Error, Result};
use crate::handle::{Kind, object};
use crate::vm::Source;
use crate::vm::reserved::Physical;

/// A physical memory object. Its mappings outlive its handle.
pub struct PhysicalMemory {
    /// The memory.
    pub memory: Arc<Physical>,
}

object!(ze_physical_mem_handle_t => PhysicalMemory, Kind::PhysicalMemory);

impl PhysicalMemory {
    /// Makes memory of `size` bytes, whole pages, from the share of `device` or for the host.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST. INVALID_ARGUMENT: the file is not an export of
    /// that much memory.
    pub fn create(
        context: &Context,
        source: Source,
        size: u64,
        device: Option<&Device>,
    ) -> Result<Self> {
        // Memory that is imported from a file is counted by its exporter.
        let counted = if matches!(source, Source::File(_)) { 0 } else { size };
        let charge = device.map(|it| it.budget().charge(counted)).transpose()?;
        let memory = context.vm().reserved().physical(source, size, context.id(), charge)?;
        Ok(Self { memory })
    }

    /// "The application must only use the physical memory object on the context for which it was
    /// created."
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub fn must_be_of(&self, context: &Context, name: &str) -> Result {
        if self.memory.context() == context.id() {
            return Ok(());
        }
        Err(Error::invalid(format!("{name}: the memory belongs to another context")))
    }
}

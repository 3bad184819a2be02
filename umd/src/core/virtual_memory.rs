// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical memory objects. The addresses that they are mapped at are the VM's (`vm::reserved`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::context::Context;
use crate::error::Result;
use crate::handle::{Kind, object};
use crate::vm::reserved::Physical;

/// A physical memory object. What is mapped of it outlives its handle.
pub struct PhysicalMemory {
    /// The memory.
    pub memory: Arc<Physical>,
    /// Identifies it in this process; never reused.
    pub id: u64,
}

object!(ze_physical_mem_handle_t => PhysicalMemory, Kind::PhysicalMemory);

impl PhysicalMemory {
    /// Makes memory of `size` bytes, whole pages.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST.
    pub fn create(context: &Context, size: u64) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let memory = context.vm().reserved().physical(size)?;
        Ok(Self { memory, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) })
    }
}

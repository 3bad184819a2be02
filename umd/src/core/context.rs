// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contexts: owners of memory, modules, lists and events. All contexts of a device share its VM.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tally_ze::{ze_context_handle_t, ze_memory_type_t};

use crate::core::device::Device;
use crate::error::{Error, Result};
use crate::handle::{self, Kind, object};
use crate::sync::shared::Shared;
use crate::vm::{Found, Vm};

/// A context. Its objects keep it alive; memory that the application has not freed goes with it.
pub struct Context {
    id: u64,
    device: &'static Device,
    vm: Arc<Vm>,
    shared: Arc<Shared>,
    raw: OnceLock<ze_context_handle_t>,
}

object!(ze_context_handle_t => Arc<Context>, Kind::Context);

impl Context {
    /// Makes a context of `device` and its handle.
    ///
    /// # Errors
    /// As [`Device::enter`], or OUT_OF_HOST_MEMORY.
    pub fn create(device: &'static Device) -> Result<ze_context_handle_t> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let vm = device.enter()?;
        let context = Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            device,
            shared: Shared::of(&vm),
            vm,
            raw: OnceLock::new(),
        });
        match handle::create::<ze_context_handle_t>(context.clone()) {
            Ok(raw) => Ok(*context.raw.get_or_init(|| raw)),
            Err(error) => {
                context.destroy();
                Err(error)
            }
        }
    }

    /// The handle is gone; objects of the context may still hold it.
    pub fn destroy(&self) {
        self.device.leave(&self.vm);
    }

    /// The handle, also for objects that are asked for their context.
    pub fn raw(&self) -> ze_context_handle_t {
        self.raw.get().copied().unwrap_or_default()
    }

    /// The VM.
    #[inline]
    pub fn vm(&self) -> &Arc<Vm> {
        &self.vm
    }

    /// What the lists and events of the VM share.
    #[inline]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &'static Device {
        self.device
    }

    /// Whether the context is usable with `device`.
    pub fn holds(&self, device: &Device) -> bool {
        std::ptr::eq(self.device, device)
    }

    /// As [`Context::holds`], as a check of an argument.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub fn must_hold(&self, device: &Device, name: &str) -> Result {
        if self.holds(device) {
            return Ok(());
        }
        Err(Error::invalid(format!("{name}: the device does not belong to hContext")))
    }

    /// Whether its device still works.
    ///
    /// # Errors
    /// DEVICE_LOST.
    pub fn status(&self) -> Result {
        self.vm.check()
    }

    /// Makes unified shared memory.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST.
    pub fn allocate(
        &self,
        size: u64,
        align: u64,
        kind: ze_memory_type_t,
        on_device: bool,
    ) -> Result<u64> {
        self.vm.allocate(size, align, kind, self.id, on_device)
    }

    /// Frees memory of this context by its first address.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not such an address.
    pub fn free(&self, address: u64) -> Result {
        if self.vm.release(address, self.id).is_some() {
            return Ok(());
        }
        let what = match self.vm.find(address) {
            Some(found) if found.context != self.id => "belongs to another context".to_owned(),
            Some(found) => format!("points into the allocation at {:#x}", found.base),
            None => "was not allocated by this driver, or has been freed".to_owned(),
        };
        Err(Error::invalid(format!("ptr: {address:#x} {what}")))
    }

    /// The allocation of this context that holds an address.
    pub fn find(&self, address: u64) -> Option<Found> {
        self.vm.find(address).filter(|found| found.context == self.id)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let left = self.vm.release_all(self.id);
        if !left.is_empty() {
            log::warn!("a context ended with {} allocations that were not freed", left.len());
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contexts: owners of memory, modules, lists and events. All contexts of a device share its VM.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tally_ze::{ze_context_handle_t, ze_memory_type_t, ze_result_t};

use crate::checks;
use crate::core::device::Device;
use crate::error::{Error, Result};
use crate::handle::{self, Kind, object};
use crate::log::warn_once;
use crate::settings;
use crate::sync::cell::Cell;
use crate::sync::shared::Shared;
use crate::vm::{Allocation, Found, Retired, Source, Vm};

/// A context. Its objects keep it alive; memory that the application has not freed is freed with it.
pub struct Context {
    id: u64,
    /// The first of its devices.
    device: &'static Device,
    /// The others.
    more: Vec<&'static Device>,
    vm: Arc<Vm>,
    shared: Arc<Shared>,
    raw: OnceLock<ze_context_handle_t>,
}

object!(ze_context_handle_t => Arc<Context>, Kind::Context);

impl Context {
    /// Makes a context of devices and their sub-devices, and its handle.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: there is no device. Those of [`Gpu::enter`](crate::core::gpu::Gpu::enter), or
    /// OUT_OF_HOST_MEMORY.
    pub fn create(devices: &[&'static Device]) -> Result<ze_context_handle_t> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let Some((&device, more)) = devices.split_first() else {
            return Err(Error::invalid("hDriver: the driver has no devices"));
        };
        let vm = device.gpu().enter()?;
        let context = Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            device,
            more: more.to_vec(),
            shared: Shared::of(&vm),
            vm,
            raw: OnceLock::new(),
        });
        context.shared.ref_counts().context_opens();
        match handle::create::<ze_context_handle_t>(context.clone()) {
            Ok(raw) => Ok(*context.raw.get_or_init(|| raw)),
            Err(error) => {
                context.destroy();
                Err(error)
            }
        }
    }

    /// Called when the handle is destroyed; objects of the context may still keep it.
    pub fn destroy(&self) {
        // Objects destroyed before a loss do not wait for anything any more, and would keep the lost VM.
        self.shared.reap();
        self.device.gpu().leave(&self.vm);
        self.shared.ref_counts().context_closes(&self.shared);
    }

    /// The handle, which objects return as their context.
    pub fn raw(&self) -> ze_context_handle_t {
        self.raw.get().copied().unwrap_or_default()
    }

    /// A number that identifies the context in this process; never reused.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The VM.
    #[inline]
    pub fn vm(&self) -> &Arc<Vm> {
        &self.vm
    }

    /// The state that the lists and events of the VM share.
    #[inline]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The first of its devices, for questions whose answer is the same for all.
    #[inline]
    pub fn device(&self) -> &'static Device {
        self.device
    }

    /// Whether the context can be used with `device`: it or its root device belongs to the context.
    #[inline]
    pub fn holds(&self, device: &Device) -> bool {
        device.is_within(self.device) || self.more.iter().any(|it| device.is_within(it))
    }

    /// Like [`Context::holds`], as a check of an argument.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    #[inline]
    pub fn must_hold(&self, device: &Device, name: &str) -> Result {
        if self.holds(device) { Ok(()) } else { Err(foreign_device(name)) }
    }

    /// Whether its device still works.
    ///
    /// # Errors
    /// DEVICE_LOST.
    pub fn status(&self) -> Result {
        self.vm.check()
    }

    /// Allocates unified shared memory, from the share of `device` if one is given.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST.
    pub fn allocate(
        &self,
        source: Source,
        size: u64,
        align: u64,
        kind: ze_memory_type_t,
        device: Option<&Device>,
    ) -> Result<u64> {
        use ze_memory_type_t as ty;
        // Memory that was freed with a delay may be available now.
        self.shared.reap();
        let forced = kind == ty::ZE_MEMORY_TYPE_SHARED && settings::get().shared_on_device;
        let own = !matches!(source, Source::File(_));
        let counts = own && (forced || kind == ty::ZE_MEMORY_TYPE_DEVICE);
        let device = device.or(forced.then_some(self.device));
        let charge = device.map(|it| it.budget().charge(if counts { size } else { 0 }));
        self.vm.allocate(source, size, align, kind, self.id, charge.transpose()?)
    }

    /// The device that memory was allocated for.
    pub fn device_of(&self, found: &Found) -> Option<&'static Device> {
        self.device.gpu().devices().get(found.device? as usize).copied()
    }

    /// Frees memory by its first address. Like Intel's driver, it accepts memory of any context.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not such an address.
    pub fn free(&self, address: u64) -> Result {
        self.check_free(address)?;
        self.vm.free(self.take(address)?);
        Ok(())
    }

    /// Like [`Context::free`], once all submitted commands are complete. A kernel may use any address, so it is
    /// unknown which commands use this one.
    ///
    /// # Errors
    /// Those of [`Context::free`].
    pub fn free_when_idle(&self, address: u64) -> Result {
        self.check_free(address)?;
        match self.shared.wait_idle(u64::MAX, |_| true) {
            // A lost device does not touch the memory any more.
            Err(error) if error.code() == ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST => {}
            result => drop(result?),
        }
        self.free(address)
    }

    /// Like [`Context::free_when_idle`] without waiting: the address no longer belongs to the application, and
    /// is reused only when the device is done with it.
    ///
    /// # Errors
    /// Those of [`Context::free`]; out of memory, and then nothing has changed.
    pub fn free_later(&self, address: u64) -> Result {
        self.check_free(address)?;
        let unfinished = self.unfinished()?;
        self.shared.retire_after(unfinished, Box::new(Retired::new(&self.vm, self.take(address)?)));
        Ok(())
    }

    /// The cells and values at which the device is done with all submitted commands; none if it is lost.
    ///
    /// # Errors
    /// Out of memory.
    pub fn unfinished(&self) -> Result<Vec<(Cell, u64)>> {
        match self.shared.unfinished() {
            Err(error) if error.code() == ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST => {
                Ok(Vec::new())
            }
            result => result,
        }
    }

    /// Removes an allocation by its first address; dropping it frees the memory.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not such an address.
    pub fn take(&self, address: u64) -> Result<Box<Allocation>> {
        let owner = self.vm.find(address).map(|found| found.context);
        let taken = owner.and_then(|owner| self.vm.release(address, owner));
        taken.ok_or_else(|| self.no_start(address))
    }

    fn check_free(&self, address: u64) -> Result {
        match self.vm.find(address) {
            Some(found) if found.base == address && found.imported => Err(Error::invalid(format!(
                "ptr: {address:#x} is another process's memory: zeMemCloseIpcHandle closes it"
            ))),
            Some(found) if found.base == address => {
                if found.context != self.id {
                    warn_once!(
                        "hContext: the memory at {address:#x} belongs to another context; it is freed"
                    );
                }
                Ok(())
            }
            _ => Err(self.no_start(address)),
        }
    }

    /// The error for an address that is not the first of an allocation.
    #[cold]
    fn no_start(&self, address: u64) -> Error {
        if let Some(checks) = checks::get() {
            checks.freed_badly(address);
        }
        let what = match self.vm.find(address) {
            Some(found) => format!("points into the allocation at {:#x}", found.base),
            None => "was not allocated by this driver, or has been freed".to_owned(),
        };
        Error::invalid(format!("ptr: {address:#x} {what}"))
    }

    /// The allocation of this context that contains an address.
    pub fn find(&self, address: u64) -> Option<Found> {
        self.vm.find(address).filter(|found| found.context == self.id)
    }
}

#[cold]
fn foreign_device(name: &str) -> Error {
    Error::invalid(format!("{name}: the device does not belong to hContext"))
}

impl Drop for Context {
    fn drop(&mut self) {
        let ranges = self.vm.reserved().free_all(self.id);
        if ranges != 0 {
            log::warn!("a context ended with {ranges} reserved ranges that were not freed");
        }
        let left = self.vm.release_all(self.id);
        if !left.is_empty() {
            log::warn!("a context ended with {} allocations that were not freed", left.len());
        }
    }
}

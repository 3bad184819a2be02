// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GPU: one function of the hardware, its properties from the kernel, and the VM that all contexts share.
//! Level Zero's devices are parts of it (`device.rs`).

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tally_compiler_protocol::TargetCpu;
use tally_uapi::ioctl::{ClockPair, DeviceInfo, EngineInfo, Query, query};
use tally_ze::ze_result_t;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::backend::Backend;
use crate::checks;
use crate::core::device::Device;
use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::space::Space;
use crate::trace;
use crate::vm::Vm;

/// A GPU. It lives as long as the process.
pub struct Gpu {
    backend: Arc<dyn Backend>,
    info: DeviceInfo,
    engines: Vec<EngineInfo>,
    target: TargetCpu,
    space: Arc<Space>,
    vm: Mutex<Current>,
    devices: OnceLock<Vec<&'static Device>>,
}

/// The VM of the contexts that exist.
#[derive(Default)]
struct Current {
    vm: Weak<Vm>,
    /// Number of contexts that have not been destroyed.
    contexts: usize,
    /// Whether the last VM was lost and the application has not asked for the device's status since.
    unnoticed_loss: bool,
}

impl Gpu {
    /// Queries the kernel for its properties and makes the VA reservation.
    ///
    /// # Errors
    /// The kernel's errors, or OUT_OF_HOST_MEMORY.
    pub fn new(backend: Arc<dyn Backend>, settings: &Settings) -> Result<Self> {
        let info: DeviceInfo = ask(&*backend, query::DEVICE)?;
        let space = Space::reserve(settings.reservation, info.va_start, info.va_end)?;
        let space = Arc::new(space);
        if settings.places_memory() {
            space.set_apart();
        }
        checks::start(&space, backend.sees_process());
        let engines = ask_bytes(&*backend, query::ENGINES)?;
        let engines = engines
            .chunks_exact(size_of::<EngineInfo>())
            .filter_map(|bytes| EngineInfo::read_from_bytes(bytes).ok())
            .collect();
        let target = ask_bytes(&*backend, query::TARGET)?;
        let mut words = target.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        let mut word = || words.next().unwrap_or_default().into_owned();
        let own = TargetCpu { name: word(), features: word() };
        let fits = |level: &TargetCpu| match level.missing_on(&own) {
            Some(missing) => {
                log::warn!("TALLY_CPU: the device's processor lacks {missing}");
                false
            }
            None => true,
        };
        let target = settings.cpu.clone().filter(fits).unwrap_or(own);
        let (vm, devices) = (Mutex::default(), OnceLock::new());
        let gpu = Self { backend, info, engines, target, space, vm, devices };
        let clock = gpu.clock()?;
        trace::set_clock(clock.host_ns, clock.device_ticks);
        log::info!("{} device: {:?}, {:?}", gpu.backend.lane(), gpu.info, gpu.target);
        Ok(gpu)
    }

    /// The back end that reaches it.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The VA reservation.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Its properties from the back end.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Its engine classes.
    pub fn engines(&self) -> &[EngineInfo] {
        &self.engines
    }

    /// The target that kernels are compiled for.
    pub fn target(&self) -> &TargetCpu {
        &self.target
    }

    /// Its devices and sub-devices, by their numbers.
    pub fn devices(&self) -> &[&'static Device] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }

    /// Sets its devices, once.
    pub(super) fn set_devices(&self, devices: Vec<&'static Device>) {
        self.devices.get_or_init(|| devices);
    }

    /// Host and device clock at the same moment.
    ///
    /// # Errors
    /// DEVICE_LOST if the device is gone.
    pub fn clock(&self) -> Result<ClockPair> {
        ask(&*self.backend, query::CLOCK)
    }

    /// The VM that contexts share, for one more context; made if there is none.
    ///
    /// # Errors
    /// DEVICE_LOST after a loss, until all contexts are destroyed and [`Gpu::status`] was called.
    pub fn enter(&self) -> Result<Arc<Vm>> {
        let mut current = self.current();
        let vm = match current.vm.upgrade() {
            Some(vm) if vm.check().is_ok() => vm,
            Some(_) if current.contexts != 0 => {
                current.unnoticed_loss = true;
                return Err(lost("contexts of the time before the loss still exist"));
            }
            Some(_) => return Err(lost("zeDeviceGetStatus has not been called since")),
            None if current.unnoticed_loss => {
                return Err(lost("zeDeviceGetStatus has not been called since"));
            }
            None => Vm::create(&self.backend, &self.space)?,
        };
        current.vm = Arc::downgrade(&vm);
        current.contexts += 1;
        Ok(vm)
    }

    /// The VM of the contexts that exist, if there are any.
    pub fn vm(&self) -> Option<Arc<Vm>> {
        self.current().vm.upgrade()
    }

    /// Called when a context with this VM is destroyed. Its objects may still exist.
    pub fn leave(&self, vm: &Vm) {
        let mut current = self.current();
        current.contexts = current.contexts.saturating_sub(1);
        current.unnoticed_loss |= vm.is_lost();
    }

    /// Checks that the device works. Once all contexts from before a loss are destroyed, this call makes the
    /// device usable again. Objects that the application has left behind keep the lost VM, but nothing else
    /// waits for them.
    ///
    /// # Errors
    /// DEVICE_LOST.
    pub fn status(&self) -> Result {
        let mut current = self.current();
        if let Some(vm) = current.vm.upgrade()
            && let Err(error) = vm.check()
        {
            current.unnoticed_loss = true;
            if current.contexts != 0 {
                return Err(error);
            }
            current.vm = Weak::new();
        }
        current.unnoticed_loss = false;
        self.clock().map(drop)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.vm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(why: &str) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
        format!("the GPU's address space was lost, and {why}"),
    )
}

/// QUERY for one struct.
fn ask<T: FromZeros + FromBytes + IntoBytes>(backend: &dyn Backend, what: u32) -> Result<T> {
    let mut answer = T::new_zeroed();
    let mut arg = Query {
        what,
        size: size_of::<T>() as u32,
        data: (&raw mut answer) as u64,
        ..Default::default()
    };
    // SAFETY: `size` bytes may be written to the answer, any of which is a valid `T`.
    unsafe { backend.query(&mut arg) }.map_err(|errno| Error::kernel("QUERY", errno))?;
    Ok(answer)
}

/// QUERY for an answer of unknown size.
fn ask_bytes(backend: &dyn Backend, what: u32) -> Result<Vec<u8>> {
    let failed = |errno| Error::kernel("QUERY", errno);
    let mut arg = Query { what, ..Default::default() };
    // SAFETY: without an address the kernel writes only the size.
    unsafe { backend.query(&mut arg) }.map_err(failed)?;
    let mut bytes = vec![0; arg.size as usize];
    arg = Query { what, size: arg.size, data: bytes.as_mut_ptr() as u64, ..Default::default() };
    // SAFETY: `size` bytes may be written there.
    unsafe { backend.query(&mut arg) }.map_err(failed)?;
    bytes.truncate(arg.size as usize);
    Ok(bytes)
}

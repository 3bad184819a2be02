// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels: an entry point with the arguments and sizes of its next launch.

use std::ffi::{CStr, CString, c_void};
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_compiler_protocol::{ArgKind, KernelInfo};
use tally_uapi::eu::MAX_LOCAL_BYTES;
use tally_ze::{ze_kernel_indirect_access_flags_t, ze_result_t};

use crate::core::module::{Code, Module};
use crate::error::{Error, Result};
use crate::handle::{Kind, object};
use crate::list::launch::Groups;
use crate::list::prebuilt::Prebuilt;
use crate::log::warn_once;

mod launch;
mod resource;
mod suggest;

pub use launch::{Launch, Launched};

/// A kernel of a module.
pub struct Kernel {
    module: Arc<Module>,
    index: usize,
    attributes: CString,
    code: Arc<Code>,
    launch: Mutex<Launch>,
    /// A copy of `launch` that appends read without its lock.
    prebuilt: Prebuilt,
    indirect: Mutex<ze_kernel_indirect_access_flags_t>,
    forces_residency: AtomicBool,
}

object!(ze_kernel_handle_t => Arc<Kernel>, Kind::Kernel);

impl Kernel {
    /// The kernel `name` of a module; waits for its code.
    ///
    /// # Errors
    /// INVALID_MODULE_UNLINKED, INVALID_KERNEL_NAME, OUT_OF_DEVICE_MEMORY if its local variables exceed
    /// the device's local memory, or as [`Module::code`].
    pub fn create(module: &Arc<Module>, name: &CStr) -> Result<Arc<Self>> {
        let index = module.kernel_names().iter().position(|it| it.as_c_str() == name);
        let index = index.ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_KERNEL_NAME,
                format!("desc->pKernelName: the module has no kernel {name:?}"),
            )
        })?;
        let missing = module.missing();
        if !missing.is_empty() {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED,
                format!("hModule: no module was linked that defines {}", missing.join(", ")),
            ));
        }
        let code = module.code(index as u32)?;
        let info = &module.info().kernels[index];
        // The compiler builds for any device, so it does not check this.
        if code.local_static > MAX_LOCAL_BYTES {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                format!(
                    "desc->pKernelName: {name:?} has {} bytes of local variables; a group has {MAX_LOCAL_BYTES}",
                    code.local_static
                ),
            ));
        }
        if info.uses_system_scope {
            module.context().vm().make_all_coherent()?;
        }
        let launch = Launch::blank(module, info, code)?;
        let attributes = CString::new(info.source_attributes.replace('\0', "")).unwrap_or_default();
        Ok(Arc::new(Self {
            module: module.clone(),
            index,
            attributes,
            code: launch.code.clone(),
            prebuilt: Prebuilt::new(launch.args.len()),
            launch: Mutex::new(launch),
            indirect: Mutex::default(),
            forces_residency: AtomicBool::new(false),
        }))
    }

    /// A launch of this kernel of which nothing is set.
    ///
    /// # Errors
    /// Out of memory.
    pub fn blank(&self) -> Result<Launch> {
        Launch::blank(&self.module, self.info(), self.code.clone())
    }

    /// The module.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// The compiler's facts about the kernel.
    pub fn info(&self) -> &KernelInfo {
        &self.module.info().kernels[self.index]
    }

    /// Its index in the module.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its name.
    pub fn name(&self) -> &CStr {
        &self.module.kernel_names()[self.index]
    }

    /// Its attributes in OpenCL C's spelling.
    pub fn attributes(&self) -> &CStr {
        &self.attributes
    }

    /// The code; every launch that may still run it keeps it.
    #[inline]
    pub fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// The next launch, in the form that an append copies.
    #[inline]
    pub fn prebuilt(&self) -> &Prebuilt {
        &self.prebuilt
    }

    /// The next launch, for an append to copy from.
    pub fn launch(&self) -> impl Deref<Target = Launch> + '_ {
        self.launch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next launch, to be changed.
    pub fn change(&self) -> Change<'_> {
        let launch = self.launch.lock().unwrap_or_else(PoisonError::into_inner);
        Change { launch, prebuilt: &self.prebuilt }
    }

    /// The kinds of memory that the program allows the kernel to reach through pointers in memory.
    /// It can always reach all; the flags are only remembered.
    pub fn indirect(&self) -> MutexGuard<'_, ze_kernel_indirect_access_flags_t> {
        self.indirect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All device memory is to be resident when it runs (`ZE_KERNEL_FLAG_FORCE_RESIDENCY`). It is in any case;
    /// this, too, is only remembered.
    pub fn force_residency(&self) {
        self.forces_residency.store(true, Ordering::Relaxed);
    }

    /// Whether it was said.
    pub fn forces_residency(&self) -> bool {
        self.forces_residency.load(Ordering::Relaxed)
    }

    /// Most work-items of a group, by the device and by the kernel's scratch memory.
    pub fn max_group_items(&self) -> u32 {
        self.code.usual().max_items()
    }

    /// Sets the size of the groups.
    ///
    /// # Errors
    /// INVALID_GROUP_SIZE_DIMENSION.
    pub fn set_group_size(&self, size: [u32; 3]) -> Result {
        // Before the launch is locked: this may wait for the compiler.
        self.module.prepare(&self.code, size);
        self.change().set_group_size(self.info(), size)
    }

    /// Sets the size of the groups of another launch of this kernel.
    ///
    /// # Errors
    /// INVALID_GROUP_SIZE_DIMENSION.
    pub fn set_group_size_of(&self, launch: &mut Launch, size: [u32; 3]) -> Result {
        self.module.prepare(&self.code, size);
        launch.set_group_size(self.info(), size)
    }

    /// A group size for this many work-items that divides them in each dimension.
    pub fn suggest_group_size(&self, global: [u32; 3]) -> [u32; 3] {
        if let Some(required) = self.info().required_group_size {
            return required;
        }
        let max = self.max_group_items().max(1);
        let divides =
            |size: [u32; 3]| (0..3).all(|i| size[i] != 0 && global[i].is_multiple_of(size[i]));
        let items = |size: [u32; 3]| size.iter().map(|&it| u64::from(it)).product::<u64>();
        let hint = self.info().group_size_hint.filter(|&it| divides(it));
        if let Some(hint) = hint.filter(|&it| items(it) <= u64::from(max)) {
            return hint;
        }
        let info = self.info();
        let facts = suggest::Facts {
            lanes: info.max_subgroup_size,
            waits: info.uses_barrier,
            max_items: max,
            units: self.module.context().device().info().execution_units,
            axis: self.code.axis,
            side_by_side: self.code.side_by_side,
        };
        suggest::suggest(global, facts)
    }

    /// Sets one argument.
    ///
    /// # Errors
    /// Those of [`Launch::set_argument`].
    ///
    /// # Safety
    /// `value` is null or good for reading `size` bytes.
    pub unsafe fn set_argument(&self, index: u32, size: usize, value: *const c_void) -> Result {
        // SAFETY: as the caller promises.
        unsafe { self.change().set_argument(self.info(), index, size, value) }
    }

    /// Sets all arguments from an array of pointers to their values; a local argument's points to its
    /// size, a size_t.
    ///
    /// # Errors
    /// Those of [`Kernel::set_argument`], and INVALID_NULL_POINTER.
    ///
    /// # Safety
    /// `values` is null or has a pointer for each argument, each null or good for the value's size.
    pub unsafe fn set_all_arguments(&self, values: *const *const c_void) -> Result {
        let args = &self.info().args;
        if args.is_empty() {
            return Ok(());
        }
        let null =
            |what: String| Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER, what);
        if values.is_null() {
            return Err(null("pArguments: the pointer is null".to_owned()));
        }
        // SAFETY: the caller promises a pointer for each argument.
        let values = unsafe { slice::from_raw_parts(values, args.len()) };
        let mut launch = self.change();
        for (i, (arg, &value)) in args.iter().zip(values).enumerate() {
            let index = i as u32;
            if arg.kind != ArgKind::LocalPointer {
                // SAFETY: the caller promises a value of the argument's size.
                unsafe { launch.set_argument(self.info(), index, arg.size as usize, value) }?;
                continue;
            }
            if value.is_null() {
                return Err(null(format!("pArguments[{i}]: the pointer is null")));
            }
            // SAFETY: not null, so it points to the size, says the caller.
            let size = unsafe { value.cast::<usize>().read_unaligned() };
            launch.set_local(self.info(), index, bytes_of_local(i, size))?;
        }
        Ok(())
    }
}

/// Bytes of local memory that an argument asks for. Intel's driver takes the lower 32 bits of the size, and its
/// torch_benchmark passes the address of an `int`.
fn bytes_of_local(argument: usize, size: usize) -> usize {
    let lower = size & u32::MAX as usize;
    if lower != size {
        warn_once!("pArguments[{argument}]: {size:#x} bytes of local memory; {lower:#x} are taken");
    }
    lower
}

/// The next launch while it is changed. Appends find the change when this is dropped.
pub struct Change<'a> {
    launch: MutexGuard<'a, Launch>,
    prebuilt: &'a Prebuilt,
}

impl Deref for Change<'_> {
    type Target = Launch;

    fn deref(&self) -> &Launch {
        &self.launch
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Launch {
        &mut self.launch
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let launch = &*self.launch;
        // An append that finds nothing takes the general path, which says what is missing.
        let prebuilt = launch.is_complete().then(|| launch.with(Groups::Direct([1; 3])));
        self.prebuilt.publish(prebuilt.as_ref());
    }
}

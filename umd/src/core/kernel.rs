// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels: an entry point with the arguments and sizes of its next launch.

use std::ffi::{CStr, CString, c_void};
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_compiler_protocol::{ArgInfo, ArgKind, KernelInfo};
use tally_uapi::eu::{BLOCK_ALIGN, MAX_GROUP_ITEMS, MAX_LOCAL_BYTES, MAX_SCRATCH_BYTES};
use tally_ze::{ze_kernel_indirect_access_flags_t, ze_result_t};

use crate::core::module::{Code, Module};
use crate::error::{Error, Result};
use crate::handle::{Kind, object};
use crate::list::launch::{self as list, Groups};
use crate::list::ready::Ready;

mod resource;
mod suggest;

/// A kernel of a module.
pub struct Kernel {
    module: Arc<Module>,
    index: usize,
    attributes: CString,
    code: Arc<Code>,
    launch: Mutex<Launch>,
    /// What appends copy of `launch` without its lock.
    ready: Ready,
    indirect: Mutex<ze_kernel_indirect_access_flags_t>,
}

object!(ze_kernel_handle_t => Arc<Kernel>, Kind::Kernel);

/// Everything that an append takes from the kernel. A later change of the kernel's arguments does not
/// change what was appended, so appends copy what they need.
///
/// Most appends copy it from [`Kernel::ready`] instead. What takes more than to copy the arguments and to
/// keep the code must not be found there: see [`Change`].
#[derive(Clone)]
pub struct Launch {
    /// Keeps the code mapped; whoever may still run it holds this.
    pub code: Arc<Code>,
    /// The kernel's name.
    pub name: Arc<str>,
    /// The argument block as the compiler laid it out, without the header.
    pub args: Vec<u8>,
    /// Work-items of a group in each dimension; zeroes until it is set.
    pub group_size: [u32; 3],
    /// Local memory of a group, in bytes.
    pub local_bytes: u32,
    /// Scratch memory of a group of this size, in bytes.
    pub scratch_bytes: u32,
    /// Added to global ids, in work-items.
    pub global_offset: [u64; 3],
    /// Arguments that are not set, by index.
    unset: Vec<u32>,
    /// Bytes of each local argument, by argument index.
    local_args: Vec<(u32, u32)>,
}

impl Launch {
    /// Address of the code.
    #[inline]
    pub fn entry(&self) -> u64 {
        self.code.entry
    }

    /// Whether the kernel may be launched: its group size and all its arguments are set.
    ///
    /// # Errors
    /// INVALID_GROUP_SIZE_DIMENSION, INVALID_ARGUMENT.
    #[inline]
    pub fn check(&self) -> Result {
        if self.group_size[0] != 0 && self.unset.is_empty() { Ok(()) } else { Err(self.missing()) }
    }

    /// A launch of these groups.
    pub fn with(&self, groups: Groups) -> list::Launch<'_> {
        // Groups that only the device will know may use all dimensions.
        let known = match groups {
            Groups::Direct(groups) | Groups::Cooperative(groups) => groups,
            Groups::Indirect(_) => [u32::MAX; 3],
        };
        list::Launch {
            entry: self.entry(),
            args: &self.args,
            global_offset: self.global_offset,
            group_size: self.group_size,
            groups,
            work_dim: self.work_dim(known).into(),
            local_bytes: self.local_bytes,
            scratch_bytes: self.scratch_bytes,
            keep: &self.code,
        }
    }

    /// Writes an argument's bytes to its place. The compiler's layout keeps it inside the block; what
    /// does not fit is left out.
    fn write(&mut self, arg: &ArgInfo, bytes: &[u8]) {
        let start = arg.offset as usize;
        if let Some(place) = self.args.get_mut(start..start.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }

    fn mark_set(&mut self, index: u32) {
        self.unset.retain(|&it| it != index);
    }

    #[cold]
    fn missing(&self) -> Error {
        if self.group_size[0] == 0 {
            return Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                format!("hKernel: zeKernelSetGroupSize was not called for {}", self.name),
            );
        }
        let first = self.unset.first().copied().unwrap_or_default();
        Error::invalid(format!("hKernel: argument {first} of {} is not set", self.name))
    }

    /// Dimensions that a launch of these groups uses.
    #[inline]
    pub fn work_dim(&self, groups: [u32; 3]) -> u16 {
        let uses = |i: usize| groups[i] > 1 || self.group_size[i] > 1;
        if uses(2) {
            3
        } else if uses(1) {
            2
        } else {
            1
        }
    }
}

fn argument_size(text: String) -> Error {
    Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, text)
}

fn group_size(text: String) -> Error {
    Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, text)
}

impl Kernel {
    /// The kernel `name` of a module; waits for its code.
    ///
    /// # Errors
    /// INVALID_MODULE_UNLINKED, INVALID_KERNEL_NAME, or as [`Module::code`].
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
        let local_args = info.args.iter().enumerate();
        let local_args = local_args
            .filter(|(_, arg)| arg.kind == ArgKind::LocalPointer)
            .map(|(i, _)| (i as u32, 0))
            .collect();
        let mut args = vec![0; info.args_size as usize];
        if let Some(at) = info.printf_ring {
            let ring = module.context().vm().printf_ring()?;
            // As for arguments: the compiler's layout keeps it inside the block.
            let place = args.get_mut(at as usize..).and_then(|rest| rest.first_chunk_mut::<8>());
            if let Some(place) = place {
                *place = ring.to_le_bytes();
            }
        }
        let launch = Launch {
            local_bytes: code.local_static,
            code,
            name: info.name.as_str().into(),
            args,
            group_size: [0; 3],
            scratch_bytes: 0,
            global_offset: [0; 3],
            unset: (0..info.args.len() as u32).collect(),
            local_args,
        };
        let attributes = CString::new(info.source_attributes.replace('\0', "")).unwrap_or_default();
        let kernel = Arc::new(Self {
            module: module.clone(),
            index,
            attributes,
            code: launch.code.clone(),
            ready: Ready::new(launch.args.len()),
            launch: Mutex::new(launch),
            indirect: Mutex::default(),
        });
        if let Some(required) = kernel.info().required_group_size {
            kernel.set_group_size(required)?;
        }
        Ok(kernel)
    }

    /// The module.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// What the compiler says of the kernel.
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

    /// The code, which whoever may still run it keeps.
    #[inline]
    pub fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// What an append copies of the next launch.
    #[inline]
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// The next launch, for an append to copy from.
    pub fn launch(&self) -> impl Deref<Target = Launch> + '_ {
        self.launch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next launch, to be changed.
    pub fn change(&self) -> Change<'_> {
        let launch = self.launch.lock().unwrap_or_else(PoisonError::into_inner);
        Change { launch, ready: &self.ready }
    }

    /// Which memory the kernel may reach through pointers in memory. All of it, always: this only
    /// remembers what it was told.
    pub fn indirect(&self) -> MutexGuard<'_, ze_kernel_indirect_access_flags_t> {
        self.indirect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most work-items of a group, by the device and by the kernel's scratch memory.
    pub fn max_group_items(&self) -> u32 {
        let launch = self.launch();
        let code = &launch.code;
        let room = u64::from(MAX_SCRATCH_BYTES).saturating_sub(u64::from(code.scratch_fixed));
        let fit = room.checked_div(u64::from(code.scratch_per_item)).unwrap_or(u64::MAX);
        u32::try_from(fit).unwrap_or(u32::MAX).min(MAX_GROUP_ITEMS)
    }

    /// Sets the size of the groups.
    ///
    /// # Errors
    /// INVALID_GROUP_SIZE_DIMENSION.
    pub fn set_group_size(&self, size: [u32; 3]) -> Result {
        if let Some(i) = size.iter().position(|&it| it == 0) {
            return Err(group_size(format!("groupSize{}: it is 0", ["X", "Y", "Z"][i])));
        }
        if let Some(required) = self.info().required_group_size.filter(|&it| it != size) {
            return Err(group_size(format!(
                "groupSize: {size:?}, but the kernel is compiled for {required:?}"
            )));
        }
        let items = size.iter().map(|&it| u128::from(it)).product::<u128>();
        let max = self.max_group_items();
        if items > u128::from(max) {
            return Err(group_size(format!(
                "groupSize: {items} work-items, but the kernel can have {max}"
            )));
        }
        let mut launch = self.change();
        launch.group_size = size;
        // At most MAX_SCRATCH_BYTES, since there are not more items than `max`.
        launch.scratch_bytes = launch.code.scratch(items as u64) as u32;
        Ok(())
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
        };
        suggest::suggest(global, facts)
    }

    /// Sets one argument.
    ///
    /// # Errors
    /// INVALID_KERNEL_ARGUMENT_INDEX, INVALID_KERNEL_ARGUMENT_SIZE, INVALID_NULL_POINTER,
    /// INVALID_ARGUMENT, UNSUPPORTED_FEATURE.
    ///
    /// # Safety
    /// `value` is null or good for reading `size` bytes.
    pub unsafe fn set_argument(&self, index: u32, size: usize, value: *const c_void) -> Result {
        let info = self.info();
        let arg = info.args.get(index as usize).ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX,
                format!("argIndex: {index}, but {} has {} arguments", info.name, info.args.len()),
            )
        })?;
        if arg.kind == ArgKind::LocalPointer {
            if !value.is_null() {
                return Err(Error::invalid(format!(
                    "pArgValue: argument {index} is local memory; only its size is given"
                )));
            }
            return self.set_local(index, size);
        }
        if size != arg.size as usize {
            return Err(argument_size(format!(
                "argSize: {size}, but argument {index} has {} bytes",
                arg.size
            )));
        }
        let zeroes = [0; 8];
        let bytes = if !value.is_null() {
            // SAFETY: the caller promises `size` readable bytes.
            unsafe { slice::from_raw_parts(value.cast::<u8>(), size) }
        } else if matches!(arg.kind, ArgKind::GlobalPointer | ArgKind::ConstantPointer) {
            &zeroes[..size.min(8)]
        } else {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER,
                format!("pArgValue: it is null, but argument {index} is passed by value"),
            ));
        };
        let word;
        let bytes = match arg.kind {
            ArgKind::Image | ArgKind::Sampler => {
                // SAFETY: the caller keeps what the handle names for the call, as Level Zero asks.
                word = unsafe { resource::word(arg, index, bytes) }?.to_le_bytes();
                &word[..]
            }
            _ => bytes,
        };
        let mut launch = self.change();
        launch.write(arg, bytes);
        launch.mark_set(index);
        Ok(())
    }

    /// Sets all arguments from an array of pointers to their values; a local argument's points to its
    /// size, a size_t.
    ///
    /// # Errors
    /// As [`Kernel::set_argument`], and INVALID_NULL_POINTER.
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
        for (i, (arg, &value)) in args.iter().zip(values).enumerate() {
            let index = i as u32;
            if arg.kind != ArgKind::LocalPointer {
                // SAFETY: the caller promises a value of the argument's size.
                unsafe { self.set_argument(index, arg.size as usize, value) }?;
                continue;
            }
            if value.is_null() {
                return Err(null(format!("pArguments[{i}]: the pointer is null")));
            }
            // SAFETY: not null, so it points to the size, says the caller.
            let size = unsafe { value.cast::<usize>().read_unaligned() };
            self.set_local(index, size)?;
        }
        Ok(())
    }

    /// Gives a local argument its size and all of them their places, behind the kernel's own.
    fn set_local(&self, index: u32, size: usize) -> Result {
        if size == 0 {
            return Err(argument_size(format!(
                "argSize: 0 bytes of local memory for argument {index}"
            )));
        }
        let mut launch = self.change();
        let mut sizes = launch.local_args.clone();
        for entry in sizes.iter_mut().filter(|it| it.0 == index) {
            entry.1 = u32::try_from(size).unwrap_or(u32::MAX);
        }
        let mut end = u64::from(launch.code.local_static);
        let mut places = Vec::with_capacity(sizes.len());
        for &(arg, size) in &sizes {
            end = end.next_multiple_of(BLOCK_ALIGN);
            places.push((arg, end));
            end += u64::from(size);
        }
        if end > u64::from(MAX_LOCAL_BYTES) {
            return Err(argument_size(format!(
                "argSize: {end} bytes of local memory in all; a group has {MAX_LOCAL_BYTES}"
            )));
        }
        launch.local_args = sizes;
        launch.local_bytes = end as u32;
        for (arg, place) in places {
            launch.write(&self.info().args[arg as usize], &place.to_le_bytes());
        }
        launch.mark_set(index);
        Ok(())
    }
}

/// The next launch while it is changed. Appends find the change when this is dropped.
pub struct Change<'a> {
    launch: MutexGuard<'a, Launch>,
    ready: &'a Ready,
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
        // An append that finds nothing goes the general way, which says what is missing.
        let ready = launch.check().is_ok().then(|| launch.with(Groups::Direct([1; 3])));
        self.ready.publish(ready.as_ref());
    }
}

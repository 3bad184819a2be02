// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments and sizes of a launch. A kernel has one set, for its next launch; so has every
//! command of a mutable list.

use std::ffi::c_void;
use std::slice;
use std::sync::Arc;

use tally_compiler_protocol::checks::hidden;
use tally_compiler_protocol::{ArgInfo, ArgKind, KernelInfo};
use tally_uapi::eu::{ARGS_OFFSET, BLOCK_ALIGN, MAX_LOCAL_BYTES};
use tally_ze::ze_result_t;

use super::{Kernel, resource};
use crate::checks::Words;
use crate::core::module::{Code, Module};
use crate::error::{Error, Result};
use crate::list::launch::{self as list, Groups};
use crate::log::warn_once;

/// Everything that an append takes from the kernel. A later change of the kernel's arguments does not
/// change what was appended, so appends copy what they need.
///
/// Most appends copy it from [`super::Kernel::prebuilt`] instead. What takes more than to copy the arguments and to
/// keep the code must not be found there: see [`super::Change`].
#[derive(Clone)]
pub struct Launch {
    /// Keeps the code mapped; every launch that may still run it holds this.
    pub code: Arc<Code>,
    /// Address of the code for groups of this size.
    entry: u64,
    /// The kernel's name.
    pub name: Arc<str>,
    /// The argument block as the compiler laid it out, without the header.
    pub args: Vec<u8>,
    /// Work-items of a group in each dimension; zeroes if no group fits the device.
    pub group_size: [u32; 3],
    /// Local memory of a group, in bytes. It may be more than the device has; see [`Launch::check`].
    pub local_bytes: u32,
    /// Scratch memory of a group of this size, in bytes.
    pub scratch_bytes: u32,
    /// Whether no group waits for another one.
    is_independent: bool,
    /// Added to global ids, in work-items.
    pub global_offset: [u64; 3],
    /// Arguments that are not set, by index: whether each is a value, which is zero then.
    unset: Vec<(u32, bool)>,
    /// Bytes of each local argument, by argument index.
    local_args: Vec<(u32, u32)>,
    /// Offset of the words for checks in the arguments, if the kernel checks anything.
    checks: Option<u32>,
}

impl Launch {
    /// A launch of a module's kernel of which nothing is set but what the kernel itself asks for.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn blank(module: &Module, info: &KernelInfo, code: Arc<Code>) -> Result<Self> {
        let mut args = vec![0; info.args_size as usize];
        if let Some(at) = info.printf_ring {
            let ring = module.context().vm().printf_ring()?;
            // The compiler's layout keeps it inside the block, as it does arguments.
            let place = args.get_mut(at as usize..).and_then(|rest| rest.first_chunk_mut::<8>());
            if let Some(place) = place {
                *place = ring.to_le_bytes();
            }
        }
        let locals = info.args.iter().enumerate();
        let locals = locals.filter(|(_, arg)| arg.kind == ArgKind::LocalPointer);
        let mut launch = Self {
            local_bytes: code.local_static,
            name: info.name.as_str().into(),
            args,
            group_size: [0; 3],
            scratch_bytes: 0,
            is_independent: !info.may_wait,
            global_offset: [0; 3],
            unset: (0..).zip(info.args.iter().map(|arg| arg.kind == ArgKind::Value)).collect(),
            local_args: locals.map(|(i, _)| (i as u32, 0)).collect(),
            checks: info.checks.filter(|_| code.watched.is_some()),
            entry: code.usual().entry,
            code,
        };
        launch.write_local_checks();
        // A launch without a size gets this one ("Kernel Group Size").
        match info.required_group_size {
            Some(required) => launch.set_group_size(info, required)?,
            None => {
                let items = if info.full_subgroups { info.max_subgroup_size } else { 1 };
                if launch.code.usual().max_items() >= items {
                    launch.set_group_size(info, [items, 1, 1])?;
                }
            }
        }
        Ok(launch)
    }

    /// Address of the code.
    #[inline]
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Whether a group and its local memory fit the device and all arguments are set.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.group_size[0] != 0 && self.local_bytes <= MAX_LOCAL_BYTES && self.unset.is_empty()
    }

    /// Whether the kernel may be launched: a group and its local memory fit the device and all arguments but values
    /// are set.
    ///
    /// # Errors
    /// INVALID_GROUP_SIZE_DIMENSION, INVALID_ARGUMENT, OUT_OF_DEVICE_MEMORY.
    #[inline]
    pub fn check(&self) -> Result {
        if self.is_complete() { Ok(()) } else { self.missing() }
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
            is_independent: self.is_independent,
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

    /// Writes a word that the kernel's checks need, if it has checks.
    fn write_check(&mut self, offset: u32, word: u64) {
        let Some(words) = self.checks else { return };
        let start = words as usize + offset as usize;
        if let Some(place) = self.args.get_mut(start..).and_then(|rest| rest.first_chunk_mut::<8>())
        {
            *place = word.to_le_bytes();
        }
    }

    /// Writes how local memory is divided, for the kernel's checks.
    fn write_local_checks(&mut self) {
        if self.checks.is_none() {
            return;
        }
        let block = self.code.watched.as_ref().map_or(0, |watched| watched.block());
        self.write_check(hidden::WATCH, block);
        self.write_check(hidden::LOCAL, self.local_bytes.into());
        self.write_check(hidden::SCRATCH, self.scratch_bytes.into());
        for (i, (_, size)) in (0..).zip(self.local_args.clone()) {
            self.write_check(hidden::LOCAL_ARGS + 8 * i, size.into());
        }
    }

    /// The place of the words for checks in the launch's block, if the kernel has checks.
    pub fn words(&self) -> Option<Words> {
        let at = ARGS_OFFSET + u64::from(self.checks?);
        Some(Words { at, block: ARGS_OFFSET + self.args.len() as u64 })
    }

    /// The number by which the kernel's checks tell of the launch, or 0.
    pub fn number(&self) -> u64 {
        let word = self.checks.map(|at| (at + hidden::LAUNCH) as usize);
        let bytes = word.and_then(|at| self.args.get(at..)?.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes) & !hidden::REACHES_ALL)
    }

    /// The launch with a word by which the kernel's checks tell of it, and the address of its command's block.
    /// `None` if it has no checks.
    pub fn numbered(&self, word: u64, command: u64) -> Option<Self> {
        self.checks?;
        let mut launch = self.clone();
        launch.write_check(hidden::LAUNCH, word);
        launch.write_check(hidden::COMMAND, command);
        Some(launch)
    }

    fn mark_set(&mut self, index: u32) {
        self.unset.retain(|&(it, _)| it != index);
    }

    /// What is missing for a launch. Values may be: Intel's driver launches kernels with arguments that are not
    /// set, and they are zero there. Without a pointer or an image a kernel could only fault.
    #[cold]
    fn missing(&self) -> Result {
        if self.group_size[0] == 0 {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                format!("hKernel: not even one work-item of {} fits the device", self.name),
            ));
        }
        if let Some((first, _)) = self.unset.iter().find(|(_, is_value)| !is_value) {
            let name = &self.name;
            return Err(Error::invalid(format!("hKernel: argument {first} of {name} is not set")));
        }
        if self.local_bytes > MAX_LOCAL_BYTES {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                format!(
                    "hKernel: {} has {} bytes of local memory in all; a group has {MAX_LOCAL_BYTES}",
                    self.name, self.local_bytes
                ),
            ));
        }
        if let Some((first, _)) = self.unset.first() {
            warn_once!("hKernel: argument {first} of {} is not set; it is zero", self.name);
        }
        Ok(())
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

    /// Sets the size of the groups; `info` is the kernel's. They run in the best form of the code that is
    /// [prepared](Module::prepare).
    ///
    /// # Errors
    /// INVALID_GROUP_SIZE_DIMENSION.
    pub fn set_group_size(&mut self, info: &KernelInfo, size: [u32; 3]) -> Result {
        if let Some(i) = size.iter().position(|&it| it == 0) {
            return Err(group_size(format!("groupSize{}: it is 0", ["X", "Y", "Z"][i])));
        }
        if let Some(required) = info.required_group_size.filter(|&it| it != size) {
            return Err(group_size(format!(
                "groupSize: {size:?}, but the kernel is compiled for {required:?}"
            )));
        }
        let items = size.iter().map(|&it| u128::from(it)).product::<u128>();
        let lanes = info.max_subgroup_size.max(1);
        if info.full_subgroups && !items.is_multiple_of(lanes.into()) {
            return Err(group_size(format!(
                "groupSize: {items} work-items are no whole sub-groups of {lanes}, over which the matrices of {} are spread",
                info.name
            )));
        }
        let piece = self.code.piece(size);
        let max = piece.max_items();
        if items > u128::from(max) {
            return Err(group_size(format!(
                "groupSize: {items} work-items, but the kernel can have {max}"
            )));
        }
        self.group_size = size;
        // At most MAX_SCRATCH_BYTES, since there are not more items than `max`.
        (self.entry, self.scratch_bytes) = (piece.entry, piece.scratch(items as u64) as u32);
        self.write_check(hidden::SCRATCH, self.scratch_bytes.into());
        Ok(())
    }

    /// Sets one argument; `info` is the kernel's.
    ///
    /// # Errors
    /// INVALID_KERNEL_ARGUMENT_INDEX, INVALID_KERNEL_ARGUMENT_SIZE, INVALID_NULL_POINTER,
    /// INVALID_ARGUMENT, UNSUPPORTED_FEATURE.
    ///
    /// # Safety
    /// `value` is null or good for reading `size` bytes.
    pub unsafe fn set_argument(
        &mut self,
        info: &KernelInfo,
        index: u32,
        size: usize,
        value: *const c_void,
    ) -> Result {
        let arg = info.args.get(index as usize).ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX,
                format!("argIndex: {index}, but {} has {} arguments", info.name, info.args.len()),
            )
        })?;
        if arg.kind == ArgKind::LocalPointer {
            if !value.is_null() {
                warn_once!(
                    "pArgValue: argument {index} of {} is local memory, which has no value: it is not read",
                    info.name
                );
            }
            return self.set_local(info, index, size);
        }
        let taken = bytes_taken(arg, index, size, value.is_null())?;
        if size != arg.size as usize {
            warn_once!(
                "argSize: {size}, but argument {index} of {} has {} bytes; {taken} are taken",
                info.name,
                arg.size
            );
        }
        if value.is_null() {
            return self.set_null(arg, index, taken);
        }
        // SAFETY: the caller promises as many readable bytes as it has named, which is no less.
        let bytes = unsafe { slice::from_raw_parts(value.cast::<u8>(), taken) };
        let word;
        let bytes = match arg.kind {
            ArgKind::Image | ArgKind::Sampler => {
                // SAFETY: the caller keeps what the handle names for the call, as Level Zero asks.
                word = unsafe { resource::word(arg, index, bytes) }?.to_le_bytes();
                &word[..]
            }
            _ => bytes,
        };
        self.write(arg, bytes);
        self.mark_set(index);
        Ok(())
    }

    /// Sets an argument to null, which is all zeroes for one that is passed by value: SYCL's adapters give
    /// no value where eight bytes are zero, since they do not know pointers from integers.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER: an image or a sampler.
    fn set_null(&mut self, arg: &ArgInfo, index: u32, size: usize) -> Result {
        if matches!(arg.kind, ArgKind::Image | ArgKind::Sampler) {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER,
                format!("pArgValue: it is null, but argument {index} is an image or a sampler"),
            ));
        }
        let start = arg.offset as usize;
        // See `write`.
        if let Some(place) = self.args.get_mut(start..start.saturating_add(size)) {
            place.fill(0);
        }
        self.mark_set(index);
        Ok(())
    }

    /// Gives a local argument its size and all of them their places, behind the kernel's own. Whether they fit the
    /// device shows only at the launch, as with Intel's driver: a size may be too long beside those of the launch
    /// before, which change after it.
    ///
    /// # Errors
    /// INVALID_KERNEL_ARGUMENT_SIZE: no bytes.
    pub(super) fn set_local(&mut self, info: &KernelInfo, index: u32, size: usize) -> Result {
        if size == 0 {
            return Err(argument_size(format!(
                "argSize: 0 bytes of local memory for argument {index}"
            )));
        }
        let mut end = u64::from(self.code.local_static);
        for at in 0..self.local_args.len() {
            let (arg, old) = self.local_args[at];
            let bytes = if arg == index { size.try_into().unwrap_or(u32::MAX) } else { old };
            self.local_args[at].1 = bytes;
            end = end.next_multiple_of(BLOCK_ALIGN);
            self.write(&info.args[arg as usize], &end.to_le_bytes());
            end += u64::from(bytes);
        }
        self.local_bytes = end.try_into().unwrap_or(u32::MAX);
        self.write_local_checks();
        self.mark_set(index);
        Ok(())
    }
}

/// A launch as it is appended: a kernel, its settings, the number of groups.
pub type Launched<'a> = (&'a Arc<Kernel>, &'a Launch, Groups);

/// The number of bytes of an argument that a value of `size` bytes sets. As with Intel's driver, a
/// value may be longer than the argument, of which the first bytes are taken, and a number, a vector or a
/// structure may be shorter (a `float3` of 12 bytes): its upper bytes then stay as they are, zero in a new kernel. A
/// pointer or a handle that is cut off would be another one, and is refused.
///
/// # Errors
/// INVALID_KERNEL_ARGUMENT_SIZE.
fn bytes_taken(arg: &ArgInfo, index: u32, size: usize, is_null: bool) -> Result<usize> {
    let whole = arg.size as usize;
    let is_enough = match arg.kind {
        ArgKind::Value => size != 0,
        // Nothing of a null pointer is read.
        ArgKind::GlobalPointer | ArgKind::ConstantPointer if is_null => return Ok(whole),
        _ => size >= whole,
    };
    if is_enough {
        return Ok(size.min(whole));
    }
    Err(argument_size(format!("argSize: {size}, but argument {index} has {whole} bytes")))
}

fn argument_size(text: String) -> Error {
    Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, text)
}

fn group_size(text: String) -> Error {
    Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, text)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels' code in executable memory.
//!
//! A kernel may have several forms: for groups with whole rows, for those with uneven rows, and for groups of one size.
//! Each runs all groups right. The others take as long to build as the first, and most programs never need them, so
//! one is built when a launch's group size is set for which it is faster.

use std::sync::{Arc, OnceLock};

use tally_compiler_protocol::{CodeId, Form, KernelCode, Uneven, debug};
use tally_uapi::eu::{BLOCK_ALIGN, MAX_GROUP_ITEMS, MAX_SCRATCH_BYTES};
use tally_uapi::ioctl::bind_flag;

use super::build::Build;
use super::globals::{Unit, inconsistent, relocate};
use crate::checks::{self, Watched};
use crate::debugger::{self, Registered};
use crate::error::Result;
use crate::settings;
use crate::trace;
use crate::vm::{Mapping, Vm};

/// A kernel's code. Every launch that may still run it keeps it alive.
pub struct Code {
    kernel: u32,
    usual: Piece,
    /// The groups for which there are other forms.
    other: Option<Uneven>,
    /// Those that launches have needed: the one for uneven rows first, and then those of sizes, in the order in which
    /// they were needed. `None`: there is none after all.
    others: [Other; MAX_OTHERS],
    /// Local memory of the kernel's own variables, in bytes.
    pub local_static: u32,
    /// The dimension in which groups are best long.
    pub axis: u8,
    /// Whether they are best one row of that dimension.
    pub side_by_side: bool,
    /// The data to which its checks refer, if it has any.
    pub watched: Option<Arc<Watched>>,
}

/// The maximum number of forms of a kernel beside the usual one: for uneven rows, and for eight sizes. Most programs
/// launch a kernel with groups of one size or two; one that tries all should not have the kernel built for each.
const MAX_OTHERS: usize = 1 + 8;

/// A form other than the usual one, once it was needed.
type Other = OnceLock<(Form, Option<Piece>)>;

/// One form of a kernel's code, in executable memory.
pub struct Piece {
    /// Address of the entry point.
    pub entry: u64,
    /// Scratch memory of a group, in bytes, whatever its size.
    scratch_fixed: u32,
    /// Scratch memory to add for each work-item, in bytes.
    scratch_per_item: u32,
    _debugged: Option<Registered>,
    _mapping: Mapping,
    _units: Vec<Arc<Unit>>,
}

impl Code {
    /// Loads a kernel's usual code.
    ///
    /// # Errors
    /// MODULE_BUILD_FAILURE, or what stands in the way of memory for it.
    pub(super) fn load(vm: &Vm, build: &Build, kernel: u32) -> Result<Self> {
        let (usual, made) = Piece::load(vm, build, CodeId { kernel, form: Form::Usual })?;
        let watched = checks::get()
            .and_then(|checks| checks.watch(build.kernel_name(kernel), made.sites.as_ref()));
        Ok(Self {
            kernel,
            usual,
            other: made.uneven,
            others: Default::default(),
            local_static: made.local_static_bytes,
            axis: made.axis,
            side_by_side: made.side_by_side,
            watched,
        })
    }

    /// Loads the form for groups of this size, unless it is there. Without it the usual one runs them more
    /// slowly, so no error stops the program.
    pub(super) fn prepare(&self, vm: &Vm, build: &Build, group: [u32; 3]) {
        let Some(form) = self.other_form(group) else { return };
        // Other threads that need it wait here.
        let load = || {
            let id = CodeId { kernel: self.kernel, form };
            let piece = Piece::load(vm, build, id).map(|(piece, _)| piece);
            let piece = piece.inspect_err(|error| {
                let name = build.kernel_name(self.kernel);
                log::warn!(
                    "kernel {name:?} runs groups of {group:?} one item at a time: {}",
                    error.text()
                );
            });
            (form, piece.ok())
        };
        self.places_of(form).iter().find(|other| other.get_or_init(load).0 == form);
    }

    /// The places for a form. Many sizes leave the one for uneven rows its own.
    fn places_of(&self, form: Form) -> &[Other] {
        let (uneven, sized) = self.others.split_at(1);
        if form == Form::Uneven { uneven } else { sized }
    }

    /// The form that is best for groups of a size, unless that is the usual one, or no group has that size.
    fn other_form(&self, group: [u32; 3]) -> Option<Form> {
        let form = self.other?.form(group);
        (form != Form::Usual && items(group) <= MAX_GROUP_ITEMS.into()).then_some(form)
    }

    /// The form that runs groups of this size, of those that are [prepared](super::Module::prepare).
    pub fn piece(&self, group: [u32; 3]) -> &Piece {
        let items = items(group);
        let other = self.other_form(group).and_then(|form| {
            let mut made = self.places_of(form).iter().map_while(OnceLock::get);
            made.find(|(of, _)| *of == form)?.1.as_ref()
        });
        let fits = |piece: &&Piece| items <= u128::from(piece.max_items());
        other.filter(fits).unwrap_or(&self.usual)
    }

    /// The form that runs groups of any size.
    pub fn usual(&self) -> &Piece {
        &self.usual
    }
}

/// The number of work-items of a group.
fn items(group: [u32; 3]) -> u128 {
    group.iter().map(|&n| u128::from(n)).product()
}

/// Makes a kernel's code known to the debugger, if it has debug information.
fn known(name: &str, address: u64, made: &KernelCode) -> Option<Registered> {
    let file = debug::elf_of(address, name, made)?;
    (!file.is_empty()).then(|| Registered::new(file))
}

impl Piece {
    fn load(vm: &Vm, build: &Build, id: CodeId) -> Result<(Self, Arc<KernelCode>)> {
        let made = build.origin.kernel_code(&build.info, id)?;
        if made.entry as usize >= made.blob.len() {
            return Err(inconsistent());
        }
        let mut blob = made.blob.clone();
        relocate(&mut blob, &made.relocs, |global| build.address(global))?;
        let mut mapping = vm.place(blob.len() as u64, BLOCK_ALIGN)?;
        mapping.write(&blob)?;
        mapping.bind(0, mapping.size(), bind_flag::READ | bind_flag::EXECUTE)?;
        let is_debugged = settings::get().debug && vm.backend().sees_process();
        if is_debugged {
            // SAFETY: the mapping has just been bound, it consists of whole pages, and only unmapping follows.
            unsafe { debugger::make_writable_by_debugger(mapping.va(), mapping.size()) };
        }
        let entry = mapping.va() + u64::from(made.entry);
        let name = build.kernel_name(id.kernel);
        trace::kernel_name(entry, name);
        match id.form {
            Form::Usual => log::debug!("kernel {name:?} is at {entry:#x}"),
            Form::Uneven => log::debug!("kernel {name:?} for uneven rows is at {entry:#x}"),
            Form::Sized(size) => log::debug!("kernel {name:?} for {size:?} is at {entry:#x}"),
        }
        if !made.remark.is_empty() {
            log::info!("kernel {name:?} runs {}", made.remark);
        }
        let piece = Self {
            entry,
            scratch_fixed: made.scratch_bytes_fixed,
            scratch_per_item: made.scratch_bytes_per_item,
            _debugged: is_debugged.then(|| known(name, mapping.va(), &made)).flatten(),
            _mapping: mapping,
            _units: build.graph.iter().map(|(unit, _)| unit.clone()).collect(),
        };
        Ok((piece, made))
    }

    /// Scratch memory of a group of `items` work-items, in bytes.
    pub fn scratch(&self, items: u64) -> u64 {
        u64::from(self.scratch_fixed) + u64::from(self.scratch_per_item) * items
    }

    /// Most work-items of a group, by the device and by the scratch memory that the code asks for.
    pub fn max_items(&self) -> u32 {
        let room = u64::from(MAX_SCRATCH_BYTES).saturating_sub(u64::from(self.scratch_fixed));
        let fit = room.checked_div(u64::from(self.scratch_per_item)).unwrap_or(u64::MAX);
        u32::try_from(fit).unwrap_or(u32::MAX).min(MAX_GROUP_ITEMS)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutable command lists: the commands that may be changed, and the launches of their kernels.
//!
//! Changes of a launch gather here, where the kernel is known, and reach the packets when the list is
//! closed. Changes of events go to the packets at once.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_compiler_protocol::checks::hidden;
use tally_ze::{ze_mutable_command_exp_flags_t as Flags, ze_result_t};

use super::ordered::{self, Item, key};
use super::{List, ListKind, checked, order};
use crate::checks;
use crate::core::kernel::{self, Kernel, Launch};
use crate::error::{Error, Result};
use crate::list::launch::Groups;
use crate::list::regular::Regular;
use crate::list::target::Signal;
use crate::sync::event::Event;

/// The parts that may be changed; anything but graphs' arguments.
pub const MUTABLE: Flags = Flags::from_bits_retain(
    Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS.bits()
        | Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT.bits()
        | Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE.bits()
        | Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET.bits()
        | Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT.bits()
        | Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS.bits()
        | Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION.bits(),
);

/// The commands of a mutable list that may be changed, by their numbers.
#[derive(Default)]
pub struct Mutable {
    commands: Mutex<HashMap<u64, Command>>,
}

#[derive(Clone)]
struct Command {
    flags: Flags,
    /// Kernels that it may be changed to.
    kernels: Vec<Arc<Kernel>>,
    launch: Option<Launched>,
    /// `launch` is not in the packets yet.
    is_changed: bool,
    /// The number of the launch that was appended, for the checks, or 0.
    appended: u64,
    /// The command in the order of commands, if that is followed.
    item: Option<Item>,
}

/// The launch of a command.
#[derive(Clone)]
struct Launched {
    kernel: Arc<Kernel>,
    launch: Launch,
    groups: Groups,
}

/// A change of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// The value of an argument: index, size, where the value is.
    Argument(u32, usize, *const c_void),
    /// The number of groups.
    GroupCount([u32; 3]),
    /// Work-items of a group.
    GroupSize([u32; 3]),
    /// The offset that is added to global ids.
    GlobalOffset([u32; 3]),
}

impl Change {
    fn flag(self) -> Flags {
        match self {
            Self::Argument(..) => Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS,
            Self::GroupCount(_) => Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT,
            Self::GroupSize(_) => Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE,
            Self::GlobalOffset(_) => Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET,
        }
    }
}

impl Mutable {
    fn commands(&self) -> MutexGuard<'_, HashMap<u64, Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state that a copy of the list begins with.
    pub(super) fn duplicate(&self) -> Self {
        Self { commands: Mutex::new(self.commands().clone()) }
    }

    /// The list was reset.
    pub(super) fn clear(&self) {
        self.commands().clear();
    }

    /// The command that was appended under a number launches a kernel.
    pub(super) fn note(&self, number: u64, (kernel, launch, groups): kernel::Launched<'_>) {
        if let Some(command) = self.commands().get_mut(&number) {
            let (kernel, launch) = (kernel.clone(), launch.clone());
            command.appended = launch.number();
            command.launch = Some(Launched { kernel, launch, groups });
        }
    }

    /// The command that was appended under a number has this place in the order of commands.
    pub(super) fn note_item(&self, number: u64, item: Item) {
        if let Some(command) = self.commands().get_mut(&number) {
            command.item = Some(item);
        }
    }

    /// Brings the changes of launches into the packets, before the list is closed.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, INVALID_GROUP_SIZE_DIMENSION: something of a new kernel is not set; out of
    /// memory.
    pub(super) fn apply(&self, list: &Regular) -> Result {
        for (&number, command) in self.commands().iter_mut().filter(|(_, it)| it.is_changed) {
            if let Some(Launched { kernel, launch, groups }) = &command.launch {
                launch.check()?;
                match checks::get() {
                    None => list.update_launch(number, &launch.with(*groups))?,
                    Some(checks) => {
                        let of = command.appended;
                        let launched = (kernel, launch, *groups);
                        let (word, numbered) = checked::numbered(checks, launched, of);
                        let launch = numbered.as_ref().unwrap_or(launch);
                        list.update_launch(number, &launch.with(*groups))?;
                        if let (Some(order), Some(item)) = (checks.order(), command.item) {
                            let launch = word & !hidden::REACHES_ALL;
                            order.launch_changes(key(&list.recording()), item.index, launch);
                        }
                    }
                }
            }
            command.is_changed = false;
        }
        Ok(())
    }
}

impl Launched {
    /// # Safety
    /// An argument's value is null or good for reading its size.
    unsafe fn apply(&mut self, change: Change) -> Result {
        let Self { kernel, launch, groups } = self;
        match change {
            Change::Argument(index, size, value) => {
                // SAFETY: as the caller promises.
                unsafe { launch.set_argument(kernel.info(), index, size, value) }
            }
            Change::GroupCount(count) => {
                *groups = match groups {
                    Groups::Direct(_) => Groups::Direct(count),
                    Groups::Cooperative(_) => Groups::cooperative(count)?,
                    Groups::Indirect(_) => {
                        return Err(Error::invalid(
                            "pGroupCount: the command reads its group count from memory",
                        ));
                    }
                };
                Ok(())
            }
            Change::GroupSize(size) => kernel.set_group_size_of(launch, size),
            Change::GlobalOffset(offset) => {
                launch.global_offset = offset.map(u64::from);
                Ok(())
            }
        }
    }
}

impl List {
    /// Whether its commands may be changed.
    pub fn is_mutable(&self) -> bool {
        matches!(&self.kind, ListKind::Regular(.., Some(_)))
    }

    fn as_mutable(&self) -> Result<(&Regular, &Mutable)> {
        match &self.kind {
            ListKind::Regular(_, list, Some(mutable)) => Ok((list, mutable)),
            _ => Err(Error::invalid("hCommandList: it was not created as a mutable command list")),
        }
    }

    /// A number for the command that is appended next, of which `flags` may be changed later; no flags
    /// are all but the kernel. `kernels` are those that it may launch then.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the list is closed or not mutable; UNSUPPORTED_ENUMERATION.
    pub fn next_command(&self, flags: Flags, kernels: Vec<Arc<Kernel>>) -> Result<u64> {
        let (list, mutable) = self.as_mutable()?;
        if !MUTABLE.contains(flags) {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION,
                "desc->flags: arguments of graphs cannot be changed",
            ));
        }
        let flags = match flags.is_empty() {
            true => MUTABLE & !Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION,
            false => flags,
        };
        let mut commands = mutable.commands();
        let number = list.next_command()?;
        for kernel in &kernels {
            list.keep(kernel.code());
        }
        let new =
            Command { flags, kernels, launch: None, is_changed: false, appended: 0, item: None };
        commands.insert(number, new);
        Ok(number)
    }

    /// Changes launches: all of these, or none.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: no such command, not what it was numbered for, a wrong value.
    /// HANDLE_OBJECT_IN_USE: the list runs. DEVICE_LOST.
    ///
    /// # Safety
    /// Values of arguments are null or good for reading their sizes.
    pub unsafe fn update(&self, changes: &[(u64, Change)]) -> Result {
        let (list, mutable) = self.as_mutable()?;
        list.must_rest()?;
        let mut commands = mutable.commands();
        let mut changed = HashMap::new();
        for &(number, change) in changes {
            let command = find(&commands, number, change.flag())?;
            let launched = command.launch.as_ref().ok_or_else(no_launch)?;
            let launched = changed.entry(number).or_insert_with(|| launched.clone());
            // SAFETY: as the caller promises.
            unsafe { launched.apply(change) }
                .map_err(|error| Error::invalid(error.text().to_owned()))?;
        }
        for (number, launched) in changed {
            set(&mut commands, number, launched);
        }
        if changes.is_empty() { Ok(()) } else { list.reopen() }
    }

    /// Lets commands launch other kernels, whose arguments have to be set then.
    ///
    /// # Errors
    /// Those of [`List::update`]; INVALID_KERNEL_HANDLE: not among those that were named for the command.
    pub fn update_kernels(&self, changes: &[(u64, &Arc<Kernel>)]) -> Result {
        let (list, mutable) = self.as_mutable()?;
        list.must_rest()?;
        let mut commands = mutable.commands();
        let mut changed = Vec::with_capacity(changes.len());
        for &(number, kernel) in changes {
            let flag = Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION;
            let command = find(&commands, number, flag)?;
            let old = command.launch.as_ref().ok_or_else(no_launch)?;
            if !command.kernels.iter().any(|it| Arc::ptr_eq(it, kernel)) {
                return Err(Error::new(
                    ze_result_t::ZE_RESULT_ERROR_INVALID_KERNEL_HANDLE,
                    format!("phKernels: the kernel was not named for command {number}"),
                ));
            }
            let mut launch = kernel.blank()?;
            // Parts that may not be changed stay, if the kernel can have them; else the list is not closed.
            let _ = kernel.set_group_size_of(&mut launch, old.launch.group_size);
            changed.push((number, Launched { kernel: kernel.clone(), launch, groups: old.groups }));
        }
        for (number, launched) in changed {
            set(&mut commands, number, launched);
        }
        if changes.is_empty() { Ok(()) } else { list.reopen() }
    }

    /// Lets a command signal another event of the same kind, or none.
    ///
    /// # Errors
    /// Those of [`List::update`]; out of memory.
    pub fn update_signal(&self, number: u64, signal: Option<Signal<'_>>) -> Result {
        let (list, mutable) = self.as_mutable()?;
        let flag = Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT;
        find(&mutable.commands(), number, flag)?;
        list.must_rest()?;
        list.update_signal(number, signal)?;
        if let Some(order) = order()
            && let Some(Command { item: Some(item), .. }) = mutable.commands().get_mut(&number)
        {
            let new = signal.and_then(|it| ordered::effect(it.event));
            let old = std::mem::replace(&mut item.signal, new);
            let is_signal = signal.is_some();
            order.signal_changes(key(&list.recording()), item.index, (old, new), is_signal);
        }
        Ok(())
    }

    /// Lets a command wait for other events of the same kinds; `None`: for none in this place. Without
    /// a list it waits for nothing.
    ///
    /// # Errors
    /// Those of [`List::update`]; INVALID_SIZE: another number of events.
    pub fn update_waits(&self, number: u64, events: Option<&[Option<&Event>]>) -> Result {
        let (list, mutable) = self.as_mutable()?;
        find(&mutable.commands(), number, Flags::ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS)?;
        list.must_rest()?;
        list.update_waits(number, events)?;
        let item = mutable.commands().get(&number).and_then(|it| it.item);
        if let (Some(order), Some(item)) = (order(), item) {
            let recording = key(&list.recording());
            let events = events.unwrap_or_default().iter().flatten();
            let waits = ordered::waits(events.copied(), Some(recording));
            order.waits_change(recording, item.index, waits);
        }
        Ok(())
    }
}

fn find(commands: &HashMap<u64, Command>, number: u64, flag: Flags) -> Result<&Command> {
    let command = commands.get(&number).ok_or_else(|| {
        Error::invalid(format!("commandId: no command of the list has the number {number}"))
    })?;
    if command.flags.contains(flag) {
        return Ok(command);
    }
    Err(Error::invalid(format!("commandId: command {number} was not numbered for {flag:?}")))
}

fn set(commands: &mut HashMap<u64, Command>, number: u64, launched: Launched) {
    if let Some(command) = commands.get_mut(&number) {
        command.launch = Some(launched);
        command.is_changed = true;
    }
}

fn no_launch() -> Error {
    Error::invalid("commandId: no launch of a kernel was appended under this number")
}

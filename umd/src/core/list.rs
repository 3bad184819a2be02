// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command lists: the object behind the handle, immediate or regular.

use std::sync::Arc;

use tally_compiler_protocol::checks::hidden;
use tally_uapi::ioctl::engine_capability;
use tally_ze::{
    ze_command_list_flags_t, ze_command_list_handle_t, ze_command_queue_mode_t,
    ze_command_queue_priority_t, ze_result_t,
};

use crate::checks::order::Order;
use crate::checks::{self, Checks};
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::graph::Membership;
use crate::core::kernel::Launched;
use crate::core::queue::QueueTraits;
use crate::error::{Error, Result};
use crate::handle::{Kind, object};
use crate::hang::names;
use crate::list::command::Command;
use crate::list::fast_path::Single;
use crate::list::immediate::Immediate;
use crate::list::regular::Regular;
use crate::list::target::Signal;
use crate::list::waits::WaitList;
use crate::sync::event::Event;

mod checked;
pub mod mutable;
pub(super) mod ordered;
pub mod special;

use mutable::Mutable;
use ordered::{Ordered, Place, To};

/// A command list.
pub struct List {
    context: Arc<Context>,
    device: &'static Device,
    ordinal: u32,
    /// Whether its engines have execution units.
    computes: bool,
    /// Whether it is a copy of another list.
    is_copy: bool,
    kind: ListKind,
}

object!(ze_command_list_handle_t => List, Kind::List);

enum ListKind {
    Immediate(QueueTraits, Arc<Immediate>, Membership),
    Regular(ze_command_list_flags_t, Arc<Regular>, Option<Box<Mutable>>),
}

/// What orders commands, if that is followed.
fn order() -> Option<&'static Order> {
    checks::get().and_then(Checks::order)
}

impl List {
    /// A regular list for queues of the group `ordinal`; mutable or not.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: no such group; out of memory.
    pub fn regular(
        context: &Arc<Context>,
        device: &'static Device,
        ordinal: u32,
        flags: ze_command_list_flags_t,
        is_mutable: bool,
    ) -> Result<Self> {
        QueueTraits::check_ordinal(device, ordinal)?;
        let in_order = flags.contains(ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_IN_ORDER);
        let mut list = Regular::create(context.shared().clone(), in_order)?;
        if is_mutable {
            list = list.mutable();
        }
        if let Some(order) = order() {
            order.recording_begins(ordered::key(&list.recording()), in_order, None);
        }
        let kind = ListKind::Regular(flags, list, is_mutable.then(Box::default));
        Ok(Self::new(context.clone(), device, ordinal, kind))
    }

    /// An immediate list.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: no such engine; out of memory; DEVICE_LOST.
    pub fn immediate(context: &Arc<Context>, traits: QueueTraits) -> Result<Self> {
        let list = traits.open(context, traits.is_in_order())?;
        let QueueTraits { device, ordinal, .. } = traits;
        if let Some(order) = order() {
            order.stream_begins(list.cell().va(), traits.is_in_order());
        }
        let kind = ListKind::Immediate(traits, list, Membership::default());
        Ok(Self::new(context.clone(), device, ordinal, kind))
    }

    fn new(context: Arc<Context>, device: &'static Device, ordinal: u32, kind: ListKind) -> Self {
        let capabilities = device.engines().get(ordinal as usize).map_or(0, |it| it.capabilities);
        let computes = capabilities & engine_capability::COMPUTE != 0;
        Self { context, device, ordinal, computes, is_copy: false, kind }
    }

    /// A copy of a regular list that allows it and is closed.
    ///
    /// # Errors
    /// INVALID_ARGUMENT; out of memory.
    pub fn duplicate(&self) -> Result<Self> {
        use ze_command_list_flags_t as flag;
        match &self.kind {
            ListKind::Regular(flags, list, mutable)
                if flags.contains(flag::ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE) =>
            {
                let copy = list.duplicate()?;
                let mutable = mutable.as_ref().map(|it| Box::new(it.duplicate()));
                let kind = ListKind::Regular(*flags, copy, mutable);
                let mut copy = Self::new(self.context.clone(), self.device, self.ordinal, kind);
                copy.is_copy = true;
                Ok(copy)
            }
            ListKind::Regular(..) => Err(Error::invalid(
                "hCommandList: it was created without ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE",
            )),
            ListKind::Immediate(..) => {
                Err(Error::invalid("hCommandList: an immediate command list is not cloned"))
            }
        }
    }

    /// Sets the list's name in the hang report, which is its handle.
    pub fn name(&self, raw: ze_command_list_handle_t) {
        let raw = raw.0;
        match &self.kind {
            ListKind::Immediate(traits, list, _) => {
                names::name_immediate(list, || {
                    format!("immediate list {raw:p} ({})", traits.engine())
                });
            }
            ListKind::Regular(_, list, _) => {
                names::name_regular(list, || format!("regular list {raw:p}"));
            }
        }
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The device that it was created for.
    pub fn device(&self) -> &'static Device {
        self.device
    }

    /// The command queue group.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Whether it is immediate.
    pub fn is_immediate(&self) -> bool {
        matches!(self.kind, ListKind::Immediate(..))
    }

    /// The list as an immediate one.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub fn as_immediate(&self) -> Result<(&QueueTraits, &Immediate)> {
        match &self.kind {
            ListKind::Immediate(traits, list, _) => Ok((traits, list)),
            ListKind::Regular(..) => {
                Err(Error::invalid("hCommandList: it is not an immediate command list"))
            }
        }
    }

    /// The list for execution on a queue. Lists without EXPLICIT_ONLY may also run on queues that have it:
    /// SYCL's first adapter submits copies in this way, and nothing is distributed over sub-devices here.
    ///
    /// # Errors
    /// INVALID_COMMAND_LIST_TYPE.
    pub fn as_executable(&self, queue: &QueueTraits) -> Result<&Regular> {
        let ordinal = queue.ordinal;
        let wrong = |text: String| {
            Err(Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, text))
        };
        match &self.kind {
            ListKind::Immediate(..) => {
                wrong("phCommandLists: an immediate command list is not executed on queues".into())
            }
            ListKind::Regular(..) if self.ordinal != ordinal => wrong(format!(
                "phCommandLists: a list of command queue group {} on a queue of group {ordinal}",
                self.ordinal
            )),
            ListKind::Regular(..) if !self.fits(queue.device) => wrong(format!(
                "phCommandLists: a list{} on a queue{}",
                self.device.suffix(),
                queue.device.suffix()
            )),
            ListKind::Regular(_, list, _) => Ok(list),
        }
    }

    /// Whether queues of `device` have the type that the list was created for: `device` is the list's device, a
    /// sub-device of it, or its root device. "A command list is created for execution on a specific type of
    /// command queue", but it may be copied "for use on a different device" (core programming guide,
    /// Command Lists).
    fn fits(&self, device: &Device) -> bool {
        self.is_copy || device.is_within(self.device) || self.device.is_within(device)
    }

    /// The flags that a regular list was created with. An immediate one was created with flags of queues; of
    /// those only IN_ORDER is a property of the list, and Intel's driver returns no other either.
    pub fn flags(&self) -> ze_command_list_flags_t {
        match &self.kind {
            ListKind::Regular(flags, ..) => *flags,
            ListKind::Immediate(traits, ..) if traits.is_in_order() => {
                ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_IN_ORDER
            }
            ListKind::Immediate(..) => ze_command_list_flags_t::empty(),
        }
    }

    /// Appends a command. [`List::settle`] ends the call.
    ///
    /// # Errors
    /// See [`crate::list`].
    #[inline]
    pub fn append(
        &self,
        command: &Command<'_>,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result {
        self.append_as(command, None, signal, waits)
    }

    #[inline]
    fn append_as(
        &self,
        command: &Command<'_>,
        launched: Option<Launched<'_>>,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result {
        if !special::is_any() {
            return self.append_outside(command, launched, signal, waits).map(drop);
        }
        self.append_special(command, launched, signal, waits)
    }

    /// Appends while captures or checks make a closer look necessary.
    #[inline(never)]
    fn append_special(
        &self,
        command: &Command<'_>,
        launched: Option<Launched<'_>>,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result {
        let signals_nothing = signal.is_none();
        match checks::get() {
            Some(checks) => {
                let events = waits.collect::<Result<Vec<&Event>>>()?;
                let waits = &mut events.iter().copied().map(Ok);
                let mut ordered = self.ordered(signal, &events);
                let mut place = Place::Nowhere;
                let used = checked::append(
                    checks,
                    command,
                    launched,
                    &mut ordered,
                    |command, launched| {
                        place =
                            self.append_captured_or_outside(command, launched, signal, waits)?;
                        Ok(())
                    },
                );
                let item = ordered.and_then(|it| it.end(&place));
                if let (Place::Outside(Some(number)), Some(item)) = (&place, item)
                    && let ListKind::Regular(_, _, Some(mutable)) = &self.kind
                {
                    mutable.note_item(*number, item);
                }
                let used = used?;
                let (state, regular) = match &self.kind {
                    ListKind::Immediate(_, list, _) => (checked::immediate(list), false),
                    ListKind::Regular(_, list, _) => (Some(checked::regular(list)), true),
                };
                if let Some(state) = state.filter(|_| signals_nothing && !used.is_empty()) {
                    checks.uses(used, state, regular);
                }
                Ok(())
            }
            None => self.append_captured_or_outside(command, launched, signal, waits).map(drop),
        }
    }

    /// The append of a command, if the order of commands is followed.
    fn ordered<'a>(&'a self, signal: Option<Signal<'a>>, events: &[&Event]) -> Option<Ordered<'a>> {
        let to = match &self.kind {
            ListKind::Immediate(_, list, _) => match self.captures(events) {
                Some(branch) => To::Graph(list, branch),
                None => To::Immediate(list),
            },
            ListKind::Regular(_, list, _) if !list.is_closed() => To::Regular(list),
            ListKind::Regular(..) => return None,
        };
        Some(Ordered::new(order()?, to, signal, events))
    }

    /// Appends to a list that may be captured.
    fn append_captured_or_outside(
        &self,
        command: &Command<'_>,
        launched: Option<Launched<'_>>,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result<Place> {
        let events = waits.collect::<Result<Vec<&Event>>>()?;
        if let Some(captured) = self.append_captured((command, launched), signal, &events)? {
            return Ok(Place::Graph(captured));
        }
        let waits = &mut events.into_iter().map(Ok);
        self.append_outside(command, launched, signal, waits).map(Place::Outside)
    }

    /// Appends to a list that is not captured; returns the command's number in a mutable list, if it has one.
    #[inline]
    fn append_outside(
        &self,
        command: &Command<'_>,
        launched: Option<Launched<'_>>,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result<Option<u64>> {
        match &self.kind {
            ListKind::Immediate(_, list, _) => list.append(command, signal, waits).map(|()| None),
            ListKind::Regular(_, list, mutable) => {
                let number = list.append(command, signal, waits)?;
                if let (Some(number), Some(mutable), Some(launched)) = (number, mutable, launched) {
                    mutable.note(number, launched);
                }
                Ok(number)
            }
        }
    }

    /// An immediate list's state of captures.
    pub fn membership(&self) -> Option<&Membership> {
        match &self.kind {
            ListKind::Immediate(.., membership) => Some(membership),
            ListKind::Regular(..) => None,
        }
    }

    /// Appends a launch of a kernel that takes the general path. [`List::settle`] ends the call.
    ///
    /// # Errors
    /// See [`crate::list`].
    pub fn append_launch(
        &self,
        launched: Launched<'_>,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result {
        let (_, launch, groups) = launched;
        self.append_as(&Command::Launch(&launch.with(groups)), Some(launched), signal, waits)
    }

    /// Appends indirect launches; the 32-bit word at `count` gives their number when they run. [`List::settle`] ends the
    /// call.
    ///
    /// # Errors
    /// See [`crate::list`].
    pub fn append_launches(
        &self,
        launches: &[Launched<'_>],
        count: u64,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result {
        let number = |checks| launches.iter().map(|&it| checked::numbered(checks, it, 0)).collect();
        let numbered: Vec<_> = checks::get().map_or_else(Vec::new, number);
        let words: Vec<u64> = numbered.iter().map(|it| it.0 & !hidden::REACHES_ALL).collect();
        let mut with_words = Vec::with_capacity(launches.len());
        for (index, &(_, launch, groups)) in launches.iter().enumerate() {
            let numbered = numbered.get(index).and_then(|it| it.1.as_ref());
            with_words.push(numbered.unwrap_or(launch).with(groups));
        }
        let (launches, words) = (&with_words, &words);
        self.append(&Command::Launches { launches, count, words, numbers: &[] }, signal, waits)
    }

    /// Appends a command by the fast path; false: it has to take the general one. [`List::settle`] ends the
    /// call.
    ///
    /// # Errors
    /// Those of [`List::append`].
    #[inline]
    pub fn append_fast<'e>(
        &self,
        command: &impl Single,
        signal: Option<Signal<'_>>,
        waits: impl ExactSizeIterator<Item = Result<&'e Event>>,
    ) -> Result<bool> {
        if special::is_any() {
            return Ok(false);
        }
        match &self.kind {
            ListKind::Immediate(_, list, _) => list.append_fast(command, signal, waits),
            ListKind::Regular(_, list, _) => list.append_fast(command, signal, waits),
        }
    }

    /// Ends an append: waits for it in synchronous mode, and for some transfers ([`Immediate::settle`]). The caller holds
    /// no lock.
    ///
    /// # Errors
    /// DEVICE_LOST.
    #[inline]
    pub fn settle(&self) -> Result {
        match &self.kind {
            ListKind::Immediate(_, list, _) => list.settle(),
            ListKind::Regular(..) => Ok(()),
        }
    }

    /// Bytes from an address to the end of the allocation that contains it.
    #[inline]
    pub fn rest(&self, address: u64) -> Option<u64> {
        self.context.vm().rest(address)
    }

    /// Refuses kernels in lists of engines that have no execution units.
    ///
    /// # Errors
    /// INVALID_COMMAND_LIST_TYPE.
    #[inline]
    pub fn must_compute(&self) -> Result {
        if self.computes {
            return Ok(());
        }
        Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
            format!("hCommandList: command queue group {} runs no kernels", self.ordinal),
        ))
    }

    /// Makes a regular list executable. For an immediate one this does nothing.
    ///
    /// # Errors
    /// Out of memory.
    pub fn close(&self) -> Result {
        match &self.kind {
            ListKind::Immediate(..) => Ok(()),
            ListKind::Regular(_, list, mutable) => {
                if let Some(mutable) = mutable {
                    mutable.apply(list)?;
                }
                list.close()
            }
        }
    }

    /// Empties a regular list. For an immediate one there is nothing to remove.
    ///
    /// # Errors
    /// Out of memory.
    pub fn reset(&self) -> Result {
        match &self.kind {
            ListKind::Immediate(..) => Ok(()),
            ListKind::Regular(flags, list, mutable) => {
                if let Some(mutable) = mutable {
                    mutable.clear();
                }
                // It is known of it who made the list, as long as it exists.
                let before = order().map(|_| list.recording());
                list.reset()?;
                if let Some(order) = order() {
                    let in_order =
                        flags.contains(ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_IN_ORDER);
                    order.recording_begins(
                        ordered::key(&list.recording()),
                        in_order,
                        before.as_ref().map(ordered::key),
                    );
                }
                Ok(())
            }
        }
    }

    /// Ends the list; submitted commands still complete.
    pub fn destroy(self) {
        // A list that was forked from a graph's first list stays in the graph.
        if let Some((graph, 0)) = self.membership().and_then(Membership::belongs) {
            graph.abandon();
        }
        if let ListKind::Immediate(_, list, _) = self.kind {
            list.destroy();
        }
    }

    /// Mode of an immediate list.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub fn mode(&self) -> Result<ze_command_queue_mode_t> {
        Ok(self.as_immediate()?.0.mode)
    }

    /// Priority of an immediate list.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub fn priority(&self) -> Result<ze_command_queue_priority_t> {
        Ok(self.as_immediate()?.0.priority)
    }
}

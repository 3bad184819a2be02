// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands and the one builder that turns them into packets.
//!
//! In an in-order list every packet is ORDERED, and the last one of a command stores the list's
//! counter: that is the completion of the command, the order of the list, and the signal of a
//! counter-based event, all in one write. A regular event has a cell of its own, so it takes one
//! more packet; the cell is written first, so that a thread that has waited for the list finds the event
//! set.
//!
//! In an out-of-order list a command is ORDERED only where its semantics require it, and writes nothing
//! but its event.

use std::sync::Arc;

use tally_uapi::cell::{CELL_SIZE, CellKind};
use tally_uapi::packet::{
    CopyRegion, Header, Packet, PostSync, Predicate, Region, TimestampSlot, flag, opcode,
};

use super::graph::{Execution, Submission};
use super::launch::{self, Launch};
use super::packets::{bytes, copy, fill, nop, stamp};
use super::regular::Regular;
use super::target::{Condition, Post, Signal, Target};
use super::waits::{self, WaitList};
use crate::error::{Error, Result};
use crate::log::warn_once;
use crate::sync::cell::{Cell, SIGNALLED};
use crate::sync::event::{Event, EventKind};
use crate::sync::host_function::{self, HostFunction};
use crate::sync::semaphore::Gate;
use crate::sync::timestamp::Timestamp;
use crate::vm::Access;

/// A command that a call asks for, without its wait list and signal event. Addresses are VAs.
pub enum Command<'a> {
    /// The wait list alone.
    Wait,
    /// All earlier commands, or the wait list if there is one, complete before any later command begins.
    Barrier,
    /// Signals the event when all earlier commands are complete.
    Signal,
    /// Resets a regular event when all earlier commands are complete.
    Reset(&'a Event),
    /// A copy of bytes.
    Copy {
        /// The destination.
        dst: u64,
        /// The source.
        src: u64,
        /// The number of bytes.
        size: u64,
    },
    /// A copy of rows of bytes.
    CopyRegion {
        /// The destination.
        dst: u64,
        /// The source.
        src: u64,
        /// Sizes and pitches.
        shape: Region,
    },
    /// A fill with a repeated pattern.
    Fill {
        /// The destination.
        dst: u64,
        /// Bytes to fill. If they are not a multiple of the pattern's size, the last repetition is cut off.
        size: u64,
        /// The pattern; its size in bytes is a power of two.
        pattern: &'a [u8],
    },
    /// A write of the device's clock to an aligned address.
    Clock(u64),
    /// Writes of the times of events, as they were bound, to addresses.
    Times(&'a [Times]),
    /// A launch of a kernel.
    Launch(&'a Launch<'a>),
    /// Indirect launches; the 32-bit word at `count` gives their number when they run.
    Launches {
        /// The kernels.
        launches: &'a [Launch<'a>],
        /// VA of the word with the number of launches.
        count: u64,
        /// The numbers by which the kernels name their launches, if checks ask for them.
        words: &'a [u64],
        /// The numbers that the device tells when it reaches the launches, or none.
        numbers: &'a [u32],
    },
    /// Executions of regular lists, in this order.
    Lists(&'a [&'a Regular]),
    /// An execution of a graph.
    Graph(&'a Execution),
    /// A call of one of the application's functions.
    HostFunction(&'a Arc<HostFunction>),
    /// A signal of semaphores of other drivers.
    SignalSemaphores(&'a Arc<Gate>),
    /// A wait for semaphores of other drivers.
    WaitSemaphores(&'a Arc<Gate>),
    /// A number that the device tells when it reaches it; a part of another command.
    Number(u32),
    /// A command, together with copies and fills with one-byte patterns, and numbers, that belong to it: they have
    /// the same waits and are complete when it is.
    Together {
        /// The main command.
        main: &'a Command<'a>,
        /// The further commands; they begin before it.
        with: &'a [Command<'a>],
    },
}

/// A timestamp slot to copy, and the destination.
pub struct Times {
    /// VA of the slot.
    pub slot: u64,
    /// Keeps the slot alive.
    pub timestamp: Option<Timestamp>,
    /// VA of the destination.
    pub dst: u64,
}

/// Appends a command. If it fails, nothing has changed.
///
/// # Errors
/// Those of the look-up of wait events and of [`Target`].
pub fn append<T: Target>(
    target: &mut T,
    command: &Command<'_>,
    signal: Option<Signal<'_>>,
    waits: WaitList<'_, '_>,
) -> Result {
    if let Some(signal) = &signal {
        check_signal(target, signal)?;
    }
    target.begin(waits::bound(waits.len()) + command.bound() + 4)?;
    match encode(target, command, signal, waits) {
        Ok(()) => {
            target.commit()?;
            note_resets(target, command.itself());
            Ok(())
        }
        Err(error) => {
            target.rollback();
            Err(error)
        }
    }
}

/// Notes the resets of regular events that an appended command contains.
fn note_resets<T: Target>(target: &mut T, command: &Command<'_>) {
    let event = match command {
        Command::Reset(Event { kind: EventKind::Regular(event), .. }) => Some(event),
        _ => None,
    };
    if let Some(event) = event {
        target.note_reset(event);
    }
    let Some(engine) = target.engine() else { return };
    match command {
        Command::Lists(lists) => lists.iter().for_each(|list| list.is_submitted(engine)),
        Command::Graph(graph) => graph.lists().for_each(|list| list.is_submitted(engine)),
        _ => {}
    }
}

/// Appends a command to a closed list. Intel's driver writes it behind the list's end, where no execution
/// reaches it.
///
/// # Errors
/// Those of the waits.
#[cold]
pub fn lose<'e>(mut waits: impl Iterator<Item = Result<&'e Event>>) -> Result {
    warn_once!("hCommandList: the list is closed; commands that are appended to it are lost");
    waits.try_for_each(|it| it.map(drop))
}

/// Whether a command of the list may have this signal.
///
/// # Errors
/// INVALID_ARGUMENT; those of [`Target::may_signal`].
#[inline]
pub fn check_signal<T: Target>(target: &T, signal: &Signal<'_>) -> Result {
    signal.event.check_signal()?;
    if !matches!(signal.event.kind, EventKind::CounterBased(_)) {
        return Ok(());
    }
    if !target.in_order() {
        return Err(Error::invalid(
            "hSignalEvent: a counter-based event is signalled by in-order lists only",
        ));
    }
    target.may_signal(signal.event)
}

impl Command<'_> {
    /// Upper bound of the command's packets, without waits, STAMP and signals.
    fn bound(&self) -> usize {
        match self {
            Command::Times(times) => times.len(),
            Command::Launches { launches, .. } => 3 * launches.len(),
            Command::Lists(lists) => lists.len(),
            Command::HostFunction(_) => 5,
            Command::SignalSemaphores(gate) | Command::WaitSemaphores(gate) => {
                gate.cells().len() + 1
            }
            Command::Graph(graph) => graph.bound(),
            Command::Together { main, with } => main.bound() + with.len() + 1,
            _ => 1,
        }
    }

    /// Whether all earlier writes are visible to the host when the command is complete: a barrier flushes
    /// caches "sufficient for device and host access", an event as its scopes say.
    pub(super) fn publishes(&self, signal: Option<&Signal<'_>>) -> bool {
        let by_itself = match self {
            Command::Barrier => true,
            Command::Lists(lists) => lists.iter().any(|list| list.publishes()),
            Command::Graph(graph) => graph.publishes(),
            Command::Together { main, .. } => return main.publishes(signal),
            _ => false,
        };
        by_itself || signal.is_some_and(|it| it.event.traits.is_seen_by_host())
    }

    /// Destination and source of a copy.
    pub(super) fn places(&self) -> Option<(u64, u64)> {
        match *self {
            Command::Copy { dst, src, .. } | Command::CopyRegion { dst, src, .. } => {
                Some((dst, src))
            }
            _ => None,
        }
    }

    /// The command without what belongs to it.
    pub fn itself(&self) -> &Self {
        self.parts().0
    }

    /// The command itself, and what belongs to it.
    #[inline]
    fn parts(&self) -> (&Self, &[Self]) {
        match self {
            Self::Together { main, with } => (main, with),
            _ => (self, &[]),
        }
    }

    /// Whether it waits for all commands before it, also in an out-of-order list.
    fn is_ordered(&self, has_waits: bool) -> bool {
        match self {
            Command::Barrier => !has_waits,
            Command::Signal | Command::Reset(_) => true,
            _ => false,
        }
    }
}

/// The writes at the end of a command, in their order: its own, of which a reset has two, the event's, the
/// counter's.
#[derive(Default)]
struct Posts {
    list: [Option<Post>; 4],
    count: usize,
}

impl Posts {
    #[inline]
    fn add(&mut self, post: Option<Post>) {
        if post.is_some() {
            self.list[self.count] = post;
            self.count += 1;
        }
    }

    fn as_slice(&self) -> &[Option<Post>] {
        &self.list[..self.count]
    }
}

fn encode<T: Target>(
    target: &mut T,
    command: &Command<'_>,
    signal: Option<Signal<'_>>,
    waits: WaitList<'_, '_>,
) -> Result {
    let (command, with) = command.parts();
    let has_waits = waits.len() != 0;
    let wait_packets = waits::encode(target, waits)?;
    let in_order = target.in_order();
    let ordered = in_order || command.is_ordered(has_waits);
    let (slot, timestamp) = match &signal {
        Some(signal) if signal.event.traits.timestamps => timestamp_of(target, signal.event)?,
        _ => (None, None),
    };
    let body = Body { slot, order: if ordered { flag::ORDERED } else { 0 } };

    let mut posts = Posts::default();
    match command {
        Command::Clock(dst) => {
            let dst = target.reach(*dst, size_of::<u64>() as u64, Access::Write)?;
            posts.add(Some(Post::clock(dst)));
        }
        Command::Reset(event) => {
            let [cell, count] = reset(event)?;
            posts.add(Some(cell));
            posts.add(Some(count));
        }
        _ => {}
    }
    if let Some(signal) = &signal {
        posts.add(event_post(signal.event, |word| reach_word(target, word))?);
    }
    // A wait whose events are all met already is no command, unless it has to tell that.
    let idle = matches!(command, Command::Wait)
        && wait_packets == 0
        && signal.is_none()
        && with.is_empty()
        && !target.may_change();
    // In an out-of-order list, arguments of earlier commands become free at a barrier.
    if in_order && !idle || !in_order && ordered && posts.count == 0 {
        posts.add(target.reserve());
    }
    let posts = posts.as_slice();
    let waits_only = matches!(command, Command::Wait | Command::Barrier);
    if idle || waits_only && posts.is_empty() && with.is_empty() && !ordered {
        // The WAIT packets hold up all that follows.
    } else {
        body.write_all(target, (command, with), posts)?;
    }
    if let Some(signal) = &signal {
        target.name(signal, timestamp);
    }
    Ok(())
}

/// The fields that all packets of a command share.
struct Body {
    slot: Option<u64>,
    order: u8,
}

impl Body {
    /// Writes a command with what belongs to it.
    #[inline]
    fn write_all<T: Target>(
        &self,
        target: &mut T,
        (command, with): (&Command<'_>, &[Command<'_>]),
        posts: &[Option<Post>],
    ) -> Result {
        if with.is_empty() {
            return self.write(target, command, posts);
        }
        with.iter().try_for_each(|part| self.part(target, part))?;
        let takes_time = with.iter().any(|part| !matches!(part, Command::Number(_)));
        if self.order != 0 || posts.is_empty() || !takes_time {
            return self.write(target, command, posts);
        }
        self.write(target, command, &[])?;
        let ordered = Self { slot: self.slot, order: flag::ORDERED };
        ordered.last(target, nop(0), posts);
        Ok(())
    }

    fn write<T: Target>(
        &self,
        target: &mut T,
        command: &Command<'_>,
        posts: &[Option<Post>],
    ) -> Result {
        match command {
            Command::Copy { dst, src, size } => {
                let dst = target.reach(*dst, *size, Access::Write)?;
                let src = target.reach(*src, *size, Access::Read)?;
                self.last(target, copy(dst, src, *size), posts);
            }
            Command::CopyRegion { dst, src, shape } => {
                let (to, from) = spans(shape);
                let dst = target.reach(*dst, to, Access::Write)?;
                let src = target.reach(*src, from, Access::Read)?;
                let packet = region(target, (dst, src), shape)?;
                self.last(target, packet, posts);
            }
            Command::Fill { dst, size, pattern } => {
                let dst = target.reach(*dst, *size, Access::Write)?;
                // The device repeats whole patterns only. The partial pattern is written first, so that
                // the times are those of the rest.
                let whole = size - size % pattern.len() as u64;
                let mut packet = None;
                if let Some(part @ [_, ..]) = pattern.get(..(size - whole) as usize) {
                    packet = Some(bytes(target, dst + whole, part)?);
                }
                let mut packets = 1;
                if whole != 0 || packet.is_none() {
                    let main = fill(target, dst, whole, pattern)?;
                    if let Some(part) = packet.replace(main) {
                        self.inner(target, part);
                        packets = 2;
                    }
                }
                self.end(target, packets, packet, posts);
            }
            Command::Launch(launch) => {
                let packet = launch::encode(target, launch)?;
                self.last(target, packet, posts);
            }
            Command::Times(times) => {
                let size = size_of::<TimestampSlot>() as u64;
                let mut last = None;
                for it in *times {
                    if let Some(timestamp) = &it.timestamp {
                        target.keep(&timestamp.chunk());
                    }
                    let dst = target.reach(it.dst, size, Access::Write)?;
                    if let Some(packet) = last.replace(copy(dst, it.slot, size)) {
                        self.inner(target, packet);
                    }
                }
                self.end(target, times.len(), last, posts);
            }
            Command::Launches { launches, count, numbers, .. } => {
                let count = target.reach(*count, size_of::<u32>() as u64, Access::Read)?;
                let mut last = None;
                for (index, launch) in launches.iter().enumerate() {
                    let packet = launch::encode(target, launch)?;
                    if let Some(packet) = last.replace(packet) {
                        self.inner(target, packet);
                    }
                    if let Some(&number) = numbers.get(index) {
                        self.inner(target, number_packet(number));
                    }
                    let header = Header {
                        opcode: opcode::PREDICATE,
                        param: index as u32,
                        ..Default::default()
                    };
                    target.push(Predicate { header, count, zero: [0; 6] }.into());
                }
                self.end(target, launches.len(), last, posts);
            }
            Command::Lists(lists) => {
                let mut calls = Regular::prepare(lists, target)?;
                let last = lists.len() - 1;
                for (index, list) in lists.iter().enumerate() {
                    let packet = list.submit(&mut calls)?;
                    if index < last {
                        self.inner(target, packet);
                    } else {
                        self.end(target, lists.len(), Some(packet), posts);
                    }
                }
            }
            Command::Graph(graph) => {
                let Submission { before, call, after } = graph.submit(target)?;
                before.into_iter().for_each(|packet| target.push(packet));
                if after.is_empty() {
                    self.last(target, call, posts);
                } else {
                    self.inner(target, call);
                    after.into_iter().for_each(|packet| target.push(packet));
                    let ordered = Self { slot: self.slot, order: flag::ORDERED };
                    ordered.last(target, nop(0), posts);
                }
            }
            Command::HostFunction(function) => {
                target.keep(*function);
                let cell = function.cell().va();
                for post in [
                    Post::store(cell, host_function::REQUESTED),
                    Post::add(function.doorbell().va(), 1),
                ] {
                    self.push_post(target, post);
                }
                target.push(waits::at_least(cell, host_function::DONE));
                self.push_post(target, Post::store(cell, host_function::IDLE));
                self.last(target, nop(0), posts);
            }
            Command::SignalSemaphores(gate) => {
                target.keep(*gate);
                for (cell, value) in gate.cells() {
                    self.push_post(target, Post::store(cell.va(), value));
                }
                self.last(target, nop(0), posts);
            }
            Command::WaitSemaphores(gate) => {
                target.keep(*gate);
                let counter = |(cell, value): (Cell, u64)| {
                    Condition::AtLeast(cell.va(), CellKind::Counter, value)
                };
                waits::packets(gate.cells().map(counter))
                    .into_iter()
                    .for_each(|packet| target.push(packet));
                self.last(target, nop(0), posts);
            }
            // They are parts of commands.
            Command::Together { .. } | Command::Number(_) => {}
            Command::Wait
            | Command::Barrier
            | Command::Signal
            | Command::Reset(_)
            | Command::Clock(_) => self.last(target, nop(0), posts),
        }
        Ok(())
    }

    /// A command that belongs to another one, at addresses that the device reaches.
    #[cold]
    fn part<T: Target>(&self, target: &mut T, part: &Command<'_>) -> Result {
        let packet = match *part {
            Command::Copy { dst, src, size } => copy(dst, src, size),
            Command::CopyRegion { dst, src, ref shape } => region(target, (dst, src), shape)?,
            Command::Fill { dst, size, pattern } => fill(target, dst, size, pattern)?,
            Command::Number(number) => number_packet(number),
            _ => return Ok(()),
        };
        self.inner(target, packet);
        Ok(())
    }

    /// Pushes a write in the middle of a command, ordered after the one before it.
    fn push_post<T: Target>(&self, target: &mut T, post: Post) {
        let mut packet = nop(flag::ORDERED);
        post.attach(&mut packet);
        target.push(packet);
    }

    /// Pushes a packet of a command that is not its last one.
    fn inner<T: Target>(&self, target: &mut T, mut packet: Packet) {
        packet.header.flags |= self.order;
        target.push(packet);
    }

    /// Ends a command of several packets: since they are not ordered among themselves, none of them can
    /// signal that all are complete.
    fn end<T: Target>(
        &self,
        target: &mut T,
        packets: usize,
        last: Option<Packet>,
        posts: &[Option<Post>],
    ) {
        let Some(packet) = last else { return self.last(target, nop(0), posts) };
        if packets == 1 || self.order != 0 || posts.is_empty() {
            return self.last(target, packet, posts);
        }
        self.inner(target, packet);
        let ordered = Self { slot: self.slot, order: flag::ORDERED };
        ordered.last(target, nop(0), posts);
    }

    /// Pushes the last packet of a command with its signals.
    fn last<T: Target>(&self, target: &mut T, mut packet: Packet, posts: &[Option<Post>]) {
        packet.header.flags |= self.order;
        let mut posts = posts.iter().flatten();
        if let Some(post) = posts.next() {
            post.attach(&mut packet);
        }
        if let Some(slot) = self.slot {
            target.push(stamp(slot));
        }
        target.push(packet);
        for post in posts {
            let mut packet = nop(flag::ORDERED);
            post.attach(&mut packet);
            target.push(packet);
        }
    }
}

/// The packet at which the device tells a number.
fn number_packet(number: u32) -> Packet {
    let mut packet = nop(0);
    packet.header.param = number;
    packet
}

/// The packet of a copy of rows between two addresses.
fn region<T: Target>(target: &mut T, (dst, src): (u64, u64), shape: &Region) -> Result<Packet> {
    let at = target.memory(size_of::<Region>() as u64, 8)?;
    // SAFETY: the memory has this size and alignment and is not yet in use.
    unsafe { at.ptr.cast::<Region>().write(*shape) };
    let header = Header { opcode: opcode::COPY_REGION, ..Default::default() };
    let (region, zero, post) = (at.va(), [0; 2], PostSync::default());
    Ok(CopyRegion { header, dst, src, region, zero, post }.into())
}

/// Bytes from the first to the last one that a copy of rows touches, in the destination and in the source.
fn spans(shape: &Region) -> (u64, u64) {
    let span = |row_pitch: u64, slice_pitch: u64| {
        if shape.width == 0 || shape.height == 0 || shape.depth == 0 {
            return 0;
        }
        (shape.depth - 1)
            .saturating_mul(slice_pitch)
            .saturating_add((shape.height - 1).saturating_mul(row_pitch))
            .saturating_add(shape.width)
    };
    (
        span(shape.dst_row_pitch, shape.dst_slice_pitch),
        span(shape.src_row_pitch, shape.src_slice_pitch),
    )
}

/// The device's address of the word to which an event's signals add.
pub(super) fn reach_word<T: Target>(target: &mut T, word: u64) -> Result<u64> {
    target.reach(word, CELL_SIZE, Access::Write)
}

/// The write that signals an event, unless the list's counter signals it. `reach` returns the device's
/// address of a word in the application's memory.
pub(super) fn event_post(
    event: &Event,
    reach: impl FnOnce(u64) -> Result<u64>,
) -> Result<Option<Post>> {
    let event = match &event.kind {
        EventKind::Regular(place) => return Ok(Some(Post::store(place.cell().va(), SIGNALLED))),
        EventKind::CounterBased(event) => event,
    };
    let Some((word, increment)) = event.aggregated() else { return Ok(None) };
    let at = reach(word.device)?;
    Ok(Some(Post::add(at, increment)))
}

/// The writes that reset an event: its cell, and then the number of its resets.
fn reset(event: &Event) -> Result<[Post; 2]> {
    event.check()?;
    match &event.kind {
        EventKind::Regular(place) => {
            Ok([Post::store(place.cell().va(), 0), Post::add(place.resets().va(), 1)])
        }
        EventKind::CounterBased(_) => {
            Err(Error::invalid("hEvent: a counter-based event is never reset"))
        }
    }
}

/// The slot for the times of a command that signals `event`.
pub(super) fn timestamp_of<T: Target>(
    target: &mut T,
    event: &Event,
) -> Result<(Option<u64>, Option<Timestamp>)> {
    match &event.kind {
        EventKind::Regular(place) => Ok((Some(place.slot()), None)),
        EventKind::CounterBased(_) => {
            let timestamp = target.timestamp()?;
            Ok((Some(timestamp.va()), Some(timestamp)))
        }
    }
}

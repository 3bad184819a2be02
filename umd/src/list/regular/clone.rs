// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of regular lists: the same commands with a counter and timestamp slots of their own, so
//! that a copy and its source may run at the same time.
//!
//! A running list only reads its arguments and shapes, so a copy shares those of its source and keeps
//! their memory alive. Where checks follow the order of commands, each copy has numbers of its own, and its kernels,
//! which know the numbers of their launches from their arguments, have argument blocks of their own.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use tally_compiler_protocol::checks::hidden;
use tally_uapi::eu::BLOCK_ALIGN;
use tally_uapi::packet::{Command, Dispatch, Packet, TimestampSlot, Wait, flag, opcode};

use super::{Binding, Mark, Memory, Regular, State};
use crate::checks::{self, Checks, CopiedLaunch, Copies};
use crate::error::{Error, Result};
use crate::sync::host_function::HostFunction;
use crate::sync::recording::{self, Recording};
use crate::sync::shared::Shared;
use crate::sync::spin::{SpinGuard, SpinLock};
use crate::sync::timestamp::Timestamp;

impl Regular {
    /// A closed list with the same commands. Events that this list signals continue to name it until the
    /// copy is executed.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the list is not closed; out of memory.
    pub fn duplicate(&self) -> Result<Arc<Self>> {
        let mut copies = Self::duplicate_all(&[self])?;
        copies.pop().ok_or_else(|| Error::invalid("hCommandList: there is no list"))
    }

    /// Copies of several lists. Waits of the lists for each other become waits of the copies for each other.
    ///
    /// # Errors
    /// Those of [`Regular::duplicate`].
    pub fn duplicate_all(lists: &[&Self]) -> Result<Vec<Arc<Self>>> {
        let mut sources: Vec<_> = lists.iter().map(|list| list.lock()).collect();
        if sources.iter().any(|it| !it.closed || it.is_stale) {
            return Err(Error::invalid("hCommandList: the list is not closed"));
        }
        let mut recordings = Vec::with_capacity(lists.len());
        for (list, source) in lists.iter().zip(&sources) {
            recordings.push(source.recording.again(Arc::new(list.shared.counter()?)));
        }
        let key = recording::key;
        let pairs =
            sources.iter().zip(&recordings).map(|(from, to)| (key(&from.recording), key(to)));
        let numbers = checks::get().and_then(|checks| {
            Some((checks, checks.recordings_are_copied(&pairs.collect::<Vec<_>>())?))
        });
        let mut copier = Copier {
            sources: &sources,
            recordings: &recordings,
            places: HashMap::new(),
            numbers,
            command: 0,
            launch: None,
        };
        let mut copies = Vec::with_capacity(lists.len());
        for (index, list) in lists.iter().enumerate() {
            let mut state = copier.copy(&list.shared, index)?;
            state.write_image(&list.shared)?;
            let (shared, in_order) = (list.shared.clone(), list.in_order);
            let state = SpinLock::new(state);
            copies.push(Arc::new(Self { shared, in_order, is_branch: false, state }));
        }
        for (source, copy) in sources.iter_mut().zip(&copies) {
            for mutable in source.mutable.iter_mut().chain(&mut copy.lock().mutable) {
                mutable.share_blocks();
            }
        }
        Ok(copies)
    }
}

/// Makes copies of lists that know each other.
struct Copier<'a> {
    sources: &'a [SpinGuard<'a, State>],
    /// The recordings of the copies.
    recordings: &'a [Arc<Recording>],
    /// The copies' counterparts of a source's objects, by VA.
    places: HashMap<u64, Place>,
    /// The numbers of the copies, if commands have any.
    numbers: Option<(&'static Checks, Copies)>,
    /// The number of the command whose packets come next.
    command: u32,
    /// The launch whose number was met, and whose packet comes next.
    launch: Option<CopiedLaunch>,
}

/// Memory of a copy.
#[derive(Clone)]
enum Place {
    Slot(Timestamp),
    Function(Arc<HostFunction>),
}

impl Copier<'_> {
    fn copy(&mut self, shared: &Arc<Shared>, index: usize) -> Result<State> {
        let (source, recording) = (&self.sources[index], self.recordings[index].clone());
        let mut memory = Memory::new();
        memory.user_memory.clone_from(&source.memory.user_memory);
        for chunk in source.memory.arguments.chunks() {
            memory.kept.push(chunk.clone());
        }
        for kept in &source.memory.kept {
            memory.kept.push(match kept.clone().downcast::<HostFunction>() {
                Ok(function) => self.function(shared, &function)?,
                Err(other) => other,
            });
        }
        let (from, to) = (source.recording.counter().cell().va(), recording.counter().cell().va());
        let mut packets = Vec::with_capacity(source.packets.len());
        for &packet in &source.packets {
            let packet = self.with_functions(with_counter(packet, from, to));
            let packet = self.with_numbers(packet, shared, &mut memory)?;
            packets.push(self.with_slots(packet, shared, &mut memory)?);
        }
        let mut signalled = source.signalled.clone();
        let mut mutable = source.mutable.clone();
        let timestamps = signalled.iter_mut().filter_map(|it| it.timestamp.as_mut());
        for timestamp in timestamps.chain(mutable.iter_mut().flat_map(|it| it.timestamps())) {
            *timestamp = self.slot(timestamp.va(), shared, &mut memory)?;
        }
        let operands = source.operands.iter().map(|it| it.as_ref().map(|it| self.bound(it)));
        Ok(State {
            closed: true,
            special: true,
            is_stale: false,
            recording,
            packets,
            operands: operands.collect(),
            signalled,
            resets: source.resets.clone(),
            publishes: source.publishes,
            memory,
            mark: Mark::default(),
            calls: source.calls.clone(),
            mutable,
        })
    }

    /// The binding for the copy: a wait for one of the sources becomes a wait for its copy.
    fn bound(&self, binding: &Binding) -> Binding {
        if let Binding::Signal(recording, k) = binding
            && let Some(i) =
                self.sources.iter().position(|it| Arc::ptr_eq(&it.recording, recording))
        {
            return Binding::Signal(self.recordings[i].clone(), *k);
        }
        binding.clone()
    }

    /// A separate function for the copy, since both lists may request it at the same time.
    fn function(&mut self, shared: &Shared, of: &HostFunction) -> Result<Arc<HostFunction>> {
        let function = shared.host_function(of.callback())?;
        self.places.insert(of.cell().va(), Place::Function(function.clone()));
        Ok(function)
    }

    /// The packet with the copies' functions in place of the sources'.
    fn with_functions(&self, mut packet: Packet) -> Packet {
        let own = |va: u64| match self.places.get(&va) {
            Some(Place::Function(function)) => function.cell().va(),
            _ => va,
        };
        if packet.header.opcode == opcode::WAIT {
            let mut wait: Wait = zerocopy::transmute!(packet);
            wait.entries.iter_mut().for_each(|entry| entry.address = own(entry.address));
            return wait.into();
        }
        if packet.header.flags & flag::POST_SYNC != 0 {
            let before = packet.post.address;
            packet.post.address = own(before);
            if packet.post.address != before
                && let Some(order) = self.numbers.as_ref().and_then(|it| it.0.order())
            {
                order.calls_function(self.command, packet.post.address);
            }
        }
        packet
    }

    /// The packet with the copies' timestamp slots where it writes or reads one of the sources'.
    fn with_slots(
        &mut self,
        packet: Packet,
        shared: &Shared,
        memory: &mut Memory,
    ) -> Result<Packet> {
        Ok(match packet.decode(tally_uapi::packet::Place::Recording) {
            Ok(Command::Stamp(mut stamp)) if self.is_slot(stamp.slot) => {
                stamp.slot = self.slot(stamp.slot, shared, memory)?.va();
                stamp.into()
            }
            Ok(Command::Copy(mut copy)) if self.is_slot(copy.src) => {
                copy.src = self.slot(copy.src, shared, memory)?.va();
                copy.into()
            }
            _ => packet,
        })
    }

    /// The packet with the copy's numbers.
    fn with_numbers(
        &mut self,
        mut packet: Packet,
        shared: &Shared,
        memory: &mut Memory,
    ) -> Result<Packet> {
        let Some((checks, copies)) = &self.numbers else { return Ok(packet) };
        match packet.header.opcode {
            opcode::NOP if packet.header.param != 0 => {
                let copy = copies.of(packet.header.param);
                packet.header.param = copy.number;
                self.command = copy.number;
                self.launch = copy.launch;
            }
            opcode::DISPATCH => {
                let Some(launch) = self.launch.take() else { return Ok(packet) };
                let mut dispatch: Dispatch = zerocopy::transmute!(packet);
                dispatch.kernarg = own_block(checks, launch, dispatch.kernarg, shared, memory)?;
                return Ok(dispatch.into());
            }
            _ => {}
        }
        Ok(packet)
    }

    /// Whether a slot belongs to an append of a source, not to a pool's event or to another list.
    fn is_slot(&self, va: u64) -> bool {
        let size = size_of::<TimestampSlot>() as u64;
        let mut chunks = self.sources.iter().flat_map(|it| it.memory.timestamps.chunks());
        chunks.any(|chunk| chunk.holds(va, size))
    }

    /// The copies' slot for a slot of a source; allocated on first use.
    fn slot(&mut self, va: u64, shared: &Shared, memory: &mut Memory) -> Result<Timestamp> {
        if let Some(Place::Slot(timestamp)) = self.places.get(&va) {
            return Ok(timestamp.clone());
        }
        let timestamp = memory.timestamp(shared)?;
        self.places.insert(va, Place::Slot(timestamp.clone()));
        Ok(timestamp)
    }
}

/// A copy of the argument block at an address, by which the kernel names the copy's launch.
fn own_block(
    checks: &Checks,
    launch: CopiedLaunch,
    from: u64,
    shared: &Shared,
    memory: &mut Memory,
) -> Result<u64> {
    let CopiedLaunch { number, words } = launch;
    let heap = shared.vm().heap();
    let block = memory.arguments.take(heap, words.block, BLOCK_ALIGN, u64::MAX, || 0)?;
    let from = ptr::with_exposed_provenance::<u8>(from as usize);
    let word = |offset: u32| (words.at + u64::from(offset)) as usize;
    // SAFETY: the source keeps its block, which has this size and is not changed while the source is locked; the new one
    // has the same size and is not yet in use. The words lie in it.
    unsafe {
        block.ptr.as_ptr().copy_from_nonoverlapping(from, words.block as usize);
        let of_launch = block.ptr.add(word(hidden::LAUNCH)).cast::<u64>();
        of_launch.write_unaligned(of_launch.read_unaligned() & hidden::REACHES_ALL | number);
        let of_command = block.ptr.add(word(hidden::COMMAND)).cast::<u64>();
        of_command.write_unaligned(checks.block());
    }
    Ok(block.va())
}

/// The packet with the copy's counter where it signals the source's.
fn with_counter(mut packet: Packet, from: u64, to: u64) -> Packet {
    let own = flag::POST_SYNC | flag::FROM_BASE;
    if packet.header.flags & own == own && packet.post.address == from {
        packet.post.address = to;
    }
    packet
}

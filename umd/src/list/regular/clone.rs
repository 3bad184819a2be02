// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of regular lists: the same commands with a counter and timestamp slots of their own, so
//! that a copy and its source may run at the same time.
//!
//! Arguments and shapes are only read when a list runs, so a copy shares those of its source and
//! keeps their memory.

use std::collections::HashMap;
use std::sync::Arc;

use tally_uapi::packet::{Command, Packet, Place, TimestampSlot, flag};

use super::{Mark, Memory, Regular, State};
use crate::error::{Error, Result};
use crate::sync::spin::SpinLock;
use crate::sync::timestamp::Stamp;

impl Regular {
    /// A closed list that does what this one does. Events that this list signals go on naming it
    /// until the copy is executed.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the list is not closed; out of memory.
    pub fn duplicate(&self) -> Result<Arc<Self>> {
        let mut source = self.lock();
        if !source.closed || source.is_stale {
            return Err(Error::invalid("hCommandList: the list is not closed"));
        }
        let counter = Arc::new(self.shared.counter()?);
        let recording = source.recording.again(counter);
        let mut memory = Memory::new();
        memory.kept.clone_from(&source.memory.kept);
        memory.windows.clone_from(&source.memory.windows);
        for chunk in source.memory.arguments.chunks() {
            memory.kept.push(chunk.clone());
        }
        let mut slots = Slots { source: &source, list: self, memory, copies: HashMap::new() };
        let (from, to) = (source.recording.counter().cell().va(), recording.counter().cell().va());
        let mut packets = Vec::with_capacity(source.packets.len());
        for &packet in &source.packets {
            packets.push(slots.redirect(with_counter(packet, from, to))?);
        }
        let mut signalled = source.signalled.clone();
        if crate::faults::on(crate::faults::CLONE_KEEPS_STATE) {
            signalled.clear();
        }
        for stamp in signalled.iter_mut().filter_map(|it| it.stamp.as_mut()) {
            *stamp = slots.copy(stamp.va())?;
        }
        let mut mutable = source.mutable.clone();
        for stamp in mutable.iter_mut().flat_map(|it| it.stamps()) {
            *stamp = slots.copy(stamp.va())?;
        }
        let mut state = State {
            closed: true,
            special: true,
            is_stale: false,
            recording,
            packets,
            operands: source.operands.clone(),
            signalled,
            memory: slots.memory,
            mark: Mark::default(),
            calls: source.calls.clone(),
            mutable,
        };
        state.write_image(&self.shared)?;
        for mutable in source.mutable.iter_mut().chain(&mut state.mutable) {
            mutable.share_blocks();
        }
        let (shared, in_order) = (self.shared.clone(), self.in_order);
        Ok(Arc::new(Self { shared, in_order, state: SpinLock::new(state) }))
    }
}

/// The packet with the copy's counter where it signals the source's.
fn with_counter(mut packet: Packet, from: u64, to: u64) -> Packet {
    let own = flag::POST_SYNC | flag::FROM_BASE;
    let kept = crate::faults::on(crate::faults::CLONE_KEEPS_COUNTER);
    if packet.header.flags & own == own && packet.post.address == from && !kept {
        packet.post.address = to;
    }
    packet
}

/// The timestamp slots of a copy, each taken when the first packet refers to it.
struct Slots<'a> {
    source: &'a State,
    list: &'a Regular,
    memory: Memory,
    /// By the VA of the source's slot.
    copies: HashMap<u64, Stamp>,
}

impl Slots<'_> {
    /// The packet with the copy's slot where it writes or reads one of the source's.
    fn redirect(&mut self, packet: Packet) -> Result<Packet> {
        Ok(match packet.decode(Place::Recording) {
            Ok(Command::Stamp(mut stamp)) if self.is_own(stamp.slot) => {
                stamp.slot = self.copy(stamp.slot)?.va();
                stamp.into()
            }
            Ok(Command::Copy(mut copy)) if self.is_own(copy.src) => {
                copy.src = self.copy(copy.src)?.va();
                copy.into()
            }
            _ => packet,
        })
    }

    /// Whether a slot belongs to an append of the source: neither an event's of a pool nor one of
    /// another list.
    fn is_own(&self, va: u64) -> bool {
        let size = size_of::<TimestampSlot>() as u64;
        self.source.memory.stamps.chunks().any(|chunk| chunk.holds(va, size))
    }

    fn copy(&mut self, va: u64) -> Result<Stamp> {
        if let Some(stamp) = self.copies.get(&va) {
            return Ok(stamp.clone());
        }
        let stamp = self.memory.stamp(&self.list.shared)?;
        self.copies.insert(va, stamp.clone());
        Ok(stamp)
    }
}

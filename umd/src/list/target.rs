// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target to which commands are appended, and what an append passes to it: writes at the end of
//! packets, signals, conditions, objects to keep.

use std::any::Any;
use std::sync::Arc;

use tally_uapi::cell::CellKind;
use tally_uapi::packet::{Header, Packet, PostOp, PostSync, flag};
use tally_ze::ze_event_handle_t;
use zerocopy::transmute;

use crate::error::Result;
use crate::submit::arena::Span;
use crate::sync::cb_event::CbEvent;
use crate::sync::event::{Event, Lists};
use crate::sync::event_pool::PoolPlace;
use crate::sync::resets::Engine;
use crate::sync::timestamp::Timestamp;
use crate::vm::Access;

/// A list to which commands are appended.
pub trait Target {
    /// The kind of list.
    const KIND: Lists;

    /// Whether commands are ordered among themselves.
    fn in_order(&self) -> bool;
    /// Reserves room for packets; after this, nothing fails for lack of it.
    ///
    /// # Errors
    /// The list does not take commands, or OUT_OF_HOST_MEMORY.
    fn begin(&mut self, packets: usize) -> Result;
    /// Writes a packet.
    fn push(&mut self, packet: Packet);
    /// Allocates memory that stays until the command is complete.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY.
    fn memory(&mut self, size: u64, align: u64) -> Result<Span>;
    /// The address at which the device finds the `size` bytes at the application's `address`. It is valid
    /// until the command is complete.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: there is no such memory. OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY.
    fn reach(&mut self, address: u64, size: u64, access: Access) -> Result<u64>;
    /// A slot for the times of this command.
    ///
    /// # Errors
    /// Those of `memory`.
    fn timestamp(&mut self) -> Result<Timestamp>;
    /// Keeps the referenced object until the command is complete.
    fn keep(&mut self, what: &(impl Keep + ?Sized));
    /// Whether the list's own order already satisfies a wait for `event`.
    fn orders(&self, event: &Event) -> bool;
    /// The condition that encodes a wait for `event`.
    ///
    /// # Errors
    /// INVALID_SYNCHRONIZATION_OBJECT.
    fn condition(&mut self, event: &Event) -> Result<Condition>;
    /// The next value of the list's counter, as the write that completes the command. `None` in a
    /// list that is complete only as a whole.
    fn reserve(&mut self) -> Option<Post>;
    /// Refuses a counter-based event that this kind of list may not signal.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    fn may_signal(&self, event: &Event) -> Result;
    /// Makes `event` name the command.
    fn name(&mut self, event: &Signal<'_>, timestamp: Option<Timestamp>);
    /// Does the same as `name` for an event that is [`Event::as_plain`].
    fn name_plain(&mut self, event: &CbEvent, raw: ze_event_handle_t);
    /// Whether the command that is being appended may be changed later, so that places are reserved even for
    /// packets that it does not need now.
    fn may_change(&self) -> bool {
        false
    }
    /// Undoes everything since `begin`.
    fn rollback(&mut self);
    /// Ends the command.
    ///
    /// # Errors
    /// DEVICE_LOST.
    fn commit(&mut self) -> Result;
    /// The engine that runs the commands in the order of their appends; `None` where they are recorded.
    fn engine(&self) -> Option<Engine>;
    /// Notes that the appended command resets a regular event.
    fn note_reset(&mut self, event: &PoolPlace);
}

/// The signal event of a call.
#[derive(Clone, Copy)]
pub struct Signal<'a> {
    /// The event.
    pub event: &'a Event,
    /// Its handle, for lists that signal it again.
    pub raw: ze_event_handle_t,
}

/// A wait for an event, as a list encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Complete and staying so, or ordered by the list itself: nothing to wait for.
    Met,
    /// The word at an address is at least a value.
    AtLeast(u64, CellKind, u64),
    /// The operand of the CALL with this number.
    Operand(u32),
}

/// Something with shared ownership that a list can keep as long as the device uses it.
pub trait Keep {
    /// An identity that is equal for two references to the same object.
    fn identity(&self) -> *const ();
    /// Returns another reference to the object.
    fn share(&self) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Any + Send + Sync> Keep for Arc<T> {
    fn identity(&self) -> *const () {
        Arc::as_ptr(self).cast()
    }

    fn share(&self) -> Arc<dyn Any + Send + Sync> {
        self.clone()
    }
}

/// A write at the end of a command.
#[derive(Clone, Copy, Debug)]
pub struct Post {
    op: PostOp,
    flags: u8,
    sync: PostSync,
}

impl Post {
    /// Stores `value`.
    #[inline]
    pub const fn store(address: u64, value: u64) -> Self {
        Self { op: PostOp::Store, flags: flag::POST_SYNC, sync: PostSync { address, value } }
    }

    /// Stores the CALL's base plus `k`.
    #[inline]
    pub const fn from_base(address: u64, k: u64) -> Self {
        let flags = flag::POST_SYNC | flag::FROM_BASE;
        Self { op: PostOp::Store, flags, sync: PostSync { address, value: k } }
    }

    pub(super) const fn add(address: u64, value: u64) -> Self {
        Self { op: PostOp::Add, ..Self::store(address, value) }
    }

    pub(super) const fn clock(address: u64) -> Self {
        Self { op: PostOp::Clock, ..Self::store(address, 0) }
    }

    #[inline]
    pub(super) fn attach(self, packet: &mut Packet) {
        packet.header.flags |= self.flags;
        packet.header.post_op = self.op as u8;
        packet.post = self.sync;
    }

    /// The ordered packet with this write at its end, made from one that has no flags. The header stays a word.
    #[inline(always)]
    pub(super) fn end_ordered(packet: Packet, post: Option<Self>) -> Packet {
        let mut end = Header { flags: flag::ORDERED, ..Default::default() };
        let mut sync = PostSync::default();
        if let Some(post) = post {
            end.flags |= post.flags;
            end.post_op = post.op as u8;
            sync = post.sync;
        }
        let (header, end): (u64, u64) = (transmute!(packet.header), transmute!(end));
        Packet { header: transmute!(header | end), post: sync, ..packet }
    }

    /// Whether this is the write at the end of `packet`.
    pub(super) fn is_of(self, packet: &Packet) -> bool {
        let flags = packet.header.flags & (flag::POST_SYNC | flag::FROM_BASE);
        flags == self.flags && packet.header.post_op == self.op as u8 && packet.post == self.sync
    }

    /// The packet without a write at its end.
    pub(super) fn detach(packet: &mut Packet) {
        packet.header.flags &= !(flag::POST_SYNC | flag::FROM_BASE);
        packet.header.post_op = 0;
        packet.post = PostSync::default();
    }
}

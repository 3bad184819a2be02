// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path of the most common appends: a command of one packet, in an in-order list, whose only
//! signal, if any, is a counter-based event that needs no write of its own.
//!
//! It writes the same packets as [`command::append`](super::command::append), which a golden test checks,
//! but skips the work that only other commands need.

use tally_uapi::eu::BLOCK_ALIGN;
use tally_uapi::packet::Packet;

use super::packets;
use super::prebuilt::Prebuilt;
use super::target::{Keep, Post, Signal, Target};
use super::waits;
use crate::error::Result;
use crate::sync::event::Event;
use crate::vm::Access;

/// A command of one packet.
pub trait Single {
    /// The packet, without its order and its signal. `None`: the command has to take the general path.
    ///
    /// # Errors
    /// Those of [`Target`].
    fn packet<T: Target>(&self, target: &mut T) -> Result<Option<Packet>>;

    /// Destination and source of a copy.
    #[inline]
    fn places(&self) -> Option<(u64, u64)> {
        None
    }
}

/// A kernel.
#[derive(Clone, Copy)]
pub struct Kernel<'a, K> {
    /// The part of the kernel that is copied.
    pub prebuilt: &'a Prebuilt,
    /// The object that must exist until the kernel has run.
    pub keep: &'a K,
    /// The number of groups.
    pub groups: [u32; 3],
}

impl<K: Keep> Single for Kernel<'_, K> {
    #[inline(always)]
    fn packet<T: Target>(&self, target: &mut T) -> Result<Option<Packet>> {
        target.keep(self.keep);
        let block = target.memory(self.prebuilt.bytes(), BLOCK_ALIGN)?;
        // SAFETY: the block has that size and alignment, and is not yet in use.
        let packet = unsafe { self.prebuilt.copy(block.ptr.as_ptr().cast(), self.groups) };
        let Some(mut packet) = packet else { return Ok(None) };
        packet.body[KERNARG] = block.va();
        Ok(Some(packet))
    }
}

/// A copy of bytes.
#[derive(Clone, Copy)]
pub struct Copy {
    /// The destination.
    pub dst: u64,
    /// The source.
    pub src: u64,
    /// The number of bytes.
    pub size: u64,
}

impl Single for Copy {
    #[inline(always)]
    fn packet<T: Target>(&self, target: &mut T) -> Result<Option<Packet>> {
        let dst = target.reach(self.dst, self.size, Access::Write)?;
        let src = target.reach(self.src, self.size, Access::Read)?;
        Ok(Some(packets::copy(dst, src, self.size)))
    }

    #[inline]
    fn places(&self) -> Option<(u64, u64)> {
        Some((self.dst, self.src))
    }
}

/// A fill.
#[derive(Clone, Copy)]
pub struct Fill<'a> {
    /// The destination.
    pub dst: u64,
    /// Bytes to fill.
    pub size: u64,
    /// The pattern; its size in bytes is a power of two.
    pub pattern: &'a [u8],
}

impl Single for Fill<'_> {
    #[inline(always)]
    fn packet<T: Target>(&self, target: &mut T) -> Result<Option<Packet>> {
        // A partial pattern at the end needs a packet of its own. The size of a pattern is a power of two.
        if self.size & (self.pattern.len() as u64 - 1) != 0 {
            return Ok(None);
        }
        let dst = target.reach(self.dst, self.size, Access::Write)?;
        packets::fill(target, dst, self.size, self.pattern).map(Some)
    }
}

/// Appends a command. False: the command has to take the general path, and nothing has changed.
///
/// # Errors
/// Those of [`super::command::append`].
#[inline(always)]
pub fn append<'e, T: Target>(
    target: &mut T,
    command: &impl Single,
    signal: Option<Signal<'_>>,
    waits: impl ExactSizeIterator<Item = Result<&'e Event>>,
) -> Result<bool> {
    if !target.in_order() {
        return Ok(false);
    }
    let plain = match &signal {
        None => None,
        Some(Signal { event, raw }) => {
            let Some(plain) = event.as_plain(T::KIND)? else { return Ok(false) };
            Some((plain, *raw))
        }
    };
    target.begin(waits::bound(waits.len()) + 1)?;
    match encode(target, command, waits) {
        Ok(true) => {
            if let Some((event, raw)) = plain {
                target.name_plain(event, raw);
            }
            target.commit().map(|()| true)
        }
        other => {
            target.rollback();
            other
        }
    }
}

#[inline(always)]
fn encode<'e, T: Target>(
    target: &mut T,
    command: &impl Single,
    waits: impl Iterator<Item = Result<&'e Event>>,
) -> Result<bool> {
    waits::encode(target, waits)?;
    let Some(packet) = command.packet(target)? else { return Ok(false) };
    let post = target.reserve();
    target.push(Post::end_ordered(packet, post));
    Ok(true)
}

/// The position of a DISPATCH's `kernarg` in the body of a packet.
const KERNARG: usize = 1;

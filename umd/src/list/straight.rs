// SPDX-License-Identifier: MIT OR Apache-2.0
//! The straight way of the commonest append: a kernel whose groups are known, in an in-order list, with
//! no signal but that of a counter-based event that takes no write of its own.
//!
//! It writes the packets that [`command::append`](super::command::append) writes (a golden test holds it
//! to that), without building what only other commands need.

use tally_uapi::eu::BLOCK_ALIGN;
use tally_uapi::packet::flag;

use super::command::{Signal, Target};
use super::launch::Keep;
use super::ready::Ready;
use super::waits;
use crate::error::Result;
use crate::sync::event::Event;

/// A launch for the straight way.
#[derive(Clone, Copy)]
pub struct Straight<'a, K> {
    /// What to copy of the kernel.
    pub ready: &'a Ready,
    /// What must exist until the kernel has run.
    pub keep: &'a K,
    /// How many groups.
    pub groups: [u32; 3],
}

/// Appends a launch. False: it has to go the general way, and nothing has changed.
///
/// # Errors
/// As [`super::command::append`].
#[inline]
pub fn append<'e, T: Target, K: Keep>(
    target: &mut T,
    launch: &Straight<'_, K>,
    signal: Option<Signal<'_>>,
    waits: impl ExactSizeIterator<Item = Result<&'e Event>>,
) -> Result<bool> {
    if !target.in_order() || crate::faults::BUILT {
        return Ok(false);
    }
    let plain = match &signal {
        None => None,
        Some(Signal { event, raw }) => {
            let Some(plain) = event.as_plain(T::KIND) else { return Ok(false) };
            event.check()?;
            Some((plain, *raw))
        }
    };
    target.begin(waits::bound(waits.len()) + 1)?;
    match encode(target, launch, waits) {
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

#[inline]
fn encode<'e, T: Target, K: Keep>(
    target: &mut T,
    launch: &Straight<'_, K>,
    waits: impl Iterator<Item = Result<&'e Event>>,
) -> Result<bool> {
    waits::encode(target, waits)?;
    target.keep(launch.keep);
    let block = target.memory(launch.ready.bytes(), BLOCK_ALIGN)?;
    // SAFETY: the block has that size and alignment, and is not yet in use.
    let packet = unsafe { launch.ready.copy(block.ptr.as_ptr().cast(), launch.groups) };
    let Some(mut packet) = packet else { return Ok(false) };
    packet.body[KERNARG] = block.va();
    packet.header.flags = flag::ORDERED;
    if let Some(post) = target.promise() {
        post.attach(&mut packet);
    }
    target.push(packet);
    Ok(true)
}

/// Place of a DISPATCH's `kernarg` in the body of a packet.
const KERNARG: usize = 1;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that the streaming worker runs on the spot.
//!
//! A command of a few bytes takes less time than the work that others could join: to make it, count it,
//! lend the stream meanwhile and take it back. So an ordered copy or fill of at most one unit, and an
//! ordered NOP, are run where they are met, in one guarded call with their post-sync operation. Nothing
//! can be seen of it but the time. It is not for commands whose times somebody wants, nor for the
//! adversarial device, which delays each signal.

use std::sync::Arc;

use tally_uapi::packet::{InPlace, PostOp, PostSync, flag};

use super::Stream;
use super::start::BRISK_BYTES;
use crate::copy::{Fill, UNIT_BYTES};
use crate::guard::{Trap, move_bytes, set_bytes};
use crate::queue::Queue;
use crate::sched::Worker;
use crate::work::signal;

/// What is done on the spot.
enum Spot {
    Nothing,
    Copy { dst: u64, src: u64, bytes: usize },
    Set { dst: u64, byte: u8, bytes: usize },
    Fill(Fill),
}

impl Spot {
    /// What it is, and its post-sync operation. None: the command takes a work of its own.
    fn of(command: InPlace<'_>) -> Option<(Self, PostSync)> {
        match command {
            InPlace::Nop(nop) => Some((Self::Nothing, nop.post)),
            InPlace::Copy(copy) if copy.size <= UNIT_BYTES => {
                let bytes = copy.size as usize;
                Some((Self::Copy { dst: copy.dst, src: copy.src, bytes }, copy.post))
            }
            InPlace::Fill(fill) if fill.size <= UNIT_BYTES => {
                let spot = if fill.header.param == 1 {
                    let bytes = fill.size as usize;
                    Self::Set { dst: fill.dst, byte: fill.pattern[0], bytes }
                } else {
                    Self::Fill(Fill::without_memory(fill)?)
                };
                Some((spot, fill.post))
            }
            _ => None,
        }
    }

    /// Whether it is short, or made of pieces that are.
    fn is_bounded(&self) -> bool {
        match *self {
            Self::Copy { dst, src, bytes } => {
                bytes as u64 <= BRISK_BYTES || dst.abs_diff(src) >= bytes as u64
            }
            _ => true,
        }
    }

    /// Does it.
    ///
    /// # Safety
    /// In a guarded call.
    unsafe fn run(&self) {
        match self {
            Self::Nothing => {}
            // SAFETY: as the caller promises; both are addresses of the client.
            Self::Copy { dst, src, bytes } => unsafe { move_bytes(*dst, *src, *bytes) },
            // SAFETY: as the caller promises.
            Self::Set { dst, byte, bytes } => unsafe { set_bytes(*dst, *byte, *bytes) },
            // SAFETY: as the caller promises.
            Self::Fill(fill) => unsafe { fill.run_all() },
        }
    }
}

impl Stream {
    /// Runs the packet that was fetched last, if it is an ordered command, it is its turn, and it is one
    /// for the spot.
    pub(super) fn run_on_the_spot(
        &mut self,
        worker: &mut Worker,
        queue: &Arc<Queue>,
    ) -> Option<Result<(), Trap>> {
        let header = self.packet.header;
        let shared = &worker.shared;
        let watched = queue.trace.is_wanted() || shared.chaos.is_some();
        if header.flags & flag::ORDERED == 0 || watched {
            return None;
        }
        if self.prefix.stamp != 0 || self.prefix.predicate.is_some() {
            return None;
        }
        let (spot, post) = Spot::of(self.packet.in_place(self.place())?)?;
        let op = match header.flags & flag::POST_SYNC {
            0 => None,
            _ => Some(PostOp::from_raw(header.post_op)?),
        };
        let base = match &self.frame {
            Some(frame) if header.flags & flag::FROM_BASE != 0 => frame.base(),
            _ => 0,
        };
        let value = match op {
            // The time of the end, which is that of the start only if there is nothing to do.
            Some(PostOp::Clock) if !matches!(spot, Spot::Nothing) => return None,
            Some(PostOp::Clock) => shared.clock.ticks(),
            _ => post.value.wrapping_add(base),
        };
        let bounded = spot.is_bounded();
        // What a guest runs is `suits_guest`'s to say, unless it is this plain.
        if worker.is_guest() && (!bounded || self.overlap_follows(&mut worker.guard) == Some(true))
        {
            return None;
        }
        if !self.inner_scope().drained() {
            return None;
        }
        worker.begin_piece(queue.serial);
        let result = worker.guard.run(|| {
            // SAFETY: in a guarded call.
            unsafe { spot.run() };
            if let Some(op) = op {
                // SAFETY: in a guarded call; the packet was checked for alignment.
                unsafe { signal(post.address, op, value) };
            }
        });
        worker.end_piece();
        if let Err(trap) = result {
            return Some(Err(trap));
        }
        self.advance(queue);
        queue.set_brisk(bounded);
        queue.set_wide(false);
        if op.is_some() {
            worker.signalled(post.address);
        }
        worker.command_ended();
        Some(Ok(()))
    }
}

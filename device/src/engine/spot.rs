// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that the streaming worker runs on the spot.
//!
//! A command of a few bytes takes less time than the work that others could join: to make it, count it,
//! lend the stream meanwhile and take it back. So an ordered copy or fill of at most one unit, and an
//! ordered NOP, are run where they are met, in one guarded call with their post-sync operation. Nothing
//! can be seen of it but the time. It is not for commands whose times somebody wants, nor for the
//! adversarial device, which delays each signal.

use std::sync::Arc;

use tally_uapi::packet::{Command, Header, PostOp, PostSync, flag};

use super::{Step, Stream};
use crate::copy::{Fill, UNIT_BYTES, move_bytes};
use crate::guard::Trap;
use crate::queue::Queue;
use crate::sched::Worker;
use crate::work::signal;

/// What is done on the spot.
enum Spot {
    Nothing,
    Copy { dst: u64, src: u64, bytes: usize },
    Fill(Fill),
}

impl Spot {
    /// None: the command takes a work of its own, or is no command.
    fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Nop(_) => Some(Self::Nothing),
            Command::Copy(copy) if copy.size <= UNIT_BYTES => {
                let bytes = copy.size as usize;
                Some(Self::Copy { dst: copy.dst, src: copy.src, bytes })
            }
            Command::Fill(fill) if fill.size <= UNIT_BYTES => {
                Fill::without_memory(fill).map(Self::Fill)
            }
            _ => None,
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
            Self::Fill(fill) => unsafe { fill.run_all() },
        }
    }
}

impl Stream {
    /// Runs an ordered command, whose turn it is, if it is one for the spot.
    pub(super) fn run_on_the_spot(
        &mut self,
        worker: &mut Worker,
        queue: &Arc<Queue>,
        command: &Command,
        header: &Header,
        post: &PostSync,
    ) -> Option<Result<Step, Trap>> {
        let shared = &worker.shared;
        let watched = queue.trace.is_wanted() || shared.chaos.is_some();
        if watched || self.prefix.stamp != 0 || self.prefix.predicate.is_some() {
            return None;
        }
        let spot = Spot::of(command)?;
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
        if op.is_some() {
            worker.signalled(post.address);
        }
        worker.command_ended();
        Some(Ok(Step::Taken))
    }
}

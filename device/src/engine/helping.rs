// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rule for the commands that a stream lets a helping thread run.
//!
//! A helping thread is a host thread that waits (`sched/helper.rs`). Between commands, and between the pieces
//! of copies and fills, it checks whether the awaited value has been reached; it cannot leave a kernel. A kernel
//! may wait for something that the thread does after its wait, so the thread runs a kernel only if its wait
//! would last until that kernel's end anyway. Such a kernel may take long: the workers join it. But a kernel
//! that has never ended yet is for a worker, which is easier to replace.

use tally_uapi::packet::{Command, Header, Packet, Place, PostOp, PostSync, flag};

use super::may_overlap;
use super::start::may_suit_helpers;
use crate::cell::CellWait;
use crate::queue::Stream;
use crate::sched::Worker;

impl Stream {
    /// Whether a helping thread may run a command: no other command could run beside it, and either the thread
    /// waits for its end anyway, or it is not a kernel and can be left soon.
    pub(super) fn suits_helper(&self, worker: &mut Worker, command: &Command) -> bool {
        if !may_suit_helpers(command) {
            return false;
        }
        let next = self.peek(&mut worker.guard);
        if next.as_ref().is_some_and(|next| may_overlap(&next.header)) {
            return false;
        }
        match (command, worker.awaited) {
            (Command::Dispatch(dispatch), Some(awaited)) => {
                if worker.shared.times.get(dispatch.entry).is_none() {
                    return false;
                }
                self.tells(&dispatch.header, &dispatch.post, awaited)
                    || next.is_some_and(|next| self.packet_tells(&next, self.place(), awaited))
                    || self.call_tells(worker, awaited)
            }
            _ => true,
        }
    }

    /// Whether the post-sync operation of a command is one that `awaited` waits for.
    fn tells(&self, header: &Header, post: &PostSync, awaited: CellWait) -> bool {
        self.told(header, post).is_some_and(|(address, value)| awaited.waits_for(address, value))
    }

    /// The cell that a command stores to at its end, and the stored value.
    fn told(&self, header: &Header, post: &PostSync) -> Option<(u64, u64)> {
        let base = match &self.frame {
            Some(frame) if header.flags & flag::FROM_BASE != 0 => frame.base(),
            _ => 0,
        };
        let stores = header.flags & flag::POST_SYNC != 0
            && PostOp::from_raw(header.post_op) == Some(PostOp::Store);
        stores.then(|| (post.address, post.value.wrapping_add(base)))
    }

    /// The store at the end of the packet after the one being taken, which does not end sooner.
    pub(super) fn told_next(&self, worker: &mut Worker) -> Option<(u64, u64)> {
        let next = self.peek(&mut worker.guard)?;
        self.packet_told(&next, self.place())
    }

    fn packet_tells(&self, packet: &Packet, place: Place, awaited: CellWait) -> bool {
        let told = self.packet_told(packet, place);
        told.is_some_and(|(address, value)| awaited.waits_for(address, value))
    }

    /// Like [`Self::told`], for a later packet. None unless it is ordered, and so ends after the one being taken.
    fn packet_told(&self, packet: &Packet, place: Place) -> Option<(u64, u64)> {
        let command = packet.decode(place).ok()?;
        let (header, post) = match &command {
            Command::Nop(nop) => (&nop.header, &nop.post),
            Command::Call(call) => (&call.header, &call.post),
            Command::Dispatch(dispatch) => (&dispatch.header, &dispatch.post),
            Command::Copy(copy) => (&copy.header, &copy.post),
            Command::CopyRegion(copy) => (&copy.header, &copy.post),
            Command::Fill(fill) => (&fill.header, &fill.post),
            _ => return None,
        };
        if header.flags & flag::ORDERED == 0 {
            return None;
        }
        self.told(header, post)
    }

    /// Whether `awaited` waits for the end of the CALL that the stream is in.
    fn call_tells(&self, worker: &mut Worker, awaited: CellWait) -> bool {
        let Some(end) = self.frame.as_ref().and_then(|frame| frame.scope().call_end()) else {
            return false;
        };
        let post = end.post().filter(|post| post.op == PostOp::Store);
        awaited.waits_for(end.counter, end.target)
            || post.is_some_and(|post| awaited.waits_for(post.address, post.value))
            || self
                .ring
                .peek(&mut worker.guard)
                .is_some_and(|next| self.packet_tells(&next, Place::Ring, awaited))
    }
}

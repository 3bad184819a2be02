// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that the streaming thread executes inline.
//!
//! A command of a few bytes takes less time than the overhead of a work that others could join: making it,
//! counting it, exposing the stream meanwhile and taking it back. So the streaming thread runs an ordered copy or
//! fill of at most one unit, or an ordered NOP, at once, in one guarded call with its post-sync operation. The
//! same call also runs the commands that follow, as long as they are published and short. Only the time differs.
//! Commands whose times are wanted are excluded, and so is the adversarial device, which delays each signal.

use std::sync::Arc;

use tally_uapi::cell::waiters_index;
use tally_uapi::packet::{InPlace, Packet, Place, PostOp, flag};

use super::{may_overlap, must_leave};
use crate::cell::CellWait;
use crate::copy::{Inline, UNIT_BYTES};
use crate::guard::{Trap, move_bytes};
use crate::queue::{Frame, PostSync, Queue, Stream};
use crate::ring::Ahead;
use crate::sched::{Shared, Slot, Worker};
use crate::tuning::INLINE_SERIES;
use crate::work::{Runner, signal};

/// A command's task that is executed inline.
#[derive(Clone, Copy)]
enum Inlined {
    Nothing,
    Copy { dst: u64, src: u64, bytes: u64 },
    Fill { dst: u64, pattern: Inline, bytes: u64 },
}

impl Inlined {
    fn bytes(&self) -> u64 {
        match *self {
            Self::Nothing => 0,
            Self::Copy { bytes, .. } | Self::Fill { bytes, .. } => bytes,
        }
    }

    /// Executes it.
    ///
    /// # Safety
    /// In a guarded call.
    #[inline]
    unsafe fn run(&self) {
        match *self {
            Self::Nothing => {}
            // SAFETY: as the caller promises; both are addresses of the client.
            Self::Copy { dst, src, bytes } => unsafe { move_bytes(dst, src, bytes as usize) },
            // SAFETY: as the caller promises.
            Self::Fill { dst, pattern, bytes } => unsafe { pattern.write(dst, bytes as usize) },
        }
    }
}

/// A command that is executed inline.
#[derive(Clone, Copy)]
struct Short {
    task: Inlined,
    post: Option<PostSync>,
}

impl Short {
    /// None: it is not an ordered command, needs a work of its own, or is invalid. `base` is added for FROM_BASE.
    #[inline]
    fn of(packet: &Packet, place: Place, base: u64) -> Option<Self> {
        let flags = packet.header.flags;
        if flags & flag::ORDERED == 0 {
            return None;
        }
        let (task, post) = match packet.in_place(place)? {
            // One with a number is for tools.
            InPlace::Nop(nop) if nop.header.param == 0 => (Inlined::Nothing, &nop.post),
            InPlace::Copy(copy) if copy.size <= UNIT_BYTES => {
                (Inlined::Copy { dst: copy.dst, src: copy.src, bytes: copy.size }, &copy.post)
            }
            InPlace::Fill(fill) if fill.size <= UNIT_BYTES => {
                let pattern = Inline::of(fill)?;
                (Inlined::Fill { dst: fill.dst, pattern, bytes: fill.size }, &fill.post)
            }
            _ => return None,
        };
        let base = if flags & flag::FROM_BASE == 0 { 0 } else { base };
        let post = match flags & flag::POST_SYNC {
            0 => None,
            _ => Some(PostSync {
                op: PostOp::from_raw(packet.header.post_op)?,
                address: post.address,
                value: post.value.wrapping_add(base),
            }),
        };
        Some(Self { task, post })
    }

    /// Executes it, with its signal.
    ///
    /// # Safety
    /// In a guarded call.
    #[inline]
    unsafe fn run(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.task.run() };
        if let Some(post) = self.post {
            // SAFETY: as the caller promises; the packet was checked for alignment.
            unsafe { signal(post.address, post.op, post.value) };
        }
    }
}

/// Commands that are executed inline, one after the other. Each signals the cell of the first, or none.
#[derive(Clone, Copy)]
struct Series {
    /// The next command to run.
    short: Short,
    /// The cell that they signal.
    address: Option<u64>,
    /// Bytes of all commands so far.
    bytes: u64,
    /// The most commands in this series.
    most: u64,
    ahead: Ahead,
    place: Place,
    base: u64,
    by_helper: bool,
}

impl Series {
    /// Runs them until there are no more, or until `leaves` says after one's signal that something else needs
    /// attention. Counts each in `done` once it has signalled.
    ///
    /// # Safety
    /// In a guarded call; `done` may be written.
    #[inline]
    unsafe fn run(mut self, done: *mut u64, leaves: impl Fn(Option<PostSync>) -> bool) {
        let mut packet = Packet::default();
        for n in 1..=self.most {
            // SAFETY: in a guarded call.
            unsafe { self.short.run() };
            // SAFETY: as the caller promises. Volatile, since the call may end in the next command.
            unsafe { done.write_volatile(n) };
            // SAFETY: in a guarded call.
            if n == self.most || leaves(self.short.post) || !unsafe { self.goes_on(&mut packet) } {
                break;
            }
        }
    }

    /// Whether the next packet is one more of them; `packet` is room for it.
    ///
    /// # Safety
    /// In a guarded call.
    #[inline]
    unsafe fn goes_on(&mut self, packet: &mut Packet) -> bool {
        if self.bytes >= UNIT_BYTES {
            return false;
        }
        // SAFETY: in a guarded call; rings and recordings were checked for alignment.
        let (taken, after) = unsafe { (self.ahead.take(packet), self.ahead.header()) };
        // A worker could run a command beside the next one, so that one is not for a helping thread.
        if !taken || self.by_helper && after.as_ref().is_some_and(may_overlap) {
            return false;
        }
        let Some(next) = Short::of(packet, self.place, self.base) else { return false };
        self.bytes += next.task.bytes();
        if let Some(post) = next.post {
            // A clock write must be the first command of a series.
            if post.op == PostOp::Clock || self.address != Some(post.address) {
                return false;
            }
        }
        self.short = next;
        self.bytes <= UNIT_BYTES
    }
}

/// Whether something else needs attention before the command that follows one with this signal.
fn leaves(
    shared: &Shared,
    queue: &Queue,
    slot: &Slot,
    awaited: Option<CellWait>,
    post: Option<PostSync>,
) -> bool {
    post.is_some_and(|post| {
        shared.sem.has_queues(waiters_index(post.address))
            || awaited.is_some_and(|awaited| may_meet(&post, &awaited))
    }) || must_leave(shared, queue, slot).is_some()
}

/// Whether a signal may be the awaited one.
fn may_meet(post: &PostSync, awaited: &CellWait) -> bool {
    post.address == awaited.address
        && (post.op != PostOp::Store || awaited.compare.met(post.value, awaited.value))
}

impl Stream {
    /// Runs the packet that was fetched last, if it is an ordered command whose turn it is and that is executed
    /// inline; then the packets after it that are known to be published, as long as they are short.
    pub(super) fn run_inline(
        &mut self,
        worker: &mut Worker,
        queue: &Arc<Queue>,
    ) -> Option<Result<(), Trap>> {
        if queue.trace.is_wanted() || worker.shared.chaos.is_some() {
            return None;
        }
        let series = self.series(worker)?;
        // In all other cases `suits_helper` decides what a helping thread runs.
        if series.by_helper && self.overlap_follows(&mut worker.guard) == Some(true) {
            return None;
        }
        if !self.inner_scope().drained() {
            return None;
        }
        let mut done = 0;
        worker.begin_piece(queue.serial, true);
        let Worker { shared, guard, slot, awaited, .. } = &mut *worker;
        let leaves = |post| leaves(shared, queue, slot, *awaited, post);
        // SAFETY: in a guarded call; the count is ours.
        let result = guard.run(|| unsafe { series.run(&raw mut done, leaves) });
        worker.end_piece();
        if done != 0 {
            self.advance_by(queue, done);
            queue.set_brisk(true);
            queue.set_wide(false);
            if let Some(address) = series.address {
                worker.signalled(address);
            }
            worker.command_ended();
        }
        Some(result)
    }

    /// The packet that was fetched last and those after it, if it is executed inline.
    fn series(&self, worker: &Worker) -> Option<Series> {
        if self.prefix.stamp != 0 || self.prefix.predicate.is_some() {
            return None;
        }
        let (place, base) = (self.place(), self.frame.as_ref().map_or(0, Frame::base));
        let mut short = Short::of(&self.packet, place, base)?;
        if let Some(post) = &mut short.post
            && post.op == PostOp::Clock
        {
            // The clock is to be read at the end, which is the time of the start only for a command without work.
            if !matches!(short.task, Inlined::Nothing) {
                return None;
            }
            post.value = worker.shared.clock.ticks();
        }
        Some(Series {
            address: short.post.map(|post| post.address),
            bytes: short.task.bytes(),
            most: if self.frame.is_some() {
                INLINE_SERIES
            } else {
                self.ring.before_telling().max(1)
            },
            ahead: self.ahead(),
            place,
            base,
            by_helper: worker.is_helper(),
            short,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::Ordering;

    use tally_uapi::cell::{CellKind, Compare};
    use tally_uapi::packet::{Header, PostSync as PacketPost, opcode};

    use super::*;
    use crate::guard::{Guard, Seat};
    use crate::queue::testing::queue as new_queue;
    use crate::sched::testing;

    /// The cell that a series signals, and the bytes that its copies move.
    struct Memory {
        cell: u64,
        bytes: Vec<u8>,
    }

    impl Memory {
        fn new() -> Self {
            Self { cell: 0, bytes: vec![0; 2 * UNIT_BYTES as usize] }
        }

        /// A packet that copies `size` bytes, or none, and stores `value`.
        fn packet(&mut self, size: u64, value: u64) -> Packet {
            let header = Header {
                opcode: if size == 0 { opcode::NOP } else { opcode::COPY },
                flags: flag::ORDERED | flag::POST_SYNC,
                post_op: PostOp::Store as u8,
                ..Header::default()
            };
            let at = (&raw mut self.bytes[0]).expose_provenance() as u64;
            let body =
                [at + (64 << 10), at, size, 0, 0].map(|word| if size == 0 { 0 } else { word });
            let post = PacketPost { address: self.cell(), value };
            Packet { header, body, post }
        }

        fn cell(&mut self) -> u64 {
            (&raw mut self.cell).expose_provenance() as u64
        }

        /// Runs packets, all of which are published, as one series, and returns the number that ran.
        fn run(&mut self, packets: &[Packet], leaves: impl Fn(Option<PostSync>) -> bool) -> u64 {
            let base = packets.as_ptr().expose_provenance() as u64;
            let count = packets.len() as u64;
            let short = Short::of(&packets[0], Place::Ring, 0).unwrap();
            let series = Series {
                address: Some(self.cell()),
                bytes: short.task.bytes(),
                most: INLINE_SERIES,
                ahead: Ahead { base, mask: 63, next: 1, end: count },
                place: Place::Ring,
                base: 0,
                by_helper: false,
                short,
            };
            let mut done = 0;
            let mut guard = Guard::attach(Seat::new().unwrap()).unwrap();
            // SAFETY: in a guarded call; the count is ours.
            guard.run(|| unsafe { series.run(&raw mut done, &leaves) }).unwrap();
            done
        }
    }

    #[test]
    fn a_series_ends_with_its_number_and_its_bytes() {
        let mut memory = Memory::new();
        let nops: Vec<_> = (1..=40).map(|value| memory.packet(0, value)).collect();
        assert_eq!((memory.run(&nops, |_| false), memory.cell), (INLINE_SERIES, INLINE_SERIES));
        // The series ends at the limit of bytes, and a command that exceeds it runs alone.
        for (size, fit) in [(UNIT_BYTES / 4, 4), (UNIT_BYTES / 2 + 1, 1), (UNIT_BYTES, 1)] {
            let copies: Vec<_> = (1..=8).map(|value| memory.packet(size, value)).collect();
            assert_eq!(
                (memory.run(&copies, |_| false), memory.cell),
                (fit, fit),
                "of {size} bytes"
            );
        }
    }

    #[test]
    fn a_series_ends_where_others_have_to_be_seen_to() {
        let mut memory = Memory::new();
        let packets: Vec<_> = (1..=8).map(|value| memory.packet(0, value)).collect();
        let done = memory.run(&packets, |post| post.is_some_and(|post| post.value == 3));
        assert_eq!((done, memory.cell), (3, 3));
    }

    #[test]
    fn whom_a_series_leaves_for() {
        let (shared, queue) = testing::device();
        let mut guard = Guard::attach(Seat::new().unwrap()).unwrap();
        let seat = Seat::new().unwrap();
        let slot = Slot::new(0, seat.record());
        let mut memory = Memory::new();
        let address = memory.cell();
        let post = Some(PostSync { op: PostOp::Store, address, value: 5 });
        let awaited = |value| {
            let (kind, compare) = (CellKind::Counter, Compare::GreaterEqual);
            Some(CellWait { address, value, kind, compare })
        };
        assert!(!leaves(&shared, &queue, &slot, None, post), "there is no one to leave for");
        assert!(
            !leaves(&shared, &queue, &slot, awaited(6), post),
            "the thread waits for the next one"
        );
        assert!(leaves(&shared, &queue, &slot, awaited(5), post), "the thread waits for this one");
        // The watchdog.
        slot.preempt.store(true, Ordering::Relaxed);
        assert!(leaves(&shared, &queue, &slot, None, None));
        slot.preempt.store(false, Ordering::Relaxed);
        // A queue that waits for the cell.
        let other = new_queue(&queue.vm);
        assert!(shared.sem.park(&mut guard, &other, awaited(9).unwrap()));
        assert!(leaves(&shared, &queue, &slot, None, post));
        assert!(!leaves(&shared, &queue, &slot, None, None), "it signals nothing");
        assert!(shared.sem.remove(&other, address));
        assert!(!leaves(&shared, &queue, &slot, None, post));
        // A thread that destroys the queue.
        queue.stop();
        assert!(leaves(&shared, &queue, &slot, None, None));
    }
}

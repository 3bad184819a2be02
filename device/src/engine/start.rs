// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes a packet: waits, order, prefixes, and the start of its work.

use crate::sync::Mutex;
use std::sync::Arc;

use tally_uapi::cell::{CellKind, Compare};
use tally_uapi::fault::FaultKind;
use tally_uapi::packet::{Call, Command, Header, PostOp, PostSync as PacketPost, Wait, flag};

use super::Step;
use crate::cell::CellWait;
use crate::chaos::{About, MOST_HELD};
use crate::copy::{Copy, CopyRegion, Fill, UNIT_BYTES};
use crate::eu::Launch;
use crate::fields::{bad_field, packet_address};
use crate::guard::{Guard, Trap};
use crate::queue::{CallEnd, Completion, Frame, PostSync, Prefix, Queue, Scope, Stream};
use crate::sched::Worker;
use crate::tuning::{FEW_BLOCKS, FEW_FILL_BLOCKS, QUICK_TICKS};
use crate::work::{Runner, Share, Task, Work};

impl Stream {
    /// Takes a packet as far as it can proceed.
    pub(super) fn take(
        &mut self,
        worker: &mut Worker,
        queue: &Arc<Queue>,
        command: &Command,
    ) -> Result<Step, Trap> {
        let (header, post) = match command {
            Command::Wait(wait) => return self.wait(worker, queue, wait),
            Command::Stamp(stamp) => {
                self.prefix.stamp = stamp.slot;
                self.advance(queue);
                return Ok(Step::Taken);
            }
            Command::Predicate(predicate) => {
                self.prefix.predicate = Some((predicate.header.param, predicate.count));
                self.advance(queue);
                return Ok(Step::Taken);
            }
            Command::Link(link) => {
                let packets = link.header.param;
                if packet_address(link.ring, u64::from(packets)).is_none() {
                    return Err(bad_field(link.ring));
                }
                self.ring.link(link.ring, packets);
                self.advance(queue);
                return Ok(Step::Taken);
            }
            Command::Nop(nop) => (&nop.header, &nop.post),
            Command::Call(call) => (&call.header, &call.post),
            Command::Dispatch(dispatch) => (&dispatch.header, &dispatch.post),
            Command::Copy(copy) => (&copy.header, &copy.post),
            Command::CopyRegion(copy) => (&copy.header, &copy.post),
            Command::Fill(fill) => (&fill.header, &fill.post),
        };
        if worker.is_helper() && !self.suits_helper(worker, command) {
            queue.set_brisk(false);
            return Ok(Step::Refused);
        }
        let ordered = header.flags & flag::ORDERED != 0;
        if ordered && !self.inner_scope().drained() {
            return Ok(Step::Drain);
        }
        if let Command::Call(call) = command {
            let turn = CellWait::counter(call.counter, call.base);
            if !turn.met(&mut worker.guard, &worker.shared.sem)? {
                return Ok(Step::Wait(turn));
            }
        }
        if let (Command::Nop(nop), Some(told)) = (command, worker.shared.numbers)
            && nop.header.param != 0
        {
            told(nop.header.param, self.frame.as_ref().map_or(0, Frame::base));
        }
        if let Some(chaos) = &worker.shared.chaos {
            chaos.pause(About::Start, queue.id, self.ring.next());
        }
        let prefix = std::mem::take(&mut self.prefix);
        let wanted = prefix.predicate_holds(&mut worker.guard)?;
        let completion = self.completion(queue, command, header, post, prefix);
        if let Command::Call(call) = command {
            return self.call(worker, call, completion, wanted);
        }
        queue.set_brisk(may_suit_helpers(command));
        let task = if wanted { task(&mut worker.guard, command)? } else { None };
        match task {
            Some((task, units)) if units != 0 => {
                Ok(self.start(worker, queue, task, completion, units, ordered))
            }
            _ => {
                completion.starts(worker);
                completion.scope.start();
                self.advance(queue);
                completion.complete(worker);
                Ok(Step::Taken)
            }
        }
    }

    fn completion(
        &self,
        queue: &Arc<Queue>,
        command: &Command,
        header: &Header,
        post: &PacketPost,
        prefix: Prefix,
    ) -> Completion {
        let entry = match command {
            Command::Dispatch(dispatch) => dispatch.entry,
            _ => 0,
        };
        let base = match &self.frame {
            Some(frame) if header.flags & flag::FROM_BASE != 0 => frame.base(),
            _ => 0,
        };
        let signals = header.flags & flag::POST_SYNC != 0;
        let post = PostOp::from_raw(header.post_op).filter(|_| signals).map(|op| PostSync {
            op,
            address: post.address,
            value: post.value.wrapping_add(base),
        });
        Completion {
            queue: Arc::clone(queue),
            scope: Arc::clone(self.inner_scope()),
            post,
            stamp: prefix.stamp,
            packet: self.ring.next(),
            opcode: header.opcode,
            entry,
            start: Default::default(),
        }
    }

    /// WAIT: taken once every entry is met.
    fn wait(&mut self, worker: &mut Worker, queue: &Queue, wait: &Wait) -> Result<Step, Trap> {
        for i in 0..wait.header.param as usize {
            let entry = wait.entries[i];
            let cell = if wait.operands & (1 << i) != 0 {
                match &self.frame {
                    Some(frame) => frame.operand(entry.value)?,
                    None => return Err(bad_field(entry.value)),
                }
            } else {
                let kind = CellKind::from_raw(wait.kinds[i]);
                let compare = Compare::from_raw(wait.compares[i]);
                kind.zip(compare).map(|(kind, compare)| CellWait {
                    address: entry.address,
                    value: entry.value,
                    kind,
                    compare,
                })
            };
            if let Some(cell) = cell
                && !cell.met(&mut worker.guard, &worker.shared.sem)?
            {
                return Ok(Step::Wait(cell));
            }
        }
        self.advance(queue);
        Ok(Step::Taken)
    }

    /// CALL, when it is its turn: the next packets are the recording's.
    fn call(
        &mut self,
        worker: &mut Worker,
        call: &Call,
        completion: Completion,
        wanted: bool,
    ) -> Result<Step, Trap> {
        completion.starts(worker);
        completion.scope.start();
        let end = CallEnd {
            counter: call.counter,
            // decode() has checked the sum.
            target: call.base + u64::from(call.header.param),
            command: Mutex::new(Some(completion)),
        };
        let packets = if wanted { call.packets } else { 0 };
        let scope = Arc::new(Scope::call(end));
        self.frame = Some(Frame::new(&mut worker.guard, call, packets, scope)?);
        Ok(Step::Taken)
    }

    /// Starts work that has at least one unit.
    fn start(
        &mut self,
        worker: &mut Worker,
        queue: &Arc<Queue>,
        task: Task,
        completion: Completion,
        units: u64,
        ordered: bool,
    ) -> Step {
        let follows = self.overlap_follows(&mut worker.guard);
        let overlaps = follows == Some(true);
        if follows != Some(false) && !ordered && self.holds(worker, queue) {
            completion.starts(worker);
            let work = Work::new(worker, task, completion, units, Share::Later);
            worker.shared.sched.hold(Arc::new(work));
            self.held += 1;
            self.advance(queue);
            return Step::Taken;
        }
        let helped = worker.shared.sched.has_free_worker();
        let cooperative = matches!(&task, Task::Dispatch(launch) if launch.is_cooperative());
        let small = !cooperative && is_small(worker, &task, units, self.work_follows());
        // A large work is shared even when all workers are busy, since they may help
        // later; a small one only if another worker takes it over now.
        let left = cooperative || overlaps && helped;
        let shared = !small || left;
        queue.set_wide(shared);
        if !shared {
            let work = Work::new(worker, task, completion, units, Share::Alone);
            self.advance(queue);
            return Step::Run(work);
        }
        let told_next = self.told_next(worker);
        let work = Work::new(worker, task, completion, units, Share::Others { told_next });
        let work = Arc::new(work);
        self.advance(queue);
        if !worker.shared.sched.share(&worker.shared, &work, !left) {
            let trap = Trap::new(FaultKind::OutOfResources, 0);
            worker.fault(queue, work.completion.packet, trap);
            return Step::Join(work);
        }
        // Other workers run it while the stream continues. Without a free worker that
        // would only pile up works.
        if left { Step::Taken } else { Step::Join(work) }
    }
}

impl Stream {
    /// Whether the adversarial device holds a command back that later ones may
    /// overtake. It counts as started: commands start in their order.
    fn holds(&self, worker: &Worker, queue: &Queue) -> bool {
        let Some(chaos) = &worker.shared.chaos else { return false };
        let place = self.ring.next() ^ (self.held as u64) << 32;
        self.held < MOST_HELD && !chaos.one_in(4, About::Hold, queue.id, place)
    }
}

/// Whether a command may suit helping threads: a kernel, if the thread waits for its end, or a command that
/// takes a few microseconds or whose units do.
pub(super) fn may_suit_helpers(command: &Command) -> bool {
    match command {
        Command::Dispatch(dispatch) => dispatch.header.flags & flag::COOPERATIVE == 0,
        Command::Copy(copy) => copy.size <= UNIT_BYTES || copy.dst.abs_diff(copy.src) >= copy.size,
        Command::CopyRegion(_) => false,
        _ => true,
    }
}

/// Whether the worker that starts a work should run it alone. `more`: other commands follow, so a worker that
/// wakes for this one can serve them.
fn is_small(worker: &Worker, task: &Task, units: u64, more: bool) -> bool {
    match task {
        Task::Dispatch(launch) => {
            let quick = |ticks: u64| ticks.saturating_mul(units) <= QUICK_TICKS;
            let known = worker.shared.times.get(launch.entry());
            units == 1 || known.is_some_and(quick)
        }
        Task::Fill(_) if !more => units <= FEW_FILL_BLOCKS,
        _ => units <= FEW_BLOCKS,
    }
}

/// The work of a command, and its units.
fn task(guard: &mut Guard, command: &Command) -> Result<Option<(Task, u64)>, Trap> {
    Ok(Some(match command {
        Command::Dispatch(dispatch) => {
            let (launch, units) = Launch::new(guard, dispatch)?;
            (Task::Dispatch(launch), units)
        }
        Command::Copy(copy) => {
            let (copy, units) = Copy::new(copy);
            (Task::Copy(copy), units)
        }
        Command::CopyRegion(copy) => {
            let (copy, units) = CopyRegion::new(guard, copy)?;
            (Task::CopyRegion(copy), units)
        }
        Command::Fill(fill) => {
            let (fill, units) = Fill::new(guard, fill)?;
            (Task::Fill(fill), units)
        }
        _ => return Ok(None),
    }))
}

impl Prefix {
    /// Whether the command is executed: its predicate holds, or it has none.
    fn predicate_holds(&self, guard: &mut Guard) -> Result<bool, Trap> {
        match self.predicate {
            Some((index, count)) => Ok(index < guard.read::<u32>(count)?),
            None => Ok(true),
        }
    }
}

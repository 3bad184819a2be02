// SPDX-License-Identifier: MIT OR Apache-2.0
//! Engines: a worker fetches the packets of a queue, checks waits and order, and
//! starts work, until the queue has to leave its engine.

use crate::sync::Instant;
use crate::sync::Ordering;
use std::sync::Arc;
use std::time::Duration;

use tally_uapi::cell::CellKind;
use tally_uapi::fault::FaultKind;
use tally_uapi::packet::{Command, Header, Packet, Place, flag, opcode};
use tally_uapi::trace::TraceRecord;

use crate::cell::CellWait;
use crate::chaos::About;
use crate::gate;
use crate::guard::{Guard, Trap};
use crate::queue::{Frame, ParkedWait, Prefix, Queue, Scope, Stream};
use crate::ring::Ahead;
use crate::sched::{Leave, Shared, Slot, Worker};
use crate::scope::Finished;
use crate::tuning::EMPTY_SPIN;
use crate::work::{Runner, Work, complete_call};

mod call;
mod helping;
mod inline;
mod start;

/// The time for which the adversarial device waits for a command that overtakes others.
const HELD_SPIN: Duration = Duration::from_micros(100);

/// The outcome of a packet.
#[expect(clippy::large_enum_variant, reason = "a box for it is what is to be saved")]
enum Step {
    /// It has been taken.
    Taken,
    /// There is none.
    Empty,
    /// It has to wait for a cell.
    Wait(CellWait),
    /// It has to wait for the commands of its scope.
    Drain,
    /// It has started; this worker runs its units. Not on the heap: most kernels that a host waits for
    /// end here, and allocating took longer than some of them.
    Run(Work),
    /// It has started; this worker joins it, and runs units that no other thread has claimed.
    Join(Arc<Work>),
    /// It is not for a helping thread.
    Refused,
}

impl Stream {
    /// Sets `asleep` if there is nothing to do: no packet in the ring, no CALL in
    /// progress. Returns whether it is set.
    fn rests(&self, guard: &mut Guard) -> Result<bool, Trap> {
        Ok(self.frame.is_none() && !self.pending && self.ring.may_sleep(guard)?)
    }

    /// The scope of the next command.
    fn inner_scope(&self) -> &Arc<Scope> {
        self.frame.as_ref().map_or(&self.scope, Frame::scope)
    }

    fn place(&self) -> Place {
        if self.frame.is_some() { Place::Recording } else { Place::Ring }
    }

    /// Takes the next packet as far as it can proceed.
    fn step(&mut self, worker: &mut Worker, queue: &Arc<Queue>) -> Result<Step, Trap> {
        if !self.pending && !self.fetch(worker)? {
            return self.end_of_packets(worker, queue);
        }
        self.pending = false;
        if let Some(taken) = self.run_inline(worker, queue) {
            return taken.map(|()| Step::Taken);
        }
        self.step_at_length(worker, queue)
    }

    /// Does [`Self::step`] for a packet that is not executed inline. It is a function of its own, since its
    /// stack frame is most of what a short command would touch.
    #[inline(never)]
    fn step_at_length(&mut self, worker: &mut Worker, queue: &Arc<Queue>) -> Result<Step, Trap> {
        let packet = &self.packet;
        let command = packet.decode(self.place()).map_err(|kind| decode_fault(kind, packet))?;
        if matches!(command, Command::Dispatch(_)) && !queue.compute {
            return Err(Trap::new(FaultKind::BadOpcode, 0));
        }
        // Returned unchanged, and inspected by reference: a work is large, and each `?` would copy it.
        let step = self.take(worker, queue, &command);
        self.pending = matches!(step, Ok(Step::Wait(_) | Step::Drain | Step::Refused));
        if self.parked.is_some() {
            self.trace_wait(worker, queue, &step)?;
        }
        step
    }

    /// Records the wait that had parked the queue, if it is over.
    #[cold]
    fn trace_wait(
        &mut self,
        worker: &mut Worker,
        queue: &Queue,
        step: &Result<Step, Trap>,
    ) -> Result<(), Trap> {
        let goes_on = |wait: CellWait| matches!(step, Ok(Step::Wait(now)) if *now == wait);
        let Some(parked) = self.parked.take_if(|parked| !goes_on(parked.wait)) else {
            return Ok(());
        };
        let record = TraceRecord {
            start: parked.since,
            end: worker.shared.clock.ticks(),
            cell: parked.wait.address,
            value: parked.wait.value,
            opcode: opcode::WAIT,
            packet: parked.packet as u32,
            ..Default::default()
        };
        queue.trace.write(&mut worker.guard, record)
    }

    /// Copies the next packet. False: there is none.
    fn fetch(&mut self, worker: &mut Worker) -> Result<bool, Trap> {
        match &mut self.frame {
            Some(frame) => frame.fetch(&mut worker.guard, &mut self.packet),
            None => self.ring.fetch(&mut worker.guard, &mut self.packet),
        }
    }

    /// Advances past the packet that was fetched and has been taken.
    fn advance(&mut self, queue: &Queue) {
        self.advance_by(queue, 1);
    }

    /// Advances past `packets` packets that have been taken, beginning with the one that was fetched.
    fn advance_by(&mut self, queue: &Queue, packets: u64) {
        match &mut self.frame {
            Some(frame) => frame.advance(packets),
            None => {
                self.ring.advance(packets);
                queue.head.store(self.ring.next(), Ordering::Relaxed);
            }
        }
    }

    /// Handles the end of the ring, or of the recording.
    fn end_of_packets(&mut self, worker: &mut Worker, queue: &Queue) -> Result<Step, Trap> {
        let Some(frame) = self.frame.take() else { return Ok(Step::Empty) };
        self.prefix = Prefix::default();
        self.advance(queue);
        if frame.scope().finish() == Finished::Call
            && let Some(end) = frame.scope().call_end()
        {
            complete_call(worker, end);
        }
        Ok(Step::Taken)
    }

    /// The packets after the one being taken that are known to be published.
    fn ahead(&self) -> Ahead {
        self.frame.as_ref().map_or_else(|| self.ring.ahead(), Frame::ahead)
    }

    /// The command or wait after the packet being taken, if it is known to be published.
    fn peek(&self, guard: &mut Guard) -> Option<Packet> {
        self.ahead().peek(guard)
    }

    /// Whether the packet being taken is followed by a command that may run
    /// beside it. None: no packet after it is known to be published.
    fn overlap_follows(&self, guard: &mut Guard) -> Option<bool> {
        let follower = match &self.frame {
            Some(frame) => frame.peek(guard).map(|packet| packet.header),
            None => self.ring.follower(),
        };
        follower.as_ref().map(may_overlap)
    }

    /// Whether a command of the ring that does more than signal is known to follow the one being taken.
    fn work_follows(&self) -> bool {
        self.ring.follower().is_some_and(|next| {
            matches!(
                next.opcode,
                opcode::COPY | opcode::COPY_REGION | opcode::FILL | opcode::DISPATCH
            )
        })
    }
}

/// Whether a command or wait may run beside the command before it.
fn may_overlap(header: &Header) -> bool {
    header.opcode != opcode::WAIT && header.flags & flag::ORDERED == 0
}

fn decode_fault(kind: FaultKind, packet: &Packet) -> Trap {
    let address = if kind == FaultKind::BadOpcode { u64::from(packet.header.opcode) } else { 0 };
    Trap::new(kind, address)
}

/// The adversarial device's part of a stream.
impl Stream {
    /// Whether the queue leaves its engine here, once a packet.
    fn must_yield(&mut self, worker: &Worker, queue: &Queue) -> bool {
        let Some(chaos) = &worker.shared.chaos else { return false };
        let packet = self.ring.next();
        let leaves = self.yielded != Some(packet)
            && self.frame.is_none()
            && chaos.one_in(4, About::Yield, queue.id, packet);
        if leaves {
            self.yielded = Some(packet);
        }
        leaves
    }

    /// Starts the held commands. A queue never rests while it holds commands that could start.
    fn let_go(&mut self, worker: &mut Worker, queue: &Arc<Queue>) {
        if self.held != 0 {
            self.let_all_go(worker, queue);
        }
    }

    /// Starts the held commands in random order.
    #[cold]
    fn let_all_go(&mut self, worker: &mut Worker, queue: &Arc<Queue>) {
        let Some(chaos) = &worker.shared.chaos else { return };
        self.held = 0;
        let mut held = worker.shared.sched.take_held(queue);
        chaos.shuffle(&mut held, queue.id, self.ring.next());
        for work in held {
            if !worker.shared.sched.share(&worker.shared, &work, false) {
                let trap = Trap::new(FaultKind::OutOfResources, 0);
                worker.fault(queue, work.completion.packet, trap);
                work.join(worker, |_| false);
            }
        }
    }
}

/// Streams a queue that has its engine, until it has to leave. The caller may have the stream already.
pub(crate) fn stream(worker: &mut Worker, queue: &Arc<Queue>, taken: Option<Box<Stream>>) {
    gate::pass(|| queue.must_stop() || worker.shared.sched.shutting_down());
    let Some(mut stream) = taken.or_else(|| queue.take_stream()) else {
        // It was destroyed after it was put into a run queue.
        worker.shared.sched.leave(&worker.shared, queue, Leave::Stop);
        return;
    };
    queue.time_starts(worker.shared.clock.ticks());
    queue.set_last_worker(worker.slot.index);
    worker.slot.set_stream(Some(Arc::clone(queue)));
    wakes(worker, queue, &stream);
    while let Some(kept) = advance(worker, queue, stream) {
        stream = kept;
    }
    worker.slot.set_stream(None);
    queue.time_stops(worker.shared.clock.ticks());
}

/// Notes in the control page that the device looks at the queue from here on.
fn wakes(worker: &mut Worker, queue: &Arc<Queue>, stream: &Stream) {
    let trace = stream.ring.wake(&mut worker.guard);
    if let Err(trap) = trace.and_then(|trace| queue.trace.set(trace)) {
        worker.fault(queue, stream.ring.next(), trap);
    }
}

/// The reason why the queue has to leave its engine before its next command, if it has to.
fn must_leave(shared: &Shared, queue: &Queue, slot: &Slot) -> Option<Leave> {
    if queue.must_stop() || shared.sched.shutting_down() {
        return Some(Leave::Stop);
    }
    (slot.preempted() || shared.sched.is_outranked(queue)).then_some(Leave::Yield)
}

/// Takes packets until the stream changes hands. Returns the stream if this
/// worker still has it.
fn advance(
    worker: &mut Worker,
    queue: &Arc<Queue>,
    mut stream: Box<Stream>,
) -> Option<Box<Stream>> {
    let why = loop {
        if let Some(why) = must_leave(&worker.shared, queue, &worker.slot) {
            break why;
        }
        if stream.must_yield(worker, queue) {
            break Leave::Yield;
        }
        if worker.awaited_is_met() {
            break match stream.rests(&mut worker.guard) {
                Ok(true) => Leave::Idle,
                _ => Leave::Yield,
            };
        }
        match stream.step(worker, queue) {
            Ok(Step::Taken) => {}
            Ok(Step::Wait(_) | Step::Drain) if stream.held != 0 => {
                stream.let_go(worker, queue);
            }
            Ok(Step::Empty) if stream.held != 0 => {
                // A packet may still arrive that could overtake the held commands.
                let until = Instant::now() + HELD_SPIN;
                match stream.ring.lookout().linger(&mut worker.guard, || Instant::now() >= until) {
                    Ok(true) => {}
                    Ok(false) => stream.let_go(worker, queue),
                    Err(trap) => worker.fault(queue, stream.ring.next(), trap),
                }
            }
            Ok(Step::Run(ref work)) => return run(worker, queue, stream, work),
            Ok(Step::Join(work)) => {
                let stream = run(worker, queue, stream, &work);
                if work.exhausted() {
                    worker.shared.sched.unshare(&work);
                }
                return stream;
            }
            Ok(Step::Wait(wait)) => break Leave::Park(wait),
            Ok(Step::Drain) if stream.inner_scope().drained() => {}
            Ok(Step::Drain) => break Leave::Drain,
            Ok(Step::Refused) => break Leave::Yield,
            Ok(Step::Empty) => {
                let found;
                (stream, found) = lingers(worker, queue, stream)?;
                if found {
                    // Trying to rest would show `asleep` to the producer, which would then send a KICK.
                    continue;
                }
                match stream.rests(&mut worker.guard) {
                    Ok(true) => break Leave::Idle,
                    Ok(false) => {}
                    Err(trap) => worker.fault(queue, stream.ring.next(), trap),
                }
            }
            Err(trap) => worker.fault(queue, stream.ring.next(), trap),
        }
    };
    stream.let_go(worker, queue);
    leave(worker, queue, stream, why)
}

/// Runs a work's units, or helps with them. Meanwhile the watchdog may take the
/// stream.
fn run(
    worker: &mut Worker,
    queue: &Arc<Queue>,
    stream: Box<Stream>,
    work: &Work,
) -> Option<Box<Stream>> {
    queue.expose_stream(stream, worker.slot.index);
    if work.is_shared() {
        work.join(worker, Worker::should_leave);
    } else {
        work.join(worker, |_| false);
    }
    queue.reclaim_stream(worker.slot.index)
}

/// Polls an empty ring a little longer, and returns whether a packet arrived. None if a helping thread has
/// taken the stream meanwhile. A helping thread itself does not linger: it has other things to do.
fn lingers(worker: &mut Worker, queue: &Queue, stream: Box<Stream>) -> Option<(Box<Stream>, bool)> {
    if worker.is_helper() {
        return Some((stream, false));
    }
    let Worker { shared, guard, slot, .. } = worker;
    let until = Instant::now() + EMPTY_SPIN;
    let sched = &shared.sched;
    let give_up = || queue.must_stop() || sched.streams_wait() || Instant::now() >= until;
    let lookout = stream.ring.lookout();
    // Counts as work, so that the control page stays mapped until the last look, even if a helping thread
    // has taken the stream meanwhile and the queue is destroyed.
    queue.work_starts();
    queue.linger_stream(stream, slot.index);
    sched.lingering().fetch_add(1, Ordering::Relaxed);
    // A trap is ignored here: the next thread that looks gets it again.
    let found = lookout.linger(guard, give_up).unwrap_or(false);
    sched.lingering().fetch_sub(1, Ordering::Relaxed);
    if queue.work_ends() {
        sched.tell_stoppers();
    }
    queue.reclaim_stream(slot.index).map(|stream| (stream, found))
}

/// Puts the stream to rest and gives up the engine. Returns the stream if there
/// is a reason to continue.
fn leave(
    worker: &mut Worker,
    queue: &Arc<Queue>,
    mut stream: Box<Stream>,
    why: Leave,
) -> Option<Box<Stream>> {
    let scope = Arc::clone(stream.inner_scope());
    if !matches!(why, Leave::Idle | Leave::Stop) {
        stream.ring.tell(&mut worker.guard);
    }
    if let Leave::Park(wait) = why {
        queue.set_parked(wait);
        if queue.trace.is_wanted() && stream.parked.is_none() {
            let (since, packet) = (worker.shared.clock.ticks(), stream.ring.next());
            stream.parked = Some(ParkedWait { wait, since, packet });
        }
    }
    queue.put_stream(stream);
    let Worker { shared, guard, .. } = &mut *worker;
    if !shared.sched.leave(shared, queue, why) {
        let stream = queue.take_stream()?;
        wakes(worker, queue, &stream);
        return Some(stream);
    }
    match why {
        Leave::Park(wait) => {
            let parked = shared.sem.park(guard, queue, wait);
            if wait.kind == CellKind::Foreign {
                shared.sched.tell_watchdog();
            }
            // A thread that stops the queue may have looked for it just before.
            if !parked || queue.must_stop() && shared.sem.remove(queue, wait.address) {
                worker.resume(queue);
            }
        }
        Leave::Drain if !scope.wait() => worker.resume(queue),
        _ => {}
    }
    None
}

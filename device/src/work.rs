// SPDX-License-Identifier: MIT OR Apache-2.0
//! The work of a command, cut into units that workers claim, and the command's
//! completion after the last unit.

use crate::sync::{AtomicUsize, Ordering};
use std::sync::Arc;

use tally_uapi::packet::{PostOp, TimestampSlot};
use tally_uapi::trace::TraceRecord;

use crate::cell::CellWait;
use crate::chaos::{About, Chaos};
use crate::clock::Clock;
use crate::copy::{Copy, CopyRegion, Fill};
use crate::eu::{Arena, KernelTimes, Launch};
use crate::guard::{Guard, Trap, word};
use crate::queue::{CallEnd, Completion, PostSync, Queue};
use crate::scope::Finished;
use crate::tuning::CLAIM_TICKS;

mod claims;

use claims::{Claim, Claims};

/// A thread that runs units, and its device, as works see them.
pub(crate) trait Runner {
    fn clock(&self) -> &Clock;
    fn times(&self) -> &KernelTimes;
    fn chaos(&self) -> Option<&Chaos>;

    /// Threads that may run units of one work at the same time.
    fn sharers(&self) -> usize;

    /// A number of the processor that the thread runs on, which may change at any time.
    fn place(&self) -> usize;

    fn guard(&mut self) -> &mut Guard;

    /// The guard and the memory that a kernel needs.
    fn eu(&mut self) -> (&mut Guard, &mut Arena);

    /// Begins a piece of work for the queue of `serial`. `bounded`: it ends soon by itself.
    fn begin_piece(&mut self, serial: u64, bounded: bool);

    /// Ends the piece of work.
    fn end_piece(&mut self);

    /// Wakes the waiters of a cell that was written.
    fn signalled(&mut self, address: u64);

    /// Notes that a command has ended.
    fn command_ended(&mut self);

    /// Continues a queue, since the commands that it waited for have ended.
    fn resume(&self, queue: &Arc<Queue>);

    /// Handles a queue's fault at a ring packet: its VM is lost.
    fn fault(&self, queue: &Arc<Queue>, packet: u64, trap: Trap);

    /// Called when a work does not touch client memory any more and its queue is being stopped.
    fn tell_stoppers(&self);
}

impl Completion {
    /// Starts the work: reads the clocks if a timestamp or a trace record needs them.
    pub(crate) fn starts(&self, runner: &impl Runner) {
        if self.stamp != 0 || self.queue.trace.is_wanted() {
            let now = runner.clock().ticks();
            self.start[0].store(now, Ordering::Relaxed);
            self.start[1].store(self.queue.own_time(now), Ordering::Relaxed);
        }
    }

    /// Completes the command after its work: times, post-sync operation, and the scope.
    pub(crate) fn complete(&self, runner: &mut impl Runner) {
        self.complete_after(runner, None);
    }

    /// The same for a CALL, which has `raised` its counter.
    fn complete_after(&self, runner: &mut impl Runner, raised: Option<PostSync>) {
        if !self.queue.vm.lost()
            && let Err(trap) = self.stamp_and_post(runner, raised)
        {
            runner.fault(&self.queue, self.packet, trap);
        }
        match self.scope.finish() {
            Finished::More => {}
            Finished::Resume => runner.resume(&self.queue),
            Finished::Call => {
                if let Some(end) = self.scope.call_end() {
                    complete_call(runner, end);
                }
            }
        }
        runner.command_ended();
    }

    fn stamp_and_post(
        &self,
        runner: &mut impl Runner,
        raised: Option<PostSync>,
    ) -> Result<(), Trap> {
        if let Some(chaos) = runner.chaos() {
            chaos.pause(About::Signal, self.queue.id, self.packet);
        }
        if self.stamp != 0 || self.queue.trace.is_wanted() {
            self.write_times(runner, raised)?;
        }
        let Some(post) = self.post else { return Ok(()) };
        let value = match post.op {
            PostOp::Clock => runner.clock().ticks(),
            PostOp::Store | PostOp::Add => post.value,
        };
        runner.guard().run(|| {
            // SAFETY: in a guarded call; the packet was checked for alignment.
            unsafe { signal(post.address, post.op, value) };
        })?;
        runner.signalled(post.address);
        Ok(())
    }

    fn write_times(&self, runner: &mut impl Runner, raised: Option<PostSync>) -> Result<(), Trap> {
        let end = runner.clock().ticks();
        let [start, own_start] = [0, 1].map(|i: usize| self.start[i].load(Ordering::Relaxed));
        if self.queue.trace.is_wanted() {
            let (packet, entry, opcode) = (self.packet as u32, self.entry, self.opcode);
            let mut record =
                TraceRecord { packet, entry, start, end, opcode, ..Default::default() };
            if let Some(post) = self.post.as_ref().or(raised.as_ref()) {
                record.post_op = post.op as u8;
                (record.cell, record.value) = (post.address, post.value);
            }
            self.queue.trace.write(runner.guard(), record)?;
        }
        if self.stamp == 0 {
            return Ok(());
        }
        let slot = TimestampSlot {
            global_start: start,
            global_end: end,
            context_start: own_start,
            context_end: self.queue.own_time(end),
        };
        let words: [u64; 4] = zerocopy::transmute!(slot);
        runner.guard().write_words(self.stamp, &words)
    }
}

/// The memory access of a post-sync operation; with [`PostOp::Clock`] `value` is the clock's.
///
/// # Safety
/// `address` is 8-byte aligned, and the caller is in a guarded call.
pub(crate) unsafe fn signal(address: u64, op: PostOp, value: u64) {
    // SAFETY: as the caller promises.
    let cell = unsafe { word(address) };
    match op {
        PostOp::Add => _ = cell.fetch_add(value, Ordering::AcqRel),
        PostOp::Store | PostOp::Clock => cell.store(value, Ordering::Release),
    }
}

/// Completes a recording after its last command: raises the counter, then
/// completes the CALL itself.
pub(crate) fn complete_call(runner: &mut impl Runner, end: &CallEnd) {
    let command = end.command.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    let Some(command) = command else { return };
    if !command.queue.vm.lost() {
        let raised = runner.guard().run(|| {
            // SAFETY: in a guarded call; the packet was checked for alignment.
            unsafe { word(end.counter) }.fetch_max(end.target, Ordering::AcqRel);
        });
        match raised {
            Ok(()) => runner.signalled(end.counter),
            Err(trap) => runner.fault(&command.queue, command.packet, trap),
        }
    }
    let raised = PostSync { op: PostOp::Store, address: end.counter, value: end.target };
    command.complete_after(runner, Some(raised));
}

/// The kinds of work, by what their units are.
#[derive(Debug)]
pub(crate) enum Task {
    Dispatch(Launch),
    Copy(Copy),
    CopyRegion(CopyRegion),
    Fill(Fill),
}

impl Task {
    /// Runs `count` units from `first` on.
    fn run(&self, runner: &mut impl Runner, first: u64, count: u64) -> Result<(), Trap> {
        match self {
            Self::Dispatch(launch) => {
                let (guard, arena) = runner.eu();
                launch.run(guard, arena, first, count)
            }
            Self::Copy(copy) => copy.run(runner.guard(), first, count),
            Self::CopyRegion(copy) => copy.run(runner.guard(), first, count),
            Self::Fill(fill) => fill.run(runner.guard(), first, count),
        }
    }
}

/// A command's work. Any number of workers may run its units at once.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) task: Task,
    pub(crate) completion: Completion,
    claims: Claims,
    /// Number of threads that work on it.
    attendants: AtomicUsize,
    /// Number of threads that are still to be woken for it.
    calls: AtomicUsize,
    /// Whether other workers may join: the queue may leave its engine meanwhile.
    shared: bool,
    /// Whether it was held back: then its start was noted at that time.
    held: bool,
    /// Whether units run from the last to the first.
    backwards: bool,
    /// The address and value that the command after it stores at its end.
    told_next: Option<(u64, u64)>,
}

/// Whether other threads may run units of a work.
pub(crate) enum Share {
    /// They may not: the thread that starts it runs all units.
    Alone,
    /// Other workers will be told.
    Others {
        /// VA and value that the next command stores, which does not end sooner.
        told_next: Option<(u64, u64)>,
    },
    /// They may, once its stream lets it start.
    Later,
}

impl Work {
    /// A work that starts now. `units` is 1 to [`MAX_UNITS`](crate::fields::MAX_UNITS).
    #[inline(always)] // It is made where it is to be.
    pub(crate) fn new(
        runner: &impl Runner,
        task: Task,
        completion: Completion,
        units: u64,
        share: Share,
    ) -> Self {
        let shared = !matches!(share, Share::Alone);
        completion.queue.work_starts();
        if shared {
            completion.queue.time_starts(runner.clock().ticks());
        }
        completion.scope.start();
        let backwards = runner.chaos().is_some_and(|chaos| {
            chaos.one_in(2, About::Units, completion.queue.id, completion.packet)
        });
        let parts = if shared { parts(runner, &task, units) } else { 1 };
        Self {
            task,
            completion,
            claims: Claims::new(units, parts),
            attendants: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            shared,
            held: matches!(share, Share::Later),
            backwards,
            told_next: if let Share::Others { told_next } = share { told_next } else { None },
        }
    }

    pub(crate) fn units(&self) -> u64 {
        self.claims.units()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether its units are short, however many there are.
    pub(crate) fn can_be_left(&self) -> bool {
        match &self.task {
            Task::Copy(copy) => copy.has_short_units(),
            Task::Fill(_) => true,
            Task::Dispatch(_) | Task::CopyRegion(_) => false,
        }
    }

    /// Whether a helping thread may join: it can leave the work soon, or waits for its end. A kernel must have
    /// ended at least once before.
    pub(crate) fn suits_helper(&self, times: &KernelTimes, awaited: CellWait) -> bool {
        let known =
            |launch: &Launch| !launch.is_cooperative() && times.get(launch.entry()).is_some();
        match &self.task {
            Task::Dispatch(launch) => known(launch) && self.is_awaited(awaited),
            _ => self.can_be_left(),
        }
    }

    /// Whether `awaited` waits for its end.
    fn is_awaited(&self, awaited: CellWait) -> bool {
        let told = |post: PostSync| {
            post.op == PostOp::Store && awaited.waits_for(post.address, post.value)
        };
        self.completion.post.is_some_and(told)
            || self.told_next.is_some_and(|(address, value)| awaited.waits_for(address, value))
            || self.completion.scope.call_end().is_some_and(|end| {
                awaited.waits_for(end.counter, end.target) || end.post().is_some_and(told)
            })
    }

    /// Whether no unit is left to claim.
    pub(crate) fn exhausted(&self) -> bool {
        self.claims.exhausted()
    }

    /// Number of threads that work on it.
    pub(crate) fn attendants(&self) -> usize {
        self.attendants.load(Ordering::Relaxed)
    }

    /// Whether any thread works on it.
    pub(crate) fn attended(&self) -> bool {
        self.attendants() != 0
    }

    /// Sets the number of threads to wake for it.
    pub(crate) fn call(&self, threads: usize) {
        self.calls.store(threads, Ordering::Relaxed);
    }

    /// Whether one more thread is to be woken, which the caller then does.
    pub(crate) fn take_call(&self) -> bool {
        let one_less = |calls: usize| calls.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        !self.exhausted() && self.calls.fetch_update(relaxed, relaxed, one_less).is_ok()
    }

    /// Ticks that all of its units take together, if its kernel has been measured.
    pub(crate) fn estimate(&self, times: &KernelTimes) -> Option<u64> {
        match &self.task {
            Task::Dispatch(launch) => Some(times.get(launch.entry())?.saturating_mul(self.units())),
            _ => None,
        }
    }

    fn claim(&self, wanted: u64, sharers: u64) -> Option<Claim> {
        // Claims get smaller near the end, so that all workers end together.
        let left = self.claims.left()?;
        let most = if self.shared { left.div_ceil(2 * sharers) } else { left };
        self.claims.claim(wanted.min(most).max(1))
    }

    /// Gives up all unclaimed units, and returns their number. Groups that run stop waiting for them.
    fn give_up(&self) -> u64 {
        if let Task::Dispatch(launch) = &self.task {
            launch.release();
        }
        self.claims.give_up()
    }

    /// Whether it is a command of `queue`.
    pub(crate) fn is_of(&self, queue: &Queue) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.completion.queue), queue)
    }

    /// Withdraws a work of a queue that is being stopped, if no thread has claimed any of it: it is then never
    /// run, completed or signalled. Returns whether it was withdrawn. `now` is the device's clock.
    pub(crate) fn withdraw(&self, now: u64) -> bool {
        let withdrawn = self.claims.withdraw();
        if withdrawn {
            if self.shared {
                self.completion.queue.time_stops(now);
            }
            self.completion.queue.work_ends();
        }
        withdrawn
    }

    /// Gives up the unclaimed units of a lost VM's work, since maybe no thread will ever run them. Its command is
    /// never completed: nothing of a lost VM signals. A thread that still runs a unit ends the work; if there is
    /// none, this does. `now` is the device's clock.
    pub(crate) fn abandon(&self, now: u64) -> bool {
        let gone = self.give_up();
        if gone != 0 && self.claims.end(gone) {
            if self.shared {
                self.completion.queue.time_stops(now);
            }
            self.completion.queue.work_ends();
        }
        true
    }

    /// Runs units until none is left or `leave`, called after each claim, returns
    /// true. Completes the command after the last unit.
    pub(crate) fn join<R: Runner>(&self, runner: &mut R, leave: impl Fn(&mut R) -> bool) {
        let sharers = runner.sharers() as u64;
        let mut wanted = self.first_claim(runner);
        self.attendants.fetch_add(1, Ordering::Relaxed);
        let mut part = self.claims.part_of(|| runner.place());
        while let Some(claim) = self.claim(wanted, sharers) {
            if claim.starts() && !self.held {
                self.completion.starts(runner);
            }
            let count = claim.count;
            let mut gone = count;
            if self.completion.queue.vm.lost() {
                gone += self.give_up();
            } else {
                // The first one is taken here: the time that other threads' claims take is not the kernel's.
                let mut ranges = self.claims.ranges(claim, &mut part);
                let ranges = ranges.next().into_iter().chain(ranges);
                // The time of a copy that is one claim is not used, and reading clocks costs time.
                let clock = runner.clock();
                let timed = count != self.units() || matches!(self.task, Task::Dispatch(_));
                let started = if timed { clock.ticks() } else { 0 };
                if let Err(trap) = self.run(runner, ranges) {
                    runner.fault(&self.completion.queue, self.completion.packet, trap);
                    gone += self.give_up();
                }
                let ended = if timed { runner.clock().ticks() } else { 0 };
                let took = ended.saturating_sub(started);
                self.measured(runner, took, count);
                if took < CLAIM_TICKS / 2 {
                    wanted = count.saturating_mul(2);
                } else if took > CLAIM_TICKS {
                    wanted = (count / 2).max(1);
                }
            }
            if self.claims.end(gone) {
                self.end(runner);
            }
            if leave(runner) {
                break;
            }
        }
        self.attendants.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends the work after its last unit.
    fn end(&self, runner: &mut impl Runner) {
        let queue = &self.completion.queue;
        if self.shared {
            // The queue's own time stops here, unless something else keeps it
            // running; the command's end is read from it.
            queue.time_stops(runner.clock().ticks());
        }
        self.completion.complete(runner);
        if queue.work_ends() {
            runner.tell_stoppers();
        }
    }

    fn run(
        &self,
        runner: &mut impl Runner,
        mut ranges: impl Iterator<Item = (u64, u64)>,
    ) -> Result<(), Trap> {
        let serial = self.completion.queue.serial;
        runner.begin_piece(serial, self.can_be_left());
        let result = ranges.try_for_each(|(first, count)| {
            let first = if self.backwards { self.units() - first - count } else { first };
            self.task.run(runner, first, count)
        });
        runner.end_piece();
        result
    }

    /// Whether all units have to run at the same time, each on its own thread.
    pub(crate) fn is_cooperative(&self) -> bool {
        matches!(&self.task, Task::Dispatch(launch) if launch.is_cooperative())
    }

    fn first_claim(&self, runner: &impl Runner) -> u64 {
        match &self.task {
            Task::Dispatch(launch) if launch.is_cooperative() => 1,
            Task::Dispatch(launch) => match runner.times().get(launch.entry()) {
                Some(ticks) => (CLAIM_TICKS / ticks.max(1)).max(1),
                None => 1,
            },
            // No other thread takes the rest, and the C library is fastest with one large range.
            _ if !self.shared => self.units(),
            _ => 1,
        }
    }

    fn measured(&self, runner: &impl Runner, took: u64, count: u64) {
        if let Task::Dispatch(launch) = &self.task
            // The time for which groups wait for each other is not a property of the kernel.
            && !launch.is_cooperative()
        {
            runner.times().put(launch.entry(), took / count);
        }
    }
}

/// Number of parts that the units of a shared work are cut into.
fn parts(runner: &impl Runner, task: &Task, units: u64) -> u64 {
    match task {
        Task::Dispatch(launch) if launch.is_independent() => {
            let ticks = runner.times().get(launch.entry());
            claims::parts(ticks.map(|it| it.saturating_mul(units)), runner.sharers() as u64)
        }
        // Groups that wait for others begin after them, and those of a cooperative launch have threads of their own.
        // Copies and fills are only shared if they are larger than most caches.
        _ => 1,
    }
}

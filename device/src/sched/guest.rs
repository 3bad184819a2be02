// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests: host threads that wait for the device anyway and meanwhile work for it.
//!
//! To hand a command to another thread and to be told of its end takes two switches of threads where
//! both share a processor, two wakes where they do not: longer than a short command, and where the host
//! still spins on the one processor, the second worker that is woken for a large command is put behind
//! the first on the other. So a host thread that waits without a time limit looks for a queue that
//! nobody streams, and streams it, and joins works that others share. A guest needs no permit, takes
//! only commands that it can leave soon or whose end it waits for, and goes as soon as its wish is met;
//! everything else it leaves to the workers, of whom the fewer are woken. If a command takes long, the
//! watch sees to the others as it does with a worker that is stuck, and a reset interrupts it as it does
//! a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::locked::Locked;
use super::worker::FIRST_GUEST;
use super::{Sched, Slot, Spin, Worker};
use crate::Shared;
use crate::cell::CellWait;
use crate::engine::{self, Stream};
use crate::eu::Arena;
use crate::guard::{Guard, Loan};
use crate::queue::{Queue, Run};
use crate::work::Work;

/// What guests use, one after the other. All of it changes under the scheduler's lock.
#[derive(Default)]
pub(super) struct Guests {
    /// One for each chair that was ever made.
    slots: Vec<Arc<Slot>>,
    free: Vec<Chair>,
    /// Guests that stream a queue or have joined a work.
    present: usize,
    /// By the guest's number: what it waits for, while it looks for something to do.
    looking: Vec<Option<CellWait>>,
}

/// What a guest takes with it and brings back.
struct Chair {
    loan: Loan,
    arena: Arena,
    slot: Arc<Slot>,
}

impl Guests {
    pub(super) fn present(&self) -> usize {
        self.present
    }

    /// How many guests that look for something to do would join a work.
    pub(super) fn who_would(&self, shared: &Shared, work: &Work) -> usize {
        self.looking.iter().flatten().filter(|&&wish| work.suits_guest(shared, wish)).count()
    }

    /// A guest looks for something to do from here on, or no longer.
    fn set_looking(&mut self, slot: &Slot, wish: Option<CellWait>) {
        self.looking[slot.index - FIRST_GUEST] = wish;
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.iter()
    }

    fn chair(&mut self) -> Option<Chair> {
        if let Some(chair) = self.free.pop() {
            return Some(chair);
        }
        let loan = Loan::take()?;
        let slot = Arc::new(Slot::new(FIRST_GUEST + self.slots.len(), loan.record()));
        self.slots.push(Arc::clone(&slot));
        self.looking.push(None);
        Some(Chair { loan, arena: Arena::default(), slot })
    }
}

impl Sched {
    /// Has the calling thread work until `wish` is met (true), or until there was nothing for it to
    /// do for `limit` (false). None: it cannot be a guest.
    pub(crate) fn lend(
        &self,
        shared: &Arc<Shared>,
        wish: CellWait,
        limit: Duration,
    ) -> Option<bool> {
        // What the adversarial device does depends on what is submitted alone.
        if shared.chaos.is_some() || !Guard::has_room() {
            return None;
        }
        let Chair { loan, arena, slot } = {
            let mut state = self.lock();
            let chair = state.guests.chair()?;
            state.host_comes(shared);
            state.guests.set_looking(&chair.slot, Some(wish));
            chair
        };
        let guard = loan.begin();
        let mut guest = Worker::new(Arc::clone(shared), guard, arena, slot, Some(wish));
        let met = guest.visit(limit);
        let Worker { guard, arena, slot, .. } = guest;
        drop(guard);
        let mut state = self.lock();
        state.guests.set_looking(&slot, None);
        state.guests.free.push(Chair { loan, arena, slot });
        self.catch_up(shared, &mut state);
        self.replace_guest(shared, &mut state);
        Some(met)
    }

    /// A queue that nobody streams and whose last command was short. A worker that lingers at its
    /// ring loses it: on a busy machine it may not run for a while.
    fn offer(&self, guest: &mut Worker) -> Option<(Arc<Queue>, Option<Box<Stream>>)> {
        if !self.streams_wait() && self.lingering.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut state = self.lock();
        let mut found = None;
        for index in state.engines.in_use() {
            if let Some(queue) = state.engines.current(index) {
                let stream = queue.take_lingering(&mut guest.guard);
                found = stream.map(|stream| (Arc::clone(queue), Some(stream)));
            } else if state.engines.front(index).is_some_and(|queue| queue.is_brisk())
                && let Some(queue) = state.engines.begin_front(index)
            {
                *queue.run() = (Run::Running, false);
                found = Some((queue, None));
            }
            if found.is_some() {
                break;
            }
        }
        if found.is_some() {
            state.guests.present += 1;
            state.guests.set_looking(&guest.slot, None);
            if state.anything_waits() {
                state.tell_watch();
            }
            // What else was put off does not wait for this guest's return.
            self.catch_up(&guest.shared, &mut state);
        }
        found
    }
}

impl Sched {
    /// A work that suits a guest. Looked for only if there is something new since the epoch `seen`.
    fn offer_work(&self, guest: &Worker, seen: &mut Option<u32>) -> Option<Arc<Work>> {
        let epoch = self.epoch.load(Ordering::Acquire);
        if seen.replace(epoch) == Some(epoch) {
            return None;
        }
        let wish = guest.wish?;
        let mut state = self.lock();
        let may_help = state.at_work() < self.workers;
        let mut works = state.works.iter().flatten();
        let found = works.find(|work| {
            (may_help || work.can_be_left() || !work.attended())
                && !work.exhausted()
                && work.suits_guest(&guest.shared, wish)
        });
        let found = found.cloned();
        if found.is_some() {
            state.guests.present += 1;
            state.guests.set_looking(&guest.slot, None);
        }
        found
    }

    /// A guest is done with what it had, and looks on.
    fn guest_looks(&self, shared: &Arc<Shared>, guest: &Worker) {
        let mut state = self.lock();
        guest.slot.stuck.store(false, Ordering::Relaxed);
        state.guests.present -= 1;
        state.guests.set_looking(&guest.slot, guest.wish);
        self.replace_guest(shared, &mut state);
    }

    /// Fewer workers were woken for the guest's sake.
    fn replace_guest(&self, shared: &Arc<Shared>, state: &mut Locked<'_>) {
        if state.permits != 0 && state.pick_work(self.workers).is_some() {
            self.rouse(shared, state, 1);
        }
    }
}

impl Worker {
    /// Whether this is a host thread.
    pub(crate) fn is_guest(&self) -> bool {
        self.wish.is_some()
    }

    /// Whether this is a guest that may go. What cannot be read is as good as met.
    pub(crate) fn wish_is_met(&mut self) -> bool {
        let Self { shared, guard, wish, .. } = self;
        wish.is_some_and(|wish| wish.met(guard, &shared.sem).unwrap_or(true))
    }

    fn visit(&mut self, limit: Duration) -> bool {
        let shared = Arc::clone(&self.shared);
        // From the first time on that there is nothing to do: mostly there is, and clocks cost.
        let mut until = None;
        let mut spin = Spin::default();
        let mut seen = None;
        while !self.wish_is_met() {
            let stream = shared.sched.offer(self);
            let work =
                if stream.is_none() { shared.sched.offer_work(self, &mut seen) } else { None };
            if stream.is_some() || work.is_some() {
                self.slot.preempt.store(false, Ordering::Relaxed);
                if let Some((queue, stream)) = stream {
                    engine::stream_from(self, &queue, stream);
                }
                if let Some(work) = work {
                    work.join(self, Self::wish_is_met);
                }
                shared.sched.guest_looks(&shared, self);
                until = None;
                // What it has left may still be there.
                seen = None;
                continue;
            }
            let now = Instant::now();
            if now >= *until.get_or_insert(now + limit) {
                return false;
            }
            spin.turn();
        }
        true
    }
}

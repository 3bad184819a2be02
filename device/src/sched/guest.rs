// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests: host threads that wait for the device anyway and meanwhile work for it.
//!
//! To hand a short command to another thread and to be told of its end takes longer than the command:
//! two switches of threads where both share a processor, two wakes where they do not. So a host thread
//! that waits without a time limit looks for a queue that nobody streams, and streams it. A guest
//! needs no permit, takes only commands that are known to be short, of kernels only those whose end it
//! waits for, and goes as soon as its wish is met; everything else it leaves to the workers. If a command is not short after all, the watch sees
//! to the others as it does with a worker that is stuck, and a reset interrupts it as it does a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

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
    /// Guests that stream a queue.
    present: usize,
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
        let Chair { loan, arena, slot } = self.lock().guests.chair()?;
        let guard = loan.begin();
        let mut guest = Worker::new(Arc::clone(shared), guard, arena, slot, Some(wish));
        let met = guest.visit(limit);
        let Worker { guard, arena, slot, .. } = guest;
        drop(guard);
        self.lock().guests.free.push(Chair { loan, arena, slot });
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
        for engine in &mut state.engines {
            if let Some(queue) = &engine.current {
                let stream = queue.take_lingering(&mut guest.guard);
                found = stream.map(|stream| (Arc::clone(queue), Some(stream)));
            } else if let Some(ready) = engine.best().map(|best| &mut engine.ready[best])
                && ready.front().is_some_and(|queue| queue.is_brisk())
                && let Some(queue) = ready.pop_front()
            {
                engine.current = Some(Arc::clone(&queue));
                *queue.run() = (Run::Running, false);
                found = Some((queue, None));
            }
            if found.is_some() {
                break;
            }
        }
        if found.is_some() {
            state.guests.present += 1;
            if state.anything_waits() {
                state.tell_watch();
            }
            self.publish(&state);
        }
        found
    }
}

impl Sched {
    /// A copy or fill that others work at, or nobody. Looked for only if there is something new since the
    /// epoch `seen`.
    fn offer_work(&self, seen: &mut Option<u32>) -> Option<Arc<Work>> {
        let epoch = self.epoch.load(Ordering::Acquire);
        if seen.replace(epoch) == Some(epoch) {
            return None;
        }
        let mut state = self.lock();
        let mut works = state.works.iter().flatten();
        let found = works.find(|work| work.can_be_left() && !work.exhausted()).cloned();
        state.guests.present += usize::from(found.is_some());
        found
    }

    /// A guest goes. Nobody was told of a work that it attended, and it may have left it.
    fn guest_goes(&self, shared: &Arc<Shared>, slot: &Slot) {
        let mut state = self.lock();
        slot.stuck.store(false, Ordering::Relaxed);
        state.guests.present -= 1;
        if state.has_unattended() {
            self.rouse(shared, &mut state, 1);
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
        let mut until = Instant::now() + limit;
        let mut spin = Spin::default();
        let mut seen = None;
        while !self.wish_is_met() {
            let stream = shared.sched.offer(self);
            let work = if stream.is_none() { shared.sched.offer_work(&mut seen) } else { None };
            if stream.is_some() || work.is_some() {
                self.slot.preempt.store(false, Ordering::Relaxed);
                if let Some((queue, stream)) = stream {
                    engine::stream_from(self, &queue, stream);
                }
                if let Some(work) = work {
                    work.join(self, Self::wish_is_met);
                }
                shared.sched.guest_goes(&shared, &self.slot);
                until = Instant::now() + limit;
                // What it has left may still be there.
                seen = None;
                continue;
            }
            if Instant::now() >= until {
                return false;
            }
            spin.turn();
        }
        true
    }
}

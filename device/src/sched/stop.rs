// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stopping of queues: a queue is removed from the place where it rests, and its works are awaited, withdrawn
//! or interrupted.

use std::sync::{Arc, PoisonError};

use crate::sync::{Instant, Ordering, fence, lock};

use super::{Run, Sched, Shared};
use crate::queue::Queue;

impl Sched {
    /// Waits until no packet or work of a stopped queue is in progress and no thread looks at its control page
    /// (true), or until the time has passed (false).
    pub(crate) fn wait_stopped(&self, queue: &Queue, until: Instant) -> bool {
        let (lock, told) = &self.stoppers;
        let mut held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // An owner that left it runnable just before it saw the flag has left an entry, by which no
            // thread takes the stream any more.
            if queue.run.stop() != Run::Running && !queue.has_work() {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            let waited = told.wait_timeout(held, until - now);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notifies `wait_stopped` that its condition may have changed.
    pub(crate) fn tell_stoppers(&self) {
        // A thread that has looked and does not wait yet holds the lock.
        drop(lock(&self.stoppers.0));
        self.stoppers.1.notify_all();
    }

    /// Removes a queue that must stop from the place where it rests.
    pub(crate) fn retire(&self, shared: &Shared, queue: &Arc<Queue>) {
        // The caller has set the flag: an owner that leaves the queue sees it after its fence (`leave`).
        fence(Ordering::SeqCst);
        // A look may have taken a parked queue already, or its owner may be about to park it: both see that it
        // must stop. So does the owner of a queue that is streamed.
        if queue.run.stop() == Run::Parked
            && queue.parked().is_some_and(|wait| shared.sem.remove(queue, wait.address))
        {
            queue.run.stop_parked();
        }
        self.shards.forget(queue, || self.unlisted(queue));
    }

    /// Withdraws the works of a queue that is being stopped that no thread has begun; of a lost VM also the
    /// unclaimed units of the others. False if work is left that no thread will ever run, since all threads are
    /// stuck and no more are allowed.
    pub(crate) fn dismiss(&self, shared: &Shared, queue: &Queue) -> bool {
        let now = shared.clock.ticks();
        let lost = queue.vm.lost();
        self.dismiss_waiting(queue, now);
        self.shards.dismiss_works(queue, |work| work.withdraw(now) || lost && work.abandon(now));
        !(self.all_stuck() && self.shards.has_left(queue))
    }

    /// Whether a thread is in a guarded call for a queue, which can be aborted.
    pub(crate) fn is_guarding(&self, serial: u64) -> bool {
        let slots = self.pool().all_slots();
        slots.iter().any(|slot| slot.record.is_guarding(serial))
    }

    /// Interrupts every guarded call for the queue with this serial.
    pub(crate) fn abort(&self, serial: u64) {
        let slots = self.pool().all_slots();
        for slot in slots.iter().filter(|slot| slot.record.work() == serial) {
            slot.record.abort(serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use tally_uapi::packet::{self, Header, opcode};

    use super::super::{Slot, Worker, testing};
    use super::*;
    use crate::copy::Fill;
    use crate::eu::Arena;
    use crate::guard::{Guard, Seat};
    use crate::queue::{Completion, Scope};
    use crate::work::{Share, Task, Work};

    /// The stream, which normally takes held works, may be out of reach, for example with a stuck thread.
    #[test]
    fn a_queue_that_is_stopped_gives_its_held_commands_up() {
        let (shared, queue) = testing::device();
        let seat = Seat::new().unwrap();
        let slot = Arc::new(Slot::new(0, seat.record()));
        let guard = Guard::attach(seat).unwrap();
        let mut worker = Worker::new(Arc::clone(&shared), guard, Arena::default(), slot, None);
        let header = Header { opcode: opcode::FILL, param: 1, ..Header::default() };
        let post = packet::PostSync { address: 0, value: 0 };
        let (dst, size, pattern, zero) = (4096, 64, [0; 16], 0);
        let packet = packet::Fill { header, dst, size, pattern, zero, post };
        let (fill, units) = Fill::new(&mut worker.guard, &packet).unwrap();
        let completion = Completion {
            queue: Arc::clone(&queue),
            scope: Arc::new(Scope::ring()),
            post: None,
            stamp: 0,
            packet: 0,
            opcode: opcode::FILL,
            entry: 0,
            start: Default::default(),
        };
        let work = Work::new(&worker, Task::Fill(fill), completion, units, Share::Later);
        shared.sched.hold(Arc::new(work));
        queue.stop();
        assert!(!shared.sched.wait_stopped(&queue, Instant::now()));
        shared.sched.dismiss(&shared, &queue);
        assert!(shared.sched.wait_stopped(&queue, Instant::now()));
        assert!(shared.sched.take_held(&queue).is_empty());
    }
}

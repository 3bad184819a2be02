// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a queue, as one atomic word, and every transition of it.
//!
//! | from | to | made by | when |
//! |---|---|---|---|
//! | Idle | Runnable | [`doorbell`](RunWord::doorbell) | the producer's KICK |
//! | Running | the same, `DOORBELL` | [`doorbell`](RunWord::doorbell) | a KICK while it is streamed |
//! | Runnable | Running | [`pop`](RunWord::pop) | a thread takes its entry out of a run queue |
//! | Runnable | Running | [`take`](RunWord::take) | a helping thread takes it without its entry |
//! | Running | Idle, Parked, Draining, Runnable, Stopped | [`leave`](RunWord::leave) | its owner |
//! | Running | Runnable | [`lend`](RunWord::lend) | the watchdog has taken the stream from a stuck thread |
//! | Parked, Draining | Runnable | [`resume`](RunWord::resume) | its wait is over |
//! | Idle, Runnable, Draining | Stopped | [`stop`](RunWord::stop) | it is destroyed, or its VM is lost |
//! | Parked | Stopped | [`stop_parked`](RunWord::stop_parked) | the same, after the semaphore unit let go of it |
//!
//! Only the thread that made it Running owns its stream, until it leaves or the watchdog lends the stream.
//!
//! Two marks say which lists contain the queue. `QUEUED`: an entry is in a run queue. A helping thread that
//! takes the queue leaves the entry in place; the thread that pops it finds that the queue is not Runnable, or
//! Runnable again, which is as good. `DEFERRED`: it is in a list of queues whose wake was deferred. Each mark
//! is set and cleared together with the state, so there is at most one entry of each kind.

use crate::sync::{AtomicU32, Ordering, race};

/// The state of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Run {
    /// It sleeps until a KICK.
    Idle = 0,
    /// It waits for a thread that streams it.
    Runnable = 1,
    /// A thread streams it.
    Running = 2,
    /// It is in a bucket of the semaphore unit, or about to be.
    Parked = 3,
    /// It waits for its own commands in flight.
    Draining = 4,
    /// It never runs again.
    Stopped = 5,
}

const STATE: u32 = 7;
/// A KICK arrived while it was streamed.
const DOORBELL: u32 = 1 << 3;
const QUEUED: u32 = 1 << 4;
const DEFERRED: u32 = 1 << 5;

/// The state that a doorbell finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bell {
    /// The queue was idle and is runnable. `enlist`: the caller puts an entry into the list that it named.
    Fresh { enlist: bool },
    /// Its wake was deferred before, and maybe no thread has been woken for it since.
    Deferred,
    /// There is nothing to do: a thread attends to it, or it has stopped.
    Noted,
}

/// The state that [`RunWord::enqueue`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueue {
    /// It is runnable. The caller puts an entry into a run queue.
    Push,
    /// It is runnable, and has an entry already.
    Listed,
    /// It is not runnable.
    No,
}

/// The word.
#[derive(Debug)]
pub(crate) struct RunWord(AtomicU32);

const fn state(word: u32) -> Run {
    match word & STATE {
        0 => Run::Idle,
        1 => Run::Runnable,
        2 => Run::Running,
        3 => Run::Parked,
        4 => Run::Draining,
        _ => Run::Stopped,
    }
}

const fn with(word: u32, run: Run) -> u32 {
    word & !STATE | run as u32
}

impl RunWord {
    /// The word of a queue that is idle.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(Run::Idle as u32))
    }

    /// The state now.
    pub(crate) fn get(&self) -> Run {
        state(self.0.load(Ordering::Acquire))
    }

    /// Whether it is runnable and its wake was deferred.
    pub(crate) fn is_deferred(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        state(word) == Run::Runnable && word & DEFERRED != 0
    }

    /// Changes the word to the result of `next`; None leaves it unchanged. Returns the previous word.
    fn change(&self, mut next: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let Some(new) = next(word) else { return Err(word) };
            race();
            match self.0.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(before) => return Ok(before),
                Err(now) => word = now,
            }
        }
    }

    /// Handles a KICK. A queue that was idle is to be enlisted in a run queue, or, if `defer`, among the queues
    /// whose wake was deferred.
    pub(crate) fn doorbell(&self, defer: bool) -> Bell {
        let mark = if defer { DEFERRED } else { QUEUED };
        let changed = self.change(|word| match state(word) {
            Run::Idle => Some(with(word, Run::Runnable) | mark),
            Run::Running if word & DOORBELL == 0 => Some(word | DOORBELL),
            _ => None,
        });
        match changed {
            Ok(before) if state(before) == Run::Idle => Bell::Fresh { enlist: before & mark == 0 },
            Err(word) if state(word) == Run::Runnable && word & DEFERRED != 0 => Bell::Deferred,
            _ => Bell::Noted,
        }
    }

    /// Notes that an entry was taken out of a run queue. True: the caller now streams the queue.
    pub(crate) fn pop(&self) -> bool {
        let taken = self.change(|word| {
            let word = word & !QUEUED;
            Some(if state(word) == Run::Runnable { with(word, Run::Running) } else { word })
        });
        taken.is_ok_and(|before| state(before) == Run::Runnable)
    }

    /// Takes a runnable queue, whichever lists contain it. True: the caller now streams it.
    pub(crate) fn take(&self) -> bool {
        let taken =
            self.change(|word| (state(word) == Run::Runnable).then(|| with(word, Run::Running)));
        taken.is_ok()
    }

    /// Makes a queue whose wake was deferred visible to workers.
    pub(crate) fn enqueue(&self) -> Enqueue {
        self.enqueue_without(0)
    }

    /// Like [`Self::enqueue`], for a queue that was taken out of the list of those whose wake was deferred.
    pub(crate) fn undefer(&self) -> Enqueue {
        self.enqueue_without(DEFERRED)
    }

    fn enqueue_without(&self, mark: u32) -> Enqueue {
        let changed = self.change(|word| {
            let queued = if state(word) == Run::Runnable { QUEUED } else { 0 };
            Some(word & !mark | queued)
        });
        match changed {
            Ok(before) | Err(before) if state(before) != Run::Runnable => Enqueue::No,
            Ok(before) | Err(before) if before & QUEUED != 0 => Enqueue::Listed,
            _ => Enqueue::Push,
        }
    }

    /// The owner leaves the queue in state `to`. For `Runnable` the result says whether it is to be enlisted.
    ///
    /// Errors: it would be idle, but a KICK has arrived. It stays Running, and its owner keeps it.
    pub(crate) fn leave(&self, to: Run) -> Result<bool, ()> {
        let kicked = |word| to == Run::Idle && word & DOORBELL != 0;
        let before = self.change(|word| {
            let cleared = word & !DOORBELL;
            Some(match to {
                _ if state(word) != Run::Running => word,
                _ if kicked(word) => cleared,
                Run::Runnable => with(cleared, Run::Runnable) | QUEUED,
                to => with(cleared, to),
            })
        });
        let (Ok(before) | Err(before)) = before;
        debug_assert_eq!(state(before), Run::Running, "left by a thread that does not own it");
        if kicked(before) { Err(()) } else { Ok(before & QUEUED == 0) }
    }

    /// Makes a queue runnable whose stream the watchdog has taken from a stuck owner and put to rest. True: the
    /// queue is to be enlisted.
    pub(crate) fn lend(&self) -> bool {
        self.leave(Run::Runnable) == Ok(true)
    }

    /// Ends a queue's wait for a cell or for its commands. True: it is to be enlisted.
    ///
    /// Errors: it does not wait.
    pub(crate) fn resume(&self) -> Result<bool, ()> {
        let changed = self.change(|word| {
            matches!(state(word), Run::Parked | Run::Draining)
                .then(|| with(word, Run::Runnable) | QUEUED)
        });
        changed.map(|before| before & QUEUED == 0).map_err(drop)
    }

    /// Stops a queue at rest; one that is parked or streamed stays unchanged. Returns the previous state.
    pub(crate) fn stop(&self) -> Run {
        let before = self.change(|word| {
            matches!(state(word), Run::Idle | Run::Runnable | Run::Draining)
                .then(|| with(word, Run::Stopped))
        });
        let (Ok(before) | Err(before)) = before;
        state(before)
    }

    /// Stops a queue that was parked and is in no bucket any more.
    pub(crate) fn stop_parked(&self) {
        let stopped =
            self.change(|word| (state(word) == Run::Parked).then(|| with(word, Run::Stopped)));
        // If it was resumed meanwhile, the next thread that streams it sees that it must stop.
        let _ = stopped;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_makes_an_idle_queue_runnable_once() {
        let word = RunWord::new();
        assert_eq!(word.doorbell(false), Bell::Fresh { enlist: true });
        assert_eq!(word.doorbell(false), Bell::Noted);
        assert!(word.pop() && !word.pop());
        assert_eq!(word.get(), Run::Running);
    }

    #[test]
    fn a_doorbell_while_it_is_streamed_keeps_it_from_sleep() {
        let word = RunWord::new();
        word.doorbell(false);
        assert!(word.pop());
        assert_eq!(word.doorbell(true), Bell::Noted);
        assert_eq!(word.leave(Run::Idle), Err(()));
        assert_eq!(word.leave(Run::Idle), Ok(true));
        assert_eq!(word.get(), Run::Idle);
    }

    #[test]
    fn the_entry_of_a_queue_that_a_helping_thread_took_serves_the_next_doorbell() {
        let word = RunWord::new();
        word.doorbell(false);
        assert!(word.take(), "a helping thread");
        assert_eq!(word.leave(Run::Idle), Ok(false));
        assert_eq!(word.doorbell(false), Bell::Fresh { enlist: false });
        assert!(word.pop());
        assert_eq!(word.leave(Run::Idle), Ok(true));
        assert_eq!(word.doorbell(false), Bell::Fresh { enlist: true });
    }

    #[test]
    fn an_entry_that_nothing_stands_for_is_dropped() {
        let word = RunWord::new();
        word.doorbell(false);
        assert!(word.take());
        assert!(!word.pop(), "it is streamed");
        assert_eq!(word.leave(Run::Runnable), Ok(true), "it has no entry any more");
    }

    #[test]
    fn a_deferred_queue_is_enqueued_once() {
        let word = RunWord::new();
        assert_eq!(word.doorbell(true), Bell::Fresh { enlist: true });
        assert!(word.is_deferred());
        assert_eq!(word.doorbell(true), Bell::Deferred);
        assert_eq!(word.enqueue(), Enqueue::Push);
        assert_eq!(word.undefer(), Enqueue::Listed);
        assert!(!word.is_deferred());
        assert!(word.pop());
        assert_eq!(word.enqueue(), Enqueue::No);
    }

    #[test]
    fn a_parked_queue_is_resumed_or_stopped_but_not_kicked() {
        let word = RunWord::new();
        word.doorbell(false);
        word.pop();
        assert_eq!(word.leave(Run::Parked), Ok(true));
        assert_eq!(word.doorbell(false), Bell::Noted);
        assert_eq!(word.stop(), Run::Parked);
        assert_eq!(word.get(), Run::Parked);
        assert_eq!((word.resume(), word.resume()), (Ok(true), Err(())));
        assert_eq!(word.stop(), Run::Runnable);
        assert!(!word.pop() && word.doorbell(false) == Bell::Noted);
        assert_eq!(word.get(), Run::Stopped);
    }
}

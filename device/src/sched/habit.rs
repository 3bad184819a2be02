// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the host comes by itself for what it submits.
//!
//! To wake a thread that sleeps takes its waker 15 to 25 µs on a virtual machine, and the thread as long
//! to come. A host that submits a command and then waits without a time limit runs it itself meanwhile
//! (see [`super::guest`]): for such a host the wake is lost, and most of what its round trip takes. So
//! where the host has come soon after its KICKs a few times in a row, the next is *put off*: its queue is
//! runnable, and nobody is woken for it. Then
//!
//! - the host comes and streams the queue, as expected; or
//! - it submits more, for longer than a burst lasts, or asks for a result without lending its thread:
//!   then a worker is woken; or
//! - it does none of these, and the watch finds the queue at its next tick, which it therefore does not
//!   sleep over. That is as late as it gets, and after it twice as many good turns are asked for.
//!
//! Nothing of it touches the handshake of SPEC.md, "Sleeping": the KICK has come, and the queue is not
//! idle.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::locked::Locked;
use super::{Sched, State};
use crate::Shared;
use crate::queue::Queue;

/// Turns in a row by which a host shows its habit, at first.
const FEWEST: u32 = 4;
/// And at most, after it broke with it.
const MOST: u32 = 256;
/// After so many in a row older breaks are forgiven.
const FORGIVEN: u32 = 1024;
/// How long after its first KICK, in ticks, the host comes in time: no longer than a woken thread takes.
const SOON: u64 = 30_000;
/// How far apart, in ticks, KICKs may be for the watch to be woken for their sake: it stays awake for as long.
const WATCHED: u64 = 15_000_000;
/// How long, in ticks, a host may go on submitting before it is taken for one that does not wait: longer than
/// 64 appends take on a slow machine, and less than [`SOON`], by which it has to come.
const BURST: u64 = 20_000;
const _: () = assert!(BURST < SOON);

/// What is known of the host. Changes under the scheduler's lock.
#[derive(Debug)]
pub(super) struct Habit {
    /// Times in a row that it came soon after a KICK.
    turns: u32,
    /// As many show that it will.
    wanted: u32,
    /// Time of the first KICK since it came last.
    kicked: Option<u64>,
    /// A KICK has come since the watch asked last.
    active: bool,
    /// Time of the last KICK.
    last: u64,
    /// The next worker that comes is to wake the watch, without which nothing can be put off.
    wants_watch: bool,
}

impl Default for Habit {
    fn default() -> Self {
        Self { turns: 0, wanted: FEWEST, kicked: None, active: false, last: 0, wants_watch: false }
    }
}

impl Habit {
    /// A KICK at `now`. Whether the host will come for it.
    fn kick(&mut self, now: u64) -> bool {
        self.active = true;
        let first = *self.kicked.get_or_insert(now);
        if now.saturating_sub(first) > BURST {
            self.turns = 0;
            self.kicked = Some(now);
        }
        self.turns >= self.wanted
    }

    /// The call of the last KICK returns at `now`: to wake somebody was the device's time, not the host's.
    fn kick_ends(&mut self, now: u64) {
        if let Some(kicked) = &mut self.kicked {
            *kicked = now;
        }
    }

    /// The host lends itself at `now`.
    fn come(&mut self, now: u64) {
        let Some(first) = self.kicked.take() else { return };
        if now.saturating_sub(first) > SOON {
            self.turns = 0;
            return;
        }
        self.turns = self.turns.saturating_add(1);
        if self.turns >= FORGIVEN {
            self.wanted = FEWEST;
        }
    }

    /// Whether the watch is to be woken. The worker that was woken anyway does that: it has the time.
    pub(super) fn take_wants_watch(&mut self) -> bool {
        std::mem::take(&mut self.wants_watch)
    }

    /// Whether a KICK has come since the last call.
    pub(super) fn take_active(&mut self) -> bool {
        std::mem::take(&mut self.active)
    }

    /// The host may wait, but not so that it lends itself.
    fn decline(&mut self) {
        self.turns = 0;
        self.kicked = None;
    }

    /// At `now` the host has not come. If it had the time, it is trusted less.
    fn miss(&mut self, now: u64) {
        if self.kicked.is_some_and(|first| now.saturating_sub(first) > SOON) {
            self.wanted = (self.wanted * 2).min(MOST);
            self.decline();
        }
    }
}

impl State {
    /// Whether the host is expected to fetch `queue`, which it kicks at `now`, so that nobody needs to be
    /// woken.
    pub(super) fn can_put_off(&mut self, sched: &Sched, queue: &Queue, now: u64) -> bool {
        // What a worker has left, or has not got to, is none of the host's.
        let rests = sched.put_off.load(Ordering::Relaxed) || !self.anything_waits();
        let engine_free = self.engines.is_free(queue.engine);
        let apart = now.saturating_sub(std::mem::replace(&mut self.habit.last, now));
        sched.expects.store(true, Ordering::Relaxed);
        // Where others are to help, the sooner one wakes the better.
        let alone = queue.is_brisk() && !queue.is_wide();
        if !(self.habit.kick(now) && rests && engine_free && alone) {
            return false;
        }
        let watched = !sched.watch_asleep.load(Ordering::Relaxed);
        // It would be asleep again by the next, if they come so seldom.
        self.habit.wants_watch = !watched && apart < WATCHED;
        watched
    }

    /// A host thread lends itself, or would if there were need.
    pub(super) fn host_comes(&mut self, shared: &Shared) {
        if shared.sched.expects.swap(false, Ordering::Relaxed) {
            self.habit.come(shared.clock.ticks());
        }
    }
}

impl Sched {
    /// Whether a queue is put off.
    pub(crate) fn has_put_off(&self) -> bool {
        self.put_off.load(Ordering::Relaxed)
    }

    /// A host thread waits without a limit for what has happened already.
    pub(crate) fn host_came(&self, shared: &Shared) {
        if self.expects.load(Ordering::Relaxed) {
            self.lock().host_comes(shared);
        }
    }

    /// A KICK that somebody may have been woken for is over.
    pub(super) fn kick_ends(&self, shared: &Shared) {
        let now = shared.clock.ticks();
        self.lock().habit.kick_ends(now);
    }

    /// A result is asked for by a host that does not lend itself.
    pub(crate) fn hurry(&self, shared: &Arc<Shared>) {
        if !self.has_put_off() {
            return;
        }
        let mut state = self.lock();
        state.habit.decline();
        self.catch_up(shared, &mut state);
    }

    /// The watch looks after what is put off.
    pub(super) fn look_after(&self, shared: &Arc<Shared>, state: &mut Locked<'_>) {
        if self.has_put_off() {
            state.habit.miss(shared.clock.ticks());
            self.catch_up(shared, state);
        }
    }

    /// Wakes a worker for what is put off, if that is still there.
    pub(super) fn catch_up(&self, shared: &Arc<Shared>, state: &mut Locked<'_>) {
        if self.put_off.swap(false, Ordering::Relaxed) && state.anything_waits() {
            self.rouse(shared, state, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use crate::queue::Run;

    /// A host that comes `turns` times, each time 1 µs after its KICK.
    fn after(turns: u32) -> Habit {
        let mut habit = Habit::default();
        for i in 0..u64::from(turns) {
            habit.kick(i * 2_000_000);
            habit.come(i * 2_000_000 + 1_000);
        }
        habit
    }

    /// Late enough for all that `after` has done.
    const LATER: u64 = 1 << 40;

    #[test]
    fn a_host_is_relied_upon_after_a_few_turns() {
        for turns in 0..10 {
            assert_eq!(after(turns).kick(LATER), turns >= FEWEST, "{turns}");
        }
    }

    #[test]
    fn a_burst_is_put_off_as_a_whole_and_no_longer() {
        let mut habit = after(FEWEST);
        assert!((0..=BURST).step_by(500).all(|passed| habit.kick(LATER + passed)));
        assert!(!habit.kick(LATER + BURST + 1));
        // It was no habit after all: the next comes for nothing.
        habit.come(LATER + BURST + 2);
        assert!(!habit.kick(LATER * 2));
    }

    #[test]
    fn a_host_that_comes_late_or_otherwise_starts_anew() {
        let mut late = after(FEWEST);
        late.kick(LATER);
        late.come(LATER + SOON + 1);
        assert!(!late.kick(LATER * 2));
        let mut other = after(FEWEST);
        other.kick(LATER);
        other.decline();
        assert!(!other.kick(LATER * 2));
    }

    #[test]
    fn each_miss_doubles_what_is_asked_for_until_it_is_forgiven() {
        let mut habit = after(FEWEST);
        let mut now = LATER;
        for wanted in [8, 16, 32, 64, 128, 256, 256] {
            habit.turns = habit.wanted;
            assert!(habit.kick(now));
            habit.miss(now + SOON);
            assert!(habit.kick(now + 1), "the host may be on its way");
            habit.miss(now + SOON + 1);
            assert_eq!((habit.wanted, habit.turns), (wanted, 0));
            now += LATER;
        }
        for _ in 0..FORGIVEN {
            habit.kick(now);
            habit.come(now + 1_000);
            now += 2_000_000;
        }
        assert_eq!(habit.wanted, FEWEST);
    }

    /// A device whose host has the habit, with a worker that sleeps.
    fn device_with_habit() -> (Arc<Shared>, Arc<Queue>) {
        let (shared, queue) = testing::device();
        queue.set_brisk(true);
        {
            let mut state = shared.sched.lock();
            state.habit.turns = FEWEST;
            state.sleepers = 1;
        }
        (shared, queue)
    }

    /// Workers that were told to wake.
    fn woken(shared: &Shared) -> usize {
        shared.sched.lock().wakes
    }

    #[test]
    fn nobody_is_woken_for_a_host_that_comes() {
        // On a busy machine this thread may lose its processor, and seem to come late.
        for _ in 0..1000 {
            let (shared, queue) = device_with_habit();
            let sched = &shared.sched;
            let start = shared.clock.ticks();
            for _ in 0..3 {
                sched.kick(&shared, &queue);
            }
            let kicks = shared.clock.ticks() - start;
            let put_off = sched.has_put_off();
            let found = sched.streams_wait();
            sched.host_came(&shared);
            let came = shared.clock.ticks() - start;
            if kicks > BURST || came > SOON {
                continue;
            }
            assert!(put_off && found, "a host that lends itself finds the queue");
            assert_eq!((woken(&shared), queue.run().0), (0, Run::Runnable));
            assert_eq!(sched.lock().habit.turns, FEWEST + 1);
            return;
        }
        panic!("this thread was never quick enough");
    }

    #[test]
    fn what_is_put_off_is_a_workers_when_the_host_asks_without_lending_itself() {
        let (shared, queue) = device_with_habit();
        shared.sched.kick(&shared, &queue);
        shared.sched.hurry(&shared);
        assert_eq!((woken(&shared), shared.sched.has_put_off()), (1, false));
        shared.sched.hurry(&shared);
        assert_eq!(woken(&shared), 1, "once");
        assert_eq!(shared.sched.lock().habit.turns, 0);
    }

    #[test]
    fn what_is_put_off_is_a_workers_at_the_watchs_tick() {
        let (shared, queue) = device_with_habit();
        let sched = &shared.sched;
        sched.kick(&shared, &queue);
        let mut state = sched.lock();
        assert!(state.habit.take_active(), "the watch does not fall asleep");
        state.habit.kicked = state.habit.kicked.map(|first| first - SOON - 1);
        sched.look_after(&shared, &mut state);
        assert_eq!((state.wakes, state.habit.wanted), (1, 2 * FEWEST));
    }

    #[test]
    fn what_is_put_off_is_a_workers_when_the_host_goes_on_submitting() {
        let (shared, queue) = device_with_habit();
        shared.sched.kick(&shared, &queue);
        let mut state = shared.sched.lock();
        state.habit.kicked = state.habit.kicked.map(|first| first - BURST - 1);
        drop(state);
        shared.sched.kick(&shared, &queue);
        assert_eq!((woken(&shared), shared.sched.has_put_off()), (1, false));
    }

    /// The watch is not woken for a host that it would fall asleep between the KICKs of.
    #[test]
    fn the_watch_is_woken_for_a_host_that_comes_often() {
        let often = |apart| {
            let (shared, queue) = device_with_habit();
            shared.sched.watch_asleep.store(true, Ordering::Relaxed);
            let now = shared.clock.ticks();
            let mut state = shared.sched.lock();
            state.habit.last = now - apart;
            assert!(!state.can_put_off(&shared.sched, &queue, now));
            state.habit.take_wants_watch()
        };
        assert!(often(WATCHED - 1) && !often(WATCHED));
    }

    #[test]
    fn nothing_is_put_off_that_nobody_would_find_or_the_host_would_not_run() {
        let spoil: [fn(&Shared, &Queue); 5] = [
            |shared, _| shared.sched.watch_asleep.store(true, Ordering::Relaxed),
            |_, queue| queue.set_brisk(false),
            |_, queue| queue.set_wide(true),
            |shared, queue| {
                let (_, other) = testing::device();
                assert_eq!(other.engine, queue.engine);
                shared.sched.lock().engines.begin(&other);
            },
            |shared, _| {
                let (_, other) = testing::device();
                shared.sched.lock().engines.push_back(&other);
            },
        ];
        for (i, spoil) in spoil.into_iter().enumerate() {
            let (shared, queue) = device_with_habit();
            spoil(&shared, &queue);
            shared.sched.kick(&shared, &queue);
            assert_eq!((woken(&shared), shared.sched.has_put_off()), (1, false), "{i}");
        }
    }
}

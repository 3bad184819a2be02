// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which thread runs which units of a work.
//!
//! The groups of a kernel that do not wait for each other are cut into parts, one for each thread. A thread begins in
//! the part of the processor that it runs on, or in the next one in which no thread has begun, and goes on in the next
//! ones when its own is empty. So a kernel that is launched again finds its data in the caches of the same processors,
//! whose second-level caches are mostly their own.

use crate::sync::{AtomicU64, Ordering};
use crate::tuning::{LATE, WORTH_A_PART};

/// Number of parts for independent groups that take `ticks` in all, if that is known, on `threads` threads: one for
/// each if all of them come soon enough to run their own. Otherwise others come each time.
pub(crate) fn parts(ticks: Option<u64>, threads: u64) -> u64 {
    let is_for_all = |ticks| ticks / threads >= WORTH_A_PART + threads * LATE;
    if ticks.is_none_or(is_for_all) { threads } else { 1 }
}

/// Most parts of a work. Threads on more processors share them.
const MOST_PARTS: usize = 16;

/// The units of a work that threads have claimed. What all claims of two threads change is in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Claims {
    /// Units claimed or given up; may pass `units`.
    claimed: AtomicU64,
    /// Units done or given up.
    done: AtomicU64,
    /// Total number of units.
    units: u64,
    /// Number of parts; if there is one, `claimed` is its next unit.
    parts: u64,
    /// Units of each part. The last one may have fewer.
    size: u64,
    /// Units taken from each part; may pass its size.
    taken: [AtomicU64; MOST_PARTS],
}

/// A number of units that one thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Units that were claimed before.
    before: u64,
    pub(crate) count: u64,
}

impl Claim {
    /// Whether it is the work's first one.
    pub(crate) fn starts(&self) -> bool {
        self.before == 0
    }
}

impl Claims {
    /// `units` is 1 to [`MAX_UNITS`](crate::fields::MAX_UNITS). They are cut into at most `parts` parts, which is at
    /// least 1, of as many units each, except for the last.
    #[inline(always)] // It is made where it is to be.
    pub(crate) fn new(units: u64, parts: u64) -> Self {
        let size = if parts == 1 { units } else { units.div_ceil(parts.min(MOST_PARTS as u64)) };
        let parts = if parts == 1 { 1 } else { units.div_ceil(size) };
        let taken = std::array::from_fn(|_| AtomicU64::new(0));
        Self { claimed: AtomicU64::new(0), done: AtomicU64::new(0), units, parts, size, taken }
    }

    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Whether no unit is left to claim.
    pub(crate) fn exhausted(&self) -> bool {
        self.left().is_none()
    }

    /// Number of units that are left to claim, if there are any.
    pub(crate) fn left(&self) -> Option<u64> {
        self.units.checked_sub(self.claimed.load(Ordering::Relaxed)).filter(|&left| left != 0)
    }

    /// The part in which a thread on processor `place`, which is asked only if there are several, begins: that of the
    /// processor, or the next one in which no thread has begun.
    pub(crate) fn part_of(&self, place: impl FnOnce() -> usize) -> u64 {
        if self.parts == 1 {
            return 0;
        }
        let own = place() as u64 % self.parts;
        let is_new = |&part: &u64| self.taken[part as usize].load(Ordering::Relaxed) == 0;
        (own..self.parts).chain(0..own).find(is_new).unwrap_or(own)
    }

    /// Claims up to `wanted` units, at least 1.
    pub(crate) fn claim(&self, wanted: u64) -> Option<Claim> {
        let before = self.claimed.fetch_add(wanted, Ordering::Relaxed);
        let left = self.units.checked_sub(before).filter(|&left| left != 0)?;
        Some(Claim { before, count: wanted.min(left) })
    }

    /// The ranges of units of a claim: the first unit and the number of each. They are of `part`, as long as it has
    /// some, and then of the next ones, where the thread then goes on.
    pub(crate) fn ranges(&self, claim: Claim, part: &mut u64) -> impl Iterator<Item = (u64, u64)> {
        let mut left = claim.count;
        std::iter::from_fn(move || {
            let wanted = std::mem::take(&mut left);
            let (first, count) = match self.parts {
                _ if wanted == 0 => return None,
                1 => (claim.before, wanted),
                _ => self.take(part, wanted)?,
            };
            left = wanted - count;
            Some((first, count))
        })
    }

    /// Notes that units were done or given up. Returns whether they were the last ones.
    pub(crate) fn end(&self, units: u64) -> bool {
        // The release half publishes this thread's writes to the one that completes the command, the acquire half
        // makes all other threads' writes visible.
        self.done.fetch_add(units, Ordering::AcqRel) + units == self.units
    }

    /// Claims all units, if none is claimed yet. Returns whether it did.
    pub(crate) fn withdraw(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        self.claimed.compare_exchange(0, self.units, relaxed, relaxed).is_ok()
    }

    /// Claims all units that are left, and returns their number.
    pub(crate) fn give_up(&self) -> u64 {
        let claimed = self.claimed.swap(self.units, Ordering::Relaxed);
        self.units.saturating_sub(claimed)
    }

    /// Takes up to `wanted` units of `part`, or of the next part that has some. There always is one for units that
    /// were claimed, since no more are taken than were claimed: a part that was empty stays empty, so one look at
    /// each is enough.
    fn take(&self, part: &mut u64, wanted: u64) -> Option<(u64, u64)> {
        for _ in 0..self.parts {
            let start = *part * self.size;
            let size = self.size.min(self.units - start);
            let taken = &self.taken[*part as usize];
            // Only those add that have seen units left, so it does not overflow however many threads come.
            if taken.load(Ordering::Relaxed) < size {
                let before = taken.fetch_add(wanted, Ordering::Relaxed);
                if before < size {
                    return Some((start + before, wanted.min(size - before)));
                }
            }
            *part = (*part + 1) % self.parts;
        }
        None
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// The ranges of the claims that a thread on processor `place` makes until none is left.
    fn ranges(claims: &Claims, place: usize, wanted: u64) -> Vec<Vec<(u64, u64)>> {
        let mut part = claims.part_of(|| place);
        let made = std::iter::from_fn(|| claims.claim(wanted));
        made.map(|claim| claims.ranges(claim, &mut part).collect()).collect()
    }

    #[test]
    fn there_are_parts_if_all_threads_come_in_time() {
        assert_eq!(parts(None, 16), 16);
        assert_eq!(parts(Some(2 * WORTH_A_PART), 1), 1);
        let ticks = Some(4 * (WORTH_A_PART + 4 * LATE));
        assert_eq!([2, 4, 5, 16].map(|threads| parts(ticks, threads)), [2, 4, 1, 1]);
    }

    #[test]
    fn a_thread_begins_in_its_processors_part_and_goes_on_in_the_next_ones() {
        let work = Claims::new(10, 3);
        let made = ranges(&work, 4, 3);
        assert_eq!(made, [vec![(4, 3)], vec![(7, 1), (8, 2)], vec![(0, 3)], vec![(3, 1)]]);
        assert!(work.exhausted());
    }

    #[test]
    fn the_units_of_one_part_are_claimed_in_their_order() {
        assert_eq!(ranges(&Claims::new(7, 1), 5, 3), [[(0, 3)], [(3, 3)], [(6, 1)]]);
    }

    #[test]
    fn each_part_has_a_unit() {
        let few = Claims::new(3, 16);
        assert_eq!(ranges(&few, 1, 9), [[(1, 1), (2, 1), (0, 1)]]);
        // Three parts of two; the last of four parts would have none.
        let odd = Claims::new(5, 4);
        assert_eq!(ranges(&odd, 2, 9), [[(4, 1), (0, 2), (2, 2)]]);
        let many = Claims::new(1000, 1000);
        assert_eq!(ranges(&many, 0, 1000)[0].len(), MOST_PARTS);
    }

    #[test]
    fn threads_of_one_processor_begin_in_different_parts() {
        let work = Claims::new(12, 3);
        for begins in [1, 2, 0, 1] {
            let mut part = work.part_of(|| 4);
            assert_eq!(part, begins);
            let claim = work.claim(1).expect("some are left");
            assert_eq!(work.ranges(claim, &mut part).count(), 1);
        }
    }

    #[test]
    fn what_was_given_up_is_not_claimed() {
        let work = Claims::new(10, 2);
        let first = work.claim(2).expect("all are left");
        assert!(first.starts() && !work.withdraw());
        assert_eq!(work.give_up(), 8);
        assert_eq!(work.give_up(), 0);
        assert_eq!(work.claim(2), None);
        assert_eq!(work.ranges(first, &mut 1).collect::<Vec<_>>(), [(5, 2)]);
        let work = Claims::new(10, 2);
        assert!(work.withdraw());
        assert_eq!(work.claim(1), None);
    }

    #[test]
    fn several_threads_claim_each_unit_once() {
        const THREADS: usize = 4;
        for (units, parts) in [(1000, 3), (1001, 4), (5, 4), (1 << 14, 2), (999, 1)] {
            let (work, barrier) = (Claims::new(units, parts), Barrier::new(THREADS));
            let made: Vec<_> = thread::scope(|scope| {
                let thread = |place: usize| {
                    let (work, barrier) = (&work, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        ranges(work, place, 1 + place as u64)
                    })
                };
                let threads: Vec<_> = (0..THREADS).map(thread).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            let mut seen = vec![0; units as usize];
            let all = made.iter().flatten().flat_map(|(first, count)| *first..first + count);
            all.for_each(|unit| seen[unit as usize] += 1);
            assert!(seen.iter().all(|&times| times == 1), "{units} units, {parts} parts: {seen:?}");
        }
    }
}

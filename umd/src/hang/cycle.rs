// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cycles of waits: each waiter waits for a signal that only the next one would make.

use super::waiter::Waiter;

/// The waiters that still have to write at least `value` to a cell.
pub fn signallers(waiters: &[Waiter], address: u64, value: u64) -> Vec<usize> {
    (0..waiters.len()).filter(|&i| waiters[i].signals(address, value)).collect()
}

/// The first cycle, in the order of its waits.
pub fn find(waiters: &[Waiter]) -> Option<Vec<usize>> {
    // The waiter that each one waits for, if only parked ones could signal it.
    let next: Vec<Option<usize>> = waiters
        .iter()
        .map(|waiter| {
            let (address, value) = waiter.parked()?;
            let helpers = signallers(waiters, address, value);
            let stuck = helpers.iter().all(|&i| waiters[i].parked().is_some());
            helpers.first().copied().filter(|_| stuck)
        })
        .collect();
    // Each walk marks the waiters that it visits; a walk that reaches its own mark has found a cycle.
    let mut walked = vec![usize::MAX; waiters.len()];
    for start in 0..waiters.len() {
        let (mut path, mut at) = (Vec::new(), Some(start));
        while let Some(i) = at.filter(|&i| walked[i] == usize::MAX) {
            walked[i] = start;
            path.push(i);
            at = next[i];
        }
        if let Some(first) = at.filter(|&i| walked[i] == start) {
            return path.iter().position(|&i| i == first).map(|from| path.split_off(from));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::waiter::{Origin, Step, Waiter};
    use super::*;

    /// A waiter that waits for a cell, unless `waits` is 0, and would then write to others.
    fn waiter(waits: u64, writes: &[(u64, u64)]) -> Waiter {
        let mut steps = Vec::new();
        if waits != 0 {
            steps.push(Step::Wait { address: waits, value: 1, origin: Origin::default() });
        }
        steps.extend(writes.iter().map(|&(address, value)| Step::Write { address, value }));
        Waiter::new(String::new(), (waits != 0).then_some((waits, 1)), steps)
    }

    #[test]
    fn a_cycle_is_found_behind_a_tail_and_in_its_order() {
        let waiters = [
            waiter(10, &[(99, 1)]),
            waiter(30, &[(10, 1)]),
            waiter(10, &[(20, 1)]),
            waiter(20, &[(30, 1)]),
        ];
        assert_eq!(find(&waiters), Some(vec![1, 3, 2]));
        assert_eq!(signallers(&waiters, 10, 1), [1]);
    }

    #[test]
    fn a_waiter_may_wait_for_itself() {
        assert_eq!(find(&[waiter(10, &[(10, 1)])]), Some(vec![0]));
    }

    #[test]
    fn a_chain_and_a_value_that_is_too_low_are_no_cycle() {
        assert_eq!(find(&[waiter(10, &[(20, 1)]), waiter(20, &[(30, 1)])]), None);
        assert_eq!(find(&[waiter(10, &[(20, 1)]), waiter(20, &[(10, 0)])]), None);
    }

    #[test]
    fn who_can_still_be_helped_is_in_no_cycle() {
        let waiters = [waiter(10, &[(20, 1)]), waiter(20, &[(10, 1)]), waiter(0, &[(10, 1)])];
        assert_eq!(find(&waiters), None);
    }

    #[test]
    fn what_comes_before_the_wait_is_done() {
        let steps = vec![
            Step::Write { address: 10, value: 1 },
            Step::Wait { address: 10, value: 1, origin: Origin::default() },
        ];
        let waiter = Waiter::new(String::new(), Some((10, 1)), steps);
        assert_eq!(find(&[waiter]), None);
    }
}

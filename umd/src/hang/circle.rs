// SPDX-License-Identifier: MIT OR Apache-2.0
//! Circles of waits: each party waits for what only the next one would signal.

use super::party::Party;

/// The parties that are still to write at least `value` to a cell.
pub fn signallers(parties: &[Party], address: u64, value: u64) -> Vec<usize> {
    (0..parties.len()).filter(|&i| parties[i].signals(address, value)).collect()
}

/// The first circle, in the order of its waits.
pub fn find(parties: &[Party]) -> Option<Vec<usize>> {
    // Whom each waits for, if only parked ones could help it.
    let next: Vec<Option<usize>> = parties
        .iter()
        .map(|party| {
            let (address, value) = party.parked()?;
            let helpers = signallers(parties, address, value);
            let stuck = helpers.iter().all(|&i| parties[i].parked().is_some());
            helpers.first().copied().filter(|_| stuck)
        })
        .collect();
    // Each start belongs to one walk; a walk that meets itself has found a circle.
    let mut walked = vec![usize::MAX; parties.len()];
    for start in 0..parties.len() {
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
    use super::super::party::{Origin, Party, Step};
    use super::*;

    /// A party that waits for a cell, if not for 0, and would then write to others.
    fn party(waits: u64, writes: &[(u64, u64)]) -> Party {
        let mut steps = Vec::new();
        if waits != 0 {
            steps.push(Step::Wait { address: waits, value: 1, origin: Origin::default() });
        }
        steps.extend(writes.iter().map(|&(address, value)| Step::Write { address, value }));
        Party::new(String::new(), (waits != 0).then_some((waits, 1)), steps)
    }

    #[test]
    fn a_circle_is_found_behind_a_tail_and_in_its_order() {
        let parties = [
            party(10, &[(99, 1)]),
            party(30, &[(10, 1)]),
            party(10, &[(20, 1)]),
            party(20, &[(30, 1)]),
        ];
        assert_eq!(find(&parties), Some(vec![1, 3, 2]));
        assert_eq!(signallers(&parties, 10, 1), [1]);
    }

    #[test]
    fn a_party_may_wait_for_itself() {
        assert_eq!(find(&[party(10, &[(10, 1)])]), Some(vec![0]));
    }

    #[test]
    fn a_chain_and_a_value_that_is_too_low_are_no_circles() {
        assert_eq!(find(&[party(10, &[(20, 1)]), party(20, &[(30, 1)])]), None);
        assert_eq!(find(&[party(10, &[(20, 1)]), party(20, &[(10, 0)])]), None);
    }

    #[test]
    fn who_can_still_be_helped_is_in_no_circle() {
        let parties = [party(10, &[(20, 1)]), party(20, &[(10, 1)]), party(0, &[(10, 1)])];
        assert_eq!(find(&parties), None);
    }

    #[test]
    fn what_comes_before_the_wait_is_done() {
        let steps = vec![
            Step::Write { address: 10, value: 1 },
            Step::Wait { address: 10, value: 1, origin: Origin::default() },
        ];
        let party = Party::new(String::new(), Some((10, 1)), steps);
        assert_eq!(find(&[party]), None);
    }
}

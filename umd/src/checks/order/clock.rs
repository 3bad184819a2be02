// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vector clocks over *chains*: sequences of executions each of which comes after the one before it.

/// For each chain the number of its executions that are complete. Chains that are not in it: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(Vec<(u32, u32)>);

impl Clock {
    /// Whether the execution with this number of a chain is complete.
    pub fn holds(&self, chain: u32, tick: u32) -> bool {
        match self.0.binary_search_by_key(&chain, |it| it.0) {
            Ok(at) => self.0[at].1 >= tick,
            Err(_) => false,
        }
    }

    /// Adds an execution, and with it those before it in its chain.
    pub fn add(&mut self, chain: u32, tick: u32) {
        match self.0.binary_search_by_key(&chain, |it| it.0) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(tick),
            Err(at) => self.0.insert(at, (chain, tick)),
        }
    }

    /// Whether it holds all that the other one holds.
    pub fn covers(&self, other: &Self) -> bool {
        other.0.len() <= self.0.len()
            && other.0.iter().all(|&(chain, tick)| self.holds(chain, tick))
    }

    /// Adds all that the other one holds.
    pub fn join(&mut self, other: &Self) {
        if self.covers(other) {
            return;
        }
        let mut joined = Vec::with_capacity(self.0.len().max(other.0.len()));
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            joined.push(match (a.peek(), b.peek()) {
                (Some(&&x), Some(&&y)) if x.0 == y.0 => {
                    a.next();
                    b.next();
                    (x.0, x.1.max(y.1))
                }
                (Some(&&x), Some(&&y)) if x.0 < y.0 => {
                    a.next();
                    x
                }
                (_, Some(&&y)) => {
                    b.next();
                    y
                }
                (Some(&&x), None) => {
                    a.next();
                    x
                }
                (None, None) => break,
            });
        }
        self.0 = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_clock_holds_what_either_held() {
        let mut a = Clock::default();
        a.add(1, 5);
        a.add(7, 2);
        let mut b = Clock::default();
        b.add(0, 1);
        b.add(7, 3);
        b.add(9, 9);
        a.join(&b);
        for (chain, tick) in [(0, 1), (1, 5), (7, 3), (9, 9)] {
            assert!(a.holds(chain, tick) && !a.holds(chain, tick + 1), "chain {chain}");
        }
        assert!(!a.holds(2, 1));
        let before = a.clone();
        a.join(&b);
        assert_eq!(a, before);
    }
}

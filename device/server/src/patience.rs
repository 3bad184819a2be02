// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time limits that a pause of the machine, or of this process, does not use up.

use std::time::{Duration, Instant};

/// The longest wait between two looks at the clock.
const STEP: Duration = Duration::from_millis(250);

/// A time limit for somebody else's answer, kept by short waits.
///
/// A machine that goes to sleep stops its processes together, and the clock runs on for a while. When they go on,
/// the limit of a single long wait has passed before the other process could run. So each wait counts for twice a
/// step at most, however long it took.
pub struct Patience {
    left: Duration,
    seen: Instant,
}

impl Patience {
    /// Begins now.
    pub fn new(limit: Duration) -> Self {
        Self { left: limit, seen: Instant::now() }
    }

    /// The time to wait until the next call; zero once the limit is reached.
    pub fn step(&mut self) -> Duration {
        let now = Instant::now();
        self.count(now - self.seen);
        self.seen = now;
        self.left.min(STEP)
    }

    fn count(&mut self, passed: Duration) {
        self.left = self.left.saturating_sub(passed.min(2 * STEP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pause_counts_as_a_short_one() {
        let mut patience = Patience::new(Duration::from_secs(4));
        patience.count(Duration::from_secs(3600));
        assert_eq!(patience.left, Duration::from_secs(4) - 2 * STEP);
    }

    #[test]
    fn waits_add_up_to_the_limit() {
        let mut patience = Patience::new(Duration::from_secs(4));
        for _ in 0..16 {
            assert!(!patience.left.is_zero());
            patience.count(STEP);
        }
        assert!(patience.step().is_zero());
    }
}

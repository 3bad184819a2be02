// SPDX-License-Identifier: GPL-2.0
//! The offset between the device's clock and the kernel's.
//!
//! Both run at the same rate (`device/SPEC.md`, chapter 11), so one number relates them: how far the
//! device's clock is ahead. A read of its register is as uncertain as the read is long, and on a busy
//! machine that may be long. So the number is measured carefully once, and kept until a later read
//! contradicts it: all times are then converted alike.

use kernel::prelude::*;
use kernel::sync::{new_mutex, Mutex};
use tally_uapi::ioctl::ClockPair;

use crate::raw::time::monotonic_ns;

/// Reads of the clock in one measurement.
const ROUNDS: usize = 16;

/// See the module.
#[pin_data]
pub(crate) struct Clock {
    /// The device's clock minus ours, once it was measured.
    #[pin]
    ahead: Mutex<Option<i64>>,
}

/// A read of the device's clock between two reads of ours.
#[derive(Clone, Copy)]
struct Sample {
    before: i64,
    ticks: i64,
    after: i64,
}

impl Sample {
    fn take(read: &impl Fn() -> Result<u64>) -> Result<Self> {
        let before = monotonic_ns();
        let ticks = read()? as i64;
        Ok(Self {
            before,
            ticks,
            after: monotonic_ns(),
        })
    }

    /// The time between the two reads of our clock.
    fn width(&self) -> i64 {
        self.after.wrapping_sub(self.before)
    }

    /// Whether the device's clock can have been ahead by `ahead`.
    fn allows(&self, ahead: i64) -> bool {
        (self.before..=self.after).contains(&self.ticks.wrapping_sub(ahead))
    }

    /// The device's clock minus ours, if the read happened in the middle.
    fn ahead(&self) -> i64 {
        self.ticks
            .wrapping_sub(self.before.wrapping_add(self.width() / 2))
    }

    /// The moment on both clocks.
    fn pair(&self, ahead: i64) -> ClockPair {
        let host_ns = self.ticks.wrapping_sub(ahead) as u64;
        ClockPair {
            host_ns,
            device_ticks: self.ticks as u64,
        }
    }
}

impl Clock {
    /// An offset that was not measured yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self { ahead <- new_mutex!(None) })
    }

    /// Now, on both clocks. `read` reads the device's.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn now(&self, read: impl Fn() -> Result<u64>) -> Result<ClockPair> {
        let mut known = self.ahead.lock();
        let mut sample = Sample::take(&read)?;
        let ahead = match *known {
            Some(ahead) if sample.allows(ahead) => ahead,
            _ => {
                for _ in 1..ROUNDS {
                    let other = Sample::take(&read)?;
                    if other.width() < sample.width() {
                        sample = other;
                    }
                }
                sample.ahead()
            }
        };
        *known = Some(ahead);
        Ok(sample.pair(ahead))
    }
}

#[kernel::macros::kunit_tests(tally_clock)]
mod tests {
    use super::*;

    /// QUERY CLOCK: "sampled now": between the two reads, and on one line with other pairs.
    #[test]
    fn pairs_lie_within_their_samples_and_convert_alike() {
        let first = Sample {
            before: 100,
            ticks: 1_150,
            after: 200,
        };
        let ahead = first.ahead();
        assert_eq!(ahead, 1_000);
        assert_eq!(
            first.pair(ahead),
            ClockPair {
                host_ns: 150,
                device_ticks: 1_150
            }
        );
        // A long sample, in which the device's register was read near the end.
        let long = Sample {
            before: 300,
            ticks: 1_390,
            after: 400,
        };
        assert!(long.allows(ahead));
        assert_eq!(
            long.pair(ahead),
            ClockPair {
                host_ns: 390,
                device_ticks: 1_390
            }
        );
    }

    /// A read that contradicts the kept offset is noticed.
    #[test]
    fn a_relation_that_cannot_be_is_noticed() {
        let sample = Sample {
            before: 300,
            ticks: 1_390,
            after: 400,
        };
        assert!(sample.allows(990) && sample.allows(1_090));
        assert!(!sample.allows(989) && !sample.allows(1_091));
        let behind = Sample {
            before: 5_000,
            ticks: 10,
            after: 5_010,
        };
        assert!(behind.allows(behind.ahead()));
        assert_eq!(behind.pair(behind.ahead()).host_ns, 5_005);
    }
}

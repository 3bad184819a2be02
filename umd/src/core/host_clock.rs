// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock that Level Zero shows as the host's: CLOCK_MONOTONIC_RAW, in ns.
//!
//! The specification leaves the choice. Intel's driver takes this one, and programs are written against that:
//! Unified Runtime reads it itself when it needs the host's time alone, and compares the two. Everything else
//! in the driver, and the kernel module, counts in CLOCK_MONOTONIC, which runs at a slightly different rate
//! while the system's time is corrected.

use std::sync::atomic::{AtomicI64, Ordering};

use tally_uapi::ioctl::ClockPair;

use crate::core::device::Device;
use crate::error::Result;

/// CLOCK_MONOTONIC_RAW minus CLOCK_MONOTONIC in ns, as last estimated.
///
/// It is kept as long as no sample contradicts it, so times that are converted one after another keep their
/// order and distance. Threads may overwrite each other's estimates; each is as good.
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// The same moment on the host's clock, as Level Zero shows it, and on the device's.
///
/// # Errors
/// Those of [`Device::clock`].
pub fn pair(device: &Device) -> Result<ClockPair> {
    let before = raw_ns();
    let pair = device.clock()?;
    let after = raw_ns();
    let since = |raw: u64| raw.wrapping_sub(pair.host_ns) as i64;
    let offset = agreeing(OFFSET.load(Ordering::Relaxed), since(before), since(after));
    OFFSET.store(offset, Ordering::Relaxed);
    Ok(ClockPair { host_ns: pair.host_ns.wrapping_add_signed(offset), ..pair })
}

/// The value nearest to `estimate` from `least` to `most`. A clock that goes back would make the range empty.
fn agreeing(estimate: i64, least: i64, most: i64) -> i64 {
    estimate.min(most).max(least)
}

/// CLOCK_MONOTONIC_RAW in ns.
fn raw_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux since 2.6.28 and the place is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_moves_only_as_far_as_a_sample_demands() {
        assert_eq!(agreeing(5, 3, 8), 5);
        assert_eq!(agreeing(2, 3, 8), 3);
        assert_eq!(agreeing(9, 3, 8), 8);
    }
}

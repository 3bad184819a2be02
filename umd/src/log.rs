// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log messages on standard error, as `TALLY_LOG` selects them.
//!
//! The library has its own copy of the `log` facade, so an application that logs through the same
//! crate keeps its logger.

use std::fmt::Display;
use std::io::Write;

use tally_uapi::disasm::Line;
use tally_uapi::packet::{Packet, Place};

/// Warns of a call that is wrong but harmless: once per process for each place in the code, since such
/// calls are made often. The call continues.
macro_rules! warn_once {
    ($($text:tt)+) => {{
        static WARNED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !WARNED.swap(true, std::sync::atomic::Ordering::Relaxed) {
            log::warn!($($text)+);
        }
    }};
}
pub(crate) use warn_once;

/// The target of packets, for `TALLY_LOG=packets=trace`.
const PACKETS: &str = "packets";

/// Installs the logger; without a filter nothing is ever formatted.
pub fn start(filter: Option<&str>) {
    let Some(filter) = filter else { return };
    let mut builder = env_logger::Builder::new();
    builder.parse_filters(filter).format(|out, record| {
        let (level, target) = (record.level(), record.target());
        writeln!(out, "tally {level} {target}: {}", record.args())
    });
    // This fails only if a logger is installed already, which serves as well.
    let _ = builder.try_init();
}

/// Whether packets are to be written to the log.
#[inline]
pub fn wants_packets() -> bool {
    log::log_enabled!(target: PACKETS, log::Level::Trace)
}

/// Writes the packets of `owner` as text, with their numbers.
#[cold]
pub fn packets(owner: impl Display, place: Place, packets: impl Iterator<Item = (u64, Packet)>) {
    for (number, packet) in packets {
        let line = Line { packet: &packet, place };
        log::trace!(target: PACKETS, "{owner} {number}: {line}");
    }
}

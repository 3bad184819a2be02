// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages for people, on standard error, where `TALLY_LOG` asks for them.
//!
//! The library has its own copy of the `log` facade, so an application that logs through the same
//! crate keeps its logger.

use std::io::Write;

/// Installs the logger; without a filter nothing is ever formatted.
pub fn start(filter: Option<&str>) {
    let Some(filter) = filter else { return };
    let mut builder = env_logger::Builder::new();
    builder.parse_filters(filter).format(|out, record| {
        let (level, target) = (record.level(), record.target());
        writeln!(out, "tally {level} {target}: {}", record.args())
    });
    // Fails only if there is a logger already, which is as good.
    let _ = builder.try_init();
}

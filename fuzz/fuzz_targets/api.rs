// SPDX-License-Identifier: MIT OR Apache-2.0
//! Level Zero calls through the driver: see `tally_fuzz::calls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tally_fuzz::calls(data));

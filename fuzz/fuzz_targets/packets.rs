// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets through the device: see `tally_fuzz::packets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tally_fuzz::packets(data));

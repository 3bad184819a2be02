// SPDX-License-Identifier: MIT OR Apache-2.0
//! SPIR-V through the front end: see `tally_fuzz::spirv`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tally_fuzz::spirv(data));

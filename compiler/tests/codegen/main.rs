// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiled code agrees with the program: kernels are compiled from OpenCL C through SPIR-V to native
//! code, run in this process, and compared with Rust.

mod addresses;
mod alignment;
mod async_copy;
mod atomics;
mod axis;
mod blob;
mod bounds;
mod checks;
mod coverage;
mod debug;
mod diff;
mod divide;
mod faults;
mod flat;
mod float_modes;
mod gathers;
mod globals;
mod golden;
mod graphs;
mod groups;
mod guarded;
mod halves;
mod harness;
mod images;
mod joined;
mod kernels;
mod lines;
mod maths;
mod matrices;
mod named_barriers;
mod narrow;
mod nests;
mod numbers;
mod parted;
mod passes;
mod printf;
mod promises;
mod quotients;
mod races;
mod races_random;
mod races_rows;
mod reference;
mod rows;
#[path = "../support/spirv.rs"]
mod spirv;
mod stack;
mod strips;
mod sums;
mod transpose;
mod uneven;
mod untyped;
mod whole;
mod widen;
mod work;

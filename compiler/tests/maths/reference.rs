// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that the C library computes exactly.

// SAFETY: these are the C standard's functions with their prototypes, and read and write nothing
// but numbers.
unsafe extern "C" {
    pub safe fn fmod(x: f64, y: f64) -> f64;
    pub safe fn ldexp(x: f64, n: i32) -> f64;
    pub safe fn logb(x: f64) -> f64;
    pub safe fn nextafter(x: f64, y: f64) -> f64;
    pub safe fn nextafterf(x: f32, y: f32) -> f32;
    pub safe fn remainder(x: f64, y: f64) -> f64;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links libze_tally.so so that it is never unloaded, and so that the functions of a round trip are side by side.
//!
//! Loader 1.8 closes a driver whose zeInit failed and still calls through its tables. Besides, the driver's
//! own threads, thread-local destructors and signal handlers may outlive a dlclose.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=hot.ld");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-T,{}/hot.ld", env!("CARGO_MANIFEST_DIR"));
}

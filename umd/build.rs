// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links libze_tally.so so that it is never unloaded, and with what a round trip runs in one place.
//!
//! Loader 1.8 closes a driver whose zeInit failed and goes on to call through its tables. And the
//! driver's own threads, thread-local destructors and signal handlers may outlive a dlclose.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=hot.ld");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-T,{}/hot.ld", env!("CARGO_MANIFEST_DIR"));
}

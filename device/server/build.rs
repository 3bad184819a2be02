// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the engine process's program, which `tally-gpu` contains.
//!
//! It has to be static and below 4 GiB, at fixed addresses. These are flags for a
//! whole program, which Cargo has only for a whole build. So this is a build of
//! its own, always optimised, since guests wait for its work.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources of the program, relative to the folder `device/`.
const SOURCES: &[&str] =
    &["engine/src", "engine/Cargo.toml", "src", "Cargo.toml", "../uapi/src", "../Cargo.lock"];

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let device = here.parent().unwrap_or(Path::new(".."));
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", device.join(source).display());
    }
    println!("cargo:rerun-if-changed=build.rs");

    let target = env::var("TARGET")?;
    let folder = PathBuf::from(env::var("OUT_DIR")?).join("engine");
    let status = Command::new(env::var("CARGO")?)
        .args(["build", "--quiet", "--release", "--bin", "tally-engine", "--target", &target])
        .arg("--manifest-path")
        .arg(device.join("engine/Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        // The flags apply to the target only, since one is given; procedural macros stay dynamic.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static\x1f-Crelocation-model=static")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        // Lints of this build must not run on that one.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .status()?;
    if !status.success() {
        return Err("the engine process's program was not built".into());
    }
    let program = folder.join(target).join("release/tally-engine");
    println!("cargo:rustc-env=TALLY_ENGINE={}", program.display());
    Ok(())
}

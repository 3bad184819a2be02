// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes SPIR-V for tests: OpenCL C through clang, assembly through spirv-as.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The clang of the same LLVM that the compiler is built with.
fn clang() -> PathBuf {
    if let Some(path) = std::env::var_os("TALLY_CLANG") {
        return path.into();
    }
    let packaged = Path::new("/usr/lib/llvm-22/bin/clang");
    if packaged.exists() { packaged.into() } else { "clang-22".into() }
}

/// A path in the target directory that no other test uses.
fn scratch(extension: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{n}.{extension}", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs a tool that writes `output` and returns what it wrote.
fn run(command: &mut Command, output: &Path) -> Vec<u8> {
    let result = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "{command:?} failed:\n{errors}");
    let bytes = std::fs::read(output).expect("the tool has written its output");
    let _ = std::fs::remove_file(output);
    bytes
}

/// The SPIR-V of OpenCL C in a file of `tests/kernels`, with options such as `-O2`.
#[allow(dead_code, reason = "not every test binary compiles files")]
pub fn compile(file: &str, options: &[&str]) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels").join(file);
    compile_path(&source, options)
}

/// The SPIR-V of OpenCL C given as text.
#[allow(dead_code, reason = "not every test binary compiles text")]
pub fn compile_text(text: &str, options: &[&str]) -> Vec<u8> {
    let source = scratch("cl");
    std::fs::write(&source, text).expect("the target directory is writable");
    let bytes = compile_path(&source, options);
    let _ = std::fs::remove_file(&source);
    bytes
}

fn compile_path(source: &Path, options: &[&str]) -> Vec<u8> {
    let output = scratch("spv");
    let mut command = Command::new(clang());
    command
        .args(["--target=spirv64", "-cl-std=CL3.0", "-Xclang", "-finclude-default-header"])
        .args(options)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&output);
    run(&mut command, &output)
}

/// The module of SPIR-V assembly.
#[allow(dead_code, reason = "not every test binary assembles")]
pub fn assemble(text: &str) -> Vec<u8> {
    let (source, output) = (scratch("spvasm"), scratch("spv"));
    std::fs::write(&source, text).expect("the target directory is writable");
    let mut command = Command::new("spirv-as");
    command.args(["--target-env", "spv1.4", "--preserve-numeric-ids"]);
    let bytes = run(command.arg(&source).arg("-o").arg(&output), &output);
    let _ = std::fs::remove_file(&source);
    bytes
}

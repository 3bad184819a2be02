// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that has more rights than its caller (AT_SECURE): its caller chooses the environment, so the driver
//! takes nothing from it. No program that it names runs, and no file that it names is written.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use tally_tests::check;
use tally_tests::ze::{self, Gpu};
use tally_ze::*;

const SOURCE: &str =
    "kernel void fill(global uint *out) { out[get_global_id(0)] = 3 * get_global_id(0); }";
/// `ZE_MODULE_FORMAT_OCLC` of Intel's driver.
const OPENCL_C: ze_module_format_t = ze_module_format_t(3);
/// Where the child finds the kernel as SPIR-V.
const KERNEL: &str = "TALLY_TEST_KERNEL";
/// The group `nogroup`.
const OTHER_GROUP: u32 = 65534;

/// A folder with a program of each name that the driver might start. Each leaves a file `started`.
fn impostors(folder: &Path) -> PathBuf {
    let programs = folder.join("bin");
    fs::create_dir_all(&programs).expect("a folder");
    let started = folder.join("started");
    for name in [
        "tally-compiler",
        "tally-opencl-c",
        "clang-23",
        "clang-22",
        "clang-21",
        "clang-20",
        "clang",
    ] {
        let program = programs.join(name);
        fs::write(&program, format!("#!/bin/sh\ntouch {}\n", started.display())).expect("a file");
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it is ours");
    }
    programs
}

/// The child is this program as a set-group-ID program of another group, so that root's files stay readable.
#[test]
#[ignore = "needs set-group-ID programs"]
fn the_environment_of_a_program_with_more_rights_counts_for_nothing() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("more-rights");
    // A run before this one may have left it.
    let _ = fs::remove_dir_all(&folder);
    let programs = impostors(&folder);
    let kernel = folder.join("kernel.spv");
    fs::write(&kernel, ze::spirv_from(SOURCE)).expect("a file");
    let program = folder.join("program");
    fs::copy(env::current_exe().expect("Linux knows it"), &program).expect("it can be copied");
    chown(&program, None, Some(OTHER_GROUP)).expect("root may");
    // Changing the group has cleared the bit.
    fs::set_permissions(&program, PermissionsExt::from_mode(0o2755)).expect("it is ours");
    let written = ["trace", "report", "cache"].map(|name| folder.join(name));
    let path = env::var_os("PATH").unwrap_or_default();
    let path = [programs.clone()].into_iter().chain(env::split_paths(&path));
    let output = Command::new("timeout")
        .args(["--foreground", "--signal=KILL", ze::CHILD_SECONDS])
        .arg(&program)
        .args(["--exact", "child_with_more_rights", "--ignored", "--nocapture"])
        .env("TALLY_LIBRARY", ze::library())
        .env(KERNEL, &kernel)
        .env("TALLY_COMPILER", programs.join("tally-compiler"))
        .env("PATH", env::join_paths(path).expect("no colon"))
        .env("TALLY_CACHE", "1")
        .envs(["TALLY_TRACE", "TALLY_CHECK_REPORT", "TALLY_CACHE_DIR"].iter().zip(&written))
        .envs([("TALLY_CHECK", "all"), ("TALLY_LOG", "trace")])
        .output()
        .expect("timeout is there");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert!(!said.contains("ze_tally::"), "no log: {said}");
    for file in written.iter().chain([&folder.join("started")]) {
        assert!(!file.exists(), "{}: {said}", file.display());
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_more_rights() {
    // SAFETY: it takes a number.
    assert_eq!(unsafe { libc::getauxval(libc::AT_SECURE) }, 1, "the file system honours the bit");
    let gpu = Gpu::new();
    let spirv = fs::read(env::var_os(KERNEL).expect("the parent sets it")).expect("a file");
    let module = gpu.module(&spirv, "").expect("the compiler beside the driver builds it");
    let out = gpu.host::<u32>(4);
    gpu.run(module, "fill", [1, 4], &[&out.address().to_ne_bytes()]);
    assert_eq!(out.to_vec(), [0, 3, 6, 9]);
    check!(zeModuleDestroy(module));
    // Intel's front end, a library, may be there.
    let (result, _, log) = gpu.create_module(OPENCL_C, SOURCE.as_bytes(), "");
    let known =
        [ze_result_t::ZE_RESULT_SUCCESS, ze_result_t::ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE];
    assert!(known.contains(&result), "{result:?}: {log}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clang, whose releases since 20 make SPIR-V by themselves.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use crate::options;
use crate::request::{Compiled, Failure, Request};

/// The programs to try, the newest first; the last is what a machine calls its clang.
const NAMES: [&str; 5] = ["clang-23", "clang-22", "clang-21", "clang-20", "clang"];
/// The output, and Intel's extension of sub-groups.
const ITS_OWN: [&str; 10] = [
    "--target=spirv64",
    "-x",
    "cl",
    "-mllvm",
    "--spirv-ext=+SPV_INTEL_subgroups",
    "-O2",
    "-c",
    "-",
    "-o",
    "-",
];
/// The language's functions from the header, in place of the table that clang has for speed: only the header has
/// those of Intel's extensions. With it a small program takes 0.2 s of processor time in place of 0.02 (clang 22,
/// 2026-11-27).
const HEADER: [&str; 3] = ["-cl-no-stdinc", "-Xclang", "-finclude-default-header"];

/// Compiles with clang; nothing if there is none that can. A process that has more rights than its caller starts
/// no program that it finds through its caller's PATH.
pub(crate) fn compile(request: &Request) -> Option<Result<Compiled, Failure>> {
    if tally_compiler_protocol::has_more_rights() {
        return None;
    }
    let words = match options::words(&request.options) {
        Ok(words) => words,
        Err(why) => return Some(Err(Failure::Options(why))),
    };
    NAMES.iter().find_map(|name| {
        let with = |header: &[&str]| {
            let mut command = Command::new(name);
            // Its own options come last, so that the program's don't choose another output.
            command.arg("-cl-std=CL1.2").args(&words).args(ITS_OWN).args(header);
            run(command.arg("-Wno-unused-command-line-argument"), request)
        };
        match with(&[])? {
            // Perhaps a function is only in the header.
            Err(Failure::Refused(_)) => with(&HEADER),
            answer => Some(answer),
        }
    })
}

fn run(command: &mut Command, request: &Request) -> Option<Result<Compiled, Failure>> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| Failure::Died(error.to_string());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(failed(error))),
    };
    // Clang reads all of its input before it writes anything but messages, and those are few by then.
    let input = child.stdin.take()?;
    let written = { input }.write_all(request.source.as_bytes());
    let output = match child.wait_with_output() {
        Ok(output) => output,
        Err(error) => return Some(Err(failed(error))),
    };
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(match written {
        _ if output.status.success() => Ok(Compiled { spirv: output.stdout, log }),
        // Older ones need a translator, which is another program.
        _ if log.contains("llvm-spirv") => return None,
        _ if log.contains("unknown argument") => Err(Failure::Options(log)),
        Err(error) if log.is_empty() => Err(failed(error)),
        _ => Err(Failure::Refused(log)),
    })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clang, whose releases since 20 make SPIR-V by themselves.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use super::options;
use super::request::{Compiled, Failure, Request};

/// The programs to try, the newest first; the last is what a machine calls its clang.
const NAMES: [&str; 5] = ["clang-23", "clang-22", "clang-21", "clang-20", "clang"];
/// The output, the language's own functions, and Intel's extension of sub-groups. Its functions are only in the
/// header as text, in place of which clang takes a table that it has for speed.
const ITS_OWN: [&str; 14] = [
    "--target=spirv64",
    "-x",
    "cl",
    "-cl-no-stdinc",
    "-Xclang",
    "-finclude-default-header",
    "-mllvm",
    "--spirv-ext=+SPV_INTEL_subgroups",
    "-O2",
    "-c",
    "-",
    "-o",
    "-",
    "-Wno-unused-command-line-argument",
];

/// Compiles with clang; nothing if there is none that can.
pub(super) fn compile(request: &Request) -> Option<Result<Compiled, Failure>> {
    let words = match options::words(&request.options) {
        Ok(words) => words,
        Err(why) => return Some(Err(Failure::Options(why))),
    };
    // Its own options come last, so that the program's don't choose another output.
    NAMES.iter().find_map(|name| {
        let mut command = Command::new(name);
        command.arg("-cl-std=CL1.2").args(&words).args(ITS_OWN);
        run(command, request)
    })
}

fn run(mut command: Command, request: &Request) -> Option<Result<Compiled, Failure>> {
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

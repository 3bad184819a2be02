// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-run --debug gdb`: scripted sessions with the kernels of `tests/debugger/steps.cl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tally_tests::ze;

fn folder() -> PathBuf {
    ze::file("debugger")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The program and its kernels.
fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debugger");
        fs::create_dir_all(&out).expect("a folder for what is built");
        let (program, kernels) = (out.join("steps"), out.join("steps.spv"));
        let sources = [folder().join("steps.c"), folder().join("../checks/wrong.c")];
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-g", "-O0", "-Wall", "-Wextra", "-Werror"]).args(&sources);
        run(gcc.arg("-o").arg(&program).arg("-lze_loader"));
        let mut spirv = Command::new(folder().join("../../scripts/spirv-lines"));
        spirv.arg(folder().join("steps.cl")).arg("-o").arg(&kernels);
        run(spirv.args(["-O0", "-fno-discard-value-names"]));
        (program, kernels)
    })
}

/// The place of the line of the kernels that ends with a comment, as gdb takes it.
fn line(comment: &str) -> String {
    let text = fs::read_to_string(folder().join("steps.cl")).expect("it can be read");
    let found = text.lines().position(|line| line.ends_with(&format!("// {comment}")));
    format!("steps.cl:{}", found.expect("a line has the comment") + 1)
}

/// gdb's answers to commands about one of the programs.
fn session(program: &str, commands: &[&str]) -> String {
    let (path, kernels) = built();
    let mut run_gdb = Command::new("timeout");
    run_gdb.args(["--signal=KILL", "600"]).arg(ze::beside("tally-run").expect("it is built"));
    run_gdb.args(["--debug", "gdb", "-nx", "-batch", "-ex", "set confirm off"]);
    for command in commands {
        run_gdb.args(["-ex", command]);
    }
    run_gdb.arg("--args").arg(path).arg(kernels).arg(program).env("TALLY_CACHE", "0");
    run_gdb.env("DEBUGINFOD_URLS", "");
    run(&mut run_gdb)
}

/// Each of these is said, one behind the other.
fn says(said: &str, wanted: &[&str]) {
    let mut rest = said;
    for text in wanted {
        let Some(at) = rest.find(text) else { panic!("{text:?} is missing in\n{said}") };
        rest = &rest[at + text.len()..];
    }
}

#[test]
fn a_breakpoint_waits_for_its_line_and_for_a_work_item() {
    let condition = format!("break {} if global_id[0] == 20", line("in scale"));
    let said = session(
        "scale",
        &[
            &condition,
            "run",
            "print global_id",
            "print local_id[0]",
            "print group_id[0]",
            "backtrace",
        ],
    );
    says(
        &said,
        &[
            "Breakpoint 1, ",
            "scale (a=0x",
            "n=32",
            "$1 = {20, 0, 0}",
            "$2 = 4",
            "$3 = 1",
            "#0  ",
            "steps.cl:",
        ],
    );
}

#[test]
fn variables_have_the_values_that_the_line_gave_them() {
    let at = format!("break {} if i == 7", line("behind the call"));
    let said = session(
        "scale",
        &[
            &at,
            "run",
            "print i",
            "print n",
            "print v",
            "print a[7]",
            "info locals",
            "delete",
            "continue",
        ],
    );
    let wanted = ["$1 = 7", "$2 = 32", "$3 = 15", "$4 = 7.5", "i = 7", "v = 15", "scaled: 63 32.5"];
    says(&said, &wanted);
}

#[test]
fn steps_lead_into_functions_and_back() {
    let at = format!("break {} if global_id[0] == 3", line("in scale"));
    let said = session(
        "scale",
        &[
            &at,
            "run",
            "next",
            "next",
            "step",
            "backtrace 2",
            "print x",
            "next",
            "print result",
            "finish",
            "next",
        ],
    );
    says(
        &said,
        &[
            "if (i < n)",
            "v = twice(v);",
            "twice",
            "#0  twice",
            "#1",
            "scale (a=0x",
            "$1 = 3.5",
            "$2 = 7",
            "a[i] = v;",
        ],
    );
}

/// Items that stop at a barrier have their variables behind it.
#[test]
fn variables_outlive_barriers() {
    let at =
        format!("break {} if local_id[0] == 15 && group_id[0] == 2", line("behind the barrier"));
    let said = session("rotate", &[&at, "run", "print l", "print next", "delete", "continue"]);
    says(&said, &["$1 = 15", "$2 = 32", "rotated: 1 48"]);
}

/// Breakpoints in a function stop at its first line.
#[test]
fn functions_are_found_by_name() {
    let said =
        session("scale", &["break twice", "run", "print x", "info symbol $pc", "up", "print i"]);
    says(&said, &["twice", "$1 = 0.5", "$2 = 0"]);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-run --debug gdb` and `lldb`: scripted sessions with the kernels of `tests/debugger/`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_tests::ze;

#[path = "debugger/lldb.rs"]
mod lldb;
#[path = "debugger/values.rs"]
mod values;

fn folder() -> PathBuf {
    ze::file("debugger")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program with its kernels, some of which are in SPIR-V's assembly language. `steps-alone` is `steps`
/// without another library that has the debugger's interface, too.
fn built(program: &str, kernels: &str) -> (PathBuf, PathBuf) {
    (built_program(program), built_kernels(kernels))
}

/// The folder for what is built, which one thread does at a time.
fn place() -> (PathBuf, MutexGuard<'static, ()>) {
    static BUILDING: Mutex<()> = Mutex::new(());
    let one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debugger");
    fs::create_dir_all(&out).expect("a folder for what is built");
    (out, one)
}

fn built_program(name: &str) -> PathBuf {
    let (out, _one) = place();
    let program = out.join(name);
    if built_before(&program) {
        return program;
    }
    let alone = name.strip_suffix("-alone");
    let own = format!("{}.c", alone.unwrap_or(name));
    let mut sources = vec![own.as_str(), "../checks/wrong.c"];
    if alone.is_none() {
        sources.push("other_jit.c");
    }
    let sources = sources.into_iter().map(|name| folder().join(name));
    let mut gcc = Command::new("gcc");
    // The program exports names as a library does that it is linked with.
    gcc.arg("-rdynamic");
    gcc.args(["-std=gnu11", "-g", "-O0", "-Wall", "-Wextra", "-Werror"]).args(sources);
    run(gcc.arg("-o").arg(&program).arg("-lze_loader"));
    program
}

fn built_kernels(name: &str) -> PathBuf {
    let (out, _one) = place();
    let kernels = out.join(name).with_extension("spv");
    if built_before(&kernels) {
        return kernels;
    }
    let text = folder().join(name).with_extension("spvasm");
    let mut spirv = match text.exists() {
        true => Command::new("spirv-as"),
        false => Command::new(folder().join("../../scripts/spirv-lines")),
    };
    if text.exists() {
        // Some ids in it are numbers.
        spirv.arg("--preserve-numeric-ids").arg(text);
    } else {
        spirv.arg(folder().join(name).with_extension("cl"));
        spirv.args(["-O0", "-fno-discard-value-names"]);
    }
    run(spirv.arg("-o").arg(&kernels));
    kernels
}

/// Whether this process has built it.
fn built_before(file: &Path) -> bool {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    !BUILT.lock().unwrap_or_else(PoisonError::into_inner).insert(file.to_owned())
}

/// The place of the line of the kernels that ends with a comment, as gdb takes it.
fn line(comment: &str) -> String {
    line_in("steps.cl", comment)
}

fn line_in(file: &str, comment: &str) -> String {
    let text = fs::read_to_string(folder().join(file)).expect("it can be read");
    let found = text.lines().position(|line| line.ends_with(&format!("// {comment}")));
    format!("{file}:{}", found.expect("a line has the comment") + 1)
}

/// gdb's answers to commands about one of the programs.
fn session(program: &str, commands: &[&str]) -> String {
    session_of("steps", "steps", program, commands)
}

/// The same of one of a file's programs, with a file of kernels.
fn session_of(file: &str, kernels: &str, program: &str, commands: &[&str]) -> String {
    let (path, kernels) = built(file, kernels);
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

/// LLVM's library exports the names of the debugger's interface, too.
#[test]
fn the_list_of_code_is_the_drivers_own() {
    let at = format!("break {} if i == 7", line("behind the call"));
    let said = session("scale", &[&at, "run", "print v", "delete", "continue"]);
    says(&said, &["$1 = 15", "scaled: 63 32.5", "the other list is empty"]);
    assert!(!said.contains("has called another"), "{said}");
}

/// The kernels of `source.cl` with OpenCL.DebugInfo.100, and with NonSemantic.Shader.DebugInfo.100.
const SOURCE: [&str; 2] = ["source", "source-shader"];

/// The variables of the source, with their types, as the module's debug information has them; and frames of
/// functions that the front end has inlined.
#[test]
fn variables_and_types_of_the_source_are_shown() {
    let at = format!("break {} if i == 5", line_in("source.cl", "all are known"));
    let commands = [
        &at,
        "run",
        "print i",
        "print n",
        "print p",
        "print points[1]",
        "print letter",
        "print row",
        "print v",
        "set language opencl",
        "print row.yx",
        "set language auto",
        "ptype p",
        "whatis i",
        "info args",
        "delete",
        "continue",
    ];
    let wanted = [
        "lengths (a=0x",
        "$1 = 5",
        "$2 = 4294967280",
        "$3 = {x = -5, place = {15, 20}, state = MOVING}",
        "$4 = {x = -1, place = {3, 4}, state = MOVING}",
        "$5 = 70 'F'",
        "$6 = {15, 20, 5, 1}",
        "$7 = 25",
        "$8 = {20, 15}",
        "type = struct point {",
        "float place[2];",
        "type = count_t",
        "n = 4294967280",
        "lengths: 6 76",
    ];
    for kernels in SOURCE {
        says(&session_of("source", kernels, "lengths", &commands), &wanted);
    }
}

#[test]
fn functions_that_the_front_end_has_inlined_have_frames() {
    let at = format!("break {} if x == 6", line_in("source.cl", "in square"));
    let commands = ["backtrace", "print x", "up", "print p->x", "up", "print i", "print n"];
    let commands = [&[at.as_str(), "run"], &commands[..]].concat();
    let wanted = [
        "#0  square (x=6)",
        "#1  length_of (p=0x",
        "#2  ",
        "lengths (a=0x",
        "$1 = 6",
        "$2 = -2",
        "$3 = 2",
        "$4 = 4294967280",
    ];
    for kernels in SOURCE {
        says(&session_of("source", kernels, "lengths", &commands), &wanted);
    }
}

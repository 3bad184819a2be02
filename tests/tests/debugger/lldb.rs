// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same kernels in LLDB, which has gdb's interface for code that is made at run time, if its setting says so.
//! It looks at one library's list only.

use std::process::Command;

use tally_tests::ze;

use super::{built, line_in, run, says};

/// LLDB's answers to commands about one of the programs of `steps.c`.
fn session(program: &str, commands: &[&str]) -> String {
    let (path, kernels) = built("steps-alone", "steps");
    let mut lldb = Command::new("timeout");
    lldb.args(["--signal=KILL", "600"]).arg(ze::beside("tally-run").expect("it is built"));
    lldb.args(["--debug", "lldb", "--no-lldbinit", "--batch"]);
    lldb.args(["-o", "settings set plugin.jit-loader.gdb.enable on"]);
    lldb.args(["-o", "settings set auto-confirm on"]);
    // Containers may refuse the call that turns it off.
    lldb.args(["-o", "settings set target.disable-aslr off"]);
    for command in commands {
        lldb.args(["-o", command]);
    }
    lldb.arg("--").arg(path).arg(kernels).arg(program).env("TALLY_CACHE", "0");
    lldb.env("DEBUGINFOD_URLS", "");
    run(&mut lldb)
}

/// The command that sets a breakpoint at the line of the kernels that ends with a comment.
fn breakpoint(comment: &str, condition: &str) -> String {
    let place = line_in("steps.cl", comment);
    let (file, line) = place.split_once(':').expect("a file and a line");
    format!("breakpoint set --file {file} --line {line} --condition '{condition}'")
}

#[test]
#[ignore = "needs lldb"]
fn a_breakpoint_waits_for_its_line_and_for_a_work_item() {
    let at = breakpoint("in scale", "global_id[0] == 20");
    let commands =
        [&at, "run", "frame variable global_id[0] local_id[0] group_id[0] n", "thread backtrace"];
    let said = session("scale", &commands);
    let wanted = [
        "no locations (pending)",
        "stop reason = breakpoint 1.1",
        "global_id[0] = 20",
        "local_id[0] = 4",
        "group_id[0] = 1",
        "n = 32",
        "scale(a=0x",
        "n=32) at steps.cl:",
    ];
    says(&said, &wanted);
}

#[test]
#[ignore = "needs lldb"]
fn variables_have_the_values_that_the_line_gave_them() {
    let at = breakpoint("behind the call", "i == 7");
    let commands = [&at, "run", "frame variable i n v a[7]", "breakpoint delete", "continue"];
    let said = session("scale", &commands);
    says(
        &said,
        &["i = 7", "n = 32", "v = 15", "a[7] = 7.5", "scaled: 63 32.5", "exited with status = 0"],
    );
}

#[test]
#[ignore = "needs lldb"]
fn steps_lead_into_functions_and_back() {
    let at = breakpoint("in scale", "global_id[0] == 3");
    let commands = [
        &at,
        "run",
        "thread step-over",
        "thread step-over",
        "thread step-in",
        "frame variable x",
        "thread step-over",
        "frame variable result",
        "thread step-out",
        "frame variable i",
    ];
    let said = session("scale", &commands);
    says(&said, &["twice(x=", "x = 3.5", "result = 7", "scale(a=0x", "i = 3"]);
}

/// Items that stop at a barrier have their variables behind it.
#[test]
#[ignore = "needs lldb"]
fn variables_outlive_barriers() {
    let at = breakpoint("behind the barrier", "local_id[0] == 15 && group_id[0] == 2");
    let commands = [&at, "run", "frame variable l next", "breakpoint delete", "continue"];
    let said = session("rotate", &commands);
    says(&said, &["l = 15", "next = 32", "rotated: 1 48"]);
}

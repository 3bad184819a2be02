// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that the front end has optimised: most of their variables are values, which have a place here only for
//! the debugger, and some are nowhere.

use super::{line_in, says, session_of};

/// gdb's answers about the kernel `means`, at a line that ends with a comment, for one work-item of the first group.
fn at(comment: &str, item: u32, commands: &[&str]) -> String {
    let place = line_in("values.cl", comment);
    let stop = format!("break {place} if l == {item} && own == {}", 10 * item);
    let commands = [&[stop.as_str(), "run"], commands].concat();
    session_of("values", "values", "means", &commands)
}

/// A variable has the value that the line in front gave it, and is nowhere before.
#[test]
fn values_are_known_from_where_they_are_made() {
    let commands = ["print own", "print rounds", "print m", "print a[4]", "info locals"];
    let said = at("own is known", 3, &commands);
    let wanted = ["rounds=2) at", "$1 = 30", "$2 = 2", "$3 = <optimized out>", "$4 = 40", "l = 3"];
    says(&said, &wanted);
    for gone in ["dropped", "next", "p", "k"] {
        says(&said, &[&format!("\n{gone} = <optimized out>\n")]);
    }
}

/// Also behind a barrier, where the item begins again.
#[test]
fn values_outlive_barriers() {
    let said = at("behind the barrier", 2, &["print l", "print own", "print m"]);
    says(&said, &["$1 = 2", "$2 = 20", "$3 = <optimized out>"]);
}

/// Values that change in each round, and parts of structures.
#[test]
fn values_follow_a_loop() {
    let commands = ["print k", "print q", "delete", "continue"];
    let said = at("in the loop", 1, &[&["continue"], &commands[..]].concat());
    says(&said, &["means (a=0x", "$1 = 1", "$2 = {low = 13.75, high = 17.5}", "means: 2.5 337.5"]);
}

#[test]
fn inlined_functions_have_their_values() {
    let stop = format!("break {} if sum == 50", line_in("values.cl", "in mean"));
    let commands = [
        stop.as_str(),
        "run",
        "print sum",
        "info locals",
        "backtrace 3",
        "print p",
        "up",
        "print l",
    ];
    let said = session_of("values", "values", "means", &commands);
    says(
        &said,
        &[
            "$1 = 50",
            "sum = 50",
            "#0  mean (p=...)",
            "#1  means (a=0x",
            "$2 = <optimized out>",
            "$3 = 2",
        ],
    );
}

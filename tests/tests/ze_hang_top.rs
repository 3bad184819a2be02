// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-top`: the queues of a live process.
//!
//! The tests named `child_*` run in a process of their own, which inspects itself.

use std::thread;

use tally_tests::check;
use tally_tests::gate::Gate;
use tally_tests::lists::PATIENCE;
use tally_tests::top::{self, text, top};
use tally_tests::ze::{Gpu, in_child};

/// Parts of the report on the cycle below.
const PARTS: [&str; 9] = [
    "queue ",
    "parked",
    "0 of 1",
    "idle",
    "zeEventHostSynchronize has waited for",
    "waits for the counter at",
    "appended by zeCommandListAppendBarrier, command 1 of regular list",
    "executed by zeCommandQueueExecuteCommandLists",
    "the waits form a cycle: command queue",
];

/// The same in the form for programs.
const JSON: [&str; 6] = [
    r#""state":"parked","counter":0,"reserved":1,"packets":1"#,
    r#""call":"zeEventHostSynchronize","waited_ns":"#,
    r#""kind":"event","index":"#,
    r#""call":{"function":"zeCommandListAppendBarrier","command":1,"list":"regular list"#,
    r#""executed_by":{"function":"zeCommandQueueExecuteCommandLists","command":1"#,
    r#""cycle":["command queue"#,
];

/// "`tally-top` shows the same for a live process": queues with state and counter, host threads that
/// wait, who waits for which value of which counter, recorded by which API call, and the cycle.
#[test]
fn a_live_process_tells_who_waits_for_whom() {
    let said = in_child("child_with_a_circle", &[top::VARIABLE]);
    for part in PARTS.into_iter().chain(["listed: yes"]) {
        assert!(said.contains(part), "no {part:?} in:\n{said}");
    }
    let json: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("json: ")).collect();
    assert_eq!(json.len(), 2, "a line each time:\n{said}");
    for part in JSON {
        assert!(json.iter().all(|line| line.contains(part)), "no {part:?} in:\n{said}");
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_circle() {
    let gpu = Gpu::new();
    let (one, two) = (gpu.cb_event(), gpu.cb_event());
    let (list1, list2) = (gpu.regular(0, true), gpu.regular(0, true));
    let (queue1, queue2, idle) = (gpu.queue(0), gpu.queue(0), gpu.immediate(1, true));
    idle.barrier(None, &[]);
    idle.synchronize();
    // List 1 waits for the host's event, which list 2 signals only behind its wait for list 1.
    let gate = Gate::new(&gpu);
    list1.barrier(Some(&one), &[&gate.event]);
    list1.close();
    list2.barrier(Some(&two), &[&one]);
    list2.signal(&gate.event);
    list2.close();
    queue1.execute(&[&list1], None);
    queue2.execute(&[&list2], None);
    let pid = std::process::id().to_string();
    thread::scope(|scope| {
        scope.spawn(|| check!(zeEventHostSynchronize(one.0, PATIENCE)));
        // Until the thread waits and both queues have parked.
        println!("{}", top::until(|shown| PARTS.iter().all(|part| shown.contains(part))));
        let listed = text(&top(&[])).lines().any(|line| line.starts_with(&format!("{pid} ")));
        let json = top(&["--json", "-n", "2", &pid]);
        assert!(json.status.success(), "{}", text(&json));
        text(&json).lines().for_each(|line| println!("json: {line}"));
        println!("listed: {}", if listed { "yes" } else { "no" });
        gate.open();
    });
    check!(zeDeviceSynchronize(gpu.device));
}

/// Without the setting a process does not answer, and the tool says why; it also explains a process
/// that does not exist, and invalid arguments.
#[test]
fn a_process_that_was_not_asked_to_does_not_answer() {
    in_child("child_without_the_setting", &[]);
    let none = top(&["4194304"]);
    assert!(!none.status.success() && text(&none).contains("does not answer"), "{}", text(&none));
    for wrong in
        [&["--everything"][..], &["one"], &["1", "2"], &["1", "-d", "-3"], &["1", "-d", "0"]]
    {
        let output = top(wrong);
        assert!(!output.status.success() && output.stdout.is_empty(), "{wrong:?}");
    }
    assert!(text(&top(&["--json"])).starts_with('['), "a list for programs");
    assert!(text(&top(&["--help"])).contains("Usage: tally-top"));
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_the_setting() {
    let gpu = Gpu::new();
    let list = gpu.immediate(0, true);
    list.barrier(None, &[]);
    list.synchronize();
    let output = top(&[&std::process::id().to_string()]);
    assert!(!output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("TALLY_TOP=1"), "{}", text(&output));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hang report: TALLY_HANG_MS, and the output of a hung process on standard error.
//!
//! The tests named `child_*` run in a process of their own.

use std::time::Duration;

use tally_tests::lists::{Event, List};
use tally_tests::top;
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check};
use tally_ze::*;

const NO_FLAGS: ze_event_pool_flags_t = ze_event_pool_flags_t::empty();
/// Longer than `LIMIT`, in ns.
const TIMEOUT: u64 = 2_000_000_000;
/// The children begin to wait when their queues have parked.
const LIMIT: &str = "500";
/// A child prints this before it releases its queues: later waits end, if slowly on a busy machine.
const OVER: &str = "the hang is over";

/// The lines of the report. The child prints handles as `name: handle`, and in the lines each handle is
/// replaced by its name.
fn report(test: &str) -> Vec<String> {
    let said = ze::in_child(test, &[("TALLY_HANG_MS", LIMIT), top::VARIABLE]);
    let names: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("name ")).collect();
    let during = said.lines().take_while(|line| *line != OVER);
    let lines = during.filter_map(|line| line.strip_prefix("tally ERROR hang: "));
    let named = |line: &str| {
        names
            .iter()
            .filter_map(|it| it.split_once(": "))
            .fold(line.to_owned(), |line, (name, handle)| line.replace(handle, name))
    };
    let lines: Vec<String> = lines.map(named).collect();
    assert!(!lines.is_empty(), "{said}");
    lines
}

/// Asserts that some line contains all of these, in this order.
fn has(lines: &[String], parts: &[&str]) {
    let holds = |line: &String| {
        let mut rest = line.as_str();
        parts.iter().all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    };
    assert!(lines.iter().any(holds), "no line with {parts:?} in:\n{}", lines.join("\n"));
}

fn name(name: &str, handle: impl std::fmt::Debug) {
    let text = format!("{handle:?}");
    let handle = text.split(['(', ')']).find(|it| it.starts_with("0x"));
    eprintln!("name {name}: {}", handle.expect("a handle prints as its address"));
}

fn hangs(result: ze_result_t) {
    assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY);
}

/// "For a true cycle [...] Tally tells after a settable time who waits for which value of which
/// counter, recorded by which API call, and where the cycle closes".
#[test]
fn a_circle_is_told_with_its_calls_and_where_it_closes() {
    let lines = report("child_with_a_circle");
    has(
        &lines,
        &[
            "zeCommandQueueSynchronize has waited for",
            "the counter at 0x",
            "of command queue FIRST (engine 0 of group 0) to be at least 1; it is 0",
        ],
    );
    has(&lines, &["  to be signalled by command queue FIRST", "which waits itself"]);
    has(
        &lines,
        &["command queue FIRST", "waits for event 1 of event pool POOL, at 0x", "to be signalled"],
    );
    has(
        &lines,
        &[
            "  appended by zeCommandListAppendMemoryFill, command 2 of regular list COMPUTE, executed by zeCommandQueueExecuteCommandLists, command 1 of command queue FIRST",
        ],
    );
    has(&lines, &["command queue SECOND", "waits for event 0 of event pool POOL"]);
    has(&lines, &["  appended by zeCommandListAppendWaitOnEvents, command 1 of regular list COPY"]);
    has(
        &lines,
        &[
            "the waits form a cycle: command queue FIRST",
            "waits for command queue SECOND",
            "waits for command queue FIRST",
        ],
    );
    has(
        &lines,
        &[
            "  appended by zeCommandQueueExecuteCommandLists, command 1 of command queue THIRD",
            "to let the execution of regular list COMPUTE before this one complete",
        ],
    );
    let waits = lines.iter().filter(|line| line.contains("has waited for")).count();
    assert_eq!(waits, 2, "once for each wait: {}", lines.join("\n"));
}

/// `TALLY_HANG_JSON`: "adds each report to the file, as one line of JSON".
#[test]
fn a_circle_is_told_to_programs() {
    let file = std::env::temp_dir().join(format!("tally-hang-{}.json", std::process::id()));
    let name = file.to_str().expect("plain letters");
    std::fs::write(&file, "what was there\n").expect("a folder for files of a while");
    let variables = [("TALLY_HANG_MS", LIMIT), ("TALLY_HANG_JSON", name), top::VARIABLE];
    let said = ze::in_child("child_with_a_circle", &variables);
    let json = std::fs::read_to_string(&file).expect("it was there before");
    std::fs::remove_file(&file).expect("it is ours");
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "what was there"), "one for each wait: {json}");
    let calls = ["zeCommandQueueSynchronize", "zeEventHostSynchronize"];
    for (line, call) in lines[1..].iter().zip(calls) {
        let whole =
            line.starts_with(r#"{"queues":[{"name":"command queue 0x"#) && line.ends_with('}');
        assert!(whole, "{line}");
        assert!(line.contains(&format!(r#""call":"{call}","waited_ns":"#)), "{line}");
        assert!(line.contains(r#""cycle":["command queue 0x"#), "{line}");
    }
    assert!(said.contains("tally ERROR hang: "), "the text goes to standard error as well: {said}");
}

/// "the timeline shows it": the wait is on the track of its thread, with the whole report.
#[test]
fn the_timeline_shows_a_circle() {
    let file = std::env::temp_dir().join(format!("tally-hang-{}.trace", std::process::id()));
    let name = file.to_str().expect("plain letters");
    let variables = [("TALLY_HANG_MS", LIMIT), ("TALLY_TRACE", name), top::VARIABLE];
    ze::in_child("child_with_a_circle", &variables);
    let trace = std::fs::read_to_string(&file).expect("the child has written it");
    std::fs::remove_file(&file).expect("it is ours");
    let wait = trace.lines().find(|line| line.contains("has waited for"));
    let wait = wait.unwrap_or_else(|| panic!("no wait in {trace}"));
    assert!(wait.contains("zeCommandQueueSynchronize has waited for"), "{wait}");
    assert!(wait.contains("\"dur\":") && wait.contains("the waits form a cycle"), "{wait}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_circle() {
    let gpu = Gpu::new();
    let pool = gpu.pool(2, NO_FLAGS);
    let (one, two) = (pool.event(0), pool.event(1));
    let memory = gpu.host::<u32>(1);
    let (compute, copy) = (gpu.regular(0, true), gpu.regular(1, true));
    compute.set((&memory, 0), 1, None, &[]);
    compute.set((&memory, 0), 2, Some(&one), &[&two]);
    copy.wait(&[&one]);
    copy.signal(&two);
    compute.close();
    copy.close();
    let (first, second) = (gpu.queue(0), gpu.queue(1));
    name("FIRST", first.0);
    name("SECOND", second.0);
    name("COMPUTE", compute.0);
    name("COPY", copy.0);
    name("POOL", pool.0);
    first.execute(&[&compute], None);
    second.execute(&[&copy], None);
    let third = gpu.queue(0);
    name("THIRD", third.0);
    third.execute(&[&compute], None);
    top::until_parked(3);
    hangs(call!(zeCommandQueueSynchronize(first.0, TIMEOUT)));
    hangs(call!(zeEventHostSynchronize(two.0, TIMEOUT)));
    assert_eq!(memory.get(0), 1, "the first command was done");
    eprintln!("{OVER}");
    two.signal();
    first.synchronize();
    second.synchronize();
    third.synchronize();
}

/// "a recording never executed is named as such".
#[test]
fn a_list_that_was_never_executed_is_told() {
    let lines = report("child_that_waits_for_a_list_that_was_never_executed");
    has(
        &lines,
        &[
            "immediate list WAITING (engine 0 of group 0) waits for the counter at 0x",
            "of regular list NEVER to be at least",
        ],
    );
    has(&lines, &["  appended by zeCommandListAppendBarrier, command 3 of immediate list WAITING"]);
    has(&lines, &["  nothing that is submitted and still to start signals it"]);
    has(&lines, &["  regular list NEVER would signal it when executed, which it never was"]);
    has(
        &lines,
        &[
            "  appended by zeCommandListAppendWaitOnEvents, command 1 of regular list READER",
            "executed by zeCommandQueueExecuteCommandLists",
        ],
    );
    // After the list is destroyed.
    has(&lines, &["  its list was reset or destroyed before it was executed"]);
    assert!(!lines.iter().any(|line| line.contains("cycle")), "{}", lines.join("\n"));
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_waits_for_a_list_that_was_never_executed() {
    let gpu = Gpu::new();
    let event = gpu.cb_event();
    let never = gpu.regular(0, true);
    never.barrier(Some(&event), &[]);
    never.close();
    let waiting = gpu.immediate(0, true);
    name("NEVER", never.0);
    name("WAITING", waiting.0);
    // Recorded, the wait is an operand of the execution.
    let (reader, queue) = (gpu.regular(0, true), gpu.queue(0));
    name("READER", reader.0);
    reader.wait(&[&event]);
    reader.close();
    queue.execute(&[&reader], None);
    waiting.barrier(None, &[]);
    waiting.barrier(None, &[]);
    waiting.barrier(None, &[&event]);
    top::until_parked(2);
    hangs(call!(zeCommandListHostSynchronize(waiting.0, TIMEOUT)));
    drop(never);
    hangs(call!(zeCommandListHostSynchronize(waiting.0, TIMEOUT)));
}

/// Among equal waits in a recording, the report names the one that its execution has reached.
#[test]
fn what_an_execution_has_done_is_not_told() {
    let lines = report("child_that_waits_twice_for_an_event");
    has(
        &lines,
        &["  appended by zeCommandListAppendWaitOnEvents, command 3 of regular list TWICE"],
    );
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_waits_twice_for_an_event() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let (twice, queue) = (gpu.regular(0, true), gpu.queue(0));
    name("TWICE", twice.0);
    twice.wait(&[&event]);
    twice.reset_event(&event);
    twice.wait(&[&event]);
    twice.close();
    event.signal();
    queue.execute(&[&twice], None);
    top::until_parked(1);
    hangs(call!(zeCommandQueueSynchronize(queue.0, TIMEOUT)));
    event.signal();
    queue.synchronize();
}

/// An event that only the host could signal, also in a list that was not the first to wait for it; and
/// a fence that was passed to no execution.
#[test]
fn an_event_that_nobody_signals_and_an_unused_fence_are_told() {
    let lines = report("child_that_waits_for_the_host");
    has(&lines, &["zeEventHostSynchronize has waited for", "event 3 of event pool POOL"]);
    has(&lines, &["immediate list WAITING", "waits for event 3 of event pool POOL"]);
    has(
        &lines,
        &["  appended by zeCommandListAppendMemoryFill, command 2 of immediate list WAITING"],
    );
    has(&lines, &["  nothing that is submitted and still to start signals it"]);
    has(&lines, &["zeFenceHostSynchronize has waited for", "for a fence"]);
    has(&lines, &["  no lists have been executed with it since it was made or reset"]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_waits_for_the_host() {
    let gpu = Gpu::new();
    let pool = gpu.pool(4, NO_FLAGS);
    let event = pool.event(3);
    let memory = gpu.host::<u32>(1);
    let waiting = gpu.immediate(0, false);
    name("POOL", pool.0);
    name("WAITING", waiting.0);
    waiting.set((&memory, 0), 1, None, &[]);
    waiting.set((&memory, 0), 2, None, &[&event]);
    top::until_parked(1);
    hangs(call!(zeEventHostSynchronize(event.0, TIMEOUT)));
    let queue = gpu.queue(0);
    let fence = queue.fence(ze_fence_flags_t::empty());
    hangs(call!(zeFenceHostSynchronize(fence.0, TIMEOUT)));
    event.signal();
    waiting.synchronize();
}

/// Waits that end in time, and waits with a shorter timeout, are not reported; nor is anything without
/// the setting.
#[test]
fn nothing_is_told_of_waits_that_are_short_or_when_nobody_asks() {
    let silent = |variables: &[(&str, &str)]| {
        let said = ze::in_child("child_that_waits_a_little", variables);
        assert!(!said.contains("hang:"), "{said}");
    };
    silent(&[("TALLY_HANG_MS", "60000")]);
    silent(&[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_waits_a_little() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let list: List = gpu.immediate(0, true);
    list.wait(&[&event]);
    hangs(call!(zeCommandListHostSynchronize(list.0, 100_000_000)));
    std::thread::scope(|scope| {
        scope.spawn(|| list.synchronize());
        std::thread::sleep(Duration::from_millis(100));
        Event::signal(&event);
    });
    check!(zeEventHostReset(event.0));
}

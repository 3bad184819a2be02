// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the reports' text.

use super::*;

const QUEUE: &str = "command queue 0x50 (engine 0 of group 0)";
const OTHER: &str = "immediate list 0xc0 (engine 0 of group 1)";
const LIST: &str = "regular list 0x60";

fn counter(value: u64, present: Option<u64>) -> Awaited {
    let kind = CellKind::Counter { owner: LIST.to_owned() };
    Awaited { cell: Cell { address: 0x2000_0000_0000, kind, present }, value }
}

fn event(value: u64) -> Awaited {
    let kind = CellKind::Event { index: 3, pool: "0x70".to_owned() };
    Awaited { cell: Cell { address: 0x2000_0002_1000, kind, present: Some(0) }, value }
}

fn resets() -> Awaited {
    let kind = CellKind::Resets { index: 3, pool: "0x70".to_owned() };
    Awaited { cell: Cell { address: 0x2000_0002_1008, kind, present: Some(1) }, value: 2 }
}

fn memory() -> Awaited {
    Awaited { cell: Cell { address: 0x7f00, kind: CellKind::Memory, present: None }, value: 9 }
}

fn call(function: &'static str, command: u64, list: &str) -> Call {
    Call { function: function.into(), command, list: list.to_owned() }
}

/// A report with every field that one may have.
fn report() -> Report {
    let queue = |name: &str, state| Queue {
        name: name.to_owned(),
        state,
        counter: 0,
        reserved: 1,
        packets: 2,
        busy_ns: 350_000,
    };
    let by = |queue: &str, state| Signaller { queue: queue.to_owned(), state };
    let executed = Source {
        call: call("zeCommandListAppendBarrier", 1, LIST),
        executed_by: Some(call("zeCommandQueueExecuteCommandLists", 4, QUEUE)),
        after_execution_of: None,
    };
    let turn = Source {
        call: call("zeCommandQueueExecuteCommandLists", 5, OTHER),
        executed_by: None,
        after_execution_of: Some(LIST.to_owned()),
    };
    let lists = vec![
        List { name: LIST.to_owned(), executed: false },
        List { name: "regular list 0x90".to_owned(), executed: true },
    ];
    Report {
        queues: vec![queue(QUEUE, State::Parked), queue(OTHER, State::Stopped)],
        host_waits: vec![
            HostWait {
                thread: 21200,
                call: "zeEventHostSynchronize".into(),
                waited_ns: 1_260_000_000,
                awaited: Some(counter(2, Some(1))),
                signal: Some(Signal::By(vec![by(QUEUE, SignallerState::Runs)])),
            },
            HostWait {
                thread: 21201,
                call: "zeFenceHostSynchronize".into(),
                waited_ns: 500_000_000,
                awaited: None,
                signal: None,
            },
        ],
        parked: vec![
            Parked {
                queue: QUEUE.to_owned(),
                awaited: event(SIGNALLED),
                appended_by: Some(executed),
                signal: Signal::By(vec![
                    by(QUEUE, SignallerState::Itself),
                    by(OTHER, SignallerState::Waits),
                ]),
            },
            Parked {
                queue: OTHER.to_owned(),
                awaited: memory(),
                appended_by: Some(turn),
                signal: Signal::Missing { reason: Reason::NotSubmitted, lists },
            },
            Parked {
                queue: OTHER.to_owned(),
                awaited: event(7),
                appended_by: None,
                signal: Signal::Missing { reason: Reason::Reached, lists: Vec::new() },
            },
            Parked {
                queue: OTHER.to_owned(),
                awaited: resets(),
                appended_by: None,
                signal: Signal::By(vec![by(QUEUE, SignallerState::Waits)]),
            },
            Parked {
                queue: OTHER.to_owned(),
                awaited: counter(5, None),
                appended_by: None,
                signal: Signal::Missing { reason: Reason::ListGone, lists: Vec::new() },
            },
        ],
        cycle: vec![QUEUE.to_owned(), OTHER.to_owned()],
    }
}

/// The part about the queues, which both texts contain.
const PARKED: &str = "\
command queue 0x50 (engine 0 of group 0) waits for event 3 of event pool 0x70, at 0x200000021000, to be signalled
  appended by zeCommandListAppendBarrier, command 1 of regular list 0x60, executed by zeCommandQueueExecuteCommandLists, command 4 of command queue 0x50 (engine 0 of group 0)
  to be signalled by itself, behind this wait
  to be signalled by immediate list 0xc0 (engine 0 of group 1), which waits itself
immediate list 0xc0 (engine 0 of group 1) waits for the memory at 0x7f00, which is not the driver's, to be at least 9
  appended by zeCommandQueueExecuteCommandLists, command 5 of immediate list 0xc0 (engine 0 of group 1), to let the execution of regular list 0x60 before this one complete
  nothing that is submitted and still to start signals it
  regular list 0x60 would signal it when executed, which it never was
  regular list 0x90 would signal it when executed again
immediate list 0xc0 (engine 0 of group 1) waits for event 3 of event pool 0x70, at 0x200000021000, to be at least 7; it is 0
  appended by a call that is not known: its list is too long, or was reset
  it has got there by now
immediate list 0xc0 (engine 0 of group 1) waits for the resets of event 3 of event pool 0x70, at 0x200000021008, to be at least 2; it is 1
  appended by a call that is not known: its list is too long, or was reset
  to be signalled by command queue 0x50 (engine 0 of group 0), which waits itself
immediate list 0xc0 (engine 0 of group 1) waits for the counter at 0x200000000000 of regular list 0x60 to be at least 5
  appended by a call that is not known: its list is too long, or was reset
  its list was reset or destroyed before it was executed
the waits form a cycle: command queue 0x50 (engine 0 of group 0) waits for immediate list 0xc0 (engine 0 of group 1) waits for command queue 0x50 (engine 0 of group 0)
";

#[test]
fn the_lines_of_a_hang() {
    let waits = "\
zeEventHostSynchronize has waited for 1260 ms for the counter at 0x200000000000 of regular list 0x60 to be at least 2; it is 1
  to be signalled by command queue 0x50 (engine 0 of group 0), which does not wait
zeFenceHostSynchronize has waited for 500 ms for a fence
  no lists have been executed with it since it was made or reset
";
    assert_eq!(report().lines().join("\n") + "\n", format!("{waits}{PARKED}"));
    assert!(Report::default().lines().is_empty());
}

#[test]
fn the_table_of_tally_top() {
    let start = "\
queue                                                         state              counter  packets       busy
command queue 0x50 (engine 0 of group 0)                     parked               0 of 1        2     0.3 ms
immediate list 0xc0 (engine 0 of group 1)                   stopped               0 of 1        2     0.3 ms
thread 21200: zeEventHostSynchronize has waited for 1.3 s for the counter at 0x200000000000 of regular list 0x60 to be at least 2; it is 1
thread 21201: zeFenceHostSynchronize has waited for 0.5 s for a fence that is given to no execution
";
    assert_eq!(report().table(), format!("{start}{PARKED}"));
}

#[test]
fn json_is_one_line_that_reads_back() {
    let json = report().to_json();
    assert!(!json.contains('\n'));
    assert_eq!(Report::from_json(&json).expect("its own words"), report());
    assert!(Report::from_json(&json[..json.len() - 1]).is_err());
    assert!(Report::from_json("queue state\n").is_err());
}

/// The fields that programs read. Fields may be added, but none removed.
#[test]
fn json_has_the_fields_of_the_page() {
    let small = Report {
        queues: report().queues.drain(..1).collect(),
        host_waits: report().host_waits.drain(..1).collect(),
        parked: report().parked.drain(..2).collect(),
        cycle: report().cycle,
    };
    let expected = r#"{"queues":[{"name":"command queue 0x50 (engine 0 of group 0)","state":"parked","counter":0,"reserved":1,"packets":2,"busy_ns":350000}],"host_waits":[{"thread":21200,"call":"zeEventHostSynchronize","waited_ns":1260000000,"awaited":{"cell":{"address":"0x200000000000","kind":"counter","owner":"regular list 0x60","present":1},"value":2},"signal":{"by":[{"queue":"command queue 0x50 (engine 0 of group 0)","state":"runs"}]}}],"parked":[{"queue":"command queue 0x50 (engine 0 of group 0)","awaited":{"cell":{"address":"0x200000021000","kind":"event","index":3,"pool":"0x70","present":0},"value":1},"appended_by":{"call":{"function":"zeCommandListAppendBarrier","command":1,"list":"regular list 0x60"},"executed_by":{"function":"zeCommandQueueExecuteCommandLists","command":4,"list":"command queue 0x50 (engine 0 of group 0)"},"after_execution_of":null},"signal":{"by":[{"queue":"command queue 0x50 (engine 0 of group 0)","state":"itself"},{"queue":"immediate list 0xc0 (engine 0 of group 1)","state":"waits"}]}},{"queue":"immediate list 0xc0 (engine 0 of group 1)","awaited":{"cell":{"address":"0x7f00","kind":"memory","present":null},"value":9},"appended_by":{"call":{"function":"zeCommandQueueExecuteCommandLists","command":5,"list":"immediate list 0xc0 (engine 0 of group 1)"},"executed_by":null,"after_execution_of":"regular list 0x60"},"signal":{"missing":{"reason":"not_submitted","lists":[{"name":"regular list 0x60","executed":false},{"name":"regular list 0x90","executed":true}]}}}],"cycle":["command queue 0x50 (engine 0 of group 0)","immediate list 0xc0 (engine 0 of group 1)"]}"#;
    assert_eq!(small.to_json(), expected);
}

#[test]
fn a_wait_may_end_while_a_command_runs_and_when_the_value_is_there() {
    let missing = |reason| Some(Signal::Missing { reason, lists: Vec::new() });
    let mut report = report();
    report.parked.clear();
    report.host_waits.truncate(1);
    report.host_waits[0].signal = missing(Reason::NotSubmitted);
    assert!(report.never_ends());
    report.queues[0].state = State::Running;
    assert!(!report.never_ends());
    report.queues[0].state = State::Idle;
    assert!(report.never_ends());
    report.host_waits[0].signal = missing(Reason::Reached);
    assert!(!report.never_ends());
}

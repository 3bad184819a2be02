// SPDX-License-Identifier: MIT OR Apache-2.0
//! The timeline of `TALLY_TRACE`: the program's calls, and the commands of the device's engines, on one
//! clock.
//!
//! The traced programs are the tests named `child_*`, each in a process of its own.

use tally_tests::check;
use tally_tests::ze::{self, Gpu};
use tally_ze::{ze_event_handle_t, ze_event_pool_flags_t};

/// A slice of a track; times in ns.
#[derive(Clone, Debug)]
struct Slice {
    name: String,
    track: String,
    start: u64,
    end: u64,
}

/// The contents of the file, in the order of start times.
struct Timeline {
    host: Vec<Slice>,
    gpu: Vec<Slice>,
    /// The slices at both ends of the arrows.
    arrows: Vec<(Slice, Slice)>,
}

impl Timeline {
    /// Runs a child with the settings.
    fn of(test: &str) -> Self {
        let name = format!("tally-trace-{}-{test}.json", std::process::id());
        let file = std::env::temp_dir().join(name);
        ze::in_child(test, &[("TALLY_TRACE", file.to_str().expect("plain letters"))]);
        let text = std::fs::read_to_string(&file).expect("the child has written it");
        std::fs::remove_file(&file).expect("it is ours");
        assert!(text.starts_with("[\n{") && text.ends_with("}\n]\n"), "{text}");
        Self::parse(&text)
    }

    /// The driver writes one event per line, and no field twice.
    fn parse(text: &str) -> Self {
        let of = |process: &str, kind: &str| -> Vec<&str> {
            let is = |line: &&str| field(line, "pid") == process && field(line, "ph") == kind;
            text.lines().filter(is).collect()
        };
        let slices = |process: &str| {
            let names = of(process, "M");
            let track = |line: &str| {
                let own = names.iter().find(|it| field(it, "tid") == field(line, "tid"));
                let args =
                    own.and_then(|it| it.split("\"args\":").nth(1)).expect("each track has a name");
                field(args, "name").to_owned()
            };
            let mut slices: Vec<_> = of(process, "X")
                .into_iter()
                .map(|line| {
                    let start = nanoseconds(field(line, "ts"));
                    let end = start + nanoseconds(field(line, "dur"));
                    Slice { name: field(line, "name").to_owned(), track: track(line), start, end }
                })
                .collect();
            slices.sort_by_key(|slice| slice.start);
            slices
        };
        let (host, gpu) = (slices("1"), slices("2"));
        // The innermost slice of its track at that time.
        let slice = |line: &str| {
            let process = field(line, "pid");
            let at = nanoseconds(field(line, "ts"));
            let names = of(process, "M");
            let own = names.iter().find(|it| field(it, "tid") == field(line, "tid"));
            let name =
                own.and_then(|it| it.split("\"args\":").nth(1)).expect("its track has a name");
            let track = field(name, "name");
            let all = if process == "1" { &host } else { &gpu };
            let is = |it: &&Slice| it.track == track && (it.start..=it.end).contains(&at);
            all.iter().rfind(is).unwrap_or_else(|| panic!("no slice at {at} of {track}")).clone()
        };
        let lines = |kind: &'static str| text.lines().filter(move |it| field(it, "ph") == kind);
        let arrow = |start: &str| {
            let end = lines("f").find(|it| field(it, "id") == field(start, "id"));
            (slice(start), slice(end.expect("each arrow has an end")))
        };
        let arrows = lines("s").map(arrow).collect();
        Self { host, gpu, arrows }
    }

    /// The calls of a function.
    fn calls(&self, function: &str) -> Vec<&Slice> {
        self.host.iter().filter(|slice| slice.name == function).collect()
    }

    /// The commands with a name.
    fn commands(&self, name: &str) -> Vec<&Slice> {
        self.gpu.iter().filter(|slice| slice.name == name).collect()
    }
}

/// The value of a field, without quotation marks; empty if there is none.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let key = format!("\"{name}\":");
    let value = line.split_once(&key).map_or("", |(_, rest)| rest);
    match value.strip_prefix('"') {
        Some(text) => text.split('"').next().unwrap_or_default(),
        None => value.split([',', '}']).next().unwrap_or_default(),
    }
}

/// Reads microseconds with three places as nanoseconds.
fn nanoseconds(text: &str) -> u64 {
    let (whole, rest) = text.split_once('.').expect("three places");
    assert_eq!(rest.len(), 3, "{text}");
    format!("{whole}{rest}").parse().expect("digits")
}

/// Runs 1 and 2 of the kernel on an engine of the first group, with a copy by the second group between
/// them and one after, each waited for.
fn rounds(gpu: &Gpu) {
    let module = gpu.module(&ze::spirv("saxpy"), "").expect("it builds");
    let (x, y) = (gpu.host::<f32>(64), gpu.host::<f32>(64));
    x.fill_with(|_| 1.0);
    y.fill_with(|_| 0.0);
    let copies = gpu.immediate(1, true);
    for round in 1..=2 {
        let (a, n) = (2.0_f32, 64_u32);
        let (x_at, y_at) = (x.address().to_ne_bytes(), y.address().to_ne_bytes());
        gpu.run(module, "saxpy", [8, 8], &[&a.to_ne_bytes(), &x_at, &y_at, &n.to_ne_bytes()]);
        assert_eq!(y.get(63), 2.0 * round as f32);
        copies.copy((&x, 0), (&x, 32), 32, None, &[]);
        copies.synchronize();
    }
}

/// "a timeline of host calls and engine commands", by one clock: each command begins after its append
/// began and ends before the wait for it does, on the track of an engine of its list's group.
#[test]
fn engines_and_calls_share_a_clock() {
    let timeline = Timeline::of("child_that_launches_and_copies");
    let kernels = timeline.commands("saxpy");
    let launches = timeline.calls("zeCommandListAppendLaunchKernel");
    let copies = timeline.commands("copy");
    let appends = timeline.calls("zeCommandListAppendMemoryCopy");
    let waits = timeline.calls("zeCommandListHostSynchronize");
    assert_eq!((kernels.len(), copies.len(), waits.len()), (2, 2, 4), "{:?}", timeline.gpu);
    // In a virtual machine the error of the clock is at most the duration of a read of the other clock.
    let error = if ze::on_kernel_lane() { 1_000_000 } else { 0 };
    for round in 0..2 {
        let two = [
            (kernels[round], launches[round], waits[2 * round], "compute engine"),
            (copies[round], appends[round], waits[2 * round + 1], "copy engine"),
        ];
        for (command, append, wait, engine) in two {
            assert!(append.start <= command.start + error, "{command:?} {append:?}");
            assert!(
                command.start <= command.end && command.end <= wait.end + error,
                "{command:?} {wait:?}"
            );
            assert!(command.track.starts_with(engine), "{command:?}");
        }
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_launches_and_copies() {
    rounds(&Gpu::new());
}

/// A command that waits is not shown as running: it begins after the signal, and later commands that
/// need not wait begin before.
#[test]
fn a_command_that_waits_begins_when_it_may() {
    let timeline = Timeline::of("child_that_waits");
    let signals = timeline.calls("zeEventHostSignal");
    let (fills, copies) = (timeline.commands("fill"), timeline.commands("copy"));
    assert_eq!((signals.len(), fills.len(), copies.len()), (1, 1, 1), "{:?}", timeline.gpu);
    assert!(signals[0].start <= fills[0].start, "{:?} {:?}", signals[0], fills[0]);
    assert!(copies[0].end <= signals[0].start, "{:?} {:?}", signals[0], copies[0]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_waits() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let (event, waits, goes) = (pool.event(0), gpu.immediate(0, true), gpu.immediate(1, true));
    waits.set((&memory, 0), 1, None, &[&event]);
    goes.copy((&memory, 1), (&memory, 1), 1, None, &[]);
    goes.synchronize();
    // Longer than the error of the clocks in a virtual machine.
    std::thread::sleep(std::time::Duration::from_millis(20));
    event.signal();
    waits.synchronize();
}

/// "arrows lead from a signal to the waits that it ended": from the host's signal to the queue that was
/// parked, from that queue's command to the next queue, and from there to the thread that slept. A queue
/// need not have parked when its signal comes, and a wait that begins in that moment has no arrow.
#[test]
fn arrows_lead_from_signals_to_the_waits_that_they_ended() {
    let timeline = Timeline::of("child_that_passes_signals_on");
    let names: Vec<_> = timeline
        .arrows
        .iter()
        .map(|(from, to)| (from.name.as_str(), to.name.as_str(), to.track.contains("waits")))
        .collect();
    let count = |expected| names.iter().filter(|it| **it == expected).count();
    let (by_host, by_fill) = (("zeEventHostSignal", "wait", true), ("fill", "wait", true));
    let to_host = ("copy", "zeEventHostSynchronize", false);
    for expected in [by_host, by_fill, to_host] {
        assert!((1..=ROUNDS).contains(&count(expected)), "{expected:?}: {names:?}");
    }
    let waits = timeline.commands("wait").len();
    assert!(count(by_host) + count(by_fill) <= waits, "{waits}: {names:?}");
    let error = if ze::on_kernel_lane() { 1_000_000 } else { 0 };
    for (from, to) in &timeline.arrows {
        assert!(from.start <= to.end + error, "{from:?} {to:?}");
    }
}

/// The number of times that a signal is passed on, so that queues have parked in some of the rounds.
const ROUNDS: usize = 50;

#[test]
#[ignore = "runs in a child process"]
fn child_that_passes_signals_on() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let pool = gpu.pool(3 * ROUNDS as u32, ze_event_pool_flags_t::empty());
    let (fills, copies) = (gpu.immediate(0, true), gpu.immediate(1, true));
    for round in 0..ROUNDS as u32 {
        let [first, second, third] = [0, 1, 2].map(|i| pool.event(3 * round + i));
        fills.set((&memory, 0), 1, Some(&second), &[&first]);
        copies.copy((&memory, 1), (&memory, 0), 1, Some(&third), &[&second]);
        // SAFETY: takes nothing.
        let thread = unsafe { libc::gettid() };
        // A handle is just an address.
        let handle = first.0.0 as usize;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while state(thread) != Some('S') {
                    std::thread::yield_now();
                }
                check!(zeEventHostSignal(ze_event_handle_t(handle as *mut _)));
            });
            third.synchronize();
        });
    }
}

/// The state of a thread of this process: `S` is sleeping.
fn state(thread: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The commands of a regular list are shown for each execution, within the execution.
#[test]
fn each_execution_of_a_list_is_there() {
    let timeline = Timeline::of("child_that_executes_twice");
    let (calls, fills) = (timeline.commands("call"), timeline.commands("fill"));
    assert_eq!((calls.len(), fills.len()), (2, 4), "{:?}", timeline.gpu);
    for (i, fill) in fills.iter().enumerate() {
        let call = calls[i / 2];
        assert!(call.start <= fill.start && fill.end <= call.end, "{call:?} {fill:?}");
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_executes_twice() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    list.set((&memory, 0), 1, None, &[]);
    list.set((&memory, 1), 2, None, &[]);
    list.close();
    for _ in 0..2 {
        queue.execute(&[&list], None);
        queue.synchronize();
    }
}

/// The timeline is the process's: it has the commands of all its contexts, also of destroyed ones, and
/// none of another process on the same device.
#[test]
fn a_timeline_has_all_of_its_process_and_nothing_else() {
    let other = std::thread::spawn(|| rounds(&Gpu::new()));
    let timeline = Timeline::of("child_with_two_lives");
    other.join().expect("the other program passes");
    let names = |name| timeline.commands(name).len();
    assert_eq!((names("saxpy"), names("copy"), names("fill")), (4, 4, 0), "{:?}", timeline.gpu);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_two_lives() {
    for _ in 0..2 {
        rounds(&Gpu::new());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with mistakes, which the checks must find at their places, and the same programs corrected,
//! for which they must report nothing (`tests/checks/`).
//!
//! Comments in the programs name the expected reports. In a kernel or a host function with the name of
//! a program:
//!
//! ```text
//!   a[i] = 1; //! out-of-bounds                    a report of this rule names this line
//!   a[i] = 1; //! past_the_end: out-of-bounds      the same, in a function of another name
//!   int *a = device_memory(400); //! made          a report names this call as the one that made the memory
//!   release(a); //! freed                          likewise
//!   launch(list, "kernel", ...); //! launched      a report names this call as the one that launched the kernel
//!   s[i] = 1; //! with                             a report names this line as the other place of the mistake
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use tally_tests::ze;

#[path = "wrong_programs/examples.rs"]
mod examples;

/// The exit status of a program in which something was found.
const FOUND: i32 = 99;
/// The time in seconds after which a program counts as hung.
const PATIENCE: &str = "600";

/// An expected report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    /// The source file's name, without its folder.
    file: String,
    line: u64,
    /// A rule, or `made`, `freed` or `launched`.
    what: String,
}

/// The programs of a C file with their kernels, built.
struct Programs {
    program: PathBuf,
    kernels: PathBuf,
}

fn folder() -> PathBuf {
    ze::file("checks")
}

/// Where programs and kernels are built.
fn built() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("checks")
}

/// Variables that keep the code of kernels, by the compiler that makes it: the programs of a file have their module in
/// common. `scripts/test` turns the cache off.
fn cache() -> [(&'static str, PathBuf); 2] {
    [("TALLY_CACHE", "1".into()), ("TALLY_CACHE_DIR", built().join("cache"))]
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_newer(file: &Path, than: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
    time(file).is_none_or(|time_of_file| time(than).is_none_or(|it| time_of_file > it))
}

impl Programs {
    /// Builds them if they are out of date.
    fn build(name: &str, mended: bool) -> Self {
        static BUILDING: Mutex<()> = Mutex::new(());
        let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        let out = built();
        fs::create_dir_all(&out).expect("a folder for what is built");
        let suffix = if mended { "-mended" } else { "" };
        let define: &[&str] = if mended { &["-DMENDED"] } else { &[] };
        let program = out.join(format!("{name}{suffix}"));
        let kernels = out.join(format!("{name}{suffix}.spv"));
        let source = folder().join(name).with_extension("c");
        let shared = [folder().join("wrong.c"), folder().join("wrong.h")];
        if shared.iter().chain([&source]).any(|file| is_newer(file, &program)) {
            let mut gcc = Command::new("gcc");
            gcc.args(["-std=gnu11", "-g", "-O0", "-Wall", "-Wextra", "-Werror"]).args(define);
            // gcc must not refuse their mistakes.
            gcc.args(["-Wno-use-after-free", "-Wno-free-nonheap-object"]);
            run(gcc.arg(&source).arg(&shared[0]).arg("-o").arg(&program).arg("-lze_loader"));
        }
        let source = source.with_extension("cl");
        if is_newer(&source, &kernels) {
            let mut spirv = Command::new(folder().join("../../scripts/spirv-lines"));
            spirv.arg(&source).arg("-o").arg(&kernels).args(["-O1"]).args(define);
            if name == "pointers" {
                spirv.args(["-Xclang", "-cl-ext=+__cl_clang_function_pointers"]);
                spirv.args(["-mllvm", "--spirv-ext=+SPV_INTEL_function_pointers"]);
            }
            run(&mut spirv);
        }
        Self { program, kernels }
    }

    fn names(&self) -> Vec<String> {
        run(&mut Command::new(&self.program)).lines().map(str::to_owned).collect()
    }

    /// Runs one of them; returns the reports and its output.
    ///
    /// `workers`: the number of the device's threads. With one of them the groups run in their order, and of two
    /// accesses that race the same one is always the later one.
    fn run(&self, name: &str, checks: &str, workers: Option<&str>) -> (Vec<Value>, String) {
        let report = self.program.with_extension(format!("{name}.json"));
        let output = Command::new("timeout")
            .args(["--foreground", "--signal=KILL", PATIENCE])
            .arg(ze::beside("tally-run").expect("it is built with the driver"))
            .arg(format!("--check={checks}"))
            .args(["--stacks", &format!("--error-exitcode={FOUND}"), "--report"])
            .arg(&report)
            .arg(&self.program)
            .arg(&self.kernels)
            .arg(name)
            .env("TALLY_LANE", "embedded")
            .envs(cache())
            .envs(workers.map(|workers| ("TALLY_WORKERS", workers)))
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let text =
            fs::read_to_string(&report).unwrap_or_else(|error| panic!("{name}: {error}: {said}"));
        // If the file stays, that is no failure.
        let _ = fs::remove_file(&report);
        let json: Value = serde_json::from_str(&text).expect("a report is JSON");
        let reports = json["reports"].as_array().expect("a list").clone();
        let status = output.status.code();
        let wanted = if reports.is_empty() { 0 } else { FOUND };
        assert_eq!(status, Some(wanted), "{name}: the exit status\n{said}");
        // A context that is not destroyed is the frame's mistake.
        let reports = reports.into_iter().filter(|it| !is_of_the_frame(it)).collect();
        (reports, said)
    }
}

/// Whether a report is about an object of the programs' frame.
fn is_of_the_frame(report: &Value) -> bool {
    let makers = places(&report["call"], "");
    report["rule"] == "not-destroyed" && makers.iter().all(|it| it.file == "wrong.c")
}

/// The expected reports for a program, from the comments of a file.
fn wanted(name: &str, program: &str) -> BTreeSet<Wanted> {
    let mut all = BTreeSet::new();
    for extension in ["c", "cl"] {
        let file = format!("{name}.{extension}");
        let text = fs::read_to_string(folder().join(&file)).expect("it can be read");
        let mut function = "";
        for (number, line) in (1..).zip(text.lines()) {
            let begins = line.strip_prefix("WRONG(").or_else(|| line.strip_prefix("kernel void "));
            if let Some(rest) = begins {
                function = rest.split(['(', ')']).next().unwrap_or("");
            }
            let Some((_, said)) = line.split_once("//! ") else { continue };
            for said in said.split(", ") {
                let (whose, what) = said.split_once(": ").unwrap_or((function, said));
                if whose == program {
                    all.insert(Wanted { file: file.clone(), line: number, what: what.to_owned() });
                }
            }
        }
    }
    all
}

/// The place in a file of the programs' of each function of a call's stack.
fn places(call: &Value, what: &str) -> Vec<Wanted> {
    let frames = call["stack"].as_array().map_or(&[][..], Vec::as_slice);
    let place = |frame: &Value| {
        let (_, place) = frame.as_str()?.rsplit_once(" at ")?;
        let mut parts = place.rsplit('/').next()?.split(':');
        let (file, line) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        Some(Wanted { file, line, what: what.to_owned() })
    };
    frames.iter().filter_map(place).collect()
}

/// The contents of reports: for each the places at which it may be expected, and the calls that it
/// names.
fn found(reports: &[Value]) -> (Vec<Vec<Wanted>>, Vec<Wanted>) {
    let (mut mistakes, mut calls) = (Vec::new(), Vec::new());
    for report in reports {
        let rule = report["rule"].as_str().expect("a rule").to_owned();
        let place = &report["place"];
        if let (Some(file), Some(line)) = (place["file"].as_str(), place["line"].as_u64()) {
            let file = file.rsplit('/').next().unwrap_or(file).to_owned();
            let mut all = vec![Wanted { file, line, what: rule.clone() }];
            // Of two commands either may be the later one.
            if !report["other"].is_null() {
                all.extend(places(&report["call"], &rule));
                all.extend(places(&report["other"], &rule));
            }
            mistakes.push(all);
            calls.extend(places(&report["call"], "launched"));
        } else {
            let maker = &report["memory"]["allocation"]["made"];
            // Where the program itself has accessed memory, or has called.
            let call = match &report["host"] {
                Value::Null if rule == "not-freed" => maker,
                Value::Null => &report["call"],
                host => host,
            };
            let mut all = places(call, &rule);
            if !report["host"].is_null() {
                calls.extend(places(&report["call"], "launched"));
            }
            // It takes two calls.
            all.extend(places(&report["other"], &rule));
            mistakes.push(all);
        }
        let second = &report["second"]["place"];
        if let (Some(file), Some(line)) = (second["file"].as_str(), second["line"].as_u64()) {
            let file = file.rsplit('/').next().unwrap_or(file).to_owned();
            calls.push(Wanted { file, line, what: "with".to_owned() });
        }
        let allocation = &report["memory"]["allocation"];
        calls.extend(places(&allocation["made"], "made"));
        calls.extend(places(&allocation["freed"], "freed"));
    }
    (mistakes, calls)
}

/// Compares the reports with the comments; returns the differences.
fn differences(wanted: &BTreeSet<Wanted>, reports: &[Value]) -> Vec<String> {
    let (mistakes, calls) = found(reports);
    let is_call = |it: &&Wanted| ["made", "freed", "launched", "with"].contains(&it.what.as_str());
    let mut out = Vec::new();
    for it in wanted.iter().filter(is_call).filter(|it| !calls.contains(it)) {
        out.push(format!("no report names the call: {it:?}"));
    }
    for it in wanted.iter().filter(|it| !is_call(it)) {
        if !mistakes.iter().any(|places| places.contains(it)) {
            out.push(format!("not reported: {it:?}"));
        }
    }
    for places in mistakes.iter().filter(|places| !places.iter().any(|it| wanted.contains(it))) {
        out.push(format!("not wanted: {places:?}"));
    }
    out
}

/// Runs all programs of a file, wrong and corrected; only those named by `TALLY_WRONG` if it is set.
fn try_all(name: &str, checks: &str) {
    let (wrong, mended) = (Programs::build(name, false), Programs::build(name, true));
    let only = std::env::var("TALLY_WRONG").ok();
    let names: Vec<String> = wrong
        .names()
        .into_iter()
        .filter(|it| only.as_ref().is_none_or(|only| only == it))
        .collect();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = thread::available_parallelism().map_or(2, |it| it.get().min(4));
    let work = || {
        while let Some(program) = names.get(next.fetch_add(1, Relaxed)) {
            let wanted = wanted(name, program);
            assert!(!wanted.is_empty(), "{program} has no comments");
            let workers = checks.contains("races").then_some("1");
            let (reports, said) = wrong.run(program, checks, workers);
            let mut failed = differences(&wanted, &reports);
            if !failed.is_empty() {
                failed.push(said);
            }
            let (reports, said) = mended.run(program, checks, None);
            if !reports.is_empty() {
                failed.push(format!("mended, and yet:\n{said}"));
            }
            if !failed.is_empty() {
                failures
                    .lock()
                    .expect("no thread panics")
                    .push(format!("{program}: {}", failed.join("\n  ")));
            }
        }
    };
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner().expect("no thread panics");
    assert!(
        failures.is_empty(),
        "{} of {} failed:\n{}",
        failures.len(),
        names.len(),
        failures.join("\n")
    );
}

#[test]
fn wrong_accesses_of_kernels_and_commands_are_told() {
    try_all("memory", "memory");
}

#[test]
fn reads_of_what_nothing_has_written_are_told() {
    try_all("init", "memory,init");
}

#[test]
fn wrong_accesses_to_images_are_told() {
    try_all("images", "memory,init");
}

#[test]
fn mistakes_in_functions_that_pointers_name_are_told() {
    try_all("pointers", "memory,init");
}

#[test]
fn memory_that_is_not_freed_is_told() {
    try_all("leaks", "leaks");
}

#[test]
fn commands_that_nothing_orders_are_told() {
    try_all("order", "races");
}

#[test]
fn recorded_commands_that_nothing_orders_are_told() {
    try_all("recorded", "races");
}

#[test]
#[ignore = "needs protection keys"]
fn accesses_of_the_host_that_nothing_orders_are_told() {
    try_all("host", "races");
}

/// Whether the machine can close memory to some threads alone. Without that the host's accesses are not looked at.
fn has_protection_keys() -> bool {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "ospke")
}

/// A list that was reset is the one that was made first, before the memory.
#[test]
fn a_report_names_the_calls_that_made_the_lists() {
    let programs = Programs::build("recorded", false);
    let (reports, said) = programs.run("a_list_that_was_reset", "races", Some("1"));
    let report = reports.first().unwrap_or_else(|| panic!("a report: {said}"));
    let made = report["memory"]["allocation"]["made"]["number"].as_u64().expect("a number");
    let notes = report["notes"].to_string();
    let calls = notes.split("the list that call ").skip(1);
    let calls: Vec<u64> = calls.filter_map(|it| it.split(' ').next()?.parse().ok()).collect();
    assert!(calls.len() == 2 && calls.iter().all(|&call| call < made), "{made}: {notes}");
}

#[test]
fn accesses_of_kernels_that_nothing_orders_are_told() {
    try_all("races", "races");
}

#[test]
fn barriers_that_not_all_items_reach_are_told() {
    try_all("barriers", "sync");
}

#[test]
fn signals_and_resets_that_nothing_orders_are_told() {
    try_all("sync", "sync");
}

#[test]
fn what_does_not_run_everywhere_is_told() {
    try_all("portable", "portable");
}

/// The files that a program's options name: what is known to be wrong is left out of all, and of the exit
/// status; the rest is SARIF at the place in the kernel.
#[test]
fn suppressions_and_sarif_go_through_a_whole_program() {
    let programs = Programs::build("memory", false);
    let file = |extension: &str| programs.program.with_extension(extension);
    let (known, sarif, json) = (file("known"), file("sarif"), file("json"));
    let run = |suppressed: &str| {
        fs::write(&known, suppressed).expect("it can be written");
        let output = Command::new(ze::beside("tally-run").expect("it is built with the driver"))
            .args(["--check=memory", &format!("--error-exitcode={FOUND}"), "--suppressions"])
            .args([&known, Path::new("--sarif"), &sarif, Path::new("--report"), &json])
            .args([&programs.program, &programs.kernels, Path::new("past_the_end")])
            .env("TALLY_LANE", "embedded")
            .envs(cache())
            .output()
            .expect("it starts");
        let read = |path: &Path| -> Value {
            let text = fs::read_to_string(path).expect("it was written");
            serde_json::from_str(&text).expect("it is JSON")
        };
        (output.status.code(), read(&sarif)["runs"][0]["results"].clone(), read(&json))
    };
    let (status, results, report) = run("use-after-free kernel=past_the_end\n");
    assert_eq!((status, &report["suppressed"]), (Some(FOUND), &Value::from(0)));
    assert_eq!(results[0]["ruleId"], "out-of-bounds", "{results}");
    let place = &results[0]["locations"][0];
    let place = &place["physicalLocation"];
    let uri = place["artifactLocation"]["uri"].as_str().expect("a file");
    assert!(uri.starts_with("file:///") && uri.ends_with("/memory.cl"), "{uri}");
    let lines = wanted("memory", "past_the_end");
    let line = lines.iter().find(|it| it.what == "out-of-bounds").expect("its comment").line;
    assert_eq!(place["region"]["startLine"], line);
    let (status, results, report) =
        run("# known\nout-of-bounds kernel=past_* function=past_the_end\n");
    assert_eq!((status, &results), (Some(0), &Value::Array(Vec::new())));
    assert_eq!(report["reports"], Value::Array(Vec::new()));
    assert_ne!(report["suppressed"], 0);
    for left in [&known, &sarif, &json] {
        // If the file stays, that is no failure.
        let _ = fs::remove_file(left);
    }
}

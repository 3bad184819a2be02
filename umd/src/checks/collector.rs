// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gathers reports: each mistake is printed once, when it is found, and counted. The files are written when the
//! process ends.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::calls;
use super::kernels::Watched;
use super::report::{Report, Rule};
use super::sarif;
use super::suppressions::Suppressions;
use crate::settings;

/// The most reports that are printed in full; further ones are only counted.
const MOST: usize = 1000;

/// The note that some accesses to memory were forgotten.
pub const DROPPED: &str = "some words of memory had more accesses at a time than are remembered: races with the others are not found";

#[derive(Default)]
struct Collector {
    entries: Vec<Entry>,
    known: HashMap<(Rule, Place), usize>,
    suppressions: Suppressions,
    suppressed: u64,
    /// Number of mistakes beyond [`MOST`].
    more: u64,
    notes: Vec<String>,
    started: bool,
}

struct Entry {
    report: Report,
    /// The counter that the kernel increments.
    counts: Option<(Arc<Watched>, u32)>,
}

/// The key by which two mistakes of one rule count as the same.
#[derive(PartialEq, Eq, Hash)]
enum Place {
    /// A kernel, and a word of the SPIR-V module.
    Kernel(String, u32),
    /// The program's call site.
    Caller(u64),
}

/// The document that is written as JSON.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    program: String,
    pid: u32,
    reports: Vec<&'a Report>,
    suppressed: u64,
    notes: &'a [String],
}

fn collector() -> MutexGuard<'static, Collector> {
    static COLLECTOR: LazyLock<Mutex<Collector>> = LazyLock::new(Mutex::default);
    COLLECTOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to gather: reads the files of suppressions.
pub fn start() {
    let mut complaints = Vec::new();
    let suppressions = Suppressions::read(&settings::get().checks.suppressions, &mut complaints);
    let mut it = collector();
    it.suppressions = suppressions;
    it.started = true;
    // Written now, so that a process that crashes has the files, too.
    it.write_files();
    drop(it);
    complaints.iter().for_each(|complaint| note(complaint));
}

/// Reports once that something cannot be checked.
pub fn note(text: &str) {
    let mut it = collector();
    if !it.notes.iter().any(|note| note == text) {
        it.notes.push(text.to_owned());
        tell(&format!("note: {text}\n"));
    }
}

/// Adds a mistake. `counts`: the counter that the kernel increments for it.
pub fn add(report: Report, counts: Option<(Arc<Watched>, u32)>) {
    let place = match (&report.kernel, &report.place) {
        (Some(kernel), Some(place)) => Place::Kernel(kernel.clone(), place.word),
        _ => Place::Caller(calls::caller()),
    };
    add_at(place, report, counts);
}

/// Adds a mistake of the program's call at a call site ([`calls::caller`]).
pub fn add_of_caller(caller: u64, report: Report) {
    add_at(Place::Caller(caller), report, None);
}

fn add_at(place: Place, report: Report, counts: Option<(Arc<Watched>, u32)>) {
    let key = (report.rule, place);
    let mut it = collector();
    if let Some(&index) = it.known.get(&key) {
        it.entries[index].report.count += report.count;
        return;
    }
    if it.suppressions.suppress(&report) {
        it.suppressed += report.count;
        return;
    }
    if it.entries.len() == MOST {
        it.more += report.count;
        return;
    }
    tell(&report.text());
    let index = it.entries.len();
    it.known.insert(key, index);
    it.entries.push(Entry { report, counts });
    it.write_files();
}

/// Writes to standard error, in one piece.
fn tell(text: &str) {
    let mut out = String::new();
    for (i, line) in text.lines().enumerate() {
        let before = if i == 0 { "tally: " } else { "     " };
        // Writing to a String does not fail.
        let _ = writeln!(out, "{before}{line}");
    }
    // There is no way to report a standard error that is closed.
    let _ = io::stderr().write_all(out.as_bytes());
}

/// Prints the numbers, and writes the files. Returns the exit status of the process, if that has to change.
pub fn finish() -> Option<i32> {
    let mut it = collector();
    if !it.started {
        return None;
    }
    for entry in &mut it.entries {
        if let Some((watched, site)) = &entry.counts {
            entry.report.count = watched.count(*site).max(entry.report.count);
        }
    }
    let mistakes = it.entries.len() as u64 + it.more;
    if mistakes != 0 || it.suppressed != 0 {
        tell(&it.summary());
    }
    it.write_files();
    settings::get().checks.exit_code.filter(|_| mistakes != 0)
}

impl Collector {
    fn write_files(&self) {
        let settings = &settings::get().checks;
        let reports: Vec<&Report> = self.entries.iter().map(|entry| &entry.report).collect();
        if let Some(path) = &settings.sarif {
            write(path, &sarif::text(&reports));
        }
        let Some(path) = &settings.report else { return };
        let document = Document {
            version: 1,
            program: program(),
            pid: std::process::id(),
            reports,
            suppressed: self.suppressed,
            notes: &self.notes,
        };
        write(path, &serde_json::to_string_pretty(&document).expect("only strings are keys"));
    }

    fn summary(&self) -> String {
        let count = |n: u64, what: &str| match n {
            1 => format!("1 {what}"),
            n => format!("{n} {what}s"),
        };
        let mut text = count(self.entries.len() as u64 + self.more, "mistake");
        if self.suppressed != 0 {
            text += &format!("; {} suppressed", self.suppressed);
        }
        text.push('\n');
        for entry in self.entries.iter().filter(|entry| entry.report.count > 1) {
            let report = &entry.report;
            text += &format!("  {} times: {}\n", report.count, report.message);
        }
        text
    }
}

fn program() -> String {
    std::env::current_exe().map_or(String::new(), |path| path.display().to_string())
}

/// Writes a file whose name may contain `%p`, the process's id.
fn write(path: &Path, text: &str) {
    let name = path.to_string_lossy().replace("%p", &std::process::id().to_string());
    let path = PathBuf::from(name);
    if let Err(error) = fs::write(&path, format!("{text}\n")) {
        tell(&format!("note: {}: {error}\n", path.display()));
    }
}

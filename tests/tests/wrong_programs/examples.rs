// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples in the documents are what the wrong programs report.
//!
//! In front of an example there is a comment with the program's file, its name, the rules whose reports are
//! shown, and options:
//!
//! ```text
//! <!-- report: memory past_the_end out-of-bounds --stacks -->
//! ```
//!
//! Addresses, numbers of threads and the like differ from run to run, and are not compared. With `TALLY_BLESS=1` the
//! test writes what it has seen into the documents.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tally_tests::ze;

use super::{PATIENCE, Programs, folder, has_protection_keys};

/// The documents with examples.
const DOCUMENTS: [&str; 2] = ["checks.md", "checks-examples.md"];
const BEGIN: &str = "<!-- report: ";
const FENCE: &str = "```";

/// An example: which reports it shows, and its lines.
struct Example<'a> {
    file: &'a str,
    program: &'a str,
    rules: Vec<&'a str>,
    options: Vec<&'a str>,
}

impl<'a> Example<'a> {
    fn of(comment: &'a str) -> Self {
        let words = comment.trim_end_matches("-->").split_whitespace();
        let (options, words): (Vec<_>, Vec<_>) = words.partition(|word| word.starts_with("--"));
        let [file, program, rules @ ..] = words.as_slice() else {
            panic!("a file, a program and rules: {comment}")
        };
        Self { file, program, rules: rules.to_vec(), options }
    }

    /// The reports of these rules, as the program prints them.
    fn reports(&self) -> Vec<String> {
        let programs = Programs::build(self.file, false);
        let checks = match self.file {
            "leaks" | "portable" | "races" | "sync" => self.file,
            "order" | "recorded" | "host" => "races",
            "barriers" => "sync",
            _ => "memory,init",
        };
        let output = Command::new("timeout")
            .args(["--foreground", "--signal=KILL", PATIENCE])
            .arg(ze::beside("tally-run").expect("it is built with the driver"))
            .arg(format!("--check={checks}"))
            .args(&self.options)
            .args([&programs.program, &programs.kernels])
            .arg(self.program)
            // With several workers any group may be the first to make the mistake.
            .envs([("TALLY_LANE", "embedded"), ("TALLY_CACHE", "0"), ("TALLY_WORKERS", "1")])
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let (mut lines, mut shown) = (Vec::new(), false);
        for line in said.lines() {
            if line.starts_with("tally: ") {
                shown = self.rules.iter().any(|rule| line.ends_with(&format!("[{rule}]")));
            }
            // Whether frames of the C library have names depends on its debugging symbols.
            if shown && !line.trim_start().starts_with("from __") {
                lines.push(without_folders(line));
            }
        }
        assert!(!lines.is_empty(), "{}: nothing of {:?} in\n{said}", self.program, self.rules);
        lines
    }
}

/// A line with places in files, of which only the names remain, and without a comment for the tests.
fn without_folders(line: &str) -> String {
    let short = |word: &str| match word.rsplit_once('/') {
        Some((_, name)) if name.contains(':') => name.to_owned(),
        _ => word.to_owned(),
    };
    let (line, _) = line.split_once(" //! ").unwrap_or((line, ""));
    line.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

/// A line without what differs from run to run: addresses, threads, how many items were together.
fn lasting(line: &str) -> String {
    let mut line = line.to_owned();
    if let Some(at) = line.find(", local id")
        && let Some((item, _)) = line[..at].split_once(')')
    {
        line = format!("{item}){}", &line[at..]);
    }
    let mut words: Vec<&str> = line.split(' ').collect();
    for at in 0..words.len() {
        if words[at].starts_with("0x") {
            words[at] = if words[at].ends_with(',') { "0x," } else { "0x" };
        }
        if at > 0 && words[at - 1] == "thread" {
            words[at] = "N";
        }
    }
    words.join(" ")
}

/// A document with the examples as they are now, and whether one of them has changed.
fn renewed(text: &str) -> (String, Vec<String>) {
    let (mut out, mut changed) = (Vec::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out.push(line.to_owned());
        let Some(comment) = line.strip_prefix(BEGIN) else { continue };
        for line in lines.by_ref() {
            out.push(line.to_owned());
            if line == FENCE {
                break;
            }
        }
        let there: Vec<&str> = lines.by_ref().take_while(|&line| line != FENCE).collect();
        let example = Example::of(comment);
        if example.file == "host" && !has_protection_keys() {
            out.extend(there.into_iter().map(str::to_owned));
            out.push(FENCE.to_owned());
            continue;
        }
        let now = example.reports();
        let same = |(a, b): (&&str, &String)| lasting(a) == lasting(b);
        if there.len() == now.len() && there.iter().zip(&now).all(same) {
            out.extend(there.into_iter().map(str::to_owned));
        } else {
            changed.push(format!("{comment}\n{}", now.join("\n")));
            out.extend(now);
        }
        out.push(FENCE.to_owned());
    }
    (out.join("\n") + "\n", changed)
}

#[test]
fn examples_in_the_documents_are_what_is_reported() {
    let mut changed = Vec::new();
    for document in DOCUMENTS {
        let path: PathBuf = folder().join("../../docs").join(document);
        let text = fs::read_to_string(&path).expect("it can be read");
        let (now, different) = renewed(&text);
        if std::env::var_os("TALLY_BLESS").is_some() {
            fs::write(&path, now).expect("it can be written");
        } else {
            changed.extend(different);
        }
    }
    assert!(changed.is_empty(), "other reports than the documents have:\n{}", changed.join("\n"));
}

#[test]
fn addresses_and_threads_are_not_compared() {
    let line = "       address 0x2000002c0fa0, right behind it, in thread 28628";
    assert_eq!(lasting(line), "       address 0x, right behind it, in thread N");
    let line = "       by work-item (0, 0, 0) and 3 others, local id (0, 0, 0) in group (1, 0, 0)";
    assert_eq!(
        lasting(line),
        "       by work-item (0, 0, 0), local id (0, 0, 0) in group (1, 0, 0)"
    );
    assert_eq!(without_folders("  at /a/b/c.cl:1:2, in f"), "  at c.cl:1:2, in f");
    assert_eq!(without_folders("    a[i] = i; //! out-of-bounds"), "    a[i] = i;");
}

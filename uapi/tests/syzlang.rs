// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The descriptions for syzkaller (`fuzz/syzkaller`) say what `src/ioctl.rs` says: its structs with their fields,
//! what is zero in them and what comes out, the requests, and every flag and operation.

#![cfg(not(loom))]

use std::collections::{BTreeMap, BTreeSet};

use tally_uapi::ioctl::IOCTLS;

const SOURCE: &str = include_str!("../src/ioctl.rs");
const TEXT: &str = include_str!("../../fuzz/syzkaller/dev_tally.txt");
const NUMBERS: &str = include_str!("../../fuzz/syzkaller/dev_tally.txt.const");

/// Modules of constants that only answers have, and names of all bits.
const OUT: [&str; 2] = ["engine_capability", "queue_state"];
const ALL: &str = "ALL";

/// The properties of a field that both sides describe.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    name: String,
    bytes: u64,
    zero: bool,
    out: bool,
}

/// Blocks that begin with `start NAME {` and end with `}`: their lines, by name.
fn blocks<'a>(text: &'a str, start: &str) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut found = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let name = line.strip_prefix(start).and_then(|line| line.strip_suffix(" {"));
        if let Some(name) = name.filter(|name| !name.contains(' ')) {
            let block = lines.by_ref().take_while(|line| *line != "}");
            found.insert(name, block.map(str::trim).collect());
        }
    }
    found
}

/// The structs of the source, as far as their fields are numbers.
fn structs() -> BTreeMap<String, Vec<Field>> {
    let field = |line: &str, doc: &str| {
        let (name, kind) = line.strip_prefix("pub ")?.strip_suffix(',')?.split_once(": ")?;
        let bytes = match kind {
            "u32" => 4,
            "u64" | "i64" => 8,
            _ => return None,
        };
        let (zero, out) = (doc == "/// Zero.", doc.starts_with("/// Out: "));
        Some(Field { name: name.into(), bytes, zero, out })
    };
    let fields = |lines: Vec<&str>| {
        let mut doc = "";
        let mut fields = Vec::new();
        for line in lines {
            // The first line of a comment says which way it goes.
            if line.starts_with("///") {
                doc = if doc.is_empty() { line } else { doc };
            } else {
                fields.extend(field(line, doc));
                doc = "";
            }
        }
        fields
    };
    blocks(SOURCE, "pub struct ").into_iter().map(|(name, it)| (snake(name), fields(it))).collect()
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// The constants of the source that callers give, by their names in the descriptions.
fn constants() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for (module, lines) in blocks(SOURCE, "pub mod ") {
        for line in lines.iter().filter(|_| !OUT.contains(&module)) {
            let Some((name, value)) =
                line.strip_prefix("pub const ").and_then(|line| line.split_once(": u32 = "))
            else {
                continue;
            };
            if name == ALL {
                continue;
            }
            let value = match value.trim_end_matches(';').split_once(" << ") {
                Some((one, bits)) => number(one) << number(bits),
                None => number(value.trim_end_matches(';')),
            };
            found.insert(format!("TALLY_{}_{name}", module.to_uppercase()), value);
        }
    }
    found
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// The numbers beside the descriptions.
fn numbers() -> BTreeMap<String, u64> {
    let lines =
        NUMBERS.lines().filter(|line| !line.starts_with('#') && !line.starts_with("arches"));
    let line = |line: &str| {
        let (name, value) = line.split_once(" = ").expect("a name and a number");
        (name.into(), number(value))
    };
    lines.map(line).collect()
}

/// Bytes of a type of the descriptions.
fn bytes(kind: &str) -> u64 {
    let base = kind.trim_end_matches("[opt]");
    let declared = TEXT.lines().find_map(|line| {
        let line = line.strip_prefix("resource ").or(line.strip_prefix("type "))?;
        line.strip_prefix(base)?.strip_prefix(['[', ' '])
    });
    let width = |kind: &str| match kind {
        kind if kind.starts_with("int32") => 4,
        kind if kind.starts_with("int64") => 8,
        other => panic!("how long is {other}?"),
    };
    match base.split_once('[') {
        // syzkaller's own.
        None if base == "drm_gem_handle" || base == "fd_event" => 4,
        None if base == "vma64" => 8,
        Some(("ptr64", _)) => 8,
        Some(("const" | "flags" | "len" | "bytesize", rest)) => {
            width(rest.trim_end_matches(']').rsplit(", ").next().expect("a last argument"))
        }
        _ => declared.map_or_else(|| width(base), width),
    }
}

fn described(lines: &[&str]) -> Vec<Field> {
    let field = |line: &&str| {
        let mut words = line.split('\t').filter(|word| !word.is_empty());
        let (name, kind) = (words.next().expect("a name"), words.next().expect("a type"));
        let out = words.next() == Some("(out)");
        Field { name: name.into(), bytes: bytes(kind), zero: kind.starts_with("const[0, "), out }
    };
    lines.iter().map(field).collect()
}

#[test]
fn structs_have_the_same_fields() {
    let (structs, texts) = (structs(), blocks(TEXT, "tally_"));
    let mut seen = BTreeSet::new();
    for (name, lines) in texts {
        let (base, variant) = name.split_once('$').map_or((name, false), |(base, _)| (base, true));
        let (mut fields, expected) = (described(&lines), &structs[base]);
        assert_eq!(fields.len(), expected.len(), "{name}");
        for (field, expected) in fields.iter_mut().zip(expected) {
            // A variant may say that something is zero, and what comes out may be one thing or another.
            field.zero &= expected.zero || !variant;
            assert_eq!(field, expected, "of {name}");
        }
        seen.insert(base);
    }
    // All that ioctls take, and what their arguments point to.
    let taken = IOCTLS.iter().map(|(_, name, _)| name.to_lowercase()).collect::<Vec<_>>();
    for name in taken.iter().map(String::as_str).chain(["sem_wait_entry"]) {
        assert!(seen.contains(name), "{name} is not described");
    }
}

#[test]
fn every_ioctl_is_described() {
    let numbers = numbers();
    for (index, name, size) in IOCTLS {
        let request =
            3 << 30 | (*size as u64) << 16 | u64::from(b'd') << 8 | u64::from(0x40 + index);
        assert_eq!(numbers.get(&format!("TALLY_IOCTL_{name}")), Some(&request), "{name}");
        let line = format!(
            "ioctl$TALLY_{name}(fd fd_tally, cmd const[TALLY_IOCTL_{name}], arg ptr[inout, tally_{}])",
            name.to_lowercase()
        );
        assert!(TEXT.lines().any(|other| other == line), "no {line}");
    }
    let described = numbers.keys().filter(|name| name.starts_with("TALLY_IOCTL_")).count();
    assert_eq!(described, IOCTLS.len(), "there are numbers of ioctls that are not");
}

#[test]
fn every_flag_is_described() {
    let (numbers, constants) = (numbers(), constants());
    assert!(!constants.is_empty());
    for (name, value) in &constants {
        assert_eq!(numbers.get(name), Some(value), "{name}");
        let set = TEXT
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .any(|(_, values)| values.split(", ").any(|value| value == name));
        assert!(set, "{name} is in no set of flags");
    }
    for name in numbers.keys().filter(|name| name.starts_with("TALLY_")) {
        assert!(name.starts_with("TALLY_IOCTL_") || constants.contains_key(name), "{name} is gone");
    }
}

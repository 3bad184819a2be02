// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that Rust's structures and constants match those that a C compiler sees in the header.
//!
//! A C program, compiled against the installed Level Zero headers, prints size and offsets of every
//! structure and the value of every constant that these headers have. Types newer than these headers are
//! not compared, but come from the same generator.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A structure's name and its layout in Rust.
struct Structure {
    name: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize)>,
}

/// Turns the generated list into a function that returns every structure's layout.
macro_rules! structure_list {
    ($($name:ident: $($field:ident),+;)*) => {
        pub fn structures() -> Vec<super::Structure> {
            vec![$(super::Structure {
                name: stringify!($name),
                size: size_of::<tally_ze::$name>(),
                fields: vec![$((
                    stringify!($field).trim_start_matches("r#"),
                    std::mem::offset_of!(tally_ze::$name, $field),
                )),+],
            }),*]
        }
    };
}

/// Turns the generated list into a function that returns every constant and its value.
macro_rules! constant_list {
    ($($kind:ident $name:ident;)*) => {
        pub fn constants() -> Vec<(&'static str, u32)> {
            let mut all = Vec::new();
            $(constant_list!(@$kind all $name);)*
            all
        }
    };
    (@enumeration $all:ident $name:ident) => {
        $all.extend(tally_ze::$name::NAMES.iter().map(|(name, value)| (*name, value.0)));
    };
    (@flags $all:ident $name:ident) => {
        let flags = <tally_ze::$name as bitflags::Flags>::FLAGS;
        $all.extend(flags.iter().map(|flag| (flag.name(), flag.value().bits())));
    };
}

#[path = "layout/list.rs"]
mod list;

/// The folder where libze-dev installs the headers; LEVEL_ZERO_INCLUDE names another one that contains
/// level_zero/.
fn include() -> PathBuf {
    std::env::var_os("LEVEL_ZERO_INCLUDE").map_or_else(|| "/usr/include".into(), PathBuf::from)
}

/// The headers' text.
fn header() -> String {
    let read = |name: &str| {
        let path = include().join("level_zero").join(name);
        let text = std::fs::read_to_string(&path);
        text.unwrap_or_else(|error| panic!("{} (of libze-dev): {error}", path.display()))
    };
    read("ze_api.h") + &read("zes_api.h")
}

/// A C program that prints a line for each name and expression.
fn program(lines: impl Iterator<Item = (String, String)>) -> String {
    let mut text = String::from(
        "#include <level_zero/zes_api.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for (name, expression) in lines {
        writeln!(text, "printf(\"{name} %zu\\n\", (size_t)({expression}));").unwrap();
    }
    text + "return 0; }\n"
}

/// Compiles and runs the program; returns its lines as a map.
fn run(name: &str, text: &str) -> BTreeMap<String, usize> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, text).unwrap();
    let built = Command::new("gcc")
        .args(["-Wall", "-Werror", "-I"])
        .arg(include())
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .expect("gcc runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&binary).output().unwrap().stdout;
    String::from_utf8(output)
        .unwrap()
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

#[test]
fn every_structure_has_the_layout_of_the_installed_header() {
    let header = header();
    let mut compared = list::structures();
    compared.retain(|it| header.contains(&format!("typedef struct _{}\n{{", it.name)));
    assert!(compared.len() > 60, "only {} structures found in the header", compared.len());
    let mut expressions = Vec::new();
    let mut rust = BTreeMap::new();
    for Structure { name, size, fields } in compared {
        expressions.push((name.to_owned(), format!("sizeof({name})")));
        rust.insert(name.to_owned(), size);
        for (field, offset) in fields {
            let full = format!("{name}.{field}");
            expressions.push((full.clone(), format!("offsetof({name}, {field})")));
            rust.insert(full, offset);
        }
    }
    assert_eq!(rust, run("structures", &program(expressions.into_iter())));
}

#[test]
fn every_constant_has_the_value_of_the_installed_header() {
    let header = header();
    let mut compared = list::constants();
    // The constants for the newest version differ from header to header.
    compared.retain(|(name, _)| {
        header.contains(&format!("    {name} =")) && !name.ends_with("_VERSION_CURRENT")
    });
    assert!(compared.len() > 300, "only {} constants found in the header", compared.len());
    let rust: BTreeMap<_, _> =
        compared.iter().map(|(name, value)| ((*name).to_owned(), *value as usize)).collect();
    let expressions = compared.iter().map(|(name, _)| ((*name).to_owned(), (*name).to_owned()));
    let c = run("constants", &program(expressions));
    assert_eq!(rust, c);
}

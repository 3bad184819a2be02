// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rust's structures have the layout that a C compiler gives to the header's.
//!
//! A C program, compiled against the installed Level Zero headers, prints size and offsets of every
//! structure that these headers have. Structures that are newer than the headers are not compared;
//! for them stands that they come from the same generator.

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

#[path = "layout/structures.rs"]
mod list;

/// Where libze-dev puts the headers; LEVEL_ZERO_INCLUDE names another folder that holds level_zero/.
fn include() -> PathBuf {
    std::env::var_os("LEVEL_ZERO_INCLUDE").map_or_else(|| "/usr/include".into(), PathBuf::from)
}

/// The structures whose definition the header text has.
fn known(header: &str) -> Vec<Structure> {
    let mut all = list::structures();
    all.retain(|structure| header.contains(&format!("typedef struct _{}\n{{", structure.name)));
    all
}

/// A program that prints `name size` and `name.field offset` lines.
fn program(structures: &[Structure]) -> String {
    let mut text = String::from(
        "#include <level_zero/ze_api.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for Structure { name, fields, .. } in structures {
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof({name}));").unwrap();
        for (field, _) in fields {
            writeln!(text, "printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));")
                .unwrap();
        }
    }
    text + "return 0; }\n"
}

/// Compiles and runs the program; its lines as a map.
fn c_layout(text: &str, folder: &Path) -> BTreeMap<String, usize> {
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
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
    let path = include().join("level_zero/ze_api.h");
    let Ok(header) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: {} is not there (package libze-dev)", path.display());
        return;
    };
    let compared = known(&header);
    assert!(compared.len() > 60, "only {} structures found in the header", compared.len());
    let c = c_layout(&program(&compared), Path::new(env!("CARGO_TARGET_TMPDIR")));
    let mut rust = BTreeMap::new();
    for Structure { name, size, fields } in compared {
        rust.insert(name.to_owned(), size);
        for (field, offset) in fields {
            rust.insert(format!("{name}.{field}"), offset);
        }
    }
    assert_eq!(rust, c);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where code comes from, as debug information of LLVM: the line of an instruction is its word in the
//! SPIR-V module, the column says which form of the function it belongs to.
//!
//! Only views for people ask for it ([`crate::beside`]).

use std::collections::HashMap;

/// Numbers of metadata from here on are free in every module.
const FIRST: u32 = 1_000_000;
/// The first number behind [`HEAD`].
const NEXT: u32 = FIRST + 4;

/// What the places refer to.
const HEAD: &str = "\
!llvm.dbg.cu = !{!1000000}
!llvm.module.flags = !{!1000003}
!1000000 = distinct !DICompileUnit(language: DW_LANG_OpenCL, file: !1000001, emissionKind: LineTablesOnly)
!1000001 = !DIFile(filename: \"kernel.spv\", directory: \"\")
!1000002 = !DISubroutineType(types: !{})
!1000003 = !{i32 2, !\"Debug Info Version\", i32 3}
";

/// The form of a function, as a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// It runs one work-item.
    Item = 1,
    /// It runs a vector of them.
    Vector = 2,
}

/// A function that instructions may be placed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    number: u32,
    form: Form,
}

impl Scope {
    /// What goes before a function's opening brace.
    pub(super) fn text(self) -> String {
        format!(" !dbg !{}", self.number)
    }
}

/// The debug information of a module in the making.
#[derive(Debug, Default)]
pub(super) struct Places {
    lines: Vec<String>,
    known: HashMap<(Scope, u32), u32>,
}

impl Places {
    fn add(&mut self, text: &str) -> u32 {
        let number = NEXT + self.lines.len() as u32;
        self.lines.push(format!("!{number} = {text}\n"));
        number
    }

    /// A function that begins at a word.
    pub(super) fn function(&mut self, form: Form, word: u32) -> Scope {
        let text = format!(
            "distinct !DISubprogram(name: \"kernel\", file: !1000001, line: {word}, \
             type: !1000002, unit: !1000000, spFlags: DISPFlagDefinition)"
        );
        Scope { number: self.add(&text), form }
    }

    /// The number of a place.
    pub(super) fn at(&mut self, scope: Scope, word: u32) -> u32 {
        if let Some(&number) = self.known.get(&(scope, word)) {
            return number;
        }
        let (function, column) = (scope.number, scope.form as u32);
        let text = format!("!DILocation(line: {word}, column: {column}, scope: !{function})");
        let number = self.add(&text);
        self.known.insert((scope, word), number);
        number
    }

    /// Text of functions that come from no instruction, as what calls placed functions has to be for
    /// LLVM to keep the places of what it inlines.
    pub(super) fn around(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut nowhere = 0;
        for line in text.lines() {
            out += line;
            if line.starts_with("define ") {
                let scope = self.function(Form::Item, 0);
                nowhere = self.at(scope, 0);
                out.truncate(out.len() - 2);
                out += &format!("{} {{", scope.text());
            } else if line.contains(" call ") {
                out += &format!(", !dbg !{nowhere}");
            }
            out.push('\n');
        }
        out
    }

    /// The metadata.
    pub(super) fn text(&self) -> String {
        HEAD.to_owned() + &self.lines.concat()
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where code comes from, as debug information of LLVM: the line of an instruction is its word in the
//! SPIR-V module, the column says which form of the function it belongs to.
//!
//! Only views for people ask for it ([`crate::beside`]).

use std::collections::HashMap;

/// The first number behind the metadata that every module has.
const FIRST: u32 = 8;

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
        let number = FIRST + self.lines.len() as u32;
        self.lines.push(format!("!{number} = {text}\n"));
        number
    }

    /// A function that begins at a word.
    pub(super) fn function(&mut self, form: Form, word: u32) -> Scope {
        let text = format!(
            "distinct !DISubprogram(name: \"kernel\", file: !3, line: {word}, type: !4, unit: !2, \
             spFlags: DISPFlagDefinition)"
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

    /// The metadata; `!0` is an empty node.
    pub(super) fn text(&self) -> String {
        let head = "\
            !llvm.dbg.cu = !{!2}\n\
            !llvm.module.flags = !{!5}\n\
            !2 = distinct !DICompileUnit(language: DW_LANG_OpenCL, file: !3, \
                emissionKind: LineTablesOnly)\n\
            !3 = !DIFile(filename: \"kernel.spv\", directory: \"\")\n\
            !4 = !DISubroutineType(types: !0)\n\
            !5 = !{i32 2, !\"Debug Info Version\", i32 3}\n";
        head.to_owned() + &self.lines.concat()
    }
}

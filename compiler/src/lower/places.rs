// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of code, as debug information of LLVM, in one of two kinds.
//!
//! *Lines* are for debuggers and profilers: files and lines from the SPIR-V module (`OpLine`),
//! functions by their names. LLVM makes DWARF of them. *Words* are for views of the compiler itself
//! ([`crate::beside`]): the line of an instruction is its word in the SPIR-V module, and the column is
//! the form of the function that it belongs to.

use std::collections::HashMap;
use std::fmt::Write;

use crate::ir::{FileId, Function, Kernel, Loc, Module};

/// Metadata numbers from here on are unused in every module.
const FIRST: u32 = 1_000_000;
/// The first number behind the head, which [`Places::text`] writes.
const NEXT: u32 = FIRST + 5;

/// The limit of LLVM's columns.
const COLUMNS: u32 = 1 << 16;

/// The kind of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words of the SPIR-V module.
    Words,
    /// Lines of the source.
    Lines,
}

/// The form of a function.
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
    file: Option<FileId>,
}

impl Scope {
    /// The text before a function's opening brace.
    pub(super) fn text(self) -> String {
        format!(" !dbg !{}", self.number)
    }
}

/// The debug information of a module under construction.
#[derive(Debug)]
pub(super) struct Places<'m> {
    kind: Kind,
    module: &'m Module,
    lines: Vec<String>,
    /// Numbers of earlier metadata: files, functions in other files than their own, places.
    files: HashMap<FileId, u32>,
    blocks: HashMap<(Scope, FileId), u32>,
    known: HashMap<(Scope, Option<FileId>, u32, u32), u32>,
}

impl<'m> Places<'m> {
    pub(super) fn new(kind: Kind, module: &'m Module) -> Self {
        Self {
            kind,
            module,
            lines: Vec::new(),
            files: HashMap::new(),
            blocks: HashMap::new(),
            known: HashMap::new(),
        }
    }

    fn add(&mut self, text: &str) -> u32 {
        let number = NEXT + self.lines.len() as u32;
        self.lines.push(format!("!{number} = {text}\n"));
        number
    }

    /// The number of a source file; the module's own if none is named.
    fn file(&mut self, file: Option<FileId>) -> u32 {
        let Some(file) = file else { return FIRST + 1 };
        if let Some(&number) = self.files.get(&file) {
            return number;
        }
        let name = quoted(&self.module.files[file]);
        let number = self.add(&format!("!DIFile(filename: {name}, directory: \"\")"));
        self.files.insert(file, number);
        number
    }

    /// Adds a function that is being lowered.
    pub(super) fn function(&mut self, form: Form, function: &Function) -> Scope {
        match self.kind {
            Kind::Words => self.scope(form, "kernel", function.loc.word, None),
            Kind::Lines => {
                let start = start(function);
                self.scope(form, &function.name, start.line, start.file)
            }
        }
    }

    fn scope(&mut self, form: Form, name: &str, line: u32, file: Option<FileId>) -> Scope {
        let number = self.file(file);
        let text = format!(
            "distinct !DISubprogram(name: {}, file: !{number}, line: {line}, type: !{}, \
             unit: !{FIRST}, spFlags: DISPFlagDefinition)",
            quoted(name),
            FIRST + 2
        );
        Scope { number: self.add(&text), form, file }
    }

    /// The number of an instruction's place.
    pub(super) fn at(&mut self, scope: Scope, loc: Loc) -> u32 {
        let (file, line, column) = match self.kind {
            Kind::Words => (None, loc.word, scope.form as u32),
            Kind::Lines => (loc.file, loc.line, if loc.column < COLUMNS { loc.column } else { 0 }),
        };
        let key = (scope, file, line, column);
        if let Some(&number) = self.known.get(&key) {
            return number;
        }
        let within = self.within(scope, file);
        let text = format!("!DILocation(line: {line}, column: {column}, scope: !{within})");
        let number = self.add(&text);
        self.known.insert(key, number);
        number
    }

    /// The number of a function's part in a file: with all calls inlined, code of one function may come
    /// from several files.
    fn within(&mut self, scope: Scope, file: Option<FileId>) -> u32 {
        let Some(other) = file.filter(|_| file != scope.file) else { return scope.number };
        if let Some(&number) = self.blocks.get(&(scope, other)) {
            return number;
        }
        let file = self.file(file);
        let text = format!(
            "!DILexicalBlockFile(scope: !{}, file: !{file}, discriminator: 0)",
            scope.number
        );
        let number = self.add(&text);
        self.blocks.insert((scope, other), number);
        number
    }

    /// Text of functions without instructions of their own. Callers of functions with places need one
    /// too, or LLVM drops the places of inlined code. Debuggers see them as the kernel.
    pub(super) fn around(&mut self, text: &str, kernel: &Kernel) -> String {
        let start = match self.kind {
            Kind::Words => Loc::default(),
            Kind::Lines => start(&self.module.functions[kernel.function]),
        };
        let mut out = String::with_capacity(text.len());
        let mut nowhere = 0;
        for line in text.lines() {
            out += line;
            if line.starts_with("define ") {
                let scope = self.scope(Form::Item, &kernel.name, start.line, start.file);
                nowhere = self.at(scope, start);
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
        // Places without a file are in the first file that the module names.
        let name = match self.kind {
            Kind::Words => None,
            Kind::Lines => self.module.files.iter().next().map(|(_, name)| name.as_str()),
        };
        let emission = match self.kind {
            Kind::Words => "LineTablesOnly",
            Kind::Lines => "FullDebug",
        };
        let head = [
            format!(
                "distinct !DICompileUnit(language: DW_LANG_OpenCL, file: !{}, \
                 producer: \"tally-compiler {}\", isOptimized: true, emissionKind: {emission}, \
                 nameTableKind: None)",
                FIRST + 1,
                env!("CARGO_PKG_VERSION"),
            ),
            format!("!DIFile(filename: {}, directory: \"\")", quoted(name.unwrap_or("kernel.spv"))),
            "!DISubroutineType(types: !{})".into(),
            "!{i32 2, !\"Debug Info Version\", i32 3}".into(),
            "!{i32 7, !\"Dwarf Version\", i32 4}".into(),
        ];
        let mut text = format!(
            "!llvm.dbg.cu = !{{!{FIRST}}}\n!llvm.module.flags = !{{!{}, !{}}}\n",
            FIRST + 3,
            FIRST + 4
        );
        for (number, line) in (FIRST..).zip(head) {
            let _ = writeln!(text, "!{number} = {line}");
        }
        text + &self.lines.concat()
    }
}

/// The first line of a function: that of its head, or else of the first instruction with a line.
fn start(function: &Function) -> Loc {
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let mut locs = [function.loc].into_iter().chain(insts.map(|inst| inst.loc));
    locs.find(|loc| loc.line != 0).unwrap_or_default()
}

/// A string of LLVM's assembly language.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | ..b' ' | 0x7f.. => {
                let _ = write!(out, "\\{byte:02X}");
            }
            _ => out.push(char::from(byte)),
        }
    }
    out + "\""
}

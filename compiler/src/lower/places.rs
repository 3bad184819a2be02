// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of code, as debug information of LLVM, in one of two kinds.
//!
//! *Lines* are for debuggers and profilers: files and lines from the SPIR-V module (`OpLine`),
//! functions by their names. LLVM makes DWARF of them. *Words* are for views of the compiler itself
//! ([`crate::beside`]): the line of an instruction is its word in the SPIR-V module, and the column is
//! the form of the function that it belongs to.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use crate::ir::{
    FileId, Float, Function, InlinedId, KeptValue, Kernel, Loc, Module, SourceTypeId, Type, TypeId,
};

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
    line: u32,
}

impl Scope {
    /// The text before a function's opening brace.
    pub(super) fn text(self) -> String {
        format!(" !dbg !{}", self.number)
    }
}

/// A variable that a debugger shows.
#[derive(Clone, Copy, Default)]
pub(super) struct Shown<'a> {
    pub(super) name: &'a str,
    /// Its number, from 1, if it is a parameter.
    pub(super) parameter: Option<usize>,
    /// 0: that of its function.
    pub(super) line: u32,
    pub(super) inlined: Option<InlinedId>,
}

/// What a debugger is told behind a store to a private variable that was made for it.
pub(super) struct Told {
    pub(super) of: Part,
    /// The source's variable is there from now on.
    pub(super) here: String,
    /// It is nowhere.
    pub(super) gone: String,
}

/// A source's variable, by its number in the function, or a part of it in bits.
pub(super) type Part = (usize, Option<(u64, u64)>);

impl Told {
    /// Of variable `number`, which is `!variable` at `!at`; the private variable's address is in memory at
    /// `pointer`.
    pub(super) fn new(
        number: usize,
        place: &KeptValue,
        pointer: &str,
        variable: u32,
        at: u32,
    ) -> Self {
        let mut steps = vec!["DW_OP_deref".to_owned(); if place.behind { 3 } else { 2 }];
        steps.extend(place.part.map(fragment));
        let steps = steps.join(", ");
        let here =
            format!("    #dbg_value(ptr {pointer}, !{variable}, !DIExpression({steps}), !{at})\n");
        let gone = Self::nowhere(variable, at, place.part);
        Self { of: (number, place.part), here, gone }
    }

    /// A variable, or a part of one, is nowhere.
    pub(super) fn nowhere(variable: u32, at: u32, part: Option<(u64, u64)>) -> String {
        let steps = part.map_or(String::new(), fragment);
        format!("    #dbg_value(ptr poison, !{variable}, !DIExpression({steps}), !{at})\n")
    }
}

fn fragment((from, size): (u64, u64)) -> String {
    format!("DW_OP_LLVM_fragment, {from}, {size}")
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
    known: HashMap<(Scope, Loc), u32>,
    /// Functions that the front end has inlined, and the places of their calls.
    callees: HashMap<(String, Option<FileId>, u32), Scope>,
    calls: HashMap<(Scope, InlinedId), u32>,
    /// Types of the source.
    pub(super) types: HashMap<SourceTypeId, u32>,
    /// The variables of each function, also those that have no place anywhere, by the numbers of the functions
    /// and of the lists; none if no variables are shown.
    pub(super) variables: Option<BTreeMap<u32, (u32, Vec<u32>)>>,
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
            callees: HashMap::new(),
            calls: HashMap::new(),
            types: HashMap::new(),
            variables: None,
        }
    }

    pub(super) fn add(&mut self, text: &str) -> u32 {
        let number = NEXT + self.lines.len() as u32;
        self.lines.push(format!("!{number} = {text}\n"));
        number
    }

    pub(super) fn module(&self) -> &'m Module {
        self.module
    }

    /// A number for metadata that follows.
    pub(super) fn reserve(&mut self) -> u32 {
        self.add("")
    }

    /// What a reserved number stands for.
    pub(super) fn set(&mut self, number: u32, text: &str) {
        self.lines[(number - NEXT) as usize] = format!("!{number} = {text}\n");
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
                let start = start(self.module, function);
                self.scope(form, &function.name, start.line, start.file)
            }
        }
    }

    fn scope(&mut self, form: Form, name: &str, line: u32, file: Option<FileId>) -> Scope {
        let number = self.file(file);
        let list = self.variables.is_some().then(|| self.reserve());
        let retained = list.map_or(String::new(), |list| format!(", retainedNodes: !{list}"));
        let text = format!(
            "distinct !DISubprogram(name: {}, file: !{number}, line: {line}, type: !{}, \
             unit: !{FIRST}, spFlags: DISPFlagDefinition{retained})",
            quoted(name),
            FIRST + 2
        );
        let number = self.add(&text);
        if let (Some(list), Some(variables)) = (list, &mut self.variables) {
            variables.insert(number, (list, Vec::new()));
        }
        Scope { number, form, file, line }
    }

    /// A variable of a function, and the place of its declaration.
    pub(super) fn variable(&mut self, scope: Scope, shown: &Shown<'_>, ty: u32) -> (u32, u32) {
        let Shown { name, parameter, line, inlined } = *shown;
        let (own, call) = match inlined {
            Some(call) => (self.callee(scope, call), self.call(scope, call)),
            None => (scope, String::new()),
        };
        let (file, within) = (self.file(own.file), own.number);
        let line = if line == 0 { own.line } else { line };
        let number = parameter.map_or(String::new(), |number| format!("arg: {number}, "));
        let variable = self.add(&format!(
            "!DILocalVariable(name: {}, {number}scope: !{within}, file: !{file}, line: {line}, type: !{ty})",
            quoted(name)
        ));
        let all = self.variables.as_mut().and_then(|variables| variables.get_mut(&within));
        if let Some((_, all)) = all {
            all.push(variable);
        }
        let at = self.add(&format!("!DILocation(line: {line}, scope: !{within}{call})"));
        (variable, at)
    }

    /// The type of three 64-bit numbers.
    pub(super) fn three_longs(&mut self) -> u32 {
        let long = self.basic("ulong", 64, "DW_ATE_unsigned");
        self.several(long, 3, 192, "")
    }

    /// A type as debuggers have it, `None` if they have none. The IR knows no signs: integers are signed.
    /// Pointers point to values of `pointee`.
    pub(super) fn type_of(
        &mut self,
        module: &Module,
        ty: TypeId,
        pointee: Option<TypeId>,
    ) -> Option<u32> {
        let bits = module.types.size(ty) * 8;
        Some(match &module.types[ty] {
            Type::Bool => self.basic("bool", 8, "DW_ATE_boolean"),
            Type::Int(8) => self.basic("char", 8, "DW_ATE_signed_char"),
            Type::Int(16) => self.basic("short", 16, "DW_ATE_signed"),
            Type::Int(32) => self.basic("int", 32, "DW_ATE_signed"),
            Type::Int(64) => self.basic("long", 64, "DW_ATE_signed"),
            Type::Float(Float::F16) => self.basic("half", 16, "DW_ATE_float"),
            Type::Float(Float::F32) => self.basic("float", 32, "DW_ATE_float"),
            Type::Float(Float::F64) => self.basic("double", 64, "DW_ATE_float"),
            Type::Pointer(_) => {
                let base = pointee.and_then(|pointee| self.type_of(module, pointee, None));
                let base = base.map_or("null".to_owned(), |base| format!("!{base}"));
                self.add(&format!(
                    "!DIDerivedType(tag: DW_TAG_pointer_type, baseType: {base}, size: 64)"
                ))
            }
            &Type::Vector(element, n) => {
                let element = self.type_of(module, element, None)?;
                self.several(element, n.into(), bits, "flags: DIFlagVector, ")
            }
            &Type::Array(element, n) => {
                let element = self.type_of(module, element, None)?;
                self.several(element, n, bits, "")
            }
            Type::Struct { members, packed } => {
                let (mut offset, mut list) = (0_u64, Vec::new());
                for (i, &member) in members.iter().enumerate() {
                    let align = if *packed { 1 } else { module.types.align(member) };
                    offset = offset.next_multiple_of(align.max(1));
                    let size = module.types.size(member);
                    let ty = self.type_of(module, member, None)?;
                    list.push(format!(
                        "!{}",
                        self.add(&format!(
                            "!DIDerivedType(tag: DW_TAG_member, name: \"m{i}\", baseType: !{ty}, size: {}, offset: {})",
                            size * 8,
                            offset * 8
                        ))
                    ));
                    offset += size;
                }
                let elements = self.add(&format!("!{{{}}}", list.join(", ")));
                self.add(&format!(
                    "!DICompositeType(tag: DW_TAG_structure_type, size: {bits}, elements: !{elements})"
                ))
            }
            _ => return None,
        })
    }

    pub(super) fn basic(&mut self, name: &str, bits: u32, encoding: &str) -> u32 {
        self.add(&format!("!DIBasicType(name: \"{name}\", size: {bits}, encoding: {encoding})"))
    }

    fn several(&mut self, element: u32, count: u64, bits: u64, flags: &str) -> u32 {
        let range = self.add(&format!("!DISubrange(count: {count})"));
        let elements = self.add(&format!("!{{!{range}}}"));
        self.add(&format!(
            "!DICompositeType(tag: DW_TAG_array_type, {flags}baseType: !{element}, size: {bits}, elements: !{elements})"
        ))
    }

    /// The number of an instruction's place.
    pub(super) fn at(&mut self, scope: Scope, loc: Loc) -> u32 {
        let column = if loc.column < COLUMNS { loc.column } else { 0 };
        let at = match self.kind {
            Kind::Words => Loc { line: loc.word, column: scope.form as u32, ..Loc::default() },
            Kind::Lines => Loc { word: 0, opcode: 0, column, ..loc },
        };
        if let Some(&number) = self.known.get(&(scope, at)) {
            return number;
        }
        let (own, call) = match at.inlined {
            Some(call) => (self.callee(scope, call), self.call(scope, call)),
            None => (scope, String::new()),
        };
        let within = self.within(own, at.file);
        let Loc { line, column, .. } = at;
        let text = format!("!DILocation(line: {line}, column: {column}, scope: !{within}{call})");
        let number = self.add(&text);
        self.known.insert((scope, at), number);
        number
    }

    /// The function of an inlined call.
    fn callee(&mut self, scope: Scope, call: InlinedId) -> Scope {
        let of = &self.module.debug.inlined[call];
        let key = (of.name.clone(), of.file, of.line);
        if let Some(&known) = self.callees.get(&key) {
            return known;
        }
        let new = self.scope(scope.form, &key.0, key.2, key.1);
        self.callees.insert(key, new);
        new
    }

    /// The end of the text of places in an inlined call.
    fn call(&mut self, scope: Scope, call: InlinedId) -> String {
        let number = match self.calls.get(&(scope, call)) {
            Some(&known) => known,
            None => {
                let of = &self.module.debug.inlined[call];
                let (line, caller) = (of.call, of.caller);
                let (within, outer) = match caller {
                    Some(caller) => (self.callee(scope, caller), self.call(scope, caller)),
                    None => (scope, String::new()),
                };
                let within = within.number;
                let new = self
                    .add(&format!("distinct !DILocation(line: {line}, scope: !{within}{outer})"));
                self.calls.insert((scope, call), new);
                new
            }
        };
        format!(", inlinedAt: !{number}")
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
            Kind::Lines => start(self.module, &self.module.functions[kernel.function]),
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
                "distinct !DICompileUnit(language: DW_LANG_C99, file: !{}, \
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
        let mut lines = self.lines.clone();
        for (list, variables) in self.variables.iter().flat_map(BTreeMap::values) {
            let variables: Vec<String> = variables.iter().map(|it| format!("!{it}")).collect();
            let all = format!("!{list} = !{{{}}}\n", variables.join(", "));
            lines[(list - NEXT) as usize] = all;
        }
        text + &lines.concat()
    }
}

/// The first line of a function: that of its head, or else of the first instruction with a line.
fn start(module: &Module, function: &Function) -> Loc {
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let mut locs = [function.loc].into_iter().chain(insts.map(|inst| inst.loc));
    let mut start = locs.find(|loc| loc.line != 0).unwrap_or_default();
    // Of an inlined instruction the line of the call counts.
    while let Some(call) = start.inlined {
        let call = &module.debug.inlined[call];
        (start.line, start.column, start.inlined) = (call.call, 0, call.caller);
    }
    start
}

/// A string of LLVM's assembly language.
pub(super) fn quoted(text: &str) -> String {
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debug information of a module as one ELF file, for debuggers and profilers.
//!
//! ```text
//!   ELF header, one program header
//!   .text        the code of all kernels, at multiples of 64; a symbol for each
//!   .debug_…     each kernel's sections, one behind the other
//!   .symtab .strtab .shstrtab
//! ```
//!
//! No kernel runs at the addresses of a module's file: a driver maps each kernel's code by itself, wherever
//! there is room. A debugger gets the offset between the two addresses of the kernel in question, or reads a
//! file of that kernel alone, which has its address.

use std::ops::Range;

use crate::{DebugPlace, KernelCode};

/// The place of the code in the file, and the address of the first kernel in a module's file.
const TEXT: u64 = 0x1000;
/// Alignment of the kernels' addresses.
const ALIGN: usize = 64;

const HEADER: u16 = 64;
const PROGRAM_HEADER: u16 = 56;
const SECTION_HEADER: u16 = 64;
const SYMBOL: u64 = 24;

/// An upper limit: DWARF has fewer kinds of sections.
const MAX_SECTIONS: usize = 64;

/// Constants of ELF.
const ET_DYN: u16 = 3;
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const READ_EXECUTE: u32 = 5;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHF_ALLOC_EXECUTE: u64 = 6;
const GLOBAL_FUNCTION: u8 = 0x12;
/// The section index of `.text`.
const TEXT_SECTION: u16 = 1;

impl DebugPlace {
    /// The range of the file that holds its contents.
    pub fn range(&self) -> Range<usize> {
        let offset = self.offset as usize;
        offset..offset + if self.wide { 8 } else { 4 }
    }
}

/// A section of the file.
struct Section {
    name: String,
    kind: u32,
    flags: u64,
    address: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
    bytes: Vec<u8>,
}

impl Section {
    fn new(name: &str, kind: u32, bytes: Vec<u8>) -> Self {
        let name = name.to_owned();
        Self { name, kind, flags: 0, address: 0, link: 0, info: 0, align: 1, entry: 0, bytes }
    }
}

/// Builds the ELF file of a module's kernels, each given with its name. The file is empty if no kernel
/// has debug information; `None` if there is more of it than such a file can hold.
pub fn elf<'a>(kernels: impl IntoIterator<Item = (&'a str, &'a KernelCode)>) -> Option<Vec<u8>> {
    elf_at(TEXT, kernels)
}

/// The file of one kernel whose code is at an address. Empty if it has no debug information, `None` if there
/// is more of it than such a file can hold.
pub fn elf_of(address: u64, name: &str, code: &KernelCode) -> Option<Vec<u8>> {
    elf_at(address, [(name, code)])
}

fn elf_at<'a>(
    start: u64,
    kernels: impl IntoIterator<Item = (&'a str, &'a KernelCode)>,
) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut debug: Vec<Section> = Vec::new();
    let mut symbols = vec![0; SYMBOL as usize];
    let mut names = vec![0];
    for (name, code) in kernels {
        text.resize(text.len().next_multiple_of(ALIGN), 0);
        let base = start + text.len() as u64;
        text.extend_from_slice(&code.blob);
        merge(code, base, &mut debug)?;
        symbols.extend_from_slice(&u32::try_from(names.len()).ok()?.to_le_bytes());
        symbols.extend_from_slice(&[GLOBAL_FUNCTION, 0]);
        symbols.extend_from_slice(&TEXT_SECTION.to_le_bytes());
        symbols.extend_from_slice(&(base + u64::from(code.entry)).to_le_bytes());
        let size = (code.blob.len() as u64).saturating_sub(code.entry.into());
        symbols.extend_from_slice(&size.to_le_bytes());
        names.extend(name.bytes().filter(|&byte| byte != 0));
        names.push(0);
    }
    if debug.is_empty() {
        return Some(Vec::new());
    }
    let mut sections = vec![Section {
        flags: SHF_ALLOC_EXECUTE,
        address: start,
        align: ALIGN as u64,
        ..Section::new(".text", SHT_PROGBITS, text)
    }];
    sections.append(&mut debug);
    let strings = sections.len() as u32 + 2;
    sections.push(Section {
        link: strings,
        // The first symbol that is global.
        info: 1,
        align: 8,
        entry: SYMBOL,
        ..Section::new(".symtab", SHT_SYMTAB, symbols)
    });
    sections.push(Section::new(".strtab", SHT_STRTAB, names));
    Some(file(start, sections))
}

/// Appends a kernel's sections to those of the same names, and relocates their references to each other
/// and to the code at `base`.
fn merge(code: &KernelCode, base: u64, merged: &mut Vec<Section>) -> Option<()> {
    let mut homes = Vec::with_capacity(code.debug.len());
    for section in &code.debug {
        let at = merged.iter().position(|it| it.name == section.name).unwrap_or_else(|| {
            merged.push(Section::new(&section.name, SHT_PROGBITS, Vec::new()));
            merged.len() - 1
        });
        homes.push((at, merged[at].bytes.len()));
        merged[at].bytes.extend_from_slice(&section.bytes);
        u32::try_from(merged[at].bytes.len()).ok()?;
    }
    if merged.len() > MAX_SECTIONS {
        return None;
    }
    for (section, &(at, start)) in code.debug.iter().zip(&homes) {
        let bytes = &mut merged[at].bytes[start..];
        for place in &section.places {
            let base = match place.section {
                Some(other) => homes.get(other as usize)?.1 as u64,
                None => base,
            };
            let field = bytes.get_mut(place.range())?;
            let mut value = [0; 8];
            value[..field.len()].copy_from_slice(field);
            let value = u64::from_le_bytes(value).wrapping_add(base);
            field.copy_from_slice(&value.to_le_bytes()[..field.len()]);
        }
    }
    Some(())
}

/// The bytes of a file with these sections; the first one is the code.
fn file(start: u64, mut sections: Vec<Section>) -> Vec<u8> {
    sections.push(Section::new(".shstrtab", SHT_STRTAB, Vec::new()));
    let mut names = vec![0];
    let mut starts = Vec::with_capacity(sections.len());
    for section in &sections {
        starts.push(names.len() as u32);
        names.extend_from_slice(section.name.as_bytes());
        names.push(0);
    }
    if let Some(last) = sections.last_mut() {
        last.bytes = names;
    }
    let mut out = vec![0; TEXT as usize];
    // The first header belongs to no section.
    let mut headers = vec![0; usize::from(SECTION_HEADER)];
    for (section, name) in sections.iter().zip(starts) {
        out.resize(out.len().next_multiple_of(section.align as usize), 0);
        let (offset, size) = (out.len() as u64, section.bytes.len() as u64);
        out.extend_from_slice(&section.bytes);
        headers.extend_from_slice(&name.to_le_bytes());
        headers.extend_from_slice(&section.kind.to_le_bytes());
        for word in [section.flags, section.address, offset, size] {
            headers.extend_from_slice(&word.to_le_bytes());
        }
        headers.extend_from_slice(&section.link.to_le_bytes());
        headers.extend_from_slice(&section.info.to_le_bytes());
        for word in [section.align, section.entry] {
            headers.extend_from_slice(&word.to_le_bytes());
        }
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let (offset, count) = (out.len() as u64, sections.len() as u16);
    out.extend_from_slice(&headers);
    let code = sections[0].bytes.len() as u64;
    let head = [header(offset, count), program_header(start, code)].concat();
    out[..head.len()].copy_from_slice(&head);
    out
}

/// The ELF header of a file whose section headers are at `offset`. There are `sections` + 1 of them,
/// with the first empty one.
fn header(offset: u64, sections: u16) -> Vec<u8> {
    // 64 bits, little-endian, version 1.
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    out.extend_from_slice(&ET_DYN.to_le_bytes());
    out.extend_from_slice(&EM_X86_64.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    for word in [0, u64::from(HEADER), offset] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    // The last section holds the names of all sections.
    for half in [HEADER, PROGRAM_HEADER, 1, SECTION_HEADER, sections + 1, sections] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out
}

/// The program header that maps `size` bytes of code.
fn program_header(start: u64, size: u64) -> Vec<u8> {
    let mut out = PT_LOAD.to_le_bytes().to_vec();
    out.extend_from_slice(&READ_EXECUTE.to_le_bytes());
    for word in [TEXT, start, start, size, size, ALIGN as u64] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out
}

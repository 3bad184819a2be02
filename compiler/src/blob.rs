// SPDX-License-Identifier: MIT OR Apache-2.0
//! Object file → one self-contained, position-independent blob.
//!
//! A small static linker for the one kind of output that a kernel has: text and read-only data, mapped
//! read-execute as a whole wherever the driver has room. It lays out the sections that the entry point
//! reaches, adds those of the support library that are called, and resolves references relative to the
//! program counter. Only a module's global variables have addresses that are not known here: references
//! to them use an address table at the end of the blob, whose slots become [`Reloc`]s for the driver.
//! Anything else is an error that names the symbol.

use std::collections::HashMap;
use std::fmt;

use object::elf;
use object::read::elf::ElfFile64;
use object::read::{Object, ObjectSection, ObjectSymbol, Relocation, RelocationTarget};
use object::{Endianness, RelocationFlags, SectionFlags, SectionIndex};
use tally_compiler_protocol::{DebugSection, Reloc};

mod debug;

/// The alignment of the blob's address, in bytes.
pub const BLOB_ALIGN: u64 = 64;

/// Linked code.
#[derive(Debug)]
pub struct Blob {
    /// The bytes to map.
    pub bytes: Vec<u8>,
    /// Offset of the entry point.
    pub entry: u32,
    /// Addresses of globals to fill in.
    pub relocs: Vec<Reloc>,
    /// Debug information, if the object file has it.
    pub debug: Vec<DebugSection>,
}

/// The reason why an object file can't become a blob.
#[derive(Debug, PartialEq, Eq)]
pub enum BlobError {
    /// The file is not an ELF object; the reader's message.
    Malformed(String),
    /// A symbol is defined nowhere.
    Undefined(String),
    /// A relocation has no meaning in a blob without a fixed address.
    Relocation {
        /// The symbol that it refers to.
        symbol: String,
        /// The ELF number of the relocation's kind.
        kind: u32,
    },
    /// A section can't be mapped read-execute.
    Section {
        /// Its name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// A relative distance does not fit its field; the symbol.
    OutOfRange(String),
}

impl fmt::Display for BlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "the object file is malformed: {why}"),
            Self::Undefined(symbol) => write!(f, "the symbol {symbol} is not defined"),
            Self::Relocation { symbol, kind } => {
                write!(f, "a relocation of kind {kind} against {symbol} needs a fixed address")
            }
            Self::Section { name, why } => write!(f, "the section {name} {why}"),
            Self::OutOfRange(symbol) => write!(f, "the distance to {symbol} is out of range"),
        }
    }
}

impl std::error::Error for BlobError {}

impl From<object::read::Error> for BlobError {
    fn from(error: object::read::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Links `object`, whose function `entry` is the entry point, with the parts of the object files
/// `support` that it needs.
///
/// `globals` maps undefined symbols that are the module's global variables to their indices.
///
/// # Errors
/// See [`BlobError`].
pub fn link(
    object: &[u8],
    support: &[&[u8]],
    entry: &str,
    globals: &HashMap<String, u32>,
) -> Result<Blob, BlobError> {
    let files = std::iter::once(object).chain(support.iter().copied());
    let inputs = files.map(ElfFile64::parse).collect::<Result<Vec<_>, _>>()?;
    let entry = definition(&inputs, entry)?.ok_or(BlobError::Undefined(entry.to_owned()))?;
    let mut linker = Linker {
        inputs: &inputs,
        globals,
        bytes: Vec::new(),
        placed: HashMap::new(),
        pending: Vec::new(),
        slots: HashMap::new(),
        relocs: Vec::new(),
    };
    let entry = linker.place(entry)?;
    linker.resolve_all()?;
    let inside = u32::try_from(entry).ok().filter(|_| entry < linker.bytes.len() as u64);
    let entry = inside.ok_or_else(|| BlobError::OutOfRange("the entry point".into()))?;
    let debug = debug::sections(&inputs[0], |index| linker.placed.get(&(0, index)).copied())?;
    Ok(Blob { bytes: linker.bytes, entry, relocs: linker.relocs, debug })
}

type Elf<'a> = ElfFile64<'a, Endianness>;

/// A section of one of the inputs.
type Section = (usize, SectionIndex);

/// A place in a section.
#[derive(Clone, Copy)]
struct Place {
    section: Section,
    offset: u64,
}

struct Linker<'a> {
    inputs: &'a [Elf<'a>],
    globals: &'a HashMap<String, u32>,
    bytes: Vec<u8>,
    /// Offset in the blob of each section that is in it.
    placed: HashMap<Section, u64>,
    /// Sections in the blob whose relocations are still to be done.
    pending: Vec<Section>,
    /// Offsets of the address table's slots, by global.
    slots: HashMap<u32, u64>,
    relocs: Vec<Reloc>,
}

/// The target of a relocation.
enum Target {
    /// An offset in the blob.
    Inside(u64),
    /// A variable of the module.
    Global(u32),
}

impl Linker<'_> {
    /// The offset in the blob of a place; its section is laid out if it is not in the blob yet.
    fn place(&mut self, place: Place) -> Result<u64, BlobError> {
        if let Some(start) = self.placed.get(&place.section) {
            return Ok(start.wrapping_add(place.offset));
        }
        let (input, index) = place.section;
        let section = self.inputs[input].section_by_index(index)?;
        let bad = |why| BlobError::Section { name: name_of(section.name_bytes()), why };
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            return Err(bad("has no ELF flags"));
        };
        if sh_flags.0 & elf::SHF_ALLOC.0 == 0 {
            return Err(bad("is not loaded"));
        }
        // Constants with addresses in them are written once, by the driver, before the mapping.
        let constant = section.name_bytes()?.starts_with(b".data.rel.ro");
        if sh_flags.0 & elf::SHF_WRITE.0 != 0 && !constant {
            return Err(bad("is writable, but kernels have no data of their own"));
        }
        if section.align() > BLOB_ALIGN {
            return Err(bad("is aligned more strictly than a blob can be"));
        }
        let data = section.data()?;
        if data.len() as u64 != section.size() {
            return Err(bad("has no contents"));
        }
        let start = self.pad_to(section.align());
        self.bytes.extend_from_slice(data);
        self.placed.insert(place.section, start);
        self.pending.push(place.section);
        Ok(start.wrapping_add(place.offset))
    }

    /// Pads the blob to an alignment and returns its length.
    fn pad_to(&mut self, align: u64) -> u64 {
        let len = (self.bytes.len() as u64).next_multiple_of(align.max(1));
        self.bytes.resize(len as usize, 0);
        len
    }

    /// Applies the relocations of every section in the blob, and of those that are added for them.
    fn resolve_all(&mut self) -> Result<(), BlobError> {
        let inputs = self.inputs;
        while let Some(section) = self.pending.pop() {
            let start = self.placed[&section];
            for (offset, relocation) in inputs[section.0].section_by_index(section.1)?.relocations()
            {
                self.resolve(section.0, start.wrapping_add(offset), &relocation)?;
            }
        }
        Ok(())
    }

    /// Applies one relocation, of the field at offset `at` of the blob.
    fn resolve(&mut self, input: usize, at: u64, relocation: &Relocation) -> Result<(), BlobError> {
        let (name, target) = self.target(input, relocation)?;
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return Err(BlobError::Malformed("a relocation has no ELF kind".into()));
        };
        let kind = r_type.0;
        let addend = relocation.addend();
        let unsupported = |symbol| Err(BlobError::Relocation { symbol, kind });
        match (r_type, target) {
            (elf::R_X86_64_PC32 | elf::R_X86_64_PLT32, Target::Inside(to)) => {
                self.write_relative(at, to, addend, name)
            }
            (
                elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX,
                Target::Global(global),
            ) => {
                let slot = self.slot(global);
                self.write_relative(at, slot, addend, name)
            }
            (elf::R_X86_64_64, Target::Global(global)) => {
                self.relocs.push(Reloc { offset: at, global, addend });
                Ok(())
            }
            _ => unsupported(name),
        }
    }

    /// The target of a relocation, with its name.
    fn target(
        &mut self,
        input: usize,
        relocation: &Relocation,
    ) -> Result<(String, Target), BlobError> {
        let inputs = self.inputs;
        let symbol = match relocation.target() {
            RelocationTarget::Symbol(index) => inputs[input].symbol_by_index(index)?,
            _ => return Err(BlobError::Malformed("a relocation has no symbol".into())),
        };
        let name = name_of(symbol.name_bytes());
        if let Some(section) = symbol.section_index() {
            let place = Place { section: (input, section), offset: symbol.address() };
            return Ok((name, Target::Inside(self.place(place)?)));
        }
        if let Some(&global) = self.globals.get(&name) {
            return Ok((name, Target::Global(global)));
        }
        match definition(inputs, &name)? {
            Some(place) => Ok((name, Target::Inside(self.place(place)?))),
            None => Err(BlobError::Undefined(name)),
        }
    }

    /// The address table's slot for a global.
    fn slot(&mut self, global: u32) -> u64 {
        if let Some(&slot) = self.slots.get(&global) {
            return slot;
        }
        let slot = self.pad_to(8);
        self.bytes.extend_from_slice(&[0; 8]);
        self.slots.insert(global, slot);
        self.relocs.push(Reloc { offset: slot, global, addend: 0 });
        slot
    }

    /// Writes the 32-bit distance from the field at `at` to `to`.
    fn write_relative(
        &mut self,
        at: u64,
        to: u64,
        addend: i64,
        symbol: String,
    ) -> Result<(), BlobError> {
        let distance = (to.wrapping_sub(at) as i64).wrapping_add(addend);
        let field =
            (at as usize).checked_add(4).and_then(|end| self.bytes.get_mut(at as usize..end));
        match (i32::try_from(distance), field) {
            (Ok(distance), Some(field)) => {
                field.copy_from_slice(&distance.to_le_bytes());
                Ok(())
            }
            _ => Err(BlobError::OutOfRange(symbol)),
        }
    }
}

/// The place that defines a global symbol; the first input that defines it wins.
fn definition(inputs: &[Elf<'_>], name: &str) -> Result<Option<Place>, BlobError> {
    for (input, file) in inputs.iter().enumerate() {
        for symbol in file.symbols().filter(|symbol| symbol.is_global()) {
            let Some(section) = symbol.section_index() else { continue };
            if symbol.name_bytes()? == name.as_bytes() {
                let offset = symbol.address();
                return Ok(Some(Place { section: (input, section), offset }));
            }
        }
    }
    Ok(None)
}

/// A name for a message.
fn name_of(bytes: object::read::Result<&[u8]>) -> String {
    bytes.map_or_else(|_| "?".into(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

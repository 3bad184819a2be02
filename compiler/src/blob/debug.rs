// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debug information of an object file, linked without addresses: references to code count from the
//! blob's start, references to a section from that section's start.

use std::collections::HashMap;

use object::elf;
use object::read::{Object, ObjectSection, ObjectSymbol, Relocation, RelocationTarget};
use object::{RelocationFlags, SectionIndex};
use tally_compiler_protocol::{DebugPlace, DebugSection};

use super::{BlobError, Elf, name_of};

/// DWARF's value for an address of code that is not in the blob.
const NOWHERE: u64 = u64::MAX;

/// All sections of debug information. `placed` returns the offset in the blob of a section of code.
pub(super) fn sections(
    file: &Elf<'_>,
    placed: impl Fn(SectionIndex) -> Option<u64>,
) -> Result<Vec<DebugSection>, BlobError> {
    let is_debug = |name: &[u8]| name.starts_with(b".debug_");
    let found = file.sections().filter(|it| it.name_bytes().is_ok_and(is_debug));
    let found: Vec<_> = found.collect();
    let numbers: HashMap<SectionIndex, u32> = found.iter().map(|it| it.index()).zip(0..).collect();
    let mut sections = Vec::with_capacity(found.len());
    for section in &found {
        let name = name_of(section.name_bytes());
        let mut bytes = section.data()?.to_vec();
        let mut places = Vec::new();
        for (offset, relocation) in section.relocations() {
            let (place, value) = place(file, offset, &relocation, &numbers, &placed)?;
            let out_of_range = || BlobError::OutOfRange(name.clone());
            let field = bytes.get_mut(place.range()).ok_or_else(out_of_range)?;
            field.copy_from_slice(&value.to_le_bytes()[..field.len()]);
            if value != NOWHERE {
                places.push(place);
            }
        }
        sections.push(DebugSection { name, bytes, places });
    }
    Ok(sections)
}

/// The meaning of a relocation, and the value of its field.
fn place(
    file: &Elf<'_>,
    offset: u64,
    relocation: &Relocation,
    numbers: &HashMap<SectionIndex, u32>,
    placed: impl Fn(SectionIndex) -> Option<u64>,
) -> Result<(DebugPlace, u64), BlobError> {
    let RelocationTarget::Symbol(symbol) = relocation.target() else {
        return Err(BlobError::Malformed("a relocation has no symbol".into()));
    };
    let symbol = file.symbol_by_index(symbol)?;
    let name = || name_of(symbol.name_bytes());
    let wide = match relocation.flags() {
        RelocationFlags::Elf { r_type: elf::R_X86_64_64 } => true,
        RelocationFlags::Elf { r_type: elf::R_X86_64_32 } => false,
        RelocationFlags::Elf { r_type } => {
            return Err(BlobError::Relocation { symbol: name(), kind: r_type.0 });
        }
        _ => return Err(BlobError::Malformed("a relocation has no ELF kind".into())),
    };
    let index = symbol.section_index().ok_or_else(|| BlobError::Undefined(name()))?;
    let section = numbers.get(&index).copied();
    let value = symbol.address().wrapping_add_signed(relocation.addend());
    let value = match section {
        Some(_) => value,
        None => placed(index).map_or(NOWHERE, |start| start.wrapping_add(value)),
    };
    let offset = u32::try_from(offset).map_err(|_| BlobError::OutOfRange(name()))?;
    Ok((DebugPlace { offset, wide, section }, value))
}

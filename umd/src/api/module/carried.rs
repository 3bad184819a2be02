// SPDX-License-Identifier: MIT OR Apache-2.0
//! SPIR-V that Intel's native binaries carry. SYCL programs that were compiled ahead of time bring an archive
//! with a binary for each GPU and, for all others, SPIR-V (`generic_ir`); a single binary may carry its own.
//! Intel's driver builds that where no binary is for its device, and so does this one.
//!
//! The formats are those of compute-runtime's `shared/source/device_binary_format`: an archive of `ar`, and ELF
//! files with sections of Intel's types.

use object::LittleEndian;
use object::elf::{FileHeader64, SectionType};
use object::read::archive::ArchiveFile;
use object::read::elf::{FileHeader, SectionHeader};

/// The type of a section with SPIR-V.
const SPIRV: SectionType = SectionType(0xff00_0009);
/// The type of a section with build flags, in files that are no binary.
const FLAGS: SectionType = SectionType(0xff00_0006);
/// The name of such a section in binaries.
const MISC_FLAGS: &[u8] = b".misc.buildOptions";
/// The beginning of the name of an archive's file with SPIR-V for all devices.
const FOR_ALL: &[u8] = b"generic_ir";

/// What a binary carries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Carried<'b> {
    pub(super) spirv: &'b [u8],
    /// Build flags that belong to it.
    pub(super) flags: String,
}

/// The SPIR-V in an archive or an ELF file; that for all devices if there are several.
pub(super) fn find(binary: &[u8]) -> Option<Carried<'_>> {
    let Ok(archive) = ArchiveFile::parse(binary) else { return in_elf(binary) };
    let mut found = None;
    for member in archive.members() {
        let member = member.ok()?;
        let carried = member.data(binary).ok().and_then(in_elf);
        if carried.is_some() && member.name().starts_with(FOR_ALL) {
            return carried;
        }
        found = found.or(carried);
    }
    found
}

fn in_elf(file: &[u8]) -> Option<Carried<'_>> {
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, file).ok()?;
    let mut carried = Carried::default();
    for section in sections.iter() {
        let Ok(data) = section.data(endian, file) else { continue };
        let name = sections.section_name(endian, section).unwrap_or_default();
        match section.sh_type(endian) {
            SPIRV => carried.spirv = data,
            kind if kind == FLAGS || name == MISC_FLAGS => {
                // A string may end with a zero.
                let text = data.split(|&byte| byte == 0).next().unwrap_or_default();
                carried.flags = String::from_utf8_lossy(text).into_owned();
            }
            _ => {}
        }
    }
    Some(carried).filter(|carried| !carried.spirv.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with these sections: types and contents.
    fn elf(sections: &[(SectionType, &[u8])]) -> Vec<u8> {
        let names = [&[0], MISC_FLAGS, &[0]].concat();
        let sections = [&[(STRINGS, &names[..])], sections].concat();
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let count = sections.len() as u16 + 1;
        for field in [0xff02_u16, 0] {
            file.extend(field.to_le_bytes());
        }
        file.extend(1_u32.to_le_bytes());
        for offset in [0_u64, 0, 64] {
            file.extend(offset.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for field in [64_u16, 56, 0, 64, count, 1] {
            file.extend(field.to_le_bytes());
        }
        let mut at = 64 + 64 * u64::from(count);
        file.extend([0; 64]);
        for (kind, contents) in &sections {
            file.extend(u32::from(*kind == MISC).to_le_bytes());
            file.extend(kind.0.to_le_bytes());
            for field in [0, 0, at, contents.len() as u64, 0, 8, 0] {
                file.extend(u64::to_le_bytes(field));
            }
            at += contents.len() as u64;
        }
        sections.iter().for_each(|(_, contents)| file.extend(*contents));
        file
    }

    /// An archive with these files.
    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = b"!<arch>\n".to_vec();
        for (name, contents) in files {
            let name = format!("{name}/");
            bytes.extend(
                format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, contents.len())
                    .bytes(),
            );
            bytes.extend(*contents);
            bytes.resize(bytes.len().next_multiple_of(2), b'\n');
        }
        bytes
    }

    const STRINGS: SectionType = SectionType(3);
    const NOTE: SectionType = SectionType(7);
    const MISC: SectionType = SectionType(0xff00_0013);

    fn example() -> Vec<u8> {
        let own = elf(&[(NOTE, b"code"), (SPIRV, b"its own")]);
        let general = elf(&[(SPIRV, b"for all"), (FLAGS, b"-cl-fast-relaxed-math\0")]);
        archive(&[("64.dg2", &own), ("pad_0", b"12345"), ("generic_ir", &general)])
    }

    #[test]
    fn spirv_for_all_devices_is_preferred() {
        let bytes = example();
        let flags = "-cl-fast-relaxed-math".to_owned();
        assert_eq!(find(&bytes), Some(Carried { spirv: b"for all", flags }));
        let one = elf(&[(NOTE, b"code"), (SPIRV, b"its own"), (MISC, b"-g")]);
        let expected = || Some(Carried { spirv: b"its own", flags: "-g".to_owned() });
        assert_eq!(find(&one), expected());
        assert_eq!(find(&archive(&[("64.dg2", &one)])), expected());
        assert_eq!(find(&archive(&[("64.dg2", &elf(&[(NOTE, b"code")]))])), None);
        assert_eq!(find(b"TALLY"), None);
    }

    /// Nothing that is cut off or changed does harm.
    #[test]
    fn damaged_binaries_are_read_without_harm() {
        let bytes = example();
        for end in 0..bytes.len() {
            find(&bytes[..end]);
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                find(&changed);
            }
        }
    }
}

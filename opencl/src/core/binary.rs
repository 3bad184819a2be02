// SPDX-License-Identifier: MIT OR Apache-2.0
//! Binaries of programs: ELF files with one section of SPIR-V.
//!
//! Intel's drivers store SPIR-V in their binaries this way, and `zeModuleCreate` looks for it in native ones
//! (`umd/src/api/module/carried.rs`). So a program's binary is a Level Zero module on Intel's GPUs, too.

use tally_opencl_c::is_spirv;

/// The type of a section with SPIR-V.
const SPIRV: u32 = 0xff00_0009;
/// The type of a section with strings.
const STRINGS: u32 = 3;
/// The file's type: one that only carries other code for programs. Both numbers are Intel's.
const DEBUG: u16 = 0xff02;
/// Names of the sections: none for the first, which every file has.
const NAMES: &[u8] = b"\0.shstrtab\0.spv\0";
const NAME_OF_NAMES: u32 = 1;
const NAME_OF_SPIRV: u32 = 11;
/// Bytes of the file's header, and of each section's.
const HEADER: usize = 64;
const SECTION: usize = 64;
const SECTIONS: usize = 3;
/// The first byte of the SPIR-V, a multiple of 8.
const FIRST: usize = (HEADER + SECTIONS * SECTION + NAMES.len()).next_multiple_of(8);

/// A binary with this SPIR-V.
pub fn wrap(spirv: &[u8]) -> Vec<u8> {
    let mut file = header();
    let names_at = HEADER + SECTIONS * SECTION;
    for (name, kind, at, len) in [
        (0, 0, 0, 0),
        (NAME_OF_NAMES, STRINGS, names_at, NAMES.len()),
        (NAME_OF_SPIRV, SPIRV, FIRST, spirv.len()),
    ] {
        file.extend([name, kind].map(u32::to_le_bytes).concat());
        let align = u64::from(kind != 0) * 8;
        let fields = [0, 0, at as u64, len as u64, 0, align, 0];
        file.extend(fields.map(u64::to_le_bytes).concat());
    }
    file.extend(NAMES);
    file.resize(FIRST, 0);
    file.extend(spirv);
    file
}

fn header() -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([DEBUG, 0].map(u16::to_le_bytes).concat());
    file.extend(1_u32.to_le_bytes());
    file.extend([0, 0, HEADER as u64].map(u64::to_le_bytes).concat());
    file.extend(0_u32.to_le_bytes());
    let sizes = [HEADER as u16, 0, 0, SECTION as u16, SECTIONS as u16, 1];
    file.extend(sizes.map(u16::to_le_bytes).concat());
    file
}

/// The SPIR-V in a binary that [`wrap`] made, or nothing.
pub fn unwrap(binary: &[u8]) -> Option<&[u8]> {
    let spirv = binary.get(FIRST..).filter(|spirv| is_spirv(spirv))?;
    // The rest holds no choice but the length.
    (wrap(spirv) == binary).then_some(spirv)
}

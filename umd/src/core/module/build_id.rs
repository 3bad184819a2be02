// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of a compiler program, for the cache.
//!
//! A packaged compiler contains LLVM and has a build id, so a cache outlives an installation and serves several.
//! Any other compiler uses the LLVM of the machine, and its file is the identity.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The owner of a note, and its type among the notes of that owner.
type Kind<'a> = (&'a [u8], u32);

/// Bytes at the start of a program that contain its headers and, after them, its notes.
const HEAD: u64 = 4096;
/// PT_NOTE.
const NOTES: u32 = 4;
/// The linker's note: a hash of everything that it has linked (NT_GNU_BUILD_ID).
const BUILD: Kind<'static> = (b"GNU\0", 3);
/// The note of a compiler that contains LLVM (compiler/src/portable.rs).
const WHOLE: Kind<'static> = (b"Tally\0", 1);

/// The identity of this compiler.
pub fn of(program: &Path) -> io::Result<String> {
    let mut file = File::open(program)?;
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(HEAD).read_to_end(&mut head)?;
    if let Some(id) = of_whole(&head) {
        return Ok(id.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    let about = file.metadata()?;
    let (size, inode, seconds, ns) = (about.len(), about.ino(), about.mtime(), about.mtime_nsec());
    Ok(format!("{} {size} {inode} {seconds} {ns}", program.display()))
}

/// The hash of a program that contains LLVM, from its first bytes.
fn of_whole(head: &[u8]) -> Option<&[u8]> {
    // A 64-bit file, the least significant byte first.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (u64_at(head, 32)?, u16_at(head, 54)?, u16_at(head, 56)?);
    let (mut whole, mut build) = (false, None);
    for i in 0..usize::from(count) {
        let entry = head.get(table + i * usize::from(size)..)?;
        if u32_at(entry, 0)? != NOTES {
            continue;
        }
        let (start, len) = (u64_at(entry, 8)?, u64_at(entry, 32)?);
        let mut notes = head.get(start..start.checked_add(len)?).unwrap_or_default();
        while let Some((kind, bytes)) = next_note(&mut notes) {
            whole |= kind == WHOLE;
            build = if kind == BUILD { Some(bytes) } else { build };
        }
    }
    build.filter(|_| whole)
}

/// Takes the first note: its kind and its bytes.
fn next_note<'a>(notes: &mut &'a [u8]) -> Option<(Kind<'a>, &'a [u8])> {
    let name_len = u32_at(notes, 0)? as usize;
    let (len, kind) = (u32_at(notes, 4)? as usize, u32_at(notes, 8)?);
    let (name, rest) = padded(notes.get(12..)?, name_len)?;
    let (bytes, rest) = padded(rest, len)?;
    *notes = rest;
    Some(((name, kind), bytes))
}

/// The first `len` bytes, and the rest after the words that they fill.
fn padded(bytes: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    let rest = bytes.get(len.checked_next_multiple_of(4)?..)?;
    Some((&bytes[..len], rest))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A number that is an offset or a length in the file's first bytes.
fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    let number = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    usize::try_from(number).ok().filter(|&it| it as u64 <= HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note((name, kind): Kind<'_>, bytes: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [name.len() as u32, bytes.len() as u32, kind] {
            note.extend(number.to_le_bytes());
        }
        for part in [name, bytes] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    /// A program with one segment of notes.
    fn program(notes: &[Vec<u8>]) -> Vec<u8> {
        let notes = notes.concat();
        let mut head = b"\x7fELF\x02\x01".to_vec();
        head.resize(64 + 56, 0);
        head[32] = 64;
        head[54] = 56;
        head[56] = 1;
        head[64] = NOTES as u8;
        head[64 + 8] = 64 + 56;
        head[64 + 32] = u8::try_from(notes.len()).unwrap();
        head.extend(notes);
        head
    }

    /// "A packaged compiler contains LLVM and has a build id"
    #[test]
    fn a_build_counts_if_llvm_is_inside() {
        let (build, whole) = (note(BUILD, b"12345"), note(WHOLE, b""));
        for notes in [[build.clone(), whole.clone()], [whole.clone(), build.clone()]] {
            let program = program(&notes);
            assert_eq!(of_whole(&program), Some(&b"12345"[..]));
            for len in 0..program.len() {
                // A truncated program may lack either note; it is never read beyond its end.
                assert!(of_whole(&program[..len]).is_none_or(|id| id == b"12345"));
            }
        }
        assert_eq!(of_whole(&program(&[build])), None);
        assert_eq!(of_whole(&program(&[whole])), None);
        assert_eq!(of_whole(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn other_compilers_are_told_apart_by_their_file() {
        let of_this = of(&std::env::current_exe().unwrap()).unwrap();
        assert!(of_this.split(' ').count() > 4, "{of_this}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of kernels' `printf`: the ring that they write to, and the text that the host makes from
//! it.
//!
//! `printf` in a kernel writes a *record* to a ring in memory: the format, and each argument with its
//! type. The host formats it later ([`text`]). A record is self-contained, strings included, so it
//! outlives the memory and the module of the kernel.
//!
//! ```text
//!  ring      0 head    bytes that writers have reserved, ever
//!           64 tail    bytes that the reader has freed, ever
//!          128 refused calls that found no room
//!          192 capacity of the data in bytes, a power of two
//!         4096 data    byte n of the stream is at n mod capacity
//!
//!  record    0 u64     its bytes, a multiple of 8; written last
//!            8 u32     bytes of the format
//!           12 u32     bytes of the arguments
//!           16 …       the format, then the arguments, each padded to 8
//!
//!  argument  0 u8      kind
//!            1 u8      bytes of a component: 1, 2, 4 or 8
//!            2 u8      components
//!            4 u32     bytes of the value
//!            8 …       the value, padded to 8
//! ```
//!
//! A writer reserves room for its record with a compare-and-swap on `head`, fills it, and stores its
//! first word with release order. Free room is all zeros, so the first word of an incomplete record
//! reads as 0. A record does not wrap: a word with [`SKIP`] and the number of bytes skips the rest of
//! the ring. The reader continues at `tail`, zeroes what it has read, and advances `tail`. A call that
//! finds no room writes nothing, increments `refused` and returns -1.
//!
//! Kernels pass the address of a string to the library (`rt/printf.c`); the record then holds its
//! characters.

mod argument;
mod format;
mod number;

use argument::Argument;
pub use argument::{Kind, NULL_STRING, argument_header};
pub use format::{Conversion, Count, Length, Piece, pieces};

/// Offset of the bytes that writers have reserved, a u64.
pub const HEAD: usize = 0;
/// Offset of the bytes that the reader has freed, a u64.
pub const TAIL: usize = 64;
/// Offset of the number of calls that found no room, a u64.
pub const REFUSED: usize = 128;
/// Offset of the bytes of the data, a u64.
pub const CAPACITY: usize = 192;
/// Offset of the data.
pub const DATA: usize = 4096;
/// Flag in a record's first word: the reader skips the record.
pub const SKIP: u64 = 1 << 63;
/// Bytes of a record before the format.
pub const RECORD_HEADER: usize = 16;

/// Formats a record. `None` if the bytes are no record.
///
/// An argument whose type does not fit its conversion is printed by its own type; a conversion without
/// an argument is printed literally.
pub fn text(record: &[u8]) -> Option<Vec<u8>> {
    let length = |at: usize| {
        let bytes = record.get(at..at + 4)?.first_chunk::<4>()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let (format, arguments) = (length(8)?, length(12)?);
    let rest = record.get(RECORD_HEADER..)?;
    let text = rest.get(..format)?;
    let mut rest = rest.get(format.next_multiple_of(8)..)?.get(..arguments)?;
    let mut list = Vec::new();
    while !rest.is_empty() {
        let (argument, after) = Argument::read(rest)?;
        list.push(argument);
        rest = after;
    }
    Some(format::print(text, &list))
}

/// Encodes a record as a kernel does, from a format and arguments that hold their strings.
pub fn record(format: &[u8], arguments: &[u8]) -> Vec<u8> {
    let text = format.len().next_multiple_of(8);
    let size = RECORD_HEADER + text + arguments.len();
    let mut record = (size as u64).to_le_bytes().to_vec();
    record.extend_from_slice(&(format.len() as u32).to_le_bytes());
    record.extend_from_slice(&(arguments.len() as u32).to_le_bytes());
    record.extend_from_slice(format);
    record.resize(RECORD_HEADER + text, 0);
    record.extend_from_slice(arguments);
    record
}

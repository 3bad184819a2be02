// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of kernels' printf: the buffer that they write to, and the text that the host makes
//! of it.
//!
//! `printf` in a kernel writes a *record* to a ring in memory: the format, and each argument with
//! its type. The host formats it later ([`text`]). A record holds all that is needed, strings
//! included, so it outlives the memory and the module that it came from.
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
//! A writer takes room for its record by a compare-and-swap on `head`, fills it, and stores its
//! first word with release. What is free is all zeros, so a record that is not complete reads as 0.
//! A record does not wrap: the rest of the ring is skipped by a word with [`SKIP`] and its bytes.
//! The reader goes from `tail` on, zeroes what it has read, and advances `tail`. A call that finds
//! no room writes nothing, counts itself in `refused` and returns -1.
//!
//! In what kernels hand to the library (`rt/printf.c`), the value of a string is its address; the
//! record then holds its characters.

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
/// The flag of a record's first word that says that the record is only to be skipped.
pub const SKIP: u64 = 1 << 63;
/// Bytes of a record before the format.
pub const RECORD_HEADER: usize = 16;

/// The text of a record. `None`: the bytes are no record.
///
/// Arguments that a conversion does not fit are printed as what they are; a conversion without an
/// argument is printed as it stands.
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

/// A record as a kernel writes it, of a format and arguments whose strings are in place.
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

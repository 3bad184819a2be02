// SPDX-License-Identifier: MIT OR Apache-2.0
//! `printf`: the text is appended to a list beside the memory.

use tally_compiler_protocol::printf;

use super::{Memory, MemoryError};

/// The kind of an argument that is a string.
const STRING: u64 = printf::Kind::String as u64;

/// Prints `bytes` bytes of arguments at one address by the format at another.
pub fn print(memory: &mut Memory, format: u64, args: u64, bytes: u32) -> Result<(), MemoryError> {
    let format = string(memory, format)?;
    let mut list = vec![0; bytes as usize];
    if bytes > 0 {
        memory.read(args, &mut list)?;
    }
    let mut arguments = Vec::new();
    let mut words = list.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    while let Some(header) = words.next() {
        let value = words.by_ref().take((header >> 32).div_ceil(8) as usize).collect::<Vec<_>>();
        let (header, value) = match (header & 0xff, value.as_slice()) {
            (STRING, [0]) => (with_length(header, printf::NULL_STRING), Vec::new()),
            (STRING, [address]) => {
                let text = string(memory, *address)?;
                (with_length(header, text.len() as u32), text)
            }
            _ => (header, value.iter().flat_map(|word| word.to_le_bytes()).collect()),
        };
        arguments.extend_from_slice(&header.to_le_bytes());
        arguments.extend_from_slice(&value);
        arguments.resize(arguments.len().next_multiple_of(8), 0);
    }
    let text = printf::text(&printf::record(&format, &arguments));
    memory.printed.push(text.unwrap_or_default());
    Ok(())
}

fn with_length(header: u64, length: u32) -> u64 {
    header & 0xffff_ffff | u64::from(length) << 32
}

/// The characters from an address to a NUL.
fn string(memory: &Memory, mut address: u64) -> Result<Vec<u8>, MemoryError> {
    let mut text = Vec::new();
    loop {
        let mut byte = [0];
        memory.read(address, &mut byte)?;
        if byte == [0] {
            return Ok(text);
        }
        text.push(byte[0]);
        address = address.wrapping_add(1);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of which each item reads most, but not all: three components of a `float4`, or of a `float3`, which is aligned
//! like one.
//!
//! Two gathers would read them, a word and a component. A row is one load for each item, so what is missing is read, too.
//! It lies in the same aligned bytes as the rest, and thus in the same page.

use super::words::LONGEST;
use super::{CHUNK, Chunk, Finder, Kind, NOWHERE, Part, lines};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "filled-rows";

impl Finder<'_> {
    /// Adds the missing parts to the rows of which most parts are read. Parts are in order.
    pub(super) fn fill(&self, chunk: &mut Chunk) {
        let line = lines::parts_of_line(self.module, chunk, &chunk.parts);
        let may = chunk.kind == Kind::Read && chunk.transposes && !chunk.few && line == 0;
        if !may || is_skipped(NAME) {
            return;
        }
        let size = self.module.types.size(chunk.element) as i64;
        let missing = |offset: i64, row: &[Part]| Part {
            index: NOWHERE,
            offset,
            align: size as u32,
            // A constant, so that nothing is named after the part.
            value: chunk.mask,
            ..row[0].clone()
        };
        let mut filled: Vec<Part> = Vec::with_capacity(chunk.parts.len());
        let mut parts = chunk.parts.as_slice();
        while let Some(first) = parts.first() {
            let reach = |part: &Part| part.offset.wrapping_sub(first.offset);
            let inside = |part: &&Part| (0..CHUNK as i64).contains(&reach(part));
            let count = parts.iter().take_while(inside).count();
            let fits = parts[..count].iter().all(|part| reach(part) % size == 0);
            let is_aligned = u64::from(first.align) >= CHUNK;
            if !is_aligned || !fits || count as u64 * size as u64 <= LONGEST {
                filled.push(first.clone());
                parts = &parts[1..];
                continue;
            }
            let (row, rest) = parts.split_at(count);
            for distance in (0..CHUNK as i64).step_by(size as usize) {
                let offset = first.offset.wrapping_add(distance);
                let own = row.iter().find(|part| part.offset == offset).cloned();
                filled.push(own.unwrap_or_else(|| missing(offset, row)));
            }
            parts = rest;
        }
        chunk.parts = filled;
    }
}

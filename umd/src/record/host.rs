// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's own memory that commands read: what the recording has of it already, in chunks, since programs copy
//! from the same arrays again and again.

use std::collections::BTreeMap;

use crate::recording::hash;

/// Bytes of a chunk, which begins at a multiple of that.
const CHUNK: u64 = 4096;
/// The most bytes of one record.
const PART: usize = 1 << 20;

/// What was recorded last of each chunk.
#[derive(Default)]
pub struct Host(BTreeMap<u64, Known>);

/// The part of a chunk that was recorded, and its hash.
#[derive(PartialEq, Eq)]
struct Known {
    start: u64,
    end: u64,
    hash: u64,
}

impl Host {
    /// Forgets a range that commands have written.
    pub fn forget(&mut self, address: u64, size: u64) {
        let first = address - address % CHUNK;
        let end = address.saturating_add(size);
        let chunks: Vec<u64> = self.0.range(first..end).map(|it| *it.0).collect();
        for chunk in chunks {
            self.0.remove(&chunk);
        }
    }

    /// The parts of a range, with their addresses, that are not what was recorded last.
    pub fn changed<'a>(&mut self, address: u64, bytes: &'a [u8]) -> Vec<(u64, &'a [u8])> {
        let mut parts: Vec<(usize, usize)> = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let start = address + at as u64;
            let chunk = start - start % CHUNK;
            let until = (at + (chunk + CHUNK - start) as usize).min(bytes.len());
            let (end, hash) = (address + until as u64, hash(&bytes[at..until]));
            let now = Known { start, end, hash };
            if self.0.get(&chunk) != Some(&now) {
                self.0.insert(chunk, now);
                match parts.last_mut() {
                    Some((first, last)) if *last == at && until - *first <= PART => *last = until,
                    _ => parts.push((at, until)),
                }
            }
            at = until;
        }
        let part = |(first, last): (usize, usize)| (address + first as u64, &bytes[first..last]);
        parts.into_iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_told() {
        let mut host = Host::default();
        let mut bytes = vec![7; 3 * CHUNK as usize];
        let told = |host: &mut Host, at, bytes: &[u8]| -> Vec<(u64, usize)> {
            host.changed(at, bytes).iter().map(|it| (it.0, it.1.len())).collect()
        };
        let at = 10 * CHUNK - 16;
        assert_eq!(told(&mut host, at, &bytes), [(at, bytes.len())]);
        assert!(told(&mut host, at, &bytes).is_empty());
        bytes[20] = 1;
        assert_eq!(told(&mut host, at, &bytes), [(10 * CHUNK, CHUNK as usize)]);
        // Another range with other bytes in between: then the first one's have changed back.
        assert_eq!(told(&mut host, 10 * CHUNK, &[2; 8]), [(10 * CHUNK, 8)]);
        assert_eq!(told(&mut host, at, &bytes), [(10 * CHUNK, CHUNK as usize)]);
        host.forget(at + 1, 1);
        assert_eq!(told(&mut host, at, &bytes), [(at, 16)]);
    }
}

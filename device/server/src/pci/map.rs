// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mappings of a VM that the hub has ordered.

use std::collections::BTreeMap;

use tally_engine::mailbox::Piece;
use tally_uapi::firmware::map_flag;

/// The mappings of a VM. Neighbours that continue each other count as one, as
/// for the kernel.
#[derive(Debug, Default)]
pub struct Map {
    /// The pieces by their first VA; they do not overlap.
    pieces: BTreeMap<u64, Piece>,
    /// Writable bytes without a file.
    null_bytes: u64,
}

impl Map {
    /// The number of mappings.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of writable mappings without a file. Zeros that are only read cost nothing.
    pub fn null_bytes(&self) -> u64 {
        self.null_bytes
    }

    /// Maps a piece and replaces earlier mappings of its range, or removes the mappings of the range.
    pub fn apply(&mut self, piece: Piece) {
        self.cut(piece.address, piece.address + piece.bytes);
        if piece.is_unmap() {
            return;
        }
        let mut piece = piece;
        if let Some((_, before)) = self.pieces.range(..piece.address).next_back()
            && continues(before, &piece)
        {
            let before = *before;
            self.remove(before.address);
            piece = Piece { bytes: before.bytes + piece.bytes, ..before };
        }
        if let Some(after) = self.pieces.get(&(piece.address + piece.bytes))
            && continues(&piece, after)
        {
            let after = *after;
            self.remove(after.address);
            piece.bytes += after.bytes;
        }
        self.insert(piece);
    }

    /// Whether all of a range is mapped with at least this access.
    pub fn covers(&self, address: u64, bytes: u64, access: u32) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let mut at = address;
        while at < end {
            match self.pieces.range(..=at).next_back() {
                Some((_, piece))
                    if piece.address + piece.bytes > at && piece.access & access == access =>
                {
                    at = piece.address + piece.bytes;
                }
                _ => return false,
            }
        }
        true
    }

    fn insert(&mut self, piece: Piece) {
        if is_filled(&piece) {
            self.null_bytes += piece.bytes;
        }
        self.pieces.insert(piece.address, piece);
    }

    fn remove(&mut self, address: u64) {
        if let Some(piece) = self.pieces.remove(&address)
            && is_filled(&piece)
        {
            self.null_bytes -= piece.bytes;
        }
    }

    fn cut(&mut self, start: u64, end: u64) {
        let from = match self.pieces.range(..start).next_back() {
            Some((&first, piece)) if first + piece.bytes > start => first,
            _ => start,
        };
        let cut: Vec<Piece> = self.pieces.range(from..end).map(|(_, &piece)| piece).collect();
        for piece in cut {
            self.remove(piece.address);
            if piece.address < start {
                self.insert(part(&piece, piece.address, start));
            }
            let piece_end = piece.address + piece.bytes;
            if piece_end > end {
                self.insert(part(&piece, end, piece_end));
            }
        }
    }
}

/// Whether kernels can make the piece consume memory that belongs to no file.
fn is_filled(piece: &Piece) -> bool {
    piece.file.is_none() && piece.access & map_flag::WRITE != 0
}

fn part(piece: &Piece, start: u64, end: u64) -> Piece {
    let offset = if piece.file.is_some() { piece.offset + (start - piece.address) } else { 0 };
    Piece { address: start, bytes: end - start, offset, ..*piece }
}

/// Whether `after` continues `before`, in the VM and in the file.
pub fn continues(before: &Piece, after: &Piece) -> bool {
    let same = before.file == after.file && before.access == after.access;
    let in_file = before.file.is_none() || before.offset + before.bytes == after.offset;
    same && in_file && before.address + before.bytes == after.address
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn piece(address: u64, pages: u64, offset: u64, access: u32) -> Piece {
        let (address, offset) = (address * PAGE, offset * PAGE);
        Piece { address, bytes: pages * PAGE, offset, file: Some(0), access }
    }

    #[test]
    fn neighbours_join_only_if_they_continue_each_other() {
        let mut map = Map::default();
        map.apply(piece(10, 1, 5, 3));
        map.apply(piece(12, 1, 7, 3));
        map.apply(piece(11, 1, 6, 3));
        assert_eq!(map.len(), 1);
        map.apply(piece(13, 1, 9, 3));
        assert_eq!(map.len(), 2, "not in the file");
        map.apply(piece(14, 1, 10, 1));
        assert_eq!(map.len(), 3, "another access");
    }

    #[test]
    fn unmapping_leaves_what_is_beside() {
        let mut map = Map::default();
        map.apply(piece(0, 10, 100, 3));
        map.apply(Piece::unmap(4 * PAGE, 2 * PAGE));
        assert_eq!(map.len(), 2);
        assert!(map.covers(0, 4 * PAGE, 3) && !map.covers(0, 5 * PAGE, 1));
        assert!(map.covers(6 * PAGE, 4 * PAGE, 3));
        assert_eq!(map.pieces[&(6 * PAGE)].offset, 106 * PAGE);
        assert!(!map.covers(0, PAGE, 4) && !map.covers(u64::MAX, 2, 1));
    }

    #[test]
    fn bytes_without_a_file_are_counted_if_kernels_can_fill_them() {
        let mut map = Map::default();
        map.apply(Piece { file: None, offset: 0, ..piece(0, 10, 0, 3) });
        map.apply(piece(2, 2, 0, 3));
        assert_eq!(map.null_bytes(), 8 * PAGE);
        map.apply(Piece { file: None, offset: 0, ..piece(20, 5, 0, map_flag::READ) });
        assert_eq!(map.null_bytes(), 8 * PAGE, "kernels cannot fill what they only read");
        map.apply(Piece::unmap(20 * PAGE, 5 * PAGE));
        map.apply(Piece::unmap(0, 10 * PAGE));
        assert_eq!((map.null_bytes(), map.len()), (0, 0));
    }
}

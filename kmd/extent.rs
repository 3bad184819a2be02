// SPDX-License-Identifier: GPL-2.0
//! Cuts a part out of a list of memory pieces, and joins neighbours: the extents that
//! VM_MAP is given for a range of a buffer.

use tally_uapi::firmware::Extent;

/// The pieces of `pieces` that hold the bytes from `skip` to `skip` + `bytes`.
///
/// Pieces that follow each other on the bus become one.
pub(crate) struct Cut<I> {
    pieces: I,
    skip: u64,
    bytes: u64,
    pending: Option<Extent>,
}

impl<I: Iterator<Item = (u64, u64)>> Cut<I> {
    /// `pieces` are bus addresses and lengths.
    pub(crate) fn new(pieces: I, skip: u64, bytes: u64) -> Self {
        Self {
            pieces,
            skip,
            bytes,
            pending: None,
        }
    }

    /// The next piece that is in the part, cut at its ends.
    fn piece(&mut self) -> Option<Extent> {
        while self.bytes != 0 {
            let (address, length) = self.pieces.next()?;
            if length <= self.skip {
                self.skip -= length;
                continue;
            }
            let bytes = (length - self.skip).min(self.bytes);
            let address = address + self.skip;
            self.skip = 0;
            self.bytes -= bytes;
            return Some(Extent { address, bytes });
        }
        None
    }
}

impl<I: Iterator<Item = (u64, u64)>> Iterator for Cut<I> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut joined = match self.pending.take() {
            Some(extent) => extent,
            None => self.piece()?,
        };
        while let Some(next) = self.piece() {
            if joined.address + joined.bytes != next.address {
                self.pending = Some(next);
                break;
            }
            joined.bytes += next.bytes;
        }
        Some(joined)
    }
}

#[kernel::macros::kunit_tests(tally_extent)]
mod tests {
    use super::*;

    const PIECES: [(u64, u64); 4] = [
        (0x1000, 0x1000),
        (0x2000, 0x2000),
        (0x9000, 0x1000),
        (0x5000, 0x1000),
    ];

    fn cut(skip: u64, bytes: u64) -> [(u64, u64); 4] {
        let mut out = [(0, 0); 4];
        for (slot, extent) in out
            .iter_mut()
            .zip(Cut::new(PIECES.into_iter(), skip, bytes))
        {
            *slot = (extent.address, extent.bytes);
        }
        out
    }

    /// "Pieces that follow each other on the bus become one."
    #[test]
    fn neighbours_are_joined() {
        assert_eq!(
            cut(0, 0x5000),
            [(0x1000, 0x3000), (0x9000, 0x1000), (0x5000, 0x1000), (0, 0)]
        );
    }

    /// "The pieces of `pieces` that hold the bytes from `skip` to `skip` + `bytes`."
    #[test]
    fn both_ends_are_cut() {
        assert_eq!(
            cut(0x1000, 0x1000),
            [(0x2000, 0x1000), (0, 0), (0, 0), (0, 0)]
        );
        assert_eq!(
            cut(0x2000, 0x2000),
            [(0x3000, 0x1000), (0x9000, 0x1000), (0, 0), (0, 0)]
        );
        assert_eq!(
            cut(0x4000, 0x1000),
            [(0x5000, 0x1000), (0, 0), (0, 0), (0, 0)]
        );
    }

    #[test]
    fn nothing_is_beyond_the_end() {
        assert_eq!(cut(0x5000, 0x1000), [(0, 0); 4]);
        assert_eq!(cut(0, 0), [(0, 0); 4]);
    }
}

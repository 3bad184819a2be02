// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hash that distinguishes contents and detects damage. It does not resist an attacker.

use twox_hash::XxHash3_128;

/// XXH3 of 128 bits, of several pieces one after the other.
pub fn fingerprint<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> [u8; 16] {
    let mut hash = XxHash3_128::new();
    pieces.into_iter().for_each(|piece| hash.write(piece));
    hash.finish_128().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn pieces_are_one_content() {
        assert_eq!(fingerprint([&b"ab"[..], b"c"]), fingerprint([&b"abc"[..]]));
        assert_ne!(fingerprint([&b"abc"[..]]), fingerprint([&b"abd"[..]]));
        assert_ne!(fingerprint([&b""[..]]), [0; 16]);
    }

    /// Cache files and native binaries contain it, so a change of it needs a new version of the format.
    #[test]
    fn it_is_xxh3() {
        let empty = 0x99aa_06d3_0147_98d8_6001_c324_468d_497f_u128;
        assert_eq!(fingerprint([&b""[..]]), empty.to_le_bytes());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The 64 bytes of a handle.

use std::ffi::c_char;

use tally_ze::ZE_MAX_IPC_HANDLE_SIZE;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::placeholder;
use crate::error::{Error, Result};

/// Random bytes that cannot be guessed.
pub type Secret = [u8; 16];

/// The kind of object that a handle refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr, strum::IntoStaticStr)]
#[repr(u32)]
pub enum Kind {
    /// An allocation.
    #[strum(serialize = "memory")]
    Memory = 1,
    /// A pool of regular events.
    #[strum(serialize = "an event pool")]
    EventPool = 2,
    /// A value of a counter.
    #[strum(serialize = "a counter-based event")]
    Counter = 3,
}

/// Bytes that every handle has; the last one is the version of the layout and of the messages.
const MAGIC: [u8; 4] = *b"TIP\x02";

/// A decoded handle. All bytes are accounted for, except the descriptor of memory and of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The kind of object that it refers to.
    pub kind: Kind,
    /// The meaning depends on the kind; it says nothing about what may be accessed.
    pub details: u32,
    /// The name of the socket of the process that made it.
    pub exporter: Secret,
    /// The secret that names the object there.
    pub secret: Secret,
    /// The value of a counter, otherwise 0.
    pub value: u64,
}

#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct Bytes {
    /// Programs written for drivers whose handles begin with a descriptor send the descriptor along and replace it
    /// by the received one. It has no meaning here. It is 0 for a counter, whose handle has no memory.
    descriptor: i32,
    magic: [u8; 4],
    kind: u32,
    details: u32,
    exporter: Secret,
    secret: Secret,
    value: u64,
    /// A checksum of the fields between. It is not for security: it distinguishes damage from a process that
    /// is gone.
    check: u64,
}

const _: () = assert!(size_of::<Bytes>() == ZE_MAX_IPC_HANDLE_SIZE);

impl Bytes {
    /// FNV-1a. It differs for any two handles that differ in one byte, which a faster hash does not
    /// guarantee; and speed is of no use for 52 bytes.
    fn sum(&self) -> u64 {
        let bytes = self.as_bytes();
        let covered = &bytes[size_of::<i32>()..size_of::<Self>() - size_of::<u64>()];
        covered.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }
}

impl Handle {
    /// The bytes that the application sends.
    pub fn to_bytes(self) -> [c_char; ZE_MAX_IPC_HANDLE_SIZE] {
        let mut bytes = Bytes {
            descriptor: match self.kind {
                Kind::Memory | Kind::EventPool => placeholder::descriptor(),
                Kind::Counter => 0,
            },
            magic: MAGIC,
            kind: self.kind as u32,
            details: self.details,
            exporter: self.exporter,
            secret: self.secret,
            value: self.value,
            check: 0,
        };
        bytes.check = bytes.sum();
        zerocopy::transmute!(bytes)
    }

    /// Parses the bytes of a handle of one kind.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub fn from_bytes(
        bytes: [c_char; ZE_MAX_IPC_HANDLE_SIZE],
        wanted: Kind,
        name: &str,
    ) -> Result<Self> {
        let bytes: Bytes = zerocopy::transmute!(bytes);
        let kind = Kind::from_repr(bytes.kind);
        let is_whole = bytes.magic == MAGIC
            && bytes.check == bytes.sum()
            && (kind != Some(Kind::Counter) || bytes.descriptor == 0);
        let (Some(kind), true) = (kind, is_whole) else {
            return Err(Error::invalid(format!("{name}: the bytes are no handle of this driver")));
        };
        if kind != wanted {
            let (is, wanted): (&str, &str) = (kind.into(), wanted.into());
            return Err(Error::invalid(format!("{name}: it is a handle of {is}, not of {wanted}")));
        }
        let Bytes { details, exporter, secret, value, .. } = bytes;
        Ok(Self { kind, details, exporter, secret, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(kind: Kind) -> Handle {
        Handle { kind, details: 5, exporter: [7; 16], secret: [9; 16], value: 3 }
    }

    #[test]
    fn a_handle_survives_its_bytes() {
        let bytes = handle(Kind::Counter).to_bytes();
        let again = Handle::from_bytes(bytes, Kind::Counter, "hIpc");
        assert_eq!(again, Ok(handle(Kind::Counter)));
        let error = Handle::from_bytes(bytes, Kind::Memory, "hIpc").expect_err("another kind");
        assert!(error.text().contains("counter-based event, not of memory"), "{error}");
    }

    #[test]
    fn the_descriptor_of_memory_and_of_a_pool_may_become_another() {
        for kind in [Kind::Memory, Kind::EventPool] {
            let mut bytes = handle(kind).to_bytes();
            bytes[..4].fill(77);
            assert_eq!(Handle::from_bytes(bytes, kind, "hIpc"), Ok(handle(kind)));
        }
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        for (kind, covered) in [(Kind::Memory, 32), (Kind::EventPool, 32), (Kind::Counter, 0)] {
            for bit in covered..ZE_MAX_IPC_HANDLE_SIZE * 8 {
                let mut bytes = handle(kind).to_bytes();
                bytes[bit / 8] ^= (1_u8 << (bit % 8)) as c_char;
                assert!(Handle::from_bytes(bytes, kind, "hIpc").is_err(), "{kind:?}: bit {bit}");
            }
        }
        assert!(Handle::from_bytes([0; 64], Kind::Counter, "hIpc").is_err());
    }
}

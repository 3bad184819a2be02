// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract between kernels that check their memory accesses and the driver that runs them.
//!
//! Each byte of the driver's addresses has a *state*, a byte in the shadow of those addresses:
//!
//! ```text
//!   addresses   [start, start + size)      size is a power of two, start a multiple of it
//!   shadow      [shadow, shadow + size)    the state of the byte at `a` lies at shadow + (a & (size - 1))
//! ```
//!
//! So an address outside has the state of some byte inside: that state means nothing before the
//! reporting code has checked the address itself. The driver sets states when memory is allocated and
//! freed; kernels set those of the bytes that they write.
//!
//! A checked kernel finds the address of its [`watch`] block, the number of its launch and the sizes of
//! its local arguments behind its other arguments ([`hidden`]). It reports its mistakes to the driver
//! as [`record`]s in a ring.

use serde::{Deserialize, Serialize};

/// The state of a byte that may not be accessed: it belongs to no allocation.
pub const NO_MEMORY: u8 = 0;
/// This bit of a state says that the byte may be accessed.
pub const ACCESSIBLE: u8 = 0x80;
/// The state of a byte that may be accessed and that nothing has been written to.
pub const UNDEFINED: u8 = ACCESSIBLE;
/// The state of a byte that may be accessed and that something was written to.
pub const DEFINED: u8 = 0xff;

/// The checks that code is built for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Checks {
    /// Accesses stay inside of allocations that exist; atomics are aligned.
    pub memory: bool,
    /// Bytes that are read were written before.
    pub init: bool,
    /// The code itself tells what other devices may not do.
    pub portable: bool,
    /// Accesses through pointers that were read tell where they go.
    pub reach: bool,
}

impl Checks {
    /// Whether there is any.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// Offsets in the block that all launches of a kernel's code share.
pub mod watch {
    /// The size of the addresses that have states, less one.
    pub const MASK: u32 = 0;
    /// The address of the shadow; 0 if there is none.
    pub const SHADOW: u32 = 8;
    /// The first of the addresses that have states.
    pub const START: u32 = 16;
    /// The address of the ring of records.
    pub const RING: u32 = 24;
    /// The address of two 64-bit words for each site: how many items have made a mistake there, and how many
    /// times that was noticed.
    pub const COUNTS: u32 = 32;
    /// The address of [`SEEN_COUNT`] words of 64 bits: launches and places that were told. None if nothing
    /// is told of places that are reached.
    pub const SEEN: u32 = 40;
    /// The maximum number of those.
    pub const SEEN_COUNT: u32 = 1024;
    /// Bytes of the block.
    pub const SIZE: u32 = 48;
}

/// Offsets in the words that the driver adds to a kernel's arguments.
pub mod hidden {
    /// The address of the watch block.
    pub const WATCH: u32 = 0;
    /// The driver's number for the launch. [`REACHES_ALL`] is a part of the word.
    pub const LAUNCH: u32 = 8;
    /// This bit says that the launch may reach all memory of the driver's.
    pub const REACHES_ALL: u64 = 1 << 63;
    /// Bytes of local memory of a group.
    pub const LOCAL: u32 = 16;
    /// Bytes of each local argument, a word each, in the order of the arguments.
    pub const LOCAL_ARGS: u32 = 24;
}

/// The ring of records, and a record: words of 64 bits.
pub mod record {
    /// Offset of the number of records that were begun.
    pub const HEAD: u32 = 0;
    /// Offset of the number of records that the driver has taken.
    pub const TAIL: u32 = 64;
    /// Offset of the number of records that found no room.
    pub const LOST: u32 = 128;
    /// Offset of the driver's count of allocations and frees.
    pub const EPOCH: u32 = 192;
    /// Offset of records of accesses to addresses without states, which may have faulted.
    pub const OUTSIDE: u32 = 256;
    /// The maximum number of those.
    pub const OUTSIDE_COUNT: u32 = 64;
    /// Offset of the first record.
    pub const FIRST: u32 = OUTSIDE + OUTSIDE_COUNT * BYTES;
    /// The number of records of a ring.
    pub const CAPACITY: u32 = 1024;
    /// Bytes of a record.
    pub const BYTES: u32 = 8 * WORDS as u32;
    /// Bytes of the ring.
    pub const SIZE: u32 = FIRST + CAPACITY * BYTES;
    /// Words of a record.
    pub const WORDS: usize = 16;

    /// Its number in the ring, from 1; stored last.
    pub const READY: usize = 0;
    /// The address of the watch block.
    pub const WATCH: usize = 1;
    /// The launch.
    pub const LAUNCH: usize = 2;
    /// The site in the low half, the number of the first item's lane in the high half.
    pub const SITE: usize = 3;
    /// The items of a vector that have made the mistake, one bit each.
    pub const ITEMS: usize = 4;
    /// The address that the first of these items has accessed, or an offset.
    pub const ADDRESS: usize = 5;
    /// The states of eight bytes from there on, of fewer at the end of the shadow.
    pub const STATES: usize = 6;
    /// The driver's count of allocations and frees.
    pub const WHEN: usize = 7;
    /// The work-group, 21 bits for each dimension.
    pub const GROUP: usize = 8;
    /// The first of those items in its group, 21 bits for each dimension.
    pub const LOCAL_ID: usize = 9;
    /// The same item in the launch: three words.
    pub const GLOBAL_ID: usize = 10;
}

/// What the check of an access to an image finds: 0, no mistake; the address of a texel that nothing has
/// written; or a word with the highest bit for a texel outside of the image.
pub mod texel {
    /// The coordinates of a texel outside of the image, 21 bits each.
    pub fn outside(word: u64) -> [i64; 3] {
        [0, 21, 42].map(|shift| (word >> shift << 43) as i64 >> 43)
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn coordinates_have_signs() {
            let word = 1 << 63 | 0x1f_ffff | 5 << 21 | 0x10_0000 << 42;
            assert_eq!(super::outside(word), [-1, 5, -(1 << 20)]);
        }
    }
}

/// The places of a kernel that are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sites {
    /// The source files that they name.
    pub files: Vec<String>,
    /// The places; records and counts refer to their indices.
    pub sites: Vec<Site>,
    /// The arguments, by index, through which the kernel writes, as far as that is known; only with
    /// [`Checks::portable`].
    pub written: Vec<u32>,
}

/// A place of a kernel that is checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The kind of access, and what is checked.
    pub kind: SiteKind,
    /// Bytes that one item accesses.
    pub size: u32,
    /// The kind of memory, as far as the module specifies it.
    pub space: Space,
    /// Index into [`Sites::files`], if the module names the file.
    pub file: Option<u32>,
    /// Line, from 1; 0 if it is not known.
    pub line: u32,
    /// Column, from 1; 0 if it is not known.
    pub column: u32,
    /// Offset of the instruction in the SPIR-V module, in words.
    pub word: u32,
    /// The function that the instruction is in.
    pub function: String,
    /// The object through which the memory is accessed: an argument or a variable, with its name.
    /// Empty if it is not known.
    pub object: String,
}

/// The kind of access at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SiteKind {
    /// Memory is read.
    Read,
    /// Memory is written.
    Write,
    /// Memory is updated atomically.
    Update,
    /// An atomic access must be aligned to its size.
    Align,
    /// A value is used that was read from memory before. The address is zero.
    Use,
    /// A private variable, or one of module scope, of `size` bytes is read; the address is an offset.
    ReadVariable {
        /// Bytes of the variable.
        size: u64,
    },
    /// The same for writing.
    WriteVariable {
        /// Bytes of the variable.
        size: u64,
    },
    /// Local memory that is an argument is read. The address is a distance from its end, negative in front
    /// of it.
    ReadLocal,
    /// The same for writing.
    WriteLocal,
    /// Memory is accessed through a pointer that was read. This is no mistake by itself.
    Reach,
    /// The kernel computes with doubles. Like the following ones nothing tells it while the kernel runs.
    Doubles,
    /// Items of a sub-group exchange values, and the kernel neither asks for the size of sub-groups nor
    /// requires one.
    Exchanges,
    /// The kernel waits in a loop for what others write to global memory.
    Waits,
    /// A private variable of `size` bytes is read where nothing has written it; the address is an offset.
    ReadUnwritten {
        /// Bytes of the variable.
        size: u64,
    },
    /// A texel outside of an image is read; the address is [`texel::outside`].
    ReadOutside,
    /// The same for writing.
    WriteOutside,
    /// A texel is read that nothing has written.
    ReadTexel,
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Space {
    /// Memory of one work-item.
    Private,
    /// Memory of a work-group.
    Local,
    /// Memory of all work-items.
    Global,
    /// Memory of all work-items that is not written.
    Constant,
    /// Any of these.
    Generic,
}

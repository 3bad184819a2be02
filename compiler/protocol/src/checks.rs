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
    /// Accesses to the same memory are ordered.
    pub races: bool,
    /// All work-items of a group reach its barriers.
    pub sync: bool,
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
    /// The address of the [cells](super::cell), if accesses to the same memory are looked at.
    pub const CELLS: u32 = 48;
    /// The address of a function `(block, launch, groups: u32) -> u32` that an execution's first group calls:
    /// the run of group 0, or 0 if nothing can be remembered of this execution.
    pub const BEGIN: u32 = 56;
    /// The address of a function `(run: u32, mine: u32) -> u64` that says whether the execution to which the
    /// first run belongs is complete before the one of the second started ([`ordered`](super::ordered)).
    pub const ORDERED: u32 = 64;
    /// The address of [`release::COUNT`](super::release) entries for what atomics release.
    pub const RELEASES: u32 = 72;
    /// Bit 0: stores of equal values race, too.
    pub const FLAGS: u32 = 80;
    /// Bytes of the block.
    pub const SIZE: u32 = 88;
}

/// What is remembered of the last accesses to each aligned word of 4 bytes: [`cell::BYTES`] bytes at the cells'
/// address + (a & mask & !3) * 8, where `a` is the word's address and `mask` the one of the states.
///
/// Three or four of the words are *entries*, each an access: who made it, where in the code, and when. All accesses of
/// a group carry the group's *run*, a number that no other group had before ([`cell::RUN`]), and its *time*, which counts
/// what orders its items: barriers, and atomics that release. An entry is replaced by a later access that is
/// ordered behind it, touches all its bytes and conflicts with all that it conflicts with: whatever races with
/// the first then races with the second. The last word is the value of the last store, in its low half, with a bit
/// for each byte that is known above it; or an entry, where items share the bytes of a word.
pub mod cell {
    /// Bytes of a cell.
    pub const BYTES: u64 = 32;
    /// Entries of a cell. The last one may be a value instead: then it has no run.
    pub const ENTRIES: usize = 4;
    /// The bytes of the word, one bit each: the lowest bits.
    pub const MASK: u64 = 0xf;
    /// The access writes.
    pub const WRITES: u64 = 1 << 4;
    /// The access is atomic.
    pub const ATOMIC: u64 = 1 << 5;
    /// The work-item's linear number in its group, 10 bits.
    pub const ITEM: u32 = 6;
    /// In the first entry, a read of all bytes: reads by this group until its next barrier add nothing, since
    /// whatever races with one of them races with one of those that are remembered.
    pub const ENOUGH_FOR_GROUP: u64 = 1 << 16;
    /// The same for reads by this launch.
    pub const ENOUGH_FOR_LAUNCH: u64 = 1 << 17;
    /// The place in the code, 11 bits: [`LAST_SITE`] for all that have no smaller number.
    pub const SITE: u32 = 18;
    /// The group's time, 11 bits.
    pub const TIME: u32 = 29;
    /// The group's run, 24 bits; 0 in an empty entry.
    pub const RUN: u32 = 40;
    /// Places that cannot be told apart.
    pub const LAST_SITE: u32 = 0x7ff;
    /// The number of runs; then all is forgotten, and they begin anew.
    pub const RUNS: u32 = 1 << 24;
}

/// What is remembered of a block of [`1 << release::BLOCK`](release::BLOCK) bytes, as long as items access it in rows.
/// Then its cells do not count. Behind the cells of all addresses lie
///
/// ```text
///   stamps    a word of 64 bits for each block: of which words further reads by kernels add nothing, and IN_CELLS
///   rows      rows::BYTES for each block: up to eleven rows, each an entry and the bytes that it stands for
///   values    each byte that a row has stored, at its address & mask
///   places    rows::PLACES for each block, 16 bits for each word of each row
/// ```
///
/// A row's entry has no bytes of a word but a shape ([`rows::SHAPE`]): in which order items access its bytes. Its
/// item is that of the block's first byte, modulo 1024; and instead of [`cell::ATOMIC`], whether the values are known.
pub mod rows {
    use super::cell;

    /// Bytes of a block's rows: a word that says which are in use; a word whose first half is the block's lock; and of
    /// each row its entry and its bytes, a bit each.
    pub const BYTES: u64 = 192;
    /// Offset of the block's lock, 32 bits: 1 while a thread has it.
    pub const LOCK: u64 = 8;
    /// The number of rows.
    pub const COUNT: u64 = 11;
    /// Of a stamp: the cells count, and the rows do not.
    pub const IN_CELLS: u64 = 1 << 18;
    /// In the place of a cell's bytes. Below [`PAIR`], each item accesses `1 << shape` bytes, behind those of the one
    /// before it.
    pub const SHAPE: u64 = 0xf;
    /// The row's words have places of their own, and its entry has none.
    pub const SITES_APART: u64 = cell::ENOUGH_FOR_GROUP;
    /// The row stands for accesses by the program itself, which may be atomic. (Kernels' atomics are in cells.)
    pub const ATOMIC: u64 = cell::ENOUGH_FOR_LAUNCH;
    /// Bytes of the places of a block.
    pub const PLACES: u64 = 384;
    /// All bytes are accessed by one item.
    pub const WHOLE: u64 = super::release::BLOCK as u64;
    /// All bytes are accessed by an item and the next one.
    pub const PAIR: u64 = 7;

    /// The offset of the stamps behind the first cell, from a mask.
    pub const fn stamps(mask: u64) -> Option<u64> {
        (mask + 1).checked_mul(cell::BYTES / 4)
    }

    /// The offset of the rows.
    pub const fn rows(mask: u64) -> Option<u64> {
        match stamps(mask) {
            Some(stamps) => stamps.checked_add((mask + 1) / 8),
            None => None,
        }
    }

    /// The offset of the places.
    pub const fn places(mask: u64) -> Option<u64> {
        match rows(mask) {
            Some(rows) => rows.checked_add(blocks(mask) * BYTES + mask + 1),
            None => None,
        }
    }

    const fn blocks(mask: u64) -> u64 {
        (mask + 1) >> super::release::BLOCK
    }

    /// The bytes of all that is remembered of all addresses.
    pub const fn all(mask: u64) -> Option<u64> {
        match places(mask) {
            Some(places) => places.checked_add(blocks(mask) * PLACES),
            None => None,
        }
    }

    /// The entry that a cell has for a byte of a block, from a row's; without a place if its words have their own.
    pub fn entry(row: u64, byte: u64) -> u64 {
        let shape = row & SHAPE;
        let number = if shape == PAIR { 0 } else { byte >> shape };
        let item = (row >> cell::ITEM).wrapping_add(number) & 0x3ff;
        let atomic = if row & ATOMIC == 0 { 0 } else { cell::ATOMIC };
        atomic
            | row & !(SHAPE | cell::ATOMIC | ATOMIC | SITES_APART | 0x3ff << cell::ITEM)
            | item << cell::ITEM
            | 1 << (byte & 3)
    }
}

/// The answer about an execution: bit 63, whether it is ordered; its first run; and the number of its runs, from
/// bit 24 on.
pub mod ordered {
    /// The execution is complete before the other one started.
    pub const YES: u64 = 1 << 63;
    /// The position of the number of runs.
    pub const COUNT: u32 = 24;
}

/// The block of a command that launches a kernel, in words of 32 bits. Its executions never overlap.
pub mod command {
    /// Not 0 while a group reads or changes the block.
    pub const LOCK: u32 = 0;
    /// The groups of the current execution that have not begun.
    pub const LEFT: u32 = 4;
    /// The run of the current execution's first group.
    pub const BASE: u32 = 8;
    /// Bytes of the block.
    pub const SIZE: u32 = 16;
}

/// What atomics have released, by address.
pub mod release {
    /// The number of entries.
    pub const COUNT: u32 = 1024;
    /// Bytes of an entry. The first four are its lock: 1 while a thread has it.
    pub const BYTES: u32 = 288;
    /// A word with the newest launch that has used the entry.
    pub const NEWEST: u32 = 24;
    /// The logarithm of the size of a block of memory. The cells and rows of a block are used under one lock.
    pub const BLOCK: u32 = 6;
    /// How often a thread looks at a lock before it takes it all the same.
    pub const ROUNDS: u32 = 1 << 18;
    /// From which look on it gives way to others in between.
    pub const SPINS: u32 = 1 << 10;
}

/// The size of a report of an access, or of what orders accesses: this bit, a kind, and bytes or a scope.
pub mod access {
    /// The report is one of these.
    pub const ACCESS: u32 = 1 << 31;
    /// The position of the kind.
    pub const KIND: u32 = 24;

    /// Whether a report's size says that it is one of these. (All bits together say something else:
    /// `compiler/src/instrument/portable.rs`.)
    pub fn is_one(size: u32) -> bool {
        size & ACCESS != 0 && size != u32::MAX
    }

    /// An access; [`WRITES`] and [`ATOMIC`] may be added. The rest is the number of bytes.
    pub const TOUCH: u32 = 0;
    /// In the place of a number of bytes: it was told as a value.
    pub const ANY_SIZE: u32 = 0xff_ffff;
    /// The access writes.
    pub const WRITES: u32 = 1;
    /// The access is atomic.
    pub const ATOMIC: u32 = 2;
    /// The value of the store that follows, in the place of an address.
    pub const VALUE: u32 = 4;
    /// An atomic is about to write. The rest is its scope, and [`ORDERS`].
    pub const RELEASE: u32 = 5;
    /// An atomic has read. The rest is its scope, and [`ORDERS`].
    pub const ACQUIRE: u32 = 6;
    /// A fence. The rest is its scope, and [`RELEASES`] and [`ACQUIRES`].
    pub const FENCE: u32 = 7;
    /// Items continue behind a barrier. The rest is its scope.
    pub const DEPART: u32 = 8;
    /// Items wait at a barrier of the group.
    pub const ARRIVE: u32 = 9;
    /// Items end.
    pub const END: u32 = 10;
    /// The atomic itself releases, or acquires.
    pub const ORDERS: u32 = 0x100;
    /// The fence releases.
    pub const RELEASES: u32 = 0x100;
    /// The fence acquires.
    pub const ACQUIRES: u32 = 0x200;
    /// A scope: the sub-group.
    pub const SUBGROUP: u32 = 1;
    /// A scope: the group.
    pub const WORKGROUP: u32 = 2;
    /// A scope: the device, or more.
    pub const DEVICE: u32 = 3;
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
    /// The address of the [command's block](super::command).
    pub const COMMAND: u32 = 24;
    /// Bytes of private memory of a group that lie beside each other.
    pub const SCRATCH: u32 = 32;
    /// Bytes of each local argument, a word each, in the order of the arguments.
    pub const LOCAL_ARGS: u32 = 40;
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
    /// Offset of a word that is not 0 if accesses were forgotten with which others may race.
    pub const DROPPED: u32 = 200;
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
    /// The run of the group, if accesses to the same memory are looked at, and [`SAME_VALUE`].
    pub const RUN: usize = 13;
    /// Both accesses of a race store the same.
    pub const SAME_VALUE: u64 = 1 << 63;
    /// Work-items of a full group, 21 bits for each dimension.
    pub const SIZE_OF_GROUP: usize = 14;
    /// Groups of the launch, 21 bits for each dimension.
    pub const GROUPS: usize = 15;
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
    /// Memory is accessed that others may access: the record's states are the [entry](cell) of another access.
    Touch {
        /// It writes.
        writes: bool,
        /// It is atomic.
        atomic: bool,
    },
    /// Items of the group wait for all others: a record's address is the number of another place where one waits
    /// or has ended, its states that item's number in the group.
    Barrier,
    /// Items end.
    End,
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

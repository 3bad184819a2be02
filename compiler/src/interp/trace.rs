// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a launch does with memory that items share, in the order in which the interpreter does it: for an
//! oracle of what is ordered.

use crate::ir::{Ordering, Scope};

/// An event of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An item accesses memory that is not private.
    Access(Access),
    /// Items continue that have waited for each other.
    Released {
        /// Their group, by its number in the order of running.
        group: u32,
        /// Their numbers in the group.
        items: Vec<u32>,
    },
    /// An item executes a fence.
    Fence {
        /// The item's group.
        group: u32,
        /// Its number there.
        item: u32,
        /// The fence's scope.
        scope: Scope,
        /// Its order.
        ordering: Ordering,
    },
}

/// An access to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The item's group, by its number in the order of running.
    pub group: u32,
    /// The item's number there.
    pub item: u32,
    /// The first byte. Local memory of all groups has the same addresses.
    pub address: u64,
    /// Whether it is local memory.
    pub local: bool,
    /// The number of bytes.
    pub size: u64,
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
    /// If it is atomic, its order and scope.
    pub atomic: Option<(Ordering, Scope)>,
    /// Offset of the instruction in the SPIR-V module, in words.
    pub word: u32,
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function pointers of a module that is being parsed.

use std::collections::BTreeMap;

use crate::ir::TypeId;
use crate::pointers::Signature;

/// A dispatcher that is called.
pub struct Dispatcher {
    /// The type of the pointers.
    pub pointer: TypeId,
    /// The type of the functions.
    pub signature: Signature,
}

/// Functions that are called through pointers, and their dispatchers.
#[derive(Default)]
pub struct Indirect {
    /// Distinguishes modules; the low bits are zero.
    module: u64,
    /// Functions whose address is taken, by SPIR-V id, and the place where it is taken.
    pub taken: BTreeMap<u32, usize>,
    /// In the order of their numbers.
    pub dispatchers: Vec<Dispatcher>,
}

/// Bits of a pointer that are the function's id; ids are at most 2^22.
pub const ID_BITS: u32 = 24;

impl Indirect {
    /// For the module in `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        // FNV-1a of 64 bits.
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
        Self { module: hash << ID_BITS, ..Self::default() }
    }

    /// The pointer to the function with this id.
    pub fn pointer(&self, id: u32) -> u64 {
        self.module | u64::from(id)
    }
}

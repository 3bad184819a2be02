// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debug information of a module that is being parsed ([`super::debug`]).

use std::collections::HashMap;

use crate::ir::{InlinedId, SourceTypeId};

/// An instruction of module scope.
pub struct Raw {
    /// Its number.
    pub number: u32,
    /// Whether it has numbers themselves where there may be ids of constants.
    pub literal: bool,
    /// What follows the number.
    pub operands: Vec<u32>,
}

/// What was collected, and what was understood of it.
#[derive(Default)]
pub struct Collected {
    /// By id.
    pub raw: HashMap<u32, Raw>,
    /// By id.
    pub types: HashMap<u32, SourceTypeId>,
    /// By the function and the call.
    pub inlined: HashMap<(u32, u32), InlinedId>,
}

impl Raw {
    /// An operand; 0 if it is missing.
    pub fn arg(&self, at: usize) -> u32 {
        self.operands.get(at).copied().unwrap_or(0)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debug information of a module that is being parsed ([`super::debug`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::ir::{InlinedId, Operand, SourceTypeId, TypeId};

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
    /// Whether a debugger shows variables that the front end has made values.
    pub keeps_values: bool,
    /// The descriptions of functions, by the ids of the functions.
    pub functions: HashMap<u32, u32>,
    /// The ids of variables, by the descriptions of the functions that they are in; none before they are
    /// asked for.
    pub locals: Option<HashMap<u32, Vec<u32>>>,
    /// By id.
    pub raw: HashMap<u32, Raw>,
    /// By id.
    pub types: HashMap<u32, SourceTypeId>,
    /// By the function and the call.
    pub inlined: HashMap<(u32, u32), InlinedId>,
}

/// The variables of a function's source that the front end has made values.
#[derive(Default)]
pub struct Kept {
    /// The numbers of the variables, by their ids and the inlined calls that they belong to.
    pub shown: HashMap<(u32, Option<InlinedId>), usize>,
    /// The addresses of the private variables that were made for them.
    pub places: HashMap<PlaceOf, Operand>,
    /// Stores that wait for an instruction that may stand behind others: addresses, values, and the inlined
    /// calls that they belong to.
    pub pending: Vec<(Operand, Operand, Option<InlinedId>)>,
    /// The ids of all variables that were described, and the inlined calls that they belong to.
    pub seen: BTreeSet<(u32, Option<InlinedId>)>,
    /// The descriptions of the function and of those that were inlined.
    pub functions: BTreeMap<Option<InlinedId>, u32>,
}

/// What a private variable is made for: the number of the source's variable, the part of it, and the type of
/// the value, which may be the address of what is shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlaceOf {
    pub shown: usize,
    pub part: Option<(u64, u64)>,
    pub ty: TypeId,
    pub behind: bool,
}

impl Raw {
    /// An operand; 0 if it is missing.
    pub fn arg(&self, at: usize) -> u32 {
        self.operands.get(at).copied().unwrap_or(0)
    }
}

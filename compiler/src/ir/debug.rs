// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a module tells debuggers: the types of its source, its variables, and functions that its front end
//! has inlined.

use super::arena::{Arena, Id};
use super::ids::{FileId, InlinedId, SourceTypeId, ValueId};

/// How the bits of a number are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// True or false.
    Bool,
    /// A floating-point number.
    Float,
    /// A signed integer.
    Signed,
    /// The same, and a character.
    SignedChar,
    /// An unsigned integer.
    Unsigned,
    /// The same, and a character.
    UnsignedChar,
}

/// A type of the source. Sizes and offsets are in bits.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceType {
    /// Its definition is missing, or not understood.
    Unknown,
    /// A number.
    Basic {
        /// Its name.
        name: String,
        /// Its size.
        bits: u64,
        /// Its form.
        encoding: Encoding,
    },
    /// A pointer or reference.
    Pointer(SourceTypeId),
    /// Another name of a type.
    Named(String, SourceTypeId),
    /// An array; the counts of its dimensions.
    Array(SourceTypeId, Vec<u64>),
    /// A vector, with the number of its components.
    Vector(SourceTypeId, u64),
    /// A structure, class or union.
    Composite {
        /// Its name.
        name: String,
        /// Its size.
        bits: u64,
        /// Whether all members begin at its start.
        is_union: bool,
        /// Its members.
        members: Vec<Member>,
    },
    /// An enumeration.
    Enumeration {
        /// Its name.
        name: String,
        /// Its size.
        bits: u64,
        /// The names of its values.
        values: Vec<(String, i64)>,
    },
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: SourceTypeId,
    /// Its place in the structure, in bits.
    pub offset: u64,
    /// Its size in bits.
    pub bits: u64,
}

/// Where a function has a variable of the source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourcePlace {
    /// In the private variable at an address, unless the module is wrong.
    Variable(ValueId),
    /// In private variables that were made for a debugger. A store to one says that it is there from now on,
    /// and one of an undefined value that it is nowhere. Without any it is never anywhere.
    Kept(Vec<KeptValue>),
}

/// A private variable that was made for a debugger.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptValue {
    /// Its address.
    pub address: ValueId,
    /// Whether it has the address of what is shown.
    pub behind: bool,
    /// The part of the source's variable that is shown: where it begins, and its size, in bits.
    pub part: Option<(u64, u64)>,
}

/// A variable of the source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceVariable {
    /// Its place.
    pub place: SourcePlace,
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: SourceTypeId,
    /// Its line, 0 if it is not known.
    pub line: u32,
    /// Its number, from 1, if it is a parameter.
    pub parameter: Option<u32>,
    /// The inlined call that it belongs to.
    pub inlined: Option<InlinedId>,
}

/// A call that the front end has inlined.
#[derive(Clone, Debug, PartialEq)]
pub struct Inlined {
    /// The function's name.
    pub name: String,
    /// The function's file.
    pub file: Option<FileId>,
    /// The function's line.
    pub line: u32,
    /// The line of the call.
    pub call: u32,
    /// The inlined call that this one is in, if it is not in the function itself.
    pub caller: Option<InlinedId>,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DebugInfo {
    /// The types.
    pub types: Arena<SourceTypeId, SourceType>,
    /// The inlined calls; each caller is in front of those that it calls.
    pub inlined: Arena<InlinedId, Inlined>,
}

impl DebugInfo {
    /// The size of a type in bits, 0 if it is not known.
    pub fn bits(&self, id: SourceTypeId) -> u64 {
        self.bits_of(id, 0)
    }

    fn bits_of(&self, id: SourceTypeId, depth: u32) -> u64 {
        let inner = |of| if depth < 64 { self.bits_of(of, depth + 1) } else { 0 };
        match &self.types[id] {
            SourceType::Unknown => 0,
            SourceType::Pointer(_) => 64,
            SourceType::Basic { bits, .. }
            | SourceType::Composite { bits, .. }
            | SourceType::Enumeration { bits, .. } => *bits,
            SourceType::Named(_, of) => inner(*of),
            SourceType::Array(of, counts) => {
                counts.iter().fold(inner(*of), |all, &count| all.saturating_mul(count))
            }
            // A vector of three has room for four.
            SourceType::Vector(of, count) => {
                inner(*of).saturating_mul(count.checked_next_power_of_two().unwrap_or(0))
            }
        }
    }

    /// Appends that of another module, whose files begin at `first_file` now. Returns the first of the
    /// numbers that its types and its inlined calls have now.
    pub fn append(&mut self, other: DebugInfo, first_file: usize) -> (usize, usize) {
        let (types, inlined) = (self.types.len(), self.inlined.len());
        let ty = |id: SourceTypeId| SourceTypeId::from_index(types + id.index());
        for (_, mut of) in other.types {
            match &mut of {
                SourceType::Pointer(id)
                | SourceType::Named(_, id)
                | SourceType::Array(id, _)
                | SourceType::Vector(id, _) => *id = ty(*id),
                SourceType::Composite { members, .. } => {
                    members.iter_mut().for_each(|member| member.ty = ty(member.ty));
                }
                SourceType::Unknown | SourceType::Basic { .. } | SourceType::Enumeration { .. } => {
                }
            }
            self.types.push(of);
        }
        for (_, call) in other.inlined {
            let file = call.file.map(|file| FileId::from_index(first_file + file.index()));
            let caller = call.caller.map(|id| InlinedId::from_index(inlined + id.index()));
            self.inlined.push(Inlined { file, caller, ..call });
        }
        (types, inlined)
    }
}

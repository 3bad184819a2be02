// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of operations on interleaved vectors before they are written.

use rustc_hash::FxHashMap;

use crate::ir::{Access, Inst, Loc, Operand, TypeId, ValueId};

/// The components of the items' rows.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) leaf: TypeId,
    /// Bytes of a component.
    pub(super) size: u64,
    /// The components of a row.
    pub(super) parts: u32,
    /// The elements of a vector.
    pub(super) elements: u32,
    /// The vectors of all rows.
    pub(super) count: u32,
}

impl Rows {
    pub(super) fn bytes(self) -> u64 {
        self.size * u64::from(self.parts)
    }
}

/// The addresses of rows.
pub(super) enum Addresses {
    /// One behind the other, from an address on, or in each part of a vector from an address of its own on.
    Line(Vec<Operand>),
    /// One before the other, from an address on: a line that is read backwards.
    Back(Operand),
    /// From an address on, so many bytes apart.
    Steps(Operand, i64),
    /// At each address of a vector.
    Apart(Operand),
}

/// The masks of an access.
pub(super) struct Masks {
    /// Those of each vector's words.
    pub(super) of_words: Vec<Operand>,
    pub(super) word: TypeId,
    /// The components of a word.
    pub(super) each: u32,
}

/// What accesses of rows need besides the values.
pub(super) struct Plan {
    pub(super) rows: Rows,
    pub(super) at: Addresses,
    pub(super) masks: Option<Masks>,
    pub(super) access: Access,
}

/// Words of an item's row, which a mask has or has not as a whole.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub(super) ty: TypeId,
    /// The components of one.
    pub(super) each: u32,
}

/// The operand of an operation that is kept back.
pub(super) enum Part {
    /// The vectors of one that is known.
    Known(Vec<Operand>),
    /// The result of another operation that is kept back.
    Kept(ValueId),
}

/// What is kept back.
pub(super) enum Step {
    Load(ValueId, Plan),
    Store(Part, Plan),
    Compute {
        result: ValueId,
        inst: Inst,
        parts: Vec<Part>,
        ty: TypeId,
    },
    /// One of two values for each item, by masks of words.
    Choose {
        result: ValueId,
        masks: Vec<Operand>,
        yes: Part,
        no: Part,
        words: Words,
    },
}

/// Operations that are kept back, all of values with as many vectors.
#[derive(Default)]
pub(in crate::widen) struct Kept {
    pub(super) steps: Vec<(Step, Loc)>,
    pub(super) results: FxHashMap<ValueId, Vec<Operand>>,
    pub(super) vectors: u32,
    /// Whether it has a store.
    pub(super) stores: bool,
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reasons why a kernel is not widened.

use std::fmt;

use crate::ir::{Module, TypeId};

/// The reason why a kernel is built in scalar form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    why: String,
    of_rows: bool,
}

impl Refusal {
    /// A refusal for this reason.
    pub(super) fn new(what: &str) -> Self {
        Self { why: what.to_owned(), of_rows: false }
    }

    /// A refusal because items of a row do not stay together.
    pub(super) fn of_rows(what: &str) -> Self {
        Self { of_rows: true, ..Self::new(what) }
    }

    /// Whether items of a row do not stay together; other items may.
    pub(super) fn is_of_rows(&self) -> bool {
        self.of_rows
    }

    /// A refusal for a type that widened code has no place for.
    pub(super) fn of_type(module: &Module, ty: TypeId) -> Self {
        Self::new(&format!("a value of type {}", module.types.text(ty)))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Refusal {}

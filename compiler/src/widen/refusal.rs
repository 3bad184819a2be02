// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reasons why a kernel is not widened.

use std::fmt;

use crate::ir::{Module, TypeId};

/// The reason why a kernel is built in scalar form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// A refusal for this reason.
    pub(super) fn new(what: &str) -> Self {
        Self(what.to_owned())
    }

    /// A refusal for a type that widened code has no place for.
    pub(super) fn of_type(module: &Module, ty: TypeId) -> Self {
        Self::new(&format!("a value of type {}", module.types.text(ty)))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

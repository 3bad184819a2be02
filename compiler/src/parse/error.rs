// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reasons why a module is refused.

use std::fmt;

/// The reason why a module was refused, and the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Offset in the module, in words.
    pub word: usize,
    /// The instruction's name, as in `OpIAdd`.
    pub opcode: Option<String>,
    /// The kernel or function.
    pub place: Option<String>,
    /// File, line and column if the module names them.
    pub source: Option<String>,
    /// The reason for the refusal.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "word {}", self.word)?;
        if let Some(place) = &self.place {
            write!(f, " in {place}")?;
        }
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        match &self.opcode {
            Some(opcode) => write!(f, ": {opcode} {}", self.message),
            None => write!(f, ": {}", self.message),
        }
    }
}

impl std::error::Error for Error {}

/// The result of a parsing step.
pub type Result<T, E = Error> = std::result::Result<T, E>;

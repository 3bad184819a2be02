// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interfaces of the objects that are shared: on the exporter's side, and at either end of an import.

use std::sync::Arc;

use super::wire::{Facts, Line, Note};
use crate::backend::SharedBo;
use crate::error::Result;

/// An object that an exporter lets others open.
pub trait Offer: Send + Sync {
    /// Whether it still exists.
    fn is_alive(&self) -> bool;
    /// Opens it for an importer. `value` is the handle's.
    ///
    /// # Errors
    /// Any: the importer is told that it is gone.
    fn open(&self, value: u64) -> Result<Opened>;
}

/// The memory and facts that an importer is about to get.
pub struct Opened {
    /// The memory.
    pub bo: SharedBo,
    /// Further facts, by kind.
    pub facts: Facts,
    /// Called when the importer has got it; what it answers is kept as long as the import.
    pub start: Box<dyn FnOnce(Line) -> Result<Arc<dyn Endpoint>>>,
}

/// One end of an import, as the thread that serves its socket sees it. Must not block for long.
pub trait Endpoint: Send + Sync {
    /// The other end says something, of the cell of this number where there are several.
    fn told(&self, note: Note, cell: u32);
    /// Called when so much has arrived that notes may have been lost on the way.
    fn told_much(&self) {}
    /// The other end has closed the import or died.
    fn hung_up(&self) {}
}

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
    /// Opens it for an importer. `value` comes from the handle.
    ///
    /// # Errors
    /// Any error: the importer is told that the object is gone.
    fn open(&self, value: u64) -> Result<Opened>;
}

/// The memory and facts that an importer is about to get.
pub struct Opened {
    /// The memory.
    pub bo: SharedBo,
    /// Further facts, by kind.
    pub facts: Facts,
    /// Called when the importer has received it; the returned endpoint is kept as long as the import.
    pub start: Box<dyn FnOnce(Line) -> Result<Arc<dyn Endpoint>>>,
}

/// One end of an import, as the thread that serves its socket sees it. No method may block for long.
pub trait Endpoint: Send + Sync {
    /// The other end has sent a note; `cell` is the number of the cell where there are several.
    fn told(&self, note: Note, cell: u32);
    /// Called when so many notes have arrived that others may have been lost.
    fn told_much(&self) {}
    /// The other end has closed the import or died.
    fn hung_up(&self) {}
}

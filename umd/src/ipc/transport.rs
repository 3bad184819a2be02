// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles for other processes: who may open what, and the sockets between exporter and importer.
//!
//! ```text
//!  exporter                                              importer
//!  export() ─► table of secrets                          64 bytes, by any way at all
//!                  │                                          │
//!  thread ◄────────┴────── one socket for each import ────────┴─ open() ─► file, facts, Link
//!    │  grant: the buffer's file; notes: changed, reached, lost              │
//!    └─ end of the socket: the importer has closed it or died                └─ the exporter died
//! ```
//!
//! A handle names the exporter's socket and holds a random secret of 128 bits, so that it can be
//! neither guessed nor changed into another one that is good. Nothing of the memory is in it: the
//! exporter looks the secret up and sends the file, to processes of the same user only. That needs
//! no rights over the other process, no file system and no /dev/shm. The socket is an abstract one,
//! so both processes have to be in the same network namespace.
//!
//! The thread starts with the first export or import. Sockets and files are closed on exec. A forked
//! child holds copies of them, so an importer watches the exporter's process, not only its socket.

use std::sync::Arc;

use crate::backend::SharedBo;
use crate::error::Result;

mod exports;
mod handle;
mod link;
mod peer;
mod placeholder;
mod reactor;
mod wire;

pub use exports::{export, withdraw};
pub use handle::{Handle, Kind};
pub use link::{Link, Pending, open};
pub use wire::{Facts, Line, Note};

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

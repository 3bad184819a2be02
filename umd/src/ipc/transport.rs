// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles for other processes: access to exported objects, and the sockets between exporter and importer.
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
//! A handle names the exporter's socket and contains a random secret of 128 bits, so that it can be neither
//! guessed nor changed into another valid one. It contains nothing of the memory: the exporter looks up the secret
//! and sends the file, only to processes of the same user. That needs no rights over the other process, no file
//! system and no /dev/shm. The socket is abstract, so both processes have to be in the same network namespace.
//!
//! The thread starts with the first export or import. Sockets and files are closed on exec. A forked child has
//! copies of them, so an importer watches the exporter's process, not only its socket.

mod exports;
mod handle;
mod link;
mod offer;
mod peer;
mod placeholder;
mod reactor;
mod wire;

pub use exports::{export, withdraw};
pub use handle::{Handle, Kind};
pub use link::{Link, Pending, open};
pub use offer::{Endpoint, Offer, Opened};
pub use wire::{Facts, Line, Note};

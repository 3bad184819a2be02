// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synchronisation: counters, events, recordings, and the host's waits for them.
//!
//! ```text
//!  Event ─┬─ regular: a cell in a pool, 0 or 1, and the number of its resets
//!         └─ counter-based: names ─┬─ {counter, value}   signalled by an immediate list
//!                                  ├─ {recording, k}     signalled by a regular list
//!                                  └─ the user's memory
//! ```

pub mod cb_event;
pub mod cell;
pub mod counted_ref;
pub mod counter;
pub mod deadline;
pub mod event;
pub mod event_pool;
pub mod host_function;
pub mod publications;
pub mod recording;
pub mod resets;
pub mod semaphore;
pub mod shared;
pub mod spin;
pub mod timestamp;
pub mod wait;

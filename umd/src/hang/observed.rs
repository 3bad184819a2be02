// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lists in a report: the traits through which it sees them, so that it does not depend on lists.

use std::sync::Arc;

use tally_uapi::packet::Packet;

use super::calls::CallLog;
use crate::submit::ring::Ring;
use crate::sync::cell::Cell;
use crate::sync::recording::Recording;
use crate::sync::shared::Shared;

/// An immediate list or a queue, which has a ring.
pub trait Stream: Send + Sync {
    /// The state that lists, queues and events of the VM share.
    fn shared(&self) -> &Arc<Shared>;
    /// The counter's word.
    fn cell(&self) -> Cell;
    /// The largest reserved value of the counter.
    fn reserved(&self) -> u64;
    /// Calls `look` with the ring and the calls that wrote it, while no thread appends.
    fn look(&self, look: &mut dyn FnMut(&Ring, Option<&CallLog>));
}

/// A function that looks at a recording, its packets, and the calls that wrote them.
pub type Look<'a> = &'a mut dyn FnMut(&Recording, &[Packet], Option<&CallLog>);

/// A regular list, which has a recording.
pub trait Recorded: Send + Sync {
    /// The state that lists, queues and events of the VM share.
    fn shared(&self) -> &Arc<Shared>;
    /// Calls `look` while no thread appends.
    fn look(&self, look: Look<'_>);
}

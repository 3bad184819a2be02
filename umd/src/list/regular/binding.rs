// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits of a regular list that are bound when the list is executed.

use std::sync::Arc;

use tally_uapi::cell::{CellKind, Compare};
use tally_uapi::packet::Operand;
use tally_ze::ze_event_handle_t;

use crate::handle::Counted;
use crate::sync::cb_event::{CbEvent, Resolved};
use crate::sync::event::EventKind;
use crate::sync::recording::Recording;

/// A wait that is bound when the list is executed.
#[derive(Clone)]
pub(super) enum Binding {
    /// A signal of another list, in its latest execution.
    Signal(Arc<Recording>, u32),
    /// The signal that the event names at the time of the execution.
    Event(Counted<ze_event_handle_t>),
}

impl Binding {
    /// What the wait waits for at this moment.
    pub(super) fn resolve(&self) -> Resolved {
        let (recording, k) = match self {
            Self::Signal(recording, k) => (recording, *k),
            Self::Event(handle) => return named(*handle).map_or(Resolved::Met, CbEvent::resolve),
        };
        let (cell, value) = recording.resolve(k);
        if recording.is_dead() {
            Resolved::Dead(cell, value)
        } else if cell.reached(value) {
            Resolved::Met
        } else {
            Resolved::Counter(cell, value)
        }
    }
}

/// The counter-based event of the handle, if it still exists.
fn named<'a>(handle: Counted<ze_event_handle_t>) -> Option<&'a CbEvent> {
    // SAFETY: applications do not destroy an event while they execute a list or a graph that waits for it;
    // the handle's count shows whether it was destroyed before.
    match &unsafe { handle.get() }?.kind {
        EventKind::CounterBased(event) => Some(event),
        EventKind::Regular(_) => None,
    }
}

/// The operand of an execution that waits for it.
pub(super) fn operand(resolved: Resolved) -> Operand {
    let (address, value, kind) = match resolved {
        // The events of a capture are bound to its recordings, not to their handles.
        Resolved::Met | Resolved::Captured => return Operand::default(),
        Resolved::Counter(cell, value) | Resolved::Dead(cell, value) => {
            (cell.va(), value, CellKind::Counter)
        }
        Resolved::Foreign(word) => (word.device, word.value, CellKind::Foreign),
    };
    let compare = Compare::GreaterEqual as u8;
    Operand { address, value, kind: kind as u8, compare, reserved: [0; 6] }
}

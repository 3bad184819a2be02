// SPDX-License-Identifier: MIT OR Apache-2.0
//! Branches of graphs: regular lists that stand for an immediate list while it is captured, and that
//! are never executed themselves. Executable graphs are copies of them.
//!
//! Signals and waits among the branches of a graph are bound to their recordings. An event that was
//! created for use outside of the graph, and that nothing in the graph has signalled, is bound when
//! the graph is executed.

use std::sync::Arc;

use tally_uapi::packet::flag;
use tally_ze::{ze_event_counter_based_flags_t as CbFlags, ze_result_t};

use super::{Binding, Recorder, Regular, Signalled};
use crate::error::{Error, Result};
use crate::list::target::{Condition, Post, Signal, Target};
use crate::list::{command, graph, packets, waits};
use crate::sync::cb_event::Bound;
use crate::sync::event::{Event, EventKind};
use crate::sync::shared::Shared;

impl Regular {
    /// A branch. The first one of a graph begins with a signal, [`graph::BEGIN`], that the others wait
    /// for.
    ///
    /// # Errors
    /// Those of [`Regular::create`].
    pub fn branch(shared: Arc<Shared>, in_order: bool, is_first: bool) -> Result<Arc<Self>> {
        let list = Self::create_as(shared, in_order, true)?;
        let mut state = list.lock();
        state.recording.capture();
        if is_first {
            let cell = state.recording.counter().cell();
            // In an out-of-order list the end of the CALL is thus the signal after this one.
            state.recording.add_signal();
            let mut packet = packets::nop(flag::ORDERED);
            Post::from_base(cell.va(), graph::BEGIN).attach(&mut packet);
            state.packets.push(packet);
        }
        drop(state);
        Ok(list)
    }

    /// Appends a wait for signals of other lists of the graph, each given by its list and number.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY; nothing is appended then.
    pub fn follow(&self, others: &[(&Self, u32)]) -> Result {
        let mut state = self.lock();
        Recorder { list: self, state: &mut state }.begin(waits::bound(others.len()))?;
        let mut conditions = Vec::with_capacity(others.len());
        for (other, k) in others {
            let recording = other.lock().recording.clone();
            conditions.push(Condition::Operand(state.operands.len() as u32));
            state.operands.push(Some(Binding::Signal(recording, *k)));
        }
        state.packets.extend(waits::packets(conditions));
        Ok(())
    }

    /// The number of the last signal; in an in-order list it covers all appended commands.
    pub fn signal_count(&self) -> u32 {
        self.lock().recording.signals()
    }

    /// Whether a command with this signal can be appended.
    ///
    /// # Errors
    /// Those of [`Regular::append`].
    pub fn may_signal(&self, signal: &Signal<'_>) -> Result {
        command::check_signal(&Recorder { list: self, state: &mut self.lock() }, signal)
    }

    /// Whether an event names a signal of this list.
    pub fn signals(&self, event: &Event) -> bool {
        let state = self.lock();
        matches!(&event.kind, EventKind::CounterBased(event) if event.is_of(&state.recording))
    }

    /// Ends the capture of a branch. Its events return to the state of events that were never signalled;
    /// executions will signal those that are for use outside of the graph.
    ///
    /// # Errors
    /// Those of [`Regular::close`].
    pub fn end_capture(&self) -> Result {
        let mut state = self.lock();
        let recording = state.recording.clone();
        state.signalled.retain(|it| it.is_left(&recording));
        recording.release();
        drop(state);
        self.close()
    }
}

impl Signalled {
    /// Makes the event forget the capture; returns whether executions signal it.
    fn is_left(&self, recording: &Arc<super::Recording>) -> bool {
        // SAFETY: applications do not destroy an event while they capture commands that signal it; the
        // handle's count shows whether it was destroyed before.
        let Some(event) = (unsafe { self.handle.get() }) else { return false };
        if let EventKind::CounterBased(event) = &event.kind {
            event.leave(recording);
        }
        is_external(event)
    }
}

/// Whether an event may also be used outside of the graph.
pub(super) fn is_external(event: &Event) -> bool {
    CbFlags::from_bits_retain(event.traits.cb_flags)
        .contains(CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL)
}

/// Whether a wait for such an event is a wait for something outside of the graph.
pub(super) fn is_outside(event: &Event, bound: &Bound) -> bool {
    let captured = matches!(bound, Bound::Recording(recording, _) if recording.is_captured());
    is_external(event) && !captured
}

/// Refuses an event that immediate lists may not signal, in general or in a graph.
///
/// # Errors
/// INVALID_ARGUMENT, GRAPH_CAPTURE_UNSUPPORTED.
pub(super) fn may_signal(flags: CbFlags) -> Result {
    if !flags.contains(CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE) {
        return Err(Error::invalid("hSignalEvent: it was created for regular lists only"));
    }
    check_shared(flags, "hSignalEvent")
}

/// "If the device does not support ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_CB_EXTERNAL_IPC": events that are
/// shared with other processes may not be external events of a graph.
///
/// # Errors
/// GRAPH_CAPTURE_UNSUPPORTED.
fn check_shared(flags: CbFlags, name: &str) -> Result {
    let both = CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_IPC
        | CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL;
    if !flags.contains(both) {
        return Ok(());
    }
    Err(Error::new(
        ze_result_t::ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
        format!("{name}: an event with both IPC and GRAPH_EXTERNAL is not captured"),
    ))
}

/// Does the same as [`may_signal`] for a wait.
///
/// # Errors
/// GRAPH_CAPTURE_UNSUPPORTED.
pub(super) fn may_wait(event: &Event) -> Result {
    check_shared(CbFlags::from_bits_retain(event.traits.cb_flags), "phWaitEvents")
}

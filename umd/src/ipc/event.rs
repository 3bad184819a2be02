// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events that processes share, each as the pair {counter, value} that it names.

use std::sync::Arc;

use tally_ze::ze_result_t;

use super::transport::{Handle, withdraw};
use crate::error::{Error, Result};
use crate::sync::cb_event::{CbEvent, Resolved};
use crate::sync::cell::Cell;
use crate::sync::event::{self, Event, EventKind, Traits};
use crate::sync::shared::Shared;

pub mod counter;

/// Bit of `ze_event_counter_based_flags_t`.
const IPC: u32 = tally_ze::ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC.bits();

/// A handle for the present state of a counter-based event.
///
/// # Errors
/// INVALID_ARGUMENT: it is not counter-based, has no IPC flag, has timestamps, or is itself opened from another
/// process. UNSUPPORTED_FEATURE: it follows memory of the user. OUT_OF_HOST_MEMORY.
pub fn share(event: &Event) -> Result<Handle> {
    event.check()?;
    let EventKind::CounterBased(state) = &event.kind else {
        return Err(Error::invalid("hEvent: the event is not counter-based"));
    };
    if event.traits.imported {
        return Err(Error::invalid(
            "hEvent: another process has shared it; only that one can do so again",
        ));
    }
    if event.traits.cb_flags & IPC == 0 {
        return Err(Error::invalid(
            "hEvent: it was created without ZE_EVENT_COUNTER_BASED_FLAG_IPC",
        ));
    }
    if event.traits.timestamps {
        return Err(Error::invalid("hEvent: an event with times cannot be shared"));
    }
    let Traits { cb_flags, signal_scope, wait_scope, .. } = event.traits;
    let details = cb_flags | signal_scope << 8 | wait_scope << 16;
    share_pair(event.shared(), details, || named_by(state))
}

/// The pair that the importers of an event wait for: a value of a counter; none if the event is complete.
type Pair = Option<(Cell, u64)>;

/// The pair that an event names now.
fn named_by(state: &CbEvent) -> Result<Pair> {
    match state.resolve() {
        Resolved::Met => Ok(None),
        Resolved::Counter(cell, value) => Ok(Some((cell, value))),
        Resolved::Foreign(_) => Err(Error::unsupported(
            "hEvent: it follows memory of the application's; share that memory instead",
        )),
        Resolved::Captured => Err(event::internal("hCounterBasedEvent")),
        Resolved::Dead(..) => Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
            "hEvent: the list that would signal it was reset or destroyed before it was executed",
        )),
    }
}

/// A handle for the pair that `named` returns.
///
/// A list that ends unexecuted notifies the importers of its counter only if the counter was shared before. So
/// once the counter is shared, the event is read again: the end of a counter that it then names is always
/// reported.
fn share_pair(
    shared: &Arc<Shared>,
    details: u32,
    mut named: impl FnMut() -> Result<Pair>,
) -> Result<Handle> {
    let mut pair = named()?;
    loop {
        let (cell, value) = match pair {
            Some(pair) => pair,
            // Every counter has reached 0.
            None => (shared.counter()?.cell(), 0),
        };
        let handle = counter::share(shared, cell, value, details)?;
        let now = named();
        if now.as_ref().is_ok_and(|now| *now == pair) {
            return Ok(handle);
        }
        withdraw(&handle, "zeEventCounterBasedGetIpcHandle")?;
        pair = now?;
    }
}

/// Opens a handle, as an event with the state at the time of the handle's creation.
///
/// # Errors
/// Those of [`counter::Imports::open`].
pub fn open(shared: &Arc<Shared>, handle: &Handle, name: &str) -> Result<Event> {
    let (cell, counters) = shared.imports().open(shared, handle, name)?;
    let traits = Traits {
        cb_flags: handle.details & 0xff,
        signal_scope: handle.details >> 8 & 0xff,
        wait_scope: handle.details >> 16 & 0xff,
        imported: true,
        ..Traits::default()
    };
    let state = CbEvent::imported(cell, handle.value, counters);
    Ok(Event::new(shared, EventKind::CounterBased(state), traits, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::embedded;
    use crate::space::Space;
    use crate::sync::recording::Recording;
    use crate::vm::Vm;

    /// "A wait on a counter whose producer has died ends in DEVICE_LOST": the list is destroyed between
    /// the look at the event and the handle.
    #[test]
    fn a_handle_made_while_its_list_dies_is_refused() {
        let kernel = embedded::open(crate::settings::get()).expect("threads");
        let space = Space::reserve(Some(1 << 30), 4096, 1 << 47).expect("1 GiB of addresses");
        let vm = Vm::create(&kernel, &Arc::new(space)).expect("a VM");
        let shared = Shared::of(&vm);
        let recording = Recording::new(Arc::new(shared.counter().expect("room")));
        let event = CbEvent::completed();
        event.record(&recording, recording.add_signal(), 0, None);
        recording.expose();
        let mut looks = 0;
        let handle = share_pair(&shared, IPC, || {
            let named = named_by(&event);
            looks += 1;
            if looks == 1 {
                assert!(named.is_ok() && !recording.end(), "it lives until it is looked at");
            }
            named
        });
        let code = handle.err().map(|error| error.code());
        assert_eq!(code, Some(ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST));
    }
}

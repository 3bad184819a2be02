// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events: views of a counter, {counter, value}, that own no memory.
//!
//! A new event is complete. An append to an in-order list that signals it replaces what it names; the
//! append waits for nothing, and a command that resolved the event before keeps its result. An append to
//! a regular list sets the event to {recording, k}, which means the latest execution of that list, and
//! every execution of the list sets it again. (`counter-based-events.md`, ERRATA.)

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cell::Cell;
use super::recording::Recording;
use super::spin::{SpinGuard, SpinLock};
use super::timestamp::Timestamp;
use crate::checks::order::Awaited;
use crate::ipc::event::counter::ImportedCounters;

/// The signal that an event names.
#[derive(Clone, Debug)]
enum State {
    /// Never signalled: complete.
    Never,
    /// A value of an immediate list's counter.
    Fixed(Cell, u64),
    /// A signal of a regular list.
    Recorded(Recorded),
    /// The user's memory, until an append replaces it; if appends add to it, always.
    External(External),
    /// A value of another process's counter; it never changes.
    Imported(Cell, u64, Arc<ImportedCounters>),
}

/// A signal of a recording.
#[derive(Clone, Debug)]
struct Recorded {
    recording: Arc<Recording>,
    /// Number of the signal, from 1.
    k: u32,
    /// The event's index among those that the list signals.
    place: usize,
}

/// A 64-bit word in the user's memory, and the value at which the event is complete.
#[derive(Clone, Copy, Debug)]
pub struct External {
    /// The address that the device reads. Each command that refers to ordinary memory of the process makes it
    /// accessible to the device (`Target::reach`).
    pub device: u64,
    /// The host's pointer to it.
    pub host: HostWord,
    /// The event is complete when the word is at least this.
    pub value: u64,
}

/// A pointer to a word that the user has promised to keep.
#[derive(Clone, Copy, Debug)]
pub struct HostWord(*const AtomicU64);

// SAFETY: the word is only accessed atomically.
unsafe impl Send for HostWord {}
// SAFETY: as above.
unsafe impl Sync for HostWord {}

impl HostWord {
    /// The word at `address`.
    ///
    /// # Safety
    /// The address is aligned and stays readable as long as the event that names it is in use.
    pub unsafe fn new(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance(address as usize))
    }

    /// Whether there is readable memory at an aligned address. This asks the kernel, which tolerates an
    /// invalid address: it reads a signal mask there before it rejects the request as unknown.
    /// (process_vm_readv and its like do not see buffers of a DRM device.)
    pub fn is_there(address: u64) -> bool {
        const NO_REQUEST: libc::c_int = -1;
        let none = std::ptr::null_mut::<u64>();
        let size = size_of::<u64>();
        // SAFETY: the kernel checks the address, and changes no mask for an unknown request.
        let answer = unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, NO_REQUEST, address as *const u64, none, size)
        };
        answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
    }

    /// The word.
    pub fn get(&self) -> &AtomicU64 {
        // SAFETY: `new`'s caller guarantees that it exists.
        unsafe { &*self.0 }
    }
}

/// The meaning of a wait for an event at one moment.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// The event is complete and stays so.
    Met,
    /// Complete when the counter is at least the value.
    Counter(Cell, u64),
    /// Complete when the user's word is at least its value.
    Foreign(External),
    /// The list was reset or destroyed before its first execution: it will not be signalled.
    Dead(Cell, u64),
    /// A signal of a graph that is being captured. It is meaningful only within the graph.
    Captured,
}

/// The binding of a wait that is recorded in a regular list.
#[derive(Clone, Debug)]
pub enum Bound {
    /// To nothing: the event is complete, or the list itself orders the commands.
    Met,
    /// To a value.
    Counter(Cell, u64),
    /// To the user's word.
    Foreign(External),
    /// To the recording's latest execution at the time when the list is executed.
    Recording(Arc<Recording>, u32),
}

impl State {
    fn source(&self) -> Source {
        match self {
            Self::Never => Source::NEVER,
            Self::Fixed(cell, _) => Source::counter(*cell),
            Self::Recorded(it) => Source::recording(&it.recording),
            Self::External(_) | Self::Imported(..) => Source::OUTSIDE,
        }
    }

    fn resolve(&self) -> Resolved {
        match self {
            Self::Never => Resolved::Met,
            Self::Fixed(cell, value) | Self::Imported(cell, value, _) => {
                Resolved::Counter(*cell, *value)
            }
            Self::Recorded(it) if it.recording.is_captured() => Resolved::Captured,
            Self::Recorded(it) => {
                let (cell, value) = it.recording.resolve(it.k);
                if it.recording.is_dead() {
                    return Resolved::Dead(cell, value);
                }
                Resolved::Counter(cell, value)
            }
            Self::External(word) => Resolved::Foreign(*word),
        }
    }
}

#[derive(Debug)]
struct Inner {
    state: State,
    timestamp: Option<Timestamp>,
}

/// The signal that an event names, as one word that may be read without the lock.
///
/// An in-order list uses it to find out whether its own order already satisfies a wait. The answer holds
/// for the moment at which the word was read, and no more can be said of an event that another thread
/// signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(u64);

impl Source {
    /// Nothing: never signalled.
    const NEVER: Self = Self(0);
    /// A signal that no list of this process makes.
    const OUTSIDE: Self = Self(u64::MAX);

    /// The source of an immediate list, identified by its counter.
    #[inline]
    pub fn counter(cell: Cell) -> Self {
        Self(cell.va())
    }

    /// The source of a recording. No other recording has its address as long as the event keeps it.
    #[inline]
    pub fn recording(recording: &Arc<Recording>) -> Self {
        Self(Arc::as_ptr(recording).addr() as u64)
    }

    /// Whether a wait in the in-order list whose signals have the source `own` has nothing to wait for.
    #[inline]
    pub fn is_ordered_by(self, own: Self) -> bool {
        self == own || self == Self::NEVER
    }
}

/// The counter-based part of an event.
#[derive(Debug)]
pub struct CbEvent {
    /// Follows `inner`; written while it is locked.
    source: AtomicU64,
    inner: SpinLock<Inner>,
    /// The amount that each append adds to the user's word, instead of replacing the state.
    aggregate: Option<Box<(External, u64)>>,
}

impl CbEvent {
    /// An event that is complete.
    #[inline]
    pub fn completed() -> Self {
        Self::with_state(State::Never, None)
    }

    /// An event that follows the user's word until it is signalled.
    pub fn external(word: External) -> Self {
        Self::with_state(State::External(word), None)
    }

    /// An event of another process, as it was when its handle was made: it is waited for and never
    /// signalled here.
    pub fn imported(cell: Cell, value: u64, counters: Arc<ImportedCounters>) -> Self {
        Self::with_state(State::Imported(cell, value, counters), None)
    }

    /// The counters to which its value belongs, if they are another process's.
    pub fn import(&self) -> Option<Arc<ImportedCounters>> {
        self.inner.with(|inner| match &inner.state {
            State::Imported(_, _, counters) => Some(counters.clone()),
            _ => None,
        })
    }

    /// An event whose signals each add `increment` to the user's word.
    pub fn aggregate(storage: External, increment: u64) -> Self {
        Self::with_state(State::External(storage), Some((storage, increment)))
    }

    #[inline]
    fn with_state(state: State, aggregate: Option<(External, u64)>) -> Self {
        Self {
            source: AtomicU64::new(state.source().0),
            inner: SpinLock::new(Inner { state, timestamp: None }),
            aggregate: aggregate.map(Box::new),
        }
    }

    /// The signal that it names.
    #[inline]
    pub fn source(&self) -> Source {
        Source(self.source.load(Ordering::Relaxed))
    }

    /// Whether its signals add to the user's word.
    #[inline]
    pub fn is_aggregated(&self) -> bool {
        self.aggregate.is_some()
    }

    /// Whether there is nothing to drop.
    #[inline(always)]
    pub fn owns_nothing(&mut self) -> bool {
        let Inner { state, timestamp } = self.inner.get_mut();
        let is_plain = matches!(state, State::Never | State::Fixed(..) | State::External(_));
        is_plain && timestamp.is_none() && self.aggregate.is_none()
    }

    /// The word and the increment of an aggregated event.
    #[inline]
    pub fn aggregated(&self) -> Option<(External, u64)> {
        self.aggregate.as_deref().copied()
    }

    /// The meaning of a wait for the event at this moment.
    #[inline]
    pub fn resolve(&self) -> Resolved {
        self.inner.with(|inner| inner.state.resolve())
    }

    /// What a wait for the event waits for at this moment, for the checks; `None`: for nothing.
    pub fn awaited(&self) -> Option<Awaited> {
        self.inner.with(|inner| match &inner.state {
            State::Never => None,
            State::Fixed(cell, value) => Some(Awaited::Counter { cell: cell.va(), value: *value }),
            State::Recorded(Recorded { recording, k, .. }) => {
                Some(Awaited::Recorded { recording: Arc::as_ptr(recording).addr(), signal: *k })
            }
            State::External(word) => {
                Some(Awaited::Word { address: word.device, needed: word.value })
            }
            State::Imported(..) => Some(Awaited::Unknown),
        })
    }

    /// Binds a wait that is recorded now in `own` to the event's present state. An event that was never
    /// signalled is complete, even if it is signalled before the list is executed.
    pub fn bind(&self, own: &Arc<Recording>) -> Bound {
        self.inner.with(|inner| match &inner.state {
            State::Never => Bound::Met,
            State::Fixed(cell, value) | State::Imported(cell, value, _) => {
                match cell.reached(*value) {
                    true => Bound::Met,
                    false => Bound::Counter(*cell, *value),
                }
            }
            State::Recorded(it) if Arc::ptr_eq(&it.recording, own) => Bound::Met,
            State::Recorded(it) => Bound::Recording(it.recording.clone(), it.k),
            State::External(word) => Bound::Foreign(*word),
        })
    }

    /// Makes the event name a value of an immediate list.
    #[inline]
    pub fn signal(&self, cell: Cell, value: u64, timestamp: Option<Timestamp>) {
        let mut inner = self.inner.lock();
        if let Inner { state: State::Fixed(at, until), timestamp: None } = &mut *inner
            && timestamp.is_none()
        {
            (*at, *until) = (cell, value);
            self.source.store(Source::counter(cell).0, Ordering::Relaxed);
            return;
        }
        self.replace(inner, State::Fixed(cell, value), timestamp);
    }

    /// Makes the event name a signal of a recording. The recording's list keeps it at `place` among the
    /// events that it signals. Returns the place where the list keeps it already, or `place`.
    #[inline(always)]
    pub fn record(
        &self,
        recording: &Arc<Recording>,
        k: u32,
        place: usize,
        timestamp: Option<Timestamp>,
    ) -> usize {
        let mut inner = self.inner.lock();
        let Inner { state, timestamp: kept } = &mut *inner;
        if let State::Recorded(it) = state
            && Arc::ptr_eq(&it.recording, recording)
        {
            it.k = k;
            let place = it.place;
            if kept.is_some() || timestamp.is_some() {
                let old = std::mem::replace(kept, timestamp);
                drop(inner);
                drop(old);
            }
            return place;
        }
        self.name_recording(inner, recording, k, place, timestamp);
        place
    }

    /// Does the same as [`CbEvent::record`] for an event whose appends never write times.
    #[inline(always)]
    pub fn record_plain(&self, recording: &Arc<Recording>, k: u32, place: usize) -> usize {
        // Read before the lock is taken, after which the compiler reads everything again.
        let own = Arc::as_ptr(recording);
        let mut inner = self.inner.lock();
        debug_assert!(inner.timestamp.is_none());
        if let State::Recorded(it) = &mut inner.state
            && Arc::as_ptr(&it.recording) == own
        {
            it.k = k;
            return it.place;
        }
        self.name_recording(inner, recording, k, place, None);
        place
    }

    #[inline(never)]
    fn name_recording(
        &self,
        inner: SpinGuard<'_, Inner>,
        recording: &Arc<Recording>,
        k: u32,
        place: usize,
        timestamp: Option<Timestamp>,
    ) {
        recording.expose();
        let recording = recording.clone();
        self.replace(inner, State::Recorded(Recorded { recording, k, place }), timestamp);
    }

    /// Whether it names a signal of this recording.
    pub fn is_of(&self, own: &Arc<Recording>) -> bool {
        self.source() == Source::recording(own)
    }

    /// Notes that no command of the recording signals the event any more: the event keeps the value that it
    /// names now. If the recording was never executed, the event counts as never signalled.
    pub fn leave(&self, own: &Arc<Recording>) {
        let inner = self.inner.lock();
        let Inner { state: State::Recorded(it), timestamp } = &*inner else { return };
        if !Arc::ptr_eq(&it.recording, own) {
            return;
        }
        let (cell, value) = own.resolve(it.k);
        let state = if own.is_submitted() { State::Fixed(cell, value) } else { State::Never };
        let timestamp = timestamp.clone();
        self.replace(inner, state, timestamp);
    }

    /// Whether it names the signal with this number of this recording.
    pub fn names(&self, own: &Arc<Recording>, number: u32) -> bool {
        self.inner.with(|inner| match &inner.state {
            State::Recorded(it) => Arc::ptr_eq(&it.recording, own) && it.k == number,
            _ => false,
        })
    }

    fn replace(&self, mut inner: SpinGuard<'_, Inner>, state: State, timestamp: Option<Timestamp>) {
        self.source.store(state.source().0, Ordering::Relaxed);
        let old = std::mem::replace(&mut *inner, Inner { state, timestamp });
        // Dropping the replaced state may end a recording, which must not happen under the lock.
        drop(inner);
        drop(old);
    }

    /// The slot to which the append that the event names writes its times.
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.inner.with(|inner| inner.timestamp.clone())
    }

    /// Sets the append's slot of an aggregated event, whose state is not replaced.
    pub fn set_timestamp(&self, timestamp: Option<Timestamp>) {
        let _old = self.inner.with(|inner| std::mem::replace(&mut inner.timestamp, timestamp));
    }
}

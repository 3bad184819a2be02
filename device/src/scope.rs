// SPDX-License-Identifier: MIT OR Apache-2.0
//! In-flight groups (`Scope`): the commands that an ORDERED command waits for. A
//! ring is one, and so is each execution of a recording. Commands are only counted
//! here; a command (`C`) is kept for the end of a CALL.

use crate::sync::Mutex;
use crate::sync::{AtomicU64, Ordering};
/// Set while the queue's stream waits for the scope.
const WAITING: u64 = 1 << 63;

/// The commands of a ring or of one CALL that have started and not completed.
#[derive(Debug)]
pub(crate) struct Scope<C> {
    /// Number of commands in flight, and [`WAITING`]. A CALL's own stream counts as
    /// one until the end of the recording, so that the CALL cannot complete before.
    state: AtomicU64,
    call: Option<CallEnd<C>>,
}

/// The end of a CALL, which happens once.
#[derive(Debug)]
pub(crate) struct CallEnd<C> {
    /// VA of the recording's counter.
    pub(crate) counter: u64,
    /// The value that the counter is raised to.
    pub(crate) target: u64,
    /// The CALL as a command of the ring.
    pub(crate) command: Mutex<Option<C>>,
}

/// The effect of a command's end on its scope.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// Other commands are in flight.
    More,
    /// The stream waited for this one.
    Resume,
    /// It was the last of a CALL.
    Call,
}

impl<C> Scope<C> {
    pub(crate) fn ring() -> Self {
        Self { state: AtomicU64::new(0), call: None }
    }

    pub(crate) fn call(end: CallEnd<C>) -> Self {
        Self { state: AtomicU64::new(1), call: Some(end) }
    }

    pub(crate) fn call_end(&self) -> Option<&CallEnd<C>> {
        self.call.as_ref()
    }

    /// The count while the stream is inside and no command is in flight.
    fn own(&self) -> u64 {
        u64::from(self.call.is_some())
    }

    /// Notes that a command starts. Only the stream calls this.
    pub(crate) fn start(&self) {
        self.state.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all commands that have started have completed; their writes are then
    /// visible. Only the stream calls this.
    pub(crate) fn drained(&self) -> bool {
        self.state.load(Ordering::Acquire) == self.own()
    }

    /// Notes that the stream is at rest and waits. False if there is nothing to wait
    /// for; if true, exactly one [`Self::finish`] returns [`Finished::Resume`].
    pub(crate) fn wait(&self) -> bool {
        if self.state.fetch_or(WAITING, Ordering::AcqRel) == self.own() {
            // No command is in flight, so no other thread changes the word.
            self.state.fetch_and(!WAITING, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Notes that a command has completed, or that the stream has reached the recording's end.
    pub(crate) fn finish(&self) -> Finished {
        let left = self.state.fetch_sub(1, Ordering::AcqRel) - 1;
        if left == self.own() | WAITING {
            self.state.fetch_and(!WAITING, Ordering::Relaxed);
            return Finished::Resume;
        }
        if left == 0 && self.call.is_some() { Finished::Call } else { Finished::More }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_finisher_resumes_a_waiting_stream() {
        let scope = Scope::<()>::ring();
        scope.start();
        scope.start();
        assert!(!scope.drained());
        assert!(scope.wait());
        assert_eq!(scope.finish(), Finished::More);
        assert_eq!(scope.finish(), Finished::Resume);
        assert!(scope.drained());
    }

    #[test]
    fn a_stream_does_not_wait_for_nothing() {
        let scope = Scope::<()>::ring();
        assert!(!scope.wait());
        scope.start();
        assert_eq!(scope.finish(), Finished::More);
    }

    #[test]
    fn a_call_ends_after_its_stream_and_its_last_command() {
        let end = CallEnd::<()> { counter: 8, target: 1, command: Mutex::new(None) };
        let scope = Scope::call(end);
        assert!(scope.drained());
        scope.start();
        assert_eq!(scope.finish(), Finished::More);
        scope.start();
        assert_eq!(scope.finish(), Finished::More);
        assert_eq!(scope.finish(), Finished::Call);
    }
}

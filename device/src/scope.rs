// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scopes: the commands that an ORDERED command waits for. A ring is a scope,
//! and so is each execution of a recording. They are only counted here; a
//! command (`C`) is kept for the end of a CALL.

use crate::sync::Mutex;
use crate::sync::{AtomicU64, Ordering};
/// Set while the queue's stream waits for the scope.
const WAITING: u64 = 1 << 63;

/// The commands of a ring or of one CALL that have started and not completed.
#[derive(Debug)]
pub(crate) struct Scope<C> {
    /// Commands in flight, and [`WAITING`]. A CALL's own stream counts as one
    /// until the end of the recording, so that it cannot complete before.
    state: AtomicU64,
    call: Option<CallEnd<C>>,
}

/// The end of a CALL, which comes once.
#[derive(Debug)]
pub(crate) struct CallEnd<C> {
    /// VA of the recording's counter.
    pub(crate) counter: u64,
    /// The value that the counter is raised to.
    pub(crate) target: u64,
    /// The CALL as a command of the ring.
    pub(crate) command: Mutex<Option<C>>,
}

/// The meaning of a command's end for its scope.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// Others are in flight.
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

    /// The count when no command is in flight, while the stream is inside.
    fn own(&self) -> u64 {
        u64::from(self.call.is_some())
    }

    /// A command starts. Only the stream calls this.
    pub(crate) fn start(&self) {
        self.state.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all commands that have started have completed. Only the stream
    /// asks; what they wrote is then visible.
    pub(crate) fn drained(&self) -> bool {
        self.state.load(Ordering::Acquire) == self.own()
    }

    /// The stream is at rest and waits. False if there is nothing to wait for;
    /// if true, exactly one [`Self::finish`] returns [`Finished::Resume`].
    pub(crate) fn wait(&self) -> bool {
        if self.state.fetch_or(WAITING, Ordering::AcqRel) == self.own() {
            // No other thread changes the word: nothing is in flight.
            self.state.fetch_and(!WAITING, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// A command has completed, or the stream has reached the recording's end.
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

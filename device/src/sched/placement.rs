// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor on which a woken worker runs.
//!
//! Linux wakes a thread where it slept or where its waker runs, unless it finds an idle processor among those that
//! share a cache. How many it looks at depends on that cache's load (`select_idle_cpu`, SIS_UTIL). If two or three
//! processors share it and one is busy, that is none but the first. A worker that is woken to share a work then
//! waits behind the thread that has woken it until a tick balances the load: up to 4 ms on one processor, with the
//! other idle. In a virtual machine with two processors, whose idle ones may seem to be taken away
//! (`vcpu_is_preempted`), 391 of 400 wakes by a busy thread were on its own processor.
//!
//! So a thread that goes on working takes its own processor from the worker's, and then wakes it. The worker
//! takes it back when it runs.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most processors for which Linux is corrected. With four it looks at two others.
const FEW: u64 = 3;

/// Whether workers are to be placed. False in a confined process, which may not make the system calls.
pub(super) fn is_needed(confined: bool) -> bool {
    let processors = crate::machine::sysconf(libc::_SC_NPROCESSORS_ONLN).unwrap_or(1);
    !confined && !cfg!(shuttle) && (2..=FEW).contains(&processors)
}

/// The processor that the calling thread runs on, which may change at any time.
pub(super) fn here() -> usize {
    // SAFETY: takes nothing. -1, if the kernel does not tell, is no processor's number.
    unsafe { libc::sched_getcpu() as usize }
}

/// The processors of one worker.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The worker's thread, once it has slept.
    thread: AtomicI32,
    /// The processors that it had before some were taken.
    before: Mutex<Option<libc::cpu_set_t>>,
}

impl Placement {
    /// Notes that the calling thread is the worker.
    pub(super) fn is_own(&self) {
        if self.thread.load(Ordering::Relaxed) == 0 {
            // SAFETY: takes nothing.
            self.thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        }
    }

    /// Takes processor `here` from the worker, which sleeps, unless it is its only one. An error is ignored: the
    /// worker then runs where Linux wakes it.
    pub(super) fn avoid(&self, here: usize) {
        let thread = self.thread.load(Ordering::Relaxed);
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if thread == 0 || before.is_some() {
            return;
        }
        let Some(had) = processors(thread) else { return };
        let mut rest = had;
        if here < libc::CPU_SETSIZE as usize {
            // SAFETY: the number is within the set.
            unsafe { libc::CPU_CLR(here, &mut rest) };
        }
        // SAFETY: both are sets.
        let counts = unsafe { [libc::CPU_COUNT(&rest), libc::CPU_COUNT(&had)] };
        if counts[0] != 0 && counts[0] < counts[1] && set_processors(thread, &rest) {
            *before = Some(had);
        }
    }

    /// Gives the calling worker back what [`Self::avoid`] took.
    pub(super) fn restore(&self) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before {
            set_processors(0, &before);
        }
    }
}

/// The processors of a thread, or of the calling one (0).
fn processors(thread: libc::pid_t) -> Option<libc::cpu_set_t> {
    // SAFETY: all zeros are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes no more than the set's size.
    let result = unsafe { libc::sched_getaffinity(thread, size_of_val(&set), &raw mut set) };
    (result == 0).then_some(set)
}

/// Sets them. Whether the kernel allows that.
fn set_processors(thread: libc::pid_t, set: &libc::cpu_set_t) -> bool {
    // SAFETY: the kernel reads the set, which is valid for the call.
    unsafe { libc::sched_setaffinity(thread, size_of_val(set), set) == 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::super::{Sched, testing};
    use super::*;

    fn own_processors() -> usize {
        let set = processors(0).unwrap();
        // SAFETY: a set.
        usize::try_from(unsafe { libc::CPU_COUNT(&set) }).unwrap()
    }

    /// Only with one processor the worker keeps it.
    #[test]
    fn a_worker_is_woken_beside_its_waker_and_gets_its_processors_back() {
        let mut sched = Sched::new(1, 0, true, |_, _, _| {});
        sched.placements = Box::new([Placement::default()]);
        let (shared, _) = testing::device_with(sched);
        let (sleeps, slept) = channel();
        let sleeper = Arc::clone(&shared);
        let worker = std::thread::spawn(move || {
            let (idle, placement) = (&sleeper.sched.idle, &sleeper.sched.placements[0]);
            let before = own_processors();
            placement.is_own();
            idle.announce(0);
            sleeps.send(()).unwrap();
            idle.sleep(0);
            let meanwhile = own_processors();
            placement.restore();
            (before, meanwhile, own_processors())
        });
        slept.recv().unwrap();
        shared.sched.wake_beside(&shared, usize::MAX);
        let (before, meanwhile, after) = worker.join().unwrap();
        assert_eq!((meanwhile, after), ((before - 1).max(1), before));
    }

    /// It is asked for more often than the worker sleeps, and for processors that it does not have.
    #[test]
    fn what_was_taken_twice_is_given_back() {
        let (placement, before) = (Placement::default(), own_processors());
        placement.avoid(here());
        assert_eq!(own_processors(), before, "no thread is known");
        placement.is_own();
        placement.avoid(usize::MAX);
        placement.avoid(here());
        placement.avoid(here());
        assert_eq!(own_processors(), (before - 1).max(1));
        placement.restore();
        placement.restore();
        assert_eq!(own_processors(), before);
    }
}

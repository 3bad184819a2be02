// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watchers: objects that are notified of a VM's end without sleeping in SEM_WAIT.
//!
//! They need no notification of signals, because the module wakes all sleepers on a cell, in every process.
//! But the module reports the loss of a VM only to sleepers. So for each watched VM a thread sleeps on a word
//! that is never written, until the VM is lost or destroyed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tally_uapi::PAGE_SIZE;
use tally_uapi::cell::Compare;
use tally_uapi::ioctl::{BoCreate, Errno, SemWait, SemWaitEntry};

use super::node::{GemClose, Node};
use crate::backend::{Result, Watcher};
use crate::process;

/// Pause before a guard that could not sleep tries again.
const AGAIN: Duration = Duration::from_millis(20);

/// All watchers.
#[derive(Clone, Default)]
pub(super) struct Watches(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    /// The last number given to a watch or a guard.
    last: u64,
    /// Numbers of the sleeping threads (guards), by VM. A VM's id may be reused; these numbers are not.
    guards: HashMap<u32, u64>,
    /// For each watch: the guard, and the watcher to notify.
    watches: HashMap<u64, (u64, Arc<dyn Watcher>)>,
}

impl All {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies `watcher` when the VM is lost or destroyed; at once, if it is already.
    ///
    /// # Errors
    /// ENOMEM: no buffer or thread.
    pub(super) fn add(&self, node: &Arc<Node>, vm: u32, watcher: Arc<dyn Watcher>) -> Result<u64> {
        let mut all = self.lock();
        let guard = match all.guards.get(&vm) {
            Some(&guard) => guard,
            None => {
                let guard = all.number();
                self.start(node, vm, guard)?;
                all.guards.insert(vm, guard);
                guard
            }
        };
        let watch = all.number();
        all.watches.insert(watch, (guard, watcher));
        Ok(watch)
    }

    /// Ends a watch. Its watcher is not called any more when this returns.
    pub(super) fn remove(&self, watch: u64) {
        let gone = self.lock().watches.remove(&watch);
        drop(gone);
    }

    /// Called before the VM is destroyed, since another VM may then get its id.
    pub(super) fn vm_ends(&self, vm: u32) {
        self.lock().guards.remove(&vm);
    }

    fn start(&self, node: &Arc<Node>, vm: u32, guard: u64) -> Result {
        let mut create = BoCreate { size: PAGE_SIZE, ..Default::default() };
        // SAFETY: the struct has no address.
        unsafe { node.call(&mut create) }?;
        let (own, sleeper) = (self.clone(), node.clone());
        let thread = thread::Builder::new().name("tally-watch".into());
        let started = process::without_signals(|| {
            thread.spawn(move || {
                sleep_with(&sleeper, vm, create.handle, || own.is_guard(vm, guard));
                own.ended(vm, guard);
            })
        });
        started.map(drop).map_err(|_| {
            close(node, create.handle);
            Errno::NoMemory
        })
    }

    /// Whether the id still belongs to the VM that the guard was started for.
    fn is_guard(&self, vm: u32, guard: u64) -> bool {
        self.lock().guards.get(&vm) == Some(&guard)
    }

    fn ended(&self, vm: u32, guard: u64) {
        let mut all = self.lock();
        if all.guards.get(&vm) == Some(&guard) {
            all.guards.remove(&vm);
        }
        // Locked until all are notified, so that a watcher whose watch was removed is not called any more.
        all.watches.values().filter(|(its, _)| *its == guard).for_each(|(_, it)| it.lost());
    }
}

/// Sleeps until the VM or the device is gone, then closes the buffer. `is_its` says whether the id still
/// belongs to the VM.
fn sleep_with(node: &Node, vm_id: u32, handle: u32, is_its: impl Fn() -> bool) {
    let compare = Compare::GreaterEqual as u32;
    let entry = SemWaitEntry { handle, compare, offset: 0, value: u64::MAX };
    let entries = (&raw const entry).addr() as u64;
    until_the_end(
        || {
            let mut wait =
                SemWait { entries, count: 1, flags: 0, timeout_ns: i64::MAX, vm_id, index: 0 };
            // SAFETY: one entry may be read there.
            let answer = unsafe { node.call(&mut wait) };
            log::debug!("the watch of VM {vm_id} ends: {}", answer.err().map_or("", Errno::name));
            answer
        },
        || {
            thread::sleep(AGAIN);
            is_its()
        },
    );
    close(node, handle);
}

/// Calls `sleep` until it reports that the VM or the device is gone, and `pause` after any other answer, since
/// a momentary lack of memory does not end a VM. `pause` returns whether to continue.
fn until_the_end(mut sleep: impl FnMut() -> Result, mut pause: impl FnMut() -> bool) {
    while !matches!(sleep(), Err(Errno::Io | Errno::NoEntry | Errno::NoDevice)) && pause() {}
}

fn close(node: &Node, handle: u32) {
    // This fails if the device is gone, and then there is no handle to close.
    let _ = node.gem_close(GemClose { handle, pad: 0 });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_lasts_until_the_vm_is_lost_or_the_device_gone() {
        for end in [Errno::Io, Errno::NoEntry, Errno::NoDevice] {
            let mut answers =
                [Err(Errno::NoMemory), Ok(()), Err(Errno::Interrupted), Err(end)].into_iter();
            let mut pauses = 0;
            let pause = || {
                pauses += 1;
                true
            };
            until_the_end(|| answers.next().expect("the end was said before"), pause);
            assert_eq!((pauses, answers.len()), (3, 0));
        }
    }

    #[test]
    fn a_watch_of_a_vm_that_was_destroyed_does_not_begin_again_with_the_next_of_that_id() {
        let mut calls = 0;
        let sleep = || {
            calls += 1;
            Err(Errno::NoMemory)
        };
        until_the_end(sleep, || false);
        assert_eq!(calls, 1);
    }
}

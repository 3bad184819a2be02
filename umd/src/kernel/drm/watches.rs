// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watchers: those who are told of a VM's end without sleeping in SEM_WAIT.
//!
//! Signals they need not be told of: the module wakes whoever sleeps on a cell, in whatever process.
//! But it tells only sleepers that a VM is lost. So for each VM that is watched a thread sleeps with
//! it, on a word that nobody writes, until the VM is lost or destroyed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tally_uapi::PAGE_SIZE;
use tally_uapi::cell::Compare;
use tally_uapi::ioctl::{BoCreate, Errno, SemWait, SemWaitEntry};

use super::node::{GemClose, Node};
use crate::kernel::{Result, Watcher};
use crate::process;

/// All watchers.
#[derive(Clone, Default)]
pub(super) struct Watches(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    /// The last number given to a watch or a guard.
    last: u64,
    /// Numbers of the threads that sleep, by VM. A VM's id may be given again; these are not.
    guards: HashMap<u32, u64>,
    /// By number: the guard, and who is told.
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

    /// Tells `watcher` when the VM is lost or destroyed; at once, if it is.
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

    /// Ends a watch. Nobody calls its watcher when this returns.
    pub(super) fn remove(&self, watch: u64) {
        let gone = self.lock().watches.remove(&watch);
        drop(gone);
    }

    /// The VM is about to be destroyed: its id may soon be another's.
    pub(super) fn vm_ends(&self, vm: u32) {
        self.lock().guards.remove(&vm);
    }

    fn start(&self, node: &Arc<Node>, vm: u32, guard: u64) -> Result {
        let mut create = BoCreate { size: PAGE_SIZE, ..Default::default() };
        // SAFETY: no field is an address.
        unsafe { node.call(&mut create) }?;
        let (own, sleeper) = (self.clone(), node.clone());
        let thread = thread::Builder::new().name("tally-watch".into());
        let started = process::without_signals(|| {
            thread.spawn(move || {
                sleep_with(&sleeper, vm, create.handle);
                own.ended(vm, guard);
            })
        });
        started.map(drop).map_err(|_| {
            close(node, create.handle);
            Errno::NoMemory
        })
    }

    fn ended(&self, vm: u32, guard: u64) {
        let mut all = self.lock();
        if all.guards.get(&vm) == Some(&guard) {
            all.guards.remove(&vm);
        }
        // Locked until all are told: who has removed its watch is not called any more.
        all.watches.values().filter(|(its, _)| *its == guard).for_each(|(_, it)| it.lost());
    }
}

/// Sleeps until the VM, or the device, is no more. Closes the buffer.
fn sleep_with(node: &Node, vm_id: u32, handle: u32) {
    let compare = Compare::GreaterEqual as u32;
    let entry = SemWaitEntry { handle, compare, offset: 0, value: u64::MAX };
    let entries = (&raw const entry).addr() as u64;
    let mut wait = SemWait { entries, count: 1, flags: 0, timeout_ns: i64::MAX, vm_id, index: 0 };
    // SAFETY: one entry may be read there.
    if let Err(errno) = unsafe { node.call(&mut wait) } {
        log::debug!("VM {vm_id} has ended: {}", errno.name());
    }
    close(node, handle);
}

fn close(node: &Node, handle: u32) {
    // A device that is gone has no handles either.
    let _ = node.gem_close(GemClose { handle, pad: 0 });
}

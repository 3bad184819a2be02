// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the engines were busy for this process: the queues that exist, and what those that are
//! gone have left.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use tally_uapi::ioctl::QueueQuery;

use crate::vm::Vm;

/// An engine: its class, and which of the class.
pub type Engine = (u32, u32);

static ALL: Mutex<Option<State>> = Mutex::new(None);

#[derive(Default)]
struct State {
    /// By the VM's address, while it exists, and the queue's id.
    queues: HashMap<(usize, u32), (Weak<Vm>, Engine)>,
    /// Of queues that are gone, in ns.
    gone: HashMap<Engine, u64>,
}

fn state() -> MutexGuard<'static, Option<State>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(vm: &Weak<Vm>, queue: u32) -> (usize, u32) {
    (vm.as_ptr().addr(), queue)
}

/// A queue was made.
pub fn begin(vm: Weak<Vm>, queue: u32, engine: Engine) {
    state().get_or_insert_default().queues.insert(key(&vm, queue), (vm, engine));
}

/// A queue is about to be destroyed.
pub fn end(vm: &Vm, weak: &Weak<Vm>, queue: u32) {
    let mut state = state();
    let state = state.get_or_insert_default();
    if let Some((_, engine)) = state.queues.remove(&key(weak, queue)) {
        *state.gone.entry(engine).or_default() += busy(vm, queue);
    }
}

/// Time in ns that each engine which was ever used was busy. It does not go back.
pub fn all() -> HashMap<Engine, u64> {
    let mut state = state();
    let state = state.get_or_insert_default();
    let mut sums = state.gone.clone();
    for (&(_, queue), (vm, engine)) in &state.queues {
        *sums.entry(*engine).or_default() += vm.upgrade().map_or(0, |vm| busy(&vm, queue));
    }
    sums
}

fn busy(vm: &Vm, queue: u32) -> u64 {
    let mut query = QueueQuery { queue_id: queue, ..Default::default() };
    // A queue that does not answer any more was not busy either.
    vm.kernel().queue_query(&mut query).map_or(0, |()| query.busy_ns)
}

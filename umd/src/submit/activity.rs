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
    queues: HashMap<(usize, u32), Queue>,
    /// Of queues that are gone, in ns.
    gone: HashMap<Engine, u64>,
}

struct Queue {
    vm: Weak<Vm>,
    engine: Engine,
    /// What it answered last, in ns: one of a lost VM answers no more.
    busy: u64,
}

impl Queue {
    /// Asks it anew.
    fn ask(&mut self, vm: &Vm, id: u32) -> u64 {
        let mut query = QueueQuery { queue_id: id, ..Default::default() };
        if vm.kernel().queue_query(&mut query).is_ok() {
            self.busy = query.busy_ns;
        }
        self.busy
    }
}

fn state() -> MutexGuard<'static, Option<State>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(vm: &Weak<Vm>, queue: u32) -> (usize, u32) {
    (vm.as_ptr().addr(), queue)
}

/// A queue was made.
pub fn begin(vm: Weak<Vm>, queue: u32, engine: Engine) {
    state().get_or_insert_default().queues.insert(key(&vm, queue), Queue { vm, engine, busy: 0 });
}

/// A queue is about to be destroyed.
pub fn end(vm: &Vm, weak: &Weak<Vm>, queue: u32) {
    let mut state = state();
    let state = state.get_or_insert_default();
    if let Some(mut known) = state.queues.remove(&key(weak, queue)) {
        *state.gone.entry(known.engine).or_default() += known.ask(vm, queue);
    }
}

/// Time in ns that each engine which was ever used was busy. It does not go back.
pub fn all() -> HashMap<Engine, u64> {
    let mut state = state();
    let state = state.get_or_insert_default();
    let mut sums = state.gone.clone();
    for (&(_, id), queue) in &mut state.queues {
        let vm = queue.vm.upgrade();
        *sums.entry(queue.engine).or_default() += vm.map_or(queue.busy, |vm| queue.ask(&vm, id));
    }
    sums
}

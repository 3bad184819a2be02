// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time for which engines were busy for this process: the sum over the existing queues and those that
//! were destroyed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use tally_uapi::ioctl::{QueueQuery, queue_state};

use crate::vm::Vm;

/// An engine: its class, and its index in the class.
pub type Engine = (u32, u32);

static ALL: Mutex<Option<State>> = Mutex::new(None);

#[derive(Default)]
struct State {
    /// The queues, by their id and the address of their VM, as long as that exists.
    queues: HashMap<(usize, u32), Queue>,
    /// The time of destroyed queues, in ns.
    gone: HashMap<Engine, u64>,
    /// The last answer for each engine.
    told: HashMap<Engine, Told>,
}

/// The last answer about an engine.
///
/// An engine reads several queues at the same time, so the sum of their times may grow faster than the
/// clock. The answer never grows by more than the time that has passed.
struct Told {
    at: Instant,
    /// The sum of the queues' times at that moment, in ns.
    sum: u64,
    /// The answer, in ns.
    busy: u64,
}

impl Told {
    fn new() -> Self {
        Self { at: Instant::now(), sum: 0, busy: 0 }
    }

    /// The answer at `now`, when the sum is `sum`.
    fn update(&mut self, now: Instant, sum: u64) -> u64 {
        let passed = now.saturating_duration_since(self.at).as_nanos() as u64;
        self.busy += sum.saturating_sub(self.sum).min(passed);
        (self.at, self.sum) = (now, sum);
        self.busy
    }
}

struct Queue {
    vm: Weak<Vm>,
    engine: Engine,
    /// Its last known time, in ns, since a queue of a lost VM can no longer be queried.
    busy: u64,
}

impl Queue {
    /// Queries the queue again.
    fn ask(&mut self, vm: &Vm, id: u32) -> u64 {
        let mut query = QueueQuery { queue_id: id, ..Default::default() };
        if vm.backend().queue_query(&mut query).is_ok() {
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

/// Notes that a queue was created.
pub fn begin(vm: Weak<Vm>, queue: u32, engine: Engine) {
    let mut state = state();
    let state = state.get_or_insert_default();
    state.told.entry(engine).or_insert_with(Told::new);
    state.queues.insert(key(&vm, queue), Queue { vm, engine, busy: 0 });
}

/// Notes that a queue is about to be destroyed.
pub fn end(vm: &Vm, weak: &Weak<Vm>, queue: u32) {
    let mut state = state();
    let state = state.get_or_insert_default();
    if let Some(mut known) = state.queues.remove(&key(weak, queue)) {
        *state.gone.entry(known.engine).or_default() += known.ask(vm, queue);
    }
}

/// The busy time in ns of each engine that was ever used. It never decreases.
pub fn all() -> HashMap<Engine, u64> {
    let mut state = state();
    let state = state.get_or_insert_default();
    let mut sums = state.gone.clone();
    for (&(_, id), queue) in &mut state.queues {
        let vm = queue.vm.upgrade();
        *sums.entry(queue.engine).or_default() += vm.map_or(queue.busy, |vm| queue.ask(&vm, id));
    }
    let now = Instant::now();
    for (engine, sum) in &mut sums {
        *sum = state.told.entry(*engine).or_insert_with(Told::new).update(now, *sum);
    }
    sums
}

/// What the queues of a VM do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether one runs a command, or is going to: neither idle, nor waiting for a cell, nor stopped.
    pub runs: bool,
    /// Whether all are idle or stopped.
    pub is_idle: bool,
    /// For each, its id, state, what it waits for, and the packets that it has taken.
    places: Vec<(u32, u32, u64, u64, u64)>,
}

/// What the queues of a VM do at this moment.
pub fn standing(vm: &Arc<Vm>) -> Standing {
    let of = Arc::downgrade(vm);
    let mut ids: Vec<u32> = {
        let state = state();
        let queues = state.iter().flat_map(|state| state.queues.keys());
        queues.filter(|(of_vm, _)| *of_vm == of.as_ptr().addr()).map(|&(_, id)| id).collect()
    };
    ids.sort_unstable();
    let mut standing = Standing { is_idle: true, ..Standing::default() };
    for queue_id in ids {
        let mut query = QueueQuery { queue_id, ..Default::default() };
        if vm.backend().queue_query(&mut query).is_err() {
            continue;
        }
        let (address, value) = (query.parked_address, query.parked_value);
        standing.is_idle &= matches!(query.state, queue_state::IDLE | queue_state::STOPPED);
        standing.runs |= match query.state {
            queue_state::RUNNING => true,
            queue_state::PARKED if vm.backend().queue_works(queue_id) => true,
            // It is about to be woken.
            queue_state::PARKED if vm.in_reservation(address) => {
                let word = crate::space::pointer(address).cast::<AtomicU64>();
                // SAFETY: a queue of this process waits for the word, so it is mapped, and it is aligned.
                unsafe { (*word).load(Ordering::Acquire) >= value }
            }
            _ => false,
        };
        standing.places.push((queue_id, query.state, address, value, query.head));
    }
    standing
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_engine_is_busy_for_no_longer_than_the_time_that_passes() {
        let mut told = Told::new();
        let start = told.at;
        let at = |ns| start + Duration::from_nanos(ns);
        assert_eq!(told.update(at(100), 60), 60);
        assert_eq!(told.update(at(200), 460), 160, "four queues at once");
        assert_eq!(told.update(at(300), 460), 160);
        assert_eq!(told.update(at(400), 410), 160, "it does not go back");
        assert_eq!(told.update(at(500), 450), 200);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that all lists, queues and events of a VM share: its counters, its live submitters, and destroyed
//! objects that the device may still use.

use std::any::Any;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::cell::Cell;
use super::counted_ref::RefCounts;
use super::counter::{Counter, Counters};
use super::deadline::Deadline;
use super::host_function::{Callback, HostFunction, Service};
use super::publications::Publications;
use super::spin::SpinLock;
use super::wait;
use crate::checks::{self, Checks};
use crate::error::Result;
use crate::ipc::event::counter::{Exports, Imports};
use crate::vm::Vm;

/// Something that submits work and can be waited for: an immediate list or a queue.
pub trait Submitter: Send + Sync {
    /// Waits until all work submitted so far is complete; false if the time passes first.
    ///
    /// # Errors
    /// DEVICE_LOST.
    fn wait_idle(&self, timeout_ns: u64) -> Result<bool>;

    /// A counter and its value at which all work submitted so far is complete.
    ///
    /// # Errors
    /// DEVICE_LOST, out of memory.
    fn reserve(&self) -> Result<(Cell, u64)>;

    /// The number of the device to which it submits.
    fn device(&self) -> u32;
}

/// One for each VM in use. Lists, queues and events keep it.
pub struct Shared {
    vm: Arc<Vm>,
    counters: Counters,
    submitters: Mutex<Vec<Weak<dyn Submitter>>>,
    dying: Mutex<Vec<Dying>>,
    /// The number of retired objects, so that no thread takes the lock only to find none.
    waiting: AtomicUsize,
    imports: Imports,
    exports: Exports,
    ref_counts: RefCounts,
    /// The thread that calls host functions, once it is started.
    service: Mutex<Option<Arc<Service>>>,
    publications: Publications,
}

/// Memory or a queue that the device uses until counters have reached these values.
struct Dying {
    until: Vec<(Cell, u64)>,
    #[allow(dead_code, reason = "owned for its drop")]
    what: Box<dyn Any + Send>,
}

impl Shared {
    /// The shared state of `vm`; created if there is none.
    pub fn of(vm: &Arc<Vm>) -> Arc<Self> {
        static LATEST: SpinLock<Weak<Shared>> = SpinLock::new(Weak::new());
        static ALL: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
        let is_ours = |shared: &Arc<Self>| Arc::ptr_eq(&shared.vm, vm);
        if let Some(shared) = LATEST.with(|latest| latest.upgrade()).filter(is_ours) {
            return shared;
        }
        let mut all = lock(&ALL);
        all.retain(|it| it.strong_count() != 0);
        let shared = all.iter().filter_map(Weak::upgrade).find(is_ours).unwrap_or_else(|| {
            let new = Arc::new(Self {
                vm: vm.clone(),
                counters: Counters::default(),
                submitters: Mutex::default(),
                dying: Mutex::default(),
                waiting: AtomicUsize::new(0),
                service: Mutex::default(),
                imports: Imports::default(),
                exports: Exports::default(),
                publications: Publications::default(),
                ref_counts: RefCounts::default(),
            });
            all.push(Arc::downgrade(&new));
            new
        });
        let _old = LATEST.with(|latest| std::mem::replace(latest, Arc::downgrade(&shared)));
        shared
    }

    /// The VM.
    #[inline]
    pub fn vm(&self) -> &Arc<Vm> {
        &self.vm
    }

    /// A counter without an owner.
    ///
    /// # Errors
    /// Those of the heap.
    pub fn counter(self: &Arc<Self>) -> Result<Counter> {
        Counters::take(self)
    }

    /// The values for which other processes wait.
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// Counters of other processes.
    pub fn imports(&self) -> &Imports {
        &self.imports
    }

    /// The references that contexts and events keep.
    pub fn ref_counts(&self) -> &RefCounts {
        &self.ref_counts
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Drops `what` once `cell` has reached `value`: at once, or at a later call of this or of
    /// [`Shared::reap`].
    pub fn retire(&self, cell: Cell, value: u64, what: Box<dyn Any + Send>) {
        self.retire_after(vec![(cell, value)], what);
    }

    /// Does the same as [`Shared::retire`], once every cell has reached its value.
    pub fn retire_after(&self, mut until: Vec<(Cell, u64)>, what: Box<dyn Any + Send>) {
        until.retain(|(cell, value)| !cell.reached(*value));
        // The device no longer touches memory of a lost VM.
        if until.is_empty() || self.vm.is_lost() {
            return;
        }
        let mut dying = lock(&self.dying);
        dying.push(Dying { until, what });
        self.waiting.store(dying.len(), Ordering::Relaxed);
        drop(dying);
        self.reap();
    }

    /// Drops objects that the device no longer uses.
    pub fn reap(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let lost = self.vm.is_lost();
        let mut dying = lock(&self.dying);
        let mut done = Vec::new();
        let mut i = 0;
        while i < dying.len() {
            let until = &mut dying[i].until;
            // One value that is not reached is sufficient; the others are checked later.
            while until.pop_if(|(cell, value)| cell.reached(*value)).is_some() {}
            if lost || until.is_empty() {
                done.push(dying.swap_remove(i));
            } else {
                i += 1;
            }
        }
        self.waiting.store(dying.len(), Ordering::Relaxed);
        // Dropped without the lock, since the end of a queue takes a while.
        drop(dying);
        drop(done);
    }

    /// Registers a function that a list will call.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY.
    pub fn host_function(&self, callback: Callback) -> Result<Arc<HostFunction>> {
        let mut service = lock(&self.service);
        let running = match &*service {
            Some(running) => running.clone(),
            None => service.insert(Service::start(&self.vm)?).clone(),
        };
        drop(service);
        running.register(callback)
    }

    /// Whether the device waits for a function of the host.
    pub fn waits_for_function(&self) -> bool {
        let service = lock(&self.service).clone();
        service.is_some_and(|service| service.is_asked())
    }

    /// Whether the host sees the device's writes only after something has made them visible.
    #[inline]
    pub fn publishes_late(&self) -> bool {
        self.vm.publishes_late()
    }

    /// Notes that all writes before the command that raises `cell` to `value` will then be visible to the host.
    #[cold]
    pub fn will_publish(&self, cell: Cell, value: u64) {
        self.publications.add(cell, value);
    }

    /// Notes that the host has seen an event complete, which may or may not make the device's writes visible
    /// to it.
    #[cold]
    pub fn event_is_complete(&self, is_seen_by_host: bool) {
        let published = self.publications.take();
        self.vm.event_is_complete(is_seen_by_host || published);
    }

    /// Notes that the host has waited for all of a list, a queue or a fence, so that it sees the device's writes.
    #[inline]
    pub fn all_is_complete(&self) {
        if self.publishes_late() {
            self.event_is_complete(true);
        }
    }

    /// Makes a submitter known to [`Shared::submitters`] as long as it lives.
    pub fn enlist(&self, submitter: Weak<dyn Submitter>) {
        let mut all = lock(&self.submitters);
        all.retain(|it| it.strong_count() != 0);
        all.push(submitter);
    }

    /// All live submitters.
    pub fn submitters(&self) -> Vec<Arc<dyn Submitter>> {
        lock(&self.submitters).iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits until all work is complete that was submitted to the devices whose numbers `concerns` accepts;
    /// false if the time passes first.
    ///
    /// # Errors
    /// DEVICE_LOST.
    pub fn wait_idle(&self, timeout_ns: u64, concerns: impl Fn(u32) -> bool) -> Result<bool> {
        let deadline = Deadline::after(timeout_ns);
        for submitter in self.submitters().iter().filter(|it| concerns(it.device())) {
            if !submitter.wait_idle(deadline.left())? {
                return Ok(false);
            }
        }
        for (cell, value) in self.dying() {
            if !wait::host_wait(&self.vm, cell, value, deadline.left())? {
                return Ok(false);
            }
            if self.publishes_late()
                && let Some(order) = checks::get().and_then(Checks::order)
            {
                order.host_saw_up_to(cell.va(), value);
            }
        }
        self.all_is_complete();
        self.reap();
        Ok(true)
    }

    /// The pairs at which all work submitted so far is complete, without those that are reached already. There is
    /// one for each counter, so that an object that is destroyed later does not wait for each of the objects that
    /// were destroyed before, and these for each of theirs.
    ///
    /// # Errors
    /// DEVICE_LOST, out of memory.
    pub fn unfinished(&self) -> Result<Vec<(Cell, u64)>> {
        let mut pairs = self.dying();
        for submitter in self.submitters() {
            pairs.push(submitter.reserve()?);
        }
        pairs.retain(|(cell, value)| !cell.reached(*value));
        // The largest value of each counter comes first.
        pairs.sort_by_key(|(cell, value)| (cell.va(), Reverse(*value)));
        pairs.dedup_by_key(|(cell, _)| cell.va());
        Ok(pairs)
    }

    /// The pairs for which destroyed objects still wait.
    pub fn dying(&self) -> Vec<(Cell, u64)> {
        lock(&self.dying).iter().flat_map(|it| it.until.iter().copied()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared(VM {})", self.vm.id())
    }
}

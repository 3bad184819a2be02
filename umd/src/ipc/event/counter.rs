// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters that other processes wait for: the pair {counter, value} of a counter-based event.
//!
//! The exporter watches the counter for each importer and notifies it once, when the value is reached. Then the
//! import is over, since a pair that was reached stays reached.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::backend::{Hold, SharedBo, Watcher};
use crate::error::Result;
use crate::ipc::transport::{
    Endpoint, Handle, Kind, Line, Link, Note, Offer, Opened, export, open,
};
use crate::ipc::{Imported, bad_facts, gone, wake};
use crate::sync::cell::Cell;
use crate::sync::shared::Shared;

/// A handle for {counter, value}.
///
/// # Errors
/// OUT_OF_HOST_MEMORY; UNSUPPORTED_FEATURE: memory cannot be shared here.
pub fn share(shared: &Arc<Shared>, cell: Cell, value: u64, details: u32) -> Result<Handle> {
    // Fails at once if it cannot be exported.
    shared.vm().export_bo(cell.bo())?;
    lock(&shared.exports().0).shared.insert(cell.va());
    let object = (Kind::Counter, cell.va());
    let weak = Arc::downgrade(shared);
    let handle = export(object, || Arc::new(CounterOffer { shared: weak, cell }))?;
    Ok(Handle { details, value, ..handle })
}

struct CounterOffer {
    shared: Weak<Shared>,
    cell: Cell,
}

impl Offer for CounterOffer {
    fn is_alive(&self) -> bool {
        self.shared.strong_count() != 0
    }

    fn open(&self, value: u64) -> Result<Opened> {
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        let cell = self.cell;
        let (bo, hold) = shared.vm().export_bo(cell.bo())?;
        let start = move |line| Pair::watch(shared, cell, value, line, hold);
        let facts = [cell.offset(), u64::from(cell.bo()), 0, 0];
        Ok(Opened { bo, facts, start: Box::new(start) })
    }
}

/// A counter's value that an importer waits for.
struct Pair {
    cell: Cell,
    value: u64,
    line: Line,
    told: AtomicBool,
}

/// The values that other processes wait for.
#[derive(Debug, Default)]
pub struct Exports(Mutex<Pairs>);

#[derive(Debug, Default)]
struct Pairs {
    /// VAs of counters for which there are handles.
    shared: HashSet<u64>,
    pairs: Vec<Weak<Pair>>,
    /// Counters that never exceed this value, although larger ones were reserved.
    abandoned: Vec<(Cell, u64)>,
}

impl Exports {
    /// Notifies present and future importers of values above `last` that the counter will not reach them, although
    /// events have such values.
    pub fn abandon(&self, cell: Cell, last: u64) {
        let mut pairs = lock(&self.0);
        if !pairs.shared.contains(&cell.va()) {
            return;
        }
        pairs.abandoned.push((cell, last));
        for pair in pairs.pairs.iter().filter_map(Weak::upgrade) {
            pair.abandon(cell, last);
        }
    }

    fn add(&self, pair: &Arc<Pair>) {
        let mut pairs = lock(&self.0);
        pairs.pairs.retain(|it| it.strong_count() != 0);
        pairs.pairs.push(Arc::downgrade(pair));
        pairs.abandoned.iter().for_each(|(cell, last)| pair.abandon(*cell, *last));
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pair({:#x} >= {})", self.cell.va(), self.value)
    }
}

impl Pair {
    fn abandon(&self, cell: Cell, last: u64) {
        if self.cell == cell && self.value > last && !self.told.swap(true, Ordering::Relaxed) {
            self.line.tell(Note::Abandoned, 0);
        }
    }

    fn watch(
        shared: Arc<Shared>,
        cell: Cell,
        value: u64,
        line: Line,
        hold: Hold,
    ) -> Result<Arc<dyn Endpoint>> {
        let pair = Arc::new(Self { cell, value, line, told: AtomicBool::new(false) });
        let vm = shared.vm();
        let watch = vm
            .backend()
            .watch(vm.id(), &[(cell.bo(), cell.offset())], pair.clone())
            .map_err(|errno| vm.failed("watching a counter", errno))?;
        shared.exports().add(&pair);
        Ok(Arc::new(Watching { shared, watch, _hold: hold }))
    }
}

impl Watcher for Pair {
    fn look(&self, _: usize) {
        if self.cell.reached(self.value) && !self.told.swap(true, Ordering::Relaxed) {
            self.cell.wake_processes();
            self.line.tell(Note::Reached, 0);
        }
    }

    fn lost(&self) {
        self.look(0);
        if !self.told.swap(true, Ordering::Relaxed) {
            self.line.tell(Note::Lost, 0);
        }
    }
}

/// The exporter's end of an import.
struct Watching {
    /// Keeps the counter mapped.
    shared: Arc<Shared>,
    watch: u64,
    _hold: Hold,
}

impl Endpoint for Watching {
    fn told(&self, _: Note, _: u32) {}
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.shared.vm().backend().unwatch(self.watch);
    }
}

/// Counters of other processes that are mapped here. They stay mapped as long as the VM is in use, since lists
/// may wait for them when no event names them any more.
#[derive(Debug, Default)]
pub struct Imports(Mutex<Vec<Arc<ImportedCounters>>>);

/// The counters of one buffer.
#[derive(Debug)]
pub struct ImportedCounters {
    imported: Imported,
    /// The exporter, and its number for the buffer.
    origin: ([u8; 16], u64),
    /// Values that are not known to be reached.
    outstanding: Mutex<Vec<Arc<Outstanding>>>,
}

/// A value that this process waits for.
struct Outstanding {
    counters: Weak<ImportedCounters>,
    cell: Cell,
    value: u64,
    link: OnceLock<Link>,
}

impl std::fmt::Debug for Outstanding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outstanding({:#x} >= {})", self.cell.va(), self.value)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Imports {
    /// Opens a handle: the pair, and the memory that it is in.
    ///
    /// # Errors
    /// Those of [`open`] and [`crate::vm::Vm::import`].
    pub fn open(
        &self,
        shared: &Shared,
        handle: &Handle,
        name: &str,
    ) -> Result<(Cell, Arc<ImportedCounters>)> {
        let (bo, facts, pending) = open(handle, name)?.into_parts();
        let [offset, number, ..] = facts;
        if !offset.is_multiple_of(8) || offset >= bo.size || !bo.read_only {
            return Err(bad_facts());
        }
        let origin = (handle.exporter, number);
        let counters = self.find_or(shared, origin, bo, pending.exporter())?;
        let block = counters.imported.block();
        if offset >= block.size() {
            return Err(bad_facts());
        }
        // SAFETY: `Imports` keeps the block as long as the VM is in use; its exporter uses it for
        // counters only, and it is mapped read-only.
        let cell = unsafe { Cell::new(block, offset) };
        counters.reap();
        if !cell.reached(handle.value) && !counters.expects(cell, handle.value) {
            let outstanding = Arc::new(Outstanding {
                counters: Arc::downgrade(&counters),
                cell,
                value: handle.value,
                link: OnceLock::new(),
            });
            // Listed first, so that a note on the link ends it.
            lock(&counters.outstanding).push(outstanding.clone());
            let endpoint: Weak<dyn Endpoint> = Arc::<Outstanding>::downgrade(&outstanding);
            match pending.link(endpoint) {
                // Set only now: an earlier note has removed it from the list.
                Ok(link) => drop(outstanding.link.set(link)),
                Err(error) => {
                    outstanding.end(&counters);
                    return Err(error);
                }
            }
        }
        Ok((cell, counters))
    }

    fn find_or(
        &self,
        shared: &Shared,
        origin: ([u8; 16], u64),
        bo: SharedBo,
        exporter: String,
    ) -> Result<Arc<ImportedCounters>> {
        let mut all = lock(&self.0);
        let known = |it: &&Arc<ImportedCounters>| it.origin == origin && !it.imported.is_orphaned();
        if let Some(counters) = all.iter().find(known) {
            return Ok(counters.clone());
        }
        let imported = Imported::new(shared.vm(), bo, exporter)?;
        let counters =
            Arc::new(ImportedCounters { imported, origin, outstanding: Mutex::default() });
        all.push(counters.clone());
        Ok(counters)
    }
}

/// The process that shares the counter at an address, and the counter, if the address is one of these.
pub fn find(shared: &Shared, address: u64) -> Option<(String, Cell)> {
    let all = lock(&shared.imports().0);
    let block = |it: &Arc<ImportedCounters>| {
        let block = it.imported.block();
        let offset = address.checked_sub(block.va()).filter(|offset| *offset < block.size())?;
        // SAFETY: as in `open`; the offset is within the block.
        let cell = offset.is_multiple_of(8).then(|| unsafe { Cell::new(block, offset) })?;
        Some((it.imported.exporter().to_owned(), cell))
    };
    all.iter().find_map(block)
}

impl ImportedCounters {
    /// Whether the exporter will already report this value, so that a value that is opened many times costs one
    /// link.
    fn expects(&self, cell: Cell, value: u64) -> bool {
        let same =
            |it: &Arc<Outstanding>| it.cell == cell && it.value == value && it.link.get().is_some();
        lock(&self.outstanding).iter().any(same)
    }

    /// The mapped memory.
    pub fn imported(&self) -> &Imported {
        &self.imported
    }

    /// Ends imports whose value is reached. If one kernel wakes all sleepers, no note reports that.
    fn reap(&self) {
        let reached = |it: &mut Arc<Outstanding>| it.cell.reached(it.value);
        let gone: Vec<_> = lock(&self.outstanding).extract_if(.., reached).collect();
        // A note that arrives later has no waiter to wake.
        gone.iter().for_each(|it| wake(&self.imported.vm, it.cell));
    }
}

impl Outstanding {
    /// Ends the import, since no more notes will arrive.
    fn end(&self, counters: &ImportedCounters) {
        let mut outstanding = lock(&counters.outstanding);
        let at = outstanding.iter().position(|it| std::ptr::eq(&raw const **it, self));
        let gone = at.map(|at| outstanding.swap_remove(at));
        // The link is dropped without the lock.
        drop(outstanding);
        drop(gone);
    }

    /// Ends the import. `end` is called if the counter will not be signalled any more.
    fn settle(&self, end: Option<fn(&Imported, Cell)>) {
        let Some(counters) = self.counters.upgrade() else { return };
        let imported = &counters.imported;
        match end {
            _ if self.cell.reached(self.value) => wake(&imported.vm, self.cell),
            Some(end) => {
                let (by, value) = (imported.exporter(), self.value);
                log::warn!("{:#x}, a counter of {by}, will not be {value}", self.cell.va());
                end(imported, self.cell);
            }
            None => return,
        }
        self.end(&counters);
    }
}

impl Endpoint for Outstanding {
    fn told(&self, note: Note, _: u32) {
        self.settle(match note {
            Note::Changed | Note::Reached => None,
            Note::Lost => Some(|imported, _| imported.set_orphaned()),
            Note::Abandoned => Some(Imported::abandon),
        });
    }

    fn hung_up(&self) {
        self.settle(Some(|imported, _| imported.set_orphaned()));
    }
}

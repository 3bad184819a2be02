// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event pools that several processes use. Each signals, resets and waits with its own device, so each notifies
//! the others of every signal; the exporter forwards it to its other importers. A reset is not forwarded, because
//! nothing waits for one.
//!
//! Neither end tracks what the other one knows: either may change a cell at any moment, and only the cell itself
//! is authoritative.

use std::cell::Cell as PerThread;
use std::sync::{Arc, Weak};

use super::transport::{Endpoint, Handle, Kind, Line, Link, Note, Offer, Opened, export, open};
use super::{Imported, bad_facts, wake};
use crate::backend::Watcher;
use crate::error::Result;
use crate::sync::cell::Cell;
use crate::sync::cell::SIGNALLED;
use crate::sync::event_pool::EventPool;
use crate::vm::Vm;

/// The most events of a pool that is opened, which limits the trust in an exporter's facts.
const MAX_EVENTS: u64 = 1 << 24;

/// A handle for a pool. `flags` are those that it was created with.
///
/// # Errors
/// OUT_OF_HOST_MEMORY; UNSUPPORTED_FEATURE: memory cannot be shared here.
pub fn share(vm: &Arc<Vm>, pool: &Arc<EventPool>, flags: u32) -> Result<Handle> {
    let bo = pool.share();
    // Fails at once if it cannot be exported.
    vm.export_bo(bo)?;
    let offer = || -> Arc<dyn Offer> {
        Arc::new(PoolOffer { vm: Arc::downgrade(vm), pool: Arc::downgrade(pool), bo, flags })
    };
    export((Kind::EventPool, pool.id()), offer)
}

struct PoolOffer {
    vm: Weak<Vm>,
    pool: Weak<EventPool>,
    bo: u32,
    flags: u32,
}

impl Offer for PoolOffer {
    fn is_alive(&self) -> bool {
        self.pool.upgrade().is_some_and(|pool| !pool.is_destroyed())
    }

    fn open(&self, _: u64) -> Result<Opened> {
        let pool = self.pool.upgrade().filter(|pool| !pool.is_destroyed());
        let (Some(pool), Some(vm)) = (pool, self.vm.upgrade()) else {
            return Err(super::gone());
        };
        let (bo, hold) = vm.export_bo(self.bo)?;
        let facts = [u64::from(pool.count()), u64::from(self.flags), 0, 0];
        let start = move |line| -> Result<Arc<dyn Endpoint>> {
            let cells = pool.cells();
            let both = (pool, hold);
            Ok(Arc::new(Session::start(vm, cells, line, None, Box::new(both))?))
        };
        Ok(Opened { bo, facts, start: Box::new(start) })
    }
}

/// A pool of another process.
#[derive(Debug)]
pub struct ImportedPool {
    imported: Arc<Imported>,
    session: Option<Arc<Session>>,
    link: Option<Link>,
}

impl ImportedPool {
    /// The mapped memory.
    pub fn imported(&self) -> &Imported {
        &self.imported
    }
}

/// Opens a handle: the pool and its flags.
///
/// # Errors
/// Those of [`open`] and [`Vm::import`].
pub fn import(vm: &Arc<Vm>, handle: &Handle, name: &str) -> Result<(Arc<EventPool>, u32)> {
    let (bo, facts, pending) = open(handle, name)?.into_parts();
    let [count, flags, ..] = facts;
    let room = EventPool::bytes(count.min(MAX_EVENTS) as u32);
    let (count, flags) = (u32::try_from(count), u32::try_from(flags));
    let (Ok(count), Ok(flags)) = (count, flags) else { return Err(bad_facts()) };
    if u64::from(count) > MAX_EVENTS || room > bo.size || bo.read_only {
        return Err(bad_facts());
    }
    let imported = Arc::new(Imported::new(vm, bo, pending.exporter())?);
    let cells = EventPool::cells_of(imported.block(), count);
    let (line, keep) = (pending.line().clone(), Box::new(imported.clone()));
    let session = Session::start(vm.clone(), cells, line, Some(imported.clone()), keep)?;
    let session = Arc::new(session);
    let endpoint: Weak<dyn Endpoint> = Arc::<Session>::downgrade(&session);
    let link = pending.link(endpoint)?;
    let import = ImportedPool { imported, session: Some(session), link: Some(link) };
    Ok((EventPool::imported(count, import), flags))
}

impl Drop for ImportedPool {
    fn drop(&mut self) {
        // The messages end first, then the cells are unmapped.
        self.link = None;
        self.session = None;
    }
}

/// Either end of an opened pool.
struct Session {
    vm: Arc<Vm>,
    watch: u64,
    cells: Arc<Cells>,
    /// The importer's mapped memory; none in the exporter.
    imported: Option<Arc<Imported>>,
    /// Keeps the cells mapped.
    _keep: Box<dyn std::any::Any + Send + Sync>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} cells)", self.cells.cells.len())
    }
}

/// The cells, and the connection to the other end.
struct Cells {
    cells: Vec<Cell>,
    line: Line,
}

thread_local! {
    /// The cell and the session whose sleepers this thread wakes after a notification. Other sessions forward
    /// that signal once; otherwise two processes could notify each other endlessly.
    static WAKING: PerThread<Option<(u64, *const Cells)>> = const { PerThread::new(None) };
}

impl Watcher for Cells {
    fn look(&self, number: usize) {
        let cell = self.cells[number];
        let passes_on = match WAKING.get() {
            None => true,
            Some((address, session)) => address == cell.va() && !std::ptr::eq(session, self),
        };
        if passes_on && cell.reached(SIGNALLED) {
            self.line.tell(Note::Changed, number as u32);
        }
    }

    fn lost(&self) {
        self.line.tell(Note::Lost, 0);
    }
}

impl Session {
    fn start(
        vm: Arc<Vm>,
        cells: Vec<Cell>,
        line: Line,
        imported: Option<Arc<Imported>>,
        keep: Box<dyn std::any::Any + Send + Sync>,
    ) -> Result<Self> {
        let places: Vec<_> = cells.iter().map(|cell| (cell.bo(), cell.offset())).collect();
        let cells = Arc::new(Cells { cells, line });
        let watch = vm
            .backend()
            .watch(vm.id(), &places, cells.clone())
            .map_err(|errno| vm.failed("watching a pool", errno))?;
        Ok(Self { vm, watch, cells, imported, _keep: keep })
    }

    fn wake(&self, cell: Cell) {
        WAKING.set(Some((cell.va(), Arc::as_ptr(&self.cells))));
        wake(&self.vm, cell);
        WAKING.set(None);
    }
}

impl Endpoint for Session {
    fn told(&self, note: Note, number: u32) {
        match note {
            Note::Changed => {
                if let Some(cell) = self.cells.cells.get(number as usize) {
                    self.wake(*cell);
                }
            }
            // An importer's loss concerns only itself; the exporter's loss is that of the pool.
            Note::Lost => self.hung_up(),
            Note::Reached | Note::Abandoned => {}
        }
    }

    fn told_much(&self) {
        self.cells.cells.iter().filter(|it| it.reached(SIGNALLED)).for_each(|it| self.wake(*it));
    }

    fn hung_up(&self) {
        if let Some(imported) = &self.imported {
            imported.set_orphaned();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.vm.backend().unwatch(self.watch);
    }
}

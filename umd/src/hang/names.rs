// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table of cells that names the owner of each counter and event. It is filled only while hangs
//! are reported.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use tally_uapi::packet::flag;

use super::observed::{Recorded, Stream};
use super::report::{self, CellKind, List, Reason};
use super::waiter;
use crate::ipc::event::counter as shared_counter;
use crate::settings;
use crate::sync::cell::Cell;
use crate::sync::event_pool::{EventPool, Word};
use crate::sync::shared::Shared;

#[derive(Default)]
struct Names {
    /// The owner of each counter, by its VA.
    owners: HashMap<u64, Owner>,
    lists: Vec<Weak<dyn Stream>>,
    pools: Vec<(Weak<EventPool>, String)>,
}

#[derive(Clone)]
struct Owner {
    name: String,
    cell: Cell,
    /// Keeps the cell mapped while it is read.
    shared: Weak<Shared>,
    /// The list, if it is a regular one.
    regular: Option<Weak<dyn Recorded>>,
    /// Whether the list was reset or destroyed before it was executed.
    dead: bool,
}

fn names() -> MutexGuard<'static, Names> {
    static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an immediate list or a queue.
pub fn enlist(list: &Arc<impl Stream + 'static>) {
    if settings::get().observes_waits() {
        let mut names = names();
        names.lists.retain(|it| it.strong_count() != 0);
        let list: Arc<dyn Stream> = list.clone();
        names.lists.push(Arc::downgrade(&list));
    }
}

/// All immediate lists and queues that the device may still run.
pub fn lists() -> Vec<Arc<dyn Stream>> {
    names().lists.iter().filter_map(Weak::upgrade).collect()
}

/// Sets the name of an immediate list or a queue.
pub fn name_immediate(list: &Arc<impl Stream>, name: impl FnOnce() -> String) {
    if settings::get().observes_waits() {
        add(list.shared(), list.cell(), name(), None);
    }
}

/// Sets the name of a regular list.
pub fn name_regular(list: &Arc<impl Recorded + 'static>, name: impl FnOnce() -> String) {
    if settings::get().observes_waits() {
        let mut cell = None;
        list.look(&mut |recording, _, _| cell = Some(recording.counter().cell()));
        let Some(cell) = cell else { return };
        let regular: Arc<dyn Recorded> = list.clone();
        add(list.shared(), cell, name(), Some(Arc::downgrade(&regular)));
    }
}

fn add(shared: &Arc<Shared>, cell: Cell, name: String, regular: Option<Weak<dyn Recorded>>) {
    let shared = Arc::downgrade(shared);
    let mut names = names();
    names.owners.retain(|_, owner| owner.shared.strong_count() != 0);
    names.owners.insert(cell.va(), Owner { name, cell, shared, regular, dead: false });
}

/// Sets the name of a pool.
pub fn name_pool(pool: &Arc<EventPool>, name: impl FnOnce() -> String) {
    if settings::get().observes_waits() {
        let mut names = names();
        names.pools.retain(|(pool, _)| pool.strong_count() != 0);
        names.pools.push((Arc::downgrade(pool), name()));
    }
}

/// Notes that a regular list was reset and continues with the second counter.
pub fn moved(before: Cell, after: Cell) {
    if settings::get().observes_waits() && before != after {
        let mut names = names();
        let Some(owner) = names.owners.get_mut(&before.va()) else { return };
        let new = Owner { cell: after, ..owner.clone() };
        owner.dead = true;
        names.owners.insert(after.va(), new);
    }
}

/// Notes that a regular list was destroyed before it was executed.
pub fn died(cell: Cell) {
    if settings::get().observes_waits()
        && let Some(owner) = names().owners.get_mut(&cell.va())
    {
        owner.dead = true;
    }
}

/// The name of the list or queue whose counter is at an address.
pub fn owner(address: u64) -> String {
    let name = names().owners.get(&address).map(|owner| owner.name.clone());
    name.unwrap_or_else(|| format!("the list of the counter at {address:#x}"))
}

/// The regular list whose counter is at an address, if it still exists.
pub fn regular(address: u64) -> Option<Arc<dyn Recorded>> {
    // Upgraded here and dropped by the caller without the lock, since that may end the list.
    let list = names().owners.get(&address)?.regular.clone()?;
    list.upgrade()
}

/// Regular lists that signal a cell when they are executed, each with whether it ever was.
pub fn would_signal(address: u64) -> Vec<List> {
    let regulars: Vec<_> = names()
        .owners
        .values()
        .filter(|owner| !owner.dead)
        .filter_map(|owner| Some((owner.name.clone(), owner.regular.clone()?)))
        .collect();
    let signals = |(name, list): (String, Weak<dyn Recorded>)| {
        let mut executed = None;
        list.upgrade()?.look(&mut |recording, packets, _| {
            let own = recording.counter().cell().va() == address;
            let found = packets.iter().any(|packet| {
                packet.header.flags & flag::FROM_BASE == 0
                    && waiter::posts(packet)
                    && packet.post.address == address
                    && packet.post.value != 0
            });
            executed = (own || found).then(|| recording.is_submitted());
        });
        Some(List { name, executed: executed? })
    };
    let mut found: Vec<_> = regulars.into_iter().filter_map(signals).collect();
    found.sort();
    found
}

/// The known facts about a cell.
pub struct KnownCell {
    /// The cell in the report's form.
    pub cell: report::Cell,
    /// Whether the list that would signal it was reset or destroyed before it was executed.
    dead: bool,
}

/// The known facts about the cell at an address.
pub fn cell(address: u64) -> KnownCell {
    let known =
        |kind, present, dead| KnownCell { cell: report::Cell { address, kind, present }, dead };
    let (owner, pools) = {
        let names = names();
        (names.owners.get(&address).cloned(), names.pools.clone())
    };
    if let Some(owner) = owner {
        let present = owner.shared.upgrade().map(|_shared| owner.cell.load());
        return known(CellKind::Counter { owner: owner.name }, present, owner.dead);
    }
    for (pool, name) in pools {
        let Some(pool) = pool.upgrade() else { continue };
        match pool.find(address) {
            Some((index, Word::Cell(cell))) => {
                return known(CellKind::Event { index, pool: name }, Some(cell.load()), false);
            }
            Some((index, Word::Resets(resets))) => {
                return known(CellKind::Resets { index, pool: name }, Some(resets.load()), false);
            }
            None => {}
        }
    }
    // Dropped without the lock, since the end of one would take it.
    let shareds: Vec<_> = names().owners.values().map(|owner| owner.shared.clone()).collect();
    for shared in shareds.iter().filter_map(Weak::upgrade) {
        if let Some((exporter, cell)) = shared_counter::find(&shared, address) {
            return known(CellKind::Counter { owner: exporter }, Some(cell.load()), false);
        }
    }
    known(CellKind::Memory, None, false)
}

impl KnownCell {
    /// The reason why no submitted command raises it to `value`.
    pub fn reason(&self, value: u64) -> Reason {
        if self.cell.present.is_some_and(|present| present >= value) {
            return Reason::Reached;
        }
        if self.dead { Reason::ListGone } else { Reason::NotSubmitted }
    }
}

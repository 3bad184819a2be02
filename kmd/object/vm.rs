// SPDX-License-Identifier: GPL-2.0
//! GPU address spaces and their mappings.
//!
//! Mappings are kept in a tree of their own. drm_gpuvm's abstraction asks for a
//! GEM object behind every mapping, and has no look-up: there would be no place
//! for user pages and NULL mappings, and no way to answer EEXIST, which the uapi
//! promises where gpuvm would replace.
//!
//! A VM's commands are sent under the lock of its mappings, so the device
//! carries them out in the order of the changes to the tree. Answers are not
//! waited for under that lock.

use core::ops::Range;

use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex, MutexGuard};

use super::keep::Keep;
use crate::account::{Charge, Client};
use crate::buffer::BoData;
use crate::call::Order;
use crate::raw::pages::{PinnedBo, UserPages};
use crate::request::Access;
use crate::table::{Closed, Entry, Owner};

/// An address space.
#[pin_data]
pub(crate) struct Vm {
    id: u32,
    owner: Owner,
    pid: i32,
    window: Range<u64>,
    /// Of its file: what its mappings take.
    account: Arc<Client>,
    closed: Closed,
    lost: Atomic<bool>,
    #[pin]
    maps: Mutex<Maps>,
}

struct Maps {
    /// By first VA.
    tree: RBTree<u64, Mapping>,
    /// For its VM_DESTROY. None: that was sent, and nothing may follow it.
    end: Option<Order<Keep>>,
    /// Number of the next mapping.
    serial: u64,
}

/// What is mapped at a range of VAs.
pub(crate) struct Mapping {
    end: u64,
    access: Access,
    serial: u64,
    /// Keeps the pages where they are.
    _backing: Backing,
    /// What it takes. None only in tests.
    _cost: Option<Charge>,
}

impl Mapping {
    /// What is left of it up to `end`, as a mapping of its own.
    fn rest(&self, end: u64, cost: Option<Charge>) -> Self {
        let Self { access, serial, ref _backing, .. } = *self;
        Self { end, access, serial, _backing: _backing.clone(), _cost: cost }
    }

    /// The first VA behind it.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

/// What keeps the memory of a mapping.
#[derive(Clone)]
pub(crate) enum Backing {
    /// A buffer.
    Bo(#[expect(dead_code, reason = "kept, not read")] Arc<PinnedBo<BoData>>),
    /// Pages of a process.
    User(#[expect(dead_code, reason = "kept, not read")] Arc<UserPages>),
    /// Memory of the device's, and what it counts as. None only in tests.
    Null(#[expect(dead_code, reason = "kept, not read")] Option<Arc<Charge>>),
}

impl Entry for Vm {
    fn id(&self) -> u32 {
        self.id
    }

    fn owner(&self) -> Owner {
        self.owner
    }

    fn closed(&self) -> &Closed {
        &self.closed
    }
}

/// A place for a mapping.
pub(crate) type Place = RBTreeNodeReservation<u64, Mapping>;

/// The mappings of a VM that is not ending, locked. What is sent meanwhile reaches the device in the order
/// in which they change.
pub(crate) struct Edit<'a>(MutexGuard<'a, Maps>);

impl Edit<'_> {
    /// Adds a mapping, and returns its number, which no other of the VM has.
    ///
    /// # Errors
    /// EEXIST: something is mapped there.
    pub(crate) fn insert(
        &mut self,
        place: Place,
        range: &Range<u64>,
        access: Access,
        backing: Backing,
        cost: Charge,
    ) -> Result<u64> {
        let maps = &mut *self.0;
        if overlap(&maps.tree, range).is_some() {
            return Err(EEXIST);
        }
        let serial = maps.serial;
        maps.serial += 1;
        let mapping =
            Mapping { end: range.end, access, serial, _backing: backing, _cost: Some(cost) };
        maps.tree.insert(place.into_node(range.start, mapping));
        Ok(serial)
    }

    /// Takes out what is mapped in `range`; `cost` is asked for what each mapping that comes into being takes.
    ///
    /// # Errors
    /// ENOMEM, and those of `cost`, with everything as it was.
    pub(crate) fn take(
        &mut self,
        range: &Range<u64>,
        cost: impl Fn() -> Result<Charge>,
    ) -> Result<RBTree<u64, Mapping>> {
        take(&mut self.0.tree, range, || cost().map(Some))
    }

    /// Takes out the mapping of that number at `start`, or what is left of it there. Returns its end, too.
    pub(crate) fn take_back(
        &mut self,
        start: u64,
        serial: u64,
    ) -> Option<(u64, RBTree<u64, Mapping>)> {
        let tree = &mut self.0.tree;
        let end = tree.get(&start).filter(|mapping| mapping.serial == serial)?.end;
        let mut taken = RBTree::new();
        taken.insert(tree.remove_node(&start)?);
        Some((end, taken))
    }
}

impl Vm {
    /// A VM without mappings. `order` is for the command that ends it.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(
        id: u32,
        owner: Owner,
        pid: i32,
        window: Range<u64>,
        account: Arc<Client>,
        order: Order<Keep>,
    ) -> Result<Arc<Self>> {
        let maps = Maps { tree: RBTree::new(), end: Some(order), serial: 0 };
        Arc::pin_init(
            try_pin_init!(Self {
                id,
                owner,
                pid,
                window,
                account,
                closed: Closed::new(),
                lost: Atomic::new(false),
                maps <- new_mutex!(maps),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The device's id, which is the file's, too.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Who made it.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// The file that made it.
    pub(crate) fn owner_id(&self) -> u64 {
        self.owner.file
    }

    /// The thread group that opened the file.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// The VAs that may be mapped.
    pub(crate) fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    /// Whether the device has lost it.
    pub(crate) fn lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// The device has lost it. False if that was known.
    pub(crate) fn lose(&self) -> bool {
        !self.lost.xchg(true, Full)
    }

    /// Whether its owner has ended it.
    pub(crate) fn ended(&self) -> bool {
        self.closed.is()
    }

    /// Ends it for its owner. False if somebody else did before.
    pub(crate) fn close(&self) -> bool {
        self.closed.close()
    }

    /// The account that its mappings count in.
    pub(crate) fn account(&self) -> &Arc<Client> {
        &self.account
    }

    /// Locks its mappings, to change them.
    ///
    /// # Errors
    /// ENOENT: the VM is ending.
    pub(crate) fn edit(&self) -> Result<Edit<'_>> {
        let maps = self.maps.lock();
        if maps.end.is_none() {
            return Err(ENOENT);
        }
        Ok(Edit(maps))
    }

    /// Calls `f` with the memory for its last command; nothing that is sent follows it.
    ///
    /// # Errors
    /// ENOENT: that was done before.
    pub(crate) fn end<T>(&self, f: impl FnOnce(Order<Keep>) -> T) -> Result<T> {
        let mut maps = self.maps.lock();
        let order = maps.end.take().ok_or(ENOENT)?;
        let result = f(order);
        drop(maps);
        Ok(result)
    }

    /// All mappings, which it then has no more.
    pub(crate) fn take_mappings(&self) -> RBTree<u64, Mapping> {
        core::mem::replace(&mut self.maps.lock().tree, RBTree::new())
    }

    /// How many mappings there are, and of how many bytes.
    pub(crate) fn mapped(&self) -> (usize, u64) {
        let maps = self.maps.lock();
        let bytes = maps.tree.iter().map(|(start, mapping)| mapping.end - start).sum();
        (maps.tree.keys().count(), bytes)
    }

    /// Calls `f` if all ranges are mapped with (at least) their access. What `f` sends
    /// comes before any later change.
    ///
    /// # Errors
    /// EFAULT: not mapped so. ENOENT: the VM is ending. Those of `f`.
    pub(crate) fn while_mapped<T>(
        &self,
        ranges: &[(Range<u64>, Access)],
        f: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Edit(maps) = self.edit()?;
        if !ranges.iter().all(|(range, access)| covers(&maps.tree, range, *access)) {
            return Err(EFAULT);
        }
        let result = f();
        drop(maps);
        result
    }
}

/// The first VA of the first mapping that has a part in `range`.
fn overlap(tree: &RBTree<u64, Mapping>, range: &Range<u64>) -> Option<u64> {
    let before = match tree.cursor_lower_bound(&range.start) {
        Some(cursor) => {
            let before = cursor.peek_prev().filter(|(_, mapping)| mapping.end > range.start);
            let at = Some(cursor.current()).filter(|(start, _)| **start < range.end);
            return before.or(at).map(|(start, _)| *start);
        }
        None => tree.cursor_back(),
    };
    let before = before?;
    let (start, mapping) = before.current();
    (mapping.end > range.start).then_some(*start)
}

fn covers(tree: &RBTree<u64, Mapping>, range: &Range<u64>, access: Access) -> bool {
    let mut from = range.start;
    while from < range.end {
        let Some(start) = overlap(tree, &(from..range.end)) else { return false };
        match tree.get(&start) {
            Some(mapping) if start <= from && mapping.access.includes(access) => {
                from = mapping.end;
            }
            _ => return false,
        }
    }
    true
}

/// Whether a mapping begins before `range` and goes on in it, and whether one begins in it, or before,
/// and goes on behind it.
fn cuts(tree: &RBTree<u64, Mapping>, range: &Range<u64>) -> (bool, bool) {
    let at =
        |va: u64| overlap(tree, &(va..va + 1)).and_then(|start| Some((start, tree.get(&start)?)));
    let left = at(range.start).is_some_and(|(start, _)| start < range.start);
    let right = at(range.end - 1).is_some_and(|(_, mapping)| mapping.end > range.end);
    (left, right)
}

/// Takes `range`, which is not empty, out of `tree`; what was in it, whole mappings, goes to the
/// result. `cost` is asked for what each mapping that comes into being takes.
///
/// # Errors
/// ENOMEM, and those of `cost`, with the tree as it was.
fn take(
    tree: &mut RBTree<u64, Mapping>,
    range: &Range<u64>,
    cost: impl Fn() -> Result<Option<Charge>>,
) -> Result<RBTree<u64, Mapping>> {
    let (left, right) = cuts(tree, range);
    let spare = |needed: bool| match needed {
        true => Ok::<_, Error>(Some((RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?, cost()?))),
        false => Ok(None),
    };
    let (mut left, mut right) = (spare(left)?, spare(right)?);
    let mut taken = RBTree::new();
    while let Some(start) = overlap(tree, range) {
        let Some(mapping) = tree.get(&start) else { break };
        let end = mapping.end;
        let before = left.take_if(|_| start < range.start);
        let before =
            before.map(|(place, cost)| place.into_node(start, mapping.rest(range.start, cost)));
        let behind = right.take_if(|_| end > range.end);
        let behind =
            behind.map(|(place, cost)| place.into_node(range.end, mapping.rest(end, cost)));
        let Some(node) = tree.remove_node(&start) else { break };
        taken.insert(node);
        for rest in [before, behind].into_iter().flatten() {
            tree.insert(rest);
        }
    }
    Ok(taken)
}

#[kernel::macros::kunit_tests(tally_vm)]
mod tests {
    use super::*;

    fn insert(tree: &mut RBTree<u64, Mapping>, start: u64, end: u64, access: Access) -> Result {
        let mapping =
            Mapping { end, access, serial: 0, _backing: Backing::Null(None), _cost: None };
        tree.try_create_and_insert(start, mapping, GFP_KERNEL)?;
        Ok(())
    }

    fn ranges(tree: &RBTree<u64, Mapping>) -> [(u64, u64); 4] {
        let mut out = [(0, 0); 4];
        for (slot, (start, mapping)) in out.iter_mut().zip(tree.iter()) {
            *slot = (*start, mapping.end);
        }
        out
    }

    fn free() -> Result<Option<Charge>> {
        Ok(None)
    }

    const READ: Access = Access::READ;
    const BOTH: Access = Access::READ_WRITE;

    /// "MAP, MAP_USERPTR and MAP_NULL need the range to be unmapped"
    #[test]
    fn overlaps_are_seen_at_every_side() -> Result {
        let mut tree = RBTree::new();
        insert(&mut tree, 10, 20, READ)?;
        insert(&mut tree, 30, 40, READ)?;
        for (range, found) in [
            (0..10, None),
            (0..11, Some(10)),
            (12..13, Some(10)),
            (19..31, Some(10)),
            (20..30, None),
            (20..31, Some(30)),
            (39..50, Some(30)),
            (40..50, None),
        ] {
            assert_eq!(overlap(&tree, &range), found);
        }
        Ok(())
    }

    /// "UNMAP removes whatever is mapped in the range, if anything."
    #[test]
    fn unmap_cuts_what_it_meets() -> Result {
        let mut tree = RBTree::new();
        insert(&mut tree, 10, 40, READ)?;
        insert(&mut tree, 40, 50, READ)?;
        assert!(take(&mut tree, &(60..70), free)?.is_empty());
        // In the middle of one.
        assert_eq!(ranges(&take(&mut tree, &(20..30), free)?)[0], (10, 40));
        assert_eq!(ranges(&tree), [(10, 20), (30, 40), (40, 50), (0, 0)]);
        // Over the ends of three.
        take(&mut tree, &(15..45), free)?;
        assert_eq!(ranges(&tree), [(10, 15), (45, 50), (0, 0), (0, 0)]);
        take(&mut tree, &(0..100), free)?;
        assert!(tree.is_empty());
        Ok(())
    }

    /// "ENOSPC: too many pieces": what does not cut needs nothing, and what may not cut changes nothing.
    #[test]
    fn only_cuts_cost() -> Result {
        let mut tree = RBTree::new();
        insert(&mut tree, 10, 20, READ)?;
        insert(&mut tree, 20, 30, READ)?;
        insert(&mut tree, 30, 40, READ)?;
        let dear = || Err(ENOSPC);
        for range in [12..13, 5..15, 15..20, 25..60] {
            assert_eq!(take(&mut tree, &range, dear).err(), Some(ENOSPC));
        }
        assert_eq!(ranges(&tree), [(10, 20), (20, 30), (30, 40), (0, 0)]);
        take(&mut tree, &(20..30), dear)?;
        assert_eq!(ranges(&tree), [(10, 20), (30, 40), (0, 0), (0, 0)]);
        take(&mut tree, &(0..100), dear)?;
        assert!(tree.is_empty());
        Ok(())
    }

    /// "`ring`: … that are mapped READ", "a page that is mapped READ and WRITE"
    #[test]
    fn covers_needs_every_page_and_every_flag() -> Result {
        let mut tree = RBTree::new();
        insert(&mut tree, 10, 20, BOTH)?;
        insert(&mut tree, 20, 30, READ)?;
        assert!(covers(&tree, &(10..30), READ));
        assert!(covers(&tree, &(12..18), BOTH));
        assert!(!covers(&tree, &(12..22), BOTH));
        assert!(!covers(&tree, &(9..12), READ));
        assert!(!covers(&tree, &(25..31), READ));
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The bindings of a VM.
//!
//! Mappings are kept in a tree of our own. drm_gpuvm's abstraction needs a GEM
//! object behind every mapping, and has no look-up: it could not represent user
//! pages and NULL mappings, and could not answer EEXIST, which the uapi promises
//! where gpuvm would replace a mapping.
//!
//! A device that is given addresses may use the pages until it has answered. A device that is a process of
//! this machine sees them through the VM's file: its page faults look a page up here and map it, under the
//! lock under which bindings change. Pages that are unbound are unmapped from that process under the same
//! lock, and freed afterwards. Memory of other drivers is not shown by page faults: the process maps the range
//! once more, which makes it one of the exporter's, and once more when it is unbound.

use core::ops::Range;

use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::{new_mutex, Arc, Mutex, MutexGuard, SetOnce};
use tally_uapi::PAGE_SIZE;

use crate::account::Charge;
use crate::buffer::{BoData, ForeignBo};
use crate::raw::pages::{zeros, NullPages, Part, PinnedBo, PinnedUser, UserPages};
use crate::raw::space::{self, Elsewhere, Shown, Space};
use crate::request::Access;

/// The bindings of a VM.
#[pin_data]
pub(crate) struct Bindings {
    #[pin]
    maps: Mutex<Maps>,
}

struct Maps {
    /// Mappings by first VA.
    tree: RBTree<u64, Mapping>,
    /// Whether the VM is ending: then nothing can be bound in it any more.
    ended: bool,
    /// Whether all mappings were removed, because the VM ends or is lost. Nothing is bound afterwards: the VM's
    /// file can keep the bindings after the DRM device has gone, and buffers belong to that device.
    emptied: bool,
    /// Number of the next mapping.
    serial: u64,
}

/// A mapping of a range of VAs.
pub(crate) struct Mapping {
    end: u64,
    access: Access,
    serial: u64,
    /// Keeps the pages where they are.
    backing: Backing,
    /// Index in `backing` of its first page.
    from: u64,
    /// The quota that it consumes. None only in tests.
    _cost: Option<Charge>,
}

impl Mapping {
    /// The part from VA `at` to `end` of a mapping that begins at `start`, as a mapping of its own.
    fn rest(&self, start: u64, at: u64, end: u64, cost: Option<Charge>) -> Self {
        let Self {
            access,
            serial,
            ref backing,
            from,
            ..
        } = *self;
        let from = from + (at - start) / PAGE_SIZE;
        Self {
            end,
            access,
            serial,
            backing: backing.clone(),
            from,
            _cost: cost,
        }
    }

    /// The first VA after it.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether a device that maps the VM's file has an area of its own for it: for code, and for memory of another
    /// driver.
    pub(crate) fn has_area(&self) -> bool {
        self.access.executes() || matches!(self.backing, Backing::Foreign(_))
    }

    /// Whether nothing can be cut from its start: a process maps it, and cannot map the rest by itself.
    fn stays_whole(&self) -> bool {
        matches!(&self.backing, Backing::Foreign(bo) if bo.mapped().is_none() && bo.foreign().only_from_start())
    }

    /// The page at `va` of a mapping that begins at `start`, as the VM's file shows it, if it does.
    fn shown(&self, start: u64, va: u64) -> Result<Option<Shown>, Missing> {
        let part = Part {
            index: self.from + (va - start) / PAGE_SIZE,
            first: self.from,
            end: self.from + (self.end - start) / PAGE_SIZE,
            write: self.access.writes(),
            execute: self.access.executes(),
        };
        Ok(Some(match &self.backing {
            Backing::Bo(bo) => bo.shown(part),
            Backing::Pinned(user) => user.shown(part),
            Backing::Foreign(_) => return Ok(None),
            Backing::Null(Some(null)) => match &null.pages {
                Some(pages) => {
                    let missing = || Missing {
                        null: null.clone(),
                        index: part.index,
                    };
                    pages.shown(part).ok_or_else(missing)?
                }
                None => zeros(part),
            },
            Backing::User(_) | Backing::Null(None) => zeros(part),
        }))
    }
}

/// A page of a NULL mapping that has no memory yet.
struct Missing {
    null: Arc<Null>,
    index: u64,
}

/// The owner of a mapping's memory.
#[derive(Clone)]
pub(crate) enum Backing {
    /// A buffer.
    Bo(Arc<PinnedBo<BoData>>),
    /// Pages of a process, for a device that is given their addresses.
    User(#[expect(dead_code, reason = "kept, not read")] Arc<UserPages>),
    /// Pages of a process, for a device that maps them through the VM's file.
    Pinned(Arc<PinnedUser>),
    /// A buffer of another driver.
    Foreign(Arc<ForeignBo>),
    /// Memory that no buffer owns. None if it is read only, and so always zero.
    Null(Option<Arc<Null>>),
}

/// Memory that no buffer owns.
pub(crate) struct Null {
    /// Its charge.
    _charge: Charge,
    /// Its pages. None: the device provides the memory.
    pages: Option<NullPages>,
}

impl Null {
    /// The bytes of `charge`, in memory of this kernel if `here`, and otherwise in memory of the device.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(charge: Charge, here: bool) -> Result<Arc<Self>> {
        let pages = here
            .then(|| NullPages::new(charge.bytes() / PAGE_SIZE))
            .transpose()?;
        Ok(Arc::new(
            Self {
                _charge: charge,
                pages,
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }
}

/// Memory for a mapping's entry in the tree.
pub(crate) type Place = RBTreeNodeReservation<u64, Mapping>;

impl Bindings {
    /// Empty bindings.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let maps = Maps {
            tree: RBTree::new(),
            ended: false,
            emptied: false,
            serial: 0,
        };
        Arc::pin_init(
            pin_init!(Self { maps <- new_mutex!(maps) }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Locks the bindings, to change them. `space` is the file that shows them.
    ///
    /// # Errors
    /// ENOENT: the VM is ending.
    pub(crate) fn edit<'a>(&'a self, space: &'a SetOnce<Space<Self>>) -> Result<Edit<'a>> {
        let maps = self.maps.lock();
        if maps.ended {
            return Err(ENOENT);
        }
        Ok(Edit { maps, space })
    }

    /// The number of mappings, and their size in bytes.
    pub(crate) fn count(&self) -> (usize, u64) {
        let maps = self.maps.lock();
        let bytes = maps
            .tree
            .iter()
            .map(|(start, mapping)| mapping.end - start)
            .sum();
        (maps.tree.keys().count(), bytes)
    }

    /// Removes all mappings for good; the VM's file shows those in `window`.
    pub(crate) fn take_all(
        &self,
        space: &SetOnce<Space<Self>>,
        window: &Range<u64>,
    ) -> RBTree<u64, Mapping> {
        let mut maps = self.maps.lock();
        maps.emptied = true;
        let taken = core::mem::replace(&mut maps.tree, RBTree::new());
        zap(space, window);
        taken
    }
}

impl space::Bound for Bindings {
    fn with_page(&self, va: u64, show: &mut dyn FnMut(&Shown)) -> bool {
        loop {
            let maps = self.maps.lock();
            let Some(start) = overlap(&maps.tree, &(va..va + 1)) else {
                return false;
            };
            let Some(mapping) = maps.tree.get(&start) else {
                return false;
            };
            let missing = match mapping.shown(start, va) {
                Ok(Some(shown)) => {
                    show(&shown);
                    return true;
                }
                Ok(None) => return false,
                Err(missing) => missing,
            };
            // Memory is allocated without the lock, since that may wait.
            drop(maps);
            if missing
                .null
                .pages
                .as_ref()
                .is_none_or(|pages| pages.fill(missing.index).is_err())
            {
                return false;
            }
        }
    }

    fn foreign(&self, range: &Range<u64>) -> Option<Elsewhere> {
        let maps = self.maps.lock();
        let start = overlap(&maps.tree, range)?;
        let mapping = maps.tree.get(&start)?;
        let Backing::Foreign(bo) = &mapping.backing else {
            return None;
        };
        (start <= range.start && range.end <= mapping.end).then(|| Elsewhere {
            foreign: bo.foreign().clone(),
            page: mapping.from + (range.start - start) / PAGE_SIZE,
            write: mapping.access.writes(),
        })
    }
}

/// Unmaps a range from all processes that map it through `space`. The caller holds the bindings' lock.
fn zap(space: &SetOnce<Space<Bindings>>, range: &Range<u64>) {
    if let Some(space) = space.as_ref() {
        space.zap(range.start, range.end - range.start);
    }
}

/// The locked mappings of a VM that is not ending. Commands that are sent under the lock reach the device in
/// the order in which the mappings change.
pub(crate) struct Edit<'a> {
    maps: MutexGuard<'a, Maps>,
    space: &'a SetOnce<Space<Bindings>>,
}

impl Edit<'_> {
    /// Marks the VM as ending: nothing can be bound any more.
    pub(crate) fn end(&mut self) {
        self.maps.ended = true;
    }

    /// Adds a mapping of the pages of `backing` from index `from` on, and returns its number, which is unique in
    /// the VM.
    ///
    /// # Errors
    /// EIO: the VM is lost. EEXIST: a part of the range is mapped already.
    pub(crate) fn insert(
        &mut self,
        place: Place,
        range: &Range<u64>,
        access: Access,
        (backing, from): (Backing, u64),
        cost: Charge,
    ) -> Result<u64> {
        let maps = &mut *self.maps;
        if maps.emptied {
            return Err(EIO);
        }
        if overlap(&maps.tree, range).is_some() {
            return Err(EEXIST);
        }
        let serial = maps.serial;
        maps.serial += 1;
        let mapping = Mapping {
            end: range.end,
            access,
            serial,
            backing,
            from,
            _cost: Some(cost),
        };
        maps.tree.insert(place.into_node(range.start, mapping));
        Ok(serial)
    }

    /// Whether all ranges are mapped with at least their access.
    pub(crate) fn covers(&self, ranges: &[(Range<u64>, Access)]) -> bool {
        ranges
            .iter()
            .all(|(range, access)| covers(&self.maps.tree, range, *access))
    }

    /// Removes the mappings in `range`; `cost` is called for the charge of each mapping that a cut creates.
    ///
    /// # Errors
    /// EOPNOTSUPP: what would be left of a mapping cannot be mapped by itself. ENOMEM, and those of `cost`; then
    /// nothing has changed.
    pub(crate) fn take(
        &mut self,
        range: &Range<u64>,
        cost: impl Fn() -> Result<Charge>,
    ) -> Result<RBTree<u64, Mapping>> {
        let last = range.end - 1..range.end;
        let at_end = overlap(&self.maps.tree, &last).and_then(|at| self.maps.tree.get(&at));
        if at_end.is_some_and(|it| it.end > range.end && it.stays_whole()) {
            return Err(EOPNOTSUPP);
        }
        let taken = take(&mut self.maps.tree, range, || cost().map(Some))?;
        zap(self.space, range);
        Ok(taken)
    }

    /// Removes the mapping with that number at `start`, or the rest of it there. Returns its end, too.
    pub(crate) fn take_back(
        &mut self,
        start: u64,
        serial: u64,
    ) -> Option<(u64, RBTree<u64, Mapping>)> {
        let tree = &mut self.maps.tree;
        let end = tree
            .get(&start)
            .filter(|mapping| mapping.serial == serial)?
            .end;
        let mut taken = RBTree::new();
        taken.insert(tree.remove_node(&start)?);
        zap(self.space, &(start..end));
        Some((end, taken))
    }
}

/// The first VA of the first mapping that overlaps `range`.
fn overlap(tree: &RBTree<u64, Mapping>, range: &Range<u64>) -> Option<u64> {
    let before = match tree.cursor_lower_bound(&range.start) {
        Some(cursor) => {
            let before = cursor
                .peek_prev()
                .filter(|(_, mapping)| mapping.end > range.start);
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
        let Some(start) = overlap(tree, &(from..range.end)) else {
            return false;
        };
        match tree.get(&start) {
            Some(mapping) if start <= from && mapping.access.includes(access) => {
                from = mapping.end;
            }
            _ => return false,
        }
    }
    true
}

/// Whether a mapping crosses the start of `range`, and whether one crosses its end.
fn cuts(tree: &RBTree<u64, Mapping>, range: &Range<u64>) -> (bool, bool) {
    let at =
        |va: u64| overlap(tree, &(va..va + 1)).and_then(|start| Some((start, tree.get(&start)?)));
    let left = at(range.start).is_some_and(|(start, _)| start < range.start);
    let right = at(range.end - 1).is_some_and(|(_, mapping)| mapping.end > range.end);
    (left, right)
}

/// Removes `range`, which is not empty, from `tree`, and returns its content as whole mappings. `cost` is
/// called for the charge of each mapping that a cut creates.
///
/// # Errors
/// ENOMEM, and those of `cost`; then the tree has not changed.
fn take(
    tree: &mut RBTree<u64, Mapping>,
    range: &Range<u64>,
    cost: impl Fn() -> Result<Option<Charge>>,
) -> Result<RBTree<u64, Mapping>> {
    let (left, right) = cuts(tree, range);
    let spare = |needed: bool| match needed {
        true => Ok::<_, Error>(Some((
            RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
            cost()?,
        ))),
        false => Ok(None),
    };
    let (mut left, mut right) = (spare(left)?, spare(right)?);
    let mut taken = RBTree::new();
    while let Some(start) = overlap(tree, range) {
        let Some(mapping) = tree.get(&start) else {
            break;
        };
        let end = mapping.end;
        let before = left.take_if(|_| start < range.start);
        let before = before.map(|(place, cost)| {
            place.into_node(start, mapping.rest(start, start, range.start, cost))
        });
        let behind = right.take_if(|_| end > range.end);
        let behind = behind.map(|(place, cost)| {
            place.into_node(range.end, mapping.rest(start, range.end, end, cost))
        });
        let Some(node) = tree.remove_node(&start) else {
            break;
        };
        taken.insert(node);
        for rest in [before, behind].into_iter().flatten() {
            tree.insert(rest);
        }
    }
    Ok(taken)
}

#[kernel::macros::kunit_tests(tally_bindings)]
mod tests {
    use super::*;
    use crate::account::{Accounts, MAPPING};

    fn insert(tree: &mut RBTree<u64, Mapping>, start: u64, end: u64, access: Access) -> Result {
        let backing = Backing::Null(None);
        let mapping = Mapping {
            end,
            access,
            serial: 0,
            backing,
            from: 0,
            _cost: None,
        };
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

    /// A VM whose mappings were all removed gets no new ones, although its file may keep the bindings.
    #[test]
    fn nothing_is_bound_once_all_was_removed() -> Result {
        let (bindings, space) = (Bindings::new()?, SetOnce::new());
        let client = Accounts::new()?.open(1)?;
        let add = |at: u64| {
            let (place, cost) = (Place::new(GFP_KERNEL)?, Charge::take(&client, MAPPING)?);
            let backing = (Backing::Null(None), 0);
            bindings
                .edit(&space)?
                .insert(place, &(at..at + 10), READ, backing, cost)
        };
        add(10)?;
        let taken = bindings.take_all(&space, &(0..100));
        assert_eq!(ranges(&taken)[0], (10, 20));
        assert_eq!(add(30).err(), Some(EIO));
        assert_eq!(bindings.count(), (0, 0));
        Ok(())
    }

    /// "ENOSPC: too many pieces": a removal without a cut costs nothing, and a refused cut changes nothing.
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

// SPDX-License-Identifier: GPL-2.0
//! What is bound in a VM.
//!
//! Mappings are kept in a tree of their own. drm_gpuvm's abstraction asks for a
//! GEM object behind every mapping, and has no look-up: there would be no place
//! for user pages and NULL mappings, and no way to answer EEXIST, which the uapi
//! promises where gpuvm would replace.
//!
//! A device that is told addresses has the pages until it has answered. A device that is a process of this
//! machine sees them through the VM's file: its page faults look a page up here and show it, under the lock
//! under which mappings come and go. What goes is taken away from that process under the lock, too, and
//! freed afterwards.

use core::ops::Range;

use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::{new_mutex, Arc, Mutex, MutexGuard, SetOnce};
use tally_uapi::PAGE_SIZE;

use crate::account::Charge;
use crate::buffer::BoData;
use crate::raw::pages::{zeros, NullPages, Part, PinnedBo, PinnedUser, UserPages};
use crate::raw::space::{self, Shown, Space};
use crate::request::Access;

/// The bindings of a VM.
#[pin_data]
pub(crate) struct Bindings {
    #[pin]
    maps: Mutex<Maps>,
}

struct Maps {
    /// By first VA.
    tree: RBTree<u64, Mapping>,
    /// The VM ends, and nothing is bound in it any more.
    ended: bool,
    /// Number of the next mapping.
    serial: u64,
}

/// What is mapped at a range of VAs.
pub(crate) struct Mapping {
    end: u64,
    access: Access,
    serial: u64,
    /// Keeps the pages where they are.
    backing: Backing,
    /// The number there of its first page.
    from: u64,
    /// What it takes. None only in tests.
    _cost: Option<Charge>,
}

impl Mapping {
    /// What is left from VA `at` to `end` of a mapping that begins at `start`, as a mapping of its own.
    fn rest(&self, start: u64, at: u64, end: u64, cost: Option<Charge>) -> Self {
        let Self { access, serial, ref backing, from, .. } = *self;
        let from = from + (at - start) / PAGE_SIZE;
        Self { end, access, serial, backing: backing.clone(), from, _cost: cost }
    }

    /// The first VA behind it.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether the device may execute what is there.
    pub(crate) fn executes(&self) -> bool {
        self.access.executes()
    }

    /// What it shows at `va` if it begins at `start`.
    fn shown(&self, start: u64, va: u64) -> Result<Shown, Missing> {
        let part = Part {
            index: self.from + (va - start) / PAGE_SIZE,
            first: self.from,
            end: self.from + (self.end - start) / PAGE_SIZE,
            write: self.access.writes(),
            execute: self.access.executes(),
        };
        match &self.backing {
            Backing::Bo(bo) => Ok(bo.shown(part)),
            Backing::Pinned(user) => Ok(user.shown(part)),
            Backing::Null(Some(null)) => match &null.pages {
                Some(pages) => {
                    let missing = || Missing { null: null.clone(), index: part.index };
                    pages.shown(part).ok_or_else(missing)
                }
                None => Ok(zeros(part)),
            },
            Backing::User(_) | Backing::Null(None) => Ok(zeros(part)),
        }
    }
}

/// A page that there is room, but no memory for yet.
struct Missing {
    null: Arc<Null>,
    index: u64,
}

/// What keeps the memory of a mapping.
#[derive(Clone)]
pub(crate) enum Backing {
    /// A buffer.
    Bo(Arc<PinnedBo<BoData>>),
    /// Pages of a process, for a device that is told their addresses.
    User(#[expect(dead_code, reason = "kept, not read")] Arc<UserPages>),
    /// Pages of a process, for a device that is shown them.
    Pinned(Arc<PinnedUser>),
    /// Memory that no buffer owns; none of it if it is only read, and is zero.
    Null(Option<Arc<Null>>),
}

/// Memory that no buffer owns.
pub(crate) struct Null {
    /// What it counts as.
    _charge: Charge,
    /// Its pages. None: the device has it.
    pages: Option<NullPages>,
}

impl Null {
    /// As much as `charge` says; the device has it, or it comes `here`.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(charge: Charge, here: bool) -> Result<Arc<Self>> {
        let pages = here.then(|| NullPages::new(charge.bytes() / PAGE_SIZE)).transpose()?;
        Ok(Arc::new(Self { _charge: charge, pages }, GFP_KERNEL_ACCOUNT)?)
    }
}

/// A place for a mapping.
pub(crate) type Place = RBTreeNodeReservation<u64, Mapping>;

impl Bindings {
    /// Nothing is bound.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let maps = Maps { tree: RBTree::new(), ended: false, serial: 0 };
        Arc::pin_init(pin_init!(Self { maps <- new_mutex!(maps) }), GFP_KERNEL_ACCOUNT)
    }

    /// Locks them, to change them. `space` is the file that shows them.
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

    /// How many mappings there are, and of how many bytes.
    pub(crate) fn count(&self) -> (usize, u64) {
        let maps = self.maps.lock();
        let bytes = maps.tree.iter().map(|(start, mapping)| mapping.end - start).sum();
        (maps.tree.keys().count(), bytes)
    }

    /// Takes all of them out, of which `window` is shown.
    pub(crate) fn take_all(
        &self,
        space: &SetOnce<Space<Self>>,
        window: &Range<u64>,
    ) -> RBTree<u64, Mapping> {
        let mut maps = self.maps.lock();
        let taken = core::mem::replace(&mut maps.tree, RBTree::new());
        zap(space, window);
        taken
    }
}

impl space::Bound for Bindings {
    fn with_page(&self, va: u64, show: &mut dyn FnMut(&Shown)) -> bool {
        loop {
            let maps = self.maps.lock();
            let Some(start) = overlap(&maps.tree, &(va..va + 1)) else { return false };
            let Some(mapping) = maps.tree.get(&start) else { return false };
            let missing = match mapping.shown(start, va) {
                Ok(shown) => {
                    show(&shown);
                    return true;
                }
                Err(missing) => missing,
            };
            // Memory is waited for outside of the lock.
            drop(maps);
            if missing.null.pages.as_ref().is_none_or(|pages| pages.fill(missing.index).is_err()) {
                return false;
            }
        }
    }
}

/// Takes a range away from those to whom `space` has shown it. The caller has the bindings' lock.
fn zap(space: &SetOnce<Space<Bindings>>, range: &Range<u64>) {
    if let Some(space) = space.as_ref() {
        space.zap(range.start, range.end - range.start);
    }
}

/// The mappings of a VM that is not ending, locked. What is sent meanwhile reaches the device in the order
/// in which they change.
pub(crate) struct Edit<'a> {
    maps: MutexGuard<'a, Maps>,
    space: &'a SetOnce<Space<Bindings>>,
}

impl Edit<'_> {
    /// The VM ends: nothing can be bound any more.
    pub(crate) fn end(&mut self) {
        self.maps.ended = true;
    }

    /// Adds a mapping of the pages of `backing` from number `from` on, and returns its number, which no other
    /// of the VM has.
    ///
    /// # Errors
    /// EEXIST: something is mapped there.
    pub(crate) fn insert(
        &mut self,
        place: Place,
        range: &Range<u64>,
        access: Access,
        (backing, from): (Backing, u64),
        cost: Charge,
    ) -> Result<u64> {
        let maps = &mut *self.maps;
        if overlap(&maps.tree, range).is_some() {
            return Err(EEXIST);
        }
        let serial = maps.serial;
        maps.serial += 1;
        let mapping = Mapping { end: range.end, access, serial, backing, from, _cost: Some(cost) };
        maps.tree.insert(place.into_node(range.start, mapping));
        Ok(serial)
    }

    /// Whether all ranges are mapped with (at least) their access.
    pub(crate) fn covers(&self, ranges: &[(Range<u64>, Access)]) -> bool {
        ranges.iter().all(|(range, access)| covers(&self.maps.tree, range, *access))
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
        let taken = take(&mut self.maps.tree, range, || cost().map(Some))?;
        zap(self.space, range);
        Ok(taken)
    }

    /// Takes out the mapping of that number at `start`, or what is left of it there. Returns its end, too.
    pub(crate) fn take_back(
        &mut self,
        start: u64,
        serial: u64,
    ) -> Option<(u64, RBTree<u64, Mapping>)> {
        let tree = &mut self.maps.tree;
        let end = tree.get(&start).filter(|mapping| mapping.serial == serial)?.end;
        let mut taken = RBTree::new();
        taken.insert(tree.remove_node(&start)?);
        zap(self.space, &(start..end));
        Some((end, taken))
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
        let before = before.map(|(place, cost)| {
            place.into_node(start, mapping.rest(start, start, range.start, cost))
        });
        let behind = right.take_if(|_| end > range.end);
        let behind = behind.map(|(place, cost)| {
            place.into_node(range.end, mapping.rest(start, range.end, end, cost))
        });
        let Some(node) = tree.remove_node(&start) else { break };
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

    fn insert(tree: &mut RBTree<u64, Mapping>, start: u64, end: u64, access: Access) -> Result {
        let backing = Backing::Null(None);
        let mapping = Mapping { end, access, serial: 0, backing, from: 0, _cost: None };
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

// SPDX-License-Identifier: GPL-2.0
//! Objects by the ids that the device knows them by: VMs and queues.
//!
//! An id is reserved first ([`Reserved`]), and no look-up finds it. [`Reserved::publish`] consumes the
//! reservation and puts the object in its place. The admin ring calls it when it accepts the command that
//! makes the object, so that every command for a published object follows its creation. A reservation that
//! is dropped gives the id back: the device has never seen it. After publication only [`Table::free`] gives
//! the id back, and its argument is the object, not the number.
//!
//! For its owner an object ends when it is closed, which is before the device has released it.

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};

/// The owner of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The number of the file.
    pub(crate) file: u64,
    /// The user who opened it.
    pub(crate) user: u32,
}

/// Limits of the number of objects.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// The most objects of one file.
    pub(crate) file: u32,
    /// The most objects of all files of one user.
    pub(crate) user: u32,
}

/// The properties of its objects that a [`Table`] uses.
pub(crate) trait Entry {
    /// The id by which it was made.
    fn id(&self) -> u32;
    /// Its owner.
    fn owner(&self) -> Owner;
    /// Whether its owner has ended it.
    fn closed(&self) -> &Closed;
}

/// Set once, when the owner ends the object.
pub(crate) struct Closed(Atomic<bool>);

impl Closed {
    /// An open object.
    pub(crate) fn new() -> Self {
        Self(Atomic::new(false))
    }

    /// Whether it is closed.
    pub(crate) fn is(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Closes it. False if it was closed before.
    pub(crate) fn close(&self) -> bool {
        !self.0.xchg(true, kernel::sync::atomic::Full)
    }
}

/// Objects by id. Ids are 1 to a maximum; 0 is none.
#[pin_data]
pub(crate) struct Table<T> {
    max: u32,
    #[pin]
    slots: Mutex<Slots<T>>,
}

struct Slots<T> {
    /// The slots by id - 1. Its length is the largest id so far.
    slots: KVVec<Slot<T>>,
    /// The index at which the search for a free id begins: ids are not used again at
    /// once, so that a late use of an old id fails instead of reaching another object.
    next: usize,
}

enum Slot<T> {
    Free,
    Reserved(Owner),
    Used(Arc<T>),
}

impl<T: Entry> Slot<T> {
    fn owner(&self) -> Option<Owner> {
        match self {
            Self::Free => None,
            Self::Reserved(owner) => Some(*owner),
            Self::Used(object) => Some(object.owner()),
        }
    }

    fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Used(object) => Some(object),
            Self::Free | Self::Reserved(_) => None,
        }
    }
}

/// An id that no object uses yet. Dropping it gives the id back.
pub(crate) struct Reserved<'a, T: Entry> {
    table: &'a Table<T>,
    index: usize,
}

impl<T: Entry> Reserved<'_, T> {
    /// The id.
    pub(crate) fn id(&self) -> u32 {
        self.index as u32 + 1
    }

    /// Puts `object`, which was made with this id, into the table.
    pub(crate) fn publish(self, object: Arc<T>) {
        self.table.set(self.index, Slot::Used(object));
        core::mem::forget(self);
    }
}

impl<T: Entry> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        self.table.set(self.index, Slot::Free);
    }
}

impl<T: Entry> Table<T> {
    /// An empty table for ids from 1 to `max`.
    pub(crate) fn new(max: u32) -> impl PinInit<Self> {
        pin_init!(Self {
            max,
            slots <- new_mutex!(Slots { slots: KVVec::new(), next: 0 }),
        })
    }

    /// Takes a free id.
    ///
    /// # Errors
    /// ENOSPC: `owner` has as many as `limits` allow, or all ids are used. ENOMEM.
    pub(crate) fn reserve(&self, owner: Owner, limits: Limits) -> Result<Reserved<'_, T>> {
        let mut guard = self.slots.lock();
        let Slots { slots, next } = &mut *guard;
        let (mut of_file, mut of_user) = (0, 0);
        for other in slots.iter().filter_map(Slot::owner) {
            of_file += u32::from(other.file == owner.file);
            of_user += u32::from(other.user == owner.user);
        }
        if of_file >= limits.file || of_user >= limits.user {
            return Err(ENOSPC);
        }
        // Until the table has its full length, ids that were never used come first.
        let index = if slots.len() < self.max as usize {
            slots.push(Slot::Free, GFP_KERNEL)?;
            slots.len() - 1
        } else {
            let len = slots.len();
            let mut order = [*next..len, 0..(*next).min(len)].into_iter().flatten();
            order
                .find(|&index| matches!(slots[index], Slot::Free))
                .ok_or(ENOSPC)?
        };
        slots[index] = Slot::Reserved(owner);
        *next = index + 1;
        Ok(Reserved { table: self, index })
    }

    fn set(&self, index: usize, to: Slot<T>) {
        if let Some(slot) = self.slots.lock().slots.get_mut(index) {
            *slot = to;
        }
    }

    /// The object `id` of the file.
    ///
    /// # Errors
    /// ENOENT: the file has none, or it is closed.
    pub(crate) fn get(&self, file: u64, id: u32) -> Result<Arc<T>> {
        let object = self.by_id(id).ok_or(ENOENT)?;
        if object.owner().file != file || object.closed().is() {
            return Err(ENOENT);
        }
        Ok(object)
    }

    /// The object `id`, of any file, closed or not.
    pub(crate) fn by_id(&self, id: u32) -> Option<Arc<T>> {
        let index = (id as usize).checked_sub(1)?;
        self.slots.lock().slots.get(index)?.object().cloned()
    }

    /// Closes the object `id` of the file; the id stays in use until [`Self::free`].
    ///
    /// # Errors
    /// ENOENT, also for the second of two who close it.
    pub(crate) fn close(&self, file: u64, id: u32) -> Result<Arc<T>> {
        let object = self.get(file, id)?;
        if object.closed().close() {
            Ok(object)
        } else {
            Err(ENOENT)
        }
    }

    /// Gives the id of `object` back, which the device has released. Does nothing if it has been given
    /// back already, even if another object has the id by now.
    pub(crate) fn free(&self, object: &T) {
        let index = (object.id() as usize).wrapping_sub(1);
        let mut guard = self.slots.lock();
        let slot = guard.slots.get_mut(index);
        let slot = slot.filter(|slot| slot.object().is_some_and(|it| core::ptr::eq(&**it, object)));
        let freed = slot.map(|slot| core::mem::replace(slot, Slot::Free));
        drop(guard);
        // Dropped without the lock, since it may be the last reference.
        drop(freed);
    }

    /// The first object with an id above `after` for which `wanted` is true, for
    /// iterations that must not hold the lock.
    pub(crate) fn next(&self, after: u32, wanted: impl Fn(&T) -> bool) -> Option<(u32, Arc<T>)> {
        let guard = self.slots.lock();
        let rest = guard.slots.iter().enumerate().skip(after as usize);
        rest.filter_map(|(index, slot)| Some((index as u32 + 1, slot.object()?)))
            .find(|(_, object)| wanted(object))
            .map(|(id, object)| (id, object.clone()))
    }

    /// Calls `f` for every object for which `wanted` is true.
    pub(crate) fn for_each(&self, wanted: impl Fn(&T) -> bool, mut f: impl FnMut(u32, Arc<T>)) {
        let mut last = 0;
        while let Some((id, object)) = self.next(last, &wanted) {
            f(id, object);
            last = id;
        }
    }
}

#[kernel::macros::kunit_tests(tally_table)]
mod tests {
    use super::*;

    struct Thing {
        id: u32,
        owner: Owner,
        closed: Closed,
    }

    impl Entry for Thing {
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

    fn table(max: u32) -> Result<Pin<KBox<Table<Thing>>>> {
        KBox::pin_init(Table::new(max), GFP_KERNEL)
    }

    fn of_file(file: u64) -> Owner {
        Owner { file, user: 0 }
    }

    fn add(table: &Table<Thing>, owner: Owner, limit: u32) -> Result<Arc<Thing>> {
        let id = table.reserve(
            owner,
            Limits {
                file: limit,
                user: 100,
            },
        )?;
        let thing = Arc::new(
            Thing {
                id: id.id(),
                owner,
                closed: Closed::new(),
            },
            GFP_KERNEL,
        )?;
        id.publish(thing.clone());
        Ok(thing)
    }

    /// "An unknown one is ENOENT", and so is another file's.
    #[test]
    fn ids_belong_to_their_file() -> Result {
        let table = table(4)?;
        let id = add(&table, of_file(1), 4)?.id;
        assert!(table.get(1, id).is_ok());
        assert_eq!(table.get(2, id).err(), Some(ENOENT));
        assert_eq!(table.get(1, 0).err(), Some(ENOENT));
        assert_eq!(table.get(1, 99).err(), Some(ENOENT));
        Ok(())
    }

    /// "For its owner an object ends when it is closed"
    #[test]
    fn a_closed_object_is_gone_for_its_owner_only() -> Result {
        let table = table(4)?;
        let thing = add(&table, of_file(1), 4)?;
        let id = thing.id;
        assert!(table.close(1, id).is_ok());
        assert_eq!(table.close(1, id).err(), Some(ENOENT));
        assert_eq!(table.get(1, id).err(), Some(ENOENT));
        assert!(table.by_id(id).is_some());
        table.free(&thing);
        assert!(table.by_id(id).is_none());
        Ok(())
    }

    /// "ENOSPC: `owner` has as many as `limits` allow, or all ids are used."
    #[test]
    fn limits_hold() -> Result {
        let table = table(3)?;
        assert!(add(&table, of_file(1), 2).is_ok() && add(&table, of_file(1), 2).is_ok());
        assert_eq!(add(&table, of_file(1), 2).err(), Some(ENOSPC));
        let third = add(&table, of_file(2), 2)?;
        assert_eq!(add(&table, of_file(3), 2).err(), Some(ENOSPC));
        table.free(&third);
        assert_eq!(add(&table, of_file(3), 2)?.id, third.id);
        Ok(())
    }

    /// "The most objects of all files of one user."
    #[test]
    fn files_of_a_user_share_a_limit() -> Result {
        let table = table(9)?;
        let limits = Limits { file: 2, user: 3 };
        let mut held = KVec::new();
        for file in [1, 1, 2] {
            held.push(table.reserve(Owner { file, user: 7 }, limits)?, GFP_KERNEL)?;
        }
        assert_eq!(
            table.reserve(Owner { file: 3, user: 7 }, limits).err(),
            Some(ENOSPC)
        );
        assert!(table.reserve(Owner { file: 3, user: 8 }, limits).is_ok());
        held.clear();
        assert!(table.reserve(Owner { file: 3, user: 7 }, limits).is_ok());
        Ok(())
    }

    /// "ids are not used again at once"
    #[test]
    fn a_freed_id_rests() -> Result {
        let table = table(3)?;
        let first = add(&table, of_file(1), 3)?;
        table.free(&first);
        assert!(add(&table, of_file(1), 3)?.id != first.id);
        Ok(())
    }

    /// "no look-up finds it", "A reservation that is dropped gives the id back"
    #[test]
    fn a_reservation_is_not_seen() -> Result {
        let table = table(1)?;
        let reserved = table.reserve(of_file(1), Limits { file: 1, user: 1 })?;
        let id = reserved.id();
        assert_eq!(table.get(1, id).err(), Some(ENOENT));
        assert!(table.by_id(id).is_none() && table.next(0, |_| true).is_none());
        assert_eq!(table.close(1, id).err(), Some(ENOENT));
        drop(reserved);
        assert!(add(&table, of_file(2), 1).is_ok());
        Ok(())
    }

    /// "Does nothing if it has been given back already, even if another object has the id by now."
    #[test]
    fn an_object_frees_no_other() -> Result {
        let table = table(1)?;
        let first = add(&table, of_file(1), 1)?;
        table.free(&first);
        let second = add(&table, of_file(2), 1)?;
        assert_eq!(first.id, second.id);
        table.free(&first);
        assert!(table.get(2, second.id).is_ok());
        Ok(())
    }
}

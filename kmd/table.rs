// SPDX-License-Identifier: GPL-2.0
//! Objects by the ids that the device knows them by: VMs and queues.
//!
//! An object belongs to a file. Its id is in use from the moment before the
//! device is told until the device has answered that it is gone; for its owner it
//! ends earlier, when it is closed.

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};

/// What a [`Table`] needs to know of its objects.
pub(crate) trait Entry {
    /// The file that it belongs to.
    fn owner(&self) -> u64;
    /// Whether its owner has ended it.
    fn closed(&self) -> &Closed;
}

/// Set once, when the owner ends the object.
pub(crate) struct Closed(Atomic<bool>);

impl Closed {
    /// Not closed.
    pub(crate) fn new() -> Self {
        Self(Atomic::new(false))
    }

    /// Whether it is closed.
    pub(crate) fn is(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Closes it. False if somebody else did before.
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
    /// By id - 1. As long as the largest id so far.
    objects: KVVec<Option<Arc<T>>>,
    /// Where the search for a free id begins: ids are not used again at once, so
    /// that a late use of an old one is an error and not somebody else's.
    next: usize,
}

impl<T: Entry> Table<T> {
    /// An empty table for ids from 1 to `max`.
    pub(crate) fn new(max: u32) -> impl PinInit<Self> {
        pin_init!(Self {
            max,
            slots <- new_mutex!(Slots { objects: KVVec::new(), next: 0 }),
        })
    }

    /// Adds what `make` makes for a free id.
    ///
    /// # Errors
    /// ENOSPC: `owner` has `limit` already, or all ids are used. ENOMEM; those of `make`.
    pub(crate) fn add(
        &self,
        owner: u64,
        limit: u32,
        make: impl FnOnce(u32) -> Result<Arc<T>>,
    ) -> Result<Arc<T>> {
        let mut slots = self.slots.lock();
        let owned = slots.objects.iter().flatten().filter(|object| object.owner() == owner);
        if owned.count() >= limit as usize {
            return Err(ENOSPC);
        }
        let len = slots.objects.len();
        let start = slots.next;
        let mut free = [start..len, 0..start.min(len)].into_iter().flatten();
        let free = free.find(|&index| slots.objects[index].is_none());
        // Until the table has its full length ids that were never used come first.
        let index = if len < self.max as usize {
            slots.objects.push(None, GFP_KERNEL)?;
            len
        } else {
            free.ok_or(ENOSPC)?
        };
        let object = make(index as u32 + 1)?;
        slots.objects[index] = Some(object.clone());
        slots.next = index + 1;
        Ok(object)
    }

    /// The object `id` of `owner`.
    ///
    /// # Errors
    /// ENOENT: none of his, or closed.
    pub(crate) fn get(&self, owner: u64, id: u32) -> Result<Arc<T>> {
        let object = self.by_id(id).ok_or(ENOENT)?;
        if object.owner() != owner || object.closed().is() {
            return Err(ENOENT);
        }
        Ok(object)
    }

    /// The object `id`, whoever owns it, closed or not.
    pub(crate) fn by_id(&self, id: u32) -> Option<Arc<T>> {
        let index = (id as usize).checked_sub(1)?;
        self.slots.lock().objects.get(index)?.clone()
    }

    /// Closes the object `id` of `owner`; the id stays in use until [`Self::free`].
    ///
    /// # Errors
    /// ENOENT, also for the second of two who close it.
    pub(crate) fn close(&self, owner: u64, id: u32) -> Result<Arc<T>> {
        let object = self.get(owner, id)?;
        if object.closed().close() {
            Ok(object)
        } else {
            Err(ENOENT)
        }
    }

    /// Gives the id back; the device has forgotten it.
    pub(crate) fn free(&self, id: u32) {
        let index = (id as usize).wrapping_sub(1);
        let object = self.slots.lock().objects.get_mut(index).and_then(Option::take);
        // Outside of the lock: it may be the last reference.
        drop(object);
    }

    /// The first object with an id above `after` that is as `wanted` says: for
    /// walks that must not hold the lock.
    pub(crate) fn next(&self, after: u32, wanted: impl Fn(&T) -> bool) -> Option<(u32, Arc<T>)> {
        let slots = self.slots.lock();
        let rest = slots.objects.iter().enumerate().skip(after as usize);
        rest.filter_map(|(index, slot)| Some((index as u32 + 1, slot.as_ref()?)))
            .find(|(_, object)| wanted(object))
            .map(|(id, object)| (id, object.clone()))
    }

    /// Calls `f` for every object that is as `wanted` says.
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
        owner: u64,
        closed: Closed,
    }

    impl Entry for Thing {
        fn owner(&self) -> u64 {
            self.owner
        }

        fn closed(&self) -> &Closed {
            &self.closed
        }
    }

    fn table(max: u32) -> Result<Pin<KBox<Table<Thing>>>> {
        KBox::pin_init(Table::new(max), GFP_KERNEL)
    }

    fn add(table: &Table<Thing>, owner: u64, limit: u32) -> Result<u32> {
        let mut given = 0;
        table.add(owner, limit, |id| {
            given = id;
            Ok(Arc::new(Thing { owner, closed: Closed::new() }, GFP_KERNEL)?)
        })?;
        Ok(given)
    }

    /// "An unknown one is ENOENT", and so is another file's.
    #[test]
    fn ids_belong_to_their_file() -> Result {
        let table = table(4)?;
        let id = add(&table, 1, 4)?;
        assert!(table.get(1, id).is_ok());
        assert_eq!(table.get(2, id).err(), Some(ENOENT));
        assert_eq!(table.get(1, 0).err(), Some(ENOENT));
        assert_eq!(table.get(1, 99).err(), Some(ENOENT));
        Ok(())
    }

    /// "for its owner it ends earlier, when it is closed"
    #[test]
    fn a_closed_object_is_gone_for_its_owner_only() -> Result {
        let table = table(4)?;
        let id = add(&table, 1, 4)?;
        assert!(table.close(1, id).is_ok());
        assert_eq!(table.close(1, id).err(), Some(ENOENT));
        assert_eq!(table.get(1, id).err(), Some(ENOENT));
        assert!(table.by_id(id).is_some());
        table.free(id);
        assert!(table.by_id(id).is_none());
        Ok(())
    }

    /// "ENOSPC: `owner` has `limit` already, or all ids are used."
    #[test]
    fn limits_hold() -> Result {
        let table = table(3)?;
        assert!(add(&table, 1, 2).is_ok() && add(&table, 1, 2).is_ok());
        assert_eq!(add(&table, 1, 2).err(), Some(ENOSPC));
        let third = add(&table, 2, 2)?;
        assert_eq!(add(&table, 3, 2).err(), Some(ENOSPC));
        table.free(third);
        assert_eq!(add(&table, 3, 2)?, third);
        Ok(())
    }

    /// "ids are not used again at once"
    #[test]
    fn a_freed_id_rests() -> Result {
        let table = table(3)?;
        let first = add(&table, 1, 3)?;
        table.free(first);
        assert!(add(&table, 1, 3)? != first);
        Ok(())
    }
}

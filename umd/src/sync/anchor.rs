// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference to [`Shared`] that an event keeps.
//!
//! Events are made and destroyed by the million and all name the same `Shared`: to count each of them
//! would be two atomic operations on a word that all threads write. So what an event of a thread leaves,
//! the next one of that thread takes. A thread keeps references to one `Shared` only, and none once it
//! has destroyed a context.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

use super::shared::Shared;

/// References that a thread keeps at most.
const MOST: usize = 256;

/// A counted reference to [`Shared`].
#[derive(Debug)]
pub struct Anchor(ManuallyDrop<Arc<Shared>>);

impl Anchor {
    /// A reference to `shared`.
    #[inline]
    pub fn of(shared: &Arc<Shared>) -> Self {
        let kept = SPARE.try_with(|spare| spare.take(Arc::as_ptr(shared))).unwrap_or(false);
        if !kept {
            return Self(ManuallyDrop::new(shared.clone()));
        }
        // SAFETY: the thread had a count more of this very `Shared`, and has it no longer.
        Self(ManuallyDrop::new(unsafe { Arc::from_raw(Arc::as_ptr(shared)) }))
    }

    /// Gives up what this thread keeps.
    pub fn forget_spare() {
        // After thread-local destructors have run nothing is kept.
        let _ = SPARE.try_with(Spare::clear);
    }
}

impl Deref for Anchor {
    type Target = Arc<Shared>;

    #[inline]
    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Anchor {
    #[inline]
    fn drop(&mut self) {
        let kept = SPARE.try_with(|spare| spare.give(Arc::as_ptr(&self.0))).unwrap_or(false);
        if !kept {
            // SAFETY: dropped once, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

thread_local! {
    static SPARE: Spare = const { Spare { shared: Cell::new(ptr::null()), count: Cell::new(0) } };
}

/// `count` counted references to one `Shared`.
struct Spare {
    shared: Cell<*const Shared>,
    count: Cell<usize>,
}

impl Spare {
    /// Hands a reference to `shared` out, if there is one.
    #[inline]
    fn take(&self, shared: *const Shared) -> bool {
        let count = self.count.get();
        let has = self.shared.get() == shared && count != 0;
        if has {
            self.count.set(count - 1);
        }
        has
    }

    /// Takes a reference over, if there is room.
    #[inline]
    fn give(&self, shared: *const Shared) -> bool {
        if self.shared.get() != shared {
            self.clear();
            if self.count.get() != 0 {
                // What ended there has left references to another one.
                return false;
            }
            self.shared.set(shared);
        }
        let count = self.count.get();
        if count < MOST {
            self.count.set(count + 1);
        }
        count < MOST
    }

    #[cold]
    fn clear(&self) {
        // What ends here may come back to this: it finds nothing.
        let shared = self.shared.replace(ptr::null());
        for _ in 0..self.count.replace(0) {
            // SAFETY: each count is one of a reference to this very `Shared` that was handed over:
            // `give` names another one only while there are none.
            drop(unsafe { Arc::from_raw(shared) });
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::tests::fake;

    #[test]
    fn what_an_event_leaves_the_next_one_takes_and_nothing_is_kept_for_ever() {
        let (_, vm) = fake();
        let shared = Shared::of(&vm);
        let before = Arc::strong_count(&shared);
        let first = Anchor::of(&shared);
        assert_eq!(Arc::strong_count(&shared), before + 1);
        drop(first);
        let second = Anchor::of(&shared);
        assert_eq!(Arc::strong_count(&shared), before + 1, "the same count again");
        let third = Anchor::of(&shared);
        assert_eq!(Arc::strong_count(&shared), before + 2);
        drop((second, third));
        let (_, other) = fake();
        let other = Shared::of(&other);
        drop(Anchor::of(&other));
        assert_eq!(Arc::strong_count(&shared), before, "only the last one is kept");
        let alone = Arc::strong_count(&other) - 1;
        Anchor::forget_spare();
        assert_eq!(Arc::strong_count(&other), alone);
    }

    #[test]
    fn a_thread_keeps_so_many_and_none_when_it_ends() {
        let (_, vm) = fake();
        let shared = Shared::of(&vm);
        let before = Arc::strong_count(&shared);
        let many: Vec<_> = (0..MOST + 10).map(|_| Anchor::of(&shared)).collect();
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| {
                drop(many);
                assert_eq!(Arc::strong_count(&shared), before + MOST);
            });
            ended.join().expect("no panic");
        });
        assert_eq!(Arc::strong_count(&shared), before);
    }
}

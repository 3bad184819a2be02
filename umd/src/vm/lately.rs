// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a list found user memory last, so that a copy looks it up without a lock.
//!
//! Programs copy many times from and to the same allocations. What was found is good as long as no
//! allocation was taken out of the VM, which is counted: a new one does not change where an old one ends.
//! Threads may come here at once, so the words are atomic, and a version tells a reader whether they
//! changed while it read them: then it looks for itself.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::Vm;

/// How often allocations were taken out. Changes while the allocations are locked for writing.
#[derive(Debug)]
pub struct Removals(AtomicU64);

impl Default for Removals {
    fn default() -> Self {
        // None that a place was noted at before.
        Self(AtomicU64::new(1))
    }
}

impl Removals {
    /// One more.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// The allocation that was found last.
#[derive(Debug, Default)]
pub struct Lately {
    /// Odd while the rest changes.
    version: AtomicU64,
    removals: AtomicU64,
    base: AtomicU64,
    size: AtomicU64,
}

impl Lately {
    /// Bytes from `address` to the end of the allocation that was found last, if it is in there and still
    /// exists.
    #[inline]
    pub fn rest(&self, removals: &Removals, address: u64) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        let known = self.removals.load(Ordering::Relaxed);
        let offset = address.wrapping_sub(self.base.load(Ordering::Relaxed));
        let size = self.size.load(Ordering::Relaxed);
        // What was read above is read before the version is read again.
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        let is_good = is_whole && known == removals.0.load(Ordering::Acquire);
        (is_good && offset < size).then(|| size - offset)
    }

    /// `size` bytes at `base` are an allocation. The caller has the allocations locked.
    pub fn note(&self, removals: &Removals, base: u64, size: u64) {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version | 1;
        // Another thread notes what it found: one will do. Who noted before is done with the words.
        let (done, order) = (Ordering::Acquire, Ordering::Relaxed);
        if odd == version || self.version.compare_exchange(version, odd, done, order).is_err() {
            return;
        }
        // Who reads one of the words below also finds the odd version.
        fence(Ordering::Release);
        self.removals.store(removals.0.load(Ordering::Relaxed), Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}

impl Vm {
    /// Bytes from an address to the end of the allocation that holds it, whichever context it belongs
    /// to. `lately`: where the caller found memory last.
    #[inline]
    pub fn rest(&self, address: u64, lately: &Lately) -> Option<u64> {
        lately.rest(&self.removals, address).or_else(|| self.look_for_rest(address, lately))
    }

    #[inline(never)]
    fn look_for_rest(&self, address: u64, lately: &Lately) -> Option<u64> {
        if !self.bindings.space.contains(address) {
            return None;
        }
        let usm = self.usm.read().unwrap_or_else(PoisonError::into_inner);
        let (&base, it) = usm.range(..=address).next_back()?;
        let rest = it.size.checked_sub(address - base).filter(|&rest| rest != 0)?;
        lately.note(&self.removals, base, it.size);
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_good_until_an_allocation_is_taken_out() {
        let (removals, lately) = (Removals::default(), Lately::default());
        assert_eq!(lately.rest(&removals, 0), None, "nothing was found");
        lately.note(&removals, 0x1000, 0x100);
        assert_eq!(lately.rest(&removals, 0x1010), Some(0xf0));
        assert_eq!(lately.rest(&removals, 0xfff), None, "before it");
        assert_eq!(lately.rest(&removals, 0x1100), None, "behind it");
        removals.add();
        assert_eq!(lately.rest(&removals, 0x1010), None, "it may be what was taken out");
        lately.note(&removals, 0x1000, 0x20);
        assert_eq!(lately.rest(&removals, 0x1010), Some(0x10));
    }

    /// A reader gets base and size of one allocation, or nothing.
    #[test]
    fn threads_that_note_and_read_at_once_mix_nothing() {
        let (removals, lately) = (Removals::default(), Lately::default());
        std::thread::scope(|scope| {
            for base in [0x1000u64, 0x8000] {
                let (removals, lately) = (&removals, &lately);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        // Each allocation is as long as its address says.
                        lately.note(removals, base, base);
                        for at in [0x1000, 0x8000] {
                            let rest = lately.rest(removals, at);
                            assert!(rest.is_none_or(|rest| rest == at), "{rest:?} from {at:#x}");
                        }
                    }
                });
            }
        });
    }
}

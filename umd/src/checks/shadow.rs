// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of bytes: a byte for each one of the VA reservation, in a mapping of its own.

use std::ffi::c_void;
use std::ptr;

use crate::space::Space;

/// Bytes of states from which on they are made inaccessible by giving their pages back, which is faster
/// than to write them.
const DROPPED: u64 = 1 << 20;
const PAGE: u64 = tally_uapi::PAGE_SIZE;

/// The states. They are never unmapped: kernels may look at them until the process ends.
pub struct Shadow {
    /// The first address that has a state: a multiple of the number of addresses.
    start: u64,
    /// The number of addresses, a power of two, less one.
    mask: u64,
    states: u64,
}

impl Shadow {
    /// States of the VA reservation, in which no byte is accessible. `None`: there is no room.
    pub fn new(space: &Space) -> Option<Self> {
        let (first, last) = (space.start(), space.start() + space.size() - 1);
        // The least power of two of addresses that holds both.
        let bits = u64::BITS - (first ^ last).leading_zeros();
        let mask = (1_u64 << bits) - 1;
        // Accesses at the last addresses read a little further.
        let bytes = usize::try_from(mask + 1 + PAGE).ok()?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: without an address nothing that exists is replaced.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        // It would be most of a core file. A system that cannot leave it out writes larger ones.
        // SAFETY: our own mapping.
        unsafe { libc::madvise(at, bytes, libc::MADV_DONTDUMP) };
        Some(Self { start: first & !mask, mask, states: at as u64 })
    }

    /// The first address that has a state.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How many have, less one.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Where the first one's is.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// Sets the states of `size` bytes from an address of the VA reservation on.
    pub fn set(&self, address: u64, size: u64, state: u8) {
        let (from, to) = (address - self.start, address - self.start + size);
        assert!(to <= self.mask + 1, "states of addresses that have none");
        if state == 0 && size >= DROPPED {
            let (first, last) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
            // SAFETY: whole pages of our own private mapping, which are zeros afterwards.
            let dropped = unsafe {
                let at = (self.states + first) as *mut c_void;
                libc::madvise(at, (last - first) as usize, libc::MADV_DONTNEED) == 0
            };
            if dropped {
                self.write(from, first - from, 0);
                return self.write(last, to - last, 0);
            }
        }
        self.write(from, size, state);
    }

    fn write(&self, offset: u64, size: u64, state: u8) {
        let at = ptr::with_exposed_provenance_mut::<u8>((self.states + offset) as usize);
        // SAFETY: within the mapping, as `set` has checked. Kernels that look there at the same time access
        // memory that is being allocated or freed, which is the program's race.
        unsafe { at.write_bytes(state, size as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(shadow: &Shadow, address: u64, size: usize) -> Vec<u8> {
        let at = shadow.states() + (address & shadow.mask());
        let at = ptr::with_exposed_provenance::<u8>(at as usize);
        // SAFETY: within the shadow.
        unsafe { std::slice::from_raw_parts(at, size) }.to_vec()
    }

    #[test]
    fn states_are_those_of_the_bytes_that_were_named() {
        let space = Space::reserve(Some(64 << 20), PAGE, 1 << 47).expect("addresses");
        let shadow = Shadow::new(&space).expect("room");
        let at = space.start() + 4096;
        shadow.set(at, 100, 0x80);
        let mut wanted = vec![0x80; 100];
        wanted.insert(0, 0);
        wanted.push(0);
        assert_eq!(states(&shadow, at - 1, 102), wanted);
        let large = 3 * DROPPED as usize;
        shadow.set(at + 1, large as u64, 0xff);
        shadow.set(at + 2, large as u64 - 2, 0);
        let seen = states(&shadow, at, large + 2);
        assert_eq!((seen[0], seen[1], seen[large], seen[large + 1]), (0x80, 0xff, 0xff, 0));
        assert!(seen[2..large].iter().all(|&state| state == 0));
    }
}

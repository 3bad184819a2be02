// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of bytes: one byte of state for each byte of the VA reservation, in a separate mapping.

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::ptr;
use std::sync::OnceLock;

use tally_compiler_protocol::checks::{DEFINED, NO_MEMORY, UNDEFINED};

use crate::space::Space;

/// Size from which on states are set to inaccessible by mapping new pages, which is faster than writing.
const DROPPED: u64 = 1 << 20;
/// Size from which on states are pages of a file in which all bytes have that state. So the untouched parts of
/// a large allocation take no memory for their states.
const MAPPED: u64 = 64 << 20;
/// Bytes of such a file.
const FILE: u64 = 32 << 20;
const PAGE: u64 = tally_uapi::PAGE_SIZE;
const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_NORESERVE;

/// A range of addresses that contains the VA reservation.
#[derive(Clone, Copy)]
pub struct Addresses {
    /// The first one: a multiple of their number.
    pub start: u64,
    /// Their number, a power of two, less one.
    pub mask: u64,
}

impl Addresses {
    /// The smallest aligned range, with a power of two of addresses, that contains the whole reservation.
    pub fn of(space: &Space) -> Self {
        let (first, last) = (space.start(), space.start() + space.size() - 1);
        let bits = u64::BITS - (first ^ last).leading_zeros();
        let mask = (1_u64 << bits) - 1;
        Self { start: first & !mask, mask }
    }
}

/// The states. They are never unmapped, since kernels may read them until the process ends.
pub struct Shadow {
    /// The first address that has a state: a multiple of the number of addresses.
    start: u64,
    /// The number of addresses, a power of two, less one.
    mask: u64,
    states: u64,
    /// Files filled with the states with which large allocations begin.
    files: [(u8, OnceLock<Option<File>>); 2],
}

impl Shadow {
    /// Creates the states of the VA reservation, with no byte accessible. `None`: there is no room.
    pub fn new(space: &Space) -> Option<Self> {
        let Addresses { start, mask } = Addresses::of(space);
        // Checks of the last addresses read a little further.
        let bytes = usize::try_from(mask + 1 + PAGE).ok()?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = FLAGS | libc::MAP_ANONYMOUS;
        // SAFETY: without an address no existing mapping is replaced.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        // The states would be most of a core file. A system that cannot leave them out writes larger ones.
        // SAFETY: this is our own mapping.
        unsafe { libc::madvise(at, bytes, libc::MADV_DONTDUMP) };
        let files = [UNDEFINED, DEFINED].map(|state| (state, OnceLock::new()));
        Some(Self { start, mask, states: at as u64, files })
    }

    /// The first address that has a state.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The address of the state of the first address.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// Sets the states of `size` bytes from an address of the VA reservation on.
    pub fn set(&self, address: u64, size: u64, state: u8) {
        let (from, to) = (address - self.start, address - self.start + size);
        assert!(to <= self.mask + 1, "states of addresses that have none");
        let (first, last) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
        let mapped = match state {
            NO_MEMORY => size >= DROPPED && self.map(first, last, None),
            _ => size >= MAPPED && self.fill(first, last, state),
        };
        if mapped {
            self.write(from, first - from, state);
            return self.write(last, to - last, state);
        }
        self.write(from, size, state);
    }

    /// Maps pages of states that are all equal; returns whether it did.
    fn fill(&self, first: u64, last: u64, state: u8) -> bool {
        let Some((_, file)) = self.files.iter().find(|(of, _)| *of == state) else { return false };
        let file = file.get_or_init(|| full_of(state).ok());
        let Some(file) = file else { return false };
        let mut pieces = (first..last).step_by(FILE as usize);
        pieces.all(|at| self.map(at, last.min(at + FILE), Some(file)))
    }

    /// Maps pages of a file, or zero pages, over the existing ones; returns whether it did.
    fn map(&self, first: u64, last: u64, file: Option<&File>) -> bool {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, FLAGS | libc::MAP_FIXED);
        let (flags, file) = match file {
            Some(file) => (flags, file.as_raw_fd()),
            None => (flags | libc::MAP_ANONYMOUS, -1),
        };
        let (at, bytes) = ((self.states + first) as *mut c_void, (last - first) as usize);
        // SAFETY: these are whole pages within our own private mapping, which `set` has checked. Concurrent
        // readers see the states before or after.
        unsafe {
            let mapped = libc::mmap(at, bytes, protection, flags, file, 0) == at;
            // The same as in `new`.
            libc::madvise(at, bytes, libc::MADV_DONTDUMP);
            mapped
        }
    }

    fn write(&self, offset: u64, size: u64, state: u8) {
        let at = ptr::with_exposed_provenance_mut::<u8>((self.states + offset) as usize);
        // SAFETY: the range lies within the mapping, as `set` has checked. Kernels that read it at the same time
        // access memory that is being allocated or freed, which is a race of the program.
        unsafe { at.write_bytes(state, size as usize) };
    }
}

/// A file in memory in which all bytes are equal.
fn full_of(state: u8) -> io::Result<File> {
    // SAFETY: the name is a null-terminated string.
    let file = unsafe { libc::memfd_create(c"tally-states".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    let mut file = unsafe { File::from_raw_fd(file) };
    let piece = vec![state; 1 << 20];
    (0..FILE >> 20).try_for_each(|_| file.write_all(&piece))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(shadow: &Shadow, address: u64, size: usize) -> Vec<u8> {
        let at = shadow.states() + (address & shadow.mask);
        let at = ptr::with_exposed_provenance::<u8>(at as usize);
        // SAFETY: the range lies within the shadow.
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

    #[test]
    fn states_of_large_memory_can_be_set_and_changed() {
        let space = Space::reserve(Some(256 << 20), PAGE, 1 << 47).expect("addresses");
        let shadow = Shadow::new(&space).expect("room");
        let (at, size) = (space.start() + 4096, (MAPPED + 3 * PAGE) as usize + 5);
        for state in [UNDEFINED, DEFINED, NO_MEMORY, UNDEFINED] {
            shadow.set(at + 1, size as u64, state);
            let seen = states(&shadow, at, size + 2);
            assert_eq!((seen[0], seen[size + 1]), (0, 0));
            assert!(seen[1..=size].iter().all(|&it| it == state), "{state:#x}");
        }
        shadow.set(at + MAPPED, 7, DEFINED);
        let other = at + MAPPED - FILE;
        assert_eq!(
            states(&shadow, at + MAPPED, 8),
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x80]
        );
        assert!(states(&shadow, other, 8).iter().all(|&it| it == UNDEFINED), "pages are private");
    }
}

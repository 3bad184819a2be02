// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses: the VA reservation, made once per process, and the owner of each part of it.
//!
//! A buffer has the same address for the host and for the GPU, so the driver places all buffers
//! inside a range that it has reserved for itself: one inaccessible mapping without memory behind it.

mod beside;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tally_uapi::PAGE_SIZE;
use tally_ze::ze_result_t;

use crate::error::{Error, Result};
use beside::Blocks;

/// Size of the VA reservation in bytes, unless a setting or a limit requires another one.
const DEFAULT_SIZE: u64 = 256 << 30;
/// The smallest useful size in bytes.
const MIN_SIZE: u64 = 64 << 20;
/// Minimum and maximum of the bytes on either side of a range that is allocated while checks run; between
/// them the room is as large as the range.
const ROOM: (u64, u64) = (64 << 10, 16 << 20);
/// Page size of large allocations; the VA reservation starts at a multiple of it.
pub const HUGE_PAGE: u64 = 2 << 20;

/// Places for the VA reservation, best first. All are far from where Linux puts programs, libraries, heaps
/// and stacks. Sanitizers occupy some of them; then the next is tried, and last any place that mmap chooses.
const CANDIDATES: [u64; 5] =
    [0x2000_0000_0000, 0x3000_0000_0000, 0x1800_0000_0000, 0x4000_0000_0000, 0x6000_0000_0000];

/// The VA reservation.
#[derive(Debug)]
pub struct Space {
    start: u64,
    size: u64,
    /// Free ranges: start and size. Adjacent ranges are always merged.
    free: Mutex<BTreeMap<u64, u64>>,
    /// See [`Space::open`].
    open: AtomicBool,
    told: OnceLock<Told>,
    wide: Mutex<Wide>,
    /// See [`Space::set_apart`].
    apart: AtomicBool,
    /// See [`Space::alloc_beside`].
    blocks: Mutex<Blocks>,
}

/// A callback that receives start and size of addresses when they are allocated (`true`) and freed
/// (`false`).
pub type Told = fn(u64, u64, bool);

/// Ranges that are allocated with room around them.
#[derive(Debug, Default)]
struct Wide {
    /// The whole range, by the address that was returned for it.
    ranges: BTreeMap<u64, (u64, u64)>,
    /// Freed ranges that are not used again yet, and their sizes in bytes.
    resting: VecDeque<(u64, u64)>,
    resting_bytes: u64,
}

impl Space {
    /// Makes a VA reservation of `size` bytes, or of the default size, or of what limits allow, within the
    /// addresses that the device can use. Where RLIMIT_AS is set, it takes at most half of that.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY if not even the smallest size is available.
    pub fn reserve(size: Option<u64>, lowest: u64, end: u64) -> Result<Self> {
        let size = size.unwrap_or(DEFAULT_SIZE).min(address_limit() / 2);
        let mut size = size.max(MIN_SIZE).next_multiple_of(HUGE_PAGE);
        while size >= MIN_SIZE {
            let places = CANDIDATES.iter().copied().map(Some).chain([None]);
            for place in places {
                if place.is_some_and(|at| at < lowest || at.saturating_add(size) > end) {
                    continue;
                }
                if let Some(start) = reserve_at(place, size, lowest, end) {
                    log::debug!("VA reservation: {size:#x} bytes at {start:#x}");
                    let free = Mutex::new([(start, size)].into());
                    let (open, apart) = (AtomicBool::new(false), AtomicBool::new(false));
                    let (told, wide, blocks) = Default::default();
                    return Ok(Self { start, size, free, open, told, wide, apart, blocks });
                }
            }
            size = (size / 4).next_multiple_of(HUGE_PAGE);
        }
        Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
            "no address space is left for the device's memory; see ulimit -v",
        ))
    }

    /// First address of the VA reservation.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Bytes of the VA reservation.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether an address lies in the VA reservation.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }

    /// Prepares the space for checks, before anything is allocated. From now on unallocated addresses can be
    /// accessed without harm, so that a program continues after such an access; ranges have room around them,
    /// so that an access beyond one does not hit another; and freed ranges are not used again for a long time.
    pub fn open(&self, told: Told) {
        // A space is opened only once.
        let _ = self.told.set(told);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let (start, size) = (self.start as *mut c_void, self.size as usize);
        // SAFETY: the reservation is ours and empty. If the system does not provide that much memory, it stays
        // closed, and an access to an unallocated address ends the device's work.
        unsafe { libc::mmap(start, size, Self::protection(true), flags, -1, 0) };
        // Null pointers look like the first addresses to checked kernels.
        self.alloc_at(self.start, HUGE_PAGE);
        self.open.store(true, Ordering::Relaxed);
    }

    fn protection(open: bool) -> i32 {
        if open { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE }
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    fn wide(&self) -> MutexGuard<'_, Wide> {
        self.wide.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates addresses for `size` bytes, aligned to `align` (a power of two, at least a page); the lowest
    /// that fit. `None` if there are none.
    pub fn alloc(&self, size: u64, align: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(PAGE_SIZE).filter(|&size| size != 0)?;
        let align = align.max(PAGE_SIZE);
        if self.is_open() {
            return self.alloc_wide(size, align);
        }
        self.alloc_close(self.start, size, align)
    }

    /// From now on [`Space::alloc_apart`] has the upper half.
    pub fn set_apart(&self) {
        self.apart.store(true, Ordering::Relaxed);
    }

    fn is_apart(&self) -> bool {
        self.apart.load(Ordering::Relaxed)
    }

    /// Allocates addresses for memory of the application. While a recording is made or replayed they lie in the
    /// upper half, with room around them as while checks run, so that no memory of the driver's lies there in
    /// another process; at the place that [`place_next`] has named, if it did. Otherwise the same as
    /// [`Space::alloc`].
    pub fn alloc_apart(&self, size: u64, align: u64) -> Option<u64> {
        if !self.is_apart() {
            return self.alloc(size, align);
        }
        let size = size.checked_next_multiple_of(PAGE_SIZE).filter(|&size| size != 0)?;
        let align = align.max(PAGE_SIZE);
        match PLACE.replace(0) {
            0 => self.alloc_wide_from(self.start + self.size / 2, size, align),
            place => self.alloc_placed(place, size, align),
        }
    }

    /// Bytes of room on either side.
    fn room(size: u64, align: u64) -> Option<u64> {
        let room = size.clamp(ROOM.0, ROOM.1).next_multiple_of(PAGE_SIZE);
        room.checked_next_multiple_of(align)
    }

    fn alloc_wide(&self, size: u64, align: u64) -> Option<u64> {
        self.alloc_wide_from(self.start, size, align)
    }

    fn alloc_wide_from(&self, lowest: u64, size: u64, align: u64) -> Option<u64> {
        let room = Self::room(size, align)?;
        let whole = size.checked_add(2 * room)?;
        let start = self.or_of_resting(|| self.alloc_close(lowest, whole, align))?;
        Some(self.keep_wide(start, size, room, whole))
    }

    /// Allocates the addresses from `place` on, with room around them.
    fn alloc_placed(&self, place: u64, size: u64, align: u64) -> Option<u64> {
        let room = Self::room(size, align)?;
        let whole = size.checked_add(2 * room)?;
        let start = place.checked_sub(room).filter(|_| place.is_multiple_of(align))?;
        let start = self.or_of_resting(|| self.alloc_at(start, whole))?;
        Some(self.keep_wide(start, size, room, whole))
    }

    /// Tries again with addresses that rest.
    fn or_of_resting(&self, alloc: impl Fn() -> Option<u64>) -> Option<u64> {
        loop {
            if let Some(start) = alloc() {
                return Some(start);
            }
            let (start, size) = self.wide().resting.pop_front()?;
            self.wide().resting_bytes -= size;
            self.free_close(start, size);
        }
    }

    fn keep_wide(&self, start: u64, size: u64, room: u64, whole: u64) -> u64 {
        self.wide().ranges.insert(start + room, (start, whole));
        self.tell(start + room, size, true);
        start + room
    }

    fn tell(&self, start: u64, size: u64, given: bool) {
        if let Some(told) = self.told.get() {
            told(start, size, given);
        }
    }

    /// Start and size of the allocated range that contains an address. Known only while checks run.
    pub fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        let wide = self.wide();
        let (&at, &(start, whole)) = wide.ranges.range(..=address).next_back()?;
        let room = at - start;
        (address < start + whole - room).then_some((at, whole - 2 * room))
    }

    fn alloc_close(&self, lowest: u64, size: u64, align: u64) -> Option<u64> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (hole, len, at) = free.iter().find_map(|(&hole, &len)| {
            let at = hole.max(lowest).checked_next_multiple_of(align)?;
            let end = at.checked_add(size)?;
            (end <= hole + len).then_some((hole, len, at))
        })?;
        cut(&mut free, hole, len, at, size);
        Some(at)
    }

    /// Allocates the addresses from `start` on, if they are free. Start and size are multiples of a page.
    pub fn alloc_at(&self, start: u64, size: u64) -> Option<u64> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (&hole, &len) = free.range(..=start).next_back()?;
        if start - hole >= len || size > len - (start - hole) {
            return None;
        }
        cut(&mut free, hole, len, start, size);
        Some(start)
    }

    /// Frees addresses that [`Space::alloc`] returned for the same size.
    pub fn free(&self, start: u64, size: u64) {
        if self.is_open() || self.is_apart() {
            let mut wide = self.wide();
            if let Some(range) = wide.ranges.remove(&start) {
                wide.resting.push_back(range);
                wide.resting_bytes += range.1;
                let surplus = match wide.resting_bytes > self.size / 2 {
                    true => wide.resting.pop_front(),
                    false => None,
                };
                wide.resting_bytes -= surplus.map_or(0, |(_, size)| size);
                drop(wide);
                self.tell(start, size.next_multiple_of(PAGE_SIZE), false);
                if let Some((start, size)) = surplus {
                    self.free_close(start, size);
                }
                return;
            }
        }
        self.free_close(start, size);
    }

    fn free_close(&self, start: u64, size: u64) {
        let mut size = size.next_multiple_of(PAGE_SIZE);
        let mut start = start;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(after) = free.remove(&(start + size)) {
            size += after;
        }
        if let Some((&before, &len)) = free.range(..start).next_back()
            && before + len == start
        {
            start = before;
            size += len;
        }
        free.insert(start, size);
    }

    /// Makes allocated addresses memory of zeroes, also if the space is not open. Whether it did.
    pub fn fill(&self, start: u64, size: u64) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let (at, size) = (start as *mut c_void, size as usize);
        // SAFETY: the addresses are the caller's, and nothing is there yet.
        unsafe { libc::mmap(at, size, Self::protection(true), flags, -1, 0) == at }
    }

    /// Removes host access to a range: its pages are again as they were when the reservation was made.
    ///
    /// # Safety
    /// The range lies in the VA reservation and belongs to the caller, and nothing refers to memory in it.
    pub unsafe fn close(&self, start: u64, size: u64) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: this replaces only pages of our own reservation, as the caller guarantees. A failure leaves
        // the old pages, which is a leak until the range is used again, but no danger.
        unsafe {
            let protection = Self::protection(self.is_open());
            libc::mmap(start as *mut c_void, size as usize, protection, flags, -1, 0);
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: the reservation is ours, and every owner of a part kept the space alive.
        unsafe { libc::munmap(self.start as *mut c_void, self.size as usize) };
    }
}

thread_local! {
    /// See [`place_next`].
    static PLACE: Cell<u64> = const { Cell::new(0) };
}

/// The next allocation of this thread for the application gets the addresses from `address` on, or fails, if the
/// space is apart.
pub fn place_next(address: u64) {
    PLACE.set(address);
}

/// Cuts `size` bytes at `at` out of a free range of `len` bytes.
fn cut(free: &mut BTreeMap<u64, u64>, hole: u64, len: u64, at: u64, size: u64) {
    free.remove(&hole);
    if at > hole {
        free.insert(hole, at - hole);
    }
    if at + size < hole + len {
        free.insert(at + size, hole + len - at - size);
    }
}

/// Reserves `size` bytes at `place` or anywhere; returns the first address, aligned to a huge page.
fn reserve_at(place: Option<u64>, size: u64, lowest: u64, end: u64) -> Option<u64> {
    // Room to align an address that the system chooses.
    let room = if place.is_some() { size } else { size.checked_add(HUGE_PAGE)? };
    // A mere hint, not MAP_FIXED_NOREPLACE: ThreadSanitizer changes addresses that it does not accept to 0,
    // and that flag would then place the mapping there.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let hint = place.unwrap_or(0) as *mut c_void;
    let len = usize::try_from(room).ok()?;
    // SAFETY: without MAP_FIXED no existing mapping is replaced.
    let base = unsafe { libc::mmap(hint, len, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    let start = (base as u64).next_multiple_of(HUGE_PAGE);
    let elsewhere = place.is_some_and(|place| place != base as u64);
    if elsewhere || start < lowest || start + size > end {
        // SAFETY: the mapping was made above and nothing else refers to it.
        unsafe { libc::munmap(base, len) };
        return None;
    }
    if place.is_none() {
        let before = (start - base as u64) as usize;
        let after = len - before - size as usize;
        // SAFETY: both pieces are parts of the new mapping outside of the part that is kept; a length of 0
        // fails without effect.
        unsafe {
            libc::munmap(base, before);
            libc::munmap((start + size) as *mut c_void, after);
        }
    }
    Some(start)
}

/// Bytes of addresses that this process may have: RLIMIT_AS.
pub fn address_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is writable; a failure leaves it unchanged, which means no limit.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    limit.rlim_cur
}

/// A pointer to an address of the VA reservation.
pub fn pointer(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Space {
        Space::reserve(Some(MIN_SIZE), PAGE_SIZE, 1 << 47).expect("64 MiB of addresses")
    }

    #[test]
    fn allocations_are_aligned_and_apart() {
        let space = small();
        let a = space.alloc(1, 1).expect("room");
        let b = space.alloc(PAGE_SIZE + 1, HUGE_PAGE).expect("room");
        let c = space.alloc(PAGE_SIZE, PAGE_SIZE).expect("room");
        assert_eq!(b % HUGE_PAGE, 0);
        assert_eq!(c, a + PAGE_SIZE, "the gap before an aligned allocation is used");
        assert!(space.contains(a) && space.contains(b) && !space.contains(a - 1));
    }

    #[test]
    fn what_is_freed_becomes_one_range_again_in_any_order() {
        let space = small();
        let parts: Vec<u64> =
            (0..8).map(|_| space.alloc(MIN_SIZE / 8, PAGE_SIZE).expect("room")).collect();
        assert_eq!(space.alloc(PAGE_SIZE, PAGE_SIZE), None, "the reservation is full");
        for i in [3, 0, 7, 1, 5, 6, 2, 4] {
            space.free(parts[i], MIN_SIZE / 8);
        }
        assert_eq!(space.alloc(MIN_SIZE, PAGE_SIZE), Some(space.start()));
    }

    #[test]
    fn memory_of_the_application_gets_the_place_that_is_named() {
        let space = small();
        space.set_apart();
        let own = space.alloc(PAGE_SIZE, PAGE_SIZE).expect("room");
        let first = space.alloc_apart(100, PAGE_SIZE).expect("room");
        assert!(own < space.start() + MIN_SIZE / 2 && first >= space.start() + MIN_SIZE / 2);
        let second = space.alloc_apart(1 << 20, PAGE_SIZE).expect("room");
        assert!(second - first >= PAGE_SIZE + ROOM.0 + (1 << 20), "room on both sides");
        space.free(first, 100);
        space.free(second, 1 << 20);
        // Another process that has made neither.
        let space = small();
        space.set_apart();
        for (place, size) in [(second, 1 << 20), (first, 100)] {
            let place = place - own + space.start();
            place_next(place);
            assert_eq!(space.alloc_apart(size, PAGE_SIZE), Some(place));
            place_next(place);
            assert_eq!(space.alloc_apart(size, PAGE_SIZE), None, "it is taken");
            space.free(place, size);
            place_next(place);
            assert_eq!(space.alloc_apart(size, PAGE_SIZE), Some(place), "it need not rest");
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let space = small();
        assert_eq!(space.alloc(0, PAGE_SIZE), None);
        assert_eq!(space.alloc(u64::MAX, PAGE_SIZE), None);
        assert_eq!(space.alloc(PAGE_SIZE, 1 << 63), None);
    }

    #[test]
    fn a_reservation_is_found_where_the_candidates_are_taken() {
        let spaces: Vec<Space> = (0..CANDIDATES.len() + 2).map(|_| small()).collect();
        let mut starts: Vec<u64> = spaces.iter().map(Space::start).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), spaces.len());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is remembered of accesses to memory, to find those that nothing orders.
//!
//! Each aligned word of 4 bytes has a cell with up to three of the last accesses to it, and the value of the last
//! store ([`tally_compiler_protocol::checks::cell`] has the layout). A block of 64 bytes that items access in rows is
//! remembered as these instead ([`tally_compiler_protocol::checks::rows`]). Kernels look at cells and rows and change
//! them by themselves (`compiler/rt/races.c`); commands that the driver executes otherwise, such as copies, do so
//! through [`Cells::access`].
//!
//! Each access names a *run*: every work-group has one of its own, and so has every other execution of a
//! command. The runs of an execution follow each other:
//!
//! ```text
//!   runs        1 │ 2 3 4 5 6 7 8 9 │ 10 │ 11 12 13 14 │ ...
//!   execution   a │        b        │ c  │      d      │
//!             copy   8 groups        fill   4 groups
//! ```
//!
//! Who does what:
//!
//! - A launch's first group to begin asks for the runs of the execution ([`begin`](super::begin)). That function learns from
//!   [`Order::of_launch`](super::order::Order::of_launch) which [`Execution`] the launch is in *now*. Executions of
//!   one command never overlap, and a command's block counts the groups that are left to begin, so the next one
//!   that begins is the first of the next execution.
//! - A group that finds an access of another execution asks whether that execution is ordered before its own
//!   ([`is_ordered`](super::is_ordered)), which asks [`Order::ordered`](super::order::Order::ordered). It remembers the last four
//!   answers, so the answer for a pair of executions must not change from "ordered" to "not ordered" while the second
//!   one runs; a change in the other direction may be seen late. [`Execution::NONE`] races with nothing.
//! - A command that is no kernel calls [`Cells::access`] for each range that it reads or writes, once, when it is
//!   executed, with its execution: the result are the accesses that race with it.
//! - [`Cells::who`] says what an entry is: the execution, and in a kernel the launch, group, item and place.
//!
//! All of this may be called by threads of the device, while kernels run. A cell is looked at and changed under the
//! lock of its block, so that of two accesses at the same time one sees the other.

mod block;

use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_compiler_protocol::checks::{cell, command, ordered, release, rows};

use self::block::{BYTES, Block, bytes_in, run_of};
use super::collector;
use super::kernels::Watched;
use super::order::Execution;
use super::shadow::Addresses;

/// The kind of an access by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// An access that races with another one.
#[derive(Clone, Debug)]
pub struct Raced {
    /// The first byte that both access.
    pub address: u64,
    /// The number of adjacent bytes that are known to race with the same place.
    pub size: u64,
    /// The other access, which was earlier.
    pub other: Who,
}

/// The origin of an access.
#[derive(Clone, Debug)]
pub struct Who {
    /// The execution of the command.
    pub execution: Execution,
    /// Whether it wrote.
    pub writes: bool,
    /// Whether it was atomic.
    pub atomic: bool,
    /// The place, if a kernel has made it.
    pub kernel: Option<InKernel>,
}

/// The place of an access in a kernel.
#[derive(Clone)]
pub struct InKernel {
    /// The kernel.
    pub watched: Arc<Watched>,
    /// The number of the launch (`Launches::add`).
    pub launch: u64,
    /// The group's linear number.
    pub group: u32,
    /// The item's linear number in its group.
    pub item: u32,
    /// The number of the place, if it is known.
    pub site: Option<u32>,
}

impl std::fmt::Debug for InKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { watched, launch, group, item, site } = self;
        write!(f, "{} {launch}: {group} {item} {site:?}", watched.kernel)
    }
}

/// The cells of all addresses that have states, and the runs.
pub struct Cells {
    addresses: Addresses,
    at: u64,
    /// The offsets of the blocks' stamps and rows.
    stamps: u64,
    rows: u64,
    /// The offset of their words' places.
    places: u64,
    bytes: usize,
    runs: Mutex<Runs>,
    releases: Box<[AtomicU64]>,
}

#[derive(Default)]
struct Runs {
    /// In ascending order.
    list: Vec<Run>,
}

#[derive(Clone)]
struct Run {
    first: u32,
    count: u32,
    execution: Execution,
    kernel: Option<(Arc<Watched>, u64)>,
}

impl Runs {
    fn next(&self) -> u32 {
        self.list.last().map_or(1, |run| run.first + run.count)
    }

    fn find(&self, run: u32) -> Option<&Run> {
        let at = self.list.partition_point(|it| it.first <= run).checked_sub(1)?;
        self.list.get(at).filter(|it| run - it.first < it.count)
    }
}

/// Bits of an entry.
fn bits(entry: u64, at: u32, count: u32) -> u32 {
    (entry >> at & ((1 << count) - 1)) as u32
}

/// Whether an access takes the place of an earlier one that is ordered before it: whatever races with that one
/// later races with the new one, too.
fn replaces(new: u64, old: u64) -> bool {
    let all = |bits: u64| old & bits & !new == 0;
    all(cell::MASK) && all(cell::WRITES) && (new & cell::ATOMIC == 0 || old & cell::ATOMIC != 0)
}

fn conflict(a: u64, b: u64) -> bool {
    a & b & cell::MASK != 0 && (a | b) & cell::WRITES != 0 && a & b & cell::ATOMIC == 0
}

impl Cells {
    /// Creates the cells, all of them empty. `None`: there is no room.
    pub fn new(addresses: Addresses) -> Option<Self> {
        let bytes = usize::try_from(rows::all(addresses.mask)?).ok()?;
        let at = map(ptr::null_mut(), bytes, 0)?;
        let words = (release::COUNT * release::BYTES) as usize / 8;
        Some(Self {
            addresses,
            at,
            stamps: rows::stamps(addresses.mask)?,
            rows: rows::rows(addresses.mask)?,
            places: rows::places(addresses.mask)?,
            bytes,
            runs: Mutex::default(),
            releases: (0..words).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// The address of the first cell.
    pub fn cells(&self) -> u64 {
        self.at
    }

    /// The address of what atomics have released.
    pub fn releases(&self) -> u64 {
        self.releases.as_ptr() as u64
    }

    /// The address of a new block for a command that launches a kernel. Kernels may use it until the process
    /// ends.
    pub fn block() -> u64 {
        let words = [const { AtomicU64::new(0) }; command::SIZE as usize / 8];
        Box::leak(Box::new(words)).as_ptr() as u64
    }

    /// Forgets all accesses to memory, which is new.
    pub fn forget(&self, address: u64, size: u64) {
        if address.wrapping_sub(self.addresses.start) > self.addresses.mask || size == 0 {
            return;
        }
        let end = (address - self.addresses.start + size).min(self.addresses.mask + 1);
        let start = address - self.addresses.start;
        let per = cell::BYTES / 4;
        self.clear((start & !3) * per, end.next_multiple_of(4) * per);
        let (first, last) = (start.next_multiple_of(BYTES), end / BYTES * BYTES);
        if first < last {
            let places =
                |at: u64, bytes: u64| (at + first / BYTES * bytes, at + last / BYTES * bytes);
            for (from, to) in [places(self.stamps, 8), places(self.rows, rows::BYTES)] {
                self.clear(from, to);
            }
        }
        for block in [start / BYTES * BYTES, last] {
            let bytes = bytes_in(block, &(start..end));
            if bytes != 0 && bytes != u64::MAX {
                let _held = self.hold(block);
                self.rows(block).forget(bytes);
            }
        }
    }

    /// Sets a range of offsets to zero.
    fn clear(&self, from: u64, to: u64) {
        const PAGE: u64 = 4096;
        let write = |from: u64, to: u64| {
            let words = (from..to).step_by(8).map(|at| self.word(at));
            words.for_each(|word| word.store(0, Ordering::Relaxed));
        };
        let (first, last) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
        if last.saturating_sub(first) < 16 * PAGE {
            return write(from, to);
        }
        write(from, first);
        write(last, to);
        let place = (self.at + first) as *mut c_void;
        // SAFETY: whole pages of our own private mapping: they read as zeroes afterwards. Kernels that access
        // them at the same time use memory that is being allocated.
        unsafe { libc::madvise(place, (last - first) as usize, libc::MADV_DONTNEED) };
    }

    /// The word at an offset in the cells.
    fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset < self.bytes as u64, "a cell");
        let at = ptr::with_exposed_provenance::<AtomicU64>((self.at + offset) as usize);
        // SAFETY: the offset lies in our mapping, which stays; kernels also access it atomically.
        unsafe { &*at }
    }

    /// The stamp of the block at an offset of the addresses.
    fn stamp(&self, offset: u64) -> &AtomicU64 {
        self.word(self.stamps + offset / BYTES * 8)
    }

    /// The rows of the block at an offset of the addresses.
    fn rows(&self, offset: u64) -> Block<'_> {
        let at = self.rows + offset / BYTES * rows::BYTES;
        Block(std::array::from_fn(|i| self.word(at + 8 * i as u64)))
    }

    /// Waits for the lock of the block at an offset of the addresses, as kernels do.
    fn hold(&self, block: u64) -> Held<'_> {
        let lock = self.rows(block).lock();
        let mut round = 0;
        while round < release::ROUNDS && lock.swap(1, Ordering::Acquire) != 0 {
            // The thread that has it may not be running.
            match round < release::SPINS {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
            round += 1;
        }
        Held { lock }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes runs for an execution; returns the first one. `None`: there are too many.
    fn take(
        &self,
        count: u32,
        execution: Execution,
        kernel: Option<(Arc<Watched>, u64)>,
    ) -> Option<u32> {
        if count >= cell::RUNS / 2 {
            collector::note("races are not looked for in launches of more than 8 million groups");
            return None;
        }
        let mut runs = self.runs();
        if runs.next() + count > cell::RUNS {
            collector::note(
                "there were more than 16 million groups: what is known of earlier accesses is forgotten",
            );
            runs.list.clear();
            for entry in self.releases.chunks((release::BYTES / 8) as usize) {
                entry[release::NEWEST as usize / 8].store(0, Ordering::Relaxed);
            }
            // SAFETY: our own private mapping, as in `forget`.
            unsafe { libc::madvise(self.at as *mut c_void, self.bytes, libc::MADV_DONTNEED) };
        }
        let first = runs.next();
        runs.list.push(Run { first, count, execution, kernel });
        Some(first)
    }

    /// The runs of an execution of a launch of `groups` groups that begins; the first one, or 0.
    pub fn begin(
        &self,
        watched: Arc<Watched>,
        launch: u64,
        groups: u32,
        execution: Execution,
    ) -> u32 {
        self.take(groups.max(1), execution, Some((watched, launch))).unwrap_or(0)
    }

    /// Whether the execution of a run is ordered before that of another one, in the form that kernels ask for.
    /// `ask`: whether an execution is ordered before another one.
    pub fn is_ordered(
        &self,
        run: u32,
        mine: u32,
        ask: impl FnOnce(Execution, Execution) -> bool,
    ) -> u64 {
        let runs = self.runs();
        let (Some(other), Some(mine)) = (runs.find(run).cloned(), runs.find(mine).cloned()) else {
            return ordered::YES | 1 << ordered::COUNT | u64::from(run);
        };
        drop(runs);
        let yes = if ask(other.execution, mine.execution) { ordered::YES } else { 0 };
        yes | u64::from(other.count) << ordered::COUNT | u64::from(other.first)
    }

    /// The origin of an access.
    pub fn who(&self, entry: u64) -> Option<Who> {
        let run = run_of(entry);
        let found = self.runs().find(run)?.clone();
        let site = bits(entry, cell::SITE, cell::LAST_SITE.count_ones());
        let kernel = found.kernel.map(|(watched, launch)| InKernel {
            watched,
            launch,
            group: run - found.first,
            item: bits(entry, cell::ITEM, 10),
            site: (site != cell::LAST_SITE).then_some(site),
        });
        let has = |bit| entry & bit != 0;
        let (writes, atomic) = (has(cell::WRITES), has(cell::ATOMIC));
        Some(Who { execution: found.execution, writes, atomic, kernel })
    }

    /// An execution of a command reads or writes a range of bytes: the earlier accesses that race with it, each
    /// place once. `ask`: whether an execution is ordered before another one.
    pub fn access(
        &self,
        address: u64,
        size: u64,
        kind: Access,
        execution: Execution,
        ask: impl Fn(Execution, Execution) -> bool,
    ) -> Vec<Raced> {
        let kind = if kind == Access::Write { cell::WRITES } else { 0 };
        self.enter(address, size, kind, execution, ask)
    }

    /// The program reads or writes a byte. It may do so atomically, so it does not race with atomics of kernels.
    pub fn access_by_host(
        &self,
        address: u64,
        writes: bool,
        execution: Execution,
        ask: impl Fn(Execution, Execution) -> bool,
    ) -> Vec<Raced> {
        let kind = if writes { cell::WRITES | cell::ATOMIC } else { cell::ATOMIC };
        self.enter(address, 1, kind, execution, ask)
    }

    /// Whether a kernel has accessed a word in a range of memory atomically, in an execution that `counts`.
    pub fn has_atomics(&self, address: u64, size: u64, counts: impl Fn(Execution) -> bool) -> bool {
        let offset = address.wrapping_sub(self.addresses.start);
        if offset > self.addresses.mask {
            return false;
        }
        let end = (offset + size).min(self.addresses.mask + 1);
        let mut known: Vec<(u32, bool)> = Vec::new();
        let mut does = |run: u32| {
            if let Some(it) = known.iter().find(|it| it.0 == run) {
                return it.1;
            }
            let found = self.runs().find(run).cloned();
            let does = found.is_some_and(|it| it.kernel.is_some() && counts(it.execution));
            known.push((run, does));
            does
        };
        let per = cell::BYTES / 4;
        (offset / 4 * 4 * per..end * per).step_by(8).any(|at| {
            let entry = self.word(at).load(Ordering::Relaxed);
            // What has no run is the value of the last store.
            entry & cell::ATOMIC != 0 && run_of(entry) != 0 && does(run_of(entry))
        })
    }

    fn enter(
        &self,
        address: u64,
        size: u64,
        kind: u64,
        execution: Execution,
        ask: impl Fn(Execution, Execution) -> bool,
    ) -> Vec<Raced> {
        let mut raced: Vec<(u64, Raced)> = Vec::new();
        let offset = address.wrapping_sub(self.addresses.start);
        if execution == Execution::NONE || offset > self.addresses.mask || size == 0 {
            return Vec::new();
        }
        let end = (offset + size).min(self.addresses.mask + 1);
        let Some(run) = self.run_of_command(execution) else { return Vec::new() };
        let new = kind | u64::from(run) << cell::RUN;
        let mut known = Answers { cells: self, execution, ask: &ask, last: None };
        for block in (offset / BYTES * BYTES..end).step_by(BYTES as usize) {
            let _held = self.hold(block);
            let (rows, range) = (self.rows(block), offset.max(block)..end.min(block + BYTES));
            if self.stamp(block).load(Ordering::Relaxed) & rows::IN_CELLS != 0 {
                for word in (range.start & !3..range.end).step_by(4) {
                    let mask = (0..4).filter(|i| range.contains(&(word + i)));
                    let mask = mask.fold(0, |mask, i| mask | 1 << i);
                    self.access_word(word, new | mask, &mut known, &mut raced);
                }
                continue;
            }
            let is_before = |run| known.is_before(run);
            let fits =
                rows.access(new, bytes_in(block, &range), is_before, |number, row, bytes| {
                    for byte in (0..BYTES).filter(|byte| bytes >> byte & 1 != 0) {
                        let at = self.addresses.start + block + byte;
                        self.add(&mut raced, at, self.entry(block, (number, row), byte), 1);
                    }
                });
            if !fits {
                collector::note(collector::DROPPED);
            }
        }
        raced.into_iter().map(|(_, raced)| raced).collect()
    }

    /// The entry of a block's row, which has a number, for a byte.
    fn entry(&self, block: u64, (number, row): (u64, u64), byte: u64) -> u64 {
        let entry = rows::entry(row, byte);
        if row & rows::SITES_APART == 0 {
            return entry;
        }
        let word = 16 * number + byte / 4;
        let at = self.places + block / BYTES * rows::PLACES + word / 4 * 8;
        let places = self.word(at).load(Ordering::Relaxed);
        entry | (places >> (word % 4 * 16) & 0xffff) << cell::SITE
    }

    /// An access to some bytes of a word by its cell, which counts.
    fn access_word(
        &self,
        word: u64,
        new: u64,
        known: &mut Answers<'_>,
        raced: &mut Vec<(u64, Raced)>,
    ) {
        let at = word * (cell::BYTES / 4);
        // An entry or the value of the last store.
        let last = at + 8 * (cell::ENTRIES as u64 - 1);
        let (mut free, mut earlier, mut is_there) = (None, None, false);
        for entry in (0..cell::ENTRIES as u64).map(|i| at + 8 * i) {
            let old = self.word(entry).load(Ordering::Relaxed);
            if run_of(old) == 0 {
                free = free.or(Some(entry).filter(|&entry| entry != last));
                continue;
            }
            let is_before = run_of(old) == run_of(new) || known.is_before(run_of(old));
            if is_before && replaces(new, old) {
                // The first such entry is taken, and further ones are not needed any more.
                let value = if mem::replace(&mut is_there, true) { 0 } else { new };
                self.word(entry).store(value, Ordering::Relaxed);
            } else if !is_before && conflict(new, old) {
                let both = new & old & cell::MASK;
                let first = self.addresses.start + word + u64::from(both.trailing_zeros());
                self.add(raced, first, old, both.count_ones());
            } else if is_before {
                earlier = earlier.or(Some(entry));
            }
        }
        if !is_there {
            let place = free.unwrap_or_else(|| {
                if run_of(self.word(last).load(Ordering::Relaxed)) == 0 {
                    return last;
                }
                collector::note(collector::DROPPED);
                // What comes before races with least of what follows.
                earlier.unwrap_or(last)
            });
            self.word(place).store(new, Ordering::Relaxed);
        }
        if new & cell::WRITES != 0 && run_of(self.word(last).load(Ordering::Relaxed)) == 0 {
            self.word(last).store(0, Ordering::Relaxed);
        }
    }

    /// Adds an access that races: one from the same place makes that one longer.
    fn add(&self, raced: &mut Vec<(u64, Raced)>, address: u64, entry: u64, bytes: u32) {
        let place =
            entry & (u64::from(cell::LAST_SITE) << cell::SITE | cell::WRITES | cell::ATOMIC);
        let Some(other) = self.who(entry) else { return };
        let same =
            |it: &&mut (u64, Raced)| it.0 == place && it.1.other.execution == other.execution;
        match raced.iter_mut().find(same) {
            Some((_, it)) if it.address + it.size == address => it.size += u64::from(bytes),
            Some(_) => {}
            None => raced.push((place, Raced { address, size: bytes.into(), other })),
        }
    }

    /// The run of a command that is no kernel. Its reads and writes share it.
    fn run_of_command(&self, execution: Execution) -> Option<u32> {
        let runs = self.runs();
        let last = runs.list.iter().rev().take(64);
        let found = last.filter(|run| run.kernel.is_none()).find(|run| run.execution == execution);
        if let Some(run) = found {
            return Some(run.first);
        }
        drop(runs);
        self.take(1, execution, None)
    }
}

/// The lock of a block.
struct Held<'a> {
    lock: &'a AtomicU32,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.store(0, Ordering::Release);
    }
}

/// Answers about other executions; the last one is remembered.
struct Answers<'a> {
    cells: &'a Cells,
    execution: Execution,
    ask: &'a dyn Fn(Execution, Execution) -> bool,
    last: Option<(u32, u32, bool)>,
}

impl Answers<'_> {
    fn is_before(&mut self, run: u32) -> bool {
        if let Some((first, count, answer)) = self.last
            && run.wrapping_sub(first) < count
        {
            return answer;
        }
        let Some(found) = self.cells.runs().find(run).cloned() else { return true };
        let answer = (self.ask)(found.execution, self.execution);
        self.last = Some((found.first, found.count, answer));
        answer
    }
}

/// Maps private zero pages; with an address, over existing ones.
fn map(at: *mut c_void, bytes: usize, fixed: i32) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: without a fixed address no existing mapping is replaced.
    let at = unsafe { libc::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    // They would be most of a core file. A system that cannot leave them out writes larger ones.
    // SAFETY: this is our own mapping.
    unsafe { libc::madvise(at, bytes, libc::MADV_DONTDUMP) };
    Some(at as u64)
}

#[cfg(test)]
mod tests {
    use tally_uapi::PAGE_SIZE;

    use super::*;
    use crate::space::Space;

    fn cells() -> (Cells, u64) {
        let space = Space::reserve(Some(64 << 20), PAGE_SIZE, 1 << 47).expect("addresses");
        (Cells::new(Addresses::of(&space)).expect("room"), space.start())
    }

    /// Executions with odd numbers are ordered among each other, and so are those with even ones.
    fn parity(a: Execution, b: Execution) -> bool {
        a.0 % 2 == b.0 % 2
    }

    #[test]
    fn commands_that_nothing_orders_race_where_they_overlap() {
        let (cells, start) = cells();
        let access = |at: u64, size: u64, kind, by: u32| -> Vec<(u64, u64, u32, bool)> {
            let found = cells.access(start + at, size, kind, Execution(by), parity);
            found
                .into_iter()
                .map(|it| (it.address - start, it.size, it.other.execution.0, it.other.writes))
                .collect()
        };
        assert_eq!(access(10, 100, Access::Write, 1), []);
        assert_eq!(access(0, 10, Access::Write, 2), [], "they touch no common byte");
        assert_eq!(access(109, 4, Access::Read, 2), [(109, 1, 1, true)]);
        assert_eq!(access(10, 100, Access::Read, 3), [], "ordered, or both read");
        assert_eq!(access(50, 4, Access::Read, 4), [(50, 4, 1, true)]);
        assert_eq!(access(48, 8, Access::Write, 5), [(50, 4, 4, false)]);
        assert_eq!(access(300, 8, Access::Read, 1), []);
        assert_eq!(access(300, 8, Access::Read, 2), [], "both read");
        cells.forget(start, 200);
        assert_eq!(access(0, 200, Access::Write, 6), []);
    }

    /// A full cell gives up what comes before the new access, and keeps what nothing orders.
    #[test]
    fn what_nothing_orders_is_forgotten_last() {
        let (cells, start) = cells();
        let access = |at: u64, kind, by: u32| -> Vec<u32> {
            let found = cells.access(start + at, 1, kind, Execution(by), parity);
            found.into_iter().map(|it| it.other.execution.0).collect()
        };
        cells.stamp(0).store(rows::IN_CELLS, Ordering::Relaxed);
        for (at, by) in [(0, 1), (1, 3), (2, 2), (3, 4)] {
            assert!(access(at, Access::Write, by).is_empty());
        }
        assert!(access(0, Access::Read, 5).is_empty(), "it takes the place of 1");
        assert_eq!(access(3, Access::Write, 7), [4]);
    }

    #[test]
    fn an_execution_without_an_order_races_with_nothing() {
        let (cells, start) = cells();
        let access = |by| cells.access(start, 8, Access::Write, by, |_, _| false).len();
        assert_eq!([Execution(1), Execution::NONE, Execution(1)].map(access), [0, 0, 0]);
        assert_eq!(access(Execution(2)), 1);
    }

    #[test]
    fn the_hosts_accesses_race_with_what_is_not_atomic() {
        let (cells, start) = cells();
        let host = |at: u64, writes, by: u32| {
            cells.access_by_host(start + at, writes, Execution(by), parity).len()
        };
        let command = |at: u64, kind, by: u32| {
            let found = cells.access(start + at, 4, kind, Execution(by), parity);
            let short = |it: Raced| (it.address - start, it.size, it.other.writes);
            found.into_iter().map(short).collect::<Vec<_>>()
        };
        let none = Vec::new();
        assert_eq!((host(5, false, 1), host(5, true, 2)), (0, 0), "the host's own");
        assert_eq!(command(4, Access::Read, 4), none, "both even");
        assert_eq!(command(4, Access::Read, 3), [(5, 1, true)]);
        assert_eq!(host(7, false, 5) + host(7, true, 4), 1, "what is read is written");
        assert_eq!(host(6, true, 4), 1);
        assert!(!cells.has_atomics(start, 64, |_| true), "no kernel was there");
    }

    #[test]
    fn large_memory_is_forgotten() {
        let (cells, start) = cells();
        let access = |by: u32| {
            let found = cells.access(start, 1 << 20, Access::Write, Execution(by), parity);
            found.into_iter().map(|it| it.size).sum::<u64>()
        };
        assert_eq!(access(1), 0);
        assert_eq!(access(2), 1 << 20);
        cells.forget(start + 4, (1 << 20) - 4);
        assert_eq!(access(3), 4);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy of the application's memory, and what has changed since it was made.
//!
//! A page of the copy that is missing stands for zeros, which is what new memory holds, so memory that nothing
//! touches costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use tally_uapi::PAGE_SIZE;

use super::touches::Touches;
use crate::recording::{Bytes, Record, Written, hash};
use crate::space;

const PAGE: usize = PAGE_SIZE as usize;
/// The most bytes of memory in one record.
const PART: u64 = 1 << 20;

type Page = Box<[u8; PAGE]>;

/// One allocation.
struct Piece {
    size: u64,
    /// The object to which it belongs: a context or a module.
    owner: u32,
    /// A module's variables, which any of its kernels may write.
    is_variables: bool,
    copy: Vec<Option<Page>>,
    /// Pages that the device has written at some time.
    written: BTreeSet<usize>,
    /// Pages that the device has written since the last time that all work was complete.
    fresh: BTreeSet<usize>,
}

/// All memory that is recorded.
#[derive(Default)]
pub struct Memory {
    pieces: BTreeMap<u64, Piece>,
    /// Ranges whose content differs from run to run: times.
    clocks: BTreeMap<u64, u64>,
    /// Words of the application's that commands wait for, and whether they add to them.
    words: BTreeMap<u64, bool>,
}

/// A page that has changed.
struct Change<'a> {
    address: u64,
    old: Option<&'a [u8; PAGE]>,
    new: Page,
    bytes: usize,
}

impl Memory {
    /// Adds the variables of a module. A replay has the same content without being told.
    pub fn add_variables(&mut self, base: u64, size: u64, module: u32) {
        self.add(base, size, module, true);
        if let Some(piece) = self.pieces.get_mut(&base) {
            piece.is_variables = true;
        }
    }

    /// Adds an allocation. `known`: a replay has the same content without being told.
    pub fn add(&mut self, base: u64, size: u64, owner: u32, known: bool) {
        let pages = size.div_ceil(PAGE_SIZE) as usize;
        let copy = std::iter::repeat_with(|| None).take(pages).collect();
        let (written, fresh) = (BTreeSet::new(), BTreeSet::new());
        let is_variables = false;
        self.pieces.insert(base, Piece { size, owner, is_variables, copy, written, fresh });
        if known && let Some(piece) = self.pieces.get_mut(&base) {
            piece.compare(base, |_, _| {});
        }
    }

    /// Forgets an allocation; its owner and size, if there was one.
    pub fn remove(&mut self, base: u64) -> Option<(u32, u64)> {
        let piece = self.pieces.remove(&base)?;
        let end = base + piece.size;
        self.clocks.retain(|&at, _| at < base || at >= end);
        self.words.retain(|&at, _| at < base || at >= end);
        Some((piece.owner, piece.size))
    }

    /// Forgets what belongs to an owner.
    pub fn remove_of(&mut self, owner: u32) {
        self.pieces.retain(|_, piece| piece.owner != owner);
    }

    /// Forgets what lies in a range.
    pub fn remove_within(&mut self, start: u64, size: u64) {
        let end = start.saturating_add(size);
        self.pieces.retain(|&base, _| base < start || base >= end);
    }

    /// First address of the allocation that contains an address.
    pub fn base_of(&self, address: u64) -> Option<u64> {
        let (&base, piece) = self.pieces.range(..=address).next_back()?;
        (address - base < piece.size).then_some(base)
    }

    /// Takes what can only be the device's into the copy: counters that commands raise, and ranges that they copy to.
    pub fn take_ranges(&mut self, touches: &Touches) {
        for &(start, end) in &touches.ranges {
            let Some((&base, piece)) = self.pieces.range_mut(..=start).next_back() else {
                continue;
            };
            piece.take(base, start - base, (end - base).min(piece.size));
        }
    }

    /// Notes that a range gets times, which are not compared.
    pub fn is_clock(&mut self, address: u64, size: u64) {
        let before = self.clocks.entry(address).or_default();
        *before = size.max(*before);
    }

    /// Notes a word that commands wait for; whether they add to it.
    pub fn is_word(&mut self, address: u64, adds: bool) {
        if self.base_of(address).is_none() || !address.is_multiple_of(8) {
            return;
        }
        *self.words.entry(address).or_default() |= adds;
    }

    /// Words that the device or the host has changed, those first that only the host is known to change.
    pub fn changed_words(&mut self) -> Vec<Record> {
        let mut changed = Vec::new();
        for (&base, piece) in &mut self.pieces {
            for (page, at, was) in piece.words(base, &self.words) {
                let address = base + page as u64 * PAGE_SIZE + at as u64;
                let place = space::pointer(address).cast::<AtomicU64>();
                // SAFETY: as in `compare`; words are aligned.
                let value = unsafe { (*place).load(Ordering::Acquire) };
                if value == u64::from_le_bytes(was) {
                    continue;
                }
                let copy = piece.copy[page].get_or_insert_with(|| Box::new([0; PAGE]));
                copy[at..at + 8].copy_from_slice(&value.to_le_bytes());
                piece.written.insert(page);
                piece.fresh.insert(page);
                let adds = self.words.get(&address);
                changed.push((adds, Record::Word { address, value, how: Written::Left }));
            }
        }
        changed.sort_by_key(|it| it.0);
        changed.into_iter().map(|it| it.1).collect()
    }

    /// What the host has changed, but for memory that commands touch and variables of modules, if some run: the device
    /// may have changed that.
    pub fn by_host(&mut self, touches: Option<&Touches>, add: impl FnMut(Record)) {
        self.changed_by_host(touches, false, add);
    }

    /// What a host function has changed: byte by byte, since a replay may call it while other commands run.
    pub fn by_function(&mut self, add: impl FnMut(Record)) {
        self.changed_by_host(None, true, add);
    }

    fn changed_by_host(
        &mut self,
        touches: Option<&Touches>,
        bytewise: bool,
        mut add: impl FnMut(Record),
    ) {
        let mut words = Vec::new();
        let untouched = |&(&base, ref piece): &(&u64, &mut Piece)| {
            touches.is_none_or(|it| !piece.is_variables && !it.contains(base))
        };
        for (&base, piece) in self.pieces.iter_mut().filter(untouched) {
            let mut whole = Whole::default();
            let written = std::mem::take(&mut piece.written);
            piece.compare(base, |page, mut change| {
                let has_words = change.take_words(&self.words, &mut words);
                if !bytewise && !has_words && !written.contains(&page) {
                    whole.extend(change, &mut add);
                    return;
                }
                whole.end(&mut add);
                let masked = change.masked();
                if masked.bytes() != 0 {
                    add(masked.by_host());
                }
            });
            whole.end(&mut add);
            piece.written = written;
        }
        // What waits for one of them finds all else.
        words.into_iter().for_each(add);
    }

    /// Takes what the device has changed into the copy. Other memory than commands `touch` was not its.
    /// `either` gets what the host may have changed just as well.
    pub fn by_device(&mut self, touches: &Touches, mut either: Option<&mut Vec<Masked>>) {
        let touched =
            |&(&base, ref piece): &(&u64, &mut Piece)| piece.is_variables || touches.contains(base);
        for (&base, piece) in self.pieces.iter_mut().filter(touched) {
            let mut changed = BTreeSet::new();
            // If the host may have changed them, `changed_words` has told all that is known.
            let words = if either.is_some() { piece.words(base, &self.words) } else { Vec::new() };
            piece.compare(base, |page, mut change| {
                changed.insert(page);
                if let Some(either) = &mut either {
                    change.take_words(&self.words, &mut Vec::new());
                    either.extend(Some(change.masked()).filter(|it| it.bytes() != 0));
                }
            });
            piece.written.extend(&changed);
            piece.fresh.extend(changed);
            for (page, at, word) in words {
                let copy = piece.copy[page].get_or_insert_with(|| Box::new([0; PAGE]));
                copy[at..at + 8].copy_from_slice(&word);
            }
        }
        self.take_ranges(touches);
    }

    /// What the device has changed since the last time, now that all work is complete.
    pub fn expected(&mut self, mut add: impl FnMut(Record)) {
        for (&base, piece) in &mut self.pieces {
            let mut pages = std::mem::take(&mut piece.fresh).into_iter().peekable();
            while let Some(first) = pages.next() {
                let mut last = first;
                while pages.next_if_eq(&(last + 1)).is_some() {
                    last += 1;
                }
                let start = base + first as u64 * PAGE_SIZE;
                let end = base + ((last as u64 + 1) * PAGE_SIZE).min(piece.size);
                let mut bytes = Vec::with_capacity((end - start) as usize);
                for page in &piece.copy[first..=last] {
                    bytes.extend_from_slice(page.as_ref().map_or(&[0; PAGE], |page| &**page));
                }
                bytes.truncate((end - start) as usize);
                // What lies between the times.
                let mut at = start;
                let clocks =
                    self.clocks.range(..end).filter(|&(&clock, &size)| clock + size > start);
                let clocks: Vec<_> = clocks.map(|(&clock, &size)| (clock, clock + size)).collect();
                for (clock, until) in clocks.into_iter().chain([(end, end)]) {
                    if clock > at {
                        let part = &bytes[(at - start) as usize..(clock - start) as usize];
                        add(Record::Expect { address: at, size: clock - at, hash: hash(part) });
                    }
                    at = at.max(until.min(end));
                }
            }
        }
    }
}

impl Piece {
    /// The words in it, as the copy has them: page, offset, bytes.
    fn words(&self, base: u64, words: &BTreeMap<u64, bool>) -> Vec<(usize, usize, [u8; 8])> {
        let within = words.range(base..base + self.size);
        let place = |(&address, _)| {
            let (page, at) = ((address - base) / PAGE_SIZE, (address - base) % PAGE_SIZE);
            let (page, at) = (page as usize, at as usize);
            let word = match &self.copy[page] {
                Some(copy) => std::array::from_fn(|i| copy[at + i]),
                None => [0; 8],
            };
            (page, at, word)
        };
        within.map(place).collect()
    }

    /// Takes a range, given by offsets, into the copy.
    fn take(&mut self, base: u64, mut at: u64, end: u64) {
        while at < end {
            let (page, from) = ((at / PAGE_SIZE) as usize, (at % PAGE_SIZE) as usize);
            let bytes = (PAGE - from).min((end - at) as usize);
            let mut new = [0; PAGE];
            // SAFETY: as in `compare`.
            unsafe { new.as_mut_ptr().copy_from_nonoverlapping(space::pointer(base + at), bytes) };
            let copy = self.copy[page].get_or_insert_with(|| Box::new([0; PAGE]));
            if copy[from..from + bytes] != new[..bytes] {
                copy[from..from + bytes].copy_from_slice(&new[..bytes]);
                self.written.insert(page);
                self.fresh.insert(page);
            }
            at += bytes as u64;
        }
    }

    /// Calls `changed` for each page that differs from the copy, and takes it into the copy.
    fn compare(&mut self, base: u64, mut changed: impl FnMut(usize, Change<'_>)) {
        const ZEROS: [u8; PAGE] = [0; PAGE];
        let touched = touched(base, self.copy.len());
        for (page, place) in self.copy.iter_mut().enumerate() {
            if place.is_none() && touched.get(page) == Some(&0) {
                continue;
            }
            let offset = page as u64 * PAGE_SIZE;
            let bytes = (self.size - offset).min(PAGE_SIZE) as usize;
            let from = space::pointer(base + offset);
            let old: &[u8; PAGE] = place.as_deref().unwrap_or(&ZEROS);
            // SAFETY: the allocation is mapped as long as it is in the table, since calls that free it go
            // through the recorder. Others may write it meanwhile, which is why no reference is made to it.
            let same = unsafe { libc::memcmp(from.cast(), old.as_ptr().cast(), bytes) } == 0;
            if same {
                continue;
            }
            let mut new: Page = Box::new([0; PAGE]);
            // SAFETY: as above.
            unsafe { new.as_mut_ptr().copy_from_nonoverlapping(from, bytes) };
            let old = place.replace(new.clone());
            changed(page, Change { address: base + offset, old: old.as_deref(), new, bytes });
        }
    }
}

/// For each page, whether the system has memory for it; empty if that is unknown.
fn touched(base: u64, pages: usize) -> Vec<u8> {
    let mut touched = vec![0; pages];
    // SAFETY: the vector has a byte for each page.
    let known = unsafe {
        libc::mincore(space::pointer(base).cast(), pages * PAGE, touched.as_mut_ptr()) == 0
    };
    // A page that was swapped out before it was ever compared is taken for zeros, which can only happen to memory
    // that has been written and not been looked at for long.
    if known { touched } else { Vec::new() }
}

/// Bytes of a page that have changed.
#[derive(Default)]
pub struct Masked {
    address: u64,
    mask: Vec<u8>,
    old: Vec<u8>,
    data: Vec<u8>,
}

impl Masked {
    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// The record of bytes that the host has changed.
    fn by_host(self) -> Record {
        let (mask, data) = (Bytes(self.mask), Bytes(self.data));
        Record::Memory { address: self.address, mask, data }
    }

    /// That of bytes that the host or the device has changed; `settled`: the device had nothing left that it could
    /// run.
    pub fn by_either(self, settled: bool) -> Record {
        let Self { address, mask, old, data } = self;
        Record::Either { settled, address, mask: Bytes(mask), old: Bytes(old), data: Bytes(data) }
    }
}

impl Change<'_> {
    /// Takes the words of the application's out of the change; whether there are any on the page.
    fn take_words(&mut self, words: &BTreeMap<u64, bool>, changed: &mut Vec<Record>) -> bool {
        let end = self.address + self.bytes as u64;
        let mut has_some = false;
        for (&address, &adds) in words.range(self.address..end) {
            has_some = true;
            let place = (address - self.address) as usize;
            let Some(new) = self.new.get(place..place + 8) else { continue };
            let was = self.old.map_or([0; 8], |old| std::array::from_fn(|i| old[place + i]));
            let value = new.try_into().map_or(0, u64::from_le_bytes);
            let before = u64::from_le_bytes(was);
            if value != before {
                changed.push(match adds {
                    true => {
                        let value = value.wrapping_sub(before);
                        Record::Word { address, value, how: Written::Added }
                    }
                    false => Record::Word { address, value, how: Written::Stored },
                });
                self.new[place..place + 8].copy_from_slice(&was);
            }
        }
        has_some
    }

    /// Only the bytes that have changed: the device may write the others while a replay writes these.
    fn masked(&self) -> Masked {
        let mut masked = Masked { address: self.address, ..Masked::default() };
        masked.mask = vec![0; self.bytes.div_ceil(8)];
        for (i, &byte) in self.new[..self.bytes].iter().enumerate() {
            let old = self.old.map_or(0, |old| old[i]);
            if old != byte {
                masked.mask[i / 8] |= 1 << (i % 8);
                masked.old.push(old);
                masked.data.push(byte);
            }
        }
        masked
    }
}

/// Neighbouring pages that no command has written, which are recorded as they are.
#[derive(Default)]
struct Whole {
    address: u64,
    data: Vec<u8>,
}

impl Whole {
    fn extend(&mut self, change: Change<'_>, add: &mut impl FnMut(Record)) {
        let end = self.address + self.data.len() as u64;
        if end != change.address || self.data.len() as u64 >= PART {
            self.end(add);
            self.address = change.address;
        }
        self.data.extend_from_slice(&change.new[..change.bytes]);
    }

    fn end(&mut self, add: &mut impl FnMut(Record)) {
        if !self.data.is_empty() {
            let data = Bytes(std::mem::take(&mut self.data));
            add(Record::Memory { address: self.address, mask: Bytes::default(), data });
        }
    }
}

/// Reads the program's own memory; `None`: it is not readable.
pub fn read(address: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: space::pointer(address).cast(), iov_len: bytes.len() };
    // SAFETY: the call writes no more than the vector has, and answers EFAULT where nothing can be read.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (got == bytes.len() as isize).then_some(bytes)
}

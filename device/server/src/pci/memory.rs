// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's memory that the VMM lends: ranges of bus addresses, each a part of
//! a file.
//!
//! A VMM describes the memory piece by piece, and changes it often while firmware
//! runs: ranges are split, shrunk, laid over each other, or have no file at all
//! (ROMs). The same file may arrive repeatedly under new descriptors; files are
//! identified by device and inode, and each is mapped once, as a whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tally_engine::MAX_FILES;
use tally_uapi::PAGE_SIZE;

use crate::machine::View;

/// A file that holds memory of the guest, mapped.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
    identity: (u64, u64),
    base: NonNull<u8>,
    bytes: u64,
    writable: bool,
}

// SAFETY: the mapping belongs to the process, and is only reached through
// atomics (`View`).
unsafe impl Send for MemoryFile {}
// SAFETY: as above.
unsafe impl Sync for MemoryFile {}

impl MemoryFile {
    fn new(file: File, identity: (u64, u64), bytes: u64) -> io::Result<Self> {
        let map = |protection| {
            // SAFETY: a fresh mapping of a file; nothing that exists is touched.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes as usize,
                    protection,
                    libc::MAP_SHARED | libc::MAP_NORESERVE,
                    file.as_raw_fd(),
                    0,
                )
            };
            match NonNull::new(base.cast::<u8>()) {
                Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(base),
                _ => Err(io::Error::last_os_error()),
            }
        };
        let (base, writable) = match map(libc::PROT_READ | libc::PROT_WRITE) {
            Ok(base) => (base, true),
            Err(_) => (map(libc::PROT_READ)?, false),
        };
        Ok(Self { file, identity, base, bytes, writable })
    }

    /// The file itself, for passing to an engine process.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        // SAFETY: our own mapping; every view of it holds the file.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes as usize) };
    }
}

/// The part of a file that a range of bus addresses refers to.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The file.
    pub file: Arc<MemoryFile>,
    /// The offset in it, in bytes.
    pub offset: u64,
    /// The number of bytes in it.
    pub bytes: u64,
}

#[derive(Clone, Debug)]
struct Region {
    bytes: u64,
    /// The file and the offset in it. None: the range is not memory that we can access.
    source: Option<(Arc<MemoryFile>, u64)>,
    writable: bool,
}

#[derive(Debug, Default)]
struct Table {
    /// The regions by their first bus address; they do not overlap.
    regions: BTreeMap<u64, Region>,
    files: Vec<Arc<MemoryFile>>,
}

/// The guest's memory.
#[derive(Debug, Default)]
pub struct GuestMemory {
    table: RwLock<Table>,
}

impl GuestMemory {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `bytes` that the VMM lends at bus address `address`, over earlier
    /// ranges. Without a file, or with one that is too short or cannot be mapped,
    /// the range cannot be accessed.
    ///
    /// # Errors
    /// The range is empty, unaligned, or leaves the address space.
    pub fn insert(
        &self,
        address: u64,
        bytes: u64,
        offset: u64,
        file: Option<File>,
        writable: bool,
    ) -> io::Result<()> {
        let aligned = [address, bytes, offset].iter().all(|n| n.is_multiple_of(PAGE_SIZE));
        if !aligned || bytes == 0 || address.checked_add(bytes).is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut table = self.write();
        table.cut(address, bytes);
        let fits = |file: &MemoryFile| offset.checked_add(bytes).is_some_and(|e| e <= file.bytes);
        let file = file.and_then(|file| table.file(file).ok()).filter(|file| fits(file));
        let writable = writable && file.as_ref().is_some_and(|file| file.writable);
        let source = file.map(|file| (file, offset));
        table.regions.insert(address, Region { bytes, source, writable });
        Ok(())
    }

    /// Removes a range that the VMM takes back. Memory of it that a VM has mapped
    /// stays mapped until it is unmapped there.
    pub fn remove(&self, address: u64, bytes: u64) {
        let mut table = self.write();
        table.cut(address, bytes);
        table.forget_files();
    }

    /// Removes all ranges.
    pub fn clear(&self) {
        *self.write() = Table::default();
    }

    /// The files that the guest's memory consists of now.
    pub fn files(&self) -> Vec<Arc<MemoryFile>> {
        self.read().files.clone()
    }

    /// The parts of files that a range of bus addresses refers to, neighbours
    /// joined. None if any of it is not memory, or is not writable although
    /// `writable` is set.
    pub fn resolve(&self, address: u64, bytes: u64, writable: bool) -> Option<Vec<Piece>> {
        let end = address.checked_add(bytes).filter(|&end| end > address)?;
        let table = self.read();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = address;
        while at < end {
            let (&start, region) = table.regions.range(..=at).next_back()?;
            let (file, offset) = region.source.as_ref()?;
            let region_end = start + region.bytes;
            if at >= region_end || writable && !region.writable {
                return None;
            }
            let (offset, bytes) = (offset + (at - start), end.min(region_end) - at);
            match pieces.last_mut() {
                Some(last)
                    if Arc::ptr_eq(&last.file, file) && last.offset + last.bytes == offset =>
                {
                    last.bytes += bytes;
                }
                _ => pieces.push(Piece { file: Arc::clone(file), offset, bytes }),
            }
            at += bytes;
        }
        Some(pieces)
    }

    /// `count` shared words at a bus address. None if it is not page-aligned, or
    /// is not contiguous writable memory.
    pub fn words(&self, address: u64, count: usize) -> Option<View<[AtomicU64]>> {
        let (file, start) = self.piece(address, count as u64 * 8)?;
        // SAFETY: page-aligned, and in a mapping that the file keeps.
        Some(unsafe { View::new(start, count, file) })
    }

    fn piece(&self, address: u64, bytes: u64) -> Option<(Arc<MemoryFile>, NonNull<u8>)> {
        let pieces = self.resolve(address, bytes, true)?;
        let [Piece { file, offset, .. }] = &pieces[..] else { return None };
        if !address.is_multiple_of(PAGE_SIZE) {
            return None;
        }
        // SAFETY: `insert` has checked that the region, and so the piece, is
        // within the file, all of which is mapped.
        let start = unsafe { file.base.add(*offset as usize) };
        Some((Arc::clone(file), start))
    }
}

impl Table {
    /// Frees a range: drops the regions in it, and cuts regions that overlap it.
    fn cut(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        let from = match self.regions.range(..address).next_back() {
            Some((&start, region)) if start + region.bytes > address => start,
            _ => address,
        };
        let starts: Vec<u64> = self.regions.range(from..end).map(|(&start, _)| start).collect();
        for start in starts {
            let Some(region) = self.regions.remove(&start) else { continue };
            if start < address {
                self.regions.insert(start, region.part(0, address - start));
            }
            let region_end = start + region.bytes;
            if region_end > end {
                self.regions.insert(end, region.part(end - start, region_end - end));
            }
        }
    }

    /// The file, which may be known already.
    fn file(&mut self, file: File) -> io::Result<Arc<MemoryFile>> {
        let metadata = file.metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        // A file that has grown counts as another, so that views of the old mapping stay valid.
        let known = |it: &&Arc<MemoryFile>| it.identity == identity && it.bytes == metadata.len();
        if let Some(known) = self.files.iter().find(known) {
            return Ok(Arc::clone(known));
        }
        self.forget_files();
        if self.files.len() == MAX_FILES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = Arc::new(MemoryFile::new(file, identity, metadata.len())?);
        self.files.push(Arc::clone(&file));
        Ok(file)
    }

    /// Drops files that are not used any more.
    fn forget_files(&mut self) {
        self.files.retain(|file| Arc::strong_count(file) > 1);
    }
}

impl Region {
    fn part(&self, from: u64, bytes: u64) -> Self {
        let source = self.source.as_ref().map(|(file, offset)| (Arc::clone(file), offset + from));
        Self { bytes, source, writable: self.writable }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::sync::atomic::Ordering;

    use super::*;

    const PAGE: u64 = PAGE_SIZE;

    fn file(pages: u64) -> File {
        // SAFETY: a valid name; the descriptor is checked, and has no other owner.
        let fd = unsafe {
            let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        };
        let file = File::from(fd);
        file.set_len(pages * PAGE).unwrap();
        file
    }

    fn parts(memory: &GuestMemory, page: u64, pages: u64) -> Option<Vec<(u64, u64)>> {
        let pieces = memory.resolve(page * PAGE, pages * PAGE, true)?;
        Some(pieces.iter().map(|piece| (piece.offset / PAGE, piece.bytes / PAGE)).collect())
    }

    #[test]
    fn ranges_are_split_and_laid_over_each_other() {
        let (memory, ram) = (GuestMemory::default(), file(64));
        let lend = |page: u64, pages: u64, offset: u64, file: Option<&File>| {
            let file = file.map(|file| file.try_clone().unwrap());
            memory.insert(page * PAGE, pages * PAGE, offset * PAGE, file, true).unwrap();
        };
        lend(0, 32, 0, Some(&ram));
        lend(64, 32, 32, Some(&ram));
        assert_eq!(memory.files().len(), 1, "one file, however often it comes");
        assert_eq!(parts(&memory, 30, 2), Some(vec![(30, 2)]));
        assert_eq!(parts(&memory, 30, 3), None, "a hole");
        // A ROM without a file covers a part. When it is removed, that part is missing.
        lend(8, 4, 0, None);
        assert_eq!(parts(&memory, 7, 1), Some(vec![(7, 1)]));
        assert_eq!(parts(&memory, 8, 1), None);
        assert_eq!(parts(&memory, 12, 20), Some(vec![(12, 20)]));
        lend(8, 4, 8, Some(&ram));
        assert_eq!(parts(&memory, 0, 32), Some(vec![(0, 32)]), "neighbours are joined");
        memory.remove(4 * PAGE, 64 * PAGE);
        assert_eq!(parts(&memory, 0, 4), Some(vec![(0, 4)]));
        assert_eq!(parts(&memory, 3, 2), None);
        assert_eq!(parts(&memory, 68, 28), Some(vec![(36, 28)]));
        memory.clear();
        assert!(memory.files().is_empty() && parts(&memory, 0, 1).is_none());
    }

    #[test]
    fn a_file_that_is_too_short_is_no_memory() {
        let memory = GuestMemory::default();
        memory.insert(0, 8 * PAGE, 0, Some(file(4)), true).unwrap();
        assert_eq!(parts(&memory, 0, 1), None);
        for (address, bytes, offset) in [(1, PAGE, 0), (0, 0, 0), (0, PAGE, 8), (!0xfff, PAGE, 0)] {
            assert!(memory.insert(address, bytes, offset, Some(file(4)), true).is_err());
        }
    }

    #[test]
    fn what_cannot_be_written_is_not_lent_to_be_written() {
        let memory = GuestMemory::default();
        memory.insert(0, PAGE, 0, Some(file(1)), false).unwrap();
        assert!(memory.resolve(0, PAGE, false).is_some());
        assert!(memory.resolve(0, PAGE, true).is_none());
        assert!(memory.words(0, 1).is_none());
    }

    #[test]
    fn a_view_outlives_its_range() {
        let memory = GuestMemory::default();
        memory.insert(0, PAGE, 0, Some(file(1)), true).unwrap();
        let words = memory.words(0, 512).unwrap();
        assert!(memory.words(8, 1).is_none() && memory.words(0, 513).is_none());
        memory.remove(0, PAGE);
        words[511].store(7, Ordering::Relaxed);
        assert_eq!(words[511].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn there_is_a_bound_on_files() {
        let memory = GuestMemory::default();
        for i in 0..2 * MAX_FILES as u64 {
            memory.insert(i * PAGE, PAGE, 0, Some(file(1)), true).unwrap();
        }
        assert_eq!(memory.files().len(), MAX_FILES);
        memory.remove(0, PAGE);
        memory.insert(0, PAGE, 0, Some(file(1)), true).unwrap();
        assert!(memory.resolve(0, PAGE, true).is_some(), "a place was free again");
    }
}

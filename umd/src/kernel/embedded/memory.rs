// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of buffers: extents of a few large memfds, given back to the system
//! page by page when they are freed.
//!
//! A memfd needs no file system and no /dev/shm. Where a sandbox refuses it,
//! shared anonymous mappings take its place: mremap of zero bytes maps the same
//! pages again elsewhere.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::{Errno, bind_flag};

use super::Result;

/// Bytes of a pool: address room, not memory.
const POOL: u64 = 4 << 30;
/// Large extents are aligned to what the system can back with a huge page.
const HUGE_PAGE: u64 = 2 << 20;

/// All memory of the device.
pub(super) struct Memory {
    limit: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: u64,
    pools: Vec<Arc<Pool>>,
}

/// One memfd, or one anonymous mapping.
struct Pool {
    backing: Backing,
    size: u64,
    /// Free extents: offset to size.
    free: Mutex<BTreeMap<u64, u64>>,
}

enum Backing {
    File(OwnedFd),
    /// Start of a PROT_NONE shared mapping.
    Anonymous(usize),
}

/// A part of a pool. Its content is zero when it is made; freed on drop.
pub(super) struct Extent {
    memory: Arc<Memory>,
    pool: Arc<Pool>,
    offset: u64,
    size: u64,
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `size` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// ENOSPC: more than the device has. ENOMEM.
    pub(super) fn alloc(self: &Arc<Self>, size: u64) -> Result<Extent> {
        let mut state = self.state();
        let used = state.used.checked_add(size).filter(|&used| used <= self.limit);
        let used = used.ok_or(Errno::NoSpace)?;
        let found = state.pools.iter().find_map(|pool| Some((pool.clone(), pool.take(size)?)));
        let (pool, offset) = match found {
            Some(found) => found,
            None => {
                let whole = size.next_multiple_of(HUGE_PAGE);
                // Under a tight limit of address room there may be place for a small one.
                let pool = Pool::new(whole.max(POOL)).or_else(|_| Pool::new(whole))?;
                let pool = Arc::new(pool);
                let offset = pool.take(size).ok_or(Errno::NoMemory)?;
                state.pools.push(pool.clone());
                (pool, offset)
            }
        };
        state.used = used;
        Ok(Extent { memory: Arc::clone(self), pool, offset, size })
    }
}

impl Extent {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Maps a part for the access of [`bind_flag`], at an address (replacing
    /// what is there) or anywhere.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn map(
        &self,
        offset: u64,
        size: u64,
        access: u32,
        at: Option<u64>,
    ) -> Result<NonNull<u8>> {
        let protection = protection(access);
        let start = match &self.pool.backing {
            Backing::File(file) => {
                let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
                // SAFETY: with `at` the caller owns the range that is replaced
                // (the trait's contract); else nothing is replaced.
                unsafe {
                    libc::mmap(
                        at.unwrap_or(0) as *mut _,
                        size as usize,
                        protection,
                        libc::MAP_SHARED | fixed,
                        file.as_raw_fd(),
                        (self.offset + offset) as i64,
                    )
                }
            }
            Backing::Anonymous(base) => {
                let from = (*base as u64 + self.offset + offset) as *mut libc::c_void;
                // SAFETY: as above; `from` lies in the pool's shared mapping,
                // of which zero bytes are moved: a second mapping appears.
                unsafe {
                    let start = match at {
                        Some(at) => libc::mremap(
                            from,
                            0,
                            size as usize,
                            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                            at as *mut libc::c_void,
                        ),
                        None => libc::mremap(from, 0, size as usize, libc::MREMAP_MAYMOVE),
                    };
                    let mapped = start != libc::MAP_FAILED;
                    if mapped && libc::mprotect(start, size as usize, protection) != 0 {
                        libc::MAP_FAILED
                    } else {
                        start
                    }
                }
            }
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::NoMemory);
        }
        if size >= HUGE_PAGE {
            // SAFETY: advice on a mapping that was just made; a refusal costs speed only.
            unsafe { libc::madvise(start, size as usize, libc::MADV_HUGEPAGE) };
        }
        NonNull::new(start.cast()).ok_or(Errno::NoMemory)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let clean = self.pool.punch(self.offset, self.size);
        let mut state = self.memory.state();
        if clean {
            self.pool.give(self.offset, self.size);
            state.used -= self.size;
        } else {
            // What cannot be made zero again is not used again.
            log::error!("{} bytes of device memory cannot be given back", self.size);
        }
        // The first pool stays for the next buffer.
        if state.pools.len() > 1 && self.pool.is_empty() {
            state.pools.retain(|pool| !Arc::ptr_eq(pool, &self.pool));
        }
    }
}

impl Pool {
    fn new(size: u64) -> Result<Self> {
        let size = size.next_multiple_of(PAGE_SIZE);
        let backing = match memfd(size) {
            Some(file) => Backing::File(file),
            None => Backing::Anonymous(anonymous(size)?),
        };
        Ok(Self { backing, size, free: Mutex::new(BTreeMap::from([(0, size)])) })
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.free().get(&0) == Some(&self.size)
    }

    /// Takes the first free extent that is large enough.
    fn take(&self, size: u64) -> Option<u64> {
        let align = if size >= HUGE_PAGE { HUGE_PAGE } else { PAGE_SIZE };
        let mut free = self.free();
        let (start, length, offset) = free.iter().find_map(|(&start, &length)| {
            let offset = start.next_multiple_of(align);
            let end = offset.checked_add(size)?;
            (end <= start + length).then_some((start, length, offset))
        })?;
        free.remove(&start);
        if offset != start {
            free.insert(start, offset - start);
        }
        let (end, rest) = (offset + size, start + length - (offset + size));
        if rest != 0 {
            free.insert(end, rest);
        }
        Some(offset)
    }

    /// Gives an extent back, joining it with its neighbours.
    fn give(&self, mut offset: u64, mut size: u64) {
        let mut free = self.free();
        if let Some(next) = free.remove(&(offset + size)) {
            size += next;
        }
        if let Some((&start, &length)) = free.range(..offset).next_back()
            && start + length == offset
        {
            free.remove(&start);
            (offset, size) = (start, length + size);
        }
        free.insert(offset, size);
    }

    /// Gives the pages back to the system; they read as zero afterwards.
    fn punch(&self, offset: u64, size: u64) -> bool {
        match &self.backing {
            Backing::File(file) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: a system call on our own file; nobody has the extent mapped.
                unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, size as i64) == 0 }
            }
            Backing::Anonymous(base) => {
                let start = (*base as u64 + offset) as *mut libc::c_void;
                // SAFETY: a part of our own mapping, which nobody uses any more.
                // The system asks for a writable mapping while it is done.
                unsafe {
                    let access = libc::PROT_READ | libc::PROT_WRITE;
                    let writable = libc::mprotect(start, size as usize, access) == 0;
                    let gone = libc::madvise(start, size as usize, libc::MADV_REMOVE) == 0;
                    libc::mprotect(start, size as usize, libc::PROT_NONE);
                    writable && gone
                }
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Backing::Anonymous(base) = self.backing {
            // SAFETY: our own mapping; extents and bindings hold the pool.
            unsafe { libc::munmap(base as *mut _, self.size as usize) };
        }
    }
}

/// The protection of a mapping for the access of [`bind_flag`].
pub(super) fn protection(access: u32) -> i32 {
    let bits = [
        (bind_flag::READ, libc::PROT_READ),
        // x86 has no pages that can be written or executed but not read.
        (bind_flag::WRITE, libc::PROT_READ | libc::PROT_WRITE),
        (bind_flag::EXECUTE, libc::PROT_READ | libc::PROT_EXEC),
    ];
    bits.iter().filter(|(flag, _)| access & flag != 0).fold(0, |sum, (_, bits)| sum | bits)
}

/// A memfd whose size is sealed: mappings of it never see it shrink.
fn memfd(size: u64) -> Option<OwnedFd> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the struct. A file beyond the limit would raise SIGXFSZ.
    let limited = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    if limited && limit.rlim_cur < size {
        return None;
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag; it says that nobody will execve() it.
    const MFD_NOEXEC_SEAL: u32 = 8;
    let create = |flags| {
        // SAFETY: the name is a terminated string.
        let fd = unsafe { libc::memfd_create(c"tally".as_ptr(), flags) };
        // SAFETY: a new descriptor that nobody else has.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    };
    let file = create(flags | MFD_NOEXEC_SEAL).or_else(|| create(flags))?;
    // SAFETY: system calls on our own file.
    let sized = unsafe {
        let fd = file.as_raw_fd();
        let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        libc::ftruncate(fd, size as i64) == 0 && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
    };
    sized.then_some(file)
}

fn anonymous(size: u64) -> Result<usize> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping touches nothing that exists.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), size as usize, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(Errno::NoMemory);
    }
    Ok(start.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(limit: u64) -> Arc<Memory> {
        Arc::new(Memory::new(limit))
    }

    fn check_pool(pool: Pool) {
        let memory = memory(1 << 30);
        memory.state().pools.push(Arc::new(pool));
        let size = 3 * PAGE_SIZE;
        for round in 0..3 {
            let extent = memory.alloc(size).unwrap();
            let access = bind_flag::READ | bind_flag::WRITE;
            let one = extent.map(0, size, access, None).unwrap().as_ptr().cast::<u64>();
            let two = extent.map(PAGE_SIZE, PAGE_SIZE, access, None).unwrap();
            let two = two.as_ptr().cast::<u64>();
            // SAFETY: the mappings are whole, and unmapped at the end.
            unsafe {
                assert_eq!(one.add(512).read_volatile(), 0, "round {round}");
                one.add(512).write_volatile(0x1234);
                assert_eq!(two.read_volatile(), 0x1234);
                libc::munmap(one.cast(), size as usize);
                libc::munmap(two.cast(), PAGE_SIZE as usize);
            }
        }
    }

    #[test]
    fn memory_is_zero_shared_between_mappings_and_zero_again() {
        check_pool(Pool::new(1 << 20).unwrap());
    }

    #[test]
    fn without_memfd_anonymous_memory_does_the_same() {
        let size = 1 << 20;
        let backing = Backing::Anonymous(anonymous(size).unwrap());
        check_pool(Pool { backing, size, free: Mutex::new(BTreeMap::from([(0, size)])) });
    }

    #[test]
    fn freed_extents_join_and_the_limit_is_the_limit() {
        let memory = memory(8 * PAGE_SIZE);
        let parts: Vec<_> = (0..8).map(|_| memory.alloc(PAGE_SIZE).unwrap()).collect();
        assert_eq!(memory.alloc(PAGE_SIZE).map(|_| ()), Err(Errno::NoSpace));
        assert_eq!(memory.alloc(u64::MAX - 4095).map(|_| ()), Err(Errno::NoSpace));
        drop(parts);
        assert!(memory.state().pools[0].is_empty());
        assert!(memory.alloc(8 * PAGE_SIZE).is_ok());
    }
}

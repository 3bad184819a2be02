// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of buffers: extents of a few large memfds, given back to the system
//! page by page when they are freed.
//!
//! A process that imports a buffer gets the file that it lies in. So the
//! driver's own buffers and the user's are in different files, and buffers that
//! are made to be shared have one each.
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
use crate::kernel::{BoUse, SharedBo};

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
    /// Those from which several buffers are cut, and what for.
    pools: Vec<(BoUse, Arc<Pool>)>,
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
    pool: Arc<Pool>,
    offset: u64,
    size: u64,
    from: From,
}

/// Where an extent comes from, and goes when it is freed.
enum From {
    /// One of the pools.
    Pools(Arc<Memory>),
    /// A file of its own; the seals are still to be set if it is to be read only.
    OwnFile { memory: Arc<Memory>, read_only: bool },
    /// Another process.
    Elsewhere { read_only: bool },
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Bytes that buffers use.
    pub(super) fn used(&self) -> u64 {
        self.state().used
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `size` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// ENOSPC: more than the device has. ENOMEM.
    pub(super) fn alloc(self: &Arc<Self>, size: u64, bo_use: BoUse) -> Result<Extent> {
        let mut state = self.state();
        let used = state.used.checked_add(size).filter(|&used| used <= self.limit);
        let used = used.ok_or(Errno::NoSpace)?;
        let pools = state.pools.iter().filter(|(it, _)| *it == bo_use).map(|(_, pool)| pool);
        let found = pools.into_iter().find_map(|pool| Some((pool.clone(), pool.take(size)?)));
        let (pool, offset) = match found {
            Some(found) => found,
            None => {
                let whole = size.next_multiple_of(HUGE_PAGE);
                // Under a tight limit of address room there may be place for a small one.
                let pool = Pool::new(whole.max(POOL)).or_else(|_| Pool::new(whole))?;
                let pool = Arc::new(pool);
                let offset = pool.take(size).ok_or(Errno::NoMemory)?;
                state.pools.push((bo_use, pool.clone()));
                (pool, offset)
            }
        };
        state.used = used;
        Ok(Extent { pool, offset, size, from: From::Pools(Arc::clone(self)) })
    }

    /// The same in a file of its own. `read_only`: for all but those that map it before it is
    /// exported for the first time.
    ///
    /// # Errors
    /// As [`Memory::alloc`].
    pub(super) fn alloc_file(self: &Arc<Self>, size: u64, read_only: bool) -> Result<Extent> {
        let mut state = self.state();
        let used = state.used.checked_add(size).filter(|&used| used <= self.limit);
        state.used = used.ok_or(Errno::NoSpace)?;
        drop(state);
        let pool = match memfd(size, read_only) {
            Some(file) => Ok(Pool::over(Backing::File(file), size)),
            None => Pool::new(size),
        };
        let from = From::OwnFile { memory: Arc::clone(self), read_only };
        let pool = pool.inspect_err(|_| self.state().used -= size)?;
        Ok(Extent { pool: Arc::new(pool), offset: 0, size, from })
    }
}

/// Memory of another process.
///
/// # Errors
/// EINVAL: the file could become shorter, or is too short already.
pub(super) fn import(bo: SharedBo) -> Result<Extent> {
    // SAFETY: system calls that ask about a descriptor that we own.
    let (seals, size) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let fd = bo.file.as_raw_fd();
        let known = libc::fstat(fd, &mut stat) == 0;
        (libc::fcntl(fd, libc::F_GET_SEALS), if known { stat.st_size } else { 0 })
    };
    let end = bo.offset.checked_add(bo.size).ok_or(Errno::Invalid)?;
    let sound = bo.size != 0
        && bo.size.is_multiple_of(PAGE_SIZE)
        && bo.offset.is_multiple_of(PAGE_SIZE)
        && seals >= 0
        && seals & libc::F_SEAL_SHRINK != 0
        && u64::try_from(size).is_ok_and(|size| end <= size);
    if !sound {
        return Err(Errno::Invalid);
    }
    let pool = Pool { backing: Backing::File(bo.file), size: end, free: Mutex::default() };
    let from = From::Elsewhere { read_only: bo.read_only };
    Ok(Extent { pool: Arc::new(pool), offset: bo.offset, size: bo.size, from })
}

/// Whether buffers here lie in files, which another process can be given.
pub(super) fn has_files() -> bool {
    memfd(PAGE_SIZE, false).is_some()
}

impl Extent {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is another process's, who lets it be read only.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.from, From::Elsewhere { read_only: true })
    }

    /// Its file, for another process.
    ///
    /// # Errors
    /// EOPNOTSUPP: there is none. ENOMEM: no descriptor is free.
    pub(super) fn share(&self) -> Result<SharedBo> {
        let Backing::File(file) = &self.pool.backing else { return Err(Errno::NotSupported) };
        let read_only = match self.from {
            From::Pools(_) => false,
            From::OwnFile { read_only, .. } | From::Elsewhere { read_only } => read_only,
        };
        if read_only && matches!(self.from, From::OwnFile { .. }) {
            let seals = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
            // SAFETY: a system call on our own file. Mappings that exist stay writable. It fails
            // where it was done before, and before Linux 5.1, where importers are trusted.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
        }
        let file = file.try_clone().map_err(|_| Errno::NoMemory)?;
        Ok(SharedBo { file, offset: self.offset, size: self.size, read_only })
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
        let memory = match &self.from {
            From::Elsewhere { .. } => return,
            From::OwnFile { memory, .. } => {
                // The file goes with the pool.
                memory.state().used -= self.size;
                return;
            }
            From::Pools(memory) => memory,
        };
        let clean = self.pool.punch(self.offset, self.size);
        let mut state = memory.state();
        if clean {
            self.pool.give(self.offset, self.size);
            state.used -= self.size;
        } else {
            // What cannot be made zero again is not used again.
            log::error!("{} bytes of device memory cannot be given back", self.size);
        }
        // The last pool of its kind stays for the next buffer.
        let own = state.pools.iter().find(|(_, pool)| Arc::ptr_eq(pool, &self.pool));
        if let Some(&(bo_use, _)) = own
            && state.pools.iter().filter(|(it, _)| *it == bo_use).count() > 1
            && self.pool.is_empty()
        {
            state.pools.retain(|(_, pool)| !Arc::ptr_eq(pool, &self.pool));
        }
    }
}

impl Pool {
    fn new(size: u64) -> Result<Self> {
        let size = size.next_multiple_of(PAGE_SIZE);
        let backing = match memfd(size, false) {
            Some(file) => Backing::File(file),
            None => Backing::Anonymous(anonymous(size)?),
        };
        Ok(Self::over(backing, size))
    }

    fn over(backing: Backing, size: u64) -> Self {
        Self { backing, size, free: Mutex::new(BTreeMap::from([(0, size)])) }
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

/// A memfd whose size is sealed: mappings of it never see it shrink. `more_seals`: they are still
/// to be set.
fn memfd(size: u64, more_seals: bool) -> Option<OwnedFd> {
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
        let last = if more_seals { 0 } else { libc::F_SEAL_SEAL };
        let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | last;
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
        memory.state().pools.push((BoUse::User, Arc::new(pool)));
        let size = 3 * PAGE_SIZE;
        for round in 0..3 {
            let extent = memory.alloc(size, BoUse::User).unwrap();
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
        check_pool(Pool::over(backing, size));
    }

    #[test]
    fn freed_extents_join_and_the_limit_is_the_limit() {
        let memory = memory(8 * PAGE_SIZE);
        let parts: Vec<_> = (0..8).map(|_| memory.alloc(PAGE_SIZE, BoUse::User).unwrap()).collect();
        assert_eq!(memory.alloc(PAGE_SIZE, BoUse::User).map(|_| ()), Err(Errno::NoSpace));
        assert_eq!(memory.alloc(u64::MAX - 4095, BoUse::User).map(|_| ()), Err(Errno::NoSpace));
        drop(parts);
        assert!(memory.state().pools[0].1.is_empty());
        assert!(memory.alloc(8 * PAGE_SIZE, BoUse::User).is_ok());
    }

    #[test]
    fn buffers_for_different_uses_lie_in_different_files() {
        let memory = memory(1 << 30);
        let file = |extent: &Extent| extent.pool.clone();
        let extents = [
            memory.alloc(PAGE_SIZE, BoUse::Driver).unwrap(),
            memory.alloc(PAGE_SIZE, BoUse::User).unwrap(),
            memory.alloc_file(PAGE_SIZE, false).unwrap(),
            memory.alloc_file(PAGE_SIZE, false).unwrap(),
        ];
        for (i, one) in extents.iter().enumerate() {
            for other in &extents[i + 1..] {
                assert!(!Arc::ptr_eq(&file(one), &file(other)));
            }
        }
        drop(extents);
        assert_eq!(memory.state().used, 0);
    }

    #[test]
    fn what_is_shared_read_only_cannot_be_mapped_for_writing_by_anybody() {
        let memory = memory(1 << 30);
        let extent = memory.alloc_file(PAGE_SIZE, true).unwrap();
        let both = bind_flag::READ | bind_flag::WRITE;
        let before = extent.map(0, PAGE_SIZE, both, None).unwrap().as_ptr();
        let copy = import(extent.share().unwrap()).unwrap();
        assert!(copy.is_read_only());
        assert_eq!(copy.map(0, PAGE_SIZE, both, None).map(|_| ()), Err(Errno::NoMemory));
        let view = copy.map(0, PAGE_SIZE, bind_flag::READ, None).unwrap().as_ptr();
        // SAFETY: both mappings are a page long, and unmapped here.
        unsafe {
            before.write_volatile(7);
            assert_eq!(view.read_volatile(), 7);
            libc::munmap(before.cast(), PAGE_SIZE as usize);
            libc::munmap(view.cast(), PAGE_SIZE as usize);
        }
    }

    #[test]
    fn files_that_could_shrink_or_are_too_short_are_not_imported() {
        let memory = memory(1 << 30);
        let extent = memory.alloc_file(2 * PAGE_SIZE, false).unwrap();
        let shared = |offset, size| SharedBo { offset, size, ..extent.share().unwrap() };
        assert!(import(shared(PAGE_SIZE, PAGE_SIZE)).is_ok());
        for (offset, size) in [(0, 0), (PAGE_SIZE, 2 * PAGE_SIZE), (1, PAGE_SIZE), (0, 8)] {
            assert_eq!(import(shared(offset, size)).map(|_| ()), Err(Errno::Invalid), "{size}");
        }
        assert_eq!(import(shared(u64::MAX - 4095, PAGE_SIZE)).map(|_| ()), Err(Errno::Invalid));
        let file = std::fs::File::open("/proc/self/exe").unwrap().into();
        let other = SharedBo { file, ..shared(0, PAGE_SIZE) };
        assert_eq!(import(other).map(|_| ()), Err(Errno::Invalid));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The backing of pages: a memfd, a memfd in a descriptor table of the driver's own, or, if a sandbox
//! refuses memfds, a shared anonymous mapping.
//!
//! An mremap of zero bytes makes a second mapping of the pages of a shared anonymous mapping.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

use tally_uapi::ioctl::{Errno, bind_flag};

use super::files::Kept;
use crate::backend::Result;

/// Size of a huge page, to which large extents are aligned.
pub(super) const HUGE_PAGE: u64 = 2 << 20;

/// Whether the system may have huge pages for memory that is shared, as all buffers are.
pub(in crate::backend::embedded) fn has_huge_pages() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
        std::fs::read_to_string(setting).is_ok_and(|text| may_be_huge(&text))
    })
}

/// Whether this setting, whose value is in brackets, allows huge pages for a mapping that asks for them.
fn may_be_huge(setting: &str) -> bool {
    ["[always]", "[within_size]", "[advise]", "[force]"].iter().any(|it| setting.contains(it))
}

/// A part of some pages, and how to map it.
#[derive(Clone, Copy)]
pub(in crate::backend::embedded) struct Part {
    /// Offset of the first byte in the pages.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Access, of [`bind_flag`].
    pub access: u32,
    /// The address to map it at, replacing the mapping there; `None`: the system chooses one.
    pub at: Option<u64>,
}

/// See the module's description.
pub(super) enum Backing {
    /// A file whose descriptor is in the process's table.
    File(OwnedFd),
    /// A file whose descriptor is in a table of the driver's own.
    Kept(Kept),
    /// A shared mapping without access.
    Anonymous(Anonymous),
}

impl Backing {
    /// `size` bytes, a multiple of the page size, in a file of their own or in a mapping.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(size: u64) -> Result<Self> {
        match memfd(size, false) {
            Some(file) => Ok(Self::File(file)),
            None => Ok(Self::Anonymous(Anonymous::new(size)?)),
        }
    }

    /// The file, for sending or mapping.
    ///
    /// # Errors
    /// EOPNOTSUPP: there is none. ENOMEM: no descriptor is free.
    pub(super) fn file(&self) -> Result<OwnedFd> {
        match self {
            Self::File(file) => file.try_clone().map_err(|_| Errno::NoMemory),
            Self::Kept(kept) => kept.open(),
            Self::Anonymous(_) => Err(Errno::NotSupported),
        }
    }

    /// Maps a part.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn map(&self, part: Part) -> Result<NonNull<u8>> {
        let start = match self {
            Self::File(file) => map_file(file, part)?,
            Self::Kept(kept) => match kept.place(part) {
                Some(start) => start,
                None => map_file(&kept.open()?, part)?,
            },
            Self::Anonymous(pages) => pages.map(part)?,
        };
        if part.size >= HUGE_PAGE {
            let start = start.as_ptr().cast();
            // SAFETY: advice on a mapping that was just made; a refusal only costs speed.
            unsafe { libc::madvise(start, part.size as usize, libc::MADV_HUGEPAGE) };
        }
        Ok(start)
    }

    /// Gives pages back to the system; they read as zero afterwards. False: they are unchanged.
    pub(super) fn punch(&self, offset: u64, size: u64) -> bool {
        match self {
            Self::File(file) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: a system call on our own file; nothing has the extent mapped.
                unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, size as i64) == 0 }
            }
            // It belongs to one buffer, and is freed with it.
            Self::Kept(_) => false,
            Self::Anonymous(pages) => pages.punch(offset, size),
        }
    }
}

fn map_file(file: &OwnedFd, part: Part) -> Result<NonNull<u8>> {
    let Part { offset, size, access, at } = part;
    let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
    // SAFETY: with `at` the caller owns the range that is replaced (the trait's contract); otherwise
    // nothing is replaced.
    let start = unsafe {
        libc::mmap(
            at.unwrap_or(0) as *mut _,
            size as usize,
            protection(access),
            libc::MAP_SHARED | fixed,
            file.as_raw_fd(),
            offset as i64,
        )
    };
    mapped(start)
}

fn mapped(start: *mut libc::c_void) -> Result<NonNull<u8>> {
    if start == libc::MAP_FAILED {
        return Err(Errno::NoMemory);
    }
    NonNull::new(start.cast()).ok_or(Errno::NoMemory)
}

/// A shared anonymous mapping without access; second mappings of its pages are used.
pub(super) struct Anonymous {
    start: usize,
    size: u64,
}

impl Anonymous {
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(size: u64) -> Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (none, bytes) = (std::ptr::null_mut(), size as usize);
        // SAFETY: a fresh mapping touches nothing that exists.
        let start = unsafe { libc::mmap(none, bytes, libc::PROT_NONE, flags, -1, 0) };
        Ok(Self { start: mapped(start)?.as_ptr().addr(), size })
    }

    fn map(&self, part: Part) -> Result<NonNull<u8>> {
        let Part { offset, size, access, at } = part;
        let from = (self.start as u64 + offset) as *mut libc::c_void;
        let (bytes, may_move) = (size as usize, libc::MREMAP_MAYMOVE);
        // SAFETY: `from` is in our mapping. Moving zero bytes makes a second mapping of it. With `at`
        // the caller owns the range that is replaced.
        let start = unsafe {
            match at {
                Some(at) => {
                    let flags = may_move | libc::MREMAP_FIXED;
                    libc::mremap(from, 0, bytes, flags, at as *mut libc::c_void)
                }
                None => libc::mremap(from, 0, bytes, may_move),
            }
        };
        let start = mapped(start)?;
        // SAFETY: the mapping was just made.
        match unsafe { libc::mprotect(start.as_ptr().cast(), bytes, protection(access)) } {
            0 => Ok(start),
            _ => Err(Errno::NoMemory),
        }
    }

    fn punch(&self, offset: u64, size: u64) -> bool {
        let start = (self.start as u64 + offset) as *mut libc::c_void;
        // SAFETY: a part of our own mapping, which nothing uses any more. The system requires a
        // writable mapping for this.
        unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let writable = libc::mprotect(start, size as usize, access) == 0;
            let gone = libc::madvise(start, size as usize, libc::MADV_REMOVE) == 0;
            libc::mprotect(start, size as usize, libc::PROT_NONE);
            writable && gone
        }
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: our own mapping; buffers and bindings keep its owner alive.
        unsafe { libc::munmap(self.start as *mut _, self.size as usize) };
    }
}

/// The protection of a mapping for the access of [`bind_flag`].
pub(in super::super) fn protection(access: u32) -> i32 {
    let bits = [
        (bind_flag::READ, libc::PROT_READ),
        // x86 has no pages that can be written or executed but not read.
        (bind_flag::WRITE, libc::PROT_READ | libc::PROT_WRITE),
        (bind_flag::EXECUTE, libc::PROT_READ | libc::PROT_EXEC),
    ];
    bits.iter().filter(|(flag, _)| access & flag != 0).fold(0, |sum, (_, bits)| sum | bits)
}

/// A memfd whose size is sealed, so that mappings of it never see it shrink. `more_seals`: further
/// seals can be added later.
pub(super) fn memfd(size: u64, more_seals: bool) -> Option<OwnedFd> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the struct. A file beyond the limit would raise SIGXFSZ.
    let limited = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    if limited && limit.rlim_cur < size {
        return None;
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // The flag says that the file is not executable; kernels before 6.3 do not know it.
    const MFD_NOEXEC_SEAL: u32 = 8;
    let create = |flags| {
        // SAFETY: the name is a terminated string.
        let fd = unsafe { libc::memfd_create(c"tally".as_ptr(), flags) };
        // SAFETY: a new descriptor that nothing else owns.
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

/// Device and inode of a file.
pub(super) fn identity(file: &OwnedFd) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let file = File::from(file.try_clone().ok()?);
    file.metadata().ok().map(|it| (it.dev(), it.ino()))
}

#[cfg(test)]
mod tests {
    use super::may_be_huge;

    #[test]
    fn huge_pages_of_shared_memory_are_known_by_the_value_in_brackets() {
        let settings = ["always", "within_size", "advise", "never", "deny", "force"];
        let may = settings.map(|chosen| {
            may_be_huge(
                &settings
                    .map(|it| if it == chosen { format!("[{it}]") } else { it.into() })
                    .join(" "),
            )
        });
        assert_eq!(may, [true, true, true, false, false, true]);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file for each buffer of the application, without using up the application's descriptors.
//!
//! A buffer can be passed to another process without other memory only if it has a file of its own, and
//! programs have more buffers than descriptors: 1024 is a common limit. But the limit applies to each
//! descriptor table, and a thread can have a table of its own:
//!
//! ```text
//!  process's table   0 1 2 ...              the application's
//!  thread 1's table  0 1 2 3 ... limit      files of buffers
//!  thread 2's table  0 1 2 3 ...            started when the first is full
//! ```
//!
//! The thread makes the files and closes them. Other threads reach a file by `/proc/self/task`, which is needed
//! when it is exported or mapped a second time. The thread has made the first mapping already, and that
//! mapping is moved to its place.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::{Errno, bind_flag};

use super::backing::{Anonymous, Backing, Part, identity, memfd, protection};
use crate::backend::Result;
use crate::process;

/// Bytes of the files that are made in advance: the usual size of small buffers.
const USUAL: u64 = 64 << 10;
/// The number of files made at once: the first time, and the most. It doubles each time, so a program
/// with many buffers rarely waits for the thread, and one with few does not wait long.
const FIRST_BATCH: usize = 4;
const MOST_BATCH: usize = 64;
/// The most tables. There are never more buffers than mappings that the system allows a process.
const MOST_TABLES: usize = 128;
/// Bytes of a table thread's stack.
const STACK: usize = 64 << 10;
/// The divisor of the process's descriptor limit that gives the most files in the process's own table,
/// if there can be no other table.
const OWN_PART: u64 = 4;

/// Makes files for buffers.
#[derive(Default)]
pub(super) struct Files {
    state: Mutex<State>,
    /// Files with descriptors in the process's own table.
    own: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    /// The tables. Only the last one may have room.
    tables: Vec<Arc<Table>>,
    /// Whether no more tables can be made.
    refused: bool,
    /// Files of [`USUAL`] bytes that no buffer uses yet.
    ready: Vec<Kept>,
    /// The number made the last time.
    batch: usize,
}

impl Files {
    /// A file of `size` bytes, all zero, or a mapping if no more files can be made.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn make(&self, size: u64) -> Result<Backing> {
        if let Some(kept) = self.kept(size) {
            return Ok(Backing::Kept(kept));
        }
        if let Some(counted) = Counted::take(&self.own)
            && let Some(file) = memfd(size, false)
        {
            return Ok(Backing::Kept(Kept::own(file, counted, size)));
        }
        Ok(Backing::Anonymous(Anonymous::new(size)?))
    }

    fn kept(&self, size: u64) -> Option<Kept> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if size == USUAL
            && let Some(kept) = state.ready.pop()
        {
            return Some(kept);
        }
        let count = if size == USUAL {
            state.batch = (2 * state.batch).clamp(FIRST_BATCH, MOST_BATCH);
            state.batch
        } else {
            1
        };
        let (mut made, is_full) = match state.tables.last() {
            Some(table) => table.make(size, count),
            None => (Vec::new(), true),
        };
        if is_full && !state.refused {
            match Table::start().filter(|_| state.tables.len() < MOST_TABLES) {
                Some(table) => {
                    made = table.make(size, count).0;
                    state.tables.push(table);
                }
                None => {
                    log::info!("memory: no further table for files of buffers");
                    state.refused = true;
                }
            }
        }
        let kept = made.pop();
        state.ready.append(&mut made);
        kept
    }
}

/// A file of a buffer.
pub(super) struct Kept {
    place: Place,
    size: u64,
    /// Address of a readable and writable mapping that the first user takes over; 0: none.
    staged: AtomicUsize,
}

enum Place {
    Table(Arc<Table>, RawFd),
    Own(OwnedFd, #[allow(dead_code, reason = "owned for its drop")] Counted),
}

impl Kept {
    fn own(file: OwnedFd, counted: Counted, size: u64) -> Self {
        Self { place: Place::Own(file, counted), size, staged: AtomicUsize::new(0) }
    }

    /// A descriptor of it in the process's table.
    ///
    /// # Errors
    /// ENOMEM: no descriptor is free.
    pub(super) fn open(&self) -> Result<OwnedFd> {
        match &self.place {
            Place::Own(file, _) => file.try_clone().map_err(|_| Errno::NoMemory),
            Place::Table(table, fd) => table.open(*fd).ok_or(Errno::NoMemory),
        }
    }

    /// Maps all of it at `at` by moving the mapping that was made with it. None: it has to be mapped like
    /// any file.
    pub(super) fn place(&self, part: Part) -> Option<NonNull<u8>> {
        let Part { offset, size, access, at } = part;
        let at = at.filter(|_| offset == 0 && size == self.size)?;
        let staged = self.staged.swap(0, Ordering::AcqRel);
        if staged == 0 {
            return None;
        }
        let (from, bytes) = (ptr::with_exposed_provenance_mut(staged), size as usize);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: moves a mapping that only this value refers to; the caller owns the range that is
        // replaced at `at`.
        let moved = unsafe { libc::mremap(from, bytes, bytes, flags, at as *mut libc::c_void) };
        if moved == libc::MAP_FAILED {
            self.staged.store(staged, Ordering::Release);
            return None;
        }
        let usual = bind_flag::READ | bind_flag::WRITE;
        // SAFETY: the mapping was just made.
        if access != usual && unsafe { libc::mprotect(moved, bytes, protection(access)) } != 0 {
            return None;
        }
        NonNull::new(moved.cast())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let staged = *self.staged.get_mut();
        if staged != 0 {
            // SAFETY: a mapping that only this value refers to.
            unsafe { libc::munmap(ptr::with_exposed_provenance_mut(staged), self.size as usize) };
        }
        if let Place::Table(table, fd) = &self.place
            && !process::is_gone()
        {
            // If the thread has ended, its table and the file are gone, too.
            let _ = table.orders.send(Order::Close(*fd));
        }
    }
}

/// A file's use of one descriptor of the process's own table.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn take(own: &Arc<AtomicUsize>) -> Option<Self> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: fills the struct.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        let most = usize::try_from(limit.rlim_cur / OWN_PART).unwrap_or(usize::MAX);
        let more = |count| (count < most).then_some(count + 1);
        own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(Arc::clone(own)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The work of a table's thread.
enum Order {
    /// Makes up to `count` files of `size` bytes and maps them.
    Make { size: u64, count: usize, answer: Sender<Answer> },
    /// Closes one.
    Close(RawFd),
}

/// Descriptors of files and their mappings' addresses, and whether the table is full.
type Answer = (Vec<(RawFd, usize)>, bool);

/// A descriptor table of the driver's own. It belongs to a thread, which ends with the last file.
struct Table {
    thread: libc::pid_t,
    orders: Sender<Order>,
}

impl Table {
    /// Starts the thread. None: it cannot be started, cannot have a table of its own, or other threads
    /// cannot reach into its table.
    fn start() -> Option<Arc<Self>> {
        let (orders, inbox) = mpsc::channel();
        let (answer, started) = mpsc::channel();
        let body = move || {
            let probe = own_table();
            let known = probe.is_some();
            if answer.send(probe).is_ok() && known {
                serve(&inbox);
            }
        };
        let thread = std::thread::Builder::new().name("tally-files".into()).stack_size(STACK);
        process::without_signals(|| thread.spawn(body)).ok()?;
        let (thread, probe) = started.recv().ok()??;
        let table = Self { thread, orders };
        let reached = table.open(0).and_then(|file| identity(&file));
        (reached == Some(probe)).then(|| Arc::new(table))
    }

    fn open(&self, fd: RawFd) -> Option<OwnedFd> {
        let path = format!("/proc/self/task/{}/fd/{fd}\0", self.thread);
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: the path is terminated.
        let file = unsafe { libc::open(path.as_ptr().cast(), flags) };
        // SAFETY: a new descriptor that nothing else has.
        (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) })
    }

    /// Makes up to `count` files, and returns whether the table is full.
    fn make(self: &Arc<Self>, size: u64, count: usize) -> (Vec<Kept>, bool) {
        let (answer, made) = mpsc::channel();
        let sent = self.orders.send(Order::Make { size, count, answer });
        // A thread that has ended makes none.
        let (made, is_full) =
            sent.ok().and_then(|()| made.recv().ok()).unwrap_or((Vec::new(), true));
        let kept = |(fd, at)| Kept {
            place: Place::Table(Arc::clone(self), fd),
            size,
            staged: AtomicUsize::new(at),
        };
        (made.into_iter().map(kept).collect(), is_full)
    }
}

/// Gives the calling thread a descriptor table with only three files, in the places of the standard
/// streams. Returns the thread's id, and the identity of the file of descriptor 0.
fn own_table() -> Option<(libc::pid_t, (u64, u64))> {
    const CLOSE_RANGE_UNSHARE: u32 = 2;
    // ThreadSanitizer would mistake a descriptor of this table for one of the process, which other threads open
    // and close, and its reports would have no standard error.
    if cfg!(tsan) {
        return None;
    }
    // Available since Linux 5.9. It copies nothing of the process's table, so no pipe of the application
    // stays open in it.
    // SAFETY: closes descriptors of the new table only.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, CLOSE_RANGE_UNSHARE) };
    if done != 0 {
        return None;
    }
    let first = memfd(USUAL, false).filter(|file| file.as_raw_fd() == 0)?;
    let probe = identity(&first)?;
    let _ = first.into_raw_fd();
    for _ in 1..3 {
        let _ = memfd(USUAL, false)?.into_raw_fd();
    }
    // SAFETY: asks for a number.
    Some((unsafe { libc::gettid() }, probe))
}

/// The main function of a table's thread. It must not log, since standard error is not in its table.
fn serve(inbox: &Receiver<Order>) {
    while let Ok(order) = inbox.recv() {
        match order {
            Order::Make { size, count, answer } => {
                let made: Vec<_> = (0..count).map_while(|_| make(size)).collect();
                // A file that is too large for the process's limits may fail although smaller ones would not.
                let is_full = made.is_empty() && memfd(PAGE_SIZE, false).is_none();
                // The caller waits for the answer.
                let _ = answer.send((made, is_full));
            }
            // SAFETY: a descriptor of this table that `make` has returned, closed once.
            Order::Close(fd) => unsafe {
                libc::close(fd);
            },
        }
    }
}

/// A file and a readable and writable mapping of it.
fn make(size: u64) -> Option<(RawFd, usize)> {
    let file = memfd(size, false)?;
    let access = protection(bind_flag::READ | bind_flag::WRITE);
    let (none, fd) = (ptr::null_mut(), file.as_raw_fd());
    // SAFETY: a fresh mapping touches nothing that exists.
    let at = unsafe { libc::mmap(none, size as usize, access, libc::MAP_SHARED, fd, 0) };
    (at != libc::MAP_FAILED).then(|| (file.into_raw_fd(), at.expose_provenance()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: NonNull<u8>, value: u8) {
        // SAFETY: the tests pass mappings of at least a byte.
        unsafe { at.write_volatile(value) };
    }

    fn read(at: NonNull<u8>) -> u8 {
        // SAFETY: as above.
        unsafe { at.read_volatile() }
    }

    const BOTH: u32 = bind_flag::READ | bind_flag::WRITE;

    /// The number of the next descriptor of the process.
    fn next_descriptor() -> RawFd {
        let file = memfd(4096, false).expect("the system has memfds");
        file.as_raw_fd()
    }

    #[test]
    fn files_take_none_of_the_processes_descriptors_and_are_apart() {
        let files = Files::default();
        drop(files.make(USUAL).expect("a file"));
        let before = next_descriptor();
        let all: Vec<Backing> = (0..100).map(|_| files.make(USUAL).expect("a file")).collect();
        // Other tests open files meanwhile, but not a hundred.
        assert!(next_descriptor() < before + 100);
        let mut inodes = Vec::new();
        for backing in &all {
            let file = backing.file().expect("it can be sent");
            let first = backing
                .map(Part { offset: 0, size: USUAL, access: BOTH, at: None })
                .expect("mapped");
            let second = backing
                .map(Part { offset: 4096, size: 4096, access: BOTH, at: None })
                .expect("mapped again");
            // SAFETY: inside the first mapping.
            write(unsafe { first.add(4096) }, 7);
            assert_eq!((read(first), read(second)), (0, 7));
            inodes.push(identity(&file).expect("a file"));
            // SAFETY: the test's own mappings.
            unsafe {
                libc::munmap(first.as_ptr().cast(), USUAL as usize);
                libc::munmap(second.as_ptr().cast(), 4096);
            }
        }
        inodes.sort_unstable();
        inodes.dedup();
        assert_eq!(inodes.len(), all.len(), "one file for each");
    }

    #[test]
    fn where_no_table_can_be_had_a_part_of_the_processes_own_is_used() {
        let files = Files::default();
        files.state.lock().expect("no panic").refused = true;
        let file = files.make(USUAL).expect("a file");
        assert_eq!(files.own.load(Ordering::Relaxed), 1);
        assert!(file.file().is_ok());
        drop(file);
        assert_eq!(files.own.load(Ordering::Relaxed), 0);
        files.own.store(usize::MAX / 2, Ordering::Relaxed);
        let none = files.make(USUAL).expect("memory without a file");
        assert_eq!(none.file().map(drop), Err(Errno::NotSupported));
    }
}

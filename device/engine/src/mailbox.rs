// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mailbox: memory that the hub and one engine process share.
//!
//! Almost all of it is levels, not messages: setting a bit twice has no further
//! effect, so nothing can overflow and neither side has to trust the other about an
//! order. Only the hub's commands come one after the other. Each is acknowledged by
//! a system call that the kernel reports to the hub (see [`fence_arguments`]); the
//! values that the engine writes with it are numbers about its own VM.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tally_device::Waiters;
use tally_uapi::cell::WAITERS;
use tally_uapi::firmware::{MAX_QUEUES, map_flag};

pub use crate::doorbell::Doorbell;
use crate::{FIRST_FILE, futex};

/// The most mappings of one command.
pub const MAX_PIECES: usize = 256;

/// A set of numbers that one side adds to and the other takes.
#[repr(C)]
#[derive(Debug)]
pub struct Bits<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Bits<WORDS> {
    /// Adds a number, which is below 64 × `WORDS`. False if the set contains it already.
    pub fn set(&self, number: usize) -> bool {
        let bit = 1 << (number % 64);
        self.0[number / 64 % WORDS].fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// Takes all numbers out.
    pub fn take(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut bits = 0;
            if word.load(Ordering::SeqCst) != 0 {
                bits = word.swap(0, Ordering::SeqCst);
            }
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(i * 64 + bit)
            })
        })
    }
}

/// The configuration of the engine process. Written before it is started.
#[repr(C)]
#[derive(Debug)]
pub struct Setup {
    /// Engines that take all packets.
    pub compute_engines: AtomicU32,
    /// Engines that take all but DISPATCH.
    pub copy_engines: AtomicU32,
    /// Execution units.
    pub workers: AtomicU32,
    /// Threads that take the place of stuck ones.
    pub substitutes: AtomicU32,
    /// The reset time, in ms.
    pub reset_ms: AtomicU32,
    /// Files of the guest's memory.
    pub files: AtomicU32,
    /// The number of the file that holds the waiters page.
    pub waiters_file: AtomicU32,
    /// The VM's id.
    pub vm: AtomicU32,
    /// Offset of the waiters page in that file, in bytes.
    pub waiters_offset: AtomicU64,
    /// CLOCK_MONOTONIC in ns at the start of the device's clock.
    pub clock_start: AtomicU64,
    /// The end of the windows of VMs.
    pub va_end: AtomicU64,
    /// 1: the adversarial device, which makes random decisions from the seed.
    pub chaos: AtomicU32,
    /// Zero.
    pub pad: AtomicU32,
    /// See `chaos`.
    pub seed: AtomicU64,
}

/// A mapping, or with [`Piece::is_unmap`] the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First VA.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// The offset in the file.
    pub offset: u64,
    /// Index of the file; none for memory that is zero at first.
    pub file: Option<u32>,
    /// Bits of [`map_flag`]; none at all to unmap.
    pub access: u32,
}

/// The piece's file, as a word.
const NO_FILE: u32 = u32::MAX;

impl Piece {
    /// The end of a mapping.
    pub fn unmap(address: u64, bytes: u64) -> Self {
        Self { address, bytes, offset: 0, file: None, access: 0 }
    }

    /// Whether it ends a mapping.
    pub fn is_unmap(&self) -> bool {
        self.access & map_flag::ALL == 0
    }

    /// The system call that carries it out: its number and arguments. The
    /// engine process makes exactly this call, and the hub allows no other.
    pub fn system_call(&self) -> (i64, [u64; 6]) {
        if self.is_unmap() {
            return (libc::SYS_munmap, [self.address, self.bytes, 0, 0, 0, 0]);
        }
        let mut protection = 0;
        for (flag, bit) in [
            (map_flag::READ, libc::PROT_READ),
            (map_flag::WRITE, libc::PROT_WRITE),
            (map_flag::EXECUTE, libc::PROT_EXEC),
        ] {
            protection |= if self.access & flag != 0 { bit as u64 } else { 0 };
        }
        let (flags, file) = match self.file {
            Some(file) => (libc::MAP_SHARED, FIRST_FILE + u64::from(file)),
            None => {
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, u64::from(NO_FILE))
            }
        };
        let flags = (flags | libc::MAP_FIXED) as u64;
        (libc::SYS_mmap, [self.address, self.bytes, protection, flags, file, self.offset])
    }
}

/// The system call by which the engine process reports that a command is done. It
/// does nothing by itself; the hub answers it. Because the kernel reports the
/// calls of a thread in order, all calls of the command are over by then.
pub fn fence_arguments(sequence: u32) -> (i64, [u64; 6]) {
    (libc::SYS_munmap, [u64::from(sequence), 0, 0, 0, 0, 0])
}

#[repr(C)]
#[derive(Debug)]
struct PieceWords([AtomicU64; 4]);

impl PieceWords {
    fn store(&self, piece: &Piece) {
        let last = u64::from(piece.file.unwrap_or(NO_FILE)) << 32 | u64::from(piece.access);
        for (word, value) in self.0.iter().zip([piece.address, piece.bytes, piece.offset, last]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn load(&self) -> Piece {
        let [address, bytes, offset, last] =
            [0, 1, 2, 3].map(|i: usize| self.0[i].load(Ordering::Relaxed));
        let file = Some((last >> 32) as u32).filter(|&file| file != NO_FILE);
        Piece { address, bytes, offset, file, access: last as u32 }
    }
}

/// A command of the hub.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// NOP, VM_MAP, VM_UNMAP, QUEUE_CREATE, QUEUE_DESTROY, QUEUE_QUERY or VM_ORPHAN of
    /// [`tally_uapi::firmware::op`].
    pub opcode: u32,
    /// The queue.
    pub queue: u32,
    /// The arguments of the admin command.
    pub args: [u64; 6],
    /// The pieces to map and unmap, in order; at most [`MAX_PIECES`].
    pub pieces: Vec<Piece>,
}

/// The part that the hub writes and the engine reads.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ToEngine {
    /// Rung for all news but orders.
    pub bell: Doorbell,
    /// Queues that were kicked.
    pub kicks: Bits<{ (MAX_QUEUES as usize + 1) / 64 }>,
    /// Buckets to look at.
    pub recheck: Bits<{ WAITERS / 64 }>,
    /// 1: the engine has to look at all foreign cells.
    pub recheck_foreign: AtomicU32,
    /// Number of the last order. A futex.
    sequence: AtomicU32,
    opcode: AtomicU32,
    queue: AtomicU32,
    count: AtomicU32,
    args: [AtomicU64; 6],
    pieces: [PieceWords; MAX_PIECES],
}

impl ToEngine {
    /// Gives order number `sequence`, which differs from the last one's.
    pub fn give(&self, sequence: u32, order: &Order) {
        self.opcode.store(order.opcode, Ordering::Relaxed);
        self.queue.store(order.queue, Ordering::Relaxed);
        self.count.store(order.pieces.len().min(MAX_PIECES) as u32, Ordering::Relaxed);
        for (word, value) in self.args.iter().zip(order.args) {
            word.store(value, Ordering::Relaxed);
        }
        for (words, piece) in self.pieces.iter().zip(&order.pieces) {
            words.store(piece);
        }
        self.sequence.store(sequence, Ordering::SeqCst);
        futex::wake(&self.sequence);
    }

    /// Waits for an order after number `seen`.
    pub(crate) fn await_order(&self, seen: u32) -> (u32, Order) {
        let sequence = loop {
            let sequence = self.sequence.load(Ordering::SeqCst);
            if sequence != seen {
                break sequence;
            }
            futex::wait(&self.sequence, seen);
        };
        let count = (self.count.load(Ordering::Relaxed) as usize).min(MAX_PIECES);
        let order = Order {
            opcode: self.opcode.load(Ordering::Relaxed),
            queue: self.queue.load(Ordering::Relaxed),
            args: std::array::from_fn(|i| self.args[i].load(Ordering::Relaxed)),
            pieces: self.pieces[..count].iter().map(PieceWords::load).collect(),
        };
        (sequence, order)
    }
}

/// The part that the engine writes and the hub reads. The hub trusts it only about the engine's own VM.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ToHub {
    /// Rung for all news but answers to orders.
    pub bell: Doorbell,
    /// Buckets in which a cell was written while a thread outside waited there.
    pub signalled: Bits<{ WAITERS / 64 }>,
    /// Buckets whose word in `waiters` may have become or ceased to be zero.
    pub changed: Bits<{ WAITERS / 64 }>,
    /// 1: the VM is lost, by the fault that follows.
    pub lost: AtomicU32,
    /// Queue, kind, address, packet.
    pub fault: [AtomicU64; 4],
    /// The answer to the last order: one of `answer_status`, and values.
    pub status: AtomicU32,
    /// The meaning of each depends on the opcode.
    pub values: [AtomicU64; 7],
    /// The waiting queues of each bucket.
    pub waiters: Waiters,
}

/// The mailbox. All zero at the start.
#[repr(C)]
#[derive(Debug)]
pub struct Mailbox {
    /// The configuration of the engine process.
    pub setup: Setup,
    /// From the hub.
    pub to_engine: ToEngine,
    /// From the engine.
    pub to_hub: ToHub,
}

/// A mapped mailbox.
#[derive(Debug)]
pub struct MailboxMap(NonNull<Mailbox>);

// SAFETY: a mailbox is all atomics.
unsafe impl Send for MailboxMap {}
// SAFETY: as above.
unsafe impl Sync for MailboxMap {}

impl MailboxMap {
    /// Makes a mailbox, of a size that cannot be changed.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: plain calls with valid arguments; the results are checked, and
        // a descriptor that is returned has no other owner.
        let fd = unsafe {
            let fd = libc::memfd_create(c"tally-mailbox".as_ptr(), flags);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: as above.
        let made = unsafe {
            libc::ftruncate(fd.as_raw_fd(), size_of::<Mailbox>() as i64) == 0
                && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
        };
        if !made {
            return Err(io::Error::last_os_error());
        }
        Ok((Self::map(&fd)?, fd))
    }

    /// Maps a mailbox that [`Self::create`] has made.
    ///
    /// # Errors
    /// No memory.
    pub fn map(fd: &OwnedFd) -> io::Result<Self> {
        // SAFETY: a fresh mapping touches nothing that exists; the result is checked.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Mailbox>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast::<Mailbox>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self(start)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Keeps it mapped until the process ends.
    pub fn leak(self) -> &'static Mailbox {
        let start = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: as in `deref`; it is not unmapped any more.
        unsafe { start.as_ref() }
    }
}

impl Deref for MailboxMap {
    type Target = Mailbox;

    fn deref(&self) -> &Mailbox {
        // SAFETY: the mapping has the size and, being page-aligned, the alignment
        // of a Mailbox, and is sealed against shrinking; any bytes are valid.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for MailboxMap {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Mailbox>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_out_once() {
        let (map, _fd) = MailboxMap::create().unwrap();
        let bits = &map.to_hub.signalled;
        assert!(bits.set(0) && bits.set(511) && bits.set(64) && !bits.set(64));
        assert_eq!(bits.take().collect::<Vec<_>>(), [0, 64, 511]);
        assert_eq!(bits.take().count(), 0);
    }

    #[test]
    fn an_order_arrives_as_it_was_given() {
        let (map, fd) = MailboxMap::create().unwrap();
        let other = MailboxMap::map(&fd).unwrap();
        let piece = Piece { address: 1 << 40, bytes: 4096, offset: 8192, file: Some(3), access: 3 };
        let order = Order {
            opcode: 4,
            queue: 9,
            args: [1, 2, 3, 4, 5, 6],
            pieces: vec![piece, Piece::unmap(7, 8)],
        };
        map.to_engine.give(1, &order);
        let (sequence, seen) = other.to_engine.await_order(0);
        assert_eq!((sequence, seen.opcode, seen.queue, seen.args), (1, 4, 9, order.args));
        assert_eq!(seen.pieces, order.pieces);
    }

    #[test]
    fn only_a_piece_without_access_unmaps() {
        assert_eq!(Piece::unmap(4096, 4096).system_call().0, libc::SYS_munmap);
        let piece = Piece { address: 4096, bytes: 4096, offset: 0, file: None, access: 1 };
        assert_eq!(piece.system_call().0, libc::SYS_mmap);
    }
}

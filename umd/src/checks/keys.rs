// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is closed to threads of the program and open to those of the device: protection keys of x86.
//!
//! Each page has a key, and each thread a register that says what it may do with pages of each key. Two keys are taken
//! from the system: one for memory that a thread may neither read nor write, one for memory that it may only read.
//!
//! | thread | none | read only |
//! |---|---|---|
//! | of the device; of the program, in an entry point | all | all |
//! | of the program, when it has left an entry point | nothing | reads |
//! | of the program, before its first call | nothing | nothing |
//!
//! System threads start with the rights of the thread that makes them. A signal's handler has none.

use std::arch::asm;
use std::sync::OnceLock;

use tally_uapi::PAGE_SIZE;

/// What the program may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nothing.
    None,
    /// Reads.
    Read,
    /// All.
    All,
}

/// The keys, by their numbers.
struct Keys {
    none: u32,
    read: u32,
}

static KEYS: OnceLock<Option<Keys>> = OnceLock::new();

/// Takes the keys, and gives this thread all rights. False: the processor or the system has none, or none are left.
pub fn prepare() -> bool {
    let take = || {
        // SAFETY: the call takes two numbers, and gives this thread the right to the new key.
        let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, 0) };
        u32::try_from(key).ok()
    };
    let keys = KEYS.get_or_init(|| Some(Keys { none: take()?, read: take()? }));
    keys.is_some()
}

fn keys() -> Option<&'static Keys> {
    KEYS.get().and_then(Option::as_ref)
}

/// Gives this thread all rights.
pub fn allow() {
    if let Some(keys) = keys() {
        keys.forbid(0);
    }
}

/// Takes the rights from this thread.
pub fn deny() {
    if let Some(keys) = keys() {
        keys.forbid(
            ACCESSES << (2 * keys.none) | WRITES << (2 * keys.none) | WRITES << (2 * keys.read),
        );
    }
}

/// What a thread's register forbids with a key, for the first key.
const ACCESSES: u32 = 1;
const WRITES: u32 = 2;

impl Keys {
    /// Forbids this of all that may be forbidden with these keys.
    fn forbid(&self, what: u32) {
        let all = ACCESSES | WRITES;
        let (mine, now) = (all << (2 * self.none) | all << (2 * self.read), rights());
        if now & mine != what {
            set_rights(now & !mine | what);
        }
    }
}

/// This thread's register.
fn rights() -> u32 {
    let rights;
    // SAFETY: a process that has a key may read the register; the instruction wants 0 in ecx and sets edx to 0.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nomem, nostack))
    };
    rights
}

/// Sets this thread's register. No access is moved across it.
fn set_rights(rights: u32) {
    // SAFETY: a process that has a key may write the register; the instruction wants 0 in ecx and edx. Only bits of our
    // own keys change.
    unsafe { asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0, options(nostack)) };
}

/// Says what the program may do with whole pages of a live allocation. Whether that could be done.
pub fn protect(base: u64, size: u64, right: Right) -> bool {
    let Some(keys) = keys() else { return false };
    let key = match right {
        Right::None => keys.none,
        Right::Read => keys.read,
        Right::All => 0,
    };
    let size = size.next_multiple_of(PAGE_SIZE) as usize;
    let set = |protection: i32| {
        // SAFETY: the pages belong to an allocation of the driver's, to which nothing in Rust refers; an access without
        // the right to it is handled by `refused_by_key`.
        unsafe { libc::syscall(libc::SYS_pkey_mprotect, base, size, protection, key) == 0 }
    };
    // Memory of another process may be read-only.
    set(libc::PROT_READ | libc::PROT_WRITE) || set(libc::PROT_READ)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the system reads a byte for this thread: it looks at the thread's rights, and raises no signal.
    fn can_read(at: *const u8) -> bool {
        let mut ends = [0; 2];
        // SAFETY: the pipe has room for a byte; the system answers EFAULT if it may not read.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let written = libc::write(ends[1], at.cast(), 1);
            ends.into_iter().for_each(|end| assert_eq!(libc::close(end), 0));
            written == 1
        }
    }

    /// The same for writing.
    fn can_write(at: *mut u8) -> bool {
        let mut ends = [0; 2];
        // SAFETY: as above, the other way round.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            assert_eq!(libc::write(ends[1], [1_u8].as_ptr().cast(), 1), 1);
            let read = libc::read(ends[0], at.cast(), 1);
            ends.into_iter().for_each(|end| assert_eq!(libc::close(end), 0));
            read == 1
        }
    }

    #[test]
    fn memory_is_closed_to_threads_without_the_right() {
        // In a thread of its own, since rights stay.
        let tried = std::thread::spawn(|| {
            if !prepare() {
                return;
            }
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let (size, rights) = (PAGE_SIZE as usize, libc::PROT_READ | libc::PROT_WRITE);
            // SAFETY: without an address no existing mapping is replaced.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), size, rights, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            let at: *mut u8 = at.cast();
            let can = || (can_read(at), can_write(at));
            for (right, reads, writes) in
                [(Right::None, false, false), (Right::Read, true, false), (Right::All, true, true)]
            {
                assert!(protect(at as u64, 100, right));
                allow();
                assert_eq!(can(), (true, true), "{right:?}, to a thread of the device");
                deny();
                assert_eq!(can(), (reads, writes), "{right:?}, to the program");
            }
        });
        tried.join().expect("no assertion fails");
    }
}

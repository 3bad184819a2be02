// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_DEBUG`: tells a debugger of kernels, by [GDB's interface for code that is made at run
//! time](https://sourceware.org/gdb/current/onlinedocs/gdb.html/JIT-Interface.html).
//!
//! A debugger finds the two symbols below, stops where code is registered, and reads each piece's file from
//! the program's memory. So a breakpoint at a line is pending until the kernel with the line is created.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A piece of code: its file in memory.
#[repr(C)]
struct Entry {
    next: *mut Entry,
    previous: *mut Entry,
    file: *const u8,
    size: u64,
}

/// The descriptor that the debugger reads.
#[repr(C)]
struct Descriptor {
    version: u32,
    /// The last change of `relevant`: [`REGISTERED`] or [`UNREGISTERED`].
    action: u32,
    relevant: *mut Entry,
    first: *mut Entry,
}

const REGISTERED: u32 = 1;
const UNREGISTERED: u32 = 2;

// The debugger looks both up by their names, in each library. They are hidden, so that another library that has
// them too, such as LLVM's, uses its own, and the driver its own. Rust has no such attribute. A library without
// its table of symbols (`strip`) cannot be debugged.
std::arch::global_asm!(
    ".pushsection .data.__jit_debug_descriptor, \"aw\", %progbits",
    ".balign 8",
    ".globl __jit_debug_descriptor",
    ".hidden __jit_debug_descriptor",
    ".type __jit_debug_descriptor, %object",
    ".size __jit_debug_descriptor, 24",
    "__jit_debug_descriptor:",
    // The version, nothing has happened, and the list is empty.
    ".long 1, 0",
    ".quad 0, 0",
    ".popsection",
    ".pushsection .text.__jit_debug_register_code, \"ax\", %progbits",
    ".globl __jit_debug_register_code",
    ".hidden __jit_debug_register_code",
    ".type __jit_debug_register_code, %function",
    "__jit_debug_register_code:",
    "ret",
    ".size __jit_debug_register_code, . - __jit_debug_register_code",
    ".popsection",
);

unsafe extern "C" {
    static mut __jit_debug_descriptor: Descriptor;
    /// The debugger stops here, and looks at the descriptor.
    safe fn __jit_debug_register_code();
}

/// Gives code pages of its own: a debugger cannot write breakpoints to those of a file.
///
/// # Safety
/// At the address are `size` bytes of code, whole pages, which nothing runs yet. Their owner may unmap any
/// mapping there.
pub unsafe fn make_writable_by_debugger(address: u64, size: u64) {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    let size = size as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the new pages are ours, and the code is as long as they are. They replace the code's pages, which
    // the caller allows, in one step, and otherwise are unmapped: then breakpoints do not work, and the code does.
    unsafe {
        let new = libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        if new == libc::MAP_FAILED {
            return;
        }
        new.cast::<u8>().copy_from_nonoverlapping(at, size);
        let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if libc::mprotect(new, size, libc::PROT_READ | libc::PROT_EXEC) != 0
            || libc::mremap(new, size, size, moves, at) == libc::MAP_FAILED
        {
            libc::munmap(new, size);
        }
    }
}

/// Code that the debugger knows, until this is dropped.
pub struct Registered {
    entry: *mut Entry,
    _file: Vec<u8>,
}

// SAFETY: entries are changed by the one who holds the lock.
unsafe impl Send for Registered {}
// SAFETY: a shared one does nothing.
unsafe impl Sync for Registered {}

/// Held while the list is changed.
fn lock() -> MutexGuard<'static, ()> {
    static LIST: Mutex<()> = Mutex::new(());
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registered {
    /// Tells the debugger of code: an ELF file with the addresses at which the code is.
    pub fn new(file: Vec<u8>) -> Self {
        let (at, size) = (file.as_ptr(), file.len() as u64);
        let _lock = lock();
        // SAFETY: the lock is held, and an entry is freed after it has left the list.
        let entry = unsafe {
            let first = __jit_debug_descriptor.first;
            let new = Entry { next: first, previous: std::ptr::null_mut(), file: at, size };
            let entry = Box::into_raw(Box::new(new));
            if !first.is_null() {
                (*first).previous = entry;
            }
            __jit_debug_descriptor.first = entry;
            __jit_debug_descriptor.relevant = entry;
            __jit_debug_descriptor.action = REGISTERED;
            entry
        };
        __jit_debug_register_code();
        Self { entry, _file: file }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _lock = lock();
        // SAFETY: the lock is held; the entry came from a box and is in the list.
        unsafe {
            let (next, previous) = ((*self.entry).next, (*self.entry).previous);
            match previous.is_null() {
                true => __jit_debug_descriptor.first = next,
                false => (*previous).next = next,
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
            __jit_debug_descriptor.relevant = self.entry;
            __jit_debug_descriptor.action = UNREGISTERED;
        }
        __jit_debug_register_code();
        // SAFETY: as above; nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.entry) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debuggers_list_has_what_is_registered() {
        let listed = || {
            let _lock = lock();
            let mut sizes = Vec::new();
            // SAFETY: the lock is held.
            unsafe {
                let mut entry = __jit_debug_descriptor.first;
                while !entry.is_null() {
                    sizes.push((*entry).size);
                    entry = (*entry).next;
                }
            }
            sizes
        };
        let [first, second, third] = [1, 2, 3].map(|size| Registered::new(vec![0; size]));
        assert_eq!(listed(), [3, 2, 1]);
        drop(second);
        assert_eq!(listed(), [3, 1]);
        drop(third);
        drop(first);
        assert!(listed().is_empty());
    }
}

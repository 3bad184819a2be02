// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host that replaces functions of the C library, as a sanitizer does: the children between clone and
//! execve must call none of them, since the locks behind them may never be released there. Only
//! functions that nothing else in this program calls are hooked; fcntl and write are not.

use std::ffi::{c_char, c_int, c_void};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicI32, Ordering};

use tally_compiler_protocol::Compiler;

/// The descriptor to which a child that has run a hook writes; every child inherits it.
static TELL: AtomicI32 = AtomicI32::new(-1);

fn told(name: &[u8]) {
    // SAFETY: the bytes are valid; an invalid descriptor is refused.
    unsafe {
        libc::syscall(libc::SYS_write, TELL.load(Ordering::Relaxed), name.as_ptr(), name.len())
    };
}

macro_rules! hook {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $number:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> $result {
            told(concat!(stringify!($name), " ").as_bytes());
            // SAFETY: the caller passed these arguments to the C library.
            unsafe { libc::syscall(libc::$number, $($argument),*) as $result }
        }
    };
}
hook!(dup2(from: c_int, to: c_int) -> c_int, SYS_dup2);
hook!(setpgid(process: c_int, group: c_int) -> c_int, SYS_setpgid);
hook!(execve(file: *const c_char, words: *const c_void, environment: *const c_void) -> c_int, SYS_execve);

#[unsafe(no_mangle)]
extern "C" fn sigprocmask(how: c_int, new: *const u64, old: *mut u64) -> c_int {
    told(b"sigprocmask ");
    // SAFETY: the caller passed these arguments to the C library; the kernel's set has the size of a
    // u64.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, size_of::<u64>()) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    told(b"_exit ");
    loop {
        // SAFETY: ends this process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

#[test]
fn the_children_call_no_function_that_a_host_may_have_replaced() {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors. None of them blocks.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) }, 0);
    TELL.store(ends[1], Ordering::Relaxed);
    // One program that ends at once, and one that the kernel does not start.
    let dir = std::env::temp_dir().join(format!("tally-hooks-{}", std::process::id()));
    let program = dir.join("tally-compiler");
    fs::create_dir_all(&dir).expect("a folder");
    symlink("/bin/true", &program).expect("a link");
    assert!(Compiler::start(Some(&dir)).is_ok());
    fs::remove_file(&program).expect("it is there");
    fs::write(&program, "no program").expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    assert!(Compiler::start(Some(&dir)).is_err());
    fs::remove_dir_all(&dir).expect("it is there");
    let mut heard = [0_u8; 256];
    // SAFETY: the buffer has that size.
    let length = unsafe { libc::read(ends[0], heard.as_mut_ptr().cast(), heard.len()) };
    let heard = &heard[..usize::try_from(length).unwrap_or(0)];
    assert_eq!(String::from_utf8_lossy(heard), "");
    // The hooks themselves work.
    // SAFETY: both are descriptors; nothing is done with the copy.
    let copy = unsafe { libc::dup2(ends[0], ends[0]) };
    assert_eq!(copy, ends[0]);
    let mut heard = [0_u8; 5];
    // SAFETY: as above.
    let length = unsafe { libc::read(ends[0], heard.as_mut_ptr().cast(), heard.len()) };
    assert_eq!((length, &heard), (5, b"dup2 "));
}

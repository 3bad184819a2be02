// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rights that the engine process gives up before it runs any code of the guest.

use std::io;

use crate::VA_START;

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the process end with its parent, forbids it new rights, and prevents that it is traced or dumped.
pub(crate) fn drop_rights() -> io::Result<()> {
    const ON: libc::c_ulong = 1;
    const OFF: libc::c_ulong = 0;
    // SAFETY: prctl with numbers, and a string that outlives the call.
    unsafe {
        check(libc::prctl(libc::PR_SET_NAME, c"tally-engine".as_ptr()))?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong))?;
        check(libc::prctl(libc::PR_SET_DUMPABLE, OFF))?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, ON, OFF, OFF, OFF))?;
    }
    Ok(())
}

/// Sets the limits of core dumps, files and processes to 0, in addition to the filter.
pub(crate) fn drop_limits() -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    for resource in [
        libc::RLIMIT_CORE,
        libc::RLIMIT_FSIZE,
        libc::RLIMIT_MEMLOCK,
        libc::RLIMIT_MSGQUEUE,
        libc::RLIMIT_NOFILE,
        libc::RLIMIT_NPROC,
        libc::RLIMIT_RTPRIO,
    ] {
        // SAFETY: the struct is valid for the call.
        check(unsafe { libc::setrlimit(resource, &none) })?;
    }
    Ok(())
}

/// Closes all descriptors from `first` to `last`.
pub(crate) fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the caller owns no object for a descriptor of the range.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    check(result as libc::c_int)
}

/// Makes sure that the C library's own heap needs no more memory later: threads
/// that touch a thread-local with a destructor take a few bytes there.
pub(crate) fn warm_up_libc() {
    const ROOM: usize = 1 << 20;
    // SAFETY: numbers, then a block that is freed at once and stays in the heap.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::free(libc::malloc(ROOM));
    }
}

/// Checks that all memory of this process is outside of all windows.
pub(crate) fn check_layout(mapped: usize, va_end: u64) -> io::Result<()> {
    static IMAGE: u8 = 0;
    let stack = 0u8;
    let places = [(&raw const IMAGE).addr(), (&raw const stack).addr(), mapped];
    if places.iter().all(|&it| !(VA_START..va_end).contains(&(it as u64))) {
        return Ok(());
    }
    let text = format!("the addresses {places:x?} are in the way of the guest's");
    Err(io::Error::other(text))
}

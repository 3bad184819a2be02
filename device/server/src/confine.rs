// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rights that the hub gives up once it listens at its socket. It runs no code of the guest, but it reads
//! data that the guest has written; if a guest ever takes it over that way, it gets only the remaining rights.
//!
//! - Landlock: no file of the host can be opened, made or changed, no network be reached, no signal be sent to
//!   other programs, and none of their abstract sockets be used. Engine processes inherit it.
//! - A system call filter refuses the calls that neither the hub nor an engine process needs and that are most
//!   often used in attacks on kernels.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tally_engine::filter;

/// System calls that are refused with EPERM.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_shmget,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_quotactl,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// `struct landlock_ruleset_attr` of Linux 6.12.
#[repr(C)]
struct RulesetAttributes {
    file_system: u64,
    network: u64,
    scoped: u64,
}

/// Gives up the rights, for the calling thread and all threads and processes that it starts. On a kernel
/// without Landlock only the filter remains.
///
/// # Errors
/// The kernel refuses a service that it claims to have.
pub fn confine() -> io::Result<()> {
    // SAFETY: takes numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    match landlock_version() {
        0 => {}
        version => restrict_files(version)?,
    }
    filter::refuse(REFUSED)
}

/// The version of Landlock that the kernel has; 0 if it has none.
fn landlock_version() -> u32 {
    const VERSION: libc::c_ulong = 1;
    let nothing = std::ptr::null::<RulesetAttributes>();
    // SAFETY: asks for a number; there is no struct.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

fn restrict_files(version: u32) -> io::Result<()> {
    // All rights that a version knows are restricted, and no rule grants any.
    let file_system_rights = match version {
        1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    let attributes = RulesetAttributes {
        file_system: (1 << file_system_rights) - 1,
        network: if version >= 4 { 0b11 } else { 0 },
        scoped: if version >= 6 { 0b11 } else { 0 },
    };
    // An older kernel does not know the later fields, and refuses them unless they are zero.
    let bytes = size_of::<RulesetAttributes>();
    // SAFETY: the struct is valid for the call; the descriptor has no other owner.
    let rules = unsafe {
        let fd = libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attributes,
            bytes,
            0 as libc::c_ulong,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd as i32)
    };
    // SAFETY: takes numbers.
    let done = unsafe {
        libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0 as libc::c_ulong)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "no file of the host can be opened, made or changed, no network be reached"
    #[test]
    fn nothing_of_the_host_is_left() {
        let file = std::env::temp_dir().join(format!("tally-confine-{}", std::process::id()));
        std::fs::write(&file, "before").unwrap();
        // Both apply to the thread that asks for them.
        let path = file.clone();
        let tried = std::thread::spawn(move || {
            confine().unwrap();
            let network = std::net::TcpListener::bind("127.0.0.1:0");
            let other = std::fs::write(path.with_extension("other"), "new");
            // SAFETY: takes numbers.
            let shared = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, 0o600) };
            let shared = (shared < 0).then(io::Error::last_os_error);
            let files = (std::fs::read(&path), std::fs::write(&path, "after"), other);
            (files, network.err(), shared)
        });
        let ((read, written, made), network, shared) = tried.join().unwrap();
        let refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        assert!(network.is_some_and(refused) && shared.is_some_and(refused));
        if landlock_version() != 0 {
            assert!(read.is_err_and(refused) && written.is_err_and(refused));
            assert!(made.is_err_and(refused));
            assert_eq!(std::fs::read(&file).unwrap(), b"before");
        }
        std::fs::remove_file(&file).unwrap();
    }
}

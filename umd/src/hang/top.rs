// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_TOP`: a live process answers `tally-top` with the state of its queues and their waits for each other.
//!
//! A thread listens at an abstract Unix socket, [`NAME`] with the process's id. A client that connects as the same
//! user gets one report as JSON, and the connection is closed. The thread reads nothing from it, so a client
//! cannot change anything, and nothing is left behind in a file system.

use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Once;
use std::time::Duration;

use super::gather::gather;
use super::report::Report;
use crate::host_waits;
use crate::settings;

/// The socket's name in the abstract namespace, before the process's id.
pub const NAME: &str = "tally-top-";

/// Time after which a client that does not read is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts to answer, if `TALLY_TOP` is set; once per process.
pub fn serve() {
    static STARTED: Once = Once::new();
    if !settings::get().top {
        return;
    }
    STARTED.call_once(|| {
        let started = listen().and_then(|listener| {
            std::thread::Builder::new().name("tally-top".into()).spawn(move || answer(&listener))
        });
        if let Err(error) = started {
            log::error!("TALLY_TOP: {error}");
        }
    });
}

fn listen() -> io::Result<UnixListener> {
    let name = format!("{NAME}{}", std::process::id());
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn answer(listener: &UnixListener) {
    // The process's own threads handle its signals.
    // SAFETY: both sets are ours; the call changes only this thread's mask.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
    for client in listener.incoming() {
        let Ok(mut client) = client else {
            // No file descriptor is free at the moment.
            std::thread::sleep(PATIENCE);
            continue;
        };
        if crate::process::is_gone() {
            return;
        }
        if is_same_user(&client) {
            // A client that disconnects early is not an error.
            let _ = client.set_write_timeout(Some(PATIENCE));
            let _ = client.write_all(report().to_json().as_bytes());
        }
    }
}

/// Whether the other end of a connection belongs to the user of this process.
pub fn is_same_user(stream: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let fd: BorrowedFd<'_> = std::os::fd::AsFd::as_fd(stream);
    // SAFETY: the socket is open, and the answer has room for a ucred.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut size,
        )
    };
    // SAFETY: takes no arguments and cannot fail.
    result == 0 && peer.uid == unsafe { libc::geteuid() }
}

/// A report of this process.
fn report() -> Report {
    gather(&host_waits::all())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_TOP`: a live process answers `tally-top` with what its queues do and who waits for whom.
//!
//! A thread listens at an abstract Unix socket, [`NAME`] with the process' number. A client that connects as
//! the same user gets one report as JSON, and the connection is closed. Nothing is read from it, so a
//! client can change nothing; nothing is left behind in a file system.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use super::report::Report;
use super::{HostWait, Waiting, calls, gather, thread};
use crate::settings;

/// The socket's name in the abstract namespace, before the process' number.
pub const NAME: &str = "tally-top-";

/// A client that does not read is left after this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts to answer, if `TALLY_TOP` asks for it; once a process.
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
    // Signals of the process are its own threads' business.
    // SAFETY: both sets are ours; the call changes this thread's mask only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
    for client in listener.incoming() {
        let Ok(mut client) = client else {
            // Out of file descriptors, for now.
            std::thread::sleep(PATIENCE);
            continue;
        };
        if crate::process::is_gone() {
            return;
        }
        if is_same_user(&client) {
            // A client that goes away early has seen enough.
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

/// A wait of a host thread, from its beginning.
struct Wait {
    thread: i32,
    call: &'static str,
    waiting: Waiting,
    since: Instant,
}

fn host_waits() -> MutexGuard<'static, BTreeMap<u64, Wait>> {
    static WAITS: Mutex<BTreeMap<u64, Wait>> = Mutex::new(BTreeMap::new());
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, this thread's wait is in the report.
pub struct Noted(u64);

/// Notes a wait of this thread that may last, if reports are on.
pub fn note(waiting: Waiting) -> Option<Noted> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    settings::get().top.then(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (thread, call, since) = (thread(), calls::current(), Instant::now());
        host_waits().insert(number, Wait { thread, call, waiting, since });
        Noted(number)
    })
}

impl Drop for Noted {
    fn drop(&mut self) {
        host_waits().remove(&self.0);
    }
}

/// What the process does now.
fn report() -> Report {
    // Looked at without the lock, which threads take before they wait.
    let waits: Vec<_> = host_waits()
        .values()
        .map(|&Wait { thread, call, waiting, since }| HostWait {
            thread,
            call,
            waiting,
            lasted: since.elapsed(),
        })
        .collect();
    gather(&waits)
}

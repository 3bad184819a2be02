// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of an engine process: it receives descriptors from the hub, starts
//! all threads, gives up all rights, and carries out orders.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tally_device::{Clock, Config, Confined, Device, VmId, Waiters};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::commands::{Engine, Voice};
use crate::mailbox::{Mailbox, MailboxMap};
use crate::{FIRST_FILE, MAX_FILES, confine, filter};

/// Descriptors of a process that was just started: its socket to the hub is
/// its standard input.
const SOCKET: i32 = 0;
const FIRST_FREE: u32 = 3;
/// The descriptor of the mailbox; those of the guest's memory files follow it.
const MAILBOX: i32 = FIRST_FILE as i32 - 1;

/// Runs the engine process.
///
/// # Errors
/// It was not started by the hub, or could not get a resource that it needs.
/// Once it is confined it does not return.
pub fn run() -> io::Result<Infallible> {
    confine::close_range(FIRST_FREE, u32::MAX)?;
    let socket = take_socket()?;
    let mailbox = receive(&socket)?;
    confine::drop_rights()?;
    let va_end = mailbox.setup.va_end.load(Ordering::Relaxed);
    confine::check_layout(std::ptr::from_ref(mailbox).addr(), va_end)?;
    confine::warm_up_libc();
    let engine = start(mailbox)?;
    let own = Arc::clone(&engine);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("tally-bell".into()).spawn(move || {
        // The main thread continues only once this one exists.
        let _ = tell.send(());
        own.listen()
    })?;
    let _ = told.recv();
    let reports = filter::report_mappings()?;
    socket.send_with_fd(&b"r"[..], reports.as_raw_fd()).map_err(io::Error::from)?;
    drop((reports, socket));
    confine::close_range(0, MAILBOX as u32)?;
    confine::drop_limits()?;
    filter::confine_all_threads()?;
    engine.obey()
}

/// The socket to the hub.
fn take_socket() -> io::Result<UnixStream> {
    // SAFETY: std keeps no object for the standard input that closes it.
    let socket = unsafe { UnixStream::from_raw_fd(SOCKET) };
    match socket.peer_addr() {
        Ok(_) => Ok(socket),
        Err(_) => Err(io::Error::other("this program is started by tally-gpu only")),
    }
}

/// Receives the mailbox and the files of the guest's memory, at their numbers.
fn receive(socket: &UnixStream) -> io::Result<&'static Mailbox> {
    let mut byte = [0u8; 1];
    let mut fds = [0; MAX_FILES + 1];
    let mut parts = [libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 }];
    // SAFETY: the part names one byte that outlives the call.
    let received = unsafe { socket.recv_with_fds(&mut parts, &mut fds) };
    let (bytes, count) = received.map_err(io::Error::from)?;
    let expected = (MAILBOX..).take(count);
    if bytes != 1 || count == 0 || !fds[..count].iter().copied().eq(expected) {
        return Err(io::Error::other("the descriptors have not come as expected"));
    }
    // SAFETY: it has just been received. It is closed with the other low descriptors.
    let mailbox = unsafe { OwnedFd::from_raw_fd(MAILBOX) };
    let mapped = MailboxMap::map(&mailbox)?.leak();
    if mapped.setup.files.load(Ordering::Relaxed) as usize != count - 1 {
        return Err(io::Error::other("a file of the guest's memory is missing"));
    }
    // The number stays in use until all low numbers are closed at once.
    std::mem::forget(mailbox);
    Ok(mapped)
}

/// Makes the device with all its threads.
fn start(mailbox: &'static Mailbox) -> io::Result<Arc<Engine>> {
    let setup = &mailbox.setup;
    let number = |word: &std::sync::atomic::AtomicU32| word.load(Ordering::Relaxed);
    let confined = Confined {
        clock: Clock::starting_at(setup.clock_start.load(Ordering::Relaxed)),
        waiters: &mailbox.to_hub.waiters,
        outside: outside(mailbox)?,
    };
    let config = Config {
        compute_engines: number(&setup.compute_engines),
        copy_engines: number(&setup.copy_engines),
        workers: Some(number(&setup.workers) as usize),
        substitutes: Some(number(&setup.substitutes) as usize),
        reset_time: Duration::from_millis(u64::from(number(&setup.reset_ms))),
        confined: Some(confined),
        group_memory: None,
        numbers: None,
        chaos: (number(&setup.chaos) != 0).then(|| setup.seed.load(Ordering::Relaxed)),
    };
    let device = Device::new(config, Arc::new(Voice(&mailbox.to_hub))).map_err(io::Error::other)?;
    let vm = device.create_vm(VmId(number(&setup.vm)));
    Ok(Arc::new(Engine::new(mailbox, device, vm)))
}

/// The guest's waiters page, mapped read-only.
fn outside(mailbox: &Mailbox) -> io::Result<&'static Waiters> {
    let file = FIRST_FILE as i32 + mailbox.setup.waiters_file.load(Ordering::Relaxed) as i32;
    let offset = mailbox.setup.waiters_offset.load(Ordering::Relaxed) as libc::off_t;
    // SAFETY: a fresh mapping touches nothing that exists; the result is checked.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Waiters>(),
            libc::PROT_READ,
            libc::MAP_SHARED,
            file,
            offset,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mapped for the process's life, page-aligned, and only ever loaded
    // from; any bytes are atomics.
    Ok(unsafe { &*page.cast::<Waiters>() })
}

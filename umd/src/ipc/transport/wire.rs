// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets and messages between exporter and importer.
//!
//! The importer sends one [`Ask`]; the exporter answers with one [`Grant`], to which the file is
//! attached, and from then on both send [`Note`]s. Sockets keep the boundaries of messages.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::process::Pid;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::handle::Secret;

/// The time for which either side waits for an answer from the other.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Facts that are sent with the memory.
pub type Facts = [u64; 4];

/// The importer's request.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Ask {
    /// The secret of the handle.
    pub secret: Secret,
    /// The value of the handle.
    pub value: u64,
    /// The requested kind of object.
    pub kind: u32,
    /// Zero.
    pub pad: u32,
}

/// The exporter's answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Grant {
    /// The buffer's offset in the file.
    pub offset: u64,
    /// The size of the buffer in bytes.
    pub size: u64,
    /// The facts of this kind of handle.
    pub facts: Facts,
    /// One of [`verdict`].
    pub verdict: u32,
    /// 1 if the importer may only read.
    pub read_only: u32,
}

/// Values of [`Grant::verdict`].
pub mod verdict {
    /// The file is attached.
    pub const GRANTED: u32 = 0;
    /// There is no such secret.
    pub const UNKNOWN: u32 = 1;
    /// The secret is known, but the object that it named no longer exists or cannot be sent.
    pub const GONE: u32 = 2;
}

/// The notes that the two ends of an import send each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u32)]
pub enum Note {
    /// An event cell was signalled.
    Changed = 1,
    /// The counter has reached the value; the import is not needed any more.
    Reached = 2,
    /// The exporter's device is lost and signals nothing any more.
    Lost = 3,
    /// The list that was to reach the value was reset or destroyed before it was executed.
    Abandoned = 4,
}

/// A connection that sends notes without ever blocking.
#[derive(Clone, Debug)]
pub struct Line(Arc<OwnedFd>);

impl Line {
    /// A line over a connected socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self(Arc::new(socket))
    }

    /// Sends a note with the number of the cell that it concerns. If the socket is full, the other end has
    /// many notes to read and then checks all cells. If the other end is gone, the note is not needed.
    pub fn tell(&self, note: Note, cell: u32) {
        let words = [note as u32, cell];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // The doc comment covers every way in which this fails.
        let _ = rustix::net::send(&self.0, words.as_bytes(), flags);
    }

    /// The next note, if one has arrived.
    ///
    /// # Errors
    /// EAGAIN: none has arrived. Others: the other end is gone, or violates the protocol.
    pub fn hear(&self) -> Result<(Note, u32)> {
        let mut words = [0_u32; 2];
        let bytes = words.as_mut_bytes();
        let whole = bytes.len();
        let (length, _) = rustix::net::recv(&self.0, bytes, RecvFlags::DONTWAIT)?;
        let note = Note::from_repr(words[0]).filter(|_| length == whole);
        Ok((note.ok_or(Errno::CONNRESET)?, words[1]))
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn address(exporter: &Secret) -> Result<SocketAddrUnix> {
    let number = u128::from_be_bytes(*exporter);
    SocketAddrUnix::new_abstract_name(format!("tally-ipc-{number:032x}").as_bytes())
}

fn socket(flags: SocketFlags) -> Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The exporter's socket, to which importers connect.
///
/// # Errors
/// No descriptor is free.
pub fn listen(exporter: &Secret) -> Result<OwnedFd> {
    let socket = socket(SocketFlags::NONBLOCK)?;
    rustix::net::bind(&socket, &address(exporter)?)?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

/// Accepts an importer's connection, if its process runs as the same user.
///
/// # Errors
/// EAGAIN: no connection is pending. EACCES: the peer is another user's process.
pub fn accept(listener: &OwnedFd) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::accept_with(listener, flags)?;
    same_user(&socket)?;
    Ok(socket)
}

/// A connection to an exporter, and the exporter's process where it is visible in this namespace.
///
/// # Errors
/// ECONNREFUSED: it is gone. EACCES: another user's process has that name.
pub fn connect(exporter: &Secret) -> Result<(OwnedFd, Option<Pid>)> {
    let socket = socket(SocketFlags::empty())?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    rustix::net::connect(&socket, &address(exporter)?)?;
    let pid = same_user(&socket)?;
    Ok((socket, pid))
}

/// Checks that the other end runs as the same user, and returns its process.
fn same_user(socket: &OwnedFd) -> Result<Option<Pid>> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // rustix cannot represent process 0, which stands for a process of another namespace here.
    // SAFETY: the option's value is this struct, which the call fills.
    let answer = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            place,
            &raw mut size,
        )
    };
    if answer != 0 || peer.uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::ACCESS);
    }
    Ok(Pid::from_raw(peer.pid))
}

/// Sends a message, with a file if there is one.
///
/// # Errors
/// The other end is gone or does not accept the message.
pub fn send<T: IntoBytes + Immutable>(
    socket: impl AsFd,
    message: &T,
    file: Option<BorrowedFd<'_>>,
) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let parts = &[IoSlice::new(message.as_bytes())];
    rustix::net::sendmsg(socket, parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message, if it has the size of a `T`, and the file that is attached to it. All further files
/// are closed.
///
/// # Errors
/// EAGAIN: none has arrived yet. ECONNRESET: the other end is gone or sent something else.
pub fn receive<T: FromBytes + IntoBytes>(socket: impl AsFd) -> Result<(T, Option<OwnedFd>)> {
    let mut message = T::new_zeroed();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(message.as_mut_bytes())];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = rustix::net::recvmsg(socket, parts, &mut control, flags)?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());
    if got.bytes != size_of::<T>() {
        return Err(Errno::CONNRESET);
    }
    Ok((message, file))
}

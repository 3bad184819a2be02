// SPDX-License-Identifier: MIT OR Apache-2.0
//! The importer's end of a connection.

use std::sync::{Arc, Weak};

use rustix::io::Errno;
use tally_ze::ze_result_t;

use super::handle::{Handle, Kind};
use super::offer::Endpoint;
use super::peer::Peer;
use super::reactor;
use super::wire::{self, Ask, Facts, Grant, Line, PATIENCE, verdict};
use crate::backend::SharedBo;
use crate::error::{Error, Result};

/// The grant of an exporter.
pub struct Granted {
    /// The memory.
    pub bo: SharedBo,
    /// The facts that the exporter sent with it.
    pub facts: Facts,
    pending: Pending,
}

/// An import. The exporter keeps the memory until this is dropped.
#[derive(Debug)]
pub struct Link {
    key: u64,
}

/// Asks the exporter for the object that a handle names.
///
/// # Errors
/// INVALID_ARGUMENT: the exporter knows no such handle, or has freed the memory or pool. DEVICE_LOST:
/// it, or the counter's device, is gone. NOT_AVAILABLE: it does not answer. OUT_OF_HOST_MEMORY.
pub fn open(handle: &Handle, name: &str) -> Result<Granted> {
    let ask = Ask { secret: handle.secret, value: handle.value, kind: handle.kind as u32, pad: 0 };
    let connected = || {
        let (socket, pid) = wire::connect(&handle.exporter)?;
        let peer = Peer::of(&handle.exporter, pid)?;
        wire::send(&socket, &ask, None)?;
        peer.wait_for(&socket, PATIENCE)?;
        let (grant, file) = wire::receive::<Grant>(&socket)?;
        Ok((grant, file, socket, peer))
    };
    let (grant, file, socket, peer) = connected().map_err(|errno| refused(errno, name))?;
    match (grant.verdict, file) {
        (verdict::GRANTED, Some(file)) => {
            let Grant { offset, size, facts, read_only, .. } = grant;
            let bo = SharedBo { file, offset, size, read_only: read_only != 0 };
            Ok(Granted { bo, facts, pending: Pending { line: Line::new(socket), peer } })
        }
        // The file is lost in transit if no descriptor is free for it.
        (verdict::GRANTED, None) => Err(reactor::failed("a descriptor", Errno::MFILE)),
        (verdict::GONE, _) => {
            let code = match handle.kind {
                // The counter will not be signalled.
                Kind::Counter => ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
                Kind::Memory | Kind::EventPool => ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT,
            };
            let why = "what it stands for is gone in the process that made it";
            Err(Error::new(code, format!("{name}: {why}")))
        }
        _ => Err(Error::invalid(format!(
            "{name}: the process that is to have made it knows no such handle, or has taken it back"
        ))),
    }
}

fn refused(errno: Errno, name: &str) -> Error {
    use ze_result_t as answer;
    let (code, why) = match errno {
        Errno::CONNREFUSED | Errno::CONNRESET | Errno::SRCH | Errno::PIPE => (
            answer::ZE_RESULT_ERROR_DEVICE_LOST,
            "the process that made it has ended, or is in another network namespace",
        ),
        Errno::TIMEDOUT | Errno::AGAIN => {
            (answer::ZE_RESULT_ERROR_NOT_AVAILABLE, "the process that made it does not answer")
        }
        Errno::ACCESS => {
            (answer::ZE_RESULT_ERROR_INVALID_ARGUMENT, "it was made by another user's process")
        }
        errno => return reactor::failed("a connection", errno),
    };
    Error::new(code, format!("{name}: {why}"))
}

impl Granted {
    /// The memory, the facts, and the connection that becomes the link.
    pub fn into_parts(self) -> (SharedBo, Facts, Pending) {
        (self.bo, self.facts, self.pending)
    }
}

/// A connection whose notes have not been read yet; none is lost meanwhile.
pub struct Pending {
    line: Line,
    peer: Arc<Peer>,
}

impl Pending {
    /// The connection to the exporter.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// The exporter's name for reports.
    pub fn exporter(&self) -> String {
        self.peer.name()
    }

    /// From now on, reports the exporter's notes and its death to `endpoint`.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY.
    pub fn link(self, endpoint: Weak<dyn Endpoint>) -> Result<Link> {
        Ok(Link { key: reactor::import(self.line, &self.peer, endpoint)? })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !crate::process::is_gone() {
            reactor::end_import(self.key);
        }
    }
}

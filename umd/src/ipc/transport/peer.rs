// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of an exporter, and how its end is noticed.
//!
//! The end of a socket is not sufficient: a child that the exporter has forked keeps the socket open
//! when its parent dies.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, Result};
use rustix::process::{Pid, PidfdFlags};

use super::handle::Secret;

/// A process. Shared by all imports from it.
#[derive(Debug)]
pub struct Peer {
    /// `None` where the system cannot report the end of the process; then only the socket shows it.
    process: Option<OwnedFd>,
    /// Its process id, if it is visible in this process's namespace.
    pid: Option<Pid>,
}

impl Peer {
    /// The process `pid` that listens under the name `exporter`.
    ///
    /// # Errors
    /// ESRCH: it has ended.
    pub fn of(exporter: &Secret, pid: Option<Pid>) -> Result<Arc<Self>> {
        static ALL: Mutex<Option<HashMap<Secret, Weak<Peer>>>> = Mutex::new(None);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        if let Some(peer) = all.get(exporter).and_then(Weak::upgrade) {
            return Ok(peer);
        }
        let open = |pid| rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let process = match pid.map(open) {
            Some(Err(Errno::SRCH)) => return Err(Errno::SRCH),
            // Before Linux 5.3, or forbidden by a sandbox.
            Some(Err(_)) | None => None,
            Some(Ok(process)) => Some(process),
        };
        let peer = Arc::new(Self { process, pid });
        all.retain(|_, it| it.strong_count() != 0);
        all.insert(*exporter, Arc::downgrade(&peer));
        Ok(peer)
    }

    /// The descriptor that becomes readable when the process ends.
    pub fn process(&self) -> Option<&OwnedFd> {
        self.process.as_ref()
    }

    /// The name of the process for reports.
    pub fn name(&self) -> String {
        match self.pid {
            Some(pid) => format!("process {}", pid.as_raw_nonzero()),
            None => "a process of another namespace".to_owned(),
        }
    }

    /// Waits until there is something to read from `socket`.
    ///
    /// # Errors
    /// ESRCH: the process has ended first. ETIMEDOUT: neither has happened in time.
    pub fn wait_for(&self, socket: &OwnedFd, patience: std::time::Duration) -> Result<()> {
        let mut both = vec![PollFd::new(socket, PollFlags::IN)];
        both.extend(self.process().map(|process| PollFd::new(process, PollFlags::IN)));
        let limit = Timespec::try_from(patience).map_err(|_| Errno::INVAL)?;
        let end = std::time::Instant::now() + patience;
        loop {
            match rustix::event::poll(&mut both, Some(&limit)) {
                Err(Errno::INTR) if std::time::Instant::now() < end => {}
                Err(errno) => return Err(errno),
                Ok(0) => return Err(Errno::TIMEDOUT),
                // Messages that were sent before it ended are still valid.
                Ok(_) if !both[0].revents().is_empty() => return Ok(()),
                Ok(_) => return Err(Errno::SRCH),
            }
        }
    }
}

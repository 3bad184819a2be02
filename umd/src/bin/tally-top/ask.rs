// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes that answer, and their reports.

use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use serde::Serialize;
use ze_tally::hang::report::Report;
use ze_tally::hang::top::{NAME, is_same_user};

use crate::Result;

/// Time after which a process that does not answer is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// The report of a process.
pub(crate) fn ask(pid: u32) -> Result<Report> {
    let address = SocketAddr::from_abstract_name(format!("{NAME}{pid}"))?;
    let mut stream = UnixStream::connect_addr(&address).map_err(|_| {
        format!("process {pid} does not answer: it has ended, or was started without TALLY_TOP=1, or has made no list yet")
    })?;
    if !is_same_user(&stream) {
        return Err(format!("process {pid} belongs to another user").into());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut report = String::new();
    stream.read_to_string(&mut report)?;
    if report.is_empty() {
        return Err(format!("process {pid} refuses to answer this user").into());
    }
    Report::from_json(&report).map_err(|error| {
        format!("process {pid} answers in another version's words: {error}").into()
    })
}

/// A process that listens.
#[derive(Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The name of its program.
    pub(crate) command: String,
}

/// The processes that listen.
pub(crate) fn processes() -> io::Result<Vec<Process>> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let prefix = format!("@{NAME}");
    let names = sockets.lines().filter_map(|line| line.split_whitespace().nth(7));
    let mut pids: Vec<u32> =
        names.filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids.into_iter().map(|pid| Process { pid, command: command(pid) }).collect())
}

/// The name of a process' program; empty if the process has ended.
pub(crate) fn command(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

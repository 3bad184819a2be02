// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-top`: shows what the queues of a live process do, and which waits for which.
//!
//! It asks processes of the same user that were started with `TALLY_TOP=1`. It only reads.

use std::io::{self, IsTerminal, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::ExitCode;
use std::time::Duration;

use ze_tally::hang::report::Report;
use ze_tally::hang::top::{NAME, is_same_user};

const USAGE: &str = "\
usage: tally-top [OPTION]... [PID]

Shows the queues of a process that uses Tally: what each does, how far its counter is, and for those
that wait: for which value of which counter, which call recorded the wait, who would signal it, and
where waits form a cycle. Without PID: the processes that can be asked.

A process can be asked by its own user, if it was started with TALLY_TOP=1.

  -n, --count N      shows N times, then ends; default: once into a pipe, else until interrupted
  -d, --delay SEC    pause between two; default 1
      --json         a line of JSON each time, for programs; docs/tally-top.md has its fields
  -h, --help         this text
  -V, --version      the version
";

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A process that does not answer is left after this time.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Options {
    pid: Option<u32>,
    count: Option<u64>,
    delay: Option<f32>,
    json: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads the output has seen enough.
        Err(error) if is_closed_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tally-top: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe)
}

fn run() -> Result<()> {
    use lexopt::prelude::*;
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_env();
    let mut out = io::stdout();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('n') | Long("count") => options.count = Some(parser.value()?.parse()?),
            Short('d') | Long("delay") => options.delay = Some(parser.value()?.parse()?),
            Long("json") => options.json = true,
            Value(pid) if options.pid.is_none() => options.pid = Some(pid.parse()?),
            Short('h') | Long("help") => return Ok(out.write_all(USAGE.as_bytes())?),
            Short('V') | Long("version") => {
                return Ok(writeln!(out, "tally-top {}", env!("CARGO_PKG_VERSION"))?);
            }
            _ => return Err(argument.unexpected().into()),
        }
    }
    let Some(pid) = options.pid else {
        return if options.json { Err("--json needs a PID".into()) } else { list(&mut out) };
    };
    let delay = Duration::try_from_secs_f32(options.delay.unwrap_or(1.0))?;
    let screen = out.is_terminal() && !options.json;
    let count = options.count.unwrap_or(if screen { u64::MAX } else { 1 });
    for number in 0..count {
        if number != 0 {
            std::thread::sleep(delay);
        }
        let report = ask(pid)?;
        if screen {
            // Home, and clear to the end of the screen.
            out.write_all(b"\x1b[H\x1b[J")?;
        }
        if options.json {
            writeln!(out, "{}", report.to_json())?;
        } else {
            write!(out, "process {pid} {}\n{}", command(pid), report.table())?;
        }
        out.flush()?;
    }
    Ok(())
}

/// The report of a process.
fn ask(pid: u32) -> Result<Report> {
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

/// Shows the processes that listen.
fn list(out: &mut impl Write) -> Result<()> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let prefix = format!("@{NAME}");
    let names = sockets.lines().filter_map(|line| line.split_whitespace().nth(7));
    let mut pids: Vec<u32> =
        names.filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect();
    pids.sort_unstable();
    pids.dedup();
    if pids.is_empty() {
        writeln!(out, "no process with TALLY_TOP=1 has made a list")?;
    }
    for pid in pids {
        writeln!(out, "{pid} {}", command(pid))?;
    }
    Ok(())
}

/// The name of a process' program.
fn command(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-top`: shows the activity of the queues of a live process, and their waits for each other.
//!
//! It asks processes of the same user that were started with `TALLY_TOP=1`, and changes nothing there.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use tally_cli::Parser;
use tally_cli::progress::Progress;
use tally_cli::top::Arguments;

mod ask;
mod layout;
mod screen;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed the pipe.
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

fn run(arguments: &Arguments) -> Result<()> {
    let mut out = io::stdout();
    let Some(pid) = arguments.pid else {
        return list(&mut out, arguments.json);
    };
    let is_terminal = out.is_terminal() && io::stdin().is_terminal();
    if is_terminal && !arguments.json && !arguments.batch {
        return screen::show(pid, arguments.delay, arguments.count);
    }
    for number in 0..arguments.count.unwrap_or(1) {
        if number != 0 {
            std::thread::sleep(arguments.delay);
        }
        let progress = Progress::of(format!("process {pid} has not answered yet"));
        let report = ask::ask(pid)?;
        drop(progress);
        if arguments.json {
            writeln!(out, "{}", report.to_json())?;
        } else {
            write!(out, "process {pid} {}\n{}", ask::command(pid), report.table())?;
        }
        out.flush()?;
    }
    Ok(())
}

/// Shows the processes that listen.
fn list(out: &mut impl Write, json: bool) -> Result<()> {
    let processes = ask::processes()?;
    if json {
        return Ok(writeln!(out, "{}", serde_json::to_string(&processes)?)?);
    }
    if processes.is_empty() {
        writeln!(out, "no process with TALLY_TOP=1 has made a list")?;
    }
    for it in processes {
        writeln!(out, "{} {}", it.pid, it.command)?;
    }
    Ok(())
}

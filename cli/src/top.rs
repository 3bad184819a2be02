// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `tally-top`.

use std::time::Duration;

use clap::Parser;

/// Shows what the queues of a process do, and which waits for which
///
/// It shows how far each queue's counter is, and for those that wait: for which
/// value of which counter, which call recorded the wait, who would signal it,
/// and where waits form a cycle. Without PID it lists the processes that can be
/// asked.
///
/// A process can be asked by its own user, if it was started with TALLY_TOP=1.
#[derive(Debug, Parser)]
#[command(name = "tally-top", version, max_term_width = 80, verbatim_doc_comment, after_long_help = AFTER)]
pub struct Arguments {
    /// The process
    pub pid: Option<u32>,

    /// End after N reports [default: 1; on a screen: none]
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,

    /// Seconds between two reports, at least 0.1
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub delay: Duration,

    /// Print text one report after another, also on a terminal
    #[arg(short, long)]
    pub batch: bool,

    /// Print each report as a line of JSON
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    // Shorter pauses would disturb the process without showing more.
    let known = text.parse().ok().filter(|&seconds| seconds >= 0.1);
    let pause = known.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    pause.ok_or("it is no number of at least 0.1".to_owned())
}

const AFTER: &str = "\
Keys:
  q, Esc, Ctrl-C       end
  Space                hold the screen, or let it go on
  Up, Down, PgUp, PgDn, Home, End
                       scroll
  w                    only queues that wait or run, or all of them
  +, -                 shorter or longer pauses

Examples:
  TALLY_TOP=1 tally-run ./program &
  tally-top                    the processes that can be asked
  tally-top $!                 a screen that refreshes in place
  tally-top --json $! | jq .cycle

Exit status:
  0  the process has answered, and perhaps ended since
  1  it does not answer
  2  the command line is wrong

See also:
  tally-run(1); docs/tally-top.md explains what is shown";

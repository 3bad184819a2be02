// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells whether the compiler process still makes progress. On a busy machine a build can take many
//! times its processor time, so a process counts as stuck only if it does not ask for a processor.

use std::fs;

/// A process and its last observation; at first there is none.
pub(crate) struct Activity {
    process: libc::pid_t,
    ticks: u64,
}

impl Activity {
    pub(crate) fn of(process: libc::pid_t) -> Self {
        Self { process, ticks: 0 }
    }

    /// Whether it has used processor time since the last call, or is waiting for a processor or a disk.
    /// False for a process whose state cannot be read.
    pub(crate) fn goes_on(&mut self) -> bool {
        let Some(ticks) = ticks(self.process) else { return false };
        let before = std::mem::replace(&mut self.ticks, ticks);
        ticks != before || any_thread_is_ready(self.process)
    }
}

/// Processor time in clock ticks.
fn ticks(process: libc::pid_t) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut times = fields(&stat)?.skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

fn any_thread_is_ready(process: libc::pid_t) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        fields(&stat).and_then(|mut it| it.next()).is_some_and(|state| matches!(state, "R" | "D"))
    })
}

/// The fields behind the program's name, which may hold blanks and brackets: the state, then numbers.
fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn start(program: &str) -> (Child, Activity) {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn().expect("it is there");
        let activity = Activity::of(child.id() as libc::pid_t);
        (child, activity)
    }

    #[test]
    fn a_process_that_wants_a_processor_goes_on() {
        let (mut child, mut activity) = start("yes");
        assert!((0..100).all(|_| activity.goes_on()));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(!activity.goes_on(), "it is gone");
    }

    #[test]
    fn a_process_that_waits_for_input_does_not() {
        let (mut child, mut activity) = start("cat");
        while activity.goes_on() {
            thread::sleep(Duration::from_millis(1));
        }
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}

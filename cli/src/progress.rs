// SPDX-License-Identifier: MIT OR Apache-2.0
//! A progress line on a terminal for work that takes longer than two seconds.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shorter work is not worth a line.
const SILENCE: Duration = Duration::from_secs(2);
const PERIOD: Duration = Duration::from_secs(1);
/// Returns to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Shows on standard error what the program is doing and for how long, until it is dropped. It shows nothing
/// if standard error is not a terminal.
#[derive(Debug)]
pub struct Progress {
    // Taken by drop, which lets the thread end.
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins to show `text`.
    pub fn of(text: impl Into<String>) -> Self {
        if !io::stderr().is_terminal() {
            return Self { ended: None, thread: None };
        }
        Self::on(io::stderr(), text.into(), SILENCE, PERIOD)
    }

    fn on(
        mut out: impl Write + Send + 'static,
        text: String,
        silence: Duration,
        period: Duration,
    ) -> Self {
        let (ended, end) = mpsc::channel();
        let show = move || {
            let start = Instant::now();
            let mut pause = silence;
            let mut shown = false;
            while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = period;
                shown = true;
                let seconds = start.elapsed().as_secs();
                // If the terminal is gone, no line is needed.
                let _ = write!(out, "{CLEAR}{text}: {seconds} s").and_then(|()| out.flush());
            }
            if shown {
                let _ = write!(out, "{CLEAR}").and_then(|()| out.flush());
            }
        };
        // Without a thread there is no line, which does no harm.
        let thread = thread::Builder::new().name("progress".into()).spawn(show).ok();
        Self { ended: Some(ended), thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A writer that reports each write.
    #[derive(Clone)]
    struct Screen(Arc<Mutex<String>>, Sender<()>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").push_str(&String::from_utf8_lossy(bytes));
            let _ = self.1.send(());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_takes_long_is_shown_and_its_line_cleared() {
        let (wrote, writes) = mpsc::channel();
        let screen = Screen(Arc::default(), wrote);
        let none = Duration::ZERO;
        let progress = Progress::on(screen.clone(), "building".into(), none, none);
        for _ in 0..20 {
            writes.recv().expect("it goes on");
        }
        drop(progress);
        let text = screen.0.lock().expect("no panic").clone();
        assert!(text.starts_with("\r\x1b[Kbuilding: 0 s") && text.ends_with(CLEAR), "{text}");
    }

    #[test]
    fn what_is_quick_is_not_shown() {
        let screen = Screen(Arc::default(), mpsc::channel().0);
        drop(Progress::on(screen.clone(), "building".into(), Duration::MAX, Duration::MAX));
        assert_eq!(*screen.0.lock().expect("no panic"), "");
    }
}

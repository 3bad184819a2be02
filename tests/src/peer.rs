// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second process that a test communicates with: an ignored test of the same program, line by line.
//!
//! ```text
//! let mut peer = Peer::start("child_that_exports");      // in the test
//! let handle = peer.hear_handle();
//! peer.say("signal");
//! peer.finish();                                         // it must end by itself, and well
//!
//! peer::say_handle(&handle.data);                        // in the child
//! peer::expect("signal");
//! ```

use std::ffi::c_char;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Prefix of the lines of the conversation; the test harness prints others.
const MARK: &str = "peer> ";
/// The time that a line may take to arrive.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of a handle.
pub type HandleBytes = [c_char; tally_ze::ZE_MAX_IPC_HANDLE_SIZE];

/// The other process. Killed on drop.
pub struct Peer {
    name: String,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Peer {
    /// Starts an ignored test of this program.
    pub fn start(test: &str) -> Self {
        Self::start_with(test, &[])
    }

    /// The same with more variables in its environment.
    ///
    /// # Panics
    /// If no process can be started.
    pub fn start_with(test: &str, variables: &[(&str, &str)]) -> Self {
        let program = std::env::current_exe().expect("Linux knows the program's file");
        let mut child = Command::new(program)
            .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a test program can be started");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // A line may follow unterminated output of the harness.
                if let Some((_, said)) = line.split_once(MARK) {
                    // The receiver is gone: the test has ended.
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Self { name: test.to_owned(), child, input, lines }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line to it.
    ///
    /// # Panics
    /// If it has ended.
    pub fn say(&mut self, line: &str) {
        let said = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        said.unwrap_or_else(|error| panic!("{} does not hear {line:?}: {error}", self.name));
    }

    /// Sends the bytes of a handle.
    pub fn say_handle(&mut self, handle: &HandleBytes) {
        self.say(&to_hex(handle));
    }

    /// The next line that it sends.
    ///
    /// # Panics
    /// If it ends or sends nothing.
    pub fn hear(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{} says nothing", self.name),
            Err(RecvTimeoutError::Disconnected) => panic!("{} has ended", self.name),
        }
    }

    /// The next line; none if it ends instead.
    ///
    /// # Panics
    /// If it sends nothing and does not end.
    pub fn hear_or_end(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{} says nothing", self.name),
        }
    }

    /// Expects exactly this line.
    ///
    /// # Panics
    /// If it sends something else.
    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.hear(), line, "{}", self.name);
    }

    /// Receives the bytes of a handle.
    pub fn hear_handle(&mut self) -> HandleBytes {
        from_hex(&self.hear())
    }

    /// Kills it without warning and waits for its end.
    pub fn kill(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If its test fails.
    pub fn finish(mut self) {
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{}: {status}", self.name);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In the child: sends a line.
pub fn say(line: &str) {
    println!("{MARK}{line}");
}

/// In the child: sends the bytes of a handle.
pub fn say_handle(handle: &HandleBytes) {
    say(&to_hex(handle));
}

/// In the child: the next line.
///
/// # Panics
/// If the test that started it has ended.
pub fn hear() -> String {
    hear_or_end().expect("the test that started this has ended")
}

/// In the child: the next line; none when the test that started it has ended.
///
/// # Panics
/// If standard input cannot be read.
pub fn hear_or_end() -> Option<String> {
    let mut line = String::new();
    let length = std::io::stdin().read_line(&mut line).expect("standard input is a pipe");
    (length != 0).then(|| line.trim_end().to_owned())
}

/// In the child: expects exactly this line.
///
/// # Panics
/// If another line arrives.
pub fn expect(line: &str) {
    assert_eq!(hear(), line);
}

/// In the child: receives the bytes of a handle.
pub fn hear_handle() -> HandleBytes {
    from_hex(&hear())
}

/// The bytes as text: a handle may be transferred in any way that preserves its bytes.
pub fn to_hex(handle: &HandleBytes) -> String {
    handle.iter().map(|&byte| format!("{:02x}", byte as u8)).collect()
}

/// The bytes from text.
///
/// # Panics
/// If it is not that of a handle.
pub fn from_hex(text: &str) -> HandleBytes {
    assert_eq!(text.len(), 2 * size_of::<HandleBytes>(), "{text}");
    std::array::from_fn(|i| {
        let byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("two digits");
        byte as c_char
    })
}

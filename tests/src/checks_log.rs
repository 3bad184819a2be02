// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of the driver's checks (`TALLY_CHECK_LOG`): which commands race.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::process::Command;

/// The environment variable that names the log.
pub const LOG: &str = "TALLY_CHECK_LOG";

/// A race, by the numbers of the appends of the two commands, from 0.
pub type Pair = (usize, usize);

/// Runs the ignored test `child` of this program under `races` and `sync`, with a log of this name in the folder that
/// TALLY_RACES_LOG names, and with further variables. It has to pass, and to use events rightly.
///
/// # Panics
/// It does not.
pub fn told(child: &str, name: &str, more: &[(&str, &str)]) {
    let folder = env::var_os("TALLY_RACES_LOG").map_or_else(env::temp_dir, PathBuf::from);
    let log = folder.join(format!("tally-{name}-{}", std::process::id()));
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", child, "--ignored", "--nocapture"])
        .envs([("TALLY_CHECK", "races,sync"), ("TALLY_LANE", "embedded")])
        .env(LOG, &log)
        .envs(more.iter().copied())
        .output()
        .expect("it starts");
    let _ = fs::remove_file(&log);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, shown) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{shown}\n{said}");
    println!("{}", shown.lines().find(|it| it.contains("pairs told")).unwrap_or_default());
    let mistakes: Vec<&str> = said.lines().filter(|it| it.starts_with("tally: sync")).collect();
    assert!(mistakes.is_empty(), "valid uses of events: {mistakes:?}");
}

/// The lines that the checks have added to their log.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    read: u64,
}

impl Log {
    /// The log at this path, which does not have to exist yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, read: 0 }
    }

    /// The number of commands that were appended since the last call, and the races among them. A copy of a command
    /// counts as the command.
    ///
    /// # Panics
    /// A race names a command from before the last call.
    pub fn take(&mut self) -> (usize, BTreeSet<Pair>) {
        let mut new = String::new();
        // It is there from the first command on.
        if let Ok(mut file) = File::open(&self.path) {
            file.seek(SeekFrom::Start(self.read)).expect("it is a file");
            self.read += file.read_to_string(&mut new).expect("it is text") as u64;
        }
        let (mut commands, mut races) = (Vec::new(), BTreeSet::new());
        // The sources of copies, by their numbers.
        let mut copies = BTreeMap::new();
        for line in new.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<usize>().expect("a number");
            match words[0] {
                "append" => commands.push(number(1)),
                "copy" => {
                    let source = copies.get(&number(2)).copied().unwrap_or(number(2));
                    copies.insert(number(1), source);
                }
                _ => {
                    let place = |number| {
                        let source = copies.get(&number).unwrap_or(&number);
                        commands.iter().position(|it| it == source)
                    };
                    let places = place(number(1)).zip(place(number(2)));
                    let (one, two) = places.expect("commands of this program");
                    races.insert((one.min(two), one.max(two)));
                }
            }
        }
        (commands.len(), races)
    }
}

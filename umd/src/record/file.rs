// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a recording.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The program's name.
pub fn program() -> String {
    let name = std::env::current_exe().ok();
    let name = name.as_deref().and_then(Path::file_name);
    name.map_or_else(|| "program".into(), |name| name.to_string_lossy().into_owned())
}

/// Opens the file of this process. A file that another process is recording to is left to that one.
pub fn open(path: &Path) -> std::io::Result<File> {
    let id = std::process::id();
    let path = match path.is_dir() {
        true => path.join(format!("{}-{id}.tally", program())),
        false => PathBuf::from(path.to_string_lossy().replace("%p", &id.to_string())),
    };
    let open = |path: &Path| {
        OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path)
    };
    let mut file = open(&path)?;
    let lock = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive);
    if lock(&file).is_err() {
        let mut other = path.into_os_string();
        other.push(format!(".{id}"));
        file = open(Path::new(&other))?;
        lock(&file)?;
    }
    file.set_len(0)?;
    Ok(file)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs: their paths, and the files that the kernel would load to run them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file that a shell would start for `name`.
pub(crate) fn find_program(name: &OsStr) -> Option<PathBuf> {
    let executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(executable);
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(executable)
}

/// The files that the kernel would load to run a program.
pub(crate) struct Image {
    /// The interpreter and its arguments, for a script.
    pub(crate) interpreter: Option<(PathBuf, Vec<OsString>)>,
    /// The file that contains machine code.
    pub(crate) file: PathBuf,
}

impl Image {
    /// Follows a script's first line, and env in it.
    pub(crate) fn of(program: &Path) -> Self {
        let interpreter = interpreter(program);
        let file = interpreter.as_ref().map_or(program, |(path, _)| path).to_owned();
        Self { interpreter, file }
    }

    /// Whether the program fails with an old loader: a Python, whose packages contain SYCL, or a program that
    /// is linked with SYCL.
    pub(crate) fn needs_new_loader(&self) -> bool {
        let python = |path: &Path| {
            path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"))
        };
        if python(&self.file) || self.file.canonicalize().is_ok_and(|file| python(&file)) {
            return true;
        }
        let mut bytes = Vec::new();
        let read = File::open(&self.file).and_then(|mut file| file.read_to_end(&mut bytes));
        // A program contains the names of the libraries that it is linked with as text.
        let needle = b"libsycl.so";
        read.is_ok() && bytes.windows(needle.len()).any(|window| window == needle)
    }
}

/// The interpreter that a script names.
fn interpreter(script: &Path) -> Option<(PathBuf, Vec<OsString>)> {
    // Linux reads no more of the line.
    let mut head = Vec::new();
    File::open(script).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let mut parts = line.splitn(2, |byte| byte.is_ascii_whitespace());
    let path = PathBuf::from(OsStr::from_bytes(parts.next()?));
    let argument = parts.next().map(|rest| OsStr::from_bytes(rest.trim_ascii()).to_owned());
    if path.file_name() == Some(OsStr::new("env")) {
        return Some((find_program(&argument?)?, Vec::new()));
    }
    Some((path, argument.into_iter().collect()))
}

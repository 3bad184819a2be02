// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs: their paths, and the files that the kernel would load to run them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use object::LittleEndian;
use object::elf::{self, Dyn64, FileHeader64};
use object::read::elf::{Dyn, FileHeader};

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
        // A program contains the names of the libraries that it is linked with as text.
        contains(&self.file, b"libsycl.so")
    }

    /// The folder of the library of this name that the program brings: the first one in the search path that is
    /// written in it (DT_RUNPATH, DT_RPATH).
    pub(crate) fn folder_of(&self, library: &str) -> Option<PathBuf> {
        let bytes = fs::read(&self.file).ok()?;
        let header = FileHeader64::<LittleEndian>::parse(&*bytes).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &*bytes).ok()?;
        let (dynamic, strings) = sections.dynamic(endian, &*bytes).ok()??;
        let strings = sections.strings(endian, &*bytes, strings).ok()?;
        let program = self.file.canonicalize().ok()?;
        let origin = program.parent()?.as_os_str().as_bytes();
        let is_path = |it: &&Dyn64<_>| {
            [elf::DT_RUNPATH, elf::DT_RPATH].iter().any(|tag| it.d_tag(endian) == *tag)
        };
        let mut paths = dynamic.iter().filter(is_path).filter_map(|it| {
            let offset = u32::try_from(it.d_val(endian)).ok()?;
            strings.get(offset).ok()
        });
        paths.find_map(|path| {
            path.split(|&byte| byte == b':')
                .map(|folder| with_origin(folder, origin))
                .find(|folder| folder.join(library).is_file())
        })
    }
}

/// A folder of a search path with the program's own in the place of `$ORIGIN`.
fn with_origin(folder: &[u8], origin: &[u8]) -> PathBuf {
    let rest = |name: &str| folder.strip_prefix(name.as_bytes());
    match rest("$ORIGIN").or_else(|| rest("${ORIGIN}")) {
        Some(rest) => PathBuf::from(OsString::from_vec([origin, rest].concat())),
        None => PathBuf::from(OsStr::from_bytes(folder)),
    }
}

/// Whether a file contains these bytes.
pub(crate) fn contains(file: &Path, needle: &[u8]) -> bool {
    fs::read(file).is_ok_and(|bytes| bytes.windows(needle.len()).any(|window| window == needle))
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache of built kernels on disk.
//!
//! A module has one file with what it offers, one for the code of each kernel that was created, and one
//! more for a kernel that was launched with uneven rows, if it has code of its own for these:
//!
//! ```text
//!   <hash of the key>.info              the key, ModuleInfo, log
//!   <hash of the key>.<kernel>          another hash of the key, KernelCode
//!   <hash of the key>.<kernel>.uneven   the same
//! ```
//!
//! The key is everything that code depends on: SPIR-V, flags with an effect, constants, links, the processor, the
//! compiler's program. Files appear by renaming, so a reader sees a whole file or none, and whatever
//! is damaged is built anew. Nothing here is reported as an error: a file that can't be read counts as
//! missing, and one that can't be written is not kept.
//!
//! Files in the folder are run as code, so the folder and each file must be the user's own, with no
//! rights for others to write. The folder is looked at once, and used by its descriptor from then on:
//! what its name leads to later does not matter.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use tally_compiler_protocol::{self as protocol, CodeId, Form, KernelCode, ModuleInfo, Source};

use super::build_id;
use crate::{process, settings};

/// One module in the cache.
pub struct Entry {
    cache: &'static Cache,
    key: protocol::Key,
    name: String,
}

/// The folder, and what it is for.
struct Cache {
    folder: Folder,
    /// Identifies the compiler.
    compiler: Vec<u8>,
}

/// The folder.
struct Folder {
    dir: File,
    /// The largest number of bytes that it is to hold.
    limit: u64,
    writes: AtomicU32,
}

/// A file of the cache, in the order of its last use.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    used: SystemTime,
    size: u64,
    name: String,
}

/// Bytes that the folder is to hold if `TALLY_CACHE_MAX` does not say.
const LIMIT: u64 = 1 << 30;
/// The limit is looked after at the first write of a process and then once in so many.
const WRITES_BETWEEN_SWEEPS: u32 = 32;
/// Files of writers that have died are removed after this time.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The process's cache; or why there is none.
fn cache() -> Result<&'static Cache, &'static str> {
    static CACHE: OnceLock<Result<Cache, String>> = OnceLock::new();
    let open = || {
        let settings = settings::get();
        if settings.no_cache {
            return Err("off (TALLY_CACHE=0)".to_owned());
        }
        let Some(dir) = settings.cache_dir.as_deref() else {
            return Err("off (neither TALLY_CACHE_DIR, XDG_CACHE_HOME nor HOME is set)".to_owned());
        };
        let limit = settings.cache_max.unwrap_or(LIMIT);
        match Cache::open(dir, limit) {
            Ok(cache) => {
                log::info!(
                    "built kernels are kept in {}, up to {} MiB",
                    dir.display(),
                    limit >> 20
                );
                Ok(cache)
            }
            Err(error) => {
                let why = format!("off ({}: {error})", dir.display());
                log::warn!("the cache of kernels is {why}");
                Err(why)
            }
        }
    };
    CACHE.get_or_init(open).as_ref().map_err(String::as_str)
}

/// A description of the cache for users: its folder and its size, or the reason why there is none.
pub fn describe() -> String {
    match cache() {
        Ok(cache) => {
            let bytes: u64 = cache.folder.files().iter().map(|it| it.size).sum();
            let path = settings::get().cache_dir.as_deref().unwrap_or(Path::new(""));
            let (used, limit) = (bytes.div_ceil(1 << 20), cache.folder.limit >> 20);
            format!("{}, {used} of {limit} MiB", path.display())
        }
        Err(why) => why.to_owned(),
    }
}

impl Cache {
    fn open(dir: &Path, limit: u64) -> io::Result<Self> {
        let folder = Folder::open(dir, limit)?;
        let program = protocol::program(process::own_folder().as_deref());
        let program = program.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "there is no compiler to keep kernels of")
        })?;
        let of = |name: &str| std::env::var(name).unwrap_or_default();
        let (lanes, skipped) = (of("TALLY_LANES"), of("TALLY_SKIP_PASSES"));
        let compiler = format!("{} {lanes} {skipped}", build_id::of(&program)?);
        Ok(Self { folder, compiler: compiler.into_bytes() })
    }
}

impl Folder {
    fn open(path: &Path, limit: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let dir = File::open(path)?;
        let about = dir.metadata()?;
        if !about.is_dir() || !is_own(&about) {
            let why = "it is no folder of this user's, or others may write to it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Self { dir, limit, writes: AtomicU32::new(0) })
    }

    /// A file in the folder; a link to another place is none.
    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        // Opening must not block if the name belongs to something other than a file.
        let mut file = self.file(name, OFlags::RDONLY | OFlags::NONBLOCK).ok()?;
        let about = file.metadata().ok()?;
        if !about.is_file() || !is_own(&about) {
            log::debug!("{name}: it is no file of this user alone");
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        // Files in use stay in the cache. A file system that cannot store times is no reason not to
        // use the file.
        let _ = file.set_modified(SystemTime::now());
        Some(bytes)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let temporary = format!("{name}.{}-{number}.tmp", std::process::id());
        let written = self
            .file(&temporary, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| Ok(rustix::fs::renameat(&self.dir, &temporary, &self.dir, name)?));
        if let Err(error) = written {
            log::debug!("{temporary}: {error}");
            // A file that was not renamed is of no use; it may be gone already.
            self.remove(&temporary);
        }
        if number.is_multiple_of(WRITES_BETWEEN_SWEEPS) {
            self.sweep();
        }
    }

    /// Removes a file. Another process may have done so just now.
    fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
    }

    /// The files of the cache, the one first that was not used for the longest time.
    fn files(&self) -> Vec<Kept> {
        let Ok(entries) = Dir::read_from(&self.dir) else { return Vec::new() };
        let kept = |name: &str| {
            let about = rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let seconds = u64::try_from(about.st_mtime).unwrap_or(0);
            let used = SystemTime::UNIX_EPOCH + Duration::new(seconds, about.st_mtime_nsec as u32);
            let size = u64::try_from(about.st_size).unwrap_or(0);
            let is_file = FileType::from_raw_mode(about.st_mode).is_file();
            is_file.then(|| Kept { used, size, name: name.to_owned() })
        };
        let names =
            entries.flatten().filter_map(|it| Some(it.file_name().to_str().ok()?.to_owned()));
        let mut files: Vec<_> = names.filter(|it| is_ours(it)).filter_map(|it| kept(&it)).collect();
        files.sort();
        files
    }

    /// Removes the files that were not used for the longest time until the rest is four fifths of
    /// the limit, if it exceeds that, and what dead writers have left.
    fn sweep(&self) {
        let now = SystemTime::now();
        let (abandoned, files): (Vec<_>, Vec<_>) = self.files().into_iter().partition(|it| {
            let age = now.duration_since(it.used).unwrap_or_default();
            it.name.ends_with(".tmp") && age > ABANDONED
        });
        for file in abandoned {
            self.remove(&file.name);
        }
        let mut bytes: u64 = files.iter().map(|it| it.size).sum();
        if bytes <= self.limit {
            return;
        }
        for file in files {
            if bytes <= self.limit / 5 * 4 {
                break;
            }
            self.remove(&file.name);
            bytes -= file.size;
        }
    }
}

/// Whether it belongs to this user, and no other user may write to it.
fn is_own(about: &fs::Metadata) -> bool {
    about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o022 == 0
}

/// Whether a file's name is one that this cache gives: 32 hexadecimal digits and a dot come first.
fn is_ours(name: &str) -> bool {
    let (hash, rest) = name.split_at_checked(32).unwrap_or_default();
    hash.len() == 32 && hash.bytes().all(|it| it.is_ascii_hexdigit()) && rest.starts_with('.')
}

impl Entry {
    /// The entry of a source; `None` if there is no cache.
    pub fn of(source: impl FnOnce() -> Source) -> Option<Self> {
        let cache = cache().ok()?;
        let key = protocol::Key::new(source(), &cache.compiler)?;
        let name = key.name();
        Some(Self { cache, key, name })
    }

    /// The module's exports and log.
    pub fn info(&self) -> Option<(ModuleInfo, String)> {
        self.key.load_info(&self.cache.folder.read(&self.info_file())?)
    }

    /// Keeps what the module offers.
    pub fn put_info(&self, info: &ModuleInfo, log: &str) {
        if let Some(bytes) = self.key.store_info(info, log) {
            self.cache.folder.write(&self.info_file(), &bytes);
        }
    }

    /// A kernel's code.
    pub fn code(&self, code: CodeId, info: &ModuleInfo) -> Option<KernelCode> {
        self.key.load_code(&self.cache.folder.read(&self.code_file(code))?, info)
    }

    /// Keeps a kernel's code.
    pub fn put_code(&self, id: CodeId, code: &KernelCode) {
        if let Some(bytes) = self.key.store_code(code) {
            self.cache.folder.write(&self.code_file(id), &bytes);
        }
    }

    fn info_file(&self) -> String {
        format!("{}.info", self.name)
    }

    fn code_file(&self, CodeId { kernel, form }: CodeId) -> String {
        match form {
            Form::Usual => format!("{}.{kernel}", self.name),
            Form::Uneven => format!("{}.{kernel}.uneven", self.name),
            Form::Sized([x, y, z]) => format!("{}.{kernel}.{x}x{y}x{z}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "what its name leads to later does not matter", and neither do links in it.
    #[test]
    fn the_folder_is_the_one_that_was_looked_at() {
        let base = std::env::temp_dir().join(format!("tally-cache-{}", std::process::id()));
        let (path, moved) = (base.join("folder"), base.join("moved"));
        let folder = Folder::open(&path, 1 << 20).unwrap();
        folder.write("a", b"before");
        fs::rename(&path, &moved).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("a"), "of somebody else").unwrap();
        assert_eq!(folder.read("a").as_deref(), Some(&b"before"[..]));
        folder.write("b", b"after");
        assert!(!path.join("b").exists() && fs::read(moved.join("b")).unwrap() == b"after");
        std::os::unix::fs::symlink(path.join("a"), moved.join("c")).unwrap();
        assert_eq!(folder.read("c"), None);
        fs::remove_dir_all(&base).unwrap();
    }

    /// The files that were used last stay, up to this size.
    #[test]
    fn a_full_folder_loses_what_was_not_used() {
        let base = std::env::temp_dir().join(format!("tally-sweep-{}", std::process::id()));
        let folder = Folder::open(&base, 1000).unwrap();
        let name = |number: u32| format!("{number:032x}.info");
        for number in 0..4 {
            fs::write(base.join(name(number)), [0; 400]).unwrap();
            let file = File::open(base.join(name(number))).unwrap();
            let used = SystemTime::now() - Duration::from_secs(100 - u64::from(number));
            file.set_modified(used).unwrap();
        }
        fs::write(base.join("notes.txt"), [0; 5000]).unwrap();
        assert!(folder.read(&name(0)).is_some());
        folder.sweep();
        let left = |number| base.join(name(number)).exists();
        assert_eq!([0, 1, 2, 3].map(left), [true, false, false, true]);
        assert!(base.join("notes.txt").exists());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn only_names_of_the_cache_are_ever_removed() {
        let hash = "0123456789abcdef0123456789abcdef";
        assert!(is_ours(&format!("{hash}.info")) && is_ours(&format!("{hash}.3.77-0.tmp")));
        for name in ["", "notes.txt", hash, &format!("{hash}x.info"), &"é".repeat(20)] {
            assert!(!is_ours(name), "{name}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache on disk, if `TALLY_CACHE_DIR` names a folder for it.
//!
//! A module has one file with what it offers, and one for the code of each kernel that was created:
//!
//! ```text
//!   <hash of the key>.info       the key, ModuleInfo, log
//!   <hash of the key>.<kernel>   another hash of the key, KernelCode
//! ```
//!
//! The key is everything that code depends on: SPIR-V, flags, constants, links, the processor, the
//! compiler's program. Files appear by renaming, so a reader sees a whole file or none, and whatever
//! is damaged is built anew. Nothing here is an error to anybody: what can't be read is not there,
//! what can't be written is not kept.
//!
//! What lies in the folder is run as code: it must be the user's own, with no rights for others to
//! write.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use tally_compiler_protocol::{self as protocol, KernelCode, ModuleInfo, Source};

use crate::{process, settings};

/// One module in the cache.
pub struct Entry {
    cache: &'static Cache,
    key: protocol::Key,
    name: String,
}

/// The folder.
struct Cache {
    dir: PathBuf,
    /// Most bytes that it is to hold.
    limit: u64,
    /// Tells compilers apart.
    compiler: Vec<u8>,
    writes: AtomicU32,
}

/// Bytes that the folder is to hold if `TALLY_CACHE_MAX` does not say.
const LIMIT: u64 = 512 << 20;
/// The limit is looked after at the first write of a process and then once in so many.
const WRITES_BETWEEN_SWEEPS: u32 = 32;
/// Files of writers that have died are removed after this time.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The process's cache.
fn cache() -> Option<&'static Cache> {
    static CACHE: OnceLock<Option<Cache>> = OnceLock::new();
    let open = || {
        let settings = settings::get();
        let dir = settings.cache_dir.as_deref()?;
        match Cache::open(dir, settings.cache_max.unwrap_or(LIMIT)) {
            Ok(cache) => Some(cache),
            Err(error) => {
                log::warn!("TALLY_CACHE_DIR: {}: {error}; nothing is cached", dir.display());
                None
            }
        }
    };
    CACHE.get_or_init(open).as_ref()
}

impl Cache {
    fn open(dir: &Path, limit: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let about = fs::metadata(dir)?;
        let own = about.uid() == rustix::process::geteuid().as_raw();
        if !own || about.mode() & 0o022 != 0 {
            let why = "the folder is not this user's, or others may write to it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let program = protocol::program(process::own_folder().as_deref());
        let program = program.ok_or(io::ErrorKind::NotFound)?;
        let about = fs::metadata(&program)?;
        let lanes = std::env::var("TALLY_LANES").unwrap_or_default();
        let (size, inode, seconds, ns) =
            (about.len(), about.ino(), about.mtime(), about.mtime_nsec());
        let compiler = format!("{} {size} {inode} {seconds} {ns} {lanes}", program.display());
        let writes = AtomicU32::new(0);
        Ok(Self { dir: dir.to_owned(), limit, compiler: compiler.into_bytes(), writes })
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut file = File::open(self.dir.join(name)).ok()?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes).ok()?;
        // So that what is used stays; a file system that can't is no reason not to use it.
        let _ = file.set_modified(SystemTime::now());
        Some(bytes)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let temporary = self.dir.join(format!("{name}.{}-{number}.tmp", std::process::id()));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&temporary, self.dir.join(name)));
        if let Err(error) = written {
            log::debug!("{}: {error}", temporary.display());
            // What was not renamed is of no use; if it is not there, so much the better.
            let _ = fs::remove_file(&temporary);
        }
        if number.is_multiple_of(WRITES_BETWEEN_SWEEPS) {
            self.sweep();
        }
    }

    /// Removes the files that were not used for the longest time until the rest is four fifths of
    /// the limit, if it exceeds that, and what dead writers have left.
    fn sweep(&self) {
        let Ok(folder) = fs::read_dir(&self.dir) else { return };
        let now = SystemTime::now();
        let mut files = Vec::new();
        for entry in folder.flatten() {
            let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
            if !about.is_file() || !is_ours(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let used = about.modified().unwrap_or(now);
            let age = now.duration_since(used).unwrap_or_default();
            if path.extension().is_some_and(|it| it == "tmp") && age > ABANDONED {
                // Another process may have removed it just now.
                let _ = fs::remove_file(path);
                continue;
            }
            files.push((used, about.len(), path));
        }
        let mut bytes: u64 = files.iter().map(|(_, size, _)| size).sum();
        if bytes <= self.limit {
            return;
        }
        files.sort();
        for (_, size, path) in files {
            if bytes <= self.limit / 5 * 4 {
                break;
            }
            // As above.
            let _ = fs::remove_file(path);
            bytes -= size;
        }
    }
}

/// Whether a file's name is one that this cache gives: 32 hexadecimal digits and a dot come first.
fn is_ours(name: &str) -> bool {
    let (hash, rest) = name.split_at_checked(32).unwrap_or_default();
    hash.len() == 32 && hash.bytes().all(|it| it.is_ascii_hexdigit()) && rest.starts_with('.')
}

impl Entry {
    /// The entry of a source; `None` if there is no cache.
    pub fn of(source: impl FnOnce() -> Source) -> Option<Self> {
        let cache = cache()?;
        let key = protocol::Key::new(&source(), &cache.compiler)?;
        let name = key.name();
        Some(Self { cache, key, name })
    }

    /// What the module offers, and its log.
    pub fn info(&self) -> Option<(ModuleInfo, String)> {
        self.key.load_info(&self.cache.read(&self.info_file())?)
    }

    /// Keeps what the module offers.
    pub fn put_info(&self, info: &ModuleInfo, log: &str) {
        if let Some(bytes) = self.key.store_info(info, log) {
            self.cache.write(&self.info_file(), &bytes);
        }
    }

    /// A kernel's code.
    pub fn code(&self, kernel: u32, info: &ModuleInfo) -> Option<KernelCode> {
        self.key.load_code(&self.cache.read(&self.code_file(kernel))?, info)
    }

    /// Keeps a kernel's code.
    pub fn put_code(&self, kernel: u32, code: &KernelCode) {
        if let Some(bytes) = self.key.store_code(code) {
            self.cache.write(&self.code_file(kernel), &bytes);
        }
    }

    fn info_file(&self) -> String {
        format!("{}.info", self.name)
    }

    fn code_file(&self, kernel: u32) -> String {
        format!("{}.{kernel}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_cache_are_ever_removed() {
        let hash = "0123456789abcdef0123456789abcdef";
        assert!(is_ours(&format!("{hash}.info")) && is_ours(&format!("{hash}.3.77-0.tmp")));
        for name in ["", "notes.txt", hash, &format!("{hash}x.info"), &"é".repeat(20)] {
            assert!(!is_ours(name), "{name}");
        }
    }
}

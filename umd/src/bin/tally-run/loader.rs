// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drivers and loaders: finding them, and choosing the one for a program.

use std::env;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::image::{Image, contains};

const LOADER: &str = "libze_loader.so.1";
const TRIPLET: &str = "x86_64-linux-gnu";
/// The function that SYCL calls first, and that older loaders lack.
const NEWEST: &CStr = c"zeInitDrivers";

/// libze_tally.so: beside this program, or in the lib folder of its installation.
pub(crate) fn driver() -> Result<PathBuf> {
    let own = env::current_exe()?.canonicalize()?;
    let folder = own.parent().ok_or("this program lies in no folder")?;
    let files = [folder.join("libze_tally.so"), folder.join("../lib/libze_tally.so")];
    files.iter().find_map(|file| file.canonicalize().ok()).ok_or_else(|| {
        format!("there is no libze_tally.so in {} nor in ../lib", folder.display()).into()
    })
}

/// The target of a link, whose name contains the version.
pub(crate) fn followed(path: &Path) -> String {
    path.canonicalize().as_deref().unwrap_or(path).display().to_string()
}

/// The origin of the Level Zero loader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Loader {
    /// The path at which the dynamic linker finds it.
    System,
    /// In this folder.
    Folder(PathBuf),
    /// In a Debian system that is unpacked in this folder, with the C library that it needs.
    Unpacked(PathBuf),
}

impl Loader {
    pub(crate) fn choose(which: &OsStr, image: &Image) -> Result<Self> {
        match which.to_str() {
            Some("system") => return Ok(Self::System),
            Some("auto") => {}
            Some("tally") => {
                return beside_driver()
                    .ok_or_else(|| "there is no loader beside the driver".into());
            }
            Some(suite @ ("trixie" | "sid")) => {
                return unpacked(suite).ok_or_else(|| {
                    format!("the loader of {suite} is not unpacked: scripts/loaders {suite} true does it").into()
                });
            }
            _ if Path::new(which).join(LOADER).is_file() => {
                return Ok(Self::Folder(Path::new(which).canonicalize()?));
            }
            _ => {
                return Err(format!("{}: no folder with {LOADER}", which.to_string_lossy()).into());
            }
        }
        Self::automatic(&SystemLoader::find(), image)
    }

    /// The program's own loader if it has one; the system's if it is new enough, otherwise the one beside the
    /// driver or the newest unpacked one. A program that does not need a newer one may start one that does, which
    /// gets the one beside the driver by the library path. An unpacked one cannot be passed on.
    pub(crate) fn automatic(system: &SystemLoader, image: &Image) -> Result<Self> {
        let needs_new = image.needs_new_loader();
        let its_own = image.folder_of(LOADER).filter(|folder| {
            let in_library_path = |path: OsString| {
                env::split_paths(&path).any(|folder| folder.join(LOADER).is_file())
            };
            !env::var_os("LD_LIBRARY_PATH").is_some_and(in_library_path)
                && (!needs_new || contains(&folder.join(LOADER), NEWEST.to_bytes()))
        });
        if let Some(folder) = its_own {
            // The loader's layers are found by the library path alone. Those of the system may be too old for it.
            return Ok(Self::Folder(folder));
        }
        match system {
            SystemLoader::New(_) => Ok(Self::System),
            SystemLoader::Old(_) if !needs_new => Ok(beside_driver().unwrap_or(Self::System)),
            SystemLoader::Old(path) => own().ok_or_else(|| {
                format!(
                    "{} is older than SYCL needs, which would crash: scripts/loaders sid true unpacks a newer one; --loader system starts a Python program that does without SYCL",
                    path.display()
                )
                .into()
            }),
            SystemLoader::Missing => own().ok_or_else(|| {
                format!("there is no {LOADER}: install libze1, or let scripts/loaders sid true unpack one").into()
            }),
        }
    }

    /// Its file, for messages.
    pub(crate) fn file(&self) -> String {
        match self {
            Self::System => "the system's loader".to_owned(),
            Self::Folder(folder) => followed(&folder.join(LOADER)),
            Self::Unpacked(root) => followed(&libraries(root)[1].join(LOADER)),
        }
    }

    pub(crate) fn command(&self, program: &Path, image: &Image, driver: &Path) -> Command {
        match self {
            Self::System => Command::new(program),
            Self::Folder(folder) => {
                let mut command = Command::new(program);
                let before = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
                let all = std::iter::once(folder.clone())
                    .chain(env::split_paths(&before).filter(|it| !it.as_os_str().is_empty()));
                command.env("LD_LIBRARY_PATH", env::join_paths(all).unwrap_or_default());
                command
            }
            Self::Unpacked(root) => {
                let libraries = libraries(root);
                let mut command = Command::new(libraries[0].join("ld-linux-x86-64.so.2"));
                let mut paths = libraries.map(PathBuf::into_os_string).join(OsStr::new(":"));
                // The option replaces the variable.
                if let Some(before) = env::var_os("LD_LIBRARY_PATH").filter(|it| !it.is_empty()) {
                    paths.push(":");
                    paths.push(before);
                }
                command
                    .arg("--audit")
                    .arg(driver)
                    .arg("--library-path")
                    .arg(paths)
                    .arg(&image.file);
                // The dynamic linker starts only programs, so a script's first line is handled here.
                if let Some((_, arguments)) = &image.interpreter {
                    command.args(arguments).arg(program);
                }
                command
            }
        }
    }
}

/// Folders of an unpacked system's libraries; the first holds the C library.
fn libraries(root: &Path) -> [PathBuf; 2] {
    let usr = root.join("usr/lib").join(TRIPLET);
    let top = root.join("lib").join(TRIPLET);
    if usr.join("libc.so.6").exists() { [usr.clone(), usr] } else { [top, usr] }
}

/// The best loader that is not the system's.
fn own() -> Option<Loader> {
    beside_driver().or_else(newest_unpacked)
}

/// The loader in the driver's folder. It needs no other C library than the system's.
pub(crate) fn beside_driver() -> Option<Loader> {
    let folder = driver().ok()?.parent()?.to_owned();
    folder.join(LOADER).is_file().then_some(Loader::Folder(folder))
}

/// The loader that scripts/loaders has unpacked from this suite.
pub(crate) fn unpacked(suite: &str) -> Option<Loader> {
    let cache = match env::var_os("TALLY_SCRIPTS_CACHE").filter(|it| !it.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME")?).join(".cache/tally"),
    };
    let root = cache.join("loaders").join(suite).join("root");
    libraries(&root)[1].join(LOADER).exists().then_some(Loader::Unpacked(root))
}

/// The newest loader that is unpacked.
fn newest_unpacked() -> Option<Loader> {
    ["sid", "trixie"].into_iter().find_map(unpacked)
}

/// The loader that the dynamic linker finds, if it finds one.
pub(crate) enum SystemLoader {
    Missing,
    /// A loader without [`NEWEST`].
    Old(PathBuf),
    New(PathBuf),
}

impl SystemLoader {
    pub(crate) fn find() -> Self {
        const NAME: &CStr = c"libze_loader.so.1";
        let newest: *const c_char = NEWEST.as_ptr();
        // SAFETY: the names are terminated. The loader's initialisers read the environment, which
        // nothing changes meanwhile. The handle stays open until the process becomes another program.
        // If dladdr succeeds, it fills the structure, for which all zeroes are a valid value, with the
        // name of a library that stays open.
        unsafe {
            let handle = libc::dlopen(NAME.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL);
            if handle.is_null() {
                return Self::Missing;
            }
            let newest = libc::dlsym(handle, newest);
            // Every loader has this function.
            let oldest = libc::dlsym(handle, c"zeInit".as_ptr());
            let known = if newest.is_null() { oldest } else { newest };
            let mut info = std::mem::zeroed::<libc::Dl_info>();
            let found = libc::dladdr(known, &raw mut info) != 0 && !info.dli_fname.is_null();
            let path = match found {
                true => OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes()),
                false => OsStr::new(LOADER),
            };
            if newest.is_null() { Self::Old(path.into()) } else { Self::New(path.into()) }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-run PROGRAM`: starts a Level Zero program with Tally as its driver.
//!
//! Nothing is installed. The driver is the one beside this program (or in `../lib`), named to the
//! loader with `ZE_ENABLE_ALT_DRIVERS`. The loader is the system's, except for SYCL and Python
//! programs where it is older than they need: those get the one beside the driver, as the Python package
//! has it, or the newest that `scripts/loaders` has unpacked, and are not started if there is none, since
//! SYCL crashes with a loader that is too old. An unpacked loader needs a newer C library than the system's, so the program is then started by that
//! library's dynamic linker. A program that opens the system's loader by its full name gets the newer one,
//! too: see `ze_tally::audit`.

use std::env;
use std::error::Error;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use ze_tally::identity::{self, Identity};

const USAGE: &str = "\
usage: tally-run [OPTION]... PROGRAM [ARGUMENT]...
       tally-run --check-environment [PROGRAM]

Starts a Level Zero, SYCL or Python program on Tally.

  --loader WHICH  auto     the system's, or a newer one where the program needs it (default)
                  tally    the one beside the driver, which Tally's Python package has
                  system   the system's, even if it is older than the program needs
                  trixie   that of Debian 13, as scripts/loaders has unpacked it
                  sid      that of Debian unstable, likewise
                  FOLDER   a folder that holds libze_loader.so.1
  --as NAME       the device has the name and the numbers of another GPU:
                  uhd-770, arc-a770, arc-b580, max-1100 (TALLY_DEVICE_AS)
  --print         say what would be started, and do not start it
  --check-environment
                  say which drivers and loaders there are, and which loader PROGRAM needs and gets
  -h, --help      this text
  -V, --version   the version
";

const LOADER: &str = "libze_loader.so.1";
const TRIPLET: &str = "x86_64-linux-gnu";
/// Exit statuses of env and of shells: the program is there and cannot be started, or is not there.
const CANNOT_START: u8 = 126;
const NOT_FOUND: u8 = 127;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match Request::parse() {
        Ok(Some(Asked::Run(request))) => run(&request),
        Ok(Some(Asked::Check(program))) => check(program.as_deref()),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tally-run: {error}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The command line, parsed.
enum Asked {
    Run(Request),
    /// To tell which loaders exist, and which one this program needs.
    Check(Option<OsString>),
}

/// A program to start.
struct Request {
    loader: OsString,
    print: bool,
    /// The GPU that the device passes for.
    identity: Option<&'static Identity>,
    program: OsString,
    arguments: Vec<OsString>,
}

impl Request {
    /// `None`: the answer was a text.
    fn parse() -> Result<Option<Asked>> {
        use lexopt::prelude::*;
        let (mut loader, mut print, mut check) = (OsString::from("auto"), false, false);
        let mut identity = None;
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("loader") => loader = parser.value()?,
                Long("as") => identity = Some(identity_named(&parser.value()?)?),
                Long("print") => print = true,
                Long("check-environment") => check = true,
                Short('h') | Long("help") => {
                    print!("{USAGE}");
                    return Ok(None);
                }
                Short('V') | Long("version") => {
                    println!("tally-run {}", env!("CARGO_PKG_VERSION"));
                    return Ok(None);
                }
                Value(program) if check => return Ok(Some(Asked::Check(Some(program)))),
                // Arguments after the program are the program's.
                Value(program) => {
                    let arguments = parser.raw_args()?.collect();
                    return Ok(Some(Asked::Run(Self {
                        loader,
                        print,
                        identity,
                        program,
                        arguments,
                    })));
                }
                _ => return Err(argument.unexpected().into()),
            }
        }
        if check { Ok(Some(Asked::Check(None))) } else { Err("no program is named".into()) }
    }
}

/// The GPU of that name.
fn identity_named(name: &OsStr) -> Result<&'static Identity> {
    let name = name.to_string_lossy();
    let unknown = || format!("--as {name}: it is none of {}", identity::keys());
    identity::find(&name).ok_or_else(|| unknown().into())
}

/// Says what there is, and what a program needs and gets. Fails if the program cannot be started.
fn check(program: Option<&OsStr>) -> ExitCode {
    let mut works = true;
    let mut say = |name: &str, found: Result<String>| {
        works &= found.is_ok();
        println!("{name:<16} {}", found.unwrap_or_else(|why| why.to_string()));
    };
    let system = SystemLoader::find();
    say("driver", driver().map(|it| it.display().to_string()));
    say(
        "system's loader",
        Ok(match &system {
            SystemLoader::Missing => "none".to_owned(),
            SystemLoader::Old(path) => format!("{}, too old for SYCL", followed(path)),
            SystemLoader::New(path) => followed(path),
        }),
    );
    if let Some(loader) = beside_driver() {
        say("Tally's loader", Ok(loader.file()));
    }
    for suite in ["trixie", "sid"] {
        let found = unpacked(suite).map_or("not unpacked".to_owned(), |it| it.file());
        say(&format!("loader of {suite}"), Ok(found));
    }
    if let Some(name) = program {
        let missing = || format!("{}: not found", name.to_string_lossy());
        match find_program(name) {
            None => say("program", Err(missing().into())),
            Some(path) => {
                let image = Image::of(&path);
                let needs_new = image.needs_new_loader();
                let needs = if needs_new { "1.20 or newer, for SYCL" } else { "any loader" };
                say("program", Ok(path.display().to_string()));
                say("it needs", Ok(needs.to_owned()));
                say("it gets", Loader::automatic(&system, || needs_new).map(|it| it.file()));
            }
        }
    }
    if works { ExitCode::SUCCESS } else { ExitCode::from(CANNOT_START) }
}

/// The file that a link leads to, whose name has the version.
fn followed(path: &Path) -> String {
    path.canonicalize().as_deref().unwrap_or(path).display().to_string()
}

/// Becomes the program; comes back only if that fails.
fn run(request: &Request) -> ExitCode {
    let Some(program) = find_program(&request.program) else {
        eprintln!("tally-run: {}: not found", request.program.to_string_lossy());
        return ExitCode::from(NOT_FOUND);
    };
    let started = command(request, &program).map(|mut command| {
        if request.print {
            show(&command);
            return Ok(());
        }
        Err(command.exec())
    });
    match started {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("tally-run: {}: {error}", program.display());
            ExitCode::from(CANNOT_START)
        }
        Err(error) => {
            eprintln!("tally-run: {error}");
            ExitCode::from(CANNOT_START)
        }
    }
}

/// The command that starts `program` on Tally.
fn command(request: &Request, program: &Path) -> Result<Command> {
    let image = Image::of(program);
    let loader = Loader::choose(&request.loader, || image.needs_new_loader())?;
    let driver = driver()?;
    let mut command = loader.command(program, &image, &driver);
    command.args(&request.arguments).env("ZE_ENABLE_ALT_DRIVERS", driver);
    if let Some(identity) = request.identity {
        command.env("TALLY_DEVICE_AS", identity.key);
    }
    Ok(command)
}

/// Prints a command as a shell would take it.
fn show(command: &Command) {
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.into_owned(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), quoted(value?))));
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted);
    println!("{}", variables.chain(words).collect::<Vec<_>>().join(" "));
}

/// libze_tally.so: beside this program, or in the lib folder of where it is installed.
fn driver() -> Result<PathBuf> {
    let own = env::current_exe()?.canonicalize()?;
    let folder = own.parent().ok_or("this program lies in no folder")?;
    let files = [folder.join("libze_tally.so"), folder.join("../lib/libze_tally.so")];
    files.iter().find_map(|file| file.canonicalize().ok()).ok_or_else(|| {
        format!("there is no libze_tally.so in {} nor in ../lib", folder.display()).into()
    })
}

/// The file that a shell would start for `name`.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    let executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(executable);
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(executable)
}

/// The files that the kernel would load to run a program.
struct Image {
    /// The interpreter and its arguments, for a script.
    interpreter: Option<(PathBuf, Vec<OsString>)>,
    /// The file that holds machine code.
    file: PathBuf,
}

impl Image {
    /// Follows a script's first line, and env in it.
    fn of(program: &Path) -> Self {
        let interpreter = interpreter(program);
        let file = interpreter.as_ref().map_or(program, |(path, _)| path).to_owned();
        Self { interpreter, file }
    }

    /// Whether the program is one that fails with an old loader: a Python, whose packages bring SYCL
    /// along, or one that is linked with SYCL.
    fn needs_new_loader(&self) -> bool {
        let python = |path: &Path| {
            path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"))
        };
        if python(&self.file) || self.file.canonicalize().is_ok_and(|file| python(&file)) {
            return true;
        }
        let mut bytes = Vec::new();
        let read = File::open(&self.file).and_then(|mut file| file.read_to_end(&mut bytes));
        // The names of the libraries that a program is linked with are in it as text.
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

/// The origin of the Level Zero loader.
#[derive(Debug, PartialEq, Eq)]
enum Loader {
    /// The path at which the dynamic linker finds it.
    System,
    /// In this folder.
    Folder(PathBuf),
    /// In a Debian system that is unpacked here, with the C library that it needs.
    Unpacked(PathBuf),
}

impl Loader {
    fn choose(which: &OsStr, needs_new: impl Fn() -> bool) -> Result<Self> {
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
        Self::automatic(&SystemLoader::find(), needs_new)
    }

    /// The system's loader where it does, else the one beside the driver or the newest that is unpacked.
    fn automatic(system: &SystemLoader, needs_new: impl Fn() -> bool) -> Result<Self> {
        match system {
            SystemLoader::New(_) => Ok(Self::System),
            SystemLoader::Old(_) if !needs_new() => Ok(Self::System),
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

    /// Its file, for people.
    fn file(&self) -> String {
        match self {
            Self::System => "the system's loader".to_owned(),
            Self::Folder(folder) => followed(&folder.join(LOADER)),
            Self::Unpacked(root) => followed(&libraries(root)[1].join(LOADER)),
        }
    }

    fn command(&self, program: &Path, image: &Image, driver: &Path) -> Command {
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
                // The option takes the variable's place.
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
                // The dynamic linker starts programs only, so a script's first line is done here.
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
fn beside_driver() -> Option<Loader> {
    let folder = driver().ok()?.parent()?.to_owned();
    folder.join(LOADER).is_file().then_some(Loader::Folder(folder))
}

/// The loader that scripts/loaders has unpacked from this suite.
fn unpacked(suite: &str) -> Option<Loader> {
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
enum SystemLoader {
    Missing,
    /// A loader without zeInitDrivers, which SYCL calls first.
    Old(PathBuf),
    New(PathBuf),
}

impl SystemLoader {
    fn find() -> Self {
        const NAME: &CStr = c"libze_loader.so.1";
        let newest: *const c_char = c"zeInitDrivers".as_ptr();
        // SAFETY: the names are terminated. The loader's initialisers read the environment, which
        // nothing changes meanwhile. The handle stays open until the process becomes another program.
        // dladdr fills the structure, of which all zeroes are a value, where it succeeds, and the name
        // is that of a library which stays open.
        unsafe {
            let handle = libc::dlopen(NAME.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL);
            if handle.is_null() {
                return Self::Missing;
            }
            let newest = libc::dlsym(handle, newest);
            // Every loader has this one.
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

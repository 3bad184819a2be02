// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver's side: one compiler process, many threads that wait for builds.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io, net, process, thread};

use std::os::unix::net::UnixStream;

use crate::activity::Activity;
use crate::frame::{self, FrameError};
use crate::spawn::{self, Log, Process};
use crate::{CodeId, KernelCode, ModuleInfo, PROTOCOL_VERSION, Reply, Request, Source};

/// The time after which a process that has not answered must still make progress, or else it counts as
/// stuck. A build that takes too long ends at the process's own limit on processor time.
const PATIENCE: Duration =
    if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(300) };

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompilerError {
    /// The program `tally-compiler` was not found.
    NotFound,
    /// The program could not be started; the reason.
    NotStarted(String),
    /// The process died or sent an invalid message; the details. The next build starts another one.
    Died(String),
    /// The module was refused; the build log.
    Refused(String),
    /// The module has no kernel of this index.
    NoSuchKernel(u32),
}

impl fmt::Display for CompilerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str(
                "the program tally-compiler is neither named by TALLY_COMPILER, nor beside the driver, nor in PATH",
            ),
            Self::NotStarted(why) => write!(f, "the compiler process could not be started: {why}"),
            Self::Died(why) => write!(f, "the compiler process died: {why}"),
            Self::Refused(log) => f.write_str(log),
            Self::NoSuchKernel(kernel) => write!(f, "the module has no kernel of index {kernel}"),
        }
    }
}

impl std::error::Error for CompilerError {}

/// A compiler process that restarts when it has died. Shared by reference among threads.
///
/// Dropping it closes the socket, which ends the process; modules still pending then fail.
pub struct Compiler {
    dir: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    link: Arc<Link>,
    next_module: u64,
}

impl Compiler {
    /// Starts the process. It loads LLVM while the caller continues.
    ///
    /// The program is `$TALLY_COMPILER`, else `tally-compiler` in `dir` (the folder of the
    /// driver's shared library), else the one in `$PATH`.
    ///
    /// # Errors
    /// [`CompilerError::NotFound`] or [`CompilerError::NotStarted`].
    pub fn start(dir: Option<&Path>) -> Result<Self, CompilerError> {
        let link = Link::open(dir)?;
        let state = Mutex::new(State { link, next_module: 1 });
        Ok(Self { dir: dir.map(Path::to_owned), state })
    }

    /// Sends a module to be built and returns at once. If the process has died, another is
    /// started first.
    ///
    /// # Errors
    /// Those of [`Compiler::start`], and [`CompilerError::Died`] if the module could not be sent.
    pub fn build(&self, source: Source) -> Result<PendingModule, CompilerError> {
        let (link, module) = {
            let mut state = lock(&self.state);
            if state.link.is_dead() {
                state.link = Link::open(self.dir.as_deref())?;
            }
            let module = state.next_module;
            state.next_module += 1;
            (state.link.clone(), module)
        };
        let slot = link.register(module)?;
        let pending = PendingModule { link, module, slot };
        pending.link.send(&Request::Build { module, source })?;
        Ok(pending)
    }
}

/// A module that is being built, or is built. Dropping it releases it in the compiler.
pub struct PendingModule {
    link: Arc<Link>,
    module: u64,
    slot: Arc<Slot>,
}

impl PendingModule {
    /// Waits until the front end is done.
    ///
    /// # Errors
    /// [`CompilerError::Refused`] with the build log, or [`CompilerError::Died`].
    pub fn info(&self) -> Result<Arc<ModuleInfo>, CompilerError> {
        self.wait(|built| built.info.clone())
    }

    /// Remarks of the front end, once [`info`](Self::info) has returned; else empty.
    pub fn warnings(&self) -> String {
        lock(&self.slot.built).warnings.clone()
    }

    /// Whether the process was working on the front end, or on a kernel's code, when it last sent a
    /// message: if it has died, this may be the cause.
    pub fn was_begun(&self, code: Option<CodeId>) -> bool {
        lock(&self.slot.built).begun.contains(&code)
    }

    /// Waits for a kernel's code and has it generated before other code.
    ///
    /// # Errors
    /// Those of [`info`](Self::info), and [`CompilerError::NoSuchKernel`].
    pub fn kernel_code(&self, code: CodeId) -> Result<Arc<KernelCode>, CompilerError> {
        let info = self.info()?;
        if code.kernel as usize >= info.kernels.len() {
            return Err(CompilerError::NoSuchKernel(code.kernel));
        }
        if !lock(&self.slot.built).code.contains_key(&code) {
            // If the process is dead, the wait below reports it with all details.
            let _ = self.link.send(&Request::Need { module: self.module, code });
        }
        self.wait(|built| built.code.get(&code).cloned())
    }

    /// Waits until `ready` finds its answer, or the process dies or gets stuck.
    fn wait<T>(
        &self,
        ready: impl Fn(&Built) -> Option<Result<T, CompilerError>>,
    ) -> Result<T, CompilerError> {
        let mut deadline = Instant::now() + PATIENCE;
        let mut activity = Activity::of(self.link.process);
        let mut built = lock(&self.slot.built);
        loop {
            if let Some(answer) = ready(&built) {
                return answer;
            }
            if let Some(death) = &built.death {
                return Err(death.clone());
            }
            if self.link.is_inherited() {
                return Err(inherited());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if activity.goes_on() {
                    deadline = Instant::now() + PATIENCE;
                    continue;
                }
                drop(built);
                self.link.close();
                let why = format!("it does nothing and gave no answer within {PATIENCE:?}");
                return Err(CompilerError::Died(why));
            }
            built = self
                .slot
                .changed
                .wait_timeout(built, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl Drop for PendingModule {
    fn drop(&mut self) {
        if lock(&self.link.shared).slots.remove(&self.module).is_some() {
            // A dead process has nothing left to release.
            let _ = self.link.send(&Request::Release { module: self.module });
        }
    }
}

impl fmt::Debug for PendingModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingModule").field("module", &self.module).finish_non_exhaustive()
    }
}

/// The place where the answers for one module arrive.
#[derive(Default)]
struct Slot {
    built: Mutex<Built>,
    changed: Condvar,
}

#[derive(Default)]
struct Built {
    info: Option<Result<Arc<ModuleInfo>, CompilerError>>,
    warnings: String,
    code: HashMap<CodeId, Result<Arc<KernelCode>, CompilerError>>,
    death: Option<CompilerError>,
    /// The pieces of work that the process has begun: the front end, or code.
    begun: HashSet<Option<CodeId>>,
}

/// One process and the socket to it.
struct Link {
    socket: UnixStream,
    /// Keeps frames whole; separate from `shared`, so that a long send blocks no thread that only
    /// waits.
    sending: Mutex<()>,
    shared: Mutex<Shared>,
    /// The process that opened the link: after a fork the child must not send on it.
    owner: u32,
    /// The process at the other end.
    process: libc::pid_t,
}

#[derive(Default)]
struct Shared {
    slots: HashMap<u64, Arc<Slot>>,
    death: Option<CompilerError>,
}

impl Link {
    fn open(dir: Option<&Path>) -> Result<Arc<Self>, CompilerError> {
        let not_started = |error: io::Error| CompilerError::NotStarted(error.to_string());
        let program = spawn::find(dir).ok_or(CompilerError::NotFound)?;
        let Process { socket, log, id } = spawn::spawn(&program).map_err(|error| {
            CompilerError::NotStarted(format!("{}: {error}", program.display()))
        })?;
        let reader = socket.try_clone().map_err(not_started)?;
        let link = Arc::new(Self {
            socket,
            sending: Mutex::default(),
            shared: Mutex::default(),
            owner: process::id(),
            process: id,
        });
        let weak = Arc::downgrade(&link);
        let listener = thread::Builder::new().name("tally-compiler".into());
        without_signals(|| listener.spawn(move || listen(&weak, reader, log)))
            .map_err(not_started)?;
        Ok(link)
    }

    fn is_dead(&self) -> bool {
        self.is_inherited() || lock(&self.shared).death.is_some()
    }

    /// Whether this process is a fork of the one that opened the link.
    fn is_inherited(&self) -> bool {
        self.owner != process::id()
    }

    fn register(&self, module: u64) -> Result<Arc<Slot>, CompilerError> {
        let mut shared = lock(&self.shared);
        if let Some(death) = &shared.death {
            return Err(death.clone());
        }
        Ok(shared.slots.entry(module).or_default().clone())
    }

    fn send(&self, request: &Request) -> Result<(), CompilerError> {
        if self.is_inherited() {
            return Err(inherited());
        }
        let _whole = lock(&self.sending);
        frame::send(&mut Quiet(&self.socket), request).map_err(|error| match error {
            FrameError::TooLong(len) => CompilerError::Refused(format!(
                "a module of {len} bytes exceeds {}",
                frame::MAX_FRAME
            )),
            error => CompilerError::Died(error.to_string()),
        })
    }

    /// Ends the process: it exits when its standard input ends.
    fn close(&self) {
        if !self.is_inherited() {
            // This fails only if the socket is not connected any more, which is the goal.
            let _ = self.socket.shutdown(net::Shutdown::Both);
        }
    }

    fn accept(&self, reply: Reply) -> Result<(), String> {
        let module = match &reply {
            Reply::Hello { version: PROTOCOL_VERSION } => return Ok(()),
            Reply::Hello { version } => {
                return Err(format!("it speaks version {version}, the driver {PROTOCOL_VERSION}"));
            }
            Reply::Begun { module, .. }
            | Reply::Built { module, .. }
            | Reply::Code { module, .. } => *module,
        };
        // A module that was released meanwhile has no slot; its answers are dropped.
        let Some(slot) = lock(&self.shared).slots.get(&module).cloned() else { return Ok(()) };
        let mut built = lock(&slot.built);
        match reply {
            Reply::Hello { .. } => {}
            Reply::Begun { code, .. } => {
                built.begun.insert(code);
            }
            Reply::Built { result, warnings, .. } => {
                let refused = |failure: crate::BuildFailure| CompilerError::Refused(failure.log);
                built.info = Some(result.map(Arc::new).map_err(refused));
                built.warnings = warnings;
                built.begun.remove(&None);
            }
            Reply::Code { code, result, .. } => {
                built.code.insert(code, result.map(Arc::new).map_err(CompilerError::Refused));
                built.begun.remove(&Some(code));
            }
        }
        slot.changed.notify_all();
        Ok(())
    }

    fn die(&self, why: String) {
        let death = CompilerError::Died(why);
        let slots = {
            let mut shared = lock(&self.shared);
            shared.death = Some(death.clone());
            std::mem::take(&mut shared.slots)
        };
        self.close();
        for slot in slots.into_values() {
            lock(&slot.built).death = Some(death.clone());
            slot.changed.notify_all();
        }
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        lock(&self.state).link.close();
    }
}

/// The reader thread: hands out answers until the stream ends.
fn listen(link: &Weak<Link>, socket: UnixStream, mut log: Log) {
    let mut stream = io::BufReader::new(socket);
    let why = loop {
        let reply = frame::receive(&mut stream);
        let Some(link) = link.upgrade() else { return };
        match reply {
            Ok(reply) => {
                if let Err(why) = link.accept(reply) {
                    break why;
                }
            }
            Err(FrameError::Closed) => break "it closed the connection".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    if let Some(link) = link.upgrade() {
        let tail = log.tail();
        link.die(if tail.is_empty() { why } else { format!("{why}\n{tail}") });
    }
}

/// The error in a forked child, whose connection has no reader.
fn inherited() -> CompilerError {
    CompilerError::Died("it belongs to the parent process".into())
}

/// Runs `spawn` with all signals blocked: the new thread inherits that, so the host's handlers
/// never run on it.
fn without_signals<T>(spawn: impl FnOnce() -> T) -> T {
    // SAFETY: all-zero bytes are a valid signal set, and sigfillset initialises it anyway.
    let (mut all, mut before) = unsafe { std::mem::zeroed::<[libc::sigset_t; 2]>() }.into();
    // SAFETY: both sets are valid places.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let result = spawn();
    // SAFETY: `before` is the mask that the call above has stored.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    result
}

/// Writes without SIGPIPE, whose handling belongs to the host.
struct Quiet<'a>(&'a UnixStream);

impl io::Write for Quiet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        use std::os::fd::AsRawFd;
        let fd = self.0.as_raw_fd();
        // SAFETY: the descriptor is open, and the pointer and the length are those of a slice.
        let sent =
            unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Locks a mutex; a panic elsewhere leaves these maps consistent, so poisoning is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A compiler that is another program; its folder.
    fn compiler(program: &str) -> (Compiler, PathBuf) {
        let name = Path::new(program).file_name().expect("a name").to_string_lossy();
        let dir = std::env::temp_dir().join(format!("tally-patience-{name}-{}", process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        symlink(program, dir.join("tally-compiler")).expect("a link");
        (Compiler::start(Some(&dir)).expect("it starts"), dir)
    }

    fn module() -> Source {
        let target = crate::TargetCpu { name: String::new(), features: String::new() };
        Source { objects: Vec::new(), target, careful: false, checks: Default::default() }
    }

    /// cat reads all input, and then waits for more.
    #[test]
    fn a_process_that_does_nothing_is_stuck() {
        let (compiler, dir) = compiler("/bin/cat");
        let error = compiler.build(module()).expect("it is sent").info().expect_err("no compiler");
        assert!(error.to_string().contains("does nothing"), "{error}");
        fs::remove_dir_all(dir).expect("it is there");
    }

    /// The program `yes` never stops working.
    #[test]
    fn a_process_at_work_is_waited_for() {
        let (compiler, dir) = compiler("/usr/bin/yes");
        let pending = compiler.build(module()).expect("it is sent");
        let process = pending.link.process;
        let error = thread::scope(|scope| {
            let answer = scope.spawn(|| pending.info());
            thread::sleep(20 * PATIENCE);
            pending.link.close();
            answer.join().expect("no panic").expect_err("no compiler")
        });
        // SAFETY: a plain call; the process is the one that this test started, and still runs.
        assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
        assert!(!error.to_string().contains("does nothing"), "{error}");
        fs::remove_dir_all(dir).expect("it is there");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiler process: builds what arrives on its standard input.
//!
//! One thread reads requests, as many as there are processors work. Somebody waits for the front
//! end of a module, and for a kernel that is needed; the other kernels are generated when nothing
//! else is to be done. A panic in a build is a failed build. What a panic can't catch, a crash in
//! LLVM or a limit of time or memory, ends the process; the driver then says so and starts another.

mod limits;
mod queue;

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tally_compiler_protocol::frame::{self, FrameError};
use tally_compiler_protocol::{
    BuildFailure, KernelCode, ModuleInfo, PROTOCOL_VERSION, Reply, Request, TargetCpu,
};

use crate::ir::Module;
use crate::{check, codegen, llvm, parse};
use queue::{Job, Queue};

/// Stack of a worker in bytes: LLVM recurses over what it is given.
const STACK_BYTES: usize = 64 << 20;

/// Most workers: more only cost memory, since an application builds few modules at a time.
const MAX_WORKERS: usize = 16;

/// A module after its front end.
struct Built {
    ir: Module,
    target: TargetCpu,
}

/// Serves the driver on standard input until it closes the stream.
///
/// # Errors
/// The stream failed or held something else than requests.
pub fn serve() -> Result<(), FrameError> {
    limits::set();
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(FrameError::Io)?;
    let server = Arc::new(Server::new(&socket)?);
    server.send(&Reply::Hello { version: PROTOCOL_VERSION })?;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    for index in 0..processors.min(MAX_WORKERS) {
        let server = server.clone();
        thread::Builder::new()
            .name(format!("build{index}"))
            .stack_size(STACK_BYTES)
            .spawn(move || server.work())
            .map_err(FrameError::Io)?;
    }
    let mut stream = io::BufReader::new(UnixStream::from(socket));
    loop {
        match frame::receive(&mut stream) {
            Ok(request) => server.accept(request),
            Err(FrameError::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

struct Server {
    /// Replies go out whole, whichever thread has them.
    output: Mutex<UnixStream>,
    queue: Queue<Built>,
}

impl Server {
    fn new(socket: &OwnedFd) -> Result<Self, FrameError> {
        let output = UnixStream::from(socket.try_clone().map_err(FrameError::Io)?);
        Ok(Self { output: Mutex::new(output), queue: Queue::default() })
    }

    fn send(&self, reply: &Reply) -> Result<(), FrameError> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        frame::send(&mut *output, reply)
    }

    /// Sends a reply that has a substitute in case it is too long for a frame.
    fn reply(&self, reply: &Reply, substitute: impl FnOnce(String) -> Reply) {
        let sent = match self.send(reply) {
            Err(FrameError::TooLong(len)) => {
                self.send(&substitute(format!("the result of {len} bytes is too long")))
            }
            sent => sent,
        };
        if let Err(error) = sent {
            // The reader meets the same and ends the process.
            let _ = writeln!(io::stderr(), "a reply was lost: {error}");
        }
    }

    fn accept(&self, request: Request) {
        match request {
            Request::Build { module, spirv, options, spec_constants, target } => {
                let source = Source { spirv, options, spec_constants, target };
                self.queue.push_front_end(module, source);
            }
            Request::Need { module, kernel } => self.queue.need(module, kernel),
            Request::Release { module } => self.queue.release(module),
        }
    }

    /// A worker's life.
    fn work(&self) {
        llvm::initialise();
        loop {
            let job = self.queue.take();
            limits::allow_time();
            match job {
                Job::FrontEnd { module, source } => self.front_end(module, source),
                Job::Code { module, kernel, built } => {
                    let result = caught(|| code(&built, kernel));
                    let reply = Reply::Code { module, kernel, result };
                    self.reply(&reply, |log| Reply::Code { module, kernel, result: Err(log) });
                }
            }
        }
    }

    fn front_end(&self, module: u64, source: Source) {
        let warnings = option_warnings(&source.options);
        let target = source.target.clone();
        let (result, ir) = match caught(|| build(&source)) {
            Ok((info, ir)) => (Ok(info), Some(ir)),
            Err(log) => (Err(BuildFailure { log }), None),
        };
        // Code may only be announced after the module.
        let reply = Reply::Built { module, result, warnings };
        self.reply(&reply, |log| Reply::Built {
            module,
            result: Err(BuildFailure { log }),
            warnings: String::new(),
        });
        if let Some(ir) = ir {
            let kernels = ir.kernels.len() as u32;
            self.queue.push_code(module, Arc::new(Built { ir, target }), kernels);
        }
    }
}

/// What to build.
struct Source {
    spirv: Vec<u8>,
    options: String,
    spec_constants: Vec<(u32, u64)>,
    target: TargetCpu,
}

/// The whole front end.
fn build(source: &Source) -> Result<(ModuleInfo, Module), String> {
    let mut module =
        parse::parse(&source.spirv, &source.spec_constants).map_err(|error| error.to_string())?;
    check::check(&mut module).map_err(|failure| failure.to_string())?;
    Ok((codegen::module_info(&module), module))
}

fn code(built: &Built, kernel: u32) -> Result<KernelCode, String> {
    let info = built.ir.kernels.get(kernel as usize).ok_or("there is no such kernel")?;
    codegen::kernel_code(&built.ir, info, &built.target)
}

/// Runs a build; a panic in it becomes a log.
fn caught<T>(build: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(build)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(format!("fault of the compiler: {text}"))
    })
}

/// A line for each build flag that is not known; none of the known ones changes a result.
fn option_warnings(options: &str) -> String {
    let known = |option: &&str| {
        ["-ze-", "-cl-", "-g", "-O", "-w", "-W"].iter().any(|prefix| option.starts_with(prefix))
    };
    let unknown = options.split_ascii_whitespace().filter(|option| !known(option));
    unknown.map(|option| format!("warning: the build flag {option:?} is not known\n")).collect()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiler process: builds what arrives on its standard input.
//!
//! One thread reads requests, and one for each processor works on them. A caller waits for the front
//! end of a module, and for code that is needed; the usual code of the other kernels is generated when
//! there is nothing else to do. A panic in a build is a failed build. Failures that do not panic, a crash
//! in LLVM or a limit of time or memory, end the process; the driver then reports that and starts another.

mod confine;
mod limits;
mod options;
mod queue;

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tally_compiler_protocol::frame::{self, FrameError};
use tally_compiler_protocol::{
    BuildFailure, CodeId, KernelCode, ModuleInfo, PROTOCOL_VERSION, Reply, Request, Source,
    TargetCpu,
};

use crate::codegen::Options;
use crate::ir::{Kernel, Module};
use crate::llvm::Level;
use crate::{check, codegen, link, llvm, parse};
use queue::{Job, Queue};

/// Stack of a worker in bytes: LLVM recurses over its input.
const STACK_BYTES: usize = 64 << 20;

/// The maximum number of workers: more only cost memory, since an application builds few modules at a
/// time.
const MAX_WORKERS: usize = 16;

/// A module after its front end.
struct Built {
    ir: Module,
    target: TargetCpu,
    options: Options,
    /// The imports that the kernels need from other modules.
    imports: Vec<String>,
}

/// Serves the driver on standard input until it closes the stream.
///
/// # Errors
/// The stream failed or contained something other than requests.
pub fn serve() -> Result<(), FrameError> {
    limits::set();
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(FrameError::Io)?;
    let server = Arc::new(Server::new(&socket)?);
    // This reads files, which is not possible later.
    let processors = limits::processors();
    // Some containers refuse seccomp filters. The compiler then runs without one, and reports that.
    if let Err(error) = confine::confine() {
        let _ = writeln!(io::stderr(), "the compiler is not confined: {error}");
    }
    server.send(&Reply::Hello { version: PROTOCOL_VERSION })?;
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
    /// Replies are sent as a whole, from any thread.
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
            // The reader gets the same error and ends the process.
            let _ = writeln!(io::stderr(), "a reply was lost: {error}");
        }
    }

    fn accept(&self, request: Request) {
        match request {
            Request::Build { module, source } => self.queue.push_front_end(module, source),
            Request::Need { module, code } => self.queue.need(module, code),
            Request::Release { module } => self.queue.release(module),
        }
    }

    /// The loop of a worker.
    fn work(&self) {
        llvm::initialise();
        loop {
            let job = self.queue.take();
            limits::allow_time();
            let (module, code) = job.names();
            // If the process dies, the driver knows what it was working on.
            self.reply(&Reply::Begun { module, code }, |_| Reply::Begun { module, code });
            match job {
                Job::FrontEnd { module, source } => self.front_end(module, source),
                Job::Code { module, code, built } => {
                    let result = caught(|| generate(&built, code));
                    let reply = Reply::Code { module, code, result };
                    self.reply(&reply, |log| Reply::Code { module, code, result: Err(log) });
                }
            }
        }
    }

    fn front_end(&self, module: u64, source: Source) {
        let mut warnings = source.objects.first().map(options::warnings).unwrap_or_default();
        let (target, options) = (source.target.clone(), Options::of(&source));
        let (result, ir) = match caught(|| build(source, options)) {
            Ok((info, ir, found)) => {
                warnings += &found;
                (Ok(info), Some(ir))
            }
            Err(log) => (Err(BuildFailure { log }), None),
        };
        let imports = result.as_ref().map(|info| {
            let needed = info.imports.iter().filter(|import| import.by_kernels);
            needed.map(|import| import.name.clone()).collect()
        });
        let imports = imports.unwrap_or_default();
        // Code may only be announced after the module.
        let reply = Reply::Built { module, result, warnings };
        self.reply(&reply, |log| Reply::Built {
            module,
            result: Err(BuildFailure { log }),
            warnings: String::new(),
        });
        if let Some(ir) = ir {
            let kernels = ir.kernels.len() as u32;
            let built = Built { ir, target, options, imports };
            self.queue.push_code(module, Arc::new(built), kernels);
        }
    }
}

/// Runs the whole front end; the last part of the result are the warnings.
fn build(source: Source, options: Options) -> Result<(ModuleInfo, Module, String), String> {
    let checks = source.checks;
    let for_debugger = options.debug && options.level == Level::None;
    let parse = if for_debugger { parse::parse_for_debugger } else { parse::parse };
    let mut objects = Vec::with_capacity(source.objects.len());
    for object in source.objects {
        let links = object.links.into_iter().map(|link| (link.name, link.object as usize));
        let mut parsed = link::Object { modules: Vec::new(), links: links.collect() };
        let several = object.inputs.len() > 1;
        for (i, input) in object.inputs.iter().enumerate() {
            let module = parse(&input.spirv, &input.spec_constants);
            parsed.modules.push(module.map_err(|error| match several {
                true => format!("input {i}: {error}"),
                false => error.to_string(),
            })?);
        }
        objects.push(parsed);
    }
    let mut module = link::link(objects)?;
    let unlinked = check::check_unlinked(&mut module).map_err(|failure| failure.to_string())?;
    if checks.any() {
        module.kernels.iter_mut().for_each(Kernel::make_room_for_checks);
    }
    let mut warnings = unlinked.warnings.clone();
    for (name, by_kernels) in &unlinked.imports {
        let who = if *by_kernels { "a kernel" } else { "an export" };
        warnings += &format!("note: {who} needs {name:?}, which another module has to bring\n");
    }
    Ok((codegen::module_info(&module, &unlinked), module, warnings))
}

fn generate(built: &Built, code: CodeId) -> Result<KernelCode, String> {
    let kernel = built.ir.kernels.get(code.kernel as usize).ok_or("there is no such kernel")?;
    if !built.imports.is_empty() {
        return Err(format!("the module is not linked: it needs {}", built.imports.join(", ")));
    }
    codegen::kernel_code_in(&built.ir, kernel, &built.target, built.options, code.form)
}

/// Runs a build; a panic in it becomes a log.
fn caught<T>(build: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(build)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(format!("fault of the compiler: {text}"))
    })
}

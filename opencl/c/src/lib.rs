// SPDX-License-Identifier: MIT OR Apache-2.0
//! From OpenCL C to SPIR-V, by a compiler of others that this machine has.
//!
//! A compiler is LLVM, which never loads into an application (docs/decisions/0008-compiler-process.md): a
//! process of the program `tally-opencl-c` does the work, one for each build. `library` is the compiler that
//! Intel's packages bring, `clang` the one of distributions.

use std::fmt;
use std::path::Path;

use tally_compiler_protocol::frame;

mod clang;
mod library;
pub mod loaded;
pub mod options;
mod request;

pub use request::{Compiled, Failure, Request};

/// The program that compiles.
const PROGRAM: &str = "tally-opencl-c";

/// The first word of SPIR-V.
const MAGIC: [u8; 4] = 0x0723_0203_u32.to_le_bytes();

/// Whether this is SPIR-V, by its length and its first word.
pub fn is_spirv(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) && bytes.len() >= 20 && bytes.len().is_multiple_of(4)
}

/// Compiles in a process of its own, whose program lies in `folder`; blocks until it is done.
///
/// # Errors
/// Why there is no SPIR-V.
pub fn compile(folder: &Path, request: &Request) -> Result<Compiled, Failure> {
    let died = |why: &dyn fmt::Display| Failure::Died(why.to_string());
    let program = folder.join(PROGRAM);
    let mut process = tally_compiler_protocol::spawn(&program)
        .map_err(|error| Failure::NoProgram(format!("{}: {error}", program.display())))?;
    let answer = frame::send(&mut process.socket, request)
        .and_then(|()| frame::receive::<Result<Compiled, Failure>>(&mut process.socket));
    answer.unwrap_or_else(|error| {
        let said = process.log.tail();
        Err(died(&if said.is_empty() { error.to_string() } else { format!("{error}; {said}") }))
    })
}

/// Goes before each text. Halves are an extension, which a text has to enable; with Intel's compilers it is enabled
/// from the beginning, and oneDNN's kernels rely on that.
const ENABLED: &str = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n#line 1\n";

/// What the process does: takes one request from its standard input, which is a socket, and answers there.
///
/// # Errors
/// The socket failed.
pub fn serve(socket: &mut (impl std::io::Read + std::io::Write)) -> Result<(), frame::FrameError> {
    let mut request: Request = frame::receive(socket)?;
    request.source.insert_str(0, ENABLED);
    limit();
    let answer = library::compile(&request)
        .or_else(|| clang::compile(&request))
        .unwrap_or(Err(Failure::NoCompiler))
        .and_then(|compiled| match is_spirv(&compiled.spirv) {
            true => Ok(compiled),
            false => Err(Failure::Died(format!("it made no SPIR-V; {}", compiled.log))),
        });
    frame::send(socket, &answer)
}

/// Limits that no sensible build reaches: a compiler that hangs must end.
fn limit() {
    const SECONDS: libc::rlim_t = 120;
    const BYTES: libc::rlim_t = 8 << 30;
    for (what, most) in
        [(libc::RLIMIT_CPU, SECONDS), (libc::RLIMIT_AS, BYTES), (libc::RLIMIT_CORE, 0)]
    {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: takes a structure. Where a limit is lower already, that one stays.
        unsafe { libc::setrlimit(what, &raw const limit) };
    }
}

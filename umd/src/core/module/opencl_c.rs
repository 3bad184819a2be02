// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules in OpenCL C: SPIR-V is made of them first, in a process of its own.

use std::path::Path;

use tally_compiler_protocol::{Input, program};
use tally_opencl_c::{Failure, Request, compile as front_end, options};
use tally_ze::ze_result_t;

use crate::error::{Error, Result};
use crate::process;

/// SPIR-V, with the flags that concern code. The second part is the front end's log, also if it fails.
///
/// # Errors
/// MODULE_BUILD_FAILURE; DEPENDENCY_UNAVAILABLE: there is no compiler, or a program of Tally's is missing.
pub(super) fn compile(text: String, flags: String) -> (Result<Input>, String) {
    let options = options::for_code(&flags);
    // The program is installed beside the compiler, which may be elsewhere than the driver (TALLY_COMPILER).
    let compiler = program(process::own_folder().as_deref());
    let folder = compiler.as_deref().and_then(Path::parent).map(Path::to_owned);
    let folder = folder.ok_or_else(|| Failure::NoProgram("there is no tally-compiler".to_owned()));
    match folder.and_then(|folder| front_end(&folder, &Request::new(text, flags))) {
        Ok(made) => (Ok(Input { spirv: made.spirv, options, ..Input::default() }), line(made.log)),
        Err(failure) => {
            let code = match failure {
                Failure::NoCompiler | Failure::NoProgram(_) => {
                    ze_result_t::ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE
                }
                _ => ze_result_t::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE,
            };
            let log = failure.to_string();
            (Err(Error::new(code, format!("the OpenCL C: {log}"))), line(log))
        }
    }
}

/// A log to which another can be added.
fn line(mut log: String) -> String {
    if !log.is_empty() && !log.ends_with('\n') {
        log.push('\n');
    }
    log
}

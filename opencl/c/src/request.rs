// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the library and its compiler process say to each other.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{loaded, options};

/// A program to compile.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// OpenCL C.
    pub source: String,
    /// OpenCL's build options.
    pub options: String,
    /// Where to look for the compiler's library first.
    pub folders: Vec<OsString>,
}

impl Request {
    /// A request of this process. The folders of the libraries that it has loaded are searched first: a Python
    /// environment or an installation of oneAPI has the compiler beside its OpenCL loader and SYCL.
    pub fn new(source: String, options: String) -> Self {
        let folders = loaded::folders().into_iter().map(PathBuf::into_os_string).collect();
        Self { source, options: options::for_front_end(&options), folders }
    }
}

/// SPIR-V, and the compiler's warnings.
#[derive(Debug, Serialize, Deserialize)]
pub struct Compiled {
    /// The module.
    pub spirv: Vec<u8>,
    /// Messages.
    pub log: String,
}

/// The reason why there is no SPIR-V.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// There is no compiler.
    NoCompiler,
    /// The program is wrong; the compiler's messages.
    Refused(String),
    /// The build options are wrong; the compiler's messages.
    Options(String),
    /// The program that compiles is missing or cannot be started; why.
    NoProgram(String),
    /// The compiler process died or broke its protocol; how.
    Died(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCompiler => f.write_str(
                "there is no compiler for OpenCL C: install intel-opencl-rt from the Python package index, or clang 20 or newer",
            ),
            Self::Refused(log) | Self::Options(log) => f.write_str(log),
            Self::NoProgram(why) => {
                write!(f, "the program that compiles OpenCL C cannot be started: {why}")
            }
            Self::Died(how) => write!(f, "the process that compiles OpenCL C failed: {how}"),
        }
    }
}

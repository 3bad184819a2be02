// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contexts and programs.

use std::sync::{Mutex, PoisonError};

use opencl_sys::{
    CL_BUILD_ERROR, CL_BUILD_NONE, CL_BUILD_SUCCESS, CL_INVALID_CONTEXT, CL_INVALID_PROGRAM,
    cl_build_status, cl_context_properties,
};

use tally_opencl_c::{Compiled, Failure, Request, compile};

use super::device::{Device, own_folder};
use super::object::{Kind, Object, Ref};

/// A context.
pub struct Context {
    /// Its devices.
    pub devices: Vec<&'static Object<Device>>,
    /// The list that it was created with, with its last zero; empty if there was none.
    pub properties: Vec<cl_context_properties>,
}

impl Kind for Context {
    const TAG: u32 = 0x7461_6463;
    const INVALID: i32 = CL_INVALID_CONTEXT;
}

/// What a program was created from.
pub enum Origin {
    /// OpenCL C.
    Source(String),
    /// SPIR-V.
    Il(Vec<u8>),
    /// The SPIR-V of a binary.
    Binary(Vec<u8>),
}

/// The outcome of the last build.
#[derive(Clone, Debug)]
pub struct Build {
    /// None yet, a success or a failure.
    pub status: cl_build_status,
    /// The options that were given.
    pub options: String,
    /// The compiler's messages.
    pub log: String,
    /// The binary, if it succeeded.
    pub binary: Vec<u8>,
}

/// A program.
pub struct Program {
    /// Its context.
    pub context: Ref<Context>,
    /// What it is made of.
    pub origin: Origin,
    build: Mutex<Build>,
}

impl Kind for Program {
    const TAG: u32 = 0x7461_6470;
    const INVALID: i32 = CL_INVALID_PROGRAM;
}

impl Program {
    /// A program that has not been built.
    pub fn new(context: Ref<Context>, origin: Origin) -> Self {
        let binary = match &origin {
            Origin::Binary(spirv) => super::binary::wrap(spirv),
            _ => Vec::new(),
        };
        let build =
            Build { status: CL_BUILD_NONE, options: String::new(), log: String::new(), binary };
        Self { context, origin, build: Mutex::new(build) }
    }

    /// The outcome of the last build.
    pub fn outcome(&self) -> Build {
        self.build.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Builds the program; returns whether it succeeded.
    pub fn build(&self, options: String) -> Result<(), Failure> {
        let built = match &self.origin {
            Origin::Source(source) => {
                let request = Request::new(source.clone(), options.clone());
                own_folder()
                    .ok_or_else(|| Failure::NoProgram("this library has no folder".to_owned()))
                    .and_then(|folder| compile(&folder, &request))
            }
            Origin::Il(spirv) | Origin::Binary(spirv) => {
                Ok(Compiled { spirv: spirv.clone(), log: String::new() })
            }
        };
        let (status, log, binary, result) = match built {
            Ok(built) => (CL_BUILD_SUCCESS, built.log, super::binary::wrap(&built.spirv), Ok(())),
            Err(failure) => (CL_BUILD_ERROR, failure.to_string(), Vec::new(), Err(failure)),
        };
        let build = Build { status, options, log, binary };
        *self.build.lock().unwrap_or_else(PoisonError::into_inner) = build;
        result
    }
}

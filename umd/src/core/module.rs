// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules: the compiler's output for SPIR-V, with global variables and the kernels' code.
//!
//! A module that imports from others is built twice: alone when it is created, which says what it
//! needs and offers, and with the others when it is linked ([`mod@link`]). Only then it has code.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tally_compiler_protocol::checks::Checks;
use tally_compiler_protocol::native::{NativeCode, NativeModule};
use tally_compiler_protocol::{CodeId, Form, Input, KernelCode, ModuleInfo, debug, fingerprint};
use tally_ze::ze_result_t;

use crate::checks;
use crate::core::context::Context;
use crate::error::{Error, Result};
use crate::handle::{Kind, object};

mod build;
mod build_id;
pub mod cache;
mod code;
mod constants;
mod globals;
mod link;
mod opencl_c;
mod origin;

use build::{Build, Graph};
pub use code::{Code, Piece};
pub use constants::Constants;
use globals::{Globals, Patch, Unit};
pub use link::{Found, definition, link};
use origin::{Native, Origin, Part};

/// A module that has been built.
pub struct Module {
    context: Arc<Context>,
    built: Build,
    /// The build with the modules that it imports from, once it is linked.
    linked: OnceLock<Build>,
    /// Names of the kernels, as the C interface returns them.
    names: Vec<CString>,
    /// Code by kernel, made when a kernel is first created.
    code: Mutex<HashMap<u32, Arc<Code>>>,
    /// Identifies the source.
    uuid: [u8; 16],
    /// It came from a native binary, which has no code before it is linked if it imports anything.
    native: bool,
}

object!(ze_module_handle_t => Arc<Module>, Kind::Module);

/// A build that a module may take as its link.
struct Prepared {
    build: Build,
    patches: Vec<Patch>,
}

/// The compiler's messages, good or bad.
pub struct BuildLog(pub CString);

object!(ze_module_build_log_handle_t => BuildLog, Kind::BuildLog);

impl BuildLog {
    /// A log of these words.
    pub fn new(text: &str) -> Self {
        Self(c_string(text))
    }
}

/// A string for C: without NULs inside.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

const NO_COMPILER: ze_result_t = ze_result_t::ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;

/// A native binary that can't be loaded.
fn not_native(why: &str) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_INVALID_NATIVE_BINARY,
        format!("desc->pInputModule: {why}"),
    )
}

impl Module {
    /// Builds a module of one SPIR-V module or several: the whole front end runs before this
    /// returns. The second part is the log, also if the build fails.
    pub fn build(context: &Arc<Context>, inputs: Vec<Input>) -> (Result<Arc<Self>>, String) {
        Self::build_inputs(context, inputs, false)
    }

    /// Compiles a module's OpenCL C and builds it. The second part is the log of both, also if one fails.
    ///
    /// # Errors
    /// MODULE_BUILD_FAILURE; DEPENDENCY_UNAVAILABLE: there is no compiler.
    pub fn compile(
        context: &Arc<Context>,
        text: String,
        flags: String,
    ) -> (Result<Arc<Self>>, String) {
        let (input, mut log) = opencl_c::compile(text, flags);
        let built = input.and_then(|input| {
            let (built, more) = Self::build(context, vec![input]);
            log += &more;
            built
        });
        (built, log)
    }

    fn build_inputs(
        context: &Arc<Context>,
        inputs: Vec<Input>,
        native: bool,
    ) -> (Result<Arc<Self>>, String) {
        let uuid = fingerprint(inputs.iter().map(|input| &input.spirv[..]));
        let inputs = Arc::new(inputs);
        let part = Part { inputs: inputs.clone(), links: Vec::new() };
        let target = context.device().target();
        let (built, log) = Origin::compile(vec![part], target, checks::of_kernels());
        let module =
            built.and_then(|(origin, info)| Self::new(context, info, origin, inputs, uuid, native));
        (module, log)
    }

    /// Loads a native binary. The second part is the log, also if that fails.
    pub fn load(context: &Arc<Context>, binary: &[u8]) -> (Result<Arc<Self>>, String) {
        let native = NativeModule::from_bytes(binary).map_err(|error| error.to_string());
        let target = context.device().target();
        let native = native.and_then(|native| match native.target.missing_on(target) {
            Some(what) => Err(format!("it is for processors with {what}, which this one lacks")),
            None => Ok(native),
        });
        let native = match native {
            Ok(native) => native,
            Err(why) => return (Err(not_native(&why)), format!("native binary: {why}")),
        };
        if checks::of_kernels().any() && !native.inputs.is_empty() {
            // The code of a native binary has no checks, so it is built again where there is a compiler.
            let (built, log) = Self::build_inputs(context, native.inputs.clone(), true);
            if !built.as_ref().is_err_and(|error| error.code() == NO_COMPILER) {
                return (built, log);
            }
        }
        let (info, inputs) = (Arc::new(native.info), Arc::new(native.inputs));
        let origin = Origin::Native(Native::new(native.code, inputs.clone(), target));
        (Self::new(context, info, origin, inputs, native.uuid, true), String::new())
    }

    fn new(
        context: &Arc<Context>,
        info: Arc<ModuleInfo>,
        origin: Origin,
        inputs: Arc<Vec<Input>>,
        uuid: [u8; 16],
        native: bool,
    ) -> Result<Arc<Self>> {
        let globals = Globals::allocate(context, &info.globals)?;
        let names = info.kernels.iter().map(|kernel| c_string(&kernel.name)).collect();
        let graph = vec![(Arc::new(Unit { inputs, globals }), Vec::new())];
        Ok(Arc::new(Self {
            context: context.clone(),
            built: Build { info, origin, graph },
            linked: OnceLock::new(),
            names,
            code: Mutex::default(),
            uuid,
            native,
        }))
    }

    /// The sources that it was built from; none for a native binary without them.
    pub fn sources(&self) -> &[Input] {
        self.built.graph.first().map_or(&[], |(unit, _)| &unit.inputs)
    }

    /// First address and bytes of its variables, if it has any.
    pub fn variables(&self) -> Option<(u64, u64)> {
        self.built.graph.first()?.0.globals.extent()
    }

    /// The module as a native binary; waits for the code of all its kernels.
    ///
    /// # Errors
    /// MODULE_BUILD_FAILURE, OUT_OF_HOST_MEMORY.
    pub fn native_binary(&self) -> Result<Vec<u8>> {
        let unchecked = self.unchecked()?;
        let Build { info, origin, .. } = unchecked.as_ref().unwrap_or(&self.built);
        let kernels = if info.imports.is_empty() { info.kernels.len() as u32 } else { 0 };
        let code = |kernel, form| {
            let code = origin.kernel_code(info, CodeId { kernel, form });
            code.map(|code| KernelCode::clone(&code))
        };
        let code = (0..kernels).map(|kernel| {
            let usual = code(kernel, Form::Usual)?;
            // Where the usual code runs most groups in vectors, a second form of each kernel is not worth the
            // time to build it, and there are too many sizes of groups. Without these the usual code runs all groups.
            let uneven = usual.uneven.filter(|uneven| uneven.together && uneven.any);
            let uneven = uneven.and_then(|_| code(kernel, Form::Uneven).ok());
            Ok(NativeCode { usual, uneven })
        });
        let code = code.collect::<Result<Vec<_>>>()?;
        // With the source a process that checks can build it anew, and any process the forms that are not here.
        let with_source = !(info.imports.is_empty() && info.exports.is_empty())
            || code.iter().any(|code| code.usual.uneven.is_some())
            || unchecked.is_some()
            || self.native;
        let native = NativeModule {
            target: self.context.device().target().clone(),
            info: ModuleInfo::clone(info),
            code,
            inputs: if with_source { self.unit().inputs.to_vec() } else { Vec::new() },
            uuid: self.uuid,
        };
        native.to_bytes().ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                "hModule: the native binary is too large",
            )
        })
    }

    /// The module built without checks, for others; `None` if it has none anyway.
    fn unchecked(&self) -> Result<Option<Build>> {
        if !self.built.info.kernels.iter().any(|kernel| kernel.checks.is_some()) {
            return Ok(None);
        }
        let part = Part { inputs: self.unit().inputs.clone(), links: Vec::new() };
        let target = self.context.device().target();
        let (origin, info) = Origin::compile(vec![part], target, Checks::default()).0?;
        Ok(Some(Build { info, origin, graph: self.built.graph.clone() }))
    }

    /// The debug information of all kernels as an ELF file; waits for their code. Empty if the module
    /// was built without.
    ///
    /// # Errors
    /// MODULE_BUILD_FAILURE, OUT_OF_HOST_MEMORY.
    pub fn debug_info(&self) -> Result<Vec<u8>> {
        let Build { info, origin, .. } = self.latest();
        if self.needs_link() {
            return Ok(Vec::new());
        }
        let mut code = Vec::with_capacity(info.kernels.len());
        for kernel in 0..info.kernels.len() as u32 {
            // With debug information there is one form.
            let made = origin.kernel_code(info, CodeId { kernel, form: Form::Usual })?;
            // One flag decides for all kernels: where one has none the others need not be built.
            if made.debug.is_empty() {
                return Ok(Vec::new());
            }
            code.push(made);
        }
        let names = info.kernels.iter().map(|kernel| kernel.name.as_str());
        debug::elf(names.zip(code.iter().map(|code| &**code))).ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                "hModule: the debug information is too large",
            )
        })
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The build that kernels are made from.
    fn latest(&self) -> &Build {
        self.linked.get().unwrap_or(&self.built)
    }

    /// The compiler's facts about it and, once it is linked, about the modules that it is linked with.
    pub fn info(&self) -> &ModuleInfo {
        &self.latest().info
    }

    /// The compiler's facts about the module alone: its imports and exports.
    pub fn own_info(&self) -> &ModuleInfo {
        &self.built.info
    }

    /// The part of it that others may link to.
    fn unit(&self) -> &Arc<Unit> {
        &self.built.graph[0].0
    }

    /// Whether it has imports that are not linked.
    pub fn needs_link(&self) -> bool {
        self.linked.get().is_none() && !self.own_info().imports.is_empty()
    }

    /// The modules that it was linked with.
    fn linked_graph(&self) -> Option<&Graph> {
        self.linked.get().map(|build| &build.graph)
    }

    /// Checks the build with the modules that it imports from, and changes nothing yet.
    fn prepare_link(&self, build: Build) -> Result<Prepared> {
        let find = |global| build.address(global);
        let patches = self.unit().globals.patches(&build.info.globals, find)?;
        Ok(Prepared { build, patches })
    }

    /// Takes the build of a link. The first link stays.
    fn set_linked(&self, link: Prepared) {
        self.unit().globals.patch(&link.patches);
        // Two threads that link one module at a time break the specification's rule; both builds
        // are good.
        let _ = self.linked.set(link.build);
    }

    /// Names of the kernels, in the module's order.
    pub fn kernel_names(&self) -> &[CString] {
        &self.names
    }

    /// Identifies the source that the module was built from.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Address and size of a global variable with export linkage.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        let mut globals = self.own_info().globals.iter().zip(0..);
        let (info, index) = globals.find(|(info, _)| info.exported && info.name == name)?;
        Some((self.unit().globals.address(index)?, info.size))
    }

    /// Names that kernels need and no link has brought.
    pub fn missing(&self) -> Vec<&str> {
        let info = self.info();
        // A binary with imports has no code: all its kernels need a link.
        let all = self.native && self.linked.get().is_none();
        let imports = info.imports.iter().filter(|import| all || import.by_kernels);
        imports.map(|import| import.name.as_str()).collect()
    }

    /// A kernel's usual code, ready to run; waits until it is generated.
    ///
    /// # Errors
    /// MODULE_BUILD_FAILURE, or the errors of allocating memory for it.
    pub fn code(&self, kernel: u32) -> Result<Arc<Code>> {
        if let Some(code) = self.codes().get(&kernel) {
            return Ok(code.clone());
        }
        // The lock is not held here: other kernels of the module may be ready.
        let build = self.latest();
        let code = Code::load(self.context.vm(), build, kernel)?;
        Ok(self.codes().entry(kernel).or_insert(Arc::new(code)).clone())
    }

    /// Completes a kernel's code for groups of this size, if it needs more than the usual form; waits until
    /// that is generated.
    pub fn prepare(&self, code: &Code, group: [u32; 3]) {
        code.prepare(self.context.vm(), self.latest(), group);
    }

    fn codes(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Code>>> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules: what the compiler made of SPIR-V, its global variables, and its kernels' code.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tally_compiler_protocol::{
    Compiler, CompilerError, GlobalInfo, KernelCode, ModuleInfo, PendingModule, Reloc, Source,
};
use tally_uapi::eu::BLOCK_ALIGN;
use tally_uapi::ioctl::bind_flag;
use tally_ze::{ze_memory_type_t, ze_result_t};

use crate::core::context::Context;
use crate::error::{Error, Result};
use crate::handle::{Kind, object};
use crate::process;
use crate::space::{self, HUGE_PAGE};
use crate::trace;
use crate::vm::{Mapping, Vm};

mod constants;

pub use constants::Constants;

/// A module that has been built.
pub struct Module {
    context: Arc<Context>,
    info: Arc<ModuleInfo>,
    pending: PendingModule,
    globals: Arc<Globals>,
    /// Names of the kernels, as the C interface hands them out.
    names: Vec<CString>,
    /// Code by kernel, made when a kernel is first created.
    code: Mutex<HashMap<u32, Arc<Code>>>,
    /// Identifies the source.
    uuid: [u8; 16],
}

object!(ze_module_handle_t => Arc<Module>, Kind::Module);

/// What the compiler said, good or bad.
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

/// The compiler process; started by the first module of the process.
fn compiler() -> Result<&'static Compiler> {
    static COMPILER: OnceLock<Compiler> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(compiler) = COMPILER.get() {
        return Ok(compiler);
    }
    let compiler = Compiler::start(process::own_folder().as_deref()).map_err(|error| {
        Error::new(ze_result_t::ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, error.to_string())
    })?;
    Ok(COMPILER.get_or_init(|| compiler))
}

/// The error for what the compiler answered.
fn failed(error: &CompilerError) -> Error {
    Error::new(ze_result_t::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, error.to_string())
}

impl Module {
    /// Builds a module: its whole front end runs before this returns. The second part is the log,
    /// also if the build fails.
    pub fn build(
        context: &Arc<Context>,
        spirv: &[u8],
        options: &str,
        constants: Constants,
    ) -> (Result<Arc<Self>>, String) {
        let source = Source {
            spirv: spirv.to_owned(),
            options: options.to_owned(),
            spec_constants: constants.values(),
            target: context.device().target().clone(),
        };
        let pending = match compiler().and_then(|it| it.build(source).map_err(|it| failed(&it))) {
            Ok(pending) => pending,
            Err(error) => {
                let log = error.text().to_owned();
                return (Err(error), log);
            }
        };
        match pending.info() {
            Ok(info) => {
                let log = pending.warnings();
                (Self::finish(context.clone(), info, pending, fingerprint(spirv)), log)
            }
            Err(error) => (Err(failed(&error)), error.to_string()),
        }
    }

    fn finish(
        context: Arc<Context>,
        info: Arc<ModuleInfo>,
        pending: PendingModule,
        uuid: [u8; 16],
    ) -> Result<Arc<Self>> {
        let globals = Arc::new(Globals::allocate(&context, &info.globals)?);
        let names = info.kernels.iter().map(|kernel| c_string(&kernel.name)).collect();
        let code = Mutex::default();
        Ok(Arc::new(Self { context, info, pending, globals, names, code, uuid }))
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What the compiler says of it.
    pub fn info(&self) -> &ModuleInfo {
        &self.info
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
        let is = |global: &&(usize, &GlobalInfo)| global.1.exported && global.1.name == name;
        let globals: Vec<_> = self.info.globals.iter().enumerate().collect();
        globals.iter().find(is).map(|&(i, global)| (self.globals.addresses[i], global.size))
    }

    /// A kernel's code, ready to run; waits until it is generated.
    ///
    /// # Errors
    /// MODULE_BUILD_FAILURE, or what stands in the way of memory for it.
    pub fn code(&self, kernel: u32) -> Result<Arc<Code>> {
        if let Some(code) = self.codes().get(&kernel) {
            return Ok(code.clone());
        }
        // Not under the lock: other kernels of the module may be ready.
        let made = self.pending.kernel_code(kernel).map_err(|error| failed(&error))?;
        let code = Arc::new(Code::load(self.context.vm(), &self.globals, &made)?);
        if let Some(name) = self.info.kernels.get(kernel as usize).map(|it| &it.name) {
            trace::kernel_name(code.entry, name);
        }
        Ok(self.codes().entry(kernel).or_insert(code).clone())
    }

    fn codes(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Code>>> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The module-scope variables, in one piece of device memory.
struct Globals {
    vm: Arc<Vm>,
    /// First address, 0 without variables.
    base: u64,
    /// Address of each variable.
    addresses: Vec<u64>,
}

/// The owner of memory that belongs to the driver: no context has this id.
const DRIVER_OWNED: u64 = 0;

impl Globals {
    fn allocate(context: &Context, infos: &[GlobalInfo]) -> Result<Self> {
        let vm = context.vm();
        let mut size = 0_u64;
        let mut align = 1_u64;
        let mut offsets = Vec::with_capacity(infos.len());
        for info in infos {
            let own = u64::from(info.align).next_power_of_two().min(HUGE_PAGE);
            align = align.max(own);
            let offset = size.checked_next_multiple_of(own);
            let end = offset.and_then(|offset| offset.checked_add(info.size.max(1)));
            let (Some(offset), Some(end)) = (offset, end) else { return Err(too_large(info)) };
            offsets.push(offset);
            size = end;
        }
        let mut globals = Self { vm: vm.clone(), base: 0, addresses: Vec::new() };
        if size == 0 {
            return Ok(globals);
        }
        let kind = ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE;
        let charge = context.device().budget().charge(0)?;
        globals.base = vm.allocate(size, align, kind, DRIVER_OWNED, Some(charge))?;
        globals.addresses = offsets.iter().map(|offset| globals.base + offset).collect();
        for (info, &address) in infos.iter().zip(&globals.addresses) {
            let mut bytes = info.init.clone();
            if bytes.len() as u64 > info.size {
                return Err(inconsistent());
            }
            if let Some(end) = info.relocs.iter().map(|it| it.offset.saturating_add(8)).max() {
                if end > info.size {
                    return Err(inconsistent());
                }
                bytes.resize(bytes.len().max(end as usize), 0);
            }
            globals.relocate(&mut bytes, &info.relocs)?;
            // SAFETY: the variable's bytes are part of the allocation, which is new, mapped for the
            // host, and known to nobody else; `bytes` has at most as many.
            unsafe {
                let to = space::pointer(address);
                to.copy_from(bytes.as_ptr(), bytes.len());
                to.add(bytes.len()).write_bytes(0, info.size as usize - bytes.len());
            }
        }
        Ok(globals)
    }

    /// Writes the addresses of variables into `bytes`.
    fn relocate(&self, bytes: &mut [u8], relocs: &[Reloc]) -> Result {
        for reloc in relocs {
            let address = self.addresses.get(reloc.global as usize).ok_or_else(inconsistent)?;
            let start = usize::try_from(reloc.offset).map_err(|_| inconsistent())?;
            let place = bytes.get_mut(start..).and_then(|rest| rest.first_chunk_mut::<8>());
            *place.ok_or_else(inconsistent)? =
                address.wrapping_add_signed(reloc.addend).to_le_bytes();
        }
        Ok(())
    }
}

impl Drop for Globals {
    fn drop(&mut self) {
        if self.base != 0 {
            drop(self.vm.release(self.base, DRIVER_OWNED));
        }
    }
}

fn too_large(info: &GlobalInfo) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        format!("the variable {:?} of {} bytes does not fit", info.name, info.size),
    )
}

/// The compiler is another process, and what it says is checked before it is used.
fn inconsistent() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE,
        "the compiler's answer contradicts itself; please report it",
    )
}

/// A kernel's code in executable memory. Whoever may still run it keeps it alive.
pub struct Code {
    /// Address of the entry point.
    pub entry: u64,
    /// Scratch memory of a group, in bytes, whatever its size.
    pub scratch_fixed: u32,
    /// Scratch memory to add for each work-item, in bytes.
    pub scratch_per_item: u32,
    /// Local memory of the kernel's own variables, in bytes.
    pub local_static: u32,
    _mapping: Mapping,
    _globals: Arc<Globals>,
}

impl Code {
    fn load(vm: &Vm, globals: &Arc<Globals>, made: &KernelCode) -> Result<Self> {
        if made.entry as usize >= made.blob.len() {
            return Err(inconsistent());
        }
        let mut blob = made.blob.clone();
        globals.relocate(&mut blob, &made.relocs)?;
        let mut mapping = vm.place(blob.len() as u64, BLOCK_ALIGN)?;
        mapping.write(&blob)?;
        mapping.bind(0, mapping.size(), bind_flag::READ | bind_flag::EXECUTE)?;
        Ok(Self {
            entry: mapping.va() + u64::from(made.entry),
            scratch_fixed: made.scratch_bytes_fixed,
            scratch_per_item: made.scratch_bytes_per_item,
            local_static: made.local_static_bytes,
            _mapping: mapping,
            _globals: globals.clone(),
        })
    }

    /// Scratch memory of a group of `items` work-items, in bytes.
    pub fn scratch(&self, items: u64) -> u64 {
        u64::from(self.scratch_fixed) + u64::from(self.scratch_per_item) * items
    }
}

/// FNV-1a of 128 bits: tells sources apart, and is not meant to resist anybody.
fn fingerprint(bytes: &[u8]) -> [u8; 16] {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let step = |hash: u128, &byte: &u8| (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    bytes.iter().fold(BASIS, step).to_le_bytes()
}

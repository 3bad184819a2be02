// SPDX-License-Identifier: MIT OR Apache-2.0
//! LLVM: assembly text → optimised object file for the device's processor.
//!
//! The text is parsed and verified first, so every fault in it becomes a message. The functions of the
//! run-time library that it calls are linked in as bitcode, made private, and optimised with the
//! kernel.

mod apart;
mod gathers;
mod halves;
mod passes;
mod rewrite;
mod rotations;

use std::ffi::CStr;
use std::fmt;
use std::sync::OnceLock;

use inkwell::OptimizationLevel;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::builder::BuilderError;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple,
};
use inkwell::types::{AnyTypeEnum, BasicTypeEnum};
use inkwell::values::FunctionValue;
use tally_compiler_protocol::TargetCpu;

use crate::lower::Work;

mod runtime {
    include!(concat!(env!("OUT_DIR"), "/runtime.rs"));
}

/// The part of the run-time library that is compiled beforehand, as object files: functions that LLVM's
/// code generator calls by name, functions for images, and mathematical functions of numbers out of the common range.
pub fn support() -> &'static [&'static [u8]] {
    runtime::SUPPORT
}

/// The platform of kernel code: the SysV calling convention, ELF.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// A step of code generation that failed, with LLVM's message. None is the program's fault.
#[derive(Debug, PartialEq, Eq)]
pub enum LlvmError {
    /// LLVM cannot generate code for the processor.
    Target(String),
    /// The text is not LLVM assembly.
    Parse(String),
    /// The module breaks a rule of LLVM's.
    Verify(String),
    /// The run-time library could not be linked in.
    Link(String),
    /// The optimisation passes could not be run.
    Passes(String),
    /// The object file could not be written.
    Emit(String),
}

impl fmt::Display for LlvmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(why) => write!(f, "the target: {why}"),
            Self::Parse(why) => write!(f, "reading the assembly: {why}"),
            Self::Verify(why) => write!(f, "verification: {why}"),
            Self::Link(why) => write!(f, "linking the run-time library: {why}"),
            Self::Passes(why) => write!(f, "optimisation: {why}"),
            Self::Emit(why) => write!(f, "writing the object file: {why}"),
        }
    }
}

impl std::error::Error for LlvmError {}

/// The optimisation level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// No optimisation, and one work-item at a time.
    None,
    /// Passes that cost little time and memory; vectors of work-items.
    Little,
    /// Full optimisation.
    #[default]
    Full,
}

impl Level {
    fn generator(self) -> OptimizationLevel {
        match self {
            Self::None => OptimizationLevel::None,
            Self::Little => OptimizationLevel::Less,
            Self::Full => OptimizationLevel::Default,
        }
    }
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// An ELF object file.
    Object,
    /// The processor's assembly language, for readers.
    Assembly,
    /// LLVM's optimised assembly language, for readers.
    Optimised,
}

/// Compiles LLVM assembly `text` for a processor. What `work` it does decides which passes it goes through.
///
/// # Errors
/// See [`LlvmError`].
pub fn compile(
    text: &str,
    work: Work,
    target: &TargetCpu,
    level: Level,
    output: Output,
) -> Result<Vec<u8>, LlvmError> {
    let machine = machine(target, level)?;
    let context = Context::create();
    let mut source = text.as_bytes().to_vec();
    source.push(0);
    let buffer = MemoryBuffer::create_from_memory_range_copy(&source, "kernel");
    let module = context
        .create_module_from_ir(buffer)
        .map_err(|error| LlvmError::Parse(error.to_string()))?;
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    link_library(&context, &module, form(target))?;
    apart::run(&context, &module);
    name_images(&module, target);
    module.verify().map_err(|error| LlvmError::Verify(error.to_string()))?;
    let wrong = |error: BuilderError| LlvmError::Passes(error.to_string());
    if has_avx2(target) {
        gathers::widen(&context, &module).map_err(wrong)?;
    }
    if !has(target, &[], "avx512fp16") {
        halves::expand(&context, &module).map_err(wrong)?;
    }

    let options = PassBuilderOptions::create();
    let full = level == Level::Full;
    options.set_loop_vectorization(full);
    options.set_loop_slp_vectorization(full);
    options.set_loop_unrolling(full);
    options.set_loop_interleaving(full);
    module
        .run_passes(&passes::list(work, level), &machine, options)
        .map_err(|error| LlvmError::Passes(error.to_string()))?;
    // LLVM's code for rotations of vectors may be wrong there.
    if has_avx2(target) && !is_long(target) {
        rotations::expand(&context, &module).map_err(wrong)?;
    }
    align_stacks(&context, &module, target);
    let kind = match output {
        Output::Object => FileType::Object,
        Output::Assembly => FileType::Assembly,
        Output::Optimised => return Ok(module.print_to_string().to_bytes().to_vec()),
    };
    let buffer = machine
        .write_to_memory_buffer(&module, kind)
        .map_err(|error| LlvmError::Emit(error.to_string()))?;
    Ok(buffer.as_slice().to_vec())
}

/// Initialises LLVM. The first call takes some milliseconds.
pub fn initialise() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| Target::initialize_x86(&InitializationConfig::default()));
}

/// Makes LLVM measure its passes from here on, in the whole process. It is for tools, not for a driver.
pub fn time_passes() {
    let words = [c"tally-compiler", c"-time-passes"].map(CStr::as_ptr);
    // SAFETY: `words` has the length that is passed, its strings end with zeros, and LLVM copies what
    // it keeps. A null overview is allowed. LLVM's options are process-wide; `main` has started no
    // other thread.
    unsafe {
        llvm_sys::support::LLVMParseCommandLineOptions(2, words.as_ptr(), std::ptr::null());
    }
}

/// Prints the measurements of [`time_passes`] to standard error. LLVM cannot be used afterwards.
pub fn print_times() {
    // SAFETY: no object of LLVM's is left: `compile` drops all of its own, and there is no other
    // thread.
    unsafe { inkwell::support::shutdown_llvm() };
}

fn machine(target: &TargetCpu, level: Level) -> Result<TargetMachine, LlvmError> {
    initialise();
    let wrong = |why: &str| LlvmError::Target(why.to_owned());
    // LLVM parses these like a command line; names of processors and features are words.
    let word = |c: char| c.is_ascii_alphanumeric() || "+-_.,".contains(c);
    if ![&target.name, &target.features].into_iter().all(|text| text.chars().all(word)) {
        return Err(wrong("the processor's name or features hold a strange character"));
    }
    let cpu = if target.name.is_empty() { "x86-64" } else { &target.name };
    let features = features(target);
    let triple = TargetTriple::create(TRIPLE);
    Target::from_triple(&triple)
        .map_err(|error| wrong(&error.to_string()))?
        .create_target_machine(
            &triple,
            cpu,
            &features,
            level.generator(),
            RelocMode::PIC,
            CodeModel::Small,
        )
        .ok_or_else(|| wrong("LLVM can't generate code for it"))
}

/// What LLVM is told of a processor's features.
fn features(target: &TargetCpu) -> String {
    // LLVM prefers loads to the gathers of many processors with AVX2. It weighs the loop of a program, whose loads are
    // without conditions; those of items take a test and a branch each.
    let gathers = has_avx2(target).then_some("+fast-gather");
    let all = [target.features.as_str()].into_iter().filter(|it| !it.is_empty()).chain(gathers);
    all.collect::<Vec<_>>().join(",")
}

/// Whether a processor is known to have a feature, which all processors of the levels have.
fn has(target: &TargetCpu, levels: &[&str], feature: &str) -> bool {
    levels.contains(&target.name.as_str())
        || target.features.split(',').any(|word| word.strip_prefix('+') == Some(feature))
}

/// Whether a processor is known to have registers of 512 bits.
pub fn has_long_vectors(target: &TargetCpu) -> bool {
    has(target, &["x86-64-v4"], "avx512f")
}

/// Whether a processor is known to have integers in registers of 256 bits, shifts by amounts that differ, and gathers.
fn has_avx2(target: &TargetCpu) -> bool {
    has(target, &["x86-64-v3", "x86-64-v4"], "avx2")
}

/// The form of the run-time library for a processor (`build.rs`).
fn form(target: &TargetCpu) -> usize {
    // Some processors have fused multiply-add but no integers in registers of 256 bits.
    let fuses = has_avx2(target) && has(target, &["x86-64-v3", "x86-64-v4"], "fma");
    usize::from(fuses) + usize::from(fuses && is_long(target))
}

/// Whether a processor is known to have the instructions of long vectors also for short ones (AVX512VL).
fn is_long(target: &TargetCpu) -> bool {
    has_long_vectors(target) && has(target, &["x86-64-v4"], "avx512vl")
}

/// Size in bytes of the longest registers that a processor is known to have.
fn register_bytes(target: &TargetCpu) -> u64 {
    let has_avx =
        target.name == "x86-64-v3" || target.features.split(',').any(|feature| feature == "+avx");
    match (has_long_vectors(target), has_avx) {
        (true, _) => 64,
        (_, true) => 32,
        _ => STACK_ALIGN,
    }
}

/// Aligns the stack of each function to its longest vectors. LLVM does so by itself only if it knows
/// before register allocation that the stack will hold vectors. Otherwise a spilled register may
/// straddle two cache lines, depending on the caller's stack pointer: `exp` + `log` + `sin` then took
/// 30 % longer in 16 lanes.
fn align_stacks<'c>(context: &'c Context, module: &Module<'c>, target: &TargetCpu) {
    let kind = Attribute::get_named_enum_kind_id("alignstack");
    let most = register_bytes(target);
    for function in module.get_functions() {
        let bytes = longest_vector(function).next_power_of_two().min(most);
        if bytes > STACK_ALIGN {
            let attribute = context.create_enum_attribute(kind, bytes);
            function.add_attribute(AttributeLoc::Function, attribute);
        }
    }
}

/// The alignment of the stack, in bytes, that every caller guarantees.
const STACK_ALIGN: u64 = 16;

/// Size in bytes of the longest vector that an instruction of the function produces.
fn longest_vector(function: FunctionValue<'_>) -> u64 {
    let instructions = function.get_basic_block_iter().flat_map(|block| block.get_instructions());
    let lengths = instructions.map(|instruction| match instruction.get_type() {
        AnyTypeEnum::VectorType(vector) => {
            let bits = match vector.get_element_type() {
                BasicTypeEnum::IntType(int) => int.get_bit_width(),
                BasicTypeEnum::FloatType(float) => float.get_bit_width(),
                _ => 64,
            };
            u64::from(vector.get_size()) * u64::from(bits) / 8
        }
        _ => 0,
    });
    lengths.max().unwrap_or(0)
}

/// Attributes that the compilation of the run-time library leaves on its functions.
const OWN_ATTRIBUTES: [&str; 5] =
    ["target-cpu", "target-features", "tune-cpu", "min-legal-vector-width", "no-builtins"];

/// Links the families of the run-time library that `module` needs, and those that these need.
fn link_library<'c>(
    context: &'c Context,
    module: &Module<'c>,
    form: usize,
) -> Result<(), LlvmError> {
    let mut linked = vec![false; runtime::FAMILIES.len()];
    loop {
        let missing = module.get_functions().filter(|function| function.count_basic_blocks() == 0);
        let mut needed =
            missing.filter_map(|function| family_of(&function.get_name().to_string_lossy()));
        // No family defines the remaining functions; linking the blob reports them.
        let Some(family) = needed.find(|&family| !linked[family]) else { return Ok(()) };
        linked[family] = true;
        let library = library(context, runtime::FAMILIES[family][form])?;
        library.set_triple(&module.get_triple());
        library.set_data_layout(&module.get_data_layout());
        // Without the attributes of its own compilation the library is compiled for the kernel's
        // processor, and its vectors may be as long as registers are. What calls no builtin functions is
        // never inlined into what may call them.
        for function in library.get_functions() {
            for key in OWN_ATTRIBUTES {
                function.remove_string_attribute(AttributeLoc::Function, key);
            }
        }
        module.link_in_module(library).map_err(|error| LlvmError::Link(error.to_string()))?;
    }
}

/// The functions for images are object files, whose names end with the form.
fn name_images(module: &Module<'_>, target: &TargetCpu) {
    let form = match form(target) {
        0 => usize::from(has(target, &["x86-64-v2", "x86-64-v3", "x86-64-v4"], "sse4.1")),
        more => more + 1,
    };
    for function in module.get_functions() {
        let name = function.get_name().to_string_lossy().into_owned();
        if name.starts_with("__tally_image") && function.count_basic_blocks() == 0 {
            function.as_global_value().set_name(&format!("{name}_{form}"));
        }
    }
}

fn library<'c>(context: &'c Context, bytes: &[u8]) -> Result<Module<'c>, LlvmError> {
    let buffer = MemoryBuffer::create_from_memory_range_copy(bytes, "runtime");
    Module::parse_bitcode_from_buffer(&buffer, context)
        .map_err(|error| LlvmError::Link(error.to_string()))
}

/// The family that defines a function of the run-time library, in both forms.
fn family_of(name: &str) -> Option<usize> {
    let found = runtime::DEFINED.binary_search_by_key(&name, |&(name, _)| name).ok()?;
    Some(runtime::DEFINED[found].1)
}

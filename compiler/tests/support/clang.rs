// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes SPIR-V for tests: OpenCL C through clang, assembly through spirv-as.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The clang of the same LLVM that the compiler is built with.
fn clang() -> PathBuf {
    if let Some(path) = std::env::var_os("TALLY_CLANG") {
        return path.into();
    }
    let packaged = Path::new("/usr/lib/llvm-22/bin/clang");
    if packaged.exists() { packaged.into() } else { "clang-22".into() }
}

/// A path in the target directory that no other test uses.
fn scratch(extension: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{n}.{extension}", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs a tool that writes `output` and returns what it wrote.
fn run(command: &mut Command, output: &Path) -> Vec<u8> {
    let result = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "{command:?} failed:\n{errors}");
    let bytes = std::fs::read(output).expect("the tool has written its output");
    let _ = std::fs::remove_file(output);
    bytes
}

/// The SPIR-V of OpenCL C in a file of `tests/kernels`, with options such as `-O2`.
#[allow(dead_code, reason = "not every test binary compiles files")]
pub fn compile(file: &str, options: &[&str]) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels").join(file);
    compile_path(&source, options)
}

/// The SPIR-V of OpenCL C given as text.
#[allow(dead_code, reason = "not every test binary compiles text")]
pub fn compile_text(text: &str, options: &[&str]) -> Vec<u8> {
    let source = scratch("cl");
    std::fs::write(&source, text).expect("the target directory is writable");
    let bytes = compile_path(&source, options);
    let _ = std::fs::remove_file(&source);
    bytes
}

fn compile_path(source: &Path, options: &[&str]) -> Vec<u8> {
    let output = scratch("spv");
    let mut command = Command::new(clang());
    command
        .args(["--target=spirv64", "-cl-std=CL3.0", "-Xclang", "-finclude-default-header"])
        .args(options)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&output);
    run(&mut command, &output)
}

/// The module of SPIR-V assembly.
#[allow(dead_code, reason = "not every test binary assembles")]
pub fn assemble(text: &str) -> Vec<u8> {
    let (source, output) = (scratch("spvasm"), scratch("spv"));
    std::fs::write(&source, text).expect("the target directory is writable");
    let mut command = Command::new("spirv-as");
    command.args(["--target-env", "spv1.4", "--preserve-numeric-ids"]);
    let bytes = run(command.arg(&source).arg("-o").arg(&output), &output);
    let _ = std::fs::remove_file(&source);
    bytes
}

/// One kernel, `k`, in SPIR-V assembly, for code that no available compiler writes. It defines `%void`,
/// `%bool`, `%i32`, `%i64`, `%p`, which points to an `%i32` in global memory, and `%i`, the number of
/// the item.
#[allow(dead_code, reason = "not every test binary assembles")]
#[derive(Default)]
pub struct Assembly<'a> {
    /// Further capabilities, and imports.
    pub head: &'a str,
    /// Strings and decorations.
    pub notes: &'a str,
    /// Types and constants.
    pub declarations: &'a str,
    /// Names and types of the parameters.
    pub parameters: &'a [(&'a str, &'a str)],
    /// Private variables.
    pub variables: &'a str,
    /// The code of an item before it returns.
    pub body: &'a str,
}

#[allow(dead_code, reason = "not every test binary assembles")]
impl Assembly<'_> {
    /// The module.
    pub fn module(&self) -> Vec<u8> {
        assemble(&self.text())
    }

    /// The text of the module.
    pub fn text(&self) -> String {
        let Self { head, notes, declarations, parameters, variables, body } = self;
        let types: String = parameters.iter().map(|(_, ty)| format!(" %{ty}")).collect();
        let named = |(name, ty): &(&str, &str)| format!("%{name} = OpFunctionParameter %{ty}\n");
        let parameters: String = parameters.iter().map(named).collect();
        format!(
            "OpCapability Kernel
             OpCapability Addresses
             OpCapability Int64
             {head}
             OpMemoryModel Physical64 OpenCL
             OpEntryPoint Kernel %k \"k\" %id
             {notes}
             OpDecorate %id BuiltIn GlobalInvocationId
             OpDecorate %id Constant
             %void = OpTypeVoid
             %bool = OpTypeBool
             %i32 = OpTypeInt 32 0
             %i64 = OpTypeInt 64 0
             %v3 = OpTypeVector %i64 3
             %p3 = OpTypePointer Input %v3
             %p = OpTypePointer CrossWorkgroup %i32
             {declarations}
             %fn = OpTypeFunction %void{types}
             %id = OpVariable %p3 Input
             %k = OpFunction %void None %fn
             {parameters}
             %entry = OpLabel
             {variables}
             %ids = OpLoad %v3 %id
             %i = OpCompositeExtract %i64 %ids 0
             {body}
             OpReturn
             OpFunctionEnd"
        )
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the run-time library of kernels (`rt/*.c`) with clang.
//!
//! The maths files become LLVM bitcode, which is linked into the kernels that call it and is
//! optimised with them. There are two forms of each, for any processor and for those with fused
//! multiply-add. `support.c` becomes an object file: LLVM's code generator calls its
//! functions by their well-known names after all optimisation.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Where clang may be. Its version must be LLVM's, because bitcode of a newer one is not read.
const CLANGS: [&str; 2] = ["clang-22", "/usr/lib/llvm-22/bin/clang"];

fn main() {
    println!("cargo::rerun-if-changed=rt");
    println!("cargo::rerun-if-env-changed=TALLY_CLANG");
    if env::var_os("CARGO_FEATURE_LLVM").is_none() {
        return;
    }
    if let Err(why) = build() {
        println!("cargo::error={why}");
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let clang = find_clang()?;
    let mut sources: Vec<PathBuf> = fs::read_dir("rt")
        .map_err(|error| format!("rt/: {error}"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let (mut plain, mut fused) = (String::new(), String::new());
    let mut support = None;
    for source in sources {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "support" {
            let object = out.join("support.o");
            compile(&clang, &source, &object, &["-fPIC", "-ffunction-sections"])?;
            support = Some(object);
        } else {
            let forms = [("", &mut plain, &[][..]), ("-fma", &mut fused, &["-DTALLY_FMA"][..])];
            for (suffix, list, more) in forms {
                let bitcode = out.join(format!("{stem}{suffix}.bc"));
                compile(&clang, &source, &bitcode, &[&["-emit-llvm"], more].concat())?;
                *list += &format!("    include_bytes!({bitcode:?}),\n");
            }
        }
    }
    let support = support.ok_or("rt/support.c is missing")?;
    let text = format!(
        "/// The maths library as LLVM bitcode, one file for each family of functions.\n\
         pub(crate) static FAMILIES: &[&[u8]] = &[\n{plain}];\n\
         /// The same for processors with fused multiply-add.\n\
         pub(crate) static FUSED_FAMILIES: &[&[u8]] = &[\n{fused}];\n\
         /// What LLVM's code generator calls, as an object file.\n\
         pub(crate) static SUPPORT: &[u8] = include_bytes!({support:?});\n"
    );
    fs::write(out.join("runtime.rs"), text).map_err(|error| format!("runtime.rs: {error}"))
}

fn find_clang() -> Result<String, String> {
    let chosen = env::var("TALLY_CLANG").ok();
    let works = |clang: &String| {
        Command::new(clang).arg("--version").output().is_ok_and(|out| out.status.success())
    };
    let found = chosen.into_iter().chain(CLANGS.map(String::from)).find(works);
    found.ok_or_else(|| {
        "clang of LLVM 22 is needed to build the kernels' run-time library: install clang-22 or set TALLY_CLANG".into()
    })
}

fn compile(clang: &str, source: &Path, output: &Path, more: &[&str]) -> Result<(), String> {
    let result = Command::new(clang)
        .args(["--target=x86_64-unknown-linux-gnu", "-std=c17", "-O2", "-c"])
        .args(["-ffreestanding", "-fno-builtin", "-fno-math-errno", "-ffp-contract=off"])
        .args(["-fvisibility=hidden", "-fno-stack-protector", "-fno-asynchronous-unwind-tables"])
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(more)
        .arg(source)
        .arg("-o")
        .arg(output)
        .output()
        .map_err(|error| format!("{clang}: {error}"))?;
    if result.status.success() {
        Ok(())
    } else {
        let log = String::from_utf8_lossy(&result.stderr).replace('\n', "\ncargo::error=");
        Err(format!("{}: {log}", source.display()))
    }
}

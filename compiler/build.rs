// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links LLVM's library, or its archives, and compiles the run-time library of kernels (`rt/*.c`) with clang.
//!
//! The maths files become LLVM bitcode, which is linked into the kernels that call it and is
//! optimised with them. There are two forms of each, for any processor and for those with fused
//! multiply-add. Which file defines a function is written down too, so that nothing but what a kernel
//! needs is read when one is compiled. `support.c` becomes an object file: LLVM's code generator calls its
//! functions by their well-known names after all optimisation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Where clang may be. Its version must be LLVM's, because bitcode of a newer one is not read.
const CLANGS: [&str; 2] = ["clang-22", "/usr/lib/llvm-22/bin/clang"];

/// LLVM's C and C++ API in one shared library, by the name that says its version: what Debian's library
/// package has, while the name without a version comes with the development files.
const LLVM: &str = "libLLVM.so.22.1";

/// The folder of LLVM's archives, for a compiler that has LLVM inside: what packages carry
/// (scripts/packaged.sh).
const STATIC_LLVM: &str = "TALLY_STATIC_LLVM";

/// Archives of engines that run LLVM's code in the process. inkwell has calls to them, which nothing calls;
/// some start themselves if they are there.
const UNUSED: [&str; 4] = ["libLLVMInterpreter.", "libLLVMJIT", "libLLVMMCJIT.", "libLLVMOrc"];

/// What the archives need in turn.
const STATIC_NEEDS: [&str; 3] = ["libstdc++.a", "libz.a", "libzstd.a"];

/// Where LLVM is installed if not among the system's libraries; the variable is llvm-sys's own.
const LLVM_PREFIX: &str = "LLVM_SYS_221_PREFIX";

/// What all functions of the library are called.
const PREFIX: &str = "__tally_";

fn main() {
    println!("cargo::rerun-if-changed=rt");
    println!("cargo::rerun-if-env-changed=TALLY_CLANG");
    if env::var_os("CARGO_FEATURE_LLVM").is_none() {
        return;
    }
    if let Err(why) = link_llvm().and_then(|()| build()) {
        println!("cargo::error={why}");
    }
}

/// Links LLVM's library, or its archives if there is a folder of them.
fn link_llvm() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed={LLVM_PREFIX}");
    println!("cargo::rerun-if-env-changed={STATIC_LLVM}");
    println!("cargo::rustc-check-cfg=cfg(tally_static_llvm)");
    let Some(folder) = env::var_os(STATIC_LLVM).map(PathBuf::from) else {
        if let Ok(prefix) = env::var(LLVM_PREFIX) {
            println!("cargo::rustc-link-search=native={prefix}/lib");
        }
        println!("cargo::rustc-link-lib=dylib:+verbatim={LLVM}");
        return Ok(());
    };
    println!("cargo::rustc-cfg=tally_static_llvm");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut archives: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("libLLVM") && name.ends_with(".a"))
        .filter(|name| !UNUSED.iter().any(|unused| name.starts_with(unused)))
        .collect();
    if archives.is_empty() {
        return Err(format!("{STATIC_LLVM}: {} has no archives of LLVM", folder.display()));
    }
    // The linker takes the members that something refers to, in whatever order the archives come; sorted,
    // so that each build gives the same program.
    archives.sort();
    println!("cargo::rustc-link-arg=-Wl,--start-group");
    for name in archives {
        println!("cargo::rustc-link-arg={}", folder.join(name).display());
    }
    for name in STATIC_NEEDS {
        println!("cargo::rustc-link-arg=-l:{name}");
    }
    println!("cargo::rustc-link-arg=-Wl,--end-group");
    println!("cargo::rustc-link-arg=-lm");
    // The driver's cache tells compilers apart by it.
    println!("cargo::rustc-link-arg=-Wl,--build-id=sha1");
    Ok(())
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
    let (mut defined, mut families) = (BTreeMap::new(), 0);
    let mut support = None;
    for source in sources {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "support" {
            let object = out.join("support.o");
            compile(&clang, &source, &object, &["-c", "-fPIC", "-ffunction-sections"])?;
            support = Some(object);
        } else {
            let forms = [("", &mut plain, &[][..]), ("-fma", &mut fused, &["-DTALLY_FMA"][..])];
            for (suffix, list, more) in forms {
                let bitcode = out.join(format!("{stem}{suffix}.bc"));
                compile(&clang, &source, &bitcode, &[&["-c", "-emit-llvm"], more].concat())?;
                *list += &format!("    include_bytes!({bitcode:?}),\n");
            }
            // Both forms define the same functions.
            let text = out.join(format!("{stem}.ll"));
            compile(&clang, &source, &text, &["-S", "-emit-llvm"])?;
            let text = fs::read_to_string(&text).map_err(|error| format!("{stem}.ll: {error}"))?;
            defined.extend(functions(&text).map(|name| (name.to_owned(), families)));
            families += 1;
        }
    }
    let support = support.ok_or("rt/support.c is missing")?;
    let defined: String =
        defined.iter().map(|(name, family)| format!("    ({name:?}, {family}),\n")).collect();
    let text = format!(
        "/// The functions of the maths library in alphabetical order, and which file has them.\n\
         pub(crate) static DEFINED: &[(&str, usize)] = &[\n{defined}];\n\
         /// The maths library as LLVM bitcode, one file for each family of functions.\n\
         pub(crate) static FAMILIES: &[&[u8]] = &[\n{plain}];\n\
         /// The same for processors with fused multiply-add.\n\
         pub(crate) static FUSED_FAMILIES: &[&[u8]] = &[\n{fused}];\n\
         /// What LLVM's code generator calls, as an object file.\n\
         pub(crate) static SUPPORT: &[u8] = include_bytes!({support:?});\n"
    );
    fs::write(out.join("runtime.rs"), text).map_err(|error| format!("runtime.rs: {error}"))
}

/// The names of the library's functions that a file of LLVM assembly defines.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let defined = text.lines().filter(|line| line.starts_with("define "));
    let named = defined.filter_map(|line| line.split_once('@')?.1.split_once('('));
    named.map(|(name, _)| name).filter(|name| name.starts_with(PREFIX))
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
        .args(["--target=x86_64-unknown-linux-gnu", "-std=c17", "-O2"])
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

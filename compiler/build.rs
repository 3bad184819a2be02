// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links LLVM's library, or its archives, and compiles the run-time library of kernels (`rt/`) with clang.
//!
//! Most files become LLVM bitcode, which is linked into the kernels that call it and is optimised with them.
//! Those in `rt/maths/` are compiled for one number and for vectors of 8 and 16, each in three forms: for any
//! processor, for those with fused multiply-add, and for those with registers of 512 bits. An index
//! names the file that defines each function, so that compiling a kernel reads only the files that it
//! needs.
//!
//! `support.c` and the files in `rt/images/` and `rt/maths/far/` become object files. LLVM's code generator calls the
//! functions of the first by their well-known names after all optimisation. Those for images are large, and no call
//! makes them smaller. Those of the others are rarely needed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Candidates for clang. Its version must be LLVM's, because LLVM does not read the bitcode of a newer
/// version.
const CLANGS: [&str; 2] = ["clang-22", "/usr/lib/llvm-22/bin/clang"];

/// LLVM's C and C++ API in one shared library, by its versioned name: Debian's library package has only
/// that one, and the name without a version is in the development package.
const LLVM: &str = "libLLVM.so.22.1";

/// Environment variable with the folder of LLVM's static libraries. Packages set it to link LLVM into
/// the compiler (scripts/packaged.sh).
const STATIC_LLVM: &str = "TALLY_STATIC_LLVM";

/// Archives of LLVM's engines that run code in the process. inkwell links to them, but Tally calls none
/// of them; some register themselves if they are linked.
const UNUSED: [&str; 4] = ["libLLVMInterpreter.", "libLLVMJIT", "libLLVMMCJIT.", "libLLVMOrc"];

/// Static libraries that LLVM's archives depend on.
const STATIC_NEEDS: [&str; 3] = ["libstdc++.a", "libz.a", "libzstd.a"];

/// LLVM's prefix, if it is not installed with the system's libraries; the variable is llvm-sys's own.
const LLVM_PREFIX: &str = "LLVM_SYS_221_PREFIX";

/// Prefix of all the library's functions.
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
    // The linker takes the members that something refers to, in the order of the archives. Sorting them
    // makes the build reproducible.
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
    // The driver's cache identifies the compiler by its build ID.
    println!("cargo::rustc-link-arg=-Wl,--build-id=sha1");
    Ok(())
}

/// Vector widths of the functions in `rt/maths/`; 1 is scalar.
const LANES: [u32; 3] = [1, 8, 16];

/// The forms of the maths library: one for any processor, and those for the features that the macros
/// name.
const FORMS: [&[&str]; 3] = [&[], &["-DTALLY_FMA"], &["-DTALLY_FMA", "-DTALLY_AVX512"]];

/// The files are compiled for long registers, so that all forms pass vectors in the same way. The code
/// is still generated for the kernel's processor (`src/llvm.rs`). Vectors have no `&&`, so the files
/// use `&` on two `bool` values; there are no functions for vectors of 16 doubles.
const MATHS: [&str; 3] =
    ["-march=x86-64-v4", "-Wno-bitwise-instead-of-logical", "-Wno-unused-function"];

/// What the functions for images are compiled for, in the order of the forms. Coordinates may overflow.
const PROCESSORS: [&[&str]; 4] = [
    &["-fwrapv"],
    &["-fwrapv", "-msse4.1"],
    &["-fwrapv", "-mavx2", "-mfma", "-mf16c"],
    &[
        "-fwrapv",
        "-mavx2",
        "-mfma",
        "-mf16c",
        "-mavx512f",
        "-mavx512vl",
        "-mprefer-vector-width=512",
    ],
];

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let clang = find_clang()?;
    let mut library =
        Library { clang, out: out.clone(), families: Vec::new(), defined: BTreeMap::new() };
    let mut objects = Vec::new();
    for source in sources("rt")? {
        if source.file_stem().is_some_and(|stem| stem == "support") {
            objects.push(library.object("support", &source, &[])?);
        } else {
            let name = stem(&source);
            let bitcode = library.bitcode(&name, &source, &[])?;
            library.add(&source, &[], std::array::from_fn(|_| bitcode.clone()))?;
        }
    }
    for source in sources("rt/maths")? {
        for lanes in LANES {
            let lanes_macro = format!("-DLANES={lanes}");
            let more = [&MATHS[..], &[&lanes_macro]].concat();
            let name = |form: usize| format!("{}-{lanes}-{form}", stem(&source));
            let form =
                |i: usize| library.bitcode(&name(i), &source, &[&more[..], FORMS[i]].concat());
            let forms = [form(0)?, form(1)?, form(2)?];
            library.add(&source, &more, forms)?;
        }
    }
    for source in sources("rt/maths/far")? {
        objects.push(library.object(&format!("far-{}", stem(&source)), &source, &[])?);
    }
    for source in sources("rt/images")? {
        let lanes: &[u32] = if stem(&source) == "one" { &[1] } else { &LANES[1..] };
        for (form, processor) in PROCESSORS.iter().enumerate() {
            for lanes in lanes {
                let macros = [format!("-DFORM={form}"), format!("-DLANES={lanes}")];
                let macros = macros.each_ref().map(String::as_str);
                let name = format!("images-{}-{lanes}-{form}", stem(&source));
                objects.push(library.object(&name, &source, &[processor, &macros[..]].concat())?);
            }
        }
    }
    let families: String =
        library.families.iter().map(|forms| format!("    {},\n", included(forms))).collect();
    let defined: String = library
        .defined
        .iter()
        .map(|(name, family)| format!("    ({name:?}, {family}),\n"))
        .collect();
    let text = format!(
        "/// The functions of the run-time library in alphabetical order, and which file has them.\n\
         pub(crate) static DEFINED: &[(&str, usize)] = &[\n{defined}];\n\
         /// The library as LLVM bitcode, one file for each family of functions, in three forms: for any\n\
         /// processor, with fused multiply-add, with registers of 512 bits.\n\
         pub(crate) static FAMILIES: &[[&[u8]; 3]] = &[\n{families}];\n\
         /// Object files: what LLVM's code generator calls, and functions of numbers out of the common range.\n\
         pub(crate) static SUPPORT: &[&[u8]] = &{};\n",
        included(&objects)
    );
    fs::write(out.join("runtime.rs"), text).map_err(|error| format!("runtime.rs: {error}"))
}

/// An expression for the contents of files.
fn included(files: &[PathBuf]) -> String {
    let each: Vec<String> = files.iter().map(|file| format!("include_bytes!({file:?})")).collect();
    format!("[{}]", each.join(", "))
}

/// The C files of a folder.
fn sources(folder: &str) -> Result<Vec<PathBuf>, String> {
    let mut sources: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(|error| format!("{folder}: {error}"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    Ok(sources)
}

fn stem(source: &Path) -> String {
    source.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The compiled files of the run-time library.
struct Library {
    clang: String,
    out: PathBuf,
    families: Vec<[PathBuf; 3]>,
    /// Index of the family that defines each function.
    defined: BTreeMap<String, usize>,
}

impl Library {
    fn bitcode(&self, name: &str, source: &Path, more: &[&str]) -> Result<PathBuf, String> {
        let bitcode = self.out.join(format!("{name}.bc"));
        compile(&self.clang, source, &bitcode, &[&["-c", "-emit-llvm"], more].concat())?;
        Ok(bitcode)
    }

    fn object(&self, name: &str, source: &Path, more: &[&str]) -> Result<PathBuf, String> {
        let object = self.out.join(format!("{name}.o"));
        let options = ["-c", "-fPIC", "-ffunction-sections", "-fdata-sections"];
        compile(&self.clang, source, &object, &[&options[..], more].concat())?;
        Ok(object)
    }

    /// Adds a family unless the file defines no functions. All forms define the same ones.
    fn add(&mut self, source: &Path, more: &[&str], forms: [PathBuf; 3]) -> Result<(), String> {
        let text = self.out.join("functions.ll");
        compile(&self.clang, source, &text, &[&["-S", "-emit-llvm"], more].concat())?;
        let text =
            fs::read_to_string(&text).map_err(|error| format!("{}: {error}", source.display()))?;
        let family = self.families.len();
        for name in functions(&text) {
            if self.defined.insert(name.to_owned(), family).is_some() {
                return Err(format!("{}: {name} is defined twice", source.display()));
            }
        }
        if self.defined.values().any(|&of| of == family) {
            self.families.push(forms);
        }
        Ok(())
    }
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

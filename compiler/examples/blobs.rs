// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the code of a module's kernels to files, for programs that run it without a driver.
//!
//! Usage: `blobs MODULE.spv FOLDER`. The code is for this processor. A kernel becomes the file
//! FOLDER/NAME.kernel: eight words of 32 bits, which `struct header` of tests/bench/kernels_bare.c names, three
//! words for each argument, and the code.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use tally_compiler::codegen::{self, Options};
use tally_compiler::{check, parse};
use tally_compiler_protocol::{ArgKind, TargetCpu};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [file, folder] = words.as_slice() else {
        return Err("usage: blobs MODULE.spv FOLDER".into());
    };
    let mut module = parse::parse(&fs::read(file)?, &[])?;
    check::check(&mut module)?;
    let name = match () {
        () if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") => {
            "x86-64-v4"
        }
        () if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") => "x86-64-v3",
        () => "x86-64",
    };
    let target = TargetCpu { name: name.into(), features: String::new() };
    let info = codegen::module_info(&module, &check::Unlinked::default());
    fs::create_dir_all(folder)?;
    for (kernel, info) in module.kernels.iter().zip(&info.kernels) {
        let code = codegen::kernel_code(&module, kernel, &target, Options::default())?;
        if !code.relocs.is_empty() {
            return Err(format!("{} uses variables of its module", info.name).into());
        }
        let mut words = vec![
            code.entry,
            info.args_size,
            code.local_static_bytes,
            code.scratch_bytes_fixed,
            code.scratch_bytes_per_item,
            info.args.len() as u32,
            code.blob.len() as u32,
            0,
        ];
        for arg in &info.args {
            words.extend([u32::from(arg.kind == ArgKind::LocalPointer), arg.offset, arg.size]);
        }
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        bytes.extend(code.blob);
        fs::write(Path::new(folder).join(format!("{}.kernel", info.name)), bytes)?;
    }
    Ok(())
}

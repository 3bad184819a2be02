// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-compiler`: the compiler process of the driver, and a tool to inspect its work.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::{env, fs};

use tally_cli::Parser;
use tally_cli::compiler::Arguments;
use tally_cli::progress::Progress;
use tally_compiler::llvm::{Level, Output};
use tally_compiler::{beside, check, ir, llvm, lower, parse, serve, times, widen};
use tally_compiler_protocol::TargetCpu;

#[cfg(tally_static_llvm)]
mod portable;

fn main() -> ExitCode {
    // Drivers often start it without arguments.
    let result = match env::args_os().len() {
        ..=1 if !io::stdin().is_terminal() => serve::serve().map_err(|error| error.to_string()),
        _ => show(&Arguments::parse()),
    };
    let code = match result {
        Ok(()) => 0,
        Err(why) => {
            // If standard error is closed, the exit status still reports the failure.
            let _ = writeln!(io::stderr(), "tally-compiler: {}", why.trim_end());
            1
        }
    };
    // Workers may be inside LLVM, so this leaves without running its destructors under them.
    // SAFETY: ends the process; nothing is left to be flushed.
    unsafe { libc::_exit(code) }
}

/// Prints a view of a module.
fn show(arguments: &Arguments) -> Result<(), String> {
    let file = arguments.file.display();
    let bytes = fs::read(&arguments.file).map_err(|error| format!("{file}: {error}"))?;
    let log = |why: String| format!("{file}: {why}");
    let target = TargetCpu { name: arguments.cpu.clone(), features: String::new() };
    let _progress = Progress::of(format!("{file} is being compiled"));
    if arguments.time_passes {
        llvm::time_passes();
        let report = times::report(&bytes, &target).map_err(log)?;
        print(report.as_bytes())?;
        llvm::print_times();
        return Ok(());
    }
    let mut module = parse::parse(&bytes, &[]).map_err(|error| log(error.to_string()))?;
    let checked = check::check(&mut module).map_err(|failure| log(failure.to_string()));
    if arguments.ir {
        print(module.to_string().as_bytes())?;
        return checked;
    }
    checked?;
    module.kernels.iter().try_for_each(|kernel| {
        if arguments.widen {
            show_widened(&module, kernel)
        } else if arguments.beside {
            print(beside::view(&module, kernel, &target)?.as_bytes())
        } else {
            let output = match (arguments.opt, arguments.disasm) {
                (true, _) => Some(Output::Optimised),
                (_, true) => Some(Output::Assembly),
                _ => None,
            };
            show_kernel(&module, kernel, &target, output)
        }
    })
}

/// Prints how a kernel is widened, or the reason why it is not.
fn show_widened(module: &ir::Module, kernel: &ir::Kernel) -> Result<(), String> {
    match widen::widen(module, kernel, widen::lanes(kernel)) {
        Ok(widened) => print(widened.to_string().as_bytes()),
        Err(why) => print(format!("kernel {:?} is not widened: {why}\n", kernel.name).as_bytes()),
    }
}

fn show_kernel(
    module: &ir::Module,
    kernel: &ir::Kernel,
    target: &TargetCpu,
    output: Option<Output>,
) -> Result<(), String> {
    let lanes = widen::lanes(kernel);
    let widened = match llvm::has_long_vectors(target) {
        true => widen::widen_twice(module, kernel, lanes),
        false => widen::widen(module, kernel, lanes),
    };
    let lowered = match widened {
        Ok(widened) => lower::lower_widened(&widened, kernel),
        Err(_) => lower::lower(module, kernel),
    };
    let lowered = lowered.map_err(|error| error.to_string())?;
    match output {
        None => print(lowered.text.as_bytes()),
        Some(output) => {
            let text = llvm::compile(&lowered.text, lowered.work, target, Level::Full, output);
            print(&text.map_err(|error| error.to_string())?)
        }
    }
}

fn print(text: &[u8]) -> Result<(), String> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).map_err(|error| error.to_string())
}

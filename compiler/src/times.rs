// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of each step of a build, to find out what makes a kernel slow to compile.
//!
//! Times are the thread's processor time, so other programs do not change them.

use std::time::Duration;

use tally_compiler_protocol::{Form, TargetCpu};

use crate::ir::{Kernel, Module};
use crate::llvm::{Level, Output};
use crate::regions::inline;
use crate::{blob, check, llvm, lower, optimise, parse, regions, widen};

/// Builds all kernels of a module one after the other, and returns a line for each step.
///
/// # Errors
/// If the module is refused, or a kernel cannot be built.
pub fn report(bytes: &[u8], target: &TargetCpu) -> Result<String, String> {
    let mut steps = Steps::default();
    llvm::initialise();
    let module = steps.time("parse", || parse::parse(bytes, &[]));
    let mut module = module.map_err(|error| error.to_string())?;
    let checked = steps.time("check", || check::check(&mut module));
    checked.map_err(|failure| failure.to_string())?;
    let mut text = steps.text("the module");
    for kernel in &module.kernels {
        let mut steps = Steps::default();
        let has_other = build(&module, kernel, target, Form::Usual, &mut steps)?;
        text += &steps.text(&format!("kernel {:?}", kernel.name));
        if has_other {
            let mut steps = Steps::default();
            build(&module, kernel, target, Form::Uneven, &mut steps)?;
            text += &steps.text("the same for uneven rows, when a launch has some");
        }
    }
    Ok(text)
}

/// Does what [`crate::codegen::kernel_code_in`] does. Whether there is another form.
fn build(
    module: &Module,
    kernel: &Kernel,
    target: &TargetCpu,
    form: Form,
    steps: &mut Steps,
) -> Result<bool, String> {
    let (lanes, twice) = (widen::lanes(kernel), llvm::has_long_vectors(target));
    let widened = steps.time("widen", || widen::widen_in(module, kernel, lanes, twice, form));
    if let Some((mut part, mut function)) = optimise::inlined(module, kernel, widen::MAX_WEIGHT) {
        for pass in optimise::passes() {
            let what = format!("of that, once more: {}", pass.name());
            steps.time(&what, || pass.run(&mut part, &mut function));
        }
        steps.time("of that, once more: layout", || {
            widen::lay_out(&mut part, &mut function, lanes);
        });
    }
    let lowered = steps.time("lower, cuts included", || match &widened {
        Ok(widened) => lower::lower_widened(widened, kernel),
        Err(_) => lower::lower(module, kernel),
    });
    let lowered = lowered.map_err(|error| error.to_string())?;
    let stopping = inline::with_barrier(module, &kernel.facts.functions);
    if stopping.contains(&kernel.function) {
        let inlined = inline::inline(module, kernel.function, &stopping, inline::MAX_WEIGHT);
        if let Some(function) = inlined {
            steps.time("one form's cuts at barriers once more", || {
                regions::split(module, &function)
            });
        }
    }
    let object = steps.time("LLVM", || {
        llvm::compile(&lowered.text, lowered.work, target, Level::Full, Output::Object)
    });
    let object = object.map_err(|error| error.to_string())?;
    let globals = lowered.globals.keys().map(|symbol| (symbol.clone(), 0)).collect();
    let linked =
        steps.time("link", || blob::link(&object, llvm::support(), lower::ENTRY, &globals));
    linked.map_err(|error| error.to_string())?;
    steps.note(format!("{:10} bytes of LLVM's assembly language", lowered.text.len()));
    match widened {
        Ok(widened) => Ok(widened.left_out.is_some()),
        Err(why) => {
            steps.note(format!("           one item at a time: {why}"));
            Ok(false)
        }
    }
}

/// Lines of a report.
#[derive(Default)]
struct Steps(Vec<String>);

impl Steps {
    fn time<T>(&mut self, what: &str, step: impl FnOnce() -> T) -> T {
        let before = processor_time();
        let result = step();
        let spent = processor_time().saturating_sub(before);
        self.note(format!("{:10.1} ms {what}", spent.as_secs_f64() * 1000.0));
        result
    }

    fn note(&mut self, line: String) {
        self.0.push(line);
    }

    fn text(&self, of: &str) -> String {
        format!("{of}\n{}\n", self.0.join("\n"))
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec that the call may write to for as long as it runs. The clock exists on
    // every Linux; if the call failed, zero would be left.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of the code of a module's kernels: a native binary, the cache on disk, or the
//! compiler process.
//!
//! The process may die: of a build that takes too much time or memory, or of a fault. What it was
//! building then is built once more with less optimisation; all other builds are repeated unchanged.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tally_compiler_protocol::checks::Checks;
use tally_compiler_protocol::native::NativeCode;
use tally_compiler_protocol::{
    CodeId, Compiler, CompilerError, Input, KernelCode, Link, ModuleInfo, Object, PendingModule,
    Source, TargetCpu,
};
use tally_ze::ze_result_t;

use super::cache::Entry;
use crate::error::{Error, Result};
use crate::process;

/// One of the objects that are linked.
#[derive(Clone)]
pub struct Part {
    /// Its SPIR-V modules.
    pub inputs: Arc<Vec<Input>>,
    /// The definitions of its imports.
    pub links: Vec<Link>,
}

/// The origin of code.
pub enum Origin {
    /// A native binary had it.
    Native(Native),
    /// The compiler makes it, or has made it for the cache.
    Compiler(Recipe),
}

/// The code of a native binary, and what the compiler makes of its source: the forms of kernels that it lacks.
pub struct Native {
    code: Vec<NativeCode>,
    /// Empty if the binary has no source.
    inputs: Arc<Vec<Input>>,
    target: TargetCpu,
    others: OnceLock<Recipe>,
}

impl Native {
    /// Of a binary with this code and source, on this processor.
    pub fn new(code: Vec<NativeCode>, inputs: Arc<Vec<Input>>, target: &TargetCpu) -> Self {
        Self { code, inputs, target: target.clone(), others: OnceLock::new() }
    }

    fn kernel_code(&self, info: &ModuleInfo, id: CodeId) -> Result<Arc<KernelCode>> {
        let code = self.code.get(id.kernel as usize);
        if let Some(code) = code.and_then(|code| code.form(id.form)) {
            return Ok(Arc::new(code.clone()));
        }
        if code.is_none() || self.inputs.is_empty() {
            return Err(failed(&CompilerError::NoSuchKernel(id.kernel)));
        }
        let recipe = self.others.get_or_init(|| {
            let part = Part { inputs: self.inputs.clone(), links: Vec::new() };
            Recipe::new(vec![part], &self.target, Checks::default())
        });
        // Another version of the compiler may place arguments otherwise than the code of the binary does.
        if !recipe.describes(info)? {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE,
                "the compiler is not that of the native binary",
            ));
        }
        recipe.kernel_code(info, id)
    }
}

/// The compiler's input.
pub struct Recipe {
    parts: Vec<Part>,
    target: TargetCpu,
    checks: Checks,
    entry: Option<Entry>,
    attempt: Mutex<Attempt>,
}

/// The build that is under way or done.
#[derive(Default)]
struct Attempt {
    pending: Option<Arc<PendingModule>>,
    careful: bool,
    deaths: u32,
}

/// Deaths of the compiler process that one module outlives.
const MAX_DEATHS: u32 = 3;

/// The compiler process; started by the first module of the process that needs it.
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

/// The step after a death of the process.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Again,
    Careful,
    GiveUp,
}

/// The step after death number `deaths`, if the process was `at_work` on this or not.
fn after_death(deaths: u32, at_work: bool, careful: bool, front_end: bool) -> Next {
    match (at_work, careful || front_end) {
        _ if deaths > MAX_DEATHS => Next::GiveUp,
        (false, _) => Next::Again,
        (true, false) => Next::Careful,
        // It has been careful already, or what failed does not optimise anything.
        (true, true) => Next::GiveUp,
    }
}

impl Origin {
    /// Builds a module; its whole front end has run when this returns. The second part is the log,
    /// also if the build fails.
    pub fn compile(
        parts: Vec<Part>,
        target: &TargetCpu,
        checks: Checks,
    ) -> (Result<(Self, Arc<ModuleInfo>)>, String) {
        let recipe = Recipe::new(parts, target, checks);
        if let Some((info, log)) = recipe.entry.as_ref().and_then(Entry::info) {
            return (Ok((Self::Compiler(recipe), Arc::new(info))), log);
        }
        match recipe.wait(None, PendingModule::info) {
            Ok((info, pending)) => {
                let log = pending.warnings();
                if let Some(entry) = &recipe.entry {
                    entry.put_info(&info, &log);
                }
                (Ok((Self::Compiler(recipe), info)), log)
            }
            Err(error) => {
                let log = error.text().to_owned();
                (Err(error), log)
            }
        }
    }

    /// The code of a kernel of the module that `info` describes; waits until it is generated.
    ///
    /// # Errors
    /// MODULE_BUILD_FAILURE, DEPENDENCY_UNAVAILABLE.
    pub fn kernel_code(&self, info: &ModuleInfo, id: CodeId) -> Result<Arc<KernelCode>> {
        match self {
            Self::Native(native) => native.kernel_code(info, id),
            Self::Compiler(recipe) => recipe.kernel_code(info, id),
        }
    }
}

impl Recipe {
    fn new(parts: Vec<Part>, target: &TargetCpu, checks: Checks) -> Self {
        let (target, attempt) = (target.clone(), Mutex::default());
        let mut recipe = Self { parts, target, checks, entry: None, attempt };
        recipe.entry = Entry::of(|| recipe.source(false));
        recipe
    }

    /// Whether what is built has this description.
    fn describes(&self, info: &ModuleInfo) -> Result<bool> {
        if let Some((built, _)) = self.entry.as_ref().and_then(Entry::info) {
            return Ok(built == *info);
        }
        self.wait(None, PendingModule::info).map(|(built, _)| *built == *info)
    }

    fn kernel_code(&self, info: &ModuleInfo, id: CodeId) -> Result<Arc<KernelCode>> {
        if let Some(code) = self.entry.as_ref().and_then(|entry| entry.code(id, info)) {
            return Ok(Arc::new(code));
        }
        let (code, _) = self.wait(Some(id), |pending| pending.kernel_code(id))?;
        if let Some(entry) = &self.entry
            && !self.is_careful()
        {
            entry.put_code(id, &code);
        }
        Ok(code)
    }

    fn source(&self, careful: bool) -> Source {
        let object =
            |part: &Part| Object { inputs: part.inputs.to_vec(), links: part.links.clone() };
        let objects = self.parts.iter().map(object).collect();
        Source { objects, target: self.target.clone(), careful, checks: self.checks }
    }

    fn attempt(&self) -> std::sync::MutexGuard<'_, Attempt> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_careful(&self) -> bool {
        self.attempt().careful
    }

    /// The build that is under way; begun if there is none.
    fn pending(&self) -> Result<Arc<PendingModule>> {
        let mut attempt = self.attempt();
        if let Some(pending) = &attempt.pending {
            return Ok(pending.clone());
        }
        let built = compiler()?.build(self.source(attempt.careful));
        let pending = Arc::new(built.map_err(|error| failed(&error))?);
        Ok(attempt.pending.insert(pending).clone())
    }

    /// Waits for an answer about the front end or code, through deaths of the process.
    fn wait<T>(
        &self,
        code: Option<CodeId>,
        ask: impl Fn(&PendingModule) -> std::result::Result<T, CompilerError>,
    ) -> Result<(T, Arc<PendingModule>)> {
        loop {
            let pending = self.pending()?;
            let error = match ask(&pending) {
                Ok(answer) => return Ok((answer, pending)),
                Err(error) => error,
            };
            if !matches!(error, CompilerError::Died(_)) {
                return Err(failed(&error));
            }
            let mut attempt = self.attempt();
            // Another thread may have started a new one already.
            if !attempt.pending.as_ref().is_some_and(|it| Arc::ptr_eq(it, &pending)) {
                continue;
            }
            attempt.deaths += 1;
            let at_work = pending.was_begun(code);
            match after_death(attempt.deaths, at_work, attempt.careful, code.is_none()) {
                Next::GiveUp => return Err(failed(&error)),
                Next::Again => {}
                Next::Careful => {
                    log::warn!("{error}; the module is built again with less optimisation");
                    attempt.careful = true;
                }
            }
            attempt.pending = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module that the process was not at work on when it died is built again as it was.
    #[test]
    fn the_innocent_are_built_again_as_they_were() {
        for careful in [false, true] {
            assert_eq!(after_death(1, false, careful, false), Next::Again);
        }
        assert_eq!(after_death(2, false, false, true), Next::Again);
        assert_eq!(after_death(MAX_DEATHS + 1, false, false, false), Next::GiveUp);
    }

    /// Limits on time and memory, "with a retry at lower optimisation".
    #[test]
    fn what_it_died_of_is_tried_once_with_less_optimisation() {
        assert_eq!(after_death(1, true, false, false), Next::Careful);
        assert_eq!(after_death(2, true, true, false), Next::GiveUp);
        assert_eq!(
            after_death(1, true, false, true),
            Next::GiveUp,
            "the front end optimises nothing"
        );
    }
}

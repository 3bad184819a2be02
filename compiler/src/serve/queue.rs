// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which requests are served.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tally_compiler_protocol::{CodeId, Form, Source};

/// A piece of work.
pub(super) enum Job<B> {
    /// The front end of a module.
    FrontEnd { module: u64, source: Source },
    /// The code of a kernel.
    Code { module: u64, code: CodeId, built: Arc<B> },
}

impl<B> Job<B> {
    /// The module's number, and the code, if it is about code.
    pub(super) fn names(&self) -> (u64, Option<CodeId>) {
        match self {
            Self::FrontEnd { module, .. } => (*module, None),
            Self::Code { module, code, .. } => (*module, Some(*code)),
        }
    }
}

/// The work of all modules. `B` is a module after its front end.
pub(super) struct Queue<B> {
    state: Mutex<State<B>>,
    changed: Condvar,
}

struct State<B> {
    front_ends: VecDeque<(u64, Source)>,
    /// The code that a client waits for.
    needed: VecDeque<(u64, CodeId)>,
    /// The usual code of all other kernels.
    later: VecDeque<(u64, CodeId)>,
    /// Modules whose front end is under way, unless they were released meanwhile.
    building: HashSet<u64>,
    modules: HashMap<u64, Module<B>>,
}

struct Module<B> {
    built: Arc<B>,
    kernels: u32,
    /// The code that threads have begun.
    begun: HashSet<CodeId>,
}

impl<B> Default for Queue<B> {
    fn default() -> Self {
        let state = State {
            front_ends: VecDeque::new(),
            needed: VecDeque::new(),
            later: VecDeque::new(),
            building: HashSet::new(),
            modules: HashMap::new(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<B> Queue<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a module to be built.
    pub(super) fn push_front_end(&self, module: u64, source: Source) {
        self.lock().front_ends.push_back((module, source));
        self.changed.notify_one();
    }

    /// Adds the kernels of a module that is built, unless it was released meanwhile.
    pub(super) fn push_code(&self, module: u64, built: Arc<B>, kernels: u32) {
        let mut state = self.lock();
        if !state.building.remove(&module) {
            return;
        }
        state.modules.insert(module, Module { built, kernels, begun: HashSet::new() });
        // Another form is only generated for a client that waits for it.
        let usual = (0..kernels).map(|kernel| CodeId { kernel, form: Form::Usual });
        state.later.extend(usual.map(|code| (module, code)));
        drop(state);
        self.changed.notify_all();
    }

    /// Requests code of a module, which is generated before other code.
    pub(super) fn need(&self, module: u64, code: CodeId) {
        self.lock().needed.push_back((module, code));
        self.changed.notify_one();
    }

    /// Forgets a module.
    pub(super) fn release(&self, module: u64) {
        let mut state = self.lock();
        state.modules.remove(&module);
        state.building.remove(&module);
        state.front_ends.retain(|(other, _)| *other != module);
        state.needed.retain(|(other, _)| *other != module);
        state.later.retain(|(other, _)| *other != module);
    }

    /// Waits for the next piece of work.
    pub(super) fn take(&self) -> Job<B> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.next() {
                return job;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<B> State<B> {
    fn next(&mut self) -> Option<Job<B>> {
        let mut at = 0;
        while let Some(&(module, code)) = self.needed.get(at) {
            // Its client knows the module already, but the module's code is not open yet.
            if self.building.contains(&module) {
                at += 1;
                continue;
            }
            self.needed.remove(at);
            if let Some(job) = self.begin(module, code) {
                return Some(job);
            }
        }
        if let Some((module, source)) = self.front_ends.pop_front() {
            self.building.insert(module);
            return Some(Job::FrontEnd { module, source });
        }
        while let Some((module, code)) = self.later.pop_front() {
            if let Some(job) = self.begin(module, code) {
                return Some(job);
            }
        }
        None
    }

    /// The job for a piece of code, unless it was begun before or its module was released.
    fn begin(&mut self, module: u64, code: CodeId) -> Option<Job<B>> {
        let entry = self.modules.get_mut(&module)?;
        let built = entry.built.clone();
        let is_new = code.kernel < entry.kernels && entry.begun.insert(code);
        is_new.then_some(Job::Code { module, code, built })
    }
}

#[cfg(test)]
mod tests {
    use tally_compiler_protocol::TargetCpu;

    use super::*;

    fn source() -> Source {
        let target = TargetCpu { name: String::new(), features: String::new() };
        Source { objects: Vec::new(), target, careful: false, checks: Default::default() }
    }

    fn usual(kernel: u32) -> CodeId {
        CodeId { kernel, form: Form::Usual }
    }

    fn uneven(kernel: u32) -> CodeId {
        CodeId { kernel, form: Form::Uneven }
    }

    /// "Any other is only generated when it is needed."
    #[test]
    fn only_usual_code_is_generated_unasked() {
        let queue = Queue::default();
        queue.push_front_end(1, source());
        assert_eq!(queue.take().names(), (1, None));
        queue.push_code(1, Arc::new(()), 2);
        queue.need(1, usual(1));
        queue.need(1, uneven(0));
        queue.need(1, uneven(0));
        let order = [usual(1), uneven(0), usual(0)];
        for code in order {
            assert_eq!(queue.take().names(), (1, Some(code)));
        }
        assert!(queue.lock().next().is_none(), "each is generated once");
    }

    /// The client is told of a module before its code is open, and may ask for some at once.
    #[test]
    fn code_that_is_needed_before_it_is_open_is_not_forgotten() {
        let queue = Queue::default();
        queue.push_front_end(1, source());
        assert_eq!(queue.take().names(), (1, None));
        queue.need(1, uneven(0));
        assert!(queue.lock().next().is_none());
        queue.push_code(1, Arc::new(()), 1);
        assert_eq!(queue.take().names(), (1, Some(uneven(0))));
        assert_eq!(queue.take().names(), (1, Some(usual(0))));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which requests are served.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tally_compiler_protocol::Source;

/// A piece of work.
pub(super) enum Job<B> {
    /// The front end of a module.
    FrontEnd { module: u64, source: Source },
    /// The code of a kernel.
    Code { module: u64, kernel: u32, built: Arc<B> },
}

impl<B> Job<B> {
    /// The module's number, and the kernel's if it is about code.
    pub(super) fn names(&self) -> (u64, Option<u32>) {
        match self {
            Self::FrontEnd { module, .. } => (*module, None),
            Self::Code { module, kernel, .. } => (*module, Some(*kernel)),
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
    /// Kernels that a client waits for.
    needed: VecDeque<(u64, u32)>,
    /// All other kernels.
    later: VecDeque<(u64, u32)>,
    /// Modules whose front end is under way, unless they were released meanwhile.
    building: HashSet<u64>,
    modules: HashMap<u64, Module<B>>,
}

struct Module<B> {
    built: Arc<B>,
    /// Kernels whose code no thread has begun.
    open: HashSet<u32>,
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
        state.modules.insert(module, Module { built, open: (0..kernels).collect() });
        state.later.extend((0..kernels).map(|kernel| (module, kernel)));
        drop(state);
        self.changed.notify_all();
    }

    /// Puts a kernel of a module that is built before others.
    pub(super) fn need(&self, module: u64, kernel: u32) {
        self.lock().needed.push_back((module, kernel));
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
        while let Some((module, kernel)) = self.needed.pop_front() {
            if let Some(job) = self.begin(module, kernel) {
                return Some(job);
            }
        }
        if let Some((module, source)) = self.front_ends.pop_front() {
            self.building.insert(module);
            return Some(Job::FrontEnd { module, source });
        }
        while let Some((module, kernel)) = self.later.pop_front() {
            if let Some(job) = self.begin(module, kernel) {
                return Some(job);
            }
        }
        None
    }

    /// A kernel's job, unless it was begun before or its module is gone.
    fn begin(&mut self, module: u64, kernel: u32) -> Option<Job<B>> {
        let entry = self.modules.get_mut(&module)?;
        let built = entry.built.clone();
        entry.open.remove(&kernel).then_some(Job::Code { module, kernel, built })
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program on a backend and compares it with the model's expectations.

use super::backend::{Backend, BackendError, CounterAddress, Times, Wait};
use super::{Action, CELLS, Cell, Program, initial_value};
use crate::model::{Answer, Expected};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A difference between a backend and the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// A query returned an answer that the model rules out.
    Answer {
        /// Number of the step.
        step: usize,
        /// The answer that the model requires.
        expected: Answer,
        /// The backend's answer.
        ready: bool,
    },
    /// The host read another value during the program.
    Read {
        /// Number of the step.
        step: usize,
        /// The value that the model requires.
        expected: u32,
        /// The value that was read.
        value: u32,
    },
    /// After the program, the pair of address and value of a step contradicts the model.
    Pair {
        /// Number of the step.
        step: usize,
        /// Whether it is reached.
        reached: bool,
    },
    /// The times of commands are impossible: a command ends before it starts, has no times or two, or
    /// starts before the end of one that it is ordered after.
    Times {
        /// The times of one command.
        one: Times,
        /// The times of the same or of a later one.
        other: Times,
    },
    /// A cell holds another value after the program.
    Memory {
        /// The cell.
        cell: Cell,
        /// The value that the model requires.
        expected: u32,
        /// The value that was read.
        value: u32,
    },
    /// A wait did not end although everything that it waits for was submitted.
    Hang {
        /// Number of the step.
        step: usize,
    },
    /// A valid call was refused. No step: before the first or after the last one.
    Refused {
        /// Number of the step.
        step: Option<usize>,
        /// The call and its answer.
        error: BackendError,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Answer { step, expected, ready } => {
                let said = if *ready { "ready" } else { "not ready" };
                write!(f, "step {step}: the query said {said}, the model says {expected}")
            }
            Mismatch::Read { step, expected, value } => {
                write!(f, "step {step}: the host read {value}, the model says {expected}")
            }
            Mismatch::Pair { step, reached } => {
                let is = if *reached { "is" } else { "is not" };
                write!(f, "step {step}: at the end the value {is} reached at its address")
            }
            Mismatch::Times { one, other } if one == other => write!(f, "a command took {one:?}"),
            Mismatch::Times { one, other } => {
                write!(f, "the same command, or one after the other, took {one:?} and {other:?}")
            }
            Mismatch::Memory { cell, expected, value } => {
                write!(f, "at the end {cell} is {value}, the model says {expected}")
            }
            Mismatch::Hang { step } => write!(f, "step {step}: the wait did not end"),
            Mismatch::Refused { step: Some(step), error } => write!(f, "step {step}: {error}"),
            Mismatch::Refused { step: None, error } => write!(f, "outside the program: {error}"),
        }
    }
}

impl std::error::Error for Mismatch {}

/// Runs the program with its own host threads.
///
/// # Errors
/// The first difference from what is expected.
pub fn run(program: &Program, expected: &Expected, backend: &dyn Backend) -> Result<(), Mismatch> {
    prepare(backend)?;
    let progress = Progress {
        state: Mutex::new(State {
            returned: vec![false; program.steps.len()],
            failed: None,
            found: Found::default(),
        }),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        for thread in 0..program.threads() {
            let progress = &progress;
            scope.spawn(move || run_thread(thread, program, expected, backend, progress));
        }
    });
    let state = progress.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.failed.map_or_else(|| compare_end(expected, &state.found, backend), Err)
}

/// Runs the program on the calling thread, step after step. For backends that are deterministic.
///
/// # Errors
/// The first difference from what is expected.
pub fn run_serially(
    program: &Program,
    expected: &Expected,
    backend: &dyn Backend,
) -> Result<(), Mismatch> {
    run_slowly(program, expected, backend, Duration::ZERO)
}

/// [`run_serially`] with a host that pauses before each step: the device has often completed all that it can.
///
/// # Errors
/// The first difference from what is expected.
pub fn run_slowly(
    program: &Program,
    expected: &Expected,
    backend: &dyn Backend,
    pause: Duration,
) -> Result<(), Mismatch> {
    prepare(backend)?;
    let mut found = Found::default();
    for step in 0..program.steps.len() {
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        found.note(step, run_step(step, program, expected, backend)?);
    }
    compare_end(expected, &found, backend)
}

/// A result of a step that is checked again at the end.
enum Told {
    Nothing,
    Pair(CounterAddress),
    Times(Times),
}

/// The results of all steps, by their numbers.
#[derive(Default)]
struct Found {
    pairs: Vec<(usize, CounterAddress)>,
    times: Vec<(usize, Times)>,
}

impl Found {
    fn note(&mut self, step: usize, told: Told) {
        match told {
            Told::Nothing => {}
            Told::Pair(pair) => self.pairs.push((step, pair)),
            Told::Times(times) => self.times.push((step, times)),
        }
    }
}

struct State {
    returned: Vec<bool>,
    failed: Option<Mismatch>,
    found: Found,
}

struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the given steps have returned; `false` when the run has failed meanwhile.
    fn wait_for(&self, steps: &[usize]) -> bool {
        let blocked = |state: &mut State| {
            state.failed.is_none() && !steps.iter().all(|&step| state.returned[step])
        };
        let guard = self.changed.wait_while(self.lock(), blocked);
        guard.unwrap_or_else(PoisonError::into_inner).failed.is_none()
    }

    fn report(&self, step: usize, result: Result<Told, Mismatch>) {
        let mut state = self.lock();
        state.returned[step] = true;
        match result {
            Ok(told) => state.found.note(step, told),
            Err(mismatch) => {
                state.failed.get_or_insert(mismatch);
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}

fn run_thread(
    thread: usize,
    program: &Program,
    expected: &Expected,
    backend: &dyn Backend,
    progress: &Progress,
) {
    let mine = (0..program.steps.len()).filter(|&step| program.steps[step].thread == thread);
    for step in mine {
        if !progress.wait_for(&expected.after[step]) {
            return;
        }
        progress.report(step, run_step(step, program, expected, backend));
    }
}

fn prepare(backend: &dyn Backend) -> Result<(), Mismatch> {
    for cell in (0..CELLS).map(Cell) {
        backend
            .write(cell, initial_value(cell))
            .map_err(|error| Mismatch::Refused { step: None, error })?;
    }
    Ok(())
}

fn compare_end(expected: &Expected, found: &Found, backend: &dyn Backend) -> Result<(), Mismatch> {
    compare_times(expected, found, backend)?;
    for &(step, pair) in &found.pairs {
        let reached =
            backend.reached(pair).map_err(|error| Mismatch::Refused { step: None, error })?;
        if expected.completes[step].is_some_and(|completes| completes != reached) {
            return Err(Mismatch::Pair { step, reached });
        }
    }
    for (cell, &expected) in expected.memory.iter().enumerate() {
        let cell = Cell(cell);
        let value = backend.read(cell).map_err(|error| Mismatch::Refused { step: None, error })?;
        if value != expected {
            return Err(Mismatch::Memory { cell, expected, value });
        }
    }
    Ok(())
}

fn compare_times(
    expected: &Expected,
    found: &Found,
    backend: &dyn Backend,
) -> Result<(), Mismatch> {
    let known = &expected.times;
    let asked = found.times.iter();
    let mut times: Vec<(usize, Times)> =
        asked.filter_map(|&(step, times)| Some((known.steps[step]?, times))).collect();
    for &(place, command) in &known.places {
        let read = backend.times_at(place);
        let read = read.map_err(|error| Mismatch::Refused { step: None, error })?;
        times.push((command, read));
    }
    for &(first, one) in &times {
        if one.start > one.end || one.start == 0 {
            return Err(Mismatch::Times { one, other: one });
        }
        for &(second, other) in &times {
            let two_times = first == second && one != other;
            let too_early = known.order.contains(&(first, second)) && other.start < one.end;
            if two_times || too_early {
                return Err(Mismatch::Times { one, other });
            }
        }
    }
    Ok(())
}

fn run_step(
    step: usize,
    program: &Program,
    expected: &Expected,
    backend: &dyn Backend,
) -> Result<Told, Mismatch> {
    let refused = |error| Mismatch::Refused { step: Some(step), error };
    match &program.steps[step].action {
        Action::CreateList(list, desc) => backend.create_list(*list, *desc),
        Action::CreateQueue(queue, engine) => backend.create_queue(*queue, *engine),
        Action::CreateEvent(event, kind) => backend.create_event(*event, *kind),
        Action::CreateFence(fence, queue) => backend.create_fence(*fence, *queue),
        Action::CloneList(list, copy) => backend.clone_list(*list, *copy),
        Action::Share(event, opened) => backend.share(*event, *opened),
        Action::Append(list, command) => backend.append(*list, command),
        Action::AppendLists { list, lists, waits, signal } => {
            backend.append_lists(*list, lists, waits, *signal)
        }
        Action::Close(list) => backend.close(*list),
        Action::ResetList(list) => backend.reset_list(*list),
        Action::DestroyList(list) => backend.destroy_list(*list),
        Action::DestroyEvent(event) => backend.destroy_event(*event),
        Action::Execute { queue, lists, fence } => backend.execute(*queue, lists, *fence),
        Action::HostSignal(event) => backend.host_signal(*event),
        Action::HostReset(event) => backend.host_reset(*event),
        Action::ResetFence(fence) => backend.reset_fence(*fence),
        Action::Write(cell, value) => backend.write(*cell, *value),
        Action::Join => Ok(()),
        Action::Synchronize(object) => {
            return match backend.synchronize(*object, Wait::Completion).map_err(refused)? {
                true => Ok(Told::Nothing),
                false => Err(Mismatch::Hang { step }),
            };
        }
        Action::Query(object) => {
            let ready = backend.synchronize(*object, Wait::Poll).map_err(refused)?;
            return compare_answer(step, expected, ready).map(|()| Told::Nothing);
        }
        Action::Address(event) => {
            let pair = backend.address(*event).map_err(refused)?;
            let reached = backend.reached(pair).map_err(refused)?;
            return compare_answer(step, expected, reached).map(|()| Told::Pair(pair));
        }
        Action::Times(event) => {
            let times = backend.times(*event).map_err(refused)?;
            compare_answer(step, expected, times.is_some())?;
            return Ok(times.map_or(Told::Nothing, Told::Times));
        }
        Action::Read(cell) => {
            let value = backend.read(*cell).map_err(refused)?;
            return match expected.reads[step] {
                Some(expected) if expected != value => {
                    Err(Mismatch::Read { step, expected, value })
                }
                _ => Ok(Told::Nothing),
            };
        }
    }
    .map_err(refused)
    .map(|()| Told::Nothing)
}

fn compare_answer(step: usize, expected: &Expected, ready: bool) -> Result<(), Mismatch> {
    match expected.answers[step] {
        Some(answer) if !answer.allows(ready) => {
            Err(Mismatch::Answer { step, expected: answer, ready })
        }
        _ => Ok(()),
    }
}

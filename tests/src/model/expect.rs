// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model's expectations of a whole program: memory, values that the host reads, and answers.

use super::event::{Bound, Epoch, EventCell};
use super::order::{Bond, Node, Work};
use super::times::ExpectedTimes;
use super::{Model, Refusal, memory};
use std::fmt;
use std::rc::Rc;

/// The answers that a query may give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Only "ready": its work is complete in every legal run.
    Ready,
    /// Only "not ready": its work needs something that happens after the query.
    NotReady,
    /// Both: it depends on the speed of the device.
    Either,
}

impl Answer {
    /// Whether a query may give this answer.
    #[must_use]
    pub fn allows(self, ready: bool) -> bool {
        match self {
            Answer::Ready => ready,
            Answer::NotReady => !ready,
            Answer::Either => true,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Answer::Ready => "ready",
            Answer::NotReady => "not ready",
            Answer::Either => "ready or not ready",
        })
    }
}

/// The subject of a query, as it was bound when it was called.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// Whether all of these are complete.
    Commands(Rc<[Node]>),
    /// The state of a CB event.
    CounterBased(Bound),
    /// The state of a regular event or fence, by its number in the model.
    Cell(usize),
}

/// Everything that a run of a program is compared with.
#[derive(Clone, Debug)]
pub struct Expected {
    /// For each step, the earlier steps that must have returned before it is called.
    pub after: Vec<Vec<usize>>,
    /// For each query, the answers that it may give.
    pub answers: Vec<Option<Answer>>,
    /// For each read of the host, its value.
    pub reads: Vec<Option<u32>>,
    /// For each query, whether its subject is complete after the last step.
    pub completes: Vec<Option<bool>>,
    /// All cells after the last step.
    pub memory: Vec<u32>,
    /// The expected timestamps.
    pub times: ExpectedTimes,
}

/// The effects of one legal run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// All cells after the last step.
    pub memory: Vec<u32>,
    /// For each read of the host, its value.
    pub reads: Vec<Option<u32>>,
}

impl Model {
    /// The expectations of the steps so far, as a whole program.
    ///
    /// # Errors
    /// A program in which a wait is never signalled, or that ends while the device may still be at
    /// work.
    pub fn expected(&self) -> Result<Expected, Refusal> {
        if !self.pending.is_empty() {
            return Err(Refusal::WouldHang);
        }
        let mut graph = self.graph.clone();
        let end = graph.add(Work::None);
        for step in &self.steps {
            graph.order(step.end, end, Bond::Ordered);
        }
        let before = graph.before(end);
        let mut commands = self.graph.commands();
        if !commands.all(|node| before.contains(node)) {
            return Err(Refusal::InUse);
        }
        let Outcome { memory, reads } = self.outcome(|_| 0);
        let answers = self
            .steps
            .iter()
            .map(|step| step.question.as_ref().map(|question| self.answer(question, step.begin)))
            .collect();
        let after = self.steps.iter().map(|step| step.after.to_vec()).collect();
        let completes = self.steps.iter().map(|step| match step.question {
            Some(Question::CounterBased(Bound::Never)) => Some(false),
            Some(Question::CounterBased(Bound::FirstExecution { recording, .. })) => {
                Some(!self.recordings[recording.0].executions.is_empty())
            }
            Some(Question::CounterBased(_) | Question::Commands(_)) => Some(true),
            Some(Question::Cell(_)) | None => None,
        });
        let completes = completes.collect();
        let times = self.expected_times();
        Ok(Expected { after, answers, reads, completes, memory, times })
    }

    /// The outcome of one legal run, in which `pick(n)` chooses one of n possible pieces of work as the
    /// next. All runs of a program have the same outcome, since the model takes no step with a race.
    pub fn outcome(&self, pick: impl FnMut(usize) -> usize) -> Outcome {
        let mut memory = memory::initial();
        let mut reads = vec![None; self.steps.len()];
        for node in self.graph.sequence(pick) {
            match self.graph.work(node) {
                Work::None => {}
                Work::Write(cell, value) => memory[cell.0] = value,
                Work::Read(cell) => {
                    let step = self.steps.iter().position(|step| step.begin == node);
                    reads[step.expect("only the host's steps read")] = Some(memory[cell.0]);
                }
                Work::Command(op) => {
                    if let Some((cell, value)) = memory::result(op, |cell| memory[cell.0]) {
                        memory[cell.0] = value;
                    }
                }
            }
        }
        Outcome { memory, reads }
    }

    fn answer(&self, question: &Question, query: Node) -> Answer {
        match question {
            Question::Commands(commands) => self.answer_commands(commands, query),
            Question::CounterBased(bound) => match *bound {
                Bound::Met => Answer::Ready,
                Bound::Never => Answer::NotReady,
                Bound::Command(node) => self.answer_commands(&[node], query),
                Bound::FirstExecution { recording, index } => {
                    match self.recordings[recording.0].executions.first() {
                        Some(commands) => self.answer_commands(&[commands[index]], query),
                        None => Answer::NotReady,
                    }
                }
            },
            Question::Cell(cell) => self.answer_cell(&self.cells[*cell], query),
        }
    }

    fn comes_before(&self, first: Node, second: Node) -> bool {
        self.graph.before(second).contains(first)
    }

    fn answer_commands(&self, commands: &[Node], query: Node) -> Answer {
        let before = self.graph.before(query);
        if commands.iter().all(|&command| before.contains(command)) {
            Answer::Ready
        } else if commands.iter().any(|&command| self.comes_before(query, command)) {
            Answer::NotReady
        } else {
            Answer::Either
        }
    }

    fn answer_cell(&self, cell: &EventCell, query: Node) -> Answer {
        let before = self.graph.before(query);
        let later = |node: Node| self.comes_before(query, node);
        // An epoch ends before the reset of the next one begins.
        let signalled = cell.epochs.iter().enumerate().any(|(number, epoch)| {
            let signals = epoch.signals.get(..cell.needed);
            signals.is_some_and(|signals| signals.iter().all(|&signal| before.contains(signal)))
                && cell.epochs.get(number + 1).is_none_or(|next| later(next.reset))
        });
        let may_be_complete = |epoch: &Epoch| {
            epoch.signals.iter().filter(|&&signal| !later(signal)).count() >= cell.needed
        };
        let cleared = cell.epochs.iter().enumerate().any(|(number, epoch)| {
            before.contains(epoch.reset) && !cell.epochs[number..].iter().any(may_be_complete)
        });
        match (signalled, cleared) {
            (true, _) => Answer::Ready,
            (_, true) => Answer::NotReady,
            _ => Answer::Either,
        }
    }
}

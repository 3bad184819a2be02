// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits and queries of the host.

use super::event::{Bound, CbState};
use super::expect::Question;
use super::order::{Bond, Node, Work};
use super::times::TimesOf;
use super::{Body, EventState, Model, Refusal};
use crate::program::{EventId, Object};

impl Model {
    /// The commands that an immediate list, a queue or a CB event stands for in a wait or a query.
    pub(super) fn target(&self, object: Object) -> Result<Question, Refusal> {
        Ok(match object {
            Object::List(list) => match &self.list(list)?.body {
                Body::Immediate(stream) => Question::Commands(stream.retired.as_slice().into()),
                Body::Regular(_) => return Err(Refusal::Misuse("the list is not immediate")),
            },
            Object::Queue(queue) => {
                Question::Commands(self.queue(queue)?.retired.as_slice().into())
            }
            Object::Fence(fence) => Question::Cell(self.fence(fence)?.cell),
            Object::Event(event) => match self.event(event)?.state {
                EventState::CounterBased(state) => Question::CounterBased(self.bind(state, None)),
                EventState::Opened(bound) => Question::CounterBased(self.settle(bound)),
                EventState::Regular(cell) | EventState::Word(cell) => Question::Cell(cell),
            },
        })
    }

    pub(super) fn query(&mut self, object: Object) -> Result<(), Refusal> {
        let question = self.target(object)?;
        self.steps.last_mut().expect("the query is a step").question = Some(question);
        Ok(())
    }

    /// The address and value of a CB event that was signalled at least once, or has a word of the
    /// user's; "API must be called again to obtain new data" when its state is replaced.
    pub(super) fn query_address(&mut self, event: EventId) -> Result<(), Refusal> {
        match self.event(event)?.state {
            EventState::CounterBased(CbState::Counter { .. } | CbState::Recorded { .. })
            | EventState::Word(_) => self.query(Object::Event(event)),
            EventState::CounterBased(CbState::Complete) => {
                Err(Refusal::Misuse("the event was never signalled"))
            }
            EventState::Opened(_) => Err(Refusal::Misuse("the event is another one's")),
            EventState::Regular(_) => Err(Refusal::Misuse("the event is not counter-based")),
        }
    }

    /// The times of an event that was signalled at least once.
    pub(super) fn query_times(&mut self, event: EventId) -> Result<(), Refusal> {
        let bound = match self.timed(event)? {
            TimesOf::State(state) => self.bind(state, None),
            TimesOf::Event(event) => {
                let cell = self.cell_of(event)?;
                let begin = self.steps.last().expect("the query is a step").begin;
                self.must_come_before(self.cells[cell].current().reset, begin)?;
                Bound::Command(self.signalling_command(event)?)
            }
        };
        self.query(Object::Event(event))?;
        self.steps.last_mut().expect("the query is a step").times = Some(bound);
        Ok(())
    }

    /// A host wait. Valid only if earlier steps alone end it: then no schedule of the threads can make
    /// it hang.
    pub(super) fn synchronize(&mut self, object: Object) -> Result<(), Refusal> {
        match self.target(object)? {
            Question::Commands(commands) => self.block(&commands),
            Question::CounterBased(Bound::Met) => Ok(()),
            Question::CounterBased(Bound::Command(command)) => self.block(&[command]),
            Question::CounterBased(_) => Err(Refusal::WouldHang),
            Question::Cell(cell) => {
                let reset = self.cells[cell].current().reset;
                let begin = self.steps.last().expect("the wait is a step").begin;
                self.must_come_before(reset, begin)?;
                let signals = self.cells[cell].completed().ok_or(Refusal::WouldHang)?.to_vec();
                self.block(&signals)?;
                let end = self.steps.last().expect("the wait is a step").end;
                self.cells[cell].current_mut().waits.push(end);
                Ok(())
            }
        }
    }

    /// Makes the current step end only when all the given commands are complete.
    pub(super) fn block(&mut self, commands: &[Node]) -> Result<(), Refusal> {
        let step = self.steps.last().expect("a step is being taken");
        let begin = step.begin;
        let end = self.graph.add(Work::None);
        self.graph.order(begin, end, Bond::Ordered);
        for &command in commands {
            self.graph.order(command, end, Bond::Ordered);
        }
        let before = self.graph.possibly_before(end);
        if self.pending.iter().any(|&node| before.contains(node)) {
            return Err(Refusal::WouldHang);
        }
        self.steps.last_mut().expect("a step is being taken").end = end;
        Ok(())
    }
}

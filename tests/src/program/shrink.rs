// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes everything from a failing program that it does not need: objects, steps, waits, threads.
//!
//! Shrinking by intents, which proptest does, leaves steps behind: without an intent, all later ones
//! mean something else. This works on the steps themselves and only makes programs that the model
//! accepts.

use super::{Action, Command, EventId, FenceId, ListId, Object, Op, Program, QueueId, Step};
use crate::model::Model;
use std::time::{Duration, Instant};

/// A valid program, hardly larger than necessary, for which `fails` still returns a reason; and that
/// reason, as far as it is found within the time limit. The given program must fail.
pub fn minimise(
    program: Program,
    reason: String,
    time: Duration,
    fails: impl Fn(&Program) -> Option<String>,
) -> (Program, String) {
    let mut search = Search { best: program, reason, end: Instant::now() + time, fails };
    loop {
        let before = search.best.clone();
        search.on_one_thread();
        search.without_objects();
        search.without_steps();
        search.without_details();
        if search.best == before || search.is_late() {
            return (search.best, search.reason);
        }
    }
}

struct Search<F> {
    best: Program,
    reason: String,
    end: Instant,
    fails: F,
}

impl<F: Fn(&Program) -> Option<String>> Search<F> {
    fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }

    fn offer(&mut self, steps: Vec<Step>) -> bool {
        let program = Program { steps };
        let valid = Model::of(&program).is_ok_and(|model| model.expected().is_ok());
        if !valid || self.is_late() || program == self.best {
            return false;
        }
        match (self.fails)(&program) {
            Some(reason) => {
                (self.best, self.reason) = (program, reason);
                true
            }
            None => false,
        }
    }

    fn on_one_thread(&mut self) {
        let one = |step: &Step| Step { thread: 0, action: step.action.clone() };
        let joins = |step: &Step| step.action != Action::Join;
        let steps = &self.best.steps;
        let without_joins: Vec<Step> = steps.iter().map(one).filter(joins).collect();
        if !self.offer(without_joins) {
            self.offer(self.best.steps.iter().map(one).collect());
        }
    }

    fn without_objects(&mut self) {
        let names: Vec<Name> = self.best.steps.iter().filter_map(created).collect();
        for name in names.into_iter().rev() {
            let steps = self.best.steps.iter().filter_map(|step| without(step, name));
            self.offer(steps.collect());
        }
    }

    fn without_steps(&mut self) {
        for at in (0..self.best.steps.len()).rev() {
            if at < self.best.steps.len() && created(&self.best.steps[at]).is_none() {
                let mut steps = self.best.steps.clone();
                steps.remove(at);
                self.offer(steps);
            }
        }
    }

    fn without_details(&mut self) {
        for at in 0..self.best.steps.len() {
            for simpler in simpler(&self.best.steps[at].action) {
                let mut steps = self.best.steps.clone();
                steps[at].action = simpler;
                self.offer(steps);
            }
        }
    }
}

/// The same call with one detail removed.
fn simpler(action: &Action) -> Vec<Action> {
    match action {
        Action::Append(list, command) => {
            let mut simpler = Vec::new();
            let mut add = |change: &dyn Fn(&mut Command)| {
                let mut command = command.clone();
                change(&mut command);
                simpler.push(Action::Append(*list, command));
            };
            for event in &command.waits {
                add(&|command| command.waits.retain(|other| other != event));
            }
            if !matches!(command.op, Op::SignalEvent) {
                add(&|command| command.signal = None);
            }
            if command.signal.is_some() && command.waits.is_empty() {
                add(&|command| command.op = Op::SignalEvent);
            }
            simpler
        }
        Action::AppendLists { list, lists, waits, signal } => {
            let append = |lists: Vec<ListId>, waits: Vec<EventId>, signal: Option<EventId>| {
                Action::AppendLists { list: *list, lists, waits, signal }
            };
            let mut simpler = vec![append(lists.clone(), waits.clone(), None)];
            simpler.extend(waits.iter().map(|event| {
                let fewer = waits.iter().copied().filter(|other| other != event).collect();
                append(lists.clone(), fewer, *signal)
            }));
            if lists.len() > 1 {
                let one = |&one: &ListId| append(vec![one], waits.clone(), *signal);
                simpler.extend(lists.iter().map(one));
            }
            simpler
        }
        Action::Execute { queue, lists, fence } => {
            let execute = |lists: Vec<ListId>, fence: Option<FenceId>| Action::Execute {
                queue: *queue,
                lists,
                fence,
            };
            let mut simpler = vec![execute(lists.clone(), None)];
            if lists.len() > 1 {
                simpler.extend(lists.iter().map(|&list| execute(vec![list], *fence)));
            }
            simpler
        }
        _ => Vec::new(),
    }
}

#[derive(Clone, Copy)]
enum Name {
    List(usize),
    Queue(usize),
    Event(usize),
    Fence(usize),
}

fn created(step: &Step) -> Option<Name> {
    match step.action {
        Action::CreateList(list, _) | Action::CloneList(_, list) => Some(Name::List(list.0)),
        Action::CreateQueue(queue, _) => Some(Name::Queue(queue.0)),
        Action::CreateEvent(event, _) | Action::Share(_, event) => Some(Name::Event(event.0)),
        Action::CreateFence(fence, _) => Some(Name::Fence(fence.0)),
        _ => None,
    }
}

/// The step without an object that is never created: later objects get the previous name, and calls
/// that are about the object alone are removed.
fn without(step: &Step, gone: Name) -> Option<Step> {
    let list = |list: ListId| match gone {
        Name::List(gone) => moved(list.0, gone).map(ListId),
        _ => Some(list),
    };
    let queue = |queue: QueueId| match gone {
        Name::Queue(gone) => moved(queue.0, gone).map(QueueId),
        _ => Some(queue),
    };
    let event = |event: EventId| match gone {
        Name::Event(gone) => moved(event.0, gone).map(EventId),
        _ => Some(event),
    };
    let fence = |fence: FenceId| match gone {
        Name::Fence(gone) => moved(fence.0, gone).map(FenceId),
        _ => Some(fence),
    };
    let object = |object: Object| {
        Some(match object {
            Object::List(name) => Object::List(list(name)?),
            Object::Queue(name) => Object::Queue(queue(name)?),
            Object::Event(name) => Object::Event(event(name)?),
            Object::Fence(name) => Object::Fence(fence(name)?),
        })
    };
    let action = match &step.action {
        Action::CreateList(name, desc) => Action::CreateList(list(*name)?, *desc),
        Action::CreateQueue(name, engine) => Action::CreateQueue(queue(*name)?, *engine),
        Action::CreateEvent(name, kind) => Action::CreateEvent(event(*name)?, *kind),
        Action::CloneList(from, name) => Action::CloneList(list(*from)?, list(*name)?),
        Action::Share(from, name) => Action::Share(event(*from)?, event(*name)?),
        Action::AppendLists { list: to, lists, waits, signal } => {
            let lists: Vec<ListId> = lists.iter().copied().filter_map(list).collect();
            if lists.is_empty() {
                return None;
            }
            let waits = waits.iter().copied().filter_map(event).collect();
            Action::AppendLists { list: list(*to)?, lists, waits, signal: signal.and_then(event) }
        }
        Action::CreateFence(name, of) => Action::CreateFence(fence(*name)?, queue(*of)?),
        Action::Append(name, command) => {
            let waits: Vec<EventId> = command.waits.iter().copied().filter_map(event).collect();
            let signal = command.signal.and_then(event);
            let op = match command.op {
                Op::ResetEvent(name) => Op::ResetEvent(event(name)?),
                Op::SetWord(name) => Op::SetWord(event(name)?),
                Op::QueryTimes { event: name, place } => {
                    Op::QueryTimes { event: event(name)?, place }
                }
                Op::SignalEvent if signal.is_none() => return None,
                Op::WaitOnEvents if waits.is_empty() => return None,
                op => op,
            };
            Action::Append(list(*name)?, Command { op, waits, signal })
        }
        Action::Close(name) => Action::Close(list(*name)?),
        Action::ResetList(name) => Action::ResetList(list(*name)?),
        Action::DestroyList(name) => Action::DestroyList(list(*name)?),
        Action::DestroyEvent(name) => Action::DestroyEvent(event(*name)?),
        Action::Execute { queue: on, lists, fence: with } => {
            let lists: Vec<ListId> = lists.iter().copied().filter_map(list).collect();
            if lists.is_empty() {
                return None;
            }
            Action::Execute { queue: queue(*on)?, lists, fence: with.and_then(fence) }
        }
        Action::Synchronize(name) => Action::Synchronize(object(*name)?),
        Action::Query(name) => Action::Query(object(*name)?),
        Action::Times(name) => Action::Times(event(*name)?),
        Action::Address(name) => Action::Address(event(*name)?),
        Action::HostSignal(name) => Action::HostSignal(event(*name)?),
        Action::HostReset(name) => Action::HostReset(event(*name)?),
        Action::ResetFence(name) => Action::ResetFence(fence(*name)?),
        Action::Read(_) | Action::Write(..) | Action::Join => step.action.clone(),
    };
    Some(Step { thread: step.thread, action })
}

fn moved(name: usize, gone: usize) -> Option<usize> {
    match name.cmp(&gone) {
        std::cmp::Ordering::Less => Some(name),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(name - 1),
    }
}

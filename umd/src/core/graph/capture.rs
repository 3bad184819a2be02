// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures: the lists that take part in one, and the recording of commands that are appended to them.
//!
//! Commands of a branch count from 0. Waiting for an execution only means waiting for the end of the primary
//! list. So a fork is joined if the primary list waits, through any number of branches, for a signal after the
//! last work of the fork.

use std::ptr;
use std::sync::{Arc, PoisonError};

use tally_ze::{
    ze_command_list_handle_t, ze_event_counter_based_flags_t, ze_graph_handle_t, ze_result_t,
};

use super::{Branch, CAPTURES, Graph, Membership, Phase, Point, State, captures, dump};
use crate::checks::{self, Checks};
use crate::core::kernel::Launched;
use crate::core::list::ordered::Captured;
use crate::core::list::{List, special};
use crate::core::queue::QueueTraits;
use crate::error::{Error, Result};
use crate::list::command::Command;
use crate::list::regular::Regular;
use crate::list::target::Signal;
use crate::sync::event::{self, Event, EventKind};
use crate::sync::recording;

impl Graph {
    /// Begins a capture of a list.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the graph is not empty, or the list cannot be captured; out of memory.
    pub fn begin(
        self: &Arc<Self>,
        list: &List,
        (primary, raw): (ze_command_list_handle_t, ze_graph_handle_t),
    ) -> Result {
        let (traits, membership) = list.captured()?;
        if !Arc::ptr_eq(&self.context, list.context()) {
            return Err(Error::invalid("hGraph: it is of another context than hCommandList"));
        }
        if membership.belongs().is_some() {
            return Err(Error::invalid("hCommandList: it is being captured already"));
        }
        let mut state = self.state();
        if state.phase != Phase::New {
            return Err(Error::invalid("hGraph: something was captured into it before"));
        }
        state.branches.push(self.branch(traits, true)?);
        (state.primary, state.raw) = (Some(primary), raw);
        state.phase = Phase::Capturing;
        drop(state);
        membership.join(self, 0);
        let mut captures = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
        captures.push(Arc::downgrade(self));
        special::set_captures(captures.len());
        Ok(())
    }

    fn branch(&self, traits: &QueueTraits, is_first: bool) -> Result<Branch> {
        let in_order = traits.is_in_order();
        let list = Regular::branch(self.context.shared().clone(), in_order, is_first)?;
        if let Some(order) = checks::get().and_then(Checks::order) {
            order.recording_begins(recording::key(&list.recording()), in_order, None);
        }
        Ok(Branch { list, gates: Vec::new(), traits: *traits, in_order, commands: 0, work: 0 })
    }

    /// Ends the capture of all lists.
    ///
    /// # Errors
    /// GRAPH_UNJOINED_FORKS, and the graph is invalid; out of memory.
    pub fn end(self: &Arc<Self>) -> Result {
        let mut state = self.state();
        let ended: Result<Vec<()>> = state.lists().into_iter().map(Regular::end_capture).collect();
        let joined = state.is_joined();
        state.phase = match (&ended, joined) {
            (Err(_), _) => Phase::Invalid("hGraph: its capture ran out of memory"),
            (_, false) => Phase::Invalid("hGraph: it has forks that were not joined"),
            _ => Phase::Captured,
        };
        drop(state);
        self.leave();
        ended?;
        if joined {
            return Ok(());
        }
        Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_GRAPH_UNJOINED_FORKS,
            "hCommandList: work of a list that was forked is not waited for by this one",
        ))
    }

    /// Pauses the capture of all lists, or resumes it.
    ///
    /// # Errors
    /// COMMAND_LIST_NOT_CAPTURING; INVALID_ARGUMENT: it is paused already, or is not paused.
    pub fn pause(&self, paused: bool) -> Result {
        let mut state = self.state();
        state.phase = match (state.phase, paused) {
            (Phase::Capturing, true) => Phase::Paused,
            (Phase::Paused, false) => Phase::Capturing,
            (Phase::Paused, true) => return Err(Error::invalid("hGraph: it is paused already")),
            (Phase::Capturing, false) => return Err(Error::invalid("hGraph: it is not paused")),
            _ => {
                let code = ze_result_t::ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING;
                return Err(Error::new(code, "hGraph: nothing is being captured into it"));
            }
        };
        Ok(())
    }

    /// Ends the capture without a graph, because its first list was destroyed.
    pub fn abandon(self: &Arc<Self>) {
        let mut state = self.state();
        for list in state.lists() {
            // The packets of the list are not needed.
            let _ = list.end_capture();
        }
        state.phase = Phase::Invalid("hGraph: the list that was captured into it was destroyed");
        drop(state);
        self.leave();
    }

    fn leave(self: &Arc<Self>) {
        let mut captures = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
        captures.retain(|it| it.strong_count() != 0 && !ptr::eq(it.as_ptr(), Arc::as_ptr(self)));
        special::set_captures(captures.len());
    }

    /// The point at which the capture last signalled an event.
    fn signal_of(&self, event: &Event) -> Option<Point> {
        let state = self.state();
        if state.phase != Phase::Capturing {
            return None;
        }
        let point = *state.signals.get(&ptr::from_ref(event).addr())?;
        match &event.kind {
            EventKind::Regular(_) => Some(point),
            EventKind::CounterBased(view) if view.is_aggregated() => Some(point),
            // Another signaller may have signalled it since.
            EventKind::CounterBased(_) => {
                state.branches[point.branch].list.signals(event).then_some(point)
            }
        }
    }

    /// Appends a command of a list to its branch; `None`: the command makes a branch, if it succeeds. Returns the
    /// number of the branch; `None`: the capture has ended, so the command does not belong to it.
    ///
    /// # Errors
    /// GRAPH_CAPTURE_UNSUPPORTED; those of the append.
    fn append(
        &self,
        (list, branch): (&List, Option<usize>),
        (command, launched): (&Command<'_>, Option<Launched<'_>>),
        signal: Option<Signal<'_>>,
        waits: &[(&Event, Option<Point>)],
    ) -> Result<Option<(usize, Captured)>> {
        let mut state = self.state();
        let state = &mut *state;
        if state.phase != Phase::Capturing {
            return Ok(None);
        }
        if let Command::Lists(_) = command.itself() {
            return Err(unsupported(
                "hCommandList: a regular list is not appended while the list is captured"
                    .to_owned(),
            ));
        }
        let fork = if branch.is_none() { Some(self.fork(list)?) } else { None };
        let branch = branch.unwrap_or(state.branches.len());
        let mut events = waits.iter().map(|(event, _)| Ok(*event));
        let into = fork.as_ref().unwrap_or_else(|| &state.branches[branch]);
        let (into_list, before) = (into.list.clone(), into.list.signal_count());
        let nested = match command.itself() {
            Command::Graph(execution) => {
                self.nest(into, execution, signal.as_ref(), &mut events)?
            }
            _ => into.list.append(command, signal, &mut events).map(|_| Vec::new())?,
        };
        // Those that no other one of the graph executes have one gate.
        let graph = nested.iter().filter(|it| it.gates.len() == 1).map(|it| it.list.clone());
        let graph = graph.collect();
        state.branches.extend(fork.into_iter().chain(nested));
        if let (Command::Graph(_), Some(_)) = (command.itself(), signal) {
            let list = &state.branches[branch].list;
            list.append(&Command::Signal, signal, &mut std::iter::empty())?;
        }
        let into = &mut state.branches[branch];
        let point = Point { branch, command: into.commands };
        into.commands += 1;
        if does_work(command) {
            into.work = into.commands;
        }
        state.waits.extend(waits.iter().filter_map(|(_, from)| from.map(|from| (point, from))));
        if let Some(signal) = signal {
            state.signals.insert(ptr::from_ref(signal.event).addr(), point);
        }
        state.nodes.push(dump::Node::new(point, command, launched));
        let after = into_list.signal_count();
        let signal = (after != before).then_some(after);
        Ok(Some((branch, Captured { list: into_list, signal, graph })))
    }

    /// A branch for a list that waits for an event of the capture.
    ///
    /// # Errors
    /// GRAPH_CAPTURE_UNSUPPORTED; out of memory.
    fn fork(&self, list: &List) -> Result<Branch> {
        let (traits, _) = list.captured().map_err(|error| unsupported(error.text().to_owned()))?;
        if !Arc::ptr_eq(&self.context, list.context()) {
            return Err(unsupported(
                "hCommandList: it is of another context than the graph".to_owned(),
            ));
        }
        self.branch(traits, false)
    }
}

/// "Commands that do not append work (for example, event signal and wait operations) are allowed after
/// the join operation".
fn does_work(command: &Command<'_>) -> bool {
    !matches!(
        command.itself(),
        Command::Wait | Command::Signal | Command::Reset(_) | Command::Barrier
    )
}

impl State {
    /// Whether the first branch waits in the end for all work of the others.
    fn is_joined(&self) -> bool {
        // Number of commands of each branch that are complete when the first branch is.
        let mut covered: Vec<usize> = vec![0; self.branches.len()];
        if let (Some(first), Some(branch)) = (covered.first_mut(), self.branches.first()) {
            *first = branch.commands;
        }
        loop {
            let mut grown = false;
            for (at, from) in &self.waits {
                let reached = from.command + 1;
                if at.command < covered[at.branch] && covered[from.branch] < reached {
                    covered[from.branch] = reached;
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        // The list to which a graph was appended waits for it.
        let mut others = self.branches.iter().zip(&covered).skip(1);
        others.all(|(it, covered)| !it.gates.is_empty() || *covered >= it.work.max(1))
    }
}

impl List {
    /// Refuses lists that cannot be captured.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    fn captured(&self) -> Result<(&QueueTraits, &Membership)> {
        let (traits, _) = self.as_immediate()?;
        if traits.is_synchronous() {
            return Err(Error::invalid("hCommandList: a synchronous list is not captured"));
        }
        let membership = self.membership();
        let membership = membership
            .ok_or_else(|| Error::invalid("hCommandList: it is not an immediate list"))?;
        Ok((traits, membership))
    }

    /// Whether a command with these waits is going to belong to a graph, and the branch that the list has in the graph, if
    /// it has one already.
    pub(in crate::core) fn captures(&self, waits: &[&Event]) -> Option<Option<Arc<Regular>>> {
        if !special::is_any_captured() {
            return None;
        }
        match self.membership()?.find() {
            Some((graph, branch)) => {
                Some(graph.state().branches.get(branch).map(|it| it.list.clone()))
            }
            None => waits.iter().any(|event| find(event).is_some()).then_some(None),
        }
    }

    /// The graph that the list is being captured into, and the number of its branch.
    pub fn capture(&self) -> Option<(Arc<Graph>, usize)> {
        self.membership()?.find()
    }

    /// Refuses a host wait for a list that is captured.
    ///
    /// # Errors
    /// GRAPH_CAPTURE_UNSUPPORTED.
    pub fn must_not_be_captured(&self) -> Result {
        if !special::is_any_captured() || self.capture().is_none() {
            return Ok(());
        }
        Err(unsupported("hCommandList: it is being captured, so nothing was submitted".to_owned()))
    }

    /// Appends a command to the graph that it belongs to, which may make the list a branch of the graph; `None`: it
    /// belongs to none.
    ///
    /// # Errors
    /// GRAPH_CAPTURE_UNSUPPORTED, GRAPH_CAPTURE_MERGE_ATTEMPT, GRAPH_INTERNAL_EVENT; those of the append.
    #[cold]
    pub(in crate::core) fn append_captured(
        &self,
        command: (&Command<'_>, Option<Launched<'_>>),
        signal: Option<Signal<'_>>,
        waits: &[&Event],
    ) -> Result<Option<Captured>> {
        let Some(membership) = self.membership() else {
            let mut waits = waits.iter().copied();
            waits.try_for_each(|event| must_be_outside(event, "phWaitEvents"))?;
            return signal_outside(signal);
        };
        let own = membership.find();
        let is_paused = own.is_none() && membership.belongs().is_some();
        let mut points = Vec::with_capacity(waits.len());
        let mut graph = own.as_ref().map(|it| it.0.clone());
        for &event in waits {
            let found = find(event);
            if let Some((of, _)) = &found
                && (is_paused || !Arc::ptr_eq(graph.get_or_insert_with(|| of.clone()), of))
            {
                return Err(Error::new(
                    ze_result_t::ZE_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT,
                    "phWaitEvents: an event is of another graph that is being captured",
                ));
            }
            points.push((event, found.map(|it| it.1)));
        }
        let Some(graph) = graph else { return signal_outside(signal) };
        let branch = own.map(|it| it.1);
        let appended = graph.append((self, branch), command, signal, &points)?;
        let Some((branch, captured)) = appended else { return signal_outside(signal) };
        // The graph must not be locked here, since a caller that asks for a list's graph locks them in the
        // opposite order.
        membership.join(&graph, branch);
        Ok(Some(captured))
    }
}

/// Allows the submission of a command that belongs to no capture, by returning `None`.
///
/// # Errors
/// GRAPH_INTERNAL_EVENT.
fn signal_outside(signal: Option<Signal<'_>>) -> Result<Option<Captured>> {
    signal.map_or(Ok(()), |it| must_be_outside(it.event, "hSignalEvent")).map(|()| None)
}

/// Refuses a host wait for an event that is signalled by a graph under capture.
///
/// # Errors
/// GRAPH_CAPTURE_UNSUPPORTED.
pub fn must_not_be_captured(event: &Event) -> Result {
    if !special::is_any_captured() || find(event).is_none() {
        return Ok(());
    }
    Err(unsupported("hEvent: the command that signals it is being captured in a graph".to_owned()))
}

/// Refuses a counter-based event that is valid only in the graph that is being captured.
fn must_be_outside(event: &Event, name: &str) -> Result {
    let external = ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL;
    let is_external = event.traits.cb_flags & external.bits() != 0;
    let internal = matches!(event.kind, EventKind::CounterBased(_)) && !is_external;
    if internal && find(event).is_some() { Err(event::internal(name)) } else { Ok(()) }
}

/// The capture that has signalled an event, and the point of the signal.
fn find(event: &Event) -> Option<(Arc<Graph>, Point)> {
    captures().into_iter().find_map(|graph| {
        let point = graph.signal_of(event)?;
        Some((graph, point))
    })
}

pub(super) fn unsupported(text: String) -> Error {
    Error::new(ze_result_t::ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, text)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of commands: which ones are complete before which other ones start, whatever the device does.
//!
//! Each execution of a command is a node of a graph, made when it is submitted. It comes after what its list, the
//! barriers, its wait list and the host's waits order before it. A wait may be submitted before its signal; the
//! edge is added with the signal. When a command starts, all signals that it waits for have been submitted, so its
//! *clock* (what is complete) can be computed and never changes.
//!
//! Host threads are taken as one: what one has seen complete is complete for all, since programs pass that on
//! between threads in ways that the driver does not see.
//!
//! A wait for what only others know (another process, a word that the host writes) orders after everything that
//! has started by then. That hides races, and invents none.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_ze::ze_event_handle_t;

use super::calls::{self, Call};
use super::report::Rule;
use super::rows::Transfer;
use super::{collector, log};
use crate::handle::Counted;

mod changes;
mod clock;
mod copies;
mod host;
mod lists;
mod runs;
mod signals;

#[cfg(test)]
mod tests;

use clock::Clock;
pub use host::Use;
pub use lists::{Executed, Parts};
use lists::{Recording, Stream};
use signals::{Broken, Cell};

/// Number of executions, and of commands, that are remembered.
const REMEMBERED: usize = 1 << 18;

/// One execution of one command. A regular list that is executed again has new ones. 0: none that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Execution(pub u32);

impl Execution {
    /// No execution, or one whose order is not known: it races with nothing.
    pub const NONE: Self = Self(0);
}

/// What a command or the host waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The value of an immediate list's or queue's counter.
    Counter {
        /// Address of the counter.
        cell: u64,
        /// The value.
        value: u64,
    },
    /// A signal of a regular list, in its latest execution, or in the first one.
    Recorded {
        /// The recording, by the address of the driver's object.
        recording: usize,
        /// The signal's number, from 1.
        signal: u32,
    },
    /// A word that is at least this: 1 for a regular event.
    Word {
        /// Address of the word.
        address: u64,
        /// The value.
        needed: u64,
    },
    /// What an event names when the graph is executed to which the command belongs.
    Event(Counted<ze_event_handle_t>),
    /// Something that others signal.
    Unknown,
}

/// What a command does to the word of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It adds this to the word; a regular event's becomes 1.
    Signal {
        /// Address of the word.
        address: u64,
        /// The number that is added.
        amount: u64,
        /// The value at which the event is complete.
        needed: u64,
    },
    /// It sets the word to 0.
    Reset {
        /// Address of the word.
        address: u64,
    },
}

/// The place of a command in the order of its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Ordered by the list, if that is in-order, and by its waits.
    #[default]
    Plain,
    /// It comes after all before it: the signal and the reset of an event.
    Last,
    /// All later commands come after it; without waits, it comes after all before it.
    Barrier,
    /// All later commands come after it.
    Wait,
    /// A function of the host: what is complete when it runs is known to the host.
    HostFunction,
}

/// A command as it is appended.
#[derive(Clone, Debug, Default)]
pub struct Appended {
    /// Its place in the order.
    pub role: Role,
    /// Whether it has a wait list.
    pub has_waits: bool,
    /// What it waits for: events that are complete for good are not among it.
    pub waits: Vec<Awaited>,
    /// Whether it signals an event.
    pub signals: bool,
    /// What it does to events.
    pub effects: Vec<Effect>,
    /// The memory that it accesses, other than by kernels.
    pub transfers: Vec<Transfer>,
    /// The number of its launch (`Launches::add`), or 0.
    pub launch: u64,
}

impl Appended {
    /// Whether the device has to tell when it starts.
    pub fn tells(&self) -> bool {
        self.role == Role::HostFunction
            || self.launch != 0
            || !self.transfers.is_empty()
            || !self.effects.is_empty()
            // Until it has started, the event may not be reset.
            || self.waits.iter().any(|it| matches!(it, Awaited::Word { .. }))
    }
}

/// A command that has a number, which the device tells when it starts.
struct Command {
    call: Call,
    caller: u64,
    /// The call that made its list.
    list: u64,
    /// The call that copied it with its list, or 0.
    copy: u64,
    /// Whether it was captured into a graph.
    captured: bool,
    in_order: bool,
    signals: bool,
    tells: bool,
    role: Role,
    transfers: Arc<[Transfer]>,
    /// The number of its launch, or 0.
    launch: u64,
    /// The executions that have not started, by the base of the CALL.
    coming: VecDeque<(u64, Execution)>,
    /// The one that has started last.
    current: Execution,
}

struct Node {
    command: u32,
    chain: u32,
    tick: u32,
    /// What the host had seen complete.
    host: Arc<Clock>,
    after: Vec<Execution>,
    /// Number of its waits whose signals are not submitted.
    open: u32,
    /// What is complete when it starts, as it was known at [`State::changes`].
    before: Option<(u64, Arc<Clock>)>,
    /// Whether the device tells when it starts.
    tells: bool,
    has_started: bool,
    /// Whether nothing changes `before` any more, since it has started.
    is_final: bool,
    /// What has to be complete when it starts, or to start when it is complete.
    claims: Vec<(Broken, Execution)>,
}

/// What is known of the order of commands.
#[derive(Default)]
pub struct Order(Mutex<State>);

#[derive(Default)]
struct State {
    nodes: VecDeque<Node>,
    /// Number of nodes that were dropped.
    dropped: u32,
    commands: VecDeque<Command>,
    commands_dropped: u32,
    /// The commands of launches, by the launches' numbers.
    launches: HashMap<u64, u32>,
    /// The last number of each chain.
    chains: Vec<u32>,
    /// Chains that nothing continues.
    free: VecDeque<u32>,
    /// What a thread of the host has seen complete.
    host: Arc<Clock>,
    /// Number of starts, and of signals for which an execution had waited before they were submitted. What is known of
    /// executions that have not started is not true any more when it grows.
    changes: u64,
    /// Whether the program reads the words of events itself, so that it may know at any time what has started.
    reads_words: bool,
    /// What has started.
    started: Clock,
    streams: HashMap<u64, Stream>,
    recordings: HashMap<usize, Recording>,
    /// The executions that raise a counter to a value, in the order of the values.
    counters: HashMap<u64, Vec<(u64, Execution)>>,
    cells: BTreeMap<u64, Cell>,
    /// The host's own accesses.
    accesses: host::Accesses,
}

/// What the device has begun: an execution, and the memory that its command accesses.
pub struct Started {
    /// The execution.
    pub execution: Execution,
    /// The memory, other than by kernels.
    pub transfers: Arc<[Transfer]>,
}

/// A command in a report.
#[derive(Clone, Debug)]
pub struct Named {
    /// The call that appended it.
    pub call: Call,
    /// The call that made its list, or 0.
    pub list: u64,
    /// The call that copied it with its list, or 0.
    pub copy: u64,
    /// Whether it was captured into a graph.
    pub captured: bool,
    /// Its number, from 1, in the order of appends.
    pub number: u32,
    /// The place of the program's call ([`calls::caller`]).
    pub caller: u64,
    /// Whether its list is in order.
    pub in_order: bool,
    /// Whether it signals an event.
    pub signals: bool,
}

impl Named {
    /// The places of the program's calls of both commands, as a number.
    pub fn place_with(&self, other: &Self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.caller, other.caller).hash(&mut hasher);
        hasher.finish()
    }
}

impl Order {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The execution that a launch with this number (`Launches::add`) is in now. Launches of one regular list never
    /// overlap with themselves.
    pub fn of_launch(&self, launch: u64) -> Execution {
        let state = self.state();
        let command = state.launches.get(&launch).and_then(|&number| state.command(number));
        command.map_or(Execution::NONE, |it| it.current)
    }

    /// Whether something makes the execution `earlier` complete before `later` starts. `later` has started.
    pub fn ordered(&self, earlier: Execution, later: Execution) -> bool {
        self.state().ordered(earlier, later)
    }

    /// The command of an execution.
    pub fn named(&self, execution: Execution) -> Option<Named> {
        let state = self.state();
        let number = state.node(execution)?.command;
        let it = state.command(number)?;
        let &Command { list, copy, captured, caller, in_order, signals, .. } = it;
        let call = it.call.clone();
        Some(Named { call, list, copy, captured, number, caller, in_order, signals })
    }

    /// Notes that the device starts a command, in the execution of its list with this base.
    pub fn started(&self, command: u32, base: u64) -> Option<Started> {
        let mut state = self.state();
        let it = state.command_mut(command)?;
        let (role, transfers) = (it.role, it.transfers.clone());
        while it.coming.front().is_some_and(|coming| coming.0 < base) {
            it.coming.pop_front();
        }
        let (_, execution) = it.coming.pop_front().filter(|coming| coming.0 == base)?;
        it.current = execution;
        let before = state.clock(execution);
        let node = state.node_mut(execution)?;
        node.has_started = true;
        state.all_is_final(execution);
        state.starts(execution);
        if role == Role::HostFunction {
            join(&mut state.host, &before);
            // The chain's own are not in the clock.
            state.knows_chain_before(execution);
            state.accesses.function_starts(command, execution);
            state.host_knows_more();
        }
        let broken = state.broken(execution);
        drop(state);
        for (rule, other) in broken {
            self.tell_broken(rule, other, execution);
        }
        Some(Started { execution, transfers })
    }
}

impl State {
    fn node(&self, execution: Execution) -> Option<&Node> {
        let at = execution.0.checked_sub(1)?.checked_sub(self.dropped)?;
        self.nodes.get(at as usize)
    }

    fn node_mut(&mut self, execution: Execution) -> Option<&mut Node> {
        let at = execution.0.checked_sub(1)?.checked_sub(self.dropped)?;
        self.nodes.get_mut(at as usize)
    }

    fn command(&self, number: u32) -> Option<&Command> {
        self.commands.get(number.checked_sub(1)?.checked_sub(self.commands_dropped)? as usize)
    }

    fn command_mut(&mut self, number: u32) -> Option<&mut Command> {
        self.commands.get_mut(number.checked_sub(1)?.checked_sub(self.commands_dropped)? as usize)
    }

    fn ordered(&mut self, earlier: Execution, later: Execution) -> bool {
        self.is_before(earlier, later) || self.is_in_function_before(earlier, later)
    }

    fn is_before(&mut self, earlier: Execution, later: Execution) -> bool {
        if earlier == later || earlier == Execution::NONE || later == Execution::NONE {
            return true;
        }
        let Some(first) = self.node(earlier) else {
            collector::note(
                "there were too many commands: races with those of long ago are not looked for",
            );
            return true;
        };
        let (chain, tick) = (first.chain, first.tick);
        match self.node(later) {
            Some(node) if node.chain == chain => tick <= node.tick,
            Some(_) => self.clock(later).holds(chain, tick),
            None => true,
        }
    }

    /// Adds a command that the current call appends; returns its number.
    fn add_command(&mut self, (list, in_order): (u64, bool), it: &Appended) -> u32 {
        let number = self.add(Command {
            call: calls::current(),
            caller: calls::caller(),
            list,
            copy: 0,
            captured: false,
            in_order,
            signals: it.signals,
            tells: it.tells(),
            role: it.role,
            transfers: it.transfers.as_slice().into(),
            launch: it.launch,
            coming: VecDeque::new(),
            current: Execution::NONE,
        });
        if list != 0 {
            log::append(number, calls::thread());
        }
        number
    }

    fn add(&mut self, command: Command) -> u32 {
        if self.commands.len() == REMEMBERED {
            let dropped = self.commands.pop_front();
            self.commands_dropped += 1;
            if let Some(launch) = dropped.map(|it| it.launch) {
                self.launches.remove(&launch);
                self.accesses.forget(self.commands_dropped, launch);
            }
        }
        let launch = command.launch;
        self.commands.push_back(command);
        let number = self.commands_dropped + self.commands.len() as u32;
        if launch != 0 {
            self.launches.insert(launch, number);
        }
        number
    }

    /// Adds an execution of a command, of the recording's execution with this base.
    fn add_node(&mut self, command: u32, base: u64, chain: u32) -> Execution {
        let execution = self.add_end(command, chain);
        let Some(command) = self.command_mut(command) else { return execution };
        command.coming.push_back((base, execution));
        let tells = command.tells;
        if let Some(node) = self.node_mut(execution) {
            node.tells = tells;
        }
        self.uses_memory(execution);
        execution
    }

    /// Adds the beginning or the end of what a command executes, of which the device tells nothing.
    fn add_end(&mut self, command: u32, chain: u32) -> Execution {
        let tick = self.chains[chain as usize] + 1;
        self.chains[chain as usize] = tick;
        if self.nodes.len() == REMEMBERED {
            self.nodes.pop_front();
            self.dropped += 1;
        }
        if self.reads_words {
            self.host_saw_something();
        }
        let host = self.host.clone();
        let (after, claims) = (Vec::new(), Vec::new());
        self.nodes.push_back(Node {
            command,
            chain,
            tick,
            host,
            after,
            open: 0,
            before: None,
            tells: false,
            has_started: false,
            is_final: false,
            claims,
        });
        Execution(self.dropped + self.nodes.len() as u32)
    }

    fn order(&mut self, earlier: Execution, later: Execution) {
        if earlier != Execution::NONE
            && earlier != later
            && let Some(node) = self.node_mut(later)
        {
            node.after.push(earlier);
        }
    }

    /// A chain for an execution that comes after none of a list's own: one whose last execution the host has seen
    /// complete, or a new one.
    fn take_chain(&mut self) -> u32 {
        if let Some(chain) = self.free.pop_front() {
            if self.host.holds(chain, self.chains[chain as usize]) {
                return chain;
            }
            self.free.push_back(chain);
        }
        self.chains.push(0);
        self.chains.len() as u32 - 1
    }

    /// What is known of an execution before it starts.
    fn before(&self, execution: Execution) -> Option<&Arc<Clock>> {
        let node = self.node(execution)?;
        let (at, before) = node.before.as_ref()?;
        (node.is_final || *at == self.changes).then_some(before)
    }

    /// What is complete when an execution starts that has started, or is complete.
    fn clock(&mut self, execution: Execution) -> Arc<Clock> {
        // The path, with the number of predecessors that were looked at.
        let mut path = vec![(execution, 0)];
        let mut is_on_path = HashSet::from([execution]);
        let is_known = |state: &Self, it| state.node(it).is_none() || state.before(it).is_some();
        while let Some((it, next)) = path.last_mut() {
            let it = *it;
            let Some(node) = self.node(it).filter(|_| !is_known(self, it)) else {
                is_on_path.remove(&it);
                path.pop();
                continue;
            };
            if let Some(&earlier) = node.after.get(*next) {
                *next += 1;
                if is_known(self, earlier) {
                    continue;
                }
                if is_on_path.insert(earlier) {
                    path.push((earlier, 0));
                } else if let Some(node) = self.node_mut(it) {
                    // Threads have submitted signals of one event in another order than that of the signals, so
                    // it is not known which one ended the wait.
                    node.open += 1;
                }
                continue;
            }
            let before = (self.changes, self.gather(it));
            if let Some(node) = self.node_mut(it) {
                node.before = Some(before);
            }
        }
        self.before(execution).cloned().unwrap_or_default()
    }

    /// Notes that an execution has started.
    fn starts(&mut self, execution: Execution) {
        let Some(node) = self.node(execution) else { return };
        let (chain, tick) = (node.chain, node.tick);
        self.started.add(chain, tick);
        self.changes += 1;
    }

    /// Notes that an execution has started, and with it that all before it is complete: what is known of them is final.
    fn all_is_final(&mut self, execution: Execution) {
        let mut left = vec![execution];
        while let Some(it) = left.pop() {
            // One that has yet to start comes before it by mistake: a signal that was submitted early.
            let Some(node) = self.node_mut(it).filter(|it| it.has_started || !it.tells) else {
                continue;
            };
            if node.before.is_some() && !std::mem::replace(&mut node.is_final, true) {
                left.extend(&node.after);
            }
        }
    }

    /// The clock of an execution, of which those before it have theirs.
    fn gather(&self, execution: Execution) -> Arc<Clock> {
        let Some(node) = self.node(execution) else { return Arc::default() };
        let earlier =
            || node.after.iter().filter_map(|&it| Some((self.node(it)?, self.before(it))));
        // Most commands come after one of the same list, and know no more than that.
        let same = earlier().find(|it| it.0.chain == node.chain).and_then(|it| it.1);
        let mut clock = same.unwrap_or(&node.host).clone();
        join(&mut clock, &node.host);
        for (it, before) in earlier() {
            if let Some(before) = before {
                join(&mut clock, before);
            }
            if it.chain != node.chain && !clock.holds(it.chain, it.tick) {
                Arc::make_mut(&mut clock).add(it.chain, it.tick);
            }
        }
        if node.open != 0 {
            Arc::make_mut(&mut clock).join(&self.started);
        }
        clock
    }

    /// Notes that the host knows that an execution is complete.
    fn host_saw(&mut self, execution: Execution) {
        let before = self.clock(execution);
        self.all_is_final(execution);
        join(&mut self.host, &before);
        let Some(node) = self.node(execution) else { return };
        let (chain, tick) = (node.chain, node.tick);
        if !self.host.holds(chain, tick) {
            Arc::make_mut(&mut self.host).add(chain, tick);
        }
        self.host_knows_more();
    }

    /// Notes that the host knows of something complete, but not of what.
    fn host_saw_something(&mut self) {
        let Self { host, started, .. } = self;
        if !host.covers(started) {
            Arc::make_mut(host).join(started);
            self.host_knows_more();
        }
    }
}

fn join(clock: &mut Arc<Clock>, other: &Arc<Clock>) {
    if Arc::ptr_eq(clock, other) || clock.covers(other) {
        return;
    }
    if other.covers(clock) {
        *clock = other.clone();
    } else {
        Arc::make_mut(clock).join(other);
    }
}

impl Broken {
    fn rule(self) -> Rule {
        match self {
            Self::Wait | Self::Reset => Rule::ResetInUse,
            Self::SignalAndReset | Self::Signals(_) => Rule::SignalRace,
        }
    }
}

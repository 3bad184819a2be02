// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's own accesses among the executions of commands. Each is an execution, too: what the host has seen complete
//! comes before it, and what is submitted later comes after it. So does what comes after a host function that runs.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{Appended, Execution, Order, State, join};
use crate::checks::in_use::InUse;

/// Number of accesses in host functions that are remembered.
const REMEMBERED: usize = 1 << 16;

/// What is known of the host's accesses, and of what it may access.
#[derive(Default)]
pub(super) struct Accesses {
    /// The memory that is to be closed, if any is.
    in_use: Option<Arc<InUse>>,
    /// The chain of all accesses.
    chain: Option<u32>,
    /// The last one: its execution, its place, and what the host had seen complete.
    last: Option<(Execution, u64, Arc<super::Clock>)>,
    /// Whether the program may learn of what is complete from memory that it shares with the device.
    reads_memory: bool,
    /// The cells of commands that call host functions, by the commands' numbers.
    cells: HashMap<u32, u64>,
    /// Host functions that run, or are about to, by their cells.
    functions: Vec<(u64, Execution)>,
    /// Accesses while host functions may have run, with these.
    inside: VecDeque<(Execution, Arc<[Execution]>)>,
    /// The memory that launches use, by their numbers.
    launches: HashMap<u64, Arc<[Use]>>,
}

/// Memory that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// An address in it.
    pub address: u64,
    /// Whether it may be written.
    pub writes: bool,
}

impl Accesses {
    /// A command with this number, and a launch, is forgotten.
    pub(super) fn forget(&mut self, command: u32, launch: u64) {
        self.launches.remove(&launch);
        self.cells.remove(&command);
    }

    /// A command and its launch have copies.
    pub(super) fn copy(&mut self, (command, launch): (u32, u64), copy: (u32, u64)) {
        if let Some(&cell) = self.cells.get(&command) {
            self.cells.insert(copy.0, cell);
        }
        if let Some(uses) = self.launches.get(&launch).cloned() {
            self.launches.insert(copy.1, uses);
        }
    }

    /// A command starts that calls a host function.
    pub(super) fn function_starts(&mut self, command: u32, execution: Execution) {
        if let Some(&cell) = self.cells.get(&command) {
            self.functions.push((cell, execution));
        }
    }

    /// Notes the host functions in which an access may take place.
    fn note_functions(&mut self, access: Execution) {
        if self.inside.len() == REMEMBERED {
            self.inside.pop_front();
        }
        self.inside.push_back((access, self.functions.iter().map(|it| it.1).collect()));
    }
}

impl Order {
    /// An order that closes memory which commands use, until the host knows that they are complete.
    pub fn with(in_use: Option<Arc<InUse>>) -> Self {
        let order = Self::default();
        order.state().accesses.in_use = in_use;
        order
    }

    /// Notes what a launch with this number uses. [`Order::append`] or [`Order::number`] follows.
    pub fn launch_uses(&self, launch: u64, uses: Vec<Use>) {
        if !uses.is_empty() {
            self.state().accesses.launches.insert(launch, uses.into());
        }
    }

    /// Notes that the program has words of events in memory of its own, so that it may learn of what is complete from
    /// memory.
    pub fn host_has_words(&self) {
        self.state().accesses.reads_memory = true;
    }

    /// Notes the cell of a host function that the command with this number calls.
    pub fn calls_function(&self, command: u32, cell: u64) {
        self.state().accesses.cells.insert(command, cell);
    }

    /// Notes that the host function with this cell has returned.
    pub fn function_returns(&self, cell: u64) {
        self.state().accesses.functions.retain(|it| it.0 != cell);
    }

    /// Notes an access by the program at a place (`calls::caller`).
    pub fn host_accesses(&self, place: u64) -> Execution {
        let mut state = self.state();
        let in_function = !state.accesses.functions.is_empty();
        let newest = state.dropped + state.nodes.len() as u32;
        if let Some((last, its_place, host)) = &state.accesses.last
            && last.0 == newest
            && *its_place == place
            && !in_function
            && Arc::ptr_eq(host, &state.host)
        {
            return *last;
        }
        let chain = match state.accesses.chain {
            Some(chain) => chain,
            None => state.take_chain(),
        };
        state.accesses.chain = Some(chain);
        let command = state.add_command((0, false), &Appended::default());
        let execution = state.add_node(command, 0, chain);
        if state.accesses.reads_memory {
            let started = Arc::new(state.started.clone());
            if let Some(node) = state.node_mut(execution) {
                join(&mut node.host, &started);
            }
        }
        state.clock(execution);
        state.starts(execution);
        if let Some(node) = state.node_mut(execution) {
            node.has_started = true;
            node.is_final = true;
            let tick = node.tick;
            Arc::make_mut(&mut state.host).add(chain, tick);
        }
        if in_function {
            state.accesses.note_functions(execution);
        }
        let host = state.host.clone();
        state.accesses.last = (!in_function).then_some((execution, place, host));
        execution
    }
}

impl State {
    /// Whether an access may have taken place in a host function that comes before an execution.
    pub(super) fn is_in_function_before(&mut self, access: Execution, later: Execution) -> bool {
        let inside = &self.accesses.inside;
        let Ok(at) = inside.binary_search_by_key(&access, |it| it.0) else { return false };
        let functions = Arc::clone(&inside[at].1);
        functions.iter().any(|&it| self.is_before(it, later))
    }

    /// The host knows what comes before an execution in its chain.
    pub(super) fn knows_chain_before(&mut self, execution: Execution) {
        if let Some((chain, tick)) = self.node(execution).map(|it| (it.chain, it.tick)) {
            Arc::make_mut(&mut self.host).add(chain, tick - 1);
        }
    }

    /// An execution is about to be submitted: notes the memory that it uses.
    pub(super) fn uses_memory(&self, execution: Execution) {
        let Some(in_use) = &self.accesses.in_use else { return };
        let Some(node) = self.node(execution) else { return };
        let Some(command) = self.command(node.command) else { return };
        let place = (node.chain, node.tick);
        let launch = self.accesses.launches.get(&command.launch);
        for &Use { address, writes } in launch.into_iter().flat_map(|it| it.iter()) {
            in_use.uses(address, place, writes);
        }
        for transfer in command.transfers.iter() {
            let rows = [(&transfer.from, false), (&transfer.to, true)];
            for (rows, writes) in rows.into_iter().filter_map(|(it, to)| Some((it.as_ref()?, to))) {
                in_use.uses(rows.address, place, writes);
            }
        }
    }

    /// The host knows that further executions are complete.
    pub(super) fn host_knows_more(&self) {
        if let Some(in_use) = &self.accesses.in_use {
            in_use.review(|chain, tick| self.host.holds(chain, tick));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Awaited, Effect, Executed, Role};
    use super::*;

    const LIST: u64 = 0x1000;
    const OTHER: u64 = 0x2000;
    const EVENT: u64 = 0x9000;
    const CELL: u64 = 0xa000;
    const SIGNAL: Effect = Effect::Signal { address: EVENT, amount: 1, needed: 1 };

    /// Two in-order lists.
    fn lists() -> Order {
        let order = Order::default();
        order.stream_begins(LIST, true);
        order.stream_begins(OTHER, true);
        order
    }

    /// A command that the device tells when it starts.
    fn told() -> Appended {
        Appended { launch: 1, ..Appended::default() }
    }

    fn start(order: &Order, number: u32) -> Execution {
        order.started(number, 0).expect("it was appended").execution
    }

    #[test]
    fn an_access_comes_after_what_the_host_has_seen_and_before_what_it_submits_later() {
        let order = lists();
        let earlier = [order.append(LIST, 1, &told()), order.append(LIST, 2, &told())];
        let earlier = earlier.map(|it| start(&order, it));
        order.host_saw(Awaited::Counter { cell: LIST, value: 1 });
        let access = order.host_accesses(1);
        assert!(order.ordered(earlier[0], access), "the host has seen it");
        assert!(!order.ordered(earlier[1], access) && !order.ordered(access, earlier[1]));
        let later = order.append(OTHER, 1, &told());
        let later = start(&order, later);
        assert!(order.ordered(access, later) && !order.ordered(later, access));
        let second = order.host_accesses(1);
        assert!(second != access && order.ordered(access, second));
    }

    #[test]
    fn accesses_at_one_place_are_one_until_something_happens() {
        let order = lists();
        let number = order.append(LIST, 1, &told());
        start(&order, number);
        let access = order.host_accesses(1);
        assert_eq!(order.host_accesses(1), access);
        let other = order.host_accesses(2);
        assert_ne!(other, access, "another place");
        order.host_saw(Awaited::Counter { cell: LIST, value: 1 });
        assert_ne!(order.host_accesses(2), other, "the host knows more");
    }

    #[test]
    fn a_signal_by_the_host_orders_what_it_has_accessed() {
        let order = lists();
        let waits = vec![Awaited::Word { address: EVENT, needed: 1 }];
        let waiter = order.append(LIST, 1, &Appended { has_waits: true, waits, ..told() });
        let before = order.host_accesses(1);
        order.host_affects(SIGNAL);
        let behind = order.host_accesses(2);
        let waiter = start(&order, waiter);
        assert!(order.ordered(before, waiter) && !order.ordered(behind, waiter));
    }

    #[test]
    fn what_a_host_function_accesses_comes_before_what_follows_it_in_the_list() {
        let order = lists();
        let first = order.append(LIST, 1, &told());
        let function =
            order.append(LIST, 2, &Appended { role: Role::HostFunction, ..Appended::default() });
        let later = order.append(LIST, 3, &told());
        let other = order.append(OTHER, 1, &told());
        order.calls_function(function, CELL);
        let first = start(&order, first);
        start(&order, function);
        let at_once = order.host_accesses(1);
        assert!(order.ordered(first, at_once), "the function runs behind it");
        // Whatever the host is taken to know.
        order.state().host_saw_something();
        let inside = order.host_accesses(1);
        assert_ne!(order.host_accesses(1), inside, "functions differ");
        order.function_returns(CELL);
        let elsewhere = order.host_accesses(2);
        let (later, other) = (start(&order, later), start(&order, other));
        assert!(order.ordered(inside, later) && !order.ordered(inside, other));
        assert!(!order.ordered(elsewhere, later), "no function ran");
    }

    #[test]
    fn a_program_with_words_of_its_own_may_know_of_all_that_has_started() {
        let order = lists();
        let numbers = [order.append(LIST, 1, &told()), order.append(OTHER, 1, &told())];
        let first = start(&order, numbers[0]);
        assert!(!order.ordered(first, order.host_accesses(1)));
        order.host_has_words();
        let access = order.host_accesses(2);
        assert!(order.ordered(first, access));
        let later = order.append(OTHER, 2, &told());
        let later = start(&order, later);
        assert!(!order.ordered(first, later), "that does not count for commands");
        let second = start(&order, numbers[1]);
        assert!(!order.ordered(second, access));
    }

    #[test]
    fn a_list_that_resets_what_it_waits_for_waits_for_a_signal_in_each_execution() {
        let order = lists();
        order.recording_begins(1, true, None);
        let waits = vec![Awaited::Word { address: EVENT, needed: 1 }];
        let wait = Appended { has_waits: true, waits, ..told() };
        let effects = vec![Effect::Reset { address: EVENT }];
        let reset = Appended { role: Role::Last, effects, ..Appended::default() };
        let numbers = [wait, reset, told()].map(|it| {
            let number = order.number(1, &it);
            order.recorded(1, number, it, None);
            number
        });
        for base in 0..2 {
            let list = [Executed { recording: 1, base }];
            order.execute(LIST, base + 1, &list, None, Vec::new());
        }
        let run = |base| {
            let all = numbers.map(|it| order.started(it, base).expect("it was executed"));
            all[2].execution
        };
        order.host_affects(SIGNAL);
        let first = run(0);
        let access = order.host_accesses(1);
        order.host_affects(SIGNAL);
        let late = order.host_accesses(2);
        let second = run(1);
        assert!(!order.ordered(access, first) && order.ordered(access, second));
        assert!(!order.ordered(late, second), "it need not wait for that");
    }
}

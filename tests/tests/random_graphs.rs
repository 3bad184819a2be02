// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random graphs whose commands race, and what the driver's checks say of them: graphs with races have a report, and
//! each report is a race by what the test knows of the order.
//!
//! Each case captures a graph with forks, makes two executable graphs of it, and executes these on two lists, with
//! commands of a third list before and after them. The graph may have another one in it, which has forks, too.
//! TALLY_PROGRAMS and TALLY_SEED set the number of cases and the first one, TALLY_FIRST the number of a seed's first
//! case.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::ptr;

use tally_tests::check;
use tally_tests::checks_log::{LOG, Log, Pair, told};
use tally_tests::graph::{Executable, Graph, KERNEL, begin, end, instantiate, run};
use tally_tests::lists::{Event, List, raw, raws};
use tally_tests::ze::{self, Gpu, Usm};
use tally_ze::*;

const CELLS: usize = 5;
const LISTS: usize = 3;

#[test]
fn the_driver_tells_the_races_in_graphs() {
    told("graphs", "graphs", &[]);
}

/// The operation of a command, on cells.
#[derive(Clone, Copy, Debug)]
enum Op {
    Fill(usize),
    Copy(usize, usize),
    /// A kernel that adds to a cell.
    Add(usize),
    /// An execution of the inner graph.
    Graph,
}

/// A command that is captured.
#[derive(Clone, Debug)]
struct Captured {
    list: usize,
    op: Op,
    /// Earlier commands of other lists.
    waits: Vec<usize>,
    /// The number of its append.
    place: usize,
}

/// An execution: which of the executable graphs, on which list; the command of the last list before it, and whether it
/// waits for that; the one after it, and whether that waits for it; whether the host waits for it.
#[derive(Clone, Copy, Debug)]
struct Execution {
    graph: usize,
    list: usize,
    before: Option<(Op, bool)>,
    after: Option<(Op, bool)>,
    waits: bool,
}

struct Random(u64);

impl Random {
    fn of(seed: u64, case: u64) -> Self {
        Self(seed.wrapping_mul(1 << 32).wrapping_add(case + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn op(&mut self) -> Op {
        match self.below(3) {
            0 => Op::Fill(self.below(CELLS)),
            1 => Op::Copy(self.below(CELLS), self.below(CELLS)),
            _ => Op::Add(self.below(CELLS)),
        }
    }

    /// A command outside of a graph, and whether there is a wait between the two.
    fn beside(&mut self) -> Option<(Op, bool)> {
        self.one_in(2).then(|| (self.op(), self.one_in(2)))
    }
}

/// The commands of a graph.
fn commands(random: &mut Random, count: usize, has_inner: bool) -> Vec<Captured> {
    let mut all: Vec<Captured> = Vec::new();
    for number in 0..count {
        let list = if number == 0 { 0 } else { random.below(LISTS) };
        let op = if has_inner && random.one_in(5) { Op::Graph } else { random.op() };
        let others: Vec<usize> = (0..number).filter(|&it| all[it].list != list).collect();
        let is_new = list != 0 && !all.iter().any(|it| it.list == list);
        let mut waits = BTreeSet::new();
        for round in 0..3 {
            if !others.is_empty() && (round == 0 && is_new || random.one_in(3)) {
                waits.insert(others[random.below(others.len())]);
            }
        }
        all.push(Captured { list, op, waits: waits.into_iter().collect(), place: 0 });
    }
    all
}

/// What commands need.
struct World {
    gpu: Gpu,
    kernel: ze_kernel_handle_t,
    memory: Usm<u32>,
    lists: Vec<List>,
}

impl World {
    /// Appends a command to a list. `inner`: the graph that it may execute.
    fn append(
        &self,
        list: usize,
        op: Op,
        inner: Option<&Executable>,
        signal: Option<&Event>,
        waits: &[&Event],
    ) {
        let (list, memory) = (&self.lists[list], &self.memory);
        match op {
            Op::Fill(to) => list.set((memory, to), 7, signal, waits),
            Op::Copy(to, from) => list.copy((memory, to), (memory, from), 1, signal, waits),
            Op::Graph => run(list, inner.expect("there is one"), signal, waits),
            Op::Add(to) => {
                let (at, value) = (memory.ptr().wrapping_add(to), 1_u32);
                check!(zeKernelSetArgumentValue(self.kernel, 0, 8, ptr::from_ref(&at).cast()));
                check!(zeKernelSetArgumentValue(self.kernel, 1, 4, ptr::from_ref(&value).cast()));
                let mut waits = raws(waits);
                let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
                check!(zeCommandListAppendLaunchKernel(
                    list.0,
                    self.kernel,
                    &raw const one,
                    raw(signal),
                    waits.len() as u32,
                    waits.as_mut_ptr()
                ));
            }
        }
    }

    /// Captures commands; sets their places. `appended`: the number of appends so far.
    fn capture(
        &self,
        commands: &mut [Captured],
        inner: Option<&Executable>,
        appended: &mut usize,
    ) -> ([Executable; 2], Graph) {
        let lists = &self.lists;
        begin(&lists[0]);
        let mut events: Vec<Event> = Vec::new();
        for it in commands.iter_mut() {
            it.place = *appended;
            *appended += 1;
            let event = self.gpu.cb_event();
            let waits: Vec<&Event> = it.waits.iter().map(|&of| &events[of]).collect();
            self.append(it.list, it.op, inner, Some(&event), &waits);
            events.push(event);
        }
        let last = |list| commands.iter().rposition(|it| it.list == list);
        let joins: Vec<&Event> = (1..LISTS).filter_map(last).map(|it| &events[it]).collect();
        if !joins.is_empty() {
            lists[0].wait(&joins);
            *appended += 1;
        }
        let graph = end(&lists[0]);
        ([instantiate(&graph), instantiate(&graph)], graph)
    }
}

/// What comes before what: for each node those before it.
#[derive(Default)]
struct Order {
    before: Vec<BTreeSet<usize>>,
    /// The accesses: node, number of the append, cell, whether it writes.
    accesses: Vec<(usize, usize, usize, bool)>,
}

impl Order {
    fn node(&mut self, after: &[usize]) -> usize {
        let mut before = BTreeSet::new();
        for &it in after {
            before.insert(it);
            before.extend(self.before[it].clone());
        }
        self.before.push(before);
        self.before.len() - 1
    }

    /// Adds the accesses of a command, which is a node, and was appended at this place.
    fn access(&mut self, node: usize, op: Op, place: usize) {
        let mut access = |cell, writes| self.accesses.push((node, place, cell, writes));
        match op {
            Op::Fill(to) | Op::Add(to) => access(to, true),
            Op::Copy(to, from) => {
                access(from, false);
                access(to, true);
            }
            Op::Graph => {}
        }
    }

    /// Adds the commands of a graph that begins after a node; returns the end.
    fn graph(&mut self, commands: &[Captured], inner: &[Captured], begin: usize) -> usize {
        let mut ends: Vec<usize> = Vec::new();
        for (number, it) in commands.iter().enumerate() {
            let last = (0..number).rfind(|&of| commands[of].list == it.list);
            let mut after: Vec<usize> = it.waits.iter().map(|&of| ends[of]).collect();
            after.extend(last.map(|of| ends[of]));
            after.push(begin);
            let node = self.node(&after);
            self.access(node, it.op, it.place);
            ends.push(if let Op::Graph = it.op { self.graph(inner, &[], node) } else { node });
        }
        ends.push(begin);
        self.node(&ends)
    }

    fn races(&self) -> BTreeSet<Pair> {
        let mut races = BTreeSet::new();
        for (at, &(one, first, cell, writes)) in self.accesses.iter().enumerate() {
            for &(two, second, other, also) in &self.accesses[at + 1..] {
                let ordered = one == two || self.before[two].contains(&one);
                if cell == other && (writes || also) && !ordered {
                    races.insert((first.min(second), first.max(second)));
                }
            }
        }
        races
    }
}

/// A case while its commands are submitted.
struct Case<'a> {
    world: &'a World,
    order: Order,
    appended: usize,
    /// The ends of the latest execution of each executable graph, and on each list.
    of_graph: [Option<usize>; 2],
    of_list: [Option<usize>; LISTS],
    /// What the host has waited for.
    seen: Vec<usize>,
}

impl Case<'_> {
    /// A command of the last list, which may wait for an event of a node.
    fn beside(&mut self, op: Op, signal: Option<&Event>, waits: Option<(&Event, usize)>) -> usize {
        self.world.append(LISTS - 1, op, None, signal, waits.map(|it| it.0).as_slice());
        let mut after = self.seen.clone();
        after.extend(self.of_list[LISTS - 1].into_iter().chain(waits.map(|it| it.1)));
        let node = self.order.node(&after);
        self.order.access(node, op, self.appended);
        self.of_list[LISTS - 1] = Some(node);
        self.appended += 1;
        node
    }

    fn execute(
        &mut self,
        it: Execution,
        graph: &Executable,
        outer: &[Captured],
        inner: &[Captured],
    ) {
        let [first, second] = [self.world.gpu.cb_event(), self.world.gpu.cb_event()];
        let mut after = self.seen.clone();
        after.extend([self.of_graph[it.graph], self.of_list[it.list]].into_iter().flatten());
        let mut waits: Vec<&Event> = Vec::new();
        if let Some((op, awaited)) = it.before {
            let node = self.beside(op, Some(&first), None);
            after.extend(awaited.then_some(node));
            waits.extend(awaited.then_some(&first));
        }
        run(&self.world.lists[it.list], graph, Some(&second), &waits);
        self.appended += 1;
        let begin = self.order.node(&after);
        let end = self.order.graph(outer, inner, begin);
        (self.of_graph[it.graph], self.of_list[it.list]) = (Some(end), Some(end));
        if let Some((op, waits)) = it.after {
            self.beside(op, None, waits.then_some((&second, end)));
        }
        if it.waits {
            self.world.lists[it.list].synchronize();
            self.seen.push(end);
        }
    }
}

fn tell(world: &mut World, random: &mut Random, log: &mut Log) -> Result<BTreeSet<Pair>, String> {
    world.memory = world.gpu.host::<u32>(CELLS * 16);
    world.lists = (0..LISTS).map(|_| world.gpu.immediate(0, true)).collect();
    let mut appended = 0;
    let has_inner = random.one_in(2);
    let mut inner = if has_inner { commands(random, 3, false) } else { Vec::new() };
    let parts = has_inner.then(|| world.capture(&mut inner, None, &mut appended));
    let count = 2 + random.below(7);
    let mut outer = commands(random, count, has_inner);
    let part = parts.as_ref().map(|it| &it.0[0]);
    let (graphs, _graph) = world.capture(&mut outer, part, &mut appended);
    let mut case = Case {
        world,
        order: Order::default(),
        appended,
        of_graph: [None; 2],
        of_list: [None; LISTS],
        seen: Vec::new(),
    };
    let mut executions = Vec::new();
    for _ in 0..1 + random.below(3) {
        let (graph, list) = (random.below(2), random.below(2));
        let (before, after) = (random.beside(), random.beside());
        let it = Execution { graph, list, before, after, waits: random.one_in(3) };
        case.execute(it, &graphs[graph], &outer, &inner);
        executions.push(it);
    }
    world.lists.iter().for_each(List::synchronize);
    let (logged, told) = log.take();
    let racing = case.order.races();
    let what = || format!("{inner:?}\n{outer:?}\n{executions:?}");
    if logged != case.appended {
        return Err(format!("{logged} commands instead of {}:\n{}", case.appended, what()));
    }
    if let Some(pair) = told.difference(&racing).next() {
        return Err(format!("{pair:?} is no race, {racing:?} are:\n{}", what()));
    }
    if told.is_empty() && !racing.is_empty() {
        return Err(format!("none of the races was told: {racing:?}\n{}", what()));
    }
    Ok(told)
}

#[test]
#[ignore = "runs in a child process"]
fn graphs() {
    let number =
        |name, default| env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default);
    let (cases, seed) = (number("TALLY_PROGRAMS", 200), number("TALLY_SEED", 1));
    let mut log = Log::new(PathBuf::from(env::var_os(LOG).expect("the parent sets it")));
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
    let kernel = gpu.kernel(module, "add");
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    let memory = gpu.host::<u32>(CELLS);
    let mut world = World { gpu, kernel, memory, lists: Vec::new() };
    let (mut racing, mut pairs) = (0, 0);
    let first = number("TALLY_FIRST", 0);
    for case in first..first + cases {
        match tell(&mut world, &mut Random::of(seed, case), &mut log) {
            Ok(told) => {
                racing += u64::from(!told.is_empty());
                pairs += told.len();
            }
            Err(reason) => panic!("case {case} of the seed {seed}: {reason}"),
        }
    }
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
    println!("{cases} graphs, {racing} with races, {pairs} pairs told");
    assert!(cases < 100 || racing > cases / 10 && racing < cases, "{racing} have races");
}

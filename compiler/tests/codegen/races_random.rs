// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random kernels whose items access common memory: what is found in them is compared with an oracle, which
//! keeps every access to every byte with the clocks of all items, for a run by the interpreter.
//!
//! A kernel in which the oracle finds races must be told at least one of them, and none that the oracle does
//! not find; about any other kernel nothing may be told. `TALLY_SEED` and `TALLY_PROGRAMS` choose the
//! kernels.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use tally_compiler::interp::{self, Access, Event, Launch, Memory};
use tally_compiler::ir::{Module, Ordering, Scope};

use super::harness::clang::compile_text;
use super::harness::{self, Arg, Grid, Kernel, module, widths};
use super::programs::seeds;
use super::races::{BOTH, Race, Seen, World};
use super::reference::Rng;

/// Items of a group, items of a launch, bytes of each buffer and of local memory.
const GROUP: u32 = 32;
const ITEMS: u32 = 96;
const BUFFER: usize = 2048;
const LOCAL: usize = 512;
/// Kernels of a module: clang takes as long as they do.
const TOGETHER: u64 = 8;

/// The text of a kernel, and whether its atomics order accesses.
struct Random {
    rng: Rng,
    text: String,
    statements: usize,
    orders: bool,
}

impl Random {
    fn kernel(seed: u64, name: &str) -> (String, bool) {
        let mut rng = Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let orders = rng.below(3) == 0;
        let mut random = Self { rng, text: String::new(), statements: 0, orders };
        let count = 2 + random.rng.below(5);
        random.block(count, 0);
        let body = random.text;
        let text = format!(
            "kernel void {name}(global uint *a, global uint *b, global uint *o, global atomic_uint *f) {{
    local uint s[{}]; local atomic_uint l[4];
    int i = get_local_id(0), g = get_global_id(0), w = get_group_id(0); uint acc = 0;
{body}    o[g] = acc;
}}
",
            LOCAL / 4
        );
        (text, orders)
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n)
    }

    fn block(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            let indent = "    ".repeat(depth + 1);
            match self.below(12) {
                0 if depth < 2 => {
                    let condition = self.condition();
                    let _ = writeln!(self.text, "{indent}if ({condition}) {{");
                    // Barriers are not in branches: all items have to reach them.
                    let inner = 1 + self.below(2);
                    self.block(inner, depth + 2);
                    let _ = writeln!(self.text, "{indent}}}");
                }
                1 if depth == 0 => {
                    let _ = writeln!(self.text, "{indent}for (int k = 0; k < 3; k++) {{");
                    let inner = 1 + self.below(3);
                    self.block(inner, 1);
                    let _ = writeln!(self.text, "{indent}}}");
                }
                2 | 3 if depth < 2 => {
                    let barrier = match self.below(4) {
                        0 => "sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
                        _ => "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
                    };
                    let _ = writeln!(self.text, "{indent}{barrier}");
                }
                4 if self.orders => self.order(&indent),
                _ => self.access(&indent),
            }
        }
    }

    fn condition(&mut self) -> String {
        let n = self.below(GROUP as usize);
        match self.below(5) {
            0 => format!("i < {n}"),
            1 => format!("i == {n}"),
            2 => format!("w == {}", n % 3),
            3 => format!("(i ^ {n}) % 4 == 0"),
            _ => format!("i >= {n}"),
        }
    }

    /// An index below `n` for items of a group, or of the launch.
    fn index(&mut self, n: usize, of_launch: bool) -> String {
        let own = if of_launch { "g" } else { "i" };
        let far = self.below(n);
        match self.below(9) {
            0 => format!("{own} ^ 1"),
            1 => format!("({own} + {far}) % {n}"),
            2 => format!("{own} / 2"),
            3 => format!("{far}"),
            4 => format!("{} - {own}", if of_launch { ITEMS - 1 } else { GROUP - 1 }),
            5 if of_launch => format!("w * {GROUP} + (i + {far}) % {GROUP}"),
            _ => own.to_owned(),
        }
    }

    fn access(&mut self, indent: &str) {
        self.statements += 1;
        let statement = self.statements;
        let local = self.below(2) == 0;
        let bytes = if local { LOCAL } else { BUFFER };
        let place = if local { "s" } else { ["a", "b"][self.below(2)] };
        let (ty, size) = [
            ("uint", 4),
            ("uint", 4),
            ("uint", 4),
            ("uchar", 1),
            ("ushort", 2),
            ("ulong", 8),
            ("uint4", 16),
        ][self.below(7)];
        // Wide ones leave no room for all items; then indices wrap round.
        let n = bytes / size;
        let index = self.index(n.min(if local { GROUP } else { ITEMS } as usize), !local);
        let space = if local { "local" } else { "global" };
        let at = format!("(({space} {ty} *){place})[({index}) % {n}]");
        let number = format!("({ty})(g * 8 + {statement})");
        let part = if size == 16 { ".y" } else { "" };
        let _ = match self.below(if size == 4 { 6 } else { 4 }) {
            0 | 1 => writeln!(self.text, "{indent}{at} = {number};"),
            2 => writeln!(self.text, "{indent}acc += {at}{part};"),
            3 => writeln!(self.text, "{indent}{at} += {number};"),
            4 => writeln!(self.text, "{indent}atomic_add(&{at}, g);"),
            _ => writeln!(self.text, "{indent}acc += atomic_max(&{at}, g);"),
        };
    }

    /// An atomic or a fence that orders accesses, by one item of each group.
    fn order(&mut self, indent: &str) {
        let orders = ["relaxed", "acquire", "release", "acq_rel"];
        let order = orders[self.below(4)];
        let scope = ["work_group", "device", "device"][self.below(3)];
        let item = self.below(GROUP as usize);
        let far = self.below(2);
        let at = ["f", "l"][self.below(2)];
        let _ = match self.below(3) {
            0 if order != "relaxed" => writeln!(
                self.text,
                "{indent}atomic_work_item_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE, memory_order_{order}, memory_scope_{scope});"
            ),
            _ => writeln!(
                self.text,
                "{indent}if (i == {item}) atomic_fetch_add_explicit({at} + {far}, 1, memory_order_{order}, memory_scope_{scope});"
            ),
        };
    }
}

/// A clock for each item.
type Clock = Vec<u32>;

/// One access to a byte.
#[derive(Clone, Copy)]
struct Touch {
    seen: Seen,
    stamp: u32,
    atomic: bool,
}

/// What a location's atomics have released: the group and its scope, and the clock.
type Released = Vec<(u32, bool, Clock)>;

/// The races of a run.
#[derive(Default)]
struct Oracle {
    clocks: Vec<Clock>,
    bytes: HashMap<(Option<u32>, u64), Vec<Touch>>,
    releases: HashMap<(Option<u32>, u64), Released>,
    /// Of each item: what fences may make it acquire, and what it releases by its atomics since a fence.
    pending: HashMap<usize, Released>,
    fences: HashMap<usize, (bool, Clock)>,
    races: BTreeSet<(Seen, Seen)>,
}

fn join(to: &mut Clock, from: &Clock) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*to).max(*from);
    }
}

fn is_wide(scope: Scope) -> bool {
    matches!(scope, Scope::Device | Scope::System)
}

fn acquires(ordering: Ordering) -> bool {
    matches!(ordering, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

fn releases(ordering: Ordering) -> bool {
    matches!(ordering, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

impl Oracle {
    fn of(events: &[Event]) -> Self {
        let mut clocks = vec![vec![0; ITEMS as usize]; ITEMS as usize];
        clocks.iter_mut().enumerate().for_each(|(i, clock)| clock[i] = 1);
        let mut oracle = Self { clocks, ..Self::default() };
        for event in events {
            match event {
                Event::Access(access) => oracle.access(access),
                Event::Released { group, items } => {
                    let all: Vec<usize> =
                        items.iter().map(|item| (group * GROUP + item) as usize).collect();
                    let mut joined = vec![0; ITEMS as usize];
                    all.iter().for_each(|&item| join(&mut joined, &oracle.clocks[item]));
                    for item in all {
                        oracle.clocks[item] = joined.clone();
                        oracle.clocks[item][item] += 1;
                    }
                }
                &Event::Fence { group, item, scope, ordering } => {
                    let item = (group * GROUP + item) as usize;
                    if acquires(ordering) {
                        for (other, wide, clock) in
                            oracle.pending.get(&item).cloned().unwrap_or_default()
                        {
                            if other == group || (wide && is_wide(scope)) {
                                join(&mut oracle.clocks[item], &clock);
                            }
                        }
                    }
                    if releases(ordering) {
                        oracle.fences.insert(item, (is_wide(scope), oracle.clocks[item].clone()));
                        oracle.clocks[item][item] += 1;
                    }
                }
            }
        }
        oracle
    }

    fn access(&mut self, access: &Access) {
        let &Access { group, item, address, local, size, reads, writes, atomic, word } = access;
        let number = (group * GROUP + item) as usize;
        let space = local.then_some(group);
        let seen = Seen { word, writes, group, item };
        let touch = Touch { seen, stamp: self.clocks[number][number], atomic: atomic.is_some() };
        for byte in address..address + size {
            let earlier = self.bytes.entry((space, byte)).or_default();
            for other in earlier.iter() {
                let by = (other.seen.group * GROUP + other.seen.item) as usize;
                let conflict = (writes || other.seen.writes) && !(touch.atomic && other.atomic);
                if conflict && by != number && other.stamp > self.clocks[number][by] {
                    self.races.insert((other.seen.min(seen), other.seen.max(seen)));
                }
            }
            earlier.push(touch);
        }
        let Some((ordering, scope)) = atomic else { return };
        let released = self.releases.entry((space, address)).or_default();
        let before = released.clone();
        if writes {
            if releases(ordering) {
                released.push((group, is_wide(scope), self.clocks[number].clone()));
                self.clocks[number][number] += 1;
            } else if let Some((wide, clock)) = self.fences.get(&number) {
                released.push((group, *wide && is_wide(scope), clock.clone()));
            }
        }
        if reads {
            for (other, wide, clock) in before {
                if other != group && !(wide && is_wide(scope)) {
                    continue;
                }
                match acquires(ordering) {
                    true => join(&mut self.clocks[number], &clock),
                    false => self.pending.entry(number).or_default().push((other, wide, clock)),
                }
            }
        }
    }
}

/// What the interpreter does with a kernel.
fn events(module: &Module, name: &str) -> Vec<Event> {
    let (index, kernel) = module.kernel(name).expect("it is there");
    assert_eq!(kernel.args.len(), 4);
    let mut memory = Memory::new();
    let at = |i: u64| 0x1_0000 * (i + 1);
    for i in 0..4 {
        memory.map(at(i), vec![0; BUFFER]).expect("room");
    }
    memory.begin_trace();
    let args: Vec<interp::Arg> = (0..4).map(|i| interp::Arg::pointer(at(i))).collect();
    let launch = Launch::linear(ITEMS.into(), GROUP);
    interp::run(module, index, &launch, &args, &mut memory)
        .unwrap_or_else(|error| panic!("{error}"));
    memory.take_trace()
}

fn ordered(race: &Race) -> (Seen, Seen) {
    (race.later.min(race.earlier), race.later.max(race.earlier))
}

#[test]
fn random_kernels_are_told_what_an_oracle_finds() {
    let seeds: Vec<u64> = seeds(64).collect();
    let (mut racy, mut dropped) = (0_usize, 0_usize);
    for some in seeds.chunks(TOGETHER as usize) {
        let kernels: Vec<(String, bool)> =
            some.iter().map(|seed| Random::kernel(*seed, &format!("k{seed}"))).collect();
        let text: String = kernels.iter().map(|it| it.0.as_str()).collect();
        let module = module(&compile_text(&text, &[if some[0] % 2 == 0 { "-O0" } else { "-O2" }]));
        for (seed, (text, orders)) in some.iter().zip(&kernels) {
            let name = format!("k{seed}");
            let oracle = Oracle::of(&events(&module, &name)).races;
            racy += usize::from(!oracle.is_empty());
            // Where atomics order accesses, what is ordered depends on the order in which items run.
            let all: Vec<_> =
                widths().into_iter().filter(|(_, lanes)| *lanes == 1 || !orders).collect();
            let (target, lanes) = &all[*seed as usize / 2 % all.len()];
            let kernel = Kernel::checked(&module, &name, target, *lanes, BOTH);
            let mut world = World::new().with_equal_values();
            // Again, with what the launches before have left in the cells.
            let mut is_dropped = false;
            for launch in 1..=3 {
                let args: Vec<Arg<'_>> = (0..4).map(|i| world.at(4096 + i * 4096)).collect();
                let (found, parted) = world.run(&kernel, Grid::line(ITEMS.into(), GROUP), args);
                assert_eq!(parted, [], "{text}");
                let which = format!("seed {seed}, {lanes} lanes, launch {launch}");
                for race in &found {
                    assert!(oracle.contains(&ordered(race)), "{which}: {race:?} in\n{text}");
                }
                let forgot = world.has_dropped();
                if found.is_empty() && !oracle.is_empty() {
                    assert!(forgot, "{which}: none of {oracle:?} in\n{text}");
                    is_dropped = true;
                }
            }
            dropped += usize::from(is_dropped);
        }
    }
    println!(
        "{} kernels, {racy} with races, of {dropped} something was forgotten and nothing told",
        seeds.len()
    );
    assert!(dropped * 50 <= seeds.len(), "{dropped} of {}", seeds.len());
    let _ = harness::targets;
}

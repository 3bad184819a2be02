// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random kernels that count: relaxed atomic additions, which groups may sum up, among what forbids that. Results that
//! depend on the order of the items are only compared with what any order allows; the number of those that do not keep
//! to it is a result itself.

use std::fmt::Write;

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::{lanes, widen};

use crate::diff::{Input, Mismatch, Random, Run, compare_at, compare_with};
use crate::harness::{Grid, Kernel, clang, module, targets, widths};
use crate::programs::seeds;

/// The types of what is counted, with the names that atomics have in OpenCL 2.0.
const TYPES: [(&str, &str, u64); 4] = [
    ("int", "atomic_int", 4),
    ("uint", "atomic_uint", 4),
    ("long", "atomic_long", 8),
    ("ulong", "atomic_ulong", 8),
];

/// The items' numbers, and the places of all but the last of [`PARTS`]: more than there are sums of in some launches.
const MOST: [u64; 4] = [3, 60, 1500, 9000];

/// The parts of the counted memory: the first two are counted up and down, the third one only up.
const PARTS: u64 = 3;

struct Program {
    random: Random,
    text: String,
    /// The type of what is counted.
    ty: (&'static str, &'static str, u64),
    /// The places of each part, of which there are as many as numbers.
    most: u64,
    /// Whether the kernel has additions alone from here on.
    only_adds: bool,
    depth: u32,
}

impl Program {
    fn write(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut program = Self {
            ty: TYPES[random.below(4) as usize],
            most: MOST[random.below(4) as usize],
            // Most programs do nothing that would forbid sums.
            only_adds: random.below(4) > 0,
            random,
            text: String::new(),
            depth: 0,
        };
        program.kernel();
        program
    }

    fn of(&mut self, list: &[&'static str]) -> &'static str {
        list[self.random.below(list.len() as u64) as usize]
    }

    fn kernel(&mut self) {
        let (ty, ..) = self.ty;
        let _ = writeln!(
            self.text,
            "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
             #pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
             kernel void count(global {ty} *bins, global const int *x, global int *out, global uint *tickets,
                               global uint *errors, int n) {{
               size_t at = get_global_linear_id();
               size_t items = get_global_size(0) * get_global_size(1) * get_global_size(2);
               int i = get_global_id(0), v = x[at], k = x[at / 3], q = 0; uint u = v;"
        );
        match self.random.below(8) {
            0 => self.text += "if (v % 5 == 1) return;\n",
            1 => self.text += "if (i >= n) return;\n",
            2 => self.text += "for (int t = 0; t < (v & 7); t++) q += x[at / 2] * t;\n",
            3 => self.text += "if (k & 1) { out[at] = v; if (v & 2) return; }\n",
            _ => {}
        }
        for _ in 0..self.random.below(3) {
            self.before();
        }
        for _ in 0..2 + self.random.below(4) {
            self.after();
        }
        self.text += "}\n";
    }

    /// What may come before additions.
    fn before(&mut self) {
        match self.random.below(5) {
            0 => self.text += "out[at] = v * 3 + i;\n",
            1 => self.text += "q += out[at];\n",
            // Each ticket is given once, of two for each item.
            2 => self.text += "u = atomic_inc(tickets); out[items + u] = 7; u = k;\n",
            3 => self.text += "atomic_max(&tickets[1], (uint)v);\n",
            _ => self.text += "if (*(volatile global uint *)&tickets[2]) q++;\n",
        }
    }

    fn condition(&mut self) -> &'static str {
        self.of(&["v & 1", "k % 3 == 0", "i < n", "v > k", "u & 4", "i % 7 != 2", "n > 5"])
    }

    /// A place of a part.
    fn place(&mut self, part: u64) -> String {
        let most = self.most;
        let place = match self.random.below(9) {
            0 => format!("(uint)(v * 3) % {most}"),
            1 => format!("(uint)k % {most}"),
            2 => format!("(uint)(v ^ k) % {most}"),
            3 => format!("(uint)i % {most}"),
            4 => "1".into(),
            5 => format!("({} ? v : 2)", self.condition()),
            _ => "v".into(),
        };
        format!("&bins[{} + {place}]", part * most)
    }

    /// A number that is added; `up`: at least 1.
    fn amount(&mut self, up: bool) -> String {
        let (ty, ..) = self.ty;
        match self.random.below(if up { 3 } else { 6 }) {
            0 => format!("({ty})1"),
            1 => format!("({ty})((v & 15) + 1)"),
            2 => format!("({ty})((k & 1) + 2)"),
            3 => format!("({ty})(v * k - i)"),
            4 => format!("({ty})(v & 1)"),
            _ => format!("({ty})(q + 0x12345678) * ({ty})(k | 1) * 777"),
        }
    }

    /// An addition. With an order or a scope of its own groups may keep no sums.
    fn add(&mut self, plain: bool) {
        let (_, atomic, _) = self.ty;
        let up = self.random.below(3) == 0;
        let part = if up { 2 } else { self.random.below(2) };
        let place = self.place(part);
        let amount = self.amount(up);
        let name = if up || self.random.below(3) > 0 { "add" } else { "sub" };
        let (order, scope) = match plain {
            true => ("relaxed", self.of(&["device", "work_group", "sub_group", "work_item"])),
            false => (
                self.of(&["relaxed", "acquire", "release", "acq_rel", "seq_cst"]),
                self.of(&["device", "all_svm_devices"]),
            ),
        };
        let _ = match self.random.below(3) {
            0 if plain => writeln!(self.text, "atom_{name}({place}, {amount});"),
            // A scope within the group would not be enough: other groups add to the same place.
            _ => {
                let scope =
                    if matches!(scope, "device" | "all_svm_devices") { scope } else { "device" };
                writeln!(
                    self.text,
                    "atomic_fetch_{name}_explicit((volatile global {atomic} *)({place}), {amount}, \
                     memory_order_{order}, memory_scope_{scope});"
                )
            }
        };
    }

    /// An addition, or what is done around one.
    fn after(&mut self) {
        self.depth += 1;
        let shallow = self.depth < 4;
        match self.random.below(if self.only_adds { 9 } else { 16 }) {
            0 | 1 if shallow => {
                let condition = self.condition();
                let _ = writeln!(self.text, "if ({condition}) {{");
                self.after();
                if self.random.below(2) == 0 {
                    self.text += "} else {\n";
                    self.after();
                }
                self.text += "}\n";
            }
            2 if shallow => {
                let number = self.of(&["v", "k", "i"]);
                let _ = writeln!(self.text, "switch ({number} & 3) {{ case 0:");
                self.after();
                self.text += "case 2:\n";
                self.after();
                self.text += "break; default:\n";
                self.after();
                self.text += "}\n";
            }
            3 => {
                let condition = self.condition();
                let _ = writeln!(self.text, "if ({condition}) return;");
            }
            9 => self.add(false),
            10 => self.seen(),
            11 => self.passed_on(),
            12 => self.text += "out[at] ^= k;\n",
            13 if shallow => {
                self.text += "for (int t = 0; t < (k & 3); t++) {\n";
                self.add(true);
                self.text += "}\n";
            }
            14 => {
                let (place, amount) = (self.place(2), self.amount(true));
                // What an addition gives is what was there: nothing that has been added makes it less.
                let _ =
                    writeln!(self.text, "if (atom_add({place}, {amount}) < 0) atomic_inc(errors);");
            }
            15 => self.text += "atomic_xchg(&tickets[3], 5u);\n",
            _ => self.add(true),
        }
        self.depth -= 1;
    }

    /// An item sees what it has added itself.
    fn seen(&mut self) {
        let (ty, atomic, _) = self.ty;
        let place = self.place(2);
        let read = self.of(&["relaxed", "seq_cst"]);
        let _ = writeln!(
            self.text,
            "{{ global {ty} *p = {place}; atom_add(p, ({ty})3);
                {ty} seen = atomic_load_explicit((volatile global {atomic} *)p, memory_order_{read},
                                                 memory_scope_device);
                if (seen < 3) atomic_inc(errors); }}"
        );
    }

    /// Who finds out that an item has passed sees what that has added before.
    fn passed_on(&mut self) {
        let (ty, atomic, _) = self.ty;
        let place = 2 * self.most;
        let (load, store) = match self.random.below(2) {
            0 => ("acquire", "release"),
            _ => ("seq_cst", "seq_cst"),
        };
        let _ = writeln!(
            self.text,
            "{{ global {ty} *p = &bins[{place} + (v & 1)];
                volatile global atomic_uint *flag = (volatile global atomic_uint *)&tickets[4 + (v & 1)];
                if (atomic_load_explicit(flag, memory_order_{load}, memory_scope_device) == 1u) {{
                  {ty} seen = atomic_load_explicit((volatile global {atomic} *)p, memory_order_relaxed,
                                                   memory_scope_device);
                  if (seen < 2) atomic_inc(errors);
                }}
                atom_add(p, ({ty})2);
                atomic_store_explicit(flag, 1u, memory_order_{store}, memory_scope_device); }}"
        );
    }

    /// Launches of many groups, of which some run as one, or of groups with more items than there is patience for.
    fn runs(&mut self) -> Vec<Run> {
        let grids = [
            Grid { offset: [0; 3], global: [4096, 1, 1], group: [16, 1, 1] },
            Grid { offset: [5, 0, 0], global: [1300, 3, 1], group: [8, 1, 1] },
            Grid { offset: [0, 7, 0], global: [40, 70, 2], group: [5, 2, 1] },
            Grid { offset: [0; 3], global: [1, 3000, 1], group: [1, 20, 1] },
            Grid { offset: [0; 3], global: [9000, 1, 1], group: [33, 1, 1] },
            Grid { offset: [0; 3], global: [2500, 1, 1], group: [1000, 1, 1] },
        ];
        let many = grids.len() - 1;
        let first = self.random.below(many as u64) as usize;
        let second = if self.random.below(2) == 0 { many } else { (first + 1) % many };
        let run = |turn: usize| {
            let grid = grids[turn];
            let items = grid.global.iter().product::<u64>();
            let kind = self.random.below(3);
            let mut words = |count: u64, of: &mut dyn FnMut(&mut Random, u64) -> u64| {
                let bytes = (0..count).flat_map(|i| (of(&mut self.random, i) as u32).to_le_bytes());
                Input::bytes(bytes.collect())
            };
            let most = self.most;
            // At random, or one after the other, so that neighbours have one place.
            let x = match kind {
                0 | 1 => words(items, &mut |random, _| random.below(most)),
                _ => words(items, &mut |random, i| (i / 9 + random.below(3)) % most),
            };
            let n = self.random.below(items) as u32;
            let bins = Input::bytes(vec![0; (PARTS * self.most * self.ty.2) as usize]);
            let zeros = |count: u64| Input::bytes(vec![0; 4 * count as usize]);
            let n = Input::Value(n.to_le_bytes().into());
            (grid, vec![bins, x, zeros(3 * items), zeros(6), zeros(1), n])
        };
        [first, second].map(run).into()
    }

    fn compile(&self, seed: u64) -> Module {
        let level = ["-O2", "-O0"][usize::from(seed.is_multiple_of(8))];
        module(&clang::compile_text(&self.text, &[level, "-w", "-cl-std=CL2.0"]))
    }
}

#[test]
fn random_kernels_count_right() {
    let widths = widths();
    for seed in seeds(16) {
        let mut program = Program::write(seed);
        let runs = program.runs();
        let at = [widths[seed as usize % widths.len()].clone()];
        compare_at(&at, &program.compile(seed), "count", &runs)
            .unwrap_or_else(|how| panic!("seed {seed}: {how}\n{}", program.text));
    }
}

/// The size of what groups of a program sum up, if they do.
fn sums(module: &Module) -> Option<u64> {
    let kernel = &module.kernels[0];
    widen(module, kernel, lanes(kernel)).ok()?.sums
}

/// Most of them do what they are for.
#[test]
fn groups_of_most_random_kernels_keep_sums() {
    let of_size = |size: u64| {
        let summed = |&seed: &u64| sums(&Program::write(seed).compile(seed)) == Some(size);
        (1..=24).filter(summed).count()
    };
    let (words, longs) = (of_size(4), of_size(8));
    assert!(words >= 5 && longs >= 5 && words + longs <= 22, "{words}, {longs}");
}

/// A fault in sums: what it is, and its change of the text for LLVM.
type Fault = (&'static str, fn(&str) -> String);

/// A text with each line changed that calls for an addition.
fn calls(text: &str, change: fn(&str) -> String) -> String {
    let is_call = |line: &str| line.contains("call i1 @__tally_add_later_i");
    let lines = text.lines().map(|line| if is_call(line) { change(line) } else { line.into() });
    lines.map(|line| line + "\n").collect()
}

const FAULTS: [Fault; 3] = [
    ("sums do not reach memory", |text| {
        let text = text.replace("ptr @__tally_add_sums_i", "ptr @forgets_sums_i");
        text + "define void @forgets_sums_i32(ptr %sums) { ret void }\n\
                define void @forgets_sums_i64(ptr %sums) { ret void }\n"
    }),
    ("the first item of a vector is left out", |text| {
        calls(text, |line| {
            let (before, call) = line.split_once("call ").expect("it is one");
            let (items, n) = call.rsplit_once(", i32 ").expect("the lanes");
            let (rest, items) = items.rsplit_once(", i32 ").expect("the items");
            let name = before.trim().trim_end_matches(" =").trim_start_matches('%');
            format!(
                "  %less.{name} = and i32 {items}, -2\n{before}call {rest}, i32 %less.{name}, i32 {n}"
            )
        })
    }),
    ("nothing is added where a sum would not be worthwhile", |text| {
        calls(text, |line| {
            let (before, call) = line.split_once(" = ").expect("it has a result");
            let name = before.trim().trim_start_matches('%');
            format!("  %done.{name} = {call}\n  {before} = or i1 %done.{name}, true")
        })
    }),
];

/// Injected faults are found, each by some program.
#[test]
fn every_fault_of_sums_shows_in_some_random_kernel() {
    let target = targets().pop().expect("the oldest is always there");
    for (what, change) in FAULTS {
        let shows = |seed: u64| {
            let mut program = Program::write(seed);
            let (module, runs) = (program.compile(seed), program.runs());
            if sums(&module).is_none() {
                return false;
            }
            let build = |change: &dyn Fn(String) -> String| {
                let kernel = Kernel::with_text(&module, "count", &target, 16, change);
                kernel.expect("it is widened")
            };
            let faulty = build(&|text| change(&text));
            match compare_with(&faulty, &module, "count", &runs) {
                Err(Mismatch::Buffers(_)) => {
                    let right = build(&|text| text);
                    compare_with(&right, &module, "count", &runs)
                        .unwrap_or_else(|how| panic!("seed {seed} without a fault: {how}"));
                    true
                }
                Err(error @ Mismatch::Interpreter(_)) => panic!("seed {seed}: {error}"),
                Ok(()) => false,
            }
        };
        assert!((1..25).any(shows), "no kernel shows that {what}");
    }
}

/// Additions are later ones in those kernels alone.
#[test]
fn additions_are_later_where_groups_keep_sums() {
    for seed in 1..=24 {
        let module = Program::write(seed).compile(seed);
        let kernel = &module.kernels[0];
        let Ok(widened) = widen(&module, kernel, lanes(kernel)) else { continue };
        let insts = || {
            let blocks = widened.module.functions[widened.function].blocks.iter();
            blocks.flat_map(|(_, block)| &block.insts)
        };
        let later = insts().any(|inst| matches!(inst.op, Op::AddLater(..)));
        assert_eq!(later, widened.sums.is_some(), "seed {seed}");
    }
}

/// Rows of another dimension would be vectors, but sums save more.
#[test]
fn groups_keep_sums_of_what_lies_in_rows_of_another_dimension() {
    let of = |update: &str| {
        let text = format!(
            "kernel void k(global const int *x, global int *bins, int n) {{
               int at = get_global_id(0) * n + get_global_id(1); {update} }}"
        );
        sums(&module(&clang::compile_text(&text, &["-O2", "-w"])))
    };
    assert_eq!(of("atomic_inc(&bins[x[at]]);"), Some(4));
    assert_eq!(of("bins[at] = x[at];"), None);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs: compiled code against the interpreter, in groups of many shapes.

use std::collections::BTreeSet;
use std::fmt::Write;

use tally_compiler::ir::Module;

use crate::diff::{Input, Random, Run, compare_at, compare_with, has_form};
use crate::harness::{Grid, Kernel, clang, module, widths};

/// Writes random kernels: integer expressions of several widths, branches, loops, private arrays,
/// local memory between barriers, also in called functions, atomics, operations of groups.
pub struct Program {
    random: Random,
    text: String,
    depth: u32,
    /// The number of divergent conditions around the statement: no place for a barrier.
    conditions: u32,
    /// The number of loops around the statement.
    loops: u32,
    /// Whether items exchange values.
    collectives: bool,
    /// The number of statements so far.
    statements: usize,
    /// Numbers of statements that are left out; everything else stays the same.
    left_out: BTreeSet<usize>,
}

/// The groups that programs run in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Groups {
    /// A row of 32 items, and one of half as many.
    Rows,
    /// Groups of up to three dimensions, with rows that seldom consist of whole vectors.
    Uneven,
    /// Groups with rows of 1 to 3 items, and many of them.
    Columns,
    /// Groups of short rows in two and three dimensions, at any offset.
    Squares,
}

impl Groups {
    /// The beginning of a program: the position of its item in the launch and in the group, as the language has it or
    /// computed from the ids, and the ids.
    fn place(self, seed: u64) -> String {
        let place = match (self, seed % 4 < 2) {
            (Self::Rows, _) => {
                "size_t i = get_global_id(0), l = get_local_id(0), n = get_local_size(0), pick = 3;\n"
            }
            (_, true) => {
                "size_t i = get_global_linear_id(), l = get_local_linear_id();\n\
                 size_t n = get_local_size(0) * get_local_size(1) * get_local_size(2), pick = n / 2;\n"
            }
            (_, false) => {
                "size_t i = get_global_id(2) - get_global_offset(2);\n\
                 i = i * get_global_size(1) + get_global_id(1) - get_global_offset(1);\n\
                 i = i * get_global_size(0) + get_global_id(0) - get_global_offset(0);\n\
                 uint l = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));\n\
                 int n = get_local_size(0) * get_local_size(1) * get_local_size(2), pick = n / 2;\n"
            }
        };
        let id = ["int", "uint", "long"][seed as usize % 3];
        format!(
            "{place}\
             {id} lx = get_local_id(0), ly = get_local_id(1), lz = get_local_id(2);\n\
             {id} nx = get_local_size(0), ny = get_local_size(1);\n"
        )
    }

    /// The launches with which a seed's program is compared.
    fn runs(self, seed: u64) -> Vec<Run> {
        let grids = match self {
            Self::Rows => vec![Grid::line(80, 32)],
            Self::Uneven => uneven_grids(&mut Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))),
            Self::Columns => column_grids(&mut Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))),
            Self::Squares => square_grids(&mut Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))),
        };
        let run = |grid: Grid| {
            let items: u64 = grid.global.iter().product();
            let local: u32 = grid.group.iter().product();
            let sums = Input::bytes(vec![0; 16]);
            let io = Random(seed).bytes(items as usize * 8);
            (grid, vec![io, Input::Local(4 * local as usize), sums])
        };
        grids.into_iter().map(run).collect()
    }
}

/// Groups with rows of 1 to 40 items, of one, two and three dimensions, with partial ones at the edge.
fn uneven_grids(random: &mut Random) -> Vec<Grid> {
    let grid = |dimensions: usize| {
        let mut group = [1 + random.below(40), 1, 1];
        group[1..dimensions].iter_mut().for_each(|size| *size = 2 + random.below(3));
        let global = std::array::from_fn(|d| match d < dimensions {
            true => group[d] + 1 + random.below(group[d]),
            false => 1,
        });
        let group = group.map(|size| size as u32);
        Grid { offset: [random.below(1000), 0, 0], global, group }
    };
    [1, 1, 2, 3].map(grid).into()
}

/// Groups of columns, in the second and in the third dimension, with partial ones at the edge.
fn column_grids(random: &mut Random) -> Vec<Grid> {
    let grid = |shape: [u64; 3]| {
        let group = shape.map(|most| if most == 1 { 1 } else { 1 + random.below(most) });
        let global = group.map(|size| if size == 1 { 2 } else { 2 * size - random.below(size) });
        let group = group.map(|size| size as u32);
        Grid { offset: [0, random.below(1000), 0], global, group }
    };
    [[1, 70, 1], [1, 1, 70], [3, 40, 1], [2, 12, 5]].map(grid).into()
}

/// The sizes of such groups: rows of all lengths that are no whole vectors, those that fill vectors in several rows and
/// those that do not.
const SQUARES: [[u32; 3]; 14] = [
    [8, 8, 1],
    [4, 4, 4],
    [4, 16, 1],
    [2, 32, 1],
    [12, 4, 1],
    [8, 3, 1],
    [5, 5, 5],
    [3, 4, 8],
    [8, 1, 6],
    [1, 8, 8],
    [6, 16, 1],
    [7, 9, 1],
    [20, 3, 1],
    [4, 2, 9],
];

/// Three groups of such sizes, alone, whole in each dimension, and partial.
fn square_grids(random: &mut Random) -> Vec<Grid> {
    let mut group = || SQUARES[random.below(SQUARES.len() as u64) as usize];
    let groups = [group(), group(), group()];
    let grid = |turn: usize| {
        let group = groups[turn];
        let global = group.map(|size| match turn {
            0 => u64::from(size),
            _ if size == 1 => 2,
            1 => 2 * u64::from(size),
            _ => 2 * u64::from(size) - random.below(size.into()),
        });
        Grid { offset: [random.below(9), random.below(1000), random.below(70)], global, group }
    };
    (0..3).map(grid).collect()
}

impl Program {
    const VARIABLES: [(&str, &str); 8] = [
        ("int", "a"),
        ("uint", "b"),
        ("long", "c"),
        ("ulong", "d"),
        ("short", "e"),
        ("uchar", "f"),
        ("int4", "v"),
        ("ushort", "g"),
    ];

    /// What a launch tells an item about its place.
    const PLACES: [&str; 12] = [
        "lx",
        "ly",
        "lz",
        "nx",
        "ny",
        "(long)get_global_id(0)",
        "(long)get_global_id(1)",
        "(long)get_global_id(2)",
        "(long)get_group_id(1)",
        "(long)get_global_size(0)",
        "(long)(get_global_id(1) * get_global_size(0) + get_global_id(0))",
        "(long)get_enqueued_local_size(2)",
    ];

    fn new(seed: u64, left_out: BTreeSet<usize>) -> Self {
        Self {
            random: Random::new(seed),
            text: String::new(),
            depth: 0,
            conditions: 0,
            loops: 0,
            // Half of the programs have none: sub-groups bind a kernel to one number of lanes.
            collectives: seed.is_multiple_of(2),
            statements: 0,
            left_out,
        }
    }

    /// The program of a seed without some of its statements, and the number of all statements.
    pub fn write(seed: u64, groups: Groups, left_out: &BTreeSet<usize>) -> (String, usize) {
        let mut program = Self::new(seed, left_out.clone());
        program.text += "__attribute__((noinline)) int exchange(local int *t, size_t l, size_t n, int v) {\n\
             t[l] = v; barrier(CLK_LOCAL_MEM_FENCE); v ^= t[n - 1 - l];\n\
             barrier(CLK_LOCAL_MEM_FENCE); return v; }\n\
             kernel void random(global long *io, local int *t, global uint *sums) {\n";
        program.text += &groups.place(seed);
        program.text += "long x = io[i]; int p[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n";
        for (ty, name) in Self::VARIABLES {
            let value = program.expression(0, true);
            let _ = writeln!(program.text, "{ty} {name} = ({ty})({value});");
        }
        for _ in 0..12 {
            program.statement();
        }
        program.text += "io[i] += a ^ b ^ c ^ (long)d ^ e ^ f ^ g ^ v.x ^ v.w ^ p[i & 7];\n}\n";
        (program.text, program.statements)
    }

    /// An atomic operation whose result does not depend on the order of the items.
    fn atomic(&mut self) {
        let (value, at) = (self.expression(1, false), self.random.below(4));
        // Each number is only changed by one kind of operation.
        let name = ["add", "xor", "max", "or"][at as usize];
        let _ = writeln!(self.text, "atomic_{name}(&sums[{at}], (uint)({value}));");
    }

    fn expression(&mut self, depth: u32, start: bool) -> String {
        if depth > 3 || self.random.below(4) == 0 {
            return match self.random.below(if start { 4 } else { 11 }) {
                0 => format!("{}", self.random.below(1000) as i64 - 500),
                1 => "x".into(),
                2 => "(long)l".into(),
                3 => Self::PLACES[self.random.below(Self::PLACES.len() as u64) as usize].into(),
                4 => format!("p[(uint){} & 7]", ["a", "b", "f"][self.random.below(3) as usize]),
                5 => format!("v.{}", ["x", "y", "z", "w"][self.random.below(4) as usize]),
                n => ["a", "b", "c", "d", "e", "f", "g"][(n + 1) as usize % 7].into(),
            };
        }
        let (a, b) = (self.expression(depth + 1, start), self.expression(depth + 1, start));
        match self.random.below(14) {
            0 => format!("({a} + {b})"),
            1 => format!("({a} - {b})"),
            2 => format!("({a} * {b})"),
            3 => format!("({a} & {b})"),
            4 => format!("({a} | {b})"),
            5 => format!("({a} ^ {b})"),
            6 => format!("((ulong)({a}) << (({b}) & 63))"),
            7 => format!("((long)({a}) >> (({b}) & 63))"),
            8 => format!("((long)({a}) / (((long)({b}) & 0xff) + 1))"),
            9 => format!("((ulong)({a}) % (((ulong)({b}) & 0xfff) + 1))"),
            10 => format!("(({a}) < ({b}) ? ({a}) : 7)"),
            11 => format!("min((int)({a}), (int)({b}))"),
            12 => format!("mul_hi((uint)({a}), (uint)({b}))"),
            _ => format!("rotate((uint)({a}), (uint)({b}))"),
        }
    }

    fn assignment(&mut self) {
        let value = self.expression(0, false);
        let (ty, name) = Self::VARIABLES[self.random.below(8) as usize];
        let _ = match self.random.below(5) {
            0 => writeln!(self.text, "p[(uint)b & 7] = (int)({value});"),
            1 => writeln!(self.text, "v = v.wzyx + (int4)((int)({value}));"),
            _ => writeln!(self.text, "{name} = ({ty})({value});"),
        };
    }

    /// An operation of the group, or among the items of the sub-group that reach it.
    fn collective(&mut self) {
        let value = self.expression(1, false);
        let uniform = self.conditions == 0;
        let text = match self.random.below(if uniform { 8 } else { 4 }) {
            0 => format!("b ^= sub_group_ballot((int)({value}) & 1).x;"),
            1 => format!("a ^= sub_group_non_uniform_reduce_max((int)({value}));"),
            2 => format!("d += sub_group_non_uniform_scan_exclusive_add((ulong)({value}));"),
            3 => format!("c ^= sub_group_shuffle_xor((long)({value}), 5u);"),
            4 => format!("a += work_group_reduce_add((int)({value}));"),
            5 => format!("c ^= work_group_scan_inclusive_min((long)({value}));"),
            6 => format!("b += work_group_broadcast((uint)({value}), pick);"),
            _ => format!("g ^= (ushort)sub_group_scan_inclusive_add((uint)({value}));"),
        };
        self.text += &text;
        self.text.push('\n');
    }

    fn statement(&mut self) {
        let (number, start) = (self.statements, self.text.len());
        self.statements += 1;
        self.write_statement();
        if self.left_out.contains(&number) {
            self.text.truncate(start);
        }
    }

    /// Whether the same items reach this point together in every schedule. In a loop, items of several
    /// iterations may meet if one continues before another has arrived: SPIR-V leaves that open.
    fn may_exchange(&self) -> bool {
        self.collectives && (self.loops == 0 || self.conditions == 0)
    }

    fn write_statement(&mut self) {
        self.depth += 1;
        let shallow = self.depth < 4;
        match self.random.below(12) {
            0 | 1 if shallow => {
                let condition = self.expression(1, false);
                let _ = writeln!(self.text, "if ((({condition}) & 3) != 1) {{");
                self.conditions += 1;
                self.statement();
                self.text += "} else {\n";
                self.statement();
                self.conditions -= 1;
                self.text += "}\n";
            }
            2 if shallow => {
                let (name, n) = (format!("k{}", self.depth), 1 + self.random.below(5));
                let _ = writeln!(self.text, "for (int {name} = 0; {name} < {n}; {name}++) {{");
                self.loops += 1;
                self.statement();
                self.statement();
                self.loops -= 1;
                let leave = self.expression(2, false);
                let _ = writeln!(self.text, "c += {name}; d ^= (ulong)({leave}); }}");
            }
            3 | 8 if self.conditions == 0 => {
                let value = self.expression(1, false);
                // Another item of the group, of its row, or of the next row; close by also for items that only exist by
                // an injected fault.
                let other = [
                    "(l + 1) % n",
                    "(int)((lz * ny + ly) * nx + nx - 1 - lx)",
                    "(int)((lz * ny + (ly + 1) % ny) * nx + lx)",
                ][self.random.below(3) as usize];
                let _ = writeln!(
                    self.text,
                    "t[l] = (int)({value}); barrier(CLK_LOCAL_MEM_FENCE);\n\
                     a ^= t[{other}]; barrier(CLK_LOCAL_MEM_FENCE);"
                );
            }
            9 => self.atomic(),
            11 => {
                let value = self.expression(1, false);
                let _ = writeln!(self.text, "io[i] ^= {value};");
            }
            10 if self.conditions == 0 => {
                let value = self.expression(1, false);
                let _ = writeln!(self.text, "a += exchange(t, l, n, (int)({value}));");
            }
            5 if self.may_exchange() && self.random.below(2) == 0 => self.collective(),
            4 if shallow => {
                let value = self.expression(1, false);
                let _ = writeln!(self.text, "switch (({value}) & 3) {{ case 0:");
                self.conditions += 1;
                self.statement();
                self.text += "case 2:\n";
                self.statement();
                self.text += "break; default:\n";
                self.statement();
                self.conditions -= 1;
                self.text += "}\n";
            }
            _ => self.assignment(),
        }
        self.depth -= 1;
    }
}

/// Compares a random program with the interpreter. LLVM optimises it as for a driver at one of [`widths`], in
/// turn; at the others it does not, which takes less time and shows the effects of widening as well.
fn compare_program(seed: u64, module: &Module, runs: &[Run]) -> Result<(), String> {
    let widths = widths();
    let turn = seed as usize % widths.len();
    compare_at(&widths[turn..=turn], module, "random", runs)?;
    let others = widths.iter().enumerate().filter(|&(number, _)| number != turn);
    others.map(|(_, width)| width).try_for_each(|(target, lanes)| {
        // The scalar forms are not widened.
        let kernel = Kernel::with_text(module, "random", target, *lanes, &|text| text);
        kernel.map_or(Ok(()), |kernel| compare_with(&kernel, module, "random", runs)).map_err(
            |how| format!("random for {}, {lanes} lanes, not optimised: {how}", target.name),
        )
    })
}

/// Compiles the kernel of a module, runs it, and returns its difference from the interpreter's run.
type Comparison<'a> = dyn Fn(&Module, &[Run]) -> Result<(), String> + 'a;

/// The difference between the compiled program of a seed and the interpreter's run, if there is one, at
/// either of clang's levels. `with` compiles the kernels and compares.
pub fn difference_of(
    seed: u64,
    groups: Groups,
    left_out: &BTreeSet<usize>,
    with: &Comparison<'_>,
) -> Option<String> {
    difference_at(&LEVELS, seed, groups, left_out, with)
}

/// Clang's optimisation levels for programs.
const LEVELS: [&str; 2] = ["-O0", "-O2"];

fn difference_at(
    levels: &[&str],
    seed: u64,
    groups: Groups,
    left_out: &BTreeSet<usize>,
    with: &Comparison<'_>,
) -> Option<String> {
    let (text, _) = Program::write(seed, groups, left_out);
    levels.iter().find_map(|&level| {
        let module = module(&clang::compile_text(&text, &[level, "-w", "-Xclang", "-cl-ext=+all"]));
        with(&module, &groups.runs(seed)).err().map(|how| format!("{how} at {level}"))
    })
}

/// Leaves out statements of a program that shows a difference, until every remaining one is needed for
/// it. Returns the numbers of those left out.
pub fn shrink(seed: u64, differs: &dyn Fn(&BTreeSet<usize>) -> bool) -> BTreeSet<usize> {
    let mut left_out = BTreeSet::new();
    // The number is the same for groups of any kind.
    let (_, statements) = Program::write(seed, Groups::Rows, &left_out);
    loop {
        let before = left_out.len();
        for number in 0..statements {
            if left_out.insert(number) && !differs(&left_out) {
                left_out.remove(&number);
            }
        }
        if left_out.len() == before {
            return left_out;
        }
    }
}

/// The seeds of random kernels: `TALLY_SEED` (1) is the first, and there are `TALLY_PROGRAMS`, or `count`.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let first = number("TALLY_SEED").unwrap_or(1);
    first..first + number("TALLY_PROGRAMS").unwrap_or(count)
}

fn programs_agree(groups: Groups, count: u64) {
    for seed in seeds(count) {
        let all = |module: &Module, runs: &[Run]| compare_program(seed, module, runs);
        // The levels alternate: another program shows more than the same one at the other level.
        let level = &LEVELS[(seed % 2) as usize..][..1];
        let difference =
            |left_out: &BTreeSet<usize>| difference_at(level, seed, groups, left_out, &all);
        if let Some(how) = difference(&BTreeSet::new()) {
            let differs = |left_out: &BTreeSet<usize>| difference(left_out).is_some();
            let (least, _) = Program::write(seed, groups, &shrink(seed, &differs));
            panic!("seed {seed}: {how}\n{least}");
        }
    }
}

#[test]
fn random_programs_agree() {
    programs_agree(Groups::Rows, 12);
}

/// In rows of 1 to 40 items of groups of one to three dimensions, whole and partial.
#[test]
fn random_programs_agree_in_uneven_groups() {
    programs_agree(Groups::Uneven, 6);
}

/// In groups whose rows are shorter than half a vector, which run in a form for their size.
#[test]
fn random_programs_agree_in_groups_of_columns() {
    programs_agree(Groups::Columns, 4);
}

/// In groups of 8 x 8, 4 x 4 x 4 and the like, half of which have a form for their size with sub-groups.
#[test]
fn random_programs_agree_in_groups_of_squares() {
    programs_agree(Groups::Squares, 4);
}

/// Most launches in columns and squares run in a form for their size.
#[test]
fn random_programs_have_forms_for_sizes() {
    let (mut sized, mut all) = (0, 0);
    for seed in 1..=8 {
        for groups in [Groups::Columns, Groups::Squares] {
            let (text, _) = Program::write(seed, groups, &BTreeSet::new());
            let flags = ["-O2", "-w", "-Xclang", "-cl-ext=+all"];
            let module = module(&clang::compile_text(&text, &flags));
            for (grid, _) in groups.runs(seed) {
                sized += usize::from(has_form(&module, "random", 16, grid.group));
                all += 1;
            }
        }
    }
    assert!(3 * sized >= all, "{sized} of {all}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiled code against the interpreter: the same module, the same arguments, the same bytes
//! after the run. The interpreter sees buffers at their real addresses.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use tally_compiler::interp::{self, Launch, Memory};
use tally_compiler::ir::Module;
use tally_compiler::widen::widen;
use tally_compiler_protocol::{Form, TargetCpu};

use crate::guarded::Guarded;
use crate::harness::{Arg, Grid, Kernel, MARGIN, clang, module, widths};
use crate::passes::agree_after_each;

/// Elements of a buffer, to be compared: NaN equals NaN, whatever its bits.
#[derive(Clone, Copy)]
pub enum Elements {
    Bytes,
    Halves,
    Floats,
    Doubles,
}

/// An argument.
#[derive(Clone)]
pub enum Input {
    Buffer(Elements, Vec<u8>),
    Value(Vec<u8>),
    Local(usize),
}

impl Input {
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self::Buffer(Elements::Bytes, bytes)
    }
}

/// Random numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    /// A generator with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    fn bytes(&mut self, len: usize) -> Input {
        Input::Buffer(Elements::Bytes, (0..len).map(|_| self.next() as u8).collect())
    }

    /// Multiples of a quarter: their sums and products are exact, so contraction does not show.
    fn quarters(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| (self.below(4001) as f64 - 2000.0) / 4.0).collect()
    }

    fn floats(&mut self, n: usize) -> Input {
        let bytes = self.quarters(n).iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
        Input::Buffer(Elements::Floats, bytes)
    }

    fn doubles(&mut self, n: usize) -> Input {
        let bytes = self.quarters(n).iter().flat_map(|x| x.to_le_bytes()).collect();
        Input::Buffer(Elements::Doubles, bytes)
    }
}

/// A launch: its grid, and its arguments.
pub type Run = (Grid, Vec<Input>);

/// Runs a kernel both ways and compares all buffers.
pub fn same(module: &Module, name: &str, grid: Grid, inputs: &[Input], context: &str) {
    let run = (grid, inputs.to_vec());
    compare(module, name, &[run]).unwrap_or_else(|how| panic!("{how}\n{context}"));
}

/// Like [`same`], for several launches of the kernel.
pub fn same_in_all(module: &Module, name: &str, runs: &[Run]) {
    compare(module, name, runs).unwrap_or_else(|how| panic!("{how}"));
}

/// Like [`same_in_all`]; an error says how the buffers differ.
fn compare(module: &Module, name: &str, runs: &[Run]) -> Result<(), String> {
    compare_at(&widths(), module, name, runs)
}

/// Like [`same`], with some of [`widths`].
pub fn same_at(
    widths: &[(TargetCpu, u32)],
    module: &Module,
    name: &str,
    grid: Grid,
    inputs: &[Input],
    context: &str,
) {
    let run = (grid, inputs.to_vec());
    compare_at(widths, module, name, &[run]).unwrap_or_else(|how| panic!("{how}\n{context}"));
}

/// Compares a kernel with the interpreter in several launches, after each pass and with some of
/// [`widths`].
pub fn compare_at(
    widths: &[(TargetCpu, u32)],
    module: &Module,
    name: &str,
    runs: &[Run],
) -> Result<(), String> {
    agree_after_each(module, name, runs).map_err(|how| format!("{name} {how}"))?;
    // Code for one item at a time is the same for any number of lanes.
    let mut scalar: Option<&TargetCpu> = None;
    widths.iter().try_for_each(|(target, lanes)| {
        let lanes = *lanes;
        let compare_in = |kernel: &Kernel, runs: &[Run]| {
            compare_with(kernel, module, name, runs)
                .map_err(|how| format!("{name} for {}, {lanes} lanes: {how}", target.name))
        };
        let compare = |kernel: &Kernel| compare_in(kernel, runs);
        for size in sizes_with_a_form(module, name, lanes, runs) {
            let kernel = match target.name.as_str() {
                "x86-64-v4" => Kernel::in_form(module, name, target, Form::Sized(size))
                    .unwrap_or_else(|| panic!("{name} has no form for {size:?}")),
                _ => Kernel::with_lanes(&requiring(module, size), name, target, lanes),
            };
            let of_size = runs.iter().filter(|(grid, _)| grid.group == size).cloned();
            compare_in(&kernel, &of_size.collect::<Vec<_>>())
                .map_err(|how| format!("in the form for {size:?}: {how}"))?;
        }
        let kernel = match target.name.as_str() {
            // The code for drivers: there may be two lengths of vectors, and two forms, of which either runs
            // all groups.
            "x86-64-v4" => {
                let uneven = Kernel::in_form(module, name, target, Form::Uneven);
                uneven.map_or(Ok(()), |kernel| compare(&kernel))?;
                Kernel::in_form(module, name, target, Form::Usual).expect("every kernel has it")
            }
            _ if scalar == Some(target) && !Kernel::is_widened(module, name, lanes) => {
                return Ok(());
            }
            _ => Kernel::with_lanes(module, name, target, lanes),
        };
        if lanes == 1 || kernel.code.remark.starts_with("one item at a time") {
            scalar = Some(target);
        }
        compare(&kernel)
    })
}

/// A module whose kernels require a group size.
pub fn requiring(module: &Module, size: [u32; 3]) -> Module {
    let mut module = module.clone();
    module.kernels.iter_mut().for_each(|kernel| kernel.required_group_size = Some(size));
    module
}

/// The sizes of groups in these launches for which a kernel has a form of their own.
fn sizes_with_a_form(module: &Module, name: &str, lanes: u32, runs: &[Run]) -> BTreeSet<[u32; 3]> {
    let (index, kernel) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
    let mut sizes: BTreeSet<_> = runs.iter().map(|(grid, _)| grid.group).collect();
    sizes.retain(|&size| {
        let module = requiring(module, size);
        let widened = widen(&module, &module.kernels[index], lanes);
        kernel.required_group_size.is_none() && widened.is_ok_and(|widened| widened.flat)
    });
    sizes
}

/// Like [`compare`], for a random program. LLVM optimises it as for a driver at one of [`widths`], in
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

/// The difference between a kernel's run and the interpreter's.
#[derive(Debug)]
pub enum Mismatch {
    /// The interpreter does not run it: the kernel is wrong.
    Interpreter(String),
    /// The contents of the buffers differ: the compiled code is wrong.
    Buffers(String),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interpreter(error) => write!(f, "the interpreter says {error}"),
            Self::Buffers(how) => f.write_str(how),
        }
    }
}

/// Compares the launches of one build of a kernel with the interpreter.
pub fn compare_with(
    kernel: &Kernel,
    module: &Module,
    name: &str,
    runs: &[Run],
) -> Result<(), Mismatch> {
    runs.iter().enumerate().try_for_each(|(turn, (grid, inputs))| {
        compare_run(kernel, module, name, *grid, inputs, turn).map_err(|how| match how {
            Mismatch::Buffers(how) => Mismatch::Buffers(format!("{how} in {grid:?}")),
            interpreter => interpreter,
        })
    })
}

/// Runs a kernel in the interpreter, with the buffers at the given addresses, and returns the memory
/// afterwards.
pub fn interpret(
    module: &Module,
    name: &str,
    grid: Grid,
    inputs: &[Input],
    mut addresses: impl Iterator<Item = u64>,
) -> Result<Memory, String> {
    let (mut memory, mut args) = (Memory::new(), Vec::new());
    for input in inputs {
        args.push(match input {
            Input::Value(bytes) => interp::Arg::Bytes(bytes.clone()),
            Input::Local(len) => interp::Arg::Local(*len as u64),
            Input::Buffer(_, bytes) => {
                let address = addresses.next().expect("one for each buffer");
                memory.map(address, bytes.clone()).expect("buffers do not overlap");
                interp::Arg::pointer(address)
            }
        });
    }
    let launch = grid.launch();
    let launch = Launch {
        global_size: launch.global_size,
        group_size: launch.group_size,
        global_offset: launch.global_offset,
        work_dim: launch.work_dim,
        step_limit: 1 << 28,
    };
    let (index, _) = module.kernel(name).expect("the kernel is there");
    interp::run(module, index, &launch, &args, &mut memory).map_err(|error| error.to_string())?;
    Ok(memory)
}

/// The contents of a launch's buffers after the interpreter has run it.
pub fn interpreted(
    module: &Module,
    name: &str,
    (grid, inputs): &Run,
) -> Result<Vec<Vec<u8>>, String> {
    let buffers = inputs.iter().filter(|input| matches!(input, Input::Buffer(..))).count();
    let addresses = (1..=buffers as u64).map(|number| number << 32);
    let memory = interpret(module, name, *grid, inputs, addresses.clone())?;
    Ok(addresses.map(|address| memory.buffer(address).expect("mapped").to_vec()).collect())
}

/// The memory of a buffer. It begins behind a page that cannot be accessed, or ends in front of one; a kernel with a
/// fault, which may access more, has a margin there.
struct Buffer {
    memory: Guarded,
    first: bool,
    margin: usize,
    len: usize,
}

impl Buffer {
    fn new(faulty: bool, first: bool, bytes: &[u8]) -> Self {
        let margin = if faulty { MARGIN } else { 0 };
        let memory = Guarded::new(bytes.len() + 2 * margin);
        let mut buffer = Self { memory, first, margin, len: bytes.len() };
        buffer.bytes().copy_from_slice(bytes);
        buffer
    }

    fn bytes(&mut self) -> &mut [u8] {
        let (len, margin) = (self.len, self.margin);
        match self.first {
            true => &mut self.memory.first(len + margin)[margin..],
            false => &mut self.memory.last(len + margin)[..len],
        }
    }
}

fn compare_run(
    kernel: &Kernel,
    module: &Module,
    name: &str,
    grid: Grid,
    inputs: &[Input],
    turn: usize,
) -> Result<(), Mismatch> {
    let mut buffers = Vec::new();
    for (number, input) in inputs.iter().enumerate() {
        if let Input::Buffer(_, bytes) = input {
            buffers.push(Buffer::new(kernel.faulty, (number + turn).is_multiple_of(2), bytes));
        }
    }
    let addresses = buffers.iter_mut().map(|buffer| buffer.bytes().as_ptr() as u64);
    let memory = interpret(module, name, grid, inputs, addresses).map_err(Mismatch::Interpreter)?;

    let mut next = buffers.iter_mut();
    let args = inputs.iter().map(|input| match input {
        Input::Value(bytes) => Arg::Bytes(bytes.clone()),
        Input::Local(len) => Arg::Local(*len),
        Input::Buffer(..) => Arg::Buffer(next.next().expect("one for each").bytes()),
    });
    kernel.run(grid, args.collect());

    let mut next = buffers.iter_mut();
    for (number, input) in inputs.iter().enumerate() {
        let Input::Buffer(elements, _) = input else { continue };
        let got: &[u8] = next.next().expect("one for each").bytes();
        let want = memory.buffer(got.as_ptr() as u64).expect("mapped above");
        if let Some(at) = difference(*elements, got, want) {
            let (got, want) = (&got[at..got.len().min(at + 8)], &want[at..want.len().min(at + 8)]);
            return Err(Mismatch::Buffers(format!(
                "argument {number} at byte {at}: compiled {got:x?}, interpreted {want:x?}"
            )));
        }
    }
    Ok(())
}

/// The first byte of the first element that differs.
fn difference(elements: Elements, a: &[u8], b: &[u8]) -> Option<usize> {
    let (size, exponent) = match elements {
        Elements::Bytes => (1, 0),
        Elements::Halves => (2, 0x7c00),
        Elements::Floats => (4, 0x7f80_0000),
        Elements::Doubles => (8, 0x7ff0_0000_0000_0000),
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
    let nan = |x: u64| exponent != 0 && x & (sign(size) - 1) > exponent;
    let pairs = a.chunks(size).zip(b.chunks(size));
    let differs = |(a, b): (&[u8], &[u8])| {
        let (a, b) = (number(a), number(b));
        a != b && !(nan(a) && nan(b))
    };
    pairs.map(differs).position(|differs| differs).map(|index| index * size)
}

fn sign(size: usize) -> u64 {
    1 << (8 * size - 1)
}

/// The modules of a file at clang's two levels of optimisation.
fn both(file: &str) -> Vec<Module> {
    ["-O0", "-O2"].map(|level| module(&clang::compile(file, &[level]))).into()
}

fn value<T: Into<i64>>(value: T, size: usize) -> Input {
    Input::Value(value.into().to_le_bytes()[..size].to_vec())
}

#[test]
fn integer_arithmetic_of_all_widths_agrees() {
    let mut random = Random(1);
    for module in both("numbers.cl") {
        for (name, size) in [("char", 1), ("short", 2), ("int", 4), ("long", 8)] {
            let n = 300;
            let mut inputs = vec![random.bytes(n * size), random.bytes(n * size)];
            inputs.push(random.bytes(n * size * 40));
            same(&module, &format!("ops_{name}"), Grid::line(n as u64, 32), &inputs, "");
        }
    }
}

#[test]
fn float_arithmetic_agrees() {
    let mut random = Random(2);
    for module in both("numbers.cl") {
        let grid = Grid::line(300, 32);
        let out = Input::Buffer(Elements::Floats, vec![0; 300 * 20 * 4]);
        same(&module, "fops_float", grid, &[random.floats(300), random.floats(300), out], "");
        let out = Input::Buffer(Elements::Doubles, vec![0; 300 * 20 * 8]);
        same(&module, "fops_double", grid, &[random.doubles(300), random.doubles(300), out], "");
        let halves = |random: &mut Random| match random.bytes(600) {
            Input::Buffer(_, bytes) => Input::Buffer(Elements::Halves, bytes),
            other => other,
        };
        let out = Input::Buffer(Elements::Halves, vec![0; 300 * 20 * 2]);
        let inputs = [halves(&mut random), halves(&mut random), out];
        same(&module, "fops_half", grid, &inputs, "");
    }
}

#[test]
fn control_flow_local_memory_and_barriers_agree() {
    let mut random = Random(3);
    for module in both("control.cl") {
        let ints = |random: &mut Random, n: usize, below: u64| {
            let bytes = (0..n).flat_map(|_| (random.below(below) as i32 - 4).to_le_bytes());
            Input::Buffer(Elements::Bytes, bytes.collect())
        };
        let line = Grid::line(100, 16);
        let zeros = |n: usize| Input::Buffer(Elements::Bytes, vec![0; n]);
        same(&module, "switches", line, &[ints(&mut random, 100, 110), zeros(400)], "");
        let local = Input::Local(64);
        same(&module, "sum_local", line, &[random.bytes(400), zeros(28), local.clone()], "");
        same(&module, "barrier_in_call", Grid::line(96, 32), &[random.bytes(384)], "");
        same(&module, "divergent", line, &[zeros(400)], "");
        same(&module, "histogram", line, &[random.bytes(100), zeros(64), local.clone()], "");
        same(&module, "atomics", Grid::line(40, 8), &[zeros(56), zeros(8), local], "");
        same(&module, "globals", line, &[zeros(400)], "");
        let grid = Grid { offset: [7, 8, 9], global: [5, 3, 4], group: [2, 2, 3] };
        same(&module, "places", grid, &[zeros(5 * 3 * 4 * 24 * 8)], "");
    }
    for module in both("matmul.cl") {
        let grid = Grid { offset: [0; 3], global: [16, 16, 1], group: [8, 8, 1] };
        let inputs = [random.floats(256), random.floats(256), random.floats(256), value(16, 4)];
        same(&module, "matmul", grid, &inputs, "");
    }
    for module in both("numbers.cl") {
        let small = (0..160).flat_map(|_| (random.below(60000) as i32 - 30000).to_le_bytes());
        let small = Input::Buffer(Elements::Bytes, small.collect());
        let inputs = [small, random.bytes(40 * 128), value(2, 4)];
        same(&module, "vectors", Grid::line(40, 8), &inputs, "");
    }
}

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
}

impl Groups {
    /// The beginning of a program: the position of its item in the launch and in the group.
    fn place(self) -> &'static str {
        match self {
            Self::Rows => {
                "size_t i = get_global_id(0), l = get_local_id(0), n = get_local_size(0), pick = 3;\n"
            }
            Self::Uneven | Self::Columns => {
                "size_t i = get_global_linear_id(), l = get_local_linear_id();\n\
                 size_t n = get_local_size(0) * get_local_size(1) * get_local_size(2), pick = n / 2;\n"
            }
        }
    }

    /// The launches with which a seed's program is compared.
    fn runs(self, seed: u64) -> Vec<Run> {
        let grids = match self {
            Self::Rows => vec![Grid::line(80, 32)],
            Self::Uneven => uneven_grids(&mut Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))),
            Self::Columns => column_grids(&mut Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))),
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
        program.text += groups.place();
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
            return match self.random.below(if start { 3 } else { 10 }) {
                0 => format!("{}", self.random.below(1000) as i64 - 500),
                1 => "x".into(),
                2 => "(long)l".into(),
                3 => format!("p[(uint){} & 7]", ["a", "b", "f"][self.random.below(3) as usize]),
                4 => format!("v.{}", ["x", "y", "z", "w"][self.random.below(4) as usize]),
                n => ["a", "b", "c", "d", "e", "f", "g"][(n + 2) as usize % 7].into(),
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
                let _ = writeln!(
                    self.text,
                    "t[l] = (int)({value}); barrier(CLK_LOCAL_MEM_FENCE);\n\
                     a ^= t[(l + 1) % n]; barrier(CLK_LOCAL_MEM_FENCE);"
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiled code against the interpreter: the same module, the same arguments, the same bytes
//! after the run. The interpreter sees buffers at their real addresses.

use std::collections::BTreeSet;
use std::fmt;

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
pub struct Random(pub u64);

impl Random {
    /// A generator with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    pub fn bytes(&mut self, len: usize) -> Input {
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
    let mut sizes: BTreeSet<_> = runs.iter().map(|(grid, _)| grid.group).collect();
    sizes.retain(|&size| has_form(module, name, lanes, size));
    sizes
}

/// Whether a kernel has a form for groups of a size.
pub fn has_form(module: &Module, name: &str, lanes: u32, size: [u32; 3]) -> bool {
    let (index, kernel) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
    let sized = requiring(module, size);
    let widened = widen(&sized, &sized.kernels[index], lanes);
    kernel.required_group_size.is_none() && widened.is_ok_and(|widened| widened.flat)
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes, at every width. The layout of their memory is that of `compiler/docs/pipes.md`.

use std::collections::HashMap;

use tally_compiler::check::check;
use tally_compiler::ir::Module;
use tally_compiler::parse::parse;
use tally_compiler_protocol::TargetCpu;

use crate::diff::{Input, Run, interpreted};
use crate::harness::clang::{self, Assembly};
use crate::harness::{Arg, Grid, Kernel, buffer, module, widths};

/// The memory of an empty pipe.
fn pipe(slots: u32, size: u32) -> Vec<u64> {
    let packets = (64 + 4 * u64::from(slots)).next_multiple_of(128);
    let bytes = packets + u64::from(slots) * u64::from(size);
    let mut memory = vec![0; bytes.div_ceil(8) as usize];
    memory[0] = u64::from(size) << 32 | u64::from(slots);
    memory
}

/// A pipe, and the kernels of a module that work on it.
struct Pipe<'m> {
    module: &'m Module,
    target: TargetCpu,
    lanes: u32,
    kernels: HashMap<String, Kernel>,
    memory: Vec<u64>,
}

impl Pipe<'_> {
    /// Runs a kernel on `data`, and returns what its functions returned.
    fn run<T: Copy>(&mut self, name: &str, group: u32, data: &mut [T]) -> Vec<i32> {
        let items = data.len();
        let mut got = vec![i32::MIN; items];
        let args = vec![buffer(data), buffer(&mut got)];
        self.launch(name, Grid::line(items as u64, group), args);
        got
    }

    /// The numbers of packets in the pipe and of its slots.
    fn sizes(&mut self) -> [i32; 2] {
        let mut out = [-1; 2];
        self.launch("sizes", Grid::line(1, 1), vec![buffer(&mut out)]);
        out
    }

    /// Runs a kernel whose last argument is the pipe.
    fn launch<'a>(&'a mut self, name: &str, grid: Grid, mut args: Vec<Arg<'a>>) {
        let (module, target, lanes) = (self.module, &self.target, self.lanes);
        let kernel = self
            .kernels
            .entry(name.to_owned())
            .or_insert_with(|| Kernel::with_lanes(module, name, target, lanes));
        args.push(buffer(&mut self.memory));
        kernel.run(grid, args);
    }
}

/// Runs something on a pipe of ints, with code from unoptimised and optimised modules for every width.
fn each(slots: u32, size: u32, check: impl Fn(&mut Pipe<'_>)) {
    for level in ["-O0", "-O2"] {
        let module = module(&clang::compile("pipes.cl", &[level]));
        for (target, lanes) in widths() {
            check(&mut Pipe {
                module: &module,
                target,
                lanes,
                kernels: HashMap::new(),
                memory: pipe(slots, size),
            });
        }
    }
}

/// A `long16`, with its alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C, align(128))]
struct Wide([i64; 16]);

fn sorted<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    items.sort_unstable();
    items
}

/// Writes 50 packets into a pipe with 37 slots, reads 20, and so on, until the slots have been used several
/// times. What is read is what was written.
fn through<T: Copy + Ord + std::fmt::Debug>(kind: &str, none: T, number: impl Fn(i32) -> T) {
    each(37, size_of::<T>() as u32, |pipe| {
        let (mut held, mut next) = (Vec::new(), 0);
        for round in 0..6 {
            let mut input: Vec<T> = (next..next + 50).map(&number).collect();
            next += 50;
            let got = pipe.run(&format!("write_{kind}"), 25, &mut input);
            let room = 37 - held.len();
            assert_eq!(got.iter().filter(|&&got| got == 0).count(), room, "round {round}");
            assert!(got.iter().all(|&got| got <= 0));
            held.extend(input.iter().zip(&got).filter(|(_, got)| **got == 0).map(|(x, _)| *x));
            let count = if round % 2 == 0 { 20 } else { 45 };
            let mut out = vec![none; count];
            let got = pipe.run(&format!("read_{kind}"), 5, &mut out);
            let read: Vec<T> =
                out.iter().zip(&got).filter(|(_, got)| **got == 0).map(|(x, _)| *x).collect();
            assert_eq!(read.len(), count.min(held.len()), "round {round}");
            let failed = out.iter().zip(&got).filter(|(_, got)| **got != 0);
            assert!(failed.into_iter().all(|(x, got)| *x == none && *got < 0));
            if read.len() == held.len() {
                assert_eq!(sorted(read), sorted(held.split_off(0)), "round {round}");
            } else {
                for packet in read {
                    let at = held.iter().position(|x| *x == packet);
                    held.swap_remove(at.expect("it was written and not yet read"));
                }
            }
        }
    });
}

#[test]
fn packets_of_ints_go_through() {
    through("int", -1, |i| i * 3 + 5);
}

#[test]
fn packets_of_odd_sizes_go_through() {
    through("odd", [255_u8; 3], |i| [i as u8, (i >> 3) as u8, 77]);
}

#[test]
fn packets_of_the_largest_type_go_through() {
    through("wide", Wide([-1; 16]), |i| Wide(std::array::from_fn(|k| i64::from(i) << k)));
}

#[test]
fn the_packets_of_a_groups_reservation_stay_together() {
    // Three of four groups of 24 fit into 90 slots.
    each(90, 4, |pipe| {
        for round in 0..3 {
            let mut input: Vec<i32> = (0..96).map(|i| 1000 * round + i).collect();
            let got = pipe.run("write_work_group", 24, &mut input);
            let groups: Vec<i32> = got.chunks(24).map(|group| group[0]).collect();
            assert!(got.chunks(24).all(|group| group.iter().all(|&got| got == group[0])));
            assert_eq!(sorted(groups.iter().copied()), [-2, 0, 0, 0]);
            assert_eq!(pipe.sizes(), [72, 90]);
            let mut out = vec![-1; 96];
            let read = pipe.run("read_work_group", 24, &mut out);
            assert_eq!(sorted(read.chunks(24).map(|group| group[0])), [-2, 0, 0, 0]);
            let wanted = input.chunks(24).zip(&groups).filter(|(_, got)| **got == 0);
            let wanted = wanted.map(|(group, _)| group.to_vec());
            let found = out.chunks(24).filter(|group| group[0] != -1).map(<[i32]>::to_vec);
            assert_eq!(sorted(found), sorted(wanted));
        }
    });
}

#[test]
fn the_packets_of_a_sub_groups_reservation_stay_together() {
    // A group of 40 items has two sub-groups of 16, and one of 8.
    each(200, 4, |pipe| {
        for round in 0..3 {
            let mut input: Vec<i32> = (0..80).map(|i| 1000 * round + i).collect();
            let got = pipe.run("write_sub_group", 40, &mut input);
            assert_eq!(got, [0; 80]);
            let mut out = vec![-1; 80];
            let got = pipe.run("read_work_group", 8, &mut out);
            assert_eq!(got, [0; 80]);
            let halves = |items: &[i32]| sorted(items.chunks(8).map(<[i32]>::to_vec));
            assert_eq!(halves(&out), halves(&input));
            pipe.run("write_work_group", 8, &mut out);
            let mut out = vec![-1; 80];
            assert_eq!(pipe.run("read_sub_group", 40, &mut out), [0; 80]);
            assert_eq!(sorted(out), input);
        }
    });
}

#[test]
fn items_reserve_different_numbers_of_packets() {
    each(1000, 4, |pipe| {
        let mut input: Vec<i32> = (0..100).map(|i| 10 * i).collect();
        let got = pipe.run("write_some", 50, &mut input);
        // A reservation of no packets is none.
        let wanted: Vec<i32> = (0..100).map(|i| i32::from(i % 4 != 0)).collect();
        assert_eq!(got, wanted);
        assert_eq!(pipe.sizes(), [150, 1000]);
        let mut out = vec![-1; 150];
        assert_eq!(pipe.run("read_int", 50, &mut out), [0; 150]);
        let wanted = (0..100).flat_map(|i| (0..i % 4).map(move |k| 10 * i + k));
        assert_eq!(sorted(out), sorted(wanted));
    });
}

#[test]
fn packets_behind_a_reservation_that_is_not_committed_wait() {
    each(8, 4, |pipe| {
        let mut valid = [0];
        pipe.launch("late", Grid::line(1, 1), vec![buffer(&mut valid)]);
        assert_eq!(valid, [1]);
        let mut out = [5; 3];
        let got = pipe.run("read_int", 1, &mut out);
        assert!(got.iter().all(|&got| got < 0), "{got:?}");
        assert_eq!(out, [5; 3]);
    });
}

#[test]
fn nothing_happens_in_a_pipe_of_other_packets() {
    each(8, 8, |pipe| {
        let before = pipe.memory.clone();
        let got = pipe.run("write_int", 4, &mut [1, 2, 3, 4]);
        assert!(got.iter().all(|&got| got < 0), "{got:?}");
        assert_eq!(pipe.run("write_work_group", 4, &mut [1, 2, 3, 4]), [-2; 4]);
        assert_eq!(pipe.sizes(), [0, 0]);
        assert!(pipe.memory == before);
    });
}

#[test]
fn the_interpreter_knows_pipes() {
    let module = module(&clang::compile("pipes.cl", &["-O2"]));
    let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let ints = |n: i32| Input::bytes((0..n).flat_map(i32::to_le_bytes).collect());
    let run = |name: &str, memory: Vec<u8>| {
        let run: Run = (Grid::line(40, 20), vec![ints(40), ints(40), Input::bytes(memory)]);
        interpreted(&module, name, &run).unwrap()
    };
    for kind in ["int", "work_group", "sub_group"] {
        let memory = run(&format!("write_{kind}"), bytes(&pipe(64, 4))).remove(2);
        let back = run(&format!("read_{kind}"), memory);
        assert_eq!(back[0], ints_bytes(40), "{kind}");
        assert_eq!(back[1], [0; 160], "{kind}");
    }
}

fn ints_bytes(n: i32) -> Vec<u8> {
    (0..n).flat_map(i32::to_le_bytes).collect()
}

/// A pipe of the module's own, which one item writes to and reads from.
#[test]
fn a_module_has_pipes_of_its_own() {
    let declarations = "%storage = OpTypePipeStorage
        %own = OpConstantPipeStorage %storage 4 4 3
        %writes = OpTypePipe WriteOnly
        %reads = OpTypePipe ReadOnly
        %four = OpConstant %i32 4";
    let body = "%w = OpCreatePipeFromPipeStorage %writes %own
        %r = OpCreatePipeFromPipeStorage %reads %own
        %most = OpGetMaxPipePackets %i32 %r %four %four
        %a = OpWritePipe %i32 %w %y %four %four
        %b = OpReadPipe %i32 %r %x %four %four
        %second = OpInBoundsPtrAccessChain %p %x %n1
        OpStore %second %most Aligned 4
        %third = OpInBoundsPtrAccessChain %p %x %n2
        %c = OpReadPipe %i32 %r %third %four %four
        OpStore %third %c Aligned 4";
    let declarations = format!("{declarations}\n%n1 = OpConstant %i64 1\n%n2 = OpConstant %i64 2");
    let (head, parameters) =
        ("OpCapability Pipes\nOpCapability PipeStorage", &[("x", "p"), ("y", "p")]);
    let assembly =
        Assembly { head, declarations: &declarations, parameters, body, ..Assembly::default() };
    let module = module(&assembly.module());
    for (target, lanes) in widths() {
        let kernel = Kernel::with_lanes(&module, "k", &target, lanes);
        for turn in 0..10 {
            let (mut x, mut y) = ([0; 3], [100 + turn]);
            kernel.run(Grid::line(1, 1), vec![buffer(&mut x), buffer(&mut y)]);
            assert_eq!(x, [100 + turn, 3, -1]);
        }
    }
}

/// The log of a module with an instruction of wrong types.
fn log(body: &str, declarations: &str) -> String {
    let declarations = format!(
        "%pipe = OpTypePipe ReadOnly
         %reserve = OpTypeReserveId
         %four = OpConstant %i32 4
         {declarations}"
    );
    let (head, parameters) = (
        "OpCapability Pipes\nOpCapability PipeStorage\nOpCapability Groups",
        &[("x", "p"), ("y", "pipe")],
    );
    let assembly =
        Assembly { head, declarations: &declarations, parameters, body, ..Assembly::default() };
    match parse(&assembly.module(), &[]) {
        Err(error) => error.to_string(),
        Ok(mut module) => check(&mut module).expect_err(body).to_string(),
    }
}

#[test]
fn wrong_instructions_are_refused() {
    let cases = [
        ("%a = OpReadPipe %i32 %four %x %four %four", "operand 0 that is no pipe"),
        ("%a = OpReadPipe %i32 %y %four %four %four", "operand 1 that is no pointer"),
        ("%a = OpReadPipe %i64 %y %x %four %four", "a result of type i64"),
        ("%a = OpReadPipe %i32 %y %x %i %four", "needs a constant"),
        ("OpCommitReadPipe %y %four %four %four", "operand 1 that is no id of a reservation"),
        (
            "%a = OpReserveReadPipePackets %reserve %y %x %four %four",
            "operand 1 that is no integer",
        ),
        ("%a = OpIsValidReserveId %i32 %i", "a result of type i32"),
        ("%a = OpGetNumPipePackets %p %y %four %four", "a result that is no integer"),
        (
            "%a = OpGroupReserveReadPipePackets %reserve %n1 %y %four %four %four",
            "is of the scope device",
        ),
    ];
    for (body, wanted) in cases {
        let log = log(body, "%n1 = OpConstant %i32 1");
        assert!(log.contains(wanted), "{body}: {log}");
    }
    let large = "%storage = OpTypePipeStorage
        %own = OpConstantPipeStorage %storage 1024 4 1073741824
        %large = OpTypePointer CrossWorkgroup %i32";
    assert!(log("", large).contains("is larger than 1 TiB"), "{}", log("", large));
}

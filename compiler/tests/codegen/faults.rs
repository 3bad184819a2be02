// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the tests: typical faults of a compiler are injected into widened code, and the random kernels
//! have to show each.

use std::collections::BTreeSet;

use tally_compiler::ir::{AtomicOp, BinaryOp, CompareOp, ConvertOp, Module, Op};

use crate::diff::{Mismatch, Run, compare_with, interpreted};
use crate::harness::{Kernel, targets};
use crate::programs::{Groups, Program, difference_of, shrink};

/// The seeds of the programs.
const SEEDS: std::ops::Range<u64> = 1..25;

/// A fault: its name, and its change of an instruction.
type Fault = (&'static str, fn(&mut Op));

const FAULTS: [Fault; 9] = [
    ("a comparison includes equality", |op| match op {
        Op::Compare(compare @ CompareOp::SLt, ..) => *compare = CompareOp::SLe,
        Op::Compare(compare @ CompareOp::SGt, ..) => *compare = CompareOp::SGe,
        _ => {}
    }),
    ("a shift to the right brings zeros", |op| {
        if let Op::Binary(binary @ BinaryOp::AShr, ..) = op {
            *binary = BinaryOp::LShr;
        }
    }),
    ("a number is extended without its sign", |op| {
        if let Op::Convert(convert @ ConvertOp::SExt, _) = op {
            *convert = ConvertOp::ZExt;
        }
    }),
    ("a quotient has no sign", |op| {
        if let Op::Binary(binary @ BinaryOp::SDiv, ..) = op {
            *binary = BinaryOp::UDiv;
        }
    }),
    ("a smaller number has no sign", |op| {
        if let Op::Binary(binary @ BinaryOp::SMin, ..) = op {
            *binary = BinaryOp::UMin;
        }
    }),
    ("a rotation is a shift", |op| {
        if let Op::Binary(binary @ BinaryOp::Rotl, ..) = op {
            *binary = BinaryOp::Shl;
        }
    }),
    ("an atomic sum is a difference", |op| {
        if let Op::AtomicRmw(rmw @ AtomicOp::Add, ..) = op {
            *rmw = AtomicOp::Sub;
        }
    }),
    ("a barrier is a fence", |op| {
        if let Op::ControlBarrier { memory, ordering, .. } = *op {
            *op = Op::Fence(memory, ordering);
        }
    }),
    ("a store ignores its mask", |op| {
        if let Op::MaskedStore(at, value, _, access) = *op {
            *op = Op::Store(at, value, access);
        }
    }),
];

/// Whether a program shows a fault: buffers differ with it, and do not without. `build` compiles the
/// kernel with the fault or without it, if it is widened.
fn shows_in(
    seed: u64,
    groups: Groups,
    left_out: &BTreeSet<usize>,
    build: &dyn Fn(&Module, bool) -> Option<Kernel>,
) -> bool {
    let with = |module: &Module, runs: &[Run]| {
        let run = |fault: bool| match build(module, fault) {
            Some(kernel) => compare_with(&kernel, module, "random", runs),
            None => Ok(()),
        };
        match run(true) {
            Err(Mismatch::Buffers(how)) => {
                run(false).unwrap_or_else(|how| panic!("seed {seed} without a fault: {how}"));
                Err(how)
            }
            Err(error @ Mismatch::Interpreter(_)) => panic!("seed {seed}: {error}"),
            Ok(()) => Ok(()),
        }
    };
    difference_of(seed, groups, left_out, &with).is_some()
}

fn shows(seed: u64, left_out: &BTreeSet<usize>, fault: fn(&mut Op)) -> bool {
    let target = targets().pop().expect("the oldest is always there");
    shows_in(seed, Groups::Rows, left_out, &|module, faulty| {
        let fault = if faulty { fault } else { |_: &mut Op| {} };
        Kernel::with_fault(module, "random", &target, 16, &fault)
    })
}

/// Wrong masks of the items that exist in an uneven row, as other comparisons.
const WRONG_ITEMS: [(&str, &str); 3] = [
    ("one more is there", "uge"),
    ("those are there that are not", "ule"),
    ("all but one are", "ne"),
];

/// Injected faults in the mask of an uneven row are found, by groups that have some.
#[test]
fn every_wrong_mask_shows_in_some_random_program() {
    let target = targets().pop().expect("the oldest is always there");
    for (what, wrong) in WRONG_ITEMS {
        let build = |module: &Module, faulty| {
            let change = |text: String| {
                let kind = if faulty { wrong } else { "ugt" };
                let items = |line: &str| match line.contains(", <i32 0, i32 1, i32 2, i32 3,") {
                    true => line.replace("icmp ugt <16 x i32>", &format!("icmp {kind} <16 x i32>")),
                    false => line.to_owned(),
                };
                text.lines().map(|line| items(line) + "\n").collect()
            };
            Kernel::with_text(module, "random", &target, 16, &change)
        };
        let whole = BTreeSet::new();
        let found = SEEDS.into_iter().any(|seed| shows_in(seed, Groups::Uneven, &whole, &build));
        assert!(found, "no program shows that {what}");
    }
}

/// Injected faults in widened code are found.
#[test]
fn every_fault_shows_in_some_random_program() {
    for (what, fault) in FAULTS {
        let found = SEEDS.into_iter().any(|seed| shows(seed, &BTreeSet::new(), fault));
        assert!(found, "no program shows that {what}");
    }
}

/// A compiler without faults is not found to have one.
#[test]
fn what_is_no_fault_does_not_show() {
    assert!(!(1..5).any(|seed| shows(seed, &BTreeSet::new(), |_| {})));
}

/// Whether a program means something else with a fault. That needs no code: the interpreter runs both.
fn changes(seed: u64, left_out: &BTreeSet<usize>, fault: fn(&mut Op)) -> bool {
    let with = |module: &Module, runs: &[Run]| {
        let mut faulty = module.clone();
        for (_, function) in faulty.functions.iter_mut() {
            for (_, block) in function.blocks.iter_mut() {
                block.insts.iter_mut().for_each(|inst| fault(&mut inst.op));
            }
        }
        let results = |module: &Module| -> Vec<_> {
            runs.iter().map(|run| interpreted(module, "random", run)).collect()
        };
        if results(module) == results(&faulty) { Ok(()) } else { Err("other results".to_owned()) }
    };
    difference_of(seed, Groups::Rows, left_out, &with).is_some()
}

/// Differences shrink: the remaining program shows the fault, and does not without any one of its
/// statements.
#[test]
fn a_difference_shrinks() {
    let (_, fault) = FAULTS[0];
    let whole = BTreeSet::new();
    let seed = SEEDS.into_iter().find(|&seed| changes(seed, &whole, fault)).expect("one of them");
    let least = shrink(seed, &|left_out| changes(seed, left_out, fault));
    let (_, statements) = Program::write(seed, Groups::Rows, &whole);
    assert!(changes(seed, &least, fault), "{least:?}");
    assert!(least.len() < statements, "a difference without any statement");
    for statement in (0..statements).filter(|statement| !least.contains(statement)) {
        let mut less = least.clone();
        less.insert(statement);
        assert!(!changes(seed, &less, fault), "statement {statement} is not needed");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes over the IR of a kernel before it is widened.
//!
//! LLVM optimises the widened code, but that is too late: a private array is memory of all items by
//! then, and a load from it by one item has become a gather. So optimisations of memory of one item are
//! done here, on the kernel with all calls inlined. The scalar form is left to LLVM.
//!
//! ```text
//!   inlined ──▶ copies ──▶ registers ──▶ components ──▶ simplify ──▶ loads ──▶ selects ──▶ rotate
//!   ──▶ invariants ──▶ unroll ──▶ registers ──▶ words ──▶ simplify ──▶ unused ──▶ widen
//! ```
//!
//! Each pass takes a function and leaves an equivalent one, so any of them may be skipped:
//! `TALLY_SKIP_PASSES` names the skipped ones, separated by commas.

mod alike;
mod arguments;
mod blocks;
mod components;
mod copies;
pub(crate) mod cost;
mod counters;
mod flags;
mod globals;
mod identities;
mod invariants;
mod loads;
pub mod multiples;
mod raised;
mod registers;
pub mod rename;
mod rotate;
mod selects;
mod shared;
mod simplify;
mod slots;
mod spelled;
mod units;
mod unroll;
pub mod unused;
mod words;

pub use globals::has_private_globals;

use crate::ir::{Function, Kernel, Module};
use crate::regions::inline;

/// A pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Turns copies of few bytes into loads and stores.
    Copies,
    /// Turns private variables into values.
    Registers,
    /// The same for those that are written before they are read.
    WrittenRegisters,
    /// Computes components of places one by one.
    Components,
    /// Folds constants and removes redundant computations.
    Simplify,
    /// Removes loads of what is known.
    Loads,
    /// Computes both ways of short branches.
    Selects,
    /// Moves the tests of loops to their ends.
    Rotate,
    /// Moves what is the same in each turn of a loop in front of it.
    Invariants,
    /// Unrolls loops that index private arrays and constant tables.
    Unroll,
    /// Makes numbers of 64 bits shorter of which only 32 count.
    Words,
    /// Removes instructions whose results are not used.
    Unused,
}

/// The passes in the order in which they run.
pub const ORDER: [Pass; 13] = [
    Pass::Copies,
    Pass::Registers,
    Pass::Components,
    Pass::Simplify,
    Pass::Loads,
    Pass::Selects,
    Pass::Rotate,
    Pass::Invariants,
    Pass::Unroll,
    // Indices that were variables may be constants by now.
    Pass::Registers,
    Pass::Words,
    Pass::Simplify,
    Pass::Unused,
];

impl Pass {
    /// The name that skips it, and under which its time is shown.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Copies => "copies",
            Pass::Registers | Pass::WrittenRegisters => "registers",
            Pass::Components => "components",
            Pass::Simplify => "simplify",
            Pass::Loads => "loads",
            Pass::Selects => "selects",
            Pass::Rotate => "rotate",
            Pass::Invariants => "invariants",
            Pass::Unroll => "unroll",
            Pass::Words => "words",
            Pass::Unused => "unused",
        }
    }

    /// Runs it over a function.
    pub fn run(self, module: &mut Module, function: &mut Function) {
        match self {
            Pass::Copies => {
                arguments::run(module, function);
                copies::run(module, function);
            }
            Pass::Registers => registers::run(module, function),
            Pass::WrittenRegisters => registers::run_for_written(module, function),
            Pass::Components => components::run(module, function),
            Pass::Simplify => simplify::run(module, function),
            Pass::Loads => loads::run(module, function),
            Pass::Selects => {
                selects::run(module, function);
                flags::run(module, function);
            }
            Pass::Rotate => rotate::run(module, function),
            Pass::Invariants => {
                invariants::run(function);
                shared::run(function);
            }
            Pass::Unroll => unroll::run(module, function),
            Pass::Words => {
                raised::run(module, function);
                counters::run(module, function);
                words::run(module, function);
            }
            Pass::Unused => unused::run(function),
        }
    }
}

/// The passes that run, in order: all but those that `TALLY_SKIP_PASSES` names.
pub fn passes() -> impl Iterator<Item = Pass> {
    ORDER.into_iter().filter(|pass| !is_skipped(pass.name()))
}

/// Whether `TALLY_SKIP_PASSES` names a pass.
pub fn is_skipped(name: &str) -> bool {
    let skipped = std::env::var("TALLY_SKIP_PASSES").unwrap_or_default();
    skipped.split(',').any(|skipped| skipped == name)
}

/// Removes what cannot be reached from a function, and joins blocks that only follow each other.
pub(crate) fn tidied(function: &mut Function) {
    blocks::remove_unreachable(function);
    simplify::drop_single_phis(function);
    blocks::join_chains(function);
}

/// A kernel's part of its module, and the kernel with all calls inlined, before any pass, with its own copy of
/// the private variables of module scope. `None` if it would weigh more than `limit`.
pub fn inlined(module: &Module, kernel: &Kernel, limit: usize) -> Option<(Module, Function)> {
    let called = kernel.facts.functions.iter().copied().filter(|&id| id != kernel.function);
    let mut function = inline::inline(module, kernel.function, &called.collect(), limit)?;
    blocks::remove_unreachable(&mut function);
    let mut part = module.part_of(kernel);
    globals::run(&mut part, &mut function, kernel.facts.watch.is_some());
    Some((part, function))
}

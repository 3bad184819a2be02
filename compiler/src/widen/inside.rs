// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code of its own for vectors that lie within one row, and whose items have one turn.
//!
//! A picture or a tensor whose items are in one dimension is taken apart by division. Nearly all vectors lie in a row:
//!
//! ```text
//!                                                if (all items: i / w is the same)
//!   int x = i % w, y = i / w;                      y is that of all, x grows by 1 from item to item
//!   out[i] = in[2 * y * n + 2 * x];     ──▶        out[i] = in[2 * y * n + 2 * x]     ; every other element of a row
//!                                                else
//!                                                  out[i] = in[2 * y * n + 2 * x]     ; anywhere
//! ```
//!
//! These run as the vectors of a kernel do whose items are in two dimensions: with the knowledge of neighbours, of edges
//! and of loops' turns. In their code, which is a copy, quotients and remainders are operations of their own
//! ([`Op::Row`], in [`rows`]).
//!
//! Such a kernel often has a loop around all, by which a launch of any size does the work. Most launches have an item for
//! each turn, so the copy has no such loop ([`turns`]). It goes through the other passes by itself, so that each code has
//! only those copies that it gains from.

mod rows;
mod turns;

use std::collections::{HashMap, HashSet};

use self::rows::{Divisor, Quotient, quotients};
use super::edges::{Before, Finder, address, apart, is_simple};
use super::shape::{Rows, Shape};
use super::way::Way;
use crate::ir::{
    BinaryOp, Block, BlockId, ENTRY, Function, Module, Op, Operand, RowOp, Terminator, UnaryOp,
    ValueId,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "inside";

/// The maximum number of instructions of a kernel that is copied: it takes about twice as long to build.
const MAX_COPIED: usize = 512;

/// The most tests in front: each takes a division of scalars, of 10 to 20 cycles.
const MOST_TESTS: usize = 6;

/// The code for vectors within a row.
pub(super) struct Inside {
    pub(super) function: Function,
    pub(super) way: Way,
    pub(super) tests: Tests,
}

/// What has to hold for the code to be run.
pub(super) struct Tests {
    /// The function before other passes change it, of which the tests are made.
    plain: Function,
    all: Vec<Test>,
}

#[derive(PartialEq)]
enum Test {
    /// A number, divided by another one, has one quotient for all items.
    Row(Operand, Operand),
    /// A condition is that, for all items.
    Is(Operand, bool),
}

impl Inside {
    /// The code for vectors of a kernel within a row, if it knows more of addresses than the kernel's.
    pub(super) fn of(
        module: &mut Module,
        source: &Function,
        way: &Way,
        steps: &[i64],
    ) -> Option<Self> {
        let size: usize = source.blocks.iter().map(|(_, block)| block.insts.len()).sum();
        if is_skipped(NAME) || size > MAX_COPIED {
            return None;
        }
        let (mut function, mut tests) = (source.clone(), Vec::new());
        let mut inside = None;
        for turns in turns::all(module, source, way) {
            turns.do_once(&mut function);
            tests.push(Test::Is(turns.condition, !turns.when));
        }
        if !tests.is_empty() {
            inside = Some(Way::new(module, &function, Rows::Whole, steps).ok()?);
        }
        // What is left of a number may be divided again.
        loop {
            let found = quotients(module, &function, inside.as_ref().unwrap_or(way));
            if found.is_empty() {
                break;
            }
            for Quotient { block, index, op, number, divisor } in found {
                let ty = module.operand_type(&function, number);
                let divisor = match divisor {
                    Divisor::Is(divisor) => divisor,
                    Divisor::Constant(by) => Operand::Const(module.const_int(ty, by)),
                };
                let test = Test::Row(number, divisor);
                if !tests.contains(&test) {
                    tests.push(test);
                }
                function.blocks[block].insts[index].op = Op::Row(op, number, divisor);
            }
            inside = Some(Way::new(module, &function, Rows::Whole, steps).ok()?);
        }
        let inside = inside.filter(|_| tests.len() <= MOST_TESTS)?;
        let before = apart(source, way, source.blocks.ids());
        let after = apart(&function, &inside, function.blocks.ids());
        if after >= before && !places_are_in_rows(module, &function, &inside) {
            return None;
        }
        let tests = Tests { plain: function.clone(), all: tests };
        Some(Self { function, way: inside, tests })
    }
}

/// Whether addresses without a step are computed from places in rows. There may be a distance between them that all items
/// share ([`strides`](super::strides)), or windows may have as many turns for all items.
fn places_are_in_rows(module: &Module, function: &Function, way: &Way) -> bool {
    let finder = Finder::new(module, function, way);
    let (mut work, mut seen) = (Vec::new(), HashSet::new());
    for (id, block) in function.blocks.iter() {
        let addresses = block.insts.iter().filter_map(address);
        let varies = |&at: &Operand| way.shapes.at(&way.flow, at, id) == Some(Shape::Varying);
        work.extend(addresses.filter(varies));
    }
    while let Some(operand) = work.pop() {
        match finder.op(operand) {
            Some(Op::Row(RowOp::Place, ..)) => return true,
            Some(op) if (is_simple(op) || matches!(op, Op::Phi(_))) && seen.insert(operand) => {
                op.for_each_operand(|operand| work.push(operand));
            }
            _ => {}
        }
    }
    false
}

impl Tests {
    /// Adds the code to the function, in front of which it is asked for. Returns the names of its values there.
    pub(super) fn join(
        &self,
        module: &mut Module,
        function: &mut Function,
        inside: &Function,
    ) -> HashMap<ValueId, ValueId> {
        let bool = module.types.bool();
        let mut before = Before::new(&self.plain, module, function);
        let mut all: Option<Operand> = None;
        for test in &self.all {
            let holds = match *test {
                Test::Row(number, divisor) => {
                    let [number, divisor] = [number, divisor].map(|operand| before.known(operand));
                    before.add(Op::Row(RowOp::Fits, number, divisor), bool)
                }
                Test::Is(condition, truth) => {
                    let mut holds = before.known(condition);
                    if !truth {
                        holds = before.add(Op::Unary(UnaryOp::Not, holds), bool);
                    }
                    before.add(Op::Whole(holds), bool)
                }
            };
            all = Some(match all {
                Some(all) => before.add(Op::Binary(BinaryOp::And, all, holds), bool),
                None => holds,
            });
        }
        let insts = before.insts;
        let (first, names) = import(function, inside);
        let loc = function.blocks[ENTRY].loc;
        let terminator = function.blocks[ENTRY].terminator.clone();
        let entry = Block { insts, terminator, loc };
        let entry = std::mem::replace(&mut function.blocks[ENTRY], entry);
        let others = function.blocks.push(entry);
        for id in function.blocks.ids().collect::<Vec<_>>() {
            function.blocks[id].redirect_phis(ENTRY, others);
        }
        if let Some(all) = all {
            function.blocks[ENTRY].terminator = Terminator::CondBranch(all, first, others);
        }
        names
    }
}

/// Adds the blocks of another function that was a copy of this one. Returns its entry, and the names of its values.
fn import(function: &mut Function, from: &Function) -> (BlockId, HashMap<ValueId, ValueId>) {
    let (mut places, mut names) = (HashMap::new(), HashMap::new());
    for (id, block) in from.blocks.iter() {
        for result in block.insts.iter().filter_map(|inst| inst.result) {
            names.insert(result, function.new_value(from.values[result].ty));
        }
        places.insert(id, function.blocks.push(block.clone()));
    }
    places.values().for_each(|&id| function.blocks[id].rename(&names, &places));
    (places[&ENTRY], names)
}

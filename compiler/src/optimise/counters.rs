// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of 32 bits that a loop keeps extended to 64.
//!
//! In `for (int i = …; i < group * n + n; i += size)` the counter is compared with a `size_t`, and is an index. So a loop
//! that has its test at the end (`rotate`) takes the extended number from one turn to the next:
//!
//! ```text
//!   wide = phi sext first, sext next           i = phi first, next
//!   next = (i32) wide + size          ──▶      wide = sext i
//! ```
//!
//! The right form has bounds ([`promises`](crate::widen)). Any other index of a turn may have been computed in the last
//! one, as in loops that load ahead:
//!
//! ```text
//!   int j = start[0] + id;                                    wide = phi sext j, sext next
//!   for (...) { sum += x[j]; j = start[k] + id; ... }
//! ```

use std::collections::HashMap;

use super::words::{lowered, masked, raised};
use crate::ir::{
    BinaryOp, BlockId, ConvertOp, Flags, Function, Inst, Module, Op, Operand, Type, ValueId,
};

/// Keeps such counters in 32 bits.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let is_wide = |inst: &Inst| {
        inst.result.is_some_and(|it| module.types[function.values[it].ty] == Type::Int(64))
    };
    if !function.blocks.iter().any(|(_, block)| block.phis().any(is_wide)) {
        return;
    }
    let finder = Finder::new(module, function);
    let blocks = function.blocks.ids();
    let counters = |id: BlockId| function.blocks[id].phis().filter_map(|phi| finder.counter(phi));
    let found: Vec<(BlockId, Counter)> =
        blocks.flat_map(|id| counters(id).map(move |it| (id, it)).collect::<Vec<_>>()).collect();
    for (id, counter) in found {
        shorten(module, function, id, counter);
    }
}

/// Makes an extension of a counter, whose phi is in a block.
fn shorten(module: &mut Module, function: &mut Function, id: BlockId, counter: Counter) {
    let short = module.types.int(32);
    let flags = Flags::empty();
    let mut arms = Vec::new();
    for (from, arm) in counter.arms {
        let arm = match arm {
            Arm::Is(operand) => operand,
            Arm::Constant(bits) => Operand::Const(module.const_int(short, bits.into())),
            Arm::Shortened(wide) => {
                let result = function.new_value(short);
                let op = Op::Convert(ConvertOp::Trunc, wide);
                let insts = &mut function.blocks[from].insts;
                let loc = insts.last().map(|inst| inst.loc).unwrap_or_default();
                insts.push(Inst { result: Some(result), op, flags, loc });
                Operand::Value(result)
            }
        };
        arms.push((from, arm));
    }
    let insts = &mut function.blocks[id].insts;
    let Some(place) = insts.iter().position(|it| it.result == Some(counter.wide)) else { return };
    let loc = insts.remove(place).loc;
    // The same counter may be there in 32 bits.
    let same = |inst: &&Inst| matches!(&inst.op, Op::Phi(others) if *others == arms);
    let known = insts.iter().find(same).and_then(|inst| inst.result);
    let number = known.unwrap_or_else(|| {
        let number = function.new_value(short);
        let phi = Inst { result: Some(number), op: Op::Phi(arms), flags, loc };
        function.blocks[id].insts.insert(0, phi);
        number
    });
    let op = Op::Convert(counter.extends, Operand::Value(number));
    let insts = &mut function.blocks[id].insts;
    let behind = insts.iter().take_while(|it| matches!(it.op, Op::Phi(_))).count();
    insts.insert(behind, Inst { result: Some(counter.wide), op, flags, loc });
}

/// A phi of 64 bits all of whose arms are extended numbers of 32.
struct Counter {
    wide: ValueId,
    extends: ConvertOp,
    arms: Vec<(BlockId, Arm)>,
}

/// What arrives in 32 bits.
#[derive(Clone, Copy)]
enum Arm {
    Is(Operand),
    Constant(u32),
    /// The lower half of a number of 64 bits.
    Shortened(Operand),
}

struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    made: HashMap<ValueId, &'a Op>,
}

impl<'a> Finder<'a> {
    fn new(module: &'a Module, function: &'a Function) -> Self {
        let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let made = insts.filter_map(|inst| Some((inst.result?, &inst.op))).collect();
        Self { module, function, made }
    }

    fn counter(&self, phi: &Inst) -> Option<Counter> {
        let wide = phi.result?;
        let Op::Phi(arms) = &phi.op else { return None };
        if self.module.types[self.function.values[wide].ty] != Type::Int(64) {
            return None;
        }
        let extends = arms.iter().find_map(|&(_, arm)| Some(self.extended(arm)?.0))?;
        let arm = |&(from, arm): &(BlockId, Operand)| {
            if let Some(bits) = self.module.operand_bits(arm) {
                let fits = match extends {
                    ConvertOp::SExt => i32::try_from(bits as i64).is_ok(),
                    _ => u32::try_from(bits).is_ok(),
                };
                return fits.then_some((from, Arm::Constant(bits as u32)));
            }
            let (kind, arm) = self.extended(arm)?;
            (kind == extends).then_some((from, arm))
        };
        let arms = arms.iter().map(arm).collect::<Option<Vec<_>>>()?;
        Some(Counter { wide, extends, arms })
    }

    fn made(&self, operand: Operand) -> Option<&'a Op> {
        let Operand::Value(value) = operand else { return None };
        self.made.get(&value).copied()
    }

    /// How a number of 32 bits is extended, and the number.
    fn extended(&self, operand: Operand) -> Option<(ConvertOp, Arm)> {
        let op = self.made(operand)?;
        if let Op::Convert(kind @ (ConvertOp::SExt | ConvertOp::ZExt), from) = *op {
            let bits = self.module.types.scalar_bits(self.module.operand_type(self.function, from));
            return (bits == 32).then_some((kind, Arm::Is(from)));
        }
        if let Some(from) = masked(self.module, op) {
            return Some((ConvertOp::ZExt, Arm::Shortened(from)));
        }
        let (from, _) = lowered(self.module, op).filter(|&(_, by)| by == 32)?;
        let from = raised(self.module, self.made(from)?)?;
        let kind = match op {
            Op::Binary(BinaryOp::AShr, ..) => ConvertOp::SExt,
            _ => ConvertOp::ZExt,
        };
        Some((kind, Arm::Shortened(from)))
    }
}

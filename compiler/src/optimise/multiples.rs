// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the powers of two that divide the integers of a function.
//!
//! C compilers count bytes where the source counts elements, so the index of an array of floats is a
//! number that starts at 0 and grows by 4.

use crate::ir::{BinaryOp, ConvertOp, Function, Id, Inst, Module, Op, Operand, UnaryOp};

/// The maximum number of iterations over the function; after that nothing is known.
const MAX_ROUNDS: usize = 16;

/// The number of zero bits of the integer 0.
const ALL: u32 = 64;

/// The number of low bits of each integer that are known to be zero.
pub struct Multiples(Vec<u32>);

impl Multiples {
    /// Computes them from optimistic initial values, which instructions lower until nothing changes.
    pub fn of_function(module: &Module, function: &Function) -> Self {
        let mut zeros = Self(vec![0; function.values.len()]);
        let insts = || function.blocks.iter().flat_map(|(_, block)| &block.insts);
        for result in insts().filter_map(|inst| inst.result) {
            zeros.0[result.index()] = ALL;
        }
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            for inst in insts() {
                let Some(result) = inst.result else { continue };
                let now = zeros.of_inst(module, inst);
                changed |= now < zeros.0[result.index()];
                zeros.0[result.index()] = now.min(zeros.0[result.index()]);
            }
            if !changed {
                return zeros;
            }
        }
        Self(vec![0; function.values.len()])
    }

    /// The number of low bits of an integer that are known to be zero.
    pub fn zeros(&self, module: &Module, operand: Operand) -> u32 {
        match operand {
            Operand::Const(id) => module.const_bits(id).map_or(0, u64::trailing_zeros),
            Operand::Value(value) => self.0[value.index()],
        }
    }

    fn of_inst(&self, module: &Module, inst: &Inst) -> u32 {
        let of = |operand: Operand| self.zeros(module, operand);
        match &inst.op {
            Op::Phi(incoming) => incoming.iter().map(|arm| of(arm.1)).min().unwrap_or(0),
            &Op::Select(_, a, b) => of(a).min(of(b)),
            &Op::Unary(UnaryOp::Neg, a) => of(a),
            &Op::Convert(ConvertOp::Trunc | ConvertOp::SExt | ConvertOp::ZExt, a) => of(a),
            &Op::Binary(op, a, b) => match op {
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::Or | BinaryOp::Xor => of(a).min(of(b)),
                BinaryOp::Mul => (of(a) + of(b)).min(ALL),
                BinaryOp::And => of(a).max(of(b)),
                BinaryOp::Shl => match b {
                    Operand::Const(id) => match module.const_bits(id) {
                        Some(amount @ ..64) => (of(a) + amount as u32).min(ALL),
                        _ => 0,
                    },
                    Operand::Value(_) => 0,
                },
                _ => 0,
            },
            _ => 0,
        }
    }
}

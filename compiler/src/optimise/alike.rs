// SPDX-License-Identifier: MIT OR Apache-2.0
//! Phis whose arms compute the same.
//!
//! C compilers compute an address where it is first needed, which may be in both arms of a branch:
//!
//! ```text
//!   if (tx == 0) { a = ty << 2; t[a] = in[y]; } else { b = ty << 2; }
//!   c = phi a, b                    ; c = ty << 2
//! ```
//!
//! Items that take different ways then seem to have different values, although `ty` may be the same for all, and
//! an access through the address becomes a gather. So such a value is computed once more behind the phi.

use std::collections::HashMap;

use super::rename::rename;
use crate::ir::{
    BinaryOp, BlockId, Definition, Function, Id, Inst, Loops, Op, Operand, ValueId, definitions,
};

/// The longest computation that is made again, and the most operations of it.
const MAX_DEPTH: usize = 6;
const MAX_OPS: usize = 8;

/// Replaces phis whose arms are alike.
pub(super) fn run(function: &mut Function, loops: &Loops, predecessors: &[Vec<BlockId>]) {
    let definitions = definitions(function);
    let (mut names, mut all) = (HashMap::new(), Vec::new());
    for id in function.blocks.ids() {
        // A value of a loop that is used behind it would have to be kept for each item.
        let same_loop = |from: &BlockId| loops.within[from.index()] == loops.within[id.index()];
        if !predecessors[id.index()].iter().all(same_loop) {
            continue;
        }
        let mut added = Vec::new();
        for index in 0..function.blocks[id].insts.len() {
            let Inst { op: Op::Phi(arms), result: Some(result), .. } =
                &function.blocks[id].insts[index]
            else {
                break;
            };
            let (result, arms): (_, Vec<Operand>) =
                (*result, arms.iter().map(|arm| arm.1).collect());
            let Some((&first, others)) = arms.split_first() else { continue };
            let alike = Alike { function, definitions: &definitions };
            let made = matches!(first, Operand::Value(value) if alike.made(value).is_some());
            let differs = others.iter().any(|&other| other != first);
            if made && differs && others.iter().all(|&other| alike.same(first, other, 0)) {
                let mut copies = Vec::new();
                let name = copied(function, &definitions, first, others, &mut copies);
                if copies.len() <= MAX_OPS {
                    names.insert(result, name);
                    added.extend(copies);
                }
            }
        }
        all.push((id, added));
    }
    for (id, added) in all {
        let insts = &mut function.blocks[id].insts;
        insts.retain(|inst| inst.result.is_none_or(|result| !names.contains_key(&result)));
        let phis = insts.iter().take_while(|inst| matches!(inst.op, Op::Phi(_))).count();
        insts.splice(phis..phis, added);
    }
    rename(function, &names);
}

struct Alike<'a> {
    function: &'a Function,
    definitions: &'a [Option<Definition>],
}

impl<'a> Alike<'a> {
    /// The instruction that makes a value, if it may be made elsewhere too.
    fn made(&self, value: ValueId) -> Option<&'a Inst> {
        let Definition::Inst(block, index) = self.definitions[value.index()]? else { return None };
        let inst = &self.function.blocks[block].insts[index];
        is_cheap(&inst.op).then_some(inst)
    }

    /// Whether two operands are computed in the same way from the same values.
    fn same(&self, a: Operand, b: Operand, depth: usize) -> bool {
        if a == b {
            return true;
        }
        let (Operand::Value(a), Operand::Value(b)) = (a, b) else { return false };
        let (Some(one), Some(other)) = (self.made(a), self.made(b)) else { return false };
        let same_type = self.function.values[a].ty == self.function.values[b].ty;
        let mut ops = [one.op.clone(), other.op.clone()];
        let mut operands = [Vec::new(), Vec::new()];
        for (op, operands) in ops.iter_mut().zip(&mut operands) {
            op.for_each_operand_mut(|operand| {
                operands.push(*operand);
                // All else has to be equal.
                *operand = Operand::Value(a);
            });
        }
        let [left, right] = &operands;
        depth < MAX_DEPTH
            && same_type
            && one.flags == other.flags
            && ops[0] == ops[1]
            && left.len() == right.len()
            && left.iter().zip(right).all(|(&left, &right)| self.same(left, right, depth + 1))
    }
}

/// Copies what makes an operand, down to what all of the others have in common with it.
fn copied(
    function: &mut Function,
    definitions: &[Option<Definition>],
    operand: Operand,
    others: &[Operand],
    copies: &mut Vec<Inst>,
) -> Operand {
    let Operand::Value(value) = operand else { return operand };
    if others.iter().all(|&other| other == operand) {
        return operand;
    }
    let made = |function: &Function, value: ValueId| match definitions[value.index()] {
        Some(Definition::Inst(block, index)) => Some(function.blocks[block].insts[index].clone()),
        _ => None,
    };
    let Some(mut inst) = made(function, value) else { return operand };
    let others = others.iter().filter_map(|&other| match other {
        Operand::Value(other) => made(function, other),
        Operand::Const(_) => None,
    });
    let parts: Vec<Vec<Operand>> = others.map(|inst| operands(&inst.op)).collect();
    let mut names = Vec::new();
    for (number, own) in operands(&inst.op).into_iter().enumerate() {
        let others: Vec<Operand> = parts.iter().map(|part| part[number]).collect();
        names.push(copied(function, definitions, own, &others, copies));
    }
    let mut names = names.into_iter();
    inst.op.for_each_operand_mut(|operand| *operand = names.next().unwrap_or(*operand));
    let result = function.values.push(function.values[value].clone());
    inst.result = Some(result);
    copies.push(inst);
    Operand::Value(result)
}

fn operands(op: &Op) -> Vec<Operand> {
    let mut list = Vec::new();
    op.for_each_operand(|operand| list.push(operand));
    list
}

/// Whether an operation is that of an index or an address.
fn is_cheap(op: &Op) -> bool {
    use BinaryOp as B;
    match op {
        Op::WorkItem(..) | Op::Address { .. } | Op::Convert(..) => true,
        Op::Binary(kind, ..) => matches!(
            kind,
            B::Add | B::Sub | B::Mul | B::And | B::Or | B::Xor | B::Shl | B::AShr | B::LShr
        ),
        _ => false,
    }
}

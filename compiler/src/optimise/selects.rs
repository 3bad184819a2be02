// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes choices of short branches: both ways are computed, and a phi becomes a selection. Two branches with a way in
//! common become one.
//!
//! ```text
//!   if (c == '(') d++; else if (c == ')') d--;      d = c == ')' ? d - 1 : c == '(' ? d + 1 : d
//! ```
//!
//! A vector whose items part takes both ways anyhow, under masks and with tests of whether any item takes them. And
//! loops that have one block are taken in strips along items' rows. clang does the same for two ways, but not for the
//! cases of a `switch`, which it also makes of comparisons of one number with several constants.

use super::blocks;
use super::simplify::drop_single_phis;
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, Function, Inst, Module, Op, Operand, Terminator, Type, TypeId,
    UnaryOp,
};

/// The most instructions in the blocks of a branch that are computed always.
const MOST_INSTS: usize = 8;

/// The most ways of a branch.
const MOST_WAYS: usize = 5;

/// The most phis where the ways meet.
const MOST_PHIS: usize = 4;

/// The most instructions between two conditions that become one.
const MOST_BETWEEN: usize = 4;

/// The most blocks of no instructions on a way.
const MOST_EMPTY: usize = 8;

/// The most rounds: what was a choice in one is an instruction of another one's way in the next.
const MOST_ROUNDS: usize = 8;

/// Runs the pass.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    for _ in 0..MOST_ROUNDS {
        let predecessors = function.predecessors();
        let mut any = false;
        for id in function.blocks.ids() {
            if let Some(both) = Both::of(function, &predecessors, id) {
                both.write(module, function);
                any = true;
            }
            // Choices that were made before in this round leave blocks with fewer predecessors than these.
            if let Some(choice) = Choice::of(module, function, &predecessors, id) {
                choice.write(module, function);
                any = true;
            }
        }
        if !any {
            return;
        }
        blocks::remove_unreachable(function);
        drop_single_phis(function);
        blocks::join_chains(function);
    }
}

/// Two branches, the second behind the first alone, that have one way in common:
///
/// ```text
///   if (x < 1) return; if (x >= w - 1) return;      if (x < 1 || x >= w - 1) return;
/// ```
struct Both {
    from: BlockId,
    second: BlockId,
    /// The way in common, as it is called in the first branch and in the second one, and the latter's other way.
    common: [BlockId; 2],
    other: BlockId,
}

impl Both {
    fn of(function: &Function, predecessors: &[Vec<BlockId>], from: BlockId) -> Option<Self> {
        let &Terminator::CondBranch(_, yes, no) = &function.blocks[from].terminator else {
            return None;
        };
        // Where a way of a branch leads, and from which block: there may be blocks of no instructions on it.
        let goal = |mut way: BlockId, mut from: BlockId| {
            for _ in 0..MOST_EMPTY {
                match function.blocks[way].terminator {
                    Terminator::Branch(next) if function.blocks[way].insts.is_empty() => {
                        (way, from) = (next, way);
                    }
                    _ => break,
                }
            }
            (way, from)
        };
        let of = |first: BlockId, second: BlockId| {
            let block = &function.blocks[second];
            let &Terminator::CondBranch(_, yes, no) = &block.terminator else { return None };
            let few = block.insts.len() <= MOST_BETWEEN;
            let cheap = block.insts.iter().all(|inst| is_cheap(&inst.op));
            let alone = second != from && predecessors[second.index()] == [from];
            if first == second || yes == no || !few || !cheap || !alone {
                return None;
            }
            let (met, one) = goal(first, from);
            let meets = |way: BlockId| {
                let (next, two) = goal(way, second);
                let same = |inst: &Inst| match &inst.op {
                    Op::Phi(arms) => {
                        let of = |way| arms.iter().find(|arm| arm.0 == way).map(|arm| arm.1);
                        of(one) == of(two)
                    }
                    _ => false,
                };
                next == met && function.blocks[met].phis().all(same)
            };
            let (last, other) = match (meets(yes), meets(no)) {
                (true, false) => (yes, no),
                (false, true) => (no, yes),
                _ => return None,
            };
            let apart = ![first, second, from].contains(&other);
            apart.then_some(Self { from, second, common: [first, last], other })
        };
        of(no, yes).or_else(|| of(yes, no))
    }

    fn write(self, module: &mut Module, function: &mut Function) {
        let Self { from, second, common: [common, last], other } = self;
        let behind = &mut function.blocks[second];
        let mut insts = std::mem::take(&mut behind.insts);
        let end = std::mem::replace(&mut behind.terminator, Terminator::Unreachable);
        let (
            &Terminator::CondBranch(first, yes, _),
            Terminator::CondBranch(condition, second_yes, _),
        ) = (&function.blocks[from].terminator, end)
        else {
            return;
        };
        let bool = module.types.bool();
        let (mut first, mut condition) = (first, condition);
        let (mut leaves, mut second_leaves) = (yes == common, second_yes == last);
        // Two conditions that must hold are what others know best.
        if leaves != second_leaves {
            let turned = if leaves { &mut first } else { &mut condition };
            if let Some(op) = opposite(module, function, from, &insts, *turned) {
                let result = function.new_value(bool);
                let loc = function.blocks[from].loc;
                insts.push(Inst { result: Some(result), op, flags: Default::default(), loc });
                *turned = Operand::Value(result);
                (leaves, second_leaves) = (false, false);
            }
        }
        let fixed = Operand::Const(module.const_int(bool, u64::from(second_leaves)));
        // Where the first condition leads to the common way, the second one does not matter.
        let op = if leaves {
            Op::Select(first, fixed, condition)
        } else {
            Op::Select(first, condition, fixed)
        };
        let result = function.new_value(bool);
        let loc = function.blocks[from].loc;
        insts.push(Inst { result: Some(result), op, flags: Default::default(), loc });
        let (yes, no) = if second_leaves { (common, other) } else { (other, common) };
        let block = &mut function.blocks[from];
        block.insts.append(&mut insts);
        block.terminator = Terminator::CondBranch(Operand::Value(result), yes, no);
        for (way, left) in [(last, true), (other, false)] {
            for inst in &mut function.blocks[way].insts {
                let Op::Phi(arms) = &mut inst.op else { break };
                if left {
                    arms.retain(|arm| arm.0 != second);
                } else {
                    arms.iter_mut().filter(|arm| arm.0 == second).for_each(|arm| arm.0 = from);
                    arms.sort_by_key(|&(block, _)| block);
                }
            }
        }
    }
}

/// The opposite of a comparison of integers that a block makes, or some instructions do.
fn opposite(
    module: &Module,
    function: &Function,
    block: BlockId,
    insts: &[Inst],
    condition: Operand,
) -> Option<Op> {
    use CompareOp::{Eq, Ne, SGe, SGt, SLe, SLt, UGe, UGt, ULe, ULt};
    let made = |inst: &&Inst| inst.result.map(Operand::Value) == Some(condition);
    let inst = insts.iter().chain(&function.blocks[block].insts).find(made)?;
    let Op::Compare(op, a, b) = inst.op else { return None };
    let Type::Int(_) = module.types[module.operand_type(function, a)] else { return None };
    let op = match op {
        Eq => Ne,
        Ne => Eq,
        SLt => SGe,
        SLe => SGt,
        SGt => SLe,
        SGe => SLt,
        ULt => UGe,
        ULe => UGt,
        UGt => ULe,
        UGe => ULt,
        _ => return None,
    };
    Some(Op::Compare(op, a, b))
}

/// A branch whose ways meet at once.
struct Choice {
    from: BlockId,
    /// Where they meet.
    join: BlockId,
    /// The blocks in between.
    arms: Vec<BlockId>,
}

impl Choice {
    fn of(
        module: &Module,
        function: &Function,
        predecessors: &[Vec<BlockId>],
        from: BlockId,
    ) -> Option<Self> {
        let end = &function.blocks[from].terminator;
        let mut ways = end.successors();
        let is_choice = matches!(end, Terminator::CondBranch(..) | Terminator::Switch { .. });
        if !is_choice || !(2..=MOST_WAYS).contains(&ways.len()) {
            return None;
        }
        ways.sort_unstable();
        ways.dedup();
        let behind = |&way: &BlockId| match function.blocks[way].terminator {
            Terminator::Branch(next) if predecessors[way.index()].iter().all(|it| *it == from) => {
                let insts = &function.blocks[way].insts;
                insts.iter().all(|inst| is_cheap(&inst.op)).then_some(next)
            }
            _ => None,
        };
        let join = ways.iter().find_map(behind)?;
        let (arms, direct): (Vec<BlockId>, Vec<BlockId>) =
            ways.into_iter().partition(|way| *way != join);
        let insts: usize = arms.iter().map(|&arm| function.blocks[arm].insts.len()).sum();
        let meets = arms.iter().all(|arm| behind(arm) == Some(join)) && direct.len() <= 1;
        let phis = || function.blocks[join].phis();
        let number = |inst: &Inst| {
            let ty = inst.result.map(|result| &module.types[function.values[result].ty]);
            matches!(ty, Some(Type::Int(_) | Type::Float(_) | Type::Bool | Type::Pointer(_)))
        };
        let fits = insts <= MOST_INSTS && phis().count() <= MOST_PHIS && phis().all(number);
        (meets && fits && join != from && !arms.contains(&from)).then_some(Self {
            from,
            join,
            arms,
        })
    }

    fn write(self, module: &mut Module, function: &mut Function) {
        let Self { from, join, arms } = self;
        let mut insts = Vec::new();
        for &arm in &arms {
            insts.append(&mut function.blocks[arm].insts);
        }
        let end =
            std::mem::replace(&mut function.blocks[from].terminator, Terminator::Branch(join));
        let loc = function.blocks[from].loc;
        let mut value = |function: &mut Function, op: Op, ty: TypeId| {
            let result = function.new_value(ty);
            insts.push(Inst { result: Some(result), op, flags: Default::default(), loc });
            Operand::Value(result)
        };
        // What is taken if no condition holds, and the others with theirs.
        let bool = module.types.bool();
        let (otherwise, ways) = match end {
            Terminator::CondBranch(condition, yes, no) => (no, vec![(condition, yes)]),
            Terminator::Switch { value: number, default, cases } => {
                let ty = module.operand_type(function, number);
                let ways = cases.into_iter().map(|(case, way)| {
                    let case = Operand::Const(module.const_int(ty, case));
                    let same = Op::Compare(CompareOp::Eq, number, case);
                    (value(function, same, bool), way)
                });
                (default, ways.collect())
            }
            _ => return,
        };
        // The block of which a phi has the value for a way: each has one for each block in front of it.
        let before = |way: BlockId| if way == join { from } else { way };
        let phis: Vec<_> = function.blocks[join]
            .insts
            .iter()
            .filter_map(|inst| match (&inst.op, inst.result) {
                (Op::Phi(arms), Some(result)) => Some((result, arms.clone())),
                _ => None,
            })
            .collect();
        let mut chosen = Vec::new();
        for (result, incoming) in phis {
            let ty = function.values[result].ty;
            let of = |way: BlockId| incoming.iter().find(|it| it.0 == before(way)).map(|it| it.1);
            let own = of(otherwise).and_then(|own| {
                ways.iter().try_fold(own, |own, &(condition, way)| {
                    Some(match of(way)? {
                        other if other == own => own,
                        other => value(function, Op::Select(condition, other, own), ty),
                    })
                })
            });
            chosen.push(own);
        }
        let mut chosen = chosen.into_iter();
        for inst in &mut function.blocks[join].insts {
            let Op::Phi(incoming) = &mut inst.op else { break };
            incoming.retain(|(block, _)| *block != from && !arms.contains(block));
            if let Some(Some(own)) = chosen.next() {
                incoming.push((from, own));
                incoming.sort_by_key(|&(block, _)| block);
            }
        }
        function.blocks[from].insts.append(&mut insts);
    }
}

/// Whether an operation costs little, and may be computed where it was not.
fn is_cheap(op: &Op) -> bool {
    use BinaryOp::{
        AShr, Add, And, FAdd, FMax, FMin, FMul, FSub, LShr, Mul, Or, SMax, SMin, Shl, Sub, UMax,
        UMin, Xor,
    };
    match op {
        Op::Binary(op, ..) => matches!(
            op,
            AShr | Add
                | And
                | FAdd
                | FMax
                | FMin
                | FMul
                | FSub
                | LShr
                | Mul
                | Or
                | SMax
                | SMin
                | Shl
                | Sub
                | UMax
                | UMin
                | Xor
        ),
        Op::Unary(op, _) => *op != UnaryOp::Sqrt,
        Op::Ternary(..) | Op::Compare(..) | Op::Select(..) | Op::Convert(..) => true,
        _ => false,
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a kernel where work-items wait for each other, so that one thread can run a whole group.
//!
//! Items wait at barriers, and at operations of groups and sub-groups. Such an operation is a
//! barrier at which each item leaves a value ([`Op::Offer`]); behind it each computes what it wants
//! of all of them ([`Op::Collect`]). What follows says "barrier" for all of these.
//!
//! A kernel with barriers becomes a *resumable item*: a function that runs one work-item from
//! where it stopped to the next barrier or to the end. The group runs in phases: each phase
//! resumes every item that has not ended. In a kernel whose barriers are uniform all items stop at
//! the same barrier; one that diverges still ends, with every item having run all of its code.
//!
//! ```text
//!   item:  ── region 0 ──┤ barrier 1 ├── region 1 ──┤ barrier 2 ├── region 2 ── return
//!   phase:      0                          1                             2
//! ```
//!
//! Between phases an item is only its *frame*: private variables and the values that are live
//! across the barrier where it stopped. A value that is live across no barrier stays an SSA value:
//! any path from a barrier to a use of it passes its definition, so the definition dominates the
//! use in the cut graph too.
//!
//! With sub-groups a phase has turns: the items of one sub-group run on, from one of its own
//! barriers to the next, until all of them have ended or wait for the work-group; only then comes
//! the next sub-group's part of the phase. Those at the first of these barriers in program order
//! ([`order`]) go on, the others wait for them: items that have parted meet again.

pub mod inline;
mod live;
pub mod order;
pub mod uniform;

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::ir::{
    BinaryOp, Block, BlockId, ConvertOp, ENTRY, Function, Module, Op, Operand, Scope, Terminator,
    Type, TypeId, ValueId,
};

/// A place where items stop and are resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The block that ends with the barrier, its last instruction.
    pub block: BlockId,
    /// The block to go on at. It has no phis and no other predecessor.
    pub resume: BlockId,
    /// The scope of the items that wait: a sub-group or a work-group.
    pub scope: Scope,
    /// The values to keep, in ascending order.
    pub live: Vec<ValueId>,
    /// Those of them that may differ from what the frame holds already: they were defined since
    /// the item was last resumed. In ascending order.
    pub changed: Vec<ValueId>,
}

/// A kernel that is cut at its barriers.
#[derive(Clone, Debug)]
pub struct Regions {
    /// The kernel with blocks cut so that each barrier ends its block.
    pub function: Function,
    /// The barriers in the order in which items pass them; an item stopped at the barrier of index `i` has state `i + 1`.
    pub barriers: Vec<Barrier>,
    /// The values that are kept across some barrier, in ascending order.
    pub crossing: Vec<ValueId>,
    /// The values that are live across some barrier and made again behind it, and what that takes.
    pub remade: HashSet<ValueId>,
}

/// The places that items may have reached when they have run a region: barriers, by index, or the kernel's end.
pub type Ends = BTreeSet<Option<usize>>;

/// The most regions that are generated one by one.
const MAX_TOGETHER: usize = 16;

/// The most instructions of all regions together: those that belong to several count several times.
const MAX_TOGETHER_INSTRUCTIONS: usize = 4096;

impl Regions {
    /// The ends of each region: the first, and those behind each barrier. Empty where they are
    /// too many, or too large, to be generated one by one.
    pub fn ends(&self) -> Vec<Ends> {
        let starts = std::iter::once(ENTRY).chain(self.barriers.iter().map(|it| it.resume));
        let mut size = 0;
        let ends: Vec<Ends> = starts
            .take(MAX_TOGETHER + 1)
            .map(|start| {
                let (ends, instructions) = self.ends_from(start);
                size += instructions;
                ends
            })
            .collect();
        let few = ends.len() <= MAX_TOGETHER && size <= MAX_TOGETHER_INSTRUCTIONS;
        if few { ends } else { Vec::new() }
    }

    /// The ends of a region, and the number of its instructions.
    fn ends_from(&self, start: BlockId) -> (Ends, usize) {
        let mut ends = Ends::new();
        let mut size = 0;
        let mut seen = HashSet::from([start]);
        let mut work = vec![start];
        while let Some(id) = work.pop() {
            let block = &self.function.blocks[id];
            size += block.insts.len() + 1;
            if let Some(barrier) = self.barriers.iter().position(|it| it.block == id) {
                ends.insert(Some(barrier));
                continue;
            }
            let next = block.terminator.successors();
            if matches!(block.terminator, Terminator::Return(_)) {
                ends.insert(None);
            }
            work.extend(next.into_iter().filter(|&next| seen.insert(next)));
        }
        (ends, size)
    }
}

/// The scope in which an operation makes items wait for each other, if it does: a sub-group or a work-group.
pub fn stop_scope(op: &Op) -> Option<Scope> {
    match op {
        Op::ControlBarrier { execution: scope, .. } | Op::Offer(scope, _) => match scope {
            Scope::WorkItem => None,
            Scope::Subgroup => Some(Scope::Subgroup),
            Scope::Workgroup | Scope::Device | Scope::System => Some(Scope::Workgroup),
        },
        _ => None,
    }
}

/// Cuts `function`, whose callees must have no barriers (see [`inline`]).
pub fn split(module: &Module, function: &Function) -> Regions {
    let mut function = function.clone();
    let mut barriers = cut(&mut function);
    let ranks = order::ranks(&function);
    barriers.sort_by_key(|barrier| order::rank(&ranks, barrier.block));
    live::find(&function, &mut barriers);
    let cheap = remakable(module, &function);
    let mut crossing = BTreeSet::new();
    let mut remade = HashSet::new();
    for barrier in &mut barriers {
        remade.extend(barrier.live.iter().filter(|value| cheap.contains(value)).copied());
        barrier.live.retain(|value| !cheap.contains(value));
        barrier.changed.retain(|value| !cheap.contains(value));
        crossing.extend(barrier.live.iter().copied());
    }
    close(&function, &mut remade);
    Regions { function, barriers, crossing: crossing.into_iter().collect(), remade }
}

/// Cuts blocks behind each barrier. New blocks come after the old ones.
fn cut(function: &mut Function) -> Vec<Barrier> {
    let mut barriers = Vec::new();
    let mut work: Vec<BlockId> = function.blocks.ids().rev().collect();
    while let Some(head) = work.pop() {
        let block = &mut function.blocks[head];
        let stop = block.insts.iter().enumerate();
        let stop = stop.filter_map(|(at, inst)| Some((at, stop_scope(&inst.op)?))).next();
        let Some((at, scope)) = stop else { continue };
        let tail = Block {
            insts: block.insts.split_off(at + 1),
            terminator: Terminator::Unreachable,
            loc: block.loc,
        };
        let resume = function.blocks.push(tail);
        let end = Terminator::Branch(resume);
        let end = std::mem::replace(&mut function.blocks[head].terminator, end);
        rename_predecessor(function, &end, head, resume);
        function.blocks[resume].terminator = end;
        barriers.push(Barrier {
            block: head,
            resume,
            scope,
            live: Vec::new(),
            changed: Vec::new(),
        });
        work.push(resume);
    }
    barriers
}

/// In the phis behind `end`, what came from block `from` now comes from `to`.
fn rename_predecessor(function: &mut Function, end: &Terminator, from: BlockId, to: BlockId) {
    let next: HashSet<_> = end.successors().into_iter().collect();
    for next in next {
        for inst in &mut function.blocks[next].insts {
            let Op::Phi(incoming) = &mut inst.op else { break };
            for (block, _) in incoming.iter_mut().filter(|(block, _)| *block == from) {
                *block = to;
            }
        }
    }
}

/// Adds what the values of a set are made of.
fn close(function: &Function, set: &mut HashSet<ValueId>) {
    loop {
        let before = set.len();
        for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
            if inst.result.is_some_and(|result| set.contains(&result)) {
                inst.op.for_each_operand(|operand| {
                    if let Operand::Value(value) = operand {
                        set.insert(value);
                    }
                });
            }
        }
        if set.len() == before {
            return;
        }
    }
}

/// The most instructions that it may take to make a value again.
const REMADE_STEPS: u32 = 6;

/// The values that the resumed code makes again instead of keeping them: parameters, addresses of
/// private variables, what the item asks about its place, and integers and addresses that take few
/// instructions from there.
///
/// Code generation computes them at the start of the function, before any region.
fn remakable(module: &Module, function: &Function) -> HashSet<ValueId> {
    let given = function.variables.iter().map(|variable| variable.address);
    // By value, how many instructions it takes.
    let mut steps: HashMap<ValueId, u32> =
        function.params.iter().copied().chain(given).map(|value| (value, 0)).collect();
    // Definitions may come after uses in block order, so go on until nothing is added.
    loop {
        let before = steps.len();
        for (_, block) in function.blocks.iter() {
            for inst in &block.insts {
                let Some(result) = inst.result else { continue };
                if steps.contains_key(&result) {
                    continue;
                }
                let mut sum = match &inst.op {
                    Op::WorkItem(..) | Op::Present => 0,
                    op if is_simple(op) && is_scalar(module, function.values[result].ty) => 1,
                    _ => continue,
                };
                inst.op.for_each_operand(|operand| {
                    if let Operand::Value(value) = operand {
                        sum += steps.get(&value).copied().unwrap_or(REMADE_STEPS + 1);
                    }
                });
                if sum <= REMADE_STEPS {
                    steps.insert(result, sum);
                }
            }
        }
        if steps.len() == before {
            return steps.into_keys().collect();
        }
    }
}

/// Whether an operation takes an instruction or two and may be done where it is not needed.
fn is_simple(op: &Op) -> bool {
    use BinaryOp as B;
    match op {
        Op::Convert(kind, _) => {
            use ConvertOp as C;
            matches!(kind, C::Trunc | C::SExt | C::ZExt | C::PtrCast | C::PtrToInt | C::IntToPtr)
        }
        Op::Binary(kind, ..) => matches!(
            kind,
            B::Add | B::Sub | B::Mul | B::And | B::Or | B::Xor | B::Shl | B::LShr | B::AShr
        ),
        Op::Address { .. } => true,
        _ => false,
    }
}

fn is_scalar(module: &Module, ty: TypeId) -> bool {
    matches!(module.types[ty], Type::Int(_) | Type::Pointer(_))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds what a kernel does that other GPUs may not do: some of it in the code, without running it, and
//! accesses through pointers that the kernel has read, which report their addresses at run time.
//!
//! A loop waits for other work-items if it can end only by what it reads, again and again, at one address
//! of global memory, and changes no memory itself. (A loop that tries to compare and exchange what it has
//! just read goes on as soon as another item has succeeded: it does not wait.)

use std::collections::{BTreeSet, HashSet};

use tally_compiler_protocol::checks::{SiteKind, Space};

use super::follow::space_of;
use super::roots::{Base, Roots};
use super::sites::{About, Table, space};
use crate::ir::{
    AddressSpace, ArgKind, AtomicOp, BlockId, Definition, Dominators, Flags, Float, Function,
    GroupOp, Id, Inst, Kernel, Loc, Loops, Module, Op, Operand, Scope, Terminator, Type, ValueId,
    WorkItemQuery, definitions,
};

/// Adds the places that the code tells.
pub(super) fn facts(module: &Module, function: &Function, kernel: &Kernel, table: &mut Table) {
    let mut add = |loc: Option<Loc>, kind: SiteKind, space: Space| {
        if let Some(loc) = loc {
            table.add(module, loc, About { kind, size: 0, space, object: String::new() });
        }
    };
    add(double(module, function), SiteKind::Doubles, Space::Private);
    if kernel.required_subgroup_size.is_none() {
        add(exchange(function), SiteKind::Exchanges, Space::Private);
    }
    add(wait(module, function), SiteKind::Waits, Space::Global);
}

/// The parameters through which the kernel writes.
pub(super) fn written(module: &Module, function: &Function) -> BTreeSet<u32> {
    let roots = Roots::new(function);
    let target = |inst: &Inst| match &inst.op {
        Op::Store(at, ..)
        | Op::AtomicStore(at, ..)
        | Op::Copy(at, ..)
        | Op::AtomicRmw(_, at, ..)
        | Op::AtomicCompareExchange { ptr: at, .. } => Some(*at),
        _ => None,
    };
    let parameter = |at| match roots.of(module, function, at).base {
        Base::Parameter(index) => Some(index as u32),
        _ => None,
    };
    insts(function).filter_map(target).filter_map(parameter).collect()
}

fn insts(function: &Function) -> impl Iterator<Item = &Inst> {
    function.blocks.iter().flat_map(|(_, block)| &block.insts)
}

/// The first place that computes with doubles.
fn double(module: &Module, function: &Function) -> Option<Loc> {
    let is_double = |value: ValueId| {
        let ty = function.values[value].ty;
        module.types[module.types.element(ty)] == Type::Float(Float::F64)
    };
    insts(function).find(|inst| inst.result.is_some_and(is_double)).map(|inst| inst.loc)
}

/// The first place at which items of a sub-group exchange values, in a kernel that never asks how many they
/// are.
fn exchange(function: &Function) -> Option<Loc> {
    use WorkItemQuery::{NumEnqueuedSubgroups, NumSubgroups, SubgroupMaxSize, SubgroupSize};
    let sizes = [SubgroupSize, SubgroupMaxSize, NumSubgroups, NumEnqueuedSubgroups];
    let exchanges = |inst: &&Inst| match &inst.op {
        // A broadcast of one item's value does not depend on the number of items.
        Op::Collect(GroupOp::Shuffle, Scope::Subgroup, Some(index)) => {
            !matches!(index, Operand::Const(_))
        }
        _ => false,
    };
    // An exchange may be made of questions, too, which are not the program's.
    let words: HashSet<u32> = insts(function).filter(exchanges).map(|it| it.loc.word).collect();
    let asks = |inst: &Inst| {
        let asks = matches!(&inst.op, Op::WorkItem(query, _) if sizes.contains(query));
        asks && !words.contains(&inst.loc.word)
    };
    match insts(function).any(asks) {
        true => None,
        false => insts(function).find(exchanges).map(|inst| inst.loc),
    }
}

/// The first place at which a loop waits for other work-items.
fn wait(module: &Module, function: &Function) -> Option<Loc> {
    let predecessors = function.predecessors();
    let dominators = Dominators::of(function, &predecessors);
    let loops = Loops::of(&dominators, &predecessors);
    let waiting = Waiting { module, function, definitions: definitions(function) };
    let mut found = loops.all.iter().filter_map(|it| waiting.place(&it.blocks));
    found.next()
}

struct Waiting<'a> {
    module: &'a Module,
    function: &'a Function,
    definitions: Vec<Option<Definition>>,
}

impl Waiting<'_> {
    /// The place at which a loop of these blocks reads the value that it waits for.
    fn place(&self, blocks: &[BlockId]) -> Option<Loc> {
        let inside: HashSet<BlockId> = blocks.iter().copied().collect();
        let insts = || blocks.iter().flat_map(|&id| &self.function.blocks[id].insts);
        let changes = |inst: &Inst| match &inst.op {
            Op::Store(at, ..) | Op::AtomicStore(at, ..) | Op::Copy(at, ..) => self.is_global(*at),
            Op::AtomicRmw(..) | Op::AtomicCompareExchange { .. } => !self.repeats(inst, &inside),
            _ => false,
        };
        if insts().any(changes) {
            return None;
        }
        let mut work = Vec::new();
        for &id in blocks {
            let terminator = &self.function.blocks[id].terminator;
            let leaves = terminator.successors().iter().any(|next| !inside.contains(next));
            match terminator {
                // Each way out has to depend on it.
                Terminator::CondBranch(condition, ..) if leaves => work.push(*condition),
                Terminator::Switch { value, .. } if leaves => work.push(*value),
                _ => {}
            }
        }
        let reads: Vec<Option<Loc>> = work.into_iter().map(|at| self.read(at, &inside)).collect();
        let all = !reads.is_empty() && reads.iter().all(Option::is_some);
        reads.first().copied().flatten().filter(|_| all)
    }

    /// The read of one address of global memory that a value of a loop comes from.
    fn read(&self, value: Operand, inside: &HashSet<BlockId>) -> Option<Loc> {
        let (mut work, mut seen) = (vec![value], HashSet::new());
        while let Some(operand) = work.pop() {
            let Operand::Value(value) = operand else { continue };
            let Some(inst) = self.inst_of(value, inside).filter(|_| seen.insert(value)) else {
                continue;
            };
            let waits = match &inst.op {
                Op::AtomicLoad(at, ..) => self.is_global(*at) && self.is_same(*at, inside),
                Op::Load(at, access) => {
                    access.volatile && self.is_global(*at) && self.is_same(*at, inside)
                }
                Op::AtomicRmw(..) | Op::AtomicCompareExchange { .. } => self.repeats(inst, inside),
                _ => false,
            };
            if waits {
                return Some(inst.loc);
            }
            inst.op.for_each_operand(|operand| work.push(operand));
        }
        None
    }

    /// Whether an atomic update in a loop does the same each time, and nothing the second time.
    fn repeats(&self, inst: &Inst, inside: &HashSet<BlockId>) -> bool {
        let same = |operand: &Operand| self.is_same(*operand, inside);
        match &inst.op {
            Op::AtomicCompareExchange { ptr, expected, value, .. } => {
                self.is_global(*ptr) && same(ptr) && same(expected) && same(value)
            }
            Op::AtomicRmw(op, at, value, ..) => {
                let zero = match value {
                    Operand::Const(id) => self.module.const_bits(*id) == Some(0),
                    Operand::Value(_) => false,
                };
                let adds = matches!(op, AtomicOp::Add | AtomicOp::Sub | AtomicOp::Xor);
                let is_float = matches!(op, AtomicOp::FAdd);
                self.is_global(*at) && !is_float && (zero || !adds) && same(at) && same(value)
            }
            _ => false,
        }
    }

    /// Whether an operand is the same each time in a loop.
    fn is_same(&self, operand: Operand, inside: &HashSet<BlockId>) -> bool {
        let Operand::Value(value) = operand else { return true };
        match self.inst_of(value, inside).map(|inst| &inst.op) {
            None => true,
            Some(Op::Address { base, terms, .. }) => {
                self.is_same(*base, inside) && terms.iter().all(|it| self.is_same(it.0, inside))
            }
            Some(Op::Convert(_, from)) => self.is_same(*from, inside),
            Some(_) => false,
        }
    }

    /// The instruction of a loop that gives a value.
    fn inst_of(&self, value: ValueId, inside: &HashSet<BlockId>) -> Option<&Inst> {
        match self.definitions.get(value.index()).copied().flatten()? {
            Definition::Inst(block, index) if inside.contains(&block) => {
                self.function.blocks[block].insts.get(index)
            }
            _ => None,
        }
    }

    fn is_global(&self, at: Operand) -> bool {
        let space = space_of(self.module, self.function, at);
        matches!(space, Some(AddressSpace::Global | AddressSpace::Generic))
    }
}

/// Makes accesses tell where they go whose addresses do not come from the kernel's arguments alone. Whether
/// there are any.
pub(super) fn reach(
    module: &mut Module,
    function: &mut Function,
    kernel: &Kernel,
    table: &mut Table,
) -> bool {
    let source = function.clone();
    let origins = Origins { function: &source, kernel, definitions: definitions(&source) };
    let bool = module.types.bool();
    let always = Operand::Const(module.const_int(bool, 1));
    let mut any = false;
    for (id, block) in source.blocks.iter() {
        let mut out = Vec::with_capacity(block.insts.len());
        for inst in &block.insts {
            for (at, size) in accesses(module, &source, inst) {
                let Some(in_space) = space_of(module, &source, at) else { continue };
                let may_be_global = matches!(
                    in_space,
                    AddressSpace::Global | AddressSpace::Constant | AddressSpace::Generic
                );
                if !may_be_global || !origins.reads(at) {
                    continue;
                }
                let space = space(in_space);
                let about = About { kind: SiteKind::Reach, size, space, object: String::new() };
                let site = table.add(module, inst.loc, about);
                let op =
                    Op::Report { site, size: REACH, at, step: 0, mistake: always, items: None };
                out.push(Inst { result: None, op, flags: Flags::empty(), loc: inst.loc });
                any = true;
            }
            out.push(inst.clone());
        }
        function.blocks[id].insts = out;
    }
    any
}

/// In the place of a size: the address is told, whatever its states are. `compiler/rt/checks.c` has it too.
const REACH: u32 = u32::MAX;

/// The addresses that an instruction accesses, with the bytes.
fn accesses(module: &Module, function: &Function, inst: &Inst) -> Vec<(Operand, u64)> {
    let size = |ty| module.types.size(ty);
    let of = |operand| size(module.operand_type(function, operand));
    let result = || inst.result.map_or(0, |result| size(function.values[result].ty));
    match &inst.op {
        Op::Load(at, _) | Op::AtomicLoad(at, ..) => vec![(*at, result())],
        Op::Store(at, value, _)
        | Op::AtomicStore(at, value, ..)
        | Op::AtomicRmw(_, at, value, ..)
        | Op::AtomicCompareExchange { ptr: at, value, .. } => vec![(*at, of(*value))],
        Op::Copy(to, from, ..) => vec![(*to, 1), (*from, 1)],
        _ => Vec::new(),
    }
}

/// The origin of an address.
struct Origins<'a> {
    function: &'a Function,
    kernel: &'a Kernel,
    definitions: Vec<Option<Definition>>,
}

impl Origins<'_> {
    /// Whether an address may come from memory, or from a structure that is an argument.
    fn reads(&self, at: Operand) -> bool {
        let (mut work, mut seen) = (vec![at], HashSet::new());
        while let Some(operand) = work.pop() {
            let Operand::Value(value) = operand else { continue };
            if !seen.insert(value) {
                continue;
            }
            if let Some(index) = self.function.params.iter().position(|&it| it == value) {
                let kind = self.kernel.args.get(index).map(|arg| arg.kind);
                if kind == Some(ArgKind::Value) {
                    return true;
                }
                continue;
            }
            let Some(Definition::Inst(block, index)) =
                self.definitions.get(value.index()).copied().flatten()
            else {
                continue;
            };
            match &self.function.blocks[block].insts[index].op {
                Op::Address { base, .. } => work.push(*base),
                Op::Convert(_, from) => work.push(*from),
                Op::Select(_, yes, no) => work.extend([*yes, *no]),
                Op::Phi(incoming) => work.extend(incoming.iter().map(|it| it.1)),
                _ => return true,
            }
        }
        false
    }
}

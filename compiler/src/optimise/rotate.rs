// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves the test of a loop from its front to its end.
//!
//! ```text
//!   front: if (!(k < n)) goto behind;          if (!(k < n)) goto behind;
//!          ...                          ──▶    turn: ...
//!          k++; goto front;                          k++; if (k < n) goto turn;
//!   behind:                                    behind:
//! ```
//!
//! C compilers do so when they optimise, and what takes loops in strips, apart or by items expects it: their body is
//! one block then, which each turn runs whole. SPIR-V that was not optimised has the left form.
//!
//! What the test's block computes and others use has two definitions afterwards. It goes through private variables, of
//! which [`registers`] makes values again.

use std::collections::HashMap;

use super::{registers, simplify};
use crate::ir::{
    Access, AddressSpace, Block, BlockId, Definition, Dominators, Flags, Function, Id, Inst, Loc,
    Loops, Module, Op, Operand, PrivateVariable, Terminator, TypeId, ValueId, definitions,
};

/// The most instructions of a test, which exists twice then: those of a loop that ends at a limit and at a distance are 12.
const MOST_INSTS: usize = 24;

/// Rotates the loops of a function whose blocks can all be reached.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let predecessors = function.predecessors();
    let dominators = Dominators::of(function, &predecessors);
    let mut loops = Loops::of(&dominators, &predecessors);
    let of = |index| Rotation::of(module, function, &loops, &predecessors, index);
    let found: Vec<Rotation> = (0..loops.all.len()).filter_map(of).collect();
    if found.is_empty() {
        return;
    }
    Variables::new(module, function, &found).write();
    for rotation in found {
        rotation.write(function, &mut loops);
    }
    registers::run(module, function);
    simplify::run(module, function);
}

/// A loop that begins with its test.
struct Rotation {
    /// The loop's number.
    index: usize,
    /// The block with the test, and its two successors.
    front: BlockId,
    body: BlockId,
    behind: BlockId,
}

impl Rotation {
    fn of(
        module: &Module,
        function: &Function,
        loops: &Loops,
        predecessors: &[Vec<BlockId>],
        index: usize,
    ) -> Option<Self> {
        let it = &loops.all[index];
        let front = it.header;
        let inside = |block: BlockId| loops.contains(index, block);
        let &Terminator::CondBranch(_, yes, no) = &function.blocks[front].terminator else {
            return None;
        };
        let (body, behind) = match (inside(yes), inside(no)) {
            (true, false) => (yes, no),
            (false, true) => (no, yes),
            _ => return None,
        };
        // A loop with a test at its end has the right form.
        let goes_on = |&latch: &BlockId| {
            latch != front && function.blocks[latch].terminator.successors().into_iter().all(inside)
        };
        let insts = &function.blocks[front].insts;
        let may_copy = |inst: &Inst| {
            let has_size = |result| module.types.size(function.values[result].ty) > 0;
            let copies = match &inst.op {
                Op::Phi(_) => true,
                Op::Load(_, access) => !access.volatile,
                op => op.is_pure(),
            };
            copies && inst.result.is_some_and(has_size)
        };
        let own = insts.iter().filter(|inst| !matches!(inst.op, Op::Phi(_))).count();
        let is_begun = function.blocks[body].phis().next().is_some();
        let fits = own <= MOST_INSTS && insts.iter().all(may_copy) && !is_begun;
        let apart = predecessors[front.index()].iter().any(|&from| !inside(from));
        (fits && apart && it.latches.iter().all(goes_on)).then_some(Self {
            index,
            front,
            body,
            behind,
        })
    }

    /// Copies the test in front of the loop. Its block has no phis any more.
    fn write(self, function: &mut Function, loops: &mut Loops) {
        let Self { index, front, body, behind } = self;
        let predecessors = function.predecessors();
        let parent = loops.all[index].parent;
        let loc = function.blocks[front].loc;
        let mut add = |function: &mut Function, next: BlockId, within: Option<usize>| {
            let terminator = Terminator::Branch(next);
            loops.within.push(within);
            function.blocks.push(Block { insts: Vec::new(), terminator, loc })
        };
        // The loop has one block in front of it, begins with a block of its own, and is left by one.
        let alone = predecessors[body.index()].iter().all(|&from| from == front);
        let first = if alone { body } else { add(function, body, Some(index)) };
        let entry = add(function, first, parent);
        let left = add(function, behind, parent);
        let guard = add(function, first, parent);
        let mut names = HashMap::new();
        let mut copy = function.blocks[front].clone();
        for inst in &mut copy.insts {
            inst.op.for_each_operand_mut(|operand| *operand = named(&names, *operand));
            if let Some(result) = inst.result {
                let value = function.values[result].clone();
                let new = function.values.push(value);
                inst.result = Some(new);
                names.insert(result, new);
            }
        }
        copy.terminator.for_each_operand_mut(|operand| *operand = named(&names, *operand));
        copy.terminator.for_each_successor_mut(|next| {
            if *next == body {
                *next = entry;
            }
        });
        function.blocks[guard] = copy;
        function.blocks[front].terminator.for_each_successor_mut(|next| {
            *next = if *next == body { first } else { left };
        });
        for &from in &predecessors[front.index()] {
            if !loops.contains(index, from) {
                function.blocks[from].terminator.for_each_successor_mut(|next| {
                    if *next == front {
                        *next = guard;
                    }
                });
            }
        }
        for inst in &mut function.blocks[behind].insts {
            let Op::Phi(arms) = &mut inst.op else { break };
            if let Some(arm) = arms.iter_mut().find(|arm| arm.0 == front) {
                arm.0 = left;
                let other = (guard, named(&names, arm.1));
                arms.push(other);
                arms.sort_by_key(|&(from, _)| from);
            }
        }
    }
}

fn named(names: &HashMap<ValueId, ValueId>, operand: Operand) -> Operand {
    match operand {
        Operand::Value(value) => Operand::Value(names.get(&value).copied().unwrap_or(value)),
        Operand::Const(_) => operand,
    }
}

/// Private variables for the values of some blocks.
struct Variables<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    /// Whether a block is one of these, by number.
    chosen: Vec<bool>,
    definitions: Vec<Option<Definition>>,
    /// The variables of the values that other blocks use.
    addresses: HashMap<ValueId, ValueId>,
    /// What they are loaded as, in the current block.
    loaded: HashMap<ValueId, ValueId>,
    loads: Vec<Inst>,
}

impl<'a> Variables<'a> {
    fn new(module: &'a mut Module, function: &'a mut Function, found: &[Rotation]) -> Self {
        let mut chosen = vec![false; function.blocks.len()];
        found.iter().for_each(|it| chosen[it.front.index()] = true);
        let definitions = definitions(function);
        let (addresses, loaded) = Default::default();
        Self { module, function, chosen, definitions, addresses, loaded, loads: Vec::new() }
    }

    /// Has other blocks load what these define, and phis in these load what arrives.
    fn write(mut self) {
        // What blocks store at their ends, by their numbers.
        let mut ends = vec![Vec::new(); self.chosen.len()];
        for id in self.function.blocks.ids() {
            let insts = std::mem::take(&mut self.function.blocks[id].insts);
            let mut out = Vec::with_capacity(insts.len());
            for mut inst in insts {
                match (&mut inst.op, inst.result) {
                    (Op::Phi(arms), Some(result)) if self.chosen[id.index()] => {
                        let ty = self.function.values[result].ty;
                        let at = self.variable(ty);
                        for &(from, value) in &*arms {
                            ends[from.index()].push((at, value, ty));
                        }
                        inst.op = Op::Load(Operand::Value(at), self.access(ty));
                    }
                    // What arrives from a block is loaded there.
                    (Op::Phi(_), _) => {}
                    (op, _) => op.for_each_operand_mut(|it| *it = self.used(id, *it)),
                }
                out.push(inst);
            }
            let mut end = self.function.blocks[id].terminator.clone();
            end.for_each_operand_mut(|it| *it = self.used(id, *it));
            self.function.blocks[id].terminator = end;
            self.begin(id, out);
        }
        self.arms();
        for (id, stores) in self.function.blocks.ids().zip(ends) {
            let loc = self.function.blocks[id].loc;
            let mut all = Vec::with_capacity(stores.len());
            for (at, value, ty) in stores {
                let value = self.used(id, value);
                all.push(self.store(at, value, ty, loc));
            }
            let insts = std::mem::take(&mut self.function.blocks[id].insts);
            self.begin(id, insts);
            self.function.blocks[id].insts.extend(all);
        }
        self.define();
    }

    /// Loads what arrives at other phis where it comes from.
    fn arms(&mut self) {
        let mut from = HashMap::<BlockId, Vec<Inst>>::new();
        for id in self.function.blocks.ids() {
            let mut insts = std::mem::take(&mut self.function.blocks[id].insts);
            for inst in &mut insts {
                let Op::Phi(arms) = &mut inst.op else { break };
                for (block, operand) in arms {
                    *operand = self.used(*block, *operand);
                    self.loaded.clear();
                    from.entry(*block).or_default().append(&mut self.loads);
                }
            }
            self.function.blocks[id].insts = insts;
        }
        for (id, loads) in from {
            self.function.blocks[id].insts.extend(loads);
        }
    }

    /// Stores the values that other blocks use, behind all phis of their blocks.
    fn define(&mut self) {
        for id in self.function.blocks.ids().filter(|id| self.chosen[id.index()]) {
            let insts = std::mem::take(&mut self.function.blocks[id].insts);
            let mut out = Vec::with_capacity(insts.len());
            for inst in insts {
                let made = inst.result.and_then(|it| Some((it, *self.addresses.get(&it)?)));
                let loc = inst.loc;
                out.push(inst);
                if let Some((value, at)) = made {
                    let ty = self.function.values[value].ty;
                    out.push(self.store(at, Operand::Value(value), ty, loc));
                }
            }
            self.function.blocks[id].insts = out;
        }
    }

    /// Gives a block its instructions, behind the loads that they need.
    fn begin(&mut self, id: BlockId, mut insts: Vec<Inst>) {
        let phis = insts.iter().take_while(|inst| matches!(inst.op, Op::Phi(_))).count();
        insts.splice(phis..phis, self.loads.drain(..));
        self.loaded.clear();
        self.function.blocks[id].insts = insts;
    }

    /// The name of an operand in a block.
    fn used(&mut self, here: BlockId, operand: Operand) -> Operand {
        let Operand::Value(value) = operand else { return operand };
        match self.definitions.get(value.index()).copied().flatten() {
            Some(Definition::Inst(block, _)) if block != here && self.chosen[block.index()] => {}
            _ => return operand,
        }
        if let Some(&loaded) = self.loaded.get(&value) {
            return Operand::Value(loaded);
        }
        let ty = self.function.values[value].ty;
        let at = match self.addresses.get(&value) {
            Some(&at) => at,
            None => {
                let at = self.variable(ty);
                self.addresses.insert(value, at);
                at
            }
        };
        let result = self.function.values.push(self.function.values[value].clone());
        self.loaded.insert(value, result);
        let op = Op::Load(Operand::Value(at), self.access(ty));
        let loc = Loc::default();
        self.loads.push(Inst { result: Some(result), op, flags: Flags::empty(), loc });
        Operand::Value(result)
    }

    fn variable(&mut self, ty: TypeId) -> ValueId {
        let pointer = self.module.types.pointer(AddressSpace::Private);
        let address = self.function.new_value(pointer);
        let (size, align) = (self.module.types.size(ty), self.module.types.align(ty));
        self.function.variables.push(PrivateVariable { address, ty, size, align, init: None });
        address
    }

    fn access(&self, ty: TypeId) -> Access {
        let align = self.module.types.align(ty) as u32;
        Access { align, volatile: false, nontemporal: false }
    }

    fn store(&self, at: ValueId, value: Operand, ty: TypeId, loc: Loc) -> Inst {
        let op = Op::Store(Operand::Value(at), value, self.access(ty));
        Inst { result: None, op, flags: Flags::empty(), loc }
    }
}

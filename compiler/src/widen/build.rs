// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds a function in SSA form from code that assigns variables.
//!
//! While code is written, a variable is read and written like one of an ordinary program. When all
//! blocks have terminators, [`Builder::finish`] finds the value of each read and places phis where
//! several may arrive (Braun and others, "Simple and efficient construction of static single assignment
//! form", 2013).

use rustc_hash::FxHashMap;

use super::known::{Known, ask_scalars};
use super::names::{Kind, Names, Node, Nodes};
use super::refusal::Refusal;
use crate::ir::arena::Id;
use crate::ir::eval::apply;
use crate::ir::{
    Arena, BinaryOp, Block, BlockId, ConstId, ConstKind, ENTRY, Flags, Function, Inst, Loc, Module,
    Op, Operand, Terminator, Type, TypeId, ValueId,
};
use crate::optimise::unused;
use crate::regions::order;

/// The maximum number of places at which values may meet, before those with only one value are removed.
/// Their number is quadratic in a function's size.
const MAX_MEETINGS: usize = 1 << 21;
/// The maximum number of values that may arrive there in total, and of steps to find out which of them
/// meet.
const MAX_STEPS: usize = 1 << 24;

/// A variable of the code that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Var(u32);

/// A function under construction.
pub(super) struct Builder {
    /// The module in which types and constants are interned.
    pub(super) module: Module,
    /// The function so far.
    pub(super) function: Function,
    /// The block that is being written.
    pub(super) block: BlockId,
    /// The source of the instructions.
    pub(super) loc: Loc,
    var_types: Vec<TypeId>,
    /// The value of each variable at the end of each block that writes it.
    written: FxHashMap<(BlockId, Var), Operand>,
    /// The values of variables at the start of blocks that read them before writing them.
    entering: FxHashMap<(BlockId, Var), ValueId>,
    /// Vectors that repeat a value, by block.
    splats: FxHashMap<(BlockId, Operand), Operand>,
    /// Scalars that are known to describe masks.
    pub(super) known: FxHashMap<ValueId, Known>,
    /// The operations that defined vectors, if a component may be computed by itself.
    pub(super) made: FxHashMap<ValueId, Op>,
    /// The block of each load, and the number of writes before it.
    pub(super) loaded: FxHashMap<ValueId, (BlockId, u32)>,
    /// The number of operations so far that may have written to memory.
    pub(super) writes: u32,
    /// Items of a vector.
    pub(super) lanes: u32,
}

impl Builder {
    /// A builder at the start of block 0 of `function`, which has no blocks yet.
    pub(super) fn new(module: Module, mut function: Function, lanes: u32) -> Self {
        let loc = function.loc;
        let entry = Block { insts: Vec::new(), terminator: Terminator::Unreachable, loc };
        let block = function.blocks.push(entry);
        Self {
            module,
            function,
            block,
            loc,
            var_types: Vec::new(),
            written: FxHashMap::default(),
            entering: FxHashMap::default(),
            splats: FxHashMap::default(),
            known: FxHashMap::default(),
            made: FxHashMap::default(),
            loaded: FxHashMap::default(),
            writes: 0,
            lanes,
        }
    }

    /// A new block.
    pub(super) fn new_block(&mut self) -> BlockId {
        let loc = self.loc;
        self.function.blocks.push(Block {
            insts: Vec::new(),
            terminator: Terminator::Unreachable,
            loc,
        })
    }

    /// Continues at the end of a block.
    pub(super) fn switch_to(&mut self, block: BlockId) {
        self.block = block;
    }

    /// Ends the block.
    pub(super) fn end(&mut self, terminator: Terminator) {
        self.function.blocks[self.block].terminator = terminator;
    }

    /// Adds an instruction with a result, or returns the constant that it would produce.
    pub(super) fn def(&mut self, op: Op, ty: TypeId, flags: Flags) -> Operand {
        if let Some(constant) = self.folded(&op, ty) {
            return Operand::Const(constant);
        }
        let result = self.function.new_value(ty);
        if matches!(
            op,
            Op::Address { .. } | Op::Convert(..) | Op::Binary(..) | Op::Splat(_) | Op::Load(..)
        ) {
            self.made.insert(result, op.clone());
        }
        match op {
            Op::Load(..) => _ = self.loaded.insert(result, (self.block, self.writes)),
            Op::AtomicRmw(..)
            | Op::AtomicCompareExchange { .. }
            | Op::AddLater(..)
            | Op::ScatterClose(..)
            | Op::Printf(..)
            | Op::Call(..)
            | Op::Image(..)
            | Op::Images(..)
            | Op::Texels(..)
            | Op::Collect(..) => self.writes += 1,
            _ => {}
        }
        let inst = Inst { result: Some(result), op, flags, loc: self.loc };
        self.function.blocks[self.block].insts.push(inst);
        Operand::Value(result)
    }

    /// The integer constant that an operation on constants produces.
    fn folded(&mut self, op: &Op, ty: TypeId) -> Option<ConstId> {
        let integer = matches!(self.module.types[self.module.types.element(ty)], Type::Int(_));
        if !integer || !matches!(op, Op::Binary(..) | Op::Convert(..)) {
            return None;
        }
        let mut args = Some(Vec::new());
        op.for_each_operand(|operand| match (operand, &mut args) {
            (Operand::Const(id), Some(list)) => list.push(id),
            _ => args = None,
        });
        apply(&mut self.module, op, ty, &args?)
    }

    /// Adds an instruction with a result and no flags.
    pub(super) fn value(&mut self, op: Op, ty: TypeId) -> Operand {
        self.def(op, ty, Flags::empty())
    }

    /// Adds an instruction without result.
    pub(super) fn effect(&mut self, op: Op, flags: Flags) {
        if !matches!(op, Op::Prefetch(_) | Op::Assume(_)) {
            self.writes += 1;
        }
        let inst = Inst { result: None, op, flags, loc: self.loc };
        self.function.blocks[self.block].insts.push(inst);
    }

    /// A new variable.
    pub(super) fn var(&mut self, ty: TypeId) -> Var {
        self.var_types.push(ty);
        Var(self.var_types.len() as u32 - 1)
    }

    /// The type of a variable's values.
    pub(super) fn var_type(&self, var: Var) -> TypeId {
        self.var_types[var.0 as usize]
    }

    /// Assigns a variable.
    pub(super) fn write(&mut self, var: Var, value: Operand) {
        self.written.insert((self.block, var), value);
    }

    /// The current value of a variable; undefined if nothing was ever assigned.
    pub(super) fn read(&mut self, var: Var) -> Operand {
        if let Some(&value) = self.written.get(&(self.block, var)) {
            return value;
        }
        Operand::Value(self.enter(self.block, var))
    }

    fn enter(&mut self, block: BlockId, var: Var) -> ValueId {
        if let Some(&value) = self.entering.get(&(block, var)) {
            return value;
        }
        let value = self.function.new_value(self.var_types[var.0 as usize]);
        self.entering.insert((block, var), value);
        value
    }

    /// The type of an operand.
    pub(super) fn type_of(&self, operand: Operand) -> TypeId {
        self.module.operand_type(&self.function, operand)
    }

    /// The vector type with one component of a scalar type for each item.
    pub(super) fn vector_of(&mut self, ty: TypeId) -> TypeId {
        self.vector(ty, self.lanes)
    }

    /// A vector type. Vectors of scalars are far below the limit on sizes.
    pub(super) fn vector(&mut self, element: TypeId, n: u32) -> TypeId {
        self.module.types.intern(Type::Vector(element, n)).unwrap_or(element)
    }

    /// The type of masks.
    pub(super) fn mask_type(&mut self) -> TypeId {
        let bool = self.module.types.bool();
        self.vector_of(bool)
    }

    /// An integer constant, in all components if `ty` is a vector.
    pub(super) fn int(&mut self, ty: TypeId, value: i64) -> Operand {
        match self.module.types[ty] {
            Type::Vector(element, n) => {
                let part = self.module.const_int(element, value as u64);
                let kind = ConstKind::Composite(vec![part; n as usize]);
                Operand::Const(self.module.constant(ty, kind))
            }
            _ => Operand::Const(self.module.const_int(ty, value as u64)),
        }
    }

    /// The null value of a type.
    pub(super) fn null(&mut self, ty: TypeId) -> Operand {
        Operand::Const(self.module.constant(ty, ConstKind::Null))
    }

    /// Some value of a type.
    pub(super) fn undef(&mut self, ty: TypeId) -> Operand {
        Operand::Const(self.module.constant(ty, ConstKind::Undef))
    }

    /// The mask with all lanes.
    pub(super) fn all(&mut self) -> Operand {
        let ty = self.mask_type();
        self.int(ty, 1)
    }

    /// The vector 0, 1, 2, ... times a number, of an integer type.
    pub(super) fn steps(&mut self, element: TypeId, stride: i64) -> Operand {
        let parts: Vec<ConstId> = (0..i64::from(self.lanes))
            .map(|lane| self.module.const_int(element, lane.wrapping_mul(stride) as u64))
            .collect();
        let ty = self.vector_of(element);
        Operand::Const(self.module.constant(ty, ConstKind::Composite(parts)))
    }

    /// A scalar in every lane.
    pub(super) fn splat(&mut self, scalar: Operand) -> Operand {
        let ty = self.type_of(scalar);
        let vector = self.vector_of(ty);
        if let Operand::Const(id) = scalar
            && !matches!(self.module.constants[id].kind, ConstKind::Address(..))
        {
            let kind = match self.module.constants[id].kind {
                ConstKind::Undef => ConstKind::Undef,
                _ => ConstKind::Composite(vec![id; self.lanes as usize]),
            };
            return Operand::Const(self.module.constant(vector, kind));
        }
        if let Some(&splat) = self.splats.get(&(self.block, scalar)) {
            return splat;
        }
        let splat = self.value(Op::Splat(scalar), vector);
        self.splats.insert((self.block, scalar), splat);
        splat
    }

    /// Resolves all reads. Returns the module and the function.
    ///
    /// # Errors
    /// A [`Refusal`] if that would take too much time and memory.
    pub(super) fn finish(mut self) -> Result<(Module, Function), Refusal> {
        let predecessors = self.function.predecessors();
        let before = only_predecessors(&self.function, &predecessors);
        let mut arms: FxHashMap<ValueId, (BlockId, Var)> = FxHashMap::default();
        let too_much = || Refusal::new("too many values over too many branches");
        let mut names = Names::default();
        let mut nodes: Vec<(ValueId, Node)> = self.unions();
        let mut arriving = 0;
        let mut work: Vec<(BlockId, Var, ValueId)> =
            self.entering.iter().map(|(&(block, var), &value)| (block, var, value)).collect();
        // Values get their numbers here, which must not depend on a hash.
        work.sort_by_key(|&(block, var, _)| (block, var));
        while let Some((block, var, value)) = work.pop() {
            if arms.insert(value, (block, var)).is_some() {
                continue;
            }
            let from = &predecessors[block.index()];
            arriving += from.len();
            if arms.len() > MAX_MEETINGS || arriving > MAX_STEPS {
                return Err(too_much());
            }
            if from.is_empty() {
                let undef = self.undef(self.var_types[var.0 as usize]);
                names.set(value, undef);
                continue;
            }
            if let Some(from) = before[block.index()] {
                let operand = self.leaving(from, var, &before, &mut work);
                names.set(value, operand);
                continue;
            }
            let mut incoming = Vec::with_capacity(from.len());
            for &from in from {
                incoming.push((from, self.leaving(from, var, &before, &mut work)));
            }
            nodes.push((value, Node::phi(incoming)));
        }
        let mut nodes = Nodes::new(self.function.values.len(), nodes);
        let settle = |nodes: &mut Nodes, names: &mut Names, module: &Module| {
            nodes.settle(names, |operand| kind(module, operand), MAX_STEPS).ok_or_else(too_much)
        };
        settle(&mut nodes, &mut names, &self.module)?;
        for value in nodes.find_null(&mut names, |operand| kind(&self.module, operand)) {
            let null = self.null(self.function.values[value].ty);
            nodes.settle_null(value, null, &mut names);
        }
        settle(&mut nodes, &mut names, &self.module)?;
        ask_scalars(&mut self.function, &self.known, &mut names);
        let mut placed: FxHashMap<BlockId, Vec<Inst>> = FxHashMap::default();
        for (value, incoming) in nodes.into_phis() {
            let (block, _) = arms[&value];
            placed.entry(block).or_default().push(Inst {
                result: Some(value),
                op: Op::Phi(incoming),
                flags: Flags::empty(),
                loc: self.function.blocks[block].loc,
            });
        }
        for (block, phis) in placed {
            self.function.blocks[block].insts.splice(0..0, phis);
        }
        let mut resolve = |operand: &mut Operand| *operand = names.find(*operand);
        for (_, block) in self.function.blocks.iter_mut() {
            block.insts.iter_mut().for_each(|inst| inst.op.for_each_operand_mut(&mut resolve));
            block.terminator.for_each_operand_mut(&mut resolve);
        }
        unused::run(&mut self.function);
        renumber(&mut self.function);
        Ok((self.module, self.function))
    }
}

impl Builder {
    /// The value of a variable at the end of a block. Blocks with only one predecessor that neither read nor
    /// write it are passed over: most are such, and a value of each would be the cost of widening.
    fn leaving(
        &mut self,
        mut block: BlockId,
        var: Var,
        before: &[Option<BlockId>],
        work: &mut Vec<(BlockId, Var, ValueId)>,
    ) -> Operand {
        loop {
            if let Some(&operand) = self.written.get(&(block, var)) {
                return operand;
            }
            if let Some(&value) = self.entering.get(&(block, var)) {
                return Operand::Value(value);
            }
            match before[block.index()] {
                Some(only) => block = only,
                None => break,
            }
        }
        let entering = self.enter(block, var);
        work.push((block, var, entering));
        Operand::Value(entering)
    }

    /// Unions of masks: they are not needed where no item is pending.
    fn unions(&self) -> Vec<(ValueId, Node)> {
        let insts = self.function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let union = |inst: &Inst| match (inst.result, &inst.op) {
            (Some(result), &Op::Binary(BinaryOp::Or, a, b)) => Some((result, Node::Union(a, b))),
            _ => None,
        };
        insts.filter_map(union).collect()
    }
}

/// The effect of an operand on the nodes at which it arrives.
fn kind(module: &Module, operand: Operand) -> Kind {
    match operand {
        Operand::Const(id) => match module.constants[id].kind {
            ConstKind::Undef => Kind::Undefined,
            ConstKind::Null => Kind::Null,
            _ => Kind::Other,
        },
        Operand::Value(_) => Kind::Other,
    }
}

/// The predecessor of each block that has only one. Chains of them end: from the entry no block is reached
/// that is in a circle of such.
fn only_predecessors(function: &Function, predecessors: &[Vec<BlockId>]) -> Vec<Option<BlockId>> {
    let mut only: Vec<_> = reached(function)
        .into_iter()
        .zip(predecessors)
        .map(|(reached, all)| match all[..] {
            [one] if reached => Some(one),
            _ => None,
        })
        .collect();
    only[ENTRY.index()] = None;
    only
}

/// Whether each block can be reached.
fn reached(function: &Function) -> Vec<bool> {
    let mut reached = vec![false; function.blocks.len()];
    let mut work = vec![ENTRY];
    reached[ENTRY.index()] = true;
    while let Some(block) = work.pop() {
        for next in function.blocks[block].terminator.successors() {
            if !std::mem::replace(&mut reached[next.index()], true) {
                work.push(next);
            }
        }
    }
    reached
}

/// Keeps only blocks that can be reached, in the order in which they are run.
fn renumber(function: &mut Function) {
    let reached = reached(function);
    let order = order::nest(function).order;
    let kept: Vec<BlockId> = order.into_iter().filter(|block| reached[block.index()]).collect();
    let numbers: FxHashMap<BlockId, BlockId> =
        kept.iter().enumerate().map(|(n, &block)| (block, BlockId::from_index(n))).collect();
    let mut blocks = Arena::default();
    for block in kept {
        let mut block = function.blocks[block].clone();
        block.terminator.for_each_successor_mut(|next| *next = numbers[next]);
        for inst in &mut block.insts {
            let Op::Phi(incoming) = &mut inst.op else { break };
            // Arms from blocks that cannot be reached are never used.
            incoming.retain(|(from, _)| numbers.contains_key(from));
            incoming.iter_mut().for_each(|(from, _)| *from = numbers[from]);
            incoming.sort_by_key(|&(from, _)| from);
        }
        blocks.push(block);
    }
    function.blocks = blocks;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable that many blocks neither read nor write has no value of its own in each of them, in a circle of
    /// blocks that cannot be reached neither.
    #[test]
    fn blocks_that_do_not_use_a_variable_are_passed_over() {
        let mut module = Module::default();
        let int = module.types.int(32);
        let function = Function {
            name: String::new(),
            params: Vec::new(),
            return_type: int,
            values: Arena::default(),
            variables: Vec::new(),
            shown: Vec::new(),
            blocks: Arena::default(),
            exported: false,
            loc: Loc::default(),
        };
        let mut builder = Builder::new(module, function, 4);
        let var = builder.var(int);
        let seven = builder.int(int, 7);
        builder.write(var, seven);
        for _ in 0..1000 {
            let next = builder.new_block();
            builder.end(Terminator::Branch(next));
            builder.switch_to(next);
        }
        let last = builder.block;
        let read = builder.read(var);
        builder.end(Terminator::Return(Some(read)));
        let circle = builder.new_block();
        builder.switch_to(circle);
        builder.read(var);
        builder.end(Terminator::Branch(circle));

        let (_, function) = builder.finish().expect("it is small");
        assert_eq!(function.blocks[last].terminator, Terminator::Return(Some(seven)));
        assert!(function.values.len() < 10, "{} values", function.values.len());
        assert_eq!(function.blocks.len(), 1001);
    }
}

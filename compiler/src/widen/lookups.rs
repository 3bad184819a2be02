// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small tables that widening itself has not looked up, in what it has written.
//!
//! Bytes that are written side by side become words ([`transpose`](super::transpose)). Reads of constant and of local
//! memory do not part them, but [tables](super::tables) would, since whether a table lies in one page is a branch:
//!
//! ```text
//!   out[3 * i] = table[in[3 * i]], out[3 * i + 1] = table[in[3 * i + 1]], out[3 * i + 2] = table[in[3 * i + 2]]
//! ```
//!
//! So such tables are looked up here, when what is written has been joined. So are those whose addresses are several steps
//! (`table[(in[i] & 15) + 1]`), and variables of the module, whatever the index: what clang makes of a switch.
//!
//! Members of structures (`p[i].mass`, 28 bytes apart) are looked up, too, unless some are scattered: loads of whole vectors
//! wait until such stores are in the cache.

use super::bounds::Bounds;
use super::close::{LANES, WORD};
use super::tables::{LEAST, MOST};
use crate::ir::arena::Id;
use crate::ir::{
    AddressSpace, BinaryOp, Block, BlockId, ConstKind, ConvertOp, Definition, Flags, Function,
    Inst, Loc, Module, Op, Operand, Terminator, Type, TypeId, ValueId, definitions,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "lookups";

/// The most gathers of a function that are looked up: each is two blocks more.
const MOST_GATHERS: usize = 64;

/// The longest way back from an address to its base.
const MAX_DEPTH: usize = 6;

/// A gather from a table.
struct Gather {
    block: BlockId,
    index: usize,
    result: ValueId,
    /// Where the table is: an address, and a distance and scalar terms that are added.
    base: Operand,
    offset: i64,
    terms: Vec<(Operand, i64)>,
    /// The items' indices, the distance from one to the next, and the place of the first.
    number: Operand,
    stride: u64,
    first: i64,
    bytes: u64,
}

/// Looks up what is gathered from small tables.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let has_any = insts.any(|inst| is_short(module, function, inst));
    drop(insts);
    if !has_any || is_skipped(NAME) {
        return;
    }
    let bounds = Bounds::in_order(module, function);
    let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let scatters = insts.any(|inst| matches!(inst.op, Op::Scatter(..)));
    drop(insts);
    let finder = Finder { module, function, definitions: definitions(function), bounds, scatters };
    let found = finder.find();
    if found.len() > MOST_GATHERS {
        return;
    }
    // From the last one of each block, so that the others stay where they are.
    for gather in found.iter().rev() {
        let mut writer = Writer { module, function, insts: Vec::new() };
        writer.write(gather);
    }
}

/// Whether an instruction gathers elements of words or shorter ones.
fn is_short(module: &Module, function: &Function, inst: &Inst) -> bool {
    let (&Op::Gather(at, _, access), Some(result)) = (&inst.op, inst.result) else { return false };
    let types = &module.types;
    let ty = function.values[result].ty;
    let element = types.element(ty);
    let pointer = types.element(module.operand_type(function, at));
    types.lanes(ty) == LANES
        && types.size(element) <= WORD
        && matches!(types[element], Type::Int(_) | Type::Float(_))
        && !matches!(types[pointer], Type::Pointer(AddressSpace::Private))
        && !access.volatile
}

struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    definitions: Vec<Option<Definition>>,
    bounds: Bounds,
    /// Whether the function scatters anything.
    scatters: bool,
}

impl<'a> Finder<'a> {
    fn find(&self) -> Vec<Gather> {
        let mut found = Vec::new();
        let predecessors = self.function.predecessors();
        for (block, all) in self.function.blocks.iter() {
            if self.has_tested(&predecessors[block.index()]) {
                continue;
            }
            for (index, inst) in all.insts.iter().enumerate() {
                found.extend(self.gather(block, index, inst));
            }
        }
        found
    }

    fn gather(&self, block: BlockId, index: usize, inst: &Inst) -> Option<Gather> {
        let (&Op::Gather(at, ..), Some(result)) = (&inst.op, inst.result) else { return None };
        if !is_short(self.module, self.function, inst) {
            return None;
        }
        let types = &self.module.types;
        let size = types.size(types.element(self.function.values[result].ty));
        let (mut base, mut offset, mut terms, mut varying) = (at, 0i64, Vec::new(), None);
        for depth in 0.. {
            if types.lanes(self.type_of(base)) == 1 {
                break;
            }
            let Op::Address { base: next, offset: by, terms: more, .. } = self.made(base)? else {
                return None;
            };
            for &(term, stride) in more {
                match types.lanes(self.type_of(term)) {
                    1 => terms.push((term, stride)),
                    _ if varying.is_none() => varying = Some((term, stride)),
                    _ => return None,
                }
            }
            (base, offset) = (*next, offset.checked_add(*by).filter(|_| depth < MAX_DEPTH)?);
        }
        let (number, stride) = varying?;
        if self.scatters && matches!(number, Operand::Const(_)) {
            return None;
        }
        let stride = u64::try_from(stride).ok().filter(|stride| stride.is_multiple_of(size))?;
        let known = self.bounds.most(self.module, number);
        let last = known.and_then(|most| most.checked_mul(stride)?.checked_add(size));
        let found = |offset: i64, first: i64, bytes: u64| {
            let bytes = bytes.next_power_of_two().max(LEAST);
            let terms = terms.clone();
            Gather { block, index, result, base, offset, terms, number, stride, first, bytes }
        };
        if let Some(last) = last.filter(|&last| last <= MOST) {
            return Some(found(offset, 0, last));
        }
        let (from, all) =
            self.variable(base).filter(|&(_, all)| terms.is_empty() && all <= MOST)?;
        let first = offset.checked_add(from)?;
        first.unsigned_abs().is_multiple_of(size).then(|| found(-from, first, all))
    }

    /// The place of an address in a variable of the module, and the variable's size: as much as items that run may read.
    fn variable(&self, base: Operand) -> Option<(i64, u64)> {
        let Operand::Const(id) = base else { return None };
        let ConstKind::Address(variable, from) = self.module.constants[id].kind else {
            return None;
        };
        let variable = &self.module.globals[variable];
        // What is written to local memory piece by piece is not there yet for a load of all of it.
        let is_table = matches!(variable.space, AddressSpace::Constant | AddressSpace::Global);
        (is_table && !variable.imported).then_some((from, variable.size))
    }

    /// Whether the only way to a block begins at a test of a table, which has failed there.
    fn has_tested(&self, predecessors: &[BlockId]) -> bool {
        let &[before] = predecessors else { return false };
        match self.function.blocks[before].terminator {
            Terminator::CondBranch(holds, ..) => matches!(self.made(holds), Some(Op::Table(..))),
            _ => false,
        }
    }

    fn type_of(&self, operand: Operand) -> TypeId {
        self.module.operand_type(self.function, operand)
    }

    fn made(&self, operand: Operand) -> Option<&'a Op> {
        let Operand::Value(value) = operand else { return None };
        match self.definitions[value.index()]? {
            Definition::Inst(block, index) => Some(&self.function.blocks[block].insts[index].op),
            Definition::Entry => None,
        }
    }
}

struct Writer<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    insts: Vec<Inst>,
}

impl Writer<'_> {
    /// Parts the block where something is gathered: it is looked up if the table lies in one page.
    fn write(&mut self, gather: &Gather) {
        let block = &mut self.function.blocks[gather.block];
        let loc = block.loc;
        let rest = block.insts.split_off(gather.index + 1);
        let mut gathers = block.insts.pop().expect("the gather");
        let terminator = std::mem::replace(&mut block.terminator, Terminator::Unreachable);
        let successors = terminator.successors();
        let ty = self.function.values[gather.result].ty;

        let pointer = self.module.operand_type(self.function, gather.base);
        let (base, offset, terms) = (gather.base, gather.offset, gather.terms.clone());
        let at = self.value(Op::Address { base, offset, terms, inbounds: false }, pointer);
        let bool = self.module.types.bool();
        let holds = self.value(Op::Table(at, gather.bytes), bool);
        let test = std::mem::take(&mut self.insts);

        let looked = self.look_up(gather, at, ty);
        let insts = std::mem::take(&mut self.insts);
        let unfinished = Terminator::Unreachable;
        let behind = self.function.blocks.push(Block { insts: Vec::new(), terminator, loc });
        let branch = Terminator::Branch(behind);
        let finds = self.function.blocks.push(Block { insts, terminator: branch.clone(), loc });
        let apart =
            self.function.blocks.push(Block { insts: Vec::new(), terminator: unfinished, loc });

        let result = self.function.new_value(ty);
        gathers.result = Some(result);
        let (op, flags) =
            (Op::Phi(vec![(finds, looked), (apart, Operand::Value(result))]), Flags::empty());
        let phi = Inst { result: Some(gather.result), op, flags, loc: gathers.loc };
        self.function.blocks[apart].insts = vec![gathers];
        self.function.blocks[apart].terminator = branch;
        self.function.blocks[behind].insts = std::iter::once(phi).chain(rest).collect();
        let before = &mut self.function.blocks[gather.block];
        before.insts.extend(test);
        before.terminator = Terminator::CondBranch(holds, finds, apart);
        for next in successors {
            self.function.blocks[next].redirect_phis(gather.block, behind);
        }
    }

    /// The items' elements.
    fn look_up(&mut self, gather: &Gather, at: Operand, ty: TypeId) -> Operand {
        let int = self.module.types.int(8 * WORD as u32);
        let words = self.vector(int);
        let bits =
            self.module.types.scalar_bits(self.module.operand_type(self.function, gather.number));
        let mut place = match bits {
            32 => gather.number,
            64 => self.value(Op::Convert(ConvertOp::Trunc, gather.number), words),
            _ => self.value(Op::Convert(ConvertOp::SExt, gather.number), words),
        };
        let constant = |this: &mut Self, number: u64| {
            let one = Operand::Const(this.module.const_int(int, number));
            this.value(Op::Splat(one), words)
        };
        if gather.stride != 1 {
            let stride = constant(self, gather.stride);
            place = self.value(Op::Binary(BinaryOp::Mul, place, stride), words);
        }
        if gather.first != 0 {
            let first = constant(self, gather.first as u64);
            place = self.value(Op::Binary(BinaryOp::Add, place, first), words);
        }
        let found = self.value(Op::LookUp(at, place, gather.bytes), words);
        let [most, three] = [WORD - 1, 3].map(|number| constant(self, number));
        let byte = self.value(Op::Binary(BinaryOp::And, place, most), words);
        let bit = self.value(Op::Binary(BinaryOp::Shl, byte, three), words);
        let moved = self.value(Op::Binary(BinaryOp::LShr, found, bit), words);
        let element = self.module.types.element(ty);
        let small = self.module.types.int(8 * self.module.types.size(element) as u32);
        let small = self.vector(small);
        let cut = self.value(Op::Convert(ConvertOp::Trunc, moved), small);
        if small == ty { cut } else { self.value(Op::Convert(ConvertOp::Bitcast, cut), ty) }
    }

    fn vector(&mut self, element: TypeId) -> TypeId {
        // Vectors of scalars are far below the limit on sizes.
        self.module.types.intern(Type::Vector(element, LANES)).unwrap_or(element)
    }

    fn value(&mut self, op: Op, ty: TypeId) -> Operand {
        let result = self.function.new_value(ty);
        let (flags, loc) = (Flags::empty(), Loc::default());
        self.insts.push(Inst { result: Some(result), op, flags, loc });
        Operand::Value(result)
    }
}

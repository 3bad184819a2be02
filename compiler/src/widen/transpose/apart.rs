// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows with accesses in between that concern other memory, as only their addresses tell:
//!
//! ```text
//!   out[3 * i] = x[i];  out[3 * i + 1] = y[i];  out[3 * i + 2] = z[i];
//! ```
//!
//! If `out` may be `y`, a store to it may have to come before the load of `y`. So the block has two copies: one in which
//! the rows are accessed as such, if they do not overlap what is accessed in between, and one in which each access stays
//! where it is.
//!
//! ```text
//!   a = from out + 12 i, 192 bytes   b = from y + 4 i, 64 bytes
//!   a.end <= b.start or b.end <= a.start ?
//! ```

use std::collections::{HashMap, HashSet};

use super::{Chunk, Finder, Terms, Writer};
use crate::ir::{
    BinaryOp, Block, BlockId, CompareOp, ConvertOp, Function, Inst, Module, Op, Operand,
    Terminator, TypeId, ValueId,
};

/// The most operations of an address that are computed before a block: `(y * w + (w - 1 - x)) * 4 + c` has twelve.
const MOST_HOISTED: usize = 24;

/// The memory that a block's accesses from one base, with one index, concern: a range of offsets.
#[derive(Clone)]
pub(super) struct Region {
    base: Operand,
    index: Terms,
    low: i64,
    high: i64,
    /// A scalar address, and the offset that it has with so many bytes added.
    at: Operand,
    terms: Vec<(Operand, i64)>,
    beyond: i64,
    offset: i64,
}

impl Finder<'_> {
    /// The region of open rows.
    pub(super) fn region_of_chunk(&mut self, number: usize) -> Option<usize> {
        let chunk = &self.open[number];
        let mut regions = Vec::new();
        for place in 0..chunk.parts.len() {
            regions.push(self.region_of_part(&self.open[number], place)?);
        }
        regions.into_iter().map(|region| self.add(region)).last()
    }

    /// The region of an access, where addresses of one item or of neighbours tell it.
    pub(super) fn region_of(&mut self, inst: &Inst, chunk: Option<&Chunk>) -> Option<usize> {
        if let Some(chunk) = chunk {
            let region = self.region_of_part(chunk, 0)?;
            return Some(self.add(region));
        }
        let (at, access, ty) = match inst.op {
            Op::Load(at, access) | Op::MaskedLoad(at, _, access) => {
                (at, access, self.function.values[inst.result?].ty)
            }
            Op::Store(at, value, access) | Op::MaskedStore(at, value, _, access) => {
                (at, access, self.module.operand_type(self.function, value))
            }
            _ => return None,
        };
        let pointer = self.module.operand_type(self.function, at);
        let bytes = self.module.types.layout(ty)?.size as i64;
        if access.volatile || self.module.types.lanes(pointer) > 1 || !self.is_early(at) {
            return None;
        }
        let (rows, part) = self.place(at)?;
        let (low, high) = (part.offset, part.offset.checked_add(bytes)?);
        let (base, index) = (rows.base, rows.index);
        let (terms, beyond, offset) = (Vec::new(), 0, part.offset);
        Some(self.add(Region { base, index, low, high, at, terms, beyond, offset }))
    }

    fn region_of_part(&self, chunk: &Chunk, place: usize) -> Option<Region> {
        let (part, step) = (&chunk.parts[place], chunk.rows.step?);
        let early = |&(term, _): &(Operand, i64)| self.is_early(term);
        if !self.is_early(part.pointer) || !part.terms.iter().all(early) {
            return None;
        }
        let reach = step * i64::from(chunk.lanes - 1);
        let size = self.module.types.size(chunk.element) as i64;
        Some(Region {
            base: chunk.rows.base,
            index: chunk.rows.index.clone(),
            low: part.offset + reach.min(0),
            high: part.offset + reach.max(0) + size,
            at: part.pointer,
            terms: part.terms.clone(),
            beyond: part.beyond,
            offset: part.offset,
        })
    }

    /// The number of the region that a new one is a part of, which becomes as large.
    fn add(&mut self, new: Region) -> usize {
        let same = |old: &Region| old.base == new.base && old.index == new.index;
        if let Some(number) = self.regions.iter().position(same) {
            let old = &mut self.regions[number];
            (old.low, old.high) = (old.low.min(new.low), old.high.max(new.high));
            return number;
        }
        self.regions.push(new);
        self.regions.len() - 1
    }

    /// Whether a scalar can be computed before the block.
    fn is_early(&self, operand: Operand) -> bool {
        let (mut work, mut hoisted) = (vec![operand], HashSet::new());
        while let Some(operand) = work.pop() {
            let Operand::Value(value) = operand else { continue };
            let is_here = self.own.contains(&value) && !self.first.contains(&value);
            if !is_here || !hoisted.insert(value) {
                continue;
            }
            match self.made.get(&value) {
                Some(op) if hoisted.len() <= MOST_HOISTED => {
                    op.for_each_operand(|operand| work.push(operand));
                }
                _ => return false,
            }
        }
        true
    }
}

/// Gives a block two copies. The first of those returned, with `true`, runs where no pair of regions overlaps.
pub(super) fn split(
    module: &mut Module,
    function: &mut Function,
    id: BlockId,
    checks: &[[Region; 2]],
) -> [(BlockId, bool); 2] {
    let Block { mut insts, terminator, loc } = function.blocks[id].clone();
    let phis = insts.iter().take_while(|inst| matches!(inst.op, Op::Phi(_))).count();
    let body = insts.split_off(phis);
    let made: HashMap<ValueId, Inst> =
        body.iter().filter_map(|inst| Some((inst.result?, inst.clone()))).collect();
    let mut writer = Writer { module, function, insts, loc };
    let mut head = Head { made: &made, names: HashMap::new() };
    let mut all: Option<Operand> = None;
    for pair in checks {
        let apart = head.apart(&mut writer, pair);
        let bool = writer.module.types.bool();
        all = Some(match all {
            None => apart,
            Some(before) => writer.value(Op::Binary(BinaryOp::And, before, apart), bool),
        });
    }
    let insts = std::mem::take(&mut writer.insts);
    let used = used_elsewhere(function, id, &made);
    let empty = || Block { insts: Vec::new(), terminator: Terminator::Unreachable, loc };
    let [fast, slow, join] = std::array::from_fn(|_| function.blocks.push(empty()));
    let mut joined: Vec<(ValueId, Vec<(BlockId, Operand)>)> =
        used.into_iter().map(|value| (value, Vec::new())).collect();
    for copy in [fast, slow] {
        let names = copied(function, copy, &body, join);
        for (value, arms) in &mut joined {
            arms.push((copy, Operand::Value(names[value])));
        }
    }
    let phi = |(value, arms)| Inst {
        result: Some(value),
        op: Op::Phi(arms),
        flags: Default::default(),
        loc: made[&value].loc,
    };
    let insts_of_join = joined.into_iter().map(phi).collect();
    function.blocks[join] = Block { insts: insts_of_join, terminator, loc };
    for (_, block) in function.blocks.iter_mut() {
        block.redirect_phis(id, join);
    }
    let terminator = match all {
        Some(all) => Terminator::CondBranch(all, fast, slow),
        None => Terminator::Branch(slow),
    };
    function.blocks[id] = Block { insts, terminator, loc };
    // The head's own phis come from where they came from, but for a loop of this block alone.
    function.blocks[id].redirect_phis(id, join);
    [(fast, true), (slow, false)]
}

/// The values of a block that its terminator, its own phis and other blocks use, in order.
fn used_elsewhere(function: &Function, id: BlockId, made: &HashMap<ValueId, Inst>) -> Vec<ValueId> {
    let mut used = HashSet::new();
    let mut note = |operand: Operand| {
        if let Operand::Value(value) = operand
            && made.contains_key(&value)
        {
            used.insert(value);
        }
    };
    for (other, block) in function.blocks.iter() {
        block.terminator.for_each_operand(&mut note);
        for inst in &block.insts {
            if other != id || matches!(inst.op, Op::Phi(_)) {
                inst.op.for_each_operand(&mut note);
            }
        }
    }
    let mut used: Vec<ValueId> = used.into_iter().collect();
    used.sort_unstable();
    used
}

/// Fills a block with a copy of instructions. The names of their results there.
fn copied(
    function: &mut Function,
    to: BlockId,
    body: &[Inst],
    next: BlockId,
) -> HashMap<ValueId, ValueId> {
    let mut names = HashMap::new();
    let mut insts = Vec::with_capacity(body.len());
    for inst in body {
        let mut inst = inst.clone();
        inst.op.for_each_operand_mut(|operand| {
            if let Operand::Value(value) = operand
                && let Some(&name) = names.get(value)
            {
                *value = name;
            }
        });
        if let Some(result) = &mut inst.result {
            let ty = function.values[*result].ty;
            let name = function.new_value(ty);
            names.insert(*result, name);
            *result = name;
        }
        insts.push(inst);
    }
    let block = &mut function.blocks[to];
    (block.insts, block.terminator) = (insts, Terminator::Branch(next));
    names
}

/// What is computed before the copies.
struct Head<'a> {
    /// The instructions of the block.
    made: &'a HashMap<ValueId, Inst>,
    names: HashMap<ValueId, Operand>,
}

impl Head<'_> {
    /// Whether two regions do not overlap.
    fn apart(&mut self, writer: &mut Writer<'_>, pair: &[Region; 2]) -> Operand {
        let (i64, bool) = (writer.module.types.int(64), writer.module.types.bool());
        let [a, b] = [0, 1].map(|number| self.ends(writer, &pair[number], i64));
        let before = writer.value(Op::Compare(CompareOp::ULe, a[1], b[0]), bool);
        let behind = writer.value(Op::Compare(CompareOp::ULe, b[1], a[0]), bool);
        writer.value(Op::Binary(BinaryOp::Or, before, behind), bool)
    }

    /// The first byte of a region, and the byte behind it, as numbers.
    fn ends(&mut self, writer: &mut Writer<'_>, region: &Region, i64: TypeId) -> [Operand; 2] {
        let base = self.early(writer, region.at);
        let ty = writer.module.operand_type(writer.function, base);
        let terms: Vec<_> =
            region.terms.iter().map(|&(term, by)| (self.early(writer, term), by)).collect();
        [region.low, region.high].map(|end| {
            let offset = end.wrapping_sub(region.offset).wrapping_add(region.beyond);
            let op = Op::Address { base, offset, terms: terms.clone(), inbounds: false };
            let at = writer.value(op, ty);
            writer.value(Op::Convert(ConvertOp::PtrToInt, at), i64)
        })
    }

    /// An operand, computed before the block.
    fn early(&mut self, writer: &mut Writer<'_>, operand: Operand) -> Operand {
        let Operand::Value(value) = operand else { return operand };
        if let Some(&name) = self.names.get(&value) {
            return name;
        }
        let Some(inst) = self.made.get(&value) else { return operand };
        let mut op = inst.op.clone();
        op.for_each_operand_mut(|operand| *operand = self.early(writer, *operand));
        let ty = writer.function.values[value].ty;
        let name = writer.value(op, ty);
        self.names.insert(value, name);
        name
    }
}

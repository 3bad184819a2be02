// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of items: neighbouring elements that each item reads, or writes, for itself.
//!
//! Element by element they are gathers or scatters, which access memory once for each item and element. Where
//! a block has them for 16 neighbouring bytes of all items, each item's bytes are loaded as one, and
//! transposed in registers:
//!
//! ```text
//!   item 0: a0 a1 a2 a3          a0 b0 c0 d0 ...
//!   item 1: b0 b1 b2 b3   ──▶    a1 b1 c1 d1 ...
//!   item 2: c0 c1 c2 c3          a2 b2 c2 d2 ...
//!   ...                          a3 b3 c3 d3 ...
//! ```
//!
//! Fewer neighbours, and those of which some items have none, are gathered and scattered as words of up to 8
//! bytes ([`words`]).
//!
//! This is a pass over what widening has written. The accesses of a row have to be in one block, without
//! another access in between that may concern the same memory.

use std::collections::{HashMap, HashSet};

use super::steps::is_near;
use crate::ir::{
    Access, AddressSpace, BinaryOp, Block, BlockId, ConstId, ConstKind, ConvertOp, Function, Inst,
    Loc, Module, Op, Operand, Type, TypeId, ValueId,
};
use crate::optimise::cost::LEAST_APART;
use crate::optimise::{is_skipped, rename, unused};

mod lines;
mod words;

/// The name by which it is left out.
const NAME: &str = "rows";

/// The bytes of a row that are loaded as one: those of the shortest register. Longer ones take as many
/// shuffles.
const CHUNK: u64 = 16;

/// Transposes the rows of a widened function.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    if is_skipped(NAME) {
        return;
    }
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let made: HashMap<ValueId, Op> = insts
        .filter(|inst| matches!(inst.op, Op::Address { .. } | Op::Binary(..) | Op::Convert(..)))
        .filter_map(|inst| Some((inst.result?, inst.op.clone())))
        .collect();
    let mut names = HashMap::new();
    for id in function.blocks.ids() {
        let (chunks, again) = Finder::new(module, function, &made).find(id);
        names.extend(again);
        if chunks.is_empty() {
            continue;
        }
        let Block { insts, .. } = &mut function.blocks[id];
        let before = std::mem::take(insts);
        let mut writer = Writer { module, function, insts: Vec::new(), loc: Loc::default() };
        for (index, inst) in before.into_iter().enumerate() {
            let here = chunks.iter().filter(|chunk| chunk.place() == index);
            writer.loc = inst.loc;
            for chunk in here {
                match (chunk.kind, chunk.is_word(writer.module)) {
                    (Kind::Read, _) if chunk.is_line => names.extend(writer.load_line(chunk)),
                    (Kind::Write, _) if chunk.is_line => writer.store_line(chunk),
                    (Kind::Read, false) => names.extend(writer.read(chunk)),
                    (Kind::Write, false) => writer.write(chunk),
                    (Kind::Read, true) if chunk.has_more => names.extend(writer.around(chunk)),
                    (Kind::Read, true) => names.extend(writer.gather(chunk)),
                    (Kind::Write, true) => writer.scatter(chunk),
                }
            }
            if !chunks.iter().any(|chunk| chunk.parts.iter().any(|part| part.index == index)) {
                writer.insts.push(inst);
            }
        }
        function.blocks[id].insts = writer.insts;
    }
    rename::rename(function, &names);
    unused::run(function);
}

/// The rows of a vector of items: where they begin, but for a fixed distance, and how far apart. If they lie
/// anywhere, the base is a vector of pointers, of which each is looked up.
#[derive(Clone, PartialEq)]
struct Rows {
    base: Operand,
    index: Terms,
    step: Option<i64>,
}

/// The terms of an integer sum with their factors, ordered by term. The constant is kept beside them.
type Terms = Vec<(Term, i64)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Term {
    Value(ValueId),
    /// A sum that an operation extends: its number in [`Finder::extended`].
    Extended(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// An element of each item's row that is accessed.
#[derive(Clone)]
struct Part {
    /// The instruction's place in its block.
    index: usize,
    offset: i64,
    align: u32,
    /// The first item's address, or all items' addresses, but for the terms of a sum and some bytes.
    pointer: Operand,
    terms: Vec<(Operand, i64)>,
    beyond: i64,
    /// All items' addresses.
    at: Operand,
    /// The vector that is read or written.
    value: Operand,
}

/// Accesses of the same rows, in the order of the block; later neighbours, in the order of their offsets.
struct Chunk {
    kind: Kind,
    rows: Rows,
    /// The type of an element.
    element: TypeId,
    lanes: u32,
    /// The items that access theirs.
    mask: Operand,
    /// Whether transposing them is an advantage.
    transposes: bool,
    /// Whether they are accessed with all that lies between them ([`lines`]).
    is_line: bool,
    /// Whether their word has more than they have ([`words`]).
    has_more: bool,
    parts: Vec<Part>,
}

impl Chunk {
    /// Whether the parts are accessed as one word, and not transposed.
    fn is_word(&self, module: &Module) -> bool {
        self.bytes(module) < CHUNK
    }

    /// Bytes of an item's parts.
    fn bytes(&self, module: &Module) -> u64 {
        module.types.size(self.element) * self.parts.len() as u64
    }

    /// The place of the code for all parts: of what is read the first one's, of what is written the last
    /// one's.
    fn place(&self) -> usize {
        let places = self.parts.iter().map(|part| part.index);
        let place = if self.kind == Kind::Read { places.min() } else { places.max() };
        place.unwrap_or(0)
    }
}

struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    made: &'a HashMap<ValueId, Op>,
    /// The values of the block.
    own: HashSet<ValueId>,
    /// The operations that extend sums, with those and their constants.
    extended: Vec<(Extension, Terms, i64)>,
    /// The operations of an index that have been looked at.
    steps: u32,
    /// Accesses that more may join.
    open: Vec<Chunk>,
    found: Vec<Chunk>,
    /// What is read once more, as it was read before: the elements that two turns of a loop along rows have in common.
    again: Vec<(ValueId, Operand)>,
}

/// An extension to 64 bits: a conversion, a shift to the right by so many bits, or a mask.
#[derive(Clone, Copy, PartialEq)]
enum Extension {
    Convert(ConvertOp),
    Shift(i64),
    Mask(i64),
}

impl<'a> Finder<'a> {
    fn new(module: &'a Module, function: &'a Function, made: &'a HashMap<ValueId, Op>) -> Self {
        let (own, extended, steps, open, found, again) = Default::default();
        Self { module, function, made, own, extended, steps, open, found, again }
    }

    /// The accesses in a block that become others, and the values that are others of before.
    fn find(mut self, id: BlockId) -> (Vec<Chunk>, Vec<(ValueId, Operand)>) {
        let insts = &self.function.blocks[id].insts;
        self.own = insts.iter().filter_map(|inst| inst.result).collect();
        for (index, inst) in insts.iter().enumerate() {
            let access = match inst.op {
                Op::Gather(at, mask, access) => {
                    inst.result.map(|result| (Kind::Read, at, Operand::Value(result), mask, access))
                }
                Op::Scatter(at, value, mask, access) => {
                    Some((Kind::Write, at, value, mask, access))
                }
                _ => None,
            };
            let access = access.and_then(|(kind, at, value, mask, access)| {
                self.part(kind, index, at, value, mask, access)
            });
            // A read may see an earlier write, and a write may overwrite what was read or written, unless one is in
            // another address space.
            let (reads, writes) = (reads(&inst.op), writes(&inst.op));
            let space = self.space_of(&inst.op);
            let ends = |open: &Chunk| {
                let [mine, other] = [Some(self.space(open.parts[0].at)), space];
                let elsewhere = mine != other && other.is_some();
                let generic = [mine, other].contains(&Some(AddressSpace::Generic));
                let may_be_same = !elsewhere || generic;
                match open.kind {
                    Kind::Read => writes && may_be_same,
                    Kind::Write => {
                        let own = access.as_ref().is_some_and(|new| self.is_apart(open, new));
                        (reads || writes) && may_be_same && !own
                    }
                }
            };
            let ended: Vec<bool> = self.open.iter().map(ends).collect();
            self.close(&ended);
            let Some(new) = access else { continue };
            let Some(open) = self.open.iter_mut().find(|open| joins(open, &new)) else {
                self.open.push(new);
                continue;
            };
            let own = &new.parts[0];
            let same = open.parts.iter().find(|part| part.offset == own.offset);
            match (new.kind, same, own.value) {
                (Kind::Read, Some(same), Operand::Value(value)) => {
                    self.again.push((value, same.value));
                }
                _ => open.parts.extend(new.parts),
            }
        }
        self.close(&vec![true; self.open.len()]);
        (self.found, self.again)
    }

    /// The address space that an operation accesses, if it is a load or a store.
    fn space_of(&self, op: &Op) -> Option<AddressSpace> {
        match *op {
            Op::Load(at, ..)
            | Op::MaskedLoad(at, ..)
            | Op::Gather(at, ..)
            | Op::Store(at, ..)
            | Op::MaskedStore(at, ..)
            | Op::Scatter(at, ..) => Some(self.space(at)),
            _ => None,
        }
    }

    /// The address space of an address, or of what it was before it became one of any space.
    fn space(&self, mut at: Operand) -> AddressSpace {
        loop {
            let types = &self.module.types;
            let pointer = types.element(self.module.operand_type(self.function, at));
            match types[pointer] {
                Type::Pointer(AddressSpace::Generic) => {}
                Type::Pointer(space) => return space,
                _ => return AddressSpace::Generic,
            }
            let Operand::Value(value) = at else { return AddressSpace::Generic };
            at = match self.made.get(&value) {
                Some(Op::Address { base, .. }) => *base,
                Some(Op::Convert(ConvertOp::PtrCast, from)) => *from,
                _ => return AddressSpace::Generic,
            };
        }
    }

    /// Whether a write is to the same rows, but to no bytes that others of them write.
    fn is_apart(&self, open: &Chunk, new: &Chunk) -> bool {
        let size = self.module.types.size(new.element);
        let apart = |part: &Part| part.offset.abs_diff(new.parts[0].offset) >= size;
        joins(open, new) && open.parts.iter().all(apart)
    }

    /// An access to an element of all items' rows.
    fn part(
        &mut self,
        kind: Kind,
        index: usize,
        at: Operand,
        value: Operand,
        mask: Operand,
        access: Access,
    ) -> Option<Chunk> {
        let types = &self.module.types;
        let ty = self.module.operand_type(self.function, value);
        let Type::Vector(element, lanes) = types[ty] else { return None };
        let number = matches!(types[element], Type::Int(_) | Type::Float(_));
        let count = CHUNK / types.size(element).max(1);
        let whole = count >= 2 && u64::from(lanes) % count == 0;
        if !number || access.volatile || access.nontemporal {
            return None;
        }
        let align = access.align;
        let (rows, part) = self.rows(at)?;
        // Where they are found out in each turn, few elements are gathered as soon.
        let is_new = matches!(part.pointer, Operand::Value(it) if self.own.contains(&it));
        let few = rows.step.is_none() && is_new && count < LEAST_APART;
        let transposes = whole && !few && is_all(self.module, mask);
        let parts = vec![Part { index, align, at, value, ..part }];
        let (is_line, has_more) = (false, false);
        Some(Chunk { kind, rows, element, lanes, mask, transposes, is_line, has_more, parts })
    }

    /// The rows in which addresses lie that are the same number of bytes apart, and the place in them.
    fn rows(&mut self, at: Operand) -> Option<(Rows, Part)> {
        let made = self.made;
        let (mut at, mut offset, mut index) = (at, 0i64, Terms::new());
        let (mut step, mut first) = (None, None);
        // Whether each item has an index of its own.
        let (all, mut looked_up) = (at, false);
        // What is added to the vector of addresses.
        let (mut beyond, mut scalars) = (0i64, Vec::new());
        self.steps = 0;
        while let Operand::Value(value) = at {
            let (base, distance, terms) = match made.get(&value) {
                Some(Op::Address { base, offset, terms, .. }) => (base, offset, terms),
                // The same address.
                Some(Op::Convert(ConvertOp::PtrCast, from)) => {
                    at = *from;
                    continue;
                }
                _ => break,
            };
            let types = &self.module.types;
            let lanes = |operand| types.lanes(self.module.operand_type(self.function, operand));
            let counts = |&[(numbers, _)]: &[_; 1]| step.is_none() && self.counts_items(numbers);
            let one = <&[_; 1]>::try_from(terms.as_slice()).ok();
            if !one.is_some_and(counts) && terms.iter().any(|&(number, _)| lanes(number) > 1) {
                let sums: Option<Vec<_>> = terms
                    .iter()
                    .map(|&(number, by)| self.sum(number, 0).map(|(more, rest)| (more, rest, by)))
                    .collect();
                let Some(sums) = sums.filter(|_| step.is_none()) else { break };
                for (more, rest, by) in sums {
                    index = added(index, more, by);
                    offset = offset.wrapping_add(rest.wrapping_mul(by));
                }
                offset = offset.wrapping_add(*distance);
                looked_up = true;
                at = *base;
                continue;
            }
            offset = offset.wrapping_add(*distance);
            match terms.as_slice() {
                &[(numbers, by)] if step.is_none() && self.counts_items(numbers) => {
                    (step, first) = (Some(by), Some((*base, offset)));
                }
                terms => {
                    if step.is_none() {
                        beyond = beyond.wrapping_add(*distance);
                        scalars.extend_from_slice(terms);
                    }
                    for &(number, by) in terms {
                        let (more, constant) = self.sum(number, 0)?;
                        index = added(index, more, by);
                        offset = offset.wrapping_add(constant.wrapping_mul(by));
                    }
                }
            }
            at = *base;
        }
        let (pointer, terms, beyond) = match first {
            Some(_) if looked_up => return None,
            Some((pointer, beyond)) => (pointer, Vec::new(), beyond),
            None if looked_up => (all, Vec::new(), 0),
            None => (at, scalars, beyond),
        };
        let lanes = self.module.types.lanes(self.module.operand_type(self.function, pointer));
        let rows = Rows { base: at, index, step };
        let part = Part { index: 0, offset, align: 1, pointer, terms, beyond, at, value: at };
        let near = step.is_none_or(is_near) && is_near(offset);
        (near && (lanes == 1) == step.is_some()).then_some((rows, part))
    }

    /// An integer, or a vector of them, as a sum, modulo its width, and the constant in it.
    fn sum(&mut self, operand: Operand, depth: u32) -> Option<(Terms, i64)> {
        let ty = self.module.operand_type(self.function, operand);
        let module = self.module;
        let Type::Int(bits @ (32 | 64)) = module.types[module.types.element(ty)] else {
            return None;
        };
        let cut = |number: i64| if bits == 32 { i64::from(number as i32) } else { number };
        let constant = |operand: Operand| match operand {
            Operand::Const(id) => same_bits(module, id).map(|bits| cut(bits as i64)),
            Operand::Value(_) => None,
        };
        let value = match operand {
            Operand::Const(_) => return Some((Terms::new(), constant(operand)?)),
            Operand::Value(value) => value,
        };
        let itself = Some((vec![(Term::Value(value), 1)], 0));
        let op = match self.made.get(&value) {
            Some(op) if depth < MAX_DEPTH && self.steps < MAX_STEPS => op,
            _ => return itself,
        };
        self.steps += 1;
        use BinaryOp::{AShr, Add, And, Mul, Or, Shl, Sub};
        let (terms, more) = match *op {
            Op::Binary(op @ (Add | Sub), a, b) => {
                let sign = if op == Add { 1 } else { -1 };
                let (a, b) = (self.sum(a, depth + 1)?, self.sum(b, depth + 1)?);
                (added(a.0, b.0, sign), a.1.wrapping_add(b.1.wrapping_mul(sign)))
            }
            Op::Binary(op @ (Mul | Shl | Or | And | AShr), a, b) => {
                let Some(by) = constant(b) else { return itself };
                let (terms, more) = self.sum(a, depth + 1)?;
                let times = |terms, by| (added(Terms::new(), terms, by), more.wrapping_mul(by));
                match op {
                    Mul => times(terms, by),
                    Shl if (0..i64::from(bits)).contains(&by) => times(terms, 1 << by),
                    // Bits that nothing else in the sum has.
                    Or => {
                        let zeros = terms.iter().map(|term| term.1.trailing_zeros()).min();
                        let room = 1i64 << zeros.unwrap_or(0).min(62);
                        if more != 0 || !(0..room).contains(&by) {
                            return itself;
                        }
                        (terms, by)
                    }
                    And => (self.extension(Extension::Mask(by), terms, more), 0),
                    AShr => (self.extension(Extension::Shift(by), terms, more), 0),
                    _ => return itself,
                }
            }
            Op::Convert(op @ (ConvertOp::SExt | ConvertOp::ZExt), a) => {
                let Some((terms, more)) = self.sum(a, depth + 1) else { return itself };
                // What is added to bits that nothing else in the sum has does not carry.
                let zeros = terms.iter().map(|term| term.1.trailing_zeros()).min();
                let rest = more & ((1i64 << zeros.unwrap_or(0).min(31)) - 1);
                (self.extension(Extension::Convert(op), terms, more - rest), rest)
            }
            _ => return itself,
        };
        let mut terms: Terms = terms.into_iter().map(|(term, by)| (term, cut(by))).collect();
        terms.retain(|term| term.1 != 0);
        Some((terms, cut(more)))
    }

    /// An extended sum as a term.
    fn extension(&mut self, how: Extension, terms: Terms, more: i64) -> Terms {
        let new = (how, terms, more);
        let place = self.extended.iter().position(|old| *old == new);
        let place = place.unwrap_or_else(|| {
            self.extended.push(new);
            self.extended.len() - 1
        });
        vec![(Term::Extended(place), 1)]
    }

    /// Whether an operand is the items' numbers.
    fn counts_items(&self, operand: Operand) -> bool {
        let Operand::Const(id) = operand else { return false };
        match &self.module.constants[id].kind {
            ConstKind::Composite(parts) => parts
                .iter()
                .zip(0u64..)
                .all(|(&part, number)| self.module.const_bits(part) == Some(number)),
            _ => false,
        }
    }

    /// Takes out of accesses that no more may join those that are whole chunks, or words.
    fn close(&mut self, which: &[bool]) {
        let open = std::mem::take(&mut self.open);
        for (mut chunk, &ended) in open.into_iter().zip(which) {
            if !ended {
                self.open.push(chunk);
                continue;
            }
            chunk.parts.sort_by_key(|part| part.offset);
            let size = self.module.types.size(chunk.element);
            let whole = chunk.transposes.then_some(CHUNK);
            let mut parts = chunk.parts.as_slice();
            while let Some(first) = parts.first() {
                let next = |(number, part): (usize, &Part)| {
                    part.offset.checked_sub(first.offset) == Some(number as i64 * size as i64)
                };
                let is_one = |&bytes: &u64| {
                    let count = (bytes / size) as usize;
                    let fits = bytes == CHUNK || words::may_be(chunk.kind, bytes, first.align);
                    count >= 2
                        && fits
                        && parts.len() >= count
                        && parts[..count].iter().enumerate().all(next)
                };
                let row = whole.into_iter().chain(words::SIZES).find(is_one);
                // What is read is left alone if it is a row, or words without gaps.
                let is_best = |&bytes: &u64| {
                    chunk.kind == Kind::Read
                        && (bytes == CHUNK || chunk.rows.step == Some(bytes as i64))
                };
                let line = match row.filter(is_best) {
                    None => lines::parts_of_line(self.module, &chunk, parts),
                    Some(_) => 0,
                };
                let row = row.map_or(1, |bytes| (bytes / size) as usize);
                let around = words::parts_around(self.module, &chunk, parts);
                let count = if line > 0 { line } else { row.max(around) };
                let (own, rest) = parts.split_at(count);
                let (rows, parts_) = (chunk.rows.clone(), own.to_vec());
                let (is_line, has_more) = (line > 0, line == 0 && around > row);
                if count > 1 || is_line {
                    self.found.push(Chunk { rows, is_line, has_more, parts: parts_, ..chunk });
                }
                parts = rest;
            }
        }
    }
}

/// A sum with a multiple of another one.
fn added(mut terms: Terms, more: Terms, by: i64) -> Terms {
    for (term, factor) in more {
        let factor = factor.wrapping_mul(by);
        match terms.binary_search_by_key(&term, |term| term.0) {
            Ok(place) => terms[place].1 = terms[place].1.wrapping_add(factor),
            Err(place) => terms.insert(place, (term, factor)),
        }
    }
    terms.retain(|term| term.1 != 0);
    terms
}

/// The longest way from a number back to what it is a sum of, and the most operations of an index that are
/// looked at: a sum may have another one twice.
const MAX_DEPTH: u32 = 16;
const MAX_STEPS: u32 = 64;

/// Whether a mask has all items.
fn is_all(module: &Module, mask: Operand) -> bool {
    let Operand::Const(id) = mask else { return false };
    same_bits(module, id) == Some(1)
}

/// The bits of a constant, or of each component of one.
fn same_bits(module: &Module, id: ConstId) -> Option<u64> {
    match &module.constants[id].kind {
        ConstKind::Composite(parts) => {
            let bits = module.const_bits(*parts.first()?)?;
            parts.iter().all(|&part| module.const_bits(part) == Some(bits)).then_some(bits)
        }
        ConstKind::Null => Some(0),
        _ => module.const_bits(id),
    }
}

/// Whether an access is to the same rows.
fn joins(open: &Chunk, new: &Chunk) -> bool {
    let key = |it: &Chunk| (it.kind, it.element, it.lanes, it.mask, it.transposes);
    key(open) == key(new) && open.rows == new.rows
}

/// Whether an operation reads memory that others may write.
fn reads(op: &Op) -> bool {
    matches!(
        op,
        Op::Load(..) | Op::MaskedLoad(..) | Op::Gather(..) | Op::GatherClose(..) | Op::LookUp(..)
    )
}

/// Whether an operation may write memory, or keeps accesses in order.
fn writes(op: &Op) -> bool {
    let of_lanes = matches!(
        op,
        Op::Present
            | Op::Splat(_)
            | Op::Any(_)
            | Op::LastTrue(_)
            | Op::Freeze(_)
            | Op::InLine(..)
            | Op::Close(..)
            | Op::Table(..)
            | Op::Phi(_)
    );
    !op.is_pure() && !of_lanes && !reads(op) && !matches!(op, Op::Prefetch(_))
}

struct Writer<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    insts: Vec<Inst>,
    loc: Loc,
}

impl Writer<'_> {
    fn value(&mut self, op: Op, ty: TypeId) -> Operand {
        let result = self.function.new_value(ty);
        let (flags, loc) = (Default::default(), self.loc);
        self.insts.push(Inst { result: Some(result), op, flags, loc });
        Operand::Value(result)
    }

    fn vector(&mut self, element: TypeId, n: usize) -> TypeId {
        // Vectors of scalars are far below the limit on sizes.
        self.module.types.intern(Type::Vector(element, n as u32)).unwrap_or(element)
    }

    /// The address of an item's bytes.
    fn row(&mut self, chunk: &Chunk, item: usize) -> Operand {
        let place = chunk.place();
        let nearest = chunk.parts.iter().find(|part| part.index == place);
        let part = nearest.unwrap_or(&chunk.parts[0]);
        let ahead = chunk.parts[0].offset.wrapping_sub(part.offset).wrapping_add(part.beyond);
        let (mut base, mut offset, terms) = (part.pointer, ahead, part.terms.clone());
        let pointer = self.module.operand_type(self.function, base);
        let pointer = self.module.types.element(pointer);
        match chunk.rows.step {
            Some(step) => offset = offset.wrapping_add(step.wrapping_mul(item as i64)),
            None => base = self.value(Op::Extract(base, vec![item as u32]), pointer),
        }
        self.value(Op::Address { base, offset, terms, inbounds: false }, pointer)
    }

    fn access(chunk: &Chunk) -> Access {
        let align = chunk.parts.iter().map(|part| part.align).min().unwrap_or(1);
        Access { align, volatile: false, nontemporal: false }
    }

    /// Loads all items' bytes. What stands for each part.
    fn read(&mut self, chunk: &Chunk) -> Vec<(ValueId, Operand)> {
        let (count, lanes) = (chunk.parts.len(), chunk.lanes as usize);
        let row = self.vector(chunk.element, count);
        let mut vectors = Vec::with_capacity(count);
        for number in 0..count {
            // Every `count`-th item's bytes, one behind the other.
            let mut pieces = Vec::with_capacity(lanes / count);
            for item in (number..lanes).step_by(count) {
                let at = self.row(chunk, item);
                pieces.push(self.value(Op::Load(at, Self::access(chunk)), row));
            }
            let mut length = count;
            while pieces.len() > 1 {
                length *= 2;
                let ty = self.vector(chunk.element, length);
                let pick: Vec<Option<u32>> = (0..length as u32).map(Some).collect();
                pieces = pieces
                    .chunks(2)
                    .map(|two| self.value(Op::Shuffle(two[0], two[1], pick.clone()), ty))
                    .collect();
            }
            vectors.push(pieces[0]);
        }
        let vectors = self.transposed(vectors, chunk);
        let results = chunk.parts.iter().zip(vectors);
        results
            .filter_map(|(part, vector)| match part.value {
                Operand::Value(value) => Some((value, vector)),
                Operand::Const(_) => None,
            })
            .collect()
    }

    /// Stores all items' bytes.
    fn write(&mut self, chunk: &Chunk) {
        let (count, lanes) = (chunk.parts.len(), chunk.lanes as usize);
        let row = self.vector(chunk.element, count);
        let vectors = chunk.parts.iter().map(|part| part.value).collect();
        let vectors = self.transposed(vectors, chunk);
        for item in 0..lanes {
            let (vector, first) = (vectors[item % count], item / count * count);
            let pick = (first as u32..).take(count).map(Some).collect();
            let own = self.value(Op::Shuffle(vector, vector, pick), row);
            let at = self.row(chunk, item);
            let op = Op::Store(at, own, Self::access(chunk));
            let (flags, loc) = (Default::default(), self.loc);
            self.insts.push(Inst { result: None, op, flags, loc });
        }
    }

    /// Exchanges rows and columns of each square that as many vectors have as their parts: in each of the
    /// rounds, pairs of vectors are interleaved.
    fn transposed(&mut self, mut vectors: Vec<Operand>, chunk: &Chunk) -> Vec<Operand> {
        let (count, lanes) = (vectors.len() as u32, chunk.lanes);
        let ty = self.vector(chunk.element, lanes as usize);
        let interleaved = |from: u32| -> Vec<Option<u32>> {
            let place = |lane: u32| {
                let (square, column) = (lane / count * count, lane % count);
                square + from + column / 2 + (column % 2) * lanes
            };
            (0..lanes).map(|lane| Some(place(lane))).collect()
        };
        let halves = [interleaved(0), interleaved(count / 2)];
        for _ in 0..count.ilog2() {
            let (low, high) = vectors.split_at(vectors.len() / 2);
            let mut next = Vec::with_capacity(vectors.len());
            for (&a, &b) in low.iter().zip(high) {
                for half in &halves {
                    next.push(self.value(Op::Shuffle(a, b, half.clone()), ty));
                }
            }
            vectors = next;
        }
        vectors
    }
}

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
//! another access in between that may concern the same memory. Where pointers say whether it does, the block has a
//! copy for the case that it does not ([`apart`]).

use std::collections::{HashMap, HashSet};

use crate::ir::{
    Access, AddressSpace, Block, BlockId, ConstId, ConstKind, ConvertOp, Function, Inst, Loc,
    Module, Op, Operand, Type, TypeId, ValueId,
};
use crate::optimise::cost::LEAST_APART;
use crate::optimise::{is_skipped, rename, unused};

mod apart;
mod backwards;
mod filled;
mod lines;
mod rows;
mod squares;
mod words;

use rows::{Extension, Terms};

/// The name by which it is left out.
const NAME: &str = "rows";

/// The bytes of a row that are loaded as one: those of the shortest register. Longer ones take as many
/// shuffles.
const CHUNK: u64 = 16;

/// The place of a part that no instruction reads ([`filled`]). Its addresses are those of another part.
const NOWHERE: usize = usize::MAX;

/// The bytes of a cache line.
const LINE: u64 = 64;

/// Transposes the rows of a widened function.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    if is_skipped(NAME) {
        return;
    }
    let mut made = HashMap::new();
    for (_, block) in function.blocks.iter() {
        note(&mut made, block);
    }
    let mut names = HashMap::new();
    for id in function.blocks.ids().collect::<Vec<_>>() {
        let found = Finder::new(module, function, &made, false).find(id);
        let better = found.stopped.then(|| Finder::new(module, function, &made, true).find(id));
        let better = better.filter(|it| it.is_worth_a_copy(&found, &function.blocks[id]));
        let Some(better) = better else {
            write(module, function, id, found, &mut names);
            continue;
        };
        let copies = apart::split(module, function, id, &better.checks);
        for (copy, apart) in copies {
            note(&mut made, &function.blocks[copy]);
            let found = Finder::new(module, function, &made, apart).find(copy);
            write(module, function, copy, found, &mut names);
        }
    }
    rename::rename(function, &names);
    unused::run(function);
}

/// Adds the operations of a block that addresses may be made by.
fn note(made: &mut HashMap<ValueId, Op>, block: &Block) {
    made.extend(
        block
            .insts
            .iter()
            .filter(|inst| is_of_address(&inst.op))
            .filter_map(|inst| Some((inst.result?, inst.op.clone()))),
    );
}

/// Whether an operation may make an address.
fn is_of_address(op: &Op) -> bool {
    matches!(op, Op::Address { .. } | Op::Binary(..) | Op::Convert(..) | Op::WorkItem(..))
}

/// Whether an operation may lie between reads of one row: it is such a read, or makes an address.
fn is_of_rows(inst: &Inst) -> bool {
    matches!(inst.op, Op::Gather(..)) || is_of_address(&inst.op)
}

/// Writes a block's accesses as others.
fn write(
    module: &mut Module,
    function: &mut Function,
    id: BlockId,
    found: Found,
    names: &mut HashMap<ValueId, Operand>,
) {
    let Found { chunks, again, .. } = found;
    names.extend(again);
    if chunks.is_empty() {
        return;
    }
    let before = std::mem::take(&mut function.blocks[id].insts);
    let mut writer = Writer { module, function, insts: Vec::new(), loc: Loc::default() };
    for (index, inst) in before.into_iter().enumerate() {
        let here = chunks.iter().filter(|chunk| chunk.place() == index);
        writer.loc = inst.loc;
        for chunk in here {
            match (chunk.kind, chunk.is_backwards(writer.module)) {
                (Kind::Read, false) => names.extend(writer.read(chunk)),
                (Kind::Read, true) => names.extend(writer.read_backwards(chunk)),
                (Kind::Write, false) => writer.write(chunk),
                (Kind::Write, true) => writer.write_backwards(chunk),
            }
        }
        if !chunks.iter().any(|chunk| chunk.parts.iter().any(|part| part.index == index)) {
            writer.insts.push(inst);
        }
    }
    let insts = writer.insts;
    function.blocks[id].insts = insts;
}

/// The rows of a vector of items: where they begin, but for a fixed distance, and how far apart. If they lie
/// anywhere, the base is a vector of pointers, of which each is looked up.
#[derive(Clone, PartialEq)]
struct Rows {
    base: Operand,
    index: Terms,
    step: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// An element of each item's row that is accessed.
#[derive(Clone)]
struct Part {
    /// The instruction's place in its block, or [`NOWHERE`].
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
    /// Whether transposing them is possible, and an advantage only if there are many.
    transposes: bool,
    few: bool,
    /// Whether they are accessed with all that lies between them ([`lines`]).
    is_line: bool,
    /// Whether their word has more than they have ([`words`]).
    has_more: bool,
    parts: Vec<Part>,
    /// What is written to the same rows behind the first part that is read, of all that was written before a part that
    /// joins it: offsets and sizes in bytes.
    passed: Vec<(i64, u64)>,
}

impl Chunk {
    /// Whether an access that joins the parts concerns none of the bytes that have been written since the first one.
    fn may_take(&self, new: &Chunk, module: &Module) -> bool {
        let (at, size) = (new.parts[0].offset, module.types.size(new.element));
        self.passed.iter().all(|&(passed, bytes)| are_apart((at, size), (passed, bytes)))
    }

    /// Whether the parts are accessed as one word, and not transposed.
    fn is_word(&self, module: &Module) -> bool {
        self.bytes(module) < CHUNK
    }

    /// Whether the parts are accessed as a line, and the last item's lie first.
    fn is_backwards(&self, module: &Module) -> bool {
        let is_line = self.is_line || self.is_word(module) && words::is_line(module, self);
        is_line && self.rows.step.is_some_and(|step| step < 0)
    }

    /// The elements that are accessed as one.
    fn elements(&self, module: &Module) -> usize {
        (CHUNK / module.types.size(self.element).max(1)) as usize
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

/// What becomes of a block's accesses.
struct Found {
    /// The accesses that become others.
    chunks: Vec<Chunk>,
    /// The values that are others of before.
    again: Vec<(ValueId, Operand)>,
    /// Whether an access ended rows that it may not concern.
    stopped: bool,
    /// The memory that must not be that of another access.
    checks: Vec<[apart::Region; 2]>,
}

impl Found {
    /// The accesses that are no longer made by themselves.
    fn gains(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.parts.len()).sum::<usize>() + self.again.len()
    }

    /// Whether a copy of the block in which the checks hold is worth them.
    fn is_worth_a_copy(&self, other: &Self, block: &Block) -> bool {
        (1..=MOST_CHECKS).contains(&self.checks.len())
            && block.insts.len() <= MOST_COPIED
            && self.gains() > other.gains()
    }
}

struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    made: &'a HashMap<ValueId, Op>,
    /// Whether memory that may be the same is taken as different where that can be checked.
    assumes: bool,
    /// The block's instructions, their values, and those of its phis.
    insts: &'a [Inst],
    own: HashSet<ValueId>,
    first: HashSet<ValueId>,
    /// The operations that extend sums, with those and their constants.
    extended: Vec<(Extension, Terms, i64)>,
    /// The operations of an index that have been looked at.
    steps: u32,
    /// Accesses that more may join.
    open: Vec<Chunk>,
    found: Vec<Chunk>,
    /// What is read once more, as it was read before: the elements that two turns of a loop along rows have in common.
    again: Vec<(ValueId, Operand)>,
    stopped: bool,
    /// The memory that the block accesses, and the pairs that must not overlap.
    regions: Vec<apart::Region>,
    checks: Vec<[usize; 2]>,
}

impl<'a> Finder<'a> {
    fn new(
        module: &'a Module,
        function: &'a Function,
        made: &'a HashMap<ValueId, Op>,
        assumes: bool,
    ) -> Self {
        let (own, first, extended, steps, open, found, again) = Default::default();
        let (stopped, regions, checks) = Default::default();
        Self {
            module,
            function,
            made,
            assumes,
            insts: &[],
            own,
            first,
            extended,
            steps,
            open,
            found,
            again,
            stopped,
            regions,
            checks,
        }
    }

    /// Looks for rows in a block.
    fn find(mut self, id: BlockId) -> Found {
        let insts = &self.function.blocks[id].insts;
        self.insts = insts;
        self.own = insts.iter().filter_map(|inst| inst.result).collect();
        self.first = self.function.blocks[id].phis().filter_map(|inst| inst.result).collect();
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
            self.end_what(inst, access.as_ref());
            let Some(new) = access else { continue };
            // What joins rows later moves past what was checked before, so the checks are of it, too.
            self.region_of(inst, Some(&new));
            let module = self.module;
            let takes = |open: &&mut Chunk| joins(open, &new) && open.may_take(&new, module);
            let Some(open) = self.open.iter_mut().find(takes) else {
                let passed = self.written_to(&new);
                self.open.push(Chunk { passed, ..new });
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
        let checks = self.checks.iter().map(|pair| pair.map(|it| self.regions[it].clone()));
        let checks = checks.collect();
        Found { chunks: self.found, again: self.again, stopped: self.stopped, checks }
    }

    /// What may yet be written to the rows of a new access behind it, and was written before.
    fn written_to(&self, new: &Chunk) -> Vec<(i64, u64)> {
        let writes = self.open.iter().filter(|it| it.kind == Kind::Write && it.rows == new.rows);
        let parts =
            writes.flat_map(|it| it.parts.iter().map(move |part| (part.offset, it.element)));
        parts.map(|(offset, element)| (offset, self.module.types.size(element))).collect()
    }

    /// Closes the rows that an instruction may concern: a read may see an earlier write, and a write may overwrite
    /// what was read or written, unless one is in another address space.
    fn end_what(&mut self, inst: &Inst, access: Option<&Chunk>) {
        let (reads, writes) = (reads(&inst.op), writes(&inst.op));
        if !(reads || writes) || self.open.is_empty() {
            return;
        }
        let space = self.space_of(&inst.op);
        let mut ended = Vec::with_capacity(self.open.len());
        for number in 0..self.open.len() {
            let open = &self.open[number];
            let [mine, other] = [Some(self.space(open.parts[0].at)), space];
            let elsewhere = mine != other && other.is_some();
            let generic = [mine, other].contains(&Some(AddressSpace::Generic));
            let concerns = match open.kind {
                Kind::Read => writes,
                Kind::Write => reads || writes,
            };
            let ends = concerns && (!elsewhere || generic) && !self.is_apart(number, inst, access);
            ended.push(ends);
        }
        self.close(&ended);
    }

    /// Whether an access is none to the bytes of open rows. What one item accesses and another one writes is a race
    /// between them, so only the rows of the item itself matter.
    fn is_apart(&mut self, number: usize, inst: &Inst, new: Option<&Chunk>) -> bool {
        let open = &self.open[number];
        if let Some(new) = new
            && new.rows == open.rows
        {
            let size = |chunk: &Chunk| self.module.types.size(chunk.element);
            let (kind, other) = (open.kind, (new.parts[0].offset, size(new)));
            if kind == Kind::Read {
                // All parts are read in front of it. What joins them later must be none of it.
                self.open[number].passed.push(other);
                return true;
            }
            let mut own = open.parts.iter().map(|part| (part.offset, size(open)));
            return own.all(|own| are_apart(own, other));
        }
        // What all items read, none of them writes.
        let scalar = |ty| self.module.types.lanes(ty) == 1;
        let mut result = inst.result.map(|result| self.function.values[result].ty).into_iter();
        if matches!(inst.op, Op::Load(_, access) if !access.volatile)
            && result.all(scalar)
            && is_all(self.module, open.mask)
        {
            return true;
        }
        let regions = self.region_of_chunk(number).zip(self.region_of(inst, new));
        let Some((mine, other)) = regions else { return false };
        self.stopped |= mine != other;
        if !self.assumes || mine == other {
            return false;
        }
        let pair = [mine.min(other), mine.max(other)];
        if !self.checks.contains(&pair) {
            self.checks.push(pair);
        }
        true
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
        let transposes = whole && is_all(self.module, mask);
        let parts = vec![Part { index, align, at, value, ..part }];
        let (is_line, has_more, passed) = (false, false, Vec::new());
        Some(Chunk {
            kind,
            rows,
            element,
            lanes,
            mask,
            few,
            transposes,
            is_line,
            has_more,
            parts,
            passed,
        })
    }

    /// How many times [`CHUNK`] bytes of each item, up to a cache line, are accessed one after the other, so that an item's
    /// line is accessed once. What is read has to be read in a row, since all of it is in registers then.
    fn pieces(&self, chunk: &Chunk, parts: &[Part]) -> usize {
        let count = chunk.elements(self.module);
        let size = self.module.types.size(chunk.element) as i64;
        let next = |two: &[Part]| two[1].offset.checked_sub(two[0].offset) == Some(size);
        let length = 1 + parts.windows(2).take_while(|two| next(two)).count();
        let pieces = (length / count).min((LINE / CHUNK) as usize);
        let in_a_row = |pieces: &usize| {
            let places = parts[..pieces * count].iter().map(|part| part.index);
            let places = places.filter(|&place| place != NOWHERE);
            let (first, last) = (places.clone().min(), places.max());
            let between = &self.insts[first.unwrap_or(0)..=last.unwrap_or(0)];
            chunk.kind == Kind::Write || between.iter().all(is_of_rows)
        };
        (2..=pieces).rev().find(in_a_row).unwrap_or(1)
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
            self.fill(&mut chunk);
            let size = self.module.types.size(chunk.element);
            let whole = chunk.transposes.then_some(CHUNK);
            let mut parts = chunk.parts.as_slice();
            while let Some(first) = parts.first() {
                let next = |(number, part): (usize, &Part)| {
                    part.offset.checked_sub(first.offset) == Some(number as i64 * size as i64)
                };
                let next_to = parts.iter().enumerate().take_while(|&part| next(part)).count();
                let is_one = |&bytes: &u64| {
                    let count = (bytes / size) as usize;
                    let pays = bytes == CHUNK && (!chunk.few || next_to as u64 >= LEAST_APART);
                    let fits = pays || words::may_be(&chunk, bytes, first.align);
                    count >= 2 && fits && next_to >= count
                };
                let row = whole.into_iter().chain(words::SIZES).find(is_one);
                // What is read is left alone if it is a row, or words without gaps.
                let is_best = |&bytes: &u64| {
                    chunk.kind == Kind::Read
                        && (bytes == CHUNK || chunk.rows.step.map(i64::unsigned_abs) == Some(bytes))
                };
                let line = match row.filter(is_best) {
                    None => lines::parts_of_line(self.module, &chunk, parts),
                    Some(_) => 0,
                };
                let pieces = if row == Some(CHUNK) { self.pieces(&chunk, parts) } else { 1 };
                let row = row.map_or(1, |bytes| (bytes / size) as usize) * pieces;
                let around = words::parts_around(self.module, &chunk, parts);
                let count = if line > 0 { line } else { row.max(around) };
                let (own, rest) = parts.split_at(count);
                let (rows, parts_) = (chunk.rows.clone(), own.to_vec());
                let (is_line, has_more) = (line > 0, line == 0 && around > row);
                if count > 1 || is_line {
                    let passed = Vec::new();
                    self.found.push(Chunk {
                        rows,
                        is_line,
                        has_more,
                        parts: parts_,
                        passed,
                        ..chunk
                    });
                }
                parts = rest;
            }
        }
    }
}

/// The most checks of a block, of which each takes four instructions, and the most instructions of a block that is
/// copied.
const MOST_CHECKS: usize = 8;
const MOST_COPIED: usize = 512;

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

/// Whether two ranges, of which the offsets and lengths are given, do not overlap.
fn are_apart(a: (i64, u64), b: (i64, u64)) -> bool {
    let length = if a.0 < b.0 { a.1 } else { b.1 };
    a.0.abs_diff(b.0) >= length
}

/// Whether an access is to the same rows.
fn joins(open: &Chunk, new: &Chunk) -> bool {
    let key = |it: &Chunk| (it.kind, it.element, it.lanes, it.mask, it.transposes, it.few);
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
            | Op::Bits(_)
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

    /// The address of an item's bytes from a part on.
    fn row(&mut self, chunk: &Chunk, item: usize, first: usize) -> Operand {
        let place = chunk.place();
        let nearest = chunk.parts.iter().find(|part| part.index == place);
        let part = nearest.unwrap_or(&chunk.parts[0]);
        let ahead = chunk.parts[first].offset.wrapping_sub(part.offset).wrapping_add(part.beyond);
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

    /// Reads parts. What stands for each.
    fn read(&mut self, chunk: &Chunk) -> Vec<(ValueId, Operand)> {
        match chunk.is_word(self.module) {
            _ if chunk.is_line => self.load_line(chunk),
            false => self.load_rows(chunk),
            true if chunk.has_more => self.around(chunk),
            true => self.gather(chunk),
        }
    }

    /// Writes parts.
    fn write(&mut self, chunk: &Chunk) {
        match chunk.is_word(self.module) {
            _ if chunk.is_line => self.store_line(chunk),
            false => self.store_rows(chunk),
            true => self.scatter(chunk),
        }
    }
}

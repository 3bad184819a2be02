// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inserts the checks in front of the accesses.

use std::collections::HashMap;

use tally_compiler_protocol::checks::{Checks, DEFINED, SiteKind, Sites, Space};

use super::follow::{Followed, Use, has_shadow, space_of, use_of};
use super::private::Private;
use super::roots::Roots;
use super::sites::{About, Table, space};
use super::states::{Wanted, all, state_type};
use crate::ir::eval::apply;
use crate::ir::{
    Access, AddressSpace, BinaryOp, BlockId, CompareOp, ConstKind, ConvertOp, Dominators, ENTRY,
    Flags, Function, Inst, Kernel, Loc, Module, Op, Operand, Type, TypeId, UnaryOp, ValueId,
};

mod images;
mod moves;
mod private;
mod variables;

/// Inserts the checks of a kernel whose calls are all inlined.
pub(super) fn run(
    module: &mut Module,
    function: &mut Function,
    kernel: &Kernel,
    sites: Table,
    checks: Checks,
) -> Sites {
    let dominators = Dominators::of(function, &function.predecessors());
    let source = function.clone();
    let roots = Roots::new(&source);
    let (private, followed) = match checks.init {
        true => {
            let private = Private::find(module, &source, &roots);
            let has_states = |at| {
                has_shadow(module, &source, at)
                    || private.has_states(&roots.of(module, &source, at))
            };
            let followed = Followed::find(module, &source, &dominators, has_states);
            (private, followed)
        }
        false => (Private::none(&source), Followed::none()),
    };
    let mut rewriter = Rewriter {
        module,
        roots,
        private,
        beside: Vec::new(),
        source: &source,
        function,
        kernel,
        checks,
        followed,
        sites,
        states: HashMap::new(),
        origins: HashMap::new(),
        known: HashMap::new(),
        settled: HashMap::new(),
        undo: Vec::new(),
        arms: Vec::new(),
        out: Vec::new(),
        loc: Loc::default(),
    };
    rewriter.declare_states();
    rewriter.declare_phis();
    rewriter.walk(&dominators);
    rewriter.finish()
}

/// Facts from earlier checks about the memory at an address.
#[derive(Clone, Copy)]
struct Known {
    bytes: u64,
    defined: bool,
}

/// The access at which a followed value was read.
#[derive(Clone, Copy, PartialEq)]
struct Origin {
    at: Operand,
    site: u32,
}

/// A fact that ends with the blocks that a block dominates.
enum Undo {
    Known(Operand, Option<Known>),
    Settled(ValueId),
}

/// A phi of states: block, result, type, and the phi that it follows.
type Arms = (BlockId, ValueId, TypeId, Vec<(BlockId, Operand)>);

struct Rewriter<'a> {
    module: &'a mut Module,
    /// The function as it was.
    source: &'a Function,
    roots: Roots,
    private: Private,
    /// For each private variable, the one with the states of its bytes.
    beside: Vec<Option<ValueId>>,
    function: &'a mut Function,
    kernel: &'a Kernel,
    checks: Checks,
    followed: Followed,
    sites: Table,
    /// The states of followed values.
    states: HashMap<ValueId, Operand>,
    /// The places where followed values were read, if each was read at only one.
    origins: HashMap<ValueId, Origin>,
    /// The facts about memory that hold here.
    known: HashMap<Operand, Known>,
    /// Followed values that were checked already.
    settled: HashMap<ValueId, ()>,
    undo: Vec<Undo>,
    /// Phis of states.
    arms: Vec<Arms>,
    out: Vec<Inst>,
    loc: Loc,
}

impl Rewriter<'_> {
    /// Names the states of followed phis, which may be needed before they are known.
    fn declare_phis(&mut self) {
        for (id, block) in self.source.blocks.iter() {
            for inst in block.phis() {
                let (Op::Phi(incoming), Some(result)) = (&inst.op, inst.result) else { continue };
                if self.followed.has(result) {
                    let ty = self.state_type_of(result);
                    let state = self.function.new_value(ty);
                    self.states.insert(result, Operand::Value(state));
                    self.arms.push((id, state, ty, incoming.clone()));
                }
            }
        }
    }

    /// All blocks, each behind those that dominate it.
    fn walk(&mut self, dominators: &Dominators) {
        let mut stack = vec![(ENTRY, 0, 0)];
        while let Some((block, next, mark)) = stack.last_mut() {
            if *next == 0 {
                *mark = self.undo.len();
                self.block(*block);
            }
            let child = dominators.children(*block).get(*next).copied();
            *next += 1;
            if let Some(child) = child {
                stack.push((child, 0, 0));
                continue;
            }
            for undo in self.undo.drain(*mark..).rev() {
                match undo {
                    Undo::Known(at, Some(before)) => _ = self.known.insert(at, before),
                    Undo::Known(at, None) => _ = self.known.remove(&at),
                    Undo::Settled(value) => _ = self.settled.remove(&value),
                }
            }
            stack.pop();
        }
    }

    fn block(&mut self, id: BlockId) {
        let insts = std::mem::take(&mut self.function.blocks[id].insts);
        self.out = Vec::with_capacity(2 * insts.len());
        for inst in insts {
            self.loc = inst.loc;
            self.inst(inst);
        }
        self.loc = self.function.blocks[id].loc;
        let mut depends = Vec::new();
        self.function.blocks[id].terminator.for_each_operand(|operand| depends.push(operand));
        depends.into_iter().for_each(|operand| self.look_at(operand));
        self.function.blocks[id].insts = std::mem::take(&mut self.out);
    }

    fn inst(&mut self, inst: Inst) {
        if !matches!(inst.op, Op::Phi(_)) {
            self.uses(&inst);
        }
        match &inst.op {
            Op::Load(at, access) => self.load(&inst, *at, *access),
            Op::Store(at, value, access) => self.store(*at, *value, *access),
            Op::Copy(to, from, size, _) => self.copy(*to, *from, *size),
            Op::AtomicLoad(at, ..) => {
                if let Some(result) = inst.result {
                    let ty = self.function.values[result].ty;
                    self.atomic(SiteKind::Read, *at, ty);
                }
            }
            Op::Image(op, args) => self.image(*op, args),
            Op::Printf(_, args, bytes) => self.strings(*args, *bytes),
            Op::AtomicStore(at, value, ..) => {
                let ty = self.type_of(*value);
                self.aligned(*at, ty);
                self.store(*at, *value, natural(self.module, ty));
            }
            Op::AtomicRmw(_, at, value, ..) | Op::AtomicCompareExchange { ptr: at, value, .. } => {
                let ty = self.type_of(*value);
                self.atomic(SiteKind::Update, *at, ty);
            }
            _ => {}
        }
        self.out.push(inst);
    }

    /// Checks the followed values that an instruction depends on, and computes the states of its
    /// result.
    fn uses(&mut self, inst: &Inst) {
        let mut depends = Vec::new();
        let mut any = false;
        let late = inst.result.is_some_and(|result| self.followed.is_speculated(result));
        inst.op.for_each_operand(|operand| {
            let Operand::Value(value) = operand else { return };
            if self.followed.has(value) {
                any = true;
                let used = use_of(self.module, self.source, inst, value);
                if used == Use::Depends && !late {
                    depends.push(operand);
                }
            }
        });
        if !any {
            return;
        }
        depends.into_iter().for_each(|operand| self.look_at(operand));
        if let Some(result) = inst.result.filter(|&it| self.followed.has(it)) {
            let state = self.moved(inst, result);
            self.states.insert(result, state);
            if let Some(origin) = self.origin(&inst.op) {
                self.origins.insert(result, origin);
            }
        }
    }

    fn load(&mut self, inst: &Inst, at: Operand, access: Access) {
        let Some(result) = inst.result else { return };
        let ty = self.function.values[result].ty;
        let bytes = self.accessed(ty);
        let beyond = self.bounds(at, bytes, false);
        if !self.has_states(at) {
            return;
        }
        let known = self.known.get(&at).filter(|known| known.bytes >= bytes).copied();
        let follows = self.followed.has(result);
        let wants_defined = self.checks.init && !follows;
        if known.is_some_and(|known| known.defined || !wants_defined) && !follows {
            return;
        }
        let states = state_type(self.module, ty);
        if known.is_some_and(|known| known.defined) {
            let defined = all(self.module, states, DEFINED);
            self.states.insert(result, defined);
            return;
        }
        let shadow = self.shadow(at);
        let mut state = self.make(Op::Load(shadow, plain(access)), states);
        let tracked = self.is_tracked(at);
        let (site, told) = match tracked {
            true => self.unwritten(at, bytes),
            false => (self.site(SiteKind::Read, at, bytes), at),
        };
        if !follows {
            // Without init all accessible memory counts as defined.
            self.report(site, told, state, Wanted::Defined, beyond);
        } else if known.is_none() {
            let mistake = if tracked {
                beyond.unwrap_or_else(|| self.no())
            } else if self.is_local(at) {
                self.lacks(state, Wanted::Accessible)
            } else {
                self.report(site, at, state, Wanted::Accessible, None)
            };
            // A value read there is reported once, and not followed.
            let defined = all(self.module, states, DEFINED);
            state = self.make(Op::Select(mistake, defined, state), states);
        }
        if follows {
            self.states.insert(result, state);
            self.origins.insert(result, Origin { at: told, site });
        }
        self.learn(at, Known { bytes, defined: wants_defined });
    }

    fn store(&mut self, at: Operand, value: Operand, access: Access) {
        let ty = self.type_of(value);
        let bytes = self.accessed(ty);
        let beyond = self.bounds(at, bytes, true);
        if !self.has_states(at) {
            if self.private.is_printed(&self.roots.of(self.module, self.source, at)) {
                self.look_at(value);
            }
            return;
        }
        let known = self.known.get(&at).filter(|known| known.bytes >= bytes).copied();
        let follows = self.followed.has_operand(value);
        if known.is_some_and(|known| known.defined || !self.checks.init) && !follows {
            return;
        }
        let states = state_type(self.module, ty);
        let shadow = self.shadow(at);
        let mut before = None;
        if self.is_tracked(at) {
            if let Some(beyond) = beyond {
                let states = self.make(Op::Load(shadow, plain(access)), states);
                before = Some((states, beyond));
            }
        } else if known.is_none() {
            let states = self.make(Op::Load(shadow, plain(access)), states);
            let wanted = if self.checks.init { Wanted::Accessible } else { Wanted::Defined };
            let mistake = if self.is_local(at) {
                self.lacks(states, wanted)
            } else {
                let site = self.site(SiteKind::Write, at, bytes);
                self.report(site, at, states, wanted, None)
            };
            before = Some((states, mistake));
        }
        if self.checks.init {
            let new = if follows { self.state(value) } else { all(self.module, states, DEFINED) };
            let new = match before {
                // Inaccessible bytes stay inaccessible.
                Some((before, mistake)) => self.make(Op::Select(mistake, before, new), states),
                None => new,
            };
            self.effect(Op::Store(shadow, new, plain(access)));
        }
        self.learn(at, Known { bytes, defined: self.checks.init && !follows });
    }

    /// An atomic access, which depends on what it reads.
    fn atomic(&mut self, kind: SiteKind, at: Operand, ty: TypeId) {
        let bytes = self.accessed(ty);
        let beyond = self.bounds(at, bytes, kind != SiteKind::Read);
        if has_shadow(self.module, self.source, at) {
            self.aligned(at, ty);
        }
        if !self.has_states(at) {
            return;
        }
        let known = self.known.get(&at).filter(|known| known.bytes >= bytes).copied();
        if known.is_some_and(|known| known.defined || !self.checks.init) {
            return;
        }
        let states = state_type(self.module, ty);
        let shadow = self.shadow(at);
        let access = natural(self.module, ty);
        let state = self.make(Op::Load(shadow, plain(access)), states);
        let site = self.site(kind, at, bytes);
        self.report(site, at, state, Wanted::Defined, beyond);
        self.learn(at, Known { bytes, defined: self.checks.init });
    }

    /// Checks the strings that a printf reads.
    fn strings(&mut self, args: Operand, bytes: u32) {
        let (i64, bool) = (self.module.types.int(64), self.module.types.bool());
        let bad = self.make(Op::Strings(args, bytes), i64);
        let zero = Operand::Const(self.module.const_int(i64, 0));
        let mistake = self.make(Op::Compare(CompareOp::Ne, bad, zero), bool);
        let about =
            About { kind: SiteKind::Read, size: 1, space: Space::Generic, object: String::new() };
        let site = self.sites.add(self.module, self.loc, about);
        self.note(site, 0, bad, mistake);
    }

    /// Checks that an atomic access is aligned to its size.
    fn aligned(&mut self, at: Operand, ty: TypeId) {
        let size = self.module.types.size(ty);
        if !self.checks.memory || size < 2 {
            return;
        }
        let site = self.site(SiteKind::Align, at, size);
        let (i64, bool) = (self.module.types.int(64), self.module.types.bool());
        let number = self.make(Op::Convert(ConvertOp::PtrToInt, at), i64);
        let mask = Operand::Const(self.module.const_int(i64, size - 1));
        let low = self.make(Op::Binary(BinaryOp::And, number, mask), i64);
        let zero = Operand::Const(self.module.const_int(i64, 0));
        let mistake = self.make(Op::Compare(CompareOp::Ne, low, zero), bool);
        self.note(site, 0, at, mistake);
    }

    /// Checks the memory of a copy, and copies the states. A copy with a mistake leaves its target
    /// defined, so that one mistake is not reported as many.
    fn copy(&mut self, to: Operand, from: Operand, size: Operand) {
        let constant = self.module.operand_bits(size);
        let i64 = self.module.types.int(64);
        let size = match self.module.types[self.type_of(size)] {
            Type::Int(64) => size,
            _ => self.make(Op::Convert(ConvertOp::ZExt, size), i64),
        };
        let read = self.range(from, size, constant, false);
        let written = self.range(to, size, constant, true);
        let Some(written) = written.filter(|_| self.checks.init) else { return };
        let zero = Operand::Const(self.module.const_int(i64, 0));
        let mut count = self.make(Op::Select(written, zero, size), i64);
        let pointer = self.module.types.pointer(AddressSpace::Global);
        let nowhere = Operand::Const(self.module.constant(pointer, ConstKind::Null));
        let source = match (read, self.states_beside(from)) {
            (Some(mistake), Some(states)) => {
                count = self.make(Op::Select(mistake, zero, count), i64);
                states
            }
            (Some(mistake), None) => {
                let from = self.make(Op::Convert(ConvertOp::PtrCast, from), pointer);
                self.make(Op::Select(mistake, nowhere, from), pointer)
            }
            (None, _) => nowhere,
        };
        let target = self.states_beside(to).unwrap_or(to);
        self.effect(Op::CopyStates(target, source, count));
        self.learn(to, Known { bytes: 0, defined: false });
    }

    /// Checks that a range of bytes is accessible; returns the condition that it is not, if it has
    /// states.
    fn range(
        &mut self,
        at: Operand,
        size: Operand,
        constant: Option<u64>,
        writes: bool,
    ) -> Option<Operand> {
        let (i64, bool) = (self.module.types.int(64), self.module.types.bool());
        let beyond = self.bounds(at, constant.unwrap_or(1), writes);
        if !self.has_states(at) {
            return None;
        }
        if self.is_local(at) || self.is_tracked(at) {
            return Some(beyond.unwrap_or_else(|| self.no()));
        }
        let kind = if writes { SiteKind::Write } else { SiteKind::Read };
        let site = self.site(kind, at, constant.unwrap_or(0));
        let good = self.make(Op::Accessible(at, size), i64);
        let mistake = self.make(Op::Compare(CompareOp::Ne, good, size), bool);
        let op = Op::Address { base: at, offset: 0, terms: vec![(good, 1)], inbounds: false };
        let first = self.make(op, self.type_of(at));
        self.note(site, 1, first, mistake);
        Some(mistake)
    }

    /// Whether memory at an address has states for these checks. Checks of bounds alone need none for
    /// local memory.
    fn has_states(&self, at: Operand) -> bool {
        let shadowed = has_shadow(self.module, self.source, at);
        self.is_tracked(at) || shadowed && (self.checks.init || !self.is_local(at))
    }

    fn no(&mut self) -> Operand {
        let bool = self.module.types.bool();
        Operand::Const(self.module.const_int(bool, 0))
    }

    fn is_local(&self, at: Operand) -> bool {
        space_of(self.module, self.source, at) == Some(AddressSpace::Local)
    }

    /// Whether states are not as wanted.
    fn lacks(&mut self, state: Operand, wanted: Wanted) -> Operand {
        let bool = self.module.types.bool();
        let good = self.good(state, wanted);
        self.make(Op::Unary(UnaryOp::Not, good), bool)
    }

    /// Reports a site unless all states are as wanted, or another mistake was made there. Returns the
    /// condition that there is a mistake.
    fn report(
        &mut self,
        site: u32,
        at: Operand,
        state: Operand,
        wanted: Wanted,
        other: Option<Operand>,
    ) -> Operand {
        let bool = self.module.types.bool();
        let mut mistake = self.lacks(state, wanted);
        if let Some(other) = other {
            let no_other = self.make(Op::Unary(UnaryOp::Not, other), bool);
            mistake = self.make(Op::Binary(BinaryOp::And, mistake, no_other), bool);
        }
        let size = self.sites.size(site);
        self.note(site, size, at, mistake);
        mistake
    }

    fn note(&mut self, site: u32, size: u32, at: Operand, mistake: Operand) {
        if let Operand::Const(id) = mistake
            && self.module.const_bits(id) == Some(0)
        {
            return;
        }
        self.effect(Op::Report { site, size, at, step: 0, mistake, items: None });
    }

    /// The address of the states of bytes.
    fn shadow(&mut self, at: Operand) -> Operand {
        if let Some(beside) = self.states_beside(at) {
            return beside;
        }
        let ty = self.module.types.pointer(AddressSpace::Global);
        self.make(Op::Shadow(at), ty)
    }

    fn learn(&mut self, at: Operand, known: Known) {
        let before = self.known.insert(at, known);
        self.undo.push(Undo::Known(at, before));
    }

    fn site(&mut self, kind: SiteKind, at: Operand, size: u64) -> u32 {
        let pointer = self.type_of(at);
        let space = match self.module.types[pointer] {
            Type::Pointer(of) => space(of),
            _ => Space::Generic,
        };
        let root = self.roots.of(self.module, self.source, at);
        let object = root.base.text(self.module, self.source, self.kernel);
        self.sites.add(self.module, self.loc, About { kind, size, space, object })
    }

    /// The bytes that an access of a type touches: a vector of three has three components.
    fn accessed(&self, ty: TypeId) -> u64 {
        match self.module.types[ty] {
            Type::Vector(element, n) => self.module.types.size(element) * u64::from(n),
            _ => self.module.types.size(ty),
        }
    }

    fn size_of(&self, value: ValueId) -> u64 {
        self.accessed(self.function.values[value].ty)
    }

    fn type_of(&self, operand: Operand) -> TypeId {
        self.module.operand_type(self.function, operand)
    }

    fn state_type_of(&mut self, value: ValueId) -> TypeId {
        state_type(self.module, self.function.values[value].ty)
    }

    /// An integer constant in every component.
    fn int_in_all(&mut self, ty: TypeId, value: u64) -> Operand {
        let element = self.module.types.element(ty);
        let one = self.module.const_int(element, value);
        let lanes = self.module.types.lanes(ty) as usize;
        if lanes == 1 {
            return Operand::Const(one);
        }
        Operand::Const(self.module.constant(ty, ConstKind::Composite(vec![one; lanes])))
    }

    /// Adds an instruction, or returns the constant that it would produce.
    fn make(&mut self, op: Op, ty: TypeId) -> Operand {
        let mut constants = Some(Vec::new());
        op.for_each_operand(|operand| match (operand, &mut constants) {
            (Operand::Const(id), Some(list)) => list.push(id),
            _ => constants = None,
        });
        if let Some(constants) =
            constants.filter(|_| !matches!(op, Op::Load(..) | Op::Shadow(_) | Op::CheckWord(_)))
            && let Some(constant) = apply(self.module, &op, ty, &constants)
        {
            return Operand::Const(constant);
        }
        let result = self.function.new_value(ty);
        self.out.push(Inst { result: Some(result), op, flags: Flags::empty(), loc: self.loc });
        Operand::Value(result)
    }

    fn effect(&mut self, op: Op) {
        self.out.push(Inst { result: None, op, flags: Flags::empty(), loc: self.loc });
    }

    /// Writes the phis of states.
    fn finish(mut self) -> Sites {
        for (block, result, ty, incoming) in std::mem::take(&mut self.arms) {
            let incoming = incoming
                .into_iter()
                .map(|(from, operand)| match operand {
                    Operand::Value(value) if self.states.contains_key(&value) => {
                        (from, self.states[&value])
                    }
                    _ => (from, all(self.module, ty, DEFINED)),
                })
                .collect();
            let loc = self.function.blocks[block].loc;
            let op = Op::Phi(incoming);
            let phi = Inst { result: Some(result), op, flags: Flags::empty(), loc };
            self.function.blocks[block].insts.insert(0, phi);
        }
        self.sites.finish()
    }
}

/// The access to states beside an access to memory.
fn plain(access: Access) -> Access {
    Access { align: access.align, volatile: false, nontemporal: false }
}

/// An access that is aligned to its size.
fn natural(module: &Module, ty: TypeId) -> Access {
    let align = u32::try_from(module.types.align(ty)).unwrap_or(1);
    Access { align, volatile: false, nontemporal: false }
}

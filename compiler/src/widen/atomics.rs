// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic updates of all items of a vector by one.
//!
//! An update of memory that other threads have cached takes a hundred times as long as an addition. So
//! items that update the same place combine their values first, and one update does it for all:
//!
//! ```text
//!   atomic_add(m, x)                     atomic_add(m, x0 + x1 + ...)
//!   i = atomic_add(m, x)         ──▶     i = atomic_add(m, x0 + x1 + ...) + (0, x0, x0 + x1, ...)
//! ```
//!
//! No other thread can tell this from items that follow each other closely. Sums of floats depend on
//! their order, so those stay as they are.
//!
//! Items with a uniform address are known to update one place. For other addresses in global memory the
//! code compares them at run time, unless a result is used, and where they differ groups may keep sums
//! ([`super::sums`]). A relaxed minimum or maximum, with a result or without one, first reads the places,
//! and updates only those that it changes: after a few updates there are hardly any. A relaxed exchange that compares
//! with what all items share (a free lock, an empty place of a hash table) first reads the places, too.

use super::emit::Widener;
use super::refusal::Refusal;
use super::shape::{Rows, Shape};
use super::sums;
use crate::ir::{
    Access, AddressSpace, AtomicOp, BinaryOp, BlockId, CompareOp, ConstKind, Inst, Op, Operand,
    Ordering, Scope, Terminator, Type, TypeId, UnaryOp, Uses, ValueId,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "atomics";

/// An update of integers that can be combined.
struct Update {
    op: AtomicOp,
    /// The operation that combines two values.
    combine: BinaryOp,
    at: Operand,
    value: Operand,
    ordering: Ordering,
    scope: Scope,
    /// The type of the integers.
    ty: TypeId,
    /// The result, if anything uses it.
    result: Option<ValueId>,
}

impl Widener<'_> {
    /// Does an atomic update for all items together. `false` if that has no use or is not possible.
    pub(super) fn atomic(&mut self, inst: &Inst) -> Result<bool, Refusal> {
        if is_skipped(NAME) {
            return Ok(false);
        }
        if self.is_attempt(&inst.op) {
            self.where_it_matches(inst)?;
            return Ok(true);
        }
        let Some(update) = self.update(inst) else { return Ok(false) };
        if self.shape(update.at) == Shape::Uniform {
            let at = self.one(update.at);
            self.together(&update, at)?;
            return Ok(true);
        }
        if !self.is_global(update.at) {
            return Ok(false);
        }
        if let Some(beats) = beats(update.op).filter(|_| update.ordering == Ordering::Relaxed) {
            self.where_it_changes(inst, &update, beats)?;
            return Ok(true);
        }
        if update.result.is_some() {
            return Ok(false);
        }
        if self.shape(update.at) != Shape::Varying {
            return Ok(false);
        }
        self.if_one_place(inst, &update)?;
        Ok(true)
    }

    fn update(&self, inst: &Inst) -> Option<Update> {
        let Op::AtomicRmw(op, at, value, ordering, scope) = inst.op else { return None };
        let combine = match op {
            AtomicOp::Add | AtomicOp::Sub => BinaryOp::Add,
            AtomicOp::And => BinaryOp::And,
            AtomicOp::Or => BinaryOp::Or,
            AtomicOp::Xor => BinaryOp::Xor,
            AtomicOp::SMin => BinaryOp::SMin,
            AtomicOp::SMax => BinaryOp::SMax,
            AtomicOp::UMin => BinaryOp::UMin,
            AtomicOp::UMax => BinaryOp::UMax,
            AtomicOp::Exchange | AtomicOp::FAdd | AtomicOp::FMin | AtomicOp::FMax => return None,
        };
        let ty = self.type_in(value);
        let result = inst.result.filter(|&result| self.is_used(result));
        let integer = matches!(self.out.module.types[ty], Type::Int(_));
        integer.then_some(Update { op, combine, at, value, ordering, scope, ty, result })
    }

    pub(super) fn is_used(&self, value: ValueId) -> bool {
        !self.uses.get_or_init(|| Uses::of_function(self.from)).of(value).is_empty()
    }

    /// One update of a place, if any item runs.
    fn together(&mut self, update: &Update, at: Operand) -> Result<(), Refusal> {
        let ty = update.ty;
        let vector = self.vector(update.value)?;
        let same = self.shape(update.value) == Shape::Uniform;
        let all = match update.combine {
            BinaryOp::Add | BinaryOp::Xor => self.reduce(update.combine, vector)?,
            // Combined with itself a value stays what it is.
            _ if same => self.one(update.value),
            _ => self.reduce(update.combine, vector)?,
        };
        let op = Op::AtomicRmw(update.op, at, all, update.ordering, update.scope);
        let old = match self.mask {
            None => self.out.def(op, ty, Default::default()),
            Some(mask) => {
                let old = self.out.var(ty);
                let undef = self.out.undef(ty);
                self.out.write(old, undef);
                self.if_any(mask, |this| {
                    let before = this.out.def(op, ty, Default::default());
                    this.out.write(old, before);
                    Ok(())
                })?;
                self.out.read(old)
            }
        };
        let Some(result) = update.result else { return Ok(()) };
        let before = self.scan(update.combine, vector, true, false)?;
        let old = self.out.splat(old);
        let combine = if update.op == AtomicOp::Sub { BinaryOp::Sub } else { update.combine };
        let vector = self.out.type_of(before);
        let results = self.out.value(Op::Binary(combine, old, before), vector);
        self.set(result, &[results])
    }

    /// An update for all if their addresses turn out to be one, else one for each, or additions to sums.
    fn if_one_place(&mut self, inst: &Inst, update: &Update) -> Result<(), Refusal> {
        let types = &mut self.out.module.types;
        let (bool, i32_type) = (types.bool(), types.int(32));
        let parts = self.parts(inst)?;
        let addresses = self.vector(update.at)?;
        let pointer = self.type_in(update.at);
        let mask = self.mask_value();
        let last = self.out.value(Op::LastTrue(mask), i32_type);
        let at = self.out.value(Op::ExtractDynamic(addresses, last), pointer);
        let every = self.out.splat(at);
        let masks = self.out.type_of(mask);
        let differs = Op::Compare(CompareOp::Ne, addresses, every);
        let differs = self.out.value(differs, masks);
        let differs = self.out.value(Op::Binary(BinaryOp::And, differs, mask), masks);
        let any = self.out.value(Op::Any(differs), bool);
        let one = self.out.value(Op::Unary(UnaryOp::Not, any), bool);
        let fast = |this: &mut Self| this.together(update, at).map(|()| Vec::new());
        let unmasked = self.rows == Rows::Whole;
        let later = self.sums == Some(self.out.module.types.size(update.ty))
            && sums::addition(&self.out.module, self.from, &inst.op).is_some();
        let slow = |this: &mut Self| {
            let here = later.then(|| this.add_later(update, addresses, mask)).transpose()?;
            this.one_by_one_of(inst, &parts, unmasked, None)?;
            if let Some(join) = here {
                this.out.end(Terminator::Branch(join));
                this.out.switch_to(join);
            }
            Ok(Vec::new())
        };
        self.guarded(Some(one), &[], fast, slow)?;
        Ok(())
    }

    /// Additions to the sums that the group keeps. Where these are not worthwhile, what is written next runs; returns
    /// the block behind that.
    fn add_later(
        &mut self,
        update: &Update,
        addresses: Operand,
        mask: Operand,
    ) -> Result<BlockId, Refusal> {
        let mut values = self.vector(update.value)?;
        if update.op == AtomicOp::Sub {
            let vector = self.out.type_of(values);
            let zero = Operand::Const(self.out.module.constant(vector, ConstKind::Null));
            values = self.out.value(Op::Binary(BinaryOp::Sub, zero, values), vector);
        }
        let bool = self.out.module.types.bool();
        let done = self.out.value(Op::AddLater(addresses, values, mask), bool);
        let [otherwise, join] = std::array::from_fn(|_| self.out.new_block());
        self.out.end(Terminator::CondBranch(done, join, otherwise));
        self.out.switch_to(otherwise);
        Ok(join)
    }

    /// Whether an operand points to memory that other groups may reach.
    fn is_global(&self, at: Operand) -> bool {
        let space = &self.out.module.types[self.type_in(at)];
        matches!(space, Type::Pointer(AddressSpace::Global | AddressSpace::Generic))
    }

    /// Whether an operation is a relaxed exchange that compares places of items with one value.
    fn is_attempt(&self, op: &Op) -> bool {
        let &Op::AtomicCompareExchange { ptr, expected, success, failure, .. } = op else {
            return false;
        };
        [success, failure] == [Ordering::Relaxed; 2]
            && self.is_global(ptr)
            && self.shape(expected) == Shape::Uniform
    }

    /// An update for each item whose value beats what is there.
    fn where_it_changes(
        &mut self,
        inst: &Inst,
        update: &Update,
        beats: CompareOp,
    ) -> Result<(), Refusal> {
        let there = self.read_before(update.at, update.ty, update.result.is_some())?;
        let values = self.vector(update.value)?;
        self.where_it_holds(inst, there, Op::Compare(beats, values, there), false)
    }

    /// An exchange for each item whose place holds what it compares with.
    fn where_it_matches(&mut self, inst: &Inst) -> Result<(), Refusal> {
        let Op::AtomicCompareExchange { ptr, expected, .. } = inst.op else { return Ok(()) };
        let there = self.read_before(ptr, self.type_in(expected), true)?;
        let expected = self.vector(expected)?;
        self.where_it_holds(inst, there, Op::Compare(CompareOp::Eq, there, expected), true)
    }

    /// What is at the places that an operation updates.
    fn read_before(&mut self, at: Operand, ty: TypeId, is_used: bool) -> Result<Operand, Refusal> {
        let align = self.out.module.types.size(ty) as u32;
        // Another thread may write meanwhile. What is read is then old or new, as for an update that
        // comes earlier or later: the processor writes an integer at once. A program may wait for a result, so
        // LLVM must not take what was there before for it.
        let access = Access { align, volatile: is_used, nontemporal: false };
        Ok(self.load(at, ty, access)?[0])
    }

    /// An operation on memory for each item for which a comparison holds. The others' result is what was `there`. `all`:
    /// whether it has code of its own for the case that it holds for all.
    fn where_it_holds(
        &mut self,
        inst: &Inst,
        there: Operand,
        holds: Op,
        all: bool,
    ) -> Result<(), Refusal> {
        let parts = self.parts(inst)?;
        let mask = self.mask_value();
        let masks = self.out.type_of(mask);
        let changes = self.out.value(holds, masks);
        let changes = self.out.value(Op::Binary(BinaryOp::And, changes, mask), masks);
        let vector = self.out.type_of(there);
        let old = self.out.var(vector);
        self.out.write(old, there);
        let before = self.mask.replace(changes);
        self.if_any(changes, |this| {
            let results = this.one_by_one_of(inst, &parts, all, Some(&[there]))?;
            if let Some(&result) = results.first() {
                this.out.write(old, result);
            }
            Ok(())
        })?;
        self.mask = before;
        let Some(result) = inst.result else { return Ok(()) };
        let values = self.out.read(old);
        self.set(result, &[values])
    }

    /// Writes code that runs if a mask has any item.
    fn if_any(
        &mut self,
        mask: Operand,
        code: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let bool = self.out.module.types.bool();
        let any = self.out.value(Op::Any(mask), bool);
        let [yes, join] = std::array::from_fn(|_| self.out.new_block());
        self.out.end(Terminator::CondBranch(any, yes, join));
        self.out.switch_to(yes);
        code(self)?;
        self.out.end(Terminator::Branch(join));
        self.out.switch_to(join);
        Ok(())
    }
}

/// The comparison of a value with the one in memory that says whether it becomes the minimum or maximum.
fn beats(op: AtomicOp) -> Option<CompareOp> {
    match op {
        AtomicOp::SMin => Some(CompareOp::SLt),
        AtomicOp::SMax => Some(CompareOp::SGt),
        AtomicOp::UMin => Some(CompareOp::ULt),
        AtomicOp::UMax => Some(CompareOp::UGt),
        _ => None,
    }
}

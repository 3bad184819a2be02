// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of results that hold followed values.

use tally_compiler_protocol::checks::{DEFINED, SiteKind, Space};

use super::super::follow::whole_bytes;
use super::super::sites::About;
use super::super::states::{UNKNOWN, Wanted, all, repeated, state_type};
use super::{Origin, Rewriter, Undo};
use crate::ir::{BinaryOp, CompareOp, ConvertOp, Inst, Op, Operand, Type, TypeId, ValueId};

impl Rewriter<'_> {
    /// The states of a result that holds followed values.
    pub(super) fn moved(&mut self, inst: &Inst, result: ValueId) -> Operand {
        let ty = self.state_type_of(result);
        match &inst.op {
            Op::Convert(kind, from) => self.converted(*kind, *from, ty),
            &Op::Binary(kind @ (BinaryOp::Shl | BinaryOp::LShr | BinaryOp::AShr), a, b) => {
                match whole_bytes(self.module, b) {
                    Some(bits) => self.shifted(kind, a, ty, bits),
                    None => self.mixed(inst, ty),
                }
            }
            Op::Binary(kind @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                let (kind, a, b) = (*kind, *a, *b);
                let (mut a_state, mut b_state) = (self.masked(kind, a, b), self.masked(kind, b, a));
                if kind == BinaryOp::Or {
                    a_state = self.with_room(a, a_state);
                    b_state = self.with_room(b, b_state);
                }
                self.make(Op::Binary(BinaryOp::And, a_state, b_state), ty)
            }
            &Op::Binary(BinaryOp::Xor, a, b) => {
                let (a, b) = (self.state(a), self.state(b));
                self.make(Op::Binary(BinaryOp::And, a, b), ty)
            }
            Op::Unary(..) | Op::Binary(..) | Op::Ternary(..) | Op::Compare(..) | Op::Test(..) => {
                self.mixed(inst, ty)
            }
            Op::Select(condition, a, b) => {
                let (a, b) = (self.state(*a), self.state(*b));
                self.make(Op::Select(*condition, a, b), ty)
            }
            op => {
                let mut op = op.clone();
                op.for_each_operand_mut(|operand| *operand = self.state(*operand));
                self.make(op, ty)
            }
        }
    }

    /// The states of a converted value.
    pub(super) fn converted(&mut self, kind: ConvertOp, from: Operand, ty: TypeId) -> Operand {
        let state = self.state(from);
        let before = self.type_of(state);
        match kind {
            _ if before == ty => state,
            ConvertOp::Trunc => self.make(Op::Convert(ConvertOp::Trunc, state), ty),
            ConvertOp::ZExt | ConvertOp::SExt => {
                let bits = self.module.types.scalar_bits(before);
                let wide = self.make(Op::Convert(ConvertOp::ZExt, state), ty);
                let above = !repeated(DEFINED, bits);
                let above = self.int_in_all(ty, above);
                self.make(Op::Binary(BinaryOp::Or, wide, above), ty)
            }
            ConvertOp::Bitcast => self.make(Op::Convert(ConvertOp::Bitcast, state), ty),
            // One scalar of another kind, whose individual bits are not tracked.
            _ => {
                let good = self.good(state, Wanted::Defined);
                self.all_or_nothing(good, ty)
            }
        }
    }

    /// The states of an integer that was shifted by whole bytes: bytes shifted in are defined.
    pub(super) fn shifted(&mut self, kind: BinaryOp, a: Operand, ty: TypeId, by: u64) -> Operand {
        let state = self.state(a);
        let width = self.module.types.scalar_bits(ty);
        let amount = self.int_in_all(ty, by);
        let moved = match kind {
            BinaryOp::Shl => BinaryOp::Shl,
            _ => BinaryOp::LShr,
        };
        let moved = self.make(Op::Binary(moved, state, amount), ty);
        let whole = repeated(DEFINED, width);
        let new = match kind {
            BinaryOp::Shl => !(whole << by),
            _ => !(whole >> by),
        };
        let new = self.int_in_all(ty, new & whole);
        self.make(Op::Binary(BinaryOp::Or, moved, new), ty)
    }

    /// The states of an operand of `and` or `or`: bytes that the other one, a constant, determines are
    /// defined.
    pub(super) fn masked(&mut self, kind: BinaryOp, of: Operand, by: Operand) -> Operand {
        let state = self.state(of);
        let Operand::Const(id) = by else { return state };
        let Some(bits) = self.module.const_bits(id) else { return state };
        let decides = if kind == BinaryOp::And { 0 } else { DEFINED };
        let bytes = bits.to_le_bytes().map(|byte| if byte == decides { DEFINED } else { 0 });
        let ty = self.type_of(state);
        let decided = self.int_in_all(ty, u64::from_le_bytes(bytes));
        self.make(Op::Binary(BinaryOp::Or, state, decided), ty)
    }

    /// The states of a value into which `or` inserts bits, as compilers write a bit-field: of a byte of
    /// which a mask has kept some bits, the others are written now. States do not tell bits apart, so
    /// the byte counts as written.
    fn with_room(&mut self, value: Operand, state: Operand) -> Operand {
        let Some(Op::Binary(BinaryOp::And, a, b)) = self.roots.definition(self.source, value)
        else {
            return state;
        };
        let constant = |operand: &Operand| self.module.operand_bits(*operand);
        let Some(mask) = constant(b).or_else(|| constant(a)) else { return state };
        let bytes =
            mask.to_le_bytes().map(|byte| if matches!(byte, 0 | 0xff) { 0 } else { DEFINED });
        let ty = self.type_of(state);
        let room = self.int_in_all(ty, u64::from_le_bytes(bytes));
        self.make(Op::Binary(BinaryOp::Or, state, room), ty)
    }

    /// The states of a result of arithmetic: all of it is defined if all operands are.
    pub(super) fn mixed(&mut self, inst: &Inst, ty: TypeId) -> Operand {
        let mut operands = Vec::new();
        inst.op.for_each_operand(|operand| operands.push(operand));
        operands.retain(|&operand| self.followed.has_operand(operand));
        let bool = self.module.types.bool();
        let mut good = Operand::Const(self.module.const_int(bool, 1));
        for operand in operands {
            let state = self.state(operand);
            let next = self.good(state, Wanted::Defined);
            good = self.make(Op::Binary(BinaryOp::And, good, next), bool);
        }
        self.all_or_nothing(good, ty)
    }

    pub(super) fn all_or_nothing(&mut self, good: Operand, ty: TypeId) -> Operand {
        let yes = all(self.module, ty, DEFINED);
        let no = all(self.module, ty, UNKNOWN);
        self.make(Op::Select(good, yes, no), ty)
    }

    /// The access that read the value which an operation moves, if it is only one.
    pub(super) fn origin(&self, op: &Op) -> Option<Origin> {
        let mut found = None;
        let mut several = false;
        op.for_each_operand(|operand| {
            let Operand::Value(value) = operand else { return };
            if self.followed.has(value) {
                let origin = self.origins.get(&value).copied();
                several |= origin.is_none() || found.is_some_and(|it| Some(it) != origin);
                found = found.or(origin);
            }
        });
        found.filter(|_| !several)
    }

    /// Checks that a followed value is defined, where an operation depends on it.
    pub(super) fn look_at(&mut self, operand: Operand) {
        let Operand::Value(value) = operand else { return };
        if !self.followed.has(value) || self.settled.insert(value, ()).is_some() {
            return;
        }
        self.undo.push(Undo::Settled(value));
        let state = self.state(operand);
        let (site, at) = match self.origins.get(&value) {
            Some(origin) => (origin.site, origin.at),
            None => {
                let (kind, size) = (SiteKind::Use, self.size_of(value));
                let about = About { kind, size, space: Space::Generic, object: String::new() };
                let i64 = self.module.types.int(64);
                let nowhere = Operand::Const(self.module.const_int(i64, 0));
                (self.sites.add(self.module, self.loc, about), nowhere)
            }
        };
        self.report(site, at, state, Wanted::Defined, None);
    }

    /// Whether all states are as wanted, as a `bool` value.
    pub(super) fn good(&mut self, state: Operand, wanted: Wanted) -> Operand {
        let bool = self.module.types.bool();
        // By width: the states combined over all scalars of that width.
        let mut common: Vec<(TypeId, Operand)> = Vec::new();
        for leaf in self.leaves(state) {
            let ty = self.type_of(leaf);
            match common.iter().position(|&(it, _)| it == ty) {
                Some(i) => {
                    common[i].1 = self.make(Op::Binary(BinaryOp::And, common[i].1, leaf), ty);
                }
                None => common.push((ty, leaf)),
            }
        }
        let mut good = None;
        let (mask, value) = wanted.bits();
        for (ty, bits) in common {
            let width = self.module.types.scalar_bits(ty);
            let bits = match mask {
                Some(mask) => {
                    let mask = self.module.const_int(ty, repeated(mask, width));
                    self.make(Op::Binary(BinaryOp::And, bits, Operand::Const(mask)), ty)
                }
                None => bits,
            };
            let value = self.module.const_int(ty, repeated(value, width));
            let is = self.make(Op::Compare(CompareOp::Eq, bits, Operand::Const(value)), bool);
            good = Some(match good {
                Some(so_far) => self.make(Op::Binary(BinaryOp::And, so_far, is), bool),
                None => is,
            });
        }
        good.unwrap_or_else(|| Operand::Const(self.module.const_int(bool, 1)))
    }

    /// The scalars of a value.
    pub(super) fn leaves(&mut self, whole: Operand) -> Vec<Operand> {
        let ty = self.type_of(whole);
        let parts: Vec<TypeId> = match &self.module.types[ty] {
            Type::Vector(element, n) => vec![*element; *n as usize],
            Type::Array(element, n) => vec![*element; *n as usize],
            Type::Struct { members, .. } => members.clone(),
            _ => return vec![whole],
        };
        let mut leaves = Vec::new();
        for (i, part) in (0..).zip(parts) {
            let part = self.make(Op::Extract(whole, vec![i]), part);
            leaves.extend(self.leaves(part));
        }
        leaves
    }

    /// The states of an operand: a value that is not followed is defined.
    pub(super) fn state(&mut self, operand: Operand) -> Operand {
        if let Operand::Value(value) = operand
            && let Some(&state) = self.states.get(&value)
        {
            return state;
        }
        let ty = self.type_of(operand);
        let ty = state_type(self.module, ty);
        all(self.module, ty, DEFINED)
    }
}

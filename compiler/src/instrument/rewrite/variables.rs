// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses whose object is known: the offset in the object is compared with its size.

use tally_compiler_protocol::checks::{SiteKind, hidden};

use super::super::follow::space_of;
use super::super::roots::{Base, Root};
use super::Rewriter;
use crate::ir::{
    AddressSpace, ArgKind, BinaryOp, CompareOp, ConvertOp, KernelArg, Op, Operand, Type,
};

impl Rewriter<'_> {
    /// Checks an access to private or local memory by its offset in the variable or argument that it
    /// belongs to, if that is known. Returns the condition that the access is wrong, if it can be.
    pub(super) fn bounds(&mut self, at: Operand, bytes: u64, writes: bool) -> Option<Operand> {
        let space = space_of(self.module, self.source, at);
        let root = self.roots.of(self.module, self.source, at);
        let size = match root.base {
            Base::Variable(index) => self.source.variables[index].size,
            _ if !matches!(space, Some(AddressSpace::Private | AddressSpace::Local)) => {
                return None;
            }
            Base::Global(id) => self.module.globals[id].size,
            Base::Parameter(index) => return self.local_argument(at, index, &root, bytes, writes),
            Base::Other => return None,
        };
        let last = size.checked_sub(bytes);
        let constant = root.terms.is_empty().then_some(root.offset);
        let inside = |offset: i64| {
            u64::try_from(offset).is_ok_and(|offset| last.is_some_and(|last| offset <= last))
        };
        if !self.checks.memory || constant.is_some_and(inside) {
            return None;
        }
        let bool = self.module.types.bool();
        let (i64, offset) = (self.module.types.int(64), self.offset(&root));
        let mistake = match last {
            Some(last) => {
                let last = Operand::Const(self.module.const_int(i64, last));
                self.make(Op::Compare(CompareOp::UGt, offset, last), bool)
            }
            None => Operand::Const(self.module.const_int(bool, 1)),
        };
        let kind = match writes {
            true => SiteKind::WriteVariable { size },
            false => SiteKind::ReadVariable { size },
        };
        let site = self.site(kind, at, bytes);
        self.note(site, 0, offset, mistake);
        Some(mistake)
    }

    /// The offset of an address from the start of its root object.
    pub(super) fn offset(&mut self, root: &Root) -> Operand {
        let i64 = self.module.types.int(64);
        let mut offset = Operand::Const(self.module.const_int(i64, root.offset as u64));
        for &(index, stride) in &root.terms {
            let index_type = self.type_of(index);
            let index = match self.module.types[index_type] {
                Type::Int(64) => index,
                _ => self.make(Op::Convert(ConvertOp::SExt, index), i64),
            };
            let stride = Operand::Const(self.module.const_int(i64, stride as u64));
            let distance = self.make(Op::Binary(BinaryOp::Mul, index, stride), i64);
            offset = self.make(Op::Binary(BinaryOp::Add, offset, distance), i64);
        }
        offset
    }

    /// Checks an access to local memory that is an argument; the launch gives its size.
    pub(super) fn local_argument(
        &mut self,
        at: Operand,
        index: usize,
        root: &Root,
        bytes: u64,
        writes: bool,
    ) -> Option<Operand> {
        let is_local = |arg: &KernelArg| arg.kind == ArgKind::LocalPointer;
        let given = self.kernel.args.get(index).is_some_and(is_local);
        if !self.checks.memory || !given {
            return None;
        }
        let before = self.kernel.args[..index].iter().filter(|arg| is_local(arg)).count() as u32;
        let (i64, bool) = (self.module.types.int(64), self.module.types.bool());
        let size = self.make(Op::CheckWord(hidden::LOCAL_ARGS + 8 * before), i64);
        let offset = self.offset(root);
        let bytes_given = Operand::Const(self.module.const_int(i64, bytes));
        let left = self.make(Op::Binary(BinaryOp::Sub, size, offset), i64);
        let beyond = self.make(Op::Compare(CompareOp::UGt, offset, size), bool);
        let across = self.make(Op::Compare(CompareOp::ULt, left, bytes_given), bool);
        let mistake = self.make(Op::Binary(BinaryOp::Or, beyond, across), bool);
        let distance = self.make(Op::Binary(BinaryOp::Sub, offset, size), i64);
        let kind = if writes { SiteKind::WriteLocal } else { SiteKind::ReadLocal };
        let site = self.site(kind, at, bytes);
        self.note(site, 0, distance, mistake);
        Some(mistake)
    }
}

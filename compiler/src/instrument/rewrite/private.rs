// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of private variables ([`super::super::private`]).

use tally_compiler_protocol::checks::{DEFINED, SiteKind, UNDEFINED};

use super::super::roots::{Base, Root};
use super::super::states::{all, state_type};
use super::Rewriter;
use crate::ir::{AddressSpace, Op, Operand, PrivateVariable};

impl Rewriter<'_> {
    /// Adds a variable with the states of each variable that has some.
    pub(super) fn declare_states(&mut self) {
        let pointer = self.module.types.pointer(AddressSpace::Private);
        for (index, variable) in self.source.variables.iter().enumerate() {
            let address = self.private.is_tracked(index).then(|| self.function.new_value(pointer));
            self.beside.push(address);
            let Some(address) = address else { continue };
            let ty = state_type(self.module, variable.ty);
            let state = if variable.init.is_some() { DEFINED } else { UNDEFINED };
            let init = match all(self.module, ty, state) {
                Operand::Const(id) => Some(id),
                Operand::Value(_) => None,
            };
            let (size, align) = (variable.size, variable.align);
            let states = PrivateVariable { address, ty, size, align, init };
            self.function.variables.push(states);
        }
    }

    /// Whether an address is in a private variable that has states.
    pub(super) fn is_tracked(&self, at: Operand) -> bool {
        self.private.has_states(&self.root(at))
    }

    /// The address of the states of bytes in a private variable, if it has some.
    pub(super) fn states_beside(&mut self, at: Operand) -> Option<Operand> {
        let root = self.root(at);
        let Base::Variable(index) = root.base else { return None };
        let base = Operand::Value(self.beside.get(index).copied().flatten()?);
        if root.offset == 0 && root.terms.is_empty() {
            return Some(base);
        }
        let pointer = self.module.types.pointer(AddressSpace::Private);
        let Root { offset, terms, .. } = root;
        Some(self.make(Op::Address { base, offset, terms, inbounds: false }, pointer))
    }

    /// The site of a read of a private variable that may not be written, and the offset that it tells.
    pub(super) fn unwritten(&mut self, at: Operand, bytes: u64) -> (u32, Operand) {
        let root = self.root(at);
        let size = match root.base {
            Base::Variable(index) => self.source.variables[index].size,
            _ => 0,
        };
        let site = self.site(SiteKind::ReadUnwritten { size }, at, bytes);
        (site, self.offset(&root))
    }

    fn root(&self, at: Operand) -> Root {
        self.roots.of(self.module, self.source, at)
    }
}

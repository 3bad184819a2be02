// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of private variables of module scope in other constants, spelled out: a composite becomes an
//! instruction that makes it, and an initialiser that holds such addresses becomes stores of them.
//!
//! A constant is the same for all items, but such an address is another one for each. Where only instructions
//! name it, [`super::globals`] can put the item's own variable in its place.

use std::collections::{BTreeSet, HashMap};

use crate::ir::{
    Access, AddressSpace, ConstId, ConstKind, ENTRY, Flags, Function, Inst, Module, Op, Operand,
    Type, ValueId,
};

/// The maximum number of components of constants that are spelled out.
const MAX_COMPONENTS: usize = 1024;

/// Spells out the constants that a function uses, and the initialisers of its variables. Those of variables of
/// module scope hold no such addresses: `check` refuses them.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let mut speller = Speller {
        module,
        function,
        made: HashMap::new(),
        before: Vec::new(),
        left: MAX_COMPONENTS,
    };
    speller.operands();
    speller.initialisers();
    let before = std::mem::take(&mut speller.before);
    function.blocks[ENTRY].insts.splice(0..0, before);
}

struct Speller<'m> {
    module: &'m mut Module,
    function: &'m mut Function,
    /// The instructions that make constants.
    made: HashMap<ConstId, Operand>,
    /// New instructions, which precede all others.
    before: Vec<Inst>,
    /// The number of components that may still be spelled out.
    left: usize,
}

impl Speller<'_> {
    /// Whether a constant is a composite with the address of a private variable of module scope.
    fn concerns(&self, id: ConstId) -> bool {
        matches!(self.module.constants[id].kind, ConstKind::Composite(_)) && self.names_private(id)
    }

    fn names_private(&self, id: ConstId) -> bool {
        let globals = self.module.globals_in([id]);
        globals.into_iter().any(|id| self.module.globals[id].space == AddressSpace::Private)
    }

    fn emit(&mut self, result: Option<ValueId>, op: Op) {
        let (flags, loc) = (Flags::empty(), self.function.loc);
        self.before.push(Inst { result, op, flags, loc });
    }

    fn operands(&mut self) {
        let mut used = BTreeSet::new();
        for (_, block) in self.function.blocks.iter() {
            let mut note = |operand: Operand| {
                if let Operand::Const(id) = operand {
                    used.insert(id);
                }
            };
            block.insts.iter().for_each(|inst| inst.op.for_each_operand(&mut note));
            block.terminator.for_each_operand(&mut note);
        }
        for id in used {
            if self.concerns(id) {
                self.make(id);
            }
        }
        let made = &self.made;
        let change = |operand: &mut Operand| {
            if let Operand::Const(id) = operand
                && let Some(&value) = made.get(id)
            {
                *operand = value;
            }
        };
        for id in self.function.blocks.ids() {
            let block = &mut self.function.blocks[id];
            block.insts.iter_mut().for_each(|inst| inst.op.for_each_operand_mut(change));
            block.terminator.for_each_operand_mut(change);
        }
    }

    /// The value of a composite, made by instructions; the constant itself if it is too large.
    fn make(&mut self, id: ConstId) -> Operand {
        if let Some(&value) = self.made.get(&id) {
            return value;
        }
        let constant = self.module.constants[id].clone();
        let ConstKind::Composite(parts) = constant.kind else { return Operand::Const(id) };
        if !self.names_private(id) || parts.len() > self.left {
            return Operand::Const(id);
        }
        self.left -= parts.len();
        let parts = parts.into_iter().map(|part| self.make(part)).collect();
        let result = self.function.new_value(constant.ty);
        self.emit(Some(result), Op::Construct(parts));
        self.made.insert(id, Operand::Value(result));
        Operand::Value(result)
    }

    fn initialisers(&mut self) {
        for index in 0..self.function.variables.len() {
            let variable = &self.function.variables[index];
            let (address, align) = (Operand::Value(variable.address), variable.align);
            if let Some(rest) = variable.init.and_then(|init| self.store(init, address, align)) {
                self.function.variables[index].init = Some(rest);
            }
        }
    }

    /// Stores the addresses in an initialiser; returns the rest of it. `None` if there are none, or too many.
    fn store(&mut self, init: ConstId, to: Operand, align: u64) -> Option<ConstId> {
        if !self.names_private(init) {
            return None;
        }
        let mut places = Vec::new();
        let rest = self.split(init, 0, &mut places)?;
        self.left = self.left.checked_sub(places.len())?;
        let pointer = self.module.operand_type(self.function, to);
        for (offset, address) in places {
            let at = if offset == 0 {
                to
            } else {
                let at = self.function.new_value(pointer);
                let (base, terms, inbounds) = (to, Vec::new(), false);
                self.emit(Some(at), Op::Address { base, offset: offset as i64, terms, inbounds });
                Operand::Value(at)
            };
            let least = if offset == 0 { align } else { align.min(1 << offset.trailing_zeros()) };
            let access = Access { align: least.min(8) as u32, volatile: false, nontemporal: false };
            self.emit(None, Op::Store(at, Operand::Const(address), access));
        }
        Some(rest)
    }

    /// A constant with nulls in place of its addresses of private variables, which are added to `places` with
    /// their offsets. `None` if there are too many.
    fn split(
        &mut self,
        id: ConstId,
        offset: u64,
        places: &mut Vec<(u64, ConstId)>,
    ) -> Option<ConstId> {
        let constant = self.module.constants[id].clone();
        match constant.kind {
            _ if !self.names_private(id) => Some(id),
            ConstKind::Address(..) => {
                if places.len() >= self.left {
                    return None;
                }
                places.push((offset, id));
                Some(self.module.constant(constant.ty, ConstKind::Null))
            }
            ConstKind::Composite(parts) => {
                let mut rest = Vec::with_capacity(parts.len());
                for (index, part) in parts.into_iter().enumerate() {
                    let types = &self.module.types;
                    let within = match types[constant.ty] {
                        Type::Struct { .. } => types.member_offset(constant.ty, index as u32)?,
                        Type::Vector(element, _) | Type::Array(element, _) => {
                            index as u64 * types.stride(element)
                        }
                        _ => return None,
                    };
                    rest.push(self.split(part, offset + within, places)?);
                }
                Some(self.module.constant(constant.ty, ConstKind::Composite(rest)))
            }
            _ => Some(id),
        }
    }
}

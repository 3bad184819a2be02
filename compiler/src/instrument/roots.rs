// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the origins of addresses: the object that each was computed from, and its offset from the
//! object's start.

use std::collections::HashMap;

use crate::ir::{
    ConstKind, ConvertOp, Definition, Function, GlobalId, Id, Kernel, Module, Op, Operand, ValueId,
    definitions,
};

/// The maximum number of steps that an address is traced back.
const MAX_STEPS: usize = 32;

/// The object that an address was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// A private variable of the function, by its index.
    Variable(usize),
    /// A variable of module scope.
    Global(GlobalId),
    /// A parameter of the kernel, by its index.
    Parameter(usize),
    /// The result of a load, a phi or a conversion.
    Other,
}

/// An address: an object, a constant distance, and indices with their strides.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub(super) base: Base,
    pub(super) offset: i64,
    pub(super) terms: Vec<(Operand, i64)>,
}

/// The origins of a function's values.
pub(super) struct Roots {
    definitions: Vec<Option<Definition>>,
    variables: HashMap<ValueId, usize>,
    parameters: HashMap<ValueId, usize>,
}

impl Roots {
    pub(super) fn new(function: &Function) -> Self {
        let numbered = |values: &mut dyn Iterator<Item = ValueId>| values.zip(0..).collect();
        Self {
            definitions: definitions(function),
            variables: numbered(&mut function.variables.iter().map(|it| it.address)),
            parameters: numbered(&mut function.params.iter().copied()),
        }
    }

    /// The operation that computes an operand, if it is one.
    pub(super) fn definition<'a>(&self, function: &'a Function, of: Operand) -> Option<&'a Op> {
        let Operand::Value(value) = of else { return None };
        match self.definitions.get(value.index()).copied()?? {
            Definition::Inst(block, index) => Some(&function.blocks[block].insts[index].op),
            _ => None,
        }
    }

    /// The origin of an address. `function` is the one that this was made for.
    pub(super) fn of(&self, module: &Module, function: &Function, mut at: Operand) -> Root {
        let mut root = Root { base: Base::Other, offset: 0, terms: Vec::new() };
        for _ in 0..MAX_STEPS {
            let value = match at {
                Operand::Const(id) => {
                    if let ConstKind::Address(global, offset) = module.constants[id].kind {
                        root.base = Base::Global(global);
                        root.offset = root.offset.wrapping_add(offset);
                    }
                    return root;
                }
                Operand::Value(value) => value,
            };
            if let Some(&index) = self.variables.get(&value) {
                root.base = Base::Variable(index);
                return root;
            }
            if let Some(&index) = self.parameters.get(&value) {
                root.base = Base::Parameter(index);
                return root;
            }
            let Some(Some(Definition::Inst(block, index))) =
                self.definitions.get(value.index()).copied()
            else {
                return root;
            };
            match &function.blocks[block].insts[index].op {
                Op::Address { base, offset, terms, .. } => {
                    root.offset = root.offset.wrapping_add(*offset);
                    root.terms.extend(terms);
                    at = *base;
                }
                Op::Convert(ConvertOp::PtrCast, from) => at = *from,
                _ => return root,
            }
        }
        root
    }
}

impl Base {
    /// A description of the object, empty if nothing is known of it.
    pub(super) fn text(self, module: &Module, function: &Function, kernel: &Kernel) -> String {
        let named = |what: &str, name: &str| match name {
            "" => what.to_owned(),
            name => format!("{what} '{name}'"),
        };
        match self {
            Self::Variable(index) => {
                let name = &function.values[function.variables[index].address].name;
                match name.as_deref() {
                    None | Some("") => "a private variable".to_owned(),
                    Some(name) => format!("private variable '{name}'"),
                }
            }
            Self::Global(id) => named("variable", &module.globals[id].name),
            Self::Parameter(index) => {
                let name = kernel.args.get(index).map_or("", |arg| &arg.name);
                named(&format!("argument {index}"), name)
            }
            Self::Other => String::new(),
        }
    }
}

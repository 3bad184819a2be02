// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private variables whose bytes have states.
//!
//! Private memory has no shadow. A variable whose accesses are all known gets a second variable beside
//! it, of the same size, which holds the states of its bytes:
//!
//! ```text
//!   %1 = private i32x8                     %1 = private i32x8
//!   ...                                    %9 = private i32x8, at first 0x80808080 everywhere
//!   %4 = address %1 + 4 * %i       ──▶     ...
//!   %5: i32 = load %4                      %10 = address %9 + 4 * %i
//!                                          %11: i32 = load %10
//!                                          ...
//! ```
//!
//! A variable counts as written if its address is stored, compared, selected or reaches a phi.

use super::roots::{Base, Root, Roots};
use crate::ir::{ConvertOp, Function, Inst, Module, Op, Operand, Type, TypeId, Uses, ValueId};

/// The maximum size in bytes of a variable whose bytes have states: they are initialised at each start
/// of the kernel.
const MAX_SIZE: u64 = 4096;

/// The private variables of a function, by index.
pub(super) struct Private {
    tracked: Vec<bool>,
    printed: Vec<bool>,
}

/// The uses of a variable that matter here.
#[derive(Clone, Copy, Default)]
struct Survey {
    escapes: bool,
    printed: bool,
}

impl Private {
    /// Finds the variables of a function whose accesses are all known.
    pub(super) fn find(module: &Module, function: &Function, roots: &Roots) -> Self {
        let uses = Uses::of_function(function);
        let (mut tracked, mut printed) = (Vec::new(), Vec::new());
        for (index, variable) in function.variables.iter().enumerate() {
            let survey = survey(module, function, roots, &uses, (index, variable.address));
            let plain = variable.size <= MAX_SIZE && is_plain(module, variable.ty);
            printed.push(survey.printed);
            tracked.push(plain && !survey.escapes && !survey.printed);
        }
        Self { tracked, printed }
    }

    /// No variable has states.
    pub(super) fn none(function: &Function) -> Self {
        let no = vec![false; function.variables.len()];
        Self { tracked: no.clone(), printed: no }
    }

    /// Whether the bytes of a variable have states.
    pub(super) fn is_tracked(&self, index: usize) -> bool {
        self.tracked[index]
    }

    /// Whether an address is in a variable whose bytes have states.
    pub(super) fn has_states(&self, root: &Root) -> bool {
        matches!(root.base, Base::Variable(index) if self.tracked[index])
    }

    /// Whether an address is in a variable with the arguments of a printf.
    pub(super) fn is_printed(&self, root: &Root) -> bool {
        matches!(root.base, Base::Variable(index) if self.printed[index])
    }
}

fn survey(
    module: &Module,
    function: &Function,
    roots: &Roots,
    uses: &Uses,
    (index, address): (usize, ValueId),
) -> Survey {
    let mut survey = Survey::default();
    let mut addresses = vec![address];
    let mut next = 0;
    while let Some(&value) = addresses.get(next) {
        next += 1;
        let known = roots.of(module, function, Operand::Value(value)).base == Base::Variable(index);
        for &(block, at) in uses.of(value) {
            let inst = function.blocks[block].insts.get(at as usize);
            match inst.filter(|_| known).map(|inst| use_of(inst, value)) {
                Some(Use::Address(result)) => addresses.push(result),
                Some(Use::Access) => {}
                Some(Use::Prints) => survey.printed = true,
                Some(Use::Other) | None => survey.escapes = true,
            }
        }
    }
    survey
}

/// A use of an address.
enum Use {
    /// The result is another address in the variable.
    Address(ValueId),
    Access,
    Prints,
    Other,
}

fn use_of(inst: &Inst, value: ValueId) -> Use {
    let is = |operand: &Operand| *operand == Operand::Value(value);
    match (&inst.op, inst.result) {
        (Op::Address { base, .. }, Some(result)) if is(base) => Use::Address(result),
        (Op::Convert(ConvertOp::PtrCast, _), Some(result)) => Use::Address(result),
        (Op::Load(..) | Op::Copy(..), _) => Use::Access,
        (Op::Store(_, stored, _), _) if !is(stored) => Use::Access,
        (Op::Printf(_, arguments, _), _) if is(arguments) => Use::Prints,
        _ => Use::Other,
    }
}

/// Whether values of a type are data.
fn is_plain(module: &Module, ty: TypeId) -> bool {
    match &module.types[ty] {
        Type::Void | Type::Opaque(_) => false,
        Type::Vector(element, _) | Type::Array(element, _) => is_plain(module, *element),
        Type::Struct { members, .. } => members.iter().all(|&member| is_plain(module, member)),
        _ => true,
    }
}

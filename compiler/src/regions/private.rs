// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether code that resumes an item makes all addresses of the item's private variables itself.
//!
//! Private variables are in the item's frame, whose address is a parameter. LLVM may take it that nothing else leads
//! there only if no such address is kept in memory from one barrier to the next:
//!
//! ```text
//!   %p = address %variable + %i * 4
//!   barrier                             ; %p is saved in the frame
//!   store %p, 7                         ; through a pointer from memory
//!   %x = load %variable + %j * 4        ; may read the 7
//! ```

use std::collections::HashSet;

use crate::ir::{Function, Op, Operand, ValueId};

/// Whether no address of a private variable is among the values that barriers keep, or in memory.
pub(super) fn is_made_anew(function: &Function, crossing: &[ValueId]) -> bool {
    let mut addresses: HashSet<ValueId> =
        function.variables.iter().map(|variable| variable.address).collect();
    if addresses.is_empty() {
        return true;
    }
    let is_one = |addresses: &HashSet<ValueId>, operand: Operand| match operand {
        Operand::Value(value) => addresses.contains(&value),
        Operand::Const(_) => false,
    };
    // Definitions may follow uses in block order, so this repeats until nothing is added.
    loop {
        let before = addresses.len();
        for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
            let mut leads = false;
            inst.op.for_each_operand(|operand| leads |= is_one(&addresses, operand));
            if !leads {
                continue;
            }
            match (&inst.op, inst.result) {
                (Op::Load(..) | Op::MaskedLoad(..) | Op::Gather(..), _) => {}
                (Op::Copy(..) | Op::Prefetch(..) | Op::Compare(..), _) => {}
                (
                    Op::Store(_, value, _)
                    | Op::MaskedStore(_, value, ..)
                    | Op::Scatter(_, value, ..),
                    _,
                ) if !is_one(&addresses, *value) => {}
                (Op::Address { .. } | Op::Phi(_) | Op::Select(..), Some(result))
                | (Op::Splat(_) | Op::Extract(..) | Op::Shuffle(..), Some(result)) => {
                    addresses.insert(result);
                }
                _ => return false,
            }
        }
        if addresses.len() == before {
            return crossing.iter().all(|value| !addresses.contains(value));
        }
    }
}

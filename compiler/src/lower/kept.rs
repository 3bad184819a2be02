// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variables of the source that its front end has made values: where they are, as long as they are known.
//!
//! A value is kept in a private variable that was made for it ([`crate::ir::KeptValue`]). From the store to it
//! on the source's variable is there, on all paths on which that holds. LLVM follows those paths; where an
//! item resumes behind a barrier it cannot, so what was known at the barrier is said again.

use std::collections::BTreeMap;

use super::body::Body;
use super::places::Part;
use crate::ir::{Block, BlockId, ConstKind, ENTRY, Function, Id, Inst, Op, Operand, ValueId};

/// The private variables that hold the parts that are known.
type Known = BTreeMap<Part, ValueId>;

impl Body<'_, '_> {
    /// Whether a store says that a variable of the source is not known any more, which is then told; such a
    /// store does nothing else.
    pub(super) fn forgets(&mut self, at: Operand, value: Operand) -> bool {
        let Some(told) = kept_at(at).and_then(|at| self.kept.get(&at)) else { return false };
        if self.is_defined(value) {
            return false;
        }
        self.out += &told.gone;
        true
    }

    /// Tells a debugger what a store means.
    pub(super) fn tell(&mut self, at: Operand) {
        if let Some(told) = kept_at(at).and_then(|at| self.kept.get(&at)) {
            self.out += &told.here;
        }
    }

    /// Tells a debugger again what is known at the end of each of these blocks: text for each of them.
    pub(super) fn tell_again(&self, function: &Function, ends: &[BlockId]) -> Vec<String> {
        if self.kept.is_empty() {
            return vec![String::new(); ends.len()];
        }
        let known = self.known(function);
        let text = |end: &BlockId| {
            let held = known[end.index()].as_ref().into_iter().flatten();
            held.map(|(_, address)| self.kept[address].here.as_str()).collect()
        };
        ends.iter().map(text).collect()
    }

    /// What is known at the end of each block, whichever way led there; none for those that nothing reaches.
    fn known(&self, function: &Function) -> Vec<Option<Known>> {
        let mut starts: Vec<Option<Known>> = vec![None; function.blocks.len()];
        let mut ends = starts.clone();
        starts[ENTRY.index()] = Some(Known::new());
        let mut work = vec![ENTRY];
        while let Some(id) = work.pop() {
            let Some(start) = starts[id.index()].clone() else { continue };
            let block = &function.blocks[id];
            let end = self.known_behind(block, start);
            for next in block.terminator.successors() {
                let before = &mut starts[next.index()];
                let met = match &*before {
                    None => end.clone(),
                    Some(before) => {
                        let mut both = before.clone();
                        both.retain(|part, address| end.get(part) == Some(address));
                        both
                    }
                };
                if before.as_ref() != Some(&met) {
                    *before = Some(met);
                    work.push(next);
                }
            }
            ends[id.index()] = Some(end);
        }
        ends
    }

    fn known_behind(&self, block: &Block, mut known: Known) -> Known {
        for Inst { op, .. } in &block.insts {
            let Op::Store(at, value, _) = op else { continue };
            let Some((at, told)) = kept_at(*at).and_then(|at| Some((at, self.kept.get(&at)?)))
            else {
                continue;
            };
            // A new whole has no parts from before, and one that lacks a part is no longer one.
            let (number, part) = told.of;
            let defined = self.is_defined(*value);
            known.retain(|&(other, its_part), _| {
                other != number || (part.is_some() && (defined || its_part.is_some()))
            });
            known.remove(&told.of);
            if defined {
                known.insert(told.of, at);
            }
        }
        known
    }

    fn is_defined(&self, value: Operand) -> bool {
        match value {
            Operand::Const(id) => !matches!(self.unit.module.constants[id].kind, ConstKind::Undef),
            Operand::Value(_) => true,
        }
    }
}

fn kept_at(at: Operand) -> Option<ValueId> {
    match at {
        Operand::Value(at) => Some(at),
        Operand::Const(_) => None,
    }
}

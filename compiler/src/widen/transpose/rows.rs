// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses as sums: which of them lie in the same rows.

use super::{Finder, Part, Rows, same_bits};
use crate::ir::{BinaryOp, ConstKind, ConvertOp, Op, Operand, Type, ValueId};
use crate::widen::steps::is_near;

/// The terms of an integer sum with their factors, ordered by term. The constant is kept beside them.
pub(super) type Terms = Vec<(Term, i64)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Term {
    Value(ValueId),
    /// A sum that an operation extends: its number in [`Finder::extended`].
    Extended(usize),
}

/// The longest way from a number back to what it is a sum of, and the most operations of an index that are
/// looked at: a sum may have another one twice.
const MAX_DEPTH: u32 = 16;
const MAX_STEPS: u32 = 64;

/// An extension to 64 bits: a conversion, a shift to the right by so many bits, or a mask.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Extension {
    Convert(ConvertOp),
    Shift(i64),
    Mask(i64),
}

impl Finder<'_> {
    /// The rows in which addresses lie that are the same number of bytes apart, and the place in them.
    pub(super) fn rows(&mut self, at: Operand) -> Option<(Rows, Part)> {
        let (rows, part) = self.place(at)?;
        let (pointer, step, offset) = (part.pointer, rows.step, part.offset);
        let lanes = self.module.types.lanes(self.module.operand_type(self.function, pointer));
        let near = step.is_none_or(is_near) && is_near(offset);
        (near && (lanes == 1) == step.is_some()).then_some((rows, part))
    }

    /// The same, also of the address of one item or of neighbours.
    pub(super) fn place(&mut self, at: Operand) -> Option<(Rows, Part)> {
        let made = self.made;
        let (mut at, mut offset, mut index) = (at, 0i64, Terms::new());
        let (mut step, mut first) = (None, None);
        // Whether each item has an index of its own.
        let (all, mut looked_up) = (at, false);
        // What is added to the vector of addresses.
        let (mut beyond, mut scalars) = (0i64, Vec::new());
        self.steps = 0;
        while let Operand::Value(value) = at {
            let (base, distance, terms) = match made.get(&value) {
                Some(Op::Address { base, offset, terms, .. }) => (base, offset, terms),
                // The same address.
                Some(Op::Convert(ConvertOp::PtrCast, from)) => {
                    at = *from;
                    continue;
                }
                _ => break,
            };
            let types = &self.module.types;
            let lanes = |operand| types.lanes(self.module.operand_type(self.function, operand));
            let counts = |&[(numbers, _)]: &[_; 1]| step.is_none() && self.counts_items(numbers);
            let one = <&[_; 1]>::try_from(terms.as_slice()).ok();
            if !one.is_some_and(counts) && terms.iter().any(|&(number, _)| lanes(number) > 1) {
                let sums: Option<Vec<_>> = terms
                    .iter()
                    .map(|&(number, by)| self.sum(number, 0).map(|(more, rest)| (more, rest, by)))
                    .collect();
                let Some(sums) = sums.filter(|_| step.is_none()) else { break };
                for (more, rest, by) in sums {
                    index = added(index, more, by);
                    offset = offset.wrapping_add(rest.wrapping_mul(by));
                }
                offset = offset.wrapping_add(*distance);
                looked_up = true;
                at = *base;
                continue;
            }
            offset = offset.wrapping_add(*distance);
            match terms.as_slice() {
                &[(numbers, by)] if step.is_none() && self.counts_items(numbers) => {
                    (step, first) = (Some(by), Some((*base, offset)));
                }
                terms => {
                    if step.is_none() {
                        beyond = beyond.wrapping_add(*distance);
                        scalars.extend_from_slice(terms);
                    }
                    for &(number, by) in terms {
                        let (more, constant) = self.sum(number, 0)?;
                        index = added(index, more, by);
                        offset = offset.wrapping_add(constant.wrapping_mul(by));
                    }
                }
            }
            at = *base;
        }
        let (pointer, terms, beyond) = match first {
            Some(_) if looked_up => return None,
            Some((pointer, beyond)) => (pointer, Vec::new(), beyond),
            None if looked_up => (all, Vec::new(), 0),
            None => (at, scalars, beyond),
        };
        let rows = Rows { base: at, index, step };
        let part = Part { index: 0, offset, align: 1, pointer, terms, beyond, at, value: at };
        Some((rows, part))
    }

    /// An integer, or a vector of them, as a sum, modulo its width, and the constant in it.
    fn sum(&mut self, operand: Operand, depth: u32) -> Option<(Terms, i64)> {
        let ty = self.module.operand_type(self.function, operand);
        let module = self.module;
        let Type::Int(bits @ (32 | 64)) = module.types[module.types.element(ty)] else {
            return None;
        };
        let cut = |number: i64| if bits == 32 { i64::from(number as i32) } else { number };
        let constant = |operand: Operand| match operand {
            Operand::Const(id) => same_bits(module, id).map(|bits| cut(bits as i64)),
            Operand::Value(_) => None,
        };
        let value = match operand {
            Operand::Const(_) => return Some((Terms::new(), constant(operand)?)),
            Operand::Value(value) => value,
        };
        let itself = Some((vec![(Term::Value(value), 1)], 0));
        let op = match self.made.get(&value) {
            Some(op) if depth < MAX_DEPTH && self.steps < MAX_STEPS => op,
            _ => return itself,
        };
        self.steps += 1;
        use BinaryOp::{AShr, Add, And, Mul, Or, Shl, Sub};
        let (terms, more) = match *op {
            Op::Binary(op @ (Add | Sub), a, b) => {
                let sign = if op == Add { 1 } else { -1 };
                let (a, b) = (self.sum(a, depth + 1)?, self.sum(b, depth + 1)?);
                (added(a.0, b.0, sign), a.1.wrapping_add(b.1.wrapping_mul(sign)))
            }
            Op::Binary(op @ (Mul | Shl | Or | And | AShr), a, b) => {
                let Some(by) = constant(b) else { return itself };
                let (terms, more) = self.sum(a, depth + 1)?;
                let times = |terms, by| (added(Terms::new(), terms, by), more.wrapping_mul(by));
                match op {
                    Mul => times(terms, by),
                    Shl if (0..i64::from(bits)).contains(&by) => times(terms, 1 << by),
                    // Bits that nothing else in the sum has.
                    Or => {
                        let room = 1i64 << self.zeros(&terms).min(62);
                        if more != 0 || !(0..room).contains(&by) {
                            return itself;
                        }
                        (terms, by)
                    }
                    And => (self.extension(Extension::Mask(by), terms, more), 0),
                    AShr => (self.extension(Extension::Shift(by), terms, more), 0),
                    _ => return itself,
                }
            }
            Op::Convert(op @ (ConvertOp::SExt | ConvertOp::ZExt), a) => {
                let Some((terms, more)) = self.sum(a, depth + 1) else { return itself };
                // What is added to bits that nothing else in the sum has does not carry.
                let rest = more & ((1i64 << self.zeros(&terms).min(31)) - 1);
                (self.extension(Extension::Convert(op), terms, more - rest), rest)
            }
            _ => return itself,
        };
        let mut terms: Terms = terms.into_iter().map(|(term, by)| (term, cut(by))).collect();
        terms.retain(|term| term.1 != 0);
        Some((terms, cut(more)))
    }

    /// How many low bits of each of a sum's terms are zeros; none, if it has no terms.
    fn zeros(&self, terms: &Terms) -> u32 {
        let of_term = |&(term, by): &(Term, i64)| match term {
            Term::Extended(number) => match self.extended[number].0 {
                Extension::Mask(mask) => by.wrapping_mul(mask & mask.wrapping_neg()),
                _ => by,
            },
            Term::Value(_) => by,
        };
        terms.iter().map(|term| of_term(term).trailing_zeros()).min().unwrap_or(0)
    }

    /// An extended sum as a term.
    fn extension(&mut self, how: Extension, terms: Terms, more: i64) -> Terms {
        let new = (how, terms, more);
        let place = self.extended.iter().position(|old| *old == new);
        let place = place.unwrap_or_else(|| {
            self.extended.push(new);
            self.extended.len() - 1
        });
        vec![(Term::Extended(place), 1)]
    }

    /// Whether an operand is the items' numbers.
    fn counts_items(&self, operand: Operand) -> bool {
        let Operand::Const(id) = operand else { return false };
        match &self.module.constants[id].kind {
            ConstKind::Composite(parts) => parts
                .iter()
                .zip(0u64..)
                .all(|(&part, number)| self.module.const_bits(part) == Some(number)),
            _ => false,
        }
    }
}

/// A sum with a multiple of another one.
fn added(mut terms: Terms, more: Terms, by: i64) -> Terms {
    for (term, factor) in more {
        let factor = factor.wrapping_mul(by);
        match terms.binary_search_by_key(&term, |term| term.0) {
            Ok(place) => terms[place].1 = terms[place].1.wrapping_add(factor),
            Err(place) => terms.insert(place, (term, factor)),
        }
    }
    terms.retain(|term| term.1 != 0);
    terms
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! How what the items of a vector access lies in memory. What an item accesses is a number, a few of them, or a row of a
//! vector's components ([`super::interleaved`]): so many bytes.
//!
//! ```text
//!   addresses of four items     bytes    lie
//!   0, 8, 16, 24                8        in line
//!   24, 16, 8, 0                8        backwards
//!   0, s, 2 * s, 3 * s          8        with a stride: in line if s is 8
//!   f(id)                       8        computed: whether they are in line, all or part by part, is tested
//! ```

use super::close::WORD;
use super::emit::Widener;
use super::guard::Guard;
use super::refusal::Refusal;
use super::shape::Shape;
use super::strides::Growth;
use crate::ir::arena::Id;
use crate::ir::{Op, Operand, ValueId};

/// The arrangement of the items' accesses.
#[derive(Clone, Copy)]
pub(super) enum Lie {
    /// One behind the other, if the guard's step holds.
    Line(Option<Guard>),
    /// One before the other, likewise: a line that is read backwards.
    Back(Option<Guard>),
    /// At another constant distance, likewise.
    Steps(i64, Option<Guard>),
    /// At a distance that all items share.
    Stride(Growth),
    /// Where arithmetic has put them.
    Computed,
    /// Where floats have put them: they may be close to each other.
    Close,
    /// All in one place, or in no order.
    Apart,
}

/// Addresses that arithmetic has made.
pub(super) struct Places {
    pub(super) all: Operand,
    /// The first address of each part of a vector,
    pub(super) firsts: Vec<Operand>,
    /// and whether the parts are lines that begin there.
    pub(super) holds: Operand,
}

impl Widener<'_> {
    /// The arrangement of accesses of `size` bytes.
    pub(super) fn lie(&self, at: Operand, size: u64) -> Lie {
        let guard = |guard: Option<ValueId>| guard.and_then(|value| self.guards[value.index()]);
        // Each item's private memory is separate.
        let shared = !self.is_private(at);
        match self.shape(at) {
            Shape::Strided { step, guard: by } if step == size as i64 => Lie::Line(guard(by)),
            Shape::Strided { step, guard: by } if step == -(size as i64) && shared => {
                Lie::Back(guard(by))
            }
            Shape::Strided { step, guard: by } => Lie::Steps(step, guard(by)),
            Shape::Varying if shared => {
                if let Some(growth) = self.stride(at) {
                    return Lie::Stride(growth);
                }
                if self.shapes.is_computed(at) {
                    return Lie::Computed;
                }
                if self.shapes.is_placed(at) && size < WORD { Lie::Close } else { Lie::Apart }
            }
            _ => Lie::Apart,
        }
    }

    /// Tests whether computed addresses of accesses of `size` bytes are in line. Quotients, remainders and bits of ids
    /// often are, or, if a vector is of several rows, in each of them.
    pub(super) fn computed(&mut self, at: Operand, size: u64) -> Result<Places, Refusal> {
        let ty = self.type_in(at);
        let bool = self.out.module.types.bool();
        let (all, mask) = (self.known_places(at)?, self.mask_value());
        let holds = self.out.value(Op::InLine(all, mask, size, self.part), bool);
        let firsts = (0..self.out.lanes).step_by(self.part as usize);
        let first = |lane| self.out.value(Op::Extract(all, vec![lane]), ty);
        Ok(Places { all, firsts: firsts.map(first).collect(), holds })
    }

    /// Whether a guard's step holds.
    pub(super) fn holds(&mut self, guard: Option<Guard>) -> Option<Operand> {
        guard.map(|guard| self.out.read(guard.holds))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way of a vector through a kernel: where its items part, and how their values differ. Either depends on the
//! other.

use super::flow::Flow;
use super::refusal::Refusal;
use super::shape::{Rows, Shapes};
use crate::ir::arena::Id;
use crate::ir::{Function, Module};

/// The path of a vector through a kernel, and the facts about its values.
pub(super) struct Way {
    pub(super) flow: Flow,
    pub(super) shapes: Shapes,
    /// By block, whether items diverge at its end.
    pub(super) parting: Vec<bool>,
}

impl Way {
    pub(super) fn new(
        module: &Module,
        source: &Function,
        rows: Rows,
        steps: &[i64],
    ) -> Result<Self, Refusal> {
        let mut flow = Flow::new(source)?;
        let mut parting = vec![false; source.blocks.len()];
        loop {
            flow.update(source, &parting);
            let shapes = Shapes::new(module, source, &flow, rows, steps);
            let mut changed = false;
            for id in source.blocks.ids() {
                let parts = shapes.parts(source, &flow, id);
                changed |= parts && !parting[id.index()];
                parting[id.index()] |= parts;
            }
            if !changed {
                return Ok(Self { flow, shapes, parting });
            }
        }
    }
}

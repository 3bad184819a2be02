// SPDX-License-Identifier: MIT OR Apache-2.0
//! What widening has made of a kernel, for people: the kernel with what differs between the items
//! marked, the remarks, and the widened code.

use std::fmt::{self, Display, Formatter};

use super::{Shape, Widened};
use crate::ir::arena::Id;

impl Display for Shape {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Uniform => f.write_str("uniform"),
            Shape::Strided { step, guard: None } => write!(f, "step {step}"),
            Shape::Strided { step, guard: Some(guard) } => {
                write!(f, "step {step} if {guard} does not wrap around")
            }
            Shape::Varying => f.write_str("varying"),
        }
    }
}

impl Display for Widened {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (source, facts) = (&self.source, &self.facts);
        writeln!(f, "kernel {:?} for {} items", source.name, self.lanes)?;
        for (id, block) in source.blocks.iter() {
            write!(f, "{id}:")?;
            if facts.masks[id.index()] && id != crate::ir::ENTRY {
                f.write_str(" has a mask")?;
            }
            if facts.masked_loops[id.index()] {
                f.write_str(", loops until no item is left")?;
            }
            writeln!(f)?;
            for result in block.insts.iter().filter_map(|inst| inst.result) {
                let shape = facts.shapes[result.index()];
                if shape != Shape::Varying {
                    writeln!(f, "  {result} {shape}")?;
                }
            }
            if facts.parting[id.index()] {
                writeln!(f, "  items part")?;
            }
        }
        for remark in &self.remarks {
            writeln!(f, "remark: {remark}")?;
        }
        write!(f, "\n{}", self.module.function_text(self.function))
    }
}

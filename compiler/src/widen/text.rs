// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of widening as readable text: the kernel with the values that differ between the items
//! marked, the remarks, and the widened code.

use std::fmt::{self, Display, Formatter};

use super::Widened;
use super::shape::Shape;
use crate::ir::arena::Id;
use crate::ir::{BlockId, ENTRY, Loc, ValueId};

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

impl Widened {
    /// The shape of a value of the kernel.
    pub fn shape(&self, value: ValueId) -> Shape {
        self.facts.shapes[value.index()]
    }

    /// Whether items diverge at the end of a block of the kernel.
    pub fn parts(&self, block: BlockId) -> bool {
        self.facts.parting[block.index()]
    }

    /// A block of the kernel, and whether it runs under a mask.
    pub fn block_text(&self, id: BlockId) -> String {
        let has = |facts: &[bool]| facts[id.index()];
        let mask = if has(&self.facts.masks) && id != ENTRY { " has a mask" } else { "" };
        let masked = has(&self.facts.masked_loops);
        let loops = if masked { ", loops until no item is left" } else { "" };
        format!("{id}:{mask}{loops}")
    }
}

impl Display for Widened {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (source, facts) = (&self.source, &self.facts);
        writeln!(f, "kernel {:?} for {} items", source.name, self.lanes)?;
        if let Some(turned) = self.turned {
            writeln!(f, "in groups that are long there, vectors lie in dimension {}", turned.axis)?;
        }
        for (id, block) in source.blocks.iter() {
            writeln!(f, "{}", self.block_text(id))?;
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
        let remark = |(loc, what): &(Loc, String)| match loc.line {
            0 => format!("remark: word {}: {what}", loc.word),
            line => format!("remark: line {line}: {what}"),
        };
        // A line may have several instructions.
        let mut remarks: Vec<String> = self.remarks.iter().map(remark).collect();
        remarks.dedup();
        remarks.iter().try_for_each(|remark| writeln!(f, "{remark}"))?;
        write!(f, "\n{}", self.module.function_text(self.function))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of the source: `OpLine`, and `DebugLine` of NonSemantic.Shader.DebugInfo.100.
//!
//! Either is in force for what follows it, until another one or the end of the block.

use rspirv::spirv::Op as Spv;

use super::error::Result;
use super::words::Instruction;

/// The id of a file's name, a line and a column; `None` where nothing is said.
pub type Line = Option<[u32; 3]>;

/// What is in force after an instruction, if `before` was before it.
pub fn after(inst: &Instruction<'_>, before: Line) -> Result<Line> {
    match inst.op() {
        Spv::Line => Ok(Some([inst.arg(0)?, inst.arg(1)?, inst.arg(2)?])),
        Spv::NoLine => Ok(None),
        _ => Ok(before),
    }
}

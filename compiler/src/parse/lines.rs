// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of the source: `OpLine`, and `DebugLine` of NonSemantic.Shader.DebugInfo.100.
//!
//! Either applies to the instructions behind it, until another one or the end of the block.

use rspirv::spirv::Op as Spv;

use super::error::Result;
use super::words::Instruction;

/// The id of a file's name, a line and a column; `None` if there is no line.
pub type Line = Option<[u32; 3]>;

/// The line that applies after an instruction, if `before` applied before it.
pub fn after(inst: &Instruction<'_>, before: Line) -> Result<Line> {
    match inst.op() {
        Spv::Line => Ok(Some([inst.arg(0)?, inst.arg(1)?, inst.arg(2)?])),
        Spv::NoLine => Ok(None),
        _ => Ok(before),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of the source: `OpLine`, and `DebugLine` of NonSemantic.Shader.DebugInfo.100.
//!
//! Either is in force for what follows it, until another one or the end of the block.

use rspirv::spirv::Op as Spv;

use super::Result;
use super::body::Body;
use super::module::{Builder, Def};
use super::words::Instruction;

/// Numbers of extended instructions.
const DEBUG_SOURCE: u32 = 35;
const DEBUG_LINE: u32 = 103;
const DEBUG_NO_LINE: u32 = 104;

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

/// An extended instruction of module scope: a source has its file's name.
pub fn source(builder: &mut Builder<'_>, inst: &Instruction<'_>) -> Result<()> {
    if inst.arg(1)? == DEBUG_SOURCE {
        builder.sources.insert(inst.result().unwrap_or_default(), inst.arg(2)?);
    }
    Ok(())
}

/// An extended instruction of a function. Numbers in it are ids of constants.
pub fn extended(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    match inst.arg(1)? {
        DEBUG_LINE => {
            let file = body.b.sources.get(&inst.arg(2)?).copied();
            let number = |id: u32| match body.b.defs.get(&id) {
                Some(&Def::Const(id, _)) => body.b.module.const_bits(id),
                _ => None,
            };
            // From line, to line, from column, to column.
            let (line, column) = (number(inst.arg(3)?), number(inst.arg(5)?));
            let narrow = |number: u64| u32::try_from(number).unwrap_or(0);
            let place = file.zip(line);
            let place = place.map(|(file, line)| [file, narrow(line), narrow(column.unwrap_or(0))]);
            body.set_line(place);
        }
        DEBUG_NO_LINE => body.set_line(None),
        _ => {}
    }
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The instructions of NonSemantic.Shader.DebugInfo.100 that give lines.

use super::body::Body;
use super::builder::{Builder, Def};
use super::error::Result;
use super::words::Instruction;

/// Numbers of extended instructions.
const DEBUG_SOURCE: u32 = 35;
const DEBUG_LINE: u32 = 103;
const DEBUG_NO_LINE: u32 = 104;

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

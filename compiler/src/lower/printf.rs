// SPDX-License-Identifier: MIT OR Apache-2.0
//! `printf`: a call of the library, with the ring whose address the driver has written behind the
//! kernel's arguments.

use super::body::Body;
use super::context::ARGS;
use super::unit::LowerError;
use crate::ir::Operand;

impl Body<'_, '_> {
    /// Text of the call.
    pub(super) fn printf(
        &mut self,
        format: Operand,
        args: Operand,
        bytes: u32,
    ) -> Result<String, LowerError> {
        let missing = || LowerError::Unsupported("printf without a ring".into());
        let offset = self.unit.printf_ring.ok_or_else(missing)?;
        let block = self.base(ARGS);
        let at = self.def(&format!("getelementptr inbounds i8, ptr {block}, i64 {offset}"));
        let ring = self.def(&format!("load ptr, ptr {at}, align 8, !invariant.load !0"));
        let (format, args) = (self.operand(format), self.operand(args));
        self.unit.declare("i32", "__tally_printf", "ptr, ptr, ptr, i32");
        Ok(format!("call i32 @__tally_printf(ptr {ring}, ptr {format}, ptr {args}, i32 {bytes})"))
    }
}

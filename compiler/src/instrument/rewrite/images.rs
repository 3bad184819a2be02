// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses to images: the run-time library looks at the texels that they touch.

use tally_compiler_protocol::checks::{Checks, SiteKind, Space};

use super::super::sites::About;
use super::Rewriter;
use crate::ir::{CompareOp, ImageOp, Op, Operand};

impl Rewriter<'_> {
    /// Checks an operation on an image.
    pub(super) fn image(&mut self, op: ImageOp, args: &[Operand]) {
        let writes = op == ImageOp::Write;
        let Checks { memory, init, .. } = self.checks;
        let places = if writes { &args[..args.len() - 1] } else { args };
        let (i64, bool) = (self.module.types.int(64), self.module.types.bool());
        let texel = self.make(Op::Texels(op, places.to_vec()), i64);
        let zero = Operand::Const(self.module.const_int(i64, 0));
        let root = self.roots.of(self.module, self.source, args[0]);
        let object = root.base.text(self.module, self.source, self.kernel);
        let mut tell = |kind, compare| {
            let about = About { kind, size: 0, space: Space::Global, object: object.clone() };
            let site = self.sites.add(self.module, self.loc, about);
            let mistake = self.make(Op::Compare(compare, texel, zero), bool);
            self.note(site, 0, texel, mistake);
        };
        if memory {
            let kind = if writes { SiteKind::WriteOutside } else { SiteKind::ReadOutside };
            tell(kind, CompareOp::SLt);
        }
        if init && !writes {
            tell(SiteKind::ReadTexel, CompareOp::SGt);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions and variables that a module exports, and what they need.

use super::{Checker, Root, RootKind};
use crate::ir::AddressSpace;

impl Checker<'_> {
    /// Checks the exported functions that no kernel has reached. An error in them has no effect before
    /// another module calls them, so it becomes a line of the build log.
    pub(super) fn exports(&mut self) -> String {
        let module = self.module;
        let mut warnings = String::new();
        for (id, function) in module.functions.iter() {
            if !function.exported || function.is_declared() || self.checked.contains(&id) {
                continue;
            }
            let kind = RootKind::Exported;
            let root = Root { kind, name: &function.name, function: id };
            let reached = self.reachable(root);
            for &id in &reached {
                if self.checked.insert(id) {
                    self.function(root, id);
                }
            }
            for error in std::mem::take(&mut self.errors) {
                warnings += &format!("warning: {error}\n");
            }
            for id in self.globals_of(&reached) {
                let global = &module.globals[id];
                if global.imported {
                    self.import(&global.name, false);
                }
            }
        }
        // The driver fills in every variable, whether or not it is used.
        for (_, global) in module.globals.iter() {
            let held = match global.space {
                AddressSpace::Global | AddressSpace::Constant => global.init,
                _ => None,
            };
            for id in module.globals_in(held) {
                let global = &module.globals[id];
                if global.imported {
                    self.import(&global.name, false);
                }
            }
        }
        warnings
    }
}

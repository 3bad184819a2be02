// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiler's output for a module.

use std::sync::Arc;

use tally_compiler_protocol::{Link, ModuleInfo};

use super::globals::Unit;
use super::origin::Origin;

/// Units, each with its imports as indices into the list.
pub type Graph = Vec<(Arc<Unit>, Vec<Link>)>;

/// The compiler's output for a module, alone or linked.
pub struct Build {
    /// The compiler's facts about it.
    pub info: Arc<ModuleInfo>,
    /// The source of its code.
    pub origin: Origin,
    /// The module's own unit, then those of the modules that it imports from.
    pub graph: Graph,
}

impl Build {
    /// The name of a kernel.
    pub fn kernel_name(&self, kernel: u32) -> &str {
        self.info.kernels.get(kernel as usize).map_or("", |kernel| &kernel.name)
    }

    /// The address of a variable, by the compiler's number.
    pub fn address(&self, global: u32) -> Option<u64> {
        let (own, _) = self.graph.first()?;
        let foreign = (global as usize).checked_sub(self.info.globals.len());
        let Some(index) = foreign else { return own.globals.address(global) };
        let foreign = self.info.foreign.get(index)?;
        let (unit, _) = self.graph.get(foreign.object as usize)?;
        unit.globals.address(foreign.global)
    }
}

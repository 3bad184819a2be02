// SPDX-License-Identifier: MIT OR Apache-2.0
//! Those who are told of the application's memory when it is allocated and freed.

use tally_ze::ze_memory_type_t;

use super::views::Views;
use super::{Allocation, Vm};
use crate::checks::{self, Checks, Kind};

/// See the module's description.
pub(super) struct Watcher {
    /// The program's view of user memory, where that is not the memory itself.
    pub(super) views: Option<Views>,
    checks: Option<&'static Checks>,
}

impl Watcher {
    /// Those that there are; `None` if there are none.
    pub(super) fn new(views: Option<Views>) -> Option<Box<Self>> {
        let checks = checks::get();
        (views.is_some() || checks.is_some()).then(|| Box::new(Self { views, checks }))
    }

    /// An allocation begins. `is_new`: nothing but the driver knows its content.
    #[cold]
    pub(super) fn enter(&self, allocation: &Allocation, is_new: bool) {
        if let Some(views) = &self.views {
            views.enter(allocation);
        }
        if let Some(checks) = self.checks {
            let kind = match allocation.kind {
                ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE => Kind::Device,
                ze_memory_type_t::ZE_MEMORY_TYPE_HOST => Kind::Host,
                _ => Kind::Shared,
            };
            // The host writes to its own memory whenever it likes.
            let undefined = is_new && kind == Kind::Device;
            checks.allocated(allocation.mapping.va(), allocation.size, kind, !undefined);
        }
    }

    /// It ends.
    #[cold]
    pub(super) fn leave(&self, base: u64) {
        if let Some(views) = &self.views {
            views.leave(base);
        }
        if let Some(checks) = self.checks {
            checks.freed(base);
        }
    }
}

impl Vm {
    /// The program's view of user memory, where that is not the memory itself.
    pub(super) fn views(&self) -> Option<&Views> {
        self.watcher.as_ref()?.views.as_ref()
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The observers of the application's allocations and frees.

use tally_ze::ze_memory_type_t;

use super::views::Views;
use super::{Allocation, Vm};
use crate::checks::{self, Checks, Kind};

/// See the module's description.
pub(super) struct Watcher {
    /// The program's view of user memory, where that is not the memory itself.
    pub(super) views: Option<Views>,
    checks: Option<&'static Checks>,
    /// Whether the time matters at which the device's writes become visible to the host: there are views, or
    /// checks that report reads that are too early.
    pub(super) publishes_late: bool,
}

impl Watcher {
    /// The observers of this process; `None` if there are none.
    pub(super) fn new(views: Option<Views>) -> Option<Box<Self>> {
        let checks = checks::get();
        let publishes_late = views.is_some() || checks.is_some_and(Checks::attends);
        (views.is_some() || checks.is_some())
            .then(|| Box::new(Self { views, checks, publishes_late }))
    }

    /// Notes a new allocation. `is_new`: only the driver knows its content.
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
            // The host may write to its own memory at any time.
            let undefined = is_new && kind == Kind::Device;
            let base = allocation.mapping.va();
            checks.guard(base, allocation.size, &kind, self.number());
            checks.allocated(base, allocation.size, kind, !undefined);
        }
    }

    /// The number by which checks identify the address space.
    fn number(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Notes the end of an allocation.
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

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(checks) = self.checks {
            checks.unguard_all(self.number());
        }
    }
}

impl Vm {
    /// Whether there is work to do when the device's writes become visible to the host.
    #[inline]
    pub fn publishes_late(&self) -> bool {
        self.watcher.as_ref().is_some_and(|watcher| watcher.publishes_late)
    }

    /// The host sees what the device has written so far, or has waited for an event without a right to.
    #[cold]
    pub fn event_is_complete(&self, is_seen_by_host: bool) {
        if is_seen_by_host {
            self.refresh_host();
        }
        let Some(watcher) = &self.watcher else { return };
        if let Some(checks) = watcher.checks {
            match is_seen_by_host {
                true => checks.host_sees(),
                false => checks.host_is_behind(watcher.number()),
            }
        }
    }

    /// The program's view of user memory, where that is not the memory itself.
    pub(super) fn views(&self) -> Option<&Views> {
        self.watcher.as_ref()?.views.as_ref()
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The barrier of all work-groups of a cooperative DISPATCH.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tally_uapi::eu::GroupContext;

use crate::spin::Spin;

/// The state of the barrier.
#[derive(Debug)]
pub(crate) struct Grid {
    groups: u32,
    arrived: AtomicU32,
    /// Number of times that all groups have arrived.
    turn: AtomicU32,
    /// Some groups will never arrive.
    released: AtomicBool,
}

impl Grid {
    pub(crate) fn new(groups: u32) -> Self {
        Self {
            groups,
            arrived: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            released: AtomicBool::new(false),
        }
    }

    /// Releases all groups, since one has faulted and some will never arrive. Otherwise the other groups
    /// would keep their threads until the queue is destroyed.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Release);
    }

    fn wait(&self) {
        let turn = self.turn.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.groups {
            self.arrived.store(0, Ordering::Relaxed);
            self.turn.store(turn.wrapping_add(1), Ordering::Release);
            return;
        }
        // A signal handler may abort this loop, which holds no resources.
        let mut spin = Spin::default();
        while self.turn.load(Ordering::Acquire) == turn && !self.released.load(Ordering::Acquire) {
            spin.turn();
        }
    }
}

/// `LaunchInfo::grid_wait`: kernels call it.
///
/// # Safety
/// The context is the one that the group was started with.
pub(crate) unsafe extern "C" fn wait(context: *const GroupContext) {
    // SAFETY: the caller's promise; the launch outlives its groups.
    let grid = unsafe { (*(*context).launch).grid };
    // SAFETY: the device has put it there, and keeps it as long as the launch.
    if let Some(grid) = unsafe { (grid as *const Grid).as_ref() } {
        grid.wait();
    }
}

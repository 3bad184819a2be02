// SPDX-License-Identifier: GPL-2.0
//! What has to stay until a command is answered, and what is to be done then.
//!
//! A command may leave its sender behind: waits are killable, and closing a file does not wait at all.
//! So what a command needs, or what it will set free, travels with it and comes out with the answer, or
//! when a reset is known to be complete.

use kernel::rbtree::RBTree;
use kernel::sync::Arc;
use tally_uapi::firmware::{Extent, Identity};

use super::bindings::Mapping;
use super::queue::Queue;
use super::vm::Vm;
use crate::account::Charge;
use crate::shared::Shared;

/// See the module.
pub(crate) enum Keep {
    /// Nothing.
    Nothing,
    /// Memory that the command names, and what it counts as.
    Extents(
        #[expect(dead_code, reason = "kept, not read")] Shared<Extent>,
        #[expect(dead_code, reason = "kept, not read")] Charge,
    ),
    /// As [`Self::Extents`].
    Identity(#[expect(dead_code, reason = "kept, not read")] Arc<Shared<Identity>>),
    /// Mappings that are being undone.
    Mappings(RBTree<u64, Mapping>),
    /// A VM that ends, with its queues.
    Vm(Arc<Vm>),
    /// A queue that ends.
    Queue(Arc<Queue>),
    /// A queue whose time on an engine is asked for.
    Time(Arc<Queue>),
    /// A queue of a VM that became lost: the answer says whether it is to blame.
    Suspect(Arc<Queue>),
}

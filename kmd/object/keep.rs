// SPDX-License-Identifier: GPL-2.0
//! The resources that a command keeps until it is answered.
//!
//! A command may outlive its sender: waits are killable, and closing a file does not wait at all. So the
//! resources that a command needs, or will release, belong to the command until it is answered, or until a
//! reset is known to be complete.

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
    /// Memory that the command names, and its charge.
    Extents(
        #[expect(dead_code, reason = "kept, not read")] Shared<Extent>,
        #[expect(dead_code, reason = "kept, not read")] Charge,
    ),
    /// Memory that the command names, for the device's identity.
    Identity(#[expect(dead_code, reason = "kept, not read")] Arc<Shared<Identity>>),
    /// Mappings that are being removed.
    Mappings(RBTree<u64, Mapping>),
    /// A VM that is ending, with its queues.
    Vm(Arc<Vm>),
    /// A queue that is ending.
    Queue(Arc<Queue>),
    /// A queue whose time on an engine is asked for.
    Time(Arc<Queue>),
    /// A queue of a VM that became lost: the answer says whether it is to blame.
    Suspect(Arc<Queue>),
}

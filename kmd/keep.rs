// SPDX-License-Identifier: GPL-2.0
//! What has to stay until a command is answered, and what is to be done then.
//!
//! A command may leave its sender behind: waits are killable, and closing a file does not wait at all.
//! So what a command needs, or what it will set free, travels with it and comes out with the answer, or
//! when a reset is known to be complete.

use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::Arc;
use tally_uapi::firmware::{answer_status, query_value, Answer, Extent, Identity};

use crate::account::Charge;
use crate::queue::Queue;
use crate::raw::monotonic_ns;
use crate::shared::Shared;
use crate::state::{FirstFault, State};
use crate::vm::{Mapping, Vm};

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

impl Keep {
    /// Takes from the answer what is of interest for this. Whether the device touches nothing of it
    /// any more.
    pub(crate) fn answered(&self, state: &State, answer: &Answer) -> bool {
        match self {
            Self::Mappings(_) | Self::Vm(_) => {
                let done = matches!(
                    answer.status,
                    answer_status::OK | answer_status::NO_ENTRY | answer_status::LOST
                );
                if !done {
                    pr_err!("the device refused to unmap (status {})\n", answer.status);
                }
                return done;
            }
            Self::Time(queue) => queue.note(answer),
            Self::Suspect(queue) => fault(state, queue, answer),
            Self::Nothing | Self::Extents(..) | Self::Identity(_) | Self::Queue(_) => {}
        }
        true
    }

    /// Whether freeing it may take long, or wait for a lock that a client's thread has.
    pub(crate) fn is_heavy(&self) -> bool {
        matches!(self, Self::Mappings(_) | Self::Vm(_))
    }

    /// Frees it. `quiet`: the device is known to touch nothing of it any more; otherwise what it may touch
    /// is never freed.
    pub(crate) fn settle(self, state: &State, quiet: bool) {
        match self {
            Self::Mappings(mappings) => free(state, mappings, quiet),
            Self::Vm(vm) => {
                free(state, vm.take_mappings(), quiet);
                if quiet {
                    let ours = |queue: &Queue| core::ptr::eq(&**queue.vm(), &*vm);
                    state.queues.for_each(ours, |_, queue| state.queues.free(&queue));
                    state.vms.free(&vm);
                }
            }
            Self::Queue(queue) if quiet => state.queues.free(&queue),
            Self::Extents(..) | Self::Identity(_) if !quiet => core::mem::forget(self),
            _ => {}
        }
    }
}

/// Frees mappings. Unless `quiet`, their pages stay pinned and are counted as quarantined.
pub(crate) fn free(state: &State, mappings: RBTree<u64, Mapping>, quiet: bool) {
    if !quiet {
        let bytes = mappings.iter().map(|(start, mapping)| mapping.end() - start).sum();
        state.quarantine(bytes);
        core::mem::forget(mappings);
    }
}

/// Keeps the first fault of all, and tells the log.
fn fault(state: &State, queue: &Queue, answer: &Answer) {
    let kind = (answer.values[query_value::STATE] >> 32) as u32;
    if answer.status != answer_status::OK || kind == 0 {
        return;
    }
    let fault = FirstFault {
        time_ns: monotonic_ns(),
        vm: queue.vm().id(),
        queue: queue.id(),
        kind,
        address: answer.values[query_value::FAULT_ADDRESS],
        packet: answer.values[query_value::FAULT_PACKET],
        pid: queue.vm().pid(),
    };
    if state.may_log() {
        pr_info!(
            "vm {} of process {}: queue {} faulted: {} at {:#x}, packet {}\n",
            fault.vm,
            fault.pid,
            fault.queue,
            tally_uapi::fault::FaultKind::from_raw(kind).map_or("unknown", |kind| kind.name()),
            fault.address,
            fault.packet
        );
    }
    state.fault.lock().get_or_insert(fault);
}

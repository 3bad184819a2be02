// SPDX-License-Identifier: GPL-2.0
//! Frees the resources that a command has kept, once it is answered or cannot be any more.

use kernel::prelude::*;
use kernel::rbtree::RBTree;
use tally_uapi::firmware::{answer_status, query_value, Answer};

use crate::call::Kept;
use crate::object::bindings::Mapping;
use crate::object::keep::Keep;
use crate::object::queue::Queue;
use crate::raw::time::monotonic_ns;
use crate::state::{FirstFault, State};

impl Kept for Keep {
    type Owner = State;
    const NOTHING: Self = Self::Nothing;

    fn answered(&self, state: &State, answer: &Answer) -> bool {
        match self {
            Self::Mappings(_) | Self::Vm(_) => {
                let done = matches!(
                    answer.status,
                    answer_status::OK | answer_status::NO_ENTRY | answer_status::LOST
                );
                if !done {
                    state.set_refused();
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

    fn sets_free(&self) -> bool {
        is_heavy(self) || matches!(self, Self::Queue(_))
    }

    fn settle(self, state: &State, quiet: bool) {
        match self {
            Self::Mappings(mappings) => free(state, mappings, quiet),
            Self::Vm(vm) => {
                free(state, vm.take_mappings(), quiet);
                if quiet {
                    let ours = |queue: &Queue| core::ptr::eq(&**queue.vm(), &*vm);
                    state
                        .queues
                        .for_each(ours, |_, queue| state.queues.free(&queue));
                    state.vms.free(&vm);
                }
            }
            Self::Queue(queue) if quiet => state.queues.free(&queue),
            Self::Extents(..) | Self::Identity(_) if !quiet => return core::mem::forget(self),
            _ => return,
        }
        state.releases.note();
    }
}

/// Whether freeing it may take long, or wait for a lock that a client's thread holds.
pub(crate) fn is_heavy(keep: &Keep) -> bool {
    matches!(keep, Keep::Mappings(_) | Keep::Vm(_))
}

/// Frees mappings. Unless `quiet`, their pages stay pinned and are counted as quarantined.
pub(crate) fn free(state: &State, mappings: RBTree<u64, Mapping>, quiet: bool) {
    if !quiet {
        let bytes = mappings
            .iter()
            .map(|(start, mapping)| mapping.end() - start)
            .sum();
        state.quarantine(bytes);
        core::mem::forget(mappings);
    }
}

/// Keeps the first fault since the driver was bound, and logs faults.
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

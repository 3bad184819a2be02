// SPDX-License-Identifier: GPL-2.0
//! Commands that several callers send: those that end VMs and queues, and the one that asks
//! what a queue does.

use kernel::prelude::*;
use kernel::sync::Arc;
use tally_uapi::firmware::op;

use crate::admin::{queue_command, vm_command, Call, Order};
use crate::gpu::Gpu;
use crate::object::keep::Keep;
use crate::object::queue::Queue;
use crate::object::vm::Vm;

/// Sends VM_DESTROY for a closed VM; the answer frees its resources. If it cannot be sent, the reset that
/// prevents it frees them.
///
/// # Errors
/// ENOENT: that was done before. ENODEV, EIO: the device takes no commands.
pub(crate) fn end_vm(gpu: &Gpu<'_>, vm: &Arc<Vm>, attended: bool) -> Result<Arc<Call>> {
    let sent = vm.end(|order| {
        if !attended {
            order.call.leave();
        }
        let command = vm_command(op::VM_DESTROY, vm.id(), [0; 6]);
        gpu.send_locked(order, command, Keep::Vm(vm.clone()))
    })?;
    gpu.state().sleepers.wake_all();
    if gpu.transport().dma().is_none() {
        // The device has lost the pages already, whatever it will answer.
        drop(vm.take_mappings());
    }
    // Settling takes the mappings out, and so takes their lock.
    sent.map_err(|unsent| gpu.settle(unsent))
}

/// Sends VM_DESTROY for a closed VM, and does not wait for the answer.
pub(crate) fn end_vm_unattended(gpu: &Gpu<'_>, vm: &Arc<Vm>) {
    // A command that could not be sent was settled.
    let _ = end_vm(gpu, vm, false);
}

/// Sends QUEUE_DESTROY for a closed queue.
///
/// # Errors
/// ENOENT: VM_DESTROY was sent, which ends its queues. ENODEV, EIO: the device takes no commands.
pub(crate) fn end_queue(gpu: &Gpu<'_>, queue: &Arc<Queue>, order: Order) -> Result<Arc<Call>> {
    let command = queue_command(op::QUEUE_DESTROY, queue, [0; 6]);
    queue
        .vm()
        .while_mapped(&[], || gpu.send(order, command, Keep::Queue(queue.clone())))
}

/// Asks the device for the state of a queue; the answer updates the queue's time on its engine.
///
/// # Errors
/// ENOENT: its VM ends. ENODEV, EIO: the device takes no commands.
pub(crate) fn ask(gpu: &Gpu<'_>, queue: &Arc<Queue>, order: Order) -> Result<Arc<Call>> {
    let command = queue_command(op::QUEUE_QUERY, queue, [0; 6]);
    queue
        .vm()
        .while_mapped(&[], || gpu.send(order, command, Keep::Time(queue.clone())))
}

/// Asks for the time of a queue on its engine, unless an answer is still awaited.
pub(crate) fn refresh(gpu: &Gpu<'_>, queue: &Arc<Queue>) -> Option<Arc<Call>> {
    if !queue.begin_asking() {
        return None;
    }
    let call = Order::new().and_then(|order| ask(gpu, queue, order));
    call.inspect_err(|_| queue.end_asking()).ok()
}

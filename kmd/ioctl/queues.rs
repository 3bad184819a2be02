// SPDX-License-Identifier: GPL-2.0
//! QUEUE_CREATE, QUEUE_DESTROY, QUEUE_QUERY, QUEUE_KICK.

use kernel::prelude::*;
use kernel::sync::Arc;
use tally_uapi::firmware::{op, query_value};
use tally_uapi::ioctl::{queue_state, QueueCreate, QueueDestroy, QueueKick, QueueQuery};

use super::caller::Caller;
use crate::admin::{queue_command, Call, Order};
use crate::commands::{ask, end_queue};
use crate::file::TallyFile;
use crate::gpu::Gpu;
use crate::object::keep::Keep;
use crate::object::queue::Queue;
use crate::request::{Access, NewQueue, QueueId};
use crate::state::{Count, State};

/// A queue of the file, whose VM is not ended.
fn get(state: &State, file: &TallyFile, id: u32) -> Result<Arc<Queue>> {
    let queue = state.queues.get(file.id(), id)?;
    if queue.vm().ended() {
        return Err(ENOENT);
    }
    Ok(queue)
}

/// IOCTL: QUEUE_CREATE: a ring on an engine.
pub(super) fn create(caller: &Caller<'_>, arg: &mut QueueCreate) -> Result {
    let file = caller.file();
    // The second order is for ending the queue, should its client not get it.
    let (queue, call, ending) = caller.with_room(|| caller.gpu(|gpu| begin(gpu, &file, arg)))?;
    if let Err(error) = call.wait(file.state()) {
        // Killed or refused: QUEUE_DESTROY follows QUEUE_CREATE, and frees the id.
        if queue.close() {
            ending.call.leave();
            // A command that could not be sent was settled. If the driver was unbound, the file frees the queue.
            let _ = caller.gpu_or_gone(|gpu| end_queue(gpu, &queue, ending));
        }
        return Err(error);
    }
    arg.queue_id = queue.id();
    Ok(())
}

fn begin(
    gpu: &Gpu<'_>,
    file: &TallyFile,
    arg: &QueueCreate,
) -> Result<(Arc<Queue>, Arc<Call>, Order)> {
    let NewQueue {
        vm,
        class,
        index,
        priority,
        packets,
        ring,
        control,
    } = NewQueue::try_from(arg)?;
    let identity = gpu.identity()?;
    let classes = (identity.engine_classes as usize).min(identity.engines.len());
    let engines = identity.engines[..classes]
        .get(class as usize)
        .ok_or(EINVAL)?;
    if index >= engines.count {
        return Err(EINVAL);
    }
    let state = gpu.state();
    let vm = state.vms.get(file.id(), vm)?;
    if vm.lost() {
        return Err(EIO);
    }
    let id = state.queues.reserve(file.owner(), State::queue_limits())?;
    let (order, ending) = (Order::new()?, Order::new()?);
    let queue = Queue::new(id.id(), vm.clone(), class, file.engine_time().clone())?;
    let engine = [class, index, priority].map(u64::from);
    let args = [
        ring.start,
        control.start,
        u64::from(packets),
        engine[0],
        engine[1],
        engine[2],
    ];
    let command = queue_command(op::QUEUE_CREATE, &queue, args);
    let ranges = [(ring, Access::READ), (control, Access::READ_WRITE)];
    let published = queue.clone();
    let call = vm.while_mapped(&ranges, || {
        gpu.send_then(order, command, Keep::Nothing, || id.publish(published))
    })?;
    Ok((queue, call, ending))
}

/// IOCTL: QUEUE_DESTROY: stops a queue.
pub(super) fn destroy(caller: &Caller<'_>, arg: &QueueDestroy) -> Result {
    let file = caller.file();
    let call = caller.gpu_or_gone(|gpu| {
        let QueueId(id) = QueueId::try_from(arg)?;
        let state = gpu.state();
        get(state, &file, id)?;
        let order = Order::new()?;
        let queue = state.queues.close(file.id(), id)?;
        // The queue's time since the last question counts as well, if there is memory for another one.
        if let Ok(asking) = Order::new() {
            asking.call.leave();
            let _ = ask(gpu, &queue, asking);
        }
        Ok(end_queue(gpu, &queue, order).ok())
    })?;
    // A device that was reset has no queue any more; that is success.
    call.map_or(Ok(()), |call| call.wait_for_end(file.state()))
}

/// IOCTL: QUEUE_QUERY: the state of a queue.
pub(super) fn query(caller: &Caller<'_>, arg: &mut QueueQuery) -> Result {
    let file = caller.file();
    let (queue, call) = caller.gpu(|gpu| {
        let QueueId(id) = QueueId::try_from(&*arg)?;
        let queue = get(gpu.state(), &file, id)?;
        let call = Order::new().and_then(|order| ask(gpu, &queue, order));
        Ok((queue, call))
    })?;
    let queue_id = queue.id();
    *arg = match call.and_then(|call| call.wait(file.state())) {
        Ok(answer) => QueueQuery {
            queue_id,
            state: answer.values[query_value::STATE] as u32,
            fault_kind: (answer.values[query_value::STATE] >> 32) as u32,
            pad: 0,
            fault_address: answer.values[query_value::FAULT_ADDRESS],
            fault_packet: answer.values[query_value::FAULT_PACKET],
            parked_address: answer.values[query_value::PARKED_ADDRESS],
            parked_value: answer.values[query_value::PARKED_VALUE],
            head: answer.values[query_value::HEAD],
            busy_ns: answer.values[query_value::BUSY_NS],
        },
        // A reset has ended it on the device; the file still has it.
        Err(error) if (error == ENOENT || error == EIO) && queue.vm().lost() => QueueQuery {
            queue_id,
            state: queue_state::STOPPED,
            busy_ns: queue.busy_ns(),
            ..QueueQuery::default()
        },
        Err(error) => return Err(error),
    };
    Ok(())
}

/// IOCTL: QUEUE_KICK: tells a sleeping device to look at the ring.
pub(super) fn kick(gpu: &Gpu<'_>, file: &TallyFile, arg: &QueueKick) -> Result {
    let QueueId(id) = QueueId::try_from(arg)?;
    let queue = get(gpu.state(), file, id)?;
    if queue.vm().lost() {
        return Err(EIO);
    }
    gpu.state().count(Count::Kicks);
    gpu.transport().kick(queue.id());
    Ok(())
}

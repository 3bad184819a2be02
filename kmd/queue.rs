// SPDX-License-Identifier: GPL-2.0
//! Queues: QUEUE_CREATE, QUEUE_DESTROY, QUEUE_QUERY, QUEUE_KICK.

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use tally_uapi::firmware::{op, query_value, Answer};
use tally_uapi::ioctl::{
    bind_flag, priority, queue_state, QueueCreate, QueueDestroy, QueueKick, QueueQuery,
};
use tally_uapi::packet::PACKET_SIZE;
use tally_uapi::queue::{RING_MAX_PACKETS, RING_MIN_PACKETS};
use tally_uapi::PAGE_SIZE;

use crate::admin::{queue_command, Call, Keep};
use crate::fdinfo::EngineTime;
use crate::file::TallyFile;
use crate::gpu::Gpu;
use crate::module_parameters;
use crate::state::{Count, State};
use crate::table::{Closed, Entry};
use crate::vm::Vm;

/// A ring that an engine reads.
pub(crate) struct Queue {
    id: u32,
    vm: Arc<Vm>,
    class: u32,
    closed: Closed,
    /// Time on an engine when it was last asked, in ns.
    busy_ns: Atomic<u64>,
    /// Its client's, to which that time was added.
    engine_time: Arc<EngineTime>,
}

impl Entry for Queue {
    fn owner(&self) -> u64 {
        self.vm.owner_id()
    }

    fn closed(&self) -> &Closed {
        &self.closed
    }
}

impl Queue {
    /// The device's id, which is the file's, too.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The address space of its packets.
    pub(crate) fn vm(&self) -> &Arc<Vm> {
        &self.vm
    }

    /// The file that made it.
    pub(crate) fn owner_id(&self) -> u64 {
        self.vm.owner_id()
    }

    /// Engine class.
    pub(crate) fn class(&self) -> u32 {
        self.class
    }

    /// Whether its owner has ended it, or its VM.
    pub(crate) fn ended(&self) -> bool {
        self.closed.is() || self.vm.ended()
    }

    /// Time on an engine when it was last asked, in ns.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Relaxed)
    }

    /// Keeps what the device said of it, and adds what is new to the client's time.
    pub(crate) fn note(&self, answer: &Answer) {
        let now = answer.values[query_value::BUSY_NS];
        let mut before = self.busy_ns();
        // An answer that others have overtaken says nothing new.
        while before < now {
            match self.busy_ns.cmpxchg(before, now, Relaxed) {
                Ok(_) => return self.engine_time.add(self.class, now - before),
                Err(other) => before = other,
            }
        }
    }
}

/// A queue of the file, whose VM is not ended.
fn get(state: &State, file: &TallyFile, id: u32) -> Result<Arc<Queue>> {
    let queue = state.queues.get(file.id(), id)?;
    if queue.vm.ended() {
        return Err(ENOENT);
    }
    Ok(queue)
}

/// IOCTL: QUEUE_CREATE: a ring on an engine.
pub(crate) fn create(gpu: &Gpu<'_>, file: &TallyFile, arg: &mut QueueCreate) -> Result {
    let identity = gpu.identity()?;
    let classes = (identity.engine_classes as usize).min(identity.engines.len());
    let engines = identity.engines[..classes].get(arg.engine_class as usize);
    let ring_bytes = u64::from(arg.packets) * PACKET_SIZE;
    let fits = arg.flags == 0
        && arg.pad == 0
        && engines.is_some_and(|engines| arg.engine_index < engines.count)
        && matches!(arg.priority, priority::HIGH | priority::NORMAL | priority::LOW)
        && arg.packets.is_power_of_two()
        && (RING_MIN_PACKETS..=RING_MAX_PACKETS).contains(&arg.packets)
        && arg.ring % PACKET_SIZE == 0
        && arg.ring.checked_add(ring_bytes).is_some()
        && arg.control % PAGE_SIZE == 0
        && arg.control.checked_add(PAGE_SIZE).is_some();
    if !fits {
        return Err(EINVAL);
    }
    let state = gpu.state();
    let vm = state.vms.get(file.id(), arg.vm_id)?;
    if vm.lost() {
        return Err(EIO);
    }
    let call = Call::new()?;
    let limit = *module_parameters::max_queues.value_ref();
    let queue = state.queues.add(file.id(), limit, |id| {
        let queue = Queue {
            id,
            vm: vm.clone(),
            class: arg.engine_class,
            closed: Closed::new(),
            busy_ns: Atomic::new(0),
            engine_time: file.engine_time().clone(),
        };
        Ok(Arc::new(queue, GFP_KERNEL)?)
    })?;
    let args = [
        arg.ring,
        arg.control,
        u64::from(arg.packets),
        u64::from(arg.engine_class),
        u64::from(arg.engine_index),
        u64::from(arg.priority),
    ];
    let command = queue_command(op::QUEUE_CREATE, &queue, args);
    let ring = arg.ring..arg.ring + ring_bytes;
    let control = arg.control..arg.control + PAGE_SIZE;
    let ranges = [(ring, bind_flag::READ), (control, bind_flag::READ | bind_flag::WRITE)];
    if let Err(error) = vm.while_mapped(&ranges, || gpu.send(&call, command, Keep::Nothing)) {
        // The device has not heard of it.
        state.queues.free(queue.id);
        return Err(error);
    }
    match call.wait() {
        Ok(_) => {
            arg.queue_id = queue.id;
            Ok(())
        }
        Err(error) => {
            // Killed, or refused: QUEUE_DESTROY comes after it, and frees the id.
            end_unattended(gpu, &queue);
            Err(error)
        }
    }
}

fn end(gpu: &Gpu<'_>, queue: &Arc<Queue>, call: &Arc<Call>) -> Result {
    let command = queue_command(op::QUEUE_DESTROY, queue, [0; 6]);
    gpu.send(call, command, Keep::Queue(queue.clone()))
}

fn end_unattended(gpu: &Gpu<'_>, queue: &Arc<Queue>) {
    if !queue.closed.close() {
        return;
    }
    match Call::new() {
        Ok(call) => {
            let _ = end(gpu, queue, &call);
        }
        Err(_) => gpu.settle(Keep::Queue(queue.clone())),
    }
}

/// IOCTL: QUEUE_DESTROY: stops a queue.
pub(crate) fn destroy(gpu: &Gpu<'_>, file: &TallyFile, arg: &QueueDestroy) -> Result {
    if arg.pad != 0 {
        return Err(EINVAL);
    }
    let state = gpu.state();
    get(state, file, arg.queue_id)?;
    let call = Call::new()?;
    let queue = state.queues.close(file.id(), arg.queue_id)?;
    // What it has done since it was last asked counts as well. A device that does not say so is told
    // to end it all the same.
    let _ = ask(gpu, &queue);
    // A device that is reset has no queue any more; that is success.
    match end(gpu, &queue, &call).and_then(|()| call.wait_until(i64::MAX)) {
        Err(error) if error == EINTR => Err(error),
        _ => Ok(()),
    }
}

/// Asks the device what a queue does.
///
/// # Errors
/// EINTR: killed. ENODEV, ENOMEM; ENOENT: the device does not know it (any more).
pub(crate) fn ask(gpu: &Gpu<'_>, queue: &Queue) -> Result<Answer> {
    let call = Call::new()?;
    gpu.send(&call, queue_command(op::QUEUE_QUERY, queue, [0; 6]), Keep::Nothing)?;
    let answer = call.wait()?;
    queue.note(&answer);
    Ok(answer)
}

/// IOCTL: QUEUE_QUERY: what a queue does.
pub(crate) fn query(gpu: &Gpu<'_>, file: &TallyFile, arg: &mut QueueQuery) -> Result {
    if arg.pad != 0 {
        return Err(EINVAL);
    }
    let queue = get(gpu.state(), file, arg.queue_id)?;
    let queue_id = arg.queue_id;
    *arg = match ask(gpu, &queue) {
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
        // A reset has taken it; the file still has it.
        Err(error) if error == ENOENT && queue.vm.lost() => QueueQuery {
            queue_id,
            state: queue_state::STOPPED,
            busy_ns: queue.busy_ns(),
            ..QueueQuery::default()
        },
        Err(error) => return Err(error),
    };
    Ok(())
}

/// IOCTL: QUEUE_KICK: the device sleeps and has to look at the ring.
pub(crate) fn kick(gpu: &Gpu<'_>, file: &TallyFile, arg: &QueueKick) -> Result {
    if arg.pad != 0 {
        return Err(EINVAL);
    }
    let queue = get(gpu.state(), file, arg.queue_id)?;
    if queue.vm.lost() {
        return Err(EIO);
    }
    gpu.state().count(Count::Kicks);
    gpu.regs().kick(queue.id);
    Ok(())
}

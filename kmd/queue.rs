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

use crate::admin::queue_command;
use crate::call::{Call, Order};
use crate::fdinfo::EngineTime;
use crate::file::TallyFile;
use crate::gpu::Gpu;
use crate::keep::Keep;
use crate::state::{Count, State};
use crate::table::{Closed, Entry, Owner};
use crate::vm::Vm;

/// A ring that an engine reads.
pub(crate) struct Queue {
    id: u32,
    vm: Arc<Vm>,
    class: u32,
    closed: Closed,
    /// Time on an engine when it was last asked, in ns.
    busy_ns: Atomic<u64>,
    /// Whether that is being asked for by [`refresh`].
    asked: Atomic<bool>,
    /// Its client's, to which that time was added.
    engine_time: Arc<EngineTime>,
}

impl Entry for Queue {
    fn id(&self) -> u32 {
        self.id
    }

    fn owner(&self) -> Owner {
        self.vm.owner()
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
        self.asked.store(false, Relaxed);
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
    let id = state.queues.reserve(file.owner(), State::queue_limits())?;
    let (order, ending) = (Order::new()?, Order::new()?);
    let queue = Queue {
        id: id.id(),
        vm: vm.clone(),
        class: arg.engine_class,
        closed: Closed::new(),
        busy_ns: Atomic::new(0),
        asked: Atomic::new(false),
        engine_time: file.engine_time().clone(),
    };
    let queue = Arc::new(queue, GFP_KERNEL_ACCOUNT)?;
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
    let published = queue.clone();
    let call = vm.while_mapped(&ranges, || {
        gpu.send_then(order, command, Keep::Nothing, || id.publish(published))
    })?;
    match call.wait(state) {
        Ok(_) => {
            arg.queue_id = queue.id;
            Ok(())
        }
        Err(error) => {
            // Killed, or refused: QUEUE_DESTROY comes after it, and frees the id.
            if queue.closed.close() {
                ending.call.leave();
                // What could not be sent was settled.
                let _ = end(gpu, &queue, ending);
            }
            Err(error)
        }
    }
}

/// Sends the end of a closed queue.
///
/// # Errors
/// ENOENT: VM_DESTROY was sent, which ends its queues. ENODEV, EIO: the device takes no commands.
fn end(gpu: &Gpu<'_>, queue: &Arc<Queue>, order: Order) -> Result<Arc<Call>> {
    let command = queue_command(op::QUEUE_DESTROY, queue, [0; 6]);
    queue.vm.while_mapped(&[], || gpu.send(order, command, Keep::Queue(queue.clone())))
}

/// IOCTL: QUEUE_DESTROY: stops a queue.
pub(crate) fn destroy(gpu: &Gpu<'_>, file: &TallyFile, arg: &QueueDestroy) -> Result {
    if arg.pad != 0 {
        return Err(EINVAL);
    }
    let state = gpu.state();
    get(state, file, arg.queue_id)?;
    let order = Order::new()?;
    let queue = state.queues.close(file.id(), arg.queue_id)?;
    // What it has done since it was last asked counts as well, if there is memory to ask.
    if let Ok(asking) = Order::new() {
        asking.call.leave();
        let _ = ask(gpu, &queue, asking);
    }
    // A device that is reset has no queue any more; that is success.
    end(gpu, &queue, order).map_or(Ok(()), |call| call.wait_for_end(state))
}

/// Asks the device what a queue does; its time on an engine is noted with the answer.
///
/// # Errors
/// ENOENT: its VM ends. ENODEV, EIO: the device takes no commands.
fn ask(gpu: &Gpu<'_>, queue: &Arc<Queue>, order: Order) -> Result<Arc<Call>> {
    let command = queue_command(op::QUEUE_QUERY, queue, [0; 6]);
    queue.vm.while_mapped(&[], || gpu.send(order, command, Keep::Time(queue.clone())))
}

/// Has the time of a queue on its engine asked for, unless an answer is still awaited.
pub(crate) fn refresh(gpu: &Gpu<'_>, queue: &Arc<Queue>) -> Option<Arc<Call>> {
    if queue.asked.xchg(true, Relaxed) {
        return None;
    }
    let call = Order::new().and_then(|order| ask(gpu, queue, order));
    call.inspect_err(|_| queue.asked.store(false, Relaxed)).ok()
}

/// IOCTL: QUEUE_QUERY: what a queue does.
pub(crate) fn query(gpu: &Gpu<'_>, file: &TallyFile, arg: &mut QueueQuery) -> Result {
    if arg.pad != 0 {
        return Err(EINVAL);
    }
    let queue = get(gpu.state(), file, arg.queue_id)?;
    let queue_id = arg.queue_id;
    let answer = Order::new().and_then(|order| ask(gpu, &queue, order)?.wait(gpu.state()));
    *arg = match answer {
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
        Err(error) if (error == ENOENT || error == EIO) && queue.vm.lost() => QueueQuery {
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

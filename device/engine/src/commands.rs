// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's commands to an engine process, and the device's messages to the hub.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock};

use tally_device::{
    Device, EngineClass, Error, Host, Priority, QueueConfig, QueueHandle, QueueId, QueueState,
    QueueStatus, Vm, VmId,
};
use tally_uapi::fault::Fault;
use tally_uapi::firmware::{answer_status, op, query_value};
use tally_uapi::ioctl::{priority, queue_state};

use crate::mailbox::{Mailbox, Order, Piece, ToHub, fence_arguments};

/// The device's host interface, which forwards its notifications to the hub.
#[derive(Debug)]
pub(crate) struct Voice(pub(crate) &'static ToHub);

impl Host for Voice {
    fn semaphore_interrupt(&self, bucket: usize) {
        // If the bit is set already, a ring for it is still unanswered.
        if self.0.signalled.set(bucket) {
            self.0.bell.ring();
        }
    }

    fn vm_lost(&self, _vm: VmId, queue: QueueId, fault: Fault) {
        let words = [u64::from(queue.0), fault.kind as u64, fault.address, fault.packet];
        for (word, value) in self.0.fault.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.0.lost.store(1, Ordering::SeqCst);
        self.0.bell.ring();
    }

    fn waiters_changed(&self, bucket: usize) {
        if self.0.changed.set(bucket) {
            self.0.bell.ring();
        }
    }
}

/// The device with its one VM.
pub(crate) struct Engine {
    pub(crate) mailbox: &'static Mailbox,
    pub(crate) device: Device,
    pub(crate) vm: Vm,
    queues: RwLock<HashMap<u32, QueueHandle>>,
}

type Answer = Result<[u64; 7], u32>;

impl Engine {
    pub(crate) fn new(mailbox: &'static Mailbox, device: Device, vm: Vm) -> Self {
        Self { mailbox, device, vm, queues: RwLock::default() }
    }

    fn queue(&self, id: u32) -> Option<QueueHandle> {
        self.queues.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The main thread: carries out orders endlessly.
    pub(crate) fn obey(&self) -> ! {
        let mut done = 0;
        loop {
            let (sequence, order) = self.mailbox.to_engine.await_order(done);
            let answer = self.carry_out(&order);
            let to_hub = &self.mailbox.to_hub;
            let (status, values) = match answer {
                Ok(values) => (answer_status::OK, values),
                Err(status) => (status, [0; 7]),
            };
            for (word, value) in to_hub.values.iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
            to_hub.status.store(status, Ordering::SeqCst);
            call(fence_arguments(sequence));
            done = sequence;
        }
    }

    /// The bell's thread: handles kicks and looks endlessly.
    pub(crate) fn listen(&self) -> ! {
        let to_engine = &self.mailbox.to_engine;
        loop {
            let seen = to_engine.bell.rings();
            for id in to_engine.kicks.take() {
                if let Some(queue) = self.queue(id as u32) {
                    self.device.kick(&queue);
                }
            }
            to_engine.recheck.take().for_each(|bucket| self.device.wake(bucket));
            if to_engine.recheck_foreign.swap(0, Ordering::SeqCst) != 0 {
                self.device.wake_foreign();
            }
            to_engine.bell.wait(seen);
        }
    }

    fn carry_out(&self, order: &Order) -> Answer {
        match order.opcode {
            op::NOP => Ok([0; 7]),
            op::VM_MAP => self.map(&order.pieces),
            op::VM_UNMAP => {
                let [address, bytes, ..] = order.args;
                self.device.adopt(address..address.saturating_add(bytes));
                self.map(&order.pieces)
            }
            op::QUEUE_CREATE => self.create_queue(order),
            op::QUEUE_DESTROY => {
                let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
                let queue = queues.remove(&order.queue).ok_or(answer_status::NO_ENTRY)?;
                drop(queues);
                self.device.destroy_queue(&queue);
                Ok([0; 7])
            }
            op::QUEUE_QUERY => {
                let queue = self.queue(order.queue).ok_or(answer_status::NO_ENTRY)?;
                Ok(values(&self.device.query(&queue)))
            }
            op::VM_ORPHAN => {
                let [address, bytes, ..] = order.args;
                match self.device.orphan(address..address.saturating_add(bytes)) {
                    true => Ok([0; 7]),
                    false => Err(answer_status::NO_SPACE),
                }
            }
            _ => Err(answer_status::INVALID),
        }
    }

    fn map(&self, pieces: &[Piece]) -> Answer {
        for piece in pieces {
            let result = call(piece.system_call());
            let done = if piece.is_unmap() { result == 0 } else { result as u64 == piece.address };
            if !done {
                return Err(answer_status::NO_SPACE);
            }
            self.device.adopt(piece.address..piece.address + piece.bytes);
        }
        Ok([0; 7])
    }

    fn create_queue(&self, order: &Order) -> Answer {
        // The hub has checked all arguments.
        let [ring, control, packets, class, index, priority, ..] = order.args;
        let config = QueueConfig {
            id: QueueId(order.queue),
            class: if class == 0 { EngineClass::Compute } else { EngineClass::Copy },
            index: index as u32,
            priority: match priority as u32 {
                priority::HIGH => Priority::High,
                priority::LOW => Priority::Low,
                _ => Priority::Normal,
            },
            ring,
            packets: packets as u32,
            control,
        };
        let queue = self.device.create_queue(&self.vm, &config).map_err(|error| match error {
            Error::VmLost => answer_status::LOST,
            _ => answer_status::INVALID,
        })?;
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        queues.insert(order.queue, queue);
        Ok([0; 7])
    }
}

/// Makes a system call that the hub allows.
fn call((number, [a, b, c, d, e, f]): (i64, [u64; 6])) -> i64 {
    // SAFETY: mmap and munmap at the hub's order, in the VM's window, which
    // contains no memory of this process.
    unsafe { libc::syscall(number, a, b, c, d, e, f) }
}

/// QUEUE_QUERY's answer.
fn values(status: &QueueStatus) -> [u64; 7] {
    let state = match status.state {
        QueueState::Idle => queue_state::IDLE,
        QueueState::Running => queue_state::RUNNING,
        QueueState::Parked => queue_state::PARKED,
        QueueState::Stopped => queue_state::STOPPED,
    };
    let mut values = [0; 7];
    let kind = status.fault.map_or(0, |fault| fault.kind as u64);
    values[query_value::STATE] = kind << 32 | u64::from(state);
    if let Some(fault) = status.fault {
        values[query_value::FAULT_ADDRESS] = fault.address;
        values[query_value::FAULT_PACKET] = fault.packet;
    }
    if let Some((address, value)) = status.parked {
        values[query_value::PARKED_ADDRESS] = address;
        values[query_value::PARKED_VALUE] = value;
    }
    values[query_value::HEAD] = status.head;
    values[query_value::BUSY_NS] = status.busy_ns;
    values
}

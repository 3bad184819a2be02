// SPDX-License-Identifier: MIT OR Apache-2.0
//! QUEUE_CREATE, QUEUE_DESTROY and QUEUE_QUERY, and VM_ORPHAN, which concerns the waits of queues.

use super::*;
use crate::Settings;
use tally_uapi::PAGE_SIZE;
use tally_uapi::cell::CELL_SIZE;
use tally_uapi::firmware::MAX_QUEUES;
use tally_uapi::ioctl::priority;
use tally_uapi::packet::PACKET_SIZE;
use tally_uapi::queue::{RING_MAX_PACKETS, RING_MIN_PACKETS};

impl Vm {
    pub(super) fn create_queue(
        &mut self,
        settings: &Settings,
        links: &Links,
        command: &Command,
    ) -> Outcome {
        let id = command.queue;
        if !(1..=MAX_QUEUES).contains(&id) || !self.is_queue(settings, &command.args) {
            return Err(answer_status::INVALID);
        }
        if !links.add_queue(id, &self.engine.link) {
            return Err(answer_status::EXISTS);
        }
        let args = command.args;
        let order = Order { opcode: op::QUEUE_CREATE, queue: id, args, ..Order::default() };
        let result = self.engine.order(&order);
        if !matches!(result, Ok((answer_status::OK, _))) {
            links.remove_queue(id, &self.engine.link);
        }
        match result {
            Ok((answer_status::OK, _)) => Ok(DONE),
            // The arguments were valid, so the process answers this only if the VM is lost.
            Ok(_) | Err(Ended) => Err(answer_status::LOST),
        }
    }

    /// Whether the arguments describe a queue: `SPEC.md`, chapters 3 and 10.
    fn is_queue(&self, settings: &Settings, args: &[u64; 6]) -> bool {
        let &[ring, control, packets, class, index, priority] = args;
        let engines = match class {
            0 => settings.compute_engines,
            1 => settings.copy_engines,
            _ => 0,
        };
        let packets_fit = packets.is_power_of_two()
            && (u64::from(RING_MIN_PACKETS)..=u64::from(RING_MAX_PACKETS)).contains(&packets);
        packets_fit
            && index < u64::from(engines)
            && priority <= u64::from(priority::LOW)
            && ring.is_multiple_of(PACKET_SIZE)
            && control.is_multiple_of(PAGE_SIZE)
            && self.memory.covers(ring, packets * PACKET_SIZE, map_flag::READ)
            && self.memory.covers(control, PAGE_SIZE, map_flag::READ | map_flag::WRITE)
    }

    pub(super) fn destroy_queue(&mut self, links: &Links, command: &Command) -> Outcome {
        let id = command.queue;
        if !links.remove_queue(id, &self.engine.link) {
            return Err(answer_status::NO_ENTRY);
        }
        let order = Order { opcode: op::QUEUE_DESTROY, queue: id, ..Order::default() };
        // If the process has ended, so has the queue.
        let _ = self.engine.order(&order);
        Ok(DONE)
    }

    pub(super) fn orphan(&mut self, command: &Command) -> Outcome {
        let [address, bytes, ..] = command.args;
        let aligned = address.is_multiple_of(CELL_SIZE) && bytes.is_multiple_of(CELL_SIZE);
        let end = address.checked_add(bytes).filter(|&end| aligned && end > address);
        if end.is_none_or(|end| address < self.window.start || end > self.window.end) {
            return Err(answer_status::INVALID);
        }
        let args = command.args;
        let order = Order { opcode: op::VM_ORPHAN, args, ..Order::default() };
        match self.engine.order(&order) {
            Ok((answer_status::OK, _)) => Ok(DONE),
            Ok(_) => Err(answer_status::NO_SPACE),
            Err(Ended) => Err(answer_status::LOST),
        }
    }

    pub(super) fn query_queue(&mut self, links: &Links, command: &Command) -> Outcome {
        let id = command.queue;
        if !links.owns(id, &self.engine.link) {
            return Err(answer_status::NO_ENTRY);
        }
        let order = Order { opcode: op::QUEUE_QUERY, queue: id, ..Order::default() };
        let result = self.engine.order(&order);
        let loss = self.engine.link.loss();
        match result {
            Ok((answer_status::OK, values)) => Ok(values),
            Ok(_) | Err(Ended) => Ok(of_lost(id, loss)),
        }
    }
}

/// The answer to QUEUE_QUERY for a queue whose engine process has ended.
fn of_lost(id: u32, loss: Option<Loss>) -> [u64; 7] {
    let mut values = DONE;
    let mut kind = 0;
    if let Some(loss) = loss
        && loss.queue.is_none_or(|queue| queue == id)
    {
        kind = loss.fault.kind as u64;
        values[query_value::FAULT_ADDRESS] = loss.fault.address;
        values[query_value::FAULT_PACKET] = loss.fault.packet;
    }
    values[query_value::STATE] = kind << 32 | u64::from(queue_state::STOPPED);
    values
}

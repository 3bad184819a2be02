// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lane, which carries out the admin commands of one VM, in order. VMs do not
//! wait for each other.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use tally_engine::VA_START;
use tally_engine::mailbox::{MAX_PIECES, Order, Piece};
use tally_uapi::firmware::{Command, answer_status, map_flag, op, query_value};
use tally_uapi::ioctl::queue_state;

use crate::engine::{Ended, Engine, Loss, Recipe};
use crate::links::Links;
use crate::machine::VmMemory;
use crate::ranges::range;
use crate::session::{Answers, Host};

mod mapping;
mod queues;

/// Mappings that an engine process may need for itself, out of those that Linux
/// allows a process.
const OWN_MAPPINGS: usize = 2_000;
/// Linux's default limit of a process's mappings.
const DEFAULT_MAPPINGS: usize = 65_530;
/// The answer to a command: values, or one of `answer_status`.
type Outcome = Result<[u64; 7], u32>;

/// The most mappings of a VM. A VM_MAP that would exceed it is refused.
pub fn max_mappings() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    let limit = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_MAPPINGS);
    limit.saturating_sub(OWN_MAPPINGS)
}

/// Answers that have no values.
const DONE: [u64; 7] = [0; 7];

/// A VM and its engine process.
struct Vm {
    window: Range<u64>,
    engine: Engine,
    memory: Box<dyn VmMemory>,
}

/// A lane.
pub struct Lane {
    id: u32,
    host: Arc<Host>,
    links: Arc<Links>,
    answers: Arc<Answers>,
    /// Address of the waiters page.
    waiters_page: u64,
    vm: Option<Vm>,
}

impl Lane {
    pub fn new(
        id: u32,
        host: Arc<Host>,
        links: Arc<Links>,
        answers: Arc<Answers>,
        waiters_page: u64,
    ) -> Self {
        Self { id, host, links, answers, waiters_page, vm: None }
    }

    /// Carries out commands until there are no more, or the session ends. The VM
    /// ends with the lane.
    pub fn run(mut self, commands: &Receiver<(u32, Command)>) {
        let slot = self.id as usize;
        while let Ok((number, command)) = commands.recv() {
            if self.links.is_closed() {
                break;
            }
            let outcome = self.carry_out(&command);
            if self.links.is_closed() {
                // The driver has reset the device and does not wait for an answer.
                break;
            }
            match outcome {
                Ok(values) => self.answers.answer(slot, number, answer_status::OK, values),
                Err(status) => self.answers.answer(slot, number, status, DONE),
            }
        }
        self.destroy();
    }

    fn carry_out(&mut self, command: &Command) -> Outcome {
        check_unused(command)?;
        match command.opcode {
            op::VM_CREATE => return self.create(command),
            op::VM_DESTROY => {
                return if self.destroy() { Ok(DONE) } else { Err(answer_status::NO_ENTRY) };
            }
            _ => {}
        }
        let Some(vm) = &mut self.vm else { return Err(answer_status::NO_ENTRY) };
        let loss = vm.engine.link.loss();
        match (command.opcode, loss) {
            (op::VM_MAP | op::QUEUE_CREATE | op::VM_ORPHAN, Some(_)) => Err(answer_status::LOST),
            (op::VM_MAP, None) => vm.map(command),
            (op::VM_UNMAP, _) if self.host.settings.refuse_unmap => Err(answer_status::INVALID),
            (op::VM_UNMAP, _) => vm.unmap(command),
            (op::QUEUE_CREATE, None) => vm.create_queue(&self.host.settings, &self.links, command),
            (op::QUEUE_DESTROY, _) => vm.destroy_queue(&self.links, command),
            (op::QUEUE_QUERY, _) => vm.query_queue(&self.links, command),
            (op::VM_ORPHAN, None) => vm.orphan(command),
            _ => Err(answer_status::INVALID),
        }
    }

    fn create(&mut self, command: &Command) -> Outcome {
        let [start, bytes, ..] = command.args;
        if self.vm.is_some() {
            return Err(answer_status::EXISTS);
        }
        let window = range(start, bytes).ok_or(answer_status::INVALID)?;
        if window.start < VA_START || window.end > self.host.va_end {
            return Err(answer_status::INVALID);
        }
        let memory = self.host.machine.memory(self.id, self.waiters_page).map_err(|error| {
            eprintln!("tally-gpu: VM {}: no memory: {error}", self.id);
            answer_status::NO_SPACE
        })?;
        let engine = Engine::start(&self.recipe(&*memory), &self.links).map_err(|error| {
            eprintln!("tally-gpu: VM {}: no engine process: {error}", self.id);
            answer_status::NO_SPACE
        })?;
        let mut vm = Vm { window, engine, memory };
        vm.begin()?;
        if !self.links.add(&vm.engine.link) {
            // The session ends; nothing waits for the answer.
            return Err(answer_status::NO_SPACE);
        }
        self.vm = Some(vm);
        Ok(DONE)
    }

    fn recipe(&self, memory: &dyn VmMemory) -> Recipe {
        Recipe {
            vm: self.id,
            va_end: self.host.va_end,
            settings: self.host.settings.clone(),
            clock: self.host.clock,
            files: memory.files(),
            waiters: memory.waiters(),
        }
    }

    /// Ends the VM. False if there is none.
    fn destroy(&mut self) -> bool {
        let Some(vm) = self.vm.take() else { return false };
        self.links.remove(&vm.engine.link);
        true
    }
}

/// "Unused fields are zero."
fn check_unused(command: &Command) -> Result<(), u32> {
    let (args, flags, queue) = match command.opcode {
        op::VM_CREATE | op::VM_UNMAP | op::VM_ORPHAN => (2, 0, false),
        op::VM_DESTROY => (0, 0, false),
        op::VM_MAP => (4, map_flag::ALL, false),
        op::QUEUE_CREATE => (6, 0, true),
        op::QUEUE_DESTROY | op::QUEUE_QUERY => (0, 0, true),
        _ => return Err(answer_status::INVALID),
    };
    let unused = command.args[args..].iter().all(|&arg| arg == 0);
    let fits = unused && command.flags & !flags == 0 && (queue || command.queue == 0);
    if fits { Ok(()) } else { Err(answer_status::INVALID) }
}

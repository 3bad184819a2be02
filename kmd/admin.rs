// SPDX-License-Identifier: GPL-2.0
//! The admin ring (`device/SPEC.md`, chapter 13): commands to the device, and their answers.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::{new_mutex, Mutex};
use tally_uapi::firmware::{op, Answer, Command, Identity, ANSWERS};
use tally_uapi::host::ADMIN_ENTRIES;

use crate::call::{Kept, Sent};
use crate::lanes::{Answered, Lanes};
use crate::object::keep::Keep;
use crate::object::queue::Queue;
use crate::raw::time::monotonic_ns;
use crate::settle::is_heavy;
use crate::shared::Shared;
use crate::state::{Count, State};
use crate::transport::{Purpose, Transport};

/// The memory that a command needs, allocated first.
pub(crate) type Order = crate::call::Order<Keep>;
/// The sender's side of a command.
pub(crate) type Call = crate::call::Call<Keep>;
/// A command that could not be sent.
pub(crate) type Unsent = crate::lanes::Unsent<Keep>;

/// Commands in the ring.
const ENTRIES: u32 = ADMIN_ENTRIES;

/// State of the ring, by what happens to commands that are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The device takes them.
    Running,
    /// A reset is going on: none is taken, and memory of unsent commands is kept until it is over.
    Stopping,
    /// None is taken, and the device touches no memory.
    Stopped,
    /// None is taken, and the device may still touch any memory.
    Quarantined,
}

struct Inner {
    phase: Phase,
    /// Commands given since ENABLE, modulo 2^32.
    tail: u32,
    lanes: Lanes<Keep>,
}

/// The ring.
#[pin_data]
pub(crate) struct Admin {
    commands: Shared<Command>,
    answers: Shared<Answer>,
    #[pin]
    inner: Mutex<Inner>,
}

impl Admin {
    /// A ring that takes no commands yet.
    pub(crate) fn new(transport: &dyn Transport) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            commands: Shared::new(transport, Purpose::Commands, ENTRIES as usize)?,
            answers: Shared::new(transport, Purpose::Answers, ANSWERS as usize)?,
            inner <- new_mutex!(Inner { phase: Phase::Stopped, tail: 0, lanes: Lanes::new()? }),
        }? Error)
    }

    /// Addresses of commands and answers, and how many commands there are.
    pub(crate) fn place(&self) -> (u64, u64, u32) {
        (self.commands.address(), self.answers.address(), ENTRIES)
    }

    /// Empties the ring, before ENABLE.
    pub(crate) fn start(&self) {
        for slot in 0..ANSWERS as usize {
            self.answers.write(slot, Answer::default());
        }
        let mut inner = self.inner.lock();
        inner.tail = 0;
        inner.phase = Phase::Running;
    }

    /// Sends a command, without waiting. `then` is called once it is certain that the device will be given the
    /// command, and before the device can have it; `then` may take only the locks of tables.
    ///
    /// # Errors
    /// ENODEV: the device takes no commands. The errors of [`Lanes::add`]. The caller settles the [`Unsent`].
    pub(crate) fn send(
        &self,
        transport: &dyn Transport,
        state: &State,
        order: Order,
        command: Command,
        keep: Keep,
        then: impl FnOnce(),
    ) -> Result<(), Unsent> {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Running {
            return Err(Unsent::new(ENODEV, order, keep));
        }
        inner.lanes.add(order, command, keep)?;
        then();
        self.give(&mut inner, transport, command.vm as usize);
        drop(inner);
        state.count(Count::Commands);
        Ok(())
    }

    /// Gives the device the next command of a lane, unless it still has one of that lane.
    fn give(&self, inner: &mut Inner, transport: &dyn Transport, slot: usize) {
        if let Some(command) = inner.lanes.start(slot, inner.tail, monotonic_ns()) {
            self.commands
                .write((inner.tail % ENTRIES) as usize, command);
            inner.tail = inner.tail.wrapping_add(1);
            // The register write is ordered after the command's; under the lock, so that
            // tails arrive in order.
            transport.admin_tail(inner.tail);
        }
    }

    /// Settles the resources of a command that was not sent.
    pub(crate) fn settle(&self, state: &State, unsent: Unsent) {
        let mut inner = self.inner.lock();
        let quiet = match inner.phase {
            // A running device that was not given the command that ends an object never had the object, or has
            // been reset since: a VM's lane and its objects end under the same lock.
            Phase::Running | Phase::Stopped => true,
            Phase::Quarantined => false,
            Phase::Stopping => return inner.lanes.keep_late(unsent),
        };
        drop(inner);
        unsent.into_keep().settle(state, quiet);
    }

    /// Takes answers and hands them to their callers, which free the resources that the commands released.
    /// Returns whether something is left for [`State::reap`]. `ended` is called for each VM that the device
    /// reports nothing about any more, before its id can be used again.
    pub(crate) fn collect(
        &self,
        transport: &dyn Transport,
        state: &State,
        ended: impl Fn(u32),
    ) -> bool {
        let mut left = false;
        while let Some((answered, answer)) = self.next_answered(transport) {
            let Answered {
                call,
                command,
                keep,
                key,
                place,
            } = answered;
            if command.opcode == op::VM_DESTROY {
                ended(command.vm);
            }
            let quiet = keep.answered(state, &answer);
            let Some(keep) = call.end(Ok(answer), keep, quiet) else {
                continue;
            };
            if is_heavy(&keep) {
                left = true;
                state.leave(place.into_node(
                    key,
                    Sent {
                        call,
                        command,
                        keep,
                        quiet,
                    },
                ));
            } else {
                keep.settle(state, quiet);
            }
        }
        left
    }

    fn next_answered(&self, transport: &dyn Transport) -> Option<(Answered<Keep>, Answer)> {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Running {
            return None;
        }
        let (slot, _) = inner
            .lanes
            .out()
            .find(|&(slot, number)| self.is_answered(slot, number))?;
        let answer = self.answers.read(slot)?;
        let answered = inner.lanes.finish(slot)?;
        self.give(&mut inner, transport, slot);
        Some((answered, answer))
    }

    fn is_answered(&self, slot: usize, number: u32) -> bool {
        let Some(answer) = self.answers.at(slot) else {
            return false;
        };
        // SAFETY: the answer lives as long as the ring, and its sequence is aligned
        // and written whole.
        let sequence =
            unsafe { tally_uapi::sync::AtomicU32::from_ptr(&raw mut (*answer.as_ptr()).sequence) };
        sequence.load(Ordering::Acquire) == number.wrapping_add(1)
    }

    /// A slot whose command the device has had since before `since_ns`. Each command is reported once.
    pub(crate) fn overdue(&self, since_ns: i64) -> Option<u32> {
        self.inner
            .lock()
            .lanes
            .overdue(since_ns)
            .map(|slot| slot as u32)
    }

    /// Ends the calls of a VM with EIO. The resources that they keep stay until the answers arrive.
    pub(crate) fn end_calls(&self, vm: u32) {
        self.inner.lock().lanes.end_calls(vm as usize, EIO);
    }

    /// Whether the device has a command, with or without a VM.
    pub(crate) fn is_busy(&self) -> bool {
        self.inner.lock().lanes.out().next().is_some()
    }

    /// Whether the device has no command of the lane without a VM.
    pub(crate) fn is_idle(&self) -> bool {
        self.inner.lock().lanes.is_idle(0)
    }

    /// Ends all calls with `error`, and takes no more. The resources that they keep stay until [`Self::stopped`].
    pub(crate) fn stop(&self, error: Error) {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Running {
            inner.phase = Phase::Stopping;
        }
        inner.lanes.close(error);
    }

    /// After [`Self::stop`]: the reset is over; `quiet` if the device confirmed it.
    pub(crate) fn stopped(&self, state: &State, quiet: bool) {
        self.inner.lock().phase = if quiet {
            Phase::Stopped
        } else {
            Phase::Quarantined
        };
        loop {
            let Some(keep) = self.inner.lock().lanes.take() else {
                break;
            };
            keep.settle(state, quiet);
        }
    }
}

/// A command of this opcode for a VM.
pub(crate) fn vm_command(opcode: u32, vm: u32, args: [u64; 6]) -> Command {
    Command {
        opcode,
        vm,
        args,
        ..Command::default()
    }
}

/// A command of this opcode for a queue.
pub(crate) fn queue_command(opcode: u32, queue: &Queue, args: [u64; 6]) -> Command {
    Command {
        opcode,
        vm: queue.vm().id(),
        queue: queue.id(),
        args,
        ..Command::default()
    }
}

/// IDENTIFY into a page.
pub(crate) fn identify(page: &Shared<Identity>) -> Command {
    vm_command(op::IDENTIFY, 0, [page.address(), 0, 0, 0, 0, 0])
}

/// A command that the device only answers.
pub(crate) fn nop() -> Command {
    Command::default()
}

// SPDX-License-Identifier: GPL-2.0
//! The admin ring (`device/SPEC.md`, chapter 13): commands to the device, and
//! what has to stay until they are answered.
//!
//! A command may leave its sender behind: waits are killable, and closing a file
//! does not wait at all. So what a command needs, or what it will set free, goes
//! into the ring with it ([`Keep`]) and comes out with the answer, or when a
//! reset is known to be complete.

use core::sync::atomic::Ordering;

use kernel::device::{Bound, Device};
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::{new_condvar, new_mutex, new_spinlock, Arc, CondVar, Mutex, SpinLock};
use tally_uapi::firmware::{answer_status, op, query_value, Answer, Command, Extent, Identity};

use crate::queue::Queue;
use crate::raw::{monotonic_ns, Interrupted, Waiter};
use crate::regs::Regs;
use crate::shared::Shared;
use crate::state::{Count, FirstFault, State};
use crate::vm::{Mapping, Vm};

/// Commands in the ring.
const ENTRIES: u32 = 256;

/// What must not be freed, and what is to be done, until a command is answered.
pub(crate) enum Keep {
    /// Nothing.
    Nothing,
    /// Memory that the command names.
    Extents(#[expect(dead_code, reason = "kept, not read")] Shared<Extent>),
    /// As [`Self::Extents`].
    Identity(#[expect(dead_code, reason = "kept, not read")] Arc<Shared<Identity>>),
    /// Mappings that are being undone.
    Mappings(RBTree<u64, Mapping>),
    /// A VM that ends, with its queues.
    Vm(Arc<Vm>),
    /// A queue that ends.
    Queue(Arc<Queue>),
    /// A queue of a VM that became lost: the answer says whether it is to blame.
    Suspect(Arc<Queue>),
}

impl Keep {
    /// The device has answered, and touches nothing of this any more.
    fn answered(self, state: &State, answer: &Answer) {
        let done = matches!(
            answer.status,
            answer_status::OK | answer_status::NO_ENTRY | answer_status::LOST
        );
        match self {
            Self::Mappings(_) | Self::Vm(_) if !done => {
                pr_err!("the device refused to unmap (status {})\n", answer.status);
                self.quarantine(state);
            }
            Self::Suspect(queue) => Self::fault(state, &queue, answer),
            other => other.release(state),
        }
    }

    /// The device is known to touch nothing of this any more.
    fn release(self, state: &State) {
        match self {
            Self::Vm(vm) => {
                let id = vm.id();
                drop(vm.take_mappings());
                state.queues.for_each(|queue| queue.vm().id() == id, |id, _| state.queues.free(id));
                state.vms.free(id);
            }
            Self::Queue(queue) => state.queues.free(queue.id()),
            Self::Nothing
            | Self::Extents(_)
            | Self::Identity(_)
            | Self::Mappings(_)
            | Self::Suspect(_) => {}
        }
    }

    /// The device may go on touching this for ever.
    fn quarantine(self, state: &State) {
        match &self {
            Self::Vm(vm) => quarantine(state, vm.take_mappings()),
            Self::Mappings(_) | Self::Extents(_) | Self::Identity(_) => {}
            Self::Nothing | Self::Queue(_) | Self::Suspect(_) => return,
        }
        if let Self::Mappings(mappings) = self {
            quarantine(state, mappings);
        } else {
            core::mem::forget(self);
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
}

/// Leaves the pages of `mappings` pinned for ever.
pub(crate) fn quarantine(state: &State, mappings: RBTree<u64, Mapping>) {
    let bytes = mappings.iter().map(|(start, mapping)| mapping.end() - start).sum();
    state.quarantine(bytes);
    core::mem::forget(mappings);
}

/// A command that was sent.
#[pin_data]
pub(crate) struct Call {
    #[pin]
    waiter: Waiter,
    #[pin]
    outcome: SpinLock<Option<Result<Answer>>>,
}

impl Call {
    /// A command that will be sent. Made first, so that nothing is begun that memory
    /// is then missing for.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                waiter <- Waiter::new(),
                outcome <- new_spinlock!(None),
            }? Error),
            GFP_KERNEL,
        )
    }

    fn finish(&self, outcome: Result<Answer>) {
        *self.outcome.lock() = Some(outcome);
        self.waiter.wake();
    }

    /// Waits for the answer until a fatal signal, or until `deadline_ns`.
    ///
    /// # Errors
    /// EINTR: killed; the command is carried out all the same. ENODEV: the device
    /// was reset or is gone. ETIME: the deadline, where there is one.
    pub(crate) fn wait_until(&self, deadline_ns: i64) -> Result<Answer> {
        self.waiter.sleep(deadline_ns, true).map_err(|why| match why {
            Interrupted::Late => ETIME,
            Interrupted::Signal => EINTR,
        })?;
        self.outcome.lock().as_ref().map_or(Err(ENODEV), |outcome| *outcome)
    }

    /// Waits for the answer until a fatal signal.
    ///
    /// # Errors
    /// As [`Self::wait_until`], and what the answer's status means.
    pub(crate) fn wait(&self) -> Result<Answer> {
        let answer = self.wait_until(i64::MAX)?;
        status(&answer)?;
        Ok(answer)
    }
}

/// An answer's status as an error of the uapi.
///
/// # Errors
/// EIO: lost. ENOENT, EINVAL, ENOSPC as the device says. EXISTS would be a mistake
/// of this driver, and is EIO.
pub(crate) fn status(answer: &Answer) -> Result {
    match answer.status {
        answer_status::OK => Ok(()),
        answer_status::INVALID => Err(EINVAL),
        answer_status::NO_ENTRY => Err(ENOENT),
        answer_status::NO_SPACE => Err(ENOSPC),
        _ => Err(EIO),
    }
}

/// A command that could not be sent.
pub(crate) struct Unsent {
    /// Why.
    pub(crate) error: Error,
    /// What it would have kept: to be settled, with no lock of a VM held.
    pub(crate) keep: Keep,
}

/// Who takes commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The device.
    Running,
    /// Nobody; what comes is kept until the reset is over.
    Stopping,
    /// Nobody, and the device touches nothing.
    Stopped,
    /// Nobody, and the device may touch anything.
    Quarantined,
}

struct Slot {
    call: Arc<Call>,
    keep: Keep,
    sent_ns: i64,
}

struct Inner {
    phase: Phase,
    /// Commands sent since ENABLE, modulo 2^32.
    tail: u32,
    slots: KVVec<Option<Slot>>,
    /// Keeps of commands that came while stopping.
    late: KVVec<Keep>,
}

/// The ring.
#[pin_data]
pub(crate) struct Admin {
    commands: Shared<Command>,
    answers: Shared<Answer>,
    #[pin]
    inner: Mutex<Inner>,
    #[pin]
    freed: CondVar,
}

impl Admin {
    /// A ring that takes no commands yet.
    pub(crate) fn new(dev: &Device<Bound>) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            commands: Shared::new(dev, ENTRIES as usize)?,
            answers: Shared::new(dev, ENTRIES as usize)?,
            inner <- new_mutex!(Inner {
                phase: Phase::Stopped,
                tail: 0,
                slots: {
                    let mut slots = KVVec::with_capacity(ENTRIES as usize, GFP_KERNEL)?;
                    for _ in 0..ENTRIES {
                        slots.push(None, GFP_KERNEL)?;
                    }
                    slots
                },
                late: KVVec::new(),
            }),
            freed <- new_condvar!(),
        }? Error)
    }

    /// Bus addresses of commands and answers, and how many there are.
    pub(crate) fn place(&self) -> (u64, u64, u32) {
        (self.commands.address(), self.answers.address(), ENTRIES)
    }

    /// Makes the ring empty, before ENABLE.
    pub(crate) fn start(&self) {
        for index in 0..ENTRIES as usize {
            self.answers.write(index, Answer::default());
        }
        let mut inner = self.inner.lock();
        inner.tail = 0;
        inner.phase = Phase::Running;
    }

    /// Sends a command as `call`. Sleeps while the ring is full, for the device's
    /// time at most.
    ///
    /// # Errors
    /// ENODEV: the device is gone or being reset. The caller settles what comes back.
    pub(crate) fn send(
        &self,
        regs: &Regs<'_>,
        state: &State,
        call: &Arc<Call>,
        command: Command,
        keep: Keep,
    ) -> Result<(), Unsent> {
        self.send_if(regs, state, call, command, keep, true)
    }

    /// As [`Self::send`], but drops the command where it would sleep: for the
    /// interrupt thread, which is who frees the slots. Only for commands that
    /// nothing depends on.
    pub(crate) fn try_send(&self, regs: &Regs<'_>, state: &State, command: Command, keep: Keep) {
        if let Ok(call) = Call::new() {
            let _ = self.send_if(regs, state, &call, command, keep, false);
        }
    }

    fn send_if(
        &self,
        regs: &Regs<'_>,
        state: &State,
        call: &Arc<Call>,
        command: Command,
        keep: Keep,
        may_sleep: bool,
    ) -> Result<(), Unsent> {
        let mut inner = self.inner.lock();
        let index = loop {
            if inner.phase != Phase::Running {
                return Err(Unsent { error: ENODEV, keep });
            }
            let index = (inner.tail % ENTRIES) as usize;
            match inner.slots.get(index) {
                Some(None) => break index,
                _ if may_sleep => self.freed.wait(&mut inner),
                _ => return Err(Unsent { error: EBUSY, keep }),
            }
        };
        self.commands.write(index, command);
        inner.slots[index] = Some(Slot { call: call.clone(), keep, sent_ns: monotonic_ns() });
        inner.tail = inner.tail.wrapping_add(1);
        let tail = inner.tail;
        // The register write is ordered after the command's; under the lock, so that
        // tails arrive in order.
        regs.admin_tail(tail);
        drop(inner);
        state.count(Count::Commands);
        Ok(())
    }

    /// Deals with the keep of a command that was not sent.
    pub(crate) fn settle(&self, state: &State, keep: Keep) {
        let mut inner = self.inner.lock();
        match inner.phase {
            Phase::Stopped => {
                drop(inner);
                keep.release(state);
            }
            Phase::Quarantined => {
                drop(inner);
                keep.quarantine(state);
            }
            Phase::Running | Phase::Stopping => {
                // Until the next reset. Without memory even for that it stays for ever.
                if inner.late.reserve(1, GFP_KERNEL).is_err() {
                    drop(inner);
                    keep.quarantine(state);
                } else if let Err(error) = inner.late.push_within_capacity(keep) {
                    core::mem::forget(error);
                }
            }
        }
    }

    /// Takes answers out of the ring and gives them to who waits, after what they set free: whoever has
    /// destroyed something has its place, and its memory, when the call returns.
    pub(crate) fn collect(&self, state: &State) {
        while let Some((slot, answer)) = self.next_answered() {
            self.freed.notify_all();
            slot.keep.answered(state, &answer);
            slot.call.finish(Ok(answer));
        }
    }

    fn next_answered(&self) -> Option<(Slot, Answer)> {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Running {
            return None;
        }
        let tail = inner.tail;
        for back in 1..=ENTRIES {
            let number = tail.wrapping_sub(back);
            let index = (number % ENTRIES) as usize;
            let waiting = inner.slots.get(index).is_some_and(Option::is_some);
            if waiting && self.is_answered(index, number) {
                let answer = self.answers.read(index)?;
                return Some((inner.slots[index].take()?, answer));
            }
        }
        None
    }

    fn is_answered(&self, index: usize, number: u32) -> bool {
        let Some(answer) = self.answers.at(index) else { return false };
        // SAFETY: the answer lives as long as the ring, and its sequence is aligned
        // and written whole.
        let sequence =
            unsafe { tally_uapi::sync::AtomicU32::from_ptr(&raw mut (*answer.as_ptr()).sequence) };
        sequence.load(Ordering::Acquire) == number.wrapping_add(1)
    }

    /// When the oldest command without an answer was sent.
    pub(crate) fn oldest_ns(&self) -> Option<i64> {
        let inner = self.inner.lock();
        inner.slots.iter().flatten().map(|slot| slot.sent_ns).min()
    }

    /// Ends all calls with ENODEV, and takes no more. What they keep stays until
    /// [`Self::stopped`].
    pub(crate) fn stop(&self) {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Running {
            inner.phase = Phase::Stopping;
        }
        for slot in inner.slots.iter().flatten() {
            slot.call.finish(Err(ENODEV));
        }
        drop(inner);
        self.freed.notify_all();
    }

    /// After [`Self::stop`]: the reset is over; `quiet` if the device confirmed it.
    pub(crate) fn stopped(&self, state: &State, quiet: bool) {
        let mut inner = self.inner.lock();
        inner.phase = if quiet { Phase::Stopped } else { Phase::Quarantined };
        let late = core::mem::replace(&mut inner.late, KVVec::new());
        drop(inner);
        let settle = |keep: Keep| if quiet { keep.release(state) } else { keep.quarantine(state) };
        for index in 0..ENTRIES as usize {
            let slot = self.inner.lock().slots.get_mut(index).and_then(Option::take);
            if let Some(slot) = slot {
                settle(slot.keep);
            }
        }
        for keep in late {
            settle(keep);
        }
    }
}

/// A command of this opcode for a VM.
pub(crate) fn vm_command(opcode: u32, vm: u32, args: [u64; 6]) -> Command {
    Command { opcode, vm, args, ..Command::default() }
}

/// A command of this opcode for a queue.
pub(crate) fn queue_command(opcode: u32, queue: &Queue, args: [u64; 6]) -> Command {
    Command { opcode, vm: queue.vm().id(), queue: queue.id(), args, ..Command::default() }
}

/// IDENTIFY into a page.
pub(crate) fn identify(page: &Shared<Identity>) -> Command {
    vm_command(op::IDENTIFY, 0, [page.address(), 0, 0, 0, 0, 0])
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Tally GPU as a library: command streamers, a semaphore unit and
//! execution units, made of threads. `SPEC.md` says what it does, `DESIGN.md`
//! how.
//!
//! Glossary. **Queue**: a ring of packets with a place to go on. **Stream**: the
//! fetching side of a queue. **Worker**: a thread of the device; **helping
//! thread**: a host thread that works for the device while it waits. **Work**:
//! what a command does, in units that threads claim. **Scope**: the commands
//! that an ordered command waits for. **Bucket**: the cells at the same place of
//! all pages; the semaphore unit has 512. **Watchdog**: the thread that sees to
//! what waits for a stuck worker. **VA**: an address of a client.
#![cfg(not(loom))]

use crate::sync::Instant;
use crate::sync::{AtomicU32, Ordering};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tally_uapi::cell::signaller_must_wake;
use tally_uapi::fault::{Fault, FaultKind};

mod cell;
mod chaos;
mod clock;
mod config;
mod confined;
mod copy;
mod engine;
mod eu;
mod fields;
pub mod gate;
mod grid;
mod guard;
mod host;
pub mod machine;
mod queue;
mod ring;
mod sched;
mod scope;
mod spin;
mod sync;
mod trace;
mod tuning;
mod wakeup;
mod work;

use cell::SemaphoreUnit;
use chaos::Chaos;
pub use clock::{CLOCK_HZ, Clock, monotonic_ns};
pub use config::{
    Config, EngineClass, Error, GroupMemory, MAX_ENGINES, Priority, QueueConfig, QueueState,
    QueueStatus,
};
use confined::Outside;
pub use confined::{Confined, Waiters};
#[cfg(not(shuttle))]
pub use guard::{Refused, watch_refused, watch_threads};
pub use host::{Host, QueueId, VmId};
use queue::{Queue, VmState};
use sched::{Sched, Shared};
pub use wakeup::Wakeup;

/// An address space on a device.
#[derive(Clone, Debug)]
pub struct Vm(Arc<VmState>);

impl Vm {
    /// Whether one of its queues has faulted.
    pub fn is_lost(&self) -> bool {
        self.0.lost()
    }
}

/// A queue on a device. Dropping the handle does not destroy the queue.
#[derive(Clone, Debug)]
pub struct QueueHandle(Arc<Queue>);

/// A device. Dropping it stops everything: what is not complete never is.
pub struct Device {
    shared: Arc<Shared>,
    compute_engines: u32,
    copy_engines: u32,
    reset_time: Duration,
    /// A forked child has no worker threads to wait for.
    process: u32,
}

impl Device {
    /// Starts a device.
    ///
    /// Errors: no threads; more than [`MAX_ENGINES`] engines.
    pub fn new(config: Config, host: Arc<dyn Host>) -> Result<Self, Error> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let workers = config.workers.unwrap_or_else(cores).max(1);
        let substitutes = config.substitutes.unwrap_or(workers + 8);
        let compute_engines = config.compute_engines.max(1);
        let engines = compute_engines.saturating_add(config.copy_engines) as usize;
        if engines > MAX_ENGINES {
            return Err(Error::TooManyEngines);
        }
        let outside = config.confined.map(|confined| Outside { confined, host: Arc::clone(&host) });
        let shared = Arc::new(Shared {
            serial: Shared::next_serial(),
            clock: config.confined.map_or_else(Clock::new, |confined| confined.clock),
            sem: SemaphoreUnit::new(outside),
            sched: Sched::new(workers, substitutes, config.confined.is_some(), engine::stream),
            times: eu::KernelTimes::new(),
            host,
            chaos: config.chaos.map(Chaos::new),
            numbers: config.numbers,
            group_memory: config.group_memory,
        });
        let device = Self {
            shared: Arc::clone(&shared),
            compute_engines,
            copy_engines: config.copy_engines,
            reset_time: config.reset_time,
            process: std::process::id(),
        };
        match config.confined {
            None => shared.sched.start(&shared).map_err(Error::Threads)?,
            Some(_) => {
                guard::prepare_aborts();
                shared.sched.start_all(&shared).map_err(Error::Threads)?;
            }
        }
        Ok(device)
    }

    /// Worker threads: how many work-groups run at the same time.
    pub fn execution_units(&self) -> usize {
        self.shared.sched.workers()
    }

    /// Engines of a class.
    pub fn engines(&self, class: EngineClass) -> u32 {
        match class {
            EngineClass::Compute => self.compute_engines,
            EngineClass::Copy => self.copy_engines,
        }
    }

    /// The same moment as (CLOCK_MONOTONIC in ns, device ticks).
    pub fn clock_pair(&self) -> (u64, u64) {
        self.shared.clock.pair()
    }

    /// The waiters word of a bucket: hosts that sleep on a cell count there,
    /// by the halves of the handshake in `tally_uapi::cell`.
    pub fn waiters(&self, bucket: usize) -> &AtomicU32 {
        self.shared.sem.waiters(bucket)
    }

    /// Makes an address space.
    pub fn create_vm(&self, id: VmId) -> Vm {
        Vm(Arc::new(VmState::new(id)))
    }

    /// Makes a queue: asleep and empty.
    ///
    /// Errors: [`Error::NoEngine`], [`Error::BadQueue`], [`Error::VmLost`].
    pub fn create_queue(&self, vm: &Vm, config: &QueueConfig) -> Result<QueueHandle, Error> {
        use tally_uapi::PAGE_SIZE;
        use tally_uapi::packet::PACKET_SIZE;
        use tally_uapi::queue::{RING_MAX_PACKETS, RING_MIN_PACKETS};
        if config.index >= self.engines(config.class) {
            return Err(Error::NoEngine);
        }
        let bytes = u64::from(config.packets) * PACKET_SIZE;
        let valid = config.packets.is_power_of_two()
            && (RING_MIN_PACKETS..=RING_MAX_PACKETS).contains(&config.packets)
            && config.ring != 0
            && config.ring.is_multiple_of(PACKET_SIZE)
            && config.ring.checked_add(bytes).is_some()
            && config.control != 0
            && config.control.is_multiple_of(PAGE_SIZE);
        if !valid {
            return Err(Error::BadQueue);
        }
        let compute = config.class == EngineClass::Compute;
        let queue = Arc::new(Queue::new(config, Arc::clone(&vm.0), compute));
        vm.0.add(&queue);
        if vm.is_lost() {
            return Err(Error::VmLost);
        }
        Ok(QueueHandle(queue))
    }

    /// The producer published packets and found the device asleep.
    ///
    /// True: the device counts on the calling thread to come and wait, and wakes no worker
    /// ([`Self::help`]). The producer goes on kicking now and then, by which the device sees that the thread
    /// does not.
    pub fn kick(&self, queue: &QueueHandle) -> bool {
        self.shared.sched.kick(&self.shared, &queue.0)
    }

    /// Has the calling thread, which waits without a time limit until the cell at
    /// VA `cell` holds at least `value`, run commands meanwhile: short ones, and
    /// kernels whose end it waits for.
    ///
    /// True once it does; false after `limit` without anything to do. None: the
    /// thread cannot work for the device, for want of stack. The caller holds no
    /// lock that [`Host`] takes.
    pub fn help(&self, cell: u64, value: u64, limit: Duration) -> Option<bool> {
        self.shared.sched.help(
            &self.shared,
            cell::CellWait::counter(cell, value),
            limit,
            engine::stream,
        )
    }

    /// The caller waits without a time limit, as for [`Self::help`], for what it finds there already: the
    /// device learns from it that this thread does.
    pub fn came(&self) {
        self.shared.sched.host_came(&self.shared);
    }

    /// The caller looks for a result without helping: a wake that was left out for a thread that usually
    /// helps is made up for. Costs a few loads if there is nothing of the kind.
    pub fn hurry(&self) {
        self.shared.sched.hurry(&self.shared);
    }

    /// A snapshot of a queue.
    pub fn query(&self, queue: &QueueHandle) -> QueueStatus {
        queue.0.status(self.shared.clock.ticks())
    }

    /// Stops a queue: SPEC.md, chapter 10. May take up to the reset time and
    /// what an abort takes. A command that had to be aborted loses the VM.
    pub fn destroy_queue(&self, queue: &QueueHandle) {
        let queue = &queue.0;
        queue.stop();
        self.shared.sched.retire(&self.shared, queue);
        // Work of a lost VM never signals: there is nothing to be patient for.
        let patience = if queue.vm.lost() { Duration::ZERO } else { self.reset_time };
        let mut stopped = self.shared.sched.wait_stopped(queue, Instant::now() + patience);
        // A thread that has only to notice may be late on a busy machine; no command is lost by that.
        while !stopped && !self.shared.sched.is_guarding(queue.serial) {
            if !self.shared.sched.dismiss(&self.shared, queue) {
                break;
            }
            let until = Instant::now() + Duration::from_millis(2);
            stopped = self.shared.sched.wait_stopped(queue, until);
        }
        if !stopped {
            self.abort(queue);
        }
        queue.drop_stream();
    }

    /// Interrupts what a queue runs until nothing of it is left.
    fn abort(&self, queue: &Arc<Queue>) {
        let packet = queue.head.load(Ordering::Relaxed);
        let packet = packet.saturating_sub(1);
        self.shared.lose_vm(queue, Fault { kind: FaultKind::Aborted, address: 0, packet });
        loop {
            self.shared.sched.abort(queue.serial);
            self.shared.sched.dismiss(&self.shared, queue);
            let until = Instant::now() + Duration::from_millis(2);
            if self.shared.sched.wait_stopped(queue, until) {
                return;
            }
        }
    }

    /// Stops all queues of a VM, as [`Self::destroy_queue`] does each.
    pub fn destroy_vm(&self, vm: &Vm) {
        let queues = vm.0.queues();
        queues.iter().for_each(|queue| queue.stop());
        for queue in queues {
            self.destroy_queue(&QueueHandle(queue));
        }
    }

    /// The host wrote a cell of this bucket: the device looks at the queues
    /// that wait there. Waking the host's own sleepers is the owner's business.
    pub fn wake(&self, bucket: usize) {
        if signaller_must_wake(self.shared.sem.waiters(bucket)) {
            self.shared.sched.look(&self.shared, bucket);
        }
    }

    /// All that could signal the cells at these VAs is gone. Their values stay; a wait
    /// that a value does not meet is a fault ([`FaultKind::Orphaned`]). False, with
    /// nothing changed, if there are too many such ranges.
    pub fn orphan(&self, cells: Range<u64>) -> bool {
        use tally_uapi::cell::{CELL_SIZE, WAITERS, waiters_index};
        if !self.shared.sem.orphan(cells.clone()) {
            return false;
        }
        let count = (cells.end.saturating_sub(cells.start) / CELL_SIZE) as usize;
        for i in 0..count.min(WAITERS) {
            self.wake(waiters_index(cells.start + i as u64 * CELL_SIZE));
        }
        true
    }

    /// The VAs no longer hold the cells that [`Device::orphan`] named.
    pub fn adopt(&self, cells: Range<u64>) {
        self.shared.sem.adopt(&cells);
    }

    /// The device reads all foreign cells again.
    pub fn wake_foreign(&self) {
        if self.shared.sem.foreign() != 0 {
            self.shared.sched.look_foreign(&self.shared);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.shared.sched.shut_down(self.reset_time);
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("execution_units", &self.execution_units()).finish()
    }
}

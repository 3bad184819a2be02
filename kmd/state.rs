// SPDX-License-Identifier: GPL-2.0
//! What files refer to, as long as there are files: it survives the hardware.

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};
use tally_uapi::firmware::{MAX_QUEUES, MAX_VMS};

use crate::clock::Clock;
use crate::module_parameters;
use crate::queue::Queue;
use crate::raw;
use crate::sem::Sleepers;
use crate::table::Table;
use crate::vm::Vm;

/// Things that are counted, for debugfs and for tests.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// Interrupts taken.
    Interrupts,
    /// QUEUE_KICKs.
    Kicks,
    /// SEM_WAITs that went to sleep.
    Sleeps,
    /// Commands on the admin ring.
    Commands,
    /// VMs that became lost.
    Lost,
    /// Resets of the device, beyond those at probe and unbind.
    Resets,
}

/// Names of [`Count`], in its order.
pub(crate) const COUNTS: [&str; 6] =
    ["interrupts", "kicks", "sleeps", "commands", "vms_lost", "resets"];

/// The first fault since the driver was bound.
#[derive(Clone, Copy)]
pub(crate) struct FirstFault {
    /// When, in CLOCK_MONOTONIC ns.
    pub(crate) time_ns: i64,
    /// The VM.
    pub(crate) vm: u32,
    /// The queue.
    pub(crate) queue: u32,
    /// A `fault::FaultKind`.
    pub(crate) kind: u32,
    /// The address that the fault names.
    pub(crate) address: u64,
    /// Index of the ring packet.
    pub(crate) packet: u64,
    /// Thread group that had opened the file.
    pub(crate) pid: i32,
}

/// See the module.
#[pin_data]
pub(crate) struct State {
    /// VMs of all files.
    #[pin]
    pub(crate) vms: Table<Vm>,
    /// Queues of all files.
    #[pin]
    pub(crate) queues: Table<Queue>,
    /// Threads in SEM_WAIT.
    #[pin]
    pub(crate) sleepers: Sleepers,
    /// Memory of buffers.
    pub(crate) memory: Memory,
    /// The device's clock and ours.
    #[pin]
    pub(crate) clock: Clock,
    /// See [`FirstFault`].
    #[pin]
    pub(crate) fault: Mutex<Option<FirstFault>>,
    gone: Atomic<bool>,
    files: Atomic<u64>,
    logged_ns: Atomic<i64>,
    quarantined: Atomic<u64>,
    counts: [Atomic<u64>; COUNTS.len()],
}

impl State {
    /// A device without files.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                vms <- Table::new(MAX_VMS),
                queues <- Table::new(MAX_QUEUES),
                sleepers <- Sleepers::new(),
                memory: Memory::new(),
                clock <- Clock::new(),
                fault <- new_mutex!(None),
                gone: Atomic::new(false),
                files: Atomic::new(1),
                logged_ns: Atomic::new(i64::MIN),
                quarantined: Atomic::new(0),
                counts: [const { Atomic::new(0) }; COUNTS.len()],
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Whether the device has gone for good.
    pub(crate) fn gone(&self) -> bool {
        self.gone.load(kernel::sync::atomic::Acquire)
    }

    /// The device goes: all sleepers answer ENODEV.
    pub(crate) fn go(&self) {
        self.gone.xchg(true, Full);
        self.sleepers.wake_all();
    }

    /// A number for a new file, never used again.
    pub(crate) fn new_file(&self) -> u64 {
        self.files.fetch_add(1u64, Relaxed)
    }

    /// Whether the log may have another line about what clients did: one a second, since
    /// clients can make as many faults as they like.
    pub(crate) fn may_log(&self) -> bool {
        let (now, last) = (raw::monotonic_ns(), self.logged_ns.load(Relaxed));
        now.saturating_sub(last) >= 1_000_000_000
            && self.logged_ns.cmpxchg(last, now, Relaxed).is_ok()
    }

    /// Counts.
    pub(crate) fn count(&self, what: Count) {
        self.counts[what as usize].add(1u64, Relaxed);
    }

    /// How often, by [`COUNTS`].
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        COUNTS.iter().copied().zip(self.counts.iter().map(|count| count.load(Relaxed)))
    }

    /// `bytes` that the device might still write stay allocated for ever.
    pub(crate) fn quarantine(&self, bytes: u64) {
        self.quarantined.add(bytes, Relaxed);
    }

    /// Bytes that were given up, see [`Self::quarantine`].
    pub(crate) fn quarantined(&self) -> u64 {
        self.quarantined.load(Relaxed)
    }
}

/// The account of memory in buffers.
pub(crate) struct Memory {
    limit: u64,
    used: Atomic<u64>,
}

impl Memory {
    fn new() -> Self {
        let limit = match *module_parameters::memory_mib.value_ref() {
            0 => raw::memory_bytes() / 4 * 3 / tally_uapi::PAGE_SIZE * tally_uapi::PAGE_SIZE,
            mib => mib.saturating_mul(1 << 20),
        };
        Self { limit, used: Atomic::new(0) }
    }

    /// The account of a client, out of that of all.
    pub(crate) fn of_client(&self) -> Self {
        let limit = match *module_parameters::client_memory_mib.value_ref() {
            0 => self.limit,
            mib => mib.saturating_mul(1 << 20).min(self.limit),
        };
        Self { limit, used: Atomic::new(0) }
    }

    /// Bytes that buffers may use.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that they use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Takes `bytes` from the account.
    ///
    /// # Errors
    /// ENOSPC: there are not as many left.
    pub(crate) fn take(&self, bytes: u64) -> Result {
        let mut used = self.used.load(Relaxed);
        loop {
            let sum = used.checked_add(bytes).filter(|&sum| sum <= self.limit).ok_or(ENOSPC)?;
            match self.used.cmpxchg(used, sum, Full) {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

#[kernel::macros::kunit_tests(tally_memory)]
mod tests {
    use super::*;

    /// "ENOSPC: more than the device's `memory_bytes` in all."
    #[test]
    fn the_account_holds_its_limit() {
        let memory = Memory { limit: 0x3000, used: Atomic::new(0) };
        assert!(memory.take(0x2000).is_ok());
        assert_eq!(memory.take(0x2000).err(), Some(ENOSPC));
        assert_eq!(memory.take(u64::MAX).err(), Some(ENOSPC));
        assert!(memory.take(0x1000).is_ok());
        memory.give(0x3000);
        assert_eq!(memory.used(), 0);
    }
}

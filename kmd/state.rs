// SPDX-License-Identifier: GPL-2.0
//! The state that files refer to. It lives as long as there are files, and outlives the hardware.

use kernel::prelude::*;
use kernel::rbtree::RBTreeNode;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};
use tally_uapi::firmware::{MAX_QUEUES, MAX_VMS};

use crate::account::Accounts;
use crate::call::{Commands, Kept, Sent};
use crate::clock::Clock;
use crate::module_parameters;
use crate::object::keep::Keep;
use crate::object::queue::Queue;
use crate::object::vm::Vm;
use crate::raw::time::monotonic_ns;
use crate::releases::Releases;
use crate::sleepers::Sleepers;
use crate::table::{Limits, Table};

/// Counters for debugfs and for tests.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// Interrupts taken.
    Interrupts,
    /// QUEUE_KICKs.
    Kicks,
    /// SEM_WAKEs that were forwarded to the device.
    Wakes,
    /// SEM_WAITs that went to sleep.
    Sleeps,
    /// Commands on the admin ring.
    Commands,
    /// VMs that became lost.
    Lost,
    /// Resets of the device, beyond those at probe and unbind.
    Resets,
    /// Commands that only ask for a sign of life.
    Pings,
}

/// Names of [`Count`], in its order.
pub(crate) const COUNTS: [&str; 8] = [
    "interrupts",
    "kicks",
    "wakes",
    "sleeps",
    "commands",
    "vms_lost",
    "resets",
    "pings",
];

/// The first fault since the driver was bound.
#[derive(Clone, Copy)]
pub(crate) struct FirstFault {
    /// Its time in CLOCK_MONOTONIC ns.
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
    /// The thread group that had opened the file.
    pub(crate) pid: i32,
}

/// Lines in the log about what clients did.
struct Log {
    /// Time from which they are counted, in CLOCK_MONOTONIC ns.
    since_ns: i64,
    lines: u32,
    /// Lines that were suppressed.
    left_out: u32,
}

/// See the module.
#[pin_data]
pub(crate) struct State {
    /// Whether the device is given the addresses of memory. Otherwise it is a process that maps what is bound.
    given_addresses: bool,
    /// VMs of all files.
    #[pin]
    pub(crate) vms: Table<Vm>,
    /// Queues of all files.
    #[pin]
    pub(crate) queues: Table<Queue>,
    /// Threads in SEM_WAIT.
    #[pin]
    pub(crate) sleepers: Sleepers,
    /// Threads that wait for room.
    #[pin]
    pub(crate) releases: Releases,
    /// Accounts of the device, its users and its files.
    pub(crate) accounts: Arc<Accounts>,
    /// The device's clock and ours.
    #[pin]
    pub(crate) clock: Clock,
    /// See [`FirstFault`].
    #[pin]
    pub(crate) fault: Mutex<Option<FirstFault>>,
    /// Answered commands whose resources no waiting thread will free.
    #[pin]
    left: Mutex<Commands<Keep>>,
    gone: Atomic<bool>,
    files: Atomic<u64>,
    #[pin]
    log: Mutex<Log>,
    quarantined: Atomic<u64>,
    refused: Atomic<bool>,
    counts: [Atomic<u64>; COUNTS.len()],
}

impl State {
    /// State of a device without files. `given_addresses`: see [`Self::given_addresses`].
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(given_addresses: bool) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                given_addresses,
                vms <- Table::new(MAX_VMS),
                queues <- Table::new(MAX_QUEUES),
                sleepers <- Sleepers::new(),
                releases <- Releases::new(),
                accounts: Accounts::new()?,
                clock <- Clock::new(),
                fault <- new_mutex!(None),
                left <- new_mutex!(Commands::new()),
                gone: Atomic::new(false),
                files: Atomic::new(1),
                log <- new_mutex!(Log { since_ns: 0, lines: 0, left_out: 0 }),
                quarantined: Atomic::new(0),
                refused: Atomic::new(false),
                counts: [const { Atomic::new(0) }; COUNTS.len()],
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Whether the device is given the addresses of memory. Otherwise it is a process that maps what is bound.
    pub(crate) fn given_addresses(&self) -> bool {
        self.given_addresses
    }

    /// Whether the device has gone for good.
    pub(crate) fn gone(&self) -> bool {
        self.gone.load(kernel::sync::atomic::Acquire)
    }

    /// Marks the device as gone: all sleepers return ENODEV.
    pub(crate) fn go(&self) {
        self.gone.xchg(true, Full);
        self.sleepers.wake_all();
        self.releases.note();
    }

    /// Calls `f` again when it answers ENOSPC while the device has yet to release what files of `user`
    /// have closed. The caller holds no lock.
    ///
    /// # Errors
    /// Those of `f`. ENOSPC: also if the device does not answer in time. EINTR: killed. ENOMEM.
    pub(crate) fn with_room<T>(&self, user: u32, mut f: impl FnMut() -> Result<T>) -> Result<T> {
        let patience_ns = i64::from(*module_parameters::admin_timeout_ms.value_ref()) * 1_000_000;
        let deadline_ns = monotonic_ns().saturating_add(patience_ns);
        let full = |answer: &Result<T>| matches!(answer, Err(error) if *error == ENOSPC);
        let mut answer = f();
        while full(&answer) && monotonic_ns() < deadline_ns {
            // A release that is under way now is noted after `done` was read.
            let done = self.releases.done();
            let under_way = self.is_releasing(user);
            // The last release may have happened since the previous call of `f`.
            answer = f();
            if !under_way {
                break;
            }
            if full(&answer) {
                self.releases.wait(done, deadline_ns)?;
            }
        }
        answer
    }

    /// Whether an object that a file of `user` has closed is not released yet.
    fn is_releasing(&self, user: u32) -> bool {
        self.vms
            .next(0, |vm| vm.owner().user == user && vm.ended())
            .is_some()
            || self
                .queues
                .next(0, |it| it.vm().owner().user == user && it.ended())
                .is_some()
    }

    /// A number for a new file, never used again.
    pub(crate) fn new_file(&self) -> u64 {
        self.files.fetch_add(1u64, Relaxed)
    }

    /// Whether another line about clients' actions may be logged: ten are allowed in five seconds,
    /// since clients can make any number of faults.
    pub(crate) fn may_log(&self) -> bool {
        let now = monotonic_ns();
        let mut log = self.log.lock();
        if now.saturating_sub(log.since_ns) > 5_000_000_000 {
            if log.left_out != 0 {
                pr_info!("{} messages were left out\n", log.left_out);
            }
            *log = Log {
                since_ns: now,
                lines: 0,
                left_out: 0,
            };
        }
        let may = log.lines < 10;
        log.lines += u32::from(may);
        log.left_out += u32::from(!may);
        may
    }

    /// Keeps the resources that an answered command has released until [`Self::reap`].
    pub(crate) fn leave(&self, sent: RBTreeNode<u64, Sent<Keep>>) {
        self.left.lock().insert(sent);
    }

    /// Frees the resources that [`Self::leave`] has kept.
    pub(crate) fn reap(&self) {
        loop {
            let mut left = self.left.lock();
            let Some(first) = left.cursor_front_mut() else {
                break;
            };
            let (_, node) = first.remove_current();
            drop(left);
            let (_, Sent { keep, quiet, .. }) = node.to_key_value();
            keep.settle(self, quiet);
        }
    }

    /// Limits of the number of VMs.
    pub(crate) fn vm_limits() -> Limits {
        Limits {
            file: *module_parameters::max_vms.value_ref(),
            user: *module_parameters::user_vms.value_ref(),
        }
    }

    /// Limits of the number of queues.
    pub(crate) fn queue_limits() -> Limits {
        Limits {
            file: *module_parameters::max_queues.value_ref(),
            user: *module_parameters::user_queues.value_ref(),
        }
    }

    /// The limits that follow from the module's parameters, by their names.
    pub(crate) fn limits(&self) -> [(&'static str, u64); 9] {
        let (vms, queues) = (Self::vm_limits(), Self::queue_limits());
        [
            ("max_vms", vms.file.into()),
            ("user_vms", vms.user.into()),
            ("max_queues", queues.file.into()),
            ("user_queues", queues.user.into()),
            ("user_memory", self.accounts.user_bytes()),
            ("user_buffers", self.accounts.user_buffers()),
            ("user_kernel", self.accounts.user_kernel()),
            (
                "admin_timeout_ms",
                (*module_parameters::admin_timeout_ms.value_ref()).into(),
            ),
            (
                "reset_timeout_ms",
                (*module_parameters::reset_timeout_ms.value_ref()).into(),
            ),
        ]
    }

    /// Increments a counter.
    pub(crate) fn count(&self, what: Count) {
        self.counts[what as usize].add(1u64, Relaxed);
    }

    /// The counters with their names of [`COUNTS`].
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        COUNTS
            .iter()
            .copied()
            .zip(self.counts.iter().map(|count| count.load(Relaxed)))
    }

    /// Counts `bytes` that are never freed, since the device might still write them.
    pub(crate) fn quarantine(&self, bytes: u64) {
        self.quarantined.add(bytes, Relaxed);
    }

    /// Notes that the device has refused to unmap: what it had mapped goes into quarantine.
    pub(crate) fn set_refused(&self) {
        self.refused.store(true, Relaxed);
    }

    /// Whether the device has ever refused to unmap.
    pub(crate) fn refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    /// Bytes in quarantine, see [`Self::quarantine`].
    pub(crate) fn quarantined(&self) -> u64 {
        self.quarantined.load(Relaxed)
    }
}

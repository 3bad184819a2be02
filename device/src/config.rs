// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a device and its queues, and its answers about them.

use std::time::Duration;

use tally_uapi::fault::Fault;

use crate::confined::Confined;
use crate::host::QueueId;

/// Most engines of a device.
pub const MAX_ENGINES: usize = 128;

/// The settings of a device.
#[derive(Clone)]
pub struct Config {
    /// Engines that take all packets; at least 1.
    pub compute_engines: u32,
    /// Engines that take all but DISPATCH; may be 0.
    pub copy_engines: u32,
    /// Worker threads: the execution units. None: one per CPU.
    pub workers: Option<usize>,
    /// Threads that take the place of stuck workers. None: workers + 8.
    pub substitutes: Option<usize>,
    /// The time for which a kernel may continue to run after its queue's destruction began.
    pub reset_time: Duration,
    /// Set for a device in an engine process.
    pub confined: Option<Confined>,
    /// The source of memory for groups of work-items. None: the device maps it.
    pub group_memory: Option<GroupMemory>,
    /// Told of each NOP that has a number, when it starts: the number, and the base of the CALL, or 0 in a ring.
    pub numbers: Option<fn(u32, u64)>,
    /// The seed of the adversarial device, which decides at random whatever SPEC.md
    /// leaves open, such as the order of unordered commands, and inserts pauses.
    pub chaos: Option<u64>,
}

/// The source of local memory and scratch, for an owner that keeps a record of all memory that kernels
/// reach. A thread keeps its memory until it ends.
#[derive(Clone, Copy, Debug)]
pub struct GroupMemory {
    /// Returns the given number of bytes, page-aligned, readable and writable; null: the device maps them.
    pub take: fn(usize) -> *mut u8,
    /// Takes them back.
    pub give: fn(*mut u8, usize),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            compute_engines: 4,
            copy_engines: 2,
            workers: None,
            substitutes: None,
            reset_time: Duration::from_millis(100),
            confined: None,
            group_memory: None,
            numbers: None,
            chaos: None,
        }
    }
}

/// A kind of engine. The encoding is the index in QUERY ENGINES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineClass {
    /// All packets.
    Compute = 0,
    /// All but DISPATCH.
    Copy = 1,
}

/// The order in which an engine serves queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Before the others.
    High = 0,
    /// The default.
    Normal = 1,
    /// When nothing else is runnable.
    Low = 2,
}

/// The parameters of a new queue. The owner has checked that ring and control
/// page are mapped as SPEC.md, chapter 10, requires.
#[derive(Clone, Copy, Debug)]
pub struct QueueConfig {
    /// The owner's number.
    pub id: QueueId,
    /// The engine's class.
    pub class: EngineClass,
    /// The index of the engine in its class.
    pub index: u32,
    /// Its priority.
    pub priority: Priority,
    /// VA of the ring, 64-byte aligned.
    pub ring: u64,
    /// Packets in the ring: a power of two, 16 to 1,048,576.
    pub packets: u32,
    /// VA of the control page, page-aligned.
    pub control: u64,
}

/// The state of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// Nothing to do.
    Idle,
    /// Runnable, running, or waiting for its own commands.
    Running,
    /// Waits for a cell.
    Parked,
    /// Faulted, stopped, or its VM is lost.
    Stopped,
}

/// A snapshot of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// Its state.
    pub state: QueueState,
    /// Its fault, if it has one.
    pub fault: Option<Fault>,
    /// VA and value that it is parked on.
    pub parked: Option<(u64, u64)>,
    /// Whether commands of it are in progress, in any of these states.
    pub works: bool,
    /// Ring packets taken.
    pub head: u64,
    /// Time on an engine, in ns.
    pub busy_ns: u64,
}

/// The reason why a device or a queue could not be made.
#[derive(Debug)]
pub enum Error {
    /// No thread, or no signal stack for one.
    Threads(std::io::Error),
    /// The engine does not exist.
    NoEngine,
    /// The ring's size or an address is not as [`QueueConfig`] requires.
    BadQueue,
    /// The VM is lost.
    VmLost,
    /// More than [`MAX_ENGINES`].
    TooManyEngines,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Threads(error) => write!(f, "cannot start a worker thread: {error}"),
            Self::NoEngine => f.write_str("the device has no such engine"),
            Self::BadQueue => f.write_str("the ring's size or an address is not valid"),
            Self::VmLost => f.write_str("the address space is lost"),
            Self::TooManyEngines => write!(f, "a device has at most {MAX_ENGINES} engines"),
        }
    }
}

impl std::error::Error for Error {}

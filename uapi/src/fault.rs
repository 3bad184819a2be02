// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Faults: the reasons why the device stops a queue.
//!
//! `device/SPEC.md`, chapter "Faults".

/// The reason why a queue was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FaultKind {
    /// The packet's opcode is not one of the engine's.
    BadOpcode = 1,
    /// A reserved bit or field is not zero, or a field is out of range.
    BadField = 2,
    /// An address does not have the alignment that its use requires.
    BadAlignment = 3,
    /// CALL or LINK inside a recording.
    BadNesting = 4,
    /// The packet or a kernel touched memory that is not mapped for it.
    PageFault = 5,
    /// A kernel ran into an instruction that the EU does not have.
    IllegalInstruction = 6,
    /// A kernel raised an arithmetic trap.
    ArithmeticTrap = 7,
    /// The queue was stopped by a reset while a kernel was running.
    Aborted = 8,
    /// The process that ran the VM's kernels was stopped: it broke its confinement,
    /// or died.
    EngineLost = 9,
    /// A wait that is not met, on a cell whose signallers are gone.
    Orphaned = 10,
    /// The device had no memory or no threads left for a command.
    OutOfResources = 11,
}

impl FaultKind {
    /// The kind whose encoding is `raw`.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::BadOpcode),
            2 => Some(Self::BadField),
            3 => Some(Self::BadAlignment),
            4 => Some(Self::BadNesting),
            5 => Some(Self::PageFault),
            6 => Some(Self::IllegalInstruction),
            7 => Some(Self::ArithmeticTrap),
            8 => Some(Self::Aborted),
            9 => Some(Self::EngineLost),
            10 => Some(Self::Orphaned),
            11 => Some(Self::OutOfResources),
            _ => None,
        }
    }

    /// A short name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadOpcode => "bad opcode",
            Self::BadField => "bad field",
            Self::BadAlignment => "bad alignment",
            Self::BadNesting => "bad nesting",
            Self::PageFault => "page fault",
            Self::IllegalInstruction => "illegal instruction",
            Self::ArithmeticTrap => "arithmetic trap",
            Self::Aborted => "aborted",
            Self::EngineLost => "engine lost",
            Self::Orphaned => "orphaned wait",
            Self::OutOfResources => "out of resources",
        }
    }
}

/// A fault as the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason.
    pub kind: FaultKind,
    /// The VA that was touched, or of the offending field's value; 0 if none.
    pub address: u64,
    /// Index of the ring packet (for a recording, of its CALL).
    pub packet: u64,
}
